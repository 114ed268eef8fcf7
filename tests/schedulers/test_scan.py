"""``tf.schedulers.scan``: rows across threads, proved, equal to NumPy, the same when the code is pasted; what it chooses, what it refuses."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import ScanConfig
from tests.lowering.running import Array
from tests.proofs import proved, sizes_of

RNG = np.random.default_rng(0)
Shape = list[Any]


def total(shape: Shape, dtype: tf.DType = tf.float32, math: Callable[[tf.TensorView], tf.TensorView] = tf.cumsum) -> tf.Fusion:
    with tf.Fusion("scan") as fusion:
        fusion.add_output(math(tf.define_tensor(shape, dtype=dtype, name="x")))
    return fusion


def rows(math: Callable[..., tf.TensorView]) -> Callable[[tf.TensorView], tf.TensorView]:
    return lambda x: math(x, 1)


def numbers(*shape: int, dtype: tf.DType = tf.float32) -> Array:
    return RNG.integers(-1, 2, shape).astype(dtype.numpy)


def checked(fusion: tf.Fusion, *args: Array, config: ScanConfig | None = None) -> tf.Kernel:
    """Proved for all extents, equal to NumPy, and the same kernel from the printed code."""
    ours, again = (tf.copy_fusion(fusion)[0] for _ in range(2))
    schedule = tf.schedulers.scan(ours, config)
    exec(schedule.code, {"fusion": again})
    kernel = tf.lower(ours)
    assert str(tf.lower(again)) == str(kernel)
    proved(kernel, sizes_of(kernel, args))
    for found, wanted in zip(kernel.simulate(*args), fusion.evaluate(*args), strict=True):
        assert np.array_equal(found.astype(np.float64), wanted.astype(np.float64))
    assert kernel.ptx("sm_90a")
    return kernel


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int8, tf.float64], ids=str)
@pytest.mark.parametrize("math", [tf.cumsum, tf.cummax])
def test_dtypes(math: Callable[..., tf.TensorView], dtype: tf.DType) -> None:
    checked(total([3, 200], dtype, rows(math)), numbers(3, 200, dtype=dtype))


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (2, 1024), (2, 1021), (40, 12)])
def test_shapes(shape: tuple[int, int]) -> None:
    checked(total([*shape], math=rows(tf.cumsum)), numbers(*shape))


def test_one_row_and_many_axes() -> None:
    checked(total([300]), numbers(300))
    checked(total([2, "M", 3, 40], math=lambda x: tf.cumsum(x, 3)), numbers(2, 3, 3, 40))


def test_lengths_up_to_a_bound() -> None:
    kernel = checked(total(["M", tf.dim("N", max=1000)], math=rows(tf.cumsum)), numbers(2, 1000))
    for n in (1, 9, 257):
        x = numbers(3, n)
        assert np.array_equal(kernel.simulate(x)[0], np.cumsum(x, 1))


def test_what_is_around_a_scan() -> None:
    with tf.Fusion("around") as fusion:
        x = tf.define_tensor(["M", 64], name="x")
        bias = tf.define_tensor([64], name="bias")
        scale = tf.define_tensor(["M", 1], name="scale")
        y = tf.cumsum(tf.pad(tf.relu(x)[:, :-1], ((0, 0), (1, 0))) * scale, 1)
        fusion.add_output(y)
        fusion.add_output(tf.cummax(y + bias, 1) - x)
    checked(fusion, numbers(5, 64), numbers(64), numbers(5, 1))


@pytest.mark.parametrize("config", [ScanConfig(1, 2), ScanConfig(3), ScanConfig(8, 3), ScanConfig(32, 16), ScanConfig(64)])
def test_parameters(config: ScanConfig) -> None:
    checked(total(["M", 64], math=rows(tf.cumsum)), numbers(7, 64), config=config)


def test_what_is_chosen() -> None:
    def chosen(shape: Shape, dtype: tf.DType = tf.float32) -> object:
        return tf.schedulers.scan(total(shape, dtype, rows(tf.cumsum))).config

    assert chosen([4096, 1024]) == ScanConfig(8, 1)
    assert chosen([4096, 64]) == ScanConfig(8, 16)
    assert chosen([2, 64]) == ScanConfig(8, 2)
    assert chosen([4096, 16384]) == ScanConfig(16, 1)
    assert chosen([4096, 1024], tf.bfloat16) == ScanConfig(16, 2)
    assert "width 4" in str(tf.compile(total([4096, 1024], math=rows(tf.cumsum))).kernel)


@pytest.mark.parametrize(("n", "dtype"), [(1024, tf.float32), (16384, tf.float32), (16384, tf.bfloat16), (4096, tf.int64)])
def test_nothing_spills(n: int, dtype: tf.DType) -> None:
    assert tf.compile(total([4096, n], dtype, rows(tf.cumsum))).kernel.resources("sm_90a").compiled.spill_stores == 0


def test_compile_takes_it_and_says_why() -> None:
    run = tf.compile(total([4096, 1024], math=rows(tf.cumsum)))
    assert run.schedule is not None
    lines = run.schedule.explain().splitlines()
    assert lines[0] == "scan of 4096 rows of 1024 elements: chosen: 8 elements of a thread, 1 rows per block"
    assert lines[1] == "128 threads per row, vectors of 4, 2 levels of totals"


def test_rows_that_no_block_holds() -> None:
    fusion = total([2, 40_000], math=lambda x: tf.cumsum(tf.relu(x), 1) + 1)
    run = tf.compile(fusion)
    x = numbers(2, 40_000)
    assert np.array_equal(run(x)[0], fusion.evaluate(x)[0])
    assert all(c.is_proved for c in run.certificates)
    assert run.schedule is not None
    lines = run.schedule.explain().splitlines()
    assert lines[0].startswith("3 kernels, ")
    assert "tv2 is scanned in chunks of 2048, whose totals another kernel scans" in lines
    names: dict[str, Any] = {"fusion": tf.copy_fusion(fusion)[0]}
    exec(run.schedule.code, names)
    assert [str(tf.lower(part)) for part in names["segmented"].segments] == [str(kernel) for kernel in run.kernels]


def test_unknown_lengths_are_bounded_at_the_call() -> None:
    run = tf.compile(total(["M", "N"], math=rows(tf.cumsum)))
    assert len(run.kernels) == 3
    x = numbers(200, 500)
    assert np.array_equal(run(x)[0], np.cumsum(x, 1))
    (found,) = run.specializations
    assert found.facts == (tf.dim("M"), tf.dim("N", max=512, multiple_of=4))
    assert len(found.run.kernels) == 1
    x = numbers(3, 100)  # too small to gain
    assert np.array_equal(run(x)[0], np.cumsum(x, 1))
    assert len(run.specializations) == 1


@pytest.mark.parametrize(
    ("fusion", "text"),
    [
        (total([4, 8], math=tf.neg), "it scans nothing"),
        (
            total([4, 8], math=lambda x: tf.cumsum(x, 0) + tf.cumsum(x, 1)),
            "tv2 scans along axis 1, and tv1 along axis 0\nhelp: tf.compile makes several kernels",
        ),
        (
            total([1 << 20, 4], math=lambda x: tf.cumsum(x, 0)),
            "no block has registers for rows of up to 1048576 elements\nhelp: tf.compile makes several kernels",
        ),
        (total([4, 8], math=lambda x: tf.cumsum(x, 1).sum(1)), "tv2 is neither a scan nor elementwise\nhelp: tf.schedulers.auto asks other schedulers"),
        (total([4, "N"], math=rows(tf.cumsum)), 'a row has N elements: a block may be too small for it\nhelp: say how many at most: tf.dim("N", max=4096)'),
        (
            total([4, 100_000], math=rows(tf.cumsum)),
            "1 rows of up to 100000 elements, 16 of a thread, take 6250 threads; a block has registers for 1024\nhelp: tf.compile makes several kernels",
        ),
        (total([8], math=lambda x: tf.cumsum(x).split(0, 2)), "it has a schedule already\nhelp: give it a fusion without scheduling calls"),
    ],
)
def test_refused(fusion: tf.Fusion, text: str) -> None:
    before = str(fusion)
    with pytest.raises(UnsupportedError) as caught:
        tf.schedulers.scan(fusion)
    caught.value.location = None
    assert str(caught.value) == f"a scan schedule of fusion 'scan' is not supported: {text}"
    assert str(fusion) == before


Math = Callable[..., Any]
SCANS: list[tuple[str, Math]] = [
    ("cumsum", tf.cumsum),
    ("cumprod", tf.cumprod),
    ("cummin", tf.cummin),
    ("exclusive", partial(tf.cumsum, exclusive=True)),
    ("with indices", tf.cummax_with_indices),
]
SIDE_BY_SIDE: list[tuple[tuple[int, ...], int, ScanConfig | None]] = [
    ((1, 1), 0, None),
    ((37, 5), 0, None),
    ((2, 97, 3), 1, None),
    ((3, 1, 40), 1, None),
    ((2, 13, 2, 3), 1, ScanConfig(4, 8)),  # rows that follow one another in memory only within a batch
    ((2, 37, 8), 1, ScanConfig(2, 2, 4)),
    ((2, 200, 4), 1, ScanConfig(1, 4)),  # totals of totals
    ((2, 16, 40), 1, ScanConfig(16, 32)),  # a thread has whole rows
]


def outputs(shape: Shape, axis: int, math: Math, dtype: tf.DType = tf.float32) -> tf.Fusion:
    with tf.Fusion("scan") as fusion:
        found: tf.TensorView | tuple[tf.TensorView, ...] = math(tf.define_tensor(shape, dtype=dtype, name="x"), axis)
        for tv in found if isinstance(found, tuple) else (found,):
            fusion.add_output(tv)
    return fusion


@pytest.mark.parametrize(("shape", "axis", "config"), SIDE_BY_SIDE)
def test_rows_side_by_side(shape: tuple[int, ...], axis: int, config: ScanConfig | None) -> None:
    dtype = tf.int64 if config is None else tf.float32
    fusion = outputs([*shape], axis, tf.cumsum, dtype)
    kernel = checked(fusion, x := numbers(*shape, dtype=dtype), config=config)
    for seed in range(1, 4):
        assert np.array_equal(kernel.simulate(x, seed=seed)[0], fusion.evaluate(x)[0])


@pytest.mark.parametrize("math", [math for _, math in SCANS], ids=[name for name, _ in SCANS])
def test_all_scans_of_rows_side_by_side(math: Math) -> None:
    checked(outputs([2, "N", 31, "M"], 2, math, tf.bfloat16), numbers(2, 3, 31, 5, dtype=tf.bfloat16), config=ScanConfig(8, 8))


def test_columns_up_to_a_bound() -> None:
    kernel = checked(outputs([2, tf.dim("N", max=300), "M"], 1, tf.cumsum), numbers(2, 300, 3))
    for n, m in ((1, 1), (17, 33), (299, 2)):
        x = numbers(2, n, m)
        assert np.array_equal(kernel.simulate(x)[0], np.cumsum(x, 1))


def test_what_is_around_a_scan_of_columns() -> None:
    """Parts of a concatenation, vectors of rows, a factor of each column; and what is scanned is needed again behind the scan."""
    with tf.Fusion("around") as fusion:
        x = tf.define_tensor([3, 24, 8], name="x")
        bias = tf.define_tensor([8], name="bias")
        both = tf.cat([tf.broadcast_to(x[:, :1], [3, 5, 8]), x], 1)
        fusion.add_output(tf.cumsum(both * bias, 1) - both)
    kernel = checked(fusion, numbers(3, 24, 8), numbers(8), config=ScanConfig(4, 2, 4))
    assert "width 4" in str(kernel)


def test_compile_takes_columns() -> None:
    run = tf.compile(total([64, 360, 321], math=lambda x: tf.cumsum(tf.exp(x), 1)))
    assert run.schedule is not None
    assert run.schedule.scheduler == "scan"
    threads = run.kernels[0].block
    assert str(threads[0]) == "64"  # neighbors in memory
    lines = run.schedule.explain().splitlines()
    assert lines[0].startswith("scan of 20544 rows of 360 elements: chosen: ")
    assert "waits for: memory; expected: " in lines[1]
    assert sum(line.endswith("rows per block") for line in lines) > 3  # alternatives


def test_refused_parameters() -> None:
    for make, text in (
        (lambda: ScanConfig(0), "chunk is 0\nhelp: use a positive number"),
        (lambda: ScanConfig(4, 0), "rows is 0\nhelp: use a positive number"),
        (lambda: ScanConfig(4, 1, 3), "width is 3\nhelp: use a power of two"),
        (lambda: ScanConfig(4, 1, 32), "width is 32\nhelp: a vector has at most 16 bytes"),
    ):
        with pytest.raises(UnsupportedError) as caught:
            make()
        caught.value.location = None
        assert str(caught.value) == f"this ScanConfig is not supported: {text}"
    for fusion, config, text in (
        (total([4, 64], math=rows(tf.cumsum)), ScanConfig(4, 1, 2), "width is 2, and its rows do not lie side by side"),
        (outputs([4, 64, 6], 1, tf.cumsum), ScanConfig(4, 2, 4), "4 rows of a thread do not divide 6 rows side by side"),
        (outputs([4, 64, 32], 1, tf.cumsum), ScanConfig(4, 2, 8), "vectors of 8 elements do not suit what it loads and stores"),
        (outputs([4, 64, 32], 1, tf.cumsum), ScanConfig(1, 32), "32 rows of up to 64 elements, 1 of a thread, take 2048 threads"),
    ):
        with pytest.raises(UnsupportedError, match=text):
            tf.schedulers.scan(fusion, config)
    with pytest.raises(UnsupportedError, match="2 rows of up to 1024 elements, 1 of a thread, take 2048 threads; a block has at most 1024"):
        tf.schedulers.scan(total([4, 1024], math=rows(tf.cumsum)), ScanConfig(1, 2))
