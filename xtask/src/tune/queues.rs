//! Receive queues of network cards: how many there are, and which processors share their packets (RPS).
//!
//! Only real cards are looked at: what has no device behind it (lo, veth, bridges) has no interrupts to spread. Invariant:
//! a mask is written in the kernel's own form, so what is read back is what was written.

use std::io;

use super::files::Files;

const CARDS: &str = "/sys/class/net";

/// A receive queue of a card that has fewer of them than there are processors.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Queue {
    /// `CARD rx-N`.
    pub(super) name: String,
    /// The file with its mask.
    pub(super) path: String,
    /// What that file says.
    pub(super) now: String,
    /// The mask of all processors in the same form.
    pub(super) all: String,
}

impl Queue {
    /// Whether nobody has chosen processors for it.
    pub(super) fn free(&self) -> bool {
        self.now.trim().chars().all(|digit| matches!(digit, '0' | ','))
    }
}

/// All queues of all cards with too few.
///
/// # Errors
/// If the processors cannot be counted.
pub(super) fn scarce(files: &dyn Files) -> io::Result<Vec<Queue>> {
    let cpus = cpus(&files.read("/sys/devices/system/cpu/online")?)
        .ok_or_else(|| io::Error::other("the list of processors cannot be understood"))?;
    let mut found = Vec::new();
    for card in files.list(CARDS).unwrap_or_default() {
        if !files.there(&format!("{CARDS}/{card}/device"))? {
            continue;
        }
        let folder = format!("{CARDS}/{card}/queues");
        let names = files.list(&folder).unwrap_or_default();
        let queues: Vec<&String> = names.iter().filter(|name| name.starts_with("rx-")).collect();
        if queues.len() >= cpus.len() {
            continue;
        }
        for queue in queues {
            let path = format!("{folder}/{queue}/rps_cpus");
            // A kernel without RPS has no such file.
            let Ok(now) = files.read(&path) else { continue };
            let Some(all) = mask(&cpus, now.trim()) else { continue };
            let name = format!("{card} {queue}");
            found.push(Queue { name, path, now, all });
        }
    }
    Ok(found)
}

/// `0-3,8` as numbers.
fn cpus(text: &str) -> Option<Vec<usize>> {
    /// More processors than any kernel is built for.
    const MOST: usize = 1 << 16;
    let mut found = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if last < first || last >= MOST {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

/// The mask of these processors with the digits and commas of `like`; nothing if it has too few.
fn mask(cpus: &[usize], like: &str) -> Option<String> {
    let places = like.chars().filter(|digit| *digit != ',').count();
    let mut digits = vec![0_u32; places];
    for cpu in cpus {
        let place = places.checked_sub(cpu / 4 + 1)?;
        digits[place] |= 1 << (cpu % 4);
    }
    let mut digits = digits.into_iter();
    like.chars()
        .map(|character| match character {
            ',' => Some(','),
            _ => char::from_digit(digits.next()?, 16),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_the_form_of_the_kernel() {
        for (online, like, expected) in [
            ("0-1\n", "0", Some("3")),
            ("0-3,8", "000", Some("10f")),
            ("0-39", "00,00000000", Some("ff,ffffffff")),
            ("0-7", "0", None),
        ] {
            let cpus = cpus(online).expect("a list");
            assert_eq!(mask(&cpus, like).as_deref(), expected, "{online} {like}");
        }
        for odd in ["", "a", "3-1", "0-99999999"] {
            assert_eq!(cpus(odd), None, "{odd}");
        }
    }
}
