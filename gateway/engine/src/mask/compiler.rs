//! Grammars to matchers, within bounds: of memory and steps by the library's limits, of time by a thread of its own.
//!
//! The library cannot be interrupted while it compiles, so a compilation that takes too long is left to its limits and
//! the client is refused. Invariant: a caller waits no longer than it says, whatever the grammar, and a panic or a deep
//! recursion in the library costs one grammar, never a thread of the engine.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::bounded;
use llguidance::{Matcher, ParserFactory, api::ParserLimits};

use super::{Refusal, form::Source, schema};

/// How long a compilation may take. The worst of 11,305 real schemas takes 0.54 s on a loaded machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Compilations at once, those that nobody waits for any more included.
const MOST: usize = 4;

/// How often a free place is looked for.
const RETRY: Duration = Duration::from_millis(2);

/// Address space for the recursion of a compilation; memory is taken as it is needed.
const STACK: usize = 256 << 20;

/// Sets what one grammar may use, while it is compiled and for each mask.
pub(super) fn set_limits(limits: &mut ParserLimits) {
    // 1 to 2 kB a state: at most about 100 MB, which only a grammar made for that reaches.
    limits.max_lexer_states = 50_000;
    // About 20 ms, 14 ms and 3 ms.
    limits.initial_lexer_fuel = 1_000_000;
    limits.step_lexer_fuel = 200_000;
    limits.step_max_items = 50_000;
    limits.max_grammar_size = 500_000;
    // Whole grammars do not belong in a line for a client.
    limits.verbose_errors = false;
}

/// Compiles for one model.
#[derive(Default)]
pub(super) struct Compiler {
    running: Arc<AtomicUsize>,
}

/// Counts a compilation for as long as it lives.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why there is no matcher.
pub(super) enum Fault {
    /// This grammar never will have one.
    Never(Refusal),
    /// Another time perhaps: the machine was too busy.
    NotNow(Refusal),
}

impl Compiler {
    /// Compiles within `patience`.
    pub(super) fn compile(
        &self,
        factory: &Arc<ParserFactory>,
        source: Source,
        patience: Duration,
    ) -> Result<Matcher, Fault> {
        let end = Instant::now() + patience;
        let slow = || {
            let seconds = patience.as_secs_f32();
            Fault::NotNow(Refusal::new(format!(
                "it takes longer than {seconds} s to compile: make it simpler"
            )))
        };
        let running = self.place(end).ok_or_else(slow)?;
        let (answer, wait) = bounded(1);
        let factory = Arc::clone(factory);
        let Source { grammar, schema } = source;
        let work = move || {
            let _running = running;
            let compiled = factory.create_parser(grammar).map(|parser| Matcher::new(Ok(parser)));
            // Nobody waits if it took too long.
            let _ = answer.send(compiled.map_err(|error| error.to_string()));
        };
        let spawned = thread::Builder::new()
            .name("zh-compile".into())
            .stack_size(STACK)
            .spawn(work);
        if let Err(error) = spawned {
            let text = format!("the system gives no thread to compile it: {error}");
            return Err(Fault::NotNow(Refusal::new(text)));
        }
        let compiled = wait.recv_deadline(end).map_err(|error| match error {
            crossbeam_channel::RecvTimeoutError::Timeout => slow(),
            crossbeam_channel::RecvTimeoutError::Disconnected => Fault::Never(Refusal::new(TOO_COMPLEX)),
        })?;
        compiled.map_err(|error| Fault::Never(explain(&error, schema.as_ref())))
    }

    /// A place among those that run, if one comes free in time.
    fn place(&self, end: Instant) -> Option<Running> {
        loop {
            let taken = self.running.fetch_add(1, Ordering::AcqRel);
            let running = Running(Arc::clone(&self.running));
            if taken < MOST {
                return Some(running);
            }
            drop(running);
            if Instant::now() >= end {
                return None;
            }
            thread::sleep(RETRY);
        }
    }
}

const TOO_COMPLEX: &str = "it is too complex to be compiled";

/// The library's words as a line for the client.
fn explain(error: &str, schema: Option<&serde_json::Value>) -> Refusal {
    if error.starts_with("panic") {
        return Refusal::new(TOO_COMPLEX);
    }
    let mut lines = error.lines().filter(|line| !line.trim().is_empty());
    let line = lines.next().unwrap_or(TOO_COMPLEX);
    // The library's options are not the client's to set.
    let line = match line.split_once(" Enable 'coerce_one_of'") {
        Some(_) => "`oneOf` of schemas that may overlap is not supported: use `anyOf`",
        None => line,
    };
    // What is wrong with a regular expression stands below a drawing of it.
    let detail = lines.find_map(|line| line.strip_prefix("error:")).unwrap_or_default();
    let mut text: String = line.chars().filter(|c| !c.is_control()).take(300).collect();
    text.extend(detail.chars().filter(|c| !c.is_control()).take(100));
    // It names the keyword but not the place.
    for keyword in [
        "oneOf",
        "minProperties",
        "maxProperties",
        "patternProperties",
        "pattern",
        "multipleOf",
    ] {
        if error.contains(keyword)
            && let Some(place) = schema.and_then(|schema| schema::first(schema, keyword, "$"))
        {
            text.push_str(&format!(" (`{keyword}` at {place})"));
            break;
        }
    }
    Refusal::new(text)
}
