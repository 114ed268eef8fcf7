"""Which threads can touch one element: a barrier of a warp where data stays in it, of the block where it does not."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.ir.calls import AllocationLayout
from taskfuse.kir.synchronization import BarrierScope
from tests.lowering.faults import missed
from tests.lowering.running import agrees, numbers, scopes

BLOCK, WARP = BarrierScope.BLOCK, BarrierScope.WARP


def exchange(rows: int, columns: int, within: int, layout: AllocationLayout | None = None) -> tf.Fusion:
    """Rows written by a thread for each column, and read with the two digits of a column in blocks of ``within`` exchanged."""
    with tf.Fusion("exchange") as fusion:
        x = tf.define_tensor([rows, columns], name="x")
        a = tf.neg(x)
        b = tf.abs(a)
        fusion.add_output(b)
    a.set_memory_type(MemoryType.Shared)
    if layout is not None:
        a.set_allocation_domain(layout)
    a.axis(1).parallelize(P.TIDx)
    b.split(1, within).split(2, 4).reorder({3: 2})
    for k in (1, 2, 3):
        b.axis(k).parallelize(P.TIDx)
    a.inline_at(1)
    return fusion


@pytest.mark.parametrize(
    ("columns", "within", "scope"), [(64, 32, WARP), (128, 16, WARP), (128, 8, WARP), (128, 64, BLOCK), (128, 128, BLOCK), (48, 16, BLOCK)]
)
def test_lanes_of_one_warp_and_others(columns: int, within: int, scope: BarrierScope) -> None:
    fusion, x = exchange(3, columns, within), numbers(3, columns)
    kernel = agrees(fusion, x)
    assert set(scopes(kernel)) == {scope}
    assert ("tv1 crosses lanes in" in str(kernel)) == (scope is WARP)
    assert missed(kernel, fusion, x) == []


def test_rings_and_padded_rows() -> None:
    fusion, x = exchange(5, 64, 16, tf.layouts.padded(4)), numbers(5, 64)
    assert set(scopes(agrees(fusion, x))) == {WARP}
    fusion.tensors()[1].circular_buffer(2)
    kernel = agrees(fusion, x)
    assert set(scopes(kernel)) == {WARP}
    assert missed(kernel, fusion, x) == []


@pytest.mark.parametrize(("shape", "scope"), [((2, 4, 32), BLOCK), ((3, 4, 32), BLOCK), ((2, 4, 48), BLOCK), ((3, 4, 48), BarrierScope.GRID)])
def test_digits_of_a_block_lie_along_several_axes(shape: tuple[int, int, int], scope: BarrierScope) -> None:
    """A block stores and updates rows of its own, whichever they are, where its threads have whole rows."""
    with tf.Fusion("rows") as fusion:
        index, x = tf.define_tensor(shape, tf.int32, name="index"), tf.define_tensor(shape, tf.int32, name="x")
        fusion.add_output(tf.scatter_add(tf.zeros(shape, tf.int32), 2, index, x))
    tf.schedulers.scatter(fusion, tf.schedulers.ScatterConfig(32, 4))
    kernel = tf.lower(fusion)
    assert set(scopes(kernel)) == {scope}
    assert kernel.verify().is_proved
    given = np.random.default_rng(0).integers(0, shape[2], shape).astype(np.int32), np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    np.testing.assert_array_equal(kernel.simulate(*given, seed=0)[0], fusion.evaluate(*given)[0])
