"""Writes at computed indices against NumPy, one point after the other."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.dtypes import as_dtype
from taskfuse.errors import FusionError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.expr import FirstValid, Pointwise, Reduction, Update, View
from taskfuse.ir.values import MODULAR
from tests.ops.reference import Array, evaluated, message, numbers, symbolic

COMBINED: dict[str | None, Callable[[Any, Any], Any]] = {None: lambda old, new: new, "sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def hostile(shape: tuple[int, ...], extent: int, dtype: str = "int64", seed: int = 0) -> Array:
    """Indices of which some count from the end, and some are outside."""
    generator = np.random.default_rng(seed)
    found = generator.integers(-extent - 2, extent + 3, shape)
    return found.astype(dtype)


def put(x: Array, index: Callable[[tuple[int, ...]], tuple[int, ...]], points: tuple[int, ...], source: Array, combine: str | None) -> Array:
    """``x`` after all points have written in row-major order; ``index``: where a point writes."""
    found = x.astype(np.float64) if combine in ("sum", "prod") and x.dtype.kind == "f" else x.copy()
    for point in np.ndindex(*points):
        place = tuple(k + n if k < 0 else k for k, n in zip(index(point), x.shape, strict=True))
        if all(0 <= k < n for k, n in zip(place, x.shape, strict=True)):
            found[place] = COMBINED[combine](found[place], source[point])
    return found.astype(x.dtype)


def along(dim: int, i: Array) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    return lambda point: (*point[:dim], int(i[point]), *point[dim + 1 :])


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("combine", [None, "sum", "prod", "amax", "amin"])
def test_scatters(dim: int, combine: str | None) -> None:
    x, i, s = numbers((4, 5), "float64"), hostile((3, 5) if dim == 0 else (4, 7), (4, 5)[dim]), numbers((4, 7), "float64", seed=1)

    def call(a: Any, b: Any, c: Any) -> tf.TensorView:
        return tf.scatter(a, dim, b, c) if combine is None else tf.scatter_reduce(a, dim, b, c, combine)

    expected = put(x, along(dim % 2, i), i.shape, s, combine)
    assert np.allclose(evaluated(call, x, i, s), expected, rtol=1e-14)
    same = [["A", "B"], ["A", "B"], ["A", "B"]]
    i = hostile((4, 5), (4, 5)[dim])
    assert np.allclose(evaluated(call, x, i, s[:, :5], shapes=same), put(x, along(dim % 2, i), i.shape, s, combine), rtol=1e-14)
    if combine == "sum":
        assert (evaluated(lambda a, b, c: tf.scatter_add(a, dim, b, c), x, i, s) == evaluated(call, x, i, s)).all()


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("combine", [None, "prod", "amax"])
@pytest.mark.parametrize("is_smaller", [False, True])
def test_one_index_for_each_element_is_a_choice(dim: int, combine: str | None, is_smaller: bool) -> None:
    """As in gradients of a cross-entropy: no reduction looks for the last point, and no table holds it."""
    shape = (1, 5 - is_smaller) if dim == 0 else (4 - is_smaller, 1)
    x, i, s = numbers((4, 5), "float64"), hostile(shape, (4, 5)[dim]), numbers((4, 7), "float64", seed=1)

    def call(a: Any, b: Any, c: Any) -> tf.TensorView:
        found = tf.scatter(a, dim, b, c) if combine is None else tf.scatter_reduce(a, dim, b, c, combine)
        assert all(isinstance(e, Pointwise | View | FirstValid) for e in found.fusion.exprs())
        return found

    assert (evaluated(call, x, i, s) == put(x, along(dim, i), i.shape, s, combine)).all()
    assert (evaluated(lambda a, b: tf.scatter(a, dim, b, 2.0), x, i) == put(x, along(dim, i), i.shape, np.full_like(x, 2.0), None)).all()


def test_the_last_of_several_is_taken() -> None:
    x, s = np.zeros(3, np.float32), np.arange(1, 6, dtype=np.float32)
    i = np.array([0, 2, 0, -1, 0])
    assert evaluated(lambda a, b, c: tf.scatter(a, 0, b, c), x, i, s).tolist() == [5, 0, 4]
    assert evaluated(lambda a, b: tf.scatter(a, 0, b, 7), x, i).tolist() == [7, 0, 7]
    words = evaluated(lambda a, b, c: tf.scatter(a, 0, b, c), x, i, s, values=MODULAR)
    assert (words == MODULAR.encode(np.array([5, 0, 4], np.float32), tf.float32)).all()


def test_outside_writes_nothing() -> None:
    x, i = numbers((4,), "float32"), np.array([-5, 4, 2**40, -(2**63), 2**63 - 1])
    assert (evaluated(lambda a, b: tf.scatter_add(a, 0, b, 1), x, i) == x).all()
    assert (evaluated(lambda a, b: tf.scatter(a, 0, b, 1), x, i) == x).all()
    assert evaluated(lambda b: tf.bincount(b, 4), i).tolist() == [0, 0, 0, 0]
    assert evaluated(lambda b: tf.bincount(b, 3), np.array([-1, 0, 2, 2, 3])).tolist() == [1, 0, 2]
    with pytest.raises(tf.errors.DTypeError, match=r"tv1 \(uint64\) are not indices"):
        evaluated(lambda a, b: tf.scatter_add(a, 0, b, 1), x, i.astype(np.uint64))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"])
def test_dtypes_of_indices(dtype: str) -> None:
    i = np.array([0, 1, 1, 4], dtype)
    assert evaluated(lambda b: tf.scatter_add(tf.zeros([5]), 0, b, 2), i).tolist() == [2, 4, 0, 0, 2]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8", "uint32", "int64"])
def test_sums_are_rounded_once(dtype: str) -> None:
    x = np.zeros(2, as_dtype(dtype).numpy)
    found = evaluated(lambda a, b: tf.scatter_add(a, 0, b, 1), x, np.zeros(300, np.int64))
    assert (found == np.array([300, 0]).astype(x.dtype)).all()


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_index_add_is_the_gradient_of_take(dim: int) -> None:
    x, i = numbers((3, 4, 2), "float64"), hostile((6,), (3, 4, 2)[dim], "int32")
    shape = (*x.shape[:dim], 6, *x.shape[dim + 1 :])
    s = numbers(shape, "float64", seed=1)
    expected = put(x, lambda p: (*p[:dim], int(i[p[dim]]), *p[dim + 1 :]), shape, s, "sum")
    assert np.allclose(evaluated(lambda a, b, c: tf.index_add(a, dim, b, c), x, i, s), expected)
    names = [["A", "B", "C"], ["N"], [*"ABC"[:dim], "N", *"ABC"[dim + 1 :]]]
    assert np.allclose(evaluated(lambda a, b, c: tf.index_add(a, dim, b, c), x, i, s, shapes=names), expected)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_index_put_as_numpy(data: st.DataObject) -> None:
    x = numbers((3, 4, 2), "float64")
    first = data.draw(st.integers(0, 2))
    count = data.draw(st.integers(1, 3 - first))
    shapes = [data.draw(st.sampled_from([(), (1,), (3,), (2, 3), (2, 1)])) for _ in range(count)]
    indices = [np.random.default_rng(k).integers(-n, n, s) for k, (s, n) in enumerate(zip(shapes, x.shape[first : first + count], strict=True))]
    common = np.broadcast_shapes(*shapes)
    whole = (*x.shape[:first], *common, *x.shape[first + count :])
    s = numbers(whole[data.draw(st.integers(0, len(whole))) :], "float64", seed=3)
    accumulate = data.draw(st.booleans())
    expected = x.copy()
    if accumulate:
        places: Any = (*[slice(None)] * first, *indices)
        np.add.at(expected, places, s)
    else:
        wide = np.broadcast_to(s, whole)
        for point in np.ndindex(*common):
            where = (*[slice(None)] * first, *(int(np.broadcast_to(i, common)[point]) for i in indices))
            expected[where] = wide[(*[slice(None)] * first, *point)]

    def call(a: Any, c: Any, *tensors: Any) -> tf.TensorView:
        return tf.index_put(a, [*[None] * first, *tensors], c, accumulate)

    assert np.allclose(evaluated(call, x, s, *indices), expected)


@pytest.mark.parametrize("points", [0, 1, 7])
def test_segments_by_number_and_by_offsets(points: int) -> None:
    x, ids = numbers((points, 3), "float32"), np.random.default_rng(0).integers(-1, 5, points)
    expected = np.stack([x[ids == g].sum(0) for g in range(4)])
    for shapes in ([[*x.shape], [*ids.shape]], [symbolic(x, "X"), symbolic(x, "X")[:1]]):
        assert np.allclose(evaluated(lambda a, b: tf.segment_sum(a, b, 4), x, ids, shapes=shapes), expected)
    offsets = np.array([0, 0, min(2, points), points, points])
    with tf.Fusion("f") as fusion:
        a = tf.define_tensor([tf.dim("M", min=0), 3])
        fusion.add_output(tf.segment_sum(a, tf.table("offsets", "G + 1", high="M", dtype=tf.int64)))
    (found,) = evaluate(fusion, (x, offsets))
    assert np.allclose(found, np.stack([x[m:n].sum(0) for m, n in pairwise(offsets)]))


def test_bincount() -> None:
    i = np.array([0, 3, 3, 1, 5, -1], np.int32)
    assert evaluated(lambda b: tf.bincount(b, 4), i).tolist() == [1, 1, 0, 2]
    w = numbers((6,), "float64")
    assert np.allclose(evaluated(lambda b, c: tf.bincount(b, 4, c), i, w), np.bincount(i[:4], w[:4], minlength=4))
    assert evaluated(lambda b, c: tf.bincount(b, 4, c), i, np.full(6, 200, np.uint8)).tolist() == [200, 200, 0, 400]


def test_kernels_are_proved_for_all_extents() -> None:
    with tf.Fusion("embedding_backward") as fusion:
        gradient, tokens = tf.define_tensor(["N", "D"], name="gradient"), tf.define_tensor(["N"], "int32", name="tokens")
        fusion.add_output(tf.segment_sum(gradient, tokens, tf.define_integer("V")))
    fusion.inline_most()
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    g, t = numbers((5, 3), "float32"), np.array([1, 7, 0, 1, -1], np.int32)
    (found,) = kernel.simulate(g, t, 2, seed=1)
    assert np.allclose(found, [g[2], g[0] + g[3]])


TEXT: Any = "a"
REFUSED: list[tuple[Callable[[Any, Any, Any, Any], object], str]] = [
    (lambda x, i, m, j: tf.scatter(x, 2, i, 1), "scatter: axis 2 is out of range for tv0 [A, B]\nhelp: use an axis in [-2, 1]"),
    (lambda x, i, m, j: tf.scatter(x, 0, x, 1), "scatter: tv0 (float32) are not indices\nhelp: cast them to int64"),
    (lambda x, i, m, j: tf.scatter(x, 0, i, m), "scatter: tv1 [A, B] is not provably within tv2 [C, D]\nhelp: slice the indices"),
    (lambda x, i, m, j: tf.scatter(x, 1, m, 1), "scatter: dimension 0 of tv2 [C, D] is not provably within that of tv0 [A, B]\nhelp: slice the indices"),
    (
        lambda x, i, m, j: tf.scatter_add(tf.gt(x, 0), 0, i, 1),
        "scatter_add: bool elements do not support arithmetic\nhelp: cast to an integer or float dtype first",
    ),
    (
        lambda x, i, m, j: tf.scatter_reduce(x, 0, i, 1, "mean"),
        'scatter_reduce: \'mean\' is not a reduction\nhelp: use "sum", "prod", "amax" or "amin"',
    ),
    (lambda x, i, m, j: tf.scatter(i, 0, i, 1.5), "scatter: 1.5 is not a value of int32\nhelp: cast the tensor first"),
    (lambda x, i, m, j: tf.scatter(i, 0, i, x), "scatter: tv1 (int32) does not hold values of tv0 (float32)\nhelp: cast one of them first"),
    (lambda x, i, m, j: tf.scatter(x, 0, i, TEXT), "scatter: 'a' is neither a tensor nor a number\nhelp: make constants with tf.full"),
    (lambda x, i, m, j: tf.index_add(x, 0, i, x), "index_add: tv1 [A, B] is not 1-d\nhelp: use tf.scatter_add, or tf.index_put"),
    (
        lambda x, i, m, j: tf.index_add(x, 0, j, x),
        "index_add: tv0 [A, B] does not broadcast to [N, B], which the indices of tv0 [A, B] reach\nhelp: each extent must be 1 or the wanted one",
    ),
    (
        lambda x, i, m, j: tf.index_put(x, [None], x),
        "index_put: 1 indices, of which 0 are tensors, for tv0 [A, B]"
        "\nhelp: give one for each of the first dimensions; those that are tensors stand next to each other",
    ),
    (
        lambda x, i, m, j: tf.segment_sum(x, j, 3),
        "segment_sum: tv3 [N] is not one number for each slice of tv0 [A, B]\nhelp: give a 1-d tensor as long as the first axis of the values",
    ),
    (lambda x, i, m, j: tf.bincount(j, 3, x), "bincount: counts in tv3 [N], and weights tv0 [A, B]\nhelp: give a 1-d tensor, and weights of its shape"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=lambda v: v.split(":")[0] if isinstance(v, str) else "")
def test_refused(call: Callable[..., object], text: str) -> None:
    with tf.Fusion("f") as fusion:
        x, i, m, j = (tf.define_tensor([*axes], dtype) for axes, dtype in (("AB", "float32"), ("AB", "int32"), ("CD", "int32"), ("N", "int32")))
        made = len(fusion.tensors())
        assert message(lambda: call(x, i, m, j)) == text
        assert len(fusion.tensors()) - made <= ("gt" in text or "bool" in text)


def test_counts_of_segments() -> None:
    with tf.Fusion("f"):
        x, j = tf.define_tensor(["N", 2]), tf.define_tensor(["N"], "int32")
        with pytest.raises(FusionError, match="segment_sum has no count of segments"):
            tf.segment_sum(x, j)
        with pytest.raises(FusionError, match=r"segment_sum has a count of segments beside offsets, o \[4\]"):
            tf.segment_sum(x, tf.table("o", 4, high="N"), 3)


@pytest.mark.parametrize("reduce", ["sum", "amax", "prod"])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int32])
def test_one_update_of_each_row_is_a_choice(reduce: str, dtype: tf.DType) -> None:
    """Such as the gradient of a gather of one class of each row: nothing is sent, so the elementwise math around it is one kernel with it."""
    with tf.Fusion("one") as fusion:
        x, s = (tf.define_tensor(shape, dtype=dtype, name=name) for shape, name in (([5, 7], "x"), ([5, 2], "s")))
        fusion.add_output(tf.scatter_reduce(x, 1, tf.define_tensor([4, 1], dtype=tf.int64, name="i"), s, reduce) * 2)
    rng = np.random.default_rng(0)
    a, b = ((rng.normal(size=shape) * 9).astype(dtype.numpy) for shape in ((5, 7), (5, 2)))
    indices = np.array([[3], [-1], [0], [9]])
    wanted, function = a.astype(np.float64), {"sum": np.add, "amax": np.maximum, "prod": np.multiply}[reduce]
    for row, column in enumerate(indices[:3, 0]):
        wanted[row, column] = function(wanted[row, column], float(b[row, 0]))
    run = tf.compile(fusion, "sim", cache=False)
    assert len(run.kernels) == 1
    assert run.schedule is not None
    assert run.schedule.scheduler == "pointwise"
    for (found,) in (run(a, b, indices), fusion.evaluate(a, b, indices)):
        np.testing.assert_allclose(np.asarray(found, np.float64), 2 * wanted, rtol=1e-2 if dtype is tf.bfloat16 else 1e-6)


def test_which_point_writes_is_found_once_for_a_row() -> None:
    """A key cache of 4096 rows takes 64 new ones: each point goes to one integer of its row, the last in order; no element of a row looks at points."""
    with tf.Fusion("cache") as fusion:
        cache, place, new = tf.define_tensor([4096, 128], name="cache"), tf.define_tensor([64], tf.int64, name="place"), tf.define_tensor([64, 128], name="new")
        fusion.add_output(tf.index_put(cache, [place], new))
    assert [[int(e) for e in e.output.shape] for e in fusion.exprs() if isinstance(e, Update)] == [[64, 1]]
    assert not any(isinstance(e, Reduction) for e in fusion.exprs())


def test_an_index_that_is_expanded_is_one_of_rows() -> None:
    """As gradients of ``gather`` and caches have it: all elements of a row have one index, though the op is given one for each."""

    def call(x: Any, at: Any, new: Any) -> tf.TensorView:
        found = tf.scatter(x, 1, tf.broadcast_to(at[:, :, None], [3, 4, 5]), new)
        assert [[int(e) for e in e.output.shape] for e in found.fusion.exprs() if isinstance(e, Update)] == [[3, 4, 1]]
        return found

    x, at, new = numbers((3, 6, 5), "float64"), hostile((3, 4), 6), numbers((3, 4, 5), "float64", 1)
    wide = np.broadcast_to(at[:, :, None], (3, 4, 5))
    assert np.array_equal(evaluated(call, x, at, new), put(x, along(1, wide), wide.shape, new, None))


def test_sums_at_computed_indices_of_two_axes_update_neighbors_together() -> None:
    with tf.Fusion("sums") as fusion:
        x, at = tf.define_tensor([64, 128]), tf.define_tensor([2, 8], tf.int64)
        fusion.add_output(tf.index_put(x, [tf.maximum(at, 0)], tf.define_tensor([2, 8, 128]), True))
    assert "4 neighbors together" in tf.schedulers.scatter(fusion).config.words


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_extremes_of_integers_are_in_scatter_form(reduce: str) -> None:
    with tf.Fusion("extremes") as fusion:
        a, b, c = tf.define_tensor([5, 3], tf.int32), tf.define_tensor([7, 3], tf.int64), tf.define_tensor([7, 3], tf.int32)
        fusion.add_output(tf.scatter_reduce(a, 0, b, c, reduce))
    assert [e.combine.name for e in fusion.exprs() if isinstance(e, Update)] == [{"amax": "maximum", "amin": "minimum"}[reduce]]
    base, index, source = numbers((5, 3), "int32"), hostile((7, 3), 5), numbers((7, 3), "int32", 1)
    (found,) = fusion.evaluate(base, index, source)
    assert np.array_equal(found, put(base, along(0, index), index.shape, source, reduce))
