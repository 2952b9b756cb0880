//! `safety check` and `safety token-map`: what a file of rules means for the tokens of one model.
//!
//! Loads the model's files and starts no engine. Invariant: what is shown is what a server with this file would do, from
//! the same compiled rules.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use zerohop_engine::{Allow, Conversation, Message, Model, Role, Rule, RuleSet, TextSet, When};

use super::{Failure, args::RulesArgs, load, source};
use crate::config::{Machine, Rules};

/// Most tokens that are listed; the rest is counted.
const LISTED: usize = 16;

/// A file of rules, compiled for a model.
struct Ready {
    rules: Rules,
    model: Model,
    set: std::sync::Arc<RuleSet>,
}

impl Ready {
    fn new(args: RulesArgs) -> Result<Self, Failure> {
        let config = load(&source(args.config.config, Vec::new()))?;
        let rules = match args.rules {
            Some(path) => Rules::load(&path, &Machine).map_err(Failure::start)?,
            None => config.safety.clone().ok_or_else(|| {
                let text =
                    "no safety rules: give `--rules FILE`, or a configuration with safety.constraints.rules_path";
                Failure::Start(text.into())
            })?,
        };
        let (wanted, model) = crate::server::load(&config, args.model.as_deref())?;
        let set = model
            .rules(&rules.file)
            .map_err(|error| Failure::Start(format!("{}: model {}: {error}", rules.place(error.rule), wanted.id)))?;
        Ok(Self { rules, model, set })
    }

    fn rule(&self, index: usize) -> &Rule {
        &self.rules.file.rules[index]
    }

    /// Warnings, about one rule or about all.
    fn lint(&self, only: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        for lint in self
            .set
            .lint()
            .iter()
            .filter(|lint| only.is_none_or(|only| only == lint.rule))
        {
            let place = self.rules.place(lint.rule);
            writeln!(out, "warning: {place}: {}: {}", self.rule(lint.rule).name, lint.warning)?;
        }
        Ok(())
    }

    /// The first of these tokens, with what they stand for.
    fn tokens(&self, ids: &[u32], out: &mut dyn Write) -> io::Result<()> {
        for &id in ids.iter().take(LISTED) {
            writeln!(out, "  {id:>7}  {}", self.shown(id))?;
        }
        match ids.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => writeln!(out, "           and {more} more"),
        }
    }

    /// A token as a person reads it: its text in quotes, or its bytes, or the name of a control token.
    fn shown(&self, id: u32) -> String {
        match self.model.token(id) {
            (_, Some(name)) => name.to_owned(),
            ([], None) => "(no text)".into(),
            (bytes, None) => match std::str::from_utf8(bytes) {
                Ok(text) => format!("{text:?}"),
                Err(_) => bytes.iter().fold(String::new(), |mut shown, byte| {
                    let _ = write!(shown, "<{byte:02x}>");
                    shown
                }),
            },
        }
    }
}

/// Which rule binds the answer to this prompt, and what may come first.
pub(super) fn check(args: RulesArgs, prompt: String, out: &mut dyn Write) -> Result<(), Failure> {
    let ready = Ready::new(args)?;
    let conversation = Conversation::from(vec![Message::new(Role::User, prompt)]);
    match ready.set.fires(&conversation) {
        None => writeln!(out, "no rule fires: every token is allowed")?,
        Some(fired) => {
            let rule = ready.rule(fired.rule);
            writeln!(out, "fires: {} (rule {}, {})", rule.name, fired.rule + 1, binding(rule))?;
            writeln!(
                out,
                "allowed first: {} of {} tokens",
                fired.tokens.len(),
                ready.model.vocabulary()
            )?;
            ready.tokens(&fired.tokens, out)?;
        }
    }
    Ok(ready.lint(None, out)?)
}

/// How the texts of the rules map to tokens.
pub(super) fn token_map(args: RulesArgs, only: Option<&str>, out: &mut dyn Write) -> Result<(), Failure> {
    let ready = Ready::new(args)?;
    let count = ready.rules.file.rules.len();
    let only = match only {
        None => None,
        Some(name) => {
            let number = name.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            let index = (0..count)
                .find(|&index| *ready.rule(index).name == *name)
                .or(number.filter(|&index| index < count));
            let names: Vec<&str> = ready.rules.file.rules.iter().map(|rule| &*rule.name).collect();
            let unknown = || Failure::Start(format!("no rule is called {name}; there are: {}", names.join(", ")));
            Some(index.ok_or_else(unknown)?)
        }
    };
    for index in (0..count).filter(|&index| only.is_none_or(|only| only == index)) {
        let rule = ready.rule(index);
        writeln!(out, "{} (rule {}, {})", rule.name, index + 1, binding(rule))?;
        let trigger = ready.model.text_ids(&rule.trigger);
        let spelled: Vec<String> = trigger.iter().map(|&id| format!("{id} {}", ready.shown(id))).collect();
        writeln!(out, "  trigger  {:?} = {}", rule.trigger, spelled.join(", "))?;
        for text in texts(rule) {
            let ids = ready.model.text_ids(&text);
            let spelled: Vec<String> = ids.iter().map(|&id| format!("{id} {}", ready.shown(id))).collect();
            writeln!(out, "  text     {text:?} = {}", spelled.join(", "))?;
        }
        let first = ready.set.first_tokens(index);
        writeln!(out, "  first    {} of {} tokens", first.len(), ready.model.vocabulary())?;
        ready.tokens(&first, out)?;
    }
    Ok(ready.lint(only, out)?)
}

/// Texts of a rule by way of example: the ends of a range, the first of a list.
fn texts(rule: &Rule) -> Vec<String> {
    const SHOWN: usize = 4;
    let texts: Vec<String> = match &rule.allow {
        Allow::Choice(texts) => texts.iter().take(SHOWN).cloned().collect(),
        Allow::Texts(sets) => sets
            .iter()
            .take(SHOWN)
            .flat_map(|set| match set {
                TextSet::Numbers { from, to } => vec![from.to_string(), to.to_string()],
                TextSet::Literal(text) => vec![text.clone()],
                TextSet::Class(_) => Vec::new(),
            })
            .collect(),
        Allow::Ids(_) | Allow::Regex(_) | Allow::Grammar(_) => Vec::new(),
    };
    texts
}

/// When a rule binds, and how long.
fn binding(rule: &Rule) -> String {
    let when = match rule.when {
        When::Ends => "behind",
        When::Contains => "where the messages contain",
    };
    let tokens = match (&rule.allow, rule.max_tokens) {
        (Allow::Ids(_), None | Some(1)) => ", for 1 token".into(),
        (_, Some(count)) => format!(", for at most {count} tokens"),
        (_, None) => String::new(),
    };
    let until = rule
        .until
        .as_ref()
        .map_or_else(String::new, |until| format!(", until {until:?}"));
    format!("{when} {:?}{tokens}{until}", rule.trigger)
}
