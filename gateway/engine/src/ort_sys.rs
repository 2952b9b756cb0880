//! The only unsafe code of this crate: memory that ONNX Runtime reads and writes in place, and the call that runs it.
//!
//! The safe crate `ort` copies or refuses what continuous batching needs, namely tensors that are views of a larger
//! buffer and outputs that share memory with inputs. So the views and `Run` come from the C interface here, and
//! everything else (library, session, metadata) stays with `ort`.
//!
//! It never allocates during a step: buffers and views are made once. Invariant: the runtime touches this memory only
//! inside [`Bound::run`], which borrows all of it mutably, and never outside the bounds that a view was made with.

use std::{
    ffi::{CStr, CString, c_char, c_void},
    marker::PhantomData,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr::{self, NonNull},
};

use ort::{
    AsPointer,
    session::Session,
    sys::{ONNXTensorElementDataType as ElementType, OrtApiBase, OrtMemoryInfo, OrtStatusPtr, OrtValue},
};

use crate::extent::{Dimensions, Extent};

/// What the runtime or the kernel answered when it refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SysError(pub(crate) String);

// ---- the library --------------------------------------------------------------------------------------------------

/// Loads the library at `path` for good and asks its version, such as `1.31.1`. `ort` has no call for that.
///
/// # Errors
/// The loader's words, or that it is no ONNX Runtime; then it is unloaded again.
pub(crate) fn library_version(path: &Path) -> Result<String, SysError> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| SysError("a path with NUL".into()))?;
    // SAFETY: a C string. Loading runs the library's initialisers: it is the operator's choice to trust that file.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    let Some(handle) = NonNull::new(handle) else {
        return Err(SysError(loader_message()));
    };
    // SAFETY: a live handle and a C string.
    let symbol = unsafe { libc::dlsym(handle.as_ptr(), c"OrtGetApiBase".as_ptr()) };
    if symbol.is_null() {
        // SAFETY: the handle came from `dlopen` and nothing of the library is in use.
        unsafe { libc::dlclose(handle.as_ptr()) };
        return Err(SysError("it does not export OrtGetApiBase".into()));
    }
    // SAFETY: the symbol of this name has this type in every ONNX Runtime since 1.0.
    let base = unsafe { std::mem::transmute::<*mut c_void, extern "system" fn() -> *const OrtApiBase>(symbol) };
    let base = NonNull::new(base().cast_mut()).ok_or_else(|| SysError("it offers no interface".into()))?;
    // SAFETY: the runtime's base table is static and begins with these two functions.
    let table = unsafe { base.as_ref() };
    // SAFETY: takes nothing, returns a static C string.
    let version = unsafe { (table.GetVersionString)() };
    // SAFETY: see above; copied here.
    Ok(unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned())
}

fn loader_message() -> String {
    // SAFETY: called right after a failed `dlopen` in this thread; the result is a C string or null.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "the loader gives no reason".into();
    }
    // SAFETY: not null, so a C string that lives until this thread's next call to the loader; copied here.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

// ---- memory -------------------------------------------------------------------------------------------------------

/// Zeroed memory reserved at once; the kernel commits a page when it is first written.
struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

impl Region {
    fn reserve(bytes: usize) -> Result<Self, SysError> {
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
    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.bytes, "offset within the region");
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `reserve` made; views of it are dropped before (field order of `Bound`).
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A type whose tensors are used here. Every bit pattern is a valid value, so zeroed and foreign-written memory is too.
trait Element: Copy {
    const TYPE: ElementType;
}
impl Element for f32 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}
impl Element for i32 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
}
impl Element for i64 {
    const TYPE: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
}

/// `len` values that the runtime sees at a fixed address.
struct Buffer<T> {
    region: Region,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    fn new(len: usize) -> Result<Self, SysError> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(too_large)?;
        Ok(Self {
            region: Region::reserve(bytes)?,
            len,
            values: PhantomData,
        })
    }

    fn as_slice(&self) -> &[T] {
        // SAFETY: a live, page-aligned mapping of at least `len` values, every bit pattern valid; the runtime writes
        // only inside `run`, which holds `&mut Bound`, so not while this borrow lives.
        unsafe { std::slice::from_raw_parts(self.region.at(0).cast(), self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as for `as_slice`, and `&mut self` makes it the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.region.at(0).cast(), self.len) }
    }

    /// A tensor over `shape`'s product of values, `first` values in.
    fn view(&self, memory: &MemoryInfo, first: usize, shape: &[i64]) -> Result<View, SysError> {
        let count = shape.iter().try_fold(1usize, |product, &d| {
            usize::try_from(d).ok().and_then(|d| product.checked_mul(d))
        });
        let count = count.ok_or_else(too_large)?;
        assert!(
            first.checked_add(count).is_some_and(|end| end <= self.len),
            "a view lies within its buffer"
        );
        let data = self.region.at(first * size_of::<T>());
        View::new(memory, data, count * size_of::<T>(), shape, T::TYPE)
    }
}

/// Bytes of a page of memory.
fn page_size() -> usize {
    // SAFETY: asks for a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

fn too_large() -> SysError {
    SysError("the buffers do not fit the address space".into())
}

// ---- the runtime's objects ----------------------------------------------------------------------------------------

/// Turns a status into a result and releases it.
fn check(status: OrtStatusPtr) -> Result<(), SysError> {
    if status.0.is_null() {
        return Ok(());
    }
    // SAFETY: a status that is not null is alive until released.
    let message = unsafe { (ort::api().GetErrorMessage)(status.0) };
    // SAFETY: the message is a C string owned by the status, which is still alive; it is copied here.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // SAFETY: released once, not used afterwards.
    unsafe { (ort::api().ReleaseStatus)(status.0) };
    Err(SysError(text))
}

/// "Ordinary host memory", in the runtime's words.
struct MemoryInfo(*mut OrtMemoryInfo);

impl MemoryInfo {
    fn host() -> Result<Self, SysError> {
        let mut info = ptr::null_mut();
        // SAFETY: the out pointer is valid for the call.
        let status = unsafe {
            (ort::api().CreateCpuMemoryInfo)(
                ort::sys::OrtAllocatorType::OrtDeviceAllocator,
                ort::sys::OrtMemType::OrtMemTypeDefault,
                &raw mut info,
            )
        };
        check(status)?;
        Ok(Self(info))
    }
}

impl Drop for MemoryInfo {
    fn drop(&mut self) {
        // SAFETY: made by `host`, released once. Tensors keep a copy, not this object.
        unsafe { (ort::api().ReleaseMemoryInfo)(self.0) };
    }
}

/// A tensor over memory that it does not own.
struct View(NonNull<OrtValue>);

impl View {
    /// The caller keeps `bytes` bytes at `data` alive and in place for as long as the view.
    fn new(
        memory: &MemoryInfo,
        data: *mut u8,
        bytes: usize,
        shape: &[i64],
        element: ElementType,
    ) -> Result<Self, SysError> {
        let mut value = ptr::null_mut();
        // SAFETY: `memory` is alive, `shape` is valid for its length, the out pointer is valid for the call. The data is
        // only recorded, not touched.
        let status = unsafe {
            (ort::api().CreateTensorWithDataAsOrtValue)(
                memory.0,
                data.cast::<c_void>(),
                bytes,
                shape.as_ptr(),
                shape.len(),
                element,
                &raw mut value,
            )
        };
        check(status)?;
        NonNull::new(value)
            .map(Self)
            .ok_or_else(|| SysError("no tensor was made".into()))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: made by `new`, released once; the memory below it is not touched.
        unsafe { (ort::api().ReleaseValue)(self.0.as_ptr()) };
    }
}

// ---- a decoder bound to its memory --------------------------------------------------------------------------------

/// The four small inputs and the logits, for one shape of run.
struct Heads {
    ids: View,
    lengths: View,
    rows: View,
    logits: View,
}

/// Names of the tensors, in the order in which they are handed over.
struct Names {
    inputs: Vec<*const c_char>,
    outputs: Vec<*const c_char>,
    _texts: Vec<CString>,
}

/// Inputs that come before the keys and values: `input_ids`, `seqlens_k`, `total_sequence_length`, `logit_rows`.
const LEADING: usize = 4;

/// A decoder with places for `slots` sequences. Place `s` of layer `l` is the `s`-th row of a `[slots, heads, context,
/// dim]` buffer, so that the first `b` places are one tensor of batch `b`, and each place alone one of batch 1.
// Field order is drop order: views before the memory and the session that they refer to.
pub(crate) struct Bound {
    decode_heads: Vec<Heads>,
    decode_kv: Vec<Vec<View>>,
    prefill_ids: Vec<View>,
    prefill_heads: [Heads; 2],
    /// With a row of logits for each token, for 1 to [`ALL_ROWS`] tokens.
    all_heads: Vec<Heads>,
    prefill_kv: Vec<Vec<View>>,
    total_view: View,
    inputs: Vec<*const OrtValue>,
    outputs: Vec<*mut OrtValue>,
    names: Names,
    ids: Buffer<i64>,
    lengths: Buffer<i32>,
    total: Buffer<i32>,
    rows: Buffer<i64>,
    logits: Buffer<f32>,
    kv: Buffer<f32>,
    /// The prefix cache: `[block][layer × (key, value)][head][token][dim]`.
    blocks: Buffer<f32>,
    cache: Cache,
    dimensions: Dimensions,
    extent: Extent,
    session: Session,
}

/// The size of the prefix cache's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cache {
    /// Tokens of a block.
    pub(crate) block: usize,
    /// How many there are.
    pub(crate) blocks: usize,
}

/// Tokens of a piece of a prompt of which every one gets its row of logits.
pub(crate) const ALL_ROWS: usize = 16;

/// Which tokens of a piece of a prompt get a row of logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// None: the prompt goes on.
    None,
    /// The last one.
    Last,
    /// Every one; the piece has at most [`ALL_ROWS`].
    All,
}

// SAFETY: the raw pointers point to objects that this value owns alone, and the runtime ties none of them to a thread.
unsafe impl Send for Bound {}

/// Which of the prepared shapes a run takes.
#[derive(Clone, Copy)]
enum Shape {
    /// The first places, one token each.
    Decode { batch: usize },
    /// Several tokens of one place.
    Prefill { slot: usize, tokens: usize, rows: Rows },
}

impl Bound {
    /// Reserves memory for `extent` and makes every view that a run can need. The session must satisfy the graph
    /// contract with `dimensions`.
    pub(crate) fn new(
        session: Session,
        dimensions: Dimensions,
        extent: Extent,
        cache: Cache,
    ) -> Result<Self, SysError> {
        let Extent { slots, context, chunk } = extent;
        assert!(slots > 0 && context > 0 && chunk > 0, "an extent is not empty");
        i32::try_from(context).map_err(|_| too_large())?;
        let memory = MemoryInfo::host()?;
        let values = |tokens: usize, times: usize| {
            let of_token = dimensions.token_bytes()? / size_of::<f32>();
            of_token.checked_mul(tokens)?.checked_mul(times)
        };
        let kv_len = values(context, slots).ok_or_else(too_large)?;
        let blocks_len = values(cache.block, cache.blocks).ok_or_else(too_large)?;
        let most_rows = slots.max(ALL_ROWS);
        let logits_len = most_rows.checked_mul(dimensions.vocabulary).ok_or_else(too_large)?;
        let ids = Buffer::<i64>::new(slots.max(chunk))?;
        let lengths = Buffer::<i32>::new(slots)?;
        let total = Buffer::<i32>::new(1)?;
        let rows = Buffer::<i64>::new(most_rows)?;
        let logits = Buffer::<f32>::new(logits_len)?;
        let kv = Buffer::<f32>::new(kv_len)?;
        let blocks = Buffer::<f32>::new(blocks_len)?;
        let vocabulary = signed(dimensions.vocabulary);
        let heads = |batch: i64, seq: i64, rows_wanted: i64| -> Result<Heads, SysError> {
            Ok(Heads {
                ids: ids.view(&memory, 0, &[batch, seq])?,
                lengths: lengths.view(&memory, 0, &[batch])?,
                rows: rows.view(&memory, 0, &[rows_wanted])?,
                logits: logits.view(&memory, 0, &[rows_wanted, vocabulary])?,
            })
        };
        let layout = Layout { dimensions, extent };
        Ok(Self {
            decode_heads: (1..=slots)
                .map(|b| heads(signed(b), 1, signed(b)))
                .collect::<Result<_, _>>()?,
            decode_kv: (1..=slots)
                .map(|b| layout.views(&kv, &memory, 0, b))
                .collect::<Result<_, _>>()?,
            prefill_ids: (1..=chunk)
                .map(|n| ids.view(&memory, 0, &[1, signed(n)]))
                .collect::<Result<_, _>>()?,
            prefill_heads: [heads(1, 1, 0)?, heads(1, 1, 1)?],
            all_heads: (1..=ALL_ROWS)
                .map(|n| heads(1, 1, signed(n)))
                .collect::<Result<_, _>>()?,
            prefill_kv: (0..slots)
                .map(|s| layout.views(&kv, &memory, s, 1))
                .collect::<Result<_, _>>()?,
            total_view: total.view(&memory, 0, &[])?,
            inputs: Vec::with_capacity(LEADING + 2 * dimensions.layers),
            outputs: Vec::with_capacity(1 + 2 * dimensions.layers),
            names: Names::new(dimensions.layers),
            ids,
            lengths,
            total,
            rows,
            logits,
            kv,
            blocks,
            cache,
            dimensions,
            extent,
            session,
        })
    }

    /// One token for each of the first `tokens.len()` places; `lengths[i]` tokens of place `i` are there already. Then
    /// row `i` of [`Bound::logits`] belongs to place `i`.
    pub(crate) fn decode(&mut self, tokens: &[u32], lengths: &[u32]) -> Result<(), SysError> {
        let batch = tokens.len();
        if batch == 0 || batch > self.extent.slots || lengths.len() != batch {
            return Err(SysError(format!("a batch of {batch} in {} places", self.extent.slots)));
        }
        let longest = lengths.iter().copied().max().unwrap_or(0);
        self.check_end(longest as usize + 1)?;
        for (row, (&token, &length)) in tokens.iter().zip(lengths).enumerate() {
            self.ids.as_mut_slice()[row] = i64::from(token);
            self.lengths.as_mut_slice()[row] = length as i32;
            self.rows.as_mut_slice()[row] = row as i64;
        }
        self.total.as_mut_slice()[0] = longest as i32 + 1;
        self.run(Shape::Decode { batch })
    }

    /// `tokens` of place `slot` behind the `start` that are there already. Then the first rows of [`Bound::logits`] belong to
    /// the tokens that `rows` names, in order.
    pub(crate) fn prefill(&mut self, slot: usize, start: usize, tokens: &[u32], rows: Rows) -> Result<(), SysError> {
        let count = tokens.len();
        let most = if rows == Rows::All { ALL_ROWS } else { usize::MAX };
        if slot >= self.extent.slots || count == 0 || count > self.extent.chunk.min(most) {
            return Err(SysError(format!("{count} tokens at once for place {slot}")));
        }
        let end = start.checked_add(count).ok_or_else(too_large)?;
        self.check_end(end)?;
        for (id, &token) in self.ids.as_mut_slice().iter_mut().zip(tokens) {
            *id = i64::from(token);
        }
        self.lengths.as_mut_slice()[0] = end as i32 - 1;
        self.total.as_mut_slice()[0] = end as i32;
        match rows {
            Rows::None => {}
            Rows::Last => self.rows.as_mut_slice()[0] = count as i64 - 1,
            Rows::All => (0i64..)
                .zip(&mut self.rows.as_mut_slice()[..count])
                .for_each(|(n, row)| *row = n),
        }
        self.run(Shape::Prefill {
            slot,
            tokens: count,
            rows,
        })
    }

    /// Refuses to go beyond a place's end: the runtime would write there.
    fn check_end(&self, end: usize) -> Result<(), SysError> {
        if end > self.extent.context {
            return Err(SysError(format!(
                "{end} tokens in a context of {}",
                self.extent.context
            )));
        }
        Ok(())
    }

    /// Copies the first `tokens` tokens of place `from` to place `to`.
    pub(crate) fn copy(&mut self, from: usize, to: usize, tokens: usize) {
        let layout = self.layout();
        assert!(
            from < self.extent.slots && to < self.extent.slots && tokens <= self.extent.context,
            "a copy between places that exist"
        );
        let len = tokens * self.dimensions.head_dim;
        let kv = self.kv.as_mut_slice();
        for buffer in 0..2 * self.dimensions.layers {
            for head in 0..self.dimensions.kv_heads {
                let source = layout.offset(buffer, from, head);
                kv.copy_within(source..source + len, layout.offset(buffer, to, head));
            }
        }
    }

    /// Tokens whose keys or values of one head share a page: memory is given back in such steps.
    pub(crate) fn page(&self) -> usize {
        page_size().div_ceil(self.dimensions.head_dim * size_of::<f32>())
    }

    pub(crate) fn cache(&self) -> Cache {
        self.cache
    }

    /// Gives the memory of place `slot` from token `from` on back to the system, as far as whole pages go.
    pub(crate) fn release(&mut self, slot: usize, from: usize) {
        assert!(
            slot < self.extent.slots && from <= self.extent.context,
            "a place that exists"
        );
        let layout = self.layout();
        let width = self.dimensions.head_dim * size_of::<f32>();
        let bytes = (self.extent.context - from) * width;
        for buffer in 0..2 * self.dimensions.layers {
            for head in 0..self.dimensions.kv_heads {
                let start = layout.offset(buffer, slot, head) * size_of::<f32>() + from * width;
                self.kv.region.discard(start, bytes);
            }
        }
    }

    /// Gives the memory of a block back to the system, as far as whole pages go.
    pub(crate) fn release_block(&mut self, block: usize) {
        let len = self.block_len();
        self.blocks
            .region
            .discard(block * len * size_of::<f32>(), len * size_of::<f32>());
    }

    /// Copies a block's length of tokens from token `start` of place `slot` into a block.
    pub(crate) fn store(&mut self, slot: usize, start: usize, block: usize) {
        self.each_run_of_block(slot, start, block, |place, kept| kept.copy_from_slice(place));
    }

    /// Copies a block to token `start` of place `slot`.
    pub(crate) fn load(&mut self, block: usize, slot: usize, start: usize) {
        self.each_run_of_block(slot, start, block, |place, kept| place.copy_from_slice(kept));
    }

    /// Values of a block.
    fn block_len(&self) -> usize {
        let Dimensions {
            layers,
            kv_heads,
            head_dim,
            ..
        } = self.dimensions;
        2 * layers * kv_heads * self.cache.block * head_dim
    }

    /// Shows, for each buffer and head, a block's length of a place and the same of a block.
    fn each_run_of_block(
        &mut self,
        slot: usize,
        start: usize,
        block: usize,
        mut copy: impl FnMut(&mut [f32], &mut [f32]),
    ) {
        let Cache { block: tokens, blocks } = self.cache;
        assert!(
            slot < self.extent.slots && start + tokens <= self.extent.context && block < blocks,
            "a copy between a place and a block that exist"
        );
        let layout = self.layout();
        let width = self.dimensions.head_dim;
        let runs = 2 * self.dimensions.layers * self.dimensions.kv_heads;
        let len = self.block_len();
        let kept = &mut self.blocks.as_mut_slice()[block * len..][..len];
        let places = self.kv.as_mut_slice();
        for (run, kept) in (0..runs).zip(kept.chunks_exact_mut(tokens * width)) {
            let (buffer, head) = (run / self.dimensions.kv_heads, run % self.dimensions.kv_heads);
            let first = layout.offset(buffer, slot, head) + start * width;
            copy(&mut places[first..][..tokens * width], kept);
        }
    }

    fn layout(&self) -> Layout {
        Layout {
            dimensions: self.dimensions,
            extent: self.extent,
        }
    }

    /// The rows of the last run, one after the other, each as wide as the vocabulary.
    pub(crate) fn logits(&self) -> &[f32] {
        self.logits.as_slice()
    }

    pub(crate) fn dimensions(&self) -> Dimensions {
        self.dimensions
    }

    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    /// Gives the session back, for another extent.
    pub(crate) fn into_session(self) -> Session {
        self.session
    }

    fn run(&mut self, shape: Shape) -> Result<(), SysError> {
        let (ids, heads, kv) = match shape {
            Shape::Decode { batch } => {
                let heads = &self.decode_heads[batch - 1];
                (&heads.ids, heads, &self.decode_kv[batch - 1])
            }
            Shape::Prefill { slot, tokens, rows } => {
                let heads = match rows {
                    Rows::None => &self.prefill_heads[0],
                    Rows::Last => &self.prefill_heads[1],
                    Rows::All => &self.all_heads[tokens - 1],
                };
                (&self.prefill_ids[tokens - 1], heads, &self.prefill_kv[slot])
            }
        };
        self.inputs.clear();
        self.outputs.clear();
        for view in [ids, &heads.lengths, &self.total_view, &heads.rows] {
            self.inputs.push(view.0.as_ptr());
        }
        self.outputs.push(heads.logits.0.as_ptr());
        for view in kv {
            self.inputs.push(view.0.as_ptr());
            self.outputs.push(view.0.as_ptr());
        }
        assert_eq!(self.names.inputs.len(), self.inputs.len(), "each input has a name");
        assert_eq!(self.names.outputs.len(), self.outputs.len(), "each output has a name");
        // SAFETY: session, names and tensors are alive and owned by `self`, which is borrowed mutably, so no slice of
        // the memory below them exists. Both arrays have the given lengths. Every output is given, so the runtime writes
        // into these tensors and replaces no pointer. Keys and values are input and output at once: the graph contract
        // demands operators that append in place (GroupQueryAttention), and the callers checked that the end of every
        // sequence lies within its place.
        let status = unsafe {
            (ort::api().Run)(
                self.session.ptr().cast_mut(),
                ptr::null(),
                self.names.inputs.as_ptr(),
                self.inputs.as_ptr(),
                self.inputs.len(),
                self.names.outputs.as_ptr(),
                self.outputs.len(),
                self.outputs.as_mut_ptr(),
            )
        };
        check(status)
    }
}

/// Where what lies in the keys' and values' memory: `[layer × (key, value)][slot][head][token][dim]`.
struct Layout {
    dimensions: Dimensions,
    extent: Extent,
}

impl Layout {
    /// First value of a head's row of tokens. `buffer` is `2 × layer`, plus 1 for values.
    fn offset(&self, buffer: usize, slot: usize, head: usize) -> usize {
        let Dimensions { kv_heads, head_dim, .. } = self.dimensions;
        ((buffer * self.extent.slots + slot) * kv_heads + head) * self.extent.context * head_dim
    }

    /// The tensors of `batch` places from `slot` on, in the order of the names.
    fn views(&self, kv: &Buffer<f32>, memory: &MemoryInfo, slot: usize, batch: usize) -> Result<Vec<View>, SysError> {
        let Dimensions { kv_heads, head_dim, .. } = self.dimensions;
        let shape = [batch, kv_heads, self.extent.context, head_dim].map(signed);
        (0..2 * self.dimensions.layers)
            .map(|buffer| kv.view(memory, self.offset(buffer, slot, 0), &shape))
            .collect()
    }
}

impl Names {
    fn new(layers: usize) -> Self {
        let mut texts: Vec<CString> = [
            c"input_ids",
            c"seqlens_k",
            c"total_sequence_length",
            c"logit_rows",
            c"logits",
        ]
        .map(CStr::to_owned)
        .into();
        for side in ["past", "present"] {
            for layer in 0..layers {
                for kind in ["key", "value"] {
                    let name = format!("{side}.{layer}.{kind}");
                    texts.push(CString::new(name).expect("no NUL in a name of letters and digits"));
                }
            }
        }
        let at: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let (leading, rest) = at.split_at(LEADING + 1);
        let (past, present) = rest.split_at(2 * layers);
        Self {
            inputs: [&leading[..LEADING], past].concat(),
            outputs: [&leading[LEADING..], present].concat(),
            _texts: texts,
        }
    }
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).expect("a size in memory fits 63 bits")
}
