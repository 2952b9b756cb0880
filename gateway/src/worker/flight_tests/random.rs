//! Random runs of whole workers: clients that ask the same and others that do not, that leave, engines that fail.
//!
//! Everything comes from a seed. Invariants that are checked: whoever stays gets one answer whole, or an error; a reply is of
//! one generation; no generation that could have been followed was made twice; in the end nothing is left.

use super::{
    super::sim_tests::Chance,
    stage::{finished, started, text_of, word},
    *,
};

/// A job, as its engine has it.
struct Script {
    words: usize,
    told: usize,
    end: Event,
    over: bool,
}

struct Client {
    wire: zerohop_ring::sim::WireId,
    left: bool,
}

struct Run {
    chance: Chance,
    stage: Stage,
    workers: usize,
    scripts: Vec<Script>,
    clients: Vec<Client>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let workers = 1 + chance.below(3);
        Self {
            chance,
            stage: Stage::new(workers),
            workers,
            scripts: Vec::new(),
            clients: Vec::new(),
        }
    }

    /// What was asked of the engine since.
    fn note_jobs(&mut self) {
        while self.scripts.len() < self.stage.jobs() {
            let end = match self.chance.below(8) {
                0 => Event::Failed { reason: "no".into() },
                1 => Event::TimedOut,
                2 => Event::TooLong {
                    input_tokens: 200,
                    limit: 100,
                },
                3 => finished(Finish::MaxTokens),
                _ => finished(Finish::EndOfTurn),
            };
            self.scripts.push(Script {
                words: self.chance.below(5),
                told: 0,
                end,
                over: false,
            });
        }
    }

    fn ask(&mut self) {
        let ask = ALL[self.chance.below(4)];
        let head = match self.chance.below(10) {
            0 => "cache-control: no-cache\r\n",
            1 => "cache-control: no-store\r\n",
            _ => "",
        };
        let worker = self.chance.below(self.workers);
        let wire = self.stage.ask(worker, ask, head);
        self.clients.push(Client { wire, left: false });
    }

    /// The engine says what is next of one of its jobs; false if it has none.
    fn tell(&mut self) -> bool {
        let open = |job: &usize| !self.scripts[*job].over && !self.stage.is_cancelled(*job);
        let open: Vec<_> = (0..self.scripts.len()).filter(open).collect();
        if open.is_empty() {
            return false;
        }
        let job = open[self.chance.below(open.len())];
        let script = &mut self.scripts[job];
        script.told += 1;
        let event = match script.told {
            // Some fail before they begin.
            1 if script.words > 0 => started(),
            told if told <= script.words + 1 && script.words > 0 => word(&format!("j{job}w{} ", told - 2)),
            _ if matches!(script.end, Event::Finished { .. }) && script.words == 0 && script.told == 1 => started(),
            _ => {
                script.over = true;
                script.end.clone()
            }
        };
        self.stage.tell(job, event);
        let _ = self.stage.kept();
        self.note_jobs();
        true
    }

    fn leave(&mut self) {
        let there: Vec<_> = (0..self.clients.len()).filter(|at| !self.clients[*at].left).collect();
        if !there.is_empty() {
            let client = &mut self.clients[there[self.chance.below(there.len())]];
            client.left = true;
            self.stage.leave(client.wire);
        }
    }

    fn run(mut self) -> (usize, usize) {
        for _ in 0..60 {
            match self.chance.below(8) {
                0..=2 if self.clients.len() < 14 => self.ask(),
                3 => self.leave(),
                4 => self.stage.pass(1_000_000),
                _ => {
                    self.tell();
                }
            }
            self.note_jobs();
        }
        while self.tell() {}
        let mut joined = 0;
        for client in &self.clients {
            let got = self.stage.got(client.wire);
            joined += usize::from(got.contains("x-cache: join"));
            if !client.left {
                judge(&got, &self.scripts);
            }
        }
        self.stage.is_empty();
        (joined, self.scripts.len())
    }
}

/// The reply to a client that stayed is whole, and of one generation.
fn judge(got: &str, scripts: &[Script]) {
    let text = text_of(got);
    let whole = |job: usize| {
        (0..scripts[job].words)
            .map(|at| format!("j{job}w{at} "))
            .collect::<String>()
    };
    let failed = |script: &Script| !matches!(script.end, Event::Finished { .. });
    if got.starts_with("HTTP/1.1 200") && !got.contains("\"error\"") {
        let right = (0..scripts.len()).any(|job| scripts[job].over && !failed(&scripts[job]) && text == whole(job));
        let ends = ["\"stop_reason\":\"", "\"finish_reason\":\"", "[DONE]", "message_stop"];
        assert!(right && ends.iter().any(|end| got.contains(end)), "{got}");
        return;
    }
    let status = ["HTTP/1.1 200", "HTTP/1.1 400", "HTTP/1.1 500", "HTTP/1.1 504"];
    let right =
        (0..scripts.len()).any(|job| scripts[job].over && failed(&scripts[job]) && whole(job).starts_with(&text));
    assert!(right && status.iter().any(|status| got.starts_with(status)), "{got}");
}

#[test]
fn random_runs() {
    let (mut joined, mut jobs) = (0, 0);
    for seed in 0..200 {
        let run = std::panic::catch_unwind(|| Run::new(seed).run());
        let (some, made) = run.unwrap_or_else(|_| panic!("seed {seed}"));
        joined += some;
        jobs += made;
    }
    assert!(joined > 200 && jobs > 200, "{joined} joined, {jobs} jobs");
}
