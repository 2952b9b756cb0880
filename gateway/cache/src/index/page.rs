//! Pages as bytes: slots, tables and leaves, as the diagram in [`super`] draws them.
//!
//! No I/O and no memory of which page is where. Invariant: reading never panics, whatever the bytes are; what is written and
//! read again is the same entry, bit for bit.

use crate::types::{Context, Entry, EntryId, Key, ModelNumber, PartNumber, Place, PromptHash};

/// Bytes of a page.
pub const PAGE: usize = 8192;
/// Entries of a leaf at most.
pub const LEAF_ENTRIES: usize = 100;
/// Children of a table.
pub(super) const FAN: usize = 256;

/// A page's bytes.
pub(crate) type Page = [u8; PAGE];

const SLOT: usize = 32;
const LEAF: u8 = b'L';
const TAGS_AT: usize = 16;
/// Tags of a block are compared at once; the last block is filled up with zeros.
const BLOCK: usize = 16;
const TAGS: usize = LEAF_ENTRIES.next_multiple_of(BLOCK);
const ROWS_AT: usize = TAGS_AT + 2 * TAGS;
const ROW: usize = 79;
/// What of a row is compared: the context, and the prompt hash without its first byte (which the bucket implies) and its
/// last two (which are the tag).
const KEY: usize = 16 + 29;
const _: () = assert!(ROWS_AT + LEAF_ENTRIES * ROW <= PAGE);
const _: () = assert!(FAN * SLOT == PAGE);

/// Where a page is and what it must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    /// 0 for no page: that is a meta slot's.
    pub(super) page: u32,
    hash: [u8; 28],
}

impl Slot {
    /// Nothing there.
    pub(super) const EMPTY: Self = Self { page: 0, hash: [0; 28] };

    pub(super) fn of(page: u32, bytes: &Page) -> Self {
        Self {
            page,
            hash: hash(bytes),
        }
    }

    /// Whether these are the bytes that were meant.
    pub(super) fn holds(&self, bytes: &Page) -> bool {
        self.hash == hash(bytes)
    }

    pub(super) fn read(bytes: &[u8], at: usize) -> Self {
        Self {
            page: u32::from_le_bytes(take(bytes, at)),
            hash: take(bytes, at + 4),
        }
    }

    pub(super) fn write(&self, bytes: &mut [u8], at: usize) {
        put(bytes, at, &self.page.to_le_bytes());
        put(bytes, at + 4, &self.hash);
    }
}

/// The first 28 bytes of BLAKE3.
fn hash(bytes: &Page) -> [u8; 28] {
    take(blake3::hash(bytes).as_bytes(), 0)
}

pub(super) fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| bytes[at + byte])
}

pub(super) fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

/// A page of zeros.
pub(super) fn blank() -> Box<Page> {
    Box::new([0; PAGE])
}

/// A table of at most [`FAN`] children.
pub(super) fn table(children: &[Slot]) -> Box<Page> {
    let mut page = blank();
    for (at, child) in children.iter().enumerate() {
        child.write(page.as_mut_slice(), at * SLOT);
    }
    page
}

/// The page number of a child of a table; 0 for none.
#[inline]
pub(super) fn child(table: &Page, at: u8) -> u32 {
    u32::from_le_bytes(take(table, usize::from(at) * SLOT))
}

/// A child of a table.
pub(super) fn slot(table: &Page, at: usize) -> Slot {
    Slot::read(table, at * SLOT)
}

/// A leaf: what one bucket of one model holds.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'a> {
    page: &'a Page,
    model: ModelNumber,
    bucket: u32,
    count: usize,
}

impl<'a> Leaf<'a> {
    /// None if the page is no leaf of this bucket.
    #[inline]
    pub(super) fn read(page: &'a Page, model: ModelNumber, bucket: u32) -> Option<Self> {
        let count = usize::from(page[1]);
        let right = page[0] == LEAF
            && count <= LEAF_ENTRIES
            && take(page, 2) == model.0.to_le_bytes()
            && take(page, 4) == bucket.to_le_bytes();
        right.then_some(Self {
            page,
            model,
            bucket,
            count,
        })
    }

    /// The bytes of a leaf with these entries, at most [`LEAF_ENTRIES`], in order, all of this bucket.
    pub(super) fn write(model: ModelNumber, bucket: u32, entries: &[Entry]) -> Box<Page> {
        assert!(entries.len() <= LEAF_ENTRIES);
        let mut page = blank();
        put(&mut *page, 0, &[LEAF, entries.len() as u8]);
        put(&mut *page, 2, &model.0.to_le_bytes());
        put(&mut *page, 4, &bucket.to_le_bytes());
        for (at, entry) in entries.iter().enumerate() {
            put(&mut *page, TAGS_AT + 2 * at, &entry.key.prompt.0[30..]);
            put(&mut *page, ROWS_AT + ROW * at, &row(entry));
        }
        page
    }

    /// The entry with exactly this key.
    ///
    /// Tags lie together at the front, so that all of them come with one wait for memory; about one in a thousand leaves has
    /// a second tag that is equal by chance. `key` must be of this leaf's bucket.
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<Entry> {
        let tag: [u8; 2] = take(&key.prompt.0, 30);
        let wanted = compared(key);
        let blocks = self.page[TAGS_AT..ROWS_AT].as_chunks::<{ 2 * BLOCK }>().0;
        for (block, bytes) in blocks.iter().enumerate() {
            let tags = bytes.as_chunks::<2>().0;
            // No early end within a block: so it compiles to two comparisons of vectors.
            if !tags.iter().fold(false, |found, other| found | (*other == tag)) {
                continue;
            }
            for (at, other) in tags.iter().enumerate() {
                let at = block * BLOCK + at;
                if *other == tag && at < self.count && self.row(at)[..KEY] == wanted {
                    return Some(self.entry(at));
                }
            }
        }
        None
    }

    /// All entries, in order.
    pub(super) fn entries(self) -> impl DoubleEndedIterator<Item = Entry> + ExactSizeIterator + use<'a> {
        (0..self.count).map(move |at| self.entry(at))
    }

    #[inline]
    fn row(&self, at: usize) -> &'a [u8; ROW] {
        &self.page[ROWS_AT..].as_chunks::<ROW>().0[at]
    }

    #[inline]
    fn entry(&self, at: usize) -> Entry {
        let row = self.row(at);
        let tag = TAGS_AT + 2 * at;
        let prompt = std::array::from_fn(|byte| match byte {
            0 => self.bucket as u8,
            1..30 => row[15 + byte],
            _ => self.page[tag + byte - 30],
        });
        let number = |at| u32::from_le_bytes(take(row, at));
        let mut offset = [0; 8];
        offset[..6].copy_from_slice(&row[KEY + 8..KEY + 14]);
        Entry {
            key: Key {
                model: self.model,
                context: Context(take(row, 0)),
                prompt: PromptHash(prompt),
            },
            id: EntryId(number(KEY)),
            place: Place {
                part: PartNumber(number(KEY + 4)),
                offset: u64::from_le_bytes(offset),
                len: number(KEY + 14),
                crc: number(KEY + 18),
            },
            created: number(KEY + 22),
            expires: number(KEY + 26),
            heat: f32::from_bits(number(KEY + 30)),
        }
    }
}

#[inline]
fn compared(key: &Key) -> [u8; KEY] {
    std::array::from_fn(|byte| match byte {
        0..16 => key.context.0[byte],
        _ => key.prompt.0[byte - 15],
    })
}

fn row(entry: &Entry) -> [u8; ROW] {
    let mut row = [0; ROW];
    put(&mut row, 0, &compared(&entry.key));
    put(&mut row, KEY, &entry.id.0.to_le_bytes());
    put(&mut row, KEY + 4, &entry.place.part.0.to_le_bytes());
    put(&mut row, KEY + 8, &entry.place.offset.to_le_bytes()[..6]);
    put(&mut row, KEY + 14, &entry.place.len.to_le_bytes());
    put(&mut row, KEY + 18, &entry.place.crc.to_le_bytes());
    put(&mut row, KEY + 22, &entry.created.to_le_bytes());
    put(&mut row, KEY + 26, &entry.expires.to_le_bytes());
    put(&mut row, KEY + 30, &entry.heat.to_le_bytes());
    row
}
