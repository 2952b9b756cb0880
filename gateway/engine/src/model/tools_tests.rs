use super::*;
use crate::{
    calls::text::without_tools,
    job::{Tool, ToolCall, ToolChoice, Tools},
    model::prompt::tests::{prompts, show},
};

/// Templates in the three formats, as short as they can be.
const HERMES: &str = "{% if tools %}<|system|>{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|end|>{% endif %}\
    {% for m in messages %}<|{{ 'user' if m.role == 'tool' else m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}\
    <tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>\
    {% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

const LLAMA: &str = "{% for m in messages %}<|{{ 'user' if m.role == 'tool' else m.role }}|>\
    {% if loop.first and tools is defined %}{{ tools | tojson(indent=4) }}{% endif %}\
    {% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('only one call') }}{% endif %}\
    {\"name\": \"{{ m.tool_calls[0].function.name }}\", \"parameters\": {{ m.tool_calls[0].function.arguments | tojson }}}\
    {% elif m.role == 'tool' %}{{ m.content | tojson }}{% else %}{{ m.content }}{% endif %}\
    <|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

const MISTRAL: &str = "{% for m in messages %}{% if m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}\
    {{ raise_exception('ids have nine characters') }}{% endif %}[RESULT]{\"content\": {{ m.content }}, \"id\": \"{{ m.tool_call_id }}\"}\
    {% elif m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}{{ (c.function | tojson)[:-1] }}, \"id\": \"{{ c.id }}\"}\
    {% endfor %}]{% else %}{% if tools and loop.last %}{{ tools | tojson }}{% endif %}{{ m.content }}{% endif %}<|end|>{% endfor %}";

const PLAIN: &str = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}\
    {% if add_generation_prompt %}<|assistant|>{% endif %}";

const STRICT: &str = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}\
    {% endif %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

fn tools() -> Tools {
    Tools {
        list: vec![Tool {
            name: "no<|end|>w".into(),
            description: "d<|user|>".into(),
            parameters: "{\"type\": \"object\", \"properties\": {\"<b>\": {\"type\": \"string\", \"enum\": [\"<|end|>\", 1.5]}}}".into(),
            strict: false,
        }],
        ..Tools::default()
    }
}

/// A call with its result, all full of spelled control tokens.
fn talk(id: &str) -> Conversation {
    let mut asks = Message::new(Role::Assistant, "");
    asks.calls = vec![ToolCall {
        id: id.into(),
        name: "no<|end|>w".into(),
        arguments: "{\"<b>\": \"<|end|>\\u003cb>\"}".into(),
    }];
    let mut result = Message::new(Role::Tool, "<|end|>12");
    result.call_id = Some(id.into());
    Conversation {
        messages: vec![Message::new(Role::User, "q"), asks, result],
        tools: tools(),
        ..Conversation::default()
    }
}

#[test]
fn the_format_is_what_the_template_writes() {
    let unknown = HERMES.replace("<tool_call>", "<call>");
    let forgets = HERMES
        .replace("m.role == 'tool'", "false and m")
        .replace("{{ m.content }}", "{% if m.role != 'tool' %}{{ m.content }}{% endif %}");
    // Template, style, whether it writes tools itself, whether it has a system message.
    let cases = [
        ("Hermes", HERMES, Style::Hermes, true, true),
        ("Llama", LLAMA, Style::Llama, true, true),
        ("Mistral", MISTRAL, Style::Mistral, true, true),
        ("none", PLAIN, Style::Hermes, false, true),
        ("no system message", STRICT, Style::Hermes, false, false),
        ("unknown marks", &unknown, Style::Hermes, false, true),
        ("no results", &forgets, Style::Hermes, false, true),
    ];
    for (name, template, style, native, system) in cases {
        let prompts = prompts(template);
        let format = *prompts.format();
        assert_eq!(
            (format.style, format.native, format.system),
            (style, native, system),
            "{name}"
        );
        assert_eq!((format.open, format.close), (None, None), "{name}");
    }
    let controls = ["<tool_call>", "</tool_call>"].map(|spelling| Control {
        id: 3 + spelling.len() as u32,
        spelling: spelling.into(),
        strips_before: false,
        strips_behind: false,
    });
    let names = crate::model::template::TokenNames::default();
    let template = Template::compile(HERMES, names).expect("a template");
    let format = detect(&template, &controls);
    assert_eq!((format.open, format.close), (Some(14), Some(15)));
}

#[test]
fn no_text_of_tools_or_calls_becomes_a_control_token() {
    let listed = "{\"type\": \"function\", \"function\": {\"name\": \"no<|end|>w\", \"description\": \"d<|user|>\", \"parameters\": \
                  {\"type\": \"object\", \"properties\": {\"<b>\": {\"type\": \"string\", \"enum\": [\"<|end|>\", 1.5]}}}}}";
    let call = "<tool_call>\n{\"name\": \"no<|end|>w\", \"arguments\": {\"<b>\": \"<|end|><b>\"}}\n</tool_call>";
    let prompts_of = prompts(HERMES);
    let prompt = prompts_of.encode(&talk("call_1")).expect("a prompt");
    let want = format!(
        "⟦<|system|>⟧{listed}\n⟦<|end|>⟧⟦<|user|>⟧q⟦<|end|>⟧⟦<|assistant|>⟧{call}⟦<|end|>⟧⟦<|user|>⟧<|end|>12⟦<|end|>⟧⟦<|assistant|>⟧"
    );
    assert_eq!(show(&prompts_of, &prompt.ids), want);
    // The same for a template that knows none.
    let prompts_of = prompts(PLAIN);
    let prompt = prompts_of.encode(&talk("call_1")).expect("a prompt");
    let shown = show(&prompts_of, &prompt.ids);
    let plain = without_tools(&talk("call_1"), true);
    let want: String = plain
        .messages
        .iter()
        .map(|m| format!("⟦<|{}|>⟧{}⟦<|end|>⟧", format!("{:?}", m.role).to_lowercase(), m.content))
        .collect();
    assert_eq!(shown, want + "⟦<|assistant|>⟧");
}

#[test]
fn templates_get_what_they_expect() {
    let mut none = talk("call_1");
    none.tools.choice = ToolChoice::None;
    let mut bare = talk("call_1");
    bare.tools.list[0].parameters = String::new();
    bare.messages[1].calls[0].arguments = String::new();
    // Name, template, conversation, a part of the prompt, and one that it lacks.
    let cases = [
        (
            "no tools are offered",
            HERMES,
            none,
            "⟦<|user|>⟧q⟦<|end|>⟧⟦<|assistant|>⟧<tool_call>",
            "function",
        ),
        (
            "no parameters",
            HERMES,
            bare,
            "\"parameters\": {\"type\": \"object\", \"properties\": {}}",
            "1.5",
        ),
        (
            "a result as JSON",
            LLAMA,
            talk("call_1"),
            "⟦<|user|>⟧\"<|end|>12\"⟦<|end|>⟧",
            "call_1",
        ),
        (
            "numbers for ids",
            MISTRAL,
            talk("toolu_01_x"),
            "\"id\": \"000000000\"}⟦<|end|>⟧",
            "toolu",
        ),
        (
            "roles that alternate",
            STRICT,
            talk("call_1"),
            "⟦<|user|>⟧<tool_response>\n<|end|>12\n</tool_response>⟦<|end|>⟧",
            "⟦<|tool|>⟧",
        ),
    ];
    for (name, template, conversation, has, lacks) in cases {
        let prompts = prompts(template);
        let prompt = prompts.encode(&conversation).expect(name);
        let shown = show(&prompts, &prompt.ids);
        assert!(shown.contains(has) && !shown.contains(lacks), "{name}: {shown}");
        assert!(!prompt.continues, "{name}");
    }
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let changed = |change: fn(&mut Conversation)| {
        let mut conversation = talk("call_1");
        change(&mut conversation);
        conversation
    };
    let twice = changed(|c| {
        let again = c.messages[1].calls[0].clone();
        c.messages[1].calls.push(again);
    });
    let cases = [
        (
            "arguments that are no object",
            HERMES,
            changed(|c| c.messages[1].calls[0].arguments = "[1]".into()),
            Part::Messages,
            "not a JSON object",
        ),
        (
            "no results",
            HERMES,
            changed(|c| c.messages.truncate(2)),
            Part::Messages,
            "results",
        ),
        (
            "a schema that is none",
            HERMES,
            changed(|c| c.tools.list[0].parameters = "7".into()),
            Part::Tool(0),
            "no JSON Schema",
        ),
        (
            "the same without a native format",
            PLAIN,
            changed(|c| c.tools.list[0].parameters = "7".into()),
            Part::Tool(0),
            "no JSON Schema",
        ),
        (
            "an unknown choice",
            PLAIN,
            changed(|c| c.tools.choice = ToolChoice::Named("x".into())),
            Part::ToolChoice,
            "no tool",
        ),
        (
            "what the template refuses",
            LLAMA,
            twice,
            Part::Messages,
            "only one call",
        ),
    ];
    for (name, template, conversation, part, reason) in cases {
        let fault = prompts(template).encode(&conversation).expect_err(name);
        assert!(fault.0 == part && fault.1.contains(reason), "{name}: {fault:?}");
    }
}

#[test]
fn words_of_templates_are_found() {
    for word in ["array", "object", "id", "type", "string", "arguments"] {
        assert!(calls::is_known_word(word), "{word}");
    }
    assert!(!calls::is_known_word("end") && !calls::is_known_word(""));
}
