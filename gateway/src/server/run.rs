//! `zerohop run`: one answer on the terminal, with no server around it.
//!
//! The same engine as behind the socket, with one mailbox that this thread reads. Invariant: what is printed is the
//! model's text and nothing else.

use std::io::{self, Write};

use zerohop_engine::{AnswerError, Generate, Kind, Message, Prompt, Role, Sampling};

use super::{fleet, secret};
use crate::{
    cli::{Failure, RunOptions},
    config::{Backend, Config, Model},
};

/// Asks a model once and prints its answer as it comes. Greedy unless a temperature is given.
///
/// # Errors
/// [`Failure::Start`] if the model cannot be had, [`Failure::Work`] if it fails.
pub fn run(config: &Config, options: RunOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let start = |error: super::StartError| Failure::Start(error.to_string());
    let (wanted, model) = load(config, options.model.as_deref())?;
    let Backend::Onnx(onnx) = &wanted.backend;
    let seed = match options.seed {
        Some(seed) => seed,
        None => u64::from_le_bytes(*secret().map_err(start)?.first_chunk().unwrap_or(&[0; 8])),
    };
    let sampling = Sampling {
        temperature: options.temperature.unwrap_or(0.0),
        seed,
        ..Sampling::default()
    };
    let conversation = vec![Message::new(Role::User, options.prompt)].into();
    let request = Generate {
        sampling,
        max_tokens: options.max_tokens,
        ..Generate::new(Prompt::Chat(conversation))
    };
    let mut written: io::Result<()> = Ok(());
    let on_text = |text: &str| {
        if written.is_ok() {
            written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    };
    let rules = config.safety.as_ref();
    let config = fleet::engine_config(onnx);
    let file = rules.map(|rules| &*rules.file);
    match zerohop_engine::answer(model, &config, file, request, on_text) {
        Ok(_) => {
            written?;
            Ok(writeln!(out)?)
        }
        Err(error @ AnswerError::Start(_)) => Err(Failure::Start(format!("model {}: {error}", wanted.id))),
        Err(AnswerError::Rules(error)) => {
            let place = rules.map_or_else(String::new, |rules| rules.place(error.rule));
            Err(Failure::Start(format!("{place}: model {}: {error}", wanted.id)))
        }
        Err(error) => Err(Failure::Work(error.to_string())),
    }
}

/// Loads the model that is asked for, without an engine.
pub(crate) fn load<'a>(config: &'a Config, name: Option<&str>) -> Result<(&'a Model, zerohop_engine::Model), Failure> {
    let start = |error: super::StartError| Failure::Start(error.to_string());
    let wanted = choose(config, name)?;
    let runtime = fleet::runtime(&config.engine).map_err(start)?;
    let Backend::Onnx(onnx) = &wanted.backend;
    if Kind::of(&fleet::folder(onnx).map_err(start)?) == Kind::Vectors {
        let id = &wanted.id;
        return Err(Failure::Start(format!(
            "model {id} makes embeddings, not answers: name another by `--model`"
        )));
    }
    let model = fleet::model(&runtime, wanted).map_err(start)?;
    Ok((wanted, model))
}

/// The model that is asked for, by id or alias; the first if none is.
fn choose<'a>(config: &'a Config, name: Option<&str>) -> Result<&'a Model, Failure> {
    let Some(name) = name else {
        return config
            .models
            .first()
            .ok_or_else(|| Failure::Start("no model is configured".into()));
    };
    let named = |model: &&Model| *model.id == *name || model.aliases.iter().any(|alias| **alias == *name);
    config.models.iter().find(named).ok_or_else(|| {
        let ids: Vec<&str> = config.models.iter().map(|model| &*model.id).collect();
        Failure::Start(format!("no model is called {name}; there are: {}", ids.join(", ")))
    })
}
