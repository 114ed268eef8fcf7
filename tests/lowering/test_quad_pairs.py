"""Instructions that quad pairs execute side by side: any axes may number them, of the rows, the columns or, after ``rfactor``, the terms."""

from __future__ import annotations

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType, TensorView
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError, ScheduleError
from taskfuse.ir.atoms import Atom, mma

LAYOUTS = [(a, b) for a in ("row", "col") for b in ("row", "col")]


def load(held: TensorView, along_k: bool) -> None:
    """[quad pairs, 8, 4] as an operand of quad pairs."""
    held.split(1, 4).reorder([1, 0, 2, 3] if along_k else [1, 0, 3, 2])
    for axis in range(3):
        held.axis(axis).parallelize(P.TIDx)
    held.axis(3).parallelize(P.Unroll)


def product(shape: tuple[int, int, int], over: int, a: str, b: str, loaded: str = "") -> tuple[tf.Fusion, TensorView, Atom]:
    """``a @ b.T`` with one instruction, axis ``over`` (m, n or k) split over the quad pairs; ``a`` is loaded as ``loaded`` says, by default as it is taken."""
    m, n, k = shape
    with tf.Fusion("product") as fusion:
        x, y = (tf.define_tensor([rows, k], dtype=tf.float16, name=name) for rows, name in ((m, "x"), (n, "y")))
        total = tf.matmul(x, y.T, dtype=tf.float32)
        result = tf.copy(total)
        fusion.add_output(result)
    held = x.cache_after(), y.cache_after()
    atom = mma(8, 8, 4, a, b)
    total.split(over, (8, 8, 4)[over])
    acc = total.rfactor([3]) if over == 2 else total
    acc.reorder({over: 0})
    acc.propagate(held, upto=1)
    acc.set_atom(atom, (-3, -2, -1))
    acc.axis(0).parallelize(P.TIDx)
    load(held[0], (loaded or a) == "row")
    load(held[1], b == "col")
    if over == 2:
        staged = acc.cache_after()
        staged.set_memory_type(MemoryType.Shared)
        staged.reorder({2: 0})
        spread(staged, atom)
        for tv in (total, result):
            tv.merge(0).split(0, 32)
            tv.axis(1).parallelize(P.TIDx)
        total.inline_at(2)
    else:
        result.split(over, 8).reorder({over: 0})
        spread(result, atom)
    return fusion, acc, atom


def spread(tv: TensorView, atom: Atom) -> None:
    """[quad pairs, 8, 8] as the result of quad pairs."""
    tv.fragment((0, 1, 2), atom)
    for axis in (-3, -2, -1):
        tv.axis(axis).parallelize(P.Unroll)


@pytest.mark.parametrize(("a", "b"), LAYOUTS)
@pytest.mark.parametrize(("shape", "over"), [((32, 8, 4), 0), ((8, 32, 4), 1), ((8, 8, 16), 2)])
def test_quad_pairs_divide_any_axis(shape: tuple[int, int, int], over: int, a: str, b: str) -> None:
    kernel = tf.lower(product(shape, over, a, b)[0])
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, (rows, shape[2])).astype(np.float16) for rows in shape[:2])
    (out,) = kernel.simulate(x, y, seed=1)
    np.testing.assert_array_equal(out, x.astype(np.float32) @ y.astype(np.float32).T)
    kernel.verify().require()


def test_four_values_of_tidx_number_the_quad_pairs() -> None:
    fusion, acc, _ = product((32, 8, 4), 0, "row", "col")
    acc.axis(0).parallelize(P.Serial)
    with pytest.raises(LoweringError, match="4 parts of a warp execute the atom mma_m8n8k4_row_col side by side, and no axes of 4 values together say which"):
        tf.lower(fusion)


def test_operands_of_another_layout_are_refused() -> None:
    """Registers along k are not those of an instruction that takes them along the rows: other threads read the elements."""
    fusion, _, _ = product((32, 8, 4), 0, "col", "col", loaded="row")
    with pytest.raises(LoweringError, match="the atom mma_m8n8k4_col_col takes its factors from registers, and tv5 lives in Shared memory"):
        tf.lower(fusion)
    fusion.tensor("tv5").set_memory_type(MemoryType.Local)
    with pytest.raises(LoweringError, match="tv5: it is set to Local, but tv3 reads elements of tv5 that other indices of TIDx compute"):
        tf.lower(fusion)


def test_fragment_takes_the_axes_of_quad_pairs() -> None:
    with tf.Fusion("copy") as fusion:
        x = tf.define_tensor([4, 8, 8], name="x")
        y = tf.copy(x)
        fusion.add_output(y)
    with pytest.raises(ScheduleError, match="are not axes of 4 values together, then 8 rows and 8 columns"):
        y.fragment((1, 2), mma(8, 8, 4, "row", "row"))
    y.split(0, 2)
    y.fragment((0, 1, 2, 3), mma(8, 8, 4, "row", "row"))
    assert [str(axis.extent) for axis in y.loop] == ["2", "2", "2", "2", "2", "2", "2", "2"]
    assert [y.schedule.ptype(axis) for axis in y.loop] == [P.TIDx] * 5 + [P.Serial] * 3
