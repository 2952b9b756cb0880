//! Scans over JSON text and over rows of logits in AVX-512, AVX2 and plain Rust, chosen at run time.
//!
//! Three questions are asked of a body again and again: where does this string end, what does it say without its
//! escapes, where does white space end. A [`Level`] answers them with the widest vectors that the processor has. Nothing
//! here knows what a document means. Of a row of logits it tells the best that a mask allows, and how probable the others
//! are beside it.
//!
//! Invariant: every level answers as [`Level::PLAIN`] does, bit for bit, and none reads outside the slice that it was
//! given.

#![deny(unsafe_code)]

mod escape;
mod finder;
mod logits;
mod plain;
mod text;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use escape::Stop;
pub use finder::Finder;
pub use logits::{BLOCK, LEAST_EXPONENT, SERIES, allows, floor_of_best, weight};

/// A set of instructions that this processor has: only a check of it makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// With the byte permutes and compressions that came with Ice Lake and Zen 4.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// Any processor.
    pub const PLAIN: Self = Self(Kind::Plain);

    /// The widest that this processor has.
    #[must_use]
    pub fn best() -> Self {
        Self::all().last().unwrap_or(Self::PLAIN)
    }

    /// All that this processor has, from the narrowest to the widest.
    pub fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let wide = [
            x86::has_avx2().then_some(Self(Kind::Avx2)),
            x86::has_avx512().then_some(Self(Kind::Avx512)),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let wide = [None::<Self>; 0];
        [Self::PLAIN].into_iter().chain(wide.into_iter().flatten())
    }

    /// How it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Plain => "plain",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "AVX-512",
        }
    }

    /// The place, from `at` on, of the first quote, backslash or control character (below U+0020); the length of
    /// `bytes` if there is none.
    #[must_use]
    pub fn special(self, bytes: &[u8], at: usize) -> usize {
        match self.0 {
            Kind::Plain => plain::special(bytes, at),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => x86::avx2_special(self, bytes, at),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => x86::avx512_special(self, bytes, at),
        }
    }

    /// A place from `at` on, and which of the 64 bytes from there on are special, the first one lowest: at least one is, and
    /// none between. What lies behind the end counts as special.
    #[inline(always)]
    fn look(self, bytes: &[u8], at: usize) -> (usize, u64) {
        match self.0 {
            Kind::Plain => plain::look(bytes, at),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => x86::avx2_look(self, bytes, at),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => x86::avx512_look(self, bytes, at),
        }
    }

    /// The place, from `at` on, of the first byte that is not JSON's white space (space, tab, line feed, carriage
    /// return); the length of `bytes` if there is none.
    #[must_use]
    pub fn space(self, bytes: &[u8], at: usize) -> usize {
        match self.0 {
            Kind::Plain => plain::space(bytes, at),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => x86::avx2_space(self, bytes, at),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => x86::avx512_space(self, bytes, at),
        }
    }

    /// Appends to `out` what the string says that goes on at the start of `text`, and returns how many bytes it took,
    /// the closing quote included.
    ///
    /// # Errors
    /// Why the string is none, or none that may be read; `out` is as before.
    #[inline]
    pub fn unescape(self, text: &str, out: &mut String) -> Result<usize, Stop> {
        text::append(text, out, |bytes, out| match self.0 {
            Kind::Plain => plain::unescape(bytes, 0, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => x86::avx2_unescape(self, bytes, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => x86::avx512_unescape(self, bytes, out),
        })
    }

    /// The length of the escape at the start of `bytes`, its backslash; U+0000 may be what it stands for.
    ///
    /// # Errors
    /// Why it is none.
    pub fn escape(bytes: &[u8]) -> Result<usize, Stop> {
        escape::read(bytes).map(|(_, taken)| taken)
    }
}
