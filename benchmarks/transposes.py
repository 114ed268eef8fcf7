"""Changes of layout: images between NCHW and NHWC, patches, windows, heads and groups of channels, beside torch.

``python benchmarks/transposes.py [--write] [--only NAME ...]``. Inputs are random; every call of a round has inputs and outputs of its own, which together
exceed the L2 cache. Results, in arrays that were poisoned before, equal torch's bit by bit. Times by CUDA events, medians of 30 rounds, ours and torch's in
turn: op by op, and compiled. ``share``: the bytes read and written, at the rate of a copy of the target, relative to the time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch._dynamo
from reporting import L2_BYTES, gpu_medians, parser, publish

import taskfuse as tf
from taskfuse.cuda.present import present

Views = Callable[..., Any]
"""The same calls for tensors of both libraries."""


def last(x: Any) -> Any:
    """Channels last."""
    return x.permute(0, 2, 3, 1)


def first(x: Any) -> Any:
    """Channels first."""
    return x.permute(0, 3, 1, 2)


def both(x: Any, y: Any) -> Any:
    """A sum of channels first and channels last."""
    return first(x) + y


def patches(x: Any) -> Any:
    """Patches of 16 x 16 of an image, channels first, as rows."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 16, 16, w // 16, 16).permute(0, 2, 4, 3, 5, 1).reshape(n, h * w // 256, c * 256)


def unshuffle(x: Any) -> Any:
    """Pixels of 2 x 2 as channels, channels last."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(n, h // 2, w // 2, c * 4)


def windows(x: Any) -> Any:
    """Windows of 7 x 7, channels first to channels last."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 7, 7, w // 7, 7).permute(0, 2, 4, 3, 5, 1).reshape(n * h * w // 49, 49, c)


def heads(x: Any) -> Any:
    """Keys as columns of each head."""
    n, s, d = x.shape
    return x.reshape(n, s, d // 64, 64).permute(0, 2, 3, 1)


def groups(x: Any) -> Any:
    """A shuffle of the channels of 4 groups, channels last."""
    n, c, h, w = x.shape
    return x.reshape(n, 4, c // 4, h, w).permute(0, 3, 4, 2, 1).reshape(n, h, w, c)


IMAGE = (32, 384, 28, 28)
CASES: tuple[tuple[str, Views, tuple[tuple[int, ...], ...], tf.DType], ...] = (
    ("to NHWC 28", last, (IMAGE,), tf.bfloat16),
    ("to NHWC 56", last, ((32, 96, 56, 56),), tf.bfloat16),
    ("to NHWC 14", last, ((64, 768, 14, 14),), tf.bfloat16),
    ("to NHWC 7", last, ((128, 768, 7, 7),), tf.bfloat16),
    ("to NHWC 28", last, (IMAGE,), tf.float32),
    ("to NHWC 28", last, (IMAGE,), tf.int8),
    ("to NCHW 28", first, ((32, 28, 28, 384),), tf.bfloat16),
    ("to NCHW 14", first, ((64, 14, 14, 768),), tf.bfloat16),
    ("to NCHW 28", first, ((32, 28, 28, 384),), tf.float32),
    ("sum of both 28", both, ((32, 28, 28, 384), IMAGE), tf.bfloat16),
    ("patches", patches, ((64, 3, 224, 224),), tf.bfloat16),
    ("unshuffle", unshuffle, ((8, 96, 128, 128),), tf.bfloat16),
    ("windows", windows, ((32, 96, 56, 56),), tf.bfloat16),
    ("heads", heads, ((8, 1024, 1024),), tf.bfloat16),
    ("groups of channels", groups, ((32, 240, 28, 28),), tf.bfloat16),
)


def measured(name: str, views: Views, shapes: tuple[tuple[int, ...], ...], dtype: tf.DType) -> str:
    """The line of a case."""
    kind = getattr(torch, str(dtype))
    with tf.Fusion("layout") as fusion:
        made = views(*(tf.define_tensor(list(shape), dtype) for shape in shapes))
        fusion.add_output(tf.copy(made))
    run = tf.compile(fusion, cache=False)
    schedule = run.schedule
    assert schedule is not None

    def theirs(*given: Any) -> Any:
        return views(*given).contiguous()

    torch._dynamo.reset()  # each case is one more graph of the same code
    compiled: Any = torch.compile(theirs, dynamic=False)
    one = [torch.empty(shape, device="cuda", dtype=kind) for shape in shapes]
    out = views(*one).contiguous()
    moved = sum(x.numel() * x.element_size() for x in (*one, out))
    sets = [[(torch.randn(shape, device="cuda") * 64).to(kind) for shape in shapes] for _ in range(max(2, 3 * L2_BYTES // moved))]
    outs = [torch.full_like(out, 77) for _ in sets]
    for given, into in zip(sets, outs, strict=True):
        run(*given, out=(into,))
    wrong = "" if all(torch.equal(into, compiled(*given)) and torch.equal(into, views(*given)) for given, into in zip(sets, outs, strict=True)) else "  WRONG"
    ours = [partial(run, *given, out=(into,)) for given, into in zip(sets, outs, strict=True)]
    eager = [partial(theirs, *given) for given in sets]
    ahead = [partial(compiled, *given) for given in sets]
    times = gpu_medians([ours, eager, ahead])
    words = getattr(getattr(schedule, "config", None), "words", f"{len(run.kernels)} kernels")
    share = present().dram_us(moved) / times[0]
    text = f"{times[0]:7.1f} {schedule.us:9.1f} {100 * share:6.0f}% {times[1]:8.1f} {times[2]:9.1f} {times[2] / times[0]:6.2f}"
    return f"  {name:20} {dtype!s:9} {text}  {schedule.scheduler}: {words}{wrong}"


def main() -> None:
    """Measure, print and, if asked, store."""
    options_parser = parser(__doc__)
    options_parser.add_argument("--only", nargs="*", default=[], help="cases whose names hold one of these")
    options = options_parser.parse_args()
    lines = [f"  {'layout':20} {'':9} {'ours':>7} {'expected':>9} {'share':>7} {'torch':>8} {'compiled':>9} {'x':>6}  schedule"]
    for name, views, shapes, dtype in CASES:
        if not options.only or any(part in name for part in options.only):
            lines.append(measured(name, views, shapes, dtype))
    publish("transposes", lines, options)


if __name__ == "__main__":
    main()
