//! One table of bodies with their exact outcomes; every row is fed whole with more bytes behind it, byte by byte, and in
//! random pieces.

use super::*;
use crate::http::request_id::IdSource;

const MAX: u64 = 32;

/// Feeds pieces whose lengths `next` chooses; the outcome as one line.
fn feed(framing: Framing, input: &[u8], mut next: impl FnMut() -> usize) -> String {
    let mut body = Vec::new();
    let mut reader = match BodyReader::new(framing, MAX) {
        Ok(reader) => reader,
        Err(error) => return format!("{:?}: {}", error.kind, error.message),
    };
    let mut at = 0;
    loop {
        let piece = &input[at..(at + next()).min(input.len())];
        match reader.feed(piece, &mut body) {
            Err(error) => return format!("{:?}: {}", error.kind, error.message),
            Ok(Fed { consumed, done }) => {
                at += consumed;
                assert!(done || consumed == piece.len(), "nothing of the body is left over");
                if done || at == input.len() {
                    let state = if done { "done" } else { "more" };
                    return format!("{state} {at} {}", String::from_utf8_lossy(&body));
                }
            }
        }
    }
}

fn check(framing: Framing, input: &[u8], expected: &str) {
    let context = String::from_utf8_lossy(input);
    let mut longer = input.to_vec();
    if !expected.starts_with("more") {
        longer.extend_from_slice(b"GET / HTTP/1.1\r\n");
    }
    let expected = expected.replace("done ", &format!("done {} ", input.len()));
    let expected = expected.replace("more ", &format!("more {} ", input.len()));
    assert_eq!(
        feed(framing, &longer, || usize::MAX - 1_000_000),
        expected,
        "{framing:?} {context}"
    );
    assert_eq!(
        feed(framing, &longer, || 1),
        expected,
        "byte by byte: {framing:?} {context}"
    );
    let mut random = IdSource::new([2, input.len() as u64]);
    for _ in 0..50 {
        let pieces = feed(framing, &longer, || (random.bits().0 % 7) as usize);
        assert_eq!(pieces, expected, "in pieces: {framing:?} {context}");
    }
}

#[test]
fn fixed_lengths() {
    for (framing, input, expected) in [
        (Framing::None, &b""[..], "done "),
        (Framing::Length(0), b"", "done "),
        (Framing::Length(1), b"a", "done a"),
        (Framing::Length(5), b"hello", "done hello"),
        (Framing::Length(5), b"hel", "more hel"),
        (Framing::Length(4), b"\r\n\0\x7f", "done \r\n\0\x7f"),
        (
            Framing::Length(32),
            b"0123456789abcdef0123456789abcdef",
            "done 0123456789abcdef0123456789abcdef",
        ),
        (
            Framing::Length(33),
            b"",
            "BodyTooLarge: the request body is larger than 32 bytes",
        ),
        (
            Framing::Length(u64::MAX),
            b"",
            "BodyTooLarge: the request body is larger than 32 bytes",
        ),
    ] {
        check(framing, input, expected);
    }
}

#[test]
fn chunks() {
    let too_large = "BodyTooLarge: the request body is larger than 32 bytes";
    let size = "BadHttp: a chunk size is malformed";
    let longer = "BadHttp: a chunk is longer than its size says";
    let extension = "BadHttp: a chunk extension is malformed";
    let trailer = "BadHttp: the trailer section is malformed";
    let table: &[(&[u8], &str)] = &[
        (b"0\r\n\r\n", "done "),
        (b"5\r\nhello\r\n0\r\n\r\n", "done hello"),
        (b"5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n", "done hello, world"),
        (
            b"A\r\n0123456789\r\na\r\n0123456789\r\n000\r\n\r\n",
            "done 01234567890123456789",
        ),
        (b"0000000000000005\r\nhello\r\n0\r\n\r\n", "done hello"),
        (b"2\r\n\r\n\r\n0\r\n\r\n", "done \r\n"),
        (
            b"20\r\n0123456789abcdef0123456789abcdef\r\n0\r\n\r\n",
            "done 0123456789abcdef0123456789abcdef",
        ),
        (b"5;a=b\r\nhello\r\n0;c=\"d e\"\r\n\r\n", "done hello"),
        (b"5 \t;a\r\nhello\r\n0\r\n\r\n", "done hello"),
        (
            b"5;a ; b = c\t;d=\"\\\"\t\\\\ \xe9;\"\r\nhello\r\n0\r\n\r\n",
            "done hello",
        ),
        (b"1\r\na\r\n0\r\nx: y\r\nContent-Length: 5\r\nempty:\r\n\r\n", "done a"),
        (b"5\r\nhel", "more hel"),
        (b"5\r\nhello\r\n0\r\n", "more hello"),
        (b"5\r\nhello\r\n0\r\nx: y\r\n\r", "more hello"),
        // Limits.
        (b"21\r\n", too_large),
        (b"10\r\n0123456789abcdef\r\n11\r\n", too_large),
        (b"ffffffffffffffff\r\n", too_large),
        (b"00000000000000005\r\n", size),
        // Sizes.
        (b"\r\n", size),
        (b" 5\r\nhello\r\n", size),
        (b"5 \r\nhello\r\n", extension),
        (b"5 0\r\nhello\r\n", extension),
        (b"5\nhello\r\n", size),
        (b"5\rhello\r\n", size),
        (b"0x5\r\nhello\r\n", size),
        (b"-5\r\nhello\r\n", size),
        (b"+5\r\nhello\r\n", size),
        (b"5_0\r\nhello\r\n", size),
        (b";a\r\n", size),
        (b"g\r\n", size),
        ("５\r\n".as_bytes(), size),
        // Data ends.
        (b"5\r\nhello!\r\n0\r\n\r\n", longer),
        (b"5\r\nhello\n0\r\n\r\n", longer),
        (b"5\r\nhello\r0\r\n\r\n", longer),
        (b"5\r\nhello0\r\n\r\n", longer),
        // Extensions: a bare line end in one is how chunk readers were set against each other.
        (b"5;a\nhello\r\n0\r\n\r\n", extension),
        (b"5;a\rb\r\nhello\r\n", size),
        // Once quotes were not looked at, and a line ended within them; nor was the rest of the grammar.
        (b"5;a=\"b\r\nhello\r\n", extension),
        (b"5;a=\"b\\\"\r\nhello\r\n", extension),
        (b"5;a=\"b\"c\r\nhello\r\n", extension),
        (b"5;a=b\"c\"\r\nhello\r\n", extension),
        (b"5;\r\nhello\r\n", extension),
        (b"5;;a\r\nhello\r\n", extension),
        (b"5;=a\r\nhello\r\n", extension),
        (b"5;a=\r\nhello\r\n", extension),
        (b"5;a b\r\nhello\r\n", extension),
        (b"5;a \r\nhello\r\n", extension),
        (b"5;a=b \r\nhello\r\n", extension),
        (b"5;a=b=c\r\nhello\r\n", extension),
        (b"5;\xe9\r\nhello\r\n", extension),
        (b"5;a\0\r\nhello\r\n", extension),
        // Trailers.
        (b"0\r\nx: y\nz: w\r\n\r\n", trailer),
        (b"0\r\n\n", trailer),
        (b"0\r\n x: y\r\n\r\n", trailer),
        (b"0\r\nx : y\r\n\r\n", trailer),
        (b"0\r\n: y\r\n\r\n", trailer),
        (b"0\r\nxy\r\n\r\n", trailer),
        (b"0\r\nx: \0\r\n\r\n", trailer),
        (b"0\r\nx: y\rz\r\n\r\n", trailer),
        (b"0\r\n\rX", trailer),
        (b"0\r\nGET / HTTP/1.1\r\n\r\n", trailer),
    ];
    table
        .iter()
        .for_each(|(input, expected)| check(Framing::Chunked, input, expected));
}

#[test]
fn extensions_and_trailers_are_bounded() {
    let repeat = |byte, count: u32| vec![byte; count as usize];
    // The `;` counts as well.
    let extension = |length| [b"1;", &repeat(b'e', length - 1)[..], b"\r\na\r\n0\r\n\r\n"].concat();
    check(Framing::Chunked, &extension(MAX_EXTENSION_BYTES), "done a");
    check(
        Framing::Chunked,
        &extension(MAX_EXTENSION_BYTES + 1),
        "BadHttp: the chunk extensions are too long",
    );
    let many = b"1;e\r\na\r\n".repeat(MAX as usize);
    check(
        Framing::Chunked,
        &[&many[..], b"0\r\n\r\n"].concat(),
        &format!("done {}", "a".repeat(MAX as usize)),
    );

    let trailer = |length| [b"0\r\nx:", &repeat(b't', length - 4)[..], b"\r\n\r\n"].concat();
    check(Framing::Chunked, &trailer(MAX_TRAILER_BYTES), "done ");
    check(
        Framing::Chunked,
        &trailer(MAX_TRAILER_BYTES + 1),
        "HeaderTooLarge: the trailer section is too long",
    );
    // Once the ends of lines did not count, so that short fields passed at twice the bound.
    check(
        Framing::Chunked,
        &[
            b"0\r\n",
            &b"a:\r\n".repeat(MAX_TRAILER_BYTES as usize / 4 + 1)[..],
            b"\r\n",
        ]
        .concat(),
        "HeaderTooLarge: the trailer section is too long",
    );
}

#[test]
fn bodies_that_need_no_decoding_stay_in_place() {
    let rest = b"hello, next";
    for (framing, expected) in [
        (Framing::None, Some(&b""[..])),
        (Framing::Length(0), Some(b"")),
        (Framing::Length(5), Some(b"hello")),
        (Framing::Length(11), Some(rest)),
        (Framing::Length(12), None),
        (Framing::Length(MAX + 1), None),
        (Framing::Length(u64::MAX), None),
        (Framing::Chunked, None),
    ] {
        assert_eq!(in_place(framing, rest, MAX), expected, "{framing:?}");
    }
}

#[test]
fn random_changes_of_chunks_do_no_harm() {
    let good = b"5;x=y\r\nhello\r\n3\r\nabc\r\n0\r\na: b\r\n\r\n";
    let alphabet = b"\r\n\t ;:\0\xff09fG";
    let mut random = IdSource::new([5, 6]);
    for _ in 0..20_000 {
        let mut bytes = good.to_vec();
        for _ in 0..=random.bits().0 % 3 {
            let (at, what) = random.bits();
            let at = (at % bytes.len() as u64) as usize;
            bytes[at] = alphabet[(what % alphabet.len() as u64) as usize];
        }
        let whole = feed(Framing::Chunked, &bytes, || usize::MAX / 2);
        let pieces = feed(Framing::Chunked, &bytes, || 1 + (random.bits().0 % 4) as usize);
        assert_eq!(whole, pieces, "{}", String::from_utf8_lossy(&bytes));
    }
}
