//! Calls on their way through a sequence: token by token, behind the stop texts.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use super::{
    Style,
    split::{Piece, Splitter},
};
use crate::{
    job::{Finish, Generate, Prompt, Ticket},
    model::tests::byte_prompts,
    sequence::{Address, Cut, Drawn, Rules, Sequence},
};

const END: u32 = 257;

/// What a sequence tells of `text`, a token for each byte, behind which the model ends its turn; with the tokens that it
/// says they stand for.
fn told(text: &str, stop: &[&str], calls: bool) -> (Vec<Piece>, u32, Option<Finish>) {
    let prompts = byte_prompts();
    let vocabulary = prompts.vocabulary();
    let mut tokens = Vec::new();
    vocabulary.encode(&[text], &mut tokens).expect("text");
    tokens.push(END);
    let rules = Rules {
        ends: vec![END],
        context: 10_000,
        text: Arc::clone(vocabulary.text()),
        cut: Cut::Free,
    };
    let address = Address {
        ticket: Ticket(0),
        mailbox: 0,
        cancelled: Arc::new(AtomicBool::new(false)),
        accepted: Instant::now(),
        deadline: None,
    };
    let request = Generate {
        stop: stop.iter().map(|&text| text.into()).collect(),
        ..Generate::new(Prompt::Tokens(vec![0]))
    };
    let mut sequence = Sequence::new(address, vec![0], request, vocabulary.text().stream(false), None);
    sequence.splitter = calls.then(|| Splitter::new(Style::Hermes, None, vec!["now".into()]));
    let (mut pieces, mut counted): (Vec<Piece>, u32) = (Vec::new(), 0);
    for token in tokens {
        let progress = sequence.take(Drawn { token, logprob: None }, &rules);
        counted += progress.tokens;
        let text = (!progress.text.is_empty()).then_some(Piece::Text(progress.text));
        for piece in text.into_iter().chain(progress.more) {
            match (pieces.last_mut(), piece) {
                (Some(Piece::Text(before)), Piece::Text(more))
                | (Some(Piece::Arguments(before)), Piece::Arguments(more)) => before.push_str(&more),
                (_, piece) => pieces.push(piece),
            }
        }
        if progress.finish.is_some() {
            return (pieces, counted, progress.finish);
        }
    }
    (pieces, counted, None)
}

#[test]
fn calls_come_out_of_the_text() {
    let text = |text: &str| Piece::Text(text.into());
    let call = |arguments: &str| [Piece::Call("now".into()), Piece::Arguments(arguments.into())];
    let answer = "Hm. <tool_call>\n{\"name\": \"now\", \"arguments\": {\"é\": 1}}\n</tool_call>";
    let [name, arguments] = call("{\"é\": 1}");
    let [_, cut] = call("{\"é");
    // Text, stop texts, whether calls may be made, what is told, how it ends.
    type Case<'a> = (&'a str, &'a [&'a str], bool, Vec<Piece>, Finish);
    let cases: [Case<'_>; 6] = [
        ("Hi", &[], true, vec![text("Hi")], Finish::EndOfTurn),
        ("Hi <tool", &[], true, vec![text("Hi <tool")], Finish::EndOfTurn),
        (answer, &[], false, vec![text(answer)], Finish::EndOfTurn),
        (
            answer,
            &[],
            true,
            vec![text("Hm."), name.clone(), arguments],
            Finish::ToolCalls,
        ),
        (answer, &["m. <"], true, vec![text("H")], Finish::Stop("m. <".into())),
        (
            answer,
            &["\": 1"],
            true,
            vec![text("Hm."), name, cut],
            Finish::Stop("\": 1".into()),
        ),
    ];
    for (answer, stop, calls, want, finish) in cases {
        let (pieces, tokens, end) = told(answer, stop, calls);
        assert_eq!((&pieces, end), (&want, Some(finish)), "{answer:?} {stop:?}");
        // The closing mark of a call is told with nothing.
        assert!(tokens > 0 && tokens as usize <= answer.len(), "{answer:?}: {tokens}");
    }
}
