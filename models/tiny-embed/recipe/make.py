"""Makes the bundled encoder from all-MiniLM-L6-v2:  python make.py --teacher FOLDER --out FOLDER

Each word piece gets one vector: what the teacher makes of it alone, turned to its main directions,
and weighted by how rare it is. A text's vector is the mean of its pieces' vectors. Nothing is
trained, so the recipe gives the same bytes each time on the same machine.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

from table import TABLE

# Pieces with the lowest ids, which are the commonest of the teacher's vocabulary; then they are
# numbered anew.
PIECES = 10_500
DIMENSIONS = 64
CONTEXT = 512
SPECIAL = ["[PAD]", "[UNK]"]
# Weight of a piece of the frequency p: A / (A + p). Frequencies by Zipf's law over the ids.
A = 0.0003
BATCH = 256
OPSET, IR_VERSION = 20, 10
LIMIT_BYTES = 1_000_000
# Of the lines of the table, at most so many may be ranked wrong.
MISSES = 1


def is_kept(piece: str) -> bool:
    """Latin letters, digits and signs: the other scripts have single characters only in this vocabulary."""
    return piece.isascii() and not piece.startswith("[unused") and piece not in ("[CLS]", "[SEP]", "[MASK]", *SPECIAL)


def choose(vocabulary: dict[str, int]) -> list[str]:
    ordered = sorted(vocabulary, key=vocabulary.get)
    return SPECIAL + [piece for piece in ordered if is_kept(piece)][: PIECES - len(SPECIAL)]


def tokenizer_of(teacher: dict, pieces: list[str]) -> dict:
    """The teacher's tokenizer with these pieces, and without marks around a text."""
    added = [{"id": number, "content": piece, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
             for number, piece in enumerate(SPECIAL)]
    model = dict(teacher["model"], vocab={piece: number for number, piece in enumerate(pieces)})
    return dict(teacher, truncation=None, padding=None, post_processor=None, added_tokens=added, model=model)


def teach(teacher: Path, vocabulary: dict[str, int], pieces: list[str]) -> np.ndarray:
    """The teacher's vector of each piece between its marks: f32[pieces, width]."""
    session = onnxruntime.InferenceSession(teacher / "model.onnx", providers=["CPUExecutionProvider"])
    begin, end = vocabulary["[CLS]"], vocabulary["[SEP]"]
    vectors = []
    for start in range(0, len(pieces), BATCH):
        ids = np.array([[begin, vocabulary[piece], end] for piece in pieces[start : start + BATCH]], np.int64)
        vectors.append(session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0].mean(1))
    return np.concatenate(vectors)


def reduce(vectors: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Main directions, weighted by rarity: f32[pieces, DIMENSIONS]."""
    centred = vectors - vectors.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    turned = centred @ directions[:DIMENSIONS].T
    frequency = 1 / (ranks + 1.0)
    frequency /= frequency.sum()
    turned *= (A / (A + frequency))[:, None]
    return turned.astype(np.float32)


def export(vectors: np.ndarray, out: Path) -> None:
    """An int8 table with a scale for each row, behind the contract for sentence encoders."""
    scales = np.maximum(np.abs(vectors).max(1, keepdims=True), 1e-6) / 127
    table = np.round(vectors / scales).astype(np.int8)
    constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(scales.astype(np.float32), "scales"),
                 numpy_helper.from_array(np.array([2], np.int64), "axis")]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Cast", ["rows"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Gather", ["scales", "input_ids"], ["factors"]),
        helper.make_node("Mul", ["wide", "factors"], ["unmasked"]),
        helper.make_node("Cast", ["attention_mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["kept", "axis"], ["kept.wide"]),
        helper.make_node("Mul", ["unmasked", "kept.wide"], ["token_embeddings"]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "seq"]) for name in ("input_ids", "attention_mask")]
    output = helper.make_tensor_value_info("token_embeddings", TensorProto.FLOAT, ["batch", "seq", DIMENSIONS])
    graph = helper.make_graph(nodes, "encoder", inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    onnx.save(model, out / "model.onnx")


def check(out: Path) -> None:
    """In the lines of the table the first sentence is nearer to the second than to any other line's."""
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    session = onnxruntime.InferenceSession(out / "model.onnx", providers=["CPUExecutionProvider"])

    def vector(text: str) -> np.ndarray:
        ids = np.array([tokenizer.encode(text).ids], np.int64)
        mean = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0].mean(0)
        return mean / np.linalg.norm(mean)

    likeness = np.stack([vector(one) for one, _ in TABLE]) @ np.stack([vector(other) for _, other in TABLE]).T
    right = [line for line in range(len(TABLE)) if likeness[line].argmax() == line]
    others = likeness[~np.eye(len(TABLE), dtype=bool)]
    print(f"{len(right)} of {len(TABLE)} lines right; related {likeness.diagonal().mean():.3f}, others {others.mean():.3f}")
    for line in sorted(set(range(len(TABLE))) - set(right)):
        print(f"  {TABLE[line]} against {TABLE[likeness[line].argmax()][1]!r}")
    if len(right) + MISSES < len(TABLE):
        raise SystemExit("the encoder does not rank the table")
    size = sum((out / file).stat().st_size for file in ("model.onnx", "tokenizer.json", "config.json"))
    if size > LIMIT_BYTES:
        raise SystemExit(f"{size} bytes are more than {LIMIT_BYTES}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--teacher", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent, help="folder of the model")
    arguments = parser.parse_args()
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    teacher = json.loads((arguments.teacher / "tokenizer.json").read_text())
    vocabulary = teacher["model"]["vocab"]
    pieces = choose(vocabulary)
    tokenizer = json.dumps(tokenizer_of(teacher, pieces), ensure_ascii=False, separators=(",", ":"))
    (out / "tokenizer.json").write_text(tokenizer + "\n")
    config = {"model_type": "zerohop-tiny-embed", "vocab_size": len(pieces), "hidden_size": DIMENSIONS,
              "max_position_embeddings": CONTEXT, "pad_token_id": 0, "pooling": "mean"}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    export(reduce(teach(arguments.teacher, vocabulary, pieces), np.arange(len(pieces))), out)
    check(out)


if __name__ == "__main__":
    sys.exit(main())
