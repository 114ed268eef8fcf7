"""Rows in one walk (``tf.schedulers.online``) beside rows in passes (``tf.schedulers.normalization``) and torch.compile.

``python benchmarks/online.py [--write] [--only NAME ...] [--sweep N]``. Softmax, log-sum-exp and cross-entropy over rows that do not fit registers, or along a
middle axis. Inputs are random, outputs poisoned, and compared with float64 afterwards. Arguments exceed the L2 cache. Medians of 20 replays of CUDA
graphs, all runners of a case replayed in turn. ``--sweep N`` measures N further candidates of the cost model,
each with another number of threads.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.schedulers import Chosen
from taskfuse.schedulers.schedule import Scheduler

F = torch.nn.functional


@dataclass(frozen=True)
class Case:
    """One function at one size.

    Attributes:
        is_loss: whether it takes a class for each row.
    """

    name: str
    shape: tuple[int, ...]
    dtype: tf.DType
    ours: Callable[..., tf.TensorView]
    theirs: Callable[..., Any]
    is_loss: bool = False

    def fusion(self) -> tf.Fusion:
        """Its math."""
        with tf.Fusion(self.name) as found:
            x = tf.define_tensor(list(self.shape), dtype=self.dtype, name="x")
            more = [tf.define_tensor([self.shape[0]], dtype=tf.int64, name="classes")] if self.is_loss else []
            found.add_output(self.ours(x, *more))
        return found

    def arguments(self) -> list[torch.Tensor]:
        """Random ones."""
        torch_dtype = getattr(torch, self.dtype.name)
        x = torch.randn(self.shape, device="cuda", dtype=torch.float32).mul_(3).to(torch_dtype)
        return [x, *([torch.randint(0, self.shape[1], self.shape[:1], device="cuda")] if self.is_loss else [])]


def cross_entropy(x: tf.TensorView, classes: tf.TensorView) -> tf.TensorView:
    """Negative logarithms of the classes' probabilities."""
    return tf.neg(tf.squeeze(tf.take_along_axis(tf.log_softmax(tf.cast(x, tf.float32), 1), tf.expand_dims(classes, 1), 1), 1))


def losses(x: Any, classes: Any) -> Any:
    """torch's."""
    return F.cross_entropy(x.float(), classes, reduction="none")


def logsumexp(x: Any) -> Any:
    """torch's, of the rows of a matrix."""
    return torch.logsumexp(x, 1)


def softmax(x: Any) -> Any:
    """torch's, along the axis behind the first."""
    return torch.softmax(x, 1)


def softmaxes(name: str, shape: tuple[int, ...], dtype: tf.DType) -> Case:
    """A softmax."""
    return Case(name, shape, dtype, partial(tf.softmax, axis=1), softmax)


CASES = (
    Case("cross_entropy", (8192, 32768), tf.float32, cross_entropy, losses, True),
    Case("cross_entropy_bf16", (4096, 128256), tf.bfloat16, cross_entropy, losses, True),
    Case("logsumexp", (8192, 32768), tf.float32, partial(tf.logsumexp, axis=1), logsumexp),
    softmaxes("softmax", (4096, 32768), tf.float32),
    softmaxes("softmax_bf16", (2048, 131072), tf.bfloat16),
    softmaxes("softmax_middle", (16, 1024, 4096), tf.float32),
    softmaxes("softmax_8192", (8192, 8192), tf.float32),
)


def kernels(case: Case, sweep: int) -> list[tuple[str, tf.Kernel]]:
    """Ours: in passes, in one walk, and further candidates of the latter."""
    found: list[tuple[str, tf.Kernel]] = []
    walk: Chosen[Any] | None = None
    first: list[tuple[Scheduler, Any]] = [(tf.schedulers.normalization, None), (tf.schedulers.online, None)]
    for scheduler, config in first:
        fusion = case.fusion()
        walk = scheduler(fusion, config)
        found.append((f"{scheduler.__name__} {walk.us:.1f}: {walk.config.words}", tf.lower(fusion)))
    assert walk is not None
    by_threads = {option.config.threads: option for option in reversed(walk.alternatives)}  # the best of each number of threads
    for option in sorted(by_threads.values(), key=lambda o: o.us)[1 : 1 + sweep]:
        fusion = case.fusion()
        tf.schedulers.online(fusion, option.config)
        found.append((f"online {option.us:.1f}: {option.config.words}", tf.lower(fusion)))
    return found


def measure(case: Case, sweep: int) -> list[str]:
    """The lines of a case."""
    args = case.arguments()
    wanted = case.theirs(*(a.double() if a.is_floating_point() else a for a in (args[0][:64], *(a[:64] for a in args[1:]))))
    if case.is_loss:
        wanted = torch.logsumexp(args[0][:64].double(), 1) - args[0][:64].double().gather(1, args[1][:64, None])[:, 0]
    compiled: Any = torch.compile(case.theirs, dynamic=False)
    theirs = compiled(*args)
    torch_us = []
    calls: list[Callable[[], object]] = [lambda: compiled(*args)]
    lines: list[str] = []
    made = kernels(case, sweep)
    for words, kernel in made:
        run = tf.compile(kernel, backend="cuda")
        out = torch.full_like(theirs, math.nan)
        run(*args, out=out)
        error = (out[:64].double() - wanted).abs()
        most = 2.0**-7 if out.dtype is torch.bfloat16 else 1e-5
        if not bool((error <= most * wanted.abs().clamp(min=1e-30) + 1e-6).all()):
            sys.exit(f"{case.name}: {words}: off by {error.max()}")
        calls.append(lambda run=run, out=out: run(*args, out=out))
    torch_us, *ours = in_turn(calls)
    moved = sum(a.nbytes for a in args) + theirs.nbytes
    lines.append(f"{case.name} {'x'.join(map(str, case.shape))} {case.dtype.name}: torch.compile {torch_us:.1f} us, {moved / torch_us / 1e6:.2f} TB/s")
    for (words, kernel), us in zip(made, ours, strict=True):
        r = kernel.resources()
        regs = f"{r.compiled.registers} regs, {r.blocks_per_multiprocessor} blocks"
        lines.append(f"  {us:8.1f} us  {torch_us / us:5.2f}x  {moved / us / 1e6:5.2f} TB/s  {regs}  {words}")
    return lines


def main() -> None:
    """Measure, print and, if asked, store."""
    found: Any = parser(__doc__)
    found.add_argument("--only", nargs="*", default=[case.name for case in CASES])
    found.add_argument("--sweep", type=int, default=0, help="further candidates of the cost model, each with another number of threads")
    options = found.parse_args()
    lines: list[str] = []
    for case in CASES:
        if case.name in options.only:
            try:
                lines += measure(case, options.sweep)
            except TaskfuseError as error:
                lines.append(f"{case.name}: {error.message.splitlines()[0]}")
            print("\n".join(lines[-3 - options.sweep :]), flush=True)
    publish("online", lines, options)


if __name__ == "__main__":
    main()
