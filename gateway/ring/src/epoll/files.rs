//! Reads of files beside epoll: a thread a worker that waits for the disk in its stead.
//!
//! The queue to it holds every read that may be in flight, so handing one over never waits; one beyond that is refused.
//! What it has read comes back through a channel and the worker's own wake-up, which costs a system call only if the worker
//! sleeps. It reads one after the other: a slow disk delays the reads behind, and nothing else.
//!
//! Invariant: the memory of a read belongs to the thread from the handing over until its answer was taken, whatever becomes
//! of the connection or the worker. The thread ends with the worker, after the read that it has in hand.

use std::{
    io,
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

/// A read that the thread has.
struct Handed {
    token: ReadToken,
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
    handed: Slots<Handed>,
    bound: u32,
    helper: Option<Helper>,
}

impl Files {
    pub(super) fn new(bound: u32) -> Self {
        Self {
            handed: Slots::new(bound),
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
        let Some(handed) = self.handed.get(id) else {
            return Ok(());
        };
        let unwanted = Arc::clone(&handed.unwanted);
        let job = Job { id, reading, unwanted };
        let helper = self.helper(wake)?;
        // There is room for every read that has a slot, so only a thread that is gone can refuse one.
        helper.jobs.try_send(job).map_err(io::Error::other)
    }

    /// The reads of a connection that closes need not be begun.
    pub(super) fn give_up(&mut self, conn: ConnId) {
        let its = self.handed.iter().filter(|(_, handed)| handed.token.conn == conn);
        its.for_each(|(_, handed)| handed.unwanted.store(true, Ordering::Relaxed));
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let all = self.handed.iter();
        all.for_each(|(_, handed)| handed.unwanted.store(true, Ordering::Relaxed));
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

fn read(mut reading: Reading) -> io::Result<Vec<u8>> {
    // A `pread` that would have to wait does: it never asks for a thread.
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

impl Epoll {
    pub(super) fn start_read(&mut self, token: ReadToken, file: &Arc<ReadFile>, range: (u64, usize), buf: Vec<u8>) {
        let Some(conn) = self.conns.get_mut(token.conn).filter(|conn| conn.is_open()) else {
            return;
        };
        let reading = match Reading::new(token, file, range, buf, true) {
            Ok(reading) => reading,
            Err(outcome) => return self.ready.push(file::answer(token, outcome, &mut self.stats)),
        };
        let handed = Handed {
            token,
            unwanted: Arc::default(),
        };
        let Ok(id) = self.files.handed.insert(handed) else {
            return self.ready.push(file::refuse(token, &mut self.stats));
        };
        match self.files.hand(id, reading, &self.wake) {
            Ok(()) => conn.reads += 1,
            Err(error) => {
                self.files.handed.remove(id);
                self.ready.push(file::answer(token, Err(error), &mut self.stats));
            }
        }
    }

    /// Takes what the thread has read.
    pub(super) fn collect_reads(&mut self) {
        let Some(helper) = &self.files.helper else { return };
        while let Ok(Done { id, outcome }) = helper.done.try_recv() {
            let Some(Handed { token, .. }) = self.files.handed.remove(id) else {
                continue;
            };
            let Some(conn) = self.conns.get_mut(token.conn) else {
                continue;
            };
            conn.reads -= 1;
            if conn.is_open() {
                self.ready.push(file::answer(token, outcome, &mut self.stats));
            }
        }
    }
}
