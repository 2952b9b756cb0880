//! `cargo xtask differential`: the table of hostile clients against the gateway, nginx and llhttp, side by side.
//!
//! Nothing here says who is right: that stands in `tests/hostile/differences.txt`, with the reason. Invariant: the task
//! succeeds only if the differences that were seen are exactly those that the file lists.

mod known;
mod llhttp;
mod nginx;
mod report;
mod verdict;

use std::{
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use zerohop_tests::{
    gateway::Gateway,
    hostile::{self, Case, Delivery, play},
};

use self::{nginx::Nginx, verdict::Verdict};
use crate::{failure::Outcome, harness, place::Place, run, setup, setup::Library, shell};

/// Whom the gateway is compared with.
const PEERS: [&str; 3] = ["nginx", "nginx-body", "llhttp"];
/// Clients of each server at a time: most of them wait.
const CLIENTS: usize = 16;

/// What everybody made of one case.
struct Row {
    case: String,
    ours: Verdict,
    /// In the order of [`PEERS`].
    theirs: [Verdict; 3],
}

impl Row {
    /// The peers that differ, with what they did.
    fn differences(&self) -> impl Iterator<Item = (&'static str, Verdict)> {
        PEERS
            .into_iter()
            .zip(self.theirs)
            .filter(|(_, theirs)| *theirs != self.ours)
    }
}

/// Builds the gateway, compares, and writes bench/DIFFERENTIAL.md.
pub(crate) fn differential(place: &Place) -> Outcome {
    let library = setup::setup(place)?;
    run::build(place)?;
    let rows = compared(place, &library)?;
    let known = known::Known::read(place)?;
    report::publish(place, &rows, &known)?;
    known.check(&rows)
}

/// Why the list of differences cannot be checked here, if it cannot: there is no nginx, or another than it was made with.
pub(crate) fn unusable() -> Option<String> {
    match nginx::version() {
        None => Some(String::from("nginx is not installed")),
        Some(version) if version.starts_with(nginx::KNOWN) => None,
        Some(version) => Some(format!(
            "the differences are those of {}, and this is {version}",
            nginx::KNOWN
        )),
    }
}

/// The same with the gateway that is built, without the report.
pub(crate) fn check(place: &Place, library: &Library) -> Outcome {
    let rows = harness::guarded(|| compared(place, library))?;
    known::Known::read(place)?.check(&rows)?;
    shell::say(format!("{} cases, each difference is a known one", rows.len()));
    Ok(())
}

fn compared(place: &Place, library: &Library) -> Outcome<Vec<Row>> {
    // Cases in which the client does more than send are told by time or by its end, and a parser knows neither.
    let cases: Vec<Case> = hostile::FILES.iter().flat_map(|file| hostile::cases(file)).collect();
    let cases: Vec<Case> = cases.into_iter().filter(|case| case.bytes().is_some()).collect();
    let cases = cases.as_slice();
    let parsed = llhttp::verdicts(place, cases)?;
    let nginx = Nginx::start()?;
    let gateway = Gateway::start(&hostile::settings(harness::settings(place, library)));
    let (ours, plain, reading) = thread::scope(|scope| {
        let [ours, plain, reading] = [gateway.address(), nginx.address(), nginx.reading_address()]
            .map(|address| scope.spawn(move || played(cases, address)));
        let joined = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        (joined(ours), joined(plain), joined(reading))
    });
    let rows = cases.iter().zip(ours).zip(plain).zip(reading).zip(parsed);
    Ok(rows
        .map(|((((case, ours), plain), reading), parsed)| Row {
            case: case.name.clone(),
            ours,
            theirs: [plain, reading, parsed],
        })
        .collect())
}

/// What a server made of each case.
fn played(cases: &[Case], address: SocketAddr) -> Vec<Verdict> {
    let next = AtomicUsize::new(0);
    let seen = Mutex::new(vec![None; cases.len()]);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(index) else { break };
                    let verdict = Verdict::of(&play(case, address, Delivery::Whole));
                    seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner())[index] = Some(verdict);
                }
            });
        }
    });
    let seen = seen.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    seen.into_iter().flatten().collect()
}
