"""Writes the trained weights as an int8 ONNX graph, and config.json beside it.

The graph follows the contract of the gateway's engine:

    input_ids              i64[batch, seq]
    seqlens_k              i32[batch]        tokens of each sequence after this run, minus one
    total_sequence_length  i32               the greatest number of tokens after this run
    logit_rows             i64[rows_n]       rows of the flattened batch * seq that reach the head
    past.{i}.key, .value   f32[batch, kv_heads, max_seq, head_dim]
    logits                 f32[rows_n, vocab]
    present.{i}.key, .value                  the same buffers as past

Matrices are stored in 8 bits, in blocks of 32 numbers along the input with one scale each.
"""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from model import Shape, rope_angles
from tokens import BOS, END, PAD

BLOCK = 32
BITS = 8
ZERO_POINT = 128
MICROSOFT = "com.microsoft"
OPSET, IR_VERSION = 20, 10

Weights = dict[str, np.ndarray]


def quantize(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unsigned bytes around 128 and scales: [rows, blocks, BLOCK] and [rows, blocks]."""
    blocks = rows.reshape(rows.shape[0], -1, BLOCK)
    scales = np.abs(blocks).max(-1) / (ZERO_POINT - 1)
    scales[scales == 0] = 1
    bytes_ = np.clip(np.round(blocks / scales[..., None]) + ZERO_POINT, 0, 255).astype(np.uint8)
    return bytes_, scales.astype(np.float32)


class Graph:
    """Collects the nodes and constants of the graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, operator: str, inputs: list[str], outputs: str | list[str], domain: str = "", **attributes) -> str:
        """Add a node and return its first output."""
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=f"{outputs[0]}.node", domain=domain, **attributes))
        return outputs[0]

    def matrix(self, x: str, weight: np.ndarray, name: str) -> str:
        """x times a weight that is stored as [inputs, outputs]."""
        bytes_, scales = quantize(weight.T)
        inputs = [x, self.constant(f"{name}.bytes", bytes_), self.constant(f"{name}.scales", scales)]
        return self.packed_matrix(inputs, weight.shape, name)

    def packed_matrix(self, inputs: list[str], shape: tuple[int, int], name: str) -> str:
        return self.node("MatMulNBits", inputs, name, MICROSOFT, K=shape[0], N=shape[1], bits=BITS, block_size=BLOCK, accuracy_level=4)


def _embedding(graph: Graph, shape: Shape, embedding: np.ndarray) -> tuple[str, list[str]]:
    """The embedded tokens, and the packed head, which is the same bytes with other scales.

    The model multiplies embedded tokens by the square root of its width: that is in the scales.
    """
    bytes_, scales = quantize(embedding)
    stored = graph.constant("embedding.bytes", bytes_.reshape(shape.vocabulary, shape.width))
    enlarged = graph.constant("embedding.scales", (scales * shape.width**0.5).astype(np.float32))
    embedded = graph.node("GatherBlockQuantized", [stored, "input_ids", enlarged], "embedded", MICROSOFT,
                          bits=BITS, block_size=BLOCK, gather_axis=0, quantize_axis=1)
    head_shape = graph.constant("head.shape", np.array(bytes_.shape, np.int64))
    head = graph.node("Reshape", [stored, head_shape], "head.bytes")
    return embedded, [head, graph.constant("head.scales", scales)]


def _norm(graph: Graph, x: str, added: str | None, weight: np.ndarray, shape: Shape, name: str) -> tuple[str, str]:
    """Norm of x + added. Returns the norm and the sum."""
    scale = graph.constant(f"{name}.weight", weight)
    if added is None:
        graph.node("SimplifiedLayerNormalization", [x, scale], name, axis=-1, epsilon=shape.norm_epsilon, stash_type=1)
        return name, x
    total = f"{name}.sum"
    graph.node("SkipSimplifiedLayerNormalization", [x, added, scale], [name, "", "", total], MICROSOFT, epsilon=shape.norm_epsilon)
    return name, total


def _attention(graph: Graph, shape: Shape, weights: Weights, layer: int, x: str) -> str:
    qkv = np.concatenate([weights[f"{layer}.{part}"] for part in ("query", "key", "value")], 1)
    packed = graph.matrix(x, qkv, f"{layer}.qkv")
    past, present = ([f"{when}.{layer}.{part}" for part in ("key", "value")] for when in ("past", "present"))
    mixed = graph.node(
        "GroupQueryAttention",
        [packed, "", "", *past, "seqlens_k", "total_sequence_length", "rope.cosine", "rope.sine"],
        [f"{layer}.mixed", *present],
        MICROSOFT, num_heads=shape.heads, kv_num_heads=shape.kv_heads, do_rotary=1,
    )
    return graph.matrix(mixed, weights[f"{layer}.output"], f"{layer}.attention")


def _mlp(graph: Graph, shape: Shape, weights: Weights, layer: int, x: str) -> str:
    both = graph.matrix(x, np.concatenate([weights[f"{layer}.gate"], weights[f"{layer}.up"]], 1), f"{layer}.gate_up")
    gate, up = f"{layer}.gate", f"{layer}.up"
    graph.node("Split", [both], [gate, up], axis=-1, num_outputs=2)
    # With alpha 1, QuickGelu is x * sigmoid(x), which is SiLU.
    active = graph.node("QuickGelu", [gate], f"{layer}.active", MICROSOFT, alpha=1.0)
    gated = graph.node("Mul", [active, up], f"{layer}.gated")
    return graph.matrix(gated, weights[f"{layer}.down"], f"{layer}.mlp")


def build(shape: Shape, weights: Weights) -> onnx.ModelProto:
    """The whole graph."""
    graph = Graph()
    angles = rope_angles(shape)
    graph.constant("rope.cosine", np.cos(angles).astype(np.float32))
    graph.constant("rope.sine", np.sin(angles).astype(np.float32))
    x, head = _embedding(graph, shape, weights["embedding"])
    added = None
    for layer in range(shape.layers):
        y, x = _norm(graph, x, added, weights[f"{layer}.attention_norm"], shape, f"{layer}.attention_norm")
        added = _attention(graph, shape, weights, layer, y)
        y, x = _norm(graph, x, added, weights[f"{layer}.mlp_norm"], shape, f"{layer}.mlp_norm")
        added = _mlp(graph, shape, weights, layer, y)
    y, _ = _norm(graph, x, added, weights["final_norm"], shape, "final_norm")
    flat = graph.node("Reshape", [y, graph.constant("flat.shape", np.array([-1, shape.width], np.int64))], "flat")
    rows = graph.node("Gather", [flat, "logit_rows"], "rows", axis=0)
    graph.packed_matrix([rows, *head], (shape.width, shape.vocabulary), "logits")
    return _model(graph, shape)


def _model(graph: Graph, shape: Shape) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
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
    body = helper.make_graph(graph.nodes, "zerohop-tiny", inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(body, opset_imports=opsets, ir_version=IR_VERSION, producer_name="zerohop-tiny-recipe")


def configuration(shape: Shape) -> dict:
    """config.json, with the names that Hugging Face uses."""
    return {
        "model_type": "zerohop-tiny",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "hidden_act": "silu",
        "max_position_embeddings": shape.max_positions,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.norm_epsilon,
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "eos_token_id": END,
        "pad_token_id": PAD,
    }


def export(shape: Shape, weights: Weights, folder: Path) -> None:
    """Write model.onnx and config.json."""
    onnx.save(build(shape, weights), folder / "model.onnx")
    (folder / "config.json").write_text(json.dumps(configuration(shape), indent=2) + "\n")
