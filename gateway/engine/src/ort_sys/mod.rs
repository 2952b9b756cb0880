//! The only unsafe code of this crate: memory that ONNX Runtime reads and writes in place, on the host or on a device, and
//! the call that runs it.
//!
//! The safe crate `ort` copies or refuses what continuous batching needs, namely tensors that are views of a larger
//! buffer and outputs that share memory with inputs. So the views and `Run` come from the C interface here, and
//! everything else (library, session, metadata) stays with `ort`.
//!
//! It never allocates during a step: buffers and views are made once. Invariant: the runtime touches this memory only
//! inside a run, which borrows all of it mutably, and never outside the bounds that a view was made with.

mod bound;
mod device;
mod drawer;
mod layout;
mod library;
mod memory;
mod pages;
mod probe;
#[cfg(test)]
pub(crate) mod stand_in;
mod tensor;

pub(crate) use self::{
    bound::{ALL_ROWS, Bound, Cache, Rows},
    device::Cuda,
    drawer::{Drawer, Told},
    library::{Library, library_version},
    memory::Place,
    pages::collapse,
    probe::Probe,
};

/// What the runtime or the kernel answered when it refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SysError(pub(crate) String);

fn too_large() -> SysError {
    SysError("the buffers do not fit the address space".into())
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).expect("a size in memory fits 63 bits")
}
