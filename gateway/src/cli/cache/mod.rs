//! `cache …`: what an operator does with stored answers.
//!
//! A running gateway is asked through its control socket; `warm` is an ordinary client of its API. Only `verify` and `compact` open a
//! cache themselves, that of a gateway that is stopped. Invariant: everything else but `warm` and `import` is one line of the
//! protocol that `docs/control.md` describes.

mod args;
mod ask;
mod files;
mod guess;
mod heat;
mod import;
mod lines;
mod tally;
mod warm;

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
};

use serde_json::{Value, json};

pub(super) use self::args::CacheCommand;
use self::{
    args::{At, Entries},
    ask::Asker,
};
use super::Failure;
use crate::api::{Scratch, anthropic, openai};

/// Runs one of the commands.
pub(super) fn run(command: CacheCommand, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        CacheCommand::Stat { at, json } => stat(&mut Asker::connect(&at)?, json, out),
        CacheCommand::Purge { at, which, yes } => {
            if which.all && !yes {
                return Err(Failure::Start("this removes every entry: say --yes as well".into()));
            }
            let told = change(&at, "cache.purge", &which)?;
            Ok(writeln!(out, "removed {}", told["removed"])?)
        }
        CacheCommand::Pin { at, which } => pinned(&change(&at, "cache.pin", &which)?, "pinned", out),
        CacheCommand::Unpin { at, which } => pinned(&change(&at, "cache.unpin", &which)?, "let go", out),
        CacheCommand::Heat { at, model, csv } => {
            let colour =
                io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            heat::show(&mut Asker::connect(&at)?, model.as_deref(), csv, colour, out)
        }
        CacheCommand::Dump {
            at,
            which,
            format: args::Format::Jsonl,
            no_body,
        } => dump(&at, &which, !no_body, out),
        CacheCommand::Verify { at } => files::verify(&at, out),
        CacheCommand::Compact { at } => files::compact(&at, out),
        CacheCommand::Import {
            at,
            file,
            api,
            tenant,
            key_env,
        } => {
            let whose = import::Whose {
                api,
                tenant,
                key: key_env.as_deref().map(key).transpose()?,
            };
            import::import(&mut Asker::connect(&at)?, &file, &whose, out)
        }
        CacheCommand::Warm(args) => warm::warm(&args, out),
    }
}

/// The key in an environment variable.
fn key(variable: &str) -> Result<String, Failure> {
    let value = std::env::var(variable).unwrap_or_default();
    match value.trim() {
        "" => Err(Failure::Start(format!(
            "the environment has no {variable}, or it is empty"
        ))),
        key => Ok(key.to_owned()),
    }
}

/// Asks for a change of some entries.
fn change(at: &At, command: &str, which: &Entries) -> Result<Value, Failure> {
    let request = request(command, which)?;
    Asker::connect(at)?.ask(&request)
}

/// The line of a command on some entries.
fn request(command: &str, which: &Entries) -> Result<Value, Failure> {
    let mut request = json!({"command": command});
    let prefix = match &which.prefix_of {
        Some(file) => Some(prefix_of(file)?),
        None => which.prefix.clone(),
    };
    let named = [
        ("key", &which.key),
        ("model", &which.model),
        ("tenant", &which.tenant),
        ("space", &which.space),
        ("prefix", &prefix),
    ];
    match named
        .into_iter()
        .find_map(|(name, value)| value.as_ref().map(|value| (name, value)))
    {
        Some((name, value)) => request[name] = value.as_str().into(),
        None => request["all"] = true.into(),
    }
    Ok(request)
}

/// The prefix of the conversation that a request holds, in either dialect.
fn prefix_of(file: &Path) -> Result<String, Failure> {
    let failed = |why: &str| Failure::Start(format!("{}: {why}", file.display()));
    let body = std::fs::read(file).map_err(|error| failed(&error.to_string()))?;
    let mut scratch = Scratch::default();
    let request = guess::request(body.trim_ascii()).map_err(|why| failed(&why))?;
    let body = request.body.as_bytes();
    let read = match request.path {
        "/v1/messages" => anthropic::messages(body, &mut scratch, false),
        _ => openai::chat(body, &mut scratch, false),
    };
    let (request, _) = read.map_err(|error| failed(&error.message))?;
    let context = crate::key::context(&request.conversation.messages);
    Ok(context.0.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn pinned(told: &Value, word: &str, out: &mut dyn Write) -> Result<(), Failure> {
    Ok(writeln!(
        out,
        "{word} {}; {} are pinned",
        told["changed"], told["pinned"]
    )?)
}

fn dump(at: &At, which: &Entries, body: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let mut request = request("cache.dump", which)?;
    request["body"] = body.into();
    let mut written = Ok(());
    let told = Asker::connect(at)?.ask_each(&request, |entry| {
        written = out.write_all(entry.as_bytes()).and_then(|()| out.write_all(b"\n"));
        written.is_ok()
    });
    written?;
    let gone = told?["gone"].as_u64().unwrap_or(0);
    if gone > 0 {
        writeln!(io::stderr(), "{gone} entries went while they were listed")?;
    }
    Ok(())
}

fn stat(asker: &mut Asker, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let stat = asker.ask(&json!({"command": "cache.stat"}))?;
    if json {
        return Ok(writeln!(out, "{stat:#}")?);
    }
    let number = |path: &str| stat.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let share = |part: u64, whole: u64| {
        if whole == 0 {
            0.0
        } else {
            part as f64 * 100.0 / whole as f64
        }
    };
    let (bytes, bound) = (number("/bytes"), number("/bound_bytes"));
    let [hit, miss, bypass] = ["hit", "miss", "bypass"].map(|name| number(&format!("/requests/{name}")));
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    writeln!(
        out,
        "entries    {}, pinned {}, policy {}",
        number("/entries"),
        number("/pinned"),
        stat["policy"].as_str().unwrap_or("off")
    )?;
    writeln!(
        out,
        "size       {:.1} of {:.1} MiB ({:.1} %), {:.1} MiB wait for the writer",
        mib(bytes),
        mib(bound),
        share(bytes, bound),
        mib(number("/waiting_bytes"))
    )?;
    writeln!(
        out,
        "requests   hit {hit}, miss {miss}, bypass {bypass}; hits of those looked for: {:.1} %",
        share(hit, hit + miss)
    )?;
    let list = |section: &str, names: &[&str]| {
        let each = names
            .iter()
            .map(|name| format!("{name} {}", number(&format!("/{section}/{name}"))));
        each.collect::<Vec<_>>().join(", ")
    };
    writeln!(
        out,
        "puts       {}",
        list("puts", &["kept", "writer_behind", "too_large"])
    )?;
    writeln!(
        out,
        "removed    {}",
        list("removed", &["bucket_full", "size", "purged"])
    )?;
    match stat["half_life_s"].as_f64() {
        Some(seconds) => writeln!(out, "half-life  {seconds:.1} s, adaptive")?,
        None => writeln!(out, "half-life  by the rule as written")?,
    }
    for model in stat["models"].as_array().into_iter().flatten() {
        let bytes = model["bytes"].as_u64().unwrap_or(0);
        let name = model["model"].as_str().unwrap_or_default();
        writeln!(
            out,
            "model      {name}: entries {}, {:.1} MiB",
            model["entries"],
            mib(bytes)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
