//! The command line: what a user types, and which part of the product answers.
//!
//! Reads arguments and the configuration, prints, and turns outcomes into exit codes. Invariant: 0 is success, 1 is a
//! failure of the work itself, 2 is a wrong command line, a wrong configuration or a start that did not succeed.

mod args;
mod cache;
mod safety;

#[cfg(test)]
mod tests;

use std::{
    ffi::OsString,
    fmt,
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;

pub use args::IoChoice;
use args::{Args, Command, ConfigCommand, ModelCommand, SafetyCommand};

use crate::config::{self, Config, Machine, Source};

/// What `serve` needs besides the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// Where the configuration came from: [`config::load`] reads it again for a reload.
    pub source: Source,
    /// How sockets are driven.
    pub io: IoChoice,
}

/// What `run` needs besides the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOptions {
    /// What the user says.
    pub prompt: String,
    /// An id or alias; `None`: the first model of the configuration.
    pub model: Option<String>,
    /// At least 1; `None`: to the end of the turn or of the context.
    pub max_tokens: Option<u32>,
    /// 0 to 2; `None`: 0, the most probable word each time.
    pub temperature: Option<f32>,
    /// `None`: another one each time.
    pub seed: Option<u64>,
}

/// Why a command did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It could not begin: configuration, model, library or address. Exit code 2.
    Start(String),
    /// It began and failed. Exit code 1.
    Work(String),
    /// Nobody reads the output any more; not worth a word.
    BrokenPipe,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Work(format!("the output cannot be written: {error}")),
        }
    }
}

impl Failure {
    /// The same, for any error that keeps something from beginning.
    fn start(error: impl fmt::Display) -> Self {
        Self::Start(error.to_string())
    }
}

/// Runs the command line `args`, of which the first is the program's own name.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let stdout = io::stdout();
    let outcome = match Args::try_parse_from(args) {
        Ok(args) => dispatch(args.command, &mut stdout.lock()),
        Err(error) => {
            // Help and version are no errors and go to stdout; clap knows which is which.
            let _nobody_listens = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let (code, message) = match outcome {
        Ok(()) | Err(Failure::BrokenPipe) => return ExitCode::SUCCESS,
        Err(Failure::Work(message)) => (1, message),
        Err(Failure::Start(message)) => (2, message),
    };
    let _nobody_listens = writeln!(io::stderr(), "{message}");
    ExitCode::from(code)
}

fn dispatch(command: Command, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => {
            let source = source(args.config.config, args.listen);
            let config = load(&source)?;
            let options = ServeOptions { source, io: args.io };
            crate::server::serve(config, options).map_err(Failure::start)
        }
        Command::Run(args) => {
            let config = load(&source(args.config.config, Vec::new()))?;
            let options = RunOptions {
                prompt: args.prompt,
                model: args.model,
                max_tokens: args.max_tokens,
                temperature: args.temperature,
                seed: args.seed,
            };
            crate::server::run(&config, options, out)
        }
        Command::Config(ConfigCommand::Check { path }) => check(&path, out),
        Command::Config(ConfigCommand::Print { config }) => {
            let config = load(&source(config.config, Vec::new()))?;
            Ok(out.write_all(config.to_yaml().as_bytes())?)
        }
        Command::Model(ModelCommand::Inspect { path, config }) => {
            let config = load(&source(config.config, Vec::new()))?;
            inspect(&path, &config.engine, out)
        }
        Command::Safety(SafetyCommand::Check { rules, prompt }) => safety::check(rules, prompt, out),
        Command::Cache(command) => cache::run(command, out),
        Command::Safety(SafetyCommand::TokenMap { rules, rule }) => safety::token_map(rules, rule.as_deref(), out),
    }
}

fn source(file: Option<PathBuf>, listen: Vec<SocketAddr>) -> Source {
    Source { file, listen }
}

fn load(source: &Source) -> Result<Config, Failure> {
    config::load(source, &Machine).map_err(Failure::start)
}

/// `config check`: says in one line that the file is good.
fn check(path: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let config = load(&source(Some(path.to_owned()), Vec::new()))?;
    let listen: Vec<String> = config.server.listen.iter().map(ToString::to_string).collect();
    let models: Vec<&str> = config.models.iter().map(|model| &*model.id).collect();
    writeln!(
        out,
        "{}: good: serves {} on {}",
        path.display(),
        models.join(", "),
        listen.join(", ")
    )?;
    Ok(())
}

/// `model inspect`: what the engine says of a model's folder.
fn inspect(path: &Path, engine: &config::Engine, out: &mut dyn Write) -> Result<(), Failure> {
    let runtime = crate::server::runtime(engine).map_err(Failure::start)?;
    let report = zerohop_engine::inspect(&runtime, path);
    writeln!(out, "{report}")?;
    if report.fits() {
        return Ok(());
    }
    Err(Failure::Start(format!(
        "{}: this model cannot be served",
        path.display()
    )))
}
