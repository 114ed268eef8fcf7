"""Values of the dimensions from the shapes of the inputs."""

import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import int8
from taskfuse.errors import FusionError, InputError
from taskfuse.ir.arguments import bind_shapes, check_count, scalar_argument
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
    for shape, sizes in (([extent, "S"], (at_7, 7)), (["S", extent], (7, at_7))):
        assert bind_shapes(inputs(shape), [sizes]) == {"S": 7}
    with pytest.raises(InputError) as wrong:
        bind_shapes(inputs([extent, "S"]), [(at_7 + 1, 7)])
    assert str(wrong.value) == f"input 0 of fusion 'f': dimension 0 of x0 is {extent} = {at_7}, the array has {at_7 + 1}\nnote: S = 7 from dimension 1 of x0"
    with pytest.raises(FusionError, match="no input determines dimension 'S'"):
        bind_shapes(inputs([extent]), [(at_7,)])


def test_a_product_is_linear_once_its_other_factors_are_known() -> None:
    assert bind_shapes(inputs(["S*T", "S"]), [(12, 3)]) == {"S": 3, "T": 4}
    with pytest.raises(InputError, match=r"dimension 0 of x0 is S\*T, which is never 13"):
        bind_shapes(inputs(["S*T", "S"]), [(13, 3)])
    with pytest.raises(FusionError, match="no input determines dimension 'S'"):
        bind_shapes(inputs(["S*T"]), [(12,)])


def test_no_extent_is_below_0() -> None:
    with pytest.raises(InputError, match=r"dimension 0 of x0 is S \+ 4, which is never 3"):
        bind_shapes(inputs(["S + 4"]), [(3,)])


def test_as_many_arguments_as_inputs_and_scalars() -> None:
    check_count(inputs(["S"], [3]), 2)
    with pytest.raises(FusionError, match=r"takes 1 arguments, got 0\nhelp: the arguments are: x0: float32\[S\]"):
        check_count(inputs(["S"]), 0)


@pytest.mark.parametrize(("value", "said"), [(300, "int8, which cannot hold 300"), (0.5, "int8, which cannot hold 0.5"), ([1, 2], r"int8, got int64\[2\]")])
def test_scalars_that_a_dtype_does_not_hold(value: object, said: str) -> None:
    with pytest.raises(InputError, match=f"input 3 of fusion 'f': n is {said}"):
        scalar_argument("f", 3, "n", int8, value, NATIVE)
    assert scalar_argument("f", 3, "n", int8, -128, NATIVE).tolist() == -128
