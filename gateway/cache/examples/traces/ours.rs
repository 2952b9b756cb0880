//! The cache itself, driven by a trace: answers of one size, readers' hits and the writer's puts, time as the trace has it.
//!
//! Invariant: what is measured is what the gateway runs; only thread and clock are the trace's.

use zerohop_cache::{
    Answer, Context, FinishReason, Key, Limits, ModelNumber, Options, Probation, PromptHash, Stepped, Usage,
    heat::{Decay, SECOND},
    types::NEVER,
};

use super::trace::Trace;

/// Bytes of an answer.
const BODY: usize = 8;
/// Any.
const BEGIN: u32 = 1_000_000;

/// How the cache is set.
#[derive(Clone, Copy)]
pub struct Setting {
    /// The rule of the half-life as written, or adaptive.
    pub literal: bool,
    pub probation: Probation,
}

/// What came of it.
pub struct Told {
    pub hits: u64,
    /// Share of the requests, in percent, during which there was probation.
    pub on: f64,
}

/// Replays a trace with room for so many answers.
pub fn replay(trace: &Trace, capacity: usize, setting: Setting) -> Told {
    let mut cache = cache(capacity as u64 * cost(), setting);
    let keys: Vec<Key> = (0..trace.distinct as u64).map(key).collect();
    let (mut hits, mut on) = (0, 0);
    for request in &trace.requests {
        let seconds = u64::from(BEGIN + request.at / SECOND);
        let now = cache
            .reader()
            .now((seconds, request.at % SECOND * (1_000_000_000 / SECOND)));
        let key = &keys[request.key as usize];
        if let Some(found) = cache.reader().look_up(key) {
            cache.reader().hit(&found.sighting, now);
            hits += 1;
        } else {
            cache.put(answer(key, now.seconds), now);
        }
        on += cache.stats().probation;
    }
    let stats = cache.stats();
    assert!(
        stats.entries <= capacity as u64 && stats.puts + hits == trace.requests.len() as u64,
        "the cache holds what fits, and every miss was put: {stats:?}"
    );
    Told {
        hits,
        on: 100.0 * on as f64 / trace.requests.len().max(1) as f64,
    }
}

fn cache(bytes: u64, setting: Setting) -> Stepped {
    let decay = if setting.literal {
        Decay::literal
    } else {
        Decay::adaptive
    };
    let options = Options {
        limits: Limits { bytes, buckets: 1024 },
        decay: decay(0.95, 5 * SECOND),
        probation: setting.probation,
        seed: 1,
    };
    Stepped::new(options, BEGIN)
}

/// What an answer costs, as the cache counts it.
fn cost() -> u64 {
    let setting = Setting {
        literal: true,
        probation: Probation::Off,
    };
    let mut cache = cache(1 << 20, setting);
    let now = cache.reader().now((u64::from(BEGIN), 0));
    cache.put(answer(&key(0), BEGIN), now);
    cache.stats().bytes
}

fn key(number: u64) -> Key {
    let mut prompt = [0; 32];
    for (place, part) in prompt.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&spread(number << 2 | place as u64).to_le_bytes());
    }
    Key {
        model: ModelNumber(0),
        context: Context([0; 16]),
        prompt: PromptHash(prompt),
    }
}

fn answer(key: &Key, created: u32) -> Answer {
    Answer {
        model: "model".into(),
        tenant: 0,
        prompt: key.prompt,
        context: key.context,
        created,
        expires: NEVER,
        finish: FinishReason::Stop,
        usage: Usage::default(),
        generation_ms: 1,
        request: None,
        body: vec![0; BODY],
    }
}

/// SplitMix64's last step.
pub fn spread(number: u64) -> u64 {
    let mut word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
