"""Reductions that threads of blocks of symbolic extents join: right ones are proved for all extents, and none of their twins, each wrong at some extents."""

from functools import cache

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.check import Layer, Verdict
from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.block_threads import BlockThreads
from taskfuse.check.values.solve import Open
from taskfuse.check.values.written import BufferStorage
from taskfuse.check.verify import verify
from taskfuse.ir.scalar import const, parse_expr
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.nodes import Compute

FEW = "KERNEL k(x: float32[N, M]) -> (y: float32[M])\n  DIM N, M\n  GRID (1, 1, 1)  BLOCK {}\n  LOCAL r: float32[]\n  SHARED s: float32[{}] align 16\n\n{}\n"
SHARED = {"s": BufferStorage(MemoryType.Shared, (), 4), "r": BufferStorage(MemoryType.Local, (), 4)}


def threads(block: str, shape: str, *joins: str) -> BlockThreads:
    tree = StatementTree.of(parse_kernel(FEW.format(block, shape, "\n".join(joins))))
    return BlockThreads.of(tree.kernel, [n for n in tree.leaves() if isinstance(n.stmt, Compute)], SHARED)


def test_an_index_with_an_axis_of_its_own_is_one_number() -> None:
    found = threads("(32, 1, M)", "32, M", "s[threadIdx.x, threadIdx.z] = copy(r)", "r = copy(s[threadIdx.x + 1, threadIdx.z])")
    assert (found.fixed, found.along, found.count, found.is_whole_warps) == (frozenset({"threadIdx.z"}), "", 32, True)
    assert not found.says(parse_expr("threadIdx.z"))


@pytest.mark.parametrize("index", ["threadIdx.z + 1", "threadIdx.x"])
def test_an_index_that_meets_others_is_open(index: str) -> None:
    found = threads("(32, 1, M)", "32, M", "s[threadIdx.x, threadIdx.z] = copy(r)", f"r = copy(s[threadIdx.x, {index}])")
    assert (found.fixed, found.along, found.extent, found.count) == (frozenset(), "threadIdx.z", parse_expr("M"), 1024)


def test_an_open_index_takes_as_many_values_as_a_block_can_have() -> None:
    found = threads("(4, M, 3)", "M", "s[threadIdx.y] = copy(r)", "r = copy(s[0])")
    assert int(found.index["threadIdx.y"].max()) + 1 == 1024 // 12
    assert threads("(1, 1, M)", "M", "s[threadIdx.z] = copy(r)", "r = copy(s[0])").count == 64
    needed = found.needed(parse_expr("threadIdx.y + 3 < M"))
    assert needed is not None
    assert (needed == found.index["threadIdx.y"] + 3).all()
    assert found.needed(parse_expr("threadIdx.y + 3 < N")) is None


def test_rows_of_an_open_index_are_no_warps() -> None:
    assert not threads("(M, 32, 1)", "M", "s[threadIdx.x] = copy(r)", "r = copy(s[0])").is_whole_warps
    assert threads("(32, M, 1)", "M", "s[threadIdx.y] = copy(r)", "r = copy(s[0])").is_whole_warps


def test_two_open_indices() -> None:
    with pytest.raises(Open, match="several extents of the block are not constant"):
        threads("(N, M, 1)", "N, M", "s[threadIdx.x, threadIdx.y] = copy(r)", "r = copy(s[0, 0])")


def test_threads_by_number() -> None:
    found = threads("(2, 3, 1)", "6", "s[threadIdx.x] = copy(r)")
    assert found.values(parse_expr("threadIdx.x + 2*threadIdx.y")).tolist() == list(range(6))
    assert found.chosen([parse_expr("threadIdx.x == 1 && N > 0")]).tolist() == [False, True] * 3
    assert found.extent == const(2)
    assert np.all(found.index["threadIdx.z"] == 0)


@cache
def across() -> str:
    """A sum whose terms ``ceildiv(N, 32)`` threads of each of 32 columns take."""
    with tf.Fusion("r") as fusion:
        x = tf.define_tensor(["M", "N"], name="x")
        y = x.sum(1)
        fusion.add_output(y)
    y.split(1, 32)
    for k, ptype in enumerate((P.BIDx, P.TIDy, P.TIDx)):
        y.axis(k).parallelize(ptype)
    return tf.lower(fusion).text(witness=True)


@cache
def planes() -> str:
    """A sum whose terms 32 threads take, of as many rows as a block has along z."""
    with tf.Fusion("r") as fusion:
        x = tf.define_tensor(["M", 64], name="x")
        y = x.sum(1)
        fusion.add_output(y)
    y.split(1, 32)
    y.axis(0).parallelize(P.TIDz)
    y.axis(2).parallelize(P.TIDx)
    return tf.lower(fusion).text(witness=True)


def edited(text: str, old: str, new: str) -> Kernel:
    assert old in text, old
    return parse_kernel(text.replace(old, new))


def gaps(kernel: Kernel) -> list[str]:
    return [o.reason for o in kernel.verify().argument if o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED]


def test_sums_across_symbolic_extents() -> None:
    for text in (across(), planes()):
        parse_kernel(text).verify().require()
    verify(parse_kernel(across()), {"M": 2, "N": 40}).require()


TWINS = {
    "a step of too few threads": ("threadIdx.y + 4 < ceildiv(N, 32)", "threadIdx.y + 5 < ceildiv(N, 32)", "exist in a block in which it does not"),
    "a step of too many threads": ("threadIdx.y < 4 && threadIdx.y + 4 < ceildiv(N, 32)", "threadIdx.y < 4", "has written in a smaller block"),
    "a step that one thread leaves out": ("threadIdx.y < 4 &&", "threadIdx.y < 3 &&", "some of the threads of a symbolic extent"),
    "a step twice": ("tv1.part[threadIdx.x, threadIdx.y + 4]", "tv1.part[threadIdx.x, threadIdx.y]", "joins the partial result of thread 0 twice"),
    "a term that is left out": ("32*threadIdx.y < N:", "32*threadIdx.y < N - 1:", ""),
    "a thread that stores nothing": (
        "  tv1.part[threadIdx.x, threadIdx.y] = copy(tv1.acc)  ~ part tv1\n  SYNC block  # tv1.part crosses TIDy",
        "  IF threadIdx.y + 1 < ceildiv(N, 32):\n    tv1.part[threadIdx.x, threadIdx.y] = copy(tv1.acc)  ~ part tv1\n  SYNC block  # tv1.part crosses TIDy",
        "reads a partial result that was never written",
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_steps_of_symbolic_extents(name: str) -> None:
    old, new, reason = TWINS[name]
    wrong = edited(across(), old, new)
    found = gaps(wrong)
    assert any(reason in gap for gap in found), found
    assert not all(verify(wrong, {"M": 1, "N": n}).is_proved for n in (130, 400))


def test_a_plane_of_another_row() -> None:
    wrong = edited(planes(), "tv1.acc = copy(tv1.part[0, threadIdx.z])", "tv1.acc = copy(tv1.part[0, 0])")
    assert "thread 32 has terms of another element: threadIdx.z of the threads that it joins differs" in gaps(wrong)
    assert not verify(wrong, {"M": 2}).is_proved
