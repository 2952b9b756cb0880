"""Runs the exported model in ONNX Runtime, greedily, one conversation at a time.

Used by the evaluation, and by hand:  python generate.py MODEL_FOLDER "What is the capital of Peru?"
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

from tokens import END, Encoder


class Generator:
    """A loaded model with the cache of one sequence."""

    def __init__(self, folder: Path, threads: int = 1):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        self.encoder = Encoder(folder / "tokenizer.json")
        self.config = json.loads((folder / "config.json").read_text())
        self.limit = self.config["max_position_embeddings"]
        self.past = self.cache(1)

    def cache(self, batch: int) -> dict[str, onnxruntime.OrtValue]:
        """Empty key and value buffers for a number of sequences."""
        sizes = (batch, self.config["num_key_value_heads"], self.limit, self.config["head_dim"])
        names = [f"past.{layer}.{part}" for layer in range(self.config["num_hidden_layers"]) for part in ("key", "value")]
        return {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(sizes, np.float32)) for name in names}

    def run(self, past: dict[str, onnxruntime.OrtValue], ids: list[list[int]], before: list[int], rows: list[int]) -> np.ndarray:
        """One run of the graph. `before` is how many tokens each sequence already has in the cache."""
        length = len(ids[0])
        binding = self.session.io_binding()
        binding.bind_cpu_input("input_ids", np.array(ids, np.int64))
        binding.bind_cpu_input("seqlens_k", np.array([count + length - 1 for count in before], np.int32))
        binding.bind_cpu_input("total_sequence_length", np.array(max(before) + length, np.int32))
        binding.bind_cpu_input("logit_rows", np.array(rows, np.int64))
        binding.bind_output("logits")
        for name, buffer in past.items():
            binding.bind_ortvalue_input(name, buffer)
            binding.bind_ortvalue_output(name.replace("past", "present"), buffer)
        self.session.run_with_iobinding(binding)
        return binding.get_outputs()[0].numpy()

    def continue_ids(self, ids: list[int], longest: int) -> list[int]:
        """The ids that follow, without the end token."""
        written: list[int] = []
        fresh, before = ids, 0
        while len(written) < longest and before + len(fresh) < self.limit:
            logits = self.run(self.past, [fresh], [before], [len(fresh) - 1])[0]
            before += len(fresh)
            following = int(logits.argmax())
            if following == END:
                break
            written.append(following)
            fresh = [following]
        return written

    def answer(self, messages: list[dict[str, str]], longest: int = 600) -> str:
        """The assistant's answer to a conversation."""
        return self.encoder.decode(self.continue_ids(self.encoder.prompt(messages), longest))


if __name__ == "__main__":
    generator = Generator(Path(sys.argv[1]))
    conversation = []
    for question in sys.argv[2:]:
        conversation.append({"role": "user", "content": question})
        conversation.append({"role": "assistant", "content": generator.answer(conversation)})
        print(f"> {question}\n{conversation[-1]['content']}")
