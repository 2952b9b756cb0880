//! The socket itself: bound, guarded, served by a thread a client.
//!
//! Knows no command. Invariants: a socket that a living process answers on is never taken away from it; the file has mode
//! 0600 from the moment at which others can see it, and each client's user id is asked of the kernel; at most
//! [`CLIENTS`] are served at once; after [`Control`] is dropped no thread of it is left.

use std::{
    fs, io,
    io::{BufReader, Write},
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    net::sockopt::socket_peercred,
};

use super::{
    Failure, Site, answer,
    line::{Ended, Lines, MAX_LINE, next},
};
use crate::server::StartError;

/// Clients that are served at once; one more is told so and closed.
pub(super) const CLIENTS: usize = 8;
/// How long a client may say nothing, within a line too.
const IDLE: Duration = Duration::from_secs(60);
/// How long a client may take for what the socket's buffer does not hold of a reply.
const SEND: Duration = Duration::from_secs(30);
/// How long another start in the same folder may take.
const FOLDER: Duration = Duration::from_secs(2);

/// A socket that is bound and not served yet. Its file goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, to remove no other.
    file: (u64, u64),
}

/// Binds the socket at this path, in the place of one that a dead process left.
///
/// # Errors
/// With what to do about it.
pub(crate) fn bind(path: &Path) -> Result<Socket, StartError> {
    let failed = |error: io::Error| {
        StartError::new(format!(
            "cannot make the control socket {}: {error}: choose another path with `server.control_socket`",
            path.display()
        ))
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Two that start at once would each take the other's for a dead one's.
    let _lock = lock(folder).map_err(failed)?;
    refuse_living(path)?;
    // No longer than 9 bytes, see `MAX_SOCKET_PATH`.
    let half = folder.join(format!(".z{}", std::process::id()));
    let made = || {
        // Under another name until nobody else may connect.
        let _old = fs::remove_file(&half);
        let listener = UnixListener::bind(&half)?;
        fs::set_permissions(&half, fs::Permissions::from_mode(0o600))?;
        let about = fs::symlink_metadata(&half)?;
        fs::rename(&half, path)?;
        Ok((listener, (about.dev(), about.ino())))
    };
    match made() {
        Ok((listener, file)) => Ok(Socket {
            listener,
            path: path.to_owned(),
            file,
        }),
        Err(error) => {
            let _gone = fs::remove_file(&half);
            Err(failed(error))
        }
    }
}

/// Has the folder to itself until the file is dropped.
fn lock(folder: &Path) -> io::Result<fs::File> {
    let file = fs::File::open(folder)?;
    let begun = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < FOLDER => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another process holds a lock on its folder"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Refuses what stands at the path, unless it is a socket that nobody listens on.
fn refuse_living(path: &Path) -> Result<(), StartError> {
    let Ok(about) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let refused = |what: &str| {
        Err(StartError::new(format!(
            "cannot make the control socket {}: {what}: choose another path with `server.control_socket`",
            path.display()
        )))
    };
    if !about.file_type().is_socket() {
        return refused("there is a file that is no socket");
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Ok(_) => refused("another process listens there"),
        Err(error) => refused(&format!("there is a socket whose process cannot be asked: {error}")),
    }
}

impl Socket {
    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn remove(&self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|about| (about.dev(), about.ino()) == self.file) {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A client that is being served.
struct Client {
    stream: UnixStream,
    thread: JoinHandle<()>,
}

/// What the threads share.
struct Door {
    socket: Socket,
    site: Site,
    ending: AtomicBool,
}

/// A socket that is served.
pub(crate) struct Control {
    door: Arc<Door>,
    clients: Arc<Mutex<Vec<Client>>>,
    accepting: Option<JoinHandle<()>>,
}

impl Control {
    /// Serves the socket from now on.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub(crate) fn start(socket: Socket, site: Site) -> io::Result<Self> {
        let door = Arc::new(Door {
            socket,
            site,
            ending: AtomicBool::new(false),
        });
        let clients = Arc::default();
        let (of_thread, of_clients) = (Arc::clone(&door), Arc::clone(&clients));
        let accepting = thread::Builder::new()
            .name("zh-control".into())
            .spawn(move || accept(&of_thread, &of_clients))?;
        Ok(Self {
            door,
            clients,
            accepting: Some(accepting),
        })
    }
}

impl Drop for Control {
    /// Breaks off what runs, and waits for it.
    fn drop(&mut self) {
        self.door.ending.store(true, Ordering::Release);
        self.door.socket.remove();
        // Ends a wait for the next client.
        let _shut = rustix::net::shutdown(&self.door.socket.listener, rustix::net::Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            // A thread that panicked has said so.
            let _ended = accepting.join();
        }
        let clients = std::mem::take(&mut *self.clients.lock().unwrap_or_else(PoisonError::into_inner));
        for client in &clients {
            let _shut = client.stream.shutdown(std::net::Shutdown::Both);
        }
        for client in clients {
            let _ended = client.thread.join();
        }
    }
}

fn accept(door: &Arc<Door>, clients: &Mutex<Vec<Client>>) {
    while !door.ending.load(Ordering::Acquire) {
        let stream = match door.socket.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) if door.ending.load(Ordering::Acquire) => return,
            Err(error) => {
                // Such as no file descriptors: others may be given back soon.
                door.site
                    .log
                    .warn(format_args!("control: a client cannot be accepted: {error}"));
                thread::sleep(Duration::from_millis(200));
                continue;
            }
        };
        // A client that is gone at once is nobody's loss.
        let _welcome = welcome(door, clients, stream);
    }
}

/// Serves a client, if it is one who may ask and there is a place.
fn welcome(door: &Arc<Door>, clients: &Mutex<Vec<Client>>, mut stream: UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(SEND))?;
    let user = socket_peercred(&stream)?.uid;
    if !user.is_root() && user != rustix::process::geteuid() {
        door.site.metrics.stranger();
        door.site
            .log
            .warn(format_args!("control: user {} was not let in", user.as_raw()));
        return stream.write_all(b"{\"error\":\"only the gateway's own user and root may ask\"}\n");
    }
    let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
    clients.retain(|client| !client.thread.is_finished());
    if clients.len() >= CLIENTS {
        door.site.metrics.full();
        return writeln!(
            stream,
            "{{\"error\":\"{CLIENTS} clients are connected already: try again later\"}}"
        );
    }
    let (of_thread, ours) = (Arc::clone(door), stream.try_clone()?);
    let thread = thread::Builder::new()
        .name("zh-control".into())
        .spawn(move || serve(&of_thread, &stream))?;
    clients.push(Client { stream: ours, thread });
    Ok(())
}

/// Answers line after line until the client has no more, or takes too long.
fn serve(door: &Door, stream: &UnixStream) {
    door.site.metrics.came();
    let _left = serve_lines(door, stream);
    // The other handle of it lies with the list of clients until that is next looked through.
    let _shut = stream.shutdown(std::net::Shutdown::Both);
    door.site.metrics.went();
}

fn serve_lines(door: &Door, mut stream: &UnixStream) -> Result<(), Failure> {
    let ends = || door.ending.load(Ordering::Acquire);
    let mut from = BufReader::with_capacity(64 << 10, stream);
    let mut line = Vec::new();
    while !ends() {
        let found = next(&mut from, &mut line)?;
        let mut out = Lines::new(&mut stream, &ends);
        match found {
            Ended::End => break,
            Ended::Line if line.trim_ascii().is_empty() => {}
            Ended::Line => answer(&door.site, &line, &mut out)?,
            Ended::TooLong => {
                let why = format!("the line is longer than {MAX_LINE} bytes");
                out.last("error", &why)?;
                break;
            }
        }
    }
    Ok(())
}
