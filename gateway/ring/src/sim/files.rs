//! Reads of simulated files: when they are answered, and with what faults.
//!
//! It touches no disk. Invariant: as on the ring, a read holds its place until it is over, though its connection be gone.

use std::{io, sync::Arc};

use super::{
    Sim,
    faults::{Fault, Operation},
    net::Event,
};
use crate::{
    ConnId, Nanos, ReadFile, ReadToken,
    file::{self, Next, Reading},
};

/// A slow read takes so many delays.
const SLOW: u32 = 100;

/// What a simulated file holds: bytes, or whatever a simulated disk makes of them. It is asked when the disk would be, so
/// what changes between a read and its answer changes the answer.
pub trait Contents: Send + Sync + 'static {
    /// Copies what there is from `offset` on, as `pread` does: less than there is room for is a short read, nothing is the
    /// end.
    ///
    /// # Errors
    /// What a disk would say.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

impl Contents for Vec<u8> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        let rest = rest.unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

impl Sim {
    pub(super) fn start_read(&mut self, token: ReadToken, file: &Arc<ReadFile>, range: (u64, usize), buf: Vec<u8>) {
        let Some(conn) = self.conns.get_mut(token.conn).filter(|conn| conn.is_open()) else {
            return;
        };
        let wire = conn.wire();
        self.shared.borrow_mut().did(wire, Operation::Read);
        let reading = match Reading::new(token, file, range, buf, false) {
            Ok(reading) => reading,
            Err(outcome) => return self.ready.push_back(file::answer(token, outcome, &mut self.stats)),
        };
        let Ok(id) = self.reads.insert(reading) else {
            return self.ready.push_back(file::refuse(token, &mut self.stats));
        };
        conn.reads += 1;
        let shared = &mut *self.shared.borrow_mut();
        let full = shared.strikes(Fault::FullQueue, Some(wire), Some(Operation::Read));
        let slow = shared.strikes(Fault::SlowRead, Some(wire), Some(Operation::Read));
        let delays = if slow { SLOW } else { 1 } + u32::from(full);
        let time = shared.time + (0..delays).map(|_| shared.delay()).sum::<Nanos>();
        shared.at_station(self.worker, time, Event::Read(id));
    }

    /// The disk answers.
    pub(super) fn on_read(&mut self, id: ConnId) {
        let Some(reading) = self.reads.get_mut(id) else { return };
        let token = reading.token;
        let mut conn = self.conns.get_mut(token.conn);
        let wire = conn.as_ref().filter(|conn| conn.is_open()).map(|conn| conn.wire());
        let result = match wire {
            None => Ok(()),
            Some(wire) => {
                let shared = &mut *self.shared.borrow_mut();
                let during = Some(Operation::Read);
                let result = if shared.strikes(Fault::FailedRead, Some(wire), during) {
                    -libc::EIO
                } else {
                    let mut most = reading.missing();
                    if most > 1 && shared.strikes(Fault::ShortFileRead, Some(wire), during) {
                        most = shared.rng.within(&(1..=most as u64 - 1)) as usize;
                    }
                    read_once(reading, most)
                };
                match reading.after(result) {
                    Next::Again => return shared.soon(self.worker, Event::Read(id)),
                    Next::Over(result) => result,
                }
            }
        };
        if let Some(conn) = &mut conn {
            conn.reads -= 1;
        }
        if let (Some(reading), Some(_)) = (self.reads.remove(id), wire) {
            let answer = file::answer(token, reading.outcome(result), &mut self.stats);
            self.ready.push_back(answer);
        }
    }
}

/// Adds up to `most` bytes to those of a read: a count, or a negated errno.
fn read_once(reading: &mut Reading, most: usize) -> i32 {
    let (file, before, position) = (Arc::clone(&reading.file), reading.buf.len(), reading.position());
    reading.buf.resize(before + most, 0);
    let contents = file.contents().ok_or(io::Error::from(io::ErrorKind::Unsupported));
    let result = contents.and_then(|contents| contents.read_at(position, &mut reading.buf[before..]));
    let count = *result.as_ref().unwrap_or(&0);
    reading.buf.truncate(before + count.min(most));
    match result {
        Ok(count) => i32::try_from(count).unwrap_or(i32::MAX),
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    }
}
