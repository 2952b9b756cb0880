//! Which parts are worth making anew: those of which nothing lives, those of which little does, and those that are hardly read.
//!
//! [`choose`] is a pure function of what is known of the parts; [`copy`] reads and seals, and forgets nothing: the old parts stay
//! until whoever keeps the index has taken the new places over and removes them. Invariant: doing what is chosen, again and again,
//! comes to an end while nothing dies and nothing cools.

use std::io;

use super::part::{self, Form, Part, Sealed};
use crate::{
    files::{File, Files},
    types::PartNumber,
};

/// What is known of a part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Its number.
    pub number: PartNumber,
    /// Its form.
    pub form: Form,
    /// Size of its file, bytes.
    pub bytes: u64,
    /// Bytes of the file that rows take which are still in the index, columns included: all rows take `bytes`, about.
    pub live_bytes: u64,
    /// Bytes that those rows take when nothing is compressed: what a copy of them has in memory.
    pub plain_bytes: u64,
    /// Mean heat of the entries that live.
    pub heat: f32,
}

impl Share {
    /// Of a part of which `rows` live, with bodies of `body_bytes` as [`crate::Place::len`] has them, and this mean heat.
    #[must_use]
    pub fn of<F: File>(part: &Part<F>, rows: usize, body_bytes: u64, heat: f32) -> Self {
        let (bytes, bodies) = (part.bytes(), part.body_chunk());
        let share = |of: u64| of.saturating_mul(rows as u64) / part.rows_count().max(1) as u64;
        let live_bytes = match rows {
            0 => 0,
            _ => (body_bytes + share(bytes.saturating_sub(bodies))).min(bytes),
        };
        // What is left of the part's text, by the share of what lies in the file.
        let grown = part.plain_bytes() as f64 / bytes.max(1) as f64;
        Self {
            number: part.number(),
            form: part.form(),
            bytes,
            live_bytes,
            plain_bytes: (live_bytes as f64 * grown.max(1.0)) as u64,
            heat,
        }
    }

    fn is_mostly_dead(&self, rules: &Rules) -> bool {
        (self.live_bytes as f64) < self.bytes as f64 * f64::from(rules.live)
    }

    fn becomes(&self, rules: &Rules) -> Form {
        if self.heat < rules.cold {
            Form::Cold
        } else {
            Form::Plain
        }
    }
}

/// When a part is made anew.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// Share of a part's bytes below which what lives of it is copied forward.
    pub live: f32,
    /// Mean heat below which a part is cold: 0 for never.
    pub cold: f32,
    /// Bytes that are copied at a time, not compressed; a part alone may have more.
    pub most: u64,
}

impl Default for Rules {
    /// 30 %, a heat of 0.05 (the last hit was five half-lives ago), 64 MiB.
    fn default() -> Self {
        Self {
            live: 0.3,
            cold: 0.05,
            most: super::log::SEGMENT,
        }
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing of this part lives.
    Remove(PartNumber),
    /// Make one part of what lives of these; then they can be removed.
    Copy {
        /// The parts, at least one.
        from: Vec<PartNumber>,
        /// The form of the new one.
        form: Form,
    },
}

/// The next step, if one is worth it: removing costs nothing and comes first, then what frees most.
#[must_use]
pub fn choose(parts: &[Share], rules: &Rules) -> Option<Step> {
    if let Some(dead) = parts.iter().find(|part| part.live_bytes == 0) {
        return Some(Step::Remove(dead.number));
    }
    let mut dead: Vec<_> = parts.iter().filter(|part| part.is_mostly_dead(rules)).collect();
    dead.sort_by_key(|part| (std::cmp::Reverse(part.bytes - part.live_bytes), part.number));
    let cold = || {
        parts
            .iter()
            .filter(|part| part.form == Form::Plain && part.becomes(rules) == Form::Cold)
    };
    let first = dead
        .first()
        .copied()
        .or_else(|| cold().min_by_key(|part| part.number))?;
    let form = first.becomes(rules);
    // Of one kind, so that what is hot is not compressed and what is cold is.
    let likely: Vec<_> = match dead.is_empty() {
        false => dead.into_iter().filter(|part| part.becomes(rules) == form).collect(),
        true => cold().collect(),
    };
    let mut left = rules.most;
    let fits = likely.into_iter().filter(|part| {
        let fits = part.number == first.number || part.plain_bytes <= left;
        if fits {
            left = left.saturating_sub(part.plain_bytes);
        }
        fits
    });
    let from = fits.map(|part| part.number).collect();
    Some(Step::Copy { from, form })
}

/// Seals these rows of these parts, in this order, as one new part. All of them are in memory meanwhile, not compressed.
///
/// # Errors
/// As [`Part::answers`] and [`part::seal`]; nothing is published then.
pub async fn copy<D: Files>(
    files: &D,
    from: &[(&Part<D::File>, &[usize])],
    number: PartNumber,
    form: Form,
) -> io::Result<Sealed> {
    let mut rows = Vec::new();
    for (part, wanted) in from {
        rows.append(&mut part.answers(wanted).await?);
    }
    part::seal(files, number, rows, form).await
}
