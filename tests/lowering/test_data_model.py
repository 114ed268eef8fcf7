"""How loops, indices, memory and channels combine: axes, swizzles, foreign loops, rings. Each case runs under every interleaving, exactly."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from taskfuse.ir.scalar import sym, xor

SEEDS = range(len(tf.Interleaving))


def numbers(*shape: int) -> npt.NDArray[np.float32]:
    """Distinct small integers: sums of products of them are exact."""
    return np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)


def check(fusion: tf.Fusion, *args: npt.NDArray[Any]) -> str:
    """Simulates under every interleaving, which must give what NumPy gives, bit by bit. Returns the loop nest."""
    kernel = tf.lower(fusion)
    refs = fusion.evaluate(*args)
    for seed in SEEDS:
        for out, ref in zip(kernel.simulate(*args, seed=seed), refs, strict=True):
            np.testing.assert_array_equal(out, ref)
    return str(kernel)


# -- two axes bound to TIDx ---------------------------------------------------------------------------------------------------------


def test_two_axes_bound_to_tidx_are_its_digits() -> None:
    with tf.Fusion("digits") as fusion:
        x = tf.define_tensor([4, 3, 8], name="x")
        y = tf.neg(x)
        fusion.add_output(y)
    y.axis(0).parallelize(P.TIDx)
    y.axis(2).parallelize(P.TIDx)
    text = check(fusion, numbers(4, 3, 8))
    assert "BLOCK (32, 1, 1)" in text
    assert "tv1[threadIdx.x//8, i1, threadIdx.x % 8] = neg(x[threadIdx.x//8, i1, threadIdx.x % 8])" in text


def test_equal_digits_need_no_barrier_and_exchanged_digits_cross() -> None:
    def build(exchanged: bool) -> tf.Fusion:
        with tf.Fusion("digits") as fusion:
            x = tf.define_tensor([4, 8], name="x")
            y = tf.neg(x)
            z = tf.copy(y)
            fusion.add_output(z)
        if exchanged:
            z.reorder([1, 0])
        for tv in (y, z):
            tv.axis(0).parallelize(P.TIDx)
            tv.axis(1).parallelize(P.TIDx)
        return fusion

    equal, exchanged = (check(build(b), numbers(4, 8)) for b in (False, True))
    assert "SYNC" not in equal
    assert "LOCAL tv1" in equal
    assert "# tv1 crosses TIDx" in exchanged
    assert "SHARED tv1" in exchanged


@pytest.mark.parametrize("reduced", [0, 2])
def test_a_reduction_addresses_one_digit(reduced: int) -> None:
    with tf.Fusion("digits") as fusion:
        x = tf.define_tensor([4, 3, 8], name="x")
        total = tf.sum(x, axis=reduced)
        y = tf.neg(total)
        fusion.add_output(y)
    total.axis(0).parallelize(P.TIDx)
    total.axis(2).parallelize(P.TIDx)
    y.axis(0 if reduced else 1).parallelize(P.TIDx)
    assert "BLOCK (32, 1, 1)" in check(fusion, numbers(4, 3, 8))


def test_digits_of_a_split_that_does_not_divide() -> None:
    with tf.Fusion("digits") as fusion:
        x = tf.define_tensor(["N"], name="x")
        y = tf.copy(tf.neg(x))
        fusion.add_output(y)
    for tv in fusion.tensors():
        tv.split(0, 8).split(0, 3)  # [N/24, 3, 8]
        tv.reorder([1, 0, 2])
        tv.axis(0).parallelize(P.TIDx)
        tv.axis(2).parallelize(P.TIDx)
    fusion.inline_most()
    for n in (1, 24, 25, 50):
        assert "BLOCK (24, 1, 1)" in check(fusion, numbers(n))


# -- a Local allocation spread over TIDx --------------------------------------------------------------------------------------------


def spread(rows: int) -> tf.Fusion:
    """Thread t computes elements 8t .. 8t+7; the allocation domain gives ``rows`` elements in a row to each thread."""
    with tf.Fusion("spread") as fusion:
        x = tf.define_tensor([32], name="x")
        y = tf.neg(x)
        z = tf.copy(y)
        fusion.add_output(z)
    for tv in (y, z):
        tv.split(0, 8)  # [4, 8]
        tv.axis(0).parallelize(P.TIDx)
    y.set_memory_type(MemoryType.Local)
    y.set_allocation_domain(tf.allocation(y).merge(0).split(0, rows).parallelize(0, P.TIDx))
    return fusion


def test_a_local_allocation_spread_over_tidx() -> None:
    text = check(spread(rows=8), numbers(32))
    assert "LOCAL tv1: float32[8]" in text
    assert "SYNC" not in text


def test_a_local_allocation_that_another_thread_owns_is_refused() -> None:
    with pytest.raises(LoweringError) as error:
        tf.lower(spread(rows=16))
    assert str(error.value).startswith("cannot lower tv1: its allocation puts an element into the registers of index ")
    assert "of TIDx, which does not compute it\n" in str(error.value)
    assert str(error.value).endswith("help: bind loop and allocation axes alike")


# -- an XOR-swizzled Shared tile read back ------------------------------------------------------------------------------------------


def test_an_xor_swizzled_shared_tile_read_back_transposed() -> None:
    with tf.Fusion("swizzle") as fusion:
        x = tf.define_tensor(["M", "N"], name="x")
        y = tf.copy(x.T)
        fusion.add_output(y)
    tile = x.cache_after()
    y.split(0, 8).split(2, 8).reorder([0, 2, 1, 3])
    y.propagate([tile], upto=2)
    tile.set_memory_type(MemoryType.Shared)
    tile.set_allocation_domain(tf.allocation(tile).swizzle(2, 3))
    for tv in (y, tile):
        for axis, p in enumerate((P.BIDy, P.BIDx, P.TIDy, P.TIDx)):
            tv.axis(axis).parallelize(p)
    tile.inline_at(2)
    for shape in ((8, 8), (13, 21), (1, 3)):
        text = check(fusion, numbers(*shape))
    assert "SHARED tv3: float32[8, 8]" in text
    assert "tv3[threadIdx.y, xor(threadIdx.x, threadIdx.y)] = copy(" in text
    assert "copy(tv3[threadIdx.x, xor(threadIdx.x, threadIdx.y)])" in text


@pytest.mark.parametrize("span", [32, 64, 128])
def test_the_swizzles_of_tma_read_back(span: int) -> None:
    with tf.Fusion("swizzle") as fusion:
        x = tf.define_tensor([16, 64], dtype=tf.bfloat16, name="x")
        y = tf.copy(x.T)
        fusion.add_output(y)
    tile = x.cache_after()
    tile.set_memory_type(MemoryType.Shared)
    tile.set_allocation_domain(tf.layouts.swizzled(span))
    tile.split(0, 4)
    tile.axis(1).parallelize(P.TIDy)
    tile.axis(2).parallelize(P.TIDx)
    y.axis(0).parallelize(P.TIDx)
    assert "xor" in check(fusion, numbers(16, 64).astype(tf.bfloat16.numpy))


# -- a grid-stride loop with a backward map only -------------------------------------------------------------------------------------------


def rasterized_product() -> tf.Fusion:
    """A matrix product of 4 x 4 tiles whose work axis visits the tile grid [2, 4] with alternating direction of rows."""
    with tf.Fusion("raster") as fusion:
        a = tf.define_tensor([8, 12], name="a")
        b = tf.define_tensor([12, 16], name="b")
        c = a @ b
        fusion.add_output(c)
    tiles = [a.cache_after(), b.cache_after()]
    c.split(0, 4).split(2, 4).split(4, 4).reorder([0, 2, 4, 1, 3, 5])  # [mo, no, ko, m, n, k]
    w = sym("i0")
    c.rasterize([0, 1], [xor(w % 2, w // 4), w // 2])  # [w, ko, m, n, k]
    c.propagate(tiles, upto=2)
    for tv in (c, *tiles):
        tv.axis(2).parallelize(P.TIDy)
        tv.axis(3).parallelize(P.TIDx)
    for tv in tiles:
        tv.set_memory_type(MemoryType.Shared)
        tv.inline_at(2)
    return fusion


def test_a_work_loop_with_a_backward_map_only() -> None:
    text = check(rasterized_product(), numbers(8, 12), numbers(12, 16))
    assert "FOR i0 in 0..8:" in text
    assert "LOCAL tv2.acc: float32[]" in text
    assert "SHARED tv3: float32[4, 4]" in text
    assert "SHARED tv4: float32[4, 4]" in text


def test_a_work_loop_bound_to_blocks_and_dealt_in_waves() -> None:
    fusion = rasterized_product()
    tensors = [tv for tv in fusion.tensors() if not tv.is_input]
    for tv in tensors:
        tv.inline_at(0)
    for tv in tensors:
        tv.split(0, 3)  # [wave, block, ...]: 8 items of work on 3 blocks
        tv.axis(1).parallelize(P.BIDx)
    for tv in tensors:
        if not tv.is_output:
            tv.inline_at(3)
    text = check(fusion, numbers(8, 12), numbers(12, 16))
    assert "GRID (3, 1, 1)" in text


def test_a_work_loop_by_table() -> None:
    with tf.Fusion("raster") as fusion:
        x = tf.define_tensor([3, 5], name="x")
        y = tf.copy(tf.neg(x))
        fusion.add_output(y)
    order = np.random.default_rng(1).permutation(15)
    w = sym("i0")
    maps = [tf.scalar.table(tuple(int(v) for v in order // 5), w), tf.scalar.table(tuple(int(v) for v in order % 5), w)]
    for tv in fusion.tensors():
        if not tv.is_input:
            tv.rasterize([0, 1], maps)
            tv.axis(0).parallelize(P.BIDx)
    fusion.inline_most()
    assert "GRID (15, 1, 1)" in check(fusion, numbers(3, 5))


# -- foreign axes in the loops that roles share -------------------------------------------------------------------------------------


def roles_product(stages: int, instances: int = 1) -> tf.Fusion:
    """A matrix product by two roles that walk [tile, instance, ko]: one loads, the other multiplies, on ``instances`` tiles at a time."""
    with tf.Fusion("roles") as fusion:
        a = tf.define_tensor(["M", "K"], name="a")
        b = tf.define_tensor(["K", "N"], name="b")
        c = a @ b
        fusion.add_output(c)
    tiles = [a.cache_after(), b.cache_after()]
    c.split(0, 8).split(2, 4).split(4, 4).reorder([0, 2, 4, 1, 3, 5])  # [mo, no, ko, m, n, k]
    c.merge(0).split(0, instances)  # [tile, instance, ko, m, n, k]
    c.propagate(tiles, upto=3)
    c.axis(3).parallelize(P.TIDx)
    c.axis(4).parallelize(P.TIDx)
    for tv in tiles:
        tv.axis(3).parallelize(P.TIDx)
        tv.axis(4).parallelize(P.TIDx)
        tv.circular_buffer(stages)
    if instances > 1:
        c.axis(1).parallelize(P.TIDy)  # Serial in the loads
    fusion.group([fusion.task(tiles, name="load"), fusion.task([c], name="multiply")]).parallelize(P.TIDz)
    for tv in tiles:
        tv.inline_at(3)
    return fusion


@pytest.mark.parametrize(("stages", "instances"), [(1, 1), (2, 1), (4, 1), (2, 2), (3, 2), (4, 3)])
def test_roles_share_a_merged_tile_loop_that_each_operand_lacks_a_dimension_of(stages: int, instances: int) -> None:
    fusion = roles_product(stages, instances)
    for m, k, n in ((8, 4, 4), (17, 9, 10), (1, 13, 1)):
        text = check(fusion, numbers(m, k), numbers(k, n))
    assert f"SHARED tv3: float32[{stages}, 8, 4]" in text
    assert f"SHARED tv4: float32[{stages}, 4, 4]" in text
    assert "LOCAL tv2.acc: float32[]" in text
    assert f"BLOCK (32, {instances}, 2)" in text
    assert "ch1" not in text  # both operands travel through one channel


# -- an axis Serial in the producer but thread-bound in the consumer ----------------------------------------------------------------


def distributed(stages: int, instances: int = 2) -> tf.Fusion:
    """A producer walks [wave, instance, step]; instances of the consumer, bound to TIDy, take the steps of their own index."""
    with tf.Fusion("distributed") as fusion:
        x = tf.define_tensor(["W", "S", 32], name="x")
        a = tf.neg(x)
        total = tf.sum(a, axis=1)
        fusion.add_output(total)
    for tv in (a, total):
        tv.split(0, instances)  # [wave, instance, step, 32]
        tv.axis(3).parallelize(P.TIDx)
    total.axis(1).parallelize(P.TIDy)  # Serial in a
    a.circular_buffer(stages)
    fusion.group([fusion.task([a]), fusion.task([total])]).parallelize(P.TIDz)
    a.inline_at(3)
    return fusion


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("instances", [2, 3])
def test_an_axis_serial_in_the_producer_and_thread_bound_in_the_consumer(stages: int, instances: int) -> None:
    fusion = distributed(stages, instances)
    for waves, steps in ((1, 1), (4, 3), (5, 2)):
        text = check(fusion, numbers(waves, steps, 32))
    assert f"BLOCK (32, {instances}, 2)" in text
    assert "INIT ch0.empty[0] count 1" in text  # one instance releases a slot


def one_role() -> tuple[tf.Fusion, tf.TensorView]:
    """Every thread could make all elements, each reads those of its own index."""
    with tf.Fusion("one_role") as fusion:
        x = tf.define_tensor([6, 8], name="x")
        y = tf.neg(x)
        z = tf.copy(y)
        fusion.add_output(z)
    z.axis(1).parallelize(P.TIDx)
    return fusion, y


def test_an_axis_serial_in_the_producer_and_thread_bound_in_the_consumer_of_one_role() -> None:
    fusion, y = one_role()
    y.set_memory_type(MemoryType.Shared)
    text = check(fusion, numbers(6, 8))
    assert "SHARED tv1: float32[6, 8]" in text
    assert "# tv1 crosses TIDx" in text


def test_registers_are_not_indexed_by_the_thread() -> None:
    with pytest.raises(LoweringError) as error:
        tf.lower(one_role()[0])
    assert "tv1: it is Local, and tv2 would find an element in it by the thread's index: a register has no address" in str(error.value)


def test_outer_splits_by_different_factors_are_different_loops() -> None:
    """Both split one element, into 3 x 1 and 4 x 1: loops of 3 and of 4 trips are not one."""
    with tf.Fusion("factors") as fusion:
        x = tf.define_tensor([1], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    a.split(0, 3, inner=False)
    b.split(0, 4, inner=False)
    fusion.inline_most()
    assert a.schedule.inline == 0
    fusion.group([fusion.task([a]), fusion.task([b])]).parallelize(P.TIDz)
    value = np.array([2.0], np.float32)
    assert (tf.lower(fusion).simulate(value)[0] == 1 - value).all()
