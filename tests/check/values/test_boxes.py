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
from tests.executions import gaps


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


ROWS = """\
KERNEL rows(x: float32[3, K], w: float32[K]) -> (z: float32[])
  DIM K multiple_of 4 min 4 max 32
  TENSORMAP m = x box (1, 32) swizzle 0
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[3, 32] align 128
  LOCAL acc: float32[]
  LOCAL b: float32[]
  MBARRIER full[1]
  DEFINE v: float32[2, K] = copy(x[{row}, i1])
  DEFINE b: float32[K] = copy(w[i0])
  DEFINE z: float32[] over (2, K) at () = reduce add of mul(v[i0, i1], b[i1]) from 0.0

IF threadIdx.x == 0:
  INIT full[0] count 1
  FENCE mbarrier_init
SYNC block
IF threadIdx.x == 0:
  EXPECT full[0] bytes 128*{rows}
  FOR r in 0..{rows}:
    TMA s[r, 0] <- m({from_}, 0) on full[0]  ~ value v[r + tile.0, tile.1] tile (1, 32)
WAIT full[0] parity 0
IF threadIdx.x == 0:
  acc = copy(0.0)  ~ start z
  FOR r in 0..{rows}:
    FOR k in 0..32:
      b = pad(w[k] if k < K, otherwise 0)  ~ value b[k]
      acc = fma(s[r, k], b, acc)  ~ term z[r, k]
  z[] = copy(acc)  ~ value z[]
"""


def rows_gaps(rows: int, row: str, from_: str) -> list[str]:
    return gaps(ROWS.format(rows=rows, row=row, from_=from_))


def test_a_box_overhangs_an_axis_of_its_own() -> None:
    """Rows of a box may be any rows, as none lies past the end: only along the axis that the box overhangs its source ends with it."""
    assert rows_gaps(2, "i0", "r") == []
    assert rows_gaps(2, "1 - i0", "1 - r") == []
    assert rows_gaps(2, "i0 + 1", "r + 1") == []


@pytest.mark.parametrize(("rows", "row", "from_"), [(3, "i0", "r"), (3, "2 - i0", "2 - r"), (2, "i0 + 1", "r"), (2, "1 - i0", "r"), (1, "i0", "r")])
def test_rows_past_the_end_are_those_of_the_source(rows: int, row: str, from_: str) -> None:
    assert rows_gaps(rows, row, from_) != []
