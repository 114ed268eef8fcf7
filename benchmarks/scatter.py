"""Writes at computed indices, scheduled automatically, against torch: run op by op and compiled.

``python benchmarks/scatter.py [--write]``. Gradients of embeddings, sums of segments, counts; updates in place (scatter form), where one kernel updates
neighbors together also one by one, and, where that is no more than 1e11 steps, every element looking at every point (gather form). Medians of 30 rounds, by
CUDA events, all runners in one process. Results are compared with torch in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from reporting import gpu_median, parser, publish

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers.scatter import is_updated

MOST = 1e11


def embedding(rows: int, tokens: int, width: int, skew: bool, dtype: str) -> tuple[str, Callable[..., Any], Callable[..., Any], list[Any], float]:
    """The gradient of an embedding."""
    numbers = torch.randint(0, rows, (tokens,), device="cuda")
    if skew:
        numbers = (rows * torch.rand(tokens, device="cuda") ** 8).long()
    gradient = torch.randn(tokens, width, device="cuda").to(getattr(torch, dtype))

    def theirs(g: Any, t: Any) -> Any:
        return torch.ops.aten.embedding_dense_backward(g, t, rows, -1, False)

    def ours(g: tf.TensorView, t: tf.TensorView) -> tf.TensorView:
        return tf.segment_sum(g, t, rows)

    name = f"embedding backward {rows} x {width}, {tokens} tokens{', skewed' * skew} {dtype}"
    return name, ours, theirs, [gradient, numbers], float(rows * tokens * width)


def index_add(rows: int, points: int, width: int) -> tuple[str, Callable[..., Any], Callable[..., Any], list[Any], float]:
    """Slices added to a tensor."""
    x, s = torch.randn(rows, width, device="cuda"), torch.randn(points, width, device="cuda")
    i = torch.randint(0, rows, (points,), device="cuda")

    def ours(a: tf.TensorView, b: tf.TensorView, c: tf.TensorView) -> tf.TensorView:
        return tf.index_add(a, 0, b, c)

    def theirs(a: Any, b: Any, c: Any) -> Any:
        return a.index_add(0, b, c)

    return f"index_add {rows} x {width}, {points} points", ours, theirs, [x, i, s], float(rows * points * width)


def scatter_add(rows: int, columns: int) -> tuple[str, Callable[..., Any], Callable[..., Any], list[Any], float]:
    """Elements added along columns."""
    x, s = torch.zeros(rows, columns, device="cuda"), torch.randn(rows, columns, device="cuda")
    i = torch.randint(0, columns, (rows, columns), device="cuda")

    def ours(a: tf.TensorView, b: tf.TensorView, c: tf.TensorView) -> tf.TensorView:
        return tf.scatter_add(a, 1, b, c)

    def theirs(a: Any, b: Any, c: Any) -> Any:
        return a.scatter_add(1, b, c)

    return f"scatter_add {rows} x {columns}", ours, theirs, [x, i, s], float(rows * columns * columns)


def bincount(bins: int, count: int) -> tuple[str, Callable[..., Any], Callable[..., Any], list[Any], float]:
    """A histogram."""
    i = torch.randint(0, bins, (count,), device="cuda")
    ones = torch.ones(count, dtype=torch.int64, device="cuda")

    def theirs(b: Any) -> Any:
        return torch.zeros(bins, dtype=torch.int64, device="cuda").index_add(0, b, ones)

    def ours(b: tf.TensorView) -> tf.TensorView:
        return tf.bincount(b, bins)

    return f"bincount {bins}, {count} numbers", ours, theirs, [i], float(bins * count)


def check(name: str, run: Any, arguments: list[Any], wanted: Any) -> None:
    """Compare a result with that of torch in float64."""
    (found,) = run(*arguments)
    error = (found.double() - wanted.double()).abs().max().item() / max(1.0, wanted.abs().max().item())
    assert error < (1e-2 if found.dtype is torch.bfloat16 else 1e-4), (name, error)


def time_of(call: Callable[..., Any], arguments: list[Any]) -> float:
    """Microseconds."""
    return float(gpu_median([lambda: call(*arguments)]))


def defined(ours: Callable[..., Any], arguments: list[Any], gather: bool = False) -> tf.Fusion:
    """The fusion; ``gather``: in gather form."""
    with tf.Fusion("scatter") as fusion:
        fusion.add_output(ours(*(tf.define_tensor(list(a.shape), str(a.dtype).removeprefix("torch.")) for a in arguments)))
    for tv in [tv for tv in fusion.tensors() if is_updated(fusion, tv)] if gather else ():
        tv.unscatter()
    return fusion


def one_by_one(ours: Callable[..., Any], arguments: list[Any]) -> Any:
    """The kernel of the scheduler for updates that updates no neighbors together; ``None``: the automatic one does not, either."""
    fusion = defined(ours, arguments)
    try:
        chosen = tf.schedulers.scatter(fusion)
    except UnsupportedError:  # several kernels
        return None
    others = [o.config for o in chosen.alternatives if o.config.vector == 1]
    if chosen.config.vector == 1:
        return None
    fusion = defined(ours, arguments)
    tf.schedulers.scatter(fusion, others[0])
    return tf.compile(fusion)


def main() -> None:
    """All of it."""
    options = parser(__doc__).parse_args()
    lines = [f"{'':62} {'eager':>9} {'compiled':>9} {'automatic':>10} {'gather':>9} {'one by one':>10}  schedule; compiled / automatic"]
    cases = [
        embedding(50257, 8192, 768, False, "float32"),
        embedding(50257, 8192, 768, True, "float32"),
        embedding(32000, 16384, 4096, False, "bfloat16"),
        embedding(1000, 65536, 64, False, "float32"),
        index_add(10000, 50000, 128),
        index_add(64, 100000, 32),
        scatter_add(4096, 1024),
        bincount(64, 1 << 20),
        bincount(1 << 16, 1 << 22),
    ]
    for name, ours, theirs, arguments, work in cases:
        wide = [a.double() if a.is_floating_point() else a for a in arguments]
        wanted = theirs(*wide)
        times = [time_of(theirs, arguments), time_of(torch.compile(theirs), arguments)]
        schedule = ""
        for gather in (False, True):
            if gather and work > MOST:
                times.append(float("nan"))
                continue
            run = tf.compile(defined(ours, arguments, gather))
            check(name, run, arguments, wanted)
            schedule = schedule or (run.schedule.scheduler if run.schedule is not None else "")
            times.append(time_of(run, arguments))
        run = one_by_one(ours, arguments)
        if run is not None:
            check(name, run, arguments, wanted)
        times.append(float("nan") if run is None else time_of(run, arguments))
        numbers = f"{times[0]:9.1f} {times[1]:9.1f} {times[2]:10.1f} {times[3]:9.1f} {times[4]:10.1f}"
        lines.append(f"{name:62} {numbers}  {schedule}; {times[1] / times[2]:.2f}")
        print(lines[-1], flush=True)
    publish("scatter", lines, options)


if __name__ == "__main__":
    main()
