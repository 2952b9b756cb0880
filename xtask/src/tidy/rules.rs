//! The rules, each a line of a table: which text may not stand in which files, and why.
//!
//! Nothing here reads a file. Invariant: a breach names the line and the reason, so that it can be mended without
//! asking anybody.

use super::{Breach, File};

/// No file is longer.
const LONGEST: usize = 700;

/// A piece of text that only some files may hold.
struct Ban {
    /// Looked for as a whole word where it begins or ends with a letter.
    text: &'static str,
    /// Files that the rule is about, by a part of their path.
    within: &'static [&'static str],
    /// Files among them that may hold it, by how their path begins.
    except: &'static [&'static str],
    why: &'static str,
}

/// Rules on code; comments and strings do not count.
const CODE: [Ban; 12] = [
    Ban {
        text: "unsafe",
        within: &[".rs"],
        except: &[
            "gateway/ring/src/sys.rs",
            "gateway/ring/src/sys/",
            "gateway/engine/src/ort_sys/",
            "gateway/cache/src/map.rs",
            "gateway/cache/examples/lookup/lmdb.rs",
            "gateway/simd/src/x86/",
            "gateway/simd/src/text.rs",
            "gateway/simd/tests/guard.rs",
            "ebpf/loader/src/sys.rs",
            "ebpf/programs/src/",
        ],
        why: "unsafe code lies in ring's sys, engine's ort_sys, the cache's map and LMDB example, simd's x86 and text, the \
              loader's sys and the programs in the kernel only",
    },
    Ban {
        text: "zerohop_ring",
        within: &["gateway/src/"],
        except: &[
            "gateway/src/worker/",
            "gateway/src/worker.rs",
            "gateway/src/server.rs",
            "gateway/src/server/",
            // They take numbers from it: `Nanos` and `IoStats`.
            "gateway/src/access.rs",
            "gateway/src/metrics/",
        ],
        why: "only the worker and the server know sockets",
    },
    Ban {
        text: "TcpStream",
        within: &["gateway/src/", "gateway/engine/src/"],
        except: &["gateway/src/server.rs", "gateway/src/server/"],
        why: "bytes reach a socket through the ring only",
    },
    Ban {
        text: "zerohop_ring",
        within: &["gateway/engine/"],
        except: &[],
        why: "the engine knows no sockets",
    },
    Ban {
        text: "zerohop_engine",
        within: &["gateway/ring/"],
        except: &[],
        why: "the ring knows no models",
    },
    Ban {
        text: "ort",
        within: &["gateway/src/", "gateway/ring/"],
        except: &[],
        why: "only the engine knows the model runtime",
    },
    Ban {
        text: "todo!",
        within: &[".rs"],
        except: &[],
        why: "nothing unfinished is merged",
    },
    Ban {
        text: "unimplemented!",
        within: &[".rs"],
        except: &[],
        why: "nothing unfinished is merged",
    },
    Ban {
        text: "#[ignore",
        within: &[".rs"],
        except: &[],
        why: "a test that cannot run prints `SKIPPED NAME: REASON`; none is ignored",
    },
    Ban {
        text: "sleep",
        within: &["tests/", "tests.rs"],
        // The second waits for nothing: it makes a race likelier whose both outcomes are right.
        except: &["tests/src/wait.rs", "gateway/ring/tests/support/worlds.rs"],
        why: "a test waits for a condition with a deadline, as zerohop_tests::wait does",
    },
    Ban {
        text: "println!",
        within: &["gateway/engine/src/", "gateway/ring/src/"],
        except: &["gateway/engine/src/tests", "gateway/ring/src/tests"],
        why: "a library does not write to the terminal",
    },
    Ban {
        text: "env::set_var",
        within: &[".rs"],
        except: &[],
        why: "the environment is read, never changed",
    },
];

/// Rules on all text, comments included. Split, so that the table does not break its own rules.
const TEXT: [Ban; 6] = [
    Ban {
        text: concat!("/wo", "rk/"),
        within: &[""],
        except: &["Cargo.lock"],
        why: "a path of one machine",
    },
    Ban {
        text: concat!("/tm", "p/"),
        within: &[""],
        except: &["Cargo.lock"],
        why: "a path of one machine; ask the system where temporary files go",
    },
    Ban {
        text: concat!("/ro", "ot/"),
        within: &[""],
        except: &["Cargo.lock"],
        why: "a path of one machine",
    },
    Ban {
        text: concat!("FIX", "ME"),
        within: &[".rs", ".md", ".py", ".mjs", ".toml", ".sh"],
        except: &[],
        why: "mend it, or say what holds today",
    },
    Ban {
        text: concat!("TO", "DO"),
        within: &[".rs", ".md", ".py", ".mjs", ".toml", ".sh"],
        except: &[],
        why: "do it, or say what holds today",
    },
    Ban {
        text: concat!("XX", "X"),
        within: &[".rs", ".py", ".mjs", ".toml", ".sh"],
        except: &[],
        why: "mend it, or say what holds today",
    },
];

/// Crate roots that may not contain `forbid(unsafe_code)`, since one of their modules is the crate's unsafe file.
const UNSAFE_CRATES: [&str; 5] = [
    "ebpf/loader/src/lib.rs",
    "gateway/ring/src/lib.rs",
    "gateway/engine/src/lib.rs",
    "gateway/cache/src/lib.rs",
    "gateway/simd/src/lib.rs",
];

/// All breaches of a file. `linked` says whether a path, from the file's folder, exists.
pub(super) fn breaches(file: &File, linked: impl Fn(&str) -> bool) -> Vec<Breach> {
    let mut found = Vec::new();
    found.extend(
        CODE.iter()
            .filter(|_| file.path.ends_with(".rs"))
            .flat_map(|ban| banned(ban, file.path, file.code)),
    );
    found.extend(TEXT.iter().flat_map(|ban| banned(ban, file.path, file.text)));
    found.extend(header(file));
    found.extend(length(file));
    found.extend(forbids_unsafe(file));
    found.extend(pinned(file));
    found.extend(links(file, linked));
    found
}

fn breach(line: usize, what: impl Into<String>) -> Breach {
    Breach {
        line,
        what: what.into(),
    }
}

fn banned(ban: &Ban, path: &str, text: &str) -> Vec<Breach> {
    let about =
        ban.within.iter().any(|part| path.contains(part)) && !ban.except.iter().any(|start| path.starts_with(start));
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| about && holds(line, ban.text));
    lines
        .map(|(at, _)| breach(at + 1, format!("`{}`: {}", ban.text, ban.why)))
        .collect()
}

/// Whether the line holds the text as a whole word (where its ends are letters).
fn holds(line: &str, text: &str) -> bool {
    let word =
        |character: Option<char>| character.is_some_and(|character| character.is_alphanumeric() || character == '_');
    line.match_indices(text).any(|(at, _)| {
        let before = word(line[..at].chars().next_back()) && word(text.chars().next());
        let after = word(line[at + text.len()..].chars().next()) && word(text.chars().next_back());
        !before && !after
    })
}

/// Each Rust, Python and Node file says what it is; tests beside a file are part of it.
fn header(file: &File) -> Option<Breach> {
    let (start, kind) = match file.path.rsplit('.').next() {
        Some("rs") => ("//! ", "//!"),
        Some("py") => ("\"\"\"", "a docstring"),
        Some("mjs") => ("// ", "//"),
        _ => return None,
    };
    let beside = file.path.ends_with("_tests.rs") || file.path.ends_with("/tests.rs");
    let missing = !beside && !file.text.starts_with(start);
    missing.then(|| {
        breach(
            1,
            format!("begins with {kind}: what it is, what it never does, its invariant"),
        )
    })
}

fn length(file: &File) -> Option<Breach> {
    let lines = file.text.lines().count();
    let source = [".rs", ".py", ".mjs"]
        .iter()
        .any(|extension| file.path.ends_with(extension));
    (source && lines > LONGEST).then(|| breach(lines, format!("{lines} lines; no file has more than {LONGEST}")))
}

/// The root of a crate forbids unsafe code, unless the crate has a file for it; then it denies it.
fn forbids_unsafe(file: &File) -> Option<Breach> {
    let root = file.path.ends_with("src/lib.rs")
        || file.path.ends_with("src/main.rs")
        || file.path.ends_with("suites/main.rs");
    let wanted = if UNSAFE_CRATES.contains(&file.path) {
        "#![deny(unsafe_code)]"
    } else {
        "#![forbid(unsafe_code)]"
    };
    (root && !file.code.contains(wanted)).then(|| breach(1, format!("a crate's root has {wanted}")))
}

/// Crates take every dependency from the workspace, where it is pinned once.
fn pinned(file: &File) -> Vec<Breach> {
    // The programs in the kernel are a workspace of their own.
    if !file.path.ends_with("/Cargo.toml") || file.path == "ebpf/programs/Cargo.toml" {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut dependencies = false;
    for (at, line) in file.text.lines().enumerate() {
        if line.starts_with('[') {
            dependencies = line.ends_with("dependencies]");
        } else if dependencies && line.contains('=') && !line.contains("workspace = true") && !line.starts_with('#') {
            found.push(breach(
                at + 1,
                "a dependency without `workspace = true`: pin it in the root's Cargo.toml",
            ));
        }
    }
    found
}

/// Links of a document to other files of the repository lead somewhere.
fn links(file: &File, linked: impl Fn(&str) -> bool) -> Vec<Breach> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let targets = file.text.lines().enumerate().flat_map(|(at, line)| {
        let ends = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        ends.map(move |target| (at + 1, target.split('#').next().unwrap_or_default()))
    });
    targets
        .filter(|(_, target)| !target.is_empty() && !target.contains("://") && !linked(target))
        .map(|(line, target)| breach(line, format!("a link to {target}, which does not exist")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(path: &str, text: &str) -> Vec<(usize, String)> {
        let code = if path.ends_with(".rs") {
            super::super::code::only(text)
        } else {
            text.to_owned()
        };
        let file = File {
            path,
            text,
            code: &code,
        };
        breaches(&file, |target| target == "there.md")
            .into_iter()
            .map(|breach| (breach.line, breach.what))
            .collect()
    }

    #[test]
    fn each_rule_meets_its_breach_and_nothing_else() {
        let long = format!("//! A.\n{}", "\n".repeat(LONGEST));
        let marker = format!("//! A.\n// {}: later\n", concat!("FIX", "ME"));
        let machine = format!("See {}shared.\n", concat!("/wo", "rk/"));
        /// A path, a text, and the line and words of the breach.
        type Case<'a> = (&'a str, &'a str, Option<(usize, &'a str)>);
        let cases: [Case; 27] = [
            ("a/src/x.rs", "//! A.\nfn f() {}\n", None),
            ("a/src/x.rs", "fn f() {}\n", Some((1, "begins with //!"))),
            ("a/x.py", "import os\n", Some((1, "docstring"))),
            ("a/x.py", "\"\"\"A.\"\"\"\n", None),
            ("a/src/x.rs", &long, Some((LONGEST + 1, "lines"))),
            (
                "a/src/x.rs",
                "//! A.\nunsafe fn f() {}\n",
                Some((2, "unsafe code lies")),
            ),
            (
                "a/src/x.rs",
                "//! A.\n// unsafe\nlet a = \"unsafe\"; unsafely();\n",
                None,
            ),
            ("gateway/ring/src/sys.rs", "//! A.\nunsafe fn f() {}\n", None),
            (
                "gateway/src/http/x.rs",
                "//! A.\nuse zerohop_ring::Io;\n",
                Some((2, "know sockets")),
            ),
            ("gateway/src/worker/x.rs", "//! A.\nuse zerohop_ring::Io;\n", None),
            (
                "gateway/engine/src/x.rs",
                "//! A.\nuse zerohop_ring::Io;\n",
                Some((2, "no sockets")),
            ),
            (
                "gateway/src/x.rs",
                "//! A.\nuse ort::Session;\n",
                Some((2, "model runtime")),
            ),
            ("gateway/src/x.rs", "//! A.\nfn sort(ortho: u8) {}\n", None),
            ("a/src/x.rs", "//! A.\nfn f() { todo!() }\n", Some((2, "unfinished"))),
            ("a/src/x.rs", "//! A.\n#[ignore = \"slow\"]\n", Some((2, "ignored"))),
            (
                "a/src/x_tests.rs",
                "use a::b;\nthread::sleep(d);\n",
                Some((2, "deadline")),
            ),
            ("tests/src/wait.rs", "//! A.\nthread::sleep(d);\n", None),
            ("a/src/x.rs", &marker, Some((2, "mend it"))),
            ("docs/a.md", &machine, Some((1, "one machine"))),
            ("a/src/lib.rs", "//! A.\n", Some((1, "forbid(unsafe_code)"))),
            ("a/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\n", None),
            ("gateway/ring/src/lib.rs", "//! A.\n#![deny(unsafe_code)]\n", None),
            ("a/Cargo.toml", "[dependencies]\nb = \"1\"\n", Some((2, "pin it"))),
            (
                "a/Cargo.toml",
                "[package]\nname = \"a\"\n[dependencies]\nb.workspace = true\n",
                None,
            ),
            (
                "docs/a.md",
                "[a](there.md#part) [b](https://example.org/) [c](#here)\n",
                None,
            ),
            ("docs/a.md", "a\n[a](gone.md)\n", Some((2, "gone.md"))),
            ("Cargo.toml", "[workspace.dependencies]\nb = \"1\"\n", None),
        ];
        for (path, text, expected) in cases {
            let found = told(path, text);
            match (found.as_slice(), expected) {
                ([], None) => {}
                ([(line, what)], Some((at, part))) if *line == at && what.contains(part) => {}
                _ => panic!("{path} {text:?}: {found:?}, not {expected:?}"),
            }
        }
    }
}
