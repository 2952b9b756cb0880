//! Mail on its way from the engine to the workers.
//!
//! It never waits for a worker: what finds its mailbox full stays here, in order, and later deltas of a job join the one
//! that waits. Nothing is seen before a flush, so that the engine's counters are right when a worker hears of something.
//! Invariant: a job's events arrive in their order, and each mailbox is woken at most once a flush.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    admission::Admission,
    job::{Event, Mail, Mailbox},
};

/// All mailboxes of an engine.
pub(crate) struct Outbox {
    boxes: Vec<Letterbox>,
    admission: Arc<Admission>,
}

struct Letterbox {
    mailbox: Mailbox,
    /// Of each open job at most `Started`, `Echo`, deltas and calls of one answer, of which deltas in a row are joined, and
    /// a final event; the jobs are bounded by [`Admission`], their answers by the context.
    backlog: VecDeque<Mail>,
    /// Number of the first mail of the backlog, counted from the start.
    first: u64,
}

impl Outbox {
    pub(crate) fn new(mailboxes: Vec<Mailbox>, admission: Arc<Admission>) -> Self {
        let boxes = mailboxes
            .into_iter()
            .map(|mailbox| Letterbox {
                mailbox,
                backlog: VecDeque::new(),
                first: 0,
            })
            .collect();
        Self { boxes, admission }
    }

    /// How many mailboxes there are.
    pub(crate) fn len(&self) -> usize {
        self.boxes.len()
    }

    /// Takes mail for the next flush. `waiting` is what the last call for this job returned: the number of its delta that
    /// waits, if one does. Panics for a mailbox that does not exist: the index was checked when the job came in.
    pub(crate) fn send(&mut self, mailbox: usize, mail: Mail, waiting: Option<u64>) -> Option<u64> {
        self.boxes[mailbox].keep(mail, waiting)
    }

    /// Puts mail into the mailboxes as far as there is room, and wakes those that got any.
    pub(crate) fn flush(&mut self) {
        for to in &mut self.boxes {
            to.deliver(&self.admission);
        }
    }

    /// Whether all mail is out.
    pub(crate) fn is_empty(&self) -> bool {
        self.boxes.iter().all(|to| to.backlog.is_empty())
    }
}

impl Letterbox {
    /// Keeps mail, or joins it to the delta that waits. The number of the delta that waits now, if it is the last.
    fn keep(&mut self, mail: Mail, waiting: Option<u64>) -> Option<u64> {
        let index = waiting.and_then(|number| number.checked_sub(self.first));
        let earlier = index.and_then(|index| self.backlog.get_mut(index as usize));
        let mut mail = mail;
        if let Some(earlier) = earlier
            && earlier.ticket == mail.ticket
            && join(&mut earlier.event, &mut mail.event)
        {
            earlier.at = mail.at;
            return waiting;
        }
        let number = self.first + self.backlog.len() as u64;
        let joins = matches!(mail.event, Event::Text { .. } | Event::Arguments { .. });
        self.backlog.push_back(mail);
        joins.then_some(number)
    }

    fn deliver(&mut self, admission: &Admission) {
        // A worker that is gone reads nothing any more.
        let gone = self.mailbox.mail.is_abandoned();
        let mut delivered = false;
        while let Some(mail) = self.backlog.pop_front() {
            if !gone && self.mailbox.mail.is_full() {
                self.backlog.push_front(mail);
                break;
            }
            // Before the worker can see the end, so that it may hand in the next job at once.
            if mail.event.is_final() {
                admission.close();
            }
            self.first += 1;
            // There is room, since this is the only producer.
            delivered |= !gone && self.mailbox.mail.push(mail).is_ok();
        }
        if delivered {
            (self.mailbox.wake)();
        }
    }
}

/// Adds a delta to the one before it, if they are of one kind.
fn join(before: &mut Event, after: &mut Event) -> bool {
    match (before, after) {
        (
            Event::Text { text, tokens, logprobs },
            Event::Text {
                text: more,
                tokens: count,
                logprobs: others,
            },
        ) => {
            text.push_str(more);
            *tokens += *count;
            logprobs.append(others);
            true
        }
        (
            Event::Arguments { text, tokens },
            Event::Arguments {
                text: more,
                tokens: count,
            },
        ) => {
            text.push_str(more);
            *tokens += *count;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
