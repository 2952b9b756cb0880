//! What a sequence's progress is to its client: events, in their order, on their way to the worker.
//!
//! It computes nothing and knows no batch. Invariant: one `Started` for each sequence that got that far, one final event
//! for each, and nothing behind that.

use std::time::Instant;

use crate::{
    batch::Shared,
    calls::split::Piece,
    job::{Event, Finish, Mail},
    outbox::Outbox,
    sequence::{Address, Drawn, Progress, Rules, Sequence},
    stats::add,
};

/// The first token of a sequence.
pub(crate) fn begin(
    sequence: &mut Sequence,
    drawn: Option<Drawn>,
    rules: &Rules,
    outbox: &mut Outbox,
    shared: &Shared,
) {
    let event = Event::Started {
        input_tokens: sequence.prompt.len() as u32,
        cached_tokens: sequence.cached as u32,
        queued: sequence.admitted - sequence.address.accepted,
    };
    let address = &sequence.address;
    let mail = Mail {
        ticket: address.ticket,
        event,
        at: sequence.admitted,
    };
    outbox.send(address.mailbox, mail, None);
    sequence.begun = true;
    if let Some(text) = sequence.echo.take() {
        let Address { ticket, mailbox, .. } = sequence.address;
        let event = Event::Echo {
            text,
            logprobs: std::mem::take(&mut sequence.prompt_logprobs),
        };
        let mail = Mail {
            ticket,
            event,
            at: sequence.admitted,
        };
        outbox.send(mailbox, mail, None);
    }
    if sequence.wants_none() {
        let finish = Finish::MaxTokens;
        let usage = sequence.usage();
        close(sequence, Event::Finished { finish, usage }, outbox, shared);
        add(&shared.counters.finished, 1);
        return;
    }
    advance(sequence, drawn, rules, outbox, shared);
}

/// One more token of a sequence: sends what it brought, and marks the sequence over if it ends.
pub(crate) fn advance(
    sequence: &mut Sequence,
    drawn: Option<Drawn>,
    rules: &Rules,
    outbox: &mut Outbox,
    shared: &Shared,
) {
    if let Some(refusal) = sequence.guide.as_ref().and_then(|guide| guide.fault()) {
        let event = refusal.event(&sequence.request);
        refusal.count(&shared.counters);
        close(sequence, event, outbox, shared);
        return;
    }
    let Some(drawn) = drawn else {
        fail(sequence, sequence.why_none(), outbox, shared);
        return;
    };
    add(&shared.counters.masked_tokens, usize::from(sequence.is_masked()));
    let mut progress = sequence.take(drawn, rules);
    let first = std::mem::take(&mut progress.text);
    let first = (!first.is_empty()).then_some(Piece::Text(first));
    let more = std::mem::take(&mut progress.more);
    for piece in first.into_iter().chain(more) {
        let Address { ticket, mailbox, .. } = sequence.address;
        let mail = Mail {
            ticket,
            event: told(piece, &mut progress),
            at: Instant::now(),
        };
        sequence.waiting_text = outbox.send(mailbox, mail, sequence.waiting_text);
    }
    if let Some(finish) = progress.finish {
        let usage = sequence.usage();
        close(sequence, Event::Finished { finish, usage }, outbox, shared);
        add(&shared.counters.finished, 1);
    }
}

/// A piece of an answer as an event. The first that can says which tokens they all stand for.
fn told(piece: Piece, progress: &mut Progress) -> Event {
    let tokens = &mut progress.tokens;
    match piece {
        Piece::Call(name) => Event::Call { name },
        Piece::Text(text) => Event::Text {
            text,
            tokens: std::mem::take(tokens),
            logprobs: std::mem::take(&mut progress.logprobs),
        },
        Piece::Arguments(text) => Event::Arguments {
            text,
            tokens: std::mem::take(tokens),
        },
    }
}

/// The engine's fault ends a sequence.
pub(crate) fn fail(sequence: &mut Sequence, reason: &str, outbox: &mut Outbox, shared: &Shared) {
    let reason = reason.to_owned();
    close(sequence, Event::Failed { reason }, outbox, shared);
    add(&shared.counters.failed, 1);
}

/// The deadline ends a sequence.
pub(crate) fn time_out(sequence: &mut Sequence, outbox: &mut Outbox, shared: &Shared) {
    close(sequence, Event::TimedOut, outbox, shared);
    add(&shared.counters.timed_out, 1);
}

/// The last event of a sequence.
fn close(sequence: &mut Sequence, event: Event, outbox: &mut Outbox, shared: &Shared) {
    sequence.over = true;
    // Who never had a place says nothing of how long one is needed.
    if sequence.arrival > 0 {
        shared.admission.record_service(sequence.admitted.elapsed());
    }
    let Address { ticket, mailbox, .. } = sequence.address;
    let mail = Mail {
        ticket,
        event,
        at: Instant::now(),
    };
    outbox.send(mailbox, mail, None);
}
