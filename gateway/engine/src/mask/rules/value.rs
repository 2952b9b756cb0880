//! What may follow a trigger, as a form: the value itself, and the value with what may end it.
//!
//! Compiles nothing. Invariant: both forms agree on the value; the second has nothing before it and nothing in it that
//! the first has not.

use super::{Allow, Rule, TextClass, TextSet, number};
use crate::{job::Form, mask::form};

/// The forms of a rule whose value is a text.
pub(super) struct Value {
    /// What may be drawn while the rule binds.
    pub(super) within: Form,
    /// The value alone, where the model may go on behind it: what this does not take ends the rule.
    pub(super) alone: Option<Form>,
    /// Whether it can go on for ever.
    pub(super) is_endless: bool,
}

/// Of a rule; `None` if it lists ids.
///
/// # Errors
/// What is wrong with its regular expression.
pub(super) fn value(rule: &Rule) -> Result<Option<Value>, String> {
    let until = rule.until.as_deref();
    let value = match &rule.allow {
        Allow::Ids(_) => return Ok(None),
        Allow::Grammar(text) => Value {
            within: Form::Grammar(text.clone()),
            alone: None,
            is_endless: false,
        },
        Allow::Regex(pattern) => {
            let pattern = form::regex(pattern).map_err(|refusal| refusal.reason)?;
            plain(&format!("(?:{pattern})"), until)
        }
        Allow::Choice(texts) => {
            let texts: Vec<String> = texts.iter().map(|text| escaped(text)).collect();
            plain(&format!(" ?(?:{})", texts.join("|")), until)
        }
        Allow::Texts(sets) => {
            let alone: Vec<String> = sets.iter().map(expression).collect();
            let alone = format!(" ?(?:{})", alone.join("|"));
            let has_number = sets.iter().any(|set| matches!(set, TextSet::Numbers { .. }));
            let has_class = sets.iter().any(|set| matches!(set, TextSet::Class(_)));
            let value = if until.is_none() && has_number {
                let within: Vec<String> = sets.iter().map(with_rest).collect();
                Value {
                    within: Form::Regex(format!(" ?(?:{})", within.join("|"))),
                    alone: Some(Form::Regex(alone)),
                    is_endless: false,
                }
            } else {
                plain(&alone, until)
            };
            Value {
                is_endless: has_class && until.is_none() && rule.max_tokens.is_none(),
                ..value
            }
        }
    };
    Ok(Some(value))
}

/// An expression, with the text that may end it.
fn plain(expression: &str, until: Option<&str>) -> Value {
    let end = until.map_or_else(String::new, |until| format!("(?:{})?", escaped(until)));
    Value {
        within: Form::Regex(format!("{expression}{end}")),
        alone: None,
        is_endless: false,
    }
}

fn expression(set: &TextSet) -> String {
    match set {
        TextSet::Numbers { from, to } => number::range(*from, *to),
        TextSet::Class(class) => format!("{}+", characters(*class)),
        TextSet::Literal(text) => escaped(text),
    }
}

/// The same, with anything behind a number that does not lengthen it.
fn with_rest(set: &TextSet) -> String {
    let rest = match set {
        TextSet::Numbers { .. } => "(?:[^0-9](?s:.)*)?",
        TextSet::Class(_) | TextSet::Literal(_) => "",
    };
    expression(set) + rest
}

fn characters(class: TextClass) -> &'static str {
    match class {
        TextClass::Digits => "[0-9]",
        TextClass::Letters => r"\p{L}",
        TextClass::Lowercase => r"\p{Ll}",
        TextClass::Uppercase => r"\p{Lu}",
        TextClass::Alphanumeric => r"[\p{L}\p{Nd}]",
        TextClass::Hex => "[0-9a-fA-F]",
        TextClass::Whitespace => r"\s",
        TextClass::Punctuation => r"\p{P}",
    }
}

/// A text as an expression that matches it alone.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(character) {
            out.push('\\');
        }
        out.push(character);
    }
    out
}
