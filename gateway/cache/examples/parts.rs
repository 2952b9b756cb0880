//! Writes a folder of parts for other programs to read: `cargo xtask test --only parquet` runs it and has them read it.
//!
//! It measures nothing and prints nothing. Invariant: what a row says follows from its number alone, so that the reader can say
//! it again without having been told. Beside the parts lies an unfinished one, as a crash leaves it.
#![deny(unsafe_code)]

use std::{error::Error, fs};

use zerohop_cache::{
    Answer, Context, FinishReason, PartNumber, PromptHash, Usage,
    files::Executor,
    segment::part::{Form, Row, seal},
    types::NEVER,
};

const ROWS: u32 = 3000;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder is to be written?")?;
    let executor = Executor::start();
    executor.block_on(async {
        let files = executor.folder(&folder)?;
        for (number, form) in [(1, Form::Plain), (2, Form::Cold)] {
            let rows = (0..ROWS).map(|row| sample((number - 1) * ROWS + row)).collect();
            seal(&files, PartNumber(number), rows, form).await?;
        }
        fs::write(files.path().join(".part-3.tmp"), "PAR1 torn")?;
        Ok(())
    })
}

/// The row of this number.
fn sample(number: u32) -> Row {
    let text = format!("Answer {number}: né 世界. ").repeat(number as usize % 60);
    // One that is larger than many pages.
    let text = if number == 77 { "long ".repeat(200_000) } else { text };
    let [_, _, third, fourth] = number.to_be_bytes();
    let answer = Answer {
        model: ["small", "large", "größe"][number as usize % 3].to_owned(),
        tenant: u64::MAX - u64::from(number % 2),
        prompt: PromptHash(std::array::from_fn(|at| if at % 2 == 0 { third } else { fourth })),
        context: Context([fourth; 16]),
        created: 1_790_000_000 + number,
        expires: if number.is_multiple_of(4) { NEVER } else { 4_000_000_000 },
        finish: [
            FinishReason::Stop,
            FinishReason::StopSequence,
            FinishReason::Tools,
            FinishReason::Length,
        ][number as usize % 4],
        usage: Usage {
            prompt: number,
            completion: u32::MAX - number,
        },
        generation_ms: number * 2,
        request: number
            .is_multiple_of(5)
            .then(|| format!("[\"request {number}\"]").into_bytes()),
        body: format!("{{\"number\":{number},\"text\":\"{text}\"}}").into_bytes(),
    };
    Row {
        answer,
        hits: number % 7,
    }
}
