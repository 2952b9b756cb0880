//! Limits of processes: what this process has, what `limits.conf` and its folder say, and the lines that would raise them.
//!
//! Nothing here sets a limit of a running process: those come from a login. Invariant: a line is proposed only for a half
//! (soft, hard) that is lower than wanted, so a higher one is never lowered.

use std::io;

use super::{files::Files, plan::LIMITS_FILE};

const MAIN: &str = "/etc/security/limits.conf";
const FOLDER: &str = "/etc/security/limits.d";

/// The soft and the hard half of a limit, in the unit of `/proc`; `u64::MAX` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) soft: u64,
    pub(super) hard: u64,
}

impl Limit {
    /// `soft/hard`.
    pub(super) fn text(self) -> String {
        let text = |half: u64| match half {
            u64::MAX => String::from("unlimited"),
            half => half.to_string(),
        };
        format!("{}/{}", text(self.soft), text(self.hard))
    }

    /// Lines for everybody's login that raise what is lower than wanted.
    pub(super) fn raise(self, item: &str, scale: u64, wanted: u64) -> Vec<String> {
        let line = |half: &str| format!("* {half} {item} {}", wanted / scale);
        let mut lines = Vec::new();
        if self.soft < wanted {
            lines.push(line("soft"));
        }
        if self.hard < wanted {
            lines.push(line("hard"));
        }
        lines
    }
}

/// What a login gets: what is configured for everybody, else what this process has.
///
/// # Errors
/// If the process's limits cannot be read, or have no such line.
pub(super) fn now(files: &dyn Files, item: &str, label: &str, scale: u64) -> io::Result<Limit> {
    let own = own(&files.read("/proc/self/limits")?, label)
        .ok_or_else(|| io::Error::other(format!("/proc/self/limits has no {label}")))?;
    let mut limit = own;
    for path in configured(files) {
        if let Ok(text) = files.read(&path) {
            overlay(&mut limit, &text, item, scale);
        }
    }
    Ok(limit)
}

/// The files that pam_limits reads, in its order, without ours.
fn configured(files: &dyn Files) -> Vec<String> {
    let mut paths = vec![MAIN.to_owned()];
    let names = files.list(FOLDER).unwrap_or_default();
    let others = names.iter().filter(|name| name.ends_with(".conf"));
    paths.extend(others.map(|name| format!("{FOLDER}/{name}")));
    paths.retain(|path| path != LIMITS_FILE);
    paths
}

fn own(limits: &str, label: &str) -> Option<Limit> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(label))?;
    let mut halves = rest.split_whitespace().map(|half| amount(half, 1));
    Some(Limit {
        soft: halves.next()??,
        hard: halves.next()??,
    })
}

fn overlay(limit: &mut Limit, text: &str, item: &str, scale: u64) {
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &["*", half, name, value] = fields.as_slice() else {
            continue;
        };
        let Some(value) = amount(value, scale).filter(|_| name == item) else {
            continue;
        };
        if matches!(half, "soft" | "-") {
            limit.soft = value;
        }
        if matches!(half, "hard" | "-") {
            limit.hard = value;
        }
    }
}

fn amount(text: &str, scale: u64) -> Option<u64> {
    match text {
        "unlimited" | "infinity" | "-1" => Some(u64::MAX),
        number => number.parse::<u64>().ok().map(|number| number.saturating_mul(scale)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lower_half_is_raised() {
        for (soft, hard, expected) in [
            (1024, 4096, &["* soft nofile 9000", "* hard nofile 9000"][..]),
            (1024, 524_288, &["* soft nofile 9000"]),
            (9000, 9000, &[]),
            (u64::MAX, u64::MAX, &[]),
        ] {
            assert_eq!(Limit { soft, hard }.raise("nofile", 1, 9000), expected, "{soft} {hard}");
        }
        let memlock = Limit {
            soft: 0,
            hard: u64::MAX,
        };
        assert_eq!(memlock.raise("memlock", 1024, 2 << 30), ["* soft memlock 2097152"]);
        assert_eq!(memlock.text(), "0/unlimited");
    }

    #[test]
    fn later_lines_for_everybody_hold() {
        let mut limit = Limit { soft: 1, hard: 2 };
        for (text, soft, hard) in [
            (
                "# * - memlock 9\nroot - memlock 7\n@gpu - memlock 7\n* - nofile 7",
                1,
                2,
            ),
            ("* soft memlock 4 # for all", 4096, 2),
            ("* hard memlock unlimited", 4096, u64::MAX),
            ("* - memlock 8\n* - memlock 6", 6144, 6144),
            ("* - memlock lots", 6144, 6144),
        ] {
            overlay(&mut limit, text, "memlock", 1024);
            assert_eq!(limit, Limit { soft, hard }, "{text}");
        }
    }

    #[test]
    fn the_kernel_table_is_read() {
        let text = "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024   524288     files\n\
                    Max locked memory         unlimited  unlimited bytes\n";
        let limit = |soft, hard| Some(Limit { soft, hard });
        assert_eq!(own(text, "Max open files"), limit(1024, 524_288));
        assert_eq!(own(text, "Max locked memory"), limit(u64::MAX, u64::MAX));
        assert_eq!(own(text, "Max nothing"), None);
    }
}
