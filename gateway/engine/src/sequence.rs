//! One job on its way through the batch: what is computed of it, and when it ends.
//!
//! It knows no other sequence and no place in a batch. Invariant: the same tokens give the same texts and the same end,
//! in whatever steps they come.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use crate::{
    calls::split::{Piece, Splitter},
    history::History,
    job::{Echo, Finish, Generate, Logprob, Ticket, Usage},
    logprob,
    mask::Guide,
    model::{TextStream, TextTable},
    sample::Sampler,
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
    /// Its number in the order in which sequences first got a place; 0 before that.
    pub(crate) arrival: u64,
    /// Tokens of the prompt that came from the prefix cache when it first got a place.
    pub(crate) cached: usize,
    /// When it got a place.
    pub(crate) admitted: Instant,
    /// Its last delta that waits in the outbox, so that the next can join it.
    pub(crate) waiting_text: Option<u64>,
    /// Of the prompt, to be told before the answer.
    pub(crate) echo: Option<String>,
    /// What binds its tokens.
    pub(crate) guide: Option<Box<Guide>>,
    /// Takes calls of tools out of the text, if any may be made.
    pub(crate) splitter: Option<Splitter>,
    /// A tool must be called: what stands before the calls, or is cut short within one, is no text.
    pub(crate) only_calls: bool,
    /// Of the prompt's tokens, while they are gathered.
    pub(crate) prompt_logprobs: Vec<Logprob>,
    /// The tokens of the answer.
    answer: Vec<u32>,
    /// What the penalties count.
    history: History,
    /// Tokens that no text has stood for yet: where the text of each begins, and its log probability if it is told.
    untold: VecDeque<(usize, Option<Logprob>)>,
    /// Bytes of text that the tokens gave, and of those that were let out.
    written: usize,
    told: usize,
    /// Tokens whose text the splitter keeps, or took.
    owed: (u32, Vec<Logprob>),
    stream: TextStream,
    stops: Stops,
    decoded: String,
}

/// A token of the answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drawn {
    pub(crate) token: u32,
    /// If it was asked for.
    pub(crate) logprob: Option<Logprob>,
}

/// What a token brought.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// Text that is certain now, perhaps none.
    pub(crate) text: String,
    /// How many tokens it and the rest stand for.
    pub(crate) tokens: u32,
    /// Theirs, if they were asked for.
    pub(crate) logprobs: Vec<Logprob>,
    /// What came behind that text: calls of tools, and text again.
    pub(crate) more: Vec<Piece>,
    /// Why the answer is complete.
    pub(crate) finish: Option<Finish>,
}

impl Sequence {
    pub(crate) fn new(
        address: Address,
        prompt: Vec<u32>,
        mut request: Generate,
        stream: TextStream,
        guide: Option<Box<Guide>>,
    ) -> Self {
        let stops = Stops::new(std::mem::take(&mut request.stop));
        let history = History::new(&request.sampling, &prompt);
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
            echo: None,
            guide,
            splitter: None,
            only_calls: false,
            prompt_logprobs: Vec::new(),
            answer: Vec::new(),
            history,
            untold: VecDeque::new(),
            written: 0,
            told: 0,
            owed: (0, Vec::new()),
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

    /// Whether the log probabilities of its prompt are told: then the prompt is cut in small pieces and computed as a whole.
    pub(crate) fn is_told(&self) -> bool {
        self.request.echo == Echo::Prompt && self.request.logprobs.is_some()
    }

    /// Whether every token of the prompt still needs its logits.
    pub(crate) fn tells_prompt(&self) -> bool {
        self.is_told() && !self.begun
    }

    /// It is computed again from its beginning.
    pub(crate) fn lose_place(&mut self) {
        self.computed = 0;
        self.prompt_logprobs.clear();
    }

    /// Keeps the log probability of the prompt's token behind the one that is `row` tokens behind what is computed, from its
    /// logits.
    pub(crate) fn tell_prompt(&mut self, row: usize, logits: &[f32], rules: &Rules) {
        if self.prompt_logprobs.is_empty() {
            let token = self.prompt[0];
            self.prompt_logprobs.push(Logprob {
                token,
                bytes: rules.text.get(token).to_vec(),
                logprob: None,
                top: Vec::new(),
            });
        }
        if let Some(&token) = self.prompt.get(self.computed + row + 1) {
            let top = self.request.logprobs.unwrap_or(0) as usize;
            self.prompt_logprobs.push(logprob::of(logits, token, top, &rules.text));
        }
    }

    /// After losing its place: whether the token that follows what is computed is known already. Then it is the next one.
    pub(crate) fn repeat(&mut self) -> bool {
        let known = self.computed.checked_sub(self.prompt.len());
        let token = known.and_then(|index| self.answer.get(index));
        token.map(|&token| self.next = token).is_some()
    }

    /// The next token of the answer, from its row of logits. `words` is room for a mask. `None`: see [`Sampler::draw`].
    pub(crate) fn draw(
        &self,
        logits: &[f32],
        rules: &Rules,
        sampler: &mut Sampler,
        words: &mut Vec<u32>,
    ) -> Option<Drawn> {
        let mask = self.mask(self.constraint(), logits.len(), rules, words);
        let index = self.index();
        let token = sampler.draw(logits, mask, &self.request.sampling, &self.history, index)?;
        let of = |top| logprob::of(logits, token, top as usize, &rules.text);
        Some(Drawn {
            token,
            logprob: self.request.logprobs.map(of),
        })
    }

    /// The tokens that may come next, one bit each; `None`: all `width`. `constraint` is what the form of the answer
    /// allows; where it leaves nothing but an end, the answer may end before its least length.
    pub(crate) fn mask<'a>(
        &self,
        constraint: Option<&'a [u32]>,
        width: usize,
        rules: &Rules,
        words: &'a mut Vec<u32>,
    ) -> Option<&'a [u32]> {
        if self.may_end() {
            return constraint;
        }
        words.clear();
        match constraint {
            Some(allowed) => words.extend_from_slice(allowed),
            None => words.resize(width.div_ceil(32), u32::MAX),
        }
        for &end in rules.ends.iter().chain(&self.request.stop_tokens) {
            if let Some(word) = words.get_mut(end as usize / 32) {
                *word &= !(1 << (end % 32));
            }
        }
        match constraint {
            Some(allowed) if words.iter().all(|&word| word == 0) => Some(allowed),
            _ => Some(words),
        }
    }

    /// Why [`Sequence::draw`] gave nothing.
    pub(crate) fn why_none(&self) -> &'static str {
        if self.may_end() {
            "the model's logits are not numbers"
        } else {
            "the model's logits are not numbers, or all its tokens are ends"
        }
    }

    /// Whether the answer has its least length.
    fn may_end(&self) -> bool {
        self.generated() >= self.request.min_tokens
    }

    /// The tokens that a form and the safety rules allow next, one bit each; `None`: all.
    pub(crate) fn constraint(&self) -> Option<&[u32]> {
        self.guide.as_ref().and_then(|guide| guide.mask())
    }

    /// Whether a form or a rule binds the next token.
    pub(crate) fn is_masked(&self) -> bool {
        self.guide.as_ref().is_some_and(|guide| guide.is_masked())
    }

    /// Takes the next token of the answer.
    pub(crate) fn take(&mut self, drawn: Drawn, rules: &Rules) -> Progress {
        let mut progress = Progress::default();
        let token = drawn.token;
        // A form that is complete ends with the model's turn, whatever is asked for.
        if rules.ends.contains(&token) && (!self.request.ignore_eos || self.is_masked()) {
            progress.finish = Some(self.end(Finish::EndOfTurn, &mut progress.text));
        } else if self.request.stop_tokens.contains(&token) {
            progress.finish = Some(self.end(Finish::StopToken(token), &mut progress.text));
        } else {
            progress.finish = self.append(drawn, rules, &mut progress.text);
        }
        self.tell(&mut progress);
        self.take_calls(&mut progress);
        progress
    }

    /// A token that is part of the answer.
    fn append(&mut self, drawn: Drawn, rules: &Rules, out: &mut String) -> Option<Finish> {
        let searched = self.may_end();
        self.next = drawn.token;
        self.answer.push(drawn.token);
        self.history.push(drawn.token);
        self.untold.push_back((self.written, drawn.logprob));
        self.decoded.clear();
        let mark = self
            .splitter
            .as_ref()
            .and_then(|splitter| splitter.spelling(drawn.token));
        let bytes = mark.map_or_else(|| rules.text.get(drawn.token), str::as_bytes);
        self.stream.push(bytes, &mut self.decoded);
        self.written += self.decoded.len();
        let stopped = if searched {
            self.stops.push(&self.decoded, out)
        } else {
            out.push_str(&self.decoded);
            None
        };
        let complete = self
            .guide
            .as_mut()
            .is_some_and(|guide| guide.commit(drawn.token, rules.text.get(drawn.token)));
        match stopped {
            Some(text) => Some(Finish::Stop(text)),
            None if complete => Some(self.end(Finish::EndOfTurn, out)),
            None if self.request.max_tokens == Some(self.generated()) => Some(self.end(Finish::MaxTokens, out)),
            None if self.prompt.len() + self.answer.len() >= rules.context => Some(self.end(Finish::ContextFull, out)),
            None => None,
        }
    }

    /// Counts the tokens for which the new text stands: all that begin within what is let out by now.
    fn tell(&mut self, progress: &mut Progress) {
        if progress.text.is_empty() {
            return;
        }
        self.told += progress.text.len();
        while let Some((_, logprob)) = self.untold.pop_front_if(|(begin, _)| *begin < self.told) {
            progress.tokens += 1;
            progress.logprobs.extend(logprob);
        }
    }

    /// Takes calls of tools out of the text that has become certain. The tokens of what the splitter keeps are told with the
    /// next text or arguments.
    fn take_calls(&mut self, progress: &mut Progress) {
        let Some(splitter) = &mut self.splitter else { return };
        splitter.push(&std::mem::take(&mut progress.text), &mut progress.more);
        if progress.finish.is_some() {
            splitter.finish(&mut progress.more);
        }
        if progress.finish == Some(Finish::EndOfTurn) && splitter.calls() > 0 {
            progress.finish = Some(Finish::ToolCalls);
        }
        if self.only_calls {
            progress.more.retain(|piece| !matches!(piece, Piece::Text(_)));
        }
        if matches!(progress.more.first(), Some(Piece::Text(_)))
            && let Piece::Text(text) = progress.more.remove(0)
        {
            progress.text = text;
        }
        let (tokens, logprobs) = &mut self.owed;
        *tokens += std::mem::take(&mut progress.tokens);
        logprobs.append(&mut progress.logprobs);
        let tells = |piece: &Piece| !matches!(piece, Piece::Call(_));
        if !progress.text.is_empty() || progress.more.iter().any(tells) {
            (progress.tokens, progress.logprobs) = std::mem::take(&mut self.owed);
        }
    }

    /// Lets out what was held back. An unfinished character becomes U+FFFD, which may complete a stop text.
    fn end(&mut self, finish: Finish, out: &mut String) -> Finish {
        self.decoded.clear();
        self.stream.finish(&mut self.decoded);
        self.written += self.decoded.len();
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

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
