//! Safety rules and schemas: any text is refused with a reason or compiled, and what is drawn from a schema's masks is
//! JSON.
//!
//! Invariant: the tokens are the 256 bytes and, behind them, an end, so an input repeats everywhere. Time and memory are
//! the runner's to bound.

use std::{io, path::Path, sync::LazyLock};

use zerohop::config::{Rules, Surroundings};
use zerohop_engine::{Form, Grammars};

use crate::Cuts;

/// The end token.
const END: u32 = 256;
/// Tokens drawn of an answer.
const DRAWN: usize = 48;

/// A tokenizer of bytes, with these control tokens behind them: the library numbers them so, whatever the file says.
pub(crate) fn tokenizer(controls: &[&str]) -> Vec<u8> {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let direct = (0..=255u8).filter(|&b| printable(b)).map(char::from);
    // GPT-2's characters for the other 68 bytes.
    let others = ('\u{100}'..).take(68);
    let vocab: serde_json::Map<String, serde_json::Value> = direct
        .chain(others)
        .zip(0..)
        .map(|(piece, id): (char, u32)| (piece.to_string(), id.into()))
        .collect();
    let added = controls.iter().zip(END..).map(|(content, id)| {
        serde_json::json!({"id": id, "content": content, "special": true, "normalized": false, "single_word": false,
            "lstrip": false, "rstrip": false})
    });
    let tokenizer = serde_json::json!({
        "version": "1.0", "normalizer": null, "post_processor": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    tokenizer.to_string().into_bytes()
}

static GRAMMARS: LazyLock<Grammars> =
    LazyLock::new(|| Grammars::new(&tokenizer(&["<end>"]), &[END]).unwrap_or_else(|error| panic!("{error}")));

struct Made<'a>(&'a str);

impl Surroundings for Made<'_> {
    fn env(&self, _: &str) -> Option<String> {
        None
    }

    fn read(&self, _: &Path, limit: u64) -> io::Result<String> {
        if self.0.len() as u64 > limit {
            return Err(io::Error::other("too large"));
        }
        Ok(self.0.to_owned())
    }

    fn is_folder(&self, _: &Path) -> bool {
        true
    }

    fn is_file(&self, _: &Path) -> bool {
        true
    }

    fn cores(&self) -> Vec<usize> {
        vec![0]
    }

    fn memory(&self) -> Option<u64> {
        None
    }
}

pub(crate) fn check_rules(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let rules = match Rules::load(Path::new("rules.yaml"), &Made(&text)) {
        Ok(rules) => rules,
        Err(problems) => {
            let told = problems.to_string();
            assert!(
                told.lines().all(|line| line.starts_with("rules.yaml:")),
                "no place: {told}"
            );
            return;
        }
    };
    match GRAMMARS.rules(&rules.file) {
        Ok(set) => {
            let count = rules.file.rules.len();
            assert!(set.lint().iter().all(|lint| lint.rule < count), "a warning of no rule");
            for rule in 0..count {
                assert!(
                    !set.first_tokens(rule).is_empty(),
                    "rule {rule} leaves nothing: {}",
                    data.escape_ascii()
                );
            }
        }
        Err(error) => assert!(
            error.rule < rules.file.rules.len() && !error.reason.is_empty(),
            "{error:?}"
        ),
    }
}

pub(crate) fn check_schema(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    let strict = data.len().is_multiple_of(2);
    let mut walk = match GRAMMARS.start(&Form::Schema(text), strict) {
        Ok(walk) => walk.unwrap_or_else(|| panic!("a schema binds")),
        Err(reason) => {
            assert!(!reason.is_empty() && !reason.contains('\n'), "{reason:?}");
            return;
        }
    };
    let (mut chance, mut answer) = (Cuts::of(data, 0), Vec::new());
    for _ in 0..DRAWN {
        let Ok(mask) = walk.mask() else { return };
        let allowed: Vec<u32> = (0..257u32)
            .filter(|&id| mask[id as usize / 32] >> (id % 32) & 1 == 1)
            .collect();
        assert!(!allowed.is_empty(), "an empty mask: {}", data.escape_ascii());
        let token = allowed[chance.next(allowed.len()) - 1];
        let ended = token == END;
        if !ended {
            answer.extend_from_slice(GRAMMARS.bytes(token));
        }
        if ended || walk.commit(token) {
            let json = serde_json::from_slice::<serde::de::IgnoredAny>(&answer);
            assert!(
                json.is_ok(),
                "no JSON: {} of {}",
                answer.escape_ascii(),
                data.escape_ascii()
            );
            return;
        }
    }
}
