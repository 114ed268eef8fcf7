"""Values of the dimensions from the shapes of the inputs."""

from typing import Any

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import int8
from taskfuse.errors import FusionError, InputError
from taskfuse.ir.arguments import bind_shapes, check_count, in_order, scalar_argument
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, sym
from taskfuse.ir.values import NATIVE

S = sym("S")


def inputs(*shapes: list[Expr | str | int]) -> Fusion:
    with Fusion("f") as fusion:
        for k, shape in enumerate(shapes):
            tf.define_tensor(shape, name=f"x{k}")
    return fusion


def test_symbols_are_solved_from_derived_extents() -> None:
    assert bind_shapes(inputs(["4*S", "S + T", "T"], ["2*U - 1"]), [(8, 5, 3), (7,)]) == {"S": 2, "T": 3, "U": 4}


@pytest.mark.parametrize(("extent", "at_7"), [(S // 4, 1), (S.ceildiv(4), 2), (S % 4 + 1, 4), (64 // S, 9), (S * S, 49)])
def test_what_is_not_linear_is_checked_and_not_solved(extent: Expr, at_7: int) -> None:
    """Alone, such an extent may have several solutions, or no value where one looks for them."""
    shapes: list[tuple[list[Expr | str | int], tuple[int, int]]] = [([extent, "S"], (at_7, 7)), (["S", extent], (7, at_7))]
    for shape, sizes in shapes:
        assert bind_shapes(inputs(shape), [sizes]) == {"S": 7}
    with pytest.raises(InputError) as wrong:
        bind_shapes(inputs([extent, "S"]), [(at_7 + 1, 7)])
    assert str(wrong.value) == f"input 0 of fusion 'f': dimension 0 of x0 is {extent} = {at_7}, the array has {at_7 + 1}\nnote: S = 7 from dimension 1 of x0"
    with pytest.raises(FusionError, match="no input determines dimension 'S'"):
        bind_shapes(inputs([extent]), [(at_7,)])


def test_a_product_is_linear_once_its_other_factors_are_known() -> None:
    assert bind_shapes(inputs(["S*T", "S"]), [(12, 3)]) == {"S": 3, "T": 4}
    with pytest.raises(InputError, match=r"dimension 0 of x0 is S\*T, which cannot be 13"):
        bind_shapes(inputs(["S*T", "S"]), [(13, 3)])
    with pytest.raises(FusionError, match="no input determines dimension 'S'"):
        bind_shapes(inputs(["S*T"]), [(12,)])


def test_no_extent_is_below_0() -> None:
    with pytest.raises(InputError, match=r"dimension 0 of x0 is S \+ 4, which cannot be 3"):
        bind_shapes(inputs(["S + 4"]), [(3,)])


def test_as_many_arguments_as_inputs_and_scalars() -> None:
    check_count(inputs(["S"], [3]), 2)
    with pytest.raises(FusionError, match=r"takes 1 arguments, got 0\nhelp: the arguments are: x0: float32\[S\]"):
        check_count(inputs(["S"]), 0)


@pytest.mark.parametrize(("value", "said"), [(300, "int8, which cannot hold 300"), (0.5, "int8, which cannot hold 0.5"), ([1, 2], r"int8, got int64\[2\]")])
def test_scalars_that_a_dtype_does_not_hold(value: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"input 3 of fusion 'f': n is {said}"):
        scalar_argument("f", 3, "n", int8, value, NATIVE)
    assert scalar_argument("f", 3, "n", int8, -128, NATIVE).tolist() == -128


def positioned() -> Fusion:
    """A cache and a position in it."""
    with Fusion("f") as fusion:
        tf.define_tensor(["N", 8], name="x0")
        tf.define_integer("pos", max="N - 4")
    return fusion


def test_an_integer_gives_a_dimension_its_value() -> None:
    fusion = positioned()
    assert fusion.arguments == ("x0", "pos")
    assert bind_shapes(fusion, [(16, 8)], [12]) == {"N": 16, "pos": 12}
    assert bind_shapes(fusion, [(16, 8)], [np.int32(3)]) == {"N": 16, "pos": 3}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (13, r"dimension 'pos' is 13, more than its maximum 12 = N - 4$"),
        (-1, r"dimension 'pos' is -1, less than its minimum 0$"),
        (1.5, r"pos is an integer, got 1.5\nhelp: pass an int$"),
        (True, r"pos is an integer, got True\nhelp: pass an int$"),
        (np.array(3), r"pos is an integer, got an array of type ndarray\nhelp: pass int\(pos\): it decides on shapes and launches, so"),
    ],
)
def test_integers_that_are_refused(value: object, said: str) -> None:
    with pytest.raises(InputError, match=f"input 1 of fusion 'f': {said}"):
        bind_shapes(positioned(), [(16, 8)], [value])


def test_an_integer_that_a_shape_contradicts() -> None:
    with Fusion("f") as fusion:
        n = tf.define_integer("n")
        tf.define_tensor([n, 8], name="x0")
    assert bind_shapes(fusion, [(5, 8)], [5]) == {"n": 5}
    with pytest.raises(InputError, match=r"dimension 0 of x0 is n = 4, the array has 5\nnote: n = 4 from the argument"):
        bind_shapes(fusion, [(5, 8)], [4])


def test_what_is_left_of_an_extent_beside_an_integer_is_solved() -> None:
    with Fusion("f") as fusion:
        pos = tf.define_integer("pos")
        tf.define_tensor([pos + 1 + extent("rest", fusion), 8], name="x0")
    assert bind_shapes(fusion, [(9, 8)], [3]) == {"pos": 3, "rest": 5}
    with pytest.raises(InputError, match=r"dimension 0 of x0 is pos \+ rest \+ 1, which cannot be 9"):
        bind_shapes(fusion, [(9, 8)], [9])


def extent(name: str, fusion: Fusion) -> Expr:
    fusion.add_dim(tf.dim(name, min=0))
    return sym(name)


def test_arguments_by_name_follow_those_by_position() -> None:
    fusion = inputs([4], [4], [4])
    assert in_order(fusion, (1,), {"x2": 3, "x1": 2}) == (1, 2, 3)
    assert in_order(fusion, (1,), {"x2": 3}) == (1,)  # how many are missing is told by check_count
    with pytest.raises(FusionError, match="'x0' is not one of the remaining arguments"):
        in_order(fusion, (1,), {"x0": 2})
