//! Keys in headers: who is let in, and that nothing shown holds a key.

use super::*;
use crate::{
    config::{KeySource, Tenant},
    key::{Scope, Secret},
};

const SALT: [u8; 32] = [42; 32];

fn tenant(name: &str, keys: &[&str], models: ModelSet) -> Tenant {
    Tenant {
        name: name.into(),
        source: KeySource::Env("KEYS".into()),
        keys: keys.iter().map(|key| KeyDigest::of(key.as_bytes())).collect(),
        models,
    }
}

fn two() -> Access {
    Access::Tenants(vec![
        tenant("a", &["sk-one", "sk-two"], ModelSet::All),
        tenant("b", &["sk-three"], ModelSet::Only([1].into())),
    ])
}

fn spaces(scope: Scope) -> Spaces {
    Spaces {
        secret: Secret::new([1; 32]),
        scope,
    }
}

fn credentials<'a>(authorization: Option<&'a str>, x_api_key: Option<&'a str>) -> Credentials<'a> {
    Credentials {
        authorization: authorization.map(str::as_bytes),
        x_api_key: x_api_key.map(str::as_bytes),
    }
}

#[test]
fn a_key_in_either_header_says_who_asks() {
    const DIFFERENT: &str = "two different API keys, in `x-api-key` and in `authorization`: send one of them";
    const NO_BEARER: &str =
        "`authorization` holds no bearer key: send `authorization: Bearer KEY`, or `x-api-key: KEY`";
    let long = "x".repeat(5_000);
    let callers = Callers::new(&two(), SALT, &spaces(Scope::Tenant));
    for (authorization, x_api_key, wanted) in [
        (Some("Bearer sk-one"), None, Ok("a")),
        (Some("bearer  sk-two "), None, Ok("a")),
        (Some("BEARER\tsk-three"), None, Ok("b")),
        (None, Some("sk-one"), Ok("a")),
        (None, Some(" sk-three\t"), Ok("b")),
        (Some("Bearer sk-one"), Some("sk-one"), Ok("a")),
        (Some("Basic dXNlcjpwYXNz"), Some("sk-one"), Ok("a")),
        (Some("Bearer sk-one"), Some(""), Ok("a")),
        (Some("Bearer sk-one"), Some("sk-two"), Err(DIFFERENT)),
        (Some("Bearer sk-one"), Some("wrong"), Err(DIFFERENT)),
        (Some("Bearer wrong"), None, Err(INVALID)),
        (None, Some("sk-on"), Err(INVALID)),
        (None, Some("sk-one1"), Err(INVALID)),
        (None, Some("SK-ONE"), Err(INVALID)),
        (None, Some(long.as_str()), Err(INVALID)),
        (Some("Basic dXNlcjpwYXNz"), None, Err(NO_BEARER)),
        (Some("Bearer"), None, Err(NO_BEARER)),
        (Some("Bearersk-one"), None, Err(NO_BEARER)),
        (Some("sk-one"), None, Err(NO_BEARER)),
        (Some(""), Some(""), Err(NONE)),
        (None, None, Err(NONE)),
    ] {
        let found = callers.admit(credentials(authorization, x_api_key));
        let found = found.map(|caller| caller.tenant().map(ToString::to_string));
        let wanted = wanted
            .map(|name| Some(name.to_owned()))
            .map_err(|message| ApiError::new(ErrorKind::Authentication, message));
        assert_eq!(found, wanted, "{authorization:?} {x_api_key:?}");
    }
}

#[test]
fn bytes_that_are_no_text_are_no_key() {
    let callers = Callers::new(&two(), SALT, &spaces(Scope::Tenant));
    let credentials = Credentials {
        authorization: Some(b"Bearer \xff\x00"),
        x_api_key: None,
    };
    assert_eq!(callers.admit(credentials).unwrap_err().message, INVALID);
}

#[test]
fn where_no_key_is_needed_any_will_do() {
    let callers = Callers::new(&Access::Anonymous { explicit: false }, SALT, &spaces(Scope::Tenant));
    for (authorization, x_api_key) in [
        (None, None),
        (Some("Bearer anything"), None),
        (Some("Basic x"), Some("y")),
        (Some("Bearer x"), Some("y")),
    ] {
        let caller = callers.admit(credentials(authorization, x_api_key)).expect("anyone");
        assert_eq!(caller.tenant(), None);
        assert_eq!(caller.models, ModelSet::All);
    }
}

#[test]
fn among_many_keys_each_finds_its_own() {
    let keys: Vec<String> = (0..3_000).map(|n| format!("sk-{n}")).collect();
    let tenants = keys.chunks(3).enumerate().map(|(n, keys)| {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        tenant(&n.to_string(), &keys, ModelSet::All)
    });
    for salt in [SALT, [0; 32], [255; 32]] {
        let callers = Callers::new(
            &Access::Tenants(tenants.clone().collect()),
            salt,
            &spaces(Scope::Tenant),
        );
        for (n, key) in keys.iter().enumerate() {
            let caller = callers.admit(credentials(None, Some(key))).expect("a good key");
            assert_eq!(caller.tenant().map(|name| &**name), Some((n / 3).to_string().as_str()));
        }
        for n in 3_000..6_000 {
            assert!(callers.admit(credentials(None, Some(&format!("sk-{n}")))).is_err());
        }
    }
}

#[test]
fn nothing_that_is_shown_holds_a_key() {
    let callers = Callers::new(&two(), SALT, &spaces(Scope::Tenant));
    let shown = format!("{:?} {:?}", callers, credentials(Some("Bearer sk-one"), Some("sk-two")));
    assert!(!shown.contains("sk-"), "{shown}");
    assert!(!shown.contains("42"), "{shown}");
    let refused = callers.admit(credentials(None, Some("sk-secret"))).unwrap_err();
    assert!(!format!("{refused:?}").contains("secret"));
}

#[test]
fn answers_are_shared_as_the_scope_says() {
    let space = |scope, access: &Access, key: Option<&str>| {
        let caller = Callers::new(access, SALT, &spaces(scope)).admit(credentials(None, key));
        *caller.expect("a good key").space()
    };
    let keys = ["sk-one", "sk-two", "sk-three"];
    // Which of the three share, by the first that they share with.
    for (scope, wanted) in [
        (Scope::Key, [0, 1, 2]),
        (Scope::Tenant, [0, 0, 2]),
        (Scope::Public, [0, 0, 0]),
    ] {
        let of = keys.map(|key| space(scope, &two(), Some(key)));
        let firsts = of.map(|one| of.iter().position(|other| *other == one).expect("itself"));
        assert_eq!(firsts, wanted, "{scope:?}");
        // Another process and its salt find the same ones; a reload with fewer tenants too.
        let again = Callers::new(&two(), [0; 32], &spaces(scope)).admit(credentials(None, Some("sk-three")));
        assert_eq!(again.expect("a good key").space(), &of[2]);
        let fewer = Access::Tenants(vec![tenant("b", &["sk-three"], ModelSet::All)]);
        assert_eq!(space(scope, &fewer, Some("sk-three")), of[2]);
    }
    let anyone = Access::Anonymous { explicit: true };
    let open = space(Scope::Tenant, &anyone, None);
    assert_eq!(
        space(Scope::Tenant, &anyone, Some("sk-one")),
        open,
        "keys are not looked at"
    );
    assert_ne!(open, space(Scope::Tenant, &two(), Some("sk-one")));
}
