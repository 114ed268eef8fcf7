"""Reductions: serial, across threads, over several digits, across blocks, mixed; rfactor; accumulation in the compute dtype."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.kir import walk
from taskfuse.kir.nodes import For
from taskfuse.kir.synchronization import BarrierScope
from taskfuse.kir.walk import accesses
from tests.lowering.faults import missed
from tests.lowering.running import agrees, barriers, bind, buffer, numbers, scopes

S, TX, TY, TZ, BX, BY = P.Serial, P.TIDx, P.TIDy, P.TIDz, P.BIDx, P.BIDy
FEW = (tf.Interleaving.LOW_FIRST, tf.Interleaving.HIGH_FIRST, tf.Interleaving.RANDOM)


def reduction(shape: tuple[int, ...], axes: tuple[int, ...], ptypes: tuple[P, ...], op: str = "sum") -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    """y = x - op(x, axes), all with one binding."""
    with tf.Fusion("reduction") as fusion:
        x = tf.define_tensor(list(shape), name="x")
        s = getattr(tf, op)(x, axes, keepdims=True)
        y = tf.sub(x, s)
        fusion.add_output(y)
    r = next(tv for tv in fusion.tensors() if any(a.is_reduction for a in tv.loop))
    bind(r, *ptypes)
    bind(y, *ptypes)
    return fusion, r, y


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 2), (0, 2), (1,)])
@pytest.mark.parametrize("ptypes", [*itertools.product((S, TX, BX), repeat=3), (TX, TY, TZ), (BX, BY, TX), (TY, TX, TX)])
def test_every_binding(ptypes: tuple[P, ...], axes: tuple[int, ...]) -> None:
    fusion, r, y = reduction((2, 3, 4), axes, ptypes)
    for tv in (r, y):
        for a in tv.loop:
            if tv.schedule.ptype(a) is S and not a.is_reduction:
                tv.axis(tv.loop.index(a)).parallelize(P.Unroll)
    agrees(fusion, numbers(2, 3, 4), interleavings=FEW)


@pytest.mark.parametrize("op", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("ptypes", [(S, S), (S, TX), (TX, S), (TY, TX), (BX, TX)])
def test_every_operation(op: str, ptypes: tuple[P, ...]) -> None:
    fusion, _, _ = reduction((3, 5), (0, 1), ptypes, op)
    agrees(fusion, numbers(3, 5), interleavings=FEW)


@pytest.mark.parametrize("op", ["any", "all"])
@pytest.mark.parametrize("columns", [0, 1, 6])
def test_any_and_all_across_threads(op: str, columns: int) -> None:
    with tf.Fusion(f"{op}_of") as fusion:
        x = tf.define_tensor([3, columns], dtype=tf.bool_, name="x")
        s = getattr(tf, op)(x, 1)
        fusion.add_output(tf.logical_not(s))
    bind(s, TY, TX)
    bind(fusion.outputs[0], TY)
    agrees(fusion, numbers(3, columns) > 0, interleavings=FEW)


@pytest.mark.parametrize("columns", [0, 1, 2, 3, 7, 8, 31, 33])
def test_any_extent_across_threads(columns: int) -> None:
    fusion, r, _ = reduction((3, columns), (1,), (TY, TX))
    kernel = agrees(fusion, numbers(3, columns))
    parts = [b.memory for b in kernel.buffers if b.name == f"{r.name}.part"]
    assert parts == [MemoryType.Shared] * (columns != 1)  # one thread has nothing to join


def test_a_serial_reduction_is_set_accumulated_and_needs_no_workspace() -> None:
    fusion, r, _ = reduction((3, 5), (1,), (TX, S))
    kernel = agrees(fusion, numbers(3, 5))
    assert [b.name for b in kernel.buffers] == [r.name]
    assert scopes(kernel) == []


def test_across_threads_every_barrier_of_the_tree_is_needed() -> None:
    fusion, r, _ = reduction((8,), (0,), (TX,))
    kernel = agrees(fusion, numbers(8))
    assert buffer(kernel, f"{r.name}.part").memory is MemoryType.Shared
    assert len(barriers(kernel)) == 4  # after the partial results, and after each of 3 steps
    assert missed(kernel, fusion, numbers(8)) == []


def test_a_workspace_in_a_loop_is_used_again() -> None:
    fusion, r, _ = reduction((4, 8), (1,), (S, TX))
    r.inline_at(1)
    kernel = agrees(fusion, numbers(4, 8))
    assert missed(kernel, fusion, numbers(4, 8)) == []


def test_across_blocks_every_block_reads_all_partial_results() -> None:
    fusion, r, _ = reduction((4,), (0,), (BX,))
    kernel = agrees(fusion, numbers(4))
    assert buffer(kernel, f"{r.name}.blocks").memory is MemoryType.Global
    assert scopes(kernel) == [BarrierScope.GRID]
    assert missed(kernel, fusion, numbers(4)) == []


def test_across_threads_then_blocks() -> None:
    fusion, r, _ = reduction((3, 4), (0, 1), (BX, TX))
    kernel = agrees(fusion, numbers(3, 4))
    text = str(kernel)
    assert text.index(f"{r.name}.part[") < text.index(f"{r.name}.blocks[")
    assert BarrierScope.GRID in scopes(kernel)


def test_two_digits_of_one_type_of_which_one_is_reduced() -> None:
    for axes in ((0,), (1,), (0, 1)):
        fusion, _, _ = reduction((3, 5), axes, (TX, TX))
        agrees(fusion, numbers(3, 5))


def test_the_result_is_read_in_another_task_member_and_role() -> None:
    for how in ("task", "horizontal", "vertical"):
        with tf.Fusion("read") as fusion:
            x = tf.define_tensor([3, 6], name="x")
            s = tf.sum(x, 1)
            y, z = tf.sub(x, tf.expand_dims(s, 1)), tf.neg(s)
            fusion.add_output(y)
            fusion.add_output(z)
        bind(s, TY, TX)
        bind(y, TY, TX)
        bind(z, TY)
        ts, ty, tz = fusion.task([s]), fusion.task([y]), fusion.task([z])
        match how:
            case "horizontal":
                fusion.group([ty, tz]).parallelize(TZ)
            case "vertical":
                fusion.group([ts, ty, tz]).parallelize(TZ)
            case _:
                pass
        agrees(fusion, numbers(3, 6))


def test_a_reduction_in_a_smaller_member_of_the_block() -> None:
    """The thread range is 8 of 11 threads: the others take no part in its barriers."""
    with tf.Fusion("smaller") as fusion:
        x, y = tf.define_tensor([8], name="x"), tf.define_tensor([11], name="y")
        s = tf.sum(x, 0)
        a, b = tf.add(s, 1.0), tf.neg(y)
        fusion.add_output(a)
        fusion.add_output(b)
    bind(s, TX)
    bind(b, TX)
    fusion.task([s, a], "ts")
    fusion.task([b], "tb")
    kernel = agrees(fusion, numbers(8), numbers(11))
    assert "INIT sync0[0] count 8" in str(kernel)


def test_a_reduction_in_a_padded_role() -> None:
    with tf.Fusion("role") as fusion:
        x = tf.define_tensor([4, 6], name="x")
        a = tf.neg(x)
        s = tf.sum(a, 1)
        y = tf.add(s, 1.0)
        fusion.add_output(y)
    bind(a, S, TX)
    bind(s, S, TX)
    bind(y, S)
    fusion.group([fusion.task([a]), fusion.task([s, y])]).parallelize(TX)
    fusion.inline_most()
    agrees(fusion, numbers(4, 6))


@pytest.mark.parametrize("ptypes", [(S, S, S), (S, S, TX), (BX, S, TX), (S, TY, TX)])
@pytest.mark.parametrize("factor", [2, 3, 4])
def test_rfactor(ptypes: tuple[P, ...], factor: int) -> None:
    """sum over k = sum over k_outer of (sum over k_inner), k = 7 split by ``factor``."""
    with tf.Fusion("rfactor") as fusion:
        x = tf.define_tensor([3, 7], name="x")
        s = tf.sum(x, 1)
        y = tf.add(s, 1.0)
        fusion.add_output(y)
    s.split(1, factor)
    r = s.rfactor([1])
    bind(r, *ptypes)
    bind(s, ptypes[0], *([ptypes[2]] if len(s.loop) == 2 else []))
    bind(y, ptypes[0])
    agrees(fusion, numbers(3, 7), interleavings=FEW)


@pytest.mark.parametrize("ptype", [S, TX])
def test_a_sum_of_bfloat16_accumulates_in_float32(ptype: P) -> None:
    """In bfloat16 a sum of ones would stay at 256."""
    with tf.Fusion("bf16") as fusion:
        x = tf.define_tensor([512], dtype=tf.bfloat16, name="x")
        y = tf.neg(tf.sum(x, 0))
        fusion.add_output(y)
    r = next(tv for tv in fusion.tensors() if any(a.is_reduction for a in tv.loop))
    bind(r, ptype)
    kernel = agrees(fusion, np.ones(512, ml_dtypes.bfloat16), interleavings=FEW[:1])
    assert buffer(kernel, r.name).dtype is tf.float32
    assert float(kernel.simulate(np.ones(512, ml_dtypes.bfloat16))[0]) == -512.0


@pytest.mark.parametrize("ptype", [S, TX, BX])
def test_a_bfloat16_result_has_an_accumulator_of_the_compute_dtype(ptype: P) -> None:
    with tf.Fusion("bf16") as fusion:
        x = tf.define_tensor([9], dtype=tf.bfloat16, name="x")
        s = tf.max(x, 0)
        fusion.add_output(tf.neg(s))
    bind(s, ptype)
    kernel = agrees(fusion, numbers(9, dtype=ml_dtypes.bfloat16), interleavings=FEW)
    assert buffer(kernel, f"{s.name}.acc").dtype is tf.float32
    assert buffer(kernel, s.name).dtype is tf.bfloat16


def test_float32_accumulates_in_place() -> None:
    fusion, r, _ = reduction((3, 5), (1,), (TX, S))
    assert f"{r.name}.acc" not in str(agrees(fusion, numbers(3, 5)))


def test_a_reduction_that_is_an_output_is_stored_once() -> None:
    with tf.Fusion("output") as fusion:
        x = tf.define_tensor([3, 6], name="x")
        s = tf.sum(x, 1)
        fusion.add_output(s)
    bind(s, TY, TX)
    kernel = agrees(fusion, numbers(3, 6))
    assert f"IF threadIdx.x == 0:\n    {s.name}[threadIdx.y] = copy({s.name}.acc)" in str(kernel)


def test_a_split_that_does_not_divide_predicates_the_accumulation_only() -> None:
    with tf.Fusion("ragged") as fusion:
        x = tf.define_tensor([3, 7], name="x")
        s = tf.sum(x, 1)
        fusion.add_output(tf.neg(s))
    s.split(1, 4)
    bind(s, TY, S, TX)
    bind(fusion.outputs[0], TY)
    kernel = agrees(fusion, numbers(3, 7))
    assert str(kernel).count("< 7") == 1


def test_a_matmul_is_a_reduction() -> None:
    for ptypes in ((S, S, S), (TY, TX, S), (TY, S, TX), (BX, TY, TX)):
        with tf.Fusion("matmul") as fusion:
            a, b = tf.define_tensor([3, 5], name="a"), tf.define_tensor([5, 4], name="b")
            c = tf.matmul(a, b)
            fusion.add_output(c)
        bind(c, *ptypes)
        agrees(fusion, numbers(3, 5), numbers(5, 4), interleavings=FEW)


def test_max_and_sum_of_a_softmax_loop_apart() -> None:
    with tf.Fusion("softmax") as fusion:
        x = tf.define_tensor([3, 8], name="x")
        fusion.add_output(tf.softmax(x, 1))
    for tv in fusion.tensors():
        if not tv.is_input and len(tv.loop) == 2:
            bind(tv, BX, TX)
        elif not tv.is_input and len(tv.loop) == 1:
            bind(tv, BX)
    fusion.inline_most()
    agrees(fusion, numbers(3, 8), interleavings=FEW, tolerance=1e-5)


def sums_of_one_walk(shape: tuple[int, ...], ptypes: tuple[P, ...], reduced: tuple[int, ...]) -> tuple[tf.Fusion, list[tf.TensorView]]:
    """The sum and the greatest of the same elements, which are loaded once for both."""
    with tf.Fusion("walk") as fusion:
        x = tf.define_tensor(list(shape), name="x")
        both = [tf.sum(x, reduced), tf.max(x, reduced)]
        fusion.add_output(*both)
    load = x.cache_after()
    inner = [out.cache_before() for out in fusion.outputs]
    for tv in (load, *inner):
        bind(tv, *ptypes)
    for tv in fusion.outputs:
        bind(tv, *(p for k, p in enumerate(ptypes) if k not in reduced))
    load.inline_at(len(shape))
    return fusion, inner


@pytest.mark.parametrize(
    ("ptypes", "wanted"),
    [((BX, S, TX), [BarrierScope.BLOCK]), ((TY, S, BX), [BarrierScope.GRID]), ((S, S, TX), 2 * [BarrierScope.BLOCK])],
    ids=["threads", "blocks", "in a loop, before the next"],
)
def test_reductions_that_end_behind_one_loop_share_their_barriers(ptypes: tuple[P, ...], wanted: list[BarrierScope]) -> None:
    fusion, _ = sums_of_one_walk((2, 3, 64), ptypes, (1, 2))
    kernel = agrees(fusion, numbers(2, 3, 64), interleavings=FEW)
    assert scopes(kernel) == wanted
    assert missed(kernel, fusion, numbers(2, 3, 64)) == []


def test_one_loop_goes_over_the_partial_results_of_all_of_them() -> None:
    fusion, inner = sums_of_one_walk((2, 3, 64), (TY, S, BX), (1, 2))
    (loop,) = (s for s in walk(agrees(fusion, numbers(2, 3, 64))) if isinstance(s, For) and s.var == "part.BIDx")
    assert [str(a.buffer) for s in loop.body for a in accesses(s)[0]] == [tv.name for tv in inner]


@pytest.mark.parametrize(
    ("ptypes", "axes", "shape"),
    [((BX, TX), (0, 1), ("3",)), ((BX, TX), (0,), ("3", "64")), ((TY, BX, TX), (1, 2), ("2", "3"))],
    ids=["threads have one result", "each has its own", "rows of threads"],
)
def test_threads_that_have_one_result_store_it_once_for_other_blocks(ptypes: tuple[P, ...], axes: tuple[int, ...], shape: tuple[str, ...]) -> None:
    extents = (3, 64) if len(ptypes) == 2 else (2, 3, 64)
    fusion, r, _ = reduction(extents, axes, ptypes)
    kernel = agrees(fusion, numbers(*extents), interleavings=FEW)
    assert sorted(map(str, buffer(kernel, f"{r.name}.blocks").shape)) == sorted(shape)
    assert missed(kernel, fusion, numbers(*extents)) == []


def test_a_round_over_partial_results_goes_around_the_elements_of_a_thread() -> None:
    """The sums of the elements wait for their own loads alone: as many are under way as a thread has elements."""
    fusion, _, _ = reduction((256, 4), (0,), (TX, P.Unroll))
    kernel = agrees(fusion, numbers(256, 4))
    (loop,) = (s for s in walk(kernel) if isinstance(s, For) and s.var == "part.k")
    (elements,) = loop.body
    assert isinstance(elements, For)
    assert elements.unroll


def test_blocks_of_an_empty_axis_store_the_neutral_element() -> None:
    with tf.Fusion() as fusion:
        x = tf.define_tensor(tf.dim("N", min=0, max=5), dtype=tf.uint8)
        y = tf.min(x, 0)
        fusion.add_output(y)
    y.split(0, 4)
    y.axis(0).parallelize(tf.ParallelType.TIDy)
    y.axis(1).parallelize(tf.ParallelType.BIDz)
    kernel = tf.lower(fusion)
    for n in range(6):
        assert kernel.simulate(np.arange(n, dtype=np.uint8) + 3)[0] == (3 if n else 255)
