//! Memory that tensors are views of: small inputs and outputs on the host, and the large rest where the provider computes.
//!
//! On the host the kernel commits a page when it is first written, and takes it back when it is discarded. On a device all
//! memory is taken at once and kept. Invariant: nobody but the device follows an address of a device's memory.

use std::{
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::Arc,
};

use ort::sys::ONNXTensorElementDataType as ElementType;

use super::{
    Cuda, SysError,
    device::{Copies, DeviceMemory, Rows2},
    tensor::{MemoryInfo, View},
    too_large,
};

/// Where keys, values and logits lie.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// In host memory.
    Host,
    /// On a device.
    Device(Arc<Cuda>),
}

impl Place {
    /// Its name for the runtime.
    pub(super) fn memory(&self) -> Result<MemoryInfo, SysError> {
        match self {
            Self::Host => MemoryInfo::host(),
            Self::Device(cuda) => cuda.memory(),
        }
    }
}

/// Zeroed memory reserved at once; the kernel commits a page when it is first written.
pub(super) struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

impl Region {
    pub(super) fn reserve(bytes: usize) -> Result<Self, SysError> {
        let bytes = bytes.max(1);
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no memory that exists.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            return Err(SysError(format!("{bytes} bytes of address space: {error}")));
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| SysError("a mapping at address 0".into()))?;
        Ok(Self { start, bytes })
    }

    /// Gives the pages that lie wholly within this range back to the system; they read as zeros afterwards.
    fn discard(&mut self, offset: usize, bytes: usize) {
        let page = page_size();
        let (start, end) = (offset.next_multiple_of(page), (offset + bytes) / page * page);
        assert!(end <= self.bytes, "a range within the region");
        if start >= end {
            return;
        }
        // SAFETY: whole pages of a private anonymous mapping that `self` owns; no slice of them exists while `self` is
        // borrowed mutably. A refusal leaves the pages as they are, which costs memory and nothing else.
        unsafe { libc::madvise(self.at(start).cast(), end - start, libc::MADV_DONTNEED) };
    }

    /// The address `offset` bytes in. Panics beyond the end: that would be a fault of this file.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.bytes, "offset within the region");
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Region {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: the whole of a live mapping; the runtime writes only inside a run, which borrows the owner mutably.
        unsafe { std::slice::from_raw_parts(self.at(0), self.bytes) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as for `as_slice`, and `&mut self` makes it the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.at(0), self.bytes) }
    }

    fn as_floats(&self) -> &[f32] {
        // SAFETY: as for `as_slice`; page-aligned, and every bit pattern is an f32.
        unsafe { std::slice::from_raw_parts(self.at(0).cast(), self.bytes / size_of::<f32>()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `reserve` made; views of it are dropped before (field order of its owners).
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A type whose tensors are used here. Every bit pattern is a valid value, so zeroed and foreign-written memory is too.
pub(super) trait Element: Copy {
    const TYPE: ElementType;
}
impl Element for u8 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
}
impl Element for f32 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}
impl Element for f64 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE;
}
impl Element for i32 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
}
impl Element for i64 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
}

/// `len` values on the host that the runtime sees at a fixed address.
pub(super) struct Buffer<T> {
    region: Region,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    pub(super) fn new(len: usize) -> Result<Self, SysError> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(too_large)?;
        Ok(Self {
            region: Region::reserve(bytes)?,
            len,
            values: PhantomData,
        })
    }

    pub(super) fn as_slice(&self) -> &[T] {
        // SAFETY: a live, page-aligned mapping of at least `len` values, every bit pattern valid; the runtime writes only
        // inside a run, which borrows the owner mutably, so not while this borrow lives.
        unsafe { std::slice::from_raw_parts(self.region.at(0).cast(), self.len) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as for `as_slice`, and `&mut self` makes it the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.region.at(0).cast(), self.len) }
    }

    /// A tensor over `shape`'s product of values from the first on. `host`: [`MemoryInfo::host`].
    pub(super) fn view(&self, host: &MemoryInfo, shape: &[i64]) -> Result<View, SysError> {
        let count = product(shape)?;
        assert!(count <= self.len, "a view lies within its buffer");
        View::new(host, self.region.at(0), count * size_of::<T>(), shape, T::TYPE)
    }
}

fn product(shape: &[i64]) -> Result<usize, SysError> {
    let mut sizes = shape.iter().map(|&d| usize::try_from(d).ok());
    sizes
        .try_fold(1usize, |product, d| product.checked_mul(d?))
        .ok_or_else(too_large)
}

/// Zeroed memory where the provider computes.
pub(super) struct Area(Storage);

enum Storage {
    Host(Region),
    Device(DeviceMemory),
}

/// Where rows begin, and bytes from one to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub(super) at: usize,
    pub(super) pitch: usize,
}

impl Area {
    pub(super) fn new(place: &Place, bytes: usize) -> Result<Self, SysError> {
        Ok(Self(match place {
            Place::Host => Storage::Host(Region::reserve(bytes)?),
            Place::Device(cuda) => Storage::Device(DeviceMemory::new(cuda, bytes)?),
        }))
    }

    fn bytes(&self) -> usize {
        match &self.0 {
            Storage::Host(region) => region.bytes,
            Storage::Device(memory) => memory.bytes(),
        }
    }

    /// A tensor over `shape`'s product of values of `width` bytes, `offset` bytes in. `info`: of the same [`Place`].
    pub(super) fn view(
        &self,
        info: &MemoryInfo,
        offset: usize,
        shape: &[i64],
        (element, width): (ElementType, usize),
    ) -> Result<View, SysError> {
        let bytes = product(shape)?.checked_mul(width).ok_or_else(too_large)?;
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes()),
            "a view lies within its memory"
        );
        let start = match &self.0 {
            Storage::Host(region) => region.at(offset),
            Storage::Device(memory) => memory.at(offset),
        };
        View::new(info, start, bytes, shape, element)
    }

    /// Gives whole pages within this range back, where that can be done; what is there is lost either way.
    pub(super) fn discard(&mut self, offset: usize, bytes: usize) {
        match &mut self.0 {
            Storage::Host(region) => region.discard(offset, bytes),
            // Taken at once, and kept.
            Storage::Device(_) => {}
        }
    }

    /// Copies rows to another part of the same memory.
    pub(super) fn copy_within(&mut self, copies: &mut Copies, from: Rows, to: Rows, size: Rows2) {
        match &mut self.0 {
            Storage::Host(region) => {
                let bytes = region.as_mut_slice();
                for row in 0..size.rows {
                    let source = from.at + row * from.pitch;
                    bytes.copy_within(source..source + size.bytes, to.at + row * to.pitch);
                }
            }
            Storage::Device(memory) => {
                copies.ask((memory, from.at, from.pitch), (memory, to.at, to.pitch), size);
            }
        }
    }

    /// Copies rows from other memory of the same place.
    pub(super) fn copy_from(&mut self, copies: &mut Copies, source: &Self, from: Rows, to: Rows, size: Rows2) {
        match (&source.0, &mut self.0) {
            (Storage::Host(source), Storage::Host(target)) => {
                let (source, target) = (source.as_slice(), target.as_mut_slice());
                for row in 0..size.rows {
                    let source = &source[from.at + row * from.pitch..][..size.bytes];
                    target[to.at + row * to.pitch..][..size.bytes].copy_from_slice(source);
                }
            }
            (Storage::Device(source), Storage::Device(target)) => {
                copies.ask((source, from.at, from.pitch), (target, to.at, to.pitch), size);
            }
            _ => unreachable!("the memories of a decoder lie in one place"),
        }
    }

    /// `len` values, `first` values in, as the host sees them: the memory itself, or copied to `room` from a device.
    pub(super) fn floats<'a>(
        &'a self,
        first: usize,
        len: usize,
        room: &'a mut Vec<f32>,
    ) -> Result<&'a [f32], SysError> {
        match &self.0 {
            Storage::Host(region) => Ok(&region.as_floats()[first..][..len]),
            Storage::Device(memory) => {
                room.resize(len, 0.0);
                memory.read(first * size_of::<f32>(), room)?;
                Ok(room)
            }
        }
    }

    /// Whether the host reads it without a copy.
    pub(super) fn is_on_host(&self) -> bool {
        matches!(self.0, Storage::Host(_))
    }
}

/// Bytes of a page of memory.
pub(super) fn page_size() -> usize {
    // SAFETY: asks for a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
