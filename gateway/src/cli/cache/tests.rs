//! Lines of the protocol, and what is refused before a gateway is asked.

use super::*;

fn chosen() -> Entries {
    Entries {
        key: None,
        model: None,
        tenant: None,
        space: None,
        prefix: None,
        prefix_of: None,
        all: false,
    }
}

fn here(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn a_choice_is_one_field() {
    let table = [
        (chosen(), r#"{"command":"c","all":true}"#),
        (Entries { all: true, ..chosen() }, r#"{"command":"c","all":true}"#),
        (
            Entries {
                key: here("0\""),
                ..chosen()
            },
            r#"{"command":"c","key":"0\""}"#,
        ),
        (
            Entries {
                space: here("7"),
                ..chosen()
            },
            r#"{"command":"c","space":"7"}"#,
        ),
    ];
    for (which, wanted) in table {
        let line = request("c", &which).map(|line| line.to_string());
        assert_eq!(line, Ok(wanted.to_owned()));
    }
}

#[test]
fn the_prefix_of_a_request_is_the_same_in_both_apis() {
    let path = std::env::temp_dir().join(format!("zerohop-prefix-{}.json", std::process::id()));
    let mut found = Vec::new();
    for body in [
        r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"Hello!"}]}"#,
        r#"{"model":"other","messages":[{"content":"Hello!","role":"user"}],"stop":["x"]}"#,
        r#"{"path":"/v1/messages","body":{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"Hello!"}]}}"#,
        r#"{"body":{"model":"m","messages":[]}}"#,
    ] {
        std::fs::write(&path, body).expect("a file");
        found.push(prefix_of(&path));
    }
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
    assert!(found[0].as_ref().is_ok_and(|prefix| prefix.len() == 32));
    assert!(matches!(found[3], Err(Failure::Start(_))), "{:?}", found[3]);
}

#[test]
fn a_gateway_that_is_not_there_is_told_with_its_path() {
    let at = At {
        socket: Some("no/such.sock".into()),
        config: None,
    };
    let failure = change(&at, "cache.purge", &chosen());
    let Err(Failure::Start(why)) = failure else {
        panic!("{failure:?}")
    };
    assert!(why.contains("no/such.sock") && why.contains("is it running"), "{why}");
}
