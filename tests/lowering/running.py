"""Fusions lowered and simulated under some interleavings, ranges by name, and texts of refusals and warnings."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import TaskfuseError
from taskfuse.ir.tasks import Node
from taskfuse.kir import walk
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.nodes import If
from taskfuse.kir.synchronization import Barrier, BarrierScope
from taskfuse.lowering.prepare import prepare
from taskfuse.lowering.thread_ranges import ThreadRanges
from taskfuse.schedule.order import complete
from tests.thinning import some_interleavings

Array = npt.NDArray[Any]


def numbers(*shape: int, dtype: npt.DTypeLike = np.float32, seed: int = 0) -> Array:
    """Small integers: sums and products of a few of them are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def bind(tv: tf.TensorView, *ptypes: P) -> tf.TensorView:
    """Bind the loop axes of ``tv``, outermost first."""
    for k, p in enumerate(ptypes):
        tv.axis(k).parallelize(p)
    return tv


def agrees(
    fusion: tf.Fusion,
    *args: Array,
    options: tf.LoweringOptions | None = None,
    interleavings: tuple[tf.Interleaving, ...] | None = None,
    tolerance: float = 0.0,
) -> tf.Kernel:
    """Lower, simulate under some interleavings and compare with NumPy: bit by bit, or within a relative ``tolerance``. Returns the kernel."""
    kernel = tf.lower(fusion, options or tf.LoweringOptions())
    agree(kernel, fusion, *args, interleavings=interleavings, tolerance=tolerance)
    return kernel


def agree(kernel: tf.Kernel, fusion: tf.Fusion, *args: Array, interleavings: tuple[tf.Interleaving, ...] | None = None, tolerance: float = 0.0) -> None:
    """As :func:`agrees`, for a kernel."""
    wanted = fusion.evaluate(*args)
    for interleaving in interleavings or some_interleavings(kernel):
        for out, ref in zip(kernel.simulate(*args, seed=1, interleaving=interleaving), wanted, strict=True):
            assert out.shape == ref.shape
            assert out.dtype == ref.dtype
            np.testing.assert_allclose(np.asarray(out, np.float64), np.asarray(ref, np.float64), rtol=tolerance, atol=tolerance)


def refused(call: Callable[[], object], error: type[TaskfuseError] = TaskfuseError) -> str:
    """The text of the error that ``call`` raises, without the source snippet."""
    with pytest.raises(error) as caught:
        call()
    e = caught.value
    return "\n".join([e.message, *(f"note: {n}" for n in e.notes), *([f"help: {e.help}"] if e.help else [])])


class Measured:
    """Extents, boxes and ranges of a fusion's nodes, by name, as text."""

    def __init__(self, fusion: tf.Fusion) -> None:
        fusion = prepare(fusion)
        tree = complete(fusion)
        self.ranges = ThreadRanges.of(fusion, tree)
        self.nodes: dict[str, Node] = {n.name: n for n in (tree.root, *fusion.tasks.nodes, *tree.tensors)}

    def extent(self, node: str, p: P) -> str | None:
        """E_p of a node; ``None``: unbound."""
        found = self.ranges.extent(self.nodes[node], p)
        return None if found is None else str(found)

    def box(self, node: str, p: P) -> tuple[str, str]:
        """Start and extent of a node's box."""
        span = self.ranges.box(self.nodes[node], p)
        return str(span.start), str(span.extent)

    def range(self, node: str, p: P) -> tuple[str, str]:
        """Start and extent of a node's thread range."""
        span = self.ranges.range(self.nodes[node], p)
        return str(span.start), str(span.extent)

    def aligned(self, node: str, k: int = 32) -> bool:
        """True if the thread range is made of whole groups of ``k`` threads."""
        return self.ranges.is_aligned(self.nodes[node], k)

    def launch(self) -> tuple[str, str, str]:
        """Threads per block."""
        x, y, z = (str(self.ranges.launch[p]) for p in (P.TIDx, P.TIDy, P.TIDz))
        return x, y, z


def barriers(kernel: tf.Kernel) -> list[Barrier]:
    """The barriers of a kernel's text that order data: not the one after the initialization of mbarriers, nor those before an arrival."""
    notes = ("barriers are initialized", "before one lane arrives for the warp")
    return [s for s in walk(kernel) if isinstance(s, Barrier) and s.note not in notes]


def scopes(kernel: tf.Kernel) -> list[BarrierScope]:
    """Who meets at the barriers of :func:`barriers`."""
    return [b.scope for b in barriers(kernel)]


def buffer(kernel: tf.Kernel, name: str) -> Buffer:
    """A buffer by name."""
    return next(b for b in kernel.buffers if b.name == name)


def conditions(kernel: tf.Kernel) -> list[list[str]]:
    """The conditions of every if / else-if chain, in the order of the text."""
    return [[str(b.cond) for b in s.branches] for s in walk(kernel) if isinstance(s, If)]


def body(kernel: tf.Kernel) -> str:
    """The statements of a kernel's text, without its declarations and the initialization of barriers."""
    lines = str(kernel).split("\n\n", 1)[1].splitlines()
    starts = [k for k, line in enumerate(lines) if "barriers are initialized" in line]
    return "\n".join(lines[starts[0] + 1 :] if starts else lines)


def turned(rows: int, columns: int, ptypes: tuple[P, ...], reader: tuple[P, ...] | None = None, flips: tuple[int, ...] = (1,)) -> tf.Fusion:
    """a = -x, then its reversal along ``flips``, [rows, columns]."""
    with tf.Fusion("turned") as fusion:
        x = tf.define_tensor([rows, columns], name="x")
        a = tf.neg(x)
        b = tf.add(tf.flip(a, flips), 1.0)
        fusion.add_output(b)
    bind(a, *ptypes)
    bind(b, *(reader or ptypes))
    return fusion
