//! Public traces of requests: which there are, and how their files are read.
//!
//! It replays nothing. Invariant: keys are numbered in the order in which they first come, and times never go back.

use std::{
    collections::HashMap,
    error::Error,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Hundredths of a second.
const TICKS: u64 = 100;

/// How a file says which keys are asked for.
#[derive(Clone, Copy)]
enum Form {
    /// Words of so many bytes.
    Words(usize),
    /// Lines; this column is the key.
    Lines(usize),
    /// A request a line, in JSON: its time in ms, and the blocks of its prompt, each of which is asked for.
    Blocks,
}

/// A trace that is known.
pub struct Known {
    pub name: &'static str,
    file: &'static str,
    form: Form,
    /// Requests a second, where the file has no times.
    rate: u64,
    /// Requests of people for pages, and the like: here S3-FIFO is the measure.
    pub web: bool,
    /// Requests to a language model.
    pub model: bool,
}

/// All of them.
pub const KNOWN: [Known; 7] = [
    known("Mooncake conversation", "conversation_trace.jsonl.xz", Form::Blocks, 0),
    known("web07", "web07.trace.xz", Form::Words(4), 10),
    known("web12", "web12.trace.xz", Form::Words(4), 10),
    known("scarab", "scarab-recs.trace.xz", Form::Words(8), 100),
    known("adapt-size web", "request.trace.xz", Form::Lines(1), 100),
    known("orm-busy", "orm-busy.trace.xz", Form::Words(4), 1000),
    known("multi1", "multi1.trace.gz", Form::Lines(0), 100),
];

/// Beside them lies a trace without keys.
const KEYLESS: &str = "azure_conv.csv.xz";

const fn known(name: &'static str, file: &'static str, form: Form, rate: u64) -> Known {
    Known {
        name,
        file,
        form,
        rate,
        web: matches!(name.as_bytes(), [b'w', b'e', b'b', ..] | b"scarab" | b"adapt-size web"),
        model: matches!(form, Form::Blocks),
    }
}

/// A request.
#[derive(Clone, Copy)]
pub struct Request {
    /// Its key's number.
    pub key: u32,
    /// Hundredths of a second since the first.
    pub at: u32,
}

/// A trace.
pub struct Trace {
    pub requests: Vec<Request>,
    /// Keys in all.
    pub distinct: usize,
}

/// Where the traces lie; what is missing, if they do not.
pub fn folder() -> Result<PathBuf, String> {
    let data = std::env::var_os("ZEROHOP_TEST_DATA").ok_or("ZEROHOP_TEST_DATA names no folder")?;
    let folder = Path::new(&data).join("traces");
    if folder.is_dir() {
        Ok(folder)
    } else {
        Err(format!("no folder {}", folder.display()))
    }
}

/// Names of files that are there and cannot be replayed, each with the reason.
pub fn others(folder: &Path) -> io::Result<Vec<String>> {
    let mut others = Vec::new();
    for file in fs::read_dir(folder)? {
        let name = file?.file_name().to_string_lossy().into_owned();
        if name == KEYLESS {
            others.push(format!("{name}: arrivals and lengths, no keys"));
        } else if KNOWN.iter().all(|known| known.file != name) {
            others.push(format!("{name}: not known"));
        }
    }
    others.sort_unstable();
    Ok(others)
}

impl Known {
    /// Reads it, the first `most` requests; `None` if the file is not there.
    pub fn read(&self, folder: &Path, most: usize) -> Outcome<Option<Trace>> {
        let path = folder.join(self.file);
        if !path.exists() {
            return Ok(None);
        }
        let bytes = unpacked(&path)?;
        let mut requests = match self.form {
            Form::Words(width) => self.evenly(bytes.chunks_exact(width)),
            Form::Lines(column) => self.evenly(lines(&bytes).filter_map(|line| {
                let mut columns = line.split(u8::is_ascii_whitespace);
                columns.nth(column).filter(|key| !key.is_empty())
            })),
            Form::Blocks => blocks(&bytes)?,
        };
        requests.truncate(most);
        let last = requests.iter().map(|request| request.key).max();
        Ok(Some(Trace {
            distinct: last.map_or(0, |last| last as usize + 1),
            requests,
        }))
    }

    /// Keys that come at an even rate.
    fn evenly<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Vec<Request> {
        let mut numbers = HashMap::new();
        let request = |(place, key): (usize, &'a [u8])| Request {
            key: number(&mut numbers, key),
            at: (place as u64 * TICKS / self.rate) as u32,
        };
        keys.enumerate().map(request).collect()
    }
}

fn number<K: std::hash::Hash + Eq>(numbers: &mut HashMap<K, u32>, key: K) -> u32 {
    let next = numbers.len() as u32;
    *numbers.entry(key).or_insert(next)
}

fn blocks(bytes: &[u8]) -> Outcome<Vec<Request>> {
    let (mut requests, mut numbers) = (Vec::new(), HashMap::new());
    for line in lines(bytes) {
        let line: serde_json::Value = serde_json::from_slice(line)?;
        let millis = line["timestamp"].as_u64().ok_or("a request without a time")?;
        let blocks = line["hash_ids"].as_array().ok_or("a request without blocks")?;
        for block in blocks {
            let block = block.as_u64().ok_or("a block that is no number")?;
            requests.push(Request {
                key: number(&mut numbers, block),
                at: (millis * TICKS / 1000) as u32,
            });
        }
    }
    Ok(requests)
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

fn unpacked(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes)?;
    } else {
        lzma_rust2::XzReader::new(file, true).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
