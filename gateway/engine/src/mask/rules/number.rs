//! The whole numbers of a range as a regular expression.
//!
//! Invariant: it matches the decimal spelling of a number, without leading zeros, if and only if the number is in the
//! range.

/// The expression for `from..=to`.
pub(super) fn range(from: u64, to: u64) -> String {
    let mut parts = Vec::new();
    let mut low = from;
    loop {
        // Numbers of as many digits as `low` has.
        let most = 10u64.checked_pow(digits(low)).map_or(u64::MAX, |next| next - 1);
        let high = most.min(to);
        parts.push(same_length(low.to_string().as_bytes(), high.to_string().as_bytes()));
        if high >= to {
            break;
        }
        low = high + 1;
    }
    format!("(?:{})", parts.join("|"))
}

fn digits(number: u64) -> u32 {
    number.checked_ilog10().unwrap_or(0) + 1
}

/// Numbers from `low` to `high`, which have equally many digits.
fn same_length(low: &[u8], high: &[u8]) -> String {
    let ([first_low, low_rest @ ..], [first_high, high_rest @ ..]) = (low, high) else {
        return String::new();
    };
    let any = |count: usize| {
        if count == 0 {
            String::new()
        } else {
            format!("[0-9]{{{count}}}")
        }
    };
    let (first_low, first_high) = (*first_low, *first_high);
    if first_low == first_high {
        return format!("{}{}", char::from(first_low), same_length(low_rest, high_rest));
    }
    let (mut first, mut last) = (first_low, first_high);
    let mut parts = Vec::new();
    if low_rest.iter().any(|&digit| digit != b'0') {
        let nines = vec![b'9'; low_rest.len()];
        parts.push(format!("{}{}", char::from(first_low), same_length(low_rest, &nines)));
        first += 1;
    }
    if high_rest.iter().any(|&digit| digit != b'9') {
        let zeros = vec![b'0'; high_rest.len()];
        parts.push(format!("{}{}", char::from(first_high), same_length(&zeros, high_rest)));
        last -= 1;
    }
    if first <= last {
        let between = format!("[{}-{}]", char::from(first), char::from(last));
        parts.push(between + &any(low_rest.len()));
    }
    format!("(?:{})", parts.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the expression, which consists of digits, classes, counts, groups and alternatives, matches the text.
    fn matches(expression: &str, text: &str) -> bool {
        let ends = alternatives(expression.as_bytes(), text.as_bytes());
        ends.contains(&text.len())
    }

    /// How much of the text's beginning the alternatives can match.
    fn alternatives(expression: &[u8], text: &[u8]) -> Vec<usize> {
        let (mut depth, mut from, mut ends) = (0, 0, Vec::new());
        for (at, &byte) in expression.iter().chain(b"|").enumerate() {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                b'|' if depth == 0 => {
                    ends.extend(sequence(&expression[from..at], text));
                    from = at + 1;
                }
                _ => {}
            }
        }
        ends
    }

    fn sequence(expression: &[u8], text: &[u8]) -> Vec<usize> {
        let Some(&first) = expression.first() else {
            return vec![0];
        };
        let (heads, rest) = match first {
            b'(' => {
                let mut depth = 0;
                let end = expression.iter().position(|&byte| {
                    depth += i32::from(byte == b'(') - i32::from(byte == b')');
                    depth == 0
                });
                let end = end.expect("a closed group");
                (alternatives(&expression[3..end], text), &expression[end + 1..])
            }
            b'[' => {
                let (low, high, mut rest) = (expression[1], expression[3], &expression[5..]);
                let mut count = 1;
                if rest.first() == Some(&b'{') {
                    let end = rest.iter().position(|&byte| byte == b'}').expect("a closed count");
                    count = std::str::from_utf8(&rest[1..end]).unwrap().parse().unwrap();
                    rest = &rest[end + 1..];
                }
                let fits = text.len() >= count && text[..count].iter().all(|byte| (low..=high).contains(byte));
                (if fits { vec![count] } else { vec![] }, rest)
            }
            digit => (
                if text.first() == Some(&digit) { vec![1] } else { vec![] },
                &expression[1..],
            ),
        };
        heads
            .into_iter()
            .flat_map(|at| sequence(rest, &text[at..]).into_iter().map(move |end| at + end))
            .collect()
    }

    #[test]
    fn a_range_matches_its_numbers_and_no_other() {
        let ranges = [
            (0, 0),
            (0, 9),
            (0, 120),
            (5, 5),
            (7, 13),
            (99, 101),
            (100, 999),
            (18, 65),
            (123, 4567),
            (1990, 2035),
        ];
        for (from, to) in ranges {
            let expression = range(from, to);
            for number in 0..12_000 {
                let is_in = (from..=to).contains(&number);
                assert_eq!(
                    matches(&expression, &number.to_string()),
                    is_in,
                    "{number} in {from}-{to}: {expression}"
                );
            }
            for text in ["", "00", "01", "007", "0120"] {
                assert!(!matches(&expression, text), "{text:?} in {from}-{to}");
            }
        }
        let all = range(0, u64::MAX);
        assert!(matches(&all, &u64::MAX.to_string()) && !matches(&all, "18446744073709551616"));
    }
}
