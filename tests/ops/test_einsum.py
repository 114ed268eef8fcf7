"""Einstein summation against NumPy."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.dtypes import as_dtype
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.expr import Read, Reduction, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from tests.ops.reference import evaluated, message, numbers, symbolic

CASES: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("mk,nk->nm", [(2, 3), (4, 3)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("i,i->", [(5,), (5,)]),
    ("i,j->ij", [(2,), (3,)]),
    ("i,j->", [(2,), (3,)]),
    ("ij,ij->ij", [(2, 3), (2, 3)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("iij->j", [(3, 3, 2)]),
    ("ij->ji", [(2, 3)]),
    ("ba", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("ij->j", [(2, 3)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("i,ij,j->", [(2,), (2, 3), (3,)]),
    ("ij,kj->k", [(2, 3), (4, 3)]),
    ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
    ("...ij,...jk", [(5, 1, 2, 3), (6, 3, 4)]),
    ("i...,i->...", [(2, 3, 4), (2,)]),
    ("...->...", [(2, 3)]),
    ("...i->i...", [(2, 3)]),
    ("ij,jk->ik", [(2, 1), (3, 4)]),
    ("ij,jk->ik", [(2, 0), (0, 4)]),
    ("ii,i->i", [(3, 3), (3,)]),
    ("abc,cd,def,f->abe", [(2, 3, 4), (4, 2), (2, 3, 5), (5,)]),
    (",ij->ij", [(), (2, 3)]),
]


@pytest.mark.parametrize(("subscripts", "shapes"), CASES, ids=str)
def test_like_numpy(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [numbers(s, "int32", k) for k, s in enumerate(shapes)]
    expected = np.einsum(subscripts, *arrays)
    found = evaluated(partial(tf.einsum, subscripts), *arrays)
    assert found.shape == expected.shape
    assert (found == expected).all()


@st.composite
def contractions(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """Subscripts over a few letters, with and without a result, and shapes that fit them."""
    letters = "abcd"
    extents = {c: draw(st.integers(0, 3)) for c in letters}
    parts = draw(st.lists(st.text(letters, max_size=3), min_size=1, max_size=4))
    known = sorted(set("".join(parts)))
    text = ",".join(parts)
    if draw(st.booleans()):
        text += "->" + "".join(draw(st.permutations(draw(st.lists(st.sampled_from(known), unique=True)) if known else [])))
    return text, [tuple(extents[c] for c in part) for part in parts]


@settings(max_examples=60)
@given(contractions())
def test_any_subscripts(case: tuple[str, list[tuple[int, ...]]]) -> None:
    subscripts, shapes = case
    arrays = [numbers(s, "int64", k) for k, s in enumerate(shapes)]
    assert (evaluated(partial(tf.einsum, subscripts), *arrays) == np.einsum(subscripts, *arrays)).all()


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("float16", "float16", "float16"),
        ("bfloat16", "float32", "float32"),
        ("uint8", "int8", "int16"),
        ("bool", "bool", "bool"),
        ("float64", "int32", "float64"),
    ],
)
def test_dtypes(left: str, right: str, result: str) -> None:
    a, b = numbers((4, 9), left), numbers((9, 5), right, 1)
    found = evaluated(lambda x, y: tf.einsum("ij,jk->ki", x, y), a, b)
    assert found.dtype == as_dtype(result).numpy
    exact = (a.astype(np.float64) @ b.astype(np.float64)).T
    np.testing.assert_allclose(found.astype(np.float64), exact > 0 if result == "bool" else exact, rtol=2e-3)


def test_dtype_of_the_result() -> None:
    a = numbers((4, 9), "float16")
    assert evaluated(lambda x: tf.einsum("ij,kj->ik", x, x, dtype="float32"), a).dtype == np.float32


def test_symbolic_extents() -> None:
    a, b = numbers((2, 3, 4), "float64"), numbers((4, 5), "float64", 1)
    shapes: list[list[Any]] = [["B", "M", "K"], ["K", "N"]]
    found = evaluated(lambda x, y: tf.einsum("bmk,kn->bmn", x, y), a, b, shapes=shapes)
    np.testing.assert_allclose(found, a @ b)
    assert evaluated(lambda x: tf.einsum("ab->ba", x), b, shapes=[symbolic(b, "D")]).shape == (5, 4)


def test_a_contraction_is_one_reduction_of_products() -> None:
    with Fusion("f") as fusion:
        a, b = tf.define_tensor(["M", "K"]), tf.define_tensor(["N", "K"])
        product = tf.einsum("mk,nk->mn", a, b)
        assert list(fusion.exprs()) == [product.definition]
        expr = product.definition
        assert isinstance(expr, Reduction)
        assert expr.combine is COMBINES["add"]
        assert [str(o.index[1]) for o in expr.operands if isinstance(o, Read)] == ["i2", "i2"]
        assert isinstance(tf.einsum("ij->ji", a).definition, View)


# what type checkers refuse
NUMBER: Any = 3.0
EINSUM: Any = tf.einsum
REFUSED: list[tuple[Callable[[TensorView, TensorView], object], str]] = [
    (lambda x, y: tf.einsum("ij,jk->ik", x), "einsum: 'ij,jk->ik' names 2 operands, and 1 are given"),
    (
        lambda x, y: tf.einsum("i1->i", x),
        "einsum: 'i1' in 'i1->i' is not a list of axes\nhelp: use letters, and ... for the axes without a letter",
    ),
    (lambda x, y: tf.einsum("ijk->i", x), "einsum: 'ijk' names 3 axes of tv0 [M, 4], which has 2"),
    (lambda x, y: tf.einsum("i->i", x), "einsum: 'i' names 1 axes of tv0 [M, 4], which has 2"),
    (lambda x, y: tf.einsum("ij->ii", x), "einsum: the result of 'ij->ii' has axis i twice"),
    (lambda x, y: tf.einsum("ij->ik", x), "einsum: no operand of 'ij->ik' has axis k of the result"),
    (
        lambda x, y: tf.einsum("...i->i", x),
        "einsum: the result of '...i->i' lacks the axes of ...\nhelp: write ... after -> as well, or sum them with tf.sum",
    ),
    (
        lambda x, y: tf.einsum("ij,jk->ik", x, y),
        "einsum: axis j is 4 in tv0 [M, 4] but 5 in tv1 [5, 6]\nhelp: extents must be the same expression, or the constant 1",
    ),
    (
        lambda x, y: tf.einsum("ij,kl->ik", x, y, dtype="int32"),
        "einsum: tv0 (float32), tv1 (float32) cannot be multiplied in int32\nhelp: ask for a float dtype, then cast",
    ),
    (lambda x, y: tf.einsum("i,i", x, NUMBER), "einsum: takes a tensor, not float\nhelp: make constants with tf.full, inputs with tf.define_tensor"),
    (lambda x, y: EINSUM(x, y), 'einsum: the subscripts are not text, but TensorView\nhelp: write einsum("ij,jk->ik", a, b)'),
]


@pytest.mark.parametrize(
    ("build", "text"),
    REFUSED,
)
def test_errors(build: Callable[[TensorView, TensorView], object], text: str) -> None:
    with Fusion("f"):
        x, y = tf.define_tensor(["M", 4]), tf.define_tensor([5, 6])
        assert message(lambda: build(x, y)) == text
