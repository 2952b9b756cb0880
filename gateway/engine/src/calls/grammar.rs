//! The grammar of an answer in which tools may be called, in the Lark dialect of llguidance.
//!
//! Only writes text; nothing is compiled here. A call is written in one way alone: keys in order, and white space as
//! Python's `json.dumps` sets it, so that only the name and the arguments are the model's. Invariants: every call names
//! one of the tools and its arguments follow that tool's schema; text contains no mark that begins a call.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{Fault, Format, Style};
use crate::job::{Form, Part, Tool, ToolChoice, Tools};

/// The grammar for these tools; there is at least one, one may be called, and all of them were checked.
pub(super) fn grammar(tools: &Tools, format: &Format, text: &Form) -> Result<String, Fault> {
    let single = !tools.parallel || matches!(tools.choice, ToolChoice::Named(_)) || format.style == Style::Llama;
    let called: Vec<(usize, &Tool)> = tools
        .list
        .iter()
        .enumerate()
        .filter(|(_, tool)| !matches!(&tools.choice, ToolChoice::Named(name) if *name != tool.name))
        .collect();
    let names: Vec<String> = called.iter().map(|(index, _)| format!("call_{index}")).collect();
    let mut lark = String::from("%llguidance {}\n");
    // Writing to a string cannot fail.
    let _ = match tools.choice {
        ToolChoice::Auto => auto(format, single, text, &mut lark)?,
        _ => writeln!(lark, "start: calls"),
    };
    let open = mark(format.style.open(), format.open);
    let calls = match (format.style, single) {
        (Style::Hermes, true) => format!("{open} hermes"),
        (Style::Hermes, false) => format!("{open} hermes (\"\\n\" {open} hermes)*"),
        (Style::Llama, _) => format!("{open}? call"),
        (Style::Mistral, true) => format!("{open} \"[\" call \"]\""),
        (Style::Mistral, false) => format!("{open} list"),
    };
    let _ = writeln!(lark, "calls: {calls}");
    if format.style == Style::Hermes {
        let close = mark("</tool_call>", format.close);
        let _ = writeln!(lark, "hermes: \"\\n\" call \"\\n\" {close}");
    }
    if format.style == Style::Mistral {
        let _ = writeln!(lark, "list: \"[\" call (\", \" call)* \"]\"");
    }
    let _ = writeln!(lark, "call: {}", names.join(" | "));
    for ((index, tool), name) in called.iter().zip(&names) {
        let schema = schema(tool).map_err(|reason| (Part::Tool(*index), reason))?;
        let head = format!(
            "{{\"name\": {}, \"{}\": ",
            Value::from(tool.name.as_str()),
            format.style.arguments()
        );
        let _ = writeln!(lark, "{name}: {} arguments_{index} \"}}\"", literal(&head));
        let _ = writeln!(lark, "arguments_{index}: %json {schema}");
    }
    Ok(lark)
}

/// The beginning where the model decides: the text of an answer, or calls, of which free text may precede the first.
fn auto(format: &Format, single: bool, text: &Form, lark: &mut String) -> Result<std::fmt::Result, Fault> {
    if *text != Form::Free {
        let text = shaped(text)?;
        return Ok(write!(lark, "start: answer | calls\nanswer: {text}"));
    }
    let any = "/(?s:.*)/";
    let spelled = regex(format.style.open());
    let without = format!("{any} & ~/(?s:.*){spelled}(?s:.*)/");
    Ok(match (format.style, format.open) {
        // The text is whatever does not begin as a call does: its mark stands only at the beginning.
        (Style::Llama, _) => {
            let call = r#"\s*\{\s*"name"(?s:.*)"#;
            writeln!(
                lark,
                "start: TEXT | calls\nTEXT: {any} & ~/{call}/ & ~/\\s*{spelled}(?s:.*)/"
            )
        }
        (_, Some(_)) => writeln!(lark, "start: TEXT | TEXT calls\nTEXT: {without}"),
        // A text mark: it ends the text as soon as it is complete, and a call has to follow.
        (style, None) => {
            let rest = match (style, single) {
                (Style::Hermes, true) => "hermes",
                (Style::Hermes, false) => "hermes (\"\\n\" \"<tool_call>\" hermes)*",
                (_, true) => "\"[\" call \"]\"",
                (_, false) => "list",
            };
            let open = literal(style.open());
            writeln!(
                lark,
                "start: TEXT | lead {rest}\nTEXT: {without}\nlead[lazy]: /(?s:.*)/ {open}"
            )
        }
    })
}

/// The text of an answer that must have a form.
fn shaped(form: &Form) -> Result<String, Fault> {
    let fault = |reason: &str| Err((Part::Form, reason.to_owned()));
    Ok(match form {
        Form::Free => "/(?s:.*)/\n".into(),
        Form::Object => format!("%json {}\n", compact(json!({"type": "object"}))),
        Form::Schema(schema) => match serde_json::from_str::<Value>(schema) {
            // In one line, so that nothing in it is taken for another rule.
            Ok(schema) => format!("%json {}\n", compact(schema)),
            Err(error) => return fault(&format!("the schema is not JSON: {error}")),
        },
        Form::Choice(texts) => {
            let texts: Vec<String> = texts.iter().map(|text| literal(text)).collect();
            texts.join(" | ") + "\n"
        }
        Form::Regex(_) | Form::Grammar(_) => {
            return fault("a regular expression or a grammar cannot be combined with tools that may be called");
        }
    })
}

/// A schema whose JSON has no blanks between its parts, as where it is the form of a whole answer.
fn compact(mut schema: Value) -> Value {
    if let Value::Object(entries) = &mut schema {
        entries.insert("x-guidance".into(), json!({"whitespace_flexible": false}));
    }
    schema
}

/// The parameters of a tool as a schema of an object.
pub(crate) fn parameters(tool: &Tool) -> Result<Map<String, Value>, String> {
    let text = tool.parameters.trim();
    let parsed: Value = match text {
        "" => Value::Null,
        _ => serde_json::from_str(text).map_err(|error| format!("the parameters are not JSON: {error}"))?,
    };
    let mut schema = match parsed {
        Value::Null | Value::Bool(true) => Map::new(),
        Value::Object(schema) => schema,
        _ => return Err("the parameters are no JSON Schema".into()),
    };
    match schema.get("type") {
        Some(Value::String(kind)) if kind == "object" => {}
        Some(_) => return Err("the parameters have to be of type object".into()),
        None if schema.contains_key("$ref") => {}
        None => {
            schema.insert("type".into(), "object".into());
        }
    }
    Ok(schema)
}

/// What the grammar asks of a tool's arguments, in one line: the client's schema; of one that is not strict, as much as
/// can be guaranteed. Options of the constraint engine that a client wrote into it are not the client's to set.
///
/// # Errors
/// The parameters are no schema of an object.
pub(crate) fn schema(tool: &Tool) -> Result<String, String> {
    let mut schema = parameters(tool)?;
    let mut options = json!({"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false});
    if !tool.strict {
        options["lenient"] = true.into();
        options["coerce_one_of"] = true.into();
    }
    schema.insert("x-guidance".into(), options);
    Ok(Value::Object(schema).to_string())
}

/// A mark in a rule: a control token by its id, or text.
fn mark(spelling: &str, token: Option<u32>) -> String {
    token.map_or_else(|| literal(spelling), |id| format!("<[{id}]>"))
}

/// A text as a literal of the grammar, which is JSON's.
fn literal(text: &str) -> String {
    let json = Value::from(text).to_string();
    // The grammar's own lexer takes this character raw nowhere in a literal.
    json.replace('\u{7f}', "\\u007f")
}

/// A mark's spelling in a regular expression between slashes.
fn regex(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if !character.is_ascii_alphanumeric() && character != '_' && character != '<' && character != '>' {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
#[path = "grammar_tests.rs"]
mod tests;
