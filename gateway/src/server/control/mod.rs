//! The operator's side door: a Unix socket that takes commands as lines of JSON and answers in lines.
//!
//! ```text
//! accept thread ─ peer's user id ─ a thread a client ─ a line ─ command table ─ handler ─ lines, the last of them `ok` or `error`
//! ```
//!
//! It runs on threads of its own, which no worker waits for; what a handler asks of the cache's writer or of the snapshot is
//! bounded work at a time. Invariants: nobody but this process's own user and root is answered; every line of a client
//! gets exactly one last line; the number of clients, the length of a line and the time that either side may take are bounded.

mod cache;
mod import;
mod line;
mod paths;
mod select;
mod socket;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use zerohop_cache::Cache;

use self::line::{Fields, Lines};
pub(super) use self::socket::{Control, Socket, bind};
pub(crate) use self::{import::MOST as MOST_PAIRS, line::MAX_LINE, paths::path};
use crate::{log::Log, metrics::ControlMetrics, worker};

/// What commands may look at and act on.
pub(super) struct Site {
    /// What workers share: phase, snapshot, counters.
    pub(super) shared: Arc<worker::Shared>,
    /// Where answers are kept, if they are.
    pub(super) cache: Option<Arc<Cache>>,
    /// Bound of the cache in bytes; 0 without one.
    pub(super) cache_bytes: u64,
    /// Where requests are served.
    pub(super) addresses: Vec<String>,
    pub(super) log: Log,
    pub(super) metrics: Arc<ControlMetrics>,
    pub(super) started: Instant,
}

/// Why a command has no `ok`.
pub(super) enum Failure {
    /// It is wrong, or cannot be done: this is why.
    Refused(String),
    /// The client does not take the reply.
    Gone,
}

impl Failure {
    fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }
}

impl From<std::io::Error> for Failure {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

/// What became of a command; the text is what its last line tells.
type Outcome = Result<serde_json::Value, Failure>;

/// A command of the table.
struct Command {
    name: &'static str,
    /// What its line may hold beside `command`.
    fields: &'static [&'static str],
    /// Whether it changes anything: such a command is logged.
    changes: bool,
    run: fn(&Site, &Fields<'_>, &mut Lines<'_>) -> Outcome,
}

/// Every command. Another one is another line, with a handler and its part of the documentation.
const COMMANDS: &[Command] = &[
    Command {
        name: "status",
        fields: &[],
        changes: false,
        run: |site, _, _| Ok(to_value(&status(site))),
    },
    Command {
        name: "cache.stat",
        fields: &[],
        changes: false,
        run: cache::stat,
    },
    Command {
        name: "cache.purge",
        fields: select::FIELDS,
        changes: true,
        run: cache::purge,
    },
    Command {
        name: "cache.pin",
        fields: select::FIELDS,
        changes: true,
        run: |site, fields, _| cache::pin(site, fields, true),
    },
    Command {
        name: "cache.unpin",
        fields: select::FIELDS,
        changes: true,
        run: |site, fields, _| cache::pin(site, fields, false),
    },
    Command {
        name: "cache.heat",
        fields: &["model"],
        changes: false,
        run: cache::heat,
    },
    Command {
        name: "cache.dump",
        fields: &["key", "model", "tenant", "space", "prefix", "all", "body"],
        changes: false,
        run: cache::dump,
    },
    Command {
        name: "cache.verify",
        fields: &[],
        changes: false,
        run: cache::verify,
    },
    Command {
        name: "cache.compact",
        fields: &[],
        changes: true,
        run: cache::compact,
    },
    Command {
        name: "cache.import",
        fields: &["pairs", "path", "tenant", "api_key"],
        changes: true,
        run: import::import,
    },
];

/// The names of all commands, for the metrics.
pub(super) fn names() -> Vec<&'static str> {
    COMMANDS.iter().map(|command| command.name).collect()
}

#[derive(Serialize)]
struct Status<'a> {
    version: &'static str,
    pid: u32,
    phase: &'static str,
    uptime_s: u64,
    listen: &'a [String],
    models: Vec<String>,
}

fn status(site: &Site) -> Status<'_> {
    let snapshot = site.shared.snapshot();
    Status {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        phase: match site.shared.phase() {
            worker::Phase::Loading => "loading",
            worker::Phase::Ready => "ready",
            worker::Phase::Draining => "draining",
        },
        uptime_s: site.started.elapsed().as_secs(),
        listen: &site.addresses,
        models: snapshot.models.iter().map(|model| model.id.to_string()).collect(),
    }
}

/// A plain value as JSON; what cannot be written as such is null, which no value here is.
fn to_value(value: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Answers one line of a client.
///
/// # Errors
/// If the client does not take the reply.
fn answer(site: &Site, line: &[u8], out: &mut Lines<'_>) -> std::io::Result<()> {
    let begun = Instant::now();
    let (name, outcome) = match parse(line) {
        Ok((command, fields)) => (Some(command), (command.run)(site, &fields, out)),
        Err(why) => (None, Err(Failure::Refused(why))),
    };
    site.metrics.command(name.map(|command| command.name), outcome.is_ok());
    if let Some(command) = name.filter(|command| command.changes) {
        log(site, command, &outcome, begun.elapsed());
    }
    match outcome {
        Ok(told) => out.last("ok", &told),
        Err(Failure::Refused(why)) => out.last("error", &why),
        Err(Failure::Gone) => Err(std::io::ErrorKind::BrokenPipe.into()),
    }
}

/// What was changed is in the log, without anything of a tenant's.
fn log(site: &Site, command: &Command, outcome: &Outcome, took: Duration) {
    let (name, took) = (command.name, took.as_millis());
    match outcome {
        Ok(told) => {
            let numbers = told.as_object().into_iter().flatten();
            let shown: Vec<_> = numbers
                .filter(|(_, value)| value.is_number())
                .map(|(key, value)| format!("{key} {value}"))
                .collect();
            site.log
                .info(format_args!("control: {name}: {} in {took} ms", shown.join(", ")));
        }
        Err(Failure::Refused(_)) => site.log.info(format_args!("control: {name} was refused")),
        Err(Failure::Gone) => site.log.info(format_args!("control: {name}: the client left")),
    }
}

/// The command of a line and its fields, none of which is unknown to it.
fn parse(line: &[u8]) -> Result<(&'static Command, Fields<'_>), String> {
    let fields = Fields::read(line)?;
    let Some(name) = fields.text("command")? else {
        return Err(format!("no `command`: give one of {}", names().join(", ")));
    };
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(format!("no command {name:?}: there are {}", names().join(", ")));
    };
    if let Some(unknown) = fields
        .names()
        .find(|field| *field != "command" && !command.fields.contains(field))
    {
        let takes = match command.fields {
            [] => "no fields".to_owned(),
            fields => fields.join(", "),
        };
        return Err(format!("{name} has no field {unknown:?}: it takes {takes}"));
    }
    Ok((command, fields))
}

#[cfg(test)]
mod tests;
