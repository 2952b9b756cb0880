"""The model in JAX: a small decoder in the manner of Llama, used for training only.

`export.py` writes the same computation as an ONNX graph. Weights are stored as [inputs, outputs];
the embedding is also the output head.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from tokens import VOCABULARY

Parameters = dict[str, jax.Array]


@dataclass(frozen=True)
class Shape:
    """The sizes of the model."""

    vocabulary: int = VOCABULARY
    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 32
    hidden: int = 384
    max_positions: int = 2048
    rope_theta: float = 10000.0
    norm_epsilon: float = 1e-6

    @property
    def query_width(self) -> int:
        return self.heads * self.head_width

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_width


def rope_angles(shape: Shape) -> np.ndarray:
    """The angle by which each pair of a head's numbers is turned, per position."""
    frequencies = 1.0 / shape.rope_theta ** (np.arange(0, shape.head_width, 2) / shape.head_width)
    return np.arange(shape.max_positions)[:, None] * frequencies[None, :]


def initial_parameters(shape: Shape, seed: int) -> Parameters:
    """Small random weights; what is added to the residual stream starts at zero."""
    rng = np.random.default_rng(seed)

    def matrix(inputs: int, outputs: int) -> jax.Array:
        return jnp.asarray(rng.normal(0, inputs**-0.5, (inputs, outputs)), jnp.float32)

    parameters = {
        "embedding": jnp.asarray(rng.normal(0, 0.02, (shape.vocabulary, shape.width)), jnp.float32),
        "final_norm": jnp.ones(shape.width),
    }
    for layer in range(shape.layers):
        parameters |= {
            f"{layer}.attention_norm": jnp.ones(shape.width),
            f"{layer}.query": matrix(shape.width, shape.query_width),
            f"{layer}.key": matrix(shape.width, shape.kv_width),
            f"{layer}.value": matrix(shape.width, shape.kv_width),
            f"{layer}.output": jnp.zeros((shape.query_width, shape.width)),
            f"{layer}.mlp_norm": jnp.ones(shape.width),
            f"{layer}.gate": matrix(shape.width, shape.hidden),
            f"{layer}.up": matrix(shape.width, shape.hidden),
            f"{layer}.down": jnp.zeros((shape.hidden, shape.width)),
        }
    return parameters


def _norm(x: jax.Array, weight: jax.Array, epsilon: float) -> jax.Array:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def _turn(x: jax.Array, cosine: jax.Array, sine: jax.Array) -> jax.Array:
    """Rotary positions: first and second half of a head form the pairs."""
    first, second = jnp.split(x, 2, -1)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)


def _attention(shape: Shape, query: jax.Array, key: jax.Array, value: jax.Array, allowed: jax.Array) -> jax.Array:
    """Grouped attention; the heads of a group are put in one matrix, which is what a CPU likes."""
    batch, length = query.shape[:2]
    group = shape.heads // shape.kv_heads
    rows = (batch * shape.kv_heads, group * length, shape.head_width)
    query = query.reshape(batch, length, shape.kv_heads, group, -1).transpose(0, 2, 3, 1, 4).reshape(rows)
    key = key.transpose(0, 2, 3, 1).reshape(rows[0], shape.head_width, length)
    value = value.transpose(0, 2, 1, 3).reshape(rows[0], length, shape.head_width)
    scores = (query @ key) * shape.head_width**-0.5
    scores = scores.reshape(batch, shape.kv_heads * group, length, length)
    scores = jnp.where(allowed[:, None], scores, -1e9)
    weights = jnp.exp(scores - jax.lax.stop_gradient(scores.max(-1, keepdims=True)))
    total = weights.sum(-1, keepdims=True)
    mixed = (weights.reshape(rows[0], group * length, length) @ value).reshape(batch, -1, length, shape.head_width)
    return (mixed / total).transpose(0, 2, 1, 3).reshape(batch * length, shape.query_width)


def hidden_states(shape: Shape, parameters: Parameters, tokens: jax.Array, positions: jax.Array, allowed: jax.Array) -> jax.Array:
    """The normed last hidden state of every token, as [batch * length, width]."""
    batch, length = tokens.shape
    angles = jnp.asarray(rope_angles(shape), jnp.float32)[positions]
    cosine, sine = jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]
    x = parameters["embedding"][tokens.reshape(-1)] * shape.width**0.5

    def split(y: jax.Array, heads: int) -> jax.Array:
        return y.reshape(batch, length, heads, shape.head_width)

    for layer in range(shape.layers):
        weight = lambda name: parameters[f"{layer}.{name}"]
        y = _norm(x, weight("attention_norm"), shape.norm_epsilon)
        query = _turn(split(y @ weight("query"), shape.heads), cosine, sine)
        key = _turn(split(y @ weight("key"), shape.kv_heads), cosine, sine)
        value = split(y @ weight("value"), shape.kv_heads)
        x = x + _attention(shape, query, key, value, allowed) @ weight("output")
        y = _norm(x, weight("mlp_norm"), shape.norm_epsilon)
        x = x + (jax.nn.silu(y @ weight("gate")) * (y @ weight("up"))) @ weight("down")
    return _norm(x, parameters["final_norm"], shape.norm_epsilon)
