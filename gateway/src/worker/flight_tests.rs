//! Requests that share a generation, on whole workers: an engine that says what the test tells it to, and clients on the
//! simulated network.
//!
//! Invariant: nothing is left to chance but which worker a connection reaches, and a test connects until it is the right one.

mod random;
mod stage;

use zerohop_engine::{Event, Finish, Part};

use self::stage::{Ask, Form, Stage, bare, finished, started, text_of, word};
use super::*;

const ANTHROPIC: Ask = Ask {
    anthropic: true,
    stream: false,
};
const ANTHROPIC_STREAM: Ask = Ask {
    anthropic: true,
    stream: true,
};
const OPENAI: Ask = Ask {
    anthropic: false,
    stream: false,
};
const OPENAI_STREAM: Ask = Ask {
    anthropic: false,
    stream: true,
};
const ALL: [Ask; 4] = [ANTHROPIC, ANTHROPIC_STREAM, OPENAI, OPENAI_STREAM];

/// One job for all, whichever workers they reach, and everyone has what it would have had alone, byte for byte.
#[test]
fn followers_tell_what_they_would_have_told_alone() {
    for first in ALL {
        let mut shared = Stage::new(3);
        let mut apart = Stage::with(3, |form| form.single_flight = false);
        let leader = [shared.ask(0, first, ""), apart.ask(0, first, "")];
        shared.tell(0, started());
        shared.tell(0, word("It is "));
        apart.tell(0, started());
        apart.tell(0, word("It is "));
        let mut wires = Vec::new();
        for (number, ask) in ALL.into_iter().enumerate() {
            let worker = number % 3;
            wires.push((ask, shared.ask(worker, ask, ""), apart.ask(worker, ask, "")));
            apart.tell(number + 1, started());
            apart.tell(number + 1, word("It is "));
        }
        assert_eq!((shared.jobs(), apart.jobs()), (1, 5));
        for event in [word("\"Paris\""), word(".\n"), finished(Finish::EndOfTurn)] {
            shared.tell(0, event.clone());
            (0..5).for_each(|job| apart.tell(job, event.clone()));
        }
        assert_eq!(bare(&shared.got(leader[0])), bare(&apart.got(leader[1])));
        for (ask, together, alone) in wires {
            let got = shared.got(together);
            assert!(got.contains("x-cache: join\r\n"), "{got}");
            assert_eq!(text_of(&got), "It is \"Paris\".\n");
            assert_eq!(bare(&got), bare(&apart.got(alone)), "{ask:?}");
        }
        shared.check("leader", 1);
        shared.check("follower", 4);
        apart.check("follower", 0);
        assert_eq!(shared.kept(), 1, "it is kept once");
    }
}

#[test]
fn streams_are_live_and_late_ones_begin_at_the_start() {
    let mut stage = Stage::new(2);
    let leader = stage.ask(0, ANTHROPIC, "");
    let early = stage.ask(1, OPENAI_STREAM, "");
    assert_eq!(stage.got(early), "", "nothing is told before the engine has begun");
    stage.tell(0, started());
    stage.tell(0, word("one "));
    assert_eq!(text_of(&stage.got(early)), "one ");
    let late = stage.ask(1, ANTHROPIC_STREAM, "");
    assert_eq!(text_of(&stage.got(late)), "one ");
    stage.tell(0, word("two"));
    assert_eq!(text_of(&stage.got(early)), "one two");
    assert_eq!(text_of(&stage.got(late)), "one two");
    assert_eq!(stage.got(leader), "", "a document comes whole");
    stage.tell(0, finished(Finish::EndOfTurn));
    for wire in [leader, early, late] {
        assert_eq!(text_of(&stage.got(wire)), "one two");
    }
}

#[test]
fn a_leader_that_leaves_takes_nothing_from_the_others() {
    let mut stage = Stage::new(2);
    let leader = stage.ask(0, ANTHROPIC_STREAM, "");
    let follower = stage.ask(1, OPENAI_STREAM, "");
    stage.tell(0, started());
    stage.tell(0, word("one "));
    stage.leave(leader);
    assert!(!stage.is_cancelled(0));
    stage.tell(0, word("two "));
    // Also those who come now follow.
    let later = stage.ask(0, ANTHROPIC, "");
    stage.tell(0, word("three"));
    stage.tell(0, finished(Finish::EndOfTurn));
    for wire in [follower, later] {
        assert_eq!(text_of(&stage.got(wire)), "one two three");
    }
    assert_eq!((stage.jobs(), stage.kept()), (1, 1));
    stage.check("follower", 2);
    assert_eq!(stage.orphans(), 1);
    stage.is_empty();
}

#[test]
fn a_generation_that_nobody_listens_to_any_more_is_cancelled() {
    let mut stage = Stage::new(2);
    let leader = stage.ask(0, ANTHROPIC_STREAM, "");
    let followers = [stage.ask(1, OPENAI, ""), stage.ask(0, OPENAI, "")];
    stage.tell(0, started());
    stage.leave(leader);
    stage.leave(followers[0]);
    assert!(!stage.is_cancelled(0));
    stage.leave(followers[1]);
    assert!(stage.is_cancelled(0));
    stage.is_empty();
    // What comes late is for nobody.
    stage.tell(0, word("late"));
    stage.tell(0, finished(Finish::EndOfTurn));
    assert_eq!(stage.kept(), 0);
    // A leader that nobody follows is cancelled as ever.
    let alone = stage.ask(0, ANTHROPIC, "");
    stage.leave(alone);
    assert!(stage.is_cancelled(1));
    stage.is_empty();
}

#[test]
fn one_follower_leads_when_the_leader_fails() {
    for failure in [Event::Failed { reason: "no".into() }, Event::TimedOut] {
        let mut stage = Stage::new(3);
        let leader = stage.ask(0, ANTHROPIC, "");
        let told = stage.ask(1, OPENAI_STREAM, "");
        let plain = [0, 1, 2, 2].map(|worker| stage.ask(worker, OPENAI, ""));
        stage.tell(0, started());
        stage.tell(0, word("half "));
        stage.tell(0, failure.clone());
        let status = if failure == Event::TimedOut { "504" } else { "500" };
        assert!(stage.got(leader).starts_with(&format!("HTTP/1.1 {status}")));
        let broken = stage.got(told);
        assert!(text_of(&broken) == "half " && broken.contains("\"error\""), "{broken}");
        assert_eq!(stage.jobs(), 2, "one of four");
        // Whoever comes now follows the one that leads.
        let later = stage.ask(0, ANTHROPIC_STREAM, "");
        stage.tell(1, started());
        stage.tell(1, word("whole"));
        stage.tell(1, finished(Finish::EndOfTurn));
        for wire in plain.into_iter().chain([later]) {
            assert_eq!(text_of(&stage.got(wire)), "whole");
        }
        stage.check("promoted", 1);
        assert_eq!((stage.jobs(), stage.kept()), (2, 1));
        stage.is_empty();
    }
}

/// Once a failure that repeats itself would have had every follower lead in turn.
#[test]
fn a_second_failure_is_everybodys() {
    let mut stage = Stage::new(2);
    let all = [0, 1, 0, 1, 1].map(|worker| stage.ask(worker, OPENAI, ""));
    let failed = || Event::Failed { reason: "no".into() };
    stage.tell(0, failed());
    assert_eq!(stage.jobs(), 2);
    stage.tell(1, failed());
    for wire in all {
        assert!(stage.got(wire).starts_with("HTTP/1.1 500"));
    }
    assert_eq!(stage.jobs(), 2);
    stage.is_empty();
}

#[test]
fn streams_that_told_nothing_yet_are_made_anew() {
    let mut stage = Stage::new(2);
    let leader = stage.ask(0, OPENAI_STREAM, "");
    let streams = [ANTHROPIC_STREAM, OPENAI_STREAM].map(|ask| stage.ask(1, ask, ""));
    stage.tell(0, Event::Failed { reason: "no".into() });
    assert!(stage.got(leader).starts_with("HTTP/1.1 500"));
    stage.tell(1, started());
    stage.tell(1, word("all"));
    stage.tell(1, finished(Finish::EndOfTurn));
    for wire in streams {
        assert_eq!(text_of(&stage.got(wire)), "all");
    }
    stage.check("promoted", 1);
}

#[test]
fn what_no_generation_could_answer_is_told_to_all() {
    let refused = Event::Refused {
        part: Part::Messages,
        reason: "roles must alternate".into(),
    };
    for event in [
        refused,
        Event::TooLong {
            input_tokens: 200,
            limit: 100,
        },
    ] {
        let mut stage = Stage::new(2);
        let all = [(0, ANTHROPIC), (1, OPENAI), (1, ANTHROPIC_STREAM)].map(|(worker, ask)| stage.ask(worker, ask, ""));
        stage.tell(0, event);
        for wire in all {
            assert!(stage.got(wire).starts_with("HTTP/1.1 400"));
        }
        assert_eq!(stage.jobs(), 1);
        stage.check("promoted", 0);
    }
}

#[test]
fn an_engine_that_takes_no_job_is_told_as_ever() {
    let mut stage = Stage::new(1);
    stage.is_full(true);
    let wire = stage.ask(0, ANTHROPIC, "");
    assert!(stage.got(wire).starts_with("HTTP/1.1 429"));
    stage.is_empty();
    // Nor by the one that has to lead: then all are told.
    stage.is_full(false);
    let all = [
        stage.ask(0, OPENAI, ""),
        stage.ask(0, OPENAI, ""),
        stage.ask(0, ANTHROPIC, ""),
    ];
    stage.is_full(true);
    stage.tell(0, Event::Failed { reason: "no".into() });
    assert!(stage.got(all[0]).starts_with("HTTP/1.1 500"));
    for wire in &all[1..] {
        assert!(stage.got(*wire).starts_with("HTTP/1.1 429"));
    }
    stage.is_empty();
}

#[test]
fn followers_have_their_own_deadline() {
    let mut stage = Stage::with(2, |form| form.deadline = Some(std::time::Duration::from_secs(2)));
    let leader = stage.ask(0, ANTHROPIC, "");
    let [plain, stream] = [OPENAI, OPENAI_STREAM].map(|ask| stage.ask(1, ask, ""));
    stage.tell(0, started());
    stage.pass(1_000_000_000);
    let later = stage.ask(1, ANTHROPIC, "");
    stage.pass(1_500_000_000);
    // The engine is late to say so of the leader, as one may be that is in the middle of a long step.
    assert_eq!(stage.got(leader), "");
    assert!(stage.got(plain).starts_with("HTTP/1.1 504"));
    assert!(stage.got(stream).contains("\"error\""));
    stage.tell(0, word("x"));
    stage.tell(0, finished(Finish::EndOfTurn));
    assert_eq!(text_of(&stage.got(later)), "x");
}

#[test]
fn who_may_not_share_is_answered_alone() {
    type Row = (&'static str, fn(&mut Form), Ask, &'static str);
    let alone: [Row; 5] = [
        (
            "policy off",
            |form| form.policy = crate::keep::Policy::Off,
            ANTHROPIC,
            "",
        ),
        ("no single flight", |form| form.single_flight = false, ANTHROPIC, ""),
        ("no-store", |_| {}, ANTHROPIC, "cache-control: no-store\r\n"),
        (
            "no-cache beside one that is led",
            |_| {},
            ANTHROPIC,
            "cache-control: no-cache\r\n",
        ),
        ("max-age=0", |_| {}, OPENAI_STREAM, "cache-control: max-age=0\r\n"),
    ];
    for (name, change, ask, head) in alone {
        let mut stage = Stage::with(2, change);
        let first = stage.ask(0, ask, "");
        let second = stage.ask(1, ask, head);
        assert_eq!(stage.jobs(), 2, "{name}");
        stage.check("follower", 0);
        for job in 0..2 {
            stage.tell(job, started());
            stage.tell(job, word(["a", "b"][job]));
            stage.tell(job, finished(Finish::EndOfTurn));
        }
        assert_eq!(text_of(&stage.got(first)), "a", "{name}");
        assert_eq!(text_of(&stage.got(second)), "b", "{name}");
    }
    // One that is made anew can be followed by those behind it.
    let mut stage = Stage::new(1);
    let _anew = stage.ask(0, ANTHROPIC, "cache-control: no-cache\r\n");
    let _other = stage.ask(0, ANTHROPIC, "");
    let _third = stage.ask(0, OPENAI, "cache-control: max-age=5\r\n");
    assert_eq!(stage.jobs(), 1);
    // Who wants nothing but what is stored does not wait for it.
    let only = stage.ask(0, OPENAI, "cache-control: only-if-cached\r\n");
    assert!(stage.got(only).starts_with("HTTP/1.1 504"));
    stage.check("follower", 2);
}

/// A text that is one letter longer is another question.
#[test]
fn another_request_is_another_flight() {
    let mut stage = Stage::new(1);
    let _first = stage.ask(0, ANTHROPIC, "");
    let _other = stage.ask_about(0, ANTHROPIC, "Hello.");
    assert_eq!(stage.jobs(), 2);
    stage.check("follower", 0);
}

/// Once a request that came between an answer's end and its being found in the cache began another generation.
#[test]
fn an_answer_that_is_not_stored_yet_can_be_followed() {
    let mut stage = Stage::new(2);
    let first = stage.ask(0, ANTHROPIC, "");
    stage.tell(0, started());
    stage.tell(0, word("x"));
    stage.tell(0, finished(Finish::EndOfTurn));
    // Whether the writer was that fast or not.
    for ask in ALL {
        let wire = stage.ask(1, ask, "");
        let got = stage.got(wire);
        assert!(
            text_of(&got) == "x" && (got.contains("x-cache: join") || got.contains("x-cache: hit")),
            "{got}"
        );
    }
    assert_eq!(text_of(&stage.got(first)), "x");
    assert_eq!(stage.jobs(), 1);
    stage.pass(2_000_000_000);
    stage.is_empty();
}

/// Pipelined behind a follower's reply there may be the next request.
#[test]
fn what_is_pipelined_goes_on_behind_a_follower() {
    let mut stage = Stage::new(2);
    let _leader = stage.ask(0, ANTHROPIC, "");
    let wire = stage.ask(1, OPENAI, "");
    stage.say(wire, "GET /health HTTP/1.1\r\nhost: sim\r\n\r\n");
    assert_eq!(stage.got(wire), "");
    stage.tell(0, started());
    stage.tell(0, finished(Finish::EndOfTurn));
    assert_eq!(stage.got(wire).matches("HTTP/1.1 200").count(), 2);
}

#[test]
fn a_worker_that_drains_waits_for_those_who_follow() {
    let mut stage = Stage::new(2);
    let leader = stage.ask(0, ANTHROPIC_STREAM, "");
    let follower = stage.ask(1, OPENAI, "");
    stage.tell(0, started());
    stage.leave(leader);
    stage.command(0, Command::Drain);
    assert!(!stage.has_ended(0));
    stage.tell(0, word("x"));
    stage.tell(0, finished(Finish::EndOfTurn));
    assert!(stage.has_ended(0));
    assert_eq!(text_of(&stage.got(follower)), "x");
    // One that is stopped does not: another leads.
    let mut stage = Stage::new(2);
    let _leader = stage.ask(0, ANTHROPIC_STREAM, "");
    let follower = stage.ask(1, OPENAI, "");
    stage.command(0, Command::Stop);
    assert!(stage.has_ended(0) && stage.is_cancelled(0));
    stage.tell(1, started());
    stage.tell(1, word("y"));
    stage.tell(1, finished(Finish::EndOfTurn));
    assert_eq!(text_of(&stage.got(follower)), "y");
    stage.check("promoted", 1);
}
