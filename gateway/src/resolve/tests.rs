//! Resolver to models, for callers that may use all of them or some.

use super::*;
use crate::{
    caller::{Callers, Credentials},
    config::{Access, Backend, KeyDigest, KeySource, ModelPath, ModelSet, Onnx, Provider, Tenant},
    key::{Scope, Secret, Spaces},
};

fn model(id: &str, aliases: &[&str]) -> Model {
    Model {
        id: id.into(),
        aliases: aliases.iter().map(|alias| (*alias).into()).collect(),
        backend: Backend::Onnx(Onnx {
            path: ModelPath::Bundled("tiny"),
            provider: Provider::Auto,
            threads: 1,
            max_batch: 1,
            kv_memory: 1 << 20,
            queue: 1,
        }),
        max_context: None,
        deadline: None,
        version: None,
    }
}

fn caller(models: ModelSet) -> Caller {
    let tenant = Tenant {
        name: "a".into(),
        source: KeySource::Env("KEYS".into()),
        keys: vec![KeyDigest::of(b"key")],
        models,
    };
    let spaces = Spaces {
        secret: Secret::new([0; 32]),
        scope: Scope::Tenant,
    };
    let credentials = Credentials {
        x_api_key: Some(b"key"),
        authorization: None,
    };
    Callers::new(&Access::Tenants(vec![tenant]), [7; 32], &spaces)
        .admit(credentials)
        .expect("the key is good")
}

#[test]
fn names_mean_one_model_or_an_error() {
    let resolver = Resolver::of(&[model("a", &["x", "y"]), model("org/b", &[]), model("é", &["A"])]);
    let all = caller(ModelSet::All);
    let some = caller(ModelSet::Only([1].into()));
    let check = |name: &str, caller: &Caller, wanted: Result<usize, (ErrorKind, &str)>| {
        let found = resolver.resolve(name, caller).map(ModelIndex::get);
        let wanted = wanted.map_err(|(kind, message)| ApiError::new(kind, message.to_owned()).at("model"));
        assert_eq!(found, wanted, "{name:?}");
    };
    check("a", &all, Ok(0));
    check("x", &all, Ok(0));
    check("y", &all, Ok(0));
    check("org/b", &all, Ok(1));
    check("org/b", &some, Ok(1));
    check("é", &all, Ok(2));
    check("A", &all, Ok(2));
    check("B", &all, Err((ErrorKind::ModelNotFound, "model: B")));
    check("", &all, Err((ErrorKind::ModelNotFound, "model: ")));
    check("a ", &all, Err((ErrorKind::ModelNotFound, "model: a ")));
    check(
        "x",
        &some,
        Err((ErrorKind::Permission, "this key does not open model: x")),
    );
    check("z", &some, Err((ErrorKind::ModelNotFound, "model: z")));
    let long = "é".repeat(300);
    let cut = format!("model: {}…", "é".repeat(256));
    check(&long, &all, Err((ErrorKind::ModelNotFound, &cut)));
}

#[test]
fn a_caller_sees_what_it_may_use() {
    let resolver = Resolver::of(&[model("a", &["x"]), model("b", &[]), model("c", &[])]);
    let check = |models: ModelSet, wanted: &[(usize, &str)]| {
        let caller = caller(models);
        let seen: Vec<(usize, &str)> = resolver.visible(&caller).map(|(index, id)| (index.get(), id)).collect();
        assert_eq!(seen, wanted);
    };
    check(ModelSet::All, &[(0, "a"), (1, "b"), (2, "c")]);
    check(ModelSet::Only([0, 2].into()), &[(0, "a"), (2, "c")]);
}
