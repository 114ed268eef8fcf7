"""Attention with masks and changed scores, written as math on indices, beside FlexAttention compiled.

``python benchmarks/attention_scores.py [--write] [--only NAME ...]``. Random bfloat16 inputs, 4 x 16 heads of 4096 queries and keys of 128 elements; poisoned
outputs, which are compared with float64: the error may be twice FlexAttention's. Medians of 20 replays of CUDA graphs, both in turn. FlexAttention is given a
block mask where keys are masked, and its own score function where scores change. Kernels are built with ``fast_math``.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from reporting import in_turn, parser, publish
from torch.nn.attention import flex_attention

import taskfuse as tf

BATCH, HEADS, LENGTH, DEPTH = 4, 16, 4096, 128
WINDOW, PREFIX, CAP = 1024, 1024, 30.0
ROWS = 128
"""Rows of the first head that are compared with float64."""
Mask = Callable[[Any, Any, Any, Any], Any]
Score = Callable[[Any, Any, Any, Any, Any], Any]
flex: Any = flex_attention


def alibi_slope(h: Any) -> Any:
    """ALiBi's slope of a head (arXiv 2108.12409): powers of 2 ** (-8 / heads)."""
    return -8.0 / HEADS * (h + 1)


@dataclass(frozen=True)
class Variant:
    """A change of scores.

    Attributes:
        ours: the scores of a fusion from the products, the heads' numbers, and the places of queries and keys.
        mask: FlexAttention's mask function; score: its score function.
    """

    ours: Mask
    mask: Mask | None = None
    score: Score | None = None

    def fusion(self) -> tf.Fusion:
        """The whole attention."""
        with tf.Fusion("attention") as found:
            q, k, v = (tf.define_tensor([BATCH, HEADS, LENGTH, DEPTH], dtype=tf.bfloat16, name=n) for n in "qkv")
            h, i, j = (tf.reshape(tf.arange(n), shape) for n, shape in ((HEADS, (HEADS, 1, 1)), (LENGTH, (LENGTH, 1)), (LENGTH, (1, LENGTH))))
            s = self.ours(tf.matmul(q, tf.permute(k, (0, 1, 3, 2)), dtype=tf.float32) * DEPTH**-0.5, h, i, j)
            p = tf.exp(s - tf.max(s, axis=-1, keepdims=True))
            total = tf.sum(p, axis=-1, keepdims=True)
            found.add_output(tf.cast(tf.matmul(tf.cast(p, tf.bfloat16), v, dtype=tf.float32) / total, tf.bfloat16))
        return found

    def wanted(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """The last rows of the first head of the last batch in float64."""
        s = q[-1, 0, -ROWS:].double() @ k[-1, 0].double().T * DEPTH**-0.5
        i, j = torch.arange(LENGTH - ROWS, LENGTH, device="cuda")[:, None], torch.arange(LENGTH, device="cuda")[None]
        h = torch.zeros((), dtype=torch.int64, device="cuda")
        s = s if self.score is None else self.score(s, 0, h, i, j)
        s = s if self.mask is None else s.masked_fill(~self.mask(0, h, i, j), -math.inf)
        return torch.softmax(s, 1) @ v[-1, 0].double()


def kept(keep: Any, s: Any) -> Any:
    """Scores of the keys that count."""
    return tf.where(keep, s, -math.inf)


VARIANTS = {
    "causal": Variant(lambda s, h, i, j: kept(j <= i, s), mask=lambda b, h, i, j: j <= i),
    "window": Variant(lambda s, h, i, j: kept(tf.logical_and(j <= i, j > i - WINDOW), s), mask=lambda b, h, i, j: (j <= i) & (j > i - WINDOW)),
    "band": Variant(lambda s, h, i, j: kept(tf.logical_and(j < i + WINDOW, j > i - WINDOW), s), mask=lambda b, h, i, j: (j < i + WINDOW) & (j > i - WINDOW)),
    "prefix": Variant(lambda s, h, i, j: kept(tf.logical_or(j < PREFIX, j <= i), s), mask=lambda b, h, i, j: (j < PREFIX) | (j <= i)),
    "softcap": Variant(lambda s, h, i, j: tf.tanh(s / CAP) * CAP, score=lambda s, b, h, i, j: torch.tanh(s / CAP) * CAP),
    "softcap, causal": Variant(
        lambda s, h, i, j: kept(j <= i, tf.tanh(s / CAP) * CAP), mask=lambda b, h, i, j: j <= i, score=lambda s, b, h, i, j: torch.tanh(s / CAP) * CAP
    ),
    "ALiBi, causal": Variant(
        lambda s, h, i, j: kept(j <= i, s + tf.cast(j - i, tf.float32) * tf.exp2(alibi_slope(tf.cast(h, tf.float32)))),
        mask=lambda b, h, i, j: j <= i,
        score=lambda s, b, h, i, j: s + (j - i) * torch.exp2(alibi_slope(h)),
    ),
}


def measure(name: str, variant: Variant) -> tuple[str, float]:
    """The line of a variant, and FlexAttention's time over ours."""
    args = [torch.randn(BATCH, HEADS, LENGTH, DEPTH, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    exact = variant.wanted(*args)
    mask = None if variant.mask is None else flex.create_block_mask(variant.mask, None, None, LENGTH, LENGTH)
    compiled: Any = torch.compile(flex.flex_attention, dynamic=False)
    run = tf.compile(variant.fusion(), backend="cuda", fast_math=True)
    assert run.schedule is not None
    out = torch.full_like(args[0], torch.nan)

    def theirs() -> torch.Tensor:
        return compiled(*args, score_mod=variant.score, block_mask=mask)

    def ours() -> object:
        return run(*args, out=out)

    def error(y: torch.Tensor) -> float:
        return float((y[-1, 0, -ROWS:].double() - exact).abs().max())

    ours()
    if not error(out) <= 2 * error(theirs()):
        sys.exit(f"{name}: off by {error(out)}, and FlexAttention by {error(theirs())}")
    flexed, mine = in_turn([theirs, ours])
    return f"  {name:16} {flexed:9.1f} {mine:9.1f} {flexed / mine:6.2f}  {len(run.kernels)} kernels, expected {run.schedule.us:.0f} us", flexed / mine


def main() -> None:
    """Measure, print and, if asked, store."""
    found: Any = parser(__doc__)
    found.add_argument("--only", nargs="*", default=list(VARIANTS))
    options = found.parse_args()
    lines = [f"{BATCH} x {HEADS} x {LENGTH} x {DEPTH}; us", f"  {'scores':16} {'flex':>9} {'ours':>9} {'x':>6}"]
    ratios: list[float] = []
    for name in options.only:
        line, ratio = measure(name, VARIANTS[name])
        print(line, flush=True)
        lines.append(line)
        ratios.append(ratio)
    lines.append(f"  geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}")
    publish("attention_scores", lines, options)


if __name__ == "__main__":
    main()
