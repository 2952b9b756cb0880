//! `cache warm`: the requests of a file, sent to a gateway as any client would, so that their answers are kept.
//!
//! One thread reads the file, some send, this one counts. Invariants: what is in memory is bounded by the number of requests
//! under way; a request is noted as done only when its reply is there, so a run that is resumed leaves nothing out.

mod send;

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, bounded};
use indicatif::ProgressBar;

use self::send::{Client, Outcome};
use super::{
    args::WarmArgs,
    guess,
    lines::{Line, Lines},
    tally::{Faults, bar},
};
use crate::cli::Failure;

/// Longest line in bytes.
const LONGEST: usize = 64 << 20;
/// Requests that fail one after the other until the run is given up.
const HOPELESS: u64 = 20;
/// How long what was done may be known to this process only.
const NOTED: Duration = Duration::from_secs(1);

/// Names a request, among those of a file.
type Mark = [u8; 16];

/// A request on its way.
struct Job {
    line: u64,
    mark: Mark,
    path: &'static str,
    body: String,
}

/// What became of a line.
enum Done {
    /// It was sent.
    Sent(u64, Mark, Outcome),
    /// It is no request.
    Bad(u64, String),
    /// It was there before, in this file or in an earlier run.
    Twice,
    Earlier,
}

/// Sends the requests of a file.
pub(super) fn warm(args: &WarmArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let failed = |path: &Path, error: io::Error| Failure::Start(format!("{}: {error}", path.display()));
    let key = args.key_env.as_deref().map(super::key).transpose()?;
    let client = Client::new(&args.url, key, args.concurrency).map_err(Failure::Start)?;
    let (lines, length) = Lines::open(&args.file, LONGEST).map_err(|error| failed(&args.file, error))?;
    let state = state_file(&args.file);
    let (earlier, mut noted) = Noted::open(&state, args.resume).map_err(|error| failed(&state, error))?;
    let (bar, begun, stop) = (bar(length), Instant::now(), AtomicBool::new(false));
    let (jobs_in, jobs) = bounded::<Job>(usize::from(args.concurrency));
    let (done_in, done) = bounded::<Done>(1024);
    let mut sums = Sums::default();
    let counted = thread::scope(|scope| {
        let (reading, of_reader, bar, stop) = (done_in.clone(), &earlier, &bar, &stop);
        scope.spawn(move || read(lines, args, of_reader, (&jobs_in, &reading), (bar, stop)));
        for _ in 0..args.concurrency {
            let (jobs, done, client) = (jobs.clone(), done_in.clone(), client.clone());
            scope.spawn(move || work(&jobs, &done, &client, stop));
        }
        // The threads' ends are the last ones, so that counting ends when they have.
        drop((done_in, jobs));
        sums.count(&done, (&args.file, bar), &mut noted, stop)
    });
    bar.finish_and_clear();
    counted
        .and_then(|()| noted.flush())
        .map_err(|error| failed(&state, error))?;
    sums.summary(begun.elapsed().as_secs_f64(), out)?;
    if stop.load(Ordering::Relaxed) {
        let why =
            format!("gave up: {HOPELESS} requests failed one after the other; `--resume` goes on where this ended");
        return Err(Failure::Work(why));
    }
    match sums.bad.count + sums.refused.count + sums.failed.count {
        0 => Ok(()),
        count => Err(Failure::Work(format!("{count} lines were bad, refused or failed"))),
    }
}

fn state_file(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".warmed");
    name.into()
}

/// Hands out the requests of the file, each once.
fn read(
    mut lines: Lines<File>,
    args: &WarmArgs,
    earlier: &HashSet<Mark>,
    (jobs, done): (&Sender<Job>, &Sender<Done>),
    (bar, stop): (&ProgressBar, &AtomicBool),
) {
    let mut seen = HashSet::new();
    let (begun, mut sent) = (Instant::now(), 0_u32);
    while !stop.load(Ordering::Relaxed) {
        let read = match lines.next() {
            Ok(None) => return,
            Ok(Some(Line::TooLong)) => Err(format!("longer than {LONGEST} bytes")),
            Ok(Some(Line::Text(text))) => guess::request_for(text, args.api).map(|request| {
                let mark = mark(request.path, request.body);
                (mark, request.path, request.body.to_owned())
            }),
            Err(error) => {
                let _told = done.send(Done::Bad(lines.number() + 1, error.to_string()));
                return;
            }
        };
        bar.set_position(lines.bytes());
        let line = lines.number();
        let told = match read {
            Err(why) => done.send(Done::Bad(line, why)).is_ok(),
            Ok((mark, ..)) if !seen.insert(mark) => done.send(Done::Twice).is_ok(),
            Ok((mark, ..)) if earlier.contains(&mark) => done.send(Done::Earlier).is_ok(),
            Ok((mark, path, body)) => {
                if let Some(rate) = args.rate {
                    let due = Duration::from_secs_f64(f64::from(sent) / f64::from(rate));
                    thread::sleep(due.saturating_sub(begun.elapsed()));
                    sent += 1;
                }
                jobs.send(Job { line, mark, path, body }).is_ok()
            }
        };
        if !told {
            return;
        }
    }
}

fn mark(path: &str, body: &str) -> Mark {
    let mut hash = blake3::Hasher::new();
    hash.update(path.as_bytes()).update(b"\0").update(body.as_bytes());
    let digest = hash.finalize();
    std::array::from_fn(|at| digest.as_bytes()[at])
}

fn work(jobs: &Receiver<Job>, done: &Sender<Done>, client: &Client, stop: &AtomicBool) {
    for job in jobs {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let outcome = client.send(job.path, &job.body, stop);
        if done.send(Done::Sent(job.line, job.mark, outcome)).is_err() {
            return;
        }
    }
}

/// What earlier runs have done, and this one: a line of hexadecimal digits for each request.
struct Noted {
    file: BufWriter<File>,
    flushed: Instant,
}

impl Noted {
    /// Opens the file; what it has, if the run is to be resumed.
    fn open(path: &Path, resume: bool) -> io::Result<(HashSet<Mark>, Self)> {
        let mut earlier = HashSet::new();
        if resume && let Some(file) = existing(path)? {
            for line in BufReader::new(file).lines() {
                // A last line that was cut off is no mark: its request is sent once more.
                earlier.extend(unmarked(&line?));
            }
        }
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .write(true)
            .truncate(!resume)
            .append(resume)
            .open(path)?;
        let mut this = Self {
            file: BufWriter::new(file),
            flushed: Instant::now(),
        };
        if resume {
            // Behind a line that was cut off.
            this.file.write_all(b"\n")?;
        }
        Ok((earlier, this))
    }

    fn add(&mut self, mark: Mark) -> io::Result<()> {
        for byte in mark {
            write!(self.file, "{byte:02x}")?;
        }
        self.file.write_all(b"\n")?;
        match self.flushed.elapsed() > NOTED {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        self.file.flush()
    }
}

fn existing(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn unmarked(line: &str) -> Option<Mark> {
    if line.len() != 32 || !line.is_ascii() {
        return None;
    }
    let mut mark = [0; 16];
    for (at, byte) in mark.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&line[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(mark)
}

/// What became of all lines.
#[derive(Default)]
struct Sums {
    sent: u64,
    kept: u64,
    hits: u64,
    /// Answered, and not kept; the reasons.
    not_kept: Faults,
    refused: Faults,
    failed: Faults,
    bad: Faults,
    twice: u64,
    earlier: u64,
}

impl Sums {
    fn count(
        &mut self,
        done: &Receiver<Done>,
        (file, bar): (&Path, &ProgressBar),
        noted: &mut Noted,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let mut hopeless = 0;
        for done in done {
            let (line, mark, outcome) = match done {
                Done::Bad(line, why) => {
                    self.bad.tell(bar, (file, line), "bad", &why);
                    continue;
                }
                Done::Twice => {
                    self.twice += 1;
                    continue;
                }
                Done::Earlier => {
                    self.earlier += 1;
                    continue;
                }
                Done::Sent(line, mark, outcome) => (line, mark, outcome),
            };
            self.sent += 1;
            hopeless = if matches!(outcome, Outcome::Failed(_)) {
                hopeless + 1
            } else {
                0
            };
            if hopeless == HOPELESS {
                stop.store(true, Ordering::Relaxed);
            }
            match outcome {
                Outcome::Kept => self.kept += 1,
                Outcome::Hit => self.hits += 1,
                Outcome::NotKept(why) => self.not_kept.add(why),
                Outcome::Refused(why) => self.refused.tell(bar, (file, line), &why, &why),
                Outcome::Failed(why) => {
                    self.failed.tell(bar, (file, line), &why, &why);
                    continue;
                }
            }
            noted.add(mark)?;
            bar.set_message(format!("sent {}, kept {}, hits {}", self.sent, self.kept, self.hits));
        }
        Ok(())
    }

    fn summary(&self, took: f64, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "sent {}: kept {}, hits already {}, not kept {}, refused {}, failed {}; {took:.1} s, {:.0} a second",
            self.sent,
            self.kept,
            self.hits,
            self.not_kept.count,
            self.refused.count,
            self.failed.count,
            self.sent as f64 / took.max(1e-9)
        )?;
        writeln!(
            out,
            "not sent: twice in the file {}, done earlier {}, bad lines {}",
            self.twice, self.earlier, self.bad.count
        )?;
        for (word, faults) in [
            ("not kept", &self.not_kept),
            ("refused", &self.refused),
            ("failed", &self.failed),
        ] {
            for (why, count) in faults.kinds() {
                writeln!(out, "{word} {count}: {why}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_again_and_half_ones_are_none() {
        let one = mark("/v1/messages", "{}");
        assert_ne!(one, mark("/v1/messages", "{ }"));
        assert_ne!(one, mark("/v1/chat/completions", "{}"));
        let text: String = one.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(unmarked(&text), Some(one));
        for half in [
            "",
            &text[1..],
            "zz000000000000000000000000000000",
            "é0000000000000000000000000000é",
        ] {
            assert_eq!(unmarked(half), None, "{half}");
        }
    }

    #[test]
    fn a_run_is_resumed_behind_a_torn_line() {
        let path = std::env::temp_dir().join(format!("zerohop-warmed-{}", std::process::id()));
        let [one, two] = [mark("a", "1"), mark("a", "2")];
        let (earlier, mut noted) = Noted::open(&path, false).expect("a file");
        assert!(earlier.is_empty());
        noted.add(one).expect("a file");
        noted.file.write_all(b"0123").expect("a file");
        drop(noted);
        let (earlier, mut noted) = Noted::open(&path, true).expect("a file");
        assert_eq!(earlier, HashSet::from([one]));
        noted.add(two).expect("a file");
        drop(noted);
        assert_eq!(Noted::open(&path, true).expect("a file").0, HashSet::from([one, two]));
        assert!(Noted::open(&path, false).expect("a file").0.is_empty());
        std::fs::remove_file(&path).expect("it is there");
    }
}
