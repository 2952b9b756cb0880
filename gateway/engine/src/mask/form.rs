//! From the form that a request asks for to the text of a grammar.
//!
//! It compiles nothing. Every input is bounded here in bytes and in nesting, so that the compiler's recursion is bounded
//! too. Invariant: the grammar's language is the form's: JSON is compact (no blanks between its parts), in the order of
//! the schema's keys; a regular expression matches the whole text.

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use super::{Refusal, Strictness, schema};
use crate::job::Form;

/// Bytes of a schema, of a list of choices, or of a grammar with the schemas in it.
const MAX_BYTES: usize = 512 * 1024;
/// Bytes of a regular expression.
const MAX_REGEX: usize = 16 * 1024;
/// Choices.
const MAX_CHOICES: usize = 10_000;
/// Brackets within brackets, in a grammar and in a regular expression.
const MAX_DEPTH: usize = 100;
/// Rules of a grammar.
const MAX_RULES: usize = 4_096;

/// What the compiler gets, and what is needed to explain its faults.
pub(super) struct Source {
    pub(super) grammar: TopLevelGrammar,
    /// The schema, if it is one.
    pub(super) schema: Option<Value>,
}

/// The grammar of a form; `None` for a free one.
///
/// # Errors
/// What is wrong with it.
pub(super) fn source(form: &Form, strictness: Strictness) -> Result<Option<Source>, Refusal> {
    let grammar = match form {
        Form::Free => return Ok(None),
        Form::Object => {
            let schema = json!({"type": "object", "x-guidance": {"whitespace_flexible": false}});
            TopLevelGrammar::from_json_schema(schema)
        }
        Form::Schema(text) => {
            within("schema", text.len(), MAX_BYTES)?;
            let schema = schema::read(text, strictness)?;
            return Ok(Some(Source {
                grammar: TopLevelGrammar::from_json_schema(schema.clone()),
                schema: Some(schema),
            }));
        }
        Form::Regex(pattern) => TopLevelGrammar::from_regex(regex(pattern)?),
        Form::Choice(texts) => TopLevelGrammar::from_lark(choice(texts)?),
        Form::Grammar(text) => {
            check_grammar(text)?;
            TopLevelGrammar::from_lark(text.clone())
        }
    };
    Ok(Some(Source { grammar, schema: None }))
}

fn within(what: &str, bytes: usize, most: usize) -> Result<(), Refusal> {
    if bytes > most {
        return Err(Refusal::new(format!(
            "the {what} has {bytes} bytes, at most {most} are taken"
        )));
    }
    Ok(())
}

/// A regular expression without the anchors at its ends, which say what holds anyway.
pub(super) fn regex(pattern: &str) -> Result<&str, Refusal> {
    within("regular expression", pattern.len(), MAX_REGEX)?;
    if depth(pattern) > MAX_DEPTH {
        let text = format!("the regular expression nests more than {MAX_DEPTH} groups");
        return Err(Refusal::new(text));
    }
    if gbnf_rule(pattern.lines().next().unwrap_or_default()) == Some("root") {
        let text =
            "this is a grammar in GBNF and no regular expression; a grammar is given by itself, in Lark's syntax";
        return Err(Refusal::new(text));
    }
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let escapes = pattern
        .strip_suffix('$')
        .map_or(0, |rest| rest.bytes().rev().take_while(|&byte| byte == b'\\').count());
    let pattern = match pattern.strip_suffix('$') {
        Some(rest) if escapes.is_multiple_of(2) => rest,
        _ => pattern,
    };
    if pattern.is_empty() {
        return Err(Refusal::new("the regular expression is empty"));
    }
    Ok(pattern)
}

fn choice(texts: &[String]) -> Result<String, Refusal> {
    if texts.is_empty() {
        return Err(Refusal::new("there is no choice"));
    }
    if texts.len() > MAX_CHOICES {
        return Err(Refusal::new(format!("there are more than {MAX_CHOICES} choices")));
    }
    within("list of choices", texts.iter().map(String::len).sum(), MAX_BYTES)?;
    if texts.iter().any(String::is_empty) {
        return Err(Refusal::new("a choice is empty"));
    }
    let quoted: Vec<String> = texts.iter().map(|text| literal(text)).collect();
    Ok(format!("start: CHOICE\nCHOICE: {}\n", quoted.join(" | ")))
}

/// A text as it stands in a grammar.
pub(super) fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

fn check_grammar(text: &str) -> Result<(), Refusal> {
    within("grammar", text.len(), MAX_BYTES)?;
    if text.trim().is_empty() {
        return Err(Refusal::new("the grammar is empty"));
    }
    if text.lines().count() > MAX_RULES {
        return Err(Refusal::new(format!("the grammar has more than {MAX_RULES} lines")));
    }
    if let Some(rule) = text.lines().find_map(gbnf_rule) {
        return Err(Refusal::new(format!(
            "the grammar is in GBNF (`{rule} ::= …`), but grammars are read in Lark's syntax: `start: …`"
        )));
    }
    if depth(text) > MAX_DEPTH {
        return Err(Refusal::new(format!(
            "the grammar nests more than {MAX_DEPTH} brackets"
        )));
    }
    Ok(())
}

/// The name of the rule that begins in this line, if it is one of llama.cpp's GBNF, which no line of Lark's can be.
fn gbnf_rule(line: &str) -> Option<&str> {
    let (name, _) = line.split_once("::=")?;
    let name = name.trim();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    ((1..=64).contains(&name.len()) && name.bytes().all(plain)).then_some(name)
}

/// How deep brackets nest, escaped ones not counted. Quoted ones are: what is quoted depends on the grammar, and a bound
/// that a quote can hide from is none.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut escaped) = (0usize, 0usize, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'(' | b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
