//! One answer as bytes of the log, and back.
//!
//! It does no I/O and believes no length before it has seen that the bytes are there. Invariant: what is read from a frame is
//! what was written at that very place of that very segment: both checksums hold, and the first of them covers the place.
//!
//! # Frame, format 1
//!
//! Numbers are little-endian. A frame begins at a multiple of 8.
//!
//! ```text
//!  0       4     8        12     13       14           16            20         24          28             32
//!  ├ magic ┼ crc ┼ length ┼ kind ┼ finish ┼ model's ───┼ request's ──┼ body's ──┼ body's crc ┼ generation ─┤
//!                                           length       length        length                   milliseconds
//!  32       40        44        48       52           56        72       104
//!  ├ tenant ┼ created ┼ expires ┼ prompt ┼ completion ┼ context ┼ prompt ┼ model, request, body, zeros to a multiple of 8 ┤
//!                                 tokens   tokens                 hash
//!
//!  magic    "ZHF1"
//!  crc      CRC-32C of segment number (4 bytes), offset of the frame (8 bytes), and the frame from its length to the request
//!  length   bytes of the whole frame
//!  kind     1 an answer; 0 a skip: 16 bytes (0 in the last 3), then anything up to the length, which nothing covers
//!  request's length is 2^32 - 1 where none is kept; lengths are in bytes; both CRCs are CRC-32C
//! ```

use crc32c::{crc32c, crc32c_append};

use crate::types::{Answer, Context, FinishReason, PartNumber, Place, PromptHash, Seconds, Usage};

/// Bytes of a frame before the model's name.
pub const HEAD: usize = 104;
/// Bytes of the smallest skip.
pub(super) const SKIP: usize = 16;
/// What frames are multiples of, bytes.
pub(super) const ALIGN: usize = 8;

const MAGIC: [u8; 4] = *b"ZHF1";

/// Whether these bytes begin a frame of another format than this one: what a newer program wrote is not damage.
#[must_use]
pub fn is_of_another_format(bytes: &[u8]) -> bool {
    bytes
        .first_chunk::<4>()
        .is_some_and(|magic| magic[..3] == MAGIC[..3] && *magic != MAGIC && magic[3].is_ascii_digit())
}
const KIND_SKIP: u8 = 0;
const KIND_ANSWER: u8 = 1;
const NO_REQUEST: u32 = u32::MAX;

/// Why an answer cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Other programs read these columns as text.
    #[error("the {0} is not UTF-8")]
    NotText(&'static str),
    /// Beyond what a length says, or what a segment holds.
    #[error("it has {0} bytes with its columns")]
    TooLong(usize),
}

/// An answer in the log, borrowed from what was read of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Where the body lies.
    pub place: Place,
    /// The model's name.
    pub model: &'a str,
    /// As in [`Answer`].
    pub tenant: u64,
    /// Identity.
    pub prompt: PromptHash,
    /// How the conversation begins.
    pub context: Context,
    /// When it was made.
    pub created: Seconds,
    /// From when on it is stale.
    pub expires: Seconds,
    /// Why it ended.
    pub finish: FinishReason,
    /// Tokens.
    pub usage: Usage,
    /// Milliseconds.
    pub generation_ms: u32,
    /// The canonical request.
    pub request: Option<&'a [u8]>,
    /// The stored reply.
    pub body: &'a [u8],
}

impl Frame<'_> {
    /// A copy of it.
    #[must_use]
    pub fn to_answer(&self) -> Answer {
        Answer {
            model: self.model.to_owned(),
            tenant: self.tenant,
            prompt: self.prompt,
            context: self.context,
            created: self.created,
            expires: self.expires,
            finish: self.finish,
            usage: self.usage,
            generation_ms: self.generation_ms,
            request: self.request.map(<[u8]>::to_vec),
            body: self.body.to_vec(),
        }
    }
}

/// Bytes that the answer takes as a frame.
#[must_use]
pub fn size(answer: &Answer) -> usize {
    let request = answer.request.as_ref().map_or(0, Vec::len);
    (HEAD + answer.model.len() + request + answer.body.len()).next_multiple_of(ALIGN)
}

/// Adds the answer to `out` as the frame at `offset` of a segment; where its body will lie.
///
/// # Errors
/// If the frame would be longer than `most` bytes or has text that is none; nothing is added then.
pub fn encode(answer: &Answer, part: PartNumber, offset: u64, most: usize, out: &mut Vec<u8>) -> Result<Place, Unfit> {
    let size = size(answer);
    let request = answer.request.as_deref().unwrap_or_default();
    // Each length is below that of the whole.
    let (Ok(len), Ok(model)) = (u32::try_from(size), u16::try_from(answer.model.len())) else {
        return Err(Unfit::TooLong(size));
    };
    if size > most {
        return Err(Unfit::TooLong(size));
    }
    for (name, text) in [("request", request), ("body", &answer.body)] {
        simdutf8::basic::from_utf8(text).map_err(|_| Unfit::NotText(name))?;
    }
    let body_crc = crc32c(&answer.body);
    let mut head = [0; HEAD];
    head[8..12].copy_from_slice(&len.to_le_bytes());
    head[12] = KIND_ANSWER;
    head[13] = answer.finish as u8;
    head[14..16].copy_from_slice(&model.to_le_bytes());
    let request_len = answer
        .request
        .as_ref()
        .map_or(NO_REQUEST, |request| request.len() as u32);
    let words = [request_len, answer.body.len() as u32, body_crc, answer.generation_ms];
    for (at, word) in (16..).step_by(4).zip(words) {
        head[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    head[32..40].copy_from_slice(&answer.tenant.to_le_bytes());
    let words = [
        answer.created,
        answer.expires,
        answer.usage.prompt,
        answer.usage.completion,
    ];
    for (at, word) in (40..).step_by(4).zip(words) {
        head[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    head[56..72].copy_from_slice(&answer.context.0);
    head[72..].copy_from_slice(&answer.prompt.0);
    seal(&mut head, part, offset, &[answer.model.as_bytes(), request]);

    let start = out.len();
    out.reserve(size);
    for bytes in [&head[..], answer.model.as_bytes(), request, &answer.body] {
        out.extend_from_slice(bytes);
    }
    let body = out.len() - start - answer.body.len();
    out.resize(start + size, 0);
    Ok(Place {
        part,
        offset: offset + body as u64,
        len: answer.body.len() as u32,
        crc: body_crc,
    })
}

/// Adds a skip of `len` bytes, at least [`SKIP`] and a multiple of 8.
pub(super) fn skip(part: PartNumber, offset: u64, len: usize, out: &mut Vec<u8>) {
    debug_assert!(len >= SKIP && len.is_multiple_of(ALIGN), "{len}");
    let mut head = [0; SKIP];
    head[8..12].copy_from_slice(&(len as u32).to_le_bytes());
    head[12] = KIND_SKIP;
    seal(&mut head, part, offset, &[]);
    out.extend_from_slice(&head);
    out.resize(out.len() + len - SKIP, 0);
}

/// Writes magic and checksum into a head.
fn seal(head: &mut [u8], part: PartNumber, offset: u64, behind: &[&[u8]]) {
    let crc = behind.iter().fold(checksum(part, offset, &head[8..]), |crc, bytes| {
        crc32c_append(crc, bytes)
    });
    head[..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(part: PartNumber, offset: u64, bytes: &[u8]) -> u32 {
    let mut place = [0; 12];
    place[..4].copy_from_slice(&part.0.to_le_bytes());
    place[4..].copy_from_slice(&offset.to_le_bytes());
    crc32c_append(crc32c(&place), bytes)
}

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decoded {
    /// A whole answer, whose frame has so many bytes: [`parse`] tells it.
    Answer(usize),
    /// Nothing, for so many bytes.
    Skip(usize),
    /// A frame that may be whole, of which so many bytes are needed, more than there are.
    Needs(usize),
    /// No frame.
    Nothing,
}

/// Checks the frame that `bytes` begin with, which lie at `offset` of a segment; `most` is what a frame can have there.
pub(super) fn decode(bytes: &[u8], part: PartNumber, offset: u64, most: u64) -> Decoded {
    let Some(start) = bytes.first_chunk::<SKIP>() else {
        return if most < SKIP as u64 {
            Decoded::Nothing
        } else {
            Decoded::Needs(SKIP)
        };
    };
    let len = word(start, 8) as usize;
    if start[..4] != MAGIC || len < SKIP || !len.is_multiple_of(ALIGN) || len as u64 > most {
        return Decoded::Nothing;
    }
    let crc = word(start, 4);
    if start[12] == KIND_SKIP {
        let whole = checksum(part, offset, &start[8..]) == crc;
        return if whole { Decoded::Skip(len) } else { Decoded::Nothing };
    }
    if len < HEAD || start[12] != KIND_ANSWER {
        return Decoded::Nothing;
    }
    let Some(frame) = bytes.get(..len) else {
        return Decoded::Needs(len);
    };
    let whole = parse(frame, part, offset).is_some_and(|answer| {
        let covered = (answer.place.offset - offset) as usize;
        checksum(part, offset, &frame[8..covered]) == crc && crc32c(answer.body) == answer.place.crc
    });
    if whole { Decoded::Answer(len) } else { Decoded::Nothing }
}

/// What a frame says, whether or not its checksums hold; `None` where it contradicts itself.
pub(super) fn parse(frame: &[u8], part: PartNumber, offset: u64) -> Option<Frame<'_>> {
    let (head, rest) = frame.split_first_chunk::<HEAD>()?;
    let request_len = word(head, 16);
    let (model_len, body_len) = (
        u16::from_le_bytes([head[14], head[15]]) as usize,
        word(head, 20) as usize,
    );
    let (model, rest) = rest.split_at_checked(model_len)?;
    let (request, rest) = rest.split_at_checked(if request_len == NO_REQUEST {
        0
    } else {
        request_len as usize
    })?;
    let (body, padding) = rest.split_at_checked(body_len)?;
    if padding.len() >= ALIGN {
        return None;
    }
    Some(Frame {
        place: Place {
            part,
            offset: offset + (frame.len() - body.len() - padding.len()) as u64,
            len: body.len() as u32,
            crc: word(head, 24),
        },
        model: std::str::from_utf8(model).ok()?,
        tenant: u64::from_le_bytes(field(head, 32)),
        prompt: PromptHash(field(head, 72)),
        context: Context(field(head, 56)),
        created: word(head, 40),
        expires: word(head, 44),
        finish: finish(head[13])?,
        usage: Usage {
            prompt: word(head, 48),
            completion: word(head, 52),
        },
        generation_ms: word(head, 28),
        request: (request_len != NO_REQUEST).then_some(request),
        body,
    })
}

fn finish(byte: u8) -> Option<FinishReason> {
    use FinishReason::{Length, Stop, StopSequence, Tools};
    [Stop, StopSequence, Tools, Length]
        .into_iter()
        .find(|reason| *reason as u8 == byte)
}

fn field<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| head[at + byte])
}

fn word(head: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(head, at))
}
