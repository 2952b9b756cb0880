//! The direct pass against the tape: bodies of every kind, right and wrong, mean the same to both, down to the words of
//! a fault.

use std::fmt::Debug;

use super::*;
use crate::doors::{self, Level, Read, Way};

#[path = "made_up_tests.rs"]
mod made_up;

use made_up::{Dice, NUMBERS, Writer, mutate};

/// What was seen in a run, so that it is known to have tried something.
#[derive(Debug, Default)]
struct Tally {
    bodies: usize,
    /// Read in one pass.
    direct: usize,
    /// Read by the tape after a doubt.
    doubts: usize,
    refused: usize,
}

/// Scratch memory for each kind of instructions, kept from body to body as a worker does.
struct Bench {
    scratches: Vec<Scratch>,
    tally: Tally,
}

impl Bench {
    fn new() -> Self {
        Self {
            scratches: Level::all().map(doors::scratch).collect(),
            tally: Tally::default(),
        }
    }

    /// Both ways agree about this body, wherever it is sent.
    fn check(&mut self, body: &[u8]) {
        for strict in [false, true] {
            self.check_at(doors::messages, body, strict);
            self.check_at(doors::chat, body, strict);
            self.check_at(doors::count_tokens, body, strict);
        }
    }

    fn check_at<T: PartialEq + Debug>(
        &mut self,
        read: fn(Way, &[u8], &mut Scratch, bool) -> Read<T>,
        body: &[u8],
        strict: bool,
    ) {
        let shown = || String::from_utf8_lossy(&body[..body.len().min(3000)]).into_owned();
        let wanted = read(Way::Tape, body, &mut self.scratches[0], strict).expect("the tape always answers");
        let mut directly = false;
        for scratch in &mut self.scratches {
            if let Some(found) = read(Way::Direct, body, scratch, strict) {
                // As text, which tells zeros of different sign apart.
                assert_eq!(format!("{found:?}"), format!("{wanted:?}"), "{}", shown());
                directly = true;
            }
        }
        let product = read(Way::Product, body, self.scratches.last_mut().unwrap(), strict);
        assert_eq!(product, Some(wanted), "{}", shown());
        if directly {
            let valid = serde_json::from_slice::<serde_json::Value>(body);
            // Its limit of depth is one lower.
            let fine = valid
                .as_ref()
                .err()
                .is_none_or(|error| error.to_string().contains("recursion limit"));
            assert!(fine, "{}: {valid:?}", shown());
        }
        self.tally.bodies += 1;
        match (directly, product) {
            (true, _) => self.tally.direct += 1,
            (false, Some(Ok(_))) => self.tally.doubts += 1,
            _ => self.tally.refused += 1,
        }
    }
}

/// Bodies of this many seeds from the first on, each as written and changed in places.
fn run(first: u64, count: u64) -> Tally {
    let mut bench = Bench::new();
    for seed in first..first + count {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D);
        let spacing = [2, 8, 1000, 1_000_000][dice.below(4)];
        let anthropic = dice.seldom(2);
        let mut writer = Writer {
            dice: &mut dice,
            out: String::new(),
            spacing,
        };
        writer.body(anthropic);
        let body = writer.out.into_bytes();
        bench.check(&body);
        let mut other = body.clone();
        mutate(&mut other, &mut dice);
        bench.check(&other);
    }
    bench.tally
}

/// Long runs (`cargo xtask test --long`) try a thousand times as many.
fn rounds(ordinary: u64) -> u64 {
    match std::env::var("ZEROHOP_LONG") {
        Ok(long) if !long.is_empty() => ordinary * 1000,
        _ => ordinary,
    }
}

#[test]
fn made_up_bodies_mean_the_same_both_ways() {
    let tally = run(0, rounds(20_000));
    // Each outcome is met often, or the bodies are no good.
    let share = |count: usize| 100 * count / tally.bodies;
    assert!(share(tally.direct) >= 5, "{tally:?}");
    assert!(share(tally.refused) >= 10, "{tally:?}");
    assert!(tally.doubts > 0 && tally.doubts < tally.direct, "{tally:?}");
}

/// Bodies with a bit of everything.
const RICH: [&str; 4] = [
    r#"{"model":"m\/x","max_tokens":1024,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"a\n\u8a9e 😀"},{"content":[{"text":"b","type":"text","cache_control":{"a":[1,-2.5e3,{}]}},{"type":"thinking","thinking":"t"}],"role":"assistant","x":null}, {"role":"user","content":"c"}],"temperature":0.25,"stop_sequences":["a"],"stream":true,"thinking":{"type":"disabled"},"metadata":{"user_id":"\ud83d\ude00"},"foo":[true,false,null]}"#,
    r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a\"b"}],"name":"n"},{"role":"assistant","content":null,"refusal":null,"tool_calls":[]},{"role":"user","content":"日本"}],"model":"m","stream":true,"stream_options":{"include_usage":true},"stop":"\n\n","seed":18446744073709551615,"n":1,"response_format":{"type":"text"},"user":"u","x":{"y":[0.1]}}"#,
    r#"{"model":"m","max_tokens":0,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":"}"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"r"}],"is_error":true}]}],"tools":[{"name":"f","input_schema":{ "x":[1.0] }}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true},"output_config":{"format":{"type":"json_schema","schema":{"y":{}}}}}"#,
    r#"{"model":"m","n":2,"logprobs":true,"top_logprobs":3,"min_p":0.5,"logit_bias":{"5":-1,"6":1},"stop_token_ids":[7],"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}],"tools":[{"type":"function","function":{"name":"f","parameters":{ "x":[1.0] }}}],"tool_choice":"auto","structured_outputs":{"json":{"y":{}}}}"#,
];

#[test]
fn each_byte_lost_or_replaced() {
    let mut bench = Bench::new();
    for body in RICH.map(str::as_bytes) {
        bench.check(body);
        for at in 0..body.len() {
            bench.check(&body[..at]);
            let mut less = body.to_vec();
            less.remove(at);
            bench.check(&less);
            for byte in *b"\"\\{}[],:0-.eun \n\x00\x1f\x80\xff" {
                let mut other = body.to_vec();
                other[at] = byte;
                bench.check(&other);
            }
        }
    }
    assert!(
        bench.tally.direct > 100 && bench.tally.refused > 100,
        "{:?}",
        bench.tally
    );
}

#[test]
fn each_name_with_each_value() {
    let mut bench = Bench::new();
    let values = [
        "null",
        "true",
        "false",
        "\"\"",
        "\"none\"",
        "\"a\\nb\"",
        "\"\\u0000\"",
        "[]",
        "{}",
        "[1]",
        "[\"a\"]",
        "[[]]",
        "{\"type\":\"none\"}",
        "{\"type\":\"adaptive\"}",
        "{\"type\":\"text\"}",
        "{\"type\":\"enabled\",\"a\":{}}",
        "{\"format\":null,\"effort\":\"low\",\"x\":1}",
        "{\"include_usage\":true,\"include_usage\":true}",
        "{\"include_usage\":1}",
        "[{\"type\":\"text\",\"text\":\"a\"}]",
        "[\"text\"]",
        "[0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9]",
        "{\"a\":[0,1,2,3,4,5,6,7,8,9,{\"b\":[0,1,2,3,4,5,6,7,8,9]}]}",
        "{\"a\\u0062\":1}",
        "{\"5\":1,\"4\":-0.5}",
        "[5,\"a\"]",
        "\"auto\"",
        "{\"type\":\"auto\",\"disable_parallel_tool_use\":true}",
        "{\"type\":\"json_object\"}",
        "{\"type\":\"json_schema\",\"schema\":{\"a\": 1.0}}",
        "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{\"a\": 1.0}}}",
        "{\"json\":{\"a\": 1.0}}",
        "{\"choice\":[\"a\"]}",
        "[{\"name\":\"f\",\"input_schema\":{\"a\": 1.0}}]",
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]",
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"a\": 1.0}}}]",
    ];
    let names = anthropic::TOP.entries().map(|(name, _)| *name);
    let names: Vec<&str> = names.chain(openai::TOP.entries().map(|(name, _)| *name)).collect();
    for name in names {
        for value in values.iter().chain(NUMBERS) {
            let rest = r#""messages":[{"role":"user","content":"hi"}],"model":"m","max_tokens":5"#;
            bench.check(format!("{{{rest},\"{name}\":{value}}}").as_bytes());
            bench.check(format!("{{\"stream\":true,\"{name}\":{value}, {rest}}}").as_bytes());
        }
    }
    assert!(bench.tally.direct > 1000, "{:?}", bench.tally);
}

#[test]
fn lists_of_stop_texts_and_of_names() {
    let mut bench = Bench::new();
    let mut with = |name: &str, value: &str| {
        let rest = r#""messages":[{"role":"user","content":"hi"}],"max_tokens":5"#;
        bench.check(format!("{{{rest},\"{name}\":{value}}}").as_bytes());
        bench.check(format!("{{{rest},\"model\":\"m\",\"{name}\":{value}}}").as_bytes());
    };
    for name in ["stop", "stop_sequences"] {
        for count in [0, 1, 15, 16, 17] {
            with(name, &format!("[{}]", vec!["\"a\""; count].join(",")));
        }
        for length in [0, 1, 255, 256, 257] {
            with(name, &format!("[\"{}\"]", "a".repeat(length)));
            with(name, &format!("[\"\\n{}\"]", "a".repeat(length)));
            with(name, &format!("\"{}\"", "a".repeat(length)));
        }
        for list in [
            "[\"a\",]",
            "[,\"a\"]",
            "[\"a\" \"b\"]",
            "[\"a\"",
            "[1]",
            "[null]",
            "[\"\\u0000\"]",
            "[[\"a\"]]",
        ] {
            with(name, list);
        }
    }
    for length in [0, 1, 255, 256, 257] {
        with("model", &format!("\"{}\"", "m".repeat(length)));
        with("model", &format!("\"\\/{}\"", "m".repeat(length)));
    }
}

#[test]
fn empty_and_missing_contents() {
    let mut bench = Bench::new();
    let contents = [
        "\"\"",
        "[]",
        "null",
        "\"a\"",
        "[{\"type\":\"text\",\"text\":\"\"}]",
        "[{\"type\":\"thinking\"}]",
        "[{\"type\":\"refusal\",\"refusal\":\"\"}]",
        "[{}]",
    ];
    let roles = ["user", "assistant", "system", "developer", "tool", "function", "x"];
    for first in contents {
        for second in contents {
            for role in roles {
                for tail in [
                    "",
                    ",\"refusal\":\"no\"",
                    ",\"refusal\":null",
                    ",\"tool_calls\":[]",
                    ",\"tool_calls\":[1]",
                    ",\"x\":1",
                ] {
                    bench.check(format!(
                        "{{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{{\"role\":\"{role}\",\"content\":{first}{tail}}},{{\"content\":{second},\"role\":\"assistant\"{tail}}}]}}"
                    ).as_bytes());
                }
            }
        }
    }
    for messages in [
        "[]",
        "[{}]",
        "[{\"role\":\"user\"}]",
        "[{\"content\":\"a\"}]",
        "[1]",
        "{}",
        "null",
        "\"a\"",
    ] {
        bench.check(format!("{{\"model\":\"m\",\"max_tokens\":1,\"messages\":{messages}}}").as_bytes());
    }
}

#[test]
fn depth_is_counted_from_the_root() {
    let mut bench = Bench::new();
    for name in ["x", "metadata", "thinking", "messages", "system", "stop", "tools"] {
        for depth in [1, 20, 25, 126, 127, 128, 129, 100_000] {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let nested = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                bench.check(format!("{{\"{name}\":{nested},\"model\":\"m\",\"max_tokens\":1,\"messages\":[{{\"role\":\"user\",\"content\":\"a\",\"y\":1}}]}}").as_bytes());
                bench.check(format!("{{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{{\"{name}\":{nested},\"role\":\"user\",\"content\":\"a\"}}]}}").as_bytes());
                bench.check(nested.as_bytes());
            }
        }
    }
    assert!(bench.tally.direct > 0, "{:?}", bench.tally);
}

/// 100,000 brackets are refused in words.
#[test]
fn deep_nesting_is_a_fault() {
    let mut scratch = Scratch::default();
    for body in [
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        format!("{{\"x\":{}", "[".repeat(100_000)),
    ] {
        let error = anthropic::messages(body.as_bytes(), &mut scratch, false).unwrap_err();
        assert_eq!(
            (error.status(), &*error.message),
            (400, "The request body is nested deeper than 128 levels")
        );
    }
}

/// Numbers of every length and form stand where they are read, and where they are skipped.
#[test]
fn numbers_of_every_form() {
    let mut bench = Bench::new();
    let mut dice = Dice(1);
    for _ in 0..rounds(4000) {
        let mut digits = |most: usize| -> String {
            let count = dice.below(most + 1);
            (0..count)
                .map(|_| dice.one(&["0", "0", "1", "2", "5", "9", "7"]))
                .collect()
        };
        let (whole, fraction, exponent) = (digits(22), digits(22), digits(3));
        let mut number = String::new();
        number += dice.one(&["", "", "", "-"]);
        number += if dice.seldom(2) { "0" } else { &whole };
        if dice.seldom(2) {
            number += ".";
            number += &fraction;
        }
        if dice.seldom(3) {
            number += dice.one(&["e", "E", "e-", "e+"]);
            number += &exponent;
        }
        let name = dice.one(&[
            "temperature",
            "top_p",
            "seed",
            "max_tokens",
            "top_k",
            "n",
            "presence_penalty",
            "min_p",
            "x",
        ]);
        let rest = r#""messages":[{"role":"user","content":"hi"}],"model":"m""#;
        bench.check(format!("{{{rest},\"max_tokens\":5,\"{name}\":{number}}}").as_bytes());
        bench.check(format!("{{{rest},\"{name}\":{number} }}").as_bytes());
    }
    assert!(bench.tally.direct > 1000, "{:?}", bench.tally);
}

/// The bound on values, which the tape needs, holds for the direct pass as well.
#[test]
fn large_bodies() {
    let mut bench = Bench::new();
    for ones in [1 << 20, (2 << 20) - 100, 2 << 20] {
        let list = "1,".repeat(ones);
        let body = format!(
            "{{\"x\":[{list}1],\"model\":\"m\",\"max_tokens\":1,\"messages\":[{{\"role\":\"user\",\"content\":\"a\"}}]}}"
        );
        bench.check_at(doors::messages, body.as_bytes(), false);
    }
    let text = "a text of several MiB, \\n and more of it ".repeat(1 << 17);
    let body =
        format!("{{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}");
    bench.check_at(doors::messages, body.as_bytes(), false);
    assert!(bench.tally.direct == 3 && bench.tally.refused == 1, "{:?}", bench.tally);
}
