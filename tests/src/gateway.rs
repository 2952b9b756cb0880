//! A running gateway: the built binary, its configuration in a scratch folder, on a port of its own.
//!
//! Nothing here reaches into the product. Invariant: the process is gone when its [`Gateway`] is, also after a panic,
//! and then its log has been shown.

use std::{
    env, fs,
    fs::File,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};

use crate::{http, port::Port, scratch::Scratch, wait};

/// Name of a control socket in a gateway's folder.
const SOCKET: &str = "control.sock";

/// The repository.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The product: what `ZEROHOP_BIN` names, or `zerohop` in the folder of this program or above it.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = env::var_os("ZEROHOP_BIN") {
        return PathBuf::from(path);
    }
    let this = env::current_exe().unwrap_or_else(|error| panic!("cannot tell where this program is: {error}"));
    let places = this.ancestors().skip(1).map(|folder| folder.join("zerohop"));
    places.take(3).find(|path| path.is_file()).unwrap_or_else(|| {
        panic!(
            "no zerohop beside {}: run `cargo build --release -p zerohop` first",
            this.display()
        )
    })
}

/// A configuration, by default the bundled model under the name `tiny` and a log of JSON lines.
#[derive(Debug, Clone)]
pub struct Settings {
    value: Value,
    environment: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            value: json!({
                "models": [{
                    "id": "tiny",
                    "backend": {"onnx": {"path": root().join("models/tiny"), "threads": 1}},
                }],
                "logging": {"format": "json"},
            }),
            environment: Vec::new(),
        }
    }
}

impl Settings {
    /// The same with the value at this path (as `/server/read_timeout` or `/models/0/id`) replaced or added.
    ///
    /// # Panics
    /// If the path leads through something that is neither a map nor a list with that place.
    #[must_use]
    pub fn with(mut self, path: &str, value: impl Into<Value>) -> Self {
        let place = path.split('/').skip(1).fold(&mut self.value, |place, key| {
            if place.is_null() {
                *place = Value::Object(Map::new());
            }
            match place {
                Value::Object(map) => map.entry(key).or_insert(Value::Null),
                Value::Array(list) => {
                    let index = key.parse::<usize>().ok().and_then(|index| list.get_mut(index));
                    index.unwrap_or_else(|| panic!("no place {key} in {path}"))
                }
                other => panic!("{path} leads through {other}"),
            }
        });
        *place = value.into();
        self
    }

    /// The same with the bundled encoder as one more model, `tiny-embed`.
    ///
    /// # Panics
    /// If the models are no list.
    #[must_use]
    pub fn with_encoder(mut self) -> Self {
        let encoder = json!({
            "id": "tiny-embed",
            "backend": {"onnx": {"path": root().join("models/tiny-embed"), "threads": 1}},
        });
        let models = self.value["models"].as_array_mut();
        models.unwrap_or_else(|| panic!("the models are no list")).push(encoder);
        self
    }

    /// The same with a variable in the environment of the process. `ZEROHOP_BIN` chooses the binary.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn binary(&self) -> PathBuf {
        let named = self.environment.iter().find(|(name, _)| name == "ZEROHOP_BIN");
        named.map_or_else(binary, |(_, path)| PathBuf::from(path))
    }

    /// The same with a control socket in this folder, unless it says something of one: the user's own folder is for nobody's
    /// test.
    fn with_own_socket(self, folder: &Path) -> Self {
        match self.value.pointer("/server/control_socket") {
            None => self.with("/server/control_socket", folder.join(SOCKET).display().to_string()),
            Some(_) => self,
        }
    }

    /// The same without stored answers, unless it says something of them: each answer is to be made for its test.
    fn with_own_answers(&self) -> Self {
        match self.value.get("cache") {
            None => self.clone().with("/cache/type", "off"),
            Some(_) => self.clone(),
        }
    }

    /// As a file has it. JSON is YAML.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{:#}\n", self.value)
    }
}

/// A gateway that is ready.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    port: Port,
    scratch: Scratch,
}

impl Gateway {
    /// Starts one and waits until it is ready.
    ///
    /// # Panics
    /// If it does not get there.
    #[must_use]
    pub fn start(settings: &Settings) -> Self {
        let mut gateway = Self::launch(settings).unwrap_or_else(|error| panic!("cannot start a gateway: {error}"));
        gateway.await_ready();
        gateway
    }

    /// Starts one without waiting.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn launch(settings: &Settings) -> io::Result<Self> {
        let port = Port::take()?;
        let scratch = Scratch::new()?;
        let mut settings = settings
            .clone()
            .with("/server/listen", json!([port.address().to_string()]));
        // Chosen for a whole run of the suites; a test that is about the setting makes its own choice.
        if let Some(zero_copy) = env::var_os("ZEROHOP_TEST_ZERO_COPY")
            && settings.value.pointer("/server/zero_copy").is_none()
        {
            settings = settings.with("/server/zero_copy", zero_copy.to_string_lossy());
        }
        let own = settings.with_own_answers().with_own_socket(scratch.path());
        let config = scratch.write("zerohop.yaml", own.text())?;
        let child = serve(&settings, &config, &scratch)?.spawn().map_err(|error| {
            let program = settings.binary();
            io::Error::new(error.kind(), format!("{}: {error}", program.display()))
        })?;
        Ok(Self { child, port, scratch })
    }

    fn await_ready(&mut self) {
        wait::wait_for("a gateway to be ready", || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the gateway ended ({status}) instead of getting ready");
            }
            is_ready(self.address()).then_some(())
        });
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Its control socket, unless its settings name another one.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.scratch.path().join(SOCKET)
    }

    /// The id of its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All that it has written so far, on both streams.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// Replaces its configuration file (the listening address is kept); [`Self::signal`] makes it look.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn rewrite(&self, settings: &Settings) {
        let settings = settings
            .clone()
            .with("/server/listen", json!([self.address().to_string()]));
        let own = settings.with_own_answers().with_own_socket(self.scratch.path());
        self.rewrite_raw(&own.text());
    }

    /// Replaces its configuration file by this text.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn rewrite_raw(&self, text: &str) {
        self.scratch
            .write("zerohop.yaml", text)
            .unwrap_or_else(|error| panic!("cannot write a file: {error}"));
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap_or_else(|error| panic!("cannot signal: {error}"));
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end.
    pub fn ended(&mut self) -> ExitStatus {
        wait::wait_for("the gateway to end", || self.child.try_wait().ok().flatten())
    }
}

impl Drop for Gateway {
    #[expect(clippy::print_stderr, reason = "a failed test shows the log of its gateway")]
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if thread::panicking() {
            let log = self.log();
            let skipped = log.lines().count().saturating_sub(40);
            let last: Vec<&str> = log.lines().skip(skipped).collect();
            eprintln!("--- the last lines of the gateway's log\n{}\n---", last.join("\n"));
        }
    }
}

/// The command that serves with this configuration, with both streams going into the log of the folder.
fn serve(settings: &Settings, config: &Path, scratch: &Scratch) -> io::Result<Command> {
    let log = File::create(scratch.path().join("log"))?;
    let mut command = Command::new(settings.binary());
    command.arg("serve").arg("--config").arg(config);
    // Chosen for a whole run of the suites, which must pass with each.
    if let Some(io) = env::var_os("ZEROHOP_TEST_IO") {
        command.arg("--io").arg(io);
    }
    command.envs(settings.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(command)
}

fn is_ready(address: SocketAddr) -> bool {
    http::Client::try_connect(address)
        .and_then(|mut client| client.try_get("/ready"))
        .is_ok_and(|status| status == 200)
}

/// How a run that should end by itself ended.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// What it wrote on standard output.
    pub output: String,
    /// What it wrote on standard error.
    pub errors: String,
}

/// Runs the product with these arguments to its end.
///
/// # Panics
/// If it cannot be started, or does not end.
#[must_use]
pub fn to_its_end(command: &mut Command) -> Ended {
    let scratch = Scratch::new().unwrap_or_else(|error| panic!("cannot make a folder: {error}"));
    let file = |name: &str| File::create(scratch.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    command
        .stdin(Stdio::null())
        .stdout(file("output"))
        .stderr(file("errors"));
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let status = wait::find_within(wait::DEADLINE, || child.try_wait().ok().flatten()).unwrap_or_else(|| {
        child.kill().ok();
        child.wait().ok();
        panic!(
            "{command:?} did not end within {:?}",
            Duration::as_secs(&wait::DEADLINE)
        )
    });
    let read = |name: &str| fs::read_to_string(scratch.path().join(name)).unwrap_or_default();
    Ended {
        status,
        output: read("output"),
        errors: read("errors"),
    }
}
