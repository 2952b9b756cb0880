//! The models' documents to the byte, and every way to ask for a page.

use super::*;

fn card(id: &str) -> ModelCard {
    ModelCard {
        id: id.into(),
        display_name: format!("Model {id}"),
        created: 1_700_000_000,
        context: 2048,
    }
}

#[test]
fn documents() {
    let one = r#"{"id":"a/\"b\"","object":"model","created":1700000000,"owned_by":"zerohop","type":"model","display_name":"Model a/\"b\"","created_at":"2023-11-14T22:13:20Z","lifecycle":"active","max_input_tokens":2048,"max_tokens":2048,"max_model_len":2048,"capabilities":null,"line":null,"deprecated_at":null,"retires_at":null}"#;
    let mut out = Vec::new();
    write_model(&card("a/\"b\""), &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), one);
    for (models, wanted) in [
        (
            vec![],
            r#"{"object":"list","data":[],"has_more":false,"first_id":null,"last_id":null}"#.to_owned(),
        ),
        (
            vec![card("a/\"b\""), card("a/\"b\"")],
            format!(
                r#"{{"object":"list","data":[{one},{one}],"has_more":false,"first_id":"a/\"b\"","last_id":"a/\"b\""}}"#
            ),
        ),
    ] {
        let mut out = Vec::new();
        write_list(&models, &Page::default(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}

/// This query to a list of models 1 to `count` gives the models `from` to `to`, and whether there are more.
fn check(count: u32, query: &str, dialect: Dialect, from: u32, to: u32, more: bool) {
    let models: Vec<_> = (1..=count).map(|id| card(&id.to_string())).collect();
    let page = Page::parse(query, dialect).unwrap();
    let (part, has_more) = page.of(&models).unwrap();
    let ids: Vec<_> = part.iter().map(|model| model.id.clone()).collect();
    let wanted: Vec<_> = (from..=to).map(|id| id.to_string()).collect();
    assert_eq!((ids, has_more), (wanted, more), "{query}");
}

#[test]
fn pages() {
    use Dialect::{Anthropic, OpenAi};
    check(30, "", Anthropic, 1, 20, true);
    check(30, "", OpenAi, 1, 30, false);
    check(20, "", Anthropic, 1, 20, false);
    check(30, "limit=1000", Anthropic, 1, 30, false);
    check(30, "limit=7", OpenAi, 1, 7, true);
    check(30, "limit=5&after_id=10", Anthropic, 11, 15, true);
    check(30, "after_id=10", Anthropic, 11, 30, false);
    check(30, "after_id=30", Anthropic, 1, 0, false);
    check(30, "before_id=10&limit=5", Anthropic, 5, 9, true);
    check(30, "before_id=5", Anthropic, 1, 4, false);
    check(30, "before_id=1", Anthropic, 1, 0, false);
    check(30, "beta=true&lifecycle%5B%5D=active&limit=2", Anthropic, 1, 2, true);
    check(30, "after_id=%31%30&limit=1", Anthropic, 11, 11, true);
}

#[test]
fn queries_that_are_wrong() {
    for (query, param, message) in [
        (
            "limit=0",
            "limit",
            "limit: Input should be a valid integer between 1 and 1000",
        ),
        (
            "limit=1001",
            "limit",
            "limit: Input should be a valid integer between 1 and 1000",
        ),
        (
            "limit=-1",
            "limit",
            "limit: Input should be a valid integer between 1 and 1000",
        ),
        (
            "limit=x",
            "limit",
            "limit: Input should be a valid integer between 1 and 1000",
        ),
        (
            "limit",
            "limit",
            "limit: Input should be a valid integer between 1 and 1000",
        ),
        (
            "after_id=1&before_id=2",
            "after_id",
            "after_id: only one of after_id and before_id is allowed",
        ),
    ] {
        let error = Page::parse(query, Dialect::Anthropic).unwrap_err();
        assert_eq!(
            (error.status(), error.param.as_deref(), &*error.message),
            (400, Some(param), message)
        );
    }
    for (query, param) in [("after_id=nobody", "after_id"), ("before_id=nobody", "before_id")] {
        let mut out = Vec::new();
        let page = Page::parse(query, Dialect::Anthropic).unwrap();
        let error = write_list(&[card("a")], &page, &mut out).unwrap_err();
        assert_eq!(
            (error.status(), error.param.as_deref(), out.len()),
            (400, Some(param), 0)
        );
    }
}

#[test]
fn decoding() {
    for (value, wanted) in [
        ("", ""),
        ("plain", "plain"),
        ("a%2Fb%2fc", "a/b/c"),
        ("%E2%82%AC", "€"),
        ("100%", "100%"),
        ("%4", "%4"),
        ("%zz%41", "%zzA"),
        ("%+1", "%+1"),
        ("%ff", "%ff"),
        ("ä%20ö", "ä ö"),
    ] {
        assert_eq!(decode(value), wanted);
    }
}
