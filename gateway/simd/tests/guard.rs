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
