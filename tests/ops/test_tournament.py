"""The first few of long rows, by groups."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ops import order
from taskfuse.ops.tournament import fans
from tests.ops.reference import Array, evaluated


def rounded(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """Few different numbers, the limits of integers, both zeros, both infinities and NaN among them."""
    numbers = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5, 2.0] if dtype.startswith("f") else [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1, 5]
    return np.random.default_rng(0).choice(numbers, shape).astype(dtype)


def use(monkeypatch: pytest.MonkeyPatch, members: tuple[int, ...]) -> None:
    """Groups of so many members, whatever the rows."""

    def found(x: tf.TensorView, number: int, few: int) -> tuple[int, ...]:
        return members

    monkeypatch.setattr(order, "fans", found)


def stable(x: Array, k: int, largest: bool) -> Array:
    above = np.nan_to_num(np.where(np.isnan(x), np.inf, x), posinf=1e9, neginf=-1e9) + np.isnan(x) * 1e9
    return np.argsort(-above if largest else above, -1, kind="stable")[..., :k]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("members", "k"), [((8,), 5), ((8,), 20), ((8, 4), 3), ((4, 2, 2), 20)])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_equal_elements_keep_their_order(monkeypatch: pytest.MonkeyPatch, dtype: str, members: tuple[int, ...], k: int, largest: bool) -> None:
    """The last group of each level has fewer members; most elements are equal to others, in the chosen groups and outside."""
    use(monkeypatch, members)
    x = rounded((2, 347), dtype)
    wanted = stable(x.astype(np.float64), k, largest)
    np.testing.assert_array_equal(evaluated(lambda a: tf.topk(a, k, largest=largest)[1], x), wanted)
    found = evaluated(lambda a: tf.topk(a, k, largest=largest)[0], x)
    expected = np.take_along_axis(x, wanted, -1)
    np.testing.assert_array_equal(found, expected)
    assert (np.signbit(found.astype(np.float64)) == np.signbit(expected.astype(np.float64)))[expected == 0].all()


def test_a_group_behind_the_first_is_in_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of one group are better than any other: k groups are chosen nonetheless, and k elements of the first."""
    use(monkeypatch, (8,))
    x = np.zeros((1, 96), np.float32)
    x[0, 40:48] = np.arange(1, 9)
    np.testing.assert_array_equal(evaluated(lambda a: tf.topk(a, 5)[1], x), [[47, 46, 45, 44, 43]])


@pytest.mark.parametrize(
    ("shape", "k", "levels"),
    [((32, 50304), 50, 2), ((1, 151936), 8, 1), ((8192, 256), 8, 0), ((1024, 4096), 4, 1), (("B", 50304), 50, 3), ((16, "N"), 1, 0), ((16, 40), 20, 0)],
)
def test_how_many_levels(shape: tuple[int | str, ...], k: int, levels: int) -> None:
    """None of short rows, of rows most of which are wanted, and where their length is not known."""
    with tf.Fusion("f"):
        assert len(fans(tf.define_tensor(shape), k, 16)) == levels


def test_kernels_are_proved_and_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel reads the rows, one finds the groups; the last ones see the candidates. The number of rows is not known."""
    use(monkeypatch, (16,))
    x = rounded((2, 250), "uint8")
    with tf.Fusion("first") as fusion:
        for result in tf.topk(tf.define_tensor(["B", 250], "uint8", name="x"), 2):
            fusion.add_output(result)
    run = tf.compile(fusion, backend="sim", cache=False)
    assert all(certificate.is_proved for certificate in run.certificates)
    np.testing.assert_array_equal(run(x)[1], stable(x.astype(np.float64), 2, largest=True))
