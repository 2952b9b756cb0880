"""Moves scale between neighbouring matrices, so that fewer digits are lost when numbers share a scale.

What goes into a matrix has a few channels that are much greater than the others. Dividing a channel by a factor where it is
made, and multiplying the matrix's column by it, changes nothing of the result. The factors come from runs over short texts
in full precision. It never changes what the model computes. Invariant: a balanced source gives the same logits but for
rounding.
"""

from pathlib import Path

import numpy as np

import vocabulary
from runner import Runner
from source import Source

# What is measured in a layer: the inputs of its four kinds of matrices.
INPUTS = ("attention_norm", "mixed", "mlp_norm", "gated")
# Shares of the difference that the matrix takes; the rest stays in its input.
SHARE = 0.5
LONGEST = 400
TEXTS = [
    "The sun rises in the east and sets in the west. In 1850 the town had 300 inhabitants, most of them farmers; today it "
    "is a city of two million people with three universities.",
    "Il était une fois une petite fille qui vivait au bord de la forêt. Die Kinder spielen im Garten. Los niños juegan en el parque.",
    "Dear Ms. Smith, thank you for your letter of 3 May. We are pleased to inform you that your application was successful.",
    "<start_of_turn>user\nWhat is the tallest mountain?<end_of_turn>\n<start_of_turn>model\nMount Everest, at 8,849 metres.<end_of_turn>\n",
]


def measured(layers: int) -> list[str]:
    """Names of the tensors whose channels are measured."""
    return [f"{layer}.{name}" for layer in range(layers) for name in INPUTS]


def measure(runner: Runner) -> dict[str, np.ndarray]:
    """The greatest value of each channel over all texts, from a graph that has `measured` among its outputs.

    The first token is left out: its values have a size of their own.
    """
    names = measured(runner.config["num_hidden_layers"])
    texts = TEXTS + vocabulary.TEXTS + [file.read_text()[:1500] for file in sorted(Path(__file__).parent.glob("*.py"))]
    greatest = {name: np.float32(0) for name in names}
    for text in texts:
        ids = runner.encode(text)[:LONGEST]
        found = runner.run(runner.cache(1, len(ids)), [ids], [0], [0], names)
        for name, values in zip(names, found):
            greatest[name] = np.maximum(greatest[name], np.abs(values[0, 1:]).max(0))
    return greatest


class Balanced:
    """A source whose tensors are balanced."""

    def __init__(self, source: Source, greatest: dict[str, np.ndarray], layers: int) -> None:
        self.source = source
        self.changed: dict[str, np.ndarray] = {}
        for layer in range(layers):
            name = lambda part: f"blk.{layer}.{part}.weight"
            for norm, measured_name, matrices in (
                ("attn_norm", "attention_norm", ("attn_q", "attn_k", "attn_v")), ("ffn_norm", "mlp_norm", ("ffn_gate", "ffn_up")),
            ):
                self._move(greatest[f"{layer}.{measured_name}"], name(norm), [name(matrix) for matrix in matrices])
            self._move(greatest[f"{layer}.gated"], name("ffn_up"), [name("ffn_down")])
            self._move_heads(greatest[f"{layer}.mixed"], name("attn_v"), name("attn_output"))

    def field(self, name: str):
        return self.source.field(name)

    def token(self, text: str) -> int:
        return self.source.token(text)

    def tensor(self, name: str) -> np.ndarray:
        return self.changed[name] if name in self.changed else self.source.tensor(name)

    def _move(self, greatest: np.ndarray, maker: str, matrices: list[str]) -> None:
        factors = _factors(greatest, np.max([np.abs(self.tensor(matrix)).max(0) for matrix in matrices], 0))
        made = self.tensor(maker)
        self.changed[maker] = made / (factors if made.ndim == 1 else factors[:, None])
        for matrix in matrices:
            self.changed[matrix] = self.tensor(matrix) * factors

    def _move_heads(self, greatest: np.ndarray, maker: str, matrix: str) -> None:
        """The same for values, which all heads of queries read."""
        made, read = self.tensor(maker), self.tensor(matrix)
        heads = read.shape[1] // made.shape[0]
        columns = np.abs(read).max(0).reshape(heads, -1).max(0)
        factors = _factors(greatest.reshape(heads, -1).max(0), columns)
        self.changed[maker], self.changed[matrix] = made / factors[:, None], read * np.tile(factors, heads)


def _factors(inputs: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """By channel, around 1; a channel that is never used gets no extreme one."""
    inputs, columns = np.maximum(inputs, 1e-3 * inputs.max()), np.maximum(columns, 1e-6)
    factors = inputs ** (1 - SHARE) / columns**SHARE
    return (factors / np.exp(np.log(factors).mean())).astype(np.float32)
