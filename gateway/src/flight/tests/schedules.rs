//! Random schedules against a model: workers, requests that come and go, generations that end well and badly.
//!
//! Everything is drawn from a seed, and only the worker that was woken looks. Invariants that are checked: a follower hears
//! one generation from its start, word by word, and never two mixed; a key has one generation that can be joined, also when
//! followers of one that failed begin another; once nothing moves any more, nobody waits and nothing computes for nobody.

use super::*;

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// A generation as its engine has it.
struct Running {
    lead: Lead,
    number: usize,
    key: u8,
    worker: usize,
    said: usize,
    /// Words until the end.
    words: usize,
    end: Said,
    orphan: bool,
    /// Long enough to be closed before its end.
    long: bool,
}

/// A follower as its connection has it.
struct Waiting {
    follow: Follow,
    key: u8,
    worker: usize,
    slot: u32,
    /// It tells its client each word at once.
    streams: bool,
    /// Which generation it hears, and how many words.
    hears: Option<(usize, usize)>,
    again: bool,
}

#[derive(Default, Debug)]
struct Tally {
    led: usize,
    followed: usize,
    promoted: usize,
    orphaned: usize,
    given_up: usize,
    alone: usize,
    answered: usize,
    failed: usize,
    landed: usize,
}

struct World {
    chance: Chance,
    flights: Flights,
    sleepers: Vec<Arc<Sleeper>>,
    running: Vec<Running>,
    waiting: Vec<Waiting>,
    stays: Vec<(u8, Stay)>,
    generations: usize,
    slots: u32,
    roomy: bool,
    tally: Tally,
}

/// What a word of a generation is: its number, and which word.
fn word(number: usize, at: usize, long: bool) -> Event {
    let padding = if long { " ".repeat(40_000) } else { String::new() };
    text(format!("{number}:{at}:{padding}"))
}

fn parsed(text: &str) -> (usize, usize) {
    let mut parts = text.split(':').map(|part| part.parse().unwrap_or(usize::MAX));
    (parts.next().unwrap_or(usize::MAX), parts.next().unwrap_or(usize::MAX))
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let workers = 1 + chance.below(4);
        let roomy = !chance.one_in(4);
        let (flights, sleepers) = with_doors(workers, if roomy { MOST } else { 1 });
        Self {
            chance,
            flights,
            sleepers,
            running: Vec::new(),
            waiting: Vec::new(),
            stays: Vec::new(),
            generations: 0,
            slots: 0,
            roomy,
            tally: Tally::default(),
        }
    }

    fn run(mut self) -> Tally {
        for _ in 0..40 + self.chance.below(400) {
            self.step(true);
        }
        // What is there comes to its end, and nothing new comes.
        let mut idle = 0;
        while idle < 200 {
            idle = if self.step(false) { 0 } else { idle + 1 };
        }
        self.stays.clear();
        assert!(self.running.is_empty(), "{} generations for nobody", self.running.len());
        assert!(self.waiting.is_empty(), "{} wait for ever", self.waiting.len());
        assert_eq!(self.flights.open(), 0);
        self.tally
    }

    /// Whether anything moved.
    fn step(&mut self, arrivals: bool) -> bool {
        match self.chance.below(12) {
            0..=2 if arrivals => self.arrive(),
            3 if arrivals => return self.leader_leaves(),
            4 if arrivals => return self.follower_leaves(),
            5 if arrivals && self.chance.one_in(6) => return self.worker_dies(),
            6 if !self.stays.is_empty() => {
                let at = self.chance.below(self.stays.len());
                drop(self.stays.swap_remove(at));
            }
            7..=8 => return self.say(),
            9 => {
                self.flights.ring();
                return false;
            }
            _ => return self.turn(),
        }
        true
    }

    fn lead(&mut self, lead: Lead, key: u8, worker: usize) {
        self.generations += 1;
        let long = self.chance.one_in(12);
        let end = match self.chance.below(6) {
            0 | 1 => failed(),
            2 => Said::Event(Event::TimedOut),
            3 => Said::Event(Event::TooLong {
                input_tokens: 2,
                limit: 1,
            }),
            _ => finished(),
        };
        self.running.push(Running {
            lead,
            number: self.generations,
            key,
            worker,
            said: 0,
            words: self.chance.below(if long { 40 } else { 12 }),
            end,
            orphan: false,
            long,
        });
    }

    fn arrive(&mut self) {
        let number = 1 + self.chance.below(3) as u8 * 16;
        let worker = self.chance.below(self.sleepers.len());
        self.slots += 1;
        let seat = seat(worker, self.slots);
        let wish = if self.chance.one_in(6) { Wish::Anew } else { Wish::Any };
        let open = self
            .running
            .iter()
            .filter(|it| it.key == number && it.lead.flight().is_open());
        let open = open.count() + self.stays.iter().filter(|(key, _)| *key == number).count();
        match self.flights.join(&key(number), seat, wish, || false) {
            Joined::Leader(lead) => {
                assert!(
                    !self.roomy || open == 0,
                    "a second leader beside one that can be followed"
                );
                self.tally.led += 1;
                self.lead(lead, number, worker);
            }
            Joined::Follower(follow) => {
                assert_eq!(wish, Wish::Any);
                if follow.wants_spare() {
                    follow.leave_spare(generate(), 100);
                }
                self.tally.followed += 1;
                self.waiting.push(Waiting {
                    follow,
                    key: number,
                    worker,
                    slot: self.slots,
                    streams: self.chance.one_in(2),
                    hears: None,
                    again: true,
                });
                let last = self.waiting.len() - 1;
                self.read(last);
            }
            Joined::Alone => {
                assert!(!self.roomy || wish == Wish::Anew && open > 0);
                self.tally.alone += 1;
            }
            Joined::Stored => panic!("nothing is stored"),
        }
    }

    fn say(&mut self) -> bool {
        if self.running.is_empty() {
            return false;
        }
        let at = self.chance.below(self.running.len());
        let running = &mut self.running[at];
        if running.said < running.words {
            running.lead.say(word(running.number, running.said, running.long));
            running.said += 1;
            return true;
        }
        let running = self.running.swap_remove(at);
        let kept = running.end == finished() && !self.chance.one_in(3);
        if let Some(stay) = running.lead.end(running.end, kept) {
            self.tally.landed += 1;
            self.stays.push((running.key, stay));
        }
        true
    }

    fn leader_leaves(&mut self) -> bool {
        let led: Vec<_> = (0..self.running.len()).filter(|at| !self.running[*at].orphan).collect();
        if led.is_empty() {
            return false;
        }
        let at = led[self.chance.below(led.len())];
        match self.running[at].lead.leave() {
            Leaving::GoesOn => {
                self.tally.orphaned += 1;
                self.running[at].orphan = true;
            }
            Leaving::Ends => drop(self.running.swap_remove(at)),
        }
        true
    }

    fn follower_leaves(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let at = self.chance.below(self.waiting.len());
        drop(self.waiting.swap_remove(at));
        true
    }

    /// All that a worker leads and follows goes with it; another takes its place.
    fn worker_dies(&mut self) -> bool {
        let worker = self.chance.below(self.sleepers.len());
        self.running.retain(|running| running.worker != worker);
        self.waiting.retain(|waiting| waiting.worker != worker);
        true
    }

    fn turn(&mut self) -> bool {
        let worker = self.chance.below(self.sleepers.len());
        if !self.sleepers[worker].woke() {
            return false;
        }
        for flight in self.flights.news(worker) {
            if flight.is_given_up() {
                let before = self.running.len();
                self.running.retain(|running| !running.lead.is_of(&flight));
                self.tally.given_up += before - self.running.len();
            }
            for conn in flight.seats(worker) {
                let at = self.waiting.iter().position(|waiting| waiting.slot == conn.slot);
                self.read(at.unwrap_or_else(|| panic!("nobody sits at {conn:?}")));
            }
        }
        true
    }

    /// A follower takes all that is there.
    fn read(&mut self, at: usize) {
        loop {
            let waiting = &mut self.waiting[at];
            let Some(said) = waiting.follow.peek().cloned() else {
                return;
            };
            if said.is_failure() && waiting.again && (!waiting.streams || waiting.hears.is_none()) {
                if self.turn_elsewhere(at) {
                    return;
                }
                continue;
            }
            waiting.follow.advance();
            if let Said::Event(Event::Text { text, .. }) = &said {
                let (number, word) = parsed(text);
                let expected = waiting.hears.map_or((number, 0), |(number, words)| (number, words));
                assert_eq!((number, word), expected, "one generation, word by word");
                waiting.hears = Some((number, word + 1));
            }
            if said.is_final() {
                match said.is_failure() {
                    true => self.tally.failed += 1,
                    false => self.tally.answered += 1,
                }
                drop(self.waiting.swap_remove(at));
                return;
            }
        }
    }

    /// What a follower of a flight that failed does; whether it leads now.
    fn turn_elsewhere(&mut self, at: usize) -> bool {
        let waiting = &mut self.waiting[at];
        waiting.again = false;
        match waiting.follow.again() {
            Again::Follower(follow) => {
                (waiting.follow, waiting.hears) = (follow, None);
                false
            }
            Again::Leader(lead, _) => {
                let gone = self.waiting.swap_remove(at);
                self.tally.promoted += 1;
                let mut others = self.running.iter().filter(|it| it.key == gone.key);
                assert!(!self.roomy || others.all(|it| !it.lead.flight().is_open()), "two lead");
                self.lead(lead, gone.key, gone.worker);
                true
            }
            Again::Nothing => panic!("a flight with followers has something to hand in"),
        }
    }
}

#[test]
fn random_schedules() {
    let mut sum = Tally::default();
    for seed in 0..6_000 {
        let tally = std::panic::catch_unwind(|| World::new(seed).run());
        let tally = tally.unwrap_or_else(|_| panic!("seed {seed}"));
        sum.led += tally.led;
        sum.followed += tally.followed;
        sum.promoted += tally.promoted;
        sum.orphaned += tally.orphaned;
        sum.given_up += tally.given_up;
        sum.alone += tally.alone;
        sum.answered += tally.answered;
        sum.failed += tally.failed;
        sum.landed += tally.landed;
    }
    let Tally {
        led,
        followed,
        promoted,
        orphaned,
        given_up,
        alone,
        answered,
        failed,
        landed,
    } = sum;
    // What no schedule met was not tested.
    for (what, count) in [
        ("leaders", led),
        ("followers", followed),
        ("promotions", promoted),
        ("orphans", orphaned),
        ("flights given up", given_up),
        ("requests alone", alone),
        ("answers", answered),
        ("failures", failed),
        ("answers about to be stored", landed),
    ] {
        assert!(count > 1000, "{count} {what}");
    }
}
