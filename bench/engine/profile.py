"""Where the time of a step goes:  python profile.py MODEL_DIRECTORY

Runs the graph of a model directory alone, on one thread, under ONNX Runtime's profiler, and prints a line of JSON for each
kind of step. It never goes through the engine. Invariant: the shares of a line are of the time inside nodes and sum up to 1.
"""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime

CONTEXT, ROOM, STEPS = 128, 512, 6
CASES = [("prefill of 256 tokens", 1, 256, 0)] + [(f"decode, batch {batch}", batch, 1, CONTEXT) for batch in (1, 4, 8, 16)]
KINDS = {"MatMulNBits": "matrices", "MatMulIntegerToFloat": "matrices", "GroupQueryAttention": "attention", "SimplifiedLayerNormalization": "norms",
         "SkipSimplifiedLayerNormalization": "norms"}


def session(folder: Path, scratch: Path, number: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = str(scratch / f"profile-{number}")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])


def run(model: onnxruntime.InferenceSession, batch: int, length: int, before: int) -> None:
    """Steps of the same shape, keys and values in place."""
    ids = np.random.default_rng(1).integers(0, model.get_outputs()[0].shape[1], (batch, length))
    binding = model.io_binding()
    binding.bind_cpu_input("input_ids", ids)
    binding.bind_cpu_input("seqlens_k", np.full(batch, before + length - 1, np.int32))
    binding.bind_cpu_input("total_sequence_length", np.array(before + length, np.int32))
    binding.bind_cpu_input("logit_rows", np.arange(batch) if length == 1 else np.array([length - 1]))
    binding.bind_output("logits")
    for value in model.get_inputs():
        if value.name.startswith("past."):
            sizes = (batch, value.shape[1], ROOM, value.shape[3])
            buffer = onnxruntime.OrtValue.ortvalue_from_numpy(np.full(sizes, 0.1, np.float32))
            binding.bind_ortvalue_input(value.name, buffer)
            binding.bind_ortvalue_output(value.name.replace("past", "present"), buffer)
    for _ in range(STEPS):
        model.run_with_iobinding(binding)


def shares(profile: Path) -> Counter:
    """Microseconds by kind, the first step left out."""
    events = [event for event in json.loads(profile.read_text()) if event.get("cat") == "Node"]
    times, last = Counter(), Counter()
    for event in events:
        name = event["name"]
        if not name.endswith("_kernel_time"):
            continue
        last[name] += 1
        if last[name] == 1:
            continue
        kind = "head" if name.startswith("logits") else KINDS.get(event["args"]["op_name"], "rest")
        times[kind] += event["dur"]
    return times


def main() -> None:
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        for number, (what, batch, length, before) in enumerate(CASES):
            model = session(folder, Path(scratch), number)
            run(model, batch, length, before)
            times = shares(Path(model.end_profiling()))
            total = sum(times.values())
            print(json.dumps({"what": what} | {kind: times[kind] / total for kind in ("head", "matrices", "attention", "norms", "rest")}))


if __name__ == "__main__":
    main()
