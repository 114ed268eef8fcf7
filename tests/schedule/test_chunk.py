"""chunk_scan: the math stays, for every axis, op and dtype; chunks of chunks; a row across threads, proved; refused with a reason."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.check import Verdict
from taskfuse.errors import ScheduleError, TaskfuseError
from tests.lowering.running import Array

RNG = np.random.default_rng(0)


def scan(shape: list[int | str | tf.Dim], axis: int, op: str = "cumsum", dtype: tf.DType = tf.float32) -> tuple[tf.Fusion, tf.TensorView]:
    """op(2 * x), and the scan in it."""
    with tf.Fusion("scan") as fusion:
        x = tf.define_tensor(shape, dtype=dtype, name="x")
        fusion.add_output(getattr(tf, op)(x * 2, axis))
    out = fusion.outputs[0]
    return fusion, out if dtype.compute is dtype or op.startswith("cumm") or dtype.is_integer else fusion.tensors()[-2]


def numbers(shape: list[int], dtype: tf.DType) -> Array:
    """Small ones, whose sums and products are exact."""
    return RNG.integers(-1, 2, shape).astype(dtype.numpy)


def is_equal(found: Array, wanted: Array) -> bool:
    return np.array_equal(found.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int8, tf.float64], ids=str)
@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax", "cummin"])
def test_the_math_stays(op: str, dtype: tf.DType) -> None:
    for shape, axis, extent in (([3, 20], 1, 4), ([3, 21], 1, 4), ([5, 3, 2], 0, 2), ([2, 9, 3], 1, 16), ([7], 0, 1)):
        fusion, tv = scan([*shape], axis, op, dtype)
        x = numbers(shape, dtype)
        wanted = fusion.evaluate(x)[0]
        terms, local, totals, sums, before = tv.chunk_scan(extent)
        chunks = -(-shape[axis] // extent)
        assert [int(str(e)) for e in terms.shape] == [*shape[:axis], chunks, extent, *shape[axis + 1 :]]
        assert local.shape == terms.shape
        assert totals.shape == sums.shape == before.shape == (*terms.shape[: axis + 1], *terms.shape[axis + 2 :])
        assert is_equal(fusion.evaluate(x)[0], wanted)
        assert str(tf.parse_fusion(str(fusion))) == str(fusion)
        fusion.inline_most()
        kernel = tf.lower(fusion)
        assert kernel.verify().verdict is Verdict.PROVED
        assert is_equal(kernel.simulate(x)[0], wanted)


def test_unknown_extents_and_chunks_of_totals() -> None:
    fusion, tv = scan(["M", tf.dim("N", min=0)], 1)
    sums = tv.chunk_scan(4)[3]
    sums.chunk_scan(2)[3].chunk_scan(2)
    for m, n in ((2, 37), (1, 1), (3, 0), (2, 16)):
        x = numbers([m, n], tf.float32)
        assert is_equal(fusion.evaluate(x)[0], np.cumsum(x * 2, 1))


def test_nan_goes_on_from_the_first() -> None:
    fusion, tv = scan([12], 0, "cummax")
    tv.chunk_scan(4)
    x = np.array([1, 2, 0, 1, 3, np.nan, 1, 0, 9, 9, 1, 2], np.float32)
    assert np.array_equal(fusion.evaluate(x)[0], np.maximum.accumulate(x * 2), equal_nan=True)


@pytest.mark.parametrize("n", [128, 125])
def test_a_row_across_threads(n: int) -> None:
    with tf.Fusion("scan") as fusion:
        x = tf.define_tensor(["M", n], name="x")
        y = tf.cumsum(x, 1)
        fusion.add_output(y)
    terms, local, totals, sums, before = y.chunk_scan(8)
    y.split(1, 8)
    for tv in (terms, local, totals, before, y):
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(1).parallelize(P.TIDx)
    sums.axis(0).parallelize(P.BIDx)
    sums.set_memory_type(MemoryType.Shared)
    fusion.inline_most()
    kernel = tf.lower(fusion)
    assert kernel.verify().verdict is Verdict.PROVED
    x0 = numbers([3, n], tf.float32)
    for seed in range(3):
        assert is_equal(kernel.simulate(x0, seed=seed)[0], np.cumsum(x0, 1))
    text = str(kernel)
    assert "BLOCK (16, 1, 1)" in text
    assert text.count("SYNC block") == 2  # before the totals are scanned, and behind
    assert f"LOCAL {local.name}: float32[8]" in text


def refused(tv: tf.TensorView, extent: int) -> str:
    with pytest.raises(ScheduleError) as caught:
        tv.chunk_scan(extent)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    caught.value.location = None
    return str(caught.value)


def test_refused() -> None:
    fusion, tv = scan(["M", 8], 1)
    product = fusion.tensors()[1]
    before = str(fusion)
    assert refused(product, 4) == "chunk_scan(tv1): tv1 is not a scan of a tensor"
    assert refused(tv, 0) == "chunk_scan(tv2): a chunk has 0 elements\nhelp: use a positive integer"
    assert refused(tv, True) == "chunk_scan(tv2): a chunk has True elements\nhelp: use a positive integer"
    assert str(fusion) == before
    fusion.inline_most()
    assert refused(tv, 4) == "chunk_scan(tv2): tv1 is inlined into it at 2\nhelp: chunk it before inlining, or tv1.inline_at(0)"
    with tf.Fusion("inlined") as fusion:
        y = tf.cumsum(tf.define_tensor([8], name="x"))
        fusion.add_output(y + 1)
    fusion.inline_most()
    assert refused(y, 4) == f"chunk_scan({y.name}): {y.name} is inlined at 1\nhelp: call chunk_scan before inlining, or {y.name}.inline_at(0)"


def test_a_scan_in_chunks_is_none_any_more() -> None:
    _, tv = scan([8], 0)
    tv.chunk_scan(2)
    with pytest.raises(TaskfuseError, match="is not a scan of a tensor"):
        tv.chunk_scan(2)


def test_new_tensors_join_the_task() -> None:
    with tf.Fusion("tasks") as fusion:
        x = tf.define_tensor([8], name="x")
        y = tf.cumsum(x)
        z = tf.neg(y)
        fusion.add_output(z)
    task = fusion.task([y])
    fusion.task([z])
    assert all(tv.task is task for tv in y.chunk_scan(4))
