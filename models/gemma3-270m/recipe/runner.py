"""Runs an exported model in ONNX Runtime, for the recipe's checks and comparisons.

It never samples. Invariant: keys and values are written in place, as the engine has it.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

Cache = dict[str, onnxruntime.OrtValue]


class Runner:
    """A loaded model directory."""

    def __init__(self, folder: Path, threads: int = 2) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # As the gateway has it: sums of bytes that are exact on processors without VNNI too.
        options.add_session_config_entry("session.x64quantprecision", "1")
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        self.config = json.loads((folder / "config.json").read_text())
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(self, text: str) -> list[int]:
        return [self.config["bos_token_id"], *self.tokenizer.encode(text, add_special_tokens=False).ids]

    def cache(self, batch: int, tokens: int) -> Cache:
        """Empty keys and values for a number of sequences of at most `tokens`."""
        sizes = (batch, self.config["num_key_value_heads"], tokens, self.config["head_dim"])
        names = [f"past.{layer}.{part}" for layer in range(self.config["num_hidden_layers"]) for part in ("key", "value")]
        return {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(sizes, np.float32)) for name in names}

    def run(self, past: Cache, ids: list[list[int]], before: list[int], rows: list[int], others: list[str] = ()):
        """The logits of `rows` of one run, or the outputs `others`. `before` is how many tokens each sequence has cached."""
        length = len(ids[0])
        binding = self.session.io_binding()
        binding.bind_cpu_input("input_ids", np.array(ids, np.int64))
        binding.bind_cpu_input("seqlens_k", np.array([count + length - 1 for count in before], np.int32))
        binding.bind_cpu_input("total_sequence_length", np.array(max(before) + length, np.int32))
        binding.bind_cpu_input("logit_rows", np.array(rows, np.int64))
        for name in others or ["logits"]:
            binding.bind_output(name)
        for name, buffer in past.items():
            binding.bind_ortvalue_input(name, buffer)
            binding.bind_ortvalue_output(name.replace("past", "present"), buffer)
        self.session.run_with_iobinding(binding)
        found = [value.numpy() for value in binding.get_outputs()[: len(others) or 1]]
        return found if others else found[0]

    def continue_greedily(self, ids: list[int], count: int) -> list[int]:
        """The ids that follow, up to an end token."""
        past, written, fresh, before = self.cache(1, len(ids) + count), [], ids, 0
        while len(written) < count:
            logits = self.run(past, [fresh], [before], [len(fresh) - 1])[0]
            before += len(fresh)
            fresh = [int(logits.argmax())]
            if fresh[0] in self.config["eos_token_id"]:
                break
            written += fresh
        return written
