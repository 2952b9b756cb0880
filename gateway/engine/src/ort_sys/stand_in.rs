//! A device for tests: host memory that is treated as a device's.
//!
//! Copies within it are carried out when they are waited for and not before, new memory is full of numbers that are none,
//! and functions can be told to fail. So what forgets to wait, to clear or to look at an answer fails its test.

use std::{
    cell::{Cell, RefCell},
    ffi::{c_char, c_int, c_void},
    ptr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::{Cuda, device::Calls};

type Copy = (usize, usize, usize, usize, usize, usize);

thread_local! {
    /// Copies that nobody has waited for. Each thread has its own, as a test has its own engine.
    static ASKED: RefCell<Vec<Copy>> = const { RefCell::new(Vec::new()) };
    /// The next copy of rows fails.
    static FAIL: Cell<bool> = const { Cell::new(false) };
}

/// Bytes that were copied to the host, by all tests.
pub(crate) static TO_HOST: AtomicUsize = AtomicUsize::new(0);

/// Bytes that a device has; what is more is refused.
pub(crate) const ROOM: usize = 1 << 30;

/// Makes the next copy of rows by this thread fail.
pub(crate) fn fail_next_copy() {
    FAIL.set(true);
}

/// Copies by this thread that nobody has waited for.
pub(crate) fn waiting() -> usize {
    ASKED.with_borrow(Vec::len)
}

pub(crate) fn stand_in() -> Cuda {
    Cuda::stand_in(Calls {
        count,
        room,
        allocate,
        free,
        fill,
        copy,
        copy_rows,
        wait,
        words,
    })
}

extern "C" fn count(out: *mut c_int) -> c_int {
    // SAFETY: the caller's out pointer.
    unsafe { *out = 1 };
    0
}

extern "C" fn room(free: *mut usize, total: *mut usize) -> c_int {
    for out in [free, total] {
        // SAFETY: the caller's out pointer.
        unsafe { *out = ROOM };
    }
    0
}

extern "C" fn allocate(out: *mut *mut c_void, bytes: usize) -> c_int {
    if bytes > ROOM {
        return 2;
    }
    // SAFETY: asks for memory. Aligned as the device's would be, so that the runtime takes it.
    let memory = unsafe { libc::memalign(256, bytes) };
    // SAFETY: memory of this size.
    unsafe { ptr::write_bytes(memory.cast::<u8>(), 0xff, bytes) };
    // SAFETY: the caller's out pointer.
    unsafe { *out = memory };
    0
}

extern "C" fn free(memory: *mut c_void) -> c_int {
    // SAFETY: came from `allocate`.
    unsafe { libc::free(memory) };
    0
}

extern "C" fn fill(memory: *mut c_void, value: c_int, bytes: usize) -> c_int {
    // SAFETY: the caller's memory.
    unsafe { ptr::write_bytes(memory.cast::<u8>(), value as u8, bytes) };
    0
}

extern "C" fn copy(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) -> c_int {
    assert_eq!(kind, 2, "only copies to the host wait by themselves");
    TO_HOST.fetch_add(bytes, Relaxed);
    // SAFETY: the caller's memories.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), bytes) };
    0
}

extern "C" fn copy_rows(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    bytes: usize,
    rows: usize,
    kind: c_int,
    stream: *mut c_void,
) -> c_int {
    assert!(
        kind == 3 && stream.is_null(),
        "within the device, on the default stream"
    );
    if FAIL.replace(false) {
        return 700;
    }
    ASKED.with_borrow_mut(|asked| asked.push((to as usize, to_pitch, from as usize, from_pitch, bytes, rows)));
    0
}

extern "C" fn wait(stream: *mut c_void) -> c_int {
    assert!(stream.is_null(), "the default stream");
    for (to, to_pitch, from, from_pitch, bytes, rows) in ASKED.take() {
        for row in 0..rows {
            let (from, to) = ((from + row * from_pitch) as *const u8, (to + row * to_pitch) as *mut u8);
            // SAFETY: the memories of the copy that was asked for.
            unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
        }
    }
    0
}

extern "C" fn words(status: c_int) -> *const c_char {
    match status {
        2 => c"out of memory".as_ptr(),
        700 => c"an illegal memory access was encountered".as_ptr(),
        _ => ptr::null(),
    }
}
