"""Axes and their transforms: forward and backward maps undo each other, point by point."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse
import taskfuse as tf
from taskfuse.errors import FusionError, ParseError
from taskfuse.ir.axes import (
    WORK,
    Axis,
    AxisKind,
    Merge,
    Rasterize,
    Resize,
    Split,
    Swizzle,
    axis,
    is_map_symbol,
    is_value_symbol,
    iteration_point,
    iteration_position,
    iteration_symbol,
    joint_kind,
    merge_axes,
    resize_axis,
    split_axes,
    value_symbol,
)
from taskfuse.ir.scalar import Const, Expr, const, evaluate, sym

W = sym(WORK)


def size(a: Axis) -> int:
    assert isinstance(a.extent, Const)
    return a.extent.value


def indices(axes: tuple[Axis, ...]) -> tuple[Expr, ...]:
    return tuple(sym(f"x{k}") for k in range(len(axes)))


def grid(axes: tuple[Axis, ...]) -> dict[str, np.ndarray]:
    return {f"x{k}": row for k, row in enumerate(np.indices([size(a) for a in axes]).reshape(len(axes), -1))}


def values(exprs: tuple[Expr, ...], env: dict[str, np.ndarray]) -> list[list[int]]:
    return [np.broadcast_to(np.asarray(evaluate(e, env)), next(iter(env.values())).shape).tolist() for e in exprs]


def round_trip(made: Split | Merge | Swizzle | Resize) -> None:
    """Every index of the inputs comes back; its image lies within the outputs, and no two have one."""
    inputs = indices(made.inputs)
    env = grid(made.inputs)
    there = made.forward(inputs)
    assert values(made.backward(there), env) == values(inputs, env)
    found = values(there, env)
    for a, row in zip(made.outputs, found, strict=True):
        assert all(0 <= k < size(a) for k in row)
    assert len(set(zip(*found, strict=True))) == len(found[0])


@given(st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_splits(extent: int, factor: int, inner: bool) -> None:
    made = split_axes(axis(extent), factor, inner)
    assert size(made.inner if inner else made.outer) == factor
    assert size(made.outer) * size(made.inner) >= extent
    assert (size(made.outer) - 1 if inner else size(made.inner) - 1) * factor < extent  # no more than it takes
    round_trip(made)


@given(st.integers(1, 8), st.integers(1, 8))
def test_merges(outer: int, inner: int) -> None:
    made = merge_axes(axis(outer), axis(inner))
    assert size(made.result) == outer * inner
    round_trip(made)


@pytest.mark.parametrize(("x", "y"), [(1, 1), (4, 4), (8, 8), (4, 8)])
def test_swizzles_are_their_own_inverse(x: int, y: int) -> None:
    made = Swizzle(axis(x), axis(y), axis(x), axis(y))
    round_trip(made)
    twice = made.forward(made.forward(indices(made.inputs)))
    assert values(twice, grid(made.inputs)) == values(indices(made.inputs), grid(made.inputs))


@given(st.integers(1, 6), st.integers(0, 3), st.integers(0, 3))
def test_padding(extent: int, left: int, right: int) -> None:
    made = resize_axis(axis(extent), left, right)
    assert size(made.result) == extent + left + right
    round_trip(made)


def test_narrowing_maps_back_into_the_source() -> None:
    made = resize_axis(axis(6), -1, -2)
    assert size(made.result) == 3
    assert values(made.backward(indices(made.outputs)), grid(made.outputs)) == [[1, 2, 3]]


def test_rasters_have_holes_where_work_items_are_more_than_tiles() -> None:
    maps = (W // 4, W % 4)
    assert not Rasterize((axis(3), axis(4)), axis(12), maps).has_holes
    assert Rasterize((axis(3), axis(3)), axis(12), maps).has_holes
    assert Rasterize((axis(3), axis(4)), axis(12), maps).backward((const(7),)) == (const(1), const(3))


KINDS = {
    (AxisKind.ITERATION, AxisKind.ITERATION): AxisKind.ITERATION,
    (AxisKind.REDUCTION, AxisKind.REDUCTION): AxisKind.REDUCTION,
    (AxisKind.FOREIGN, AxisKind.FOREIGN): AxisKind.FOREIGN,
    (AxisKind.ITERATION, AxisKind.FOREIGN): AxisKind.ITERATION,
    (AxisKind.REDUCTION, AxisKind.FOREIGN): AxisKind.REDUCTION,
}


@pytest.mark.parametrize(("a", "b"), KINDS)
def test_joint_kinds(a: AxisKind, b: AxisKind) -> None:
    assert joint_kind(axis(2, a), axis(3, b)) is joint_kind(axis(3, b), axis(2, a)) is KINDS[a, b]
    assert merge_axes(axis(2, a), axis(3, b)).result.kind is KINDS[a, b]


def test_reductions_and_iterations_have_no_joint_kind() -> None:
    with pytest.raises(AssertionError, match="reduction and iteration axes do not merge"):
        joint_kind(axis(2, AxisKind.REDUCTION), axis(3))


def test_symbols_of_op_maps() -> None:
    assert iteration_point(3) == tuple(iteration_symbol(k) for k in range(3))
    assert [iteration_position(iteration_symbol(k)) for k in (0, 1, 12)] == [0, 1, 12]
    assert [iteration_position(e) for e in (iteration_symbol(0) + 1, sym("N"), const(0), value_symbol(0))] == [None] * 4
    assert is_value_symbol(str(value_symbol(2)))
    assert not is_value_symbol(str(iteration_symbol(2)))
    assert is_map_symbol(str(value_symbol(2)))
    assert is_map_symbol(str(iteration_symbol(2)))
    assert not is_map_symbol("N")


def test_no_symbol_of_the_package_can_be_a_dimension() -> None:
    """Users give dimensions any identifier; what the package itself makes of literals has a dot, or is reserved."""
    root = Path(taskfuse.__file__).parent
    made = re.compile(r"\b[sS]ym\(f?\"([^\"]*)\"\)")
    found = {(path.relative_to(root).as_posix(), name) for path in root.rglob("*.py") for name in made.findall(path.read_text(encoding="utf-8"))}
    found = {(path, name) for path, name in found if not path.startswith("testing/") and (path, name) != ("schedule/domain.py", "S")}
    assert len(found) > 30
    assert not sorted((path, name) for path, name in found if name.isidentifier() and not is_map_symbol(name))
    assert not sorted((path, name) for path, name in found if re.fullmatch(r"\w+\{[^}]*\}", name) and not re.fullmatch(r"[iv]\{.*\}", name))


@pytest.mark.parametrize("name", ["w", "vector", "row", "any", "register", "item", "lane", "TIDx"])
def test_dimensions_of_any_name(name: str) -> None:
    with tf.Fusion("named") as fusion:
        x = tf.define_tensor(["h", name], name="x")
        y = tf.exp(x)
        fusion.add_output(y)
    y.split(1, 4).split(0, 4).reorder([0, 2, 1, 3]).rasterize([0, 1], tf.tiles.grouped(2))
    y.axis(0).parallelize(tf.ParallelType.BIDx)
    y.axis(2).parallelize(tf.ParallelType.TIDx)
    kernel = tf.lower(tf.parse_fusion(str(fusion)))
    assert kernel.verify().is_proved
    array = np.random.default_rng(0).standard_normal((7, 9)).astype(np.float32)
    np.testing.assert_allclose(kernel.simulate(array)[0], np.exp(array), rtol=1e-6)


def test_symbols_of_index_maps_are_no_dimensions() -> None:
    for name in ("i0", "v12", "claimed"):
        with tf.Fusion("named"), pytest.raises(FusionError, match=f"'{name}' is not a name for a dimension"):
            tf.define_tensor([name], name="x")
        with pytest.raises(ParseError, match=f"'{name}' is a symbol of index maps"):
            tf.parse_fusion(f"FUSION a\nDIM {name}\nINPUT x: float32[{name}]\nOUTPUT x\n")
