"""cat, stack and pad against NumPy, in both forms."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.expr import Assemble, FirstValid, Pointwise, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.values import MODULAR
from tests.ops.reference import evaluated, message, numbers

FORMS: list[tf.CatForm | str] = ["gather", tf.CatForm.SCATTER]


def exponentials(dim: int, form: tf.CatForm | str) -> Callable[..., TensorView]:
    """The exponentials of tensors, joined."""
    return lambda *tensors: tf.cat([tf.exp(t) for t in tensors], dim, form)


@pytest.mark.parametrize("form", FORMS)
def test_cat(form: tf.CatForm | str) -> None:
    for shapes, dim in [([(2, 3), (4, 3), (0, 3)], 0), ([(2, 3), (2, 1)], -1), ([(5,)], 0), ([(0,), (0,)], 0)]:
        parts = [numbers(s, "float32", i) for i, s in enumerate(shapes)]
        for values in (None, MODULAR):
            if values is None:
                found = evaluated(exponentials(dim, form), *parts)
                np.testing.assert_allclose(found, np.exp(np.concatenate(parts, dim)), rtol=1e-6)
            else:
                a, b = (evaluated(exponentials(dim, f), *parts, values=values) for f in FORMS)
                assert (a == b).all()


@pytest.mark.parametrize("form", FORMS)
def test_symbolic_cat(form: tf.CatForm | str) -> None:
    a, b = numbers((2, 3, 4), "float32"), numbers((2, 5, 4), "float32", 1)
    found = evaluated(lambda x, y: tf.cat([x, y, x], 1, form), a, b, shapes=[["B", "S", "T"], ["B", "U", "T"]])
    assert (found == np.concatenate([a, b, a], 1)).all()


@pytest.mark.parametrize("form", FORMS)
def test_stack(form: tf.CatForm | str) -> None:
    a, b = numbers((2, 3), "float32"), numbers((2, 3), "float32", 1)
    for dim in (0, 1, 2, -1):
        found = evaluated(lambda x, y, d=dim: tf.stack([tf.neg(x), y], d, form), a, b, shapes=[["M", "N"]] * 2)
        assert (found == np.stack([-a, b], dim)).all()
    assert (evaluated(lambda x: tf.stack([x], form=form), a) == a[None]).all()
    assert (evaluated(lambda x: tf.stack([x, x], form=form), np.array(3, np.float32)) == [3, 3]).all()


def test_promotion() -> None:
    assert evaluated(lambda x, y: tf.cat([x, y]), numbers((2,), "int32"), numbers((2,), "float32")).dtype == np.float64


def test_gather_is_one_select() -> None:
    with Fusion("f"):
        x, y, z = (tf.define_tensor(["B", n]) for n in ("S", "T", 3))
        out = tf.cat([x, y, z], 1)
    assert isinstance(out.definition, FirstValid)
    assert str(out.shape[1]) == "S + T + 3"
    reads = [o for o in out.definition.operands if isinstance(o, Read)]
    assert [[str(e) for e in r.index] for r in reads] == [["i0", "i1"], ["i0", "i1 - S"], ["i0", "i1 - S - T"]]
    assert [str(r.valid) for r in reads] == ["i1 < S", "i1 >= S && i1 < S + T", "i1 >= S + T"]


def test_scatter_copies_what_cannot_be_a_slice() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor(["S"])
        plain, output, shared = tf.exp(x), tf.sin(x), tf.cos(x)
        fusion.add_output(output)
        tf.neg(shared)
        view = tf.flip(plain)
        again = tf.log(x)
        out = tf.cat([x, tf.tan(x), output, shared, view, again, again], form="scatter")
    assert isinstance(out.definition, Assemble)
    copied = [p.tensor.definition.op.name for p in out.definition.parts if isinstance(p.tensor.definition, Pointwise)]
    assert copied == ["copy", "tan", "copy", "copy", "copy", "log", "copy"]
    assert [str(p[0]) for p in out.definition.places] == ["i0", "i0 + S", "i0 + 2*S", "i0 + 3*S", "i0 + 4*S", "i0 + 5*S", "i0 + 6*S"]
    owned = [tv for tv in fusion.tensors() if fusion.owner(tv) is out]
    assert len(owned) == 5


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool"])
def test_pad(dtype: str) -> None:
    x = numbers((2, 3), dtype)
    for widths in ([(0, 0), (0, 0)], [(1, 0), (0, 2)], [(2, 1), (3, 4)]):
        expected = np.pad(x, widths, constant_values=1)
        assert (evaluated(lambda a, w=widths: tf.pad(a, w, True if dtype == "bool" else 1), x) == expected).all()
        assert (evaluated(lambda a, w=widths: tf.pad(a, w), x, shapes=[["M", "N"]]) == np.pad(x, widths)).all()
    assert (evaluated(lambda a: tf.pad(a, [(1, 1), (0, 0)], True), np.zeros((0, 2), bool)) == np.ones((2, 2))).all()
    assert evaluated(lambda a: tf.pad(a, []), x[0, 0]) == x[0, 0]


def test_symbolic_pad() -> None:
    x = numbers((3,), "float32")
    found = evaluated(lambda a: tf.pad(a, [(a.shape[0], 1)], -1.5), x, shapes=[["N"]])
    assert (found == np.pad(x, (3, 1), constant_values=-1.5)).all()


def test_parts_that_are_views() -> None:
    x = numbers((4, 4), "float32")
    for form in FORMS:
        found = evaluated(lambda a, f=form: tf.cat([a[:2].T, a[::-1, 1:3]], 1, f), x)
        assert (found == np.concatenate([x[:2].T, x[::-1, 1:3]], 1)).all()


def test_nested_forms() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor(["S"])
        inner = tf.cat([tf.exp(x), tf.neg(x)], form="scatter")
        fusion.add_output(tf.cat([inner, tf.abs(x)], form="scatter"))
    data = numbers((3,), "float32")
    np.testing.assert_allclose(evaluate(fusion, [data])[0], np.concatenate([np.exp(data), -data, abs(data)]), rtol=1e-6)


def test_errors() -> None:
    wrong: Any = "diagonal"
    with Fusion("f") as fusion:
        x, y, z = tf.define_tensor([2, "S"]), tf.define_tensor([3, "T"]), tf.define_tensor([])
        i = tf.define_tensor([2], "int8")
        count = len(fusion.tensors())
        nothing: list[TensorView] = []
        assert message(lambda: tf.cat(nothing)) == "cat: needs at least one tensor"
        assert message(lambda: tf.cat([x, y])) == (
            "cat: tv0 [2, S] and tv1 [3, T] differ in another dimension than 0\nhelp: reshape or broadcast one of them first"
        )
        assert message(lambda: tf.cat([x, i])).startswith("cat: tv0 [2, S] and tv3 [2] differ in another dimension than 0")
        assert message(lambda: tf.cat([z])) == "cat: axis 0 is out of range for tv2 []\nhelp: a 0-d tensor has no axes"
        assert message(lambda: tf.cat([x], form=wrong)) == "cat: 'diagonal' is not a form\nhelp: use 'gather' or 'scatter'"
        assert message(lambda: tf.cat([x, wrong])) == "cat: takes a tensor, not str\nhelp: make constants with tf.full, inputs with tf.define_tensor"
        assert message(lambda: tf.stack([x, y])) == "stack: tv0 [2, S] and tv1 [3, T] differ in shape\nhelp: reshape or broadcast one of them first"
        assert message(lambda: tf.stack([x], 3)) == ("stack: axis 3 is out of range for the 3-d result of tv0 [2, S]\nhelp: use an axis in [-3, 2]")
        assert message(lambda: tf.pad(x, [(1, 1)])) == (
            "pad: 1 pairs of widths for the 2 dimensions of tv0 [2, S]\nhelp: give one number for all, or one (before, after) per dimension"
        )
        assert message(lambda: tf.pad(x, [(0, 0), (-9, 0)])).startswith("pad: widths -9 and 0 remove more elements of dimension 1 of")
        assert message(lambda: tf.pad(x, [(0, 0), (x.shape[1] - 9, 0)])).startswith("pad: width S - 9 is not provably nonnegative\nhelp: slice")
        assert message(lambda: tf.pad(i, [(1, 1)], 0.5)) == "pad: 0.5 is not a value of int8\nhelp: cast the tensor first"
        assert message(lambda: tf.pad(i, [(1, 1)], 200)) == "pad: 200 is not a value of int8\nhelp: cast the tensor to a dtype that holds it"
        assert len(fusion.tensors()) == count


def test_negative_widths_take_elements_away() -> None:
    x = np.arange(60.0).reshape(3, 4, 5)
    found = evaluated(lambda a: tf.pad(a, [(0, -1), (-1, 0), (2, -3)], 7), x)
    np.testing.assert_array_equal(found, np.pad(x[:2, 1:, :2], [(0, 0), (0, 0), (2, 0)], constant_values=7))
    found = evaluated(lambda a: tf.pad(a, [(0, 0), (-1, 2), (1, -2)], mode="edge"), x, shapes=[["A", tf.dim("B", min=2), tf.dim("C", min=4)]])
    np.testing.assert_array_equal(found, np.pad(x[:, 1:, :3], [(0, 0), (0, 2), (1, 0)], mode="edge"))


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_modes_leave_dimensions_without_widths_alone(mode: Any) -> None:
    for rows in (0, 2):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        found = evaluated(lambda a: tf.pad(a, [(0, 0), (1, 0)], mode=mode), x, shapes=[[tf.dim("N", min=0), 3]])
        np.testing.assert_array_equal(found, np.pad(x, [(0, 0), (1, 0)], mode=mode))
