"""Transforms replayed on other axes: the same derivation, of kinds that follow from the new axes."""

import pytest

from taskfuse.ir.axes import Axis, AxisKind, Merge, Rasterize, Resize, Split, Swizzle, Transform, axis, merge_axes, resize_axis, split_axes
from taskfuse.ir.scalar import sym
from taskfuse.schedule.replay import ancestors, expand, rebuilt, replay

W = sym("i0")


def chain() -> tuple[list[Axis], list[Transform]]:
    """[8, 6] -> split(0, 4) -> merge(1, 2)."""
    rows, columns = axis(8), axis(6)
    split = split_axes(rows, 4)
    return [rows, columns], [split, merge_axes(split.inner, columns)]


def test_what_is_replayed_derives_alike() -> None:
    domain, transforms = chain()
    other = [axis(8), axis(6)]
    mapping = dict(zip(domain, other, strict=True))
    made = replay(transforms, mapping)
    assert [type(t) for t in made] == [Split, Merge]
    assert [str(a.extent) for a in expand(other, made)] == [str(a.extent) for a in expand(domain, transforms)] == ["2", "24"]
    assert made[1].inputs == (made[0].outputs[1], other[1])
    assert {mapping[a] for t in transforms for a in t.outputs} == {a for t in made for a in t.outputs}
    assert not {a for t in transforms for a in t.outputs} & {a for t in made for a in t.outputs}


def test_transforms_of_axes_that_are_not_mapped_are_left_out() -> None:
    (rows, _), transforms = chain()
    made = replay(transforms, {rows: axis(8)})
    assert [type(t) for t in made] == [Split]


def test_kinds_follow_from_the_new_axes() -> None:
    (rows, columns), transforms = chain()
    made = replay(transforms, {rows: axis(8, AxisKind.REDUCTION), columns: axis(6, AxisKind.REDUCTION)})
    assert {a.kind for t in made for a in t.outputs} == {AxisKind.REDUCTION}
    foreign = replay(transforms, {rows: axis(8, AxisKind.FOREIGN), columns: axis(6)})
    assert [a.kind for t in foreign for a in t.outputs] == [AxisKind.FOREIGN, AxisKind.FOREIGN, AxisKind.ITERATION]  # a merge is foreign if both are
    given = replay(transforms, {rows: axis(8), columns: axis(6)}, lambda old, kind: AxisKind.FOREIGN)
    assert {a.kind for t in given for a in t.outputs} == {AxisKind.FOREIGN}


@pytest.mark.parametrize(
    "made",
    [
        split_axes(axis(8), 4),
        merge_axes(axis(2), axis(3)),
        Swizzle(axis(4), axis(4), axis(4), axis(4)),
        resize_axis(axis(5), 1, 2),
        Rasterize((axis(2), axis(3)), axis(6), (W // 3, W % 3)),
    ],
    ids=lambda t: type(t).__name__,
)
def test_a_rebuilt_transform_maps_indices_as_the_first_does(made: Transform) -> None:
    inputs, outputs = tuple(axis(a.extent) for a in made.inputs), tuple(axis(a.extent) for a in made.outputs)
    again = rebuilt(made, inputs, outputs)
    assert type(again) is type(made)
    assert (again.inputs, again.outputs) == (inputs, outputs)
    symbols = tuple(sym(f"o{k}") for k in range(len(outputs)))
    assert again.backward(symbols) == made.backward(symbols)
    if isinstance(again, Resize) and isinstance(made, Resize):
        assert (again.left, again.right) == (made.left, made.right)


def test_ancestors_are_the_transforms_behind_an_axis_alone() -> None:
    (rows, columns), transforms = chain()
    split, merged = transforms
    assert ancestors(transforms, [split.outputs[0]]) == ([split], {rows: None})
    found, start = ancestors(transforms, [merged.outputs[0]])
    assert found == transforms
    assert set(start) == {rows, columns}
    assert ancestors(transforms, [columns]) == ([], {columns: None})
