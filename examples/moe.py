"""A mixture-of-experts layer: each token goes through two experts, selected by data.

The gate's probabilities choose two experts for each token. Tokens are sorted by expert by counting: an expert's first row is the number of choices
of all experts before it, plus the number of earlier choices of the same expert. The rows of an expert go through two
products with its matrices, a gated activation (SwiGLU) and a third product, and each token adds its two rows, weighted by the gate.

Routing stays on the GPU: the numbers of rows of the experts are a table of offsets, which the products read in their kernels. So one set of kernels serves
every routing, without a wait or another compilation, and a CUDA graph of them replays with other tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import taskfuse as tf
from taskfuse.options import Backend

CHOICES = 2
"""Experts of a token."""


def routing(tokens: int, width: int, experts: int) -> tf.Fusion:
    """The gate: x [tokens, width] to weights and rows of each choice, the token of each row, and the first row of each expert."""
    with tf.Fusion("routing") as fusion:
        x, w = tf.define_tensor((tokens, width), tf.bfloat16, name="x"), tf.define_tensor((width, experts), tf.bfloat16, name="gate")
        chances, chosen = tf.topk(tf.softmax(tf.matmul(x, w, tf.float32), 1), CHOICES)
        choices = tf.reshape(tf.cast(chosen, tf.int32), [tokens * CHOICES])
        is_of = tf.cast(tf.eq(choices[:, None], tf.iota((1, experts), 1, tf.int32)), tf.int32)  # [choices, experts]
        until = tf.cumsum(is_of, 0, tf.int32)  # choices of an expert up to one, that one included
        offsets = tf.pad(tf.cumsum(until[-1], dtype=tf.int32), [(1, 0)])
        rows = tf.take_along_axis(until, choices[:, None], 1)[:, 0] - 1 + tf.take(offsets, choices)
        numbers = tf.iota((tokens * CHOICES,), 0, tf.int32)
        tokens_of = tf.scatter_add(tf.zeros((tokens * CHOICES,), tf.int32), 0, rows, tf.floor_divide(numbers, CHOICES))  # one term for each row
        for name, tv in (
            ("weights", chances / tf.sum(chances, 1, keepdims=True)),
            ("rows", tf.reshape(rows, [tokens, CHOICES])),
            ("tokens", tokens_of),
            ("offsets", offsets),
        ):
            fusion.add_output(tv, name=name)
    return fusion


def mixture(tokens: int, width: int, hidden: int, experts: int) -> tf.Fusion:
    """The experts: their products of the rows in order, and each token's two rows, weighted."""
    rows = tokens * CHOICES
    with tf.Fusion("mixture") as fusion:
        x = tf.define_tensor((tokens, width), tf.bfloat16, name="x")
        weights, places = tf.define_tensor((tokens, CHOICES), name="weights"), tf.define_tensor((tokens, CHOICES), tf.int32, name="rows")
        tokens_of, offsets = tf.define_tensor((rows,), tf.int32, name="tokens"), tf.table("offsets", experts + 1, rows, rising=True)
        gate, up = (tf.define_tensor((experts, width, hidden), tf.bfloat16, name=name) for name in ("w_gate", "w_up"))
        down = tf.define_tensor((experts, hidden, width), tf.bfloat16, name="w_down")
        ordered = tf.take(x, tokens_of, 0)
        inner = tf.silu(tf.grouped_matmul(ordered, gate, offsets)) * tf.grouped_matmul(ordered, up, offsets)
        made = tf.take(tf.grouped_matmul(inner, down, offsets), places, 0)  # [tokens, choices, width]
        fusion.add_output(tf.cast(tf.sum(tf.cast(made, tf.float32) * weights[:, :, None], 1), tf.bfloat16), name="y")
    return fusion


class Layer:
    """The layer as a function on arrays.

    Args:
        backend, budget: see ``tf.compile``.
    """

    def __init__(self, tokens: int, width: int, hidden: int, experts: int, backend: Backend = "auto", budget: float = 10) -> None:
        self.route = tf.compile(routing(tokens, width, experts), backend=backend, specialize=False, budget=budget)
        self.mix = tf.compile(mixture(tokens, width, hidden, experts), backend=backend, specialize=False, budget=budget)

    def __call__(self, x: Any, gate: Any, w_gate: Any, w_up: Any, w_down: Any) -> Any:
        """Of x [tokens, width] and the matrices, the result [tokens, width]."""
        weights, rows, tokens, offsets = self.route(x, gate)
        return self.mix(x, weights, rows, tokens, offsets, w_gate, w_up, w_down)[0]


def reference(x: np.ndarray, gate: np.ndarray, w_gate: np.ndarray, w_up: np.ndarray, w_down: np.ndarray) -> np.ndarray:
    """The same in float64, expert by expert."""
    x, gate, w_gate, w_up, w_down = (a.astype(np.float64) for a in (x, gate, w_gate, w_up, w_down))
    chances = np.exp(x @ gate)
    chances /= chances.sum(1, keepdims=True)
    chosen = np.argsort(-chances, 1, kind="stable")[:, :CHOICES]
    weights = np.take_along_axis(chances, chosen, 1)
    weights /= weights.sum(1, keepdims=True)
    y = np.zeros_like(x)
    for expert in range(len(w_up)):
        token, choice = np.nonzero(chosen == expert)
        lifted = x[token] @ w_gate[expert]
        y[token] += weights[token, choice][:, None] * ((lifted / (1 + np.exp(-lifted)) * (x[token] @ w_up[expert])) @ w_down[expert])
    return y


def build(rows: int = 150, width: int = 64, hidden: int = 64, experts: int = 3) -> tf.Fusion:
    """The product behind the activation, scheduled: the loop nest that skips tiles of no expert."""
    with tf.Fusion("moe") as fusion:
        x, w = tf.define_tensor((rows, width), tf.bfloat16, name="x"), tf.define_tensor((experts, width, hidden), tf.bfloat16, name="w_gate")
        lifted = tf.define_tensor((rows, hidden), tf.bfloat16, name="lifted")
        product = tf.grouped_matmul(x, w, tf.table("offsets", experts + 1, rows, rising=True))
        fusion.add_output(tf.silu(product) * lifted, name="y")
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(128, 64, stages=2, blocks=2))
    return fusion


def main() -> None:
    """Print the loop nest of one product, run a small layer, and print the difference from NumPy."""
    print(tf.lower(build()))
    rng = np.random.default_rng(0)
    tokens, width, hidden, experts = 16, 32, 32, 4
    shapes = (tokens, width), (width, experts), (experts, width, hidden), (experts, width, hidden), (experts, hidden, width)
    args = [(rng.standard_normal(s) / 8).astype(tf.bfloat16.numpy) for s in shapes]
    layer = Layer(tokens, width, hidden, experts, backend="sim", budget=1)
    found = layer(*args)
    print(f"{len(layer.route.kernels)} kernels find the rows of each expert, {len(layer.mix.kernels)} compute")
    print("largest difference from NumPy:", np.abs(found.astype(np.float64) - reference(*args)).max())


if __name__ == "__main__":
    main()
