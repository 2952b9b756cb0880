//! Where what lies in the memory for keys and values.
//!
//! Places: `[layer × (key, value)][slot][head][token][dim]`, so that the first places of a layer are one tensor, and each
//! place alone is one. Blocks of the prefix cache: `[block][layer × (key, value)][head][token][dim]`. Pure arithmetic, in
//! bytes. Invariant: what is asked for of places and tokens that exist lies within the memory.

use ort::sys::ONNXTensorElementDataType as ElementType;

use super::{
    SysError,
    memory::{Area, Rows},
    signed,
    tensor::{MemoryInfo, View},
};
use crate::extent::{Dimensions, Extent, Number};

#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) dimensions: Dimensions,
    pub(super) extent: Extent,
    /// Tokens of a block.
    pub(super) block: usize,
}

impl Layout {
    /// Bytes of a token of one head of one buffer.
    pub(super) fn width(&self) -> usize {
        self.dimensions.head_dim * self.dimensions.kv.bytes()
    }

    /// Of keys and of values, over all layers.
    pub(super) fn buffers(&self) -> usize {
        2 * self.dimensions.layers
    }

    /// Bytes of `tokens` tokens, `times` times; `None` beyond the address space.
    pub(super) fn bytes(&self, tokens: usize, times: usize) -> Option<usize> {
        self.dimensions.token_bytes()?.checked_mul(tokens)?.checked_mul(times)
    }

    /// The rows of a place's heads from token `start` on. `buffer` is `2 × layer`, plus 1 for values.
    pub(super) fn place(&self, buffer: usize, slot: usize, start: usize) -> Rows {
        let pitch = self.extent.context * self.width();
        let first = (buffer * self.extent.slots + slot) * self.dimensions.kv_heads;
        Rows {
            at: first * pitch + start * self.width(),
            pitch,
        }
    }

    /// The rows of a block's heads.
    pub(super) fn block(&self, block: usize, buffer: usize) -> Rows {
        let pitch = self.block * self.width();
        let first = (block * self.buffers() + buffer) * self.dimensions.kv_heads;
        Rows {
            at: first * pitch,
            pitch,
        }
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> usize {
        self.buffers() * self.dimensions.kv_heads * self.block * self.width()
    }

    /// The tensors of `batch` places from `slot` on, in the order of the names.
    pub(super) fn views(
        &self,
        kv: &Area,
        memory: &MemoryInfo,
        slot: usize,
        batch: usize,
    ) -> Result<Vec<View>, SysError> {
        let Dimensions {
            kv_heads,
            head_dim,
            kv: element,
            ..
        } = self.dimensions;
        let shape = [batch, kv_heads, self.extent.context, head_dim].map(signed);
        (0..self.buffers())
            .map(|buffer| {
                let at = self.place(buffer, slot, 0).at;
                kv.view(memory, at, &shape, (sys(element), element.bytes()))
            })
            .collect()
    }
}

fn sys(number: Number) -> ElementType {
    match number {
        Number::F32 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        Number::F16 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
    }
}
