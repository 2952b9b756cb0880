//! Random walks through masks: whatever is drawn from them fits; and what is refused, with the reason.

use super::*;
use crate::model::tests::byte_prompts;

/// `<|end|>` of the byte vocabulary.
const END: u32 = 256;

fn masks() -> Masks {
    Masks::new(&Arc::new(byte_prompts()), &[END]).expect("a small vocabulary")
}

/// A random stream (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

fn allowed(mask: &[u32]) -> Vec<u32> {
    let bits = |(index, word): (usize, &u32)| {
        let word = *word;
        (0..32u32)
            .filter(move |bit| word >> bit & 1 == 1)
            .map(move |bit| index as u32 * 32 + bit)
    };
    mask.iter().enumerate().flat_map(bits).collect()
}

/// Draws from the masks until the form ends or `most` tokens are there. The text, and whether it is complete.
fn walk(masks: &Masks, prompts: &Prompts, form: &Form, seed: u64, most: usize) -> (String, bool) {
    let compiled = masks
        .compile(form, Strictness::Strict)
        .unwrap_or_else(|refusal| panic!("{form:?}: {refusal}"));
    let mut guide = Guide::new(compiled.as_deref(), None);
    let mut random = Random(seed);
    let mut bytes = Vec::new();
    for _ in 0..most {
        guide.compute();
        assert_eq!(guide.fault(), None, "{form:?}");
        let tokens = allowed(guide.mask().expect("a form binds"));
        let token = tokens[random.below(tokens.len())];
        if token == END {
            return (String::from_utf8(bytes).expect("whole characters"), true);
        }
        bytes.extend_from_slice(prompts.vocabulary().text().get(token));
        if guide.commit(token, &[]) {
            return (String::from_utf8(bytes).expect("whole characters"), true);
        }
    }
    (String::from_utf8_lossy(&bytes).into_owned(), false)
}

/// By the grammar alone: a number may be beyond any range.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

#[test]
fn what_is_drawn_from_masks_fits() {
    let masks = masks();
    let prompts = byte_prompts();
    type Fits = fn(&str) -> bool;
    let schema = r#"{"type": "object", "properties": {"z": {"type": "integer", "minimum": 3, "maximum": 12},
        "a": {"enum": ["x", null, [1]]}}, "required": ["z", "a"], "additionalProperties": false}"#;
    let cases: [(Form, Fits); 11] = [
        (Form::Object, |text| text.starts_with('{') && is_json(text)),
        (Form::Schema(schema.into()), |text| {
            let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
            let number = value["z"].as_f64().expect("a number");
            // The order of the schema, and nothing between the parts.
            (3.0..=12.0).contains(&number) && text.starts_with("{\"z\":") && text.contains(",\"a\":")
        }),
        (Form::Schema("true".into()), is_json),
        (
            Form::Schema(r#"{"oneOf": [{"const": 1}, {"const": 2.5}, {"enum": [37]}]}"#.into()),
            |text| ["1", "2.5", "37"].contains(&text),
        ),
        (
            Form::Schema(
                r##"{"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
                "a": {"type": "object", "properties": {"k": {"const": 1}, "x": {"type": "null"}}, "required": ["k", "x"],
                    "additionalProperties": false},
                "b": {"type": "object", "properties": {"k": {"const": 2}}, "required": ["k"], "additionalProperties": false}}}"##
                    .into(),
            ),
            |text| [r#"{"k":1,"x":null}"#, r#"{"k":2}"#].contains(&text),
        ),
        (
            Form::Schema(r#"{"type": "string", "minLength": 2.0, "maxLength": 3.0, "pattern": "^a*$"}"#.into()),
            |text| ["\"aa\"", "\"aaa\""].contains(&text),
        ),
        (Form::Regex("^(?:ab|c+)[0-9]{2}$".into()), |text| {
            let digits = text.trim_start_matches("ab").trim_start_matches('c');
            digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit()) && text.len() > 2
        }),
        (Form::Regex("é|日本".into()), |text| ["é", "日本"].contains(&text)),
        (
            Form::Choice(vec!["yes".into(), "yes, \"sir\"".into(), "no/\n".into()]),
            |text| ["yes", "yes, \"sir\"", "no/\n"].contains(&text),
        ),
        (Form::Grammar("start: \"a ::= \" /b ::= c/\n".into()), |text| {
            text == "a ::= b ::= c"
        }),
        (Form::Grammar("start: \"(\" start \")\" | /[0-9]/\n".into()), |text| {
            let depth = text.len() / 2;
            text.starts_with(&"(".repeat(depth)) && text.ends_with(&")".repeat(depth))
        }),
    ];
    for (form, fits) in &cases {
        let mut complete = 0;
        for seed in 0..40 {
            let (text, is_complete) = walk(&masks, &prompts, form, seed, 200);
            complete += usize::from(is_complete);
            assert!(!is_complete || fits(&text), "{form:?}, seed {seed}: {text:?}");
        }
        assert!(complete > 0, "{form:?}: no walk came to an end");
    }
}

/// A mask must neither be too wide nor too narrow: at every step it holds exactly the tokens that a copy can take.
#[test]
fn a_mask_holds_exactly_what_can_follow() {
    let masks = masks();
    let form = Form::Schema(r#"{"type": "array", "items": {"type": "boolean"}, "maxItems": 3}"#.into());
    let compiled = masks
        .compile(&form, Strictness::Strict)
        .expect("a good schema")
        .expect("it binds");
    let mut path: Vec<u32> = Vec::new();
    for byte in *b"[true,false" {
        // The byte vocabulary's ids are not the bytes.
        let follow = |token: u32| {
            let mut guide = Guide::new(Some(&compiled), None);
            for &token in &path {
                guide.commit(token, &[]);
            }
            guide.commit(token, &[]);
            guide.fault().is_none()
        };
        let mut guide = Guide::new(Some(&compiled), None);
        for &token in &path {
            guide.commit(token, &[]);
        }
        guide.compute();
        let taken: Vec<u32> = (0..END).filter(|&token| follow(token)).collect();
        assert_eq!(allowed(guide.mask().expect("it binds")), taken, "after {path:?}");
        let prompts = byte_prompts();
        path.push(
            (0..END)
                .find(|&id| prompts.vocabulary().text().get(id) == [byte])
                .expect("a byte"),
        );
    }
}

#[test]
fn what_cannot_be_guaranteed_is_refused_with_its_place() {
    let masks = masks();
    let schema = |text: &str| Form::Schema(text.into());
    let cases = [
        (
            schema("{"),
            "the schema is not JSON: EOF while parsing an object at line 1 column 1",
        ),
        (schema("3"), "a schema must be an object, true or false at $"),
        (schema("false"), "the schema at $ is false: nothing fits it"),
        (
            schema(r#"{"properties": {"a": {"not": {"type": "null"}}}}"#),
            "`not` at $.properties.a is not supported",
        ),
        (
            schema(r#"{"anyOf": [true, {"items": {"uniqueItems": true}}]}"#),
            "`uniqueItems` at $.anyOf[1].items is not supported",
        ),
        (schema(r#"{"format": "iri"}"#), "`format` \"iri\" at $ is not supported"),
        (
            schema(r#"{"$ref": "https://example.com/a"}"#),
            "`$ref` \"https://example.com/a\" (only places in this schema, such as \"#/$defs/name\") at $ is not supported",
        ),
        (schema(r#"{"x-guidance": {}}"#), "`x-guidance` at $ is not supported"),
        (
            schema(r##"{"$ref": "#/$defs/none"}"##),
            "Reference segment '$defs' not found in '#/$defs/none'.",
        ),
        (
            schema(r#"{"properties": {"b": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}, "required": ["b"]}"#),
            "`oneOf` of schemas that may overlap is not supported: use `anyOf` (`oneOf` at $.properties.b)",
        ),
        (
            schema(r#"{"properties": {"a": {"maxLength": 10000000000}}}"#),
            "`maxLength` must be an integer from 0 to 1000000000 (leave it out for no bound) at $.properties.a",
        ),
        (
            schema(r#"{"minItems": -1}"#),
            "`minItems` must be an integer from 0 to 1000000000 (leave it out for no bound) at $",
        ),
        (
            schema(r#"{"maxProperties": 1.5}"#),
            "`maxProperties` must be an integer from 0 to 1000000000 (leave it out for no bound) at $",
        ),
        (Form::Regex("^$".into()), "the regular expression is empty"),
        (
            Form::Regex("root ::= \"a\"".into()),
            "this is a grammar in GBNF and no regular expression; a grammar is given by itself, in Lark's syntax",
        ),
        (
            Form::Grammar("# digits\nroot ::= [0-9]+ ws-2\nws-2 ::= \" \"\n".into()),
            "the grammar is in GBNF (`root ::= …`), but grammars are read in Lark's syntax: `start: …`",
        ),
        (Form::Choice(vec![]), "there is no choice"),
        (Form::Choice(vec!["a".into(), String::new()]), "a choice is empty"),
        (Form::Grammar(" \n".into()), "the grammar is empty"),
    ];
    for (form, wanted) in cases {
        for _ in 0..2 {
            let refusal = masks
                .compile(&form, Strictness::Strict)
                .expect_err("it cannot be guaranteed");
            assert_eq!(refusal.reason, wanted, "{form:?}");
        }
    }
    for (form, part) in [
        (Form::Regex("a(".into()), "unclosed group"),
        (Form::Regex("a(?=b)".into()), "look-around"),
        (Form::Grammar("start: missing\n".into()), "missing"),
    ] {
        let refusal = masks
            .compile(&form, Strictness::Strict)
            .expect_err("it cannot be compiled");
        assert!(refusal.reason.contains(part), "{form:?}: {refusal}");
        assert!(
            refusal.reason.len() <= 400 && !refusal.reason.contains(['\n', '\0']),
            "{refusal}"
        );
    }
}

#[test]
fn a_lenient_schema_guarantees_what_it_can() {
    let masks = masks();
    let form = Form::Schema(
        r#"{"properties": {"a": {"not": {"type": "null"}, "type": "boolean"}}, "required": ["a"]}"#.into(),
    );
    assert!(masks.compile(&form, Strictness::Strict).is_err());
    assert!(masks.compile(&form, Strictness::Lenient).is_ok());
    assert!(
        masks
            .compile(&Form::Schema("{\"a\"".into()), Strictness::Lenient)
            .is_err()
    );
}

/// The greatest counts cost no more than small ones.
#[test]
fn absurd_counts_are_compiled_at_once() {
    let masks = masks();
    for text in [
        r#"{"type": "string", "maxLength": 1000000000}"#,
        r#"{"type": "string", "minLength": 1000000000}"#,
        r#"{"type": "string", "pattern": "^[a-z]+$", "maxLength": 1000000000}"#,
        r#"{"type": "array", "maxItems": 1000000000, "items": {"type": "string", "maxLength": 1000000000}}"#,
        r#"{"type": "array", "minItems": 1000000000, "items": {"type": "array", "minItems": 1000000000}}"#,
        r#"{"type": "object", "minProperties": 1000000000}"#,
        r#"{"type": "object", "maxProperties": 1000000000}"#,
    ] {
        let compiled = masks.compile(&Form::Schema(text.into()), Strictness::Strict);
        let compiled = compiled.unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
        let mut guide = Guide::new(compiled.as_deref(), None);
        for _ in 0..100 {
            guide.compute();
            assert_eq!(guide.fault(), None, "{text}");
            let Some(&token) = guide.mask().and_then(|mask| allowed(mask).last().copied()).as_ref() else {
                break;
            };
            if token == END || guide.commit(token, &[]) {
                break;
            }
        }
    }
}

/// Each would take minutes, gigabytes or the stack if nothing bounded it.
#[test]
fn a_bomb_is_refused_or_compiled_and_never_stuck() {
    let masks = masks();
    let chain: String = (0..4_000).map(|n| format!("r{n}: r{}\n", n + 1)).collect();
    let terminals: String = (0..4_000).map(|n| format!("T{n}: T{} \"a\"\n", n + 1)).collect();
    let doubling: String = (0..60).map(|n| format!("T{n}: T{0} T{0}\n", n + 1)).collect();
    let patterns: Vec<String> = (0..120)
        .map(|n| format!("\"(a|b|c){{{n}}}.*x.{{{n}}}y.*\": true"))
        .collect();
    let bombs = [
        Form::Regex("(((((a{1,100}){1,100}){1,100}){1,100}){1,100}){1,100}".into()),
        Form::Regex(".*a.{200}b.{200}c.{200}|.*d.{500}".into()),
        Form::Regex("(".repeat(8_000) + &")".repeat(8_000)),
        Form::Grammar(format!("start: r0\n{chain}r4000: \"x\"\n")),
        Form::Grammar(format!("start: T0\n{terminals}T4000: \"x\"\n")),
        Form::Grammar(format!("start: T0\n{doubling}T60: \"x\"\n")),
        Form::Grammar(format!("start: {}\"a\"{}\n", "(".repeat(50_000), ")".repeat(50_000))),
        Form::Grammar("start: start start | \"a\" | \n".into()),
        Form::Schema(format!("{}true{}", r#"{"items":"#.repeat(120), "}".repeat(120))),
        Form::Schema(format!(r#"{{"patternProperties": {{{}}}}}"#, patterns.join(","))),
        Form::Schema(format!(r#"{{"enum": [{}0]}}"#, "0,".repeat(30_000))),
        Form::Schema(r#"{"type": "string", "minLength": 100000, "maxLength": 200000}"#.into()),
        Form::Schema(r##"{"allOf": [{"$ref": "#"}, {"$ref": "#"}]}"##.into()),
        Form::Schema(r##"{"anyOf": [{"$ref": "#"}]}"##.into()),
    ];
    for bomb in &bombs {
        let outcome = masks.compile(bomb, Strictness::Strict);
        let Ok(compiled) = outcome else { continue };
        let mut guide = Guide::new(compiled.as_deref(), None);
        for _ in 0..20 {
            guide.compute();
            let Some(&token) = guide.mask().and_then(|mask| allowed(mask).first().copied()).as_ref() else {
                break;
            };
            if token == END || guide.commit(token, &[]) {
                break;
            }
        }
    }
}
