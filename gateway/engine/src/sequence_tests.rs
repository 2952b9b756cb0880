use proptest::prelude::*;

use super::*;
use crate::{
    job::{JobHandle, Prompt, Sampling},
    model::tests::bytes,
};

const END: u32 = 0;
const STOP: u32 = 'S' as u32;

fn rules() -> Rules {
    Rules {
        ends: vec![END],
        context: 1000,
        text: Arc::new(bytes(&[END])),
        cut: Cut::Free,
    }
}

fn sequence(request: Generate) -> Sequence {
    let (_, cancelled) = JobHandle::new();
    let address = Address {
        ticket: Ticket(0),
        mailbox: 0,
        cancelled,
        accepted: Instant::now(),
        deadline: None,
    };
    let stream = rules().text.stream(false);
    Sequence::new(address, vec![1, 2], request, stream, None)
}

fn request() -> Generate {
    Generate {
        logprobs: Some(0),
        ..Generate::new(Prompt::Tokens(vec![1, 2]))
    }
}

/// A token whose log probability says which one it is in the answer.
fn drawn(token: u32, number: usize) -> Drawn {
    let logprob = Logprob {
        token,
        bytes: vec![token as u8],
        logprob: Some(-(number as f32)),
        top: Vec::new(),
    };
    Drawn {
        token,
        logprob: Some(logprob),
    }
}

/// A piece of text, and the numbers of its tokens.
type Piece = (String, Vec<usize>);

/// Feeds bytes as tokens; the pieces, the end, and how many tokens count.
fn feed(request: Generate, tokens: &[u32]) -> (Vec<Piece>, Option<Finish>, u32) {
    let (rules, mut sequence) = (rules(), sequence(request));
    let (mut pieces, mut finish) = (Vec::new(), None);
    for (number, &token) in tokens.iter().enumerate() {
        let progress = sequence.take(drawn(token, number), &rules);
        assert_eq!(progress.tokens as usize, progress.logprobs.len());
        if !progress.text.is_empty() {
            let numbers = progress
                .logprobs
                .iter()
                .map(|told| -told.logprob.unwrap_or(1.0) as usize);
            pieces.push((progress.text, numbers.collect()));
        } else {
            assert_eq!(progress.logprobs, [], "no token is told without text");
        }
        finish = progress.finish;
        if finish.is_some() {
            assert_eq!(number + 1, tokens.len(), "over before the last token of the test");
        }
    }
    (pieces, finish, sequence.usage().output_tokens)
}

#[test]
fn text_and_its_tokens_stay_together() {
    let stop = |texts: &[&str]| Generate {
        stop: texts.iter().map(|&text| text.to_owned()).collect(),
        ..request()
    };
    let limited = |max_tokens| Generate {
        max_tokens: Some(max_tokens),
        ..request()
    };
    let deaf = || Generate {
        ignore_eos: true,
        ..request()
    };
    /// A request, bytes that are tokens, the pieces, and the end.
    type Case<'a> = (
        &'a str,
        Generate,
        &'a [u8],
        &'a [(&'a str, &'a [usize])],
        Option<Finish>,
    );
    let cases: [Case; 11] = [
        ("letters", request(), b"ab", &[("a", &[0]), ("b", &[1])], None),
        (
            "a character in parts",
            request(),
            "aé€".as_bytes(),
            &[("a", &[0]), ("é", &[1, 2]), ("€", &[3, 4, 5])],
            None,
        ),
        ("an end", request(), b"a\0", &[("a", &[0])], Some(Finish::EndOfTurn)),
        (
            "cut inside a character",
            request(),
            b"a\xC3\0",
            &[("a", &[0]), ("\u{FFFD}", &[1])],
            Some(Finish::EndOfTurn),
        ),
        (
            "held and let go",
            stop(&["xyz"]),
            b"axyq",
            &[("a", &[0]), ("xyq", &[1, 2, 3])],
            None,
        ),
        (
            "held to the end",
            stop(&["xyz"]),
            b"axy\0",
            &[("a", &[0]), ("xy", &[1, 2])],
            Some(Finish::EndOfTurn),
        ),
        (
            "cut away",
            stop(&["xyz"]),
            b"axyz",
            &[("a", &[0])],
            Some(Finish::Stop("xyz".into())),
        ),
        (
            "partly cut away",
            stop(&["xyz", "yy"]),
            b"axyy",
            &[("a", &[0]), ("x", &[1])],
            Some(Finish::Stop("yy".into())),
        ),
        (
            "the last",
            limited(2),
            b"ab",
            &[("a", &[0]), ("b", &[1])],
            Some(Finish::MaxTokens),
        ),
        (
            "an end that is none",
            deaf(),
            b"a\0b",
            &[("a", &[0]), ("b", &[1, 2])],
            None,
        ),
        ("ends that stay untold", deaf(), b"a\0\0", &[("a", &[0])], None),
    ];
    for (name, request, tokens, want, finish) in cases {
        let tokens: Vec<u32> = tokens.iter().map(|&byte| u32::from(byte)).collect();
        let (pieces, ended, _) = feed(request, &tokens);
        let pieces: Vec<(&str, &[usize])> = pieces.iter().map(|(text, told)| (&text[..], &told[..])).collect();
        assert_eq!(pieces, want, "{name}");
        assert_eq!(ended, finish, "{name}");
    }
}

#[test]
fn what_ends_an_answer() {
    let stops = || Generate {
        stop_tokens: vec![STOP, END],
        stop: vec!["xx".into()],
        ..request()
    };
    let after = |min_tokens| Generate { min_tokens, ..stops() };
    let deaf = || Generate {
        ignore_eos: true,
        ..stops()
    };
    /// A request, bytes that are tokens, the text, the end, and how many tokens were generated.
    type Case<'a> = (&'a str, Generate, &'a [u8], &'a str, Option<Finish>, u32);
    let cases: [Case; 9] = [
        ("a stop token", stops(), b"aS", "a", Some(Finish::StopToken(STOP)), 1),
        (
            "the model's own end comes first",
            stops(),
            b"a\0",
            "a",
            Some(Finish::EndOfTurn),
            1,
        ),
        (
            "an end as a stop token",
            deaf(),
            b"a\0",
            "a",
            Some(Finish::StopToken(END)),
            1,
        ),
        (
            "text held at a stop token",
            stops(),
            b"axS",
            "ax",
            Some(Finish::StopToken(STOP)),
            2,
        ),
        ("no stop token", request(), b"aS", "aS", None, 2),
        ("a stop text", stops(), b"axx", "a", Some(Finish::Stop("xx".into())), 3),
        ("a stop text too early", after(3), b"axxb", "axxb", None, 4),
        ("half too early", after(2), b"axxb", "axxb", None, 4),
        ("late enough", after(1), b"axx", "a", Some(Finish::Stop("xx".into())), 3),
    ];
    for (name, request, tokens, want, finish, count) in cases {
        let tokens: Vec<u32> = tokens.iter().map(|&byte| u32::from(byte)).collect();
        let (pieces, ended, generated) = feed(request, &tokens);
        let text: String = pieces.into_iter().map(|(text, _)| text).collect();
        assert_eq!((&text[..], ended, generated), (want, finish, count), "{name}");
    }
}

#[test]
fn ends_are_not_drawn_too_early() {
    let request = Generate {
        min_tokens: 2,
        stop_tokens: vec![33],
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        ..request()
    };
    let mut logits = vec![0.0; 40];
    (logits[END as usize], logits[33], logits[7]) = (9.0, 8.0, 7.0);
    let (rules, mut sampler, mut words) = (rules(), Sampler::default(), Vec::new());
    let mut sequence = sequence(request);
    let mut answer = Vec::new();
    for _ in 0..3 {
        let drawn = sequence
            .draw(&logits, &rules, &mut sampler, &mut words)
            .expect("a token");
        answer.push(drawn.token);
        sequence.take(drawn, &rules);
    }
    assert_eq!(answer, [7, 7, END]);
    assert_eq!(sequence.usage().output_tokens, 2);
}

#[test]
fn the_mask_of_a_row() {
    let early = Generate {
        min_tokens: 1,
        stop_tokens: vec![33, 500],
        ..request()
    };
    /// A request, what its form allows, and the mask.
    type Case<'a> = (&'a str, Generate, Option<&'a [u32]>, Option<&'a [u32]>);
    let cases: [Case; 6] = [
        ("free", request(), None, None),
        ("a form", request(), Some(&[5, 1]), Some(&[5, 1])),
        ("no end yet", early.clone(), None, Some(&[!1, !2])),
        ("both", early.clone(), Some(&[5, 7]), Some(&[4, 5])),
        ("a form that is complete", early.clone(), Some(&[1, 2]), Some(&[1, 2])),
        ("nothing at all", early, Some(&[]), Some(&[])),
    ];
    let rules = rules();
    for (name, request, constraint, want) in cases {
        let mut words = vec![3; 9];
        assert_eq!(
            sequence(request).mask(constraint, 40, &rules, &mut words),
            want,
            "{name}"
        );
    }
}

proptest! {
    /// Whatever stops it: the text is a beginning of the tokens' text, and each token is told at most once, in order, with
    /// the piece in which its text begins.
    #[test]
    fn each_token_is_told_with_its_text(
        tokens in prop::collection::vec(prop_oneof![
            Just(u32::from(b'a')), Just(u32::from(b'b')), Just(0xC3), Just(0xA9), Just(END)], 1..40),
        stops in prop::collection::vec("[ab\u{e9}]{1,4}", 0..3),
        min_tokens in 0u32..6,
        max_tokens in 1u32..40,
    ) {
        let request = Generate { stop: stops, ignore_eos: true, min_tokens, max_tokens: Some(max_tokens), ..request() };
        let (rules, mut sequence) = (rules(), sequence(request));
        let mut whole = rules.text.stream(false);
        let (mut text, mut told, mut begins, mut all) = (String::new(), Vec::new(), Vec::new(), String::new());
        let mut finish = None;
        for (number, &token) in tokens.iter().enumerate() {
            begins.push(all.len());
            whole.push(rules.text.get(token), &mut all);
            let progress = sequence.take(drawn(token, number), &rules);
            let before = text.len();
            text.push_str(&progress.text);
            for logprob in progress.logprobs {
                told.push(-logprob.logprob.unwrap_or(1.0) as usize);
                let begin = begins[told[told.len() - 1]];
                prop_assert!(before <= begin && begin < text.len(), "token at {} with {}..{}", begin, before, text.len());
            }
            finish = progress.finish;
            if finish.is_some() {
                break;
            }
        }
        whole.finish(&mut all);
        prop_assert!(all.starts_with(&text));
        prop_assert!(told.iter().copied().eq(0..told.len()), "{:?}", told);
        let untold = begins.iter().skip(told.len()).all(|&begin| begin >= text.len());
        prop_assert!(untold, "{:?} {:?}", begins, text);
        prop_assert_eq!(matches!(finish, Some(Finish::MaxTokens)), finish.is_some() && text == all);
    }
}
