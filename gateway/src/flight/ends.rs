//! A flight and its ends: who leads it, who follows it, and what is left of it when it has landed.
//!
//! Invariant: each end lets go of the flight when it is dropped, so that none is forgotten, whatever becomes of its
//! connection or its thread.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
};

use zerohop_cache::Key;
use zerohop_engine::{Event, Generate};

use super::{
    Board, LONGEST, Said, lock,
    log::{Beginning, Cursor, Writer, log},
};

/// A connection, as its worker numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conn {
    /// Where it lies.
    pub slot: u32,
    /// Which of those that lay there.
    pub generation: u32,
}

/// A connection at a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// Which worker.
    pub worker: usize,
    /// Which of its connections.
    pub conn: Conn,
}

/// A generation that several requests may share.
pub struct Flight {
    key: Key,
    board: Arc<Board>,
    /// The leader's worker.
    owner: usize,
    state: Mutex<State>,
    /// By worker.
    ears: Box<[Ear]>,
    /// What the log holds, in bytes, while it is kept from its start; and what its state holds.
    bytes: AtomicUsize,
}

struct State {
    phase: Phase,
    /// Where to join; `None`: nobody can any more.
    beginning: Option<Beginning<Said>>,
    followers: usize,
    /// What a follower hands in if it has to lead.
    spare: Option<Box<Generate>>,
    /// Of a flight that failed: the one that its followers turn to.
    successor: Option<(Arc<Flight>, Beginning<Said>)>,
}

/// How far a flight has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its leader has a client.
    Led,
    /// Its leader's client has left, and somebody follows.
    Orphan,
    /// All is said.
    Over,
    /// Nobody listens, and nothing more is said.
    GivenUp,
}

/// A worker's part in hearing a flight.
#[derive(Default)]
struct Ear {
    /// Its connections that follow.
    seats: Mutex<BTreeSet<(u32, u32)>>,
    /// How many those are.
    following: AtomicUsize,
    /// The flight lies behind the worker's door.
    told: AtomicBool,
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Flight")
            .field("phase", &state.phase)
            .field("followers", &state.followers)
            .finish_non_exhaustive()
    }
}

impl Flight {
    /// One in which nothing is said yet, led by somebody at this worker.
    pub(super) fn begin(board: &Arc<Board>, key: &Key, owner: usize) -> Lead {
        let (writer, beginning) = log();
        let flight = Arc::new(Self {
            key: *key,
            board: Arc::clone(board),
            owner,
            state: Mutex::new(State {
                phase: Phase::Led,
                beginning: Some(beginning),
                followers: 0,
                spare: None,
                successor: None,
            }),
            ears: (0..board.doors.len()).map(|_| Ear::default()).collect(),
            bytes: AtomicUsize::new(size_of::<Self>()),
        });
        Lead {
            flight,
            writer,
            open: true,
            over: false,
        }
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Whether it can be joined.
    pub(super) fn is_open(&self) -> bool {
        self.beginning().is_some()
    }

    fn beginning(&self) -> Option<Beginning<Said>> {
        lock(&self.state).beginning.clone()
    }

    /// Follows it from its start, unless nobody can any more.
    pub(super) fn follow(this: &Arc<Self>, seat: Seat) -> Option<Follow> {
        let mut state = lock(&this.state);
        let cursor = state.beginning.as_ref()?.cursor();
        Some(Self::seated(this, &mut state, cursor, seat))
    }

    /// Follows it from its start though it may be closed, unless it was given up.
    fn follow_from(this: &Arc<Self>, beginning: &Beginning<Said>, seat: Seat) -> Option<Follow> {
        let mut state = lock(&this.state);
        (state.phase != Phase::GivenUp).then(|| Self::seated(this, &mut state, beginning.cursor(), seat))
    }

    fn seated(this: &Arc<Self>, state: &mut State, cursor: Cursor<Said>, seat: Seat) -> Follow {
        state.followers += 1;
        let ear = &this.ears[seat.worker];
        lock(&ear.seats).insert((seat.conn.slot, seat.conn.generation));
        ear.following.fetch_add(1, Ordering::SeqCst);
        // Either the leader sees from now on that somebody follows, or what it said is found in the log.
        fence(Ordering::SeqCst);
        Follow {
            flight: Arc::clone(this),
            cursor,
            seat,
        }
    }

    /// Tells every worker that has followers.
    fn tell(this: &Arc<Self>) {
        fence(Ordering::SeqCst);
        for (worker, ear) in this.ears.iter().enumerate() {
            if ear.following.load(Ordering::SeqCst) > 0 {
                this.tell_one(worker);
            }
        }
    }

    fn tell_one(self: &Arc<Self>, worker: usize) {
        if !self.ears[worker].told.swap(true, Ordering::SeqCst) {
            self.board.doors.tell(worker, Arc::clone(self));
        }
    }

    /// Its worker looks at it now: what is said from here on is to be told again.
    pub(super) fn hear(&self, worker: usize) {
        self.ears[worker].told.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The connections of this worker that follow, in the order of their slots.
    pub fn seats(&self, worker: usize) -> Vec<Conn> {
        let seats = lock(&self.ears[worker].seats);
        seats
            .iter()
            .map(|&(slot, generation)| Conn { slot, generation })
            .collect()
    }

    /// Whether nobody listens to it, so that its leader need not go on.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        lock(&self.state).phase == Phase::GivenUp
    }

    /// Nobody can join any more; the log is kept for those who follow alone.
    fn close(this: &Arc<Self>) {
        lock(&this.state).beginning = None;
        this.board.remove(this);
    }
}

/// The end at which a generation is told. Dropped before all is said, it says that the generation failed.
#[derive(Debug)]
pub struct Lead {
    flight: Arc<Flight>,
    writer: Writer<Said>,
    /// It has not outgrown what is kept.
    open: bool,
    over: bool,
}

/// What becomes of a generation whose client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// It goes on: somebody follows.
    GoesOn,
    /// Nobody listens.
    Ends,
}

impl Lead {
    pub(super) fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    /// Whether this is the flight that is led.
    #[must_use]
    pub fn is_of(&self, flight: &Arc<Flight>) -> bool {
        Arc::ptr_eq(&self.flight, flight)
    }

    /// Says what is not the end. Whoever follows hears of it when [`super::Flights::ring`] is called.
    pub fn say(&mut self, event: Event) {
        self.push(Said::Event(event));
    }

    fn push(&mut self, said: Said) {
        let bytes = said.bytes();
        self.writer.push(said);
        if self.open && self.flight.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > LONGEST {
            self.open = false;
            self.flight.bytes.store(0, Ordering::Relaxed);
            Flight::close(&self.flight);
        }
        Flight::tell(&self.flight);
    }

    /// Says the end. While what is returned is kept, an answer that was `kept` can be followed by those who come before it
    /// is found where it is stored; any other cannot be joined from now on.
    pub fn end(mut self, said: Said, kept: bool) -> Option<Stay> {
        self.over = true;
        self.push(said);
        lock(&self.flight.state).phase = Phase::Over;
        if kept && self.flight.is_open() {
            return Some(Stay(Arc::clone(&self.flight)));
        }
        Flight::close(&self.flight);
        None
    }

    /// The leader's client has left.
    pub fn leave(&mut self) -> Leaving {
        let mut state = lock(&self.flight.state);
        if state.followers > 0 {
            state.phase = Phase::Orphan;
            return Leaving::GoesOn;
        }
        state.phase = Phase::GivenUp;
        state.beginning = None;
        Leaving::Ends
    }

    /// Bytes that the flight holds, beside what its followers do.
    #[must_use]
    pub fn held(&self) -> usize {
        self.flight.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        {
            let mut state = lock(&self.flight.state);
            state.beginning = None;
            if state.followers == 0 {
                state.phase = Phase::GivenUp;
            }
        }
        Flight::close(&self.flight);
        if !self.flight.is_given_up() {
            let reason = "the worker that led the generation has ended".into();
            self.push(Said::Event(Event::Failed { reason }));
            lock(&self.flight.state).phase = Phase::Over;
            self.flight.board.doors.ring();
        }
    }
}

/// An answer that is complete and about to be stored; dropped when it is.
#[derive(Debug)]
pub struct Stay(Arc<Flight>);

impl Stay {
    /// What it is stored under.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        Flight::close(&self.0);
    }
}

/// A place in a flight that another leads.
#[derive(Debug)]
pub struct Follow {
    flight: Arc<Flight>,
    cursor: Cursor<Said>,
    seat: Seat,
}

/// What a follower of a flight that failed does next.
#[derive(Debug)]
pub enum Again {
    /// It leads a new one, and hands this in.
    Leader(Lead, Box<Generate>),
    /// It follows a new one.
    Follower(Follow),
    /// There is nothing to turn to.
    Nothing,
}

impl Follow {
    /// What was said next, if anything was.
    pub fn peek(&mut self) -> Option<&Said> {
        self.cursor.peek()
    }

    /// Goes behind what was peeked at.
    pub fn advance(&mut self) {
        self.cursor.advance();
    }

    /// Whether the flight needs something that a follower could hand in.
    #[must_use]
    pub fn wants_spare(&self) -> bool {
        lock(&self.flight.state).spare.is_none()
    }

    /// What is handed in if the leader fails: that of one follower does for all, since their keys are one. It takes about
    /// `bytes`.
    pub fn leave_spare(&self, generate: Box<Generate>, bytes: usize) {
        let mut state = lock(&self.flight.state);
        if state.spare.is_none() {
            state.spare = Some(generate);
            self.flight.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The flight has failed. The first of its followers that asks leads a new one, unless somebody else has begun one
    /// meanwhile, and all others follow that.
    pub fn again(&self) -> Again {
        let flight = &self.flight;
        let mut shard = flight.board.shard(&flight.key);
        let mut state = lock(&flight.state);
        if let Some((next, beginning)) = &state.successor
            && let Some(follow) = Flight::follow_from(next, beginning, self.seat)
        {
            return Again::Follower(follow);
        }
        let other = shard.get(&flight.key).filter(|other| !Arc::ptr_eq(other, flight));
        if let Some(other) = other
            && let Some(beginning) = other.beginning()
            && let Some(follow) = Flight::follow_from(other, &beginning, self.seat)
        {
            state.successor = Some((Arc::clone(other), beginning));
            return Again::Follower(follow);
        }
        let Some(generate) = state.spare.clone() else {
            return Again::Nothing;
        };
        let lead = Flight::begin(&flight.board, &flight.key, self.seat.worker);
        let next = Arc::clone(&lead.flight);
        state.successor = next.beginning().map(|beginning| (Arc::clone(&next), beginning));
        // Without a place in the table it is found by those who turn to it alone.
        if shard.len() < flight.board.most || shard.contains_key(&flight.key) {
            shard.insert(flight.key, next);
        }
        Again::Leader(lead, generate)
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let ear = &self.flight.ears[self.seat.worker];
        lock(&ear.seats).remove(&(self.seat.conn.slot, self.seat.conn.generation));
        ear.following.fetch_sub(1, Ordering::SeqCst);
        let last = {
            let mut state = lock(&self.flight.state);
            state.followers -= 1;
            let last = state.followers == 0 && state.phase == Phase::Orphan;
            if last {
                state.phase = Phase::GivenUp;
                state.beginning = None;
            }
            last
        };
        if last {
            Flight::close(&self.flight);
            self.flight.tell_one(self.flight.owner);
            self.flight.board.doors.ring();
        }
    }
}
