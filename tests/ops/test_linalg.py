"""Matrix products against NumPy."""

from typing import Any

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import as_dtype
from taskfuse.ir.axes import AxisKind
from taskfuse.ir.expr import Pointwise, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.values import MODULAR
from tests.ops.reference import evaluated, message, numbers

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((2, 0), (0, 4)),
    ((0, 3), (3, 4)),
    ((2, 1), (1, 4)),
    ((1, 3), (3, 1)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = numbers(shapes[0], "float32"), numbers(shapes[1], "float32", 1)
    expected = np.asarray(np.matmul(a, b))
    found = evaluated(tf.matmul, a, b)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("float64", "float64", "float64"),
        ("int32", "int32", "int32"),
        ("uint8", "int8", "int16"),
        ("bool", "bool", "bool"),
        ("float16", "float16", "float16"),
        ("bfloat16", "float32", "float32"),
        ("bfloat16", "float8_e4m3", "bfloat16"),
    ],
)
def test_dtypes(left: str, right: str, result: str) -> None:
    a, b = numbers((4, 9), left), numbers((9, 5), right, 1)
    found = evaluated(lambda x, y: x @ y, a, b)
    assert found.dtype == as_dtype(result).numpy
    if as_dtype(result).is_float:
        exact = a.astype(np.float64) @ b.astype(np.float64)
        if left == "float64":
            np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_array_equal(found.astype(np.float64), exact.astype(np.float32).astype(found.dtype).astype(np.float64))
    else:
        assert (found == a.astype(found.dtype) @ b.astype(found.dtype)).all()


def test_result_dtype() -> None:
    a, b = numbers((4, 9), "bfloat16"), numbers((9, 5), "bfloat16", 1)
    found = evaluated(lambda x, y: tf.matmul(x, y, dtype="float32"), a, b)
    np.testing.assert_array_equal(found, (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32))
    small = numbers((3, 3), "int8")
    assert (evaluated(lambda x: tf.matmul(x, x, "int32"), small) == small.astype(np.int32) @ small.astype(np.int32)).all()


def test_op_map() -> None:
    with Fusion("f"):
        a, b = tf.define_tensor(["B", "M", "K"], "bfloat16"), tf.define_tensor([1, "K", "N"], "bfloat16")
        c = tf.matmul(a, b)
        d = tf.matmul(a, b, dtype="float32")
    assert isinstance(c.definition, Pointwise)
    assert c.definition.op.name == "cast"
    assert isinstance(d.definition, Reduction)
    assert d.dtype.name == "float32"
    assert [(str(x.extent), x.kind) for x in d.root] == [
        ("B", AxisKind.ITERATION),
        ("M", AxisKind.ITERATION),
        ("N", AxisKind.ITERATION),
        ("K", AxisKind.REDUCTION),
    ]
    assert [[str(e) for e in o.index] for o in d.definition.operands if isinstance(o, Read)] == [["i0", "i1", "i3"], ["0", "i3", "i2"]]


def test_ring_product_does_not_depend_on_the_order() -> None:
    a, b = numbers((3, 8), "float32"), numbers((8, 4), "float32", 1)
    whole = evaluated(tf.matmul, a, b, values=MODULAR)
    halves = evaluated(lambda x, y: tf.matmul(x[:, 4:], y[4:]) + tf.matmul(x[:, :4], y[:4]), a, b, values=MODULAR)
    sums = evaluated(lambda x, y: tf.sum(tf.expand_dims(x, 2) * y, 1), a, b, values=MODULAR)
    assert (whole == halves).all()
    assert (whole == sums).all()


def test_views_as_operands() -> None:
    a = numbers((4, 6), "float32")
    np.testing.assert_allclose(evaluated(lambda x: x @ x.T, a, shapes=[["M", "K"]]), a @ a.T, rtol=1e-5)
    np.testing.assert_allclose(evaluated(lambda x: x.T[::2] @ x[:, ::-1], a), a.T[::2] @ a[:, ::-1], rtol=1e-5, atol=1e-5)


def test_errors() -> None:
    with Fusion("f") as fusion:
        a, b, z = tf.define_tensor(["M", "K"]), tf.define_tensor(["N", "K"]), tf.define_tensor([])
        v, p, q = tf.define_tensor([3]), tf.define_tensor([2, 3, 3]), tf.define_tensor([4, 3, 3])
        count = len(fusion.tensors())
        assert message(lambda: a @ b) == (
            "matmul: the last dimension of tv0 [M, K] is K, the last but one of tv1 [N, K] is N\nhelp: transpose an operand with x.T or tf.permute"
        )
        assert message(lambda: a @ v).startswith("matmul: the last dimension of tv0 [M, K] is K, the only of tv3 [3] is 3\n")
        assert message(lambda: a @ z) == "matmul: tv2 [] is 0-d\nhelp: multiply by a number with *"
        assert message(lambda: p @ q) == "matmul: leading dimensions do not broadcast: 2 in tv4 [2, 3, 3] but 4 in tv5 [4, 3, 3]"
        assert message(lambda: tf.matmul(p, p, "int32")) == (
            "matmul: tv4 (float32) and tv4 (float32) cannot be multiplied in int32\nhelp: ask for a float dtype, then cast"
        )
        wrong: Any = 2
        assert message(lambda: a @ wrong) == "matmul: takes a tensor, not int\nhelp: make constants with tf.full, inputs with tf.define_tensor"
        assert len(fusion.tensors()) == count
