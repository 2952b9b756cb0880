//! Reads of files beside epoll. The worker takes what is in the page cache itself, inside the turn, where that takes a copy
//! and no waiting; for the rest a thread waits for the disk in its stead.
//!
//! The queue to the thread holds every read that may be in flight, so handing one over never waits; one beyond that is
//! refused. What it has read comes back through a channel and the worker's own wake-up, which costs a system call only if
//! the worker sleeps. It reads one after the other: a slow disk delays the reads behind, and nothing else.
//!
//! Invariant: the memory of a read that was handed over belongs to the thread until its answer was taken, whatever becomes
//! of the connection or the worker. The thread ends with the worker, after the read that it has in hand.

use std::{
    collections::VecDeque,
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
};

use super::Epoll;
use crate::{
    ConnId, ReadFile, ReadToken,
    file::{self, Next, Reading},
    slots::Slots,
    sys::{cpu, reads},
    wake::EventWake,
};

/// A read in flight.
struct Flight {
    token: ReadToken,
    /// As long as it was not begun; then it is over, or the thread has it.
    reading: Option<Reading>,
    /// Nobody waits for it any more.
    unwanted: Arc<AtomicBool>,
}

struct Job {
    id: ConnId,
    reading: Reading,
    unwanted: Arc<AtomicBool>,
}

struct Done {
    id: ConnId,
    outcome: io::Result<Vec<u8>>,
}

struct Helper {
    jobs: SyncSender<Job>,
    done: Receiver<Done>,
}

/// The reads of a worker and the thread that does them.
pub(super) struct Files {
    flights: Slots<Flight>,
    /// Those that the next turn begins, in order.
    fresh: VecDeque<ConnId>,
    bound: u32,
    helper: Option<Helper>,
}

impl Files {
    pub(super) fn new(bound: u32) -> Self {
        Self {
            flights: Slots::new(bound),
            fresh: VecDeque::new(),
            bound,
            helper: None,
        }
    }

    /// The thread, started if there is none yet.
    fn helper(&mut self, wake: &Arc<EventWake>) -> io::Result<&Helper> {
        let helper = match self.helper.take() {
            Some(helper) => helper,
            None => {
                let (jobs, to_do) = sync_channel(self.bound as usize);
                let (answers, done) = channel();
                let wake = Arc::clone(wake);
                thread::Builder::new()
                    .name("zerohop-files".to_owned())
                    .spawn(move || help(&to_do, &answers, &wake))?;
                Helper { jobs, done }
            }
        };
        Ok(self.helper.insert(helper))
    }

    /// Hands a read over. `Err`: there is no thread to do it.
    fn hand(&mut self, id: ConnId, reading: Reading, wake: &Arc<EventWake>) -> io::Result<()> {
        let Some(flight) = self.flights.get(id) else {
            return Ok(());
        };
        let unwanted = Arc::clone(&flight.unwanted);
        let job = Job { id, reading, unwanted };
        let helper = self.helper(wake)?;
        // There is room for every read that has a slot, so only a thread that is gone can refuse one.
        helper.jobs.try_send(job).map_err(io::Error::other)
    }

    /// The reads of a connection that closes need not be begun.
    pub(super) fn give_up(&mut self, conn: ConnId) {
        let its = self.flights.iter().filter(|(_, flight)| flight.token.conn == conn);
        its.for_each(|(_, flight)| flight.unwanted.store(true, Ordering::Relaxed));
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let all = self.flights.iter();
        all.for_each(|(_, flight)| flight.unwanted.store(true, Ordering::Relaxed));
    }
}

/// The thread.
fn help(jobs: &Receiver<Job>, done: &Sender<Done>, wake: &EventWake) {
    // The worker's core has the worker. Where the others may not be had, sharing it is slower and no less right.
    let _ = cpu::unpin();
    for Job { id, reading, unwanted } in jobs {
        let outcome = if unwanted.load(Ordering::Relaxed) {
            Err(io::Error::from_raw_os_error(libc::ECANCELED))
        } else {
            read(reading)
        };
        if done.send(Done { id, outcome }).is_err() {
            return;
        }
        wake.help();
    }
}

/// Does all of a read, waiting for the disk.
fn read(mut reading: Reading) -> io::Result<Vec<u8>> {
    reading.threaded = true;
    let file = Arc::clone(&reading.file);
    let Some(descriptor) = file.descriptor() else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    loop {
        let result = reads::read_once(&mut reading, descriptor);
        if let Next::Over(result) = reading.after(result) {
            return reading.outcome(result);
        }
    }
}

/// Does as much of a read as needs no waiting. `None`: a thread must do the rest. `calls` counts.
fn read_what_is_there(reading: &mut Reading, file: BorrowedFd<'_>, calls: &mut u64) -> Option<io::Result<()>> {
    while !reading.threaded {
        *calls += 1;
        let result = reads::read_once(reading, file);
        if let Next::Over(result) = reading.after(result) {
            return Some(result);
        }
    }
    None
}

impl Epoll {
    pub(super) fn start_read(&mut self, token: ReadToken, file: &Arc<ReadFile>, range: (u64, usize), buf: Vec<u8>) {
        let Some(conn) = self.conns.get_mut(token.conn).filter(|conn| conn.is_open()) else {
            return;
        };
        let reading = match Reading::new(token, file, range, buf, true) {
            Ok(reading) => reading,
            Err(outcome) => return self.ready.push(file::answer(token, outcome, &mut self.stats)),
        };
        let flight = Flight {
            token,
            reading: Some(reading),
            unwanted: Arc::default(),
        };
        match self.files.flights.insert(flight) {
            Ok(id) => {
                conn.reads += 1;
                self.files.fresh.push_back(id);
            }
            Err(_) => self.ready.push(file::refuse(token, &mut self.stats)),
        }
    }

    /// Begins the reads that were asked for since the last turn.
    pub(super) fn begin_reads(&mut self) {
        while let Some(id) = self.files.fresh.pop_front() {
            let Some(flight) = self.files.flights.get_mut(id) else {
                continue;
            };
            let Some(mut reading) = flight.reading.take() else {
                continue;
            };
            if flight.unwanted.load(Ordering::Relaxed) {
                self.end_read(id, Err(io::Error::from_raw_os_error(libc::ECANCELED)));
                continue;
            }
            let file = Arc::clone(&reading.file);
            let calls = &mut self.stats.syscalls;
            let result = file
                .descriptor()
                .and_then(|file| read_what_is_there(&mut reading, file, calls));
            match result {
                Some(result) => self.end_read(id, reading.outcome(result)),
                None => {
                    if let Err(error) = self.files.hand(id, reading, &self.wake) {
                        self.end_read(id, Err(error));
                    }
                }
            }
        }
    }

    /// Takes what the thread has read.
    pub(super) fn collect_reads(&mut self) {
        while let Some(Done { id, outcome }) = self
            .files
            .helper
            .as_ref()
            .and_then(|helper| helper.done.try_recv().ok())
        {
            self.end_read(id, outcome);
        }
    }

    fn end_read(&mut self, id: ConnId, outcome: io::Result<Vec<u8>>) {
        let Some(Flight { token, .. }) = self.files.flights.remove(id) else {
            return;
        };
        let Some(conn) = self.conns.get_mut(token.conn) else {
            return;
        };
        conn.reads -= 1;
        if conn.is_open() {
            self.ready.push(file::answer(token, outcome, &mut self.stats));
        }
    }
}
