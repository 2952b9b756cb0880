"""Checks what the recipe made; any failure stops it.

It never mends. That a sequence in a batch gives the numbers that it gives alone, that a prompt may come in chunks, and
that the chat template writes Gemma's turns. Names and types of the graph are the gateway's to check.
"""

from pathlib import Path
from random import Random

import jinja2
import numpy as np

from runner import Runner

SEQUENCES = 4
U, A, S = "user", "assistant", "system"
# Messages, whether a turn of the model is opened, and the text.
TEMPLATES = [
    ([(U, " Hi ")], True, "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"),
    ([(S, "Be kind."), (U, "Hi")], True, "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\n"),
    ([(U, "a"), (A, "b"), (S, "c"), (U, "d")], True,
     "<bos><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n<start_of_turn>user\nc\n\nd<end_of_turn>\n<start_of_turn>model\n"),
    ([(U, "a"), (A, "b")], False, "<bos><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\nb"),
    ([(U, [{"type": "text", "text": "a"}])], True, "<bos><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\n"),
    ([(S, "alone")], True, None),
    ([("tool", "a")], True, None),
    ([(U, [{"type": "image"}])], True, None),
]


def check(folder: Path) -> None:
    """Run all checks."""
    _template(folder)
    _runs(Runner(folder, threads=1))
    print("graph: alone, in chunks and in a batch the logits are the same", flush=True)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise SystemExit(f"error: broken: {what}")


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _template(folder: Path) -> None:
    environment = jinja2.Environment()
    environment.globals["raise_exception"] = _refuse
    template = environment.from_string((folder / "chat_template.jinja").read_text())
    for messages, opened, expected in TEMPLATES:
        shown = [{"role": role, "content": content} for role, content in messages]
        try:
            text = template.render(messages=shown, bos_token="<bos>", add_generation_prompt=opened, continue_final_message=not opened)
        except jinja2.TemplateError:
            text = None
        _require(text == expected, f"the template makes {text!r} of {messages}, not {expected!r}")


def _runs(runner: Runner) -> None:
    """Sequences of different lengths alone, in two chunks, and then one step together."""
    rng, longest = Random(4), 64
    prompts = [[runner.config["bos_token_id"], *(rng.randrange(1000, 200_000) for _ in range(5 + 13 * number))] for number in range(SEQUENCES)]
    alone, caches, following = [], [], []
    for ids in prompts:
        whole, chunked, half = runner.cache(1, longest), runner.cache(1, longest), len(ids) // 2
        first = runner.run(whole, [ids], [0], [len(ids) - 1])
        _require(bool(np.isfinite(first).all()), "logits that are not finite")
        _require(runner.run(chunked, [ids[:half]], [0], []).shape[0] == 0, "a chunk without rows of logits")
        second = runner.run(chunked, [ids[half:]], [half], [len(ids) - half - 1])
        _require(bool(np.allclose(first, second, atol=1e-3)), "a prompt in chunks differs from the whole")
        following.append([int(first[0].argmax())])
        alone.append(runner.run(whole, [following[-1]], [len(ids)], [0])[0])
        caches.append(whole)
    together = runner.cache(SEQUENCES, longest)
    for name, buffer in together.items():
        buffer.update_inplace(np.concatenate([cache[name].numpy() for cache in caches]))
    batched = runner.run(together, following, [len(ids) for ids in prompts], list(range(SEQUENCES)))
    _require(bool(np.allclose(batched, np.stack(alone), atol=1e-3)), "a sequence in a batch differs from alone")
