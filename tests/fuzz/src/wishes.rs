//! Tools, calls, forms and the numbers that few requests have: what an accepted body's document says of them.
//!
//! Nothing here refuses a body. Invariant: schemas and arguments are compared as documents; that they are the body's own
//! bytes is seen where they are spelled anew.

use zerohop::api::{ChatRequest, CountRequest, Extras, embeddings::EmbedRequest, openai::CompletionRequest};
use zerohop_engine::{Conversation, Form, Message, Role, Tool, ToolCall, ToolChoice};

use crate::{
    json::{Json, respelled},
    same,
};

/// A request whose texts of JSON are all spelled in one way.
pub(crate) trait Plain {
    fn plain(&mut self);
}

impl Plain for ChatRequest {
    fn plain(&mut self) {
        self.conversation.plain();
        if let Some(extras) = &mut self.extras {
            extras.plain();
        }
    }
}

impl Plain for CompletionRequest {
    fn plain(&mut self) {
        if let Some(extras) = &mut self.extras {
            extras.plain();
        }
    }
}

/// It has no such texts.
impl Plain for EmbedRequest {
    fn plain(&mut self) {}
}

impl Plain for Extras {
    fn plain(&mut self) {
        if let Form::Schema(schema) = &mut self.form {
            *schema = spelled(schema);
        }
    }
}

impl Plain for CountRequest {
    fn plain(&mut self) {
        self.conversation.plain();
    }
}

impl Plain for Conversation {
    fn plain(&mut self) {
        for tool in &mut self.tools.list {
            tool.parameters = spelled(&tool.parameters);
        }
        for call in self.messages.iter_mut().flat_map(|message| &mut message.calls) {
            call.arguments = spelled(&call.arguments);
        }
    }
}

fn spelled(text: &str) -> String {
    respelled(&document(text))
}

fn document(text: &str) -> Json {
    Json::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn text(json: &Json, name: &str) -> String {
    json.get(name).and_then(Json::text).unwrap_or_default().to_owned()
}

fn items<'j>(json: &'j Json, name: &str) -> &'j [Json] {
    json.get(name).and_then(Json::list).unwrap_or_default()
}

/// The tools of a body are those of the request, less those that may not be called.
pub(crate) fn tools(ours: &Conversation, json: &Json, anthropic: bool, data: &[u8]) {
    let list = items(json, "tools");
    let choice = json.get("tool_choice");
    let allowed = choice.filter(|choice| text(choice, "type") == "allowed_tools");
    let allowed = allowed.and_then(|choice| choice.get("allowed_tools")).map(|allowed| {
        let tools = items(allowed, "tools").iter();
        let names = tools.filter_map(|tool| Some(text(tool.get("function")?, "name")));
        names.collect::<Vec<_>>()
    });
    let wanted = list.iter().map(|tool| {
        let function = if anthropic {
            tool
        } else {
            tool.get("function").unwrap_or(tool)
        };
        let schema = function.get(if anthropic { "input_schema" } else { "parameters" });
        let default = || document(r#"{"type":"object","properties":{}}"#);
        let schema = schema.cloned().unwrap_or_else(default);
        let strict = function.get("strict").is_some_and(Json::is_true);
        (text(function, "name"), text(function, "description"), schema, strict)
    });
    let wanted: Vec<_> = wanted
        .filter(|(name, ..)| allowed.as_ref().is_none_or(|allowed| allowed.contains(name)))
        .collect();
    let found = |tool: &Tool| {
        let schema = document(&tool.parameters);
        (tool.name.clone(), tool.description.clone(), schema, tool.strict)
    };
    same(
        "tools",
        &ours.tools.list.iter().map(found).collect::<Vec<_>>(),
        &wanted,
        data,
    );
    if list.is_empty() {
        return;
    }
    let wanted = choice.map_or(ToolChoice::Auto, chosen);
    same("choice", &ours.tools.choice, &wanted, data);
    let one = |choice: &Json| choice.get("disable_parallel_tool_use").is_some_and(Json::is_true);
    let single = match anthropic {
        true => choice.is_some_and(|choice| text(choice, "type") != "none" && one(choice)),
        false => json.get("parallel_tool_calls") == Some(&Json::Bool(false)),
    };
    same("parallel", &ours.tools.parallel, &!single, data);
}

fn chosen(choice: &Json) -> ToolChoice {
    let kind = choice.text().or_else(|| choice.get("type").and_then(Json::text));
    match kind {
        Some("none") => ToolChoice::None,
        Some("any" | "required") => ToolChoice::Required,
        Some("tool") => ToolChoice::Named(text(choice, "name")),
        Some("function") => ToolChoice::Named(choice.get("function").map_or_else(String::new, |it| text(it, "name"))),
        Some("allowed_tools") => match choice.get("allowed_tools") {
            Some(allowed) if text(allowed, "mode") == "required" => ToolChoice::Required,
            _ => ToolChoice::Auto,
        },
        _ => ToolChoice::Auto,
    }
}

/// Calls as the messages of either API have them, with arguments as documents.
pub(crate) fn calls(message: &Json, anthropic: bool) -> Vec<(String, String, Json)> {
    let own = items(message, if anthropic { "" } else { "tool_calls" })
        .iter()
        .filter_map(|call| {
            let function = call.get("function")?;
            let arguments = match function.get("arguments").and_then(Json::text) {
                None | Some("") => "{}",
                Some(arguments) => arguments,
            };
            Some((text(call, "id"), text(function, "name"), document(arguments)))
        });
    let blocks = items(message, "content").iter().filter_map(|block| {
        let input = block.get("input").filter(|_| text(block, "type") == "tool_use")?;
        Some((text(block, "id"), text(block, "name"), input.clone()))
    });
    own.chain(blocks).collect()
}

/// Those of a message of ours.
pub(crate) fn calls_of(message: &Message) -> Vec<(String, String, Json)> {
    let call = |call: &ToolCall| (call.id.clone(), call.name.clone(), document(&call.arguments));
    message.calls.iter().map(call).collect()
}

/// What a block of the Messages API says of the result of a call: its id and its text.
pub(crate) fn result(block: &Json) -> Option<(String, String)> {
    (text(block, "type") == "tool_result").then_some(())?;
    let content = match block.get("content") {
        None => String::new(),
        Some(Json::Text(content)) => content.clone(),
        Some(content) => {
            let blocks = content.list().unwrap_or_default().iter();
            blocks.map(|block| text(block, "text")).collect::<Vec<_>>().join("\n")
        }
    };
    let failed = block.get("is_error").is_some_and(Json::is_true);
    let before = if failed { "Error: " } else { "" };
    Some((text(block, "tool_use_id"), format!("{before}{content}")))
}

/// The id that a message of the Chat Completions API answers.
pub(crate) fn answered(message: &Json) -> Option<String> {
    (text(message, "role") == "tool").then(|| text(message, "tool_call_id"))
}

/// The form that a body of the Messages API gives.
pub(crate) fn format(request: &ChatRequest, json: &Json, data: &[u8]) {
    let format = json.get("output_config").and_then(|config| config.get("format"));
    let schema = format
        .or_else(|| json.get("output_format"))
        .and_then(|format| format.get("schema"));
    let ours = request.extras.as_deref().map(|extras| match &extras.form {
        Form::Schema(schema) => document(schema),
        other => panic!("the form {other:?}"),
    });
    same("form", &ours.as_ref(), &schema, data);
}

/// Everything of a body of the Chat Completions API that is no tool.
pub(crate) fn extras(request: &ChatRequest, json: &Json, data: &[u8]) {
    let default = Extras::default();
    let ours = request.extras.as_deref().unwrap_or(&default);
    #[expect(clippy::cast_possible_truncation, reason = "as the product reads it")]
    let number = |name: &str, default: f32| {
        json.get(name)
            .and_then(Json::float)
            .map_or(default, |value| value as f32)
    };
    for (name, ours, default) in [
        ("min_p", ours.min_p, 0.0),
        ("repetition_penalty", ours.repetition_penalty, 1.0),
        ("frequency_penalty", ours.frequency_penalty, 0.0),
        ("presence_penalty", ours.presence_penalty, 0.0),
    ] {
        same(name, &ours, &number(name, default), data);
    }
    same(
        "n",
        &f64::from(ours.choices),
        &json.get("n").and_then(Json::float).unwrap_or(1.0),
        data,
    );
    let told = json.get("logprobs").is_some_and(Json::is_true);
    let top = json.get("top_logprobs").and_then(Json::float).unwrap_or(0.0);
    same("logprobs", &ours.logprobs.map(f64::from), &told.then_some(top), data);
    same(
        "ignore_eos",
        &ours.ignore_eos,
        &json.get("ignore_eos").is_some_and(Json::is_true),
        data,
    );
    let ids = items(json, "stop_token_ids").iter().filter_map(Json::float);
    let stops = ours.stop_tokens.iter().copied().map(f64::from);
    same(
        "stop_token_ids",
        &stops.collect::<Vec<_>>(),
        &ids.collect::<Vec<_>>(),
        data,
    );
    form(ours, json, data);
}

/// At most one field gives a form.
fn form(ours: &Extras, json: &Json, data: &[u8]) {
    let at = |path: &str| path.split('.').try_fold(json, |json, name| json.get(name));
    let kind = at("response_format.type").and_then(Json::text).unwrap_or_default();
    let (found, place) = match &ours.form {
        Form::Free => {
            same("form", &(kind.is_empty() || kind == "text"), &true, data);
            return;
        }
        Form::Object => {
            let given = kind == "json_object" || at("structured_outputs.json_object").is_some_and(Json::is_true);
            same("form", &given, &true, data);
            return;
        }
        Form::Schema(schema) => (document(schema), at(ours.places.form)),
        Form::Regex(text) | Form::Grammar(text) => (Json::Text(text.clone()), at(ours.places.form)),
        Form::Choice(texts) => (
            Json::List(texts.iter().cloned().map(Json::Text).collect()),
            at(ours.places.form),
        ),
    };
    let wanted = match (place, &ours.form) {
        // A schema as text in a string.
        (Some(Json::Text(text)), Form::Schema(_)) => Some(document(text)),
        (place, _) => place.cloned(),
    };
    same("form", &Some(found), &wanted, data);
}

/// Whether a role of the product is what a body calls it.
pub(crate) fn role(message: &Json) -> Role {
    match message.get("role").and_then(Json::text) {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        _ => Role::System,
    }
}
