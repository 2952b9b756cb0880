//! Huge pages for memory that is full: weights are read from end to end at every step, and from small pages a core reads them
//! a third slower, since it looks up 512 times as many addresses.
//!
//! It changes where memory lies, never what is in it. Invariant: only private anonymous memory of which nearly all is in use is
//! touched, so at most a ninth more is committed than was.

use std::{fs, io, ops::Range};

/// Smaller mappings are not worth the call, in bytes.
const LEAST: usize = 4 << 20;
/// Of a mapping, the share that must be in use: what is not will be committed.
const FULL: (usize, usize) = (9, 10);
/// Bytes that are moved by one call: one huge page that cannot be had fails a call as a whole.
const PIECE: usize = 2 << 20;

/// What came of it.
#[derive(Debug)]
pub(crate) struct Collapsed {
    /// Bytes of the process that came onto huge pages.
    pub(crate) bytes: u64,
    /// What the kernel said of the pieces that it left where they were, if there were any.
    pub(crate) refused: Option<io::Error>,
}

/// Puts the large full mappings of this process on huge pages (`MADV_COLLAPSE`, Linux 6.1).
///
/// # Errors
/// If the kernel does not tell what is mapped.
pub(crate) fn collapse() -> io::Result<Collapsed> {
    let before = fs::read_to_string("/proc/self/smaps")?;
    let mut refused = None;
    for piece in full(&before).into_iter().flat_map(pieces) {
        // SAFETY: the advice moves the pages of private anonymous memory and changes no byte of it. If the range was let go
        // or reused meanwhile, that holds for what is there now.
        let result = unsafe { libc::madvise(piece as *mut _, PIECE, libc::MADV_COLLAPSE) };
        if result != 0 {
            refused = Some(io::Error::last_os_error());
        }
    }
    let after = fs::read_to_string("/proc/self/smaps")?;
    Ok(Collapsed {
        bytes: huge(&after).saturating_sub(huge(&before)),
        refused,
    })
}

/// The whole huge pages in a range, by their addresses.
fn pieces(range: Range<usize>) -> impl Iterator<Item = usize> {
    (range.start.next_multiple_of(PIECE)..range.end.saturating_sub(PIECE - 1)).step_by(PIECE)
}

/// Bytes on huge pages.
fn huge(smaps: &str) -> u64 {
    let fields = smaps.lines().filter_map(|line| line.strip_prefix("AnonHugePages:"));
    fields.map(kilobytes).sum::<usize>() as u64
}

/// `  12 kB`, in bytes.
fn kilobytes(field: &str) -> usize {
    field.trim().trim_end_matches(" kB").parse().unwrap_or(0) << 10
}

/// Private, anonymous, writable mappings that are large and in use.
fn full(smaps: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut mapping = None;
    for line in smaps.lines() {
        if let Some(range) = anonymous(line) {
            mapping = range;
        } else if let (Some(range), Some(used)) = (&mapping, line.strip_prefix("Rss:")) {
            let range: &Range<usize> = range;
            if range.len() >= LEAST && kilobytes(used) * FULL.1 >= range.len() * FULL.0 {
                found.push(range.clone());
            }
        }
    }
    found
}

/// `None`: no line that begins a mapping. `Some(None)`: one of another kind.
fn anonymous(line: &str) -> Option<Option<Range<usize>>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
    let (access, _offset, _device, inode) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let named = words
        .next()
        .is_some_and(|name| name != "[heap]" && !name.starts_with("[anon"));
    Some((access == "rw-p" && inode == "0" && !named).then_some(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_that_are_large_and_full() {
        let mapping =
            |head: &str, used: usize| format!("{head}\nSize: 8192 kB\nRss:             {used} kB\nVmFlags: rd wr\n");
        let table = [
            ("7f0000000000-7f0000800000 rw-p 00000000 00:00 0 ", 8192, true),
            ("7f0000000000-7f0000800000 rw-p 00000000 00:00 0 ", 7400, true),
            ("7f0000000000-7f0000800000 rw-p 00000000 00:00 0 ", 7000, false),
            ("7f0000000000-7f0000200000 rw-p 00000000 00:00 0 ", 2048, false),
            ("7f0000000000-7f0000800000 rw-p 00000000 00:00 0    [heap]", 8192, true),
            (
                "7f0000000000-7f0000800000 rw-p 00000000 00:00 0    [stack]",
                8192,
                false,
            ),
            ("7f0000000000-7f0000800000 r--p 00000000 00:00 0 ", 8192, false),
            (
                "7f0000000000-7f0000800000 rw-s 00000000 00:01 77   /memfd:x (deleted)",
                8192,
                false,
            ),
            (
                "7f0000000000-7f0000800000 rw-p 00000000 fe:00 77   /lib/x.so",
                8192,
                false,
            ),
        ];
        for (head, used, taken) in table {
            let smaps = mapping("7e0000000000-7e0000001000 r-xp 00000000 fe:00 9 /bin/x", 4) + &mapping(head, used);
            let expected = taken.then_some(0x7f00_0000_0000..0x7f00_0080_0000);
            assert_eq!(Vec::from_iter(expected), full(&smaps), "{head} {used}");
        }
    }

    #[test]
    fn whole_pages_of_a_range() {
        let page = PIECE;
        for (range, count) in [
            (0..page, 1),
            (1..page, 0),
            (1..2 * page, 1),
            (1..2 * page - 1, 0),
            (page..4 * page + 5, 3),
            (5..6, 0),
        ] {
            assert_eq!(pieces(range.clone()).count(), count, "{range:?}");
        }
    }

    /// Memory keeps its bytes, and memory that was only reserved stays so.
    #[test]
    fn what_is_collapsed_keeps_its_bytes() {
        let bytes: Vec<u8> = (0..32 << 20).map(|at: u32| (at % 251) as u8).collect();
        let collapsed = collapse().expect("a list of mappings");
        assert!(
            collapsed.bytes >= 16 << 20 || collapsed.refused.is_some(),
            "{collapsed:?}"
        );
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    }
}
