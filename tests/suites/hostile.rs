//! The table of hostile clients (`tests/hostile`), each case played whole and in pieces against the built gateway.
//!
//! Invariant: the outcome is exact, and does not depend on how the bytes were cut.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use zerohop_tests::{
    gateway::{Gateway, Settings, root},
    hostile::{self, Case, Delivery, FILES, cases, play},
    metrics::Metrics,
    wait::wait_for,
};

/// Clients at a time: most of them wait.
const CLIENTS: usize = 16;
fn check(file: &str) {
    let gateway = Gateway::start(&hostile::settings(Settings::default()));
    let cases = cases(file);
    let plays: Vec<(&Case, Delivery)> = cases
        .iter()
        .flat_map(|case| {
            let pieces = (!case.as_cut).then_some((case, Delivery::Pieces));
            [Some((case, Delivery::Whole)), pieces].into_iter().flatten()
        })
        .collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while let Some((case, delivery)) = plays.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let seen = play(case, gateway.address(), *delivery);
                    if !seen.is(case) {
                        let told = format!("{}: {} ({delivery:?}): saw {seen}", case.place, case.name);
                        wrong.lock().unwrap_or_else(|error| panic!("{error}")).push(told);
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().unwrap_or_default();
    wrong.sort();
    assert!(
        wrong.is_empty(),
        "{} of {} plays:\n{}",
        wrong.len(),
        plays.len(),
        wrong.join("\n")
    );
    // Nobody is left behind, but for the one that asks.
    wait_for("all connections to be closed", || {
        (Metrics::of(gateway.address()).sum("zerohop_connections_open", &[]) <= 1.0).then_some(())
    });
}

#[test]
fn lengths() {
    check("lengths");
}

#[test]
fn codings() {
    check("codings");
}

#[test]
fn chunks() {
    check("chunks");
}

#[test]
fn lines() {
    check("lines");
}

#[test]
fn targets() {
    check("targets");
}

#[test]
fn versions() {
    check("versions");
}

#[test]
fn fields() {
    check("fields");
}

#[test]
fn connections() {
    check("connections");
}

#[test]
fn the_table_is_whole() {
    let all: Vec<Case> = FILES.iter().flat_map(|file| cases(file)).collect();
    assert!(all.len() >= 200, "{} cases", all.len());
    let names: BTreeSet<&str> = all.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), all.len(), "two cases have one name");
    let files = fs::read_dir(root().join("tests/hostile")).unwrap_or_else(|error| panic!("{error}"));
    let tables = files.flatten().filter(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.ends_with(".txt") && name != "differences.txt"
    });
    assert_eq!(tables.count(), FILES.len(), "each file of the table is a test");
}
