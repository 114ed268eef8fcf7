"""Views and indexing against NumPy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.ir.expr import View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from taskfuse.lowering import lower
from tests.ops.reference import Array, evaluated, message, numbers


def index_of(tv: TensorView) -> list[str]:
    """The op map of a view."""
    assert isinstance(tv.definition, View)
    return [str(e) for e in tv.definition.operand.index]


def test_permute_transpose_flip() -> None:
    x = numbers((2, 3, 4), "float32")
    for shape in ([2, 3, 4], ["A", "B", "C"]):
        assert (evaluated(lambda a: tf.permute(a, (2, 0, 1)), x, shapes=[shape]) == x.transpose(2, 0, 1)).all()
        assert (evaluated(lambda a: a.permute(-1, 0, 1), x, shapes=[shape]) == x.transpose(2, 0, 1)).all()
        assert (evaluated(tf.transpose, x, shapes=[shape]) == x.T).all()
        assert (evaluated(lambda a: a.T, x, shapes=[shape]) == x.T).all()
        assert (evaluated(lambda a: tf.flip(a, 1), x, shapes=[shape]) == np.flip(x, 1)).all()
        assert (evaluated(tf.flip, x, shapes=[shape]) == np.flip(x)).all()


def test_expand_dims_squeeze_broadcast_to() -> None:
    x = numbers((3, 1), "float32")
    assert (evaluated(lambda a: tf.expand_dims(a, (0, -1)), x) == np.expand_dims(x, (0, -1))).all()
    assert (evaluated(tf.squeeze, x) == x[:, 0]).all()
    assert (evaluated(lambda a: tf.squeeze(a, -1), x) == x[:, 0]).all()
    assert (evaluated(lambda a: tf.broadcast_to(a, [2, 3, 4]), x) == np.broadcast_to(x, (2, 3, 4))).all()
    with Fusion("f"):
        assert index_of(tf.broadcast_to(tf.define_tensor(["S", 1]), [5, "S", "T"])) == ["i1", "0"]


@pytest.mark.parametrize(
    ("source", "target", "index"),
    [
        (["S", 4], [-1], ["i0//4", "i0 % 4"]),
        ([12], [3, 4], ["4*i0 + i1"]),
        (["4*S"], ["S", 4], ["4*i0 + i1"]),
        (["A", "B", 6], ["A", "B", 2, 3], ["i0", "i1", "3*i2 + i3"]),
        (["A", 2, 3, "B"], ["A", 6, "B"], ["i0", "i1//3", "i1 % 3", "i2"]),
        (["A", 1, "B"], ["A", "B", 1, 1], ["i0", "0", "i1"]),
        ([4, 6], [6, 4], ["(4*i0 + i1)//6", "(4*i0 + i1) % 6"]),
        (["A", "B"], ["A*B"], ["i0//B", "i0 % B"]),
        ([1, 1], [], ["0", "0"]),
        ([], [1], []),
        ([0, 3], [3, 0], ["0", "0"]),
    ],
)
def test_reshape_maps(source: list[int | str], target: list[int | str], index: list[str]) -> None:
    with Fusion("f"):
        assert index_of(tf.reshape(tf.define_tensor(source), target)) == index


@given(st.data())
def test_reshape(data: st.DataObject) -> None:
    factors = data.draw(st.lists(st.integers(0, 4), max_size=5))

    def shape() -> tuple[int, ...]:
        """The factors, merged at random."""
        found: list[int] = []
        joined = False
        for f in factors:
            found = [*found[:-1], found[-1] * f] if joined and found else [*found, f]
            joined = data.draw(st.booleans())
            if data.draw(st.integers(0, 4)) == 0:
                found.append(1)
                joined = False
        return tuple(found)

    source, target = shape(), shape()
    x: Array = np.arange(math.prod(source)).reshape(source)
    found = evaluated(lambda a: tf.reshape(a, target), x)
    assert found.shape == target
    assert (found == x.reshape(target)).all()


def test_reshape_with_facts() -> None:
    x = numbers((8,), "float32")
    assert (evaluated(lambda a: a.reshape(-1, 4), x, shapes=[[tf.dim("S", multiple_of=4)]]) == x.reshape(-1, 4)).all()
    assert (evaluated(lambda a: a.reshape("B", -1), numbers((2, 3, 4), "float32"), shapes=[["B", "S", "T"]]).shape) == (2, 12)


def test_view_of_view() -> None:
    x = numbers((4, 6), "float32")
    assert np.array_equal(evaluated(lambda a: a.T[1:5].reshape(2, -1)[::-1] * 2, x), x.T[1:5].reshape(2, -1)[::-1] * 2)


def test_shape_errors() -> None:
    with Fusion("f") as fusion:
        x, s = tf.define_tensor([2, 3]), tf.define_tensor(["S", "T"])
        count = len(fusion.tensors())
        assert message(lambda: tf.broadcast_to(x, [3, 3])) == (
            "broadcast_to: tv0 [2, 3] does not broadcast to [3, 3]\nhelp: each extent must be 1 or the wanted one"
        )
        assert "tv0 [2, 3] does not broadcast to [3]" in message(lambda: tf.broadcast_to(x, [3]))
        assert message(lambda: tf.expand_dims(x, 3)) == ("expand_dims: axis 3 is out of range for the 3-d result of tv0 [2, 3]\nhelp: use an axis in [-3, 2]")
        assert message(lambda: tf.expand_dims(x, (0, 0))) == "expand_dims: axes (0, 0) repeat an axis"
        assert message(lambda: tf.squeeze(s, 0)) == "squeeze: dimension 0 of tv1 [S, T] has extent S, not 1"
        assert message(lambda: tf.permute(x, (0, 0))) == "permute: (0, 0) is not a permutation of the 2 dimensions of tv0 [2, 3]"
        assert message(lambda: tf.reshape(x, [4])) == (
            "reshape: tv0 [2, 3] has 6 elements, [4] has 4\n"
            "help: the numbers of elements must be provably equal: give facts about symbols with tf.dim(..., multiple_of=)"
        )
        assert message(lambda: tf.reshape(s, [-1, 4])) == (
            "reshape: tv1 [S, T] has S*T elements, which 4 does not provably divide\nhelp: give facts about symbols with tf.dim(..., multiple_of=)"
        )
        assert message(lambda: tf.reshape(x, [-1, -1])) == "reshape: [-1, -1] has more than one -1\nhelp: only one extent may be -1"
        assert message(lambda: tf.reshape(x, [-2, 3])) == "reshape: [-2, 3] has a negative extent\nhelp: only one extent may be -1"
        assert message(lambda: tf.reshape(x, ["2*"])).startswith("reshape: '2*' is not an extent: ")
        assert len(fusion.tensors()) == count


def test_reshape_of_no_elements() -> None:
    """Views without elements may begin behind the last one of their tensor; kernels name no place there."""
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 1], name="x")
        fusion.add_output(tf.sum(tf.exp(tf.reshape(x[:, 1:], [2, 0])), 1))
    fusion.inline_most()
    assert lower(fusion).verify().is_proved
