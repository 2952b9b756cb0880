"""Makes a model directory for CUDA of one for the CPU: keys and values in f16.

    python models/half.py models/tiny models/tiny-f16

Attention on CUDA takes f16 only. So the query, key and value of each GroupQueryAttention and its tables of angles are
cast to f16, and its result back to f32; the rest of the graph stays as it is. Needs the package `onnx` (1.22 was used).
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# The inputs of GroupQueryAttention that have its type, by their places.
TYPED_INPUTS = [0, 1, 2, 7, 8]


def halve(model: onnx.ModelProto) -> int:
    """Change the graph in place. Return how many attentions there are."""
    graph = model.graph
    constants = {constant.name: constant for constant in graph.initializer}
    cast: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []

    def half(name: str) -> str:
        """The value in f16: a constant of its own, or a cast before its first use."""
        if name not in cast:
            cast[name] = f"{name}.f16"
            if name in constants:
                value = numpy_helper.to_array(constants[name]).astype(np.float16)
                graph.initializer.append(numpy_helper.from_array(value, cast[name]))
            else:
                nodes.append(helper.make_node("Cast", [name], [cast[name]], name=f"{cast[name]}.node", to=TensorProto.FLOAT16))
        return cast[name]

    attentions = 0
    for node in graph.node:
        if node.op_type != "GroupQueryAttention":
            nodes.append(node)
            continue
        attentions += 1
        for place in TYPED_INPUTS:
            if place < len(node.input) and node.input[place]:
                node.input[place] = half(node.input[place])
        result = node.output[0]
        node.output[0] = f"{result}.f16"
        nodes.append(node)
        nodes.append(helper.make_node("Cast", [node.output[0]], [result], name=f"{result}.f32.node", to=TensorProto.FLOAT))
    del graph.node[:]
    graph.node.extend(nodes)
    for value in [*graph.input, *graph.output]:
        if value.name.startswith(("past.", "present.")):
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    used = {name for node in graph.node for name in node.input}
    unused = [constant for constant in graph.initializer if constant.name not in used]
    for constant in unused:
        graph.initializer.remove(constant)
    return attentions


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    model = onnx.load(source / "model.onnx")
    if halve(model) == 0:
        sys.exit(f"{source}: no GroupQueryAttention in model.onnx")
    target.mkdir(parents=True, exist_ok=True)
    onnx.save(model, target / "model.onnx")
    for name in ["tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja"]:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


if __name__ == "__main__":
    main()
