//! What binds answers: time for masks, tokens under them, safety rules that fired and that left nothing to draw.
//!
//! Invariant: every rule that an engine has or had has a sample, also while it is 0.

use super::{
    EngineGauges,
    render::{ModelScrape, own_labels},
    text::{Kind, Text, Unit},
};

pub(super) fn render(text: &mut Text<'_>, models: &[ModelScrape<'_>]) {
    type Row = (&'static str, &'static str, fn(&EngineGauges) -> u64);
    const ROWS: [Row; 2] = [
        (
            "zerohop_masked_tokens_total",
            "Tokens drawn from fewer than all.",
            |engine| engine.masked_tokens,
        ),
        (
            "safety_rejections_total",
            "Answers that ended since a safety rule left no token.",
            |engine| engine.safety_rejections,
        ),
    ];
    for (name, help, value) in ROWS {
        let mut family = text.family(name, Kind::Counter, help);
        for model in models {
            family.add(&own_labels(model), value(&model.engine));
        }
    }
    let mut family = text.family(
        "zerohop_mask_seconds_total",
        Kind::Counter,
        "Time for masks: computing them, most of it beside the model's run, and waiting for those that were late.",
    );
    for model in models {
        let [name, version] = own_labels(model);
        let parts = [
            ("compute", model.engine.mask_nanos),
            ("wait", model.engine.mask_wait_nanos),
        ];
        for (part, nanos) in parts {
            family.add_nanos(&[name, version, ("part", part)], nanos, Unit::Seconds);
        }
    }
    let mut family = text.family(
        "zerohop_safety_rule_fired_total",
        Kind::Counter,
        "Times that a safety rule bound an answer.",
    );
    for model in models {
        for (rule, count) in &model.rules {
            family.add(&[("rule", rule), ("model", model.name)], *count);
        }
    }
}
