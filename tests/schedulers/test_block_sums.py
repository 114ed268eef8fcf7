"""Products whose sum has two levels, found by structure."""

import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.ir.expr import Pointwise
from taskfuse.schedulers.contraction import find
from tests.schedulers.fusions import Build
from tests.schedulers.scaled import symbolic
from tests.schedulers.tried import built


def of_blocks(blocks: int | str = 4, size: int = 64) -> tuple[tf.TensorView, tf.TensorView]:
    """[M, blocks, size] and [N, blocks, size]."""
    a, b = (tf.define_tensor([extent, blocks, size], dtype=tf.bfloat16, name=name) for extent, name in (("M", "a"), ("N", "b")))
    return a, b


def products() -> tf.TensorView:
    return tf.einsum("mkc,nkc->mnk", *of_blocks(), dtype=tf.float32)


@pytest.mark.parametrize(
    ("form", "each", "bulk"), [("1d2d", [False, False], [False, False]), ("1d1d", [False, True], [False, True]), ("bulk", [False, False], [True, False])]
)
def test_scales_of_blocks(form: str, each: list[bool], bulk: list[bool]) -> None:
    product = find(symbolic(form))
    blocks = product.blocks
    assert blocks is not None
    assert (product.axes.m, product.axes.n, product.axes.k, product.axes.batch, blocks.axis, blocks.size) == (0, 1, 2, (), 2, 128)
    assert (product.a.tensor.name, product.a.is_k_major, product.a.is_whole) == ("a", True, False)
    assert len(blocks.terms) == 1
    assert [(given.has_rows, given.has_columns) for given in blocks.inputs] == [(True, False), (False, True)]
    assert [given.is_each_column for given in blocks.inputs] == each
    assert [given.is_bulk for given in blocks.inputs] == bulk  # rows of multiples of 16 bytes, M or N elements of 4
    assert product.multiplied is blocks.product


def test_any_function_of_a_block() -> None:
    """The terms need not be products: a sum of squares of what each block sums up to, for 16-bit factors."""
    product = find(built(lambda: [tf.sum(tf.square(products()), axis=2)]))
    assert product.blocks is not None
    assert product.blocks.inputs == ()
    assert [tv.definition.op.name for tv in product.blocks.terms if isinstance(tv.definition, Pointwise)] == ["square"]


def kept() -> list[tf.TensorView]:
    p = products()
    square = tf.square(p)
    return [tf.sum(square, axis=2), square]


def read_again() -> list[tf.TensorView]:
    p = products()
    return [tf.sum(p, axis=2), tf.max(p, axis=2)]


def shifted() -> list[tf.TensorView]:
    p = products()
    return [tf.sum(p * tf.flip(p, 0), axis=2)]


def longer() -> list[tf.TensorView]:
    return [tf.sum(tf.einsum("mkc,nkc->mnk", *of_blocks(size=96), dtype=tf.float32), axis=2)]


def greatest() -> list[tf.TensorView]:
    return [tf.max(products(), axis=2)]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (kept, "is an output, and is summed while it lies in registers"),
        (read_again, "tv2 is read by tv4"),
        (shifted, "reads tv2 at M - i0 - 1"),
        (longer, "reduces batch axes"),
        (greatest, "reduces batch axes"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_refusals(build: Build, reason: str) -> None:
    fusion = built(build)
    with pytest.raises(UnsupportedError, match=reason):
        find(fusion)
