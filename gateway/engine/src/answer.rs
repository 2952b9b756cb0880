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
    job::{Conversation, Event, Finish, Job, JobKind, Rejected, Sampling, Submit, Ticket, Usage, mailbox},
    model::Model,
};

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The engine did not start.
    #[error(transparent)]
    Start(#[from] StartError),
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
    /// The model's chat template refuses it.
    #[error("the model's chat template refuses the prompt: {0}")]
    Unrenderable(String),
    /// The engine failed.
    #[error("the engine failed: {0}")]
    Failed(String),
}

/// Generates one answer and returns when it is complete. `on_text` gets each piece as it comes.
///
/// # Errors
/// [`AnswerError`].
pub fn answer(
    model: Model,
    config: &EngineConfig,
    conversation: Conversation,
    sampling: Sampling,
    max_tokens: Option<u32>,
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
    let _handle = engine.submit(Job {
        ticket: Ticket(0),
        mailbox: 0,
        conversation,
        kind: JobKind::Generate {
            sampling,
            max_tokens,
            stop: Vec::new(),
        },
    })?;
    loop {
        while let Ok(mail) = mail.pop() {
            match mail.event {
                // Not asked for.
                Event::Started { .. } | Event::Counted { .. } => {}
                Event::Text { text, .. } => on_text(&text),
                Event::Finished { finish, usage } => return Ok((finish, usage)),
                Event::TooLong { input_tokens, limit } => return Err(AnswerError::TooLong { input_tokens, limit }),
                Event::Unrenderable { reason } => return Err(AnswerError::Unrenderable(reason)),
                Event::Failed { reason } => return Err(AnswerError::Failed(reason)),
            }
        }
        while !heard.swap(false, Ordering::AcqRel) {
            thread::park();
        }
    }
}
