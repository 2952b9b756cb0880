//! One worker: one thread, one core, one [`Io`], and every connection that was accepted on it.
//!
//! The loop is explicit: ask the outside, handle each completion, deliver the engines' mail, look at the deadlines, and
//! submit what came of it. It never blocks but in [`Io::turn`], takes no lock, and shares nothing it writes.
//!
//! Invariant: whatever a connection wants of the outside (bytes to send, receiving on or off, closing) is read from it
//! in one place, [`Worker::settle`], after everything that happened to it in a turn.

mod answer;
mod answering;
mod budget;
mod conn;
mod fetching;
mod flying;
mod kept;
mod local;
mod record;
mod routes;
mod seen;
mod timer;

use std::{io, mem};

use crossbeam_channel::Receiver;
use zerohop_engine::Mail;
use zerohop_ring::{Accepted, Completion, ConnId, Io, ListenerId, Nanos, ReadToken, RecvEnd};

pub(crate) use self::kept::whose;
use self::{
    conn::Conn,
    timer::{Due, Timers},
};
pub use self::{
    local::{Limits, Local, Network, Phase, Shared},
    routes::Surface,
};

/// What the control thread tells a worker. The worker is woken after each.
pub enum Command {
    /// An engine's mail comes here too from now on.
    Mailbox(rtrb::Consumer<Mail>),
    /// Accept from now on.
    Start,
    /// Accept nothing new, finish what runs, then end.
    Drain,
    /// Abort every connection and end.
    Stop,
}

/// Room for completions of a usual turn.
const COMPLETIONS: usize = 1024;
/// Most mails of one engine in a turn, so that sockets get their turn too.
const MAIL_BATCH: usize = 1024;

/// A worker, ready to run on the thread that made its [`Io`].
pub struct Worker<I: Io> {
    io: I,
    conns: Vec<Option<Box<Conn>>>,
    open: usize,
    listening: usize,
    timers: Timers,
    mail: Vec<rtrb::Consumer<Mail>>,
    commands: Receiver<Command>,
    /// Surfaces by [`ListenerId`].
    surfaces: Vec<Surface>,
    local: Local,
    /// Connections that mail changed in this turn.
    touched: Vec<ConnId>,
    /// Those of the present turn; kept for its memory.
    completions: Vec<Completion>,
    /// Told to drain or stop.
    ending: bool,
    /// Told to stop: what the kernel had queued before is accepted only to be closed.
    stopping: bool,
}

impl<I: Io> Worker<I> {
    /// A worker over `io`, whose listeners serve `surfaces` in the same order.
    pub fn new(io: I, surfaces: Vec<Surface>, commands: Receiver<Command>, mut local: Local) -> Self {
        local.open_door(io.waker());
        Self {
            io,
            conns: Vec::new(),
            open: 0,
            listening: 0,
            timers: Timers::default(),
            mail: Vec::new(),
            commands,
            surfaces,
            local,
            touched: Vec::new(),
            completions: Vec::with_capacity(COMPLETIONS),
            ending: false,
            stopping: false,
        }
    }

    /// Runs until it is told to drain or stop and every connection is closed.
    ///
    /// # Errors
    /// When the ring itself fails; connections are lost then.
    pub fn run(mut self) -> io::Result<()> {
        while !self.has_ended() {
            self.turn()?;
        }
        Ok(())
    }

    /// Whether it was told to end and nothing is left, also of what others follow.
    fn has_ended(&self) -> bool {
        self.ending && self.open == 0 && self.listening == 0 && !self.local.has_orphans()
    }

    /// One turn of the loop.
    fn turn(&mut self) -> io::Result<()> {
        let mut completions = mem::take(&mut self.completions);
        self.io.turn(self.deadline(), &mut completions)?;
        self.local.tick(self.io.now(), self.io.unix_time());
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions = completions;
        self.deliver_mail();
        self.local.flying().ring();
        self.deliver_news();
        self.expire(self.io.now());
        self.obey();
        self.local.end_of_turn(&self.io.stats());
        Ok(())
    }

    /// When the worker must look again though nothing came.
    fn deadline(&self) -> Option<Nanos> {
        [self.timers.next(), self.local.due()].into_iter().flatten().min()
    }

    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted(accepted) => self.accepted(accepted),
            Completion::Refused { .. } => self.local.connection_refused(),
            Completion::AcceptEnded { listener, error } => self.accept_ended(listener, error),
            Completion::Received { conn, buf } => {
                if let Some(this) = lookup(&mut self.conns, conn) {
                    this.received(self.io.bytes(&buf), &mut self.local);
                }
                self.io.give_back(buf);
                self.settle(conn);
            }
            Completion::RecvEnded { conn, end } => {
                if let Some(this) = lookup(&mut self.conns, conn) {
                    match end {
                        RecvEnd::Paused => this.paused(),
                        RecvEnd::Eof | RecvEnd::Failed(_) => this.gone(&mut self.local),
                    }
                }
                self.settle(conn);
            }
            Completion::Sent { conn, buf, result } => {
                if let Some(this) = lookup(&mut self.conns, conn) {
                    this.sent(buf, &result, &mut self.local);
                }
                self.settle(conn);
            }
            Completion::Read { token, outcome } => {
                if let Some(this) = lookup(&mut self.conns, token.conn) {
                    this.fetched(token.tag, outcome, &mut self.local);
                }
                self.settle(token.conn);
            }
            Completion::Closed { conn } => self.closed(conn),
            Completion::Woken => {}
        }
    }

    fn accepted(&mut self, accepted: Accepted) {
        let slot = accepted.conn.slot as usize;
        if slot >= self.conns.len() {
            self.conns.resize_with(slot + 1, || None);
        }
        let surface = self.surfaces[usize::from(accepted.listener.0)];
        let mut conn = Conn::new(accepted.conn, accepted.peer, surface, &mut self.local);
        if self.stopping {
            conn.abort(&mut self.local);
        } else if self.ending {
            conn.drain(&mut self.local);
        }
        self.conns[slot] = Some(Box::new(conn));
        self.open += 1;
        self.io.recv(accepted.conn);
        self.settle(accepted.conn);
    }

    fn accept_ended(&mut self, listener: ListenerId, error: Option<io::Error>) {
        self.listening -= 1;
        if let Some(error) = error {
            self.local.listener_failed(listener, &error);
        }
    }

    fn closed(&mut self, conn: ConnId) {
        if let Some(place) = self.conns.get_mut(conn.slot as usize)
            && place.as_ref().is_some_and(|this| this.id() == conn)
        {
            let this = place.take();
            self.open -= 1;
            if let Some(this) = this {
                this.closed(&mut self.local);
            }
        }
    }

    /// Hands each event to the connection that waits for it, or to a generation that goes on without one; those of past
    /// requests are dropped.
    fn deliver_mail(&mut self) {
        for mailbox in &mut self.mail {
            for _ in 0..MAIL_BATCH {
                let Ok(mail) = mailbox.pop() else { break };
                let slot = self.conns.get_mut(Conn::slot_of(mail.ticket));
                let Some(this) = slot.and_then(Option::as_deref_mut) else {
                    self.local.mail_of_orphan(mail);
                    continue;
                };
                match this.mail(mail, &mut self.local) {
                    Some(mail) => self.local.mail_of_orphan(mail),
                    None if self.touched.last() != Some(&this.id()) => self.touched.push(this.id()),
                    None => {}
                }
            }
            if !mailbox.is_empty() {
                self.io.waker().wake();
            }
        }
        self.mail
            .retain(|mailbox| !(mailbox.is_abandoned() && mailbox.is_empty()));
        while let Some(conn) = self.touched.pop() {
            self.settle(conn);
        }
    }

    /// Has the connections that follow a flight with news look at it.
    fn deliver_news(&mut self) {
        for flight in self.local.flying().news() {
            for seat in flight.seats(self.local.worker()) {
                let conn = ConnId {
                    slot: seat.slot,
                    generation: seat.generation,
                };
                if let Some(this) = lookup(&mut self.conns, conn) {
                    this.heard(&mut self.local);
                    self.settle(conn);
                }
            }
        }
    }

    fn expire(&mut self, now: Nanos) {
        while let Some((conn, entry)) = self.timers.pop(now) {
            let Some(this) = lookup(&mut self.conns, conn) else {
                continue;
            };
            if self.timers.due(conn, entry, this.deadline(), now) == Due::Expired {
                this.expired(&mut self.local);
                self.settle(conn);
            }
        }
    }

    /// Does what the control thread asks.
    fn obey(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Mailbox(mailbox) => self.mail.push(mailbox),
                Command::Start => {
                    self.listening = self.surfaces.len();
                    self.io.start_accept();
                }
                Command::Drain => {
                    self.ending = true;
                    self.local.begin_drain();
                    self.io.stop_accept();
                    self.each(Conn::drain);
                }
                Command::Stop => {
                    self.ending = true;
                    self.stopping = true;
                    self.local.begin_drain();
                    self.io.stop_accept();
                    self.each(Conn::abort);
                    self.local.flying().stop();
                }
            }
        }
    }

    fn each(&mut self, act: impl Fn(&mut Conn, &mut Local)) {
        for slot in 0..self.conns.len() {
            if let Some(this) = self.conns[slot].as_deref_mut() {
                act(this, &mut self.local);
                let id = this.id();
                self.settle(id);
            }
        }
    }

    /// Submits what the connection wants after something happened to it.
    fn settle(&mut self, conn: ConnId) {
        let Some(this) = lookup(&mut self.conns, conn) else {
            return;
        };
        if !this.is_within(&mut self.local) {
            this.give_up(&mut self.local);
            // What was given up counts no more; what is still held beyond the bound is.
            let _ = this.is_within(&mut self.local);
        }
        let now = self.io.now();
        if let Some(bytes) = this.take_output(now) {
            self.io.send(conn, bytes);
        }
        if this.take_finish() {
            self.io.finish(conn);
        }
        if let Some((tag, read)) = this.take_read() {
            let token = ReadToken { conn, tag };
            self.io.read(token, &read.file, read.offset, read.len, Vec::new());
        }
        if let Some(abort) = this.take_close() {
            self.io.close(conn, abort);
        } else {
            match this.take_recv_change() {
                Some(true) => self.io.recv(conn),
                Some(false) => self.io.pause_recv(conn),
                None => {}
            }
        }
        let at = this.next_deadline(&self.local);
        self.timers.set(conn, this.deadline(), at);
    }
}

/// The connection of this id, if it is still that one.
fn lookup(conns: &mut [Option<Box<Conn>>], conn: ConnId) -> Option<&mut Conn> {
    let this = conns.get_mut(conn.slot as usize)?.as_deref_mut()?;
    (this.id() == conn).then_some(this)
}

#[cfg(test)]
mod flight_tests;
#[cfg(test)]
mod sim_tests;
