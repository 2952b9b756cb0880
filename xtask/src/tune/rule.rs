//! In which direction a setting is better: what a wanted value makes of the one that is set now.
//!
//! Pure functions of two texts. Invariant: a value that is better than the wanted one, or that somebody chose for a reason
//! which cannot be known here, is never replaced.

/// How the values of a setting compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A number; more is better.
    More,
    /// A number; less is better down to `floor`. What lies below means something else, and whoever set it meant that.
    Less {
        /// The least value that is one of degree.
        floor: u64,
    },
    /// So many numbers, for each of which more is better.
    MoreEach(usize),
    /// The first and the last number of a range; wider is better.
    Wider,
    /// A list of words that has to hold the wanted one.
    Holds,
    /// One of several words, none of which is better for everybody: only those in `replaces` give way.
    Choice {
        /// What the kernel knows; empty where that depends on what is loaded.
        words: &'static [&'static str],
        /// Values that nobody chooses with a purpose that this would defeat.
        replaces: &'static [&'static str],
    },
}

/// What is to be done with a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is as wanted.
    Good,
    /// It is better than wanted.
    Better,
    /// It is another one, which somebody chose.
    Kept,
    /// It is to become this.
    Set(String),
    /// It cannot be understood, so it is left alone.
    Odd,
}

impl Rule {
    /// Whether a profile may want this value; if not, what it has to be.
    pub(super) fn check(self, wanted: &str) -> Result<(), String> {
        let count = numbers(wanted).map_or(0, |numbers| numbers.len());
        let (good, must) = match self {
            Self::More => (count == 1, String::from("a whole number")),
            Self::Less { floor } => (
                numbers(wanted).is_some_and(|numbers| matches!(numbers[..], [number] if number >= floor)),
                format!("a whole number of at least {floor}"),
            ),
            Self::MoreEach(wants) => (count == wants, format!("{wants} whole numbers")),
            Self::Wider => (
                numbers(wanted).is_some_and(|numbers| matches!(numbers[..], [first, last] if first < last)),
                String::from("two whole numbers, the less first"),
            ),
            Self::Holds => (word(wanted), String::from("one word")),
            Self::Choice { words: [], .. } => (word(wanted), String::from("one word")),
            Self::Choice { words, .. } => (words.contains(&wanted), format!("one of {}", words.join(", "))),
        };
        if good { Ok(()) } else { Err(must) }
    }

    /// Compares the value that is set now with the wanted one, which [`Rule::check`] has passed.
    pub(super) fn judge(self, now: &str, wanted: &str) -> Verdict {
        match self {
            Self::More => each(now, wanted, |now, wanted| now.max(wanted)),
            Self::Less { floor } => match numbers(now).as_deref() {
                Some(&[now]) if now < floor => Verdict::Kept,
                _ => each(now, wanted, |now, wanted| now.min(wanted)),
            },
            Self::MoreEach(_) => each(now, wanted, |now, wanted| now.max(wanted)),
            Self::Wider => wider(now, wanted),
            Self::Holds if now.split_whitespace().any(|word| word == wanted) => Verdict::Good,
            Self::Holds => Verdict::Set(format!("{} {wanted}", words(now)).trim().to_owned()),
            Self::Choice { replaces, .. } => match words(now) {
                now if now == wanted => Verdict::Good,
                now if replaces.contains(&now.as_str()) => Verdict::Set(wanted.to_owned()),
                _ => Verdict::Kept,
            },
        }
    }
}

/// The text with one space between its words: the kernel writes tabs where people write spaces.
pub(super) fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn word(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "_-".contains(letter))
}

/// All numbers of a text, if it has nothing else.
fn numbers(text: &str) -> Option<Vec<u64>> {
    // A sign is no digit, though the parser takes it.
    text.split_whitespace()
        .map(|number| {
            number
                .starts_with(|first: char| first.is_ascii_digit())
                .then(|| number.parse().ok())?
        })
        .collect()
}

/// Number by number the better one; what comes of it is a change only where one of them was worse than wanted.
fn each(now: &str, wanted: &str, better: impl Fn(u64, u64) -> u64) -> Verdict {
    let (Some(now), Some(wanted)) = (numbers(now), numbers(wanted)) else {
        return Verdict::Odd;
    };
    if now.len() != wanted.len() {
        return Verdict::Odd;
    }
    let best: Vec<u64> = now
        .iter()
        .zip(&wanted)
        .map(|(now, wanted)| better(*now, *wanted))
        .collect();
    settle(&now, &wanted, &best)
}

fn wider(now: &str, wanted: &str) -> Verdict {
    match (numbers(now).as_deref(), numbers(wanted).as_deref()) {
        (Some(&[from, to]), Some(&[first, last])) => {
            settle(&[from, to], &[first, last], &[from.min(first), to.max(last)])
        }
        _ => Verdict::Odd,
    }
}

fn settle(now: &[u64], wanted: &[u64], best: &[u64]) -> Verdict {
    if now == wanted {
        return Verdict::Good;
    }
    if now == best {
        return Verdict::Better;
    }
    let texts: Vec<String> = best.iter().map(u64::to_string).collect();
    Verdict::Set(texts.join(" "))
}

/// Whether `now` lies on the way from `before` to `written`: what a kernel makes of a value that it takes in part.
pub(super) fn between(before: &str, now: &str, written: &str) -> bool {
    let (Some(before), Some(now), Some(written)) = (numbers(before), numbers(now), numbers(written)) else {
        return false;
    };
    before.len() == now.len()
        && written.len() == now.len()
        && now.iter().enumerate().all(|(at, now)| {
            let (low, high) = (before[at].min(written[at]), before[at].max(written[at]));
            (low..=high).contains(now)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO_GIVES_WAY: Rule = Rule::Choice {
        words: &["0", "1", "2"],
        replaces: &["0"],
    };
    const ANY_WORD: Rule = Rule::Choice {
        words: &[],
        replaces: &["reno"],
    };

    #[test]
    fn each_rule_knows_its_direction() {
        let set = |value: &str| Verdict::Set(value.to_owned());
        let less = Rule::Less { floor: 1 };
        for (rule, now, wanted, expected) in [
            (Rule::More, "128\n", "4096", set("4096")),
            (Rule::More, "4096\n", "4096", Verdict::Good),
            (Rule::More, "65535\n", "4096", Verdict::Better),
            (Rule::More, "18446744073692774399\n", "4096", Verdict::Better),
            (Rule::More, "-1\n", "4096", Verdict::Odd),
            (Rule::More, "+1\n", "4096", Verdict::Odd),
            (Rule::More, "many\n", "4096", Verdict::Odd),
            (Rule::More, "1 2\n", "4096", Verdict::Odd),
            (less, "60\n", "1", set("1")),
            (less, "1\n", "1", Verdict::Good),
            (less, "5\n", "10", Verdict::Better),
            // No swapping until memory is nearly gone is not "a little less swapping".
            (less, "0\n", "1", Verdict::Kept),
            (Rule::MoreEach(3), "1\t2\t3\n", "1 2 3", Verdict::Good),
            (Rule::MoreEach(3), "1\t9\t3\n", "1 2 4", set("1 9 4")),
            (Rule::MoreEach(3), "2\t2\t3\n", "1 2 3", Verdict::Better),
            (Rule::MoreEach(3), "2\t2\n", "1 2 3", Verdict::Odd),
            (Rule::Wider, "32768\t60999\n", "10240 65535", set("10240 65535")),
            (Rule::Wider, "1024\t60999\n", "10240 65535", set("1024 65535")),
            (Rule::Wider, "1024\t65535\n", "10240 65535", Verdict::Better),
            (Rule::Wider, "1024\n", "10240 65535", Verdict::Odd),
            (Rule::Holds, "reno bbr\n", "cubic", set("reno bbr cubic")),
            (Rule::Holds, "reno cubic\n", "cubic", Verdict::Good),
            (Rule::Holds, "\n", "cubic", set("cubic")),
            (ZERO_GIVES_WAY, "0\n", "1", set("1")),
            (ZERO_GIVES_WAY, "1\n", "1", Verdict::Good),
            (ZERO_GIVES_WAY, "2\n", "1", Verdict::Kept),
            (ANY_WORD, "reno\n", "cubic", set("cubic")),
            (ANY_WORD, "bbr\n", "cubic", Verdict::Kept),
        ] {
            assert_eq!(rule.judge(now, wanted), expected, "{rule:?} {now:?} {wanted:?}");
        }
    }

    #[test]
    fn a_judgement_that_changes_is_content_with_the_change() {
        for (rule, now, wanted) in [
            (Rule::More, "1", "2"),
            (Rule::Less { floor: 0 }, "2", "1"),
            (Rule::MoreEach(2), "1 9", "2 3"),
            (Rule::Wider, "5 6", "4 9"),
            (Rule::Holds, "a", "b"),
            (ZERO_GIVES_WAY, "0", "1"),
        ] {
            let Verdict::Set(value) = rule.judge(now, wanted) else {
                panic!("{rule:?} changes nothing")
            };
            assert!(
                matches!(rule.judge(&value, wanted), Verdict::Good | Verdict::Better),
                "{rule:?}: {value}"
            );
        }
    }

    #[test]
    fn what_may_be_wanted() {
        for (rule, wanted, good) in [
            (Rule::More, "1", true),
            (Rule::More, "1 2", false),
            (Rule::More, "+1", false),
            (Rule::More, "99999999999999999999", false),
            (Rule::Less { floor: 1 }, "1", true),
            (Rule::Less { floor: 1 }, "0", false),
            (Rule::MoreEach(3), "1 2 3", true),
            (Rule::MoreEach(3), "1 2", false),
            (Rule::Wider, "1 2", true),
            (Rule::Wider, "2 1", false),
            (Rule::Holds, "cubic", true),
            (Rule::Holds, "cubic reno", false),
            (ZERO_GIVES_WAY, "2", true),
            (ZERO_GIVES_WAY, "3", false),
            (ANY_WORD, "cubic", true),
            (ANY_WORD, "", false),
            (ANY_WORD, "a;b", false),
        ] {
            assert_eq!(rule.check(wanted).is_ok(), good, "{rule:?} {wanted:?}");
        }
    }

    #[test]
    fn a_value_on_the_way() {
        for (before, now, written, expected) in [
            ("0\n", "700\n", "1024", true),
            ("60\n", "30\n", "1", true),
            ("0\n", "2000\n", "1024", false),
            ("1 2", "1 3", "1 4", true),
            ("1 2", "0 3", "1 4", false),
            ("a", "b", "c", false),
        ] {
            assert_eq!(between(before, now, written), expected, "{before} {now} {written}");
        }
    }
}
