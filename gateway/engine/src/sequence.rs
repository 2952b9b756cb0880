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
    job::{Echo, Finish, Generate, Ticket, Usage},
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
    pub(crate) deadline: Option<Instant>,
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
    pub(crate) cut: Cut,
}

/// Where a prompt may be cut into pieces without changing a bit of what is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Anywhere, as long as each piece has two tokens or the prompt has only one.
    Free,
    /// At multiples of the chunk.
    AtChunks,
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
    /// Its `Started` was sent. What comes after that is computed again if it loses its place.
    pub(crate) begun: bool,
    /// Its number in the order in which sequences first got a place.
    pub(crate) arrival: u64,
    /// Tokens of the prompt that came from the prefix cache when it first got a place.
    pub(crate) cached: usize,
    /// When it got a place.
    pub(crate) admitted: Instant,
    /// Its last delta that waits in the outbox, so that the next can join it.
    pub(crate) waiting_text: Option<u64>,
    /// The tokens of the answer.
    answer: Vec<u32>,
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
            begun: false,
            arrival: 0,
            cached: 0,
            waiting_text: None,
            answer: Vec::new(),
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
        self.answer.len() as u64
    }

    fn generated(&self) -> u32 {
        self.answer.len() as u32
    }

    /// Whether every token of the prompt needs its logits.
    pub(crate) fn tells_prompt(&self) -> bool {
        self.request.echo == Echo::Prompt && self.request.logprobs.is_some() && !self.begun
    }

    /// After losing its place: whether the token that follows what is computed is known already. Then it is the next one.
    pub(crate) fn repeat(&mut self) -> bool {
        let known = self.computed.checked_sub(self.prompt.len());
        let token = known.and_then(|index| self.answer.get(index));
        token.map(|&token| self.next = token).is_some()
    }

    /// Takes the next token of the answer.
    pub(crate) fn take(&mut self, token: u32, rules: &Rules) -> Progress {
        let mut progress = Progress::default();
        if rules.ends.contains(&token) {
            progress.finish = Some(self.end(Finish::EndOfTurn, &mut progress.text));
        } else {
            self.next = token;
            self.answer.push(token);
            self.untold += 1;
            self.decoded.clear();
            self.stream.push(rules.text.get(token), &mut self.decoded);
            let stopped = self.stops.push(&self.decoded, &mut progress.text);
            progress.finish = match stopped {
                Some(text) => Some(Finish::Stop(text)),
                None if self.request.max_tokens == Some(self.generated()) => {
                    Some(self.end(Finish::MaxTokens, &mut progress.text))
                }
                None if self.prompt.len() + self.answer.len() >= rules.context => {
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
            cached_tokens: self.cached as u32,
            output_tokens: self.generated(),
        }
    }
}
