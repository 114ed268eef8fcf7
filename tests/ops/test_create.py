"""Inputs, facts and constants."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import DTYPES
from taskfuse.errors import FusionError, ShapeError
from taskfuse.ir.dims import Dim
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import sym
from taskfuse.ir.tensor import TensorView
from tests.ops.reference import Array, message


def constant(fusion: Fusion, tv: TensorView) -> Array:
    """A tensor that depends on no argument."""
    fusion.add_output(tv)
    return evaluate(fusion, [])[-1]


def test_define_tensor() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor(["B", 4, "4*S", tf.dim("T", multiple_of=8), sym("B") + 1], "bfloat16", name="x")
        y = tf.define_tensor([])
    assert repr(x) == "x: bfloat16[B, 4, 4*S, T, B + 1]"
    assert repr(y) == "tv1: float32[]"
    assert fusion.inputs == [x, y]
    assert fusion.dims == {"B": Dim("B"), "S": Dim("S"), "T": Dim("T", multiple_of=8)}


def test_facts_may_come_before_or_after_the_symbol() -> None:
    with Fusion("f") as fusion:
        tf.define_tensor(["S", tf.dim("S", max=9), "S"])
        assert fusion.dims == {"S": Dim("S", max=9)}
        assert "given twice with different facts" in message(lambda: tf.define_tensor([tf.dim("S", max=8)]))


def test_define_scalar() -> None:
    with Fusion("f") as fusion:
        s, n = tf.define_scalar(), tf.define_scalar("int32", "n")
    assert (repr(s), repr(n)) == ("s0: float32", "n: int32")
    assert fusion.scalars == [s, n]


@pytest.mark.parametrize("dtype", DTYPES)
def test_full(dtype: str) -> None:
    with Fusion("f") as fusion:
        for tv, value in ((tf.full([2, 0, 3], 1, dtype), 1), (tf.zeros(3, dtype), 0), (tf.ones([], dtype), 1)):
            found = constant(fusion, tv)
            assert found.dtype == DTYPES[dtype].numpy
            assert (found.astype(np.float64) == value).all()
            assert found.shape == tuple(int(str(e)) for e in tv.shape)


def test_full_takes_the_dtype_of_its_value() -> None:
    with Fusion("f"):
        s = tf.define_scalar("float16")
        assert [tf.full([1], v).dtype.name for v in (True, 3, 2.5, s)] == ["bool", "int64", "float32", "float16"]
        assert tf.full([1], s, "int8").dtype.name == "int8"


def test_like() -> None:
    with Fusion("f"):
        x = tf.define_tensor(["N", 2], "int16")
        for tv in (tf.full_like(x, 7), tf.zeros_like(x), tf.ones_like(x)):
            assert (tv.shape, tv.dtype) == (x.shape, x.dtype)
        assert tf.zeros_like(x, "float32").dtype.name == "float32"


def test_iota() -> None:
    with Fusion("f") as fusion:
        assert (constant(fusion, tf.iota([2, 3], 1)) == np.broadcast_to(np.arange(3), (2, 3))).all()
        assert (constant(fusion, tf.iota([2, 3], -2, "float32")) == np.arange(2).reshape(2, 1)).all()


NUMPY_ARANGE: Callable[..., Array] = np.arange  # one type for all its overloads


@pytest.mark.parametrize("args", [(5,), (2, 7), (0, 10, 3), (10, 0, -3), (5, 2), (3, 3), (-4, 4, 2), (0.0, 1.0, 0.25), (1, 0, -0.3), (0, 5.5), (1.0, 0.0)])
def test_arange(args: tuple[Any, ...]) -> None:
    with Fusion("f") as fusion:
        found = constant(fusion, tf.arange(*args))
    expected = NUMPY_ARANGE(*args)
    assert found.dtype == (np.int64 if expected.dtype == np.int64 else np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_symbolic_arange() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor(["N"])
        fusion.add_output(tf.arange(x.shape[0]))
        fusion.add_output(tf.arange(x.shape[0], 3 * x.shape[0], 2, "int32"))
        first, second = evaluate(fusion, [np.zeros(5, np.float32)])
    assert first.tolist() == list(range(5))
    assert second.tolist() == list(range(5, 15, 2))


def test_outside_of_a_fusion() -> None:
    for call in (lambda: tf.define_tensor([1]), tf.define_scalar, lambda: tf.full([1], 0)):
        with pytest.raises(FusionError, match="no fusion is open here"):
            call()


def test_errors() -> None:
    wrong: Any = None
    with Fusion("f") as fusion:
        assert message(lambda: tf.define_tensor([-1])) == "define_tensor: extent -1 is negative"
        assert message(lambda: tf.define_tensor(["S -"])).startswith("define_tensor: 'S -' is not an extent: ")
        assert message(lambda: tf.define_tensor([wrong])) == (
            "define_tensor: None is not an extent\nhelp: use an int, a name such as 'S', an expression such as '4*S', or tf.dim(...)"
        )
        assert message(lambda: tf.define_tensor(["i0"])) == (
            "fusion '?': 'i0' is not a name for a dimension\nhelp: use an identifier other than i0, i1, ..., v0, v1, ... and claimed, which index maps use"
        )
        assert "'a b' is not a name" in message(lambda: tf.dim("a b"))
        assert message(lambda: tf.dim("S", multiple_of=8, min=9, max=15)) == (
            "fusion '?': no extent meets the facts of dimension 'S': min=9, max=15, multiple_of=8"
        )
        assert "no extent meets" in message(lambda: tf.dim("S", min=-1))
        assert "no extent meets" in message(lambda: tf.dim("S", multiple_of=0))
        assert message(lambda: tf.full([2], 300, "uint8")) == "full: 300 is not a value of uint8\nhelp: cast the tensor to a dtype that holds it"
        assert message(lambda: tf.full([2], wrong)) == "full: NoneType is not a value\nhelp: use a number, an extent or a run-time scalar"
        assert message(lambda: tf.full([2], 0.5, "int8")).startswith("full: 0.5 is not a value of int8")
        assert message(lambda: tf.iota([2], 1)) == "iota: axis 1 is out of range for 1 dimensions\nhelp: use an axis in [-1, 0]"
        assert message(lambda: tf.arange(0, 5, 0)) == "arange: step is 0"
        assert message(lambda: tf.arange(0.5, sym("N"))) == ("arange: mixes a symbolic bound with a float\nhelp: use integers, then scale the result")
        assert fusion.tensors() == ()


def test_an_extent_does_not_divide_by_what_may_be_zero() -> None:
    with Fusion("f"):
        tf.define_tensor(["N//2", "N//M"])
        with pytest.raises(ShapeError) as caught:
            tf.define_tensor(["N//0"])
        assert (caught.value.message, caught.value.help) == ("define_tensor: extent N//0 divides by 0, which may be 0", "declare it with tf.dim(..., min=1)")
        tf.define_tensor([tf.dim("K", min=0)])
        with pytest.raises(ShapeError) as caught:
            tf.define_tensor(["N % K"])
        assert caught.value.message == "define_tensor: extent N % K divides by K, which may be 0"
