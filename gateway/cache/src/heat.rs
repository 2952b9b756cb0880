//! How heat cools, and how long it takes to cool by half.
//!
//! Pure but for one number that the writer adapts and readers see. Invariant: of two entries that are not hit again, the one
//! that is colder now stays the colder one, so nothing sweeps over entries to cool them: it is computed when it is asked for.

use std::sync::atomic::{AtomicU32, Ordering};

/// Time as heat knows it: hundredths of a second since the cache was opened. Good for 497 days, then heat stands still.
pub type Tick = u32;

/// Ticks of a second.
pub const SECOND: Tick = 100;

/// Heat that a put or a hit adds.
pub const UNIT: f32 = 1.0;

/// What is colder has no heat at all.
const FROZEN: f32 = 1e-30;

/// Bounds of an adapted half-life: a second, and six hours.
const HALF_LIFE: (Tick, Tick) = (SECOND, 6 * 3600 * SECOND);

/// The rule by which heat cools.
#[derive(Debug)]
pub struct Decay {
    /// What is left of heat after an interval.
    factor: f32,
    /// Ticks.
    interval: Tick,
    /// Ticks; 0 for the rule as written: at each interval's end, heat is multiplied by the factor.
    half_life: AtomicU32,
}

impl Decay {
    /// The rule as written: at the end of each interval heat is multiplied by `factor`.
    #[must_use]
    pub fn literal(factor: f32, interval: Tick) -> Self {
        Self {
            factor,
            interval: interval.max(1),
            half_life: AtomicU32::new(0),
        }
    }

    /// Smoothly, with a half-life that begins as the rule's own and follows [`Decay::adapt`].
    #[must_use]
    pub fn adaptive(factor: f32, interval: Tick) -> Self {
        let this = Self::literal(factor, interval);
        let half_life = -(this.interval as f32) / factor.log2();
        this.half_life.store((half_life as Tick).max(1), Ordering::Relaxed);
        this
    }

    /// The same rule at its beginning.
    #[must_use]
    pub fn begun_anew(&self) -> Self {
        match self.half_life() {
            Some(_) => Self::adaptive(self.factor, self.interval),
            None => Self::literal(self.factor, self.interval),
        }
    }

    /// Half-life in ticks, of the adaptive rule.
    #[must_use]
    pub fn half_life(&self) -> Option<Tick> {
        let half_life = self.half_life.load(Ordering::Relaxed);
        (half_life > 0).then_some(half_life)
    }

    /// Sets the half-life to how long entries stay before they are evicted; the literal rule takes no note of it.
    pub fn adapt(&self, residence: Tick) {
        if self.half_life().is_some() {
            self.half_life
                .store(residence.clamp(HALF_LIFE.0, HALF_LIFE.1), Ordering::Relaxed);
        }
    }

    /// What is left of `heat` of the time `from` at the time `to`; all of it if that is earlier.
    #[must_use]
    pub fn cooled(&self, heat: f32, from: Tick, to: Tick) -> f32 {
        match self.half_life() {
            Some(half_life) => heat * (-(to.saturating_sub(from) as f32) / half_life as f32).exp2(),
            None => self.stepped(heat, (to / self.interval).saturating_sub(from / self.interval)),
        }
    }

    fn stepped(&self, mut heat: f32, steps: Tick) -> f32 {
        for _ in 0..steps {
            heat *= self.factor;
            if heat < FROZEN {
                return 0.0;
            }
        }
        heat
    }
}

#[cfg(test)]
#[path = "heat_tests.rs"]
mod tests;
