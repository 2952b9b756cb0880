"""Writes Gemma 3 as an ONNX graph that follows the contract of the gateway's engine, and config.json beside it.

It never trains and never changes a weight but by storing it in fewer bits. The contract is in docs/models.md. Invariant:
no number of a token depends on the other tokens of a run but by attention, so a batch answers as each of its
sequences alone.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from balance import Balanced
from source import Source

MICROSOFT = "com.microsoft"
OPSET, IR_VERSION = 20, 10
# 32 bits: no quantisation, to compare with.
BITS = (8, 4, 32)
# How many numbers of a matrix, and of what it is multiplied with, share a scale. Large blocks are faster, small ones more
# exact. At 8 bits and 128, and at 4 bits and 64, ONNX Runtime 1.31 adds up in another order for one row than for several, so
# that a sequence would not get the same answer alone and in a batch.
BLOCK = {8: 64, 4: 32}
GLOBAL_EVERY = 6


@dataclass(frozen=True)
class Shape:
    """Sizes of the model, from the GGUF file, and how many positions the graph is made for."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    vocabulary: int
    window: int
    norm_epsilon: float
    rope_global: float
    context: int
    rope_local: float = 10_000.0

    @classmethod
    def of(cls, source: Source, context: int) -> "Shape":
        fields = {
            "layers": "block_count", "width": "embedding_length", "heads": "attention.head_count",
            "kv_heads": "attention.head_count_kv", "head_width": "attention.key_length", "hidden": "feed_forward_length",
            "window": "attention.sliding_window", "norm_epsilon": "attention.layer_norm_rms_epsilon",
            "rope_global": "rope.freq_base",
        }
        longest = source.field("gemma3.context_length")
        if not 2 <= context <= longest:
            raise SystemExit(f"error: --context is {context}, but the model has 2 to {longest} positions")
        values = {name: source.field(f"gemma3.{key}") for name, key in fields.items()}
        return cls(**values, vocabulary=len(source.field("tokenizer.ggml.tokens")), context=context)

    def is_global(self, layer: int) -> bool:
        """Whether the layer sees all tokens; the others see the last `window`."""
        return (layer + 1) % GLOBAL_EVERY == 0


def quantize(rows: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Unsigned numbers around their middle, packed in bytes, [rows, blocks, bytes], and scales, [rows, blocks]."""
    middle = 1 << (bits - 1)
    blocks = rows.reshape(rows.shape[0], -1, BLOCK[bits])
    if bits == 8:
        scales = np.abs(blocks).max(-1) / (middle - 1)
    else:
        # The side with the greatest number gets the one step that the other lacks.
        greatest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)[..., 0]
        scales = greatest / -middle
    scales[scales == 0] = 1
    numbers = np.clip(np.round(blocks / scales[..., None]) + middle, 0, 2 * middle - 1).astype(np.uint8)
    if bits == 4:
        numbers = numbers[..., 0::2] | (numbers[..., 1::2] << 4)
    return numbers, scales.astype(np.float32)


class Graph:
    """Collects the nodes and constants of the graph."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def node(self, operator: str, inputs: list[str], outputs: str | list[str], domain: str = "", **attributes) -> str:
        """Add a node and return its first output."""
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=f"{outputs[0]}.node", domain=domain, **attributes))
        return outputs[0]

    def matrix(self, x: str, weight: np.ndarray, layer: int, kind: str) -> str:
        """x times a weight that is stored as [outputs, inputs]."""
        name = f"{layer}.{kind}"
        if self.bits == 32:
            return self.node("MatMul", [x, self.constant(f"{name}.weight", weight.T)], name)
        numbers, scales = quantize(weight, self.bits)
        numbers, scales = self.constant(f"{name}.bytes", numbers), self.constant(f"{name}.scales", scales)
        return self.packed(x, numbers, scales, weight.shape, name)

    def by_rows(self, x: str, weight: np.ndarray, layer: int, kind: str) -> str:
        """x times a weight, with one scale for each of its rows and one for each token.

        Products of bytes add up exactly, so a token's numbers are the same in any run. Numbers of x are stored above 0: a
        half more than their middle, since the cast to bytes cuts off.
        """
        name, greatest, middle = f"{layer}.{kind}", np.float32(127), 128
        scales = np.maximum(np.abs(weight).max(1), 1e-12) / greatest
        numbers = self.constant(f"{name}.bytes", np.round(weight / scales[:, None]).astype(np.int8).T)
        sizes = self.node("Abs", [x], f"{name}.sizes")
        largest = self.node("ReduceMax", [sizes, self.constant("last.axis", np.array([-1], np.int64))], f"{name}.largest", keepdims=1)
        step = self.node("Mul", [largest, self.constant("rows.step", 1 / greatest)], f"{name}.step")
        step = self.node("Max", [step, self.constant("rows.least", np.float32(1e-12))], f"{name}.safe_step")
        steps = self.node("Div", [x, step], f"{name}.steps")
        raised = self.node("Add", [steps, self.constant("rows.middle", np.float32(middle + 0.5))], f"{name}.raised")
        stored = self.node("Cast", [raised], f"{name}.stored", to=TensorProto.UINT8)
        one, zero = self.constant("rows.one", np.float32(1)), self.constant("rows.zero", np.array(middle, np.uint8))
        scales = self.constant(f"{name}.scales", scales.astype(np.float32))
        product = self.node("MatMulIntegerToFloat", [stored, numbers, one, scales, zero], f"{name}.product", MICROSOFT)
        return self.node("Mul", [product, step], name)

    def packed(self, x: str, numbers: str, scales: str, shape: tuple[int, int], name: str) -> str:
        return self.node("MatMulNBits", [x, numbers, scales], name, MICROSOFT, K=shape[1], N=shape[0], bits=self.bits,
                         block_size=BLOCK[self.bits], accuracy_level=4)

    def norm(self, x: str, weight: np.ndarray, epsilon: float, name: str) -> str:
        scale = self.constant(f"{name}.weight", weight)
        return self.node("SimplifiedLayerNormalization", [x, scale], name, axis=-1, epsilon=epsilon, stash_type=1)

    def norm_of_sum(self, x: str, added: str, weight: np.ndarray, epsilon: float, name: str) -> tuple[str, str]:
        """The norm of x + added, and the sum."""
        scale, total = self.constant(f"{name}.weight", weight), f"{name}.sum"
        self.node("SkipSimplifiedLayerNormalization", [x, added, scale], [name, "", "", total], MICROSOFT, epsilon=epsilon)
        return name, total


class Builder:
    """Makes the graph, layer by layer."""

    def __init__(self, source: Source | Balanced, shape: Shape, bits: int) -> None:
        self.source, self.shape, self.graph = source, shape, Graph(bits)

    def build(self) -> onnx.ModelProto:
        graph, shape = self.graph, self.shape
        for name, base in (("global", shape.rope_global), ("local", shape.rope_local)):
            angles = np.arange(shape.context)[:, None] / base ** (np.arange(0, shape.head_width, 2) / shape.head_width)
            graph.constant(f"rope.{name}.cosine", np.cos(angles).astype(np.float32))
            graph.constant(f"rope.{name}.sine", np.sin(angles).astype(np.float32))
        total, head = self._embedding()
        added = None
        for layer in range(shape.layers):
            x, total = self._norm(total, added, f"blk.{layer}.attn_norm.weight", f"{layer}.attention_norm")
            added = self._attention(layer, x)
            x, total = self._norm(total, added, f"blk.{layer}.ffn_norm.weight", f"{layer}.mlp_norm")
            added = self._mlp(layer, x)
        x, _ = self._norm(total, added, "output_norm.weight", "final_norm")
        flat = graph.node("Reshape", [x, graph.constant("flat.shape", np.array([-1, shape.width], np.int64))], "flat")
        head(graph.node("Gather", [flat, "logit_rows"], "rows", axis=0))
        return self._model()

    def _embedding(self):
        """The embedded tokens, and the function that adds the head, which is the same matrix.

        Gemma multiplies embedded tokens by the square root of its width.
        """
        graph, shape = self.graph, self.shape
        matrix, factor = self.source.tensor("token_embd.weight"), np.float32(shape.width**0.5)
        if graph.bits == 32:
            stored = graph.constant("embedding", matrix)
            plain = graph.node("Gather", [stored, "input_ids"], "embedded.plain", axis=0)
            embedded = graph.node("Mul", [plain, graph.constant("embedded.factor", factor)], "embedded")
            return embedded, lambda rows: graph.node("Gemm", [rows, stored], "logits", transB=1)
        numbers, scales = quantize(matrix, graph.bits)
        stored = graph.constant("embedding.bytes", numbers.reshape(shape.vocabulary, -1))
        enlarged = graph.constant("embedding.scales", scales * factor)
        embedded = graph.node("GatherBlockQuantized", [stored, "input_ids", enlarged], "embedded", MICROSOFT, bits=graph.bits,
                              block_size=BLOCK[graph.bits], gather_axis=0, quantize_axis=1)

        def head(rows: str) -> str:
            form = graph.constant("head.shape", np.array(numbers.shape, np.int64))
            reshaped = graph.node("Reshape", [stored, form], "head.bytes")
            return graph.packed(rows, reshaped, graph.constant("head.scales", scales), matrix.shape, "logits")

        return embedded, head

    def _norm(self, x: str, added: str | None, weight: str, name: str) -> tuple[str, str]:
        """The norm before a block, of x + added, and that sum."""
        weights, epsilon = self.source.tensor(weight), self.shape.norm_epsilon
        if added is None:
            return self.graph.norm(x, weights, epsilon, name), x
        return self.graph.norm_of_sum(x, added, weights, epsilon, name)

    def _weight(self, layer: int, *names: str) -> np.ndarray:
        return np.concatenate([self.source.tensor(f"blk.{layer}.{name}.weight") for name in names])

    def _attention(self, layer: int, x: str) -> str:
        graph, shape = self.graph, self.shape
        both = graph.matrix(x, self._weight(layer, "attn_q", "attn_k", "attn_v"), layer, "qkv")
        widths = np.array([shape.heads, shape.kv_heads, shape.kv_heads], np.int64) * shape.head_width
        parts = [f"{layer}.{part}" for part in ("query", "key", "value")]
        graph.node("Split", [both, graph.constant("qkv.widths", widths)], parts, axis=-1)
        query, key = (self._head_norm(layer, part, parts[index]) for index, part in enumerate(("q", "k")))
        past, present = ([f"{when}.{layer}.{part}" for part in ("key", "value")] for when in ("past", "present"))
        rope = "global" if shape.is_global(layer) else "local"
        window = {} if shape.is_global(layer) else {"local_window_size": shape.window}
        mixed = graph.node(
            "GroupQueryAttention",
            [query, key, parts[2], *past, "seqlens_k", "total_sequence_length", f"rope.{rope}.cosine", f"rope.{rope}.sine"],
            [f"{layer}.mixed", *present],
            MICROSOFT, num_heads=shape.heads, kv_num_heads=shape.kv_heads, do_rotary=1, scale=shape.head_width**-0.5, **window,
        )
        out = graph.matrix(mixed, self._weight(layer, "attn_output"), layer, "attention")
        return graph.norm(out, self._weight(layer, "post_attention_norm"), shape.norm_epsilon, f"{layer}.attention.normed")

    def _head_norm(self, layer: int, part: str, x: str) -> str:
        """The norm of each head of the queries or keys by itself."""
        graph, width = self.graph, self.shape.head_width
        heads = graph.node("Reshape", [x, graph.constant("heads.shape", np.array([0, 0, -1, width], np.int64))], f"{x}.heads")
        normed = graph.norm(heads, self._weight(layer, f"attn_{part}_norm"), self.shape.norm_epsilon, f"{x}.normed")
        form = np.array([0, 0, width * (self.shape.heads if part == "q" else self.shape.kv_heads)], np.int64)
        return graph.node("Reshape", [normed, graph.constant(f"{part}.shape", form)], f"{x}.ready")

    def _mlp(self, layer: int, x: str) -> str:
        graph = self.graph
        # The largest matrix of a layer. Its inputs are normed and balanced, so one scale for each row and token suffices.
        multiply = graph.by_rows if graph.bits == 8 else graph.matrix
        both = multiply(x, self._weight(layer, "ffn_gate", "ffn_up"), layer, "gate_up")
        gate, up = f"{layer}.gate", f"{layer}.up"
        graph.node("Split", [both], [gate, up], axis=-1, num_outputs=2)
        active = graph.node("FastGelu", [gate], f"{layer}.active", MICROSOFT)
        gated = graph.node("Mul", [active, up], f"{layer}.gated")
        out = graph.matrix(gated, self._weight(layer, "ffn_down"), layer, "mlp")
        return graph.norm(out, self._weight(layer, "post_ffw_norm"), self.shape.norm_epsilon, f"{layer}.mlp.normed")

    def _model(self) -> onnx.ModelProto:
        shape, value = self.shape, helper.make_tensor_value_info
        inputs = [
            value("input_ids", TensorProto.INT64, ["batch", "seq"]),
            value("seqlens_k", TensorProto.INT32, ["batch"]),
            value("total_sequence_length", TensorProto.INT32, []),
            value("logit_rows", TensorProto.INT64, ["rows_n"]),
        ]
        outputs = [value("logits", TensorProto.FLOAT, ["rows_n", shape.vocabulary])]
        for layer in range(shape.layers):
            for part in ("key", "value"):
                sizes = ["batch", shape.kv_heads, "max_seq", shape.head_width]
                inputs.append(value(f"past.{layer}.{part}", TensorProto.FLOAT, sizes))
                outputs.append(value(f"present.{layer}.{part}", TensorProto.FLOAT, sizes))
        body = helper.make_graph(self.graph.nodes, "gemma3", inputs, outputs, list(self.graph.constants.values()))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(body, opset_imports=opsets, ir_version=IR_VERSION, producer_name="zerohop-gemma3-recipe")


def configuration(source: Source, shape: Shape) -> dict:
    """config.json, with the names that Hugging Face uses. A turn ends by either of two tokens."""
    return {
        "model_type": "gemma3_text",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": shape.context,
        "sliding_window": shape.window,
        "rope_theta": shape.rope_global,
        "rope_local_base_freq": shape.rope_local,
        "rms_norm_eps": shape.norm_epsilon,
        "tie_word_embeddings": True,
        "bos_token_id": source.field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": [source.field("tokenizer.ggml.eos_token_id"), source.token("<end_of_turn>")],
        "pad_token_id": source.field("tokenizer.ggml.padding_token_id"),
    }


def export(source: Source | Balanced, shape: Shape, bits: int, folder: Path, others: list[str] = ()) -> None:
    """Write model.onnx with model.onnx.data, and config.json. `others` are tensors to be outputs as well."""
    model = Builder(source, shape, bits).build()
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in others)
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=1024)
    (folder / "config.json").write_text(json.dumps(configuration(source, shape), indent=2) + "\n")
