//! The servers of a comparison, each one process pinned to core 0.
//!
//! Nothing here measures. Invariant: a server is gone when its [`Server`] is.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use zerohop_tests::{http, port::Port, scratch::Scratch, wait};

use crate::failure::{Doing, Failure, Outcome};

/// A running server.
pub(super) struct Server {
    pub(super) name: &'static str,
    /// What it is asked for.
    pub(super) path: &'static str,
    /// How wrk asks, where that is no plain GET.
    pub(super) script: Option<PathBuf>,
    child: Child,
    port: Port,
    scratch: Scratch,
}

impl Server {
    /// The process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where to ask.
    pub(super) fn url(&self) -> String {
        format!("http://{}{}", self.port.address(), self.path)
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The same, asked from now on by posting this JSON, which needs no `]]` in it, to this path.
    pub(super) fn posted(mut self, path: &'static str, body: &str) -> Outcome<Self> {
        let script = format!(
            "wrk.method = \"POST\"\nwrk.headers[\"content-type\"] = \"application/json\"\nwrk.body = [[{body}]]\n"
        );
        let file = self.scratch.write("post.lua", script);
        self.script = Some(file.doing(|| String::from("write a script for wrk"))?);
        self.path = path;
        Ok(self)
    }

    /// Starts `program` on core 0; `arrange` adds its arguments, given the address and a folder for its files.
    pub(super) fn start(
        name: &'static str,
        path: &'static str,
        program: &str,
        arrange: impl FnOnce(&mut Command, SocketAddr, &Scratch) -> Outcome,
    ) -> Outcome<Self> {
        let port = Port::take().doing(|| String::from("find a free port"))?;
        let scratch = Scratch::new().doing(|| String::from("make a folder"))?;
        let mut command = Command::new("taskset");
        command.args(["-c", "0", program]);
        arrange(&mut command, port.address(), &scratch)?;
        let log = scratch.path().join("log");
        let file = fs::File::create(&log).doing(|| format!("create {}", log.display()))?;
        let errors = file.try_clone().doing(|| String::from("share a file"))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn().doing(|| format!("start {program}"))?;
        let mut server = Self {
            name,
            path,
            child,
            port,
            script: None,
            scratch,
        };
        server.await_answer(&log)?;
        Ok(server)
    }

    fn await_answer(&mut self, log: &std::path::Path) -> Outcome {
        let answered = wait::find_within(wait::DEADLINE, || {
            if self.child.try_wait().ok().flatten().is_some() {
                return Some(false);
            }
            let mut client = http::Client::try_connect(self.address()).ok()?;
            client.try_send(http::request_bytes("GET", self.path)).ok()?;
            (client.response().status == 200).then_some(true)
        });
        if answered == Some(true) {
            return Ok(());
        }
        let said = fs::read_to_string(log).unwrap_or_default();
        let said = said.lines().last().unwrap_or("nothing").to_owned();
        Err(Failure::new(format!(
            "{} does not answer {}; it said: {said}",
            self.name, self.path
        )))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// nginx as one process that gives `body` for `path` from memory, with `headers` beside it.
pub(super) fn nginx(path: &'static str, kind: &str, headers: &str, body: &str) -> Outcome<Server> {
    Server::start("nginx", path, "nginx", |command, address, scratch| {
        let folder = scratch.path().display();
        let body = body
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('$', "${dollar}");
        // `geo` is nginx's way to spell a literal dollar.
        let config = format!(
            "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error error;\n\
             events {{ worker_connections 4096; }}\n\
             http {{\n\
               geo $dollar {{ default \"$\"; }}\n\
               access_log off; keepalive_requests 1000000000; server_tokens off;\n\
               client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;\n\
               uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;\n\
               server {{ listen {address} reuseport; location = {path} {{ default_type {kind}; {headers} return 200 \"{body}\"; }} }}\n\
             }}\n"
        );
        let file = scratch
            .write("nginx.conf", config)
            .doing(|| String::from("write nginx.conf"))?;
        command.arg("-c").arg(file);
        Ok(())
    })
}
