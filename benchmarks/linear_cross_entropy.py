"""Cross-entropy of the logits that a linear layer makes, beside ``torch.compile``: time, and the memory that a call takes beside its arguments.

``python benchmarks/linear_cross_entropy.py [--write] [--only NAME ...]``. taskfuse stores no logits where tiles of the product reduce them
(``taskfuse/schedulers/product_cascades.py``). Inputs are random, outputs are compared with float64 losses of the same rounded logits for 256 rows. Medians of
20 replays of CUDA graphs, both replayed in turn.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf

F = torch.nn.functional
CHECKED = 256
"""Rows that are compared with float64."""


@dataclass(frozen=True)
class Case:
    """A layer of ``classes`` outputs on ``tokens`` rows of ``width`` elements, in bfloat16."""

    tokens: int
    width: int
    classes: int

    @property
    def name(self) -> str:
        """What ``--only`` takes."""
        return f"{self.tokens}x{self.width}x{self.classes}"

    def fusion(self) -> tf.Fusion:
        """Its math: the loss of each token, and the mean."""
        with tf.Fusion("linear_cross_entropy") as found:
            x = tf.define_tensor([self.tokens, self.width], dtype=tf.bfloat16, name="x")
            w = tf.define_tensor([self.classes, self.width], dtype=tf.bfloat16, name="w")
            target = tf.define_tensor([self.tokens], dtype=tf.int64, name="target")
            logits = tf.cast(tf.matmul(x, tf.permute(w, [1, 0])), tf.float32)
            found.add_output(tf.cross_entropy(logits, target, reduction="none"))
        return found

    def arguments(self) -> list[torch.Tensor]:
        """Random ones; every seventh token is ignored."""
        x = torch.randn(self.tokens, self.width, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(self.classes, self.width, device="cuda", dtype=torch.bfloat16) / self.width**0.5 * 3
        target = torch.randint(0, self.classes, (self.tokens,), device="cuda")
        target[::7] = -100
        return [x, w.to(torch.bfloat16), target]


CASES = (Case(4096, 4096, 128256), Case(8192, 4096, 128256), Case(4096, 2048, 50257), Case(16384, 2048, 32000), Case(4096, 8192, 152064))


def losses(x: torch.Tensor, w: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """torch's."""
    return F.cross_entropy(F.linear(x, w).float(), target, reduction="none")


def taken(call: Any) -> float:
    """Megabytes that a call takes at most beside what is there."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def measure(case: Case) -> list[str]:
    """The lines of a case."""
    args = case.arguments()
    x, w, target = args
    logits = F.linear(x[:CHECKED], w).double()
    wanted = F.cross_entropy(logits, target[:CHECKED], reduction="none")
    run = tf.compile(case.fusion(), backend="cuda")
    (out,) = run(*args)
    error = (out[:CHECKED].double() - wanted).abs()
    if not bool((error <= 2e-2 * wanted.abs().clamp(min=1)).all()):
        sys.exit(f"{case.name}: off by {error.max()}")
    compiled: Any = torch.compile(losses, dynamic=False)
    theirs = compiled(*args)
    ours, other = (lambda: run(*args)), (lambda: compiled(*args))
    memory = taken(ours), taken(other)
    us, torch_us = in_turn([ours, other])
    assert run.schedule is not None
    far = (out.double() - theirs.double()).abs().max()
    how = f"{len(run.kernels)} kernels, {run.schedule.us:.1f} us expected; {memory[0]:.1f} MB, torch.compile {memory[1]:.1f} MB; largest difference {far:.1e}"
    return [f"{case.name:18} {us:8.1f} us  torch.compile {torch_us:8.1f} us  {torch_us / us:5.2f}x  {how}"]


def main() -> None:
    """Measure, print and, if asked, store."""
    found: Any = parser(__doc__)
    found.add_argument("--only", nargs="*", default=[case.name for case in CASES])
    options = found.parse_args()
    lines: list[str] = []
    for case in CASES:
        if case.name in options.only:
            lines += measure(case)
            print(lines[-1], flush=True)
    publish("linear_cross_entropy", lines, options)


if __name__ == "__main__":
    main()
