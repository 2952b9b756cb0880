//! One answer, for a terminal: an engine of its own, and the text as it comes.
//!
//! It serves nobody else and keeps nothing. Invariant: the pieces that `on_text` gets are the whole answer, in order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::{
    engine::{Engine, EngineConfig, StartError},
    job::{Event, Finish, Generate, Job, JobKind, Rejected, Submit, Ticket, Usage, mailbox},
    mask::{RuleError, RuleFile},
    model::Model,
};

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The engine did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The safety rules do not fit the model.
    #[error(transparent)]
    Rules(#[from] RuleError),
    /// The engine did not take the job.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The prompt does not fit.
    #[error("the prompt has {input_tokens} tokens, the model takes {limit}; shorten it")]
    TooLong {
        /// Its length.
        input_tokens: u32,
        /// What would fit.
        limit: u32,
    },
    /// The model cannot serve it.
    #[error("the model cannot serve this: {0}")]
    Refused(String),
    /// The engine failed.
    #[error("the engine failed: {0}")]
    Failed(String),
}

/// Generates one answer under these safety rules and returns when it is complete. `on_text` gets each piece as it comes.
///
/// # Errors
/// [`AnswerError`].
pub fn answer(
    model: Model,
    config: &EngineConfig,
    rules: Option<&RuleFile>,
    request: Generate,
    mut on_text: impl FnMut(&str),
) -> Result<(Finish, Usage), AnswerError> {
    let waiter = thread::current();
    let heard = Arc::new(AtomicBool::new(false));
    let news = Arc::clone(&heard);
    let wake = move || {
        news.store(true, Ordering::Release);
        waiter.unpark();
    };
    let (mailbox, mut mail) = mailbox(64, Box::new(wake));
    let engine = Engine::start(model, config, vec![mailbox])?;
    if let Some(rules) = rules {
        engine.use_rules(Some(engine.compile_rules(rules)?));
    }
    let _handle = engine.submit(Job {
        ticket: Ticket(0),
        mailbox: 0,
        kind: JobKind::Generate(Box::new(request)),
        deadline: None,
    })?;
    loop {
        while let Ok(mail) = mail.pop() {
            match mail.event {
                Event::Text { text, .. } | Event::Echo { text, .. } | Event::Arguments { text, .. } => on_text(&text),
                Event::Call { name } => on_text(&name),
                // Nothing to show, or not asked for.
                Event::Started { .. } | Event::Counted { .. } | Event::Embedded { .. } => {}
                Event::Finished { finish, usage } => return Ok((finish, usage)),
                Event::TooLong { input_tokens, limit } => return Err(AnswerError::TooLong { input_tokens, limit }),
                Event::Refused { reason, .. } => return Err(AnswerError::Refused(reason)),
                Event::TimedOut => return Err(AnswerError::Failed("out of time".into())),
                Event::Failed { reason } => return Err(AnswerError::Failed(reason)),
            }
        }
        while !heard.swap(false, Ordering::AcqRel) {
            thread::park();
        }
    }
}
