"""How much the stored bits change the model: compared with the same graph in full precision.

It never judges. Invariant: both read the same tokens, those of a prompt and of its continuation in full precision.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runner import Runner

CONTINUED = 32
PROMPTS = [
    "def factorial(n):\n", "Once upon a time", "The capital of France is", "Water boils at", "import numpy as np\n\n",
    "Dear Sir or Madam,\n\nI am writing to", "Ingredients:\n- 2 eggs\n- 200 g of flour\n", "The history of the Roman Empire begins",
    "{\"name\": \"Ada\", \"born\":", "Q: What is photosynthesis?\nA:", "In 1969, the first man", "SELECT name, age FROM users WHERE",
    "To be or not to be,", "Le petit prince est", "Der schnellste Weg nach Berlin", "東京は日本の", "El perro y el gato", "# Installation\n\nRun",
    "The theory of relativity states that", "1, 2, 3, 5, 8, 13,",
]


@dataclass(frozen=True)
class Difference:
    """Means over all positions, but for `greedy`: continuations of PROMPTS that are equal to the last token."""

    positions: int
    divergence: float
    same_first: float
    greedy: int


def _log_probabilities(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def compare(exact: Path, stored: Path) -> Difference:
    """Kullback-Leibler divergence of `stored` from `exact` in nats, and how often both have the same first choice."""
    first, second = Runner(exact), Runner(stored)
    divergences, same, greedy = [], [], 0
    for prompt in PROMPTS:
        ids = first.encode(prompt)
        written = first.continue_greedily(ids, CONTINUED)
        greedy += written == second.continue_greedily(ids, CONTINUED)
        ids, rows = ids + written, list(range(len(ids) + len(written)))
        a, b = (_log_probabilities(one.run(one.cache(1, len(ids)), [ids], [0], rows)) for one in (first, second))
        divergences += (np.exp(a) * (a - b)).sum(-1).tolist()
        same += (a.argmax(-1) == b.argmax(-1)).tolist()
    return Difference(len(same), float(np.mean(divergences)), float(np.mean(same)), greedy)
