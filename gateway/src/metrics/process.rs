//! What the kernel says of this process, read from `/proc` when somebody scrapes.
//!
//! Invariant: what cannot be read is absent, never 0.

use std::fs;

/// Figures of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessGauges {
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
    /// Reserved address space in bytes.
    pub virtual_bytes: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
}

impl ProcessGauges {
    /// Reads them now: one small file, a few microseconds.
    #[must_use]
    pub fn read() -> Self {
        fs::read_to_string("/proc/self/status").map_or_else(|_| Self::default(), |status| Self::parse(&status))
    }

    /// Reads the lines of `proc_pid_status(5)`.
    fn parse(status: &str) -> Self {
        let value = |name| {
            let rest = status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            rest.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        let bytes = |name| value(name)?.checked_mul(1024);
        Self {
            resident_bytes: bytes("VmRSS"),
            virtual_bytes: bytes("VmSize"),
            threads: value("Threads"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_their_whole_name() {
        let status = "Name:\tzerohop\nVmSizeX:\t1 kB\nVmSize:\t  2048 kB\nVmRSS:\t    1024 kB\nThreads:\t7\n";
        let expected = ProcessGauges {
            resident_bytes: Some(1024 * 1024),
            virtual_bytes: Some(2048 * 1024),
            threads: Some(7),
        };
        assert_eq!(ProcessGauges::parse(status), expected);
        assert_eq!(
            ProcessGauges::parse("VmRSS:\t\nThreads: many\n"),
            ProcessGauges::default()
        );
    }

    #[test]
    fn this_process_uses_memory() {
        let read = ProcessGauges::read();
        assert!(read.resident_bytes.is_some_and(|bytes| bytes > 100_000), "{read:?}");
        assert!(
            read.virtual_bytes >= read.resident_bytes && read.threads >= Some(1),
            "{read:?}"
        );
    }
}
