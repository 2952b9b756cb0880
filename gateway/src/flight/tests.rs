use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use zerohop_cache::{Context, ModelNumber, PromptHash};
use zerohop_engine::{Conversation, Finish, Generate, Prompt, Usage};

use super::*;

mod schedules;

/// A worker that sleeps unless somebody wakes it.
#[derive(Default)]
struct Sleeper(AtomicBool);

impl Sleeper {
    /// Whether it was woken since it was last asked.
    fn woke(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

fn key(number: u8) -> Key {
    Key {
        model: ModelNumber(0),
        context: Context([0; 16]),
        prompt: PromptHash([number; 32]),
    }
}

fn seat(worker: usize, slot: u32) -> Seat {
    let conn = Conn { slot, generation: 0 };
    Seat { worker, conn }
}

fn generate() -> Box<Generate> {
    Box::new(Generate::new(Prompt::Chat(Conversation::default())))
}

fn text(words: impl Into<String>) -> Event {
    Event::Text {
        text: words.into(),
        tokens: 1,
        logprobs: Vec::new(),
    }
}

fn finished() -> Said {
    Said::Event(Event::Finished {
        finish: Finish::EndOfTurn,
        usage: Usage::default(),
    })
}

fn failed() -> Said {
    Said::Event(Event::Failed { reason: "no".into() })
}

/// All that is there to read.
fn heard(follow: &mut Follow) -> Vec<Said> {
    let mut all = Vec::new();
    while let Some(said) = follow.peek() {
        all.push(said.clone());
        follow.advance();
    }
    all
}

fn lead(flights: &Flights, number: u8, seat: Seat) -> Lead {
    match flights.join(&key(number), seat, Wish::Any, || false) {
        Joined::Leader(lead) => lead,
        other => panic!("{other:?}"),
    }
}

fn follow(flights: &Flights, number: u8, seat: Seat) -> Follow {
    match flights.join(&key(number), seat, Wish::Any, || false) {
        Joined::Follower(follow) => follow,
        other => panic!("{other:?}"),
    }
}

fn with_doors(workers: usize, most: usize) -> (Flights, Vec<Arc<Sleeper>>) {
    let flights = Flights::bounded(workers, most);
    let sleepers: Vec<_> = (0..workers).map(|_| Arc::new(Sleeper::default())).collect();
    for (worker, sleeper) in sleepers.iter().enumerate() {
        flights.open_door(worker, {
            let sleeper = Arc::clone(sleeper);
            Arc::new(move || sleeper.0.store(true, Ordering::SeqCst))
        });
    }
    (flights, sleepers)
}

#[test]
fn followers_hear_all_from_the_start_and_are_woken_once() {
    let (flights, sleepers) = with_doors(3, MOST);
    let mut leader = lead(&flights, 1, seat(0, 0));
    leader.say(text("a"));
    let mut early = follow(&flights, 1, seat(1, 0));
    assert_eq!(heard(&mut early), [Said::Event(text("a"))]);
    leader.say(text("b"));
    leader.say(text("c"));
    flights.ring();
    flights.ring();
    assert!(sleepers[1].woke() && !sleepers[0].woke() && !sleepers[2].woke());
    assert_eq!(flights.news(1).len(), 1, "a flight is news once");
    assert_eq!(flights.news(1).len(), 0);
    assert_eq!(heard(&mut early).len(), 2);
    let mut late = follow(&flights, 1, seat(2, 5));
    assert!(leader.end(finished(), false).is_none());
    assert_eq!(heard(&mut late).len(), 4);
    assert_eq!(heard(&mut early), [finished()]);
    assert_eq!(flights.news(2)[0].seats(2), [seat(2, 5).conn]);
    assert_eq!(flights.open(), 0);
    let _anew = lead(&flights, 1, seat(0, 0));
}

#[test]
fn an_answer_that_stays_can_be_followed_until_it_is_stored() {
    let (flights, _) = with_doors(1, MOST);
    let mut leader = lead(&flights, 1, seat(0, 0));
    leader.say(text("a"));
    let stay = leader.end(finished(), true);
    assert_eq!(heard(&mut follow(&flights, 1, seat(0, 1))).len(), 2);
    drop(stay);
    let joined = flights.join(&key(1), seat(0, 0), Wish::Any, || true);
    assert!(matches!(joined, Joined::Stored));
    assert_eq!(flights.open(), 0);
}

#[test]
fn who_wants_it_anew_follows_nobody_and_can_be_followed() {
    let (flights, _) = with_doors(1, MOST);
    let anew = |number| flights.join(&key(number), seat(0, 9), Wish::Anew, || panic!("nobody looks"));
    let _first = lead(&flights, 1, seat(0, 0));
    assert!(matches!(anew(1), Joined::Alone));
    let joined = flights.join(&key(2), seat(0, 9), Wish::Anew, || false);
    assert!(matches!(joined, Joined::Leader(_)));
    let Joined::Leader(_second) = joined else { return };
    follow(&flights, 2, seat(0, 3));
}

#[test]
fn a_full_table_lets_requests_go_alone() {
    let (flights, _) = with_doors(1, 1);
    let first = lead(&flights, 1, seat(0, 0));
    // The same shard.
    let alone = flights.join(&key(17), seat(0, 1), Wish::Any, || false);
    assert!(matches!(alone, Joined::Alone));
    let _follower = follow(&flights, 1, seat(0, 2));
    drop(first);
    let _second = lead(&flights, 17, seat(0, 1));
}

#[test]
fn a_log_that_is_too_long_takes_nobody_in_and_loses_nobody() {
    let (flights, _) = with_doors(1, MOST);
    let mut leader = lead(&flights, 1, seat(0, 0));
    let mut early = follow(&flights, 1, seat(0, 1));
    for _ in 0..300 {
        assert!(leader.held() <= LONGEST);
        leader.say(text("x".repeat(4096)));
    }
    assert_eq!((leader.held(), flights.open()), (0, 0));
    let _other = lead(&flights, 1, seat(0, 2));
    assert!(leader.end(finished(), true).is_none(), "it is not kept from its start");
    assert_eq!(heard(&mut early).len(), 301);
    assert_eq!(flights.open(), 1);
}

#[test]
fn a_leader_without_a_client_goes_on_while_somebody_follows() {
    let (flights, sleepers) = with_doors(2, MOST);
    let mut leader = lead(&flights, 1, seat(0, 0));
    let first = follow(&flights, 1, seat(1, 0));
    assert_eq!(leader.leave(), Leaving::GoesOn);
    leader.say(text("a"));
    let mut second = follow(&flights, 1, seat(1, 1));
    drop(first);
    assert!(!leader.flight().is_given_up());
    assert_eq!(heard(&mut second).len(), 1);
    drop(second);
    assert!(sleepers[0].woke(), "its worker hears that nobody listens");
    let news = flights.news(0);
    assert!(news.len() == 1 && leader.is_of(&news[0]) && news[0].is_given_up());
    assert_eq!(flights.open(), 0);
    let mut other = lead(&flights, 1, seat(0, 0));
    assert_eq!(other.leave(), Leaving::Ends);
}

#[test]
fn one_follower_of_a_flight_that_failed_leads_and_the_others_follow_it() {
    let (flights, _) = with_doors(2, MOST);
    let leader = lead(&flights, 1, seat(0, 0));
    let mut all: Vec<_> = (0..5).map(|slot| follow(&flights, 1, seat(1, slot))).collect();
    assert!(all[3].wants_spare());
    all[3].leave_spare(generate(), 7);
    assert!(!all[4].wants_spare());
    assert!(leader.end(failed(), false).is_none());
    assert!(all.iter_mut().all(|follow| heard(follow) == [failed()]));
    let Again::Leader(second, _) = all[0].again() else {
        panic!("the first to ask leads")
    };
    let mut moved: Vec<_> = all.iter().skip(1).map(|follow| follow.again()).collect();
    // Also whoever asks when that one is over hears what it said.
    assert!(second.end(finished(), false).is_none());
    moved.push(all[0].again());
    for again in moved {
        let Again::Follower(mut follow) = again else {
            panic!("{again:?}")
        };
        assert_eq!(heard(&mut follow), [finished()]);
    }
}

#[test]
fn who_is_late_turns_to_a_flight_that_is_led() {
    let (flights, _) = with_doors(1, MOST);
    let leader = lead(&flights, 1, seat(0, 0));
    let [first, second] = [1, 2].map(|slot| follow(&flights, 1, seat(0, slot)));
    first.leave_spare(generate(), 0);
    assert!(leader.end(failed(), false).is_none());
    // Somebody else asks before those two know.
    let stranger = lead(&flights, 1, seat(0, 3));
    assert!(matches!(first.again(), Again::Follower(_)));
    assert!(matches!(second.again(), Again::Follower(_)));
    // The stranger leaves, and nobody follows at this moment: the next one has to lead.
    let mut stranger = stranger;
    assert_eq!(stranger.leave(), Leaving::Ends);
    assert!(matches!(second.again(), Again::Leader(..)));
    // Without anything to hand in there is nothing to do.
    let leader = lead(&flights, 2, seat(0, 0));
    let bare = follow(&flights, 2, seat(0, 1));
    drop(leader);
    assert!(matches!(bare.again(), Again::Nothing));
}

/// Once followers of a worker that died would have waited for ever.
#[test]
fn a_leader_that_vanishes_fails() {
    let (flights, sleepers) = with_doors(2, MOST);
    let leader = lead(&flights, 1, seat(0, 0));
    let mut follower = follow(&flights, 1, seat(1, 0));
    drop(leader);
    assert!(sleepers[1].woke());
    let said = heard(&mut follower);
    assert!(said.len() == 1 && said[0].is_failure() && said[0].is_final());
}

/// One thread says, others follow, sleep and are woken.
#[test]
fn no_follower_on_another_thread_sleeps_through_the_end() {
    const WORKERS: usize = 4;
    for round in 0..300u32 {
        let (flights, sleepers) = with_doors(WORKERS, MOST);
        let mut leader = lead(&flights, 1, seat(0, 0));
        thread::scope(|scope| {
            for (worker, sleeper) in sleepers.iter().enumerate().skip(1) {
                let (flights, sleeper) = (flights.clone(), Arc::clone(sleeper));
                scope.spawn(move || {
                    let joined = flights.join(&key(1), seat(worker, round), Wish::Any, || false);
                    let Joined::Follower(mut follow) = joined else { return };
                    let mut all = heard(&mut follow);
                    while all.last() != Some(&finished()) {
                        while !sleeper.woke() {
                            thread::yield_now();
                        }
                        if !flights.news(worker).is_empty() {
                            all.append(&mut heard(&mut follow));
                        }
                    }
                    assert_eq!(all.len(), 41);
                });
            }
            for _ in 0..40 {
                leader.say(text("word"));
                flights.ring();
            }
            assert!(leader.end(finished(), false).is_none());
            flights.ring();
        });
    }
}
