//! The simulation itself: the same seed gives the same run, every fault strikes, and what a fault may not break holds.

mod support;

use std::{collections::HashMap, io, sync::Arc};

use support::{options, pattern};
use zerohop_ring::{
    Completion, ConnId, Io, ListenerId, Options, ReadFile, ReadToken, RecvEnd,
    sim::{Fault, FaultCounts, Faults, Net, Operation, Sim, What, WireId, WireState},
};

/// What the echoing worker knows of a connection.
#[derive(Default)]
struct State {
    sending: bool,
    /// What is to be sent, while it is read back from a file.
    reading: Option<Vec<u8>>,
    receiving: bool,
    /// The client has finished: close when everything is sent.
    finished: bool,
    /// Closed by us; only `Sent` and `Closed` matter.
    closing: bool,
    /// What came while a send was in flight.
    later: Vec<u8>,
}

/// A worker that sends back what comes, pauses while it sends, and closes after the client has finished. What it sends it
/// reads from a file, and from memory only if that fails.
struct Echo {
    io: Sim,
    conns: HashMap<ConnId, State>,
    accepted: usize,
    closed: usize,
}

impl Echo {
    fn turn(&mut self) {
        let mut out = Vec::new();
        let deadline = self.io.now() + 1_000_000;
        self.io.turn(Some(deadline), &mut out).expect("a turn");
        for completion in out {
            self.handle(completion);
        }
    }

    fn handle(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted(accepted) => {
                self.accepted += 1;
                self.conns.insert(accepted.conn, State::default());
                self.go_on(accepted.conn);
            }
            Completion::Received { conn, buf } => {
                let bytes = self.io.bytes(&buf).to_vec();
                self.io.give_back(buf);
                self.state(conn).later.extend(bytes);
                self.go_on(conn);
            }
            Completion::Sent { conn, result, .. } => {
                self.state(conn).sending = false;
                match result {
                    Ok(_) => self.go_on(conn),
                    Err(_) => self.close(conn, true),
                }
            }
            Completion::Read { token, outcome } => {
                let kept = self.state(token.conn).reading.take().expect("a read in flight");
                if let Ok(bytes) = &outcome {
                    assert_eq!((bytes, token.tag), (&kept, kept.len() as u64));
                }
                if !self.state(token.conn).closing {
                    self.state(token.conn).sending = true;
                    self.io.send(token.conn, outcome.unwrap_or(kept));
                }
            }
            Completion::RecvEnded { conn, end } => {
                let state = self.state(conn);
                state.receiving = false;
                match end {
                    RecvEnd::Paused => self.go_on(conn),
                    RecvEnd::Eof => {
                        state.finished = true;
                        self.go_on(conn);
                    }
                    RecvEnd::Failed(_) => self.close(conn, true),
                }
            }
            Completion::Closed { conn } => {
                let state = self.conns.remove(&conn).expect("closed once");
                assert!(!state.sending, "the loan came back before the end");
                self.closed += 1;
            }
            Completion::Refused { .. } | Completion::AcceptEnded { .. } | Completion::Woken => {}
        }
    }

    fn state(&mut self, conn: ConnId) -> &mut State {
        self.conns.get_mut(&conn).expect("an open connection")
    }

    fn close(&mut self, conn: ConnId, abort: bool) {
        self.state(conn).closing = true;
        self.io.close(conn, abort);
    }

    /// Sends what there is, else receives, else closes.
    fn go_on(&mut self, conn: ConnId) {
        let state = self.conns.get_mut(&conn).expect("an open connection");
        if state.sending || state.reading.is_some() || state.closing {
            return;
        }
        if !state.later.is_empty() {
            let bytes = std::mem::take(&mut state.later);
            let len = bytes.len();
            let file = Arc::new(ReadFile::simulated([b"before".as_slice(), &bytes, b"behind"].concat()));
            state.reading = Some(bytes);
            self.io.pause_recv(conn);
            let token = ReadToken { conn, tag: len as u64 };
            self.io.read(token, &file, 6, len, Vec::new());
        } else if state.finished {
            self.close(conn, false);
        } else if !state.receiving {
            state.receiving = true;
            self.io.recv(conn);
        }
    }
}

/// A client that sends a pattern in pieces, reads in smaller ones, and finishes.
struct Caller {
    wire: WireId,
    length: usize,
    written: usize,
    read: Vec<u8>,
}

impl Caller {
    fn act(&mut self, net: &Net) {
        let bytes = pattern(self.length);
        let until = (self.written + 700).min(bytes.len());
        self.written += net.write(self.wire, &bytes[self.written..until]);
        self.read.extend(net.read(self.wire, 500));
        if self.written == bytes.len() {
            net.finish(self.wire);
        }
    }
}

/// What a run came to.
struct Outcome {
    digest: u64,
    counts: FaultCounts,
    callers: Vec<(Caller, WireState)>,
    lost: usize,
}

/// Twenty callers against the echoing worker, until every wire is over.
fn run(seed: u64, faults: Faults) -> Outcome {
    let options = Options {
        recv_buffers: 4,
        recv_buffer_size: 256,
        ..options()
    };
    let (io, net) = Sim::new(seed, faults, 1, options).expect("a simulation");
    let mut echo = Echo {
        io,
        conns: HashMap::new(),
        accepted: 0,
        closed: 0,
    };
    echo.io.start_accept();
    let caller = |length| Caller {
        wire: net.connect(ListenerId(0)),
        length,
        written: 0,
        read: Vec::new(),
    };
    let mut callers: Vec<_> = (0..20).map(|number| caller(1 + number * 311)).collect();
    let mut turns = 0;
    while callers.iter().any(|caller| net.state(caller.wire) == WireState::Open) || !echo.conns.is_empty() {
        callers.iter_mut().for_each(|caller| caller.act(&net));
        echo.turn();
        turns += 1;
        assert!(turns < 100_000, "seed {seed}: the run does not end");
    }
    assert_eq!(echo.closed, echo.accepted);
    let callers: Vec<_> = callers
        .into_iter()
        .map(|caller| (net.state(caller.wire), caller))
        .collect();
    let lost = callers.len() - echo.accepted;
    let callers = callers.into_iter().map(|(state, caller)| (caller, state)).collect();
    Outcome {
        digest: net.digest(),
        counts: net.faults(),
        callers,
        lost,
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut digests = Vec::new();
    for seed in 0..20 {
        let (one, two) = (run(seed, Faults::HOSTILE), run(seed, Faults::HOSTILE));
        assert_eq!(one.digest, two.digest, "seed {seed}");
        assert_eq!(one.counts, two.counts, "seed {seed}");
        digests.push(one.digest);
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 20, "another seed gives another run");
}

#[test]
fn without_resets_every_byte_comes_back() {
    for (faults, seeds) in [(Faults::NONE, 1), (Faults::ROUGH, 60)] {
        for seed in 0..seeds {
            let outcome = run(seed, faults.clone());
            assert_eq!(outcome.lost, 0);
            for (caller, state) in outcome.callers {
                assert_eq!(state, WireState::Eof, "seed {seed}");
                assert!(
                    caller.read == pattern(caller.length),
                    "seed {seed}, {} bytes",
                    caller.length
                );
            }
        }
    }
}

#[test]
fn with_resets_what_comes_back_is_a_beginning() {
    let mut resets = 0;
    for seed in 0..60 {
        for (caller, state) in run(seed, Faults::HOSTILE).callers {
            resets += usize::from(state == WireState::Reset);
            let whole = pattern(caller.length);
            assert!(whole.starts_with(&caller.read), "seed {seed}, {} bytes", caller.length);
            assert!(
                state == WireState::Reset || caller.read == whole,
                "seed {seed}: bytes lost without a reset"
            );
        }
    }
    assert!(resets > 0);
}

#[test]
fn every_fault_strikes_within_few_seeds() {
    let mut missing = FaultCounts::default().missing();
    for seed in 0..10 {
        let strange = run(seed, Faults::HOSTILE).counts.missing();
        missing.retain(|name| strange.contains(name));
    }
    assert!(missing.is_empty(), "never struck: {missing:?}");
    assert_eq!(run(0, Faults::NONE).counts, FaultCounts::default());
}

#[test]
fn a_sleep_that_nothing_can_end_is_told() {
    let (mut io, net) = Sim::new(0, Faults::NONE, 1, options()).expect("a simulation");
    io.start_accept();
    let mut out = Vec::new();
    let error = io.turn(None, &mut out).expect_err("nothing can happen");
    assert_eq!(error.kind(), io::ErrorKind::Deadlock);
    io.waker().wake();
    io.turn(None, &mut out).expect("a wake");
    assert!(matches!(out[..], [Completion::Woken]));
    let before = net.now();
    net.after(5_000_000, |net| {
        let _ = net.connect(ListenerId(0));
    });
    out.clear();
    io.turn(None, &mut out).expect("a connection");
    assert!(matches!(out[..], [Completion::Accepted(_)]));
    assert!(io.now() >= before + 5_000_000, "virtual time has passed");
}

#[test]
fn the_trace_names_what_happened() {
    let (mut io, net) = Sim::new(0, Faults::NONE, 1, options()).expect("a simulation");
    net.keep_trace();
    io.start_accept();
    let wire = net.connect(ListenerId(0));
    net.write(wire, b"x");
    io.turn(None, &mut Vec::new()).expect("a connection");
    let trace = net.take_trace().join("\n");
    for word in ["client connects", "client writes", "accept 0", "answer Accepted"] {
        assert!(trace.contains(word), "{word} in {trace}");
    }
    assert!(net.take_trace().is_empty());
}

/// Drives some echoing workers on one network, in turn, until the callers are over.
fn run_together(workers: &mut [Echo], net: &Net, callers: &mut [Caller]) {
    let mut rounds = 0;
    while callers.iter().any(|caller| net.state(caller.wire) == WireState::Open) {
        rounds += 1;
        assert!(rounds < 100_000, "the run does not end");
        callers.iter_mut().for_each(|caller| caller.act(net));
        for worker in workers.iter_mut() {
            worker.io.run_kernel();
            worker.turn();
        }
        net.advance(net.now() + 100_000);
    }
}

fn together(seed: u64, faults: Faults, count: usize) -> (Vec<Echo>, Net) {
    let (first, net) = Sim::new(seed, faults, 1, options()).expect("a simulation");
    net.hold_clock();
    let others = (1..count).map(|_| Sim::join(&net, 1, options()).expect("a worker"));
    let ios: Vec<_> = std::iter::once(first).chain(others).collect();
    let workers = ios.into_iter().map(|mut io| {
        io.start_accept();
        Echo {
            io,
            conns: HashMap::new(),
            accepted: 0,
            closed: 0,
        }
    });
    (workers.collect(), net)
}

fn callers(net: &Net, count: usize) -> Vec<Caller> {
    let caller = |number| Caller {
        wire: net.connect(ListenerId(0)),
        length: 1 + number * 211,
        written: 0,
        read: Vec::new(),
    };
    (0..count).map(caller).collect()
}

#[test]
fn workers_share_a_network() {
    let mut digests = Vec::new();
    for seed in [1, 2, 1] {
        let (mut workers, net) = together(seed, Faults::ROUGH, 3);
        let mut callers = callers(&net, 30);
        run_together(&mut workers, &net, &mut callers);
        for caller in &callers {
            assert_eq!(net.state(caller.wire), WireState::Eof);
            assert!(caller.read == pattern(caller.length), "{} bytes", caller.length);
        }
        let accepted: Vec<_> = workers.iter().map(|worker| worker.accepted).collect();
        assert_eq!(accepted.iter().sum::<usize>(), 30);
        assert!(
            accepted.iter().all(|count| *count > 0),
            "chance spreads them: {accepted:?}"
        );
        digests.push(net.digest());
    }
    assert_eq!(digests[0], digests[2], "the same seed gives the same run");
    assert_ne!(digests[0], digests[1]);
}

#[test]
fn who_does_not_listen_gets_no_connection() {
    let (mut workers, net) = together(1, Faults::NONE, 2);
    workers[0].io.stop_accept();
    let mut some = callers(&net, 10);
    run_together(&mut workers, &net, &mut some);
    assert_eq!((workers[0].accepted, workers[1].accepted), (0, 10));
    let caught = callers(&net, 1);
    net.run_wires();
    assert_eq!(net.queued(caught[0].wire), Some(Some(1)), "it waits to be accepted");
    drop(workers.pop());
    assert_eq!(
        net.state(caught[0].wire),
        WireState::Reset,
        "a worker takes its queue with it"
    );
    let late = callers(&net, 1);
    net.run_wires();
    net.run_wires();
    assert_eq!(net.state(late[0].wire), WireState::Reset, "nobody listens");
}

#[test]
fn a_held_clock_stands_still() {
    let (mut workers, net) = together(1, Faults::NONE, 1);
    net.after(1_000_000, |_| ());
    for _ in 0..5 {
        workers[0].turn();
    }
    assert!(net.now() < 100_000, "turns cost next to nothing and wait for nothing");
    assert_eq!(net.next_time(), Some(1_000_000));
    net.advance(1_000_000);
    assert_eq!(net.next_time(), None);
}

/// A full completion queue delays completions; it loses none and changes no order.
#[test]
fn what_a_full_queue_held_back_comes_later() {
    let faults = Faults {
        held_completions: 1024,
        ..Faults::NONE
    };
    let (mut io, net) = Sim::new(3, faults, 1, options()).expect("a simulation");
    io.start_accept();
    let wires: Vec<_> = (0..20).map(|_| net.connect(ListenerId(0))).collect();
    let mut turns = Vec::new();
    while turns.iter().sum::<usize>() < wires.len() {
        let mut out = Vec::new();
        io.turn(Some(io.now() + 1_000_000), &mut out).expect("a turn");
        for (at, completion) in out.iter().enumerate() {
            let Completion::Accepted(accepted) = completion else {
                panic!("{completion:?}");
            };
            let place = turns.iter().sum::<usize>() + at;
            assert_eq!(accepted.peer, net.address(wires[place]));
        }
        turns.push(out.len());
        assert!(turns.last() > Some(&0), "a turn hands out something");
    }
    assert!(turns.len() > 1, "some were held back");
    assert_eq!(net.faults().of(Fault::HeldCompletion), turns.len() as u64 - 1);
}

#[test]
fn the_wall_clock_steps_and_the_monotonic_clock_does_not() {
    let faults = Faults {
        clock_steps: 512,
        ..Faults::NONE
    };
    let (mut io, net) = Sim::new(5, faults, 1, options()).expect("a simulation");
    let (mut forwards, mut backwards, mut steps) = (0, 0, 0);
    let mut before = (io.now(), io.unix_time().0);
    for _ in 0..100 {
        io.turn(Some(io.now()), &mut Vec::new()).expect("a turn");
        let now = (io.now(), io.unix_time().0);
        assert!(now.0 > before.0 && now.0 < before.0 + 1_000_000);
        forwards += usize::from(now.1 > before.1);
        backwards += usize::from(now.1 < before.1);
        steps += usize::from(now.1 != before.1);
        before = now;
    }
    assert!(forwards > 10 && backwards > 10, "{forwards} and {backwards}");
    assert!(net.faults().of(Fault::ClockStep) >= steps as u64);
    net.set_wall_clock(-(1 << 40));
    io.turn(Some(io.now()), &mut Vec::new()).expect("a turn");
    assert_eq!(io.unix_time().0, 0, "there is nothing before 1970");
}

#[test]
fn a_reset_takes_the_tail_that_was_not_read() {
    for (lost_tails, left) in [(0, 5), (1024, 0)] {
        let faults = Faults {
            lost_tails,
            ..Faults::NONE
        };
        let (mut io, net) = Sim::new(1, faults, 1, options()).expect("a simulation");
        io.start_accept();
        let wire = net.connect(ListenerId(0));
        let mut out = Vec::new();
        io.turn(None, &mut out).expect("a connection");
        let Some(Completion::Accepted(accepted)) = out.pop() else {
            panic!("{out:?}");
        };
        io.send(accepted.conn, b"reply".to_vec());
        io.turn(None, &mut out).expect("the send");
        io.close(accepted.conn, true);
        io.turn(None, &mut out).expect("the close");
        io.turn(Some(io.now() + 1_000), &mut out).expect("the reset");
        assert_eq!((net.unread(wire), net.state(wire)), (left, WireState::Reset));
    }
}

#[test]
fn notices_tell_which_operation_met_what() {
    let faults = Faults {
        full_queue: 1024,
        stalls: 1024,
        ..Faults::ROUGH
    };
    let (mut io, net) = Sim::new(1, faults, 1, options()).expect("a simulation");
    net.keep_notices();
    io.start_accept();
    let wire = net.connect(ListenerId(0));
    net.write(wire, b"x");
    let mut out = Vec::new();
    while !out.iter().any(|it| matches!(it, Completion::Accepted(_))) {
        io.turn(Some(io.now() + 1_000_000), &mut out).expect("a turn");
    }
    let notices: Vec<_> = net.take_notices().into_iter().map(|it| (it.wire, it.what)).collect();
    for wanted in [
        (None, What::Struck(Fault::FullQueue, Some(Operation::Accept))),
        (Some(wire), What::Struck(Fault::Stall, None)),
        (Some(wire), What::Did(Operation::Accept)),
    ] {
        assert!(notices.contains(&wanted), "{wanted:?} in {notices:?}");
    }
    assert!(net.take_notices().is_empty());
}
