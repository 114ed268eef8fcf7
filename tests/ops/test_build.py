"""How ops make expressions: broadcasting, casts, constants, scalars, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import bfloat16
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.expr import Literal, Pointwise, Read, ScalarRead
from taskfuse.ir.fusion import Fusion
from taskfuse.schedule.copy import copy_fusion
from tests.ops.reference import message


def test_implicit_broadcast_makes_no_tensor_and_an_implicit_cast_one() -> None:
    with Fusion("f") as fusion:
        x, y = tf.define_tensor(["M", "N"]), tf.define_tensor([1], dtype="int32")
        before = len(fusion.tensors())
        z = tf.add(x, y)
    made = fusion.tensors()[before:]
    assert [tv.name for tv in made] == ["tv2", "tv3", "tv4"]
    assert [tv.dtype.name for tv in made] == ["float64", "float64", "float64"]
    assert [fusion.owner(tv) for tv in made] == [z, z, None]
    assert isinstance(z.definition, Pointwise)
    assert [[str(e) for e in o.index] for o in z.definition.operands if isinstance(o, Read)] == [["i0", "i1"], ["0"]]


def test_scalars() -> None:
    with Fusion("f") as fusion:
        x, s, n = tf.define_tensor([3]), tf.define_scalar(name="alpha"), tf.define_scalar("int32")
        y = x * s
        fusion.add_output(y)
        fusion.add_output(tf.where(tf.gt(n, 0), 1.0, x))
        fusion.add_output(tf.exp(n))
    assert isinstance(y.definition, Pointwise)
    assert isinstance(y.definition.operands[1], ScalarRead)
    data = np.array([1, 2, 3], np.float32)
    scaled, chosen, power = evaluate(fusion, [data, 2.5, 1])
    assert scaled.tolist() == [2.5, 5.0, 7.5]
    assert chosen.tolist() == [1, 1, 1]
    assert power.shape == ()
    assert power.dtype == np.float64
    assert np.isclose(power, math.e)


def test_weak_constants_take_the_dtype_of_the_tensor() -> None:
    with Fusion("f"):
        y = tf.define_tensor([2], dtype="bfloat16") * 3
    assert y.dtype.name == "bfloat16"
    assert isinstance(y.definition, Pointwise)
    literal = y.definition.operands[1]
    assert literal == Literal(3.0, y.dtype)
    assert isinstance(literal, Literal)
    assert isinstance(literal.value, float)


def test_shape_errors() -> None:
    with Fusion("f") as fusion:
        x, y, z = tf.define_tensor(["B", "S"]), tf.define_tensor(["B", "T"]), tf.define_tensor([3])
        count = len(fusion.tensors())
        assert message(lambda: x + y) == (
            "add: shapes do not broadcast: dimension -1 is S in tv0 [B, S] but T in tv1 [B, T]\nhelp: extents must be the same expression, or the constant 1"
        )
        assert "dimension -1 is S in tv0 [B, S] but 3 in tv2 [3]" in message(lambda: tf.where(x, 1.0, z))
        assert len(fusion.tensors()) == count


def test_error_shows_the_line_of_the_user() -> None:
    with Fusion("f"):
        x, y = tf.define_tensor([2]), tf.define_tensor([3])
        with pytest.raises(Exception, match="shapes do not broadcast") as caught:
            tf.add(x, y)
    assert "test_build.py" in str(caught.value)
    assert "tf.add(x, y)" in str(caught.value)


def test_dtype_errors() -> None:
    with Fusion("f") as fusion:
        b, x, u = tf.define_tensor([2], dtype="bool"), tf.define_tensor([2]), tf.define_tensor([2], dtype="uint8")
        count = len(fusion.tensors())
        assert message(lambda: -b) == "neg: bool operands do not support arithmetic: tv0 (bool)\nhelp: cast to an integer or float dtype first"
        assert message(lambda: b - True) == "sub: bool operands do not support arithmetic: tv0 (bool), True\nhelp: cast to an integer or float dtype first"
        assert message(lambda: x & u) == ("bitwise_and: needs bool or integer operands: tv1 (float32), tv2 (uint8)\nhelp: cast to an integer dtype first")
        assert message(lambda: tf.left_shift(b, b)) == ("left_shift: needs integer operands: tv0 (bool), tv0 (bool)\nhelp: cast to an integer dtype first")
        assert message(lambda: u + 256) == "add: 256 is not a value of uint8\nhelp: cast the tensor to a dtype that holds it"
        assert message(lambda: x + 10**400) == "add: the constant is out of the range of float32"
        assert message(lambda: tf.sin(1.0)) == ("sin: needs a tensor or a run-time scalar among its operands\nhelp: make constants with tf.full")
        wrong: Any = "1"
        assert message(lambda: x + wrong) == "add: str is not an operand\nhelp: use tensors, run-time scalars and Python numbers: float(x), int(x)"
        assert message(lambda: tf.cast(wrong, "float32")) == "cast: takes a tensor, not str\nhelp: make constants with tf.full, inputs with tf.define_tensor"
        assert len(fusion.tensors()) == count


def test_mixing_fusions() -> None:
    with Fusion("f"):
        x = tf.define_tensor([2])
    with Fusion("g"):
        y = tf.define_tensor([2])
        assert message(lambda: x + y) == "fusion 'f': add mixes tv0 with tv0 of fusion 'g'"


def test_scalars_that_do_not_promote() -> None:
    with Fusion("f") as fusion:
        x, n = tf.define_tensor([4], "bfloat16", name="x"), tf.define_tensor([4], "int32", name="n")
        a, k, strong = tf.define_scalar("float64", promotes=False), tf.define_scalar("int64", promotes=False), tf.define_scalar("float64")
        made = [x * a, x * k, n * k, n * a, a * k, a + 1, x * strong]
        assert [tv.dtype.name for tv in made] == ["bfloat16", "bfloat16", "int32", "float64", "float64", "float64", "float64"]
        for tv in made:
            fusion.add_output(tv)
    copied, _ = copy_fusion(fusion)
    assert [s.promotes for s in copied.scalars] == [False, False, True]
    given = np.array([1, 2, 3, 4])
    found = evaluate(fusion, [given.astype(bfloat16.numpy), given.astype(np.int32), 0.5, 3, 0.25])
    assert [v.astype(float).tolist() for v in found[:3]] == [[0.5, 1, 1.5, 2], [3, 6, 9, 12], [3, 6, 9, 12]]
