//! The differences that are accepted, each with the reason why the gateway's way is right: `tests/hostile/differences.txt`.
//!
//! Invariant: a difference is accepted only for the peer, the case and the outcome that the file names.

use std::{collections::BTreeMap, fs};

use super::{PEERS, Row};
use crate::{
    failure::{Doing, Failure, Outcome},
    place::Place,
};

/// Where the list lies.
const FILE: &str = "tests/hostile/differences.txt";

/// The list.
pub(super) struct Known {
    /// By peer and case: what the peer does, and the number of the reason.
    differences: BTreeMap<(String, String), (String, usize)>,
    reasons: Vec<String>,
}

impl Known {
    pub(super) fn read(place: &Place) -> Outcome<Self> {
        let text = fs::read_to_string(place.root.join(FILE)).doing(|| format!("read {FILE}"))?;
        Self::parse(&text)
    }

    /// `why REASON`, which may go on in more such lines, then the differences that it explains, one a line:
    /// `PEER,PEER: CASE: WHAT THEY DO`.
    fn parse(text: &str) -> Outcome<Self> {
        let (mut differences, mut reasons) = (BTreeMap::new(), Vec::<String>::new());
        let mut within_reason = false;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            let malformed = |why: &str| Failure::new(format!("{FILE}:{}: {why}", number + 1));
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(reason) = line.strip_prefix("why ") {
                match reasons.last_mut() {
                    Some(last) if within_reason => *last += &format!(" {reason}"),
                    _ => reasons.push(reason.to_owned()),
                }
                within_reason = true;
                continue;
            }
            within_reason = false;
            let reason = reasons
                .len()
                .checked_sub(1)
                .ok_or_else(|| malformed("no reason stands above"))?;
            let (peers, rest) = line.split_once(": ").ok_or_else(|| malformed("no peer"))?;
            let (case, theirs) = rest.rsplit_once(": ").ok_or_else(|| malformed("no outcome"))?;
            for peer in peers.split(',') {
                if !PEERS.contains(&peer) {
                    return Err(malformed(&format!("{peer:?} is no peer")));
                }
                let before = differences.insert((peer.to_owned(), case.to_owned()), (theirs.to_owned(), reason));
                if before.is_some() {
                    return Err(malformed("this stands above already"));
                }
            }
        }
        Ok(Self { differences, reasons })
    }

    /// Why a difference is accepted, if it is.
    pub(super) fn reason(&self, peer: &str, case: &str, theirs: &str) -> Option<usize> {
        let (known, reason) = self.differences.get(&(peer.to_owned(), case.to_owned()))?;
        (known == theirs).then_some(*reason)
    }

    pub(super) fn reasons(&self) -> &[String] {
        &self.reasons
    }

    /// Fails unless the differences of `rows` are just these.
    pub(super) fn check(&self, rows: &[Row]) -> Outcome {
        let seen: BTreeMap<(String, String), (String, String)> = rows
            .iter()
            .flat_map(|row| {
                row.differences().map(|(peer, theirs)| {
                    (
                        (peer.to_owned(), row.case.clone()),
                        (theirs.to_string(), row.ours.to_string()),
                    )
                })
            })
            .collect();
        let unlisted = seen
            .iter()
            .filter(|((peer, case), (theirs, _))| self.reason(peer, case, theirs).is_none())
            .map(|((peer, case), (theirs, ours))| format!("  {peer}: {case}: {theirs} (ours: {ours})"));
        let stale = self
            .differences
            .iter()
            .filter(|(key, (theirs, _))| seen.get(*key).is_none_or(|(seen, _)| seen != theirs))
            .map(|((peer, case), (theirs, _))| format!("  {peer}: {case}: {theirs}"));
        let (unlisted, stale): (Vec<String>, Vec<String>) = (unlisted.collect(), stale.collect());
        let mut told = Vec::new();
        if !unlisted.is_empty() {
            told.push(format!(
                "{} differences are not in {FILE}:\n{}",
                unlisted.len(),
                unlisted.join("\n")
            ));
        }
        if !stale.is_empty() {
            told.push(format!(
                "{} in {FILE} were not seen:\n{}",
                stale.len(),
                stale.join("\n")
            ));
        }
        if told.is_empty() {
            return Ok(());
        }
        Err(Failure::new(told.join("\n"))
            .remedy("decide by the RFC who is right; mend the gateway, or list the difference with its reason"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::verdict::{Verdict, Way};

    fn row(case: &str, ours: Way, theirs: Way) -> Row {
        let verdict = |end| Verdict { requests: 1, end };
        Row {
            case: case.to_owned(),
            ours: verdict(ours),
            theirs: [verdict(theirs), verdict(ours), verdict(ours)],
        }
    }

    #[test]
    fn exactly_the_listed_differences_pass() {
        let list = "# about\nwhy one\nwhy reason\nnginx: a: b: 1 keeps\n";
        for (list, rows, expected) in [
            (list, vec![row("a: b", Way::Refuses, Way::Keeps)], None),
            (list, vec![row("a: b", Way::Refuses, Way::Closes)], Some("not in")),
            (list, vec![row("c", Way::Refuses, Way::Keeps)], Some("not seen")),
            (list, vec![], Some("not seen")),
            ("", vec![row("c", Way::Keeps, Way::Keeps)], None),
            ("nginx: a: 1 keeps", vec![], Some("no reason")),
            ("why a\nnobody: a: 1 keeps", vec![], Some("no peer")),
            ("why a\nnginx: a", vec![], Some("no outcome")),
            ("why a\nnginx,nginx: a: 1 keeps", vec![], Some("already")),
        ] {
            let told = Known::parse(list).and_then(|known| known.check(&rows)).err();
            let told = told.map(|failure| failure.to_string()).unwrap_or_default();
            assert_eq!(told.is_empty(), expected.is_none(), "{list}: {told}");
            assert!(told.contains(expected.unwrap_or_default()), "{list}: {told}");
        }
        let known = Known::parse(list).ok();
        assert_eq!(
            known.map(|known| known.reasons().to_vec()),
            Some(vec![String::from("one reason")])
        );
    }
}
