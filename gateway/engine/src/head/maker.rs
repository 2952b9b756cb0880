//! Graphs put together node by node, by the model editor of the runtime.
//!
//! It knows operators, not what they are for. Invariant: every operator is one of [`ON_DEVICE`], so that no node of a head
//! is left to the CPU in the middle of a graph.

use ort::{
    editor::{Graph, Model, Node, ONNX_DOMAIN, Opset},
    memory::Allocator,
    operator::Attribute,
    session::{Session, builder::SessionBuilder},
    value::{Outlet, PrimitiveTensorElementType, Shape, SymbolicDimensions, Tensor, TensorElementType, ValueType},
};

/// Operators that the CUDA provider of ONNX Runtime has kernels for, for the types used here at this [`OPSET`]; from the
/// table of kernels in its documentation (`docs/OperatorKernels.md`). Shifts and bitwise operators are not among them.
pub(super) const ON_DEVICE: [&str; 28] = [
    "Add",
    "And",
    "Cast",
    "Clip",
    "CumSum",
    "Gather",
    "GatherElements",
    "Greater",
    "GreaterOrEqual",
    "Identity",
    "IsNaN",
    "Less",
    "LessOrEqual",
    "Max",
    "Min",
    "Mul",
    "Neg",
    "Or",
    "Pad",
    "ReduceLogSumExp",
    "ReduceSum",
    "Reshape",
    "Round",
    "Slice",
    "Split",
    "Sub",
    "TopK",
    "Where",
];

/// Version of the operators.
const OPSET: u32 = 17;

/// A value in the graph.
pub(super) type Name = String;

/// Types for `Cast`, by their numbers in ONNX.
pub(super) mod types {
    pub(in crate::head) const FLOAT: i64 = 1;
    pub(in crate::head) const INT32: i64 = 6;
    pub(in crate::head) const INT64: i64 = 7;
    pub(in crate::head) const DOUBLE: i64 = 11;
}

/// A graph that is being made.
pub(super) struct Maker {
    graph: Graph,
    made: usize,
}

/// What went wrong, in the runtime's words.
pub(super) type Made<T> = Result<T, String>;

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn text(error: ort::Error) -> String {
    error.to_string()
}

impl Maker {
    pub(super) fn new() -> Made<Self> {
        Ok(Self {
            graph: Graph::new().map_err(text)?,
            made: 0,
        })
    }

    fn fresh(&mut self, kind: &str) -> Name {
        self.made += 1;
        format!("{kind}_{}", self.made)
    }

    /// The values that an operator makes of others.
    pub(super) fn nodes<const N: usize>(
        &mut self,
        operator: &'static str,
        inputs: &[&Name],
        attributes: Vec<Attribute>,
    ) -> Made<[Name; N]> {
        if !ON_DEVICE.contains(&operator) {
            return Err(format!("{operator} has no kernel on the device"));
        }
        let outputs: [Name; N] = std::array::from_fn(|_| self.fresh(operator));
        let node = Node::new(operator, ONNX_DOMAIN, &outputs[0], inputs, &outputs[..], attributes).map_err(text)?;
        self.graph.add_node(node).map_err(text)?;
        Ok(outputs)
    }

    /// The value that an operator makes of others.
    pub(super) fn node(&mut self, operator: &'static str, inputs: &[&Name]) -> Made<Name> {
        let [output] = self.nodes(operator, inputs, Vec::new())?;
        Ok(output)
    }

    /// The same with one attribute.
    pub(super) fn node_with(
        &mut self,
        operator: &'static str,
        inputs: &[&Name],
        (key, value): (&str, i64),
    ) -> Made<Name> {
        let attribute = Attribute::new(key, value).map_err(text)?;
        let [output] = self.nodes(operator, inputs, vec![attribute])?;
        Ok(output)
    }

    pub(super) fn cast(&mut self, value: &Name, to: i64) -> Made<Name> {
        self.node_with("Cast", &[value], ("to", to))
    }

    pub(super) fn choose(&mut self, condition: &Name, yes: &Name, no: &Name) -> Made<Name> {
        self.node("Where", &[condition, yes, no])
    }

    /// Running sums along the second axis, in order.
    pub(super) fn running_sums(&mut self, values: &Name, exclusive: bool) -> Made<Name> {
        let axis = self.number(1i64)?;
        self.node_with("CumSum", &[values, &axis], ("exclusive", i64::from(exclusive)))
    }

    /// How many are true along an axis, as f32.
    pub(super) fn count(&mut self, conditions: &Name, axis: i64, keep: bool) -> Made<Name> {
        let ones = self.cast(conditions, types::FLOAT)?;
        let axes = self.constant(&[1], &[axis])?;
        self.node_with("ReduceSum", &[&ones, &axes], ("keepdims", i64::from(keep)))
    }

    /// This column of each row.
    pub(super) fn column(&mut self, rows: &Name, at: usize) -> Made<Name> {
        let at = self.constant(&[1], &[at as i64])?;
        self.node_with("Gather", &[rows, &at], ("axis", 1))
    }

    pub(super) fn number<T: PrimitiveTensorElementType + Copy + std::fmt::Debug>(&mut self, value: T) -> Made<Name> {
        self.constant(&[], &[value])
    }

    /// A tensor that is part of the graph.
    pub(super) fn constant<T>(&mut self, shape: &[i64], values: &[T]) -> Made<Name>
    where
        T: PrimitiveTensorElementType + Copy + std::fmt::Debug,
    {
        let name = self.fresh("constant");
        let mut tensor = Tensor::<T>::new(&Allocator::default(), Shape::new(shape.iter().copied())).map_err(text)?;
        tensor.extract_tensor_mut().1.copy_from_slice(values);
        self.graph.add_initializer(&name, tensor, false).map_err(text)?;
        Ok(name)
    }

    /// Gives a value the name of an output.
    pub(super) fn output(&mut self, name: &str, value: &Name) -> Made<()> {
        let node = Node::new("Identity", ONNX_DOMAIN, name, [value], [name], []).map_err(text)?;
        self.graph.add_node(node).map_err(text)
    }

    /// The session of the finished graph. Inputs and outputs are named, with their types and widths; each has any number
    /// of rows.
    pub(super) fn finish(
        mut self,
        inputs: &[(&str, TensorElementType, usize)],
        outputs: &[(&str, TensorElementType, usize)],
        builder: &SessionBuilder,
    ) -> Made<Session> {
        let outlet = |&(name, ty, width): &(&str, TensorElementType, usize)| {
            let dtype = ValueType::Tensor {
                ty,
                shape: Shape::new([-1, width as i64]),
                dimension_symbols: SymbolicDimensions::new(["rows".to_owned(), String::new()]),
            };
            Outlet::new(name, dtype)
        };
        self.graph.set_inputs(inputs.iter().map(outlet)).map_err(text)?;
        self.graph.set_outputs(outputs.iter().map(outlet)).map_err(text)?;
        let opset = Opset::new(ONNX_DOMAIN, OPSET).map_err(text)?;
        let mut model = Model::new([opset]).map_err(text)?;
        model.set_graph(self.graph).map_err(text)?;
        model.into_session(builder).map_err(text)
    }
}
