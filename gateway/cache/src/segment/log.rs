//! The active segment: answers are appended to it, and read from it again after a restart.
//!
//! Nothing here decides what is worth keeping, and a segment that was opened before is never appended to: it is read, sealed into
//! a part and removed. Invariants: bytes reach the file in order, in writes of whole blocks of 4 KiB that follow one another, none
//! twice; below [`Log::lasting`] everything is there after a crash (as the durability promises), and reading ends at the first
//! frame that is not whole, whatever lies behind.
//!
//! ```text
//!  active-7.seg     ├ batch of 128 KiB ──────────┼ batch ─────────────────────┼ 50 ms were over ┼ …      zeros up to its end ┤
//!                   ├ frame ┼ frame ┼ frame ┼ frame ┼ frame ┼ frame ┼ frame ───┼ frame ┼ skip ──┤
//! ```

use std::{io, time::Duration};

use super::frame::{self, ALIGN, Decoded, Frame, SKIP, Unfit};
use crate::{
    files::{File, Files, Open},
    types::{Answer, PartNumber, Place},
};

/// Bytes of a segment, unless said otherwise.
pub const SEGMENT: u64 = 64 << 20;
/// Bytes of a batch.
pub const BATCH: usize = 128 << 10;
/// What writes are multiples of, bytes.
pub const BLOCK: usize = 4096;
/// How long an answer waits for its commit at most.
pub const COMMIT: Duration = Duration::from_millis(50);
/// Bytes read at a time.
const WINDOW: usize = 1 << 20;

/// What a crash may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Nothing is synced: all of the segment. For memory that no crash survives anyway.
    None,
    /// What was put in the last 50 ms.
    #[default]
    Batch,
    /// Nothing that was flushed, and each answer is due at once.
    Sync,
}

/// Why an answer was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It fits no segment.
    #[error("an answer cannot be kept: {0}")]
    Unfit(#[from] Unfit),
    /// It fits the next segment.
    #[error("the segment is full")]
    Full,
    /// A write or sync failed; what lies behind [`Log::lasting`] is lost, and only another segment takes more.
    #[error("the segment is broken")]
    Broken,
}

/// What was done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Bytes of the frames that were appended.
    pub bytes_put: u64,
    /// Bytes written to the file.
    pub bytes_written: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs of the file.
    pub syncs: u64,
}

/// The name of a segment's file.
#[must_use]
pub fn name(number: PartNumber) -> String {
    format!("active-{}.seg", number.0)
}

/// The number of the segment that a file of this name is.
#[must_use]
pub fn number(name: &str) -> Option<PartNumber> {
    super::numbered(name, "active-", ".seg")
}

/// The segment that is written to.
#[derive(Debug)]
pub struct Log<F> {
    file: F,
    number: PartNumber,
    capacity: u64,
    durability: Durability,
    /// Frames that are not in the file yet; they begin at `written`.
    pending: Vec<u8>,
    /// Bytes of the file that are written, a multiple of [`BLOCK`].
    written: u64,
    lasting: u64,
    /// When the first answer came that does not last yet.
    since: Option<Duration>,
    broken: bool,
    counts: Written,
}

impl<F: File> Log<F> {
    /// Makes the segment's file, with `capacity` bytes reserved: a multiple of [`BLOCK`], at most 4 GiB.
    ///
    /// # Errors
    /// What the files say: there is one already, or no room. A file that was begun is removed, as far as that is possible.
    pub async fn create<D: Files<File = F>>(
        files: &D,
        number: PartNumber,
        capacity: u64,
        durability: Durability,
    ) -> io::Result<Self> {
        if !capacity.is_multiple_of(BLOCK as u64) || capacity < BATCH as u64 || capacity > 4 << 30 {
            let why = "a segment has whole blocks of 4 KiB, at least 128 KiB and at most 4 GiB";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let name = name(number);
        let file = files.open(&name, Open::New).await?;
        let made = async {
            file.reserve(capacity).await?;
            if durability != Durability::None {
                file.sync().await?;
                files.sync_folder().await?;
            }
            Ok(())
        };
        if let Err(error) = made.await {
            // The error that counts is the first.
            let _removed = files.remove(&name).await;
            return Err(error);
        }
        Ok(Self {
            file,
            number,
            capacity,
            durability,
            pending: Vec::with_capacity(BATCH + BLOCK),
            written: 0,
            lasting: 0,
            since: None,
            broken: false,
            counts: Written::default(),
        })
    }

    /// Takes an answer. Its place is known at once; its bytes wait in memory until a write.
    ///
    /// # Errors
    /// If it is not taken; the segment is as before.
    pub fn append(&mut self, answer: &Answer, now: Duration) -> Result<Place, Refused> {
        if self.broken {
            return Err(Refused::Broken);
        }
        let size = frame::size(answer) as u64;
        // Each segment leaves room for a last skip.
        if size <= self.most() && size > self.most().saturating_sub(self.end()) {
            return Err(Refused::Full);
        }
        let (offset, most) = (self.end(), self.most() as usize);
        let place = frame::encode(answer, self.number, offset, most, &mut self.pending)?;
        self.counts.bytes_put += size;
        self.since.get_or_insert(now);
        Ok(place)
    }

    /// Bytes that frames may take in all.
    fn most(&self) -> u64 {
        self.capacity - BLOCK as u64
    }

    /// Where the next frame begins.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Whether a batch is complete: time to [`Self::write`].
    #[must_use]
    pub fn has_batch(&self) -> bool {
        self.pending.len() >= BATCH
    }

    /// Whether an answer has waited for as long as it may: time to [`Self::flush`].
    #[must_use]
    pub fn due(&self, now: Duration) -> bool {
        let wait = if self.durability == Durability::Sync {
            Duration::ZERO
        } else {
            COMMIT
        };
        self.since.is_some_and(|since| now.saturating_sub(since) >= wait)
    }

    /// When it will be due; `None` while nothing waits.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let since = self.since?;
        Some(if self.durability == Durability::Sync {
            since
        } else {
            since + COMMIT
        })
    }

    /// Whether so few bytes are left that the next answer of the usual size will hardly fit: a batch.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.most().saturating_sub(self.end()) < BATCH as u64
    }

    /// Whether a write or sync failed.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Below this offset everything lasts, as far as the durability promises.
    #[must_use]
    pub fn lasting(&self) -> u64 {
        self.lasting
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> Written {
        self.counts
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> PartNumber {
        self.number
    }

    /// Its file.
    #[must_use]
    pub fn file(&self) -> &F {
        &self.file
    }

    /// Bytes of the file that are written: a value that ends below can be read there by whoever has the file.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The value at this place, from the file or from what waits or from both.
    ///
    /// # Errors
    /// What the file says; `UnexpectedEof` for a place that is not of this log; `InvalidData` where the checksum does not hold.
    pub async fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let end = place.offset.saturating_add(place.len.into());
        if place.part != self.number || end > self.end() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let split = self.written.clamp(place.offset, end);
        let mut bytes = self.file.read_at((split - place.offset) as usize, place.offset).await?;
        if split < end {
            let waits = (split - self.written) as usize..(end - self.written) as usize;
            bytes.extend_from_slice(&self.pending[waits]);
        }
        super::checked(bytes, place)
    }

    /// Writes the batches that are complete.
    ///
    /// # Errors
    /// What the file says; the segment is broken then.
    pub async fn write(&mut self) -> io::Result<()> {
        let whole = self.pending.len() - self.pending.len() % BATCH;
        self.put(whole).await
    }

    /// Writes all that waits, filled up with a skip to a whole block, and syncs it.
    ///
    /// # Errors
    /// What the file says; the segment is broken then, and what is not below [`Self::lasting`] is lost.
    pub async fn flush(&mut self) -> io::Result<()> {
        let rest = self.pending.len().next_multiple_of(BLOCK) - self.pending.len();
        if rest > 0 {
            // A gap that is too short for a skip takes a block more.
            let len = if rest < SKIP { rest + BLOCK } else { rest };
            frame::skip(self.number, self.end(), len, &mut self.pending);
        }
        self.put(self.pending.len()).await?;
        if self.lasting < self.written && self.durability != Durability::None {
            let outcome = self.file.sync().await;
            self.broken |= outcome.is_err();
            outcome?;
            self.counts.syncs += 1;
        }
        self.lasting = self.written;
        self.since = None;
        Ok(())
    }

    /// Writes the first `len` bytes that wait, a multiple of [`BLOCK`].
    async fn put(&mut self, len: usize) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("a write or sync of the segment failed before"));
        }
        if len == 0 {
            return Ok(());
        }
        let rest = self.pending.split_off(len);
        let batch = std::mem::take(&mut self.pending);
        let (outcome, mut batch) = self.file.write_at(batch, self.written).await;
        if let Err(error) = outcome {
            self.broken = true;
            // Still readable from memory, as far as somebody asks for it.
            batch.extend_from_slice(&rest);
            self.pending = batch;
            return Err(error);
        }
        self.counts.writes += 1;
        self.counts.bytes_written += len as u64;
        self.written += len as u64;
        batch.clear();
        batch.extend_from_slice(&rest);
        // One long answer does not hold its memory for good.
        batch.shrink_to(BATCH + BLOCK);
        self.pending = batch;
        Ok(())
    }
}

/// Reads the answers of a segment in order.
#[derive(Debug)]
pub struct Replay<'f, F> {
    file: &'f F,
    number: PartNumber,
    size: u64,
    window: Vec<u8>,
    /// Where the window lies in the file.
    base: u64,
    /// Where in the file the next frame begins.
    at: u64,
    over: bool,
}

/// Begins to read a segment at `from`: 0, or where a frame begins as [`Log::end`] told once.
///
/// # Errors
/// If the size of the file cannot be told.
pub async fn replay<F: File>(file: &F, number: PartNumber, from: u64) -> io::Result<Replay<'_, F>> {
    Ok(Replay {
        file,
        number,
        size: file.size().await?,
        window: Vec::new(),
        base: from,
        at: from,
        over: !from.is_multiple_of(ALIGN as u64),
    })
}

impl<F: File> Replay<'_, F> {
    /// The next answer; `None` at the first place that has no whole frame, and from then on.
    ///
    /// # Errors
    /// What the file says.
    pub async fn next(&mut self) -> io::Result<Option<Frame<'_>>> {
        while !self.over {
            let start = (self.at - self.base) as usize;
            let most = self.size.saturating_sub(self.at);
            match frame::decode(&self.window[start..], self.number, self.at, most) {
                Decoded::Answer(len) => {
                    let at = self.at;
                    self.at += len as u64;
                    return Ok(frame::parse(&self.window[start..start + len], self.number, at));
                }
                Decoded::Skip(len) => self.skip(len),
                Decoded::Needs(len) => self.fill(len).await?,
                Decoded::Nothing => self.over = true,
            }
        }
        Ok(None)
    }

    /// Where it stands: behind the last whole frame.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.at
    }

    fn skip(&mut self, len: usize) {
        self.at += len as u64;
        // A skip reaches beyond what was read of it.
        if self.at > self.base + self.window.len() as u64 {
            self.window.clear();
            self.base = self.at;
        }
    }

    /// Reads at least `len` bytes from where it stands, or all that are left.
    async fn fill(&mut self, len: usize) -> io::Result<()> {
        let left = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
        let len = len.max(WINDOW).min(left);
        self.window = self.file.read_at(len, self.at).await?;
        self.base = self.at;
        Ok(())
    }
}
