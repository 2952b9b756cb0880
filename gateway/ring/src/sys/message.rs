//! The vector of buffers that a `sendmsg` names.
//!
//! It points to memory of others and never touches it. Invariant: a message does not move once it is made, so its
//! address may be given to the kernel.

/// Buffers in a message.
pub(crate) const PARTS: usize = 3;

#[derive(Debug)]
pub(crate) struct Message {
    vectors: [libc::iovec; PARTS],
    header: libc::msghdr,
}

impl Message {
    /// The parts without their first `skip` bytes. Whoever gives it to the kernel keeps them alive and unchanged.
    pub(crate) fn new(parts: [&[u8]; PARTS], mut skip: usize) -> Box<Self> {
        let nothing = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let (mut vectors, mut used) = ([nothing; PARTS], 0);
        for part in parts {
            let skipped = skip.min(part.len());
            skip -= skipped;
            let rest = &part[skipped..];
            // An empty vector must not be named: its address lies in no registered region.
            if !rest.is_empty() {
                vectors[used] = libc::iovec {
                    iov_base: rest.as_ptr().cast_mut().cast(),
                    iov_len: rest.len(),
                };
                used += 1;
            }
        }
        let none = std::ptr::null_mut();
        let mut this = Box::new(Self {
            vectors,
            header: libc::msghdr {
                msg_name: none,
                msg_namelen: 0,
                msg_iov: std::ptr::null_mut(),
                msg_iovlen: used,
                msg_control: none,
                msg_controllen: 0,
                msg_flags: 0,
            },
        });
        this.header.msg_iov = this.vectors.as_mut_ptr();
        this
    }

    pub(crate) fn header(&self) -> *const libc::msghdr {
        &raw const self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_skipped() {
        for (skip, lengths) in [(0, &[4, 5][..]), (3, &[1, 5]), (4, &[5]), (8, &[1]), (9, &[])] {
            let message = Message::new([b"head", b"", b"foot!"], skip);
            let named = &message.vectors[..message.header.msg_iovlen];
            let found: Vec<_> = named.iter().map(|vector| vector.iov_len).collect();
            assert_eq!(found, lengths, "{skip}");
            assert_eq!(message.header.msg_iov.cast_const(), message.vectors.as_ptr());
        }
    }
}
