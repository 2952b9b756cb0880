//! Configuration files: any text is read or refused, and what is read prints as a file that reads the same.
//!
//! Invariant: the machine that the files see is made up, so an input repeats everywhere.

use std::{io, path::Path};

use zerohop::config::{Config, Source, Surroundings, load};

use crate::same;

struct Made<'a>(&'a str);

impl Surroundings for Made<'_> {
    fn env(&self, name: &str) -> Option<String> {
        (name == "KEYS").then(|| String::from("sk-first,sk-second"))
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<String> {
        if path.ends_with("keys") {
            return Ok(String::from("# of a team\nsk-third\n"));
        }
        if self.0.len() as u64 > limit {
            return Err(io::Error::other("too large"));
        }
        Ok(self.0.to_owned())
    }

    fn is_folder(&self, path: &Path) -> bool {
        !path.ends_with("keys")
    }

    fn is_file(&self, path: &Path) -> bool {
        path.ends_with("keys")
    }

    fn cores(&self) -> Vec<usize> {
        vec![0, 1, 2, 3]
    }

    fn memory(&self) -> Option<u64> {
        Some(16 << 30)
    }
}

pub(crate) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match read(&text) {
        Ok(config) => {
            let printed = config.to_yaml();
            let again =
                read(&printed).unwrap_or_else(|told| panic!("{told}\nof\n{printed}\nof\n{}", data.escape_ascii()));
            same("printed", &again, &config, data);
        }
        Err(told) => assert!(
            !told.trim().is_empty(),
            "refused without a word: {}",
            data.escape_ascii()
        ),
    }
}

fn read(text: &str) -> Result<Config, String> {
    let source = Source {
        file: Some("folder/zerohop.yaml".into()),
        listen: Vec::new(),
    };
    load(&source, &Made(text)).map_err(|problems| problems.to_string())
}
