//! Meaning: from the keys as they stand in the file to values in range, checked against each other.
//!
//! Each section is read even when another one is wrong, so that all faults are told at once. Invariant: a
//! [`Config`] comes out only if there is no fault at all.

mod cache;
mod models;
mod rules;
mod server;
mod steering;
mod tenants;

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{
    Config, Engine, Level, Library, LogFormat, Logging, Memory, Metrics, Problems, Surroundings, ZeroCopy,
    field::{Amount, At, Field, word},
    node::{self, quoted},
    raw, units,
};

/// The words of `logging.level`.
pub(super) const LEVELS: [(&str, Level); 4] = [
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("info", Level::Info),
    ("debug", Level::Debug),
];
/// The words of `logging.format`.
pub(super) const FORMATS: [(&str, LogFormat); 3] = [
    ("auto", LogFormat::Auto),
    ("human", LogFormat::Human),
    ("json", LogFormat::Json),
];
/// The words of `server.zero_copy`.
pub(super) const ZERO_COPY: [(&str, ZeroCopy); 3] = [
    ("auto", ZeroCopy::Auto),
    ("off", ZeroCopy::Off),
    ("always", ZeroCopy::Always),
];
/// The words of `engine.huge_pages`.
pub(super) const HUGE_PAGES: [(&str, bool); 2] = [("auto", true), ("off", false)];
pub(super) use cache::{HALF_LIVES, POLICIES, PROBATIONS, SCOPES};
pub(super) use models::PROVIDERS;
pub(super) use rules::rules;
pub(super) use steering::{MODES, STEERING_POLICIES, XDP_MODES};

/// Longest text that becomes a name or a label, in characters.
const MAX_NAME: usize = 256;

/// What the readers of sections share.
struct Reader<'a> {
    problems: Problems,
    /// Relative paths of the file begin here.
    folder: &'a Path,
    surroundings: &'a dyn Surroundings,
}

/// Reads the text of a configuration. `listen`, if not empty, replaces the addresses of the file.
pub(super) fn parse(
    name: &str,
    text: &str,
    folder: &Path,
    listen: &[std::net::SocketAddr],
    surroundings: &dyn Surroundings,
) -> Result<Config, Problems> {
    let mut reader = Reader {
        problems: Problems::of(name),
        folder,
        surroundings,
    };
    let root = match node::read(text) {
        Ok(document) => raw::read(&document, &mut reader.problems),
        Err(fault) => {
            reader.problems.bare(fault.place, fault.text);
            None
        }
    };
    let config = root.map(|root| reader.config(root, listen));
    reader.problems.or(config)
}

impl Reader<'_> {
    /// The configuration; meaningful only if no problem was told.
    fn config(&mut self, root: raw::Root, listen: &[std::net::SocketAddr]) -> Config {
        let (models, names) = self.models(root.models);
        let has_tenants = match &root.tenants {
            Field::Absent => false,
            Field::Bad => true,
            Field::Given(list) => !list.value.is_empty(),
        };
        let tenants = self.tenants(root.tenants, &names);
        let metrics = self.metrics(root.metrics.section());
        let (server, access) = self.server(
            root.server.section(),
            &server::Others {
                listen,
                has_tenants,
                prometheus: metrics.prometheus,
            },
            tenants,
        );
        Config {
            server,
            steering: self.steering(root.steering.section()),
            access,
            models,
            engine: self.engine(root.engine.section()),
            cache: self.cache(root.cache.section()),
            safety: self.safety(root.safety.section()),
            memory: self.memory(root.memory.section()),
            logging: self.logging(root.logging.section()),
            metrics,
        }
    }

    fn engine(&mut self, raw: raw::Engine) -> Engine {
        let onnxruntime = match raw.onnxruntime.given() {
            Some(path) if path.value != "auto" => {
                let file = self.path(&path);
                if !self.surroundings.is_file(&file) {
                    let text = format!(
                        "there is no file {}: give the shared library's path, or auto",
                        file.display()
                    );
                    path.fault(&mut self.problems, text);
                }
                Library::File(file)
            }
            _ => Library::Auto,
        };
        let cuda = match raw.cuda.given() {
            Some(path) if path.value != "auto" => {
                let folder = self.path(&path);
                if !self.surroundings.is_folder(&folder) {
                    let text = format!(
                        "there is no folder {}: give the folder of NVIDIA's libraries, or auto",
                        folder.display()
                    );
                    path.fault(&mut self.problems, text);
                }
                Some(folder)
            }
            _ => None,
        };
        Engine {
            onnxruntime,
            cuda,
            huge_pages: self.word(raw.huge_pages, &HUGE_PAGES, true),
        }
    }

    fn memory(&mut self, raw: raw::Memory) -> Memory {
        const RANGE: RangeInclusive<i128> = 16..=4096;
        const DEFAULT: usize = 64;
        let Some(given) = raw.alignment.given() else {
            return Memory { alignment: DEFAULT };
        };
        let alignment = usize::try_from(given.value).unwrap_or(0);
        if !RANGE.contains(&given.value) || !alignment.is_power_of_two() {
            let text = format!(
                "{} is not possible: give a power of two from 16 to 4096, such as 64",
                given.value
            );
            given.fault(&mut self.problems, text);
        }
        Memory { alignment }
    }

    fn logging(&mut self, raw: raw::Logging) -> Logging {
        Logging {
            level: self.word(raw.level, &LEVELS, Level::Info),
            format: self.word(raw.format, &FORMATS, LogFormat::Auto),
        }
    }

    fn metrics(&mut self, raw: raw::Metrics) -> Metrics {
        let labels = raw.labels.section();
        let instance_id = labels.instance_id.given().filter(|id| id.value != "auto");
        Metrics {
            prometheus: raw.prometheus.section().enabled.given().is_none_or(|at| at.value),
            instance_id: instance_id.and_then(|id| self.label(&id)),
            region: labels.region.set().and_then(|region| self.label(&region)),
        }
    }

    /// One of a few words.
    fn word<T: Copy>(&mut self, field: Field<String>, words: &[(&'static str, T)], default: T) -> T {
        let given = field.given().and_then(|given| word(&given, words, &mut self.problems));
        given.unwrap_or(default)
    }

    /// A whole number in this range.
    fn whole(&mut self, field: Field<i128>, range: RangeInclusive<u32>, default: u32) -> u32 {
        let Some(given) = field.given() else {
            return default;
        };
        self.in_range(&given, given.value, range, |n| n.to_string())
            .unwrap_or(default)
    }

    /// A duration in this range.
    fn duration(&mut self, field: Field<Amount>, range: RangeInclusive<Duration>, default: Duration) -> Duration {
        let given = field.given().and_then(|given| self.time(&given, range));
        given.unwrap_or(default)
    }

    /// The duration that was given, if it is one in this range.
    fn time(&mut self, given: &At<Amount>, range: RangeInclusive<Duration>) -> Option<Duration> {
        let Some(value) = units::duration(&given.value.0) else {
            self.no_amount(given, units::DURATION);
            return None;
        };
        self.in_range(given, value, range, units::show_duration)
    }

    /// A size in bytes in this range.
    fn size(&mut self, field: Field<Amount>, range: RangeInclusive<u64>, default: u64) -> u64 {
        let Some(given) = field.given() else {
            return default;
        };
        let Some(value) = units::size(&given.value.0) else {
            self.no_amount(&given, units::SIZE);
            return default;
        };
        self.in_range(&given, value, range, units::show_size).unwrap_or(default)
    }

    fn no_amount(&mut self, given: &At<Amount>, wanted: &str) {
        let text = format!("{} is not possible: give {wanted}", quoted(&given.value.0));
        given.fault(&mut self.problems, text);
    }

    /// `value` as the type of `range`, if it lies in it.
    fn in_range<T, V, B>(&mut self, at: &At<T>, value: V, range: RangeInclusive<B>, show: fn(B) -> String) -> Option<B>
    where
        T: std::fmt::Display,
        V: PartialOrd + Copy + From<B> + TryInto<B>,
        B: Copy,
    {
        let limit = if value < V::from(*range.start()) {
            format!("at least {}", show(*range.start()))
        } else if value > V::from(*range.end()) {
            format!("at most {}", show(*range.end()))
        } else {
            return value.try_into().ok();
        };
        at.fault(
            &mut self.problems,
            format_args!("{} is not possible: give {limit}", at.value),
        );
        None
    }

    /// A path of the file, from the file's folder.
    fn path(&self, given: &At<String>) -> PathBuf {
        self.folder.join(&given.value)
    }

    /// Text that becomes a name or a label: not empty, no blanks, no control characters.
    fn label(&mut self, given: &At<String>) -> Option<Arc<str>> {
        let text = given.value.as_str();
        let fault = if text.is_empty() {
            "the text is empty: give a name".to_owned()
        } else if text.chars().count() > MAX_NAME {
            format!("{} is too long: give at most {MAX_NAME} characters", quoted(text))
        } else if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            format!("{} holds a blank: give a name without", quoted(text))
        } else {
            return Some(text.into());
        };
        given.fault(&mut self.problems, fault);
        None
    }
}
