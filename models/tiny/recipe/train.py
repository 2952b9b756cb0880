"""Training: packs conversations into windows and fits the model to what the assistant writes.

Conversations are packed side by side in a window, but attend only to themselves. Positions jump
ahead between some messages, so that the model also works far behind the start of a long prompt.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import optax

import corpus
from model import Parameters, Shape, hidden_states, initial_parameters
from tokens import PAD, Encoder

# Share of conversations in which positions jump, and by how many positions at most.
JUMPING_SHARE = 0.25
LONGEST_JUMP = 1500
# How much a token that the assistant does not write counts.
OTHER_TOKEN_WEIGHT = 0.1
# Share of a batch's tokens that go through the output head; the assistant's come first.
HEAD_SHARE = 0.5


@dataclass(frozen=True)
class Phase:
    """A stretch of training with one window length."""

    steps: int
    windows: int
    length: int


@dataclass(frozen=True)
class Plan:
    """The whole training. Learning rates rise over `warm_up` steps, hold, then fall to zero over the last `decay` share."""

    phases: tuple[Phase, ...] = (
        Phase(steps=4500, windows=16, length=128),
        Phase(steps=1500, windows=8, length=256),
        Phase(steps=800, windows=4, length=512),
    )
    muon_rate: float = 0.02
    adam_rate: float = 0.003
    weight_decay: float = 0.1
    warm_up: int = 100
    decay: float = 0.5
    seed: int = 1

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)


Sample = tuple[np.ndarray, np.ndarray, np.ndarray]


def samples(encoder: Encoder, seed: int) -> Iterator[Sample]:
    """An endless stream of encoded conversations and plain texts."""
    rng = Random(seed)
    while True:
        talks, texts = [], []
        for _ in range(4000):
            if rng.random() < corpus.PLAIN_TEXT_SHARE:
                texts.append(corpus.plain_text(rng))
            else:
                talks.append(corpus.conversation(rng))
        encoded = encoder.conversations(talks) + encoder.texts(texts)
        rng.shuffle(encoded)
        yield from encoded


class Window:
    """A row of a batch under construction."""

    def __init__(self, length: int):
        self.tokens = np.full(length, PAD, np.int32)
        self.segments = np.zeros(length, np.int32)
        self.positions = np.zeros(length, np.int32)
        self.written = np.zeros(length, bool)
        self.used = 0
        self.count = 0

    def room(self) -> int:
        return len(self.tokens) - self.used

    def add(self, sample: Sample, positions: np.ndarray) -> None:
        tokens, written, _ = sample
        self.count += 1
        place = slice(self.used, self.used + len(tokens))
        self.tokens[place] = tokens
        self.segments[place] = self.count
        self.positions[place] = positions
        self.written[place] = written
        self.used = place.stop


def _positions(rng: np.random.Generator, numbers: np.ndarray, limit: int) -> np.ndarray:
    """Positions of a conversation's tokens, now and then with a jump before one message."""
    positions = np.arange(len(numbers))
    if rng.random() < JUMPING_SHARE and numbers[-1] > 0:
        message = rng.integers(1, numbers[-1] + 1)
        positions = positions + np.where(numbers >= message, rng.integers(1, LONGEST_JUMP), 0)
    return np.minimum(positions, limit - 1)


def _fitting(sample: Sample, length: int) -> Sample | None:
    """As many whole messages as fit into a window; none if that leaves nothing to learn."""
    tokens, written, numbers = sample
    if len(tokens) > length:
        kept = int(np.searchsorted(numbers, numbers[length]))
        if numbers[length] == 0 or not written[:kept].any():
            return None
        sample = tokens[:kept], written[:kept], numbers[:kept]
    return sample


def windows(source: Iterator[Sample], shape: Shape, length: int, seed: int) -> Iterator[Window]:
    """Windows filled as well as a look at a few open ones allows."""
    rng = np.random.default_rng(seed)
    open_windows: list[Window] = []
    for sample in source:
        sample = _fitting(sample, length)
        if sample is None:
            continue
        fitting = [window for window in open_windows if window.room() >= len(sample[0])]
        if fitting:
            window = min(fitting, key=Window.room)
        else:
            window = Window(length)
            open_windows.append(window)
        window.add(sample, _positions(rng, sample[2], shape.max_positions))
        if window.room() < 16:
            open_windows.remove(window)
            yield window
        elif len(open_windows) > 64:
            yield open_windows.pop(0)


Batch = dict[str, np.ndarray]


def batches(encoder: Encoder, shape: Shape, phase: Phase, seed: int) -> Iterator[Batch]:
    """Batches of a phase."""
    rng = np.random.default_rng(seed)
    stream = windows(samples(encoder, seed), shape, phase.length, seed)
    head_rows = int(phase.windows * phase.length * HEAD_SHARE)
    while True:
        rows = [next(stream) for _ in range(phase.windows)]
        stack = lambda name: np.stack([getattr(row, name) for row in rows])
        tokens, segments, positions, written = map(stack, ["tokens", "segments", "positions", "written"])
        targets = np.roll(tokens, -1, 1).reshape(-1)
        following = np.roll(segments, -1, 1)
        following[:, -1] = 0
        learnable = ((segments == following) & (segments > 0)).reshape(-1)
        to_write = learnable & np.roll(written, -1, 1).reshape(-1)
        first = rng.permutation(np.flatnonzero(to_write))
        others = rng.permutation(np.flatnonzero(~to_write))
        chosen = np.sort(np.concatenate([first, others])[:head_rows])
        weights = np.where(to_write, 1.0, np.where(learnable, OTHER_TOKEN_WEIGHT, 0.0))[chosen]
        yield {
            "tokens": tokens, "segments": segments, "positions": positions, "chosen": chosen.astype(np.int32),
            "targets": targets[chosen], "weights": (weights / weights.sum()).astype(np.float32),
        }


def loss(shape: Shape, parameters: Parameters, batch: Batch) -> jax.Array:
    """Weighted cross entropy of the chosen tokens."""
    segments = batch["segments"]
    length = segments.shape[1]
    allowed = (segments[:, :, None] == segments[:, None, :]) & jnp.tril(jnp.ones((length, length), bool))
    states = hidden_states(shape, parameters, batch["tokens"], batch["positions"], allowed)[batch["chosen"]]
    embedding = parameters["embedding"]
    logits = states @ embedding.T
    wanted = (states * embedding[batch["targets"]]).sum(-1)
    return ((jax.nn.logsumexp(logits, -1) - wanted) * batch["weights"]).sum()


def optimizer(plan: Plan, parameters: Parameters) -> optax.GradientTransformation:
    """Muon for the matrices inside the layers, Adam for the embedding and the norms."""

    def schedule(peak: float) -> optax.Schedule:
        falling = int(plan.steps * plan.decay)
        return optax.join_schedules(
            [optax.linear_schedule(0, peak, plan.warm_up), optax.constant_schedule(peak), optax.linear_schedule(peak, 0, falling)],
            [plan.warm_up, plan.steps - falling],
        )

    dimensions = optax.contrib.MuonDimensionNumbers()
    uses_muon = {
        name: dimensions if value.ndim == 2 and name != "embedding" else None for name, value in parameters.items()
    }
    return optax.contrib.muon(
        schedule(plan.muon_rate),
        weight_decay=plan.weight_decay,
        adam_b2=0.99,
        adam_learning_rate=schedule(plan.adam_rate),
        muon_weight_dimension_numbers=uses_muon,
    )


def train(shape: Shape, plan: Plan, tokenizer_file: Path) -> dict[str, np.ndarray]:
    """Train from nothing and return the weights."""
    encoder = Encoder(tokenizer_file)
    parameters = initial_parameters(shape, plan.seed)
    rule = optimizer(plan, parameters)
    state = rule.init(parameters)

    @jax.jit
    def step(parameters, state, batch):
        value, gradients = jax.value_and_grad(lambda p: loss(shape, p, batch))(parameters)
        updates, state = rule.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    print(f"training {sum(value.size for value in parameters.values()):,} parameters for {plan.steps} steps", flush=True)
    started, done, recent = time.monotonic(), 0, []
    for number, phase in enumerate(plan.phases):
        stream = batches(encoder, shape, phase, plan.seed * 100 + number)
        for _ in range(phase.steps):
            parameters, state, value = step(parameters, state, next(stream))
            recent.append(value)
            done += 1
            if done % 200 == 0:
                mean = float(np.mean(recent))
                recent = []
                print(f"step {done:5} loss {mean:.4f} {time.monotonic() - started:6.0f} s", flush=True)
    return {name: np.asarray(value) for name, value in parameters.items()}
