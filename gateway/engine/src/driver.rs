//! The thread that runs a batch, of whatever kind: takes what was prepared, steps, recovers, and closes.
//!
//! It computes nothing and prepares nothing. Without work it sleeps. Invariant: when it ends, every job has had its last
//! event, as far as the workers took their mail within [`LAST_MAIL`].

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::{admission::Admission, job::Mail, outbox::Outbox};

/// How long mail is offered to full mailboxes when the thread ends.
const LAST_MAIL: Duration = Duration::from_secs(1);

/// How often mail is offered to full mailboxes while there is nothing else to do: a mailbox cannot tell that it has
/// room again.
const RETRY_MAIL: Duration = Duration::from_millis(2);

/// What the thread gets.
pub(crate) enum Inbox<T> {
    /// A job that wants a place.
    Ready(Box<T>),
    /// An answer that needs none.
    Mail(usize, Mail),
    /// Stop.
    Close,
}

/// A batch as its thread sees it.
pub(crate) trait Work {
    /// A prepared job.
    type Job;
    /// Takes a prepared job; it gets a place as soon as one is free.
    fn push(&mut self, job: Self::Job);
    /// Whether there is nothing to compute.
    fn is_idle(&self) -> bool;
    fn outbox(&mut self) -> &mut Outbox;
    /// One step; whether it worked. Jobs whose run failed have had their last event.
    fn step(&mut self) -> bool;
    /// Whether the model still runs.
    fn self_test(&mut self) -> bool;
    /// Fails everything that has a place; what waits, waits on.
    fn fail_running(&mut self, reason: &str);
    /// Fails everything.
    fn fail_all(&mut self, reason: &str);
}

/// Serves a batch until a message says to close, or nobody can send one.
pub(crate) fn run<W: Work>(batch: W, messages: Receiver<Inbox<W::Job>>, admission: Arc<Admission>) {
    let thread = Thread {
        batch,
        messages,
        admission,
    };
    thread.run();
}

struct Thread<W: Work> {
    batch: W,
    messages: Receiver<Inbox<W::Job>>,
    admission: Arc<Admission>,
}

impl<W: Work> Thread<W> {
    fn run(mut self) {
        while self.take_messages() {
            if !self.admission.is_running() {
                // Closing or broken: nothing runs any more, but every job is answered.
                self.batch.fail_all(self.admission.why_stopped());
                self.batch.outbox().flush();
                continue;
            }
            let result = catch_unwind(AssertUnwindSafe(|| self.batch.step()));
            if !matches!(result, Ok(true)) {
                self.recover(result.is_err());
            }
        }
        self.batch.fail_all(self.admission.why_stopped());
        let end = Instant::now() + LAST_MAIL;
        loop {
            self.batch.outbox().flush();
            if self.batch.outbox().is_empty() || Instant::now() >= end {
                return;
            }
            thread::sleep(RETRY_MAIL);
        }
    }

    /// After a failed step: goes on if the model still runs, else stops taking jobs.
    fn recover(&mut self, panicked: bool) {
        if panicked {
            self.batch.fail_running("a step of the engine panicked");
        }
        let test = catch_unwind(AssertUnwindSafe(|| self.batch.self_test()));
        if !matches!(test, Ok(true)) {
            self.admission.break_down();
            self.batch.fail_all(self.admission.why_stopped());
        }
        self.batch.outbox().flush();
    }

    /// Takes what has come; sleeps if there is nothing to do. False: stop.
    fn take_messages(&mut self) -> bool {
        if self.batch.is_idle() {
            let message = if self.batch.outbox().is_empty() {
                self.messages.recv().map_err(RecvTimeoutError::from)
            } else {
                self.messages.recv_timeout(RETRY_MAIL)
            };
            match message {
                Ok(message) => {
                    if !self.take(message) {
                        return false;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        while let Ok(message) = self.messages.try_recv() {
            if !self.take(message) {
                return false;
            }
        }
        true
    }

    fn take(&mut self, message: Inbox<W::Job>) -> bool {
        match message {
            Inbox::Ready(job) => self.batch.push(*job),
            Inbox::Mail(mailbox, mail) => {
                self.batch.outbox().send(mailbox, mail, None);
            }
            Inbox::Close => return false,
        }
        true
    }
}
