//! The commands and their arguments, with the help that a newcomer reads.
//!
//! Nothing is done here. Invariant: a value that parses is in range.

use std::{net::SocketAddr, path::PathBuf};

use super::cache::CacheCommand;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

const AFTER_HELP: &str = "\
Try it, with the model that comes with it:
  zerohop run --prompt \"What is the capital of France?\"
  zerohop serve

Exit codes: 0 success; 1 the work failed; 2 wrong command line or configuration, or no start.";

/// Serves language models from this machine, over the Anthropic and the OpenAI API.
#[derive(Debug, Parser)]
#[command(name = "zerohop", version, after_help = AFTER_HELP, max_term_width = 100, arg_required_else_help = true)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serve models over HTTP until told to stop
    ///
    /// Without a configuration the bundled models are served as `tiny` and `tiny-embed` on 127.0.0.1:8080. SIGTERM or
    /// Ctrl-C lets requests in progress finish; SIGHUP reads the configuration again.
    Serve(ServeArgs),
    /// Ask a model once, without a server, and print its answer as it is made
    Run(RunArgs),
    /// Check a configuration, or print the one in force
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look at a model's files
    #[command(subcommand)]
    Model(ModelCommand),
    /// Look at safety rules
    #[command(subcommand)]
    Safety(SafetyCommand),
    /// Look after the stored answers of a running gateway
    #[command(subcommand)]
    Cache(CacheCommand),
}

#[derive(Debug, ClapArgs)]
pub(super) struct ConfigFile {
    /// Configuration file (YAML); without it the defaults hold
    #[arg(long, short, value_name = "PATH")]
    pub(super) config: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub(super) config: ConfigFile,
    /// Listen here instead of where the configuration says, such as 127.0.0.1:8080 or [::1]:8080; may be repeated.
    /// Port 0 lets the system choose one
    #[arg(long, value_name = "ADDR")]
    pub(super) listen: Vec<SocketAddr>,
    /// How to drive sockets
    #[arg(long, value_enum, default_value_t = IoChoice::Auto)]
    pub(super) io: IoChoice,
}

/// How sockets are driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IoChoice {
    /// io_uring where the kernel allows it, otherwise epoll
    Auto,
    /// io_uring, or do not start
    Uring,
    /// epoll
    Epoll,
}

#[derive(Debug, ClapArgs)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) config: ConfigFile,
    /// What to say to the model
    #[arg(long, short, value_name = "TEXT")]
    pub(super) prompt: String,
    /// Model to ask, by id or alias; the first of the configuration if not given
    #[arg(long, short, value_name = "ID")]
    pub(super) model: Option<String>,
    /// Stop after this many tokens
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_tokens: Option<u32>,
    /// How freely to choose words: 0, the default, always takes the most probable; 2 is very free
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = temperature)]
    pub(super) temperature: Option<f32>,
    /// Repeat the same choices with the same number
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check a configuration file and list everything that is wrong with it
    Check {
        /// The file
        #[arg(value_name = "PATH")]
        path: PathBuf,
    },
    /// Print the whole configuration in force as YAML, defaults included; keys of tenants are never in it
    Print {
        #[command(flatten)]
        config: ConfigFile,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum ModelCommand {
    /// Say what a model folder holds, and whether it can be served
    Inspect {
        /// The folder
        #[arg(value_name = "PATH")]
        path: PathBuf,
        #[command(flatten)]
        config: ConfigFile,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum SafetyCommand {
    /// Show which rule binds the answer to a prompt, which tokens are allowed first, and what is strange about the rules
    Check {
        #[command(flatten)]
        rules: RulesArgs,
        /// What is said to the model
        #[arg(long, short, value_name = "TEXT")]
        prompt: String,
    },
    /// Show how the texts of the rules map to tokens of a model, and find dead rules
    TokenMap {
        #[command(flatten)]
        rules: RulesArgs,
        /// Only this rule, by name or by its number from 1
        #[arg(long, value_name = "RULE")]
        rule: Option<String>,
    },
}

#[derive(Debug, ClapArgs)]
pub(super) struct RulesArgs {
    #[command(flatten)]
    pub(super) config: ConfigFile,
    /// Model, by id or alias; the first of the configuration if not given
    #[arg(long, short, value_name = "ID")]
    pub(super) model: Option<String>,
    /// File of rules; without it that of the configuration
    #[arg(long, value_name = "PATH")]
    pub(super) rules: Option<PathBuf>,
}

/// A temperature from 0 to 2.
fn temperature(text: &str) -> Result<f32, String> {
    let value: f32 = text.parse().map_err(|_| "give a number from 0 to 2".to_owned())?;
    if (0.0..=2.0).contains(&value) {
        Ok(value)
    } else {
        Err("give a number from 0 to 2".to_owned())
    }
}
