"""Tiles of walks: what a product reads is copied once, wherever it is read, and lies in Shared memory as tensor cores read it."""

import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import UnsupportedError
from taskfuse.ir.expr import Read, Reduction
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.walk_tiles import check_product, copied, is_given, matrices, multiply, swizzle


def squared(k: int = 64) -> tuple[tf.Fusion, tf.TensorView]:
    """A product of a tensor with itself."""
    with tf.Fusion() as fusion:
        x = tf.define_tensor([64, k], dtype=tf.bfloat16, name="x")
        y = tf.matmul(x, x.T, dtype=tf.float32)
        fusion.add_output(y)
    return fusion, y


def definition(fusion: tf.Fusion, tv: tf.TensorView) -> Reduction:
    expr = fusion.definition(tv)
    assert isinstance(expr, Reduction)
    return expr


def test_products_and_their_factors() -> None:
    fusion, y = squared()
    found = matrices(fusion, definition(fusion, y))
    assert found is not None
    assert found.places == (0, 1)
    assert all(is_given(fusion, o) for o in definition(fusion, y).operands)
    with tf.Fusion() as other:
        x = tf.define_tensor([64, 64])
        total, computed = tf.sum(x, axis=1), tf.matmul(tf.exp(x), x)
        other.add_output(total)
        other.add_output(computed)
    assert matrices(other, definition(other, total)) is None
    assert [is_given(other, o) for o in definition(other, computed).operands] == [False, True]


def test_an_operand_is_copied_once() -> None:
    fusion, y = squared()
    script = Script(fusion)
    one = copied(script, y, 0)
    view = copied(script, y, 1)
    assert one is not view
    assert [o.tensor for o in definition(fusion, y).operands if isinstance(o, Read)] == [one, view]
    with tf.Fusion() as other:
        x, a, b = (tf.define_tensor([2, 64, 64], dtype=tf.bfloat16) for _ in range(3))
        products = [tf.matmul(t, x.permute((0, 2, 1)), dtype=tf.float32) for t in (a, b)]
        for tv in products:
            other.add_output(tv)
    script = Script(other)
    first = copied(script, products[0], 1)
    assert copied(script, products[1], 1, [first]) is first
    assert script.lines[-1] == f"tv6.through_view(1, {first.name})"


def test_rows_lie_in_pieces() -> None:
    for k, span in ((128, 64), (32, 32)):
        fusion, y = squared(k)
        script = Script(fusion)
        tile = copied(script, y, 0)
        tile.set_memory_type(MemoryType.Shared)
        swizzle(script, tile)
        assert [str(a.extent) for a in tile.loop] == [str(k // span), "64", str(span)]
        assert tile.schedule.ptype(tile.loop[0]) is P.Unroll


def test_products_take_steps_of_16_terms() -> None:
    fusion, y = squared()
    y.cache_before()
    y = next(e.output for e in fusion.exprs() if isinstance(e, Reduction))
    multiply(Script(fusion), y, 0, 64)
    assert [str(a.extent) for a in y.loop] == ["4", "64", "64", "16"]
    assert y.schedule.atom is not None
    assert (y.schedule.atom.name, [str(y.loop[p].extent) for p in (1, 2, 3)]) == ("wgmma_m64n64k16", ["64", "64", "16"])


@pytest.mark.parametrize(
    ("a", "b", "sums", "is_last", "reason"),
    [
        (tf.bfloat16, tf.bfloat16, tf.float32, False, ""),
        (tf.float8_e4m3, tf.float8_e5m2, tf.float32, True, ""),
        (tf.bfloat16, tf.float16, tf.float32, True, "multiplies bfloat16 by float16"),
        (tf.bfloat16, tf.float8_e4m3, tf.float32, True, "multiplies bfloat16 by float8_e4m3"),
        (tf.float8_e4m3, tf.float8_e4m3, tf.float32, False, "does not sum over the last axis of b"),
        (tf.int8, tf.int8, tf.int32, True, "not a float32 sum of products of 8-bit or 16-bit floats"),
        (tf.bfloat16, tf.bfloat16, tf.bfloat16, True, ""),
        (tf.float32, tf.float32, tf.float32, True, "not a float32 sum"),
    ],
)
def test_what_tensor_cores_multiply(a: tf.DType, b: tf.DType, sums: tf.DType, is_last: bool, reason: str) -> None:
    with tf.Fusion() as fusion:
        left, right = tf.define_tensor([64, 32], dtype=a, name="a"), tf.define_tensor([64, 32] if is_last else [32, 64], dtype=b, name="b")
        y = tf.matmul(left, right.T if is_last else right, dtype=sums)
        fusion.add_output(y)
    (expr,) = [e for e in fusion.exprs() if isinstance(e, Reduction)]
    two = matrices(fusion, expr)
    assert two is not None
    if not reason:
        check_product(fusion, "walk", expr, two, (1, 2))
        return
    with pytest.raises(UnsupportedError, match=reason):
        check_product(fusion, "walk", expr, two, (1, 2))
