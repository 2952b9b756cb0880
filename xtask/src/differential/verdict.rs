//! What a server makes of a case, in terms that a parser has too.
//!
//! Invariant: two verdicts are equal if and only if both saw the same requests end at the same bytes and would go on in
//! the same way.

use std::fmt;

use zerohop_tests::hostile::{End, Seen};

/// What came of the bytes of a case, with one good request behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Requests that were taken, the one behind the case not counted.
    pub(super) requests: usize,
    pub(super) end: Way,
}

/// How it went on after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The request behind the case was taken as one.
    Keeps,
    /// The last request was the last of the connection, by its own wish or the server's.
    Closes,
    /// The bytes are no request.
    Refuses,
    /// More bytes are needed.
    Waits,
    /// What follows is another protocol.
    Tunnels,
}

impl Verdict {
    pub(super) fn of(seen: &Seen) -> Self {
        let replies: Vec<_> = seen
            .replies
            .iter()
            .filter(|reply| !(100..200).contains(&reply.status))
            .collect();
        let last = replies.last().map_or(0, |reply| reply.status);
        let (refused, end) = match seen.end {
            End::Keeps => (0, Way::Keeps),
            _ if last == 408 => (1, Way::Waits),
            _ if last >= 400 && seen.said_close => (1, Way::Refuses),
            // HTTP/0.9 has no head to say it in.
            _ if !replies.is_empty() && (seen.said_close || last == 0) => (0, Way::Closes),
            // A server that loses patience ends without a word.
            _ => (0, Way::Waits),
        };
        Self {
            requests: replies.len() - refused,
            end,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.end {
            Way::Keeps => "keeps",
            Way::Closes => "closes",
            Way::Refuses => "refuses",
            Way::Waits => "waits",
            Way::Tunnels => "tunnels",
        };
        write!(f, "{} {end}", self.requests)
    }
}

#[cfg(test)]
mod tests {
    use zerohop_tests::hostile::Reply;

    use super::*;

    #[test]
    fn what_was_seen_is_judged() {
        for (statuses, end, said_close, expected) in [
            (&[200][..], End::Keeps, false, "1 keeps"),
            (&[404, 405], End::Keeps, false, "2 keeps"),
            (&[200], End::Closes, true, "1 closes"),
            (&[200, 400], End::Closes, true, "1 refuses"),
            (&[100, 200], End::Closes, true, "1 closes"),
            (&[408], End::Closes, true, "0 waits"),
            (&[], End::Closes, false, "0 waits"),
            (&[200], End::Closes, false, "1 waits"),
            (&[0], End::Closes, false, "1 closes"),
            (&[400], End::Resets, true, "0 refuses"),
        ] {
            let replies = statuses.iter().map(|&status| Reply {
                status,
                ..Reply::default()
            });
            let seen = Seen {
                replies: replies.collect(),
                end,
                said_close,
            };
            assert_eq!(Verdict::of(&seen).to_string(), expected, "{seen}");
        }
    }
}
