//! Tables of requests, directives, endings and times, each with what becomes of them.

use proptest::prelude::*;

use super::*;
use crate::api::{Scratch, openai};

fn keeping(policy: Policy) -> Keeping {
    Keeping {
        policy,
        tools: false,
        ttl: None,
    }
}

fn request(more: &str) -> ChatRequest {
    let body = format!(r#"{{"model": "m", "messages": [{{"role": "user", "content": "Hi"}}]{more}}}"#);
    let read = openai::chat(body.as_bytes(), &mut Scratch::default(), false);
    read.unwrap_or_else(|error| panic!("{error:?}: {body}")).0
}

fn said(text: &str) -> CacheControl {
    let mut said = CacheControl::default();
    said.add(text.as_bytes());
    said
}

#[test]
fn which_requests_are_covered() {
    // With the policy `deterministic`, with `all`.
    for (more, wanted) in [
        ("", (false, true)),
        (r#", "temperature": 0"#, (true, true)),
        (r#", "temperature": 0.0, "stream": true"#, (true, true)),
        (r#", "temperature": 0.1"#, (false, true)),
        (r#", "temperature": null"#, (false, true)),
        (r#", "seed": 0"#, (true, true)),
        (r#", "seed": 7, "temperature": 2"#, (true, true)),
        (r#", "top_k": 1"#, (false, true)),
        (r#", "temperature": 0, "n": 1"#, (true, true)),
        (r#", "temperature": 0, "n": 2"#, (false, false)),
        (r#", "temperature": 0, "logprobs": true"#, (false, false)),
        (
            r#", "temperature": 0, "logprobs": true, "top_logprobs": 0"#,
            (false, false),
        ),
        (r#", "temperature": 0, "logprobs": false"#, (true, true)),
        (
            r#", "temperature": 0, "tools": [{"type": "function", "function": {"name": "f"}}]"#,
            (true, true),
        ),
        (
            r#", "temperature": 0, "response_format": {"type": "json_object"}"#,
            (true, true),
        ),
        (r#", "temperature": 0, "max_tokens": 1"#, (true, true)),
    ] {
        let request = request(more);
        let plans = [Policy::Off, Policy::Deterministic, Policy::All]
            .map(|policy| keeping(policy).plan(&request, CacheControl::default()));
        let plan = |is| Plan {
            look_up: Some(Age::Any).filter(|_| is),
            store: is,
            only_stored: false,
        };
        assert_eq!(plans, [plan(false), plan(wanted.0), plan(wanted.1)], "{more}");
    }
}

#[test]
fn what_a_client_says_holds() {
    let (any, none) = (Some(Age::Any), None);
    for (text, look_up, store, only_stored) in [
        ("", any, true, false),
        ("no-store", any, false, false),
        ("no-cache", none, true, false),
        ("no-store, no-cache", none, false, false),
        ("max-age=0", none, true, false),
        ("max-age=60", Some(Age::AtMost(60)), true, false),
        ("max-age=60, no-cache", none, true, false),
        ("only-if-cached", any, true, true),
        ("only-if-cached, no-cache", none, true, true),
        ("only-if-cached, max-age=5", Some(Age::AtMost(5)), true, true),
        ("max-stale=100, public", any, true, false),
    ] {
        let plan = Plan {
            look_up,
            store,
            only_stored,
        };
        let greedy = request(r#", "temperature": 0"#);
        assert_eq!(keeping(Policy::Deterministic).plan(&greedy, said(text)), plan, "{text}");
        // No word of a client opens what the policy closes, and a stored answer or none stays just that.
        let closed = Plan {
            look_up: None,
            store: false,
            only_stored,
        };
        for keeping in [keeping(Policy::Off), keeping(Policy::Deterministic)] {
            assert_eq!(keeping.plan(&request(""), said(text)), closed, "{text}");
        }
    }
}

#[test]
fn which_endings_are_kept() {
    let plain = keeping(Policy::All);
    let tools = Keeping { tools: true, ..plain };
    for (finish, wanted, with_tools) in [
        (Finish::EndOfTurn, Some(FinishReason::Stop), Some(FinishReason::Stop)),
        (
            Finish::Stop("END".into()),
            Some(FinishReason::StopSequence),
            Some(FinishReason::StopSequence),
        ),
        (
            Finish::StopToken(7),
            Some(FinishReason::StopSequence),
            Some(FinishReason::StopSequence),
        ),
        (Finish::ToolCalls, None, Some(FinishReason::Tools)),
        (Finish::MaxTokens, None, None),
        (Finish::ContextFull, None, None),
    ] {
        assert_eq!(plain.keeps(&finish, 100), wanted, "{finish:?}");
        assert_eq!(tools.keeps(&finish, MAX_BYTES), with_tools, "{finish:?}");
        assert_eq!(tools.keeps(&finish, MAX_BYTES + 1), None, "{finish:?}");
    }
}

#[test]
fn ends_are_spread() {
    let of = |ttl: Option<u64>, created, draw| {
        let ttl = ttl.map(Duration::from_secs);
        Keeping {
            ttl,
            ..keeping(Policy::All)
        }
        .expires(created, draw)
    };
    for (ttl, created, draw, wanted) in [
        (None, 1_000, 0.5, NEVER),
        (Some(100), 1_000, 0.0, 1_090),
        (Some(100), 1_000, 0.5, 1_100),
        (Some(100), 1_000, 1.0, 1_110),
        (Some(1), 1_000, 0.0, 1_001),
        (Some(100), NEVER - 10, 0.5, NEVER - 1),
        (Some(u64::MAX), 1_000, 0.5, NEVER - 1),
    ] {
        assert_eq!(of(ttl, created, draw), wanted, "{ttl:?} {created} {draw}");
    }
}

#[test]
fn how_good_an_answer_is() {
    use Freshness::{Fresh, Gone, RefreshEarly, StaleIfError, StaleWhileRevalidate};
    // Made at 1000, good until 1100: `now`, how long it took, the draw.
    for (now, took, draw, wanted) in [
        (1_000, 2_000, 0.5, Fresh),
        (1_099, 2_000, 0.9, Fresh),
        // -2 s · ln 0.5 = 1.39 s.
        (1_099, 2_000, 0.5, RefreshEarly),
        (1_098, 2_000, 0.5, Fresh),
        // -2 s · ln 0.01 = 9.2 s.
        (1_091, 2_000, 0.01, RefreshEarly),
        (1_090, 2_000, 0.01, Fresh),
        (1_099, 0, 0.000_001, Fresh),
        (1_099, 2_000, 1.0, Fresh),
        (1_100, 2_000, 1.0, StaleWhileRevalidate),
        (1_109, 0, 0.5, StaleWhileRevalidate),
        (1_110, 0, 0.5, StaleIfError),
        (1_199, 0, 0.5, StaleIfError),
        (1_200, 0, 0.5, Gone),
        (NEVER, 0, 0.5, Gone),
        // A clock that was set back.
        (900, 0, 0.5, Fresh),
    ] {
        assert_eq!(freshness(1_000, 1_100, now, took, draw), wanted, "{now} {took} {draw}");
    }
    assert_eq!(freshness(1_000, NEVER, NEVER - 1, 60_000, 0.000_001), Fresh);
    // A day's answer: a minute beside a new one, a day for want of one.
    let day = 24 * 3600;
    for (after, wanted) in [
        (0, StaleWhileRevalidate),
        (59, StaleWhileRevalidate),
        (60, StaleIfError),
        (day - 1, StaleIfError),
        (day, Gone),
    ] {
        assert_eq!(freshness(0, day, day + after, 0, 0.5), wanted, "{after}");
    }
    // An end before the beginning is no reason to give it.
    assert_eq!(freshness(1_000, 900, 950, 0, 0.5), Gone);
}

#[test]
fn an_age_is_kept_to() {
    use Freshness::{Fresh, Gone, RefreshEarly, StaleIfError, StaleWhileRevalidate};
    for (age, freshness, wanted) in [
        (Age::Any, Fresh, Fresh),
        (Age::Any, StaleWhileRevalidate, StaleWhileRevalidate),
        (Age::AtMost(50), Fresh, Fresh),
        (Age::AtMost(50), RefreshEarly, RefreshEarly),
        (Age::AtMost(49), Fresh, Gone),
        (Age::AtMost(50), StaleWhileRevalidate, Gone),
        (Age::AtMost(u32::MAX), StaleIfError, Gone),
        (Age::AtMost(1), Gone, Gone),
    ] {
        assert_eq!(age.allows(freshness, 1_000, 1_050), wanted, "{age:?} {freshness:?}");
    }
    assert_eq!(
        Age::AtMost(1).allows(Fresh, 1_000, 900),
        Fresh,
        "a clock that was set back"
    );
}

proptest! {
    #[test]
    fn renewing_early_takes_as_long_as_making(took in 1..20_000_u32, seed: u64) {
        // Of many draws at a time before the end that is as long as making took, 1/e renew: about 37 %.
        let left = Seconds::from(took.div_ceil(1000));
        let mut state = seed | 1;
        let early = (0..2_000).filter(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let draw = ((state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
            freshness(0, 1_000, 1_000 - left, took, draw) == Freshness::RefreshEarly
        });
        let share = early.count() as f64 / 2_000.0;
        let wanted = (-f64::from(left) * 1000.0 / f64::from(took)).exp();
        prop_assert!((share - wanted).abs() < 0.08, "{share} instead of {wanted}");
    }

    #[test]
    fn no_word_loosens(words in "[ -~]{0,40}", temperature in 0..2_u8, policy in 0..3_u8) {
        let policy = [Policy::Off, Policy::Deterministic, Policy::All][usize::from(policy)];
        let request = request(&format!(r#", "temperature": {temperature}"#));
        let (open, told) = (keeping(policy).plan(&request, CacheControl::default()), keeping(policy).plan(&request, said(&words)));
        prop_assert!(told.store <= open.store);
        prop_assert!(told.look_up.is_none() || open.look_up.is_some());
    }
}
