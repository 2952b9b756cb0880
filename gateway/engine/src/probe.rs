//! What a mask costs where the logits are, measured without a model.
//!
//! A graph that masks a row is timed against the same graph without the operators of the mask, in turn, so that what a run
//! costs anyway is in both. Invariant: each masked result was looked at, and had exactly the allowed tokens.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    cuda, head,
    model::{self, Provider},
    ort_sys::{Place, Probe},
    runtime::Runtime,
};

/// What was measured for one number of allowed tokens: medians over the rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskTime {
    /// Tokens that the mask allows, spread evenly.
    pub allowed: usize,
    /// A run with the mask: its bytes go to the device, then its operators run.
    pub masked: Duration,
    /// A run without it.
    pub bare: Duration,
}

/// Times `rounds` runs for each number of allowed tokens of a vocabulary, on the CPU or on CUDA (`auto` is the CPU here).
///
/// # Errors
/// The runtime's words, or that a result was wrong.
pub fn mask_times(
    runtime: &Runtime,
    provider: Provider,
    vocabulary: usize,
    allowed: &[usize],
    rounds: usize,
) -> Result<Vec<MaskTime>, String> {
    let place = match provider {
        Provider::Cuda => {
            let refused = |error: cuda::CudaError| format!("{error}; {}", error.remedy());
            Place::Device(Arc::new(cuda::open(runtime).map_err(refused)?))
        }
        Provider::Cpu | Provider::Auto => Place::Host,
    };
    let width = head::mask_bytes(vocabulary);
    let probe = |masked| -> Result<Probe, String> {
        let session = head::load_mask(vocabulary, masked, &model::builder(runtime, &place, 1)?)?;
        Probe::new(session, &place, vocabulary, width, masked).map_err(|error| error.to_string())
    };
    let mut bare = probe(false)?;
    let mut masked = allowed.iter().map(|_| probe(true)).collect::<Result<Vec<_>, _>>()?;
    for (probe, &allowed) in masked.iter_mut().zip(allowed) {
        for nth in 0..allowed {
            let id = nth * vocabulary / allowed;
            probe.mask()[id / 8] |= 1 << (id % 8);
        }
    }
    let timed = |probe: &mut Probe| -> Result<Duration, String> {
        let begun = Instant::now();
        probe.run().map_err(|error| error.to_string())?;
        Ok(begun.elapsed())
    };
    let mut times = vec![Vec::with_capacity(rounds); allowed.len()];
    let mut bare_times = vec![Vec::with_capacity(rounds); allowed.len()];
    for _ in 0..rounds {
        for (index, probe) in masked.iter_mut().enumerate() {
            times[index].push(timed(probe)?);
            bare_times[index].push(timed(&mut bare)?);
        }
    }
    for (probe, &allowed) in masked.iter_mut().zip(allowed) {
        let result = probe.result().map_err(|error| error.to_string())?;
        let open = result.iter().filter(|&&logit| logit == 0.0).count();
        let shut = result.iter().filter(|&&logit| logit == f32::NEG_INFINITY).count();
        if (open, open + shut) != (allowed, vocabulary) {
            return Err(format!(
                "{open} of {vocabulary} tokens were open and {shut} shut, not {allowed} open"
            ));
        }
    }
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    let times = times.into_iter().zip(bare_times).zip(allowed);
    Ok(times
        .map(|((masked, bare), &allowed)| MaskTime {
            allowed,
            masked: median(masked),
            bare: median(bare),
        })
        .collect())
}
