//! The same figures under the names of vLLM, which routers and autoscalers read (the model server protocol of the Gateway
//! API Inference Extension asks for the three gauges).
//!
//! Nothing is counted for this file alone. Invariant: a figure here equals its own-named twin.

use super::{
    EngineGauges, FIRST_TOKEN, ModelMetrics, PER_TOKEN, QUEUE, TOTAL,
    labels::FinishedReason,
    render::{ModelScrape, Scrape, by_model},
    text::{Kind, Text, Unit},
};

pub(super) fn render(text: &mut Text<'_>, scrape: &Scrape<'_>) {
    gauges(text, scrape.models);
    tokens(text, scrape);
    finished(text, scrape);
    histograms(text, scrape);
}

/// The second is the number of an engine behind one front, of which there is one.
fn labels<'a>(model: &ModelScrape<'a>) -> [(&'static str, &'a str); 2] {
    [("model_name", model.name), ("engine", "0")]
}

fn gauges(text: &mut Text<'_>, models: &[ModelScrape<'_>]) {
    type Row = (&'static str, &'static str, fn(&EngineGauges) -> (u64, u64));
    const ROWS: [Row; 3] = [
        ("num_requests_running", "Sequences in the batch.", |engine| {
            (engine.running, 1)
        }),
        ("num_requests_waiting", "Jobs that wait for the batch.", |engine| {
            (engine.waiting, 1)
        }),
        (
            "kv_cache_usage_perc",
            "Share of the key-value memory in use, 0 to 1.",
            |engine| (engine.kv_used, engine.kv_capacity),
        ),
    ];
    for (name, help, value) in ROWS {
        let name = format!("vllm:{name}");
        let mut family = text.family(&name, Kind::Gauge, help);
        for model in models {
            let (part, whole) = value(&model.engine);
            family.add_ratio(&labels(model), part, whole);
        }
    }
}

fn tokens(text: &mut Text<'_>, scrape: &Scrape<'_>) {
    type Row = (&'static str, &'static str, fn(&ModelMetrics) -> u64);
    const ROWS: [Row; 3] = [
        ("prompt_tokens", "Tokens of prompts.", |model| model.prompt_tokens.get()),
        (
            "prompt_tokens_cached",
            "Tokens of prompts that came from the prefix cache.",
            |model| model.cached_tokens.get(),
        ),
        ("generation_tokens", "Tokens generated.", |model| {
            model.generated_tokens.get()
        }),
    ];
    for (name, help, value) in ROWS {
        let name = format!("vllm:{name}_total");
        let mut family = text.family(&name, Kind::Counter, help);
        for model in scrape.models {
            family.add(&labels(model), model.cells.iter().map(value).sum());
        }
    }
}

fn finished(text: &mut Text<'_>, scrape: &Scrape<'_>) {
    let mut family = text.family(
        "vllm:request_success_total",
        Kind::Counter,
        "Answers that ended, by reason.",
    );
    for model in scrape.models {
        for reason in FinishedReason::ALL {
            let count = model
                .cells
                .iter()
                .map(|cells| cells.finished[reason as usize].get())
                .sum();
            let [name, engine] = labels(model);
            family.add(&[name, engine, ("finished_reason", reason.name())], count);
        }
    }
}

fn histograms(text: &mut Text<'_>, scrape: &Scrape<'_>) {
    let mut add = |name: &str, help: &str, source| by_model(text, scrape, (name, help, Unit::Seconds), labels, source);
    add(
        "vllm:time_to_first_token_seconds",
        "Time to the first token.",
        (FIRST_TOKEN, |model| &model.first_token),
    );
    add(
        "vllm:inter_token_latency_seconds",
        "Time between tokens.",
        (PER_TOKEN, |model| &model.per_token),
    );
    add(
        "vllm:e2e_request_latency_seconds",
        "Time of a whole request.",
        (TOTAL, |model| &model.total),
    );
    add(
        "vllm:request_queue_time_seconds",
        "Time in the queue.",
        (QUEUE, |model| &model.queue),
    );
}
