"""Normalizations of ``tf.schedulers.normalization`` beside torch eager and torch.compile, bf16.

``python benchmarks/norms.py [--write] [--seconds S] [--sweep] [--seed N]``. softmax, rms_norm and layer_norm at three sizes. A time is that of one of
the calls in a CUDA graph, which takes sets of arguments in turn that together are larger than the L2 cache (50 MB); ours and theirs
are replayed in turn, so that throttling hits all. Outputs are poisoned with NaN, then compared with float64: an element may be off by one unit in
the last place of bf16. ``--sweep`` measures the candidates of the cost model, too, the best of each first, and prints what refits it.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.schedulers import Chosen, RowConfig

SIZES = ((8192, 4096), (16384, 1024), (2048, 16384))
ROTATED_BYTES = 200 * 2**20
"""Of the sets of arguments together: four times the L2 cache."""
Function = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Norm:
    """One normalization.

    Attributes:
        parameters: vectors of a row's length that it takes.
        ours: the math.
        theirs: the same in torch.
    """

    name: str
    parameters: int
    ours: Callable[..., tf.TensorView]
    theirs: Function


def softmax(x: torch.Tensor) -> torch.Tensor:
    """torch's, along the last axis."""
    return torch.softmax(x, -1)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """torch's, along the last axis."""
    return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-5)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """torch's, along the last axis."""
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, 1e-5)


NORMS = (
    Norm("softmax", 0, tf.softmax, softmax),
    Norm("rms_norm", 1, tf.rms_norm, rms_norm),
    Norm("layer_norm", 2, tf.layer_norm, layer_norm),
)


def build(norm: Norm, rows: int, columns: int, config: RowConfig | None = None) -> tuple[tf.Kernel, Chosen[RowConfig]]:
    """The kernel, its machine code made."""
    with tf.Fusion(norm.name) as fusion:
        x = tf.define_tensor([rows, columns], dtype=tf.bfloat16, name="x")
        parameters = [tf.define_tensor([columns], dtype=tf.bfloat16, name=name) for name in ("weight", "bias")[: norm.parameters]]
        fusion.add_output(norm.ours(x, *parameters))
    schedule = tf.schedulers.normalization(fusion, config)
    kernel = tf.lower(fusion)
    kernel.cubin()
    return kernel, schedule


def arguments(norm: Norm, rows: int, columns: int, seed: int) -> list[list[torch.Tensor]]:
    """Sets of arguments."""
    generator = torch.Generator("cuda").manual_seed(seed)
    sets = math.ceil(ROTATED_BYTES / (4 * rows * columns))
    shapes = [(rows, columns), *[(columns,)] * norm.parameters]
    return [[torch.randn(s, device="cuda", dtype=torch.bfloat16, generator=generator) for s in shapes] for _ in range(sets)]


def check(norm: Norm, args: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """Exits if an element is off by more than a unit in the last place."""
    wanted = norm.theirs(*(a.double() for a in args))
    error = (out.double() - wanted).abs()
    if not bool((error <= wanted.abs() * 2**-8 + 1e-6).all()):
        worst = int(torch.nan_to_num(error, nan=math.inf).argmax())
        sys.exit(f"{norm.name} {tuple(out.shape)}: element {divmod(worst, out.shape[1])} is {out.flatten()[worst]}, not {wanted.flatten()[worst]}")


class Calls:
    """A function called on the next set of arguments each time: ``in_turn`` captures its calls one after the other."""

    def __init__(self, call: Callable[[int], object], sets: int) -> None:
        self.call, self.sets, self.next = call, sets, 0

    def __call__(self) -> object:
        self.next = (self.next + 1) % self.sets
        return self.call(self.next)


def measure(norm: Norm, rows: int, columns: int, kernels: Sequence[tf.Kernel], seed: int) -> list[float]:
    """Microseconds: of each kernel, of torch eager, of torch.compile."""
    args = arguments(norm, rows, columns, seed)
    outs = [torch.full((rows, columns), math.nan, device="cuda", dtype=torch.bfloat16) for _ in args]
    compiled: Any = torch.compile(norm.theirs, dynamic=False)  # else a second shape makes it compile for all shapes
    compiled(*args[0])
    calls: list[Calls] = []
    for kernel in kernels:
        run = tf.compile(kernel, backend="cuda")
        for out in outs:
            out.fill_(math.nan)
        for given, out in zip(args, outs, strict=True):
            run(*given, out=out)
        check(norm, args[0], outs[0])
        check(norm, args[-1], outs[-1])
        calls.append(Calls(lambda k, run=run: run(*args[k], out=outs[k]), len(args)))
    for function in (norm.theirs, compiled):
        calls.append(Calls(lambda k, function=function: function(*args[k]), len(args)))
    return in_turn(calls)


def described(kernel: tf.Kernel, config: RowConfig) -> str:
    """Parameters and resources in a few letters."""
    r = kernel.resources()
    compiled = f"{r.compiled.registers} regs, {r.compiled.spill_stores} B spilled, {r.blocks_per_multiprocessor} blocks/SM"
    return f"{config.rows} x {config.threads} threads, {config.unroll} vectors, {config.keep.value}; {compiled}"


def main() -> None:
    """Build, measure, print and, if asked, store."""
    found: Any = parser(__doc__)
    found.add_argument("--seconds", type=float, default=110, help="begin nothing after so many")
    found.add_argument("--seed", type=int, default=0, help="of the arguments")
    found.add_argument("--sweep", type=int, default=0, metavar="N", help="measure the first N candidates of the cost model, too")
    options = found.parse_args()
    end = time.monotonic() + options.seconds
    lines: list[str] = []

    def show(line: str) -> None:
        lines.append(line)
        print(line, file=sys.stderr, flush=True)

    show("ratio: theirs / ours; GB/s: of what has to be read and written")
    heads = f"{'ours us':>8} {'eager us':>9} {'compile us':>10} {'eager x':>8} {'compile x':>9} {'GB/s':>6} {'model us':>8}"
    show(f"  {'norm':10} {'rows':>6} {'columns':>7} {heads}  schedule")
    ratios: list[float] = []
    for norm in NORMS:
        for rows, columns in SIZES:
            if time.monotonic() > end:
                break
            kernel, schedule = build(norm, rows, columns)
            rest = [a.config for a in schedule.alternatives[: options.sweep] if a.config != schedule.config]
            others = [(c, build(norm, rows, columns, c)[0]) for c in rest]
            *ours, eager, compiled = measure(norm, rows, columns, [kernel, *(k for _, k in others)], options.seed)
            speed = 4 * rows * columns / ours[0] / 1e3
            ratios.append(compiled / ours[0])
            show(
                f"  {norm.name:10} {rows:6} {columns:7} {ours[0]:8.2f} {eager:9.2f} {compiled:10.2f} {eager / ours[0]:8.3f} {ratios[-1]:9.3f} {speed:6.0f} "
                f"{schedule.us:8.1f}  {described(kernel, schedule.config)}"
            )
            for (config, other), us in sorted(zip(others, ours[1:], strict=True), key=lambda found: found[1]):
                show(f"  {'':26}{us:8.2f}  {described(other, config)}")
    if ratios:
        show(f"  beside torch.compile: geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.3f}, worst {min(ratios):.3f}")
    publish("norms", lines, options)


if __name__ == "__main__":
    main()
