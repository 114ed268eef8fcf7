"""32 unlike small problems in one launch: ``tf.horizontal`` beside torch op by op, ``torch.compile``, and its combo kernels.

``python benchmarks/horizontal.py [--write] [--host]``. Pointwise functions, sums over rows, softmax, rms_norm and layer_norm of float32 tensors with 1 K to
1 M elements, scheduled automatically. A time is that of one of 10 calls in a CUDA graph, the median of 20 replays, all graphs replayed in turn;
outputs are compared with torch's. ``--host``: also the time of a call that is not in a graph, which the host's work may decide. Beside them stands
what :func:`taskfuse.horizontal_cost` expects.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import taskfuse as tf

COUNT, SEED = 32, 0
WIDTHS = (256, 512, 1024, 2048, 4096)
TOLERANCE = 1e-5
KINDS = ("pointwise", "sum", "softmax", "rms_norm", "layer_norm")


@dataclass(frozen=True)
class Problem:
    """One of the problems: its kind, and the shape of its inputs."""

    kind: str
    rows: int
    columns: int

    def fusion(self, number: int) -> tf.Fusion:
        """The problem, which nobody scheduled."""
        with tf.Fusion(f"{self.kind}{number}") as fusion:
            x = tf.define_tensor([self.rows, self.columns], name="x")
            match self.kind:
                case "pointwise":
                    y = tf.tanh(x * tf.define_tensor([self.rows, self.columns], name="y") + 0.5)
                case "sum":
                    y = tf.sum(x * x, axis=1)
                case "softmax":
                    y = tf.softmax(x, axis=1)
                case "rms_norm":
                    y = tf.rms_norm(x, axis=1)
                case _:
                    y = tf.layer_norm(x, axis=1)
            fusion.add_output(y)
        return fusion

    @property
    def inputs(self) -> int:
        """How many tensors it reads."""
        return 2 if self.kind == "pointwise" else 1


def problems() -> list[Problem]:
    """The same for everybody: sizes spread evenly on a logarithmic scale."""
    rng = random.Random(SEED)
    found: list[Problem] = []
    for k in range(COUNT):
        elements = 1024 * 1024 ** (k / (COUNT - 1))
        columns = rng.choice([w for w in WIDTHS if w <= elements])
        found.append(Problem(KINDS[k % len(KINDS)], max(1, round(elements / columns)), columns))
    rng.shuffle(found)
    return found


def joined(chosen: Sequence[Problem]) -> tf.Fusion:
    """All of them in one fusion, scheduled."""
    return tf.horizontal([p.fusion(k) for k, p in enumerate(chosen)], name="combined")


def in_torch(chosen: Sequence[Problem]) -> Callable[..., list[Any]]:
    """The same in torch."""
    import torch

    def run(*tensors: Any) -> list[Any]:
        given = iter(tensors)
        outs: list[Any] = []
        for p in chosen:
            x = next(given)
            match p.kind:
                case "pointwise":
                    outs.append(torch.tanh(x * next(given) + 0.5))
                case "sum":
                    outs.append((x * x).sum(1))
                case "softmax":
                    outs.append(torch.softmax(x, 1))
                case "rms_norm":
                    outs.append(torch.nn.functional.rms_norm(x, (p.columns,), eps=1e-5))
                case _:
                    outs.append(torch.nn.functional.layer_norm(x, (p.columns,), eps=1e-5))
        return outs

    return run


def host_us(call: Callable[[], object]) -> float:
    """Median microseconds of a call that waits for the GPU."""
    import torch

    times: list[float] = []
    for _ in range(200):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def main() -> None:
    """Build, compare, measure, print."""
    import torch
    from reporting import in_turn, parser, publish

    arguments = parser(__doc__)
    arguments.add_argument("--host", action="store_true", help="also time calls outside a graph")
    options = arguments.parse_args()
    chosen = problems()
    start = time.perf_counter()
    fusion = joined(chosen)
    built = time.perf_counter()
    run = tf.compile(fusion, backend="cuda")
    tensors = [torch.randn(p.rows, p.columns, device="cuda") for p in chosen for _ in range(p.inputs)]
    ours = run(*tensors)
    ready = time.perf_counter()
    eager = in_torch(chosen)
    expected = eager(*tensors)
    for p, a, b in zip(chosen, ours, expected, strict=True):
        worst = float((a - b).abs().max() / b.abs().max())
        if not worst < TOLERANCE:
            sys.exit(f"{p}: off by {worst:g} of the largest element")
    compiled = torch.compile(eager)
    combined = torch.compile(in_torch(chosen), options={"combo_kernels": True})
    calls: dict[str, Callable[[], object]] = {
        "tf.horizontal": lambda: run(*tensors),
        "torch, op by op": lambda: eager(*tensors),
        "torch.compile": lambda: compiled(*tensors),
        "torch.compile, combo kernels": lambda: combined(*tensors),
    }
    for call in calls.values():
        call()
    times = in_turn(list(calls.values()))
    horizontal_cost = tf.horizontal_cost([p.fusion(k) for k, p in enumerate(chosen)], name="combined")
    width = max(map(len, calls))
    read = sum(p.rows * p.columns * p.inputs for p in chosen) * 4 / 1e6
    lines = [f"{COUNT} problems, {read:.1f} MB read; us per call in a graph{', and outside it' if options.host else ''}"]
    for (name, call), us in zip(calls.items(), times, strict=True):
        lines.append(f"{name:{width}}  {us:8.1f}  {us / times[0]:6.2f} x" + (f"  {host_us(call):8.1f}" if options.host else ""))
    lines.append(f"expected: {horizontal_cost.together:.1f} us, {sum(horizontal_cost.alone):.1f} us one after another")
    lines.append(f"fusions scheduled and joined in {built - start:.2f} s; lowered, proved, compiled and run in {ready - built:.2f} s")
    publish("horizontal", lines, options)


if __name__ == "__main__":
    main()
