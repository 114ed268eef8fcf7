"""Rows of integers in order, by counting and by merging."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ops import merge
from taskfuse.ops.merge import LONGEST, counted_elements, counted_order, merged, ordered
from tests.ops.reference import evaluated, message

ROWS = np.random.default_rng(0).permutation(4 * 700).reshape(4, 700).astype(np.uint32)


@pytest.fixture(params=[0, 4 * 700 * 128, merge.COMPARED])
def compared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 128, of 256, and whole rows are counted."""
    monkeypatch.setattr(merge, "COMPARED", request.param)


@pytest.mark.usefixtures("compared")
@pytest.mark.parametrize("length", [1, 256, 257, 700])
def test_rows_in_order(length: int) -> None:
    x = ROWS[:, :length]
    np.testing.assert_array_equal(evaluated(lambda a: ordered("sort", a), x), np.sort(x))


@pytest.mark.usefixtures("compared")
@pytest.mark.parametrize("first", [1, 40, 200])
def test_the_first_of_rows(first: int) -> None:
    np.testing.assert_array_equal(evaluated(lambda a: ordered("topk", a, first), ROWS), np.sort(ROWS)[:, :first])


def test_symbolic_extents() -> None:
    n = tf.dim("N", max=600)
    np.testing.assert_array_equal(evaluated(lambda a: ordered("sort", a), ROWS[:, :500], shapes=[[4, n]]), np.sort(ROWS[:, :500]))
    with tf.Fusion("f"):
        x = tf.define_tensor([4, "N"], "uint32", name="x")
        assert message(lambda: ordered("sort", x)) == f"sort: rows of x [4, N] are not provably at most {LONGEST} long\nhelp: give facts with tf.dim(..., max=)"


def test_a_merge_is_proved_and_right() -> None:
    x = np.array([[[9, 4], [7, 1]], [[3, 2], [8, 5]]], np.uint32)
    with tf.Fusion("rows") as fusion:
        fusion.add_output(merged(tf.define_tensor(x.shape, "uint32"), 4))
    run = tf.compile(fusion)
    assert [kernel.verify().is_proved for kernel in run.kernels] == [True]
    np.testing.assert_array_equal(run(x)[0], [[[9, 7, 4, 1]], [[8, 5, 3, 2]]])


@pytest.mark.parametrize(("shape", "number"), [((1024,), 16384 * 2), ((8, 4096), 1024), ((4096, 4096), 128), (("N",), 128)])
def test_how_many_elements_are_counted(shape: tuple[int | str, ...], number: int) -> None:
    """The last doubling of a block adds no more comparisons than the kernel that it saves is worth."""
    with tf.Fusion("f"):
        assert counted_elements(tf.define_tensor(shape, "uint32")) == number


def test_few_elements_of_64_bits_are_ordered_in_three_kernels() -> None:
    """Equal ones keep their order."""
    x = np.random.default_rng(0).integers(-3, 3, (2, 300))
    np.testing.assert_array_equal(evaluated(lambda a: counted_order(tf.cast(a + 3, tf.uint64)), x), np.argsort(x, kind="stable"))
    with tf.Fusion("experts") as fusion:
        fusion.add_output(tf.argsort(tf.define_tensor([1024], tf.int64)))
    run = tf.compile(fusion, backend="sim", target="H200", cache=False)
    assert len(run.kernels) == 3
    assert all(certificate.is_proved for certificate in run.certificates)


def test_rows_of_tensors_without_elements() -> None:
    assert evaluated(lambda a: tf.sort(a, 0), np.zeros((3, 0), np.float32)).shape == (3, 0)
    assert evaluated(lambda a: tf.argsort(a), np.zeros((0, 700), np.int64)).shape == (0, 700)
