//! The policies that ours is compared with, as their papers have them, for objects of one size: LRU, S3-FIFO, SIEVE and W-TinyLFU.
//!
//! Written for this comparison: small, and nothing is adapted. Invariant: none ever holds more keys than its capacity.

use std::collections::VecDeque;

/// No key.
const NONE: u32 = u32::MAX;

/// A policy over keys below a number.
pub trait Reference {
    /// Asks for a key, and takes it in if it is not there; whether it was.
    fn ask(&mut self, key: u32) -> bool;
}

/// A list of keys, from the oldest to the newest; any can be taken out.
struct List {
    /// The next older and the next newer of each, and of [`Self::end`] the newest and the oldest.
    ties: Vec<(u32, u32)>,
    len: usize,
}

impl List {
    fn new(keys: usize) -> Self {
        let mut ties = vec![(NONE, NONE); keys + 1];
        ties[keys] = (keys as u32, keys as u32);
        Self { ties, len: 0 }
    }

    fn end(&self) -> u32 {
        self.ties.len() as u32 - 1
    }

    fn has(&self, key: u32) -> bool {
        self.ties[key as usize].0 != NONE
    }

    fn push(&mut self, key: u32) {
        let end = self.end();
        let newest = self.ties[end as usize].0;
        self.ties[key as usize] = (newest, end);
        self.ties[newest as usize].1 = key;
        self.ties[end as usize].0 = key;
        self.len += 1;
    }

    fn remove(&mut self, key: u32) {
        let (older, newer) = std::mem::replace(&mut self.ties[key as usize], (NONE, NONE));
        self.ties[older as usize].1 = newer;
        self.ties[newer as usize].0 = older;
        self.len -= 1;
    }

    fn renew(&mut self, key: u32) {
        self.remove(key);
        self.push(key);
    }

    /// The oldest, or the end.
    fn oldest(&self) -> u32 {
        self.newer(self.end())
    }

    fn newer(&self, key: u32) -> u32 {
        self.ties[key as usize].1
    }
}

/// The one that was asked for longest ago goes.
pub struct Lru {
    list: List,
    capacity: usize,
}

impl Lru {
    pub fn new(capacity: usize, keys: usize) -> Self {
        let list = List::new(keys);
        Self { list, capacity }
    }
}

impl Reference for Lru {
    fn ask(&mut self, key: u32) -> bool {
        if self.list.has(key) {
            self.list.renew(key);
            return true;
        }
        if self.list.len == self.capacity {
            self.list.remove(self.list.oldest());
        }
        self.list.push(key);
        false
    }
}

/// Zhang et al., NSDI 2024: a hand goes from old to new over one queue, and takes the first that was not asked for since it
/// passed.
pub struct Sieve {
    list: List,
    visited: Vec<bool>,
    hand: u32,
    capacity: usize,
}

impl Sieve {
    pub fn new(capacity: usize, keys: usize) -> Self {
        let list = List::new(keys);
        Self {
            hand: list.end(),
            list,
            visited: vec![false; keys],
            capacity,
        }
    }
}

impl Reference for Sieve {
    fn ask(&mut self, key: u32) -> bool {
        if self.list.has(key) {
            self.visited[key as usize] = true;
            return true;
        }
        if self.list.len == self.capacity {
            loop {
                if self.hand == self.list.end() {
                    self.hand = self.list.oldest();
                }
                let visited = &mut self.visited[self.hand as usize];
                if !std::mem::take(visited) {
                    break;
                }
                self.hand = self.list.newer(self.hand);
            }
            let next = self.list.newer(self.hand);
            self.list.remove(self.hand);
            self.hand = next;
        }
        self.list.push(key);
        self.visited[key as usize] = false;
        false
    }
}

/// Yang et al., SOSP 2023: a small queue of a tenth, a main queue, and a ghost of as many keys as the main one.
pub struct S3Fifo {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// Keys with the number of their departure.
    ghost: VecDeque<(u32, u64)>,
    /// By key: the number of its departure while it is a ghost.
    departed: Vec<u64>,
    departures: u64,
    /// By key: how often it was asked for since it came, up to 3; `NONE` where it is not there.
    asked: Vec<u32>,
    capacity: usize,
}

impl S3Fifo {
    /// Asked for so often, a key of the small queue goes on to the main one.
    const PASSES: u32 = 2;

    pub fn new(capacity: usize, keys: usize) -> Self {
        Self {
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            departed: vec![0; keys],
            departures: 0,
            asked: vec![NONE; keys],
            capacity,
        }
    }

    fn small_capacity(&self) -> usize {
        (self.capacity / 10).max(1)
    }

    fn evict(&mut self) {
        if self.small.len() < self.small_capacity() {
            return self.evict_main();
        }
        while let Some(key) = self.small.pop_front() {
            if self.asked[key as usize] < Self::PASSES {
                self.asked[key as usize] = NONE;
                return self.haunt(key);
            }
            self.asked[key as usize] = 0;
            self.main.push_back(key);
            if self.main.len() > self.capacity - self.small_capacity() {
                return self.evict_main();
            }
        }
        self.evict_main();
    }

    fn evict_main(&mut self) {
        while let Some(key) = self.main.pop_front() {
            let asked = &mut self.asked[key as usize];
            if *asked == 0 {
                *asked = NONE;
                return;
            }
            *asked -= 1;
            self.main.push_back(key);
        }
    }

    fn haunt(&mut self, key: u32) {
        self.departures += 1;
        self.departed[key as usize] = self.departures;
        self.ghost.push_back((key, self.departures));
        if self.ghost.len() > self.capacity - self.small_capacity()
            && let Some((key, departure)) = self.ghost.pop_front()
            && self.departed[key as usize] == departure
        {
            self.departed[key as usize] = 0;
        }
    }
}

impl Reference for S3Fifo {
    fn ask(&mut self, key: u32) -> bool {
        let asked = &mut self.asked[key as usize];
        if *asked != NONE {
            *asked = (*asked + 1).min(3);
            return true;
        }
        if self.small.len() + self.main.len() >= self.capacity {
            self.evict();
        }
        self.asked[key as usize] = 0;
        if std::mem::take(&mut self.departed[key as usize]) == 0 {
            self.small.push_back(key);
        } else {
            self.main.push_back(key);
        }
        false
    }
}

/// Einziger et al., 2017: a window of 1 % by LRU, then a main part in two segments by LRU, into which only those are let in that
/// are asked for more often than whom they would replace, by a sketch of counters.
pub struct TinyLfu {
    window: List,
    probation: List,
    protected: List,
    sketch: Sketch,
    capacity: usize,
}

impl TinyLfu {
    pub fn new(capacity: usize, keys: usize) -> Self {
        Self {
            window: List::new(keys),
            probation: List::new(keys),
            protected: List::new(keys),
            sketch: Sketch::new(capacity),
            capacity,
        }
    }

    fn window_capacity(&self) -> usize {
        (self.capacity / 100).max(1)
    }

    fn protect(&mut self, key: u32) {
        self.probation.remove(key);
        self.protected.push(key);
        if self.protected.len > (self.capacity - self.window_capacity()) * 8 / 10 {
            let oldest = self.protected.oldest();
            self.protected.remove(oldest);
            self.probation.push(oldest);
        }
    }

    /// The oldest of the window against the oldest of the main part.
    fn contest(&mut self) {
        let candidate = self.window.oldest();
        self.window.remove(candidate);
        if self.probation.len + self.protected.len < self.capacity - self.window_capacity() {
            return self.probation.push(candidate);
        }
        let part = if self.probation.len > 0 {
            &mut self.probation
        } else {
            &mut self.protected
        };
        if part.len == 0 {
            return;
        }
        let victim = part.oldest();
        if self.sketch.of(candidate) > self.sketch.of(victim) {
            part.remove(victim);
            self.probation.push(candidate);
        }
    }
}

impl Reference for TinyLfu {
    fn ask(&mut self, key: u32) -> bool {
        self.sketch.count(key);
        if self.window.has(key) {
            self.window.renew(key);
        } else if self.protected.has(key) {
            self.protected.renew(key);
        } else if self.probation.has(key) {
            self.protect(key);
        } else {
            self.window.push(key);
            if self.window.len > self.window_capacity() {
                self.contest();
            }
            return false;
        }
        true
    }
}

/// How often keys were asked for lately, up to 15, never too seldom: four rows of counters, all halved after ten times the
/// capacity.
struct Sketch {
    rows: [Vec<u8>; 4],
    counted: usize,
    period: usize,
}

impl Sketch {
    fn new(capacity: usize) -> Self {
        let width = capacity.next_power_of_two() * 2;
        Self {
            rows: std::array::from_fn(|_| vec![0; width]),
            counted: 0,
            period: capacity * 10,
        }
    }

    fn places(&self, key: u32) -> [usize; 4] {
        let last = self.rows[0].len() - 1;
        std::array::from_fn(|row| super::ours::spread(u64::from(key) << 2 | row as u64) as usize & last)
    }

    fn of(&self, key: u32) -> u8 {
        let counters = self.rows.iter().zip(self.places(key)).map(|(row, place)| row[place]);
        counters.min().unwrap_or(0)
    }

    fn count(&mut self, key: u32) {
        let (places, least) = (self.places(key), self.of(key));
        for (row, place) in self.rows.iter_mut().zip(places) {
            if row[place] == least {
                row[place] = (least + 1).min(15);
            }
        }
        self.counted += 1;
        if self.counted == self.period {
            self.counted /= 2;
            self.rows.iter_mut().flatten().for_each(|counter| *counter /= 2);
        }
    }
}
