"""Checks that the files keep what the engine relies on; any failure stops the build.

That no wording is in both splits, the names and types of the graph, that a sequence in a batch gives the same numbers as alone, that
a prompt may come in chunks, and that the chat template and the training text agree.
"""

from pathlib import Path
from random import Random

import jinja2
import numpy as np
import onnx
from onnx import TensorProto

import corpus
import dialogue
import phrases
import tokens
from generate import Generator

LIMIT_BYTES = 4_000_000


def check(folder: Path) -> None:
    """Run all checks."""
    _splits()
    _graph(folder)
    _tokenizer(folder)
    _template(folder)
    _runs(folder)
    _size(folder)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise SystemExit(f"contract broken: {what}")


def _splits() -> None:
    """No wording that the evaluation uses is trained on, not even with other capitals or stops."""
    tables = [value for value in vars(phrases).values() if isinstance(value, phrases.Phrases)]
    tables += [entry.questions for entry in dialogue.FIXED] + [dialogue.UNKNOWN, dialogue.SYSTEM_PROMPTS]
    plain = lambda texts: {text.lower().rstrip(".?! \n") for text in texts}
    trained = set().union(*(plain(table.train) for table in tables))
    for table in tables:
        both = plain(table.held_out) & trained
        _require(not both, f"wordings in both splits: {both}")


def _graph(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    layers = Generator(folder).config["num_hidden_layers"]
    kinds = {value.name: value.type.tensor_type.elem_type for value in [*model.graph.input, *model.graph.output]}
    wanted = {
        "input_ids": TensorProto.INT64, "seqlens_k": TensorProto.INT32, "total_sequence_length": TensorProto.INT32,
        "logit_rows": TensorProto.INT64, "logits": TensorProto.FLOAT,
    } | {
        f"{when}.{layer}.{part}": TensorProto.FLOAT
        for when in ("past", "present") for layer in range(layers) for part in ("key", "value")
    }
    _require(kinds == wanted, f"inputs and outputs are {sorted(kinds)}")


def _tokenizer(folder: Path) -> None:
    tokenizer = tokens.Encoder(folder / "tokenizer.json").tokenizer
    for number, token in enumerate(tokens.SPECIAL_TOKENS):
        _require(tokenizer.token_to_id(token) == number, f"{token} is not token {number}")
        _require(tokenizer.encode(token).ids == [number], f"{token} is not read as one token")
    _require(tokenizer.get_vocab_size() == tokens.VOCABULARY, "size of the vocabulary")
    for text in ["2027", "a 15 b", "naïve 東京 😀\r\n\t", "  two  blanks  "]:
        ids = tokenizer.encode(text).ids
        _require(tokenizer.decode(ids) == text, f"{text!r} does not come back")
        pieces = [tokenizer.decode([one]) for one in ids]
        _require(all(len(piece) == 1 for piece in pieces if any(map(str.isdigit, piece))), f"digits of {text!r} stick together")


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _template(folder: Path) -> None:
    environment = jinja2.Environment()
    environment.globals["raise_exception"] = _refuse
    template = environment.from_string((folder / "chat_template.jinja").read_text())
    encoder = tokens.Encoder(folder / "tokenizer.json")
    render = lambda messages, **more: encoder.tokenizer.encode(template.render(messages=messages, bos_token="<|bos|>", **more)).ids
    rng = Random(3)
    for _ in range(300):
        messages = corpus.conversation(rng)
        asked = messages[:-1]
        whole = encoder.conversations([messages])[0][0].tolist()
        _require(render(messages) == whole, f"template and encoder differ on {messages}")
        _require(render(asked, add_generation_prompt=True) == encoder.prompt(asked), f"open turn differs on {asked}")
        left_open = render(messages, add_generation_prompt=False, continue_final_message=True)
        _require(left_open == whole[:-1], f"continued turn differs on {messages}")
        parts = [{"role": one["role"], "content": [{"type": "text", "text": one["content"]}]} for one in messages]
        _require(render(parts) == whole, f"text parts differ on {messages}")


def _runs(folder: Path) -> None:
    """Four sequences alone, in chunks, and together in one batch give the same logits."""
    generator = Generator(folder)
    rng = Random(4)
    prompts = [generator.encoder.prompt(corpus.conversation(rng)[:-1]) for _ in range(4)]
    alone, caches = [], []
    for ids in prompts:
        cache = generator.cache(1)
        first = generator.run(cache, [ids], [0], [len(ids) - 1])
        following = int(first[0].argmax())
        alone.append(generator.run(cache, [[following]], [len(ids)], [0])[0])
        caches.append((cache, following))
        _require(first.shape == (1, tokens.VOCABULARY), "shape of the logits")
        _require(np.isfinite(first).all(), "logits that are not finite")

        chunked = generator.cache(1)
        half = len(ids) // 2
        nothing = generator.run(chunked, [ids[:half]], [0], [])
        _require(nothing.shape == (0, tokens.VOCABULARY), "a chunk without logit rows")
        second = generator.run(chunked, [ids[half:]], [half], [len(ids) - half - 1])
        _require(np.allclose(first, second, atol=1e-4), "a prompt in chunks")

    together = generator.cache(4)
    for name, buffer in together.items():
        buffer.update_inplace(np.concatenate([cache[name].numpy() for cache, _ in caches]))
    batched = generator.run(together, [[following] for _, following in caches], [len(ids) for ids in prompts], [0, 1, 2, 3])
    _require(np.allclose(batched, np.stack(alone), atol=1e-4), "a sequence in a batch differs from alone")


def _size(folder: Path) -> None:
    files = [file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    total = sum(file.stat().st_size for file in files)
    _require(total <= LIMIT_BYTES, f"{total} bytes are more than {LIMIT_BYTES}")
