//! Answers under rules, drawn at random from the masks: nothing leaves a rule's set while it binds.

use super::*;
use crate::{
    job::{Conversation, Form, Message, Prompt, Role},
    mask::{Guide, Masks, Strictness},
    model::tests::byte_prompts,
};

/// `<|end|>` of the byte vocabulary.
const END: u32 = 256;

fn rule(trigger: &str, allow: Allow) -> Rule {
    Rule {
        name: trigger.into(),
        trigger: trigger.into(),
        when: When::Ends,
        allow,
        max_tokens: None,
        until: None,
    }
}

fn numbers(from: u64, to: u64) -> Allow {
    Allow::Texts(vec![TextSet::Numbers { from, to }])
}

fn class(class: TextClass) -> Allow {
    Allow::Texts(vec![TextSet::Class(class)])
}

struct Bench {
    masks: Masks,
    counts: Counts,
}

impl Bench {
    fn new() -> Self {
        let prompts = Arc::new(byte_prompts());
        Self {
            masks: Masks::new(&prompts, &[END]).expect("a small vocabulary"),
            counts: Counts::default(),
        }
    }

    fn set(&self, rules: Vec<Rule>) -> Arc<RuleSet> {
        let set = RuleSet::new(&RuleFile { rules }, &self.masks, &self.counts);
        Arc::new(set.unwrap_or_else(|error| panic!("{error}")))
    }

    fn fired(&self, name: &str) -> u64 {
        let counts = self.counts.snapshot();
        counts
            .iter()
            .find(|(of, _)| &**of == name)
            .map_or(0, |(_, count)| *count)
    }

    /// The token of a byte.
    fn id(&self, byte: u8) -> u32 {
        let text = self.masks.prompts.vocabulary().text();
        (0..END)
            .find(|&id| text.get(id) == [byte])
            .expect("every byte is a token")
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        self.masks.prompts.vocabulary().text().get(id).to_vec()
    }
}

fn said(role: Role, text: &str) -> Prompt {
    Prompt::Chat(Conversation::from(vec![Message::new(role, text)]))
}

/// The tokens that may come next; `None`: every one.
fn next(guide: &mut Guide) -> Option<Vec<u32>> {
    guide.compute();
    assert_eq!(guide.fault(), None);
    let bits = |(index, word): (usize, &u32)| {
        let word = *word;
        (0..32u32)
            .filter(move |bit| word >> bit & 1 == 1)
            .map(move |bit| index as u32 * 32 + bit)
    };
    guide
        .mask()
        .map(|mask| mask.iter().enumerate().flat_map(bits).collect())
}

fn random(state: &mut u64, bound: usize) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize % bound
}

/// What is drawn while the rule binds, at most `most` tokens, and whether the answer ended.
fn drawn(bench: &Bench, guide: &mut Guide, seed: u64, most: usize) -> (String, bool) {
    let (mut state, mut bytes) = (seed, Vec::new());
    for _ in 0..most {
        let Some(tokens) = next(guide) else { break };
        let token = tokens[random(&mut state, tokens.len())];
        if token == END {
            return (String::from_utf8_lossy(&bytes).into_owned(), true);
        }
        bytes.extend(bench.bytes(token));
        guide.commit(token, &bench.bytes(token));
    }
    (String::from_utf8_lossy(&bytes).into_owned(), false)
}

#[test]
fn behind_a_trigger_only_the_set_is_drawn() {
    let bench = Bench::new();
    type Fits = fn(&str) -> bool;
    let cases: [(Rule, Fits); 9] = [
        (rule("age:", numbers(0, 120)), |text| {
            // One blank, the number, and the byte that ended it.
            let value = text.strip_prefix(' ').unwrap_or(text);
            let end = value
                .bytes()
                .position(|byte| !byte.is_ascii_digit())
                .unwrap_or(value.len());
            value[..end].parse::<u64>().is_ok_and(|age| age <= 120) && (end == 1 || !value.starts_with('0'))
        }),
        (
            Rule {
                max_tokens: Some(4),
                ..rule("phone:", class(TextClass::Digits))
            },
            |text| text.len() <= 4 && text.trim_start_matches(' ').bytes().all(|byte| byte.is_ascii_digit()),
        ),
        (
            Rule {
                until: Some("\n.".into()),
                ..rule("hex:", class(TextClass::Hex))
            },
            |text| {
                let value = text.strip_suffix("\n.").unwrap_or(text);
                value
                    .trim_start_matches(' ')
                    .bytes()
                    .all(|byte| byte.is_ascii_hexdigit())
            },
        ),
        (
            rule(
                "word:",
                Allow::Texts(vec![
                    TextSet::Literal("a+b".into()),
                    TextSet::Numbers { from: 7, to: 9 },
                ]),
            ),
            |text| {
                let value = text.strip_prefix(' ').unwrap_or(text);
                value == "a+b" || (value.starts_with(['7', '8', '9']) && value.chars().count() <= 2)
            },
        ),
        (rule("code:", Allow::Regex("^[a-c]{2}/[0-9]$".into())), |text| {
            text.len() == 4 && text.as_bytes()[2] == b'/'
        }),
        (
            rule("pick:", Allow::Choice(vec!["(yes)".into(), "no".into()])),
            |text| ["(yes)", "no"].contains(&text.strip_prefix(' ').unwrap_or(text)),
        ),
        (
            rule("lark:", Allow::Grammar("start: \"<\" /[0-9]/ \">\"\n".into())),
            |text| text.len() == 3 && text.starts_with('<') && text.ends_with('>'),
        ),
        (rule("ids:", Allow::Ids(vec![1, 2, 999])), |text| text.len() == 1),
        (
            Rule {
                max_tokens: Some(3),
                ..rule("ids3:", Allow::Ids(vec![3, 4]))
            },
            |text| text.len() == 3,
        ),
    ];
    for (rule, fits) in cases {
        let set = bench.set(vec![rule.clone()]);
        for seed in 0..60 {
            // In the prompt, in a message that is continued, and generated.
            for way in 0..3 {
                let trigger = rule.trigger.as_str();
                let half = trigger.len() / 2;
                let (prompt, generated) = match way {
                    0 => (said(Role::User, trigger), ""),
                    1 => (said(Role::Assistant, &trigger[..half]), &trigger[half..]),
                    _ => (said(Role::User, "hello"), trigger),
                };
                let mut guide = Guide::new(None, Some(set.watch(&prompt)));
                for byte in generated.bytes() {
                    assert_eq!(next(&mut guide), None, "nothing binds before the trigger is whole");
                    guide.commit(bench.id(byte), &[byte]);
                }
                let (text, _) = drawn(&bench, &mut guide, seed, 40);
                assert!(fits(&text), "{trigger} {way} {seed}: {text:?}");
            }
        }
        assert_eq!(bench.fired(&rule.name), 180);
    }
}

#[test]
fn rules_bind_where_their_trigger_stands() {
    let bench = Bench::new();
    let contains = Rule {
        when: When::Contains,
        ..rule("secret", Allow::Choice(vec!["no".into()]))
    };
    let set = bench.set(vec![
        rule("age:", numbers(1, 2)),
        contains,
        rule("my age:", numbers(3, 4)),
    ]);
    let chat = |messages: &[(Role, &str)]| {
        Conversation::from(
            messages
                .iter()
                .map(|&(role, text)| Message::new(role, text))
                .collect::<Vec<_>>(),
        )
    };
    type Messages = &'static [(Role, &'static str)];
    let cases: [(Messages, Option<usize>); 8] = [
        (&[(Role::User, "age:")], Some(0)),
        // Of two triggers that stand there, the first rule binds.
        (&[(Role::User, "my age:")], Some(0)),
        (&[(Role::User, "age: ")], None),
        (&[(Role::User, "Age:")], None),
        (&[(Role::User, "age:"), (Role::Assistant, "hm")], None),
        (&[(Role::System, "a secret here"), (Role::User, "hello")], Some(1)),
        (&[(Role::System, "a secret here"), (Role::User, "age:")], Some(0)),
        (&[], None),
    ];
    for (messages, wanted) in cases {
        let fired = set.fires(&chat(messages));
        assert_eq!(fired.as_ref().map(|fired| fired.rule), wanted, "{messages:?}");
        if let Some(fired) = fired {
            assert_eq!(fired.tokens, set.first_tokens(fired.rule));
        }
    }
    let blank_or = |bytes: &[u8]| {
        let mut ids: Vec<u32> = bytes.iter().map(|&byte| bench.id(byte)).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(set.first_tokens(0), blank_or(b" 12"));
    assert_eq!(set.first_tokens(1), blank_or(b" n"));
}

#[test]
fn a_number_may_end_and_the_answer_goes_on_free() {
    let bench = Bench::new();
    let set = bench.set(vec![rule("age:", numbers(0, 120))]);
    let mut guide = Guide::new(None, Some(set.watch(&said(Role::User, "age:"))));
    let allowed = |guide: &mut Guide| next(guide).expect("the rule binds");
    assert!(!allowed(&mut guide).contains(&END), "a value has to come");
    for byte in *b" 1" {
        guide.commit(bench.id(byte), &[byte]);
    }
    let tokens = allowed(&mut guide);
    assert!(
        tokens.contains(&END) && (0..128).all(|byte| tokens.contains(&bench.id(byte))),
        "{tokens:?}"
    );
    guide.commit(bench.id(b'3'), b"3");
    let tokens = allowed(&mut guide);
    for digit in b'0'..=b'9' {
        assert!(!tokens.contains(&bench.id(digit)), "13{digit} is too much");
    }
    guide.commit(bench.id(b' '), b" ");
    assert_eq!(next(&mut guide), None, "the number is behind");
    for byte in *b"age:" {
        guide.commit(bench.id(byte), &[byte]);
    }
    assert!(next(&mut guide).is_some(), "the trigger comes again");
    assert_eq!(bench.fired("age:"), 2);
}

/// Both hold; if that leaves nothing, the answer ends with a reason.
#[test]
fn a_rule_and_a_form_hold_together() {
    let bench = Bench::new();
    let set = bench.set(vec![rule("age:", numbers(30, 99))]);
    let guide = |form: &str| {
        let form = bench
            .masks
            .compile(&Form::Regex(form.into()), Strictness::Strict)
            .expect("a good form");
        let mut guide = Guide::new(form.as_deref(), Some(set.watch(&said(Role::User, "age:"))));
        guide.compute();
        guide
    };
    let mut both = guide("[0-4][0-9]");
    assert_eq!(next(&mut both), Some(vec![bench.id(b'3'), bench.id(b'4')]));
    let none = guide("[a-z]+");
    let refusal = none.fault().expect("nothing is left");
    assert!(refusal.is_by_rule, "{refusal:?}");
    assert_eq!(
        refusal.reason,
        "the safety rule \"age:\" together with the form that was asked for leaves no token that could come next"
    );
}

#[test]
fn rules_that_do_not_fit_the_model_are_refused() {
    let bench = Bench::new();
    let cases = [
        (
            rule("a", Allow::Ids(vec![5_000])),
            "none of these ids is a token of this model: its ids are 0 to 263",
        ),
        (rule("a", Allow::Regex("(".into())), "unclosed group"),
        (rule("a", Allow::Grammar("start: b\n".into())), "unknown name: \"b\""),
        (rule("", numbers(1, 2)), "a trigger has 1 to 256 bytes"),
        (rule(&"a".repeat(257), numbers(1, 2)), "a trigger has 1 to 256 bytes"),
    ];
    for (bad, wanted) in cases {
        let file = RuleFile {
            rules: vec![rule("good", numbers(1, 2)), bad],
        };
        let error = RuleSet::new(&file, &bench.masks, &bench.counts)
            .err()
            .expect("it does not fit");
        assert_eq!(error.rule, 1);
        assert!(error.reason.contains(wanted), "{error}: {wanted}");
    }
}

#[test]
fn strange_rules_are_told() {
    let bench = Bench::new();
    let contains = |trigger| Rule {
        when: When::Contains,
        ..rule(trigger, numbers(1, 2))
    };
    let rules = vec![
        rule("age:", numbers(0, 120)),
        rule("my age:", numbers(0, 120)),
        rule("digits:", class(TextClass::Digits)),
        rule("any:", Allow::Regex("(?s:.)+".into())),
        rule("ids:", Allow::Ids(vec![1, 700, 800])),
        contains("ab"),
        contains("cabd"),
        contains("age:"),
    ];
    let lints: Vec<(usize, Warning)> = bench
        .set(rules)
        .lint()
        .into_iter()
        .map(|lint| (lint.rule, lint.warning))
        .collect();
    let wanted = [
        (1, Warning::Shadowed { by: 0 }),
        (2, Warning::Endless),
        (4, Warning::UnknownIds(vec![700, 800])),
        (6, Warning::Shadowed { by: 5 }),
    ];
    assert_eq!(lints, wanted);
}
