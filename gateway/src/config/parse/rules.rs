//! `safety.constraints`, and the file of safety rules that it names.
//!
//! Knows no model: whether a rule's tokens exist is found out when a model is loaded. Invariant: each rule that comes out
//! has a trigger and exactly one thing that may follow it, and no name occurs twice.

use std::{collections::HashSet, path::Path, sync::Arc};

use zerohop_engine::{Allow, MAX_RULES, MAX_TRIGGER, Rule, RuleFile, TextClass, TextSet, When};

use super::{
    super::{
        MAX_FILE, Problems, Rules, Surroundings,
        field::{At, Field, TokenItem, word},
        node::{self, Value, quoted},
        raw,
    },
    MAX_NAME, Reader,
};

/// The words of `when`.
const WHEN: [(&str, Option<When>); 3] = [
    ("ends", Some(When::Ends)),
    ("contains", Some(When::Contains)),
    ("domain", None),
];

/// Ids, texts or choices of one rule.
const MAX_LIST: usize = 65_536;
/// Bytes of `until`, and of a text in a list.
const MAX_TEXT: usize = 4_096;

impl Reader<'_> {
    /// The rules, if they are switched on.
    pub(super) fn safety(&mut self, raw: raw::Safety) -> Option<Rules> {
        let raw = raw.constraints.section();
        let path = raw.rules_path.set();
        let enabled = raw.enabled.given();
        match (path, enabled) {
            (_, Some(enabled)) if !enabled.value => None,
            (None, None) => None,
            (None, Some(enabled)) => {
                enabled.fault(&mut self.problems, "there are no rules: add `rules_path: FILE`");
                None
            }
            (Some(path), _) => match rules(&self.path(&path), self.surroundings) {
                Ok(rules) => Some(rules),
                Err(problems) => {
                    self.problems.append(problems);
                    None
                }
            },
        }
    }
}

/// Reads a file of rules.
pub(in crate::config) fn rules(path: &Path, surroundings: &dyn Surroundings) -> Result<Rules, Problems> {
    let mut problems = Problems::of(&path.display().to_string());
    let text = match surroundings.read(path, MAX_FILE) {
        Ok(text) => text,
        Err(error) => {
            problems.whole(format!("the safety rules cannot be read: {error}"));
            return Err(problems);
        }
    };
    let rules = document(&text, &mut problems).map(|list| {
        let (rules, places): (Vec<Rule>, Vec<_>) = list.into_iter().map(|at| (at.value, at.place)).unzip();
        Rules {
            path: path.to_owned(),
            file: Arc::new(RuleFile { rules }),
            places: places.into(),
        }
    });
    problems.or(rules)
}

fn document(text: &str, problems: &mut Problems) -> Option<Vec<At<Rule>>> {
    const WANTED: &str = "give `rules:` and below it a list of rules";
    let root = match node::read(text) {
        Ok(root) => root,
        Err(fault) => {
            problems.bare(fault.place, fault.text);
            return None;
        }
    };
    if !matches!(root.value, Value::Section(_)) {
        problems.bare(
            root.place,
            format!("{} is no file of safety rules: {WANTED}", root.value),
        );
        return None;
    }
    let list = match raw::read_rules(&root, problems)?.rules {
        Field::Bad => return None,
        Field::Absent => {
            // An unknown key has been told already.
            if problems.is_empty() {
                problems.bare(root.place, format!("`rules` is missing: {WANTED}"));
            }
            return None;
        }
        Field::Given(list) => list,
    };
    if list.value.is_empty() || list.value.len() > MAX_RULES {
        list.fault(problems, format_args!("give 1 to {MAX_RULES} rules"));
        return None;
    }
    let mut names = HashSet::new();
    let rules = list.value.into_iter().enumerate();
    Some(
        rules
            .filter_map(|(index, raw)| rule(index, raw, &mut names, problems))
            .collect(),
    )
}

fn rule(index: usize, raw: At<raw::Rule>, names: &mut HashSet<String>, problems: &mut Problems) -> Option<At<Rule>> {
    let owner = raw.with(());
    let raw = raw.value;
    let name = name(index, raw.name, names, &owner, problems);
    let trigger = raw.trigger.required(&owner, "trigger", "TEXT", problems);
    let trigger = trigger.and_then(|trigger| text(&trigger, MAX_TRIGGER, problems));
    let when = match raw.when.given() {
        None => Some(When::Ends),
        Some(given) => {
            let when = word(&given, &WHEN, problems);
            if when == Some(None) {
                given.fault(
                    problems,
                    "not yet: there is no router whose verdict could be asked: give ends or contains",
                );
            }
            when.flatten()
        }
    };
    let max_tokens = raw.max_tokens.given();
    let max_tokens = max_tokens.map(|given| match u32::try_from(given.value) {
        Ok(count) if (1..=1_000_000).contains(&count) => Some(count),
        _ => {
            given.fault(
                problems,
                format_args!("{} is not possible: give 1 to 1000000", given.value),
            );
            None
        }
    });
    let until = raw.until.given();
    let grammar = raw.grammar.given();
    let ways = [
        raw.tokens.given().map(|list| (list.with(()), tokens(&list, problems))),
        raw.regex
            .given()
            .map(|given| (given.with(()), text(&given, MAX_TEXT, problems).map(Allow::Regex))),
        raw.choice.given().map(|list| (list.with(()), choice(&list, problems))),
        grammar.map(|given| {
            (
                given.with(()),
                text(&given, MAX_FILE as usize, problems).map(Allow::Grammar),
            )
        }),
    ];
    let mut ways = ways.into_iter().flatten();
    let Some((_, allow)) = ways.next() else {
        // A way that is bad has been told.
        let bad = |way: &str| problems.name(&format!("{}.{way}", owner.key));
        if !["tokens", "regex", "choice", "grammar"].into_iter().any(bad) {
            owner.fault(
                problems,
                "nothing says what may follow: add `tokens`, `regex`, `choice` or `grammar`",
            );
        }
        return None;
    };
    if let Some((second, _)) = ways.next() {
        second.fault(problems, "this rule says already what may follow: keep one of the two");
        return None;
    }
    if let (Some(until), Some(Allow::Ids(_) | Allow::Grammar(_))) = (&until, &allow) {
        until.fault(
            problems,
            "not for ids and grammars: give `max_tokens`, or write it into the grammar",
        );
        return None;
    }
    let until = until.map(|until| text(&until, MAX_TEXT, problems));
    let rule = Rule {
        name: name?.into(),
        trigger: trigger?,
        when: when?,
        allow: allow?,
        max_tokens: max_tokens.map_or(Some(None), |count| count.map(Some))?,
        until: until.map_or(Some(None), |until| until.map(Some))?,
    };
    Some(owner.with(rule))
}

/// The rule's own name, or one by its number.
fn name(
    index: usize,
    field: Field<String>,
    names: &mut HashSet<String>,
    owner: &At<()>,
    problems: &mut Problems,
) -> Option<String> {
    let given = match field {
        Field::Bad => return None,
        Field::Absent => At {
            value: format!("rule-{}", index + 1),
            ..owner.with(String::new())
        },
        Field::Given(given) => given,
    };
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
    if given.value.is_empty() || given.value.chars().count() > MAX_NAME || !given.value.chars().all(is_plain) {
        let text = format!(
            "{} is no name: give 1 to {MAX_NAME} characters without blanks",
            quoted(&given.value)
        );
        given.fault(problems, text);
        return None;
    }
    if !names.insert(given.value.clone()) {
        given.fault(
            problems,
            format_args!("{} is already the name of a rule", quoted(&given.value)),
        );
        return None;
    }
    Some(given.value)
}

/// Text that is not empty, of at most so many bytes.
fn text(given: &At<String>, most: usize, problems: &mut Problems) -> Option<String> {
    if given.value.is_empty() {
        given.fault(problems, "the text is empty");
        return None;
    }
    if given.value.len() > most {
        given.fault(
            problems,
            format_args!("the text is too long: give at most {most} bytes"),
        );
        return None;
    }
    Some(given.value.clone())
}

/// The list's length, if it is possible.
fn bounded<T>(list: &At<Vec<T>>, problems: &mut Problems) -> Option<()> {
    if list.value.is_empty() {
        // It may be empty since its entries are bad, which has been told.
        if problems.name(&format!("{}[", list.key)) {
            return None;
        }
        list.fault(problems, "the list is empty, so nothing could follow");
        return None;
    }
    if list.value.len() > MAX_LIST {
        list.fault(problems, format_args!("give at most {MAX_LIST}"));
        return None;
    }
    Some(())
}

fn choice(list: &At<Vec<At<String>>>, problems: &mut Problems) -> Option<Allow> {
    bounded(list, problems)?;
    let texts: Vec<String> = list
        .value
        .iter()
        .filter_map(|given| text(given, MAX_TEXT, problems))
        .collect();
    (texts.len() == list.value.len()).then_some(Allow::Choice(texts))
}

fn tokens(list: &At<Vec<At<TokenItem>>>, problems: &mut Problems) -> Option<Allow> {
    bounded(list, problems)?;
    let (mut ids, mut sets) = (Vec::new(), Vec::new());
    for item in &list.value {
        match &item.value {
            TokenItem::Id(id) => match u32::try_from(*id) {
                Ok(id) => ids.push(id),
                Err(_) => {
                    item.fault(problems, format_args!("{id} is no token's id: ids begin at 0"));
                    return None;
                }
            },
            TokenItem::Text(text) => sets.push(set(&item.with(text.clone()), problems)?),
        }
    }
    match (ids.is_empty(), sets.is_empty()) {
        (false, true) => Some(Allow::Ids(ids)),
        (true, false) => Some(Allow::Texts(sets)),
        _ => {
            list.fault(
                problems,
                "ids and texts stand together: make two rules, or spell the tokens as texts",
            );
            None
        }
    }
}

/// What a quoted text of `tokens` means: a range of numbers, a class, or itself.
fn set(given: &At<String>, problems: &mut Problems) -> Option<TextSet> {
    let value = given.value.as_str();
    if let Some((_, class)) = TextClass::NAMES.iter().find(|(name, _)| *name == value) {
        return Some(TextSet::Class(*class));
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((from, to)) = value
        .split_once('-')
        .filter(|(from, to)| is_number(from) && is_number(to))
    {
        let range = from.parse::<u64>().ok().zip(to.parse::<u64>().ok());
        return match range {
            Some((from, to)) if from <= to => Some(TextSet::Numbers { from, to }),
            _ => {
                let text = format!(
                    "{} is no range: give the least and the greatest number, such as \"0-120\"",
                    quoted(value)
                );
                given.fault(problems, text);
                None
            }
        };
    }
    text(given, MAX_TEXT, problems).map(TextSet::Literal)
}
