//! What the kernel holds of a connection, read from its table.
//!
//! Invariant: a table that cannot be read is a panic, never a zero.

use std::fs;

/// Bytes of the connection between these ports of 127.0.0.1, seen from the first: sent and not acknowledged, received and
/// not read.
///
/// # Panics
/// If there is no such connection.
#[must_use]
pub fn queues(local: u16, remote: u16) -> (u64, u64) {
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_else(|error| panic!("/proc/net/tcp: {error}"));
    found(&table, local, remote).unwrap_or_else(|| panic!("no connection from port {local} to {remote}"))
}

fn found(table: &str, local: u16, remote: u16) -> Option<(u64, u64)> {
    let (local, remote) = (format!("0100007F:{local:04X}"), format!("0100007F:{remote:04X}"));
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.get(1) == Some(&local.as_str()) && row.get(2) == Some(&remote.as_str()))?;
    let (sent, received) = row.get(4)?.split_once(':')?;
    Some((
        u64::from_str_radix(sent, 16).ok()?,
        u64::from_str_radix(received, 16).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n   0: 0100007F:1F90 0100007F:A0B1 01 \
                     0000001A:00000005 00:00000000\n";
        assert_eq!(found(table, 0x1f90, 0xa0b1), Some((26, 5)));
        assert_eq!(found(table, 0xa0b1, 0x1f90), None);
    }
}
