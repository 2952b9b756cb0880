//! The plan: for each setting of a profile what it is now, what is wanted, and what would be changed.
//!
//! Looks and changes nothing. Invariant: a row that is not to be changed carries no change, whatever the reason.

use std::io;

use super::{
    catalogue::{Home, Setting},
    files::Files,
    limits,
    profile::Profile,
    queues::{self, Queue},
    rule::{self, Verdict},
};

/// The settings that a boot applies, by sysctl.d(5); late in the order, so that the system's own files give way.
pub(super) const SYSCTL_FILE: &str = "/etc/sysctl.d/99-zerohop.conf";
/// The limits that a login applies, by limits.conf(5).
pub(super) const LIMITS_FILE: &str = "/etc/security/limits.d/99-zerohop.conf";

/// A line of the plan.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) setting: &'static Setting,
    /// The setting's name, with the card and queue where there are several.
    pub(super) name: String,
    pub(super) now: String,
    pub(super) wanted: String,
    pub(super) state: State,
}

/// What is the matter with a setting.
#[derive(Debug)]
pub(super) enum State {
    /// As wanted.
    Good,
    /// Better than wanted.
    Better,
    /// Another value, chosen by somebody.
    Kept,
    /// This kernel or machine does not have it.
    Absent,
    /// It cannot be read or understood; why.
    Odd(String),
    /// To be changed.
    Change(Change),
}

/// A change.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// Of a kernel's file.
    Value(Value),
    /// Lines for every login.
    Limits {
        lines: Vec<String>,
        /// The open files that a login would ask for: above `fs.nr_open` no login works.
        files: Option<u64>,
    },
}

/// A new value for a kernel's file.
#[derive(Debug, Clone)]
pub(super) struct Value {
    pub(super) path: String,
    /// All that the file says now.
    pub(super) before: String,
    pub(super) write: String,
    /// Its name for the drop-in file; none if sysctl.d cannot set it.
    pub(super) key: Option<&'static str>,
}

/// The kernel's file of a sysctl.
pub(super) fn path(key: &str) -> String {
    format!("/proc/sys/{}", key.replace('.', "/"))
}

/// Looks at every setting of the profile.
pub(super) fn look(files: &dyn Files, profile: &Profile) -> Vec<Row> {
    let rows = profile.wants.iter().map(|(setting, wanted)| match setting.home {
        Home::Sysctl => vec![sysctl(files, setting, wanted)],
        Home::Bracketed(path) => vec![bracketed(files, setting, wanted, path)],
        Home::Limit { item, label, scale } => vec![limit(files, setting, wanted, (item, label, scale))],
        Home::PacketCpus => packets(files, setting, wanted),
    });
    rows.flatten().collect()
}

fn row(setting: &'static Setting, wanted: &str, now: impl Into<String>, state: State) -> Row {
    Row {
        setting,
        name: setting.name.to_owned(),
        now: now.into(),
        wanted: wanted.to_owned(),
        state,
    }
}

/// A file that is not there is a setting that this kernel lacks; any other error is told.
fn unread(setting: &'static Setting, wanted: &str, error: &io::Error) -> Row {
    match error.kind() {
        io::ErrorKind::NotFound => row(setting, wanted, "", State::Absent),
        _ => row(setting, wanted, "", State::Odd(error.to_string())),
    }
}

fn sysctl(files: &dyn Files, setting: &'static Setting, wanted: &str) -> Row {
    let path = path(setting.name);
    let before = match files.read(&path) {
        Ok(text) => text,
        Err(error) => return unread(setting, wanted, &error),
    };
    let now = rule::words(&before);
    let state = state(setting.rule.judge(&before, wanted), |write| {
        Change::Value(Value {
            path,
            before,
            write,
            key: Some(setting.name),
        })
    });
    row(setting, wanted, now, state)
}

fn bracketed(files: &dyn Files, setting: &'static Setting, wanted: &str, path: &str) -> Row {
    let text = match files.read(path) {
        Ok(text) => text,
        Err(error) => return unread(setting, wanted, &error),
    };
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match chosen {
        Some((now, _)) if now == wanted => row(setting, wanted, now, State::Good),
        Some((now, _)) => row(setting, wanted, now, State::Kept),
        None => row(setting, wanted, rule::words(&text), odd()),
    }
}

fn limit(files: &dyn Files, setting: &'static Setting, wanted: &str, of: (&str, &str, u64)) -> Row {
    let (item, label, scale) = of;
    let limit = match limits::now(files, item, label, scale) {
        Ok(limit) => limit,
        Err(error) => return unread(setting, wanted, &error),
    };
    let Ok(number) = wanted.parse::<u64>() else {
        return row(
            setting,
            wanted,
            limit.text(),
            State::Odd(String::from("no number is wanted")),
        );
    };
    let lines = limit.raise(item, scale, number);
    let state = match (lines.is_empty(), limit.soft == number && limit.hard == number) {
        (true, true) => State::Good,
        (true, false) => State::Better,
        (false, _) => State::Change(Change::Limits {
            lines,
            files: (item == "nofile").then_some(number),
        }),
    };
    row(setting, wanted, limit.text(), state)
}

fn packets(files: &dyn Files, setting: &'static Setting, wanted: &str) -> Vec<Row> {
    match queues::scarce(files) {
        Ok(queues) if queues.is_empty() => vec![row(setting, wanted, "no card is short", State::Good)],
        Ok(queues) => queues.into_iter().map(|queue| shared(setting, wanted, queue)).collect(),
        Err(error) => vec![unread(setting, wanted, &error)],
    }
}

fn shared(setting: &'static Setting, wanted: &str, queue: Queue) -> Row {
    let now = queue.now.trim().to_owned();
    let state = if now == queue.all {
        State::Good
    } else if queue.free() {
        State::Change(Change::Value(Value {
            path: queue.path,
            before: queue.now,
            write: queue.all,
            key: None,
        }))
    } else {
        State::Kept
    };
    Row {
        name: format!("{} {}", setting.name, queue.name),
        ..row(setting, wanted, now, state)
    }
}

fn state(verdict: Verdict, change: impl FnOnce(String) -> Change) -> State {
    match verdict {
        Verdict::Good => State::Good,
        Verdict::Better => State::Better,
        Verdict::Kept => State::Kept,
        Verdict::Odd => odd(),
        Verdict::Set(write) => State::Change(change(write)),
    }
}

fn odd() -> State {
    State::Odd(String::from("the value is of a form that is not known here"))
}
