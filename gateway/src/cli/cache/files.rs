//! `verify` and `compact`: of a running gateway's files through its control socket, of a stopped one's by opening them.
//!
//! Opening them does what a gateway's start does: the last segment is sealed, and a part that cannot be opened is removed. Invariant:
//! files are opened here only where no gateway answers, and their lock sees to it that none has them open.

use std::{io::Write, sync::mpsc};

use serde_json::{Value, json};
use zerohop_cache::{Cache, Note, Notes, PartNumber, index::NAME_OF_FILE, segment::part};

use super::{args::At, ask::Asker};
use crate::{
    cli::{Failure, load, source},
    server::keeping,
};

/// Whose files they are.
enum Owner {
    Running(Asker),
    /// And what was wrong when they were opened.
    Stopped(Cache, Vec<Note>),
}

impl Owner {
    fn find(at: &At) -> Result<Self, Failure> {
        let unreachable = match Asker::connect(at) {
            Ok(asker) => return Ok(Self::Running(asker)),
            Err(why) => why,
        };
        let Some(config) = &at.config else {
            return Err(unreachable);
        };
        let config = load(&source(Some(config.clone()), Vec::new()))?;
        let (tell, faults) = mpsc::channel();
        let notes = Notes::to(move |note| {
            // Whoever opened them may have what it wants.
            let _told = tell.send(note);
        });
        let files = config
            .cache
            .as_ref()
            .map(|cache| keeping::files(cache, notes))
            .transpose();
        match files.map_err(Failure::Start)?.flatten() {
            Some(cache) => Ok(Self::Stopped(cache, faults.try_iter().filter(Note::is_fault).collect())),
            None => Err(unreachable),
        }
    }
}

/// Checks every file.
pub(super) fn verify(at: &At, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut files, mut damaged) = (0, 0);
    let mut told = Ok(());
    let mut tell = |name: &str, entries: u64, bytes: u64, damage: Option<&str>| {
        files += 1;
        damaged += u64::from(damage.is_some());
        let mib = bytes as f64 / f64::from(1 << 20);
        let state = damage.map_or("whole".to_owned(), |why| format!("DAMAGED: {why}"));
        told = writeln!(out, "{name}: entries {entries}, {mib:.1} MiB: {state}");
        told.is_ok()
    };
    match Owner::find(at)? {
        Owner::Running(mut asker) => {
            asker.ask_each(&json!({"command": "cache.verify"}), |entry| {
                let entry: Value = serde_json::from_str(entry).unwrap_or_default();
                let number = |name: &str| entry[name].as_u64().unwrap_or(0);
                let name = entry["file"].as_str().unwrap_or("a file");
                tell(name, number("entries"), number("bytes"), entry["damage"].as_str())
            })?;
        }
        Owner::Stopped(cache, faults) => {
            for fault in &faults {
                match fault {
                    Note::PartDamaged(number, why) => tell(&part::name(*number), 0, 0, Some(why)),
                    Note::IndexRebuilt(why) => tell(NAME_OF_FILE, 0, 0, Some(why)),
                    _ => true,
                };
            }
            let mut after = None;
            while let Some(it) = cache.check(after) {
                if !tell(&it.file, it.entries, it.bytes, it.damage.as_deref()) {
                    break;
                }
                after = Some(it.number);
            }
        }
    }
    told?;
    if files == 0 {
        return Err(Failure::Work("a cache in memory has no files".into()));
    }
    match damaged {
        0 => Ok(()),
        _ => Err(Failure::Work(format!("{damaged} of {files} files are damaged"))),
    }
}

/// Gives the room of dead answers back.
pub(super) fn compact(at: &At, out: &mut dyn Write) -> Result<(), Failure> {
    let (renewed, before, bytes) = match Owner::find(at)? {
        Owner::Running(mut asker) => {
            let told = asker.ask(&json!({"command": "cache.compact"}))?;
            let number = |name: &str| told[name].as_u64().unwrap_or(0);
            (number("renewed"), number("bytes_before"), number("bytes"))
        }
        Owner::Stopped(cache, _) => {
            let before = cache.stats().disk_bytes;
            let (mut renewed, mut after) = (0, PartNumber(0));
            while let Some(number) = cache.renew(after) {
                (renewed, after) = (renewed + 1, number);
            }
            (renewed, before, cache.stats().disk_bytes)
        }
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Ok(writeln!(
        out,
        "{renewed} parts made anew; files {:.1} MiB before, {:.1} MiB now",
        mib(before),
        mib(bytes)
    )?)
}
