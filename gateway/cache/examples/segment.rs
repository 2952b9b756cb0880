//! How long it takes to replay a full log, to seal it in both forms and to read values: `cargo xtask bench segment` runs it and
//! makes the table.
//!
//! Prints one JSON object a line: for each thing done, the times of each round in nanoseconds, of this thread and on the clock,
//! each for so many bytes or times. Invariant: a round does everything once, with the same answers, through the files that the
//! cache's writer uses.
#![deny(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use zerohop_cache::{
    Answer, Context, FinishReason, PartNumber, Place, PromptHash, Usage,
    files::{DiskFiles, Executor, Files, Open},
    segment::{
        frame,
        log::{self, Durability, Log, SEGMENT},
        part::{Form, Part, Row, bound, seal},
    },
    types::NEVER,
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Values read one by one in a round.
const READS: usize = 2000;
const WORDS: [&str; 48] = [
    "the",
    "a",
    "model",
    "answer",
    "of",
    "in",
    "and",
    "to",
    "is",
    "was",
    "which",
    "request",
    "because",
    "value",
    "table",
    "river",
    "capital",
    "number",
    "however",
    "France",
    "between",
    "seven",
    "older",
    "simple",
    "result",
    "each",
    "with",
    "for",
    "that",
    "it",
    "as",
    "on",
    "city",
    "history",
    "count",
    "list",
    "first",
    "second",
    "example",
    "function",
    "returns",
    "large",
    "small",
    "year",
    "people",
    "water",
    "light",
    "therefore",
];

fn main() -> Outcome {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(5), |rounds| rounds.parse())?;
    let folder = std::env::temp_dir().join(format!("zerohop-segment-{}", std::process::id()));
    let executor = Executor::start();
    let answers = answers();
    let mut table = Table::default();
    let outcome = executor.block_on(async {
        let mut told = String::new();
        // The first round warms, and is not told.
        for number in 0..=rounds {
            let files = executor.folder(folder.join(number.to_string()))?;
            table.told = number > 0;
            told = round(&files, &answers, &mut table).await?;
            std::fs::remove_dir_all(files.path())?;
        }
        Ok::<_, Box<dyn Error>>(told)
    });
    std::fs::remove_dir_all(folder)?;
    let told = outcome?;
    for (what, unit, samples) in &table.rows {
        let [thread, clock] = [0, 1].map(|at| samples.iter().map(|sample| sample[at]).collect::<Vec<_>>());
        println!(r#"{{"what":"{what}","unit":"{unit}","thread":{thread:?},"clock":{clock:?}}}"#);
    }
    println!("{told}");
    Ok(())
}

/// What was measured: nanoseconds of this thread and on the clock, for each byte or time.
#[derive(Default)]
struct Table {
    told: bool,
    rows: Vec<(&'static str, &'static str, Vec<[f64; 2]>)>,
}

impl Table {
    fn add(&mut self, what: &'static str, unit: &'static str, per: f64, nanos: [u64; 2]) {
        if !self.told {
            return;
        }
        let sample = nanos.map(|nanos| nanos as f64 / per);
        match self.rows.iter_mut().find(|row| row.0 == what) {
            Some((.., samples)) => samples.push(sample),
            None => self.rows.push((what, unit, vec![sample])),
        }
    }
}

struct Watch(Instant, u64);

impl Watch {
    fn start() -> Self {
        Self(Instant::now(), cpu_nanos())
    }

    fn stop(&self) -> [u64; 2] {
        [cpu_nanos() - self.1, self.0.elapsed().as_nanos() as u64]
    }
}

fn cpu_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

async fn round(files: &DiskFiles, answers: &[Answer], table: &mut Table) -> Outcome<String> {
    let number = PartNumber(1);
    let bodies: usize = answers.iter().map(|answer| answer.body.len()).sum();
    let watch = Watch::start();
    let log = write_log(files, answers).await?;
    table.add("log written", "byte", bodies as f64, watch.stop());

    let watch = Watch::start();
    let rows = replay(files, number).await?;
    table.add("log replayed", "byte", bodies as f64, watch.stop());
    assert!(rows.iter().map(|row| &row.answer).eq(answers));

    let most = bound(&rows);
    let watch = Watch::start();
    let plain = seal(files, number, rows, Form::Plain).await?;
    table.add("sealed plain", "byte", bodies as f64, watch.stop());

    let watch = Watch::start();
    let part = Part::open(files, number).await?;
    table.add("plain part opened", "time", 1.0, watch.stop());
    let watch = Watch::start();
    assert_eq!(part.rows().await?.len(), answers.len());
    table.add("its key columns read", "row", answers.len() as f64, watch.stop());
    read(&part, &plain.places, "a plain value read", table).await?;

    let every: Vec<_> = (0..answers.len()).collect();
    let rows = part.answers(&every).await?;
    let watch = Watch::start();
    let cold = seal(files, PartNumber(2), rows, Form::Cold).await?;
    table.add("sealed cold", "byte", bodies as f64, watch.stop());
    let watch = Watch::start();
    let part = Part::open(files, PartNumber(2)).await?;
    table.add("cold part opened", "time", 1.0, watch.stop());
    read(&part, &cold.places, "a cold value read", table).await?;

    Ok(format!(
        r#"{{"answers":{},"bodies":{bodies},"frames":{},"log":{},"plain":{},"cold":{},"bound":{most}}}"#,
        answers.len(),
        log.bytes_put,
        log.bytes_written,
        plain.bytes,
        cold.bytes
    ))
}

async fn write_log(files: &DiskFiles, answers: &[Answer]) -> Outcome<log::Written> {
    let mut log = Log::create(files, PartNumber(1), SEGMENT, Durability::Batch).await?;
    for answer in answers {
        log.append(answer, Duration::ZERO)?;
        if log.has_batch() {
            log.write().await?;
        }
    }
    log.flush().await?;
    Ok(log.counts())
}

async fn replay(files: &DiskFiles, number: PartNumber) -> Outcome<Vec<Row>> {
    let file = files.open(&log::name(number), Open::Existing).await?;
    let mut frames = log::replay(&file, number, 0).await?;
    let mut rows = Vec::new();
    while let Some(frame) = frames.next().await? {
        rows.push(Row {
            answer: frame.to_answer(),
            hits: 1,
        });
    }
    Ok(rows)
}

async fn read<F: zerohop_cache::File>(
    part: &Part<F>,
    places: &[Place],
    what: &'static str,
    table: &mut Table,
) -> Outcome {
    let watch = Watch::start();
    for at in 0..READS {
        part.read(places[at * 7919 % places.len()]).await?;
    }
    table.add(what, "time", READS as f64, watch.stop());
    Ok(())
}

/// As many as a segment holds: bodies of 1.3 KB at the median, of words.
fn answers() -> Vec<Answer> {
    let mut chance = Chance(1);
    let (mut answers, mut left) = (Vec::new(), SEGMENT - log::BLOCK as u64 * 2);
    loop {
        let answer = sample(&mut chance, answers.len() as u32);
        let size = frame::size(&answer) as u64;
        if size > left {
            return answers;
        }
        left -= size;
        answers.push(answer);
    }
}

fn sample(chance: &mut Chance, number: u32) -> Answer {
    let usual = 300 + chance.next() % 2000;
    let len = match chance.next() % 100 {
        0 => usual * 10,
        1..10 => usual * 3,
        _ => usual,
    };
    let mut body = format!("{{\"number\":{number},\"text\":\"");
    while body.len() + 2 < len as usize {
        body.push_str(WORDS[chance.next() as usize % WORDS.len()]);
        body.push(' ');
    }
    body.push_str("\"}");
    let mut prompt = [0; 32];
    for part in prompt.chunks_exact_mut(8) {
        part.copy_from_slice(&chance.next().to_le_bytes());
    }
    Answer {
        model: ["small", "large"][number as usize % 2].to_owned(),
        tenant: 7,
        prompt: PromptHash(prompt),
        context: Context([number as u8; 16]),
        created: 1_790_000_000 + number / 50,
        expires: NEVER,
        finish: FinishReason::Stop,
        usage: Usage {
            prompt: 200,
            completion: (len / 4) as u32,
        },
        generation_ms: (len * 3) as u32,
        request: None,
        body: body.into_bytes(),
    }
}

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}
