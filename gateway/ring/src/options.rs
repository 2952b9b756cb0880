//! What a maker is made with.

use std::{io, net::TcpListener, time::Duration};

use crate::Arena;

/// From which size a send goes out without a copy by the CPU, where the kernel and the network card can.
///
/// Over loopback, veth and most virtual cards the kernel copies after all and says so; a connection whose first
/// notifications say that goes back to plain sends. On a card with scatter-gather the copy saved is worth the second
/// completion from about 10 KB up (kernel documentation, `msg_zerocopy`). [`ZeroCopy::DEFAULT`] is above that, since what
/// a mistake costs shrinks with the size: `cargo xtask bench zc` shows it on the machine at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Never.
    Off,
    /// From so many bytes up, but not to a client on this machine (a loopback address): there the kernel always copies.
    From(usize),
    /// Every send, whatever its size and whatever the notifications say, from the arena if there is one, as long as a
    /// connection has few sends without their notification: to measure and to test.
    Always,
}

impl ZeroCopy {
    /// 64 KiB.
    pub const DEFAULT: Self = Self::From(64 << 10);
}

impl Default for ZeroCopy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Settings of a maker; one value makes one worker's `Io`.
#[derive(Debug)]
pub struct Options {
    /// Where to accept; their order gives the [`crate::ListenerId`]s. Best made by [`crate::listen`].
    pub listeners: Vec<TcpListener>,
    /// Connections at a time, 1 to 2^24. One more is answered with `overflow_reply` and closed.
    pub max_connections: u32,
    /// Receive buffers of the worker: a power of two, 1 to 32,768.
    pub recv_buffers: u16,
    /// Bytes of each, 64 to 2^20.
    pub recv_buffer_size: u32,
    /// How long to look again before sleeping, where that pays; zero switches it off.
    pub spin: Duration,
    /// Sent once, without waiting, to a connection beyond `max_connections`; empty: nothing.
    pub overflow_reply: Vec<u8>,
    /// Which sends avoid the copy. Only io_uring can; the other makers send plainly.
    pub zero_copy: ZeroCopy,
    /// Where [`ZeroCopy::Always`] puts what lies elsewhere.
    pub arena: Option<Arena>,
    /// Bytes outside an arena that the kernel may still be reading after their sends were answered; beyond that sends are
    /// plain.
    pub held_bytes: usize,
    /// Reads of files in flight, of all connections, up to 65,536. One more is answered with `ResourceBusy`. Each holds the
    /// buffer that was given for it.
    pub max_reads: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            max_connections: 16_384,
            recv_buffers: 1024,
            recv_buffer_size: 4096,
            spin: Duration::from_micros(20),
            overflow_reply: Vec::new(),
            zero_copy: ZeroCopy::DEFAULT,
            arena: None,
            held_bytes: 16 << 20,
            max_reads: 256,
        }
    }
}

impl Options {
    /// # Errors
    /// `InvalidInput` that names the option and its range.
    pub(crate) fn check(&self) -> io::Result<()> {
        let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what.to_owned()));
        if self.max_connections == 0 || self.max_connections > 1 << 24 {
            return wrong("max_connections must be 1 to 16777216");
        }
        if !self.recv_buffers.is_power_of_two() || self.recv_buffers > 1 << 15 {
            return wrong("recv_buffers must be a power of two, 1 to 32768");
        }
        if !(64..=1 << 20).contains(&self.recv_buffer_size) {
            return wrong("recv_buffer_size must be 64 to 1048576");
        }
        if self.listeners.len() > usize::from(u16::MAX) {
            return wrong("at most 65535 listeners");
        }
        if self.max_reads > 1 << 16 {
            return wrong("max_reads must be at most 65536");
        }
        Ok(())
    }

    pub(crate) fn spin_nanos(&self) -> u64 {
        u64::try_from(self.spin.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_is_refused_by_name() {
        let good = Options::default;
        assert!(good().check().is_ok());
        for (name, options) in [
            (
                "max_connections",
                Options {
                    max_connections: 0,
                    ..good()
                },
            ),
            (
                "max_connections",
                Options {
                    max_connections: u32::MAX,
                    ..good()
                },
            ),
            (
                "recv_buffers",
                Options {
                    recv_buffers: 0,
                    ..good()
                },
            ),
            (
                "recv_buffers",
                Options {
                    recv_buffers: 3,
                    ..good()
                },
            ),
            (
                "recv_buffer_size",
                Options {
                    recv_buffer_size: 1,
                    ..good()
                },
            ),
            (
                "recv_buffer_size",
                Options {
                    recv_buffer_size: u32::MAX,
                    ..good()
                },
            ),
            (
                "max_reads",
                Options {
                    max_reads: (1 << 16) + 1,
                    ..good()
                },
            ),
        ] {
            let error = options.check().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().starts_with(name), "{error}");
        }
    }
}
