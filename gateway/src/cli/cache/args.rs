//! The arguments of the `cache` commands, with their help.
//!
//! Nothing is done here. Invariant: which entries are meant is said in exactly one way.

use std::path::PathBuf;

use clap::{ArgGroup, Args as ClapArgs, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show what is kept, what it costs and how it is used
    Stat {
        #[command(flatten)]
        at: At,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove entries
    #[command(group = named())]
    Purge {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        which: Entries,
        /// Yes, remove all of them (with --all)
        #[arg(long)]
        yes: bool,
    },
    /// Keep entries whatever their heat; pinned ones may take half of the bound
    #[command(group = named())]
    Pin {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        which: Entries,
    },
    /// Let pinned entries cool again
    #[command(group = named())]
    Unpin {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        which: Entries,
    },
    /// Show how warm the buckets are
    Heat {
        #[command(flatten)]
        at: At,
        /// Only the buckets of this model
        #[arg(long, short, value_name = "ID")]
        model: Option<String>,
        /// Print a line for each bucket that has entries, as CSV
        #[arg(long)]
        csv: bool,
    },
    /// Print entries, those of all tenants too, with the answers in them
    Dump {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        which: Entries,
        /// How
        #[arg(long, value_enum, default_value_t = Format::Jsonl)]
        format: Format,
        /// Leave the answers out
        #[arg(long)]
        no_body: bool,
    },
    /// Read every file of a cache on disk to its end and check it
    ///
    /// A running gateway is asked; the files of a stopped one are read directly (with --config). Exit code 1 if anything is damaged.
    Verify {
        #[command(flatten)]
        at: At,
    },
    /// Make parts of a cache on disk anew that have dead answers in them, so that their room is given back
    ///
    /// A running gateway is asked; the files of a stopped one are changed directly (with --config).
    Compact {
        #[command(flatten)]
        at: At,
    },
    /// Put recorded pairs of request and response, as answers to the same requests from now on
    ///
    /// Each line of the file is {"request": BODY, "response": BODY} and may have "path" (/v1/messages or
    /// /v1/chat/completions; without it the API is that of the response), "tenant" and "made_ms". A pair whose answer a live
    /// request could not be given is refused with its line and the reason; the others are put. Exit code 1 if any line was bad
    /// or refused.
    Import {
        #[command(flatten)]
        at: At,
        /// The file, one pair a line
        #[arg(value_name = "FILE.jsonl")]
        file: PathBuf,
        /// API of all requests that name none
        #[arg(long, value_enum)]
        api: Option<Api>,
        /// Whose answers they are, where the pairs do not say it
        #[arg(long, value_name = "NAME", conflicts_with = "key_env")]
        tenant: Option<String>,
        /// Environment variable that holds the API key whose answers they are
        #[arg(long, value_name = "VAR")]
        key_env: Option<String>,
    },
    /// Send requests to a gateway, so that their answers are kept
    ///
    /// Each line of the file is the body of a request, or {"path": PATH, "body": BODY}. A request that is there twice is
    /// sent once. Requests that meet a full queue are sent again after the time that the gateway asks for. Exit code 1 if any line was
    /// bad or any request failed.
    Warm(WarmArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WarmArgs {
    /// The file, one request a line
    #[arg(value_name = "FILE.jsonl")]
    pub(super) file: PathBuf,
    /// Where the gateway listens, over plain HTTP
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub(super) url: String,
    /// Requests under way at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) concurrency: u16,
    /// Most requests a second; without it as many as are answered
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) rate: Option<u32>,
    /// Leave out what an earlier run has done, as the file FILE.jsonl.warmed has it
    #[arg(long)]
    pub(super) resume: bool,
    /// Environment variable that holds the API key to send
    #[arg(long, value_name = "VAR")]
    pub(super) key_env: Option<String>,
    /// API of all requests that name no path; without it, it is guessed from the fields of the body
    #[arg(long, value_enum)]
    pub(super) api: Option<Api>,
}

/// Which running gateway is asked.
#[derive(Debug, ClapArgs)]
pub(crate) struct At {
    /// Control socket of the gateway; without it, that of the configuration
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    pub(super) socket: Option<PathBuf>,
    /// Configuration file of the gateway (YAML); without it the defaults hold
    #[arg(long, short, value_name = "PATH")]
    pub(super) config: Option<PathBuf>,
}

/// Some of [`Entries`] have to be named.
fn named() -> ArgGroup {
    let ways = ["key", "model", "tenant", "space", "prefix", "prefix_of", "all"];
    ArgGroup::new("which").required(true).args(ways)
}

/// Which entries; all, if nothing is said.
#[derive(Debug, ClapArgs)]
#[group(multiple = false)]
pub(crate) struct Entries {
    /// The entry of this key (64 hexadecimal digits, as `dump` shows it)
    #[arg(long, value_name = "HEX")]
    pub(super) key: Option<String>,
    /// The entries of this model
    #[arg(long, value_name = "ID")]
    pub(super) model: Option<String>,
    /// The entries of this tenant
    #[arg(long, value_name = "NAME")]
    pub(super) tenant: Option<String>,
    /// The entries of this name space (16 hexadecimal digits, as `dump` shows it), such as that of a tenant that is gone
    #[arg(long, value_name = "HEX")]
    pub(super) space: Option<String>,
    /// Conversations that begin so (32 hexadecimal digits, as `dump` shows it)
    #[arg(long, value_name = "HEX")]
    pub(super) prefix: Option<String>,
    /// Conversations that begin like the request in this file: its first three messages count
    #[arg(long, value_name = "FILE.json")]
    pub(super) prefix_of: Option<PathBuf>,
    /// All entries
    #[arg(long)]
    pub(super) all: bool,
}

/// How entries are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A JSON object a line
    Jsonl,
}

/// The API of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Api {
    /// /v1/messages
    Messages,
    /// /v1/chat/completions
    Chat,
}

impl Api {
    /// Its path.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Messages => "/v1/messages",
            Self::Chat => "/v1/chat/completions",
        }
    }
}
