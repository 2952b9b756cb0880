"""llama.cpp's side of `cargo xtask bench engine`: runs what it is asked to on standard input, and tells what it cost.

    python llama.py MODEL.gguf THREADS

A line `prefill TOKENS` computes a prompt and the logits of its last token; `decode BATCH CONTEXT STEPS` computes so many
steps of one token for each of BATCH sequences that have CONTEXT tokens each, with logits for all. `text TOKENS PROMPT`
continues a prompt, a JSON string, greedily. It never samples while it measures. Invariant: each answer is one line of
JSON; `cpu` is the time of all threads, in seconds.

    python llama.py --requantize MODEL.gguf OUT.gguf

stores a model's weights in 8 bits (Q8_0).
"""

import ctypes
import json
import sys
import time
from pathlib import Path

import llama_cpp as llama
import numpy as np

MOST_SEQUENCES, CONTEXT_TOKENS = 16, 512


class Model:
    """A loaded model with room for MOST_SEQUENCES sequences of CONTEXT_TOKENS tokens."""

    def __init__(self, path: Path, threads: int) -> None:
        quiet = llama.llama_log_callback(lambda *_: None)
        self.keep = quiet
        llama.llama_log_set(quiet, ctypes.c_void_p(0))
        llama.llama_backend_init()
        self.model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"error: llama.cpp cannot load {path}")
        parameters = llama.llama_context_default_params()
        parameters.n_ctx = MOST_SEQUENCES * CONTEXT_TOKENS
        parameters.n_batch = parameters.n_ubatch = CONTEXT_TOKENS
        parameters.n_seq_max = MOST_SEQUENCES
        parameters.n_threads = parameters.n_threads_batch = threads
        # Each sequence attends to its own keys only; else all are masked for each, and a batch costs more.
        parameters.kv_unified = False
        self.context = llama.llama_init_from_model(self.model, parameters)
        self.memory = llama.llama_get_memory(self.context)
        self.vocabulary = llama.llama_model_get_vocab(self.model)
        self.width = llama.llama_vocab_n_tokens(self.vocabulary)
        self.batch = llama.llama_batch_init(CONTEXT_TOKENS, 0, 1)

    def run(self, entries: list[tuple[int, int, int, bool]]) -> None:
        """Tokens as (id, position, sequence, whether its logits are wanted)."""
        self.batch.n_tokens = len(entries)
        for row, (token, position, sequence, wanted) in enumerate(entries):
            self.batch.token[row], self.batch.pos[row] = token, position
            self.batch.n_seq_id[row], self.batch.seq_id[row][0] = 1, sequence
            self.batch.logits[row] = wanted
        if llama.llama_decode(self.context, self.batch) != 0:
            raise SystemExit("error: llama.cpp cannot compute a batch")
        llama.llama_synchronize(self.context)

    def prompt(self, ids: list[int]) -> None:
        """Computes a prompt for the first sequence, which is empty."""
        last = len(ids) - 1
        self.run([(token, at, 0, at == last) for at, token in enumerate(ids)])

    def clear(self) -> None:
        llama.llama_memory_clear(self.memory, True)

    def logits(self, row: int) -> np.ndarray:
        return np.ctypeslib.as_array(llama.llama_get_logits_ith(self.context, row), (self.width,))

    def ids(self, text: str) -> list[int]:
        """The ids of a text, with control tokens where it spells them."""
        raw = text.encode()
        found = (llama.llama_token * (len(raw) + 1))()
        count = llama.llama_tokenize(self.vocabulary, raw, len(raw), found, len(found), False, True)
        return list(found[:count])

    def text(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        length = llama.llama_token_to_piece(self.vocabulary, token, buffer, len(buffer), 0, False)
        return buffer.raw[: max(0, length)]


def filler(count: int) -> list[int]:
    """Ids of ordinary pieces, always the same ones."""
    return np.random.default_rng(1).integers(1_000, 200_000, count).tolist()


def measured(tokens: int, work) -> dict[str, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return {"tokens": tokens, "cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def prefill(model: Model, tokens: int) -> dict[str, float]:
    model.clear()
    return measured(tokens, lambda: model.prompt(filler(tokens)))


def decode(model: Model, batch: int, context: int, steps: int) -> dict[str, float]:
    model.clear()
    model.prompt(filler(context))
    for sequence in range(1, batch):
        llama.llama_memory_seq_cp(model.memory, 0, sequence, -1, -1)

    def work() -> None:
        for step in range(steps):
            model.run([(1_000 + step, context + step, sequence, True) for sequence in range(batch)])

    return measured(batch * steps, work)


def continued(model: Model, tokens: int, prompt: str) -> dict[str, str]:
    model.clear()
    ids = [llama.llama_vocab_bos(model.vocabulary), *model.ids(prompt)]
    model.prompt(ids)
    row, out = len(ids) - 1, b""
    for step in range(tokens):
        token = int(model.logits(row).argmax())
        if llama.llama_vocab_is_eog(model.vocabulary, token):
            break
        out += model.text(token)
        model.run([(token, len(ids) + step, 0, True)])
        row = 0
    return {"text": out.decode(errors="replace")}


def answer(model: Model, line: str) -> dict:
    verb, _, rest = line.strip().partition(" ")
    match verb:
        case "prefill":
            return prefill(model, int(rest))
        case "decode":
            return decode(model, *map(int, rest.split()))
        case "text":
            tokens, _, prompt = rest.partition(" ")
            return continued(model, int(tokens), json.loads(prompt))
    raise SystemExit(f"error: unknown request {line!r}")


def requantize(model: str, out: str) -> None:
    parameters = llama.llama_model_quantize_default_params()
    parameters.ftype, parameters.allow_requantize = llama.LLAMA_FTYPE_MOSTLY_Q8_0, True
    if llama.llama_model_quantize(model.encode(), out.encode(), ctypes.byref(parameters)) != 0:
        raise SystemExit(f"error: llama.cpp cannot store {model} in 8 bits")


def main() -> None:
    if sys.argv[1] == "--requantize":
        requantize(*sys.argv[2:])
        return
    model = Model(Path(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps({"version": llama.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(model, line)), flush=True)


if __name__ == "__main__":
    main()
