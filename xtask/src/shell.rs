//! Starts other programs: shown to the user before they run, checked after.
//!
//! Nothing here interprets a shell line. Invariant: a program that fails is a [`Failure`] naming it, never a silence.

use std::{
    io::{self, BufRead, BufReader, Write},
    process::{Command, ExitStatus, Stdio},
};

use crate::failure::{Doing, Failure, Outcome};

/// Prints one line for the user.
#[expect(clippy::print_stdout, reason = "tasks talk to their user")]
pub(crate) fn say(line: impl AsRef<str>) {
    println!("{}", line.as_ref());
}

/// The command as a user would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or(&program).to_owned();
    command.get_args().fold(program, |line, argument| {
        let argument = argument.to_string_lossy();
        let quote = if argument.contains(char::is_whitespace) {
            "'"
        } else {
            ""
        };
        format!("{line} {quote}{argument}{quote}")
    })
}

/// Shows the command, runs it on the user's terminal, and fails if it fails.
pub(crate) fn run(command: &mut Command) -> Outcome {
    say(format!("$ {}", shown(command)));
    let status = command.status().doing(|| format!("start {}", shown(command)))?;
    success(command, status)
}

/// Runs the command silently; its standard output, or a failure with the end of its standard error.
pub(crate) fn output(command: &mut Command) -> Outcome<Vec<u8>> {
    let output = command.output().doing(|| format!("start {}", shown(command)))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("no message");
    Err(Failure::new(format!(
        "{} failed ({}): {}",
        shown(command),
        output.status,
        last.trim()
    )))
}

/// Shows the command, then hands each line of its output (both streams, in order) to `line`, which says whether the
/// user sees it too. Returns how it ended.
pub(crate) fn lines(command: &mut Command, mut line: impl FnMut(&str) -> bool) -> Outcome<ExitStatus> {
    say(format!("$ {}", shown(command)));
    let doing = shown(command);
    let (reader, writer) = io::pipe().doing(|| String::from("make a pipe"))?;
    let errors = writer.try_clone().doing(|| String::from("share a pipe"))?;
    command.stdin(Stdio::null()).stdout(writer).stderr(errors);
    let mut child = command.spawn().doing(|| format!("start {doing}"))?;
    // The command holds our ends of the pipe: they must go, or the reader never sees the end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    let mut screen = io::stdout().lock();
    while reader
        .read_until(b'\n', &mut bytes)
        .doing(|| format!("read from {doing}"))?
        > 0
    {
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        if line(text) {
            writeln!(screen, "{text}").doing(|| String::from("write to standard output"))?;
        }
        bytes.clear();
    }
    child.wait().doing(|| format!("wait for {doing}"))
}

/// Fails unless the command ended well.
pub(crate) fn success(command: &Command, status: ExitStatus) -> Outcome {
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("{} failed ({status})", shown(command))))
}

/// Whether a program of this name can be started.
pub(crate) fn exists(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}
