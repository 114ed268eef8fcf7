"""Transforms of a list of axes: what they leave in the list, and that nothing changes where they are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.errors import ScheduleError
from taskfuse.ir.axes import Axis
from taskfuse.ir.dims import Dim
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule import domain
from taskfuse.schedule.call import Call
from tests.schedule.points import pair, size

W = sym("i0")


def call(*shape: int | str) -> tuple[Call, list[Axis]]:
    _, a, _ = pair(*shape)
    return Call("test", a), list(a.schedule.loop)


def shown(axes: list[Axis]) -> list[str]:
    return [str(a.extent) for a in axes]


@given(st.permutations(range(5)))
def test_a_full_list_of_old_positions_is_the_permutation(order: list[int]) -> None:
    on, axes = call(2, 3, 4, 5, 6)
    assert domain.permutation(on, axes, order) == order
    assert domain.permutation(on, axes, [k - 5 for k in order]) == order


@given(st.permutations(range(5)), st.integers(0, 5))
def test_moves_put_axes_at_their_places_and_leave_the_rest_in_order(targets: list[int], count: int) -> None:
    on, axes = call(2, 3, 4, 5, 6)
    moves = dict(zip(range(count), targets, strict=False))
    found = domain.permutation(on, axes, moves)
    assert sorted(found) == list(range(5))
    assert all(found[new] == old for old, new in moves.items())
    rest = [k for k in found if k not in moves]
    assert rest == sorted(rest)


@pytest.mark.parametrize("moves", [{0: 1, 2: 1}, {0: 1, -5: 2}])
def test_two_axes_at_one_place_or_one_at_two(moves: dict[int, int]) -> None:
    on, axes = call(2, 3, 4, 5, 6)
    with pytest.raises(ScheduleError, match="moves two axes to one place, or one to two"):
        domain.permutation(on, axes, moves)


def test_a_merge_stands_at_the_lower_position_whatever_is_fastest() -> None:
    on, axes = call(2, 3, 4)
    made = domain.merge(on, axes, 2, 0)
    assert shown(axes) == ["8", "3"]
    assert (size(made.outer), size(made.inner)) == (4, 2)


@pytest.mark.parametrize(("inner", "expected"), [(True, ["ceildiv(N, 4)", "4", "3"]), (False, ["4", "ceildiv(N, 4)", "3"])])
def test_a_split_takes_the_place_of_its_axis(inner: bool, expected: list[str]) -> None:
    on, axes = call("N", 3)
    domain.split(on, axes, 0, 4, inner)
    assert shown(axes) == expected


def reduced() -> tuple[TensorView, list[Axis]]:
    with Fusion("f") as fusion:
        s = tf.sum(tf.define_tensor([4, 4]), axis=1)
        fusion.add_output(s)
    return s, list(s.schedule.loop)


def test_reductions_do_not_merge_with_iterations_and_are_not_swizzled() -> None:
    s, axes = reduced()
    before = list(axes)
    with pytest.raises(ScheduleError, match=r"axis 1 \(extent 4\) is a reduction axis and axis 0 \(extent 4\) is not"):
        domain.merge(Call("merge", s), axes, 0, 1)
    with pytest.raises(ScheduleError, match=r"axis 1 \(extent 4\) is a reduction axis\n(.*\n)*help: swizzle iteration axes"):
        domain.swizzle(Call("swizzle", s), axes, 0, 1)
    assert axes == before


@pytest.mark.parametrize(("shape", "x", "y"), [((8, 4), 0, 1), ((6, 6), 0, 1), (("N", 8), 1, 0)])
def test_swizzles_need_one_constant_power_of_two(shape: tuple[int | str, ...], x: int, y: int) -> None:
    on, axes = call(*shape)
    before = list(axes)
    with pytest.raises(ScheduleError, match="do not have one constant power-of-two extent"):
        domain.swizzle(on, axes, x, y)
    assert axes == before


MAPS: dict[str, tuple[list[Expr], bool]] = {
    "rows": ([W // 6, W % 6], True),
    "columns": ([W % 4, W // 4], True),
    "turned": ([3 - W // 6, W % 6], True),
    "a tile twice": ([W // 6, W % 5], False),
    "beyond an extent": ([W // 6 + 1, W % 6], False),
}


@pytest.mark.parametrize("name", MAPS)
def test_rasters_are_bijections(name: str) -> None:
    maps, right = MAPS[name]
    on, axes = call(4, 6, 2)
    before = list(axes)
    if right:
        domain.rasterize(on, axes, [0, 1], maps, None)
        assert shown(axes) == ["24", "2"]
    else:
        with pytest.raises(ScheduleError, match="the maps are not a bijection"):
            domain.rasterize(on, axes, [0, 1], maps, None)
        assert axes == before


def test_symbolic_rasters_are_sampled_within_the_facts() -> None:
    """The maps hold for multiples of 4 alone, which the dimension is said to be."""
    maps = [W % 4 + 4 * (W // 8), W // 4 % 2]
    for facts, right in ((Dim("N", multiple_of=4), True), (Dim("N"), False)):
        with Fusion("f") as fusion:
            a = tf.exp(tf.define_tensor([facts, 2]))
            fusion.add_output(a)
        axes = list(a.schedule.loop)
        if right:
            domain.rasterize(Call("rasterize", a), axes, [0, 1], maps, None)
            assert shown(axes) == ["2*N"]
        else:
            with pytest.raises(ScheduleError, match=r"is visited \d times for N = \d+"):
                domain.rasterize(Call("rasterize", a), axes, [0, 1], maps, None)
