//! One row of logits, its mask, and a graph over both, to be measured by themselves.
//!
//! It is no part of serving. Invariant: the logits are zeros, so what is not allowed can be seen in the result.

use ort::{AsPointer, session::Session, sys::ONNXTensorElementDataType as ElementType};

use super::{
    Place, SysError,
    memory::{Area, Buffer},
    signed,
    tensor::{Arguments, MemoryInfo, View},
};

// Field order is drop order: views before the memory and the session that they refer to.
pub(crate) struct Probe {
    inputs: Vec<View>,
    output: View,
    arguments: Arguments,
    mask: Buffer<u8>,
    _logits: Area,
    result: Area,
    seen: Vec<f32>,
    vocabulary: usize,
    session: Session,
}

impl Probe {
    /// For a graph with the inputs `logits` and, if `masked`, `mask` of `width` bytes, and the output `masked`.
    pub(crate) fn new(
        session: Session,
        place: &Place,
        vocabulary: usize,
        width: usize,
        masked: bool,
    ) -> Result<Self, SysError> {
        let (host, there) = (MemoryInfo::host()?, place.memory()?);
        let float = (ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, size_of::<f32>());
        let (logits, result) = (Area::new(place, 4 * vocabulary)?, Area::new(place, 4 * vocabulary)?);
        let mask = Buffer::<u8>::new(width)?;
        let shape = [1, signed(vocabulary)];
        let mut inputs = vec![logits.view(&there, 0, &shape, float)?];
        let mut names = vec!["logits".to_owned()];
        if masked {
            inputs.push(mask.view(&host, &[1, signed(width)])?);
            names.push("mask".to_owned());
        }
        Ok(Self {
            inputs,
            output: result.view(&there, 0, &shape, float)?,
            arguments: Arguments::new(&names, &["masked".to_owned()]),
            mask,
            _logits: logits,
            result,
            seen: Vec::new(),
            vocabulary,
            session,
        })
    }

    /// Bytes of the mask.
    pub(crate) fn mask(&mut self) -> &mut [u8] {
        self.mask.as_mut_slice()
    }

    pub(crate) fn run(&mut self) -> Result<(), SysError> {
        // SAFETY: session, tensors and the memory below them are owned by `self`, which is borrowed mutably, so no slice of
        // that memory exists and nobody else runs the session. The output is no input.
        unsafe {
            self.arguments.run(
                self.session.ptr().cast_mut(),
                &self.inputs,
                std::iter::once(&self.output),
            )
        }
    }

    /// What the last run gave.
    pub(crate) fn result(&mut self) -> Result<&[f32], SysError> {
        self.result.floats(0, self.vocabulary, &mut self.seen)
    }
}
