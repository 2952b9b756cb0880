//! Reads of files through the ring.
//!
//! Invariant: `Conn::reads` counts the reads in flight of that connection; those of connections that are gone go on until
//! the kernel answers, and are then dropped.

use std::sync::Arc;

use super::Uring;
use crate::{
    Completion, ConnId, ReadFile, ReadToken,
    file::{self, Next, Reading},
    sys::ring::Cqe,
};

impl Uring {
    pub(super) fn start_read(&mut self, token: ReadToken, file: &Arc<ReadFile>, range: (u64, usize), buf: Vec<u8>) {
        let Some(conn) = self.conns.get_mut(token.conn).filter(|conn| conn.is_open()) else {
            return;
        };
        let reading = match Reading::new(token, file, range, buf, true) {
            Ok(reading) => reading,
            Err(outcome) => return self.ready.push(file::answer(token, outcome, &mut self.stats)),
        };
        match self.ring.read(reading) {
            Ok(()) => conn.reads += 1,
            Err(_) => self.ready.push(file::refuse(token, &mut self.stats)),
        }
    }

    pub(super) fn on_read(&mut self, cqe: &Cqe, out: &mut Vec<Completion>) {
        let Some(id) = self.ring.reads().present(cqe.token) else {
            return;
        };
        let Some(reading) = self.ring.reads_mut().get_mut(id) else {
            return;
        };
        let token = reading.token;
        let mut conn = self.conns.get_mut(token.conn);
        let wanted = conn.as_ref().is_some_and(|conn| conn.is_open());
        let result = match reading.after(cqe.result) {
            Next::Again if wanted => return self.ring.read_on(id),
            // Nobody waits for it, so it does not matter how it ends.
            Next::Again => Ok(()),
            Next::Over(result) => result,
        };
        if let Some(conn) = &mut conn {
            conn.reads -= 1;
        }
        let ended = self.ring.reads_mut().end(id).filter(|_| wanted);
        if let Some(reading) = ended {
            out.push(file::answer(token, reading.outcome(result), &mut self.stats));
        }
    }

    /// The reads of a connection that closes: the kernel is asked to let go of them.
    pub(super) fn give_up_reads(&mut self, conn: ConnId) {
        let reads = self.ring.reads().iter();
        let its: Vec<_> = reads
            .filter(|(_, reading)| reading.token.conn == conn)
            .map(|(id, _)| id)
            .collect();
        its.into_iter().for_each(|id| self.ring.give_up(id));
    }
}
