//! No level reads behind its slice: the slice ends where a page begins that may not be touched.
//!
//! Invariant: a read or write outside ends the test with a signal.
#![cfg(unix)]

use std::ptr;

use rustix::{
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap},
    param::page_size,
};
use zerohop_simd::{Finder, Level};

/// A page between two that may not be touched.
struct Page {
    base: *mut u8,
    size: usize,
}

impl Page {
    fn new() -> Self {
        let size = page_size();
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), 3 * size, ProtFlags::empty(), MapFlags::PRIVATE) };
        let base: *mut u8 = base.expect("three pages").cast();
        let middle = base.wrapping_add(size);
        // SAFETY: the middle page is part of the mapping, which nobody else knows.
        unsafe { mprotect(middle.cast(), size, MprotectFlags::READ | MprotectFlags::WRITE) }.expect("a page to write");
        Self { base, size }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let middle = self.base.wrapping_add(self.size);
        // SAFETY: the middle page is mapped, zeroed, readable, writable, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(middle, self.size) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made, of which no borrow is left.
        unsafe { munmap(self.base.cast(), 3 * self.size) }.expect("unmap");
    }
}

#[test]
fn nothing_is_read_outside() {
    let mut page = Page::new();
    let bytes = page.bytes();
    for fill in ["x", " ", "\\n", "\\u00e9", "é", "\\", "\""] {
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = fill.as_bytes()[place % fill.len()];
        }
        for len in 0..300 {
            // At the end of the page, and at its start.
            for part in [&bytes[bytes.len() - len..], &bytes[..len]] {
                check(part);
            }
        }
    }
}

fn check(bytes: &[u8]) {
    for level in Level::all() {
        for at in [0, bytes.len() / 2, bytes.len()] {
            assert_eq!(level.special(bytes, at), Level::PLAIN.special(bytes, at));
            assert_eq!(level.space(bytes, at), Level::PLAIN.space(bytes, at));
            assert_eq!(Finder::new(level, bytes).find(at), Level::PLAIN.special(bytes, at));
        }
        // In place where the bytes are text; a copy would have other neighbours.
        if let Ok(text) = std::str::from_utf8(bytes) {
            let (mut ours, mut plain) = (String::new(), String::new());
            assert_eq!(level.unescape(text, &mut ours), Level::PLAIN.unescape(text, &mut plain));
            assert_eq!(ours, plain, "{text}");
        }
    }
}

#[test]
fn no_logit_and_no_word_is_read_outside() {
    let (mut row, mut words) = (Page::new(), Page::new());
    row.bytes().fill(0x3F);
    words.bytes().fill(0x5A);
    let values = row.bytes().len() / size_of::<f32>();
    // SAFETY: the page is aligned, lives as long as `row`, and every bit pattern is a number.
    let row = unsafe { std::slice::from_raw_parts(row.bytes().as_ptr().cast::<f32>(), values) };
    // SAFETY: as above.
    let words = unsafe { std::slice::from_raw_parts(words.bytes().as_ptr().cast::<u32>(), values) };
    for len in (0..70).chain(480..values) {
        for (logits, mask) in [
            (&row[values - len..], &words[values - len.div_ceil(32)..]),
            (&row[..len], &words[values - len / 64..]),
        ] {
            for level in Level::all() {
                let (mut maxima, mut sums, mut ids) = (Vec::new(), Vec::new(), Vec::new());
                for mask in [None, Some(mask)] {
                    let best = level.greatest(logits, mask, &mut maxima);
                    assert_eq!(best, Level::PLAIN.greatest(logits, mask, &mut Vec::new()));
                    level.sums(logits, mask, 0.7, 1.0, &mut sums);
                    level.reaching(logits, mask, &maxima, 0.5, &mut ids);
                    assert!(ids.iter().all(|&id| (id as usize) < len));
                }
            }
        }
    }
}
