"""Values of bulk copies and of products: a box may be all of a buffer that has no slots; launches of each instruction can be run to the end."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.check import Layer, Verdict
from taskfuse.check.values.execution import execute
from taskfuse.ir.scalar import const
from taskfuse.kir import Kernel, map_stmts
from taskfuse.kir.nodes import Compute, For, Stmt
from taskfuse.kir.operands import Access
from taskfuse.testing.instruction_subjects import INSTRUCTIONS


def stored(rows: int) -> Kernel:
    """Tiles of so many rows, each stored by a bulk copy from Shared memory."""
    with tf.Fusion("box") as fusion:
        y = tf.exp(tf.define_tensor(["N", 32], name="x"))
        fusion.add_output(y)
    tile = y.cache_before()
    tile.set_memory_type(tf.MemoryType.Shared)
    y.split(0, rows).propagate([tile], upto=1)
    y.axis(0).parallelize(P.BIDx)
    y.set_atom(tf.atoms.TMA_STORE, (1, 2))
    tf.parallelize_like(y, [tile])
    tile.axis(2).parallelize(P.TIDx)
    tile.inline_at(1)
    return tf.lower(fusion)


def backwards(s: Stmt) -> Stmt:
    """Rows are written from the last to the first."""
    return replace(s, out=Access(s.out.buffer, (15 - s.out.index[0], s.out.index[1]))) if isinstance(s, Compute) else s


def fewer(s: Stmt) -> Stmt:
    """The last row is not written."""
    return replace(s, stop=const(15)) if isinstance(s, For) else s


def test_all_of_a_buffer() -> None:
    for rows in (1, 16):
        stored(rows).verify().require()


@pytest.mark.parametrize("mistake", [backwards, fewer])
def test_what_does_not_fill_it(mistake: Callable[[Any], Stmt]) -> None:
    kernel = stored(16)
    wrong = replace(kernel, body=map_stmts(kernel.body, mistake))
    assert any(o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED for o in wrong.verify().argument)
    assert wrong.verify({"N": 40}).verdict is Verdict.REFUTED


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_one_run_decides_them(name: str) -> None:
    """A run that stopped on the way would be too large to look at."""
    kernel = tf.lower(INSTRUCTIONS[name]())
    assert execute(kernel, {e.name: e.multiple_of * -(-max(e.min, 24) // e.multiple_of) for e in kernel.extents}) is None
