//! A decoder bound to its memory: every view that a run can need is made once, and a run only names some of them.
//!
//! Small inputs lie on the host; the runtime takes them to a device itself (`total_sequence_length` is wanted on the host by
//! attention's kernel for CUDA too). Keys, values, blocks and logits lie where the provider computes. Invariant: no run
//! goes beyond the end of a place.

use ort::{AsPointer, session::Session, sys::ONNXTensorElementDataType as ElementType};

use super::{
    Place, SysError,
    device::{Copies, Rows2},
    drawer::Drawer,
    layout::Layout,
    memory::{Area, Buffer, page_size},
    signed,
    tensor::{Arguments, MemoryInfo, View},
    too_large,
};
use crate::{
    extent::{Dimensions, Extent},
    head::Kind,
};

/// The four small inputs and the logits, for one shape of run.
struct Heads {
    ids: View,
    lengths: View,
    rows: View,
    logits: View,
}

/// A decoder with places for `slots` sequences, of which the first `b` are one tensor of batch `b`, and each place alone one
/// of batch 1.
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
    arguments: Arguments,
    drawer: Option<Drawer>,
    ids: Buffer<i64>,
    lengths: Buffer<i32>,
    total: Buffer<i32>,
    rows: Buffer<i64>,
    logits: Area,
    kv: Area,
    /// The prefix cache.
    blocks: Area,
    /// Logits of a device as the host sees them.
    seen: Vec<f32>,
    copies: Copies,
    /// Bytes that came from a device since somebody asked.
    fetched: usize,
    cache: Cache,
    layout: Layout,
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

// SAFETY: the raw pointers point to objects that this value owns alone, and the runtime ties none of them to a thread. The
// device is the first one, which is every thread's device unless it chooses another, and nobody here does.
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
    /// Takes memory for `extent` and makes every view that a run can need. The session must satisfy the graph contract with
    /// `dimensions`, and compute in `place`.
    pub(crate) fn new(
        session: Session,
        place: &Place,
        dimensions: Dimensions,
        extent: Extent,
        cache: Cache,
    ) -> Result<Self, SysError> {
        let Extent { slots, context, chunk } = extent;
        assert!(slots > 0 && context > 0 && chunk > 0, "an extent is not empty");
        i32::try_from(context).map_err(|_| too_large())?;
        let (host, there) = (MemoryInfo::host()?, place.memory()?);
        let layout = Layout {
            dimensions,
            extent,
            block: cache.block,
        };
        let area = |bytes: Option<usize>| Area::new(place, bytes.ok_or_else(too_large)?);
        let kv = area(layout.bytes(context, slots))?;
        let blocks = area(layout.bytes(cache.block, cache.blocks))?;
        let most_rows = slots.max(ALL_ROWS);
        let logit_bytes = dimensions.vocabulary.checked_mul(size_of::<f32>());
        let logits = area(logit_bytes.and_then(|bytes| bytes.checked_mul(most_rows)))?;
        let ids = Buffer::<i64>::new(slots.max(chunk))?;
        let lengths = Buffer::<i32>::new(slots)?;
        let total = Buffer::<i32>::new(1)?;
        let rows = Buffer::<i64>::new(most_rows)?;
        let float = (ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, size_of::<f32>());
        let heads = |batch: usize, rows_wanted: usize| -> Result<Heads, SysError> {
            let (batch, wanted) = (signed(batch), signed(rows_wanted));
            Ok(Heads {
                ids: ids.view(&host, &[batch, 1])?,
                lengths: lengths.view(&host, &[batch])?,
                rows: rows.view(&host, &[wanted])?,
                logits: logits.view(&there, 0, &[wanted, signed(dimensions.vocabulary)], float)?,
            })
        };
        Ok(Self {
            decode_heads: (1..=slots).map(|b| heads(b, b)).collect::<Result<_, _>>()?,
            decode_kv: (1..=slots)
                .map(|b| layout.views(&kv, &there, 0, b))
                .collect::<Result<_, _>>()?,
            prefill_ids: (1..=chunk)
                .map(|n| ids.view(&host, &[1, signed(n)]))
                .collect::<Result<_, _>>()?,
            prefill_heads: [heads(1, 0)?, heads(1, 1)?],
            all_heads: (1..=ALL_ROWS).map(|n| heads(1, n)).collect::<Result<_, _>>()?,
            prefill_kv: (0..slots)
                .map(|s| layout.views(&kv, &there, s, 1))
                .collect::<Result<_, _>>()?,
            total_view: total.view(&host, &[])?,
            arguments: arguments(dimensions.layers),
            drawer: None,
            ids,
            lengths,
            total,
            rows,
            logits,
            kv,
            blocks,
            seen: Vec::new(),
            copies: Copies::default(),
            fetched: 0,
            cache,
            layout,
            session,
        })
    }

    /// Has tokens drawn where the logits are, by these heads (see [`Drawer::new`]).
    pub(crate) fn with_heads(mut self, heads: Vec<(Kind, Session)>, drawable: usize) -> Result<Self, SysError> {
        self.drawer = Some(Drawer::new(heads, self.layout.extent.slots, drawable)?);
        Ok(self)
    }

    /// One token for each of the first `tokens.len()` places; `lengths[i]` tokens of place `i` are there already. Then
    /// row `i` of the logits belongs to place `i`.
    pub(crate) fn decode(&mut self, tokens: &[u32], lengths: &[u32]) -> Result<(), SysError> {
        let (batch, slots) = (tokens.len(), self.layout.extent.slots);
        if batch == 0 || batch > slots || lengths.len() != batch {
            return Err(SysError(format!("a batch of {batch} in {slots} places")));
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

    /// `tokens` of place `slot` behind the `start` that are there already. Then the first rows of the logits belong to the
    /// tokens that `rows` names, in order.
    pub(crate) fn prefill(&mut self, slot: usize, start: usize, tokens: &[u32], rows: Rows) -> Result<(), SysError> {
        let count = tokens.len();
        let most = if rows == Rows::All { ALL_ROWS } else { usize::MAX };
        let Extent { slots, chunk, .. } = self.layout.extent;
        if slot >= slots || count == 0 || count > chunk.min(most) {
            return Err(SysError(format!("{count} tokens at once for place {slot}")));
        }
        let end = start.checked_add(count).ok_or_else(too_large)?;
        self.check_end(end)?;
        for (id, &token) in self.ids.as_mut_slice().iter_mut().zip(tokens) {
            *id = i64::from(token);
        }
        self.lengths.as_mut_slice()[0] = end as i32 - 1;
        self.total.as_mut_slice()[0] = end as i32;
        // An empty run of a kernel is nothing that a device is sure to take: there one row is computed for nobody.
        let rows = if rows == Rows::None && !self.logits.is_on_host() {
            Rows::Last
        } else {
            rows
        };
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
        let context = self.layout.extent.context;
        if end > context {
            return Err(SysError(format!("{end} tokens in a context of {context}")));
        }
        Ok(())
    }

    fn run(&mut self, shape: Shape) -> Result<(), SysError> {
        self.copies.settle()?;
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
        let leading = [ids, &heads.lengths, &self.total_view, &heads.rows];
        // SAFETY: session, tensors and the memory below them are owned by `self`, which is borrowed mutably, so no slice of
        // that memory exists and nobody else runs the session. Keys and values are input and output at once: the graph
        // contract demands operators that append in place (GroupQueryAttention), and the callers checked that the end of
        // every sequence lies within its place.
        unsafe {
            self.arguments.run(
                self.session.ptr().cast_mut(),
                leading.into_iter().chain(kv),
                std::iter::once(&heads.logits).chain(kv),
            )
        }
    }

    // ---- what came of it ------------------------------------------------------------------------------------------

    /// Row `row` of the last run's logits, as wide as the vocabulary. From a device it is copied.
    pub(crate) fn logits(&mut self, row: usize) -> Result<&[f32], SysError> {
        let width = self.layout.dimensions.vocabulary;
        if !self.logits.is_on_host() {
            self.fetched += width * size_of::<f32>();
        }
        self.logits.floats(row * width, width, &mut self.seen)
    }

    /// Who draws tokens where the logits are, if anybody does.
    pub(crate) fn drawer(&mut self) -> Option<&mut Drawer> {
        self.drawer.as_mut()
    }

    /// Draws from the first `rows` rows of the last run's logits what the drawer was asked for.
    pub(crate) fn draw(&mut self, rows: usize) -> Result<(), SysError> {
        let Some(drawer) = &mut self.drawer else {
            return Ok(());
        };
        let bytes = drawer.run(&self.decode_heads[rows - 1].logits, rows)?;
        if !self.logits.is_on_host() {
            self.fetched += bytes;
        }
        Ok(())
    }

    /// Bytes that came from a device since somebody asked.
    pub(crate) fn take_fetched(&mut self) -> usize {
        std::mem::take(&mut self.fetched)
    }

    // ---- keys and values ------------------------------------------------------------------------------------------

    /// Copies the first `tokens` tokens of place `from` to place `to`.
    pub(crate) fn copy(&mut self, from: usize, to: usize, tokens: usize) {
        let (layout, extent) = (self.layout, self.layout.extent);
        assert!(
            from < extent.slots && to < extent.slots && from != to && tokens <= extent.context,
            "a copy between places that exist"
        );
        let size = Rows2 {
            bytes: tokens * layout.width(),
            rows: layout.dimensions.kv_heads,
        };
        for buffer in 0..layout.buffers() {
            let [from, to] = [from, to].map(|slot| layout.place(buffer, slot, 0));
            self.kv.copy_within(&mut self.copies, from, to, size);
        }
    }

    /// Copies a block's length of tokens from token `start` of place `slot` into a block.
    pub(crate) fn store(&mut self, slot: usize, start: usize, block: usize) {
        let (layout, size) = self.block_of_place(slot, start, block);
        for buffer in 0..layout.buffers() {
            let (place, kept) = (layout.place(buffer, slot, start), layout.block(block, buffer));
            self.blocks.copy_from(&mut self.copies, &self.kv, place, kept, size);
        }
    }

    /// Copies a block to token `start` of place `slot`.
    pub(crate) fn load(&mut self, block: usize, slot: usize, start: usize) {
        let (layout, size) = self.block_of_place(slot, start, block);
        for buffer in 0..layout.buffers() {
            let (place, kept) = (layout.place(buffer, slot, start), layout.block(block, buffer));
            self.kv.copy_from(&mut self.copies, &self.blocks, kept, place, size);
        }
    }

    fn block_of_place(&self, slot: usize, start: usize, block: usize) -> (Layout, Rows2) {
        let (layout, Cache { block: tokens, blocks }) = (self.layout, self.cache);
        assert!(
            slot < layout.extent.slots && start + tokens <= layout.extent.context && block < blocks,
            "a copy between a place and a block that exist"
        );
        let size = Rows2 {
            bytes: tokens * layout.width(),
            rows: layout.dimensions.kv_heads,
        };
        (layout, size)
    }

    /// Tokens whose keys or values of one head share a page: memory is given back in such steps.
    pub(crate) fn page(&self) -> usize {
        page_size().div_ceil(self.layout.width())
    }

    /// Gives the memory of place `slot` from token `from` on back to the system, as far as whole pages go. Of a device
    /// nothing is given back.
    pub(crate) fn release(&mut self, slot: usize, from: usize) {
        let (layout, extent) = (self.layout, self.layout.extent);
        assert!(slot < extent.slots && from <= extent.context, "a place that exists");
        let bytes = (extent.context - from) * layout.width();
        for buffer in 0..layout.buffers() {
            let rows = layout.place(buffer, slot, from);
            for head in 0..layout.dimensions.kv_heads {
                self.kv.discard(rows.at + head * rows.pitch, bytes);
            }
        }
    }

    /// Gives the memory of a block back to the system, as far as whole pages go. Of a device nothing is given back.
    pub(crate) fn release_block(&mut self, block: usize) {
        let bytes = self.layout.block_bytes();
        self.blocks.discard(block * bytes, bytes);
    }

    pub(crate) fn cache(&self) -> Cache {
        self.cache
    }

    pub(crate) fn dimensions(&self) -> Dimensions {
        self.layout.dimensions
    }

    pub(crate) fn extent(&self) -> Extent {
        self.layout.extent
    }

    /// Gives the session back, for another extent.
    pub(crate) fn into_session(self) -> Session {
        self.session
    }
}

/// The names of a decoder's tensors.
fn arguments(layers: usize) -> Arguments {
    let kv = |side: &str| -> Vec<String> {
        (0..layers)
            .flat_map(|layer| ["key", "value"].map(|kind| format!("{side}.{layer}.{kind}")))
            .collect()
    };
    let leading = ["input_ids", "seqlens_k", "total_sequence_length", "logit_rows"].map(str::to_owned);
    Arguments::new(
        &[&leading[..], &kv("past")].concat(),
        &[&["logits".to_owned()][..], &kv("present")].concat(),
    )
}
