use std::sync::{Arc, LazyLock};

use llguidance::{Matcher, ParserFactory, api::TopLevelGrammar};
use toktrie::ApproximateTokEnv;

use super::*;
use crate::calls::form;

/// Every byte is a token; the token 256 is a control token.
const OPEN: u32 = 256;
const CLOSE: u32 = 257;

fn format(style: Style, token: bool) -> Format {
    Format {
        style,
        native: true,
        system: true,
        open: token.then_some(OPEN),
        close: (token && style == Style::Hermes).then_some(CLOSE),
    }
}

fn tool(name: &str, parameters: &str, strict: bool) -> Tool {
    Tool {
        name: name.into(),
        description: String::new(),
        parameters: parameters.into(),
        strict,
    }
}

const CITY: &str =
    r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}"#;

fn tools(choice: ToolChoice, parallel: bool) -> Tools {
    Tools {
        list: vec![tool("weather", CITY, true), tool("now", "", false)],
        choice,
        parallel,
    }
}

/// `⟦` and `⟧` in a text stand for the control tokens.
fn tokens(text: &str) -> Vec<u32> {
    let mut tokens = Vec::new();
    for character in text.chars() {
        match character {
            '⟦' => tokens.push(OPEN),
            '⟧' => tokens.push(CLOSE),
            _ => tokens.extend(character.to_string().bytes().map(u32::from)),
        }
    }
    tokens
}

/// Whether the grammar takes the whole text as an answer.
fn accepts(lark: &str, text: &str) -> bool {
    static FACTORY: LazyLock<Arc<ParserFactory>> = LazyLock::new(|| {
        let mut factory = ParserFactory::new_simple(&ApproximateTokEnv::single_byte_env()).expect("a factory");
        factory.quiet();
        Arc::new(factory)
    });
    let parser = FACTORY.create_parser(TopLevelGrammar::from_lark(lark.into()));
    let mut matcher = Matcher::new(parser);
    assert!(!matcher.is_error(), "{:?} in {lark}", matcher.get_error());
    let tokens = tokens(text);
    let taken = matcher.try_consume_tokens(&tokens).expect("a working matcher");
    taken == tokens.len() && matcher.is_accepting().expect("a working matcher")
}

/// One call of `weather`, in Hermes form.
const W: &str = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";
/// One call of `now`.
const N: &str = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

#[test]
fn hermes_allows_what_the_choice_says() {
    let named = || ToolChoice::Named("now".into());
    // Choice, several calls, text, whether it is an answer.
    let cases: Vec<(ToolChoice, bool, String, bool)> = vec![
        (ToolChoice::Auto, true, String::new(), true),
        (ToolChoice::Auto, true, "It is < warm > {\"name\": 1}\n".into(), true),
        (ToolChoice::Auto, true, "<tool_cal>".into(), true),
        (ToolChoice::Auto, true, W.into(), true),
        (ToolChoice::Auto, true, format!("Let me see.\n{W}\n{N}"), true),
        (ToolChoice::Auto, true, format!("{W} and"), false),
        (ToolChoice::Auto, true, "a <tool_call> b".into(), false),
        (ToolChoice::Auto, true, "a <tool_call>".into(), false),
        (ToolChoice::Auto, false, format!("x{W}"), true),
        (ToolChoice::Auto, false, format!("{W}\n{W}"), false),
        (ToolChoice::Required, true, W.into(), true),
        (ToolChoice::Required, true, format!("{N}\n{W}\n{N}"), true),
        (ToolChoice::Required, true, format!("x{W}"), false),
        (ToolChoice::Required, true, "x".into(), false),
        (ToolChoice::Required, true, String::new(), false),
        (ToolChoice::Required, false, format!("{N}\n{W}"), false),
        (named(), true, N.into(), true),
        (named(), true, W.into(), false),
        (named(), true, format!("{N}\n{N}"), false),
        (ToolChoice::Auto, true, W.replace("weather", "whether"), false),
        (ToolChoice::Auto, true, W.replace("city", "town"), false),
        (ToolChoice::Auto, true, W.replace("\"Rome\"", "7"), false),
        (ToolChoice::Auto, true, W.replace("}}", ", \"x\": 1}}"), false),
        (
            ToolChoice::Auto,
            true,
            N.replace("{}", "{\"any\": [1, \"thing\"]}"),
            true,
        ),
        (ToolChoice::Auto, true, N.replace("{}", "7"), false),
    ];
    for (choice, parallel, text, want) in cases {
        let tools = tools(choice, parallel);
        let Ok(Some(Form::Grammar(lark))) = form(&tools, &format(Style::Hermes, false), &Form::Free) else {
            panic!("a grammar")
        };
        assert_eq!(accepts(&lark, &text), want, "{:?} {parallel} {text:?}", tools.choice);
        // The same with marks that are control tokens.
        let Ok(Some(Form::Grammar(lark))) = form(&tools, &format(Style::Hermes, true), &Form::Free) else {
            panic!("a grammar")
        };
        let text = text.replace("</tool_call>", "⟧");
        assert!(
            !accepts(&lark, &text) || !text.contains("<tool_call>"),
            "spelled out: {text:?}"
        );
        let marked = text.replace("<tool_call>", "⟦");
        assert_eq!(
            accepts(&lark, &marked),
            want,
            "{:?} {parallel} {marked:?}",
            tools.choice
        );
    }
}

#[test]
fn each_style_has_its_own_form() {
    use Style::{Llama, Mistral};
    let auto = || tools(ToolChoice::Auto, true);
    let one = || tools(ToolChoice::Required, false);
    // Style, marks are tokens, tools, text, whether it is an answer.
    let cases: Vec<(Style, bool, Tools, &str, bool)> = vec![
        (Llama, true, auto(), "{\"name\": \"now\", \"parameters\": {}}", true),
        (
            Llama,
            true,
            auto(),
            "⟦{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}",
            true,
        ),
        (Llama, true, auto(), "{\"name\": \"now\", \"arguments\": {}}", false),
        (
            Llama,
            true,
            auto(),
            "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {}}",
            false,
        ),
        (Llama, true, auto(), "{\"city\": \"Rome\"}", true),
        (Llama, true, auto(), "{\"name\": \"Rome\"}", false),
        (Llama, true, auto(), "Rome, {\"name\": \"Rome\"}", true),
        (Llama, true, auto(), "<|python_tag|>print()", false),
        (Llama, true, auto(), "⟦print()", false),
        (
            Llama,
            false,
            auto(),
            "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}",
            true,
        ),
        (Llama, true, one(), "Rome", false),
        (Llama, true, one(), "{\"name\": \"now\", \"parameters\": {}}", true),
        (Mistral, true, auto(), "⟦[{\"name\": \"now\", \"arguments\": {}}]", true),
        (
            Mistral,
            true,
            auto(),
            "Well: ⟦[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": {}}]",
            true,
        ),
        (Mistral, true, auto(), "⟦[]", false),
        (Mistral, true, auto(), "[{\"name\": \"now\", \"arguments\": {}}]", true),
        (Mistral, true, auto(), "[TOOL_CALLS]", false),
        (
            Mistral,
            false,
            auto(),
            "a [TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": {}}]",
            true,
        ),
        (Mistral, false, auto(), "a [TOOL_CALLS] b", false),
        (
            Mistral,
            true,
            one(),
            "⟦[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": {}}]",
            false,
        ),
        (Mistral, true, one(), "⟦[{\"name\": \"now\", \"arguments\": {}}]", true),
    ];
    for (style, token, tools, text, want) in cases {
        let Ok(Some(Form::Grammar(lark))) = form(&tools, &format(style, token), &Form::Free) else {
            panic!("a grammar")
        };
        assert_eq!(accepts(&lark, text), want, "{style:?} {text:?}\n{lark}");
    }
}

#[test]
fn the_text_of_an_answer_keeps_its_form() {
    let schema =
        r#"{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}"#;
    let choice = Form::Choice(vec!["yes".into(), "no \"way\"\n".into()]);
    let cases: Vec<(Form, &str, bool)> = vec![
        (Form::Object, "{\"b\":1}", true),
        (Form::Object, "free", false),
        (Form::Object, W, true),
        (Form::Schema(schema.into()), "{\"a\":1}", true),
        (Form::Schema(schema.into()), "{\"a\": 1}", false),
        (Form::Schema(schema.into()), "{\"b\":1}", false),
        (Form::Schema(schema.into()), W, true),
        (choice.clone(), "no \"way\"\n", true),
        (choice.clone(), "maybe", false),
        (choice, N, true),
    ];
    for (text_form, text, want) in cases {
        let tools = tools(ToolChoice::Auto, true);
        let Ok(Some(Form::Grammar(lark))) = form(&tools, &format(Style::Hermes, false), &text_form) else {
            panic!("a grammar")
        };
        assert_eq!(accepts(&lark, text), want, "{text_form:?} {text:?}\n{lark}");
    }
    for refused in [
        Form::Regex("a+".into()),
        Form::Grammar("start: \"a\"".into()),
        Form::Schema("{".into()),
    ] {
        let fault = form(&tools(ToolChoice::Auto, true), &format(Style::Hermes, false), &refused);
        assert!(matches!(fault, Err((Part::Form, _))), "{fault:?}");
        // A call that must be made leaves no room for text, and so for no form of it.
        let must = form(
            &tools(ToolChoice::Required, true),
            &format(Style::Hermes, false),
            &refused,
        );
        assert!(matches!(must, Ok(Some(_))), "{must:?}");
    }
}

#[test]
fn names_and_schemas_are_data() {
    let odd = "a\"b\\c\n%json\u{7f}é";
    let mut one = tools(ToolChoice::Required, true);
    one.list = vec![tool(
        odd,
        "{\"properties\": {\"x\": {\"enum\": [\"\\nstart: \\\"y\\\"\"]}},\n \"x-guidance\": {\"lenient\": 7}}",
        true,
    )];
    let Ok(Some(Form::Grammar(lark))) = form(&one, &format(Style::Hermes, false), &Form::Free) else {
        panic!("a grammar")
    };
    let name = Value::from(odd).to_string();
    let call =
        format!("<tool_call>\n{{\"name\": {name}, \"arguments\": {{\"x\": \"\\nstart: \\\"y\\\"\"}}}}\n</tool_call>");
    assert!(accepts(&lark, &call), "{call}\n{lark}");
}

#[test]
fn what_is_no_tool_is_refused() {
    let list = |parameters: &str| vec![tool("a", "", false), tool("b", parameters, false)];
    // Tools, choice, what is at fault.
    let cases: Vec<(Vec<Tool>, ToolChoice, Option<Part>)> = vec![
        (list("{}"), ToolChoice::Auto, None),
        (list("null"), ToolChoice::Auto, None),
        (list("true"), ToolChoice::Named("b".into()), None),
        (list("{\"anyOf\": []}"), ToolChoice::None, None),
        (list("{\"$ref\": \"#/$defs/x\"}"), ToolChoice::Auto, None),
        (list("{"), ToolChoice::Auto, Some(Part::Tool(1))),
        (list("[]"), ToolChoice::Auto, Some(Part::Tool(1))),
        (list("{\"type\": \"string\"}"), ToolChoice::Auto, Some(Part::Tool(1))),
        (list("{\"type\": [\"object\"]}"), ToolChoice::Auto, Some(Part::Tool(1))),
        (
            vec![tool("a", "", false), tool("a", "", false)],
            ToolChoice::Auto,
            Some(Part::Tool(1)),
        ),
        (vec![tool("", "", false)], ToolChoice::Auto, Some(Part::Tool(0))),
        (list(""), ToolChoice::Named("c".into()), Some(Part::ToolChoice)),
        (Vec::new(), ToolChoice::Required, Some(Part::ToolChoice)),
        (Vec::new(), ToolChoice::Auto, None),
    ];
    for (list, choice, want) in cases {
        let tools = Tools {
            list,
            choice,
            parallel: true,
        };
        let got = crate::calls::check(&tools).err().map(|(part, _)| part);
        assert_eq!(got, want, "{tools:?}");
    }
    let none = Tools {
        list: list(""),
        choice: ToolChoice::None,
        parallel: true,
    };
    for tools in [none, Tools::default()] {
        assert_eq!(form(&tools, &format(Style::Hermes, false), &Form::Object), Ok(None));
    }
}

#[test]
fn only_a_lenient_tool_may_have_what_cannot_be_guaranteed() {
    let unusual = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"array\", \"uniqueItems\": true}}}";
    for (strict, want) in [(true, false), (false, true)] {
        let tools = Tools {
            list: vec![tool("a", unusual, strict)],
            ..Tools::default()
        };
        let Ok(Some(Form::Grammar(lark))) = form(&tools, &format(Style::Hermes, false), &Form::Free) else {
            panic!("a grammar")
        };
        let mut factory = ParserFactory::new_simple(&ApproximateTokEnv::single_byte_env()).expect("a factory");
        factory.quiet();
        let compiled = factory.create_parser(TopLevelGrammar::from_lark(lark));
        assert_eq!(compiled.is_ok(), want, "strict {strict}");
    }
}
