//! Answers for the tests.

use proptest::prelude::*;

use crate::types::{Answer, Context, FinishReason, PromptHash, Usage};

/// Any answer, small mostly.
pub(super) fn any_answer() -> impl Strategy<Value = Answer> {
    let text = |most| {
        prop_oneof![
            Just(String::new()),
            ".{0,40}",
            prop::collection::vec("[ -~é世]", 0..most).prop_map(|parts| parts.concat())
        ]
    };
    let finish = prop::sample::select(vec![
        FinishReason::Stop,
        FinishReason::StopSequence,
        FinishReason::Tools,
        FinishReason::Length,
    ]);
    let hashes = (any::<[u8; 32]>(), any::<[u8; 16]>());
    let numbers = any::<[u32; 5]>();
    let request = prop::option::of(text(200));
    (
        (".{0,20}", any::<u64>(), finish, prop::bool::ANY),
        hashes,
        numbers,
        request,
        text(3000),
    )
        .prop_map(
            |((model, tenant, finish, never), (prompt, context), numbers, request, body)| Answer {
                model,
                tenant,
                prompt: PromptHash(prompt),
                context: Context(context),
                created: numbers[0],
                expires: if never { crate::types::NEVER } else { numbers[1] },
                finish,
                usage: Usage {
                    prompt: numbers[2],
                    completion: numbers[3],
                },
                generation_ms: numbers[4],
                request: request.map(String::into_bytes),
                body: body.into_bytes(),
            },
        )
}

/// An answer that tells its number, with a body of `len` bytes at least.
pub(super) fn answer(number: u64, len: usize) -> Answer {
    let mut prompt = [0; 32];
    prompt[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    prompt[24..].copy_from_slice(&number.to_be_bytes());
    let mut body = format!("{{\"number\":{number},\"text\":\"");
    while body.len() + 2 < len {
        body.push(char::from(b'a' + (body.len() as u64 * 7 % 11 + number % 13) as u8));
    }
    body.push_str("\"}");
    Answer {
        model: format!("model {}", number % 3),
        tenant: number % 5,
        prompt: PromptHash(prompt),
        context: Context([number as u8; 16]),
        created: 1_790_000_000 + number as u32,
        expires: if number.is_multiple_of(4) {
            crate::types::NEVER
        } else {
            1_790_086_400
        },
        finish: FinishReason::Stop,
        usage: Usage {
            prompt: 40,
            completion: number as u32,
        },
        generation_ms: 900,
        request: number
            .is_multiple_of(7)
            .then(|| format!("[\"request {number}\"]").into_bytes()),
        body: body.into_bytes(),
    }
}
