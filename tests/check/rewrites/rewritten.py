"""Fusions that scheduling calls rewrote, as kernels whose definitions a test may change."""

from __future__ import annotations

from collections.abc import Callable

import taskfuse as tf
from taskfuse.check.rewrites.verify import Rewritings, rewritings
from taskfuse.ir.expr import Reduction, Scan, View
from taskfuse.kir import Kernel
from taskfuse.reports.certificate import Verdict

Build = Callable[[tf.Fusion], None]


def rewritten(build: Build) -> Kernel:
    """The kernel of a fusion, all of whose tensors are in Global memory."""
    with tf.Fusion("rewritten") as f:
        build(f)
    for tv in f.tensors():
        if not (tv.is_input or tv.is_output or isinstance(tv.definition, View)):
            tv.set_memory_type(tf.MemoryType.Global)
    return tf.lower(f)


def reductions(f: tf.Fusion) -> list[tf.TensorView]:
    """The reductions of a fusion."""
    return [tv for tv in f.tensors() if isinstance(tv.definition, Reduction)]


def scan(f: tf.Fusion) -> tf.TensorView:
    """Its scan."""
    return next(tv for tv in f.tensors() if isinstance(tv.definition, Scan))


def changed(kernel: Kernel, old: str, new: str) -> Kernel:
    """The kernel with other text in what is defined now, where it has ``old``."""
    lines = kernel.text(witness=True).split("\n")
    found = [k for k, line in enumerate(lines) if "DEFINE" in line and old in line]
    assert found, f"no definition has '{old}'"
    for k in found:
        lines[k] = lines[k].replace(old, new)
    return tf.parse_kernel("\n".join(lines))


def is_proved(found: Rewritings) -> bool:
    """True if all outputs are what was written, without an assumption."""
    return [o.verdict for o in found.obligations] == [Verdict.PROVED] and not found.assumptions


def is_refuted(kernel: Kernel) -> bool:
    """True if an output is something else than was written."""
    return any(o.verdict is Verdict.REFUTED for o in rewritings(kernel).obligations)
