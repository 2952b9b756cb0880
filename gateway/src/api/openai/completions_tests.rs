use zerohop_engine::Form;

use super::*;
use crate::error::ErrorKind;

fn read(body: &str, strict: bool) -> Result<(CompletionRequest, Ignored), ApiError> {
    completions(body.as_bytes(), &mut Scratch::default(), strict)
}

fn text(text: &str) -> Prompt {
    Prompt::Text(text.into())
}

#[test]
fn prompts_have_four_forms() {
    let cases: [(&str, Vec<Prompt>); 7] = [
        (r#""Once""#, vec![text("Once")]),
        (r#""""#, vec![text("")]),
        (r#"["a", ""]"#, vec![text("a"), text("")]),
        ("[7, 0, 4294967295]", vec![Prompt::Tokens(vec![7, 0, u32::MAX])]),
        ("[1.0]", vec![Prompt::Tokens(vec![1])]),
        (
            "[[1], [2, 3]]",
            vec![Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])],
        ),
        (r#"["a", [2]]"#, vec![text("a"), Prompt::Tokens(vec![2])]),
    ];
    for (prompt, want) in cases {
        let body = format!(r#"{{"model": "m", "prompt": {prompt}}}"#);
        let (request, ignored) = read(&body, true).unwrap_or_else(|error| panic!("{prompt}: {error:?}"));
        assert_eq!((request.prompts, ignored.count), (want, 0), "{prompt}");
    }
}

#[test]
fn absent_fields_have_defaults() {
    let (request, _) = read(r#"{"model": "m", "prompt": "a", "suffix": null, "echo": null}"#, true).expect("accepted");
    let want = CompletionRequest {
        model: "m".into(),
        prompts: vec![text("a")],
        temperature: None,
        top_p: None,
        top_k: None,
        seed: None,
        max_tokens: 16,
        stop: Vec::new(),
        echo: false,
        stream: None,
        extras: None,
    };
    assert_eq!((request.choices(), &request), (1, &want));
}

#[test]
fn every_field_is_honoured() {
    let body = r#"{"model": "m", "prompt": "a", "max_tokens": 0, "temperature": 0.5, "top_p": 0.25, "n": 2, "stream": true,
        "stream_options": {"include_usage": true}, "logprobs": 5, "echo": true, "stop": "x", "presence_penalty": 1,
        "frequency_penalty": -1, "best_of": 2, "logit_bias": {"3": -100}, "user": "u", "seed": 4, "suffix": "", "top_k": 3,
        "min_p": 0.5, "repetition_penalty": 1.5, "ignore_eos": true, "stop_token_ids": [9],
        "structured_outputs": {"choice": ["yes", "no"]}}"#;
    let (request, ignored) = read(body, true).expect("accepted");
    let extras = request.extras.as_deref().expect("extras");
    assert_eq!(ignored.count, 0);
    assert_eq!((request.max_tokens, request.echo, request.seed), (0, true, Some(4)));
    assert_eq!(
        (request.temperature, request.top_p, request.top_k),
        (Some(0.5), Some(0.25), Some(3))
    );
    assert_eq!(request.stream, Some(StreamOptions { include_usage: true }));
    assert_eq!(
        (request.stop.as_slice(), request.choices()),
        (["x".to_owned()].as_slice(), 2)
    );
    assert_eq!(
        (extras.logprobs, extras.min_p, extras.repetition_penalty),
        (Some(5), 0.5, 1.5)
    );
    assert_eq!((extras.presence_penalty, extras.frequency_penalty), (1.0, -1.0));
    assert_eq!(
        (extras.logit_bias.as_slice(), extras.stop_tokens.as_slice()),
        ([(3, -100.0)].as_slice(), [9].as_slice())
    );
    assert_eq!(
        (extras.ignore_eos, &extras.form),
        (true, &Form::Choice(vec!["yes".into(), "no".into()]))
    );
}

#[test]
fn faults_have_a_place_and_words() {
    let many = format!("[{}]", vec!["\"a\""; 65].join(","));
    let many = format!(r#""prompt": {many}"#);
    let prompt = r#""prompt": "a""#;
    // What stands behind the model, where the fault is, a part of the message.
    let cases: Vec<(String, &str, &str)> = vec![
        (String::from(r#""n": 1"#), "prompt", "Missing"),
        (String::from(r#""prompt": []"#), "prompt", "not be empty"),
        (String::from(r#""prompt": [[]]"#), "prompt.0", "not be empty"),
        (String::from(r#""prompt": {}"#), "prompt", "a string or an array"),
        (String::from(r#""prompt": [1, "a"]"#), "prompt.1", "an integer"),
        (
            String::from(r#""prompt": ["a", 1]"#),
            "prompt.1",
            "a string or an array",
        ),
        (String::from(r#""prompt": [[1, -1]]"#), "prompt.0.1", "minimum"),
        (String::from(r#""prompt": [1.5]"#), "prompt.0", "decimal"),
        (String::from(r#""prompt": "a\u0000""#), "prompt", "NUL"),
        (many, "prompt", "at most 64 prompts"),
        (format!(r#"{prompt}, {prompt}"#), "prompt", "Duplicate"),
        (format!(r#"{prompt}, "logprobs": 6"#), "logprobs", "maximum"),
        (format!(r#"{prompt}, "logprobs": true"#), "logprobs", "an integer"),
        (format!(r#"{prompt}, "max_tokens": -1"#), "max_tokens", "minimum"),
        (format!(r#"{prompt}, "n": 9"#), "n", "maximum"),
        (format!(r#"{prompt}, "best_of": 2"#), "best_of", "must equal 'n'"),
        (format!(r#"{prompt}, "suffix": "b""#), "suffix", "not supported"),
        (format!(r#"{prompt}, "echo": 1"#), "echo", "boolean"),
        (
            format!(r#"{prompt}, "stream_options": {{}}"#),
            "stream_options",
            "'stream' is true",
        ),
        (
            format!(r#"{prompt}, "messages": []"#),
            "messages",
            "chat completions only",
        ),
        (format!(r#"{prompt}, "tools": []"#), "tools", "chat completions only"),
        (
            format!(r#"{prompt}, "max_completion_tokens": 3"#),
            "max_completion_tokens",
            "chat completions only",
        ),
        (format!(r#"{prompt}, "min_tokens": 17"#), "min_tokens", "above"),
        (
            format!(r#"{prompt}, "structured_outputs": {{"regex": ""}}"#),
            "structured_outputs.regex",
            "empty",
        ),
        (format!(r#"{prompt}, "unheard": 1"#), "unheard", "Unrecognized"),
        (
            String::from(r#""prompt": ["a","b","c","d","e","f","g","h","i"], "n": 8"#),
            "n",
            "at most 64 answers",
        ),
    ];
    for (rest, path, words) in cases {
        let body = format!(r#"{{"model": "m", {rest}}}"#);
        let error = read(&body, true).expect_err(&body);
        assert_eq!(error.kind, ErrorKind::InvalidRequest, "{body}");
        assert_eq!(error.param.as_deref(), Some(path), "{body}");
        assert!(error.message.contains(words), "{body}: {}", error.message);
    }
    let error = read(r#"{"prompt": "a"}"#, false).expect_err("no model");
    assert_eq!(error.param.as_deref(), Some("model"));
    let (_, ignored) = read(r#"{"model": "m", "prompt": "a", "unheard": 1}"#, false).expect("accepted");
    assert_eq!((ignored.count, ignored.first.as_deref()), (1, Some("unheard")));
}
