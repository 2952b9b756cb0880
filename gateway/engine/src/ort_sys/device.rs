//! The device's memory, by the CUDA runtime library that ONNX Runtime's CUDA provider uses as well.
//!
//! One process, one device: the first that `CUDA_VISIBLE_DEVICES` shows; both libraries then use its one primary context.
//! It never starts a computation.
//!
//! # What is ordered before what
//!
//! The provider computes on streams of its own, which do not wait for the default stream of the device, on which the copies
//! here run. So order is made by waiting: a run returns when its streams are done (the runtime's default; only
//! `disable_synchronize_execution_providers` would change it), hence a copy that is asked for afterwards sees the run's
//! results; and [`Copies::settle`] waits for the default stream before the next run, hence the run sees the copies. A copy
//! to the host waits by itself. Copies among each other are in order, since they share a stream.
//!
//! Invariant: no run begins while a copy is under way, and a copy that failed is reported by the next `settle`.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    fmt,
    ptr::{self, NonNull},
    sync::Arc,
};

use super::{Library, SysError, tensor::MemoryInfo};

/// How many rows are copied, and bytes of each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows2 {
    pub(super) bytes: usize,
    pub(super) rows: usize,
}

type Status = c_int;
const SUCCESS: Status = 0;
const TO_HOST: c_int = 2;
const WITHIN_DEVICE: c_int = 3;

/// The functions that are used, by their signatures since CUDA 10.
pub(super) struct Calls {
    pub(super) count: unsafe extern "C" fn(*mut c_int) -> Status,
    pub(super) room: unsafe extern "C" fn(*mut usize, *mut usize) -> Status,
    pub(super) allocate: unsafe extern "C" fn(*mut *mut c_void, usize) -> Status,
    pub(super) free: unsafe extern "C" fn(*mut c_void) -> Status,
    pub(super) fill: unsafe extern "C" fn(*mut c_void, c_int, usize) -> Status,
    pub(super) copy: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> Status,
    #[allow(clippy::type_complexity)]
    pub(super) copy_rows:
        unsafe extern "C" fn(*mut c_void, usize, *const c_void, usize, usize, usize, c_int, *mut c_void) -> Status,
    pub(super) wait: unsafe extern "C" fn(*mut c_void) -> Status,
    pub(super) words: unsafe extern "C" fn(Status) -> *const c_char,
}

/// A CUDA device.
pub(crate) struct Cuda {
    calls: Calls,
    /// What ONNX Runtime calls its memory.
    memory: &'static CStr,
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cuda")
    }
}

impl Cuda {
    /// The device, by its runtime library (`libcudart`), which is loaded already.
    ///
    /// # Errors
    /// A function is missing, or there is no device, in the library's words.
    pub(crate) fn open(library: Library) -> Result<Self, SysError> {
        macro_rules! function {
            ($name:literal) => {{
                let symbol = library.symbol($name)?.as_ptr();
                // SAFETY: the library exports this name with the field's signature: it is part of CUDA's stable interface.
                unsafe { std::mem::transmute(symbol) }
            }};
        }
        #[allow(clippy::missing_transmute_annotations, reason = "the fields say the types")]
        let calls = Calls {
            count: function!(c"cudaGetDeviceCount"),
            room: function!(c"cudaMemGetInfo"),
            allocate: function!(c"cudaMalloc"),
            free: function!(c"cudaFree"),
            fill: function!(c"cudaMemset"),
            copy: function!(c"cudaMemcpy"),
            copy_rows: function!(c"cudaMemcpy2DAsync"),
            wait: function!(c"cudaStreamSynchronize"),
            words: function!(c"cudaGetErrorString"),
        };
        let cuda = Self { calls, memory: c"Cuda" };
        let mut count = 0;
        // SAFETY: the out pointer is valid for the call.
        cuda.check(unsafe { (cuda.calls.count)(&raw mut count) })?;
        match count {
            1.. => Ok(cuda),
            _ => Err(SysError("no CUDA device".into())),
        }
    }

    /// A device whose memory is that of the host, for tests: `calls` stand in for the library.
    #[cfg(test)]
    pub(super) fn stand_in(calls: Calls) -> Self {
        Self { calls, memory: c"Cpu" }
    }

    pub(super) fn memory(&self) -> Result<MemoryInfo, SysError> {
        MemoryInfo::named(self.memory, 0)
    }

    fn check(&self, status: Status) -> Result<(), SysError> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: gives a static C string for every number.
        let words = unsafe { (self.calls.words)(status) };
        if words.is_null() {
            return Err(SysError(format!("CUDA error {status}")));
        }
        // SAFETY: not null, so a static C string.
        let words = unsafe { CStr::from_ptr(words) }.to_string_lossy();
        Err(SysError(format!("CUDA: {words}")))
    }

    /// Bytes of memory that are free now.
    fn free_bytes(&self) -> Result<usize, SysError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the out pointers are valid for the call.
        self.check(unsafe { (self.calls.room)(&raw mut free, &raw mut total) })?;
        Ok(free)
    }
}

/// Zeroed memory of a device.
pub(super) struct DeviceMemory {
    start: NonNull<u8>,
    bytes: usize,
    cuda: Arc<Cuda>,
}

impl DeviceMemory {
    pub(super) fn new(cuda: &Arc<Cuda>, bytes: usize) -> Result<Self, SysError> {
        let bytes = bytes.max(1);
        let mut start = ptr::null_mut();
        // SAFETY: the out pointer is valid for the call.
        let status = unsafe { (cuda.calls.allocate)(&raw mut start, bytes) };
        let refused = |SysError(words)| {
            let free = cuda.free_bytes().unwrap_or(0);
            SysError(format!(
                "{bytes} bytes of device memory, of which {free} are free: {words}"
            ))
        };
        cuda.check(status).map_err(refused)?;
        let start = NonNull::new(start.cast()).ok_or_else(|| SysError("device memory at address 0".into()))?;
        let memory = Self {
            start,
            bytes,
            cuda: Arc::clone(cuda),
        };
        // SAFETY: exactly the memory that was allocated. Not a number in it would spread through masked attention.
        cuda.check(unsafe { (cuda.calls.fill)(memory.start.as_ptr().cast(), 0, bytes) })?;
        // SAFETY: the default stream, on which it was filled.
        cuda.check(unsafe { (cuda.calls.wait)(ptr::null_mut()) })?;
        Ok(memory)
    }

    /// The address `offset` bytes in: only the device may follow it. Panics beyond the end: that would be a fault here.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.bytes, "offset within the memory");
        self.start.as_ptr().wrapping_add(offset)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies to the host, and waits for it.
    pub(super) fn read(&self, offset: usize, to: &mut [f32]) -> Result<(), SysError> {
        let bytes = size_of_val(to);
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "a read within"
        );
        // SAFETY: `bytes` bytes of this memory and of the slice, which is borrowed mutably; every bit pattern is an f32.
        let status = unsafe { (self.cuda.calls.copy)(to.as_mut_ptr().cast(), self.at(offset).cast(), bytes, TO_HOST) };
        self.cuda.check(status)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once; views of it are dropped before (field order of its owners). Freeing waits
        // for the device. A refusal leaves the memory taken, which nobody here can mend.
        unsafe { (self.cuda.calls.free)(self.start.as_ptr().cast()) };
    }
}

/// Copies within a device that were asked for.
#[derive(Default)]
pub(super) struct Copies {
    under_way: Option<Arc<Cuda>>,
    fault: Option<SysError>,
}

impl Copies {
    /// Asks for a copy of rows, which do not overlap. `pitch`: bytes from one row to the next.
    pub(super) fn ask(
        &mut self,
        (from, from_at, from_pitch): (&DeviceMemory, usize, usize),
        (to, to_at, to_pitch): (&DeviceMemory, usize, usize),
        Rows2 { bytes, rows }: Rows2,
    ) {
        if bytes == 0 || rows == 0 {
            return;
        }
        for (memory, at, pitch) in [(from, from_at, from_pitch), (to, to_at, to_pitch)] {
            let end = at + (rows - 1) * pitch + bytes;
            assert!(bytes <= pitch && end <= memory.bytes, "a copy within");
        }
        let calls = &from.cuda.calls;
        // SAFETY: all rows lie within the two memories, as was just checked; both live until this is settled, since their
        // owner settles before it runs and freeing waits.
        let status = unsafe {
            (calls.copy_rows)(
                to.at(to_at).cast(),
                to_pitch,
                from.at(from_at).cast(),
                from_pitch,
                bytes,
                rows,
                WITHIN_DEVICE,
                ptr::null_mut(),
            )
        };
        self.under_way = Some(Arc::clone(&from.cuda));
        if let Err(error) = from.cuda.check(status) {
            self.fault.get_or_insert(error);
        }
    }

    /// Waits for all copies that were asked for.
    ///
    /// # Errors
    /// One of them failed, so keys and values are not what they should be.
    pub(super) fn settle(&mut self) -> Result<(), SysError> {
        let Some(cuda) = self.under_way.take() else {
            return Ok(());
        };
        // SAFETY: the default stream, on which copies run.
        let waited = cuda.check(unsafe { (cuda.calls.wait)(ptr::null_mut()) });
        match self.fault.take() {
            Some(error) => Err(error),
            None => waited,
        }
    }
}
