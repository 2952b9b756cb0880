//! What each program needs: a licence, and a handler of panics that cannot happen.
//!
//! Invariant: nothing here can fail.

/// The verifier admits no program that could get here.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The licence of this repository; no helper that is used here asks for another.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 11] = *b"Apache-2.0\0";
