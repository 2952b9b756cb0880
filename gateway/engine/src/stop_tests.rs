use super::*;

/// Feeds `text` in pieces and compares what is let out and where it stops, for every way to cut it in up to three.
fn check(stops: &[&str], text: &str, want: &str, want_stop: Option<&str>) {
    let borders: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let texts: Vec<String> = stops.iter().map(|&s| s.to_owned()).collect();
    let run = |pieces: &[&str]| {
        let mut stops = Stops::new(texts.clone());
        let mut out = String::new();
        for piece in pieces {
            if let Some(found) = stops.push(piece, &mut out) {
                return (out, Some(found));
            }
            assert!(
                want.starts_with(&out),
                "let out too much: {out:?} of {want:?} in {pieces:?}"
            );
        }
        stops.finish(&mut out);
        (out, None)
    };
    let want = (want.to_owned(), want_stop.map(str::to_owned));
    for &first in &borders {
        for &second in borders.iter().filter(|&&at| at >= first) {
            let pieces = [&text[..first], &text[first..second], &text[second..]];
            assert_eq!(run(&pieces), want, "{stops:?} in {pieces:?}");
        }
    }
    let characters: Vec<String> = text.chars().map(String::from).collect();
    let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
    assert_eq!(run(&characters), want, "{stops:?} in {text:?}, character by character");
}

#[test]
fn table() {
    check(&[], "plain text", "plain text", None);
    check(&["END"], "no such thing", "no such thing", None);
    check(&["END"], "abcENDdef", "abc", Some("END"));
    check(&["END"], "END", "", Some("END"));
    check(&["END"], "abcEN", "abcEN", None);
    check(&["END"], "EENEND!", "EEN", Some("END"));
    check(&["\n\n"], "a\nb\n\nc", "a\nb", Some("\n\n"));
    check(&["aab"], "aaaab", "aa", Some("aab"));
    check(&["abab"], "abaababx", "aba", Some("abab"));
    // The one that is complete first, not the one that begins first.
    check(&["abcdef", "cd"], "xabcdef", "xab", Some("cd"));
    check(&["abcdef", "cx"], "xabcdef", "x", Some("abcdef"));
    // Complete at the same place: the longest.
    check(&["c", "bc", "abc"], "xabcy", "x", Some("abc"));
    // What was held for one is let out when another, shorter one decides.
    check(&["ab!", "b?"], "aab?", "aa", Some("b?"));
    check(&["語"], "日本語", "日本", Some("語"));
    // 本 and 末 share their first two bytes.
    check(&["末"], "日本語", "日本語", None);
    check(&["日本x", "本語"], "日本語", "日", Some("本語"));
    check(&["", "b"], "abc", "a", Some("b"));
    check(&["<|end|>"], "<<|end|<|end|>", "<<|end|", Some("<|end|>"));
}

#[test]
fn holds_back_exactly_what_may_begin_a_stop_text() {
    let mut stops = Stops::new(vec!["stop".into()]);
    let mut out = String::new();
    for (piece, let_out) in [
        ("a", "a"),
        ("s", "a"),
        ("t", "a"),
        ("x", "astx"),
        ("st", "astx"),
        ("o", "astx"),
        ("s", "astxsto"),
    ] {
        assert_eq!(stops.push(piece, &mut out), None);
        assert_eq!(out, let_out, "after {piece:?}");
    }
    assert_eq!(stops.push("top", &mut out).as_deref(), Some("stop"));
    assert_eq!(out, "astxsto");
}
