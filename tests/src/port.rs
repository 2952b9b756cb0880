//! Free ports that no two tests get at once.
//!
//! A gateway listens with SO_REUSEPORT, so two that are given one port would share it in silence. Invariant: a port is
//! held by a file lock until its [`Port`] goes, over all processes of this machine that use this harness.

use std::{
    env, fs,
    fs::File,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

/// Below the range from which Linux takes the ports of outgoing connections.
const FIRST: u16 = 21_000;
const COUNT: u16 = 2_000;

/// A port on 127.0.0.1 that is ours while this lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Takes a free one.
    ///
    /// # Errors
    /// If none is free.
    pub fn take() -> io::Result<Self> {
        let folder = env::temp_dir().join("zerohop-ports");
        fs::create_dir_all(&folder)?;
        let start = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap_or(0);
        for step in 0..COUNT {
            let number = FIRST + (start + step) % COUNT;
            let lock = File::create(folder.join(number.to_string()))?;
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _lock: lock });
            }
        }
        Err(io::Error::other("no free port"))
    }

    /// The address with this port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }
}
