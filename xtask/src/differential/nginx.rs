//! nginx with two addresses: one that answers each request itself, and so throws bodies away, and one that hands it on
//! once it has read the body.
//!
//! Invariant: its limits are those of the gateway in the table; it is gone when its [`Nginx`] is.

use std::{
    fs,
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use zerohop_tests::{http, port::Port, scratch::Scratch, wait};

use crate::{
    failure::{Doing, Failure, Outcome},
    shell,
};

/// The series that the list of differences was made with.
pub(super) const KNOWN: &str = "nginx/1.22.";

/// Which nginx is installed: `nginx/1.22.1`.
pub(super) fn version() -> Option<String> {
    // It tells on standard error.
    let told = Command::new("nginx").arg("-v").output().ok()?.stderr;
    let told = String::from_utf8_lossy(&told).trim().to_owned();
    told.strip_prefix("nginx version: ").map(String::from)
}

/// A running nginx.
pub(super) struct Nginx {
    child: Child,
    plain: Port,
    reading: Port,
    scratch: Scratch,
}

impl Nginx {
    /// Starts it and waits until it answers.
    pub(super) fn start() -> Outcome<Self> {
        if !shell::exists("nginx") {
            return Err(Failure::new("nginx is not installed").remedy("apt-get install nginx-light"));
        }
        let port = || Port::take().doing(|| String::from("find a free port"));
        let (plain, reading) = (port()?, port()?);
        let scratch = Scratch::new().doing(|| String::from("make a folder"))?;
        let text = configuration(
            plain.address(),
            reading.address(),
            &scratch.path().display().to_string(),
        );
        let file = scratch
            .write("nginx.conf", text)
            .doing(|| String::from("write nginx.conf"))?;
        let log = fs::File::create(scratch.path().join("log")).doing(|| String::from("create a log"))?;
        let mut command = Command::new("nginx");
        command
            .arg("-c")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn().doing(|| String::from("start nginx"))?;
        let mut this = Self {
            child,
            plain,
            reading,
            scratch,
        };
        this.await_answers()?;
        Ok(this)
    }

    /// Where it answers by itself.
    pub(super) fn address(&self) -> SocketAddr {
        self.plain.address()
    }

    /// Where it reads bodies.
    pub(super) fn reading_address(&self) -> SocketAddr {
        self.reading.address()
    }

    fn await_answers(&mut self) -> Outcome {
        let answers = |address| {
            let client = http::Client::try_connect(address);
            client
                .and_then(|mut client| client.try_get("/health"))
                .is_ok_and(|status| status == 200)
        };
        let answered = wait::find_within(wait::DEADLINE, || {
            if self.child.try_wait().ok().flatten().is_some() {
                return Some(false);
            }
            (answers(self.address()) && answers(self.reading_address())).then_some(true)
        });
        if answered == Some(true) {
            return Ok(());
        }
        let said = fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default();
        Err(Failure::new(format!("nginx does not answer; it said: {}", said.trim())))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn configuration(plain: SocketAddr, reading: SocketAddr, folder: &str) -> String {
    let answer = r#"default_type text/plain; location = /ready { return 200 '{"status":"ready"}'; } location / { return 200 "ok"; }"#;
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr error;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n\
           access_log off;\n\
           client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;\n\
           uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;\n\
           client_header_timeout 2s; client_body_timeout 2s; keepalive_timeout 2s;\n\
           client_header_buffer_size 1k; large_client_header_buffers 1 8k; client_max_body_size 64k;\n\
           server {{ listen {plain}; {answer} }}\n\
           server {{ listen unix:{folder}/answers; {answer} }}\n\
           server {{ listen {reading}; location / {{ proxy_http_version 1.1; proxy_pass http://unix:{folder}/answers:; }} }}\n\
         }}\n"
    )
}
