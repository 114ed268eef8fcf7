"""Reductions by whole warps: shuffles, one slot per warp, one barrier; and where the tree over Shared memory stays."""

import math

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.ir.scalar import Const
from taskfuse.kir import walk
from taskfuse.kir.nodes import For
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import BarrierScope
from tests.lowering.faults import is_caught, missed, without
from tests.lowering.running import Array, agrees, bind, numbers, scopes

S, TX, TY, TZ, BX = P.Serial, P.TIDx, P.TIDy, P.TIDz, P.BIDx
FEW = (tf.Interleaving.LOW_FIRST, tf.Interleaving.HIGH_FIRST, tf.Interleaving.RANDOM)


def reduction(shape: tuple[int, ...], axes: tuple[int, ...], ptypes: tuple[P, ...], op: str = "sum") -> tuple[tf.Fusion, Array]:
    """``op(x, axes) + 1``, bound alike."""
    with tf.Fusion("reduction") as fusion:
        x = tf.define_tensor(list(shape), name="x")
        r = getattr(tf, op)(x, axes)
        y = tf.add(r, 1.0)
        fusion.add_output(y)
    bind(r, *ptypes)
    bind(y, *(p for k, p in enumerate(ptypes) if k not in axes))
    return fusion, numbers(*shape)


def masks(kernel: tf.Kernel) -> list[int]:
    """The masks of a kernel's shuffles, in the order of the text."""
    return [s.mask for s in walk(kernel) if isinstance(s, Shuffle)]


def shared(kernel: tf.Kernel) -> int:
    """Elements of Shared memory."""
    sizes = [[e.value for e in b.shape if isinstance(e, Const)] for b in kernel.buffers if b.memory is MemoryType.Shared]
    return sum(math.prod(s) for s in sizes)


def slots(kernel: tf.Kernel) -> list[str]:
    """The trip counts of the loops that combine the partial results of warps."""
    return [str(s.stop) for s in walk(kernel) if isinstance(s, For) and s.var == "part.k"]


WARP = [16, 8, 4, 2, 1]


def test_a_block_of_256_has_one_barrier_and_one_element_per_warp() -> None:
    """The tree would have 9 barriers and 256 elements."""
    kernel = agrees(*reduction((3, 256), (1,), (BX, TX)))
    assert masks(kernel) == WARP
    assert scopes(kernel) == [BarrierScope.BLOCK]
    assert shared(kernel) == 8
    assert slots(kernel) == ["8"]
    text = str(kernel)
    assert "IF threadIdx.x % 32 == 0:\n    tv1.part[threadIdx.x//32] = copy(tv1)" in text


def test_a_block_of_1024_has_as_many_slots_as_a_warp_has_lanes() -> None:
    kernel = agrees(*reduction((1024,), (0,), (TX,)), interleavings=FEW)
    assert (masks(kernel), scopes(kernel), shared(kernel)) == (WARP, [BarrierScope.BLOCK], 32)


@pytest.mark.parametrize(
    ("shape", "axes", "ptypes", "exchanged", "elements"),
    [
        ((4, 32), (1,), (TY, TX), WARP, 0),  # a warp per row: no memory, no barrier
        ((8, 8), (1,), (TY, TX), [4, 2, 1], 0),  # four rows per warp
        ((8, 8), (0,), (TY, TX), [16, 8], 2 * 8),  # a row of 8 threads is a quarter of a warp
        ((8, 32), (0,), (TY, TX), [], 8 * 32),  # every warp has one part of each of 32 columns
        ((8, 32), (0, 1), (TY, TX), WARP, 8),
        ((2, 4, 16), (0, 2), (TZ, TY, TX), [8, 4, 2, 1], 2 * 4),
        ((2, 4, 16), (1, 2), (TZ, TY, TX), [16, 8, 4, 2, 1], 2 * 2),
        ((8, 8), (1,), (TX, TX), [4, 2, 1], 8),  # two digits of one index: the result is stored to Shared memory
        ((8, 8), (0,), (TX, TX), [16, 8], 2 * 8),
        ((8, 8), (0, 1), (TX, TX), [16, 8, 4, 2, 1], 2),
        ((96,), (0,), (TX,), WARP, 3),
        ((2, 48), (1,), (TY, TX), [8, 4, 2, 1], 3 * 2),  # groups of 16 lanes; a warp holds parts of both rows
        ((3, 4, 64), (2,), (S, TY, TX), WARP, 2 * 4),
    ],
)
def test_which_lanes_exchange(shape: tuple[int, ...], axes: tuple[int, ...], ptypes: tuple[P, ...], exchanged: list[int], elements: int) -> None:
    kernel = agrees(*reduction(shape, axes, ptypes), interleavings=FEW)
    assert masks(kernel) == exchanged
    assert shared(kernel) == elements


@pytest.mark.parametrize(
    ("shape", "axes", "ptypes"),
    [
        ((20,), (0,), (TX,)),  # not a warp
        ((40,), (0,), (TX,)),  # a warp and a part of one
        ((33, 32), (1,), (TX, S)),  # nothing is reduced across threads
        ((64, 3), (0,), (TX, TX)),  # 64 groups of one lane are left, since 3 columns are not a power of two
    ],
)
def test_other_sets_of_threads_have_a_tree(shape: tuple[int, ...], axes: tuple[int, ...], ptypes: tuple[P, ...]) -> None:
    kernel = agrees(*reduction(shape, axes, ptypes), interleavings=FEW)
    assert masks(kernel) == []
    assert slots(kernel) == []


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_every_operation_has_its_neutral_element(op: str) -> None:
    """Lanes 20 to 31 belong to the thread range, since another tensor of the task has 32."""
    with tf.Fusion("wide") as fusion:
        x, z = tf.define_tensor([20], name="x"), tf.define_tensor([32], name="z")
        r = getattr(tf, op)(x, 0)
        y = tf.mul(z, tf.expand_dims(r, 0))
        fusion.add_output(y)
    bind(r, TX)
    bind(y, TX)
    x_values = numbers(20) if op != "prod" else np.where(np.arange(20) < 4, 3, 1).astype(np.float32)
    kernel = agrees(fusion, x_values, numbers(32), interleavings=FEW)
    assert masks(kernel) == WARP
    assert shared(kernel) == 0


def test_rows_that_do_not_exist() -> None:
    """Six rows in tiles of four: the guard of a row stands around its accumulator, and around no shuffle."""
    with tf.Fusion("ragged") as fusion:
        x = tf.define_tensor([6, 64], name="x")
        s = tf.sum(x, 1)
        y = tf.neg(s)
        fusion.add_output(y)
    for tv in (s, y):
        tv.split(0, 4)
    bind(s, BX, TY, TX)
    bind(y, BX, TY)
    kernel = agrees(fusion, numbers(6, 64))
    assert masks(kernel) == WARP
    text = str(kernel)
    assert f"{s.name}.lane = copy(0.0)" in text
    assert f"\nFOR blockIdx.x in BIDx{{2}}:\n  FOR threadIdx.y in TIDy{{4}}:\n    IF 4*blockIdx.x + threadIdx.y < 6:\n      {s.name} = copy(0.0)" in text
    assert f"\n    SHUFFLE {s.name}.peer <- {s.name}.lane xor 16\n" in text


def test_the_barrier_is_needed_and_the_loop_around_has_a_second_one() -> None:
    fusion, x = reduction((64,), (0,), (TX,))
    assert missed(agrees(fusion, x), fusion, x) == []
    fusion, x = reduction((3, 64), (1,), (S, TX))
    fusion.inline_most()
    kernel = agrees(fusion, x)
    assert len(scopes(kernel)) == 2
    assert missed(kernel, fusion, x) == []


def test_every_shuffle_is_needed() -> None:
    for shape, axes, ptypes in (((64,), (0,), (TX,)), ((8, 8), (0,), (TY, TX)), ((4, 32), (1,), (TY, TX))):
        fusion, _ = reduction(shape, axes, ptypes)
        x = np.random.default_rng(0).integers(0, 2**16, shape).astype(np.float32)  # no two sums of 128 of them are equal by chance
        kernel = agrees(fusion, x)
        steps = [s for s in walk(kernel) if isinstance(s, Shuffle)]
        assert steps
        assert all(is_caught(without(kernel, s), fusion, x, seeds=1) for s in steps)


def test_members_of_a_horizontal_group_begin_with_a_warp() -> None:
    """Starts and extents of members that reduce are rounded up to warps, so that both shuffle; each waits for its own threads."""
    with tf.Fusion("members") as fusion:
        x, z = tf.define_tensor([20], name="x"), tf.define_tensor([3, 80], name="z")
        a, b = tf.sum(x, 0), tf.max(z, 1)
        ya, yb = tf.add(a, 1.0), tf.neg(b)
        fusion.add_output(ya)
        fusion.add_output(yb)
    bind(a, TX)
    bind(b, TY, TX)
    bind(yb, TY)
    fusion.group([fusion.task([a, ya]), fusion.task([b, yb])]).parallelize(TX)
    kernel = agrees(fusion, numbers(20), numbers(3, 80))
    assert str(kernel.block[0]) == "128"
    assert masks(kernel) == WARP + WARP
    assert slots(kernel) == ["3"]
    assert scopes(kernel) == [BarrierScope.NAMED]


def test_a_member_that_cannot_begin_with_a_warp() -> None:
    """24 threads below the group's type do not divide 32: nothing is padded."""
    with tf.Fusion("apart") as fusion:
        x, z = tf.define_tensor([24], name="x"), tf.define_tensor([24], name="z")
        a, b = tf.sum(x, 0), tf.max(z, 0)
        ya, yb = tf.add(a, 1.0), tf.neg(b)
        fusion.add_output(ya)
        fusion.add_output(yb)
    bind(a, TX)
    bind(b, TX)
    fusion.group([fusion.task([a, ya]), fusion.task([b, yb])]).parallelize(TY)
    kernel = agrees(fusion, numbers(24), numbers(24))
    assert masks(kernel) == []


def test_every_thread_gets_the_same_bits() -> None:
    """Floats whose sum depends on the order: each thread adds in the same one, and every run gives the same result."""
    with tf.Fusion("order") as fusion:
        x = tf.define_tensor([4, 128], name="x")
        s = tf.sum(x, 1, keepdims=True)
        y = tf.add(tf.mul(x, 0.0), s)
        fusion.add_output(y)
    for tv in fusion.tensors():
        if not tv.is_input and len(tv.loop) == 2:
            bind(tv, BX, TX)
        elif not tv.is_input:
            bind(tv, BX)
    fusion.inline_most()
    kernel = tf.lower(fusion)
    assert masks(kernel) == WARP
    values = (np.random.default_rng(0).standard_normal((4, 128)) * 1e3).astype(np.float32)
    first = kernel.simulate(values, seed=0)[0]
    assert (first == first[:, :1]).all()
    for interleaving in tf.Interleaving:
        assert (kernel.simulate(values, seed=5, interleaving=interleaving)[0] == first).all()


@pytest.mark.parametrize("dtype", [tf.float64, tf.int64, tf.bfloat16, tf.int8])
def test_other_dtypes_meet_in_the_dtype_of_the_computation(dtype: tf.DType) -> None:
    with tf.Fusion("typed") as fusion:
        x = tf.define_tensor([64], dtype=dtype, name="x")
        r = tf.max(x, 0)
        y = tf.neg(r)
        fusion.add_output(y)
    bind(r, TX)
    kernel = agrees(fusion, numbers(64, dtype=dtype.numpy), interleavings=FEW)
    assert {b.dtype for b in kernel.buffers if b.name.endswith((".peer", ".part"))} == {dtype.compute}
