//! Command lines that are taken and refused, and what the commands on configurations print.

use std::sync::atomic::{AtomicUsize, Ordering};

use clap::{CommandFactory, error::ErrorKind};

use super::*;

/// A file of the test's own, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(text: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "zerohop-cli-{}-{}.yaml",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("the temporary folder can be written");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain name")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

fn parse(line: &str) -> Result<Command, clap::Error> {
    let words = std::iter::once("zerohop").chain(line.split_whitespace());
    Args::try_parse_from(words).map(|args| args.command)
}

fn run(args: &[&str]) -> Result<String, Failure> {
    let words = std::iter::once("zerohop").chain(args.iter().copied());
    let args = Args::try_parse_from(words).expect("a good command line");
    let mut out = Vec::new();
    dispatch(args.command, &mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}

#[test]
fn the_commands_fit_together() {
    Args::command().debug_assert();
}

#[test]
fn command_lines_are_taken_or_refused() {
    let check = |line: &str, wanted: Result<(), ErrorKind>| {
        assert_eq!(parse(line).map(|_| ()).map_err(|error| error.kind()), wanted, "{line}");
    };
    for line in [
        "serve",
        "serve --config a.yaml --listen 127.0.0.1:0 --listen [::1]:80 --io epoll",
        "serve -c a.yaml --io uring",
        "run --prompt hello",
        "run --prompt hello --model m --max-tokens 5 --temperature 0 --seed 18446744073709551615",
        "run -p x --temperature 2.0 --config a.yaml",
        "config check a.yaml",
        "config print",
        "config print --config a.yaml",
        "model inspect models/tiny",
        "safety check --prompt x",
        "safety check --model m --rules r.yaml --config a.yaml -p x",
        "safety token-map --rule 1",
        "cache stat --socket s",
        "cache stat --json -c a.yaml",
        "cache purge --key 00",
        "cache purge --all --yes --socket s",
        "cache pin --prefix-of a.json",
        "cache unpin --tenant a",
        "cache heat --csv --model m",
        "cache dump",
        "cache dump --format jsonl --space 00 --no-body",
        "cache import a.jsonl --api chat --tenant t",
        "cache import a.jsonl --key-env K",
        "cache warm a.jsonl",
        "cache warm a.jsonl --url http://x --concurrency 256 --rate 5 --resume --key-env K --api messages",
    ] {
        check(line, Ok(()));
    }
    for line in [
        "serve --listen 8080",
        "serve --listen localhost:80",
        "serve --io auto2",
        "run --prompt x --max-tokens 0",
        "run --prompt x --temperature 2.1",
        "run --prompt x --temperature -0.1",
        "run --prompt x --temperature NaN",
        "run --prompt x --seed -1",
        "cache warm a.jsonl --concurrency 0",
        "cache warm a.jsonl --rate 0",
        "cache dump --format csv",
    ] {
        let kind = parse(line).expect_err(line).kind();
        let refused = [
            ErrorKind::ValueValidation,
            ErrorKind::InvalidValue,
            ErrorKind::UnknownArgument,
        ];
        assert!(refused.contains(&kind), "{line}: {kind:?}");
    }
    check("", Err(ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand));
    check("run", Err(ErrorKind::MissingRequiredArgument));
    check("config check", Err(ErrorKind::MissingRequiredArgument));
    check("config check a b", Err(ErrorKind::UnknownArgument));
    check("safety check", Err(ErrorKind::MissingRequiredArgument));
    check("cache purge", Err(ErrorKind::MissingRequiredArgument));
    check("cache purge --yes", Err(ErrorKind::MissingRequiredArgument));
    check("cache pin --key 00 --model m", Err(ErrorKind::ArgumentConflict));
    check("cache dump --tenant t --all", Err(ErrorKind::ArgumentConflict));
    check(
        "cache stat --socket s --config a.yaml",
        Err(ErrorKind::ArgumentConflict),
    );
    check(
        "cache import a.jsonl --tenant t --key-env K",
        Err(ErrorKind::ArgumentConflict),
    );
    check("sreve", Err(ErrorKind::InvalidSubcommand));
    check("--help", Err(ErrorKind::DisplayHelp));
    check("--version", Err(ErrorKind::DisplayVersion));
}

#[test]
fn the_version_is_the_packages() {
    let text = parse("--version").expect_err("no command").to_string();
    assert_eq!(text, format!("zerohop {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_good_configuration_is_praised_and_printed() {
    let file = Scratch::new("server: {listen: [\"127.0.0.1:8081\", \"[::1]:8081\"]}\n");
    assert_eq!(
        run(&["config", "check", file.path()]),
        Ok(format!(
            "{}: good: serves tiny, tiny-embed on 127.0.0.1:8081, [::1]:8081\n",
            file.path()
        ))
    );
    let printed = run(&["config", "print", "--config", file.path()]).expect("good");
    let again = Scratch::new(&printed);
    assert_eq!(run(&["config", "print", "--config", again.path()]), Ok(printed));
    assert!(
        run(&["config", "print"])
            .expect("the defaults")
            .starts_with("server:\n")
    );
}

#[test]
fn a_bad_configuration_does_not_start_anything() {
    let file = Scratch::new("server: {max_connections: 0}\nlogging: {levle: info}\n");
    let wanted = format!(
        "{0}:1:27: server.max_connections: 0 is not possible: give at least 1\n\
         {0}:2:11: logging.levle: unknown key: did you mean `level`?",
        file.path()
    );
    for args in [
        &["config", "check", file.path()][..],
        &["config", "print", "--config", file.path()],
        &["serve", "--config", file.path()],
        &["run", "--prompt", "x", "--config", file.path()],
    ] {
        assert_eq!(run(args), Err(Failure::Start(wanted.clone())), "{args:?}");
    }
}

#[test]
fn a_broken_pipe_is_quiet() {
    struct Gone(io::ErrorKind);

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let print = || parse("config print").expect("a good command line");
    assert_eq!(
        dispatch(print(), &mut Gone(io::ErrorKind::BrokenPipe)),
        Err(Failure::BrokenPipe)
    );
    let failure = dispatch(print(), &mut Gone(io::ErrorKind::StorageFull));
    assert!(matches!(failure, Err(Failure::Work(_))), "{failure:?}");
}
