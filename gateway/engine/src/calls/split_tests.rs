use super::*;

const OPEN: u32 = 7;

/// What comes out for `pieces`, with neighbours of one kind joined, as a line each.
fn split<'a>(style: Style, pieces: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut splitter = Splitter::new(style, Some(OPEN), vec!["now".into(), "we\"é".into()]);
    let mut out = Vec::new();
    for piece in pieces {
        splitter.push(piece, &mut out);
    }
    splitter.finish(&mut out);
    let mut lines: Vec<String> = Vec::new();
    let mut last = None;
    for piece in out {
        let (kind, text) = match piece {
            Piece::Text(text) => ('t', text),
            Piece::Call(name) => ('c', name),
            Piece::Arguments(text) => ('a', text),
        };
        assert!(!text.is_empty(), "empty pieces say nothing");
        match lines.last_mut() {
            Some(line) if last == Some(kind) && kind != 'c' => line.push_str(&text),
            _ => lines.push(format!("{kind} {text}")),
        }
        last = Some(kind);
    }
    assert_eq!(
        splitter.calls() as usize,
        lines.iter().filter(|line| line.starts_with('c')).count()
    );
    lines
}

type Case = (Style, &'static str, &'static [&'static str]);

const CASES: [Case; 34] = [
    (Style::Hermes, "", &[]),
    (Style::Hermes, "Just text. ", &["t Just text. "]),
    (Style::Hermes, " \n", &["t  \n"]),
    (Style::Hermes, "a <tool_cal", &["t a <tool_cal"]),
    (Style::Hermes, "a <tool_call> b", &["t a <tool_call> b"]),
    (
        Style::Hermes,
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
        &["c now", "a {}"],
    ),
    (
        Style::Hermes,
        "Wait.\n\n<tool_call>{\"name\":\"now\",\"arguments\":{\"a\": \"}\\\"]\", \"b\": [{}, 1]}}</tool_call>\n",
        &["t Wait.", "c now", "a {\"a\": \"}\\\"]\", \"b\": [{}, 1]}"],
    ),
    (
        Style::Hermes,
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"we\\\"\\u00e9\", \"arguments\": {\"x\": 1}}\n</tool_call>",
        &["c now", "a {}", "c we\"é", "a {\"x\": 1}"],
    ),
    (
        Style::Hermes,
        "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call> Then text <b>",
        &["c now", "a {}", "t  Then text <b>"],
    ),
    // Not held to the grammar.
    (
        Style::Hermes,
        "<tool_call>{\"name\": \"now\", \"arguments\": {}}",
        &["c now", "a {}"],
    ),
    (
        Style::Hermes,
        "<tool_call>{\"name\": \"now\"}</tool_call>x",
        &["c now", "a {}", "t x"],
    ),
    (
        Style::Hermes,
        "<tool_call>{\"name\": \"now\", \"arguments\": {}, \"id\": \"}\"}</tool_call>",
        &["c now", "a {}"],
    ),
    (
        Style::Hermes,
        "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>",
        &["t <tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>"],
    ),
    (
        Style::Hermes,
        "<tool_call> <tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
        &["t <tool_call>", "c now", "a {}"],
    ),
    // Cut short.
    (Style::Hermes, "x <tool_call>\n{\"na", &["t x <tool_call>\n{\"na"]),
    (Style::Hermes, "x <tool_call>\n{\"name\": \"now\"", &["t x", "c now"]),
    (
        Style::Hermes,
        "x <tool_call>\n{\"name\": \"now\", \"argu",
        &["t x", "c now"],
    ),
    (
        Style::Hermes,
        "x <tool_call>\n{\"name\": \"now\", \"arguments\": {\"a",
        &["t x", "c now", "a {\"a"],
    ),
    (
        Style::Hermes,
        "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_c",
        &["c now", "a {}"],
    ),
    (
        Style::Llama,
        "{\"name\": \"now\", \"parameters\": {\"a\": {}}}",
        &["c now", "a {\"a\": {}}"],
    ),
    (
        Style::Llama,
        " <|python_tag|>{\"name\": \"now\", \"parameters\": {}}\n",
        &["c now", "a {}"],
    ),
    (Style::Llama, "<|python_tag|>print(1)", &["t <|python_tag|>print(1)"]),
    (Style::Llama, "{\"city\": \"Rome\"}", &["t {\"city\": \"Rome\"}"]),
    (Style::Llama, "{\"name\": \"Rome\"}", &["t {\"name\": \"Rome\"}"]),
    (
        Style::Llama,
        "So: {\"name\": \"now\", \"parameters\": {}}",
        &["t So: {\"name\": \"now\", \"parameters\": {}}"],
    ),
    (Style::Llama, " ", &["t  "]),
    (
        Style::Mistral,
        "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]",
        &["c now", "a {}"],
    ),
    (
        Style::Mistral,
        "Hm [TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": {\"b\": []}}]",
        &["t Hm", "c now", "a {}", "c now", "a {\"b\": []}"],
    ),
    (Style::Mistral, "[TOOL_CALLS][]", &["t [TOOL_CALLS][]"]),
    (Style::Mistral, "[TOOL_CALLS][", &["t [TOOL_CALLS]["]),
    (Style::Mistral, "[TOOL_CALLS] ", &["t [TOOL_CALLS] "]),
    (
        Style::Mistral,
        "[TOOL_CALLS]{\"name\": \"now\", \"arguments\": {}}",
        &["c now", "a {}"],
    ),
    (
        Style::Mistral,
        "[{\"name\": \"now\", \"arguments\": {}}]",
        &["t [{\"name\": \"now\", \"arguments\": {}}]"],
    ),
    (
        Style::Mistral,
        "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"x\"}]",
        &["c now", "a {}", "t  {\"name\": \"x\"}]"],
    ),
];

#[test]
fn text_and_calls_come_apart() {
    for (style, text, want) in CASES {
        assert_eq!(split(style, [text]), want, "{style:?} {text:?}");
    }
}

#[test]
fn every_cut_gives_the_same() {
    for (style, text, want) in CASES {
        let mut buffer = [0; 4];
        let characters: Vec<String> = text.chars().map(|c| c.encode_utf8(&mut buffer).to_owned()).collect();
        assert_eq!(
            split(style, characters.iter().map(String::as_str)),
            want,
            "{style:?} {text:?}"
        );
        for (at, _) in text.char_indices() {
            assert_eq!(
                split(style, [&text[..at], &text[at..]]),
                want,
                "{style:?} {text:?} at {at}"
            );
        }
    }
}

#[test]
fn a_name_is_told_when_it_is_complete() {
    let mut splitter = Splitter::new(Style::Hermes, None, vec!["now".into()]);
    let mut out = Vec::new();
    splitter.push("Hi <tool_call>\n{\"name\": \"now", &mut out);
    assert_eq!(out, [Piece::Text("Hi".into())]);
    splitter.push("\"", &mut out);
    assert_eq!(out.last(), Some(&Piece::Call("now".into())));
    splitter.push(", \"arguments\": {\"a", &mut out);
    assert_eq!(out.last(), Some(&Piece::Arguments("{\"a".into())));
}

#[test]
fn only_the_marks_token_is_spelled() {
    let splitter = Splitter::new(Style::Mistral, Some(OPEN), Vec::new());
    assert_eq!(
        (splitter.spelling(OPEN), splitter.spelling(8)),
        (Some("[TOOL_CALLS]"), None)
    );
    assert_eq!(Splitter::new(Style::Mistral, None, Vec::new()).spelling(0), None);
}

proptest::proptest! {
    /// Whatever comes, in whatever pieces, the same comes out; and what stands around calls of real tools is kept.
    #[test]
    fn cuts_do_not_matter(
        style in proptest::sample::select(vec![Style::Hermes, Style::Llama, Style::Mistral]),
        words in proptest::collection::vec(proptest::sample::select(vec![
            "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "{", "}", "[", "]", ",", " ", "\n", "\"name\": ",
            "\"now\"", "\"x\"", "\"arguments\": ", "\"parameters\": ", "é", "<to", "\\", "\"", "{\"name\": \"now\", \"arguments\": {}}",
        ]), 0..14),
        cuts in proptest::collection::vec(0_usize..200, 0..8),
    ) {
        let text = words.concat();
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&at| text.is_char_boundary(at) && at <= text.len()).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]);
        let whole = split(style, [text.as_str()]);
        proptest::prop_assert_eq!(&split(style, pieces), &whole);
        if !whole.iter().any(|line| line.starts_with('c')) {
            let kept: String = whole.iter().map(|line| &line[2..]).collect();
            proptest::prop_assert_eq!(kept, text);
        }
    }

    /// The arguments of a call come out byte for byte, whatever JSON object they are.
    #[test]
    fn arguments_are_json(value in json_object(), cut in 0_usize..300) {
        let arguments = value.to_string();
        let text = format!("<tool_call>\n{{\"name\": \"now\", \"arguments\": {arguments}}}\n</tool_call>");
        let cut = (0..=cut.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let want = vec!["c now".to_owned(), format!("a {arguments}")];
        proptest::prop_assert_eq!(split(Style::Hermes, [&text[..cut], &text[cut..]]), want);
    }
}

/// Objects of strings, numbers and each other.
fn json_object() -> impl proptest::strategy::Strategy<Value = serde_json::Value> {
    use proptest::prelude::{Strategy, any};
    use serde_json::Value;
    let leaf = proptest::prop_oneof![
        any::<String>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ];
    let inner = leaf.prop_recursive(3, 16, 4, |inner| {
        proptest::prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map(any::<String>(), inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    });
    proptest::collection::hash_map(any::<String>(), inner, 0..4).prop_map(|map| map.into_iter().collect())
}
