//! The vendors' own client libraries against the built gateway.
//!
//! Nothing here knows what they test: the suites lie in tests/sdk. Invariant: their packages are pinned by lock files and
//! installed under the target folder; the gateways they talk to are gone at the end.

use std::process::Command;

use serde_json::json;
use zerohop_tests::gateway::Gateway;

use super::{Context, count::Counts};
use crate::{failure::Outcome, harness, npm, python, shell};

/// The key that the gateway with a tenant takes.
const KEY: &str = "sk-zerohop-sdk-suite";

/// Gateways for a suite: an open one, one that asks for a key, and one whose queue is soon full.
struct Gateways {
    open: Gateway,
    keyed: Gateway,
    busy: Gateway,
}

impl Gateways {
    fn start(context: &Context) -> Self {
        let settings = harness::settings(context.place, &context.library);
        let keyed = settings
            .clone()
            .with("/tenants", json!([{"name": "suite", "keys_env": "SUITE_KEYS"}]));
        let busy = settings
            .clone()
            .with("/models/0/backend/onnx/max_batch", 1)
            .with("/models/0/backend/onnx/queue", 1);
        Self {
            open: Gateway::start(&settings.with_encoder()),
            keyed: Gateway::start(&keyed.environment("SUITE_KEYS", KEY)),
            busy: Gateway::start(&busy),
        }
    }

    fn tell(&self, command: &mut Command) {
        let url = |gateway: &Gateway| format!("http://{}", gateway.address());
        command
            .env("ZEROHOP_URL", url(&self.open))
            .env("ZEROHOP_URL_KEYED", url(&self.keyed))
            .env("ZEROHOP_URL_BUSY", url(&self.busy))
            .env("ZEROHOP_KEY", KEY);
    }
}

/// The Python packages, by pytest.
pub(super) fn python(context: &Context, counts: &mut Counts) -> Outcome {
    let suite = context.place.root.join("tests/sdk/python");
    let python = python::environment(context.place, "sdk", &suite.join("requirements.txt"))?;
    let mut pytest = Command::new(python);
    pytest
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-rs"])
        .arg(&suite);
    pytest.env("PYTHONDONTWRITEBYTECODE", "1");
    suite_against_gateways(context, counts, &mut pytest)
}

/// The npm packages, by node's own test runner.
pub(super) fn node(context: &Context, counts: &mut Counts) -> Outcome {
    let suite = npm::install(context.place, "tests/sdk/node", "sdk-node", "sdk.test.mjs")?;
    let mut node = Command::new("node");
    node.arg("--test")
        .arg("--test-reporter=spec")
        .arg(suite.join("sdk.test.mjs"));
    suite_against_gateways(context, counts, &mut node)
}

fn suite_against_gateways(context: &Context, counts: &mut Counts, suite: &mut Command) -> Outcome {
    let gateways = harness::guarded(|| Ok(Gateways::start(context)))?;
    gateways.tell(context.environment(suite));
    // Nothing of the user's own set-up may reach the clients.
    for name in [
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
    ] {
        suite.env_remove(name);
    }
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        suite.env_remove(name);
    }
    let status = shell::lines(suite, |line| {
        counts.line(line);
        true
    })?;
    counts.verdict(shell::success(suite, status))
}
