//! One job on its way through the batch: what is computed of it, and when it ends.
//!
//! It knows no other sequence and no place in a batch. Invariant: the same tokens give the same texts and the same end,
//! in whatever steps they come.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use crate::{
    job::{Finish, Generate, Ticket, Usage},
    model::{TextStream, TextTable},
    stop::Stops,
};

/// Where to answer and since when; whether still.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) ticket: Ticket,
    pub(crate) mailbox: usize,
    pub(crate) cancelled: Arc<AtomicBool>,
    pub(crate) accepted: Instant,
}

impl Address {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}

/// What ends a sequence, apart from its own limits.
pub(crate) struct Rules {
    /// Tokens that end the model's turn.
    pub(crate) ends: Vec<u32>,
    /// Tokens of prompt and answer together.
    pub(crate) context: usize,
    pub(crate) text: Arc<TextTable>,
}

/// A prompt and the answer to it so far.
pub(crate) struct Sequence {
    pub(crate) address: Address,
    pub(crate) request: Generate,
    pub(crate) prompt: Vec<u32>,
    /// Tokens whose keys and values are computed.
    pub(crate) computed: usize,
    /// The token that the next decode step feeds.
    pub(crate) next: u32,
    /// Left the batch; its place is free for another.
    pub(crate) over: bool,
    /// When it got a place.
    pub(crate) admitted: Instant,
    /// Its last delta that waits in the outbox, so that the next can join it.
    pub(crate) waiting_text: Option<u64>,
    generated: u32,
    /// Tokens that no delta has stood for yet.
    untold: u32,
    stream: TextStream,
    stops: Stops,
    decoded: String,
}

/// What a token brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Text that is certain now, perhaps none.
    pub(crate) text: String,
    /// How many tokens it stands for.
    pub(crate) tokens: u32,
    /// Why the answer is complete.
    pub(crate) finish: Option<Finish>,
}

impl Sequence {
    pub(crate) fn new(address: Address, prompt: Vec<u32>, mut request: Generate, stream: TextStream) -> Self {
        let stops = Stops::new(std::mem::take(&mut request.stop));
        Self {
            admitted: address.accepted,
            address,
            request,
            prompt,
            computed: 0,
            next: 0,
            over: false,
            waiting_text: None,
            generated: 0,
            untold: 0,
            stream,
            stops,
            decoded: String::new(),
        }
    }

    /// Whether no token is wanted at all.
    pub(crate) fn wants_none(&self) -> bool {
        self.request.max_tokens == Some(0)
    }

    /// Number of the next token of the answer, from 0.
    pub(crate) fn index(&self) -> u64 {
        u64::from(self.generated)
    }

    /// Takes the next token of the answer.
    pub(crate) fn take(&mut self, token: u32, rules: &Rules) -> Progress {
        let mut progress = Progress::default();
        if rules.ends.contains(&token) {
            progress.finish = Some(self.end(Finish::EndOfTurn, &mut progress.text));
        } else {
            self.next = token;
            self.generated += 1;
            self.untold += 1;
            self.decoded.clear();
            self.stream.push(rules.text.get(token), &mut self.decoded);
            let stopped = self.stops.push(&self.decoded, &mut progress.text);
            progress.finish = match stopped {
                Some(text) => Some(Finish::Stop(text)),
                None if self.request.max_tokens == Some(self.generated) => {
                    Some(self.end(Finish::MaxTokens, &mut progress.text))
                }
                None if self.prompt.len() + self.generated as usize >= rules.context => {
                    Some(self.end(Finish::ContextFull, &mut progress.text))
                }
                None => None,
            };
        }
        if !progress.text.is_empty() {
            progress.tokens = std::mem::take(&mut self.untold);
        }
        progress
    }

    /// Lets out what was held back. An unfinished character becomes U+FFFD, which may complete a stop text.
    fn end(&mut self, finish: Finish, out: &mut String) -> Finish {
        self.decoded.clear();
        self.stream.finish(&mut self.decoded);
        if let Some(text) = self.stops.push(&self.decoded, out) {
            return Finish::Stop(text);
        }
        self.stops.finish(out);
        finish
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.prompt.len() as u32,
            cached_tokens: 0,
            output_tokens: self.generated,
        }
    }
}
