//! The other end of the control socket: a line out, lines in.
//!
//! Knows the frame of the protocol and no command. Invariant: an answer is whole or an error; a connection that ends within
//! one is told as such.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use super::args::At;
use crate::{
    cli::{Failure, load, source},
    server::control,
};

/// How long the gateway may be silent: a purge of a large cache is one answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection to a running gateway.
pub(super) struct Asker {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Asker {
    /// Connects with the gateway that is meant.
    pub(super) fn connect(at: &At) -> Result<Self, Failure> {
        let path = match &at.socket {
            Some(path) => path.clone(),
            None => configured(at)?,
        };
        Self::open(&path)
    }

    fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::Start(format!(
                "cannot reach a gateway at {}: {error}: is it running, and is this its socket (`--socket`, `--config`)?",
                path.display()
            ))
        };
        let stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            stream: BufReader::with_capacity(64 << 10, stream),
        })
    }

    /// The answer to a command that has no entries.
    pub(super) fn ask(&mut self, request: &Value) -> Result<Value, Failure> {
        self.ask_each(request, |_| true)
    }

    /// The same, with each entry's JSON told to `each`, which says whether to go on.
    pub(super) fn ask_each(&mut self, request: &Value, each: impl FnMut(&str) -> bool) -> Result<Value, Failure> {
        self.ask_line(&request.to_string(), each)
    }

    /// The same with a line that is ready, without its end.
    pub(super) fn ask_line(&mut self, line: &str, mut each: impl FnMut(&str) -> bool) -> Result<Value, Failure> {
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        let sent = sent.and_then(|()| self.stream.get_mut().write_all(b"\n"));
        // Whoever is turned away is told why before the connection closes.
        let failed_send = sent.err();
        let mut reply = String::new();
        loop {
            reply.clear();
            let read = self.stream.read_line(&mut reply);
            let Ok(1..) = read else {
                let why = failed_send
                    .or(read.err())
                    .map_or("it closed the connection".to_owned(), |it| it.to_string());
                return Err(Failure::Work(format!("the gateway at {}: {why}", self.path.display())));
            };
            let inside = |name: &str| {
                let rest = reply.trim_end().strip_prefix("{\"")?.strip_prefix(name)?;
                rest.strip_prefix("\":")?.strip_suffix('}')
            };
            if let Some(entry) = inside("entry") {
                if !each(entry) {
                    return Ok(Value::Null);
                }
                continue;
            }
            let told = |text: &str| serde_json::from_str::<Value>(text).ok();
            if let Some(told) = inside("ok").and_then(told) {
                return Ok(told);
            }
            let why = inside("error").and_then(told);
            return Err(Failure::Work(match why.as_ref().and_then(Value::as_str) {
                Some(why) => why.to_owned(),
                None => format!("the gateway at {} answers in another protocol", self.path.display()),
            }));
        }
    }
}

/// The socket of the gateway that has this configuration.
fn configured(at: &At) -> Result<PathBuf, Failure> {
    let config = load(&source(at.config.clone(), Vec::new()))?;
    let port = config.server.listen.first().map_or(0, std::net::SocketAddr::port);
    match control::path(&config.server.control, port) {
        Ok(Some(path)) => Ok(path),
        Ok(None) => Err(Failure::Start(
            "this configuration has no control socket: server.control_socket is off".into(),
        )),
        Err(why) => Err(Failure::Start(format!("no control socket: {why}, or give `--socket`"))),
    }
}
