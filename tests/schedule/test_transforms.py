"""split, merge, reorder, swizzle, rasterize."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.dtypes import float32
from taskfuse.errors import ScheduleError
from taskfuse.ir.atoms import VECTOR
from taskfuse.ir.axes import Merge, Rasterize, Split, Swizzle
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import evaluate, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.tiles import grouped
from tests.schedule.points import extents, indices, kinds, pair, refused, visits

W = sym("i0")


def test_split_inner_and_outer() -> None:
    _, a, b = pair("S", 10)
    assert a.split(0, 4) is a
    assert extents(a) == ["ceildiv(S, 4)", "4", "10"]
    a.split(-1, 4, inner=False)
    assert extents(a) == ["ceildiv(S, 4)", "4", "4", "3"]
    assert extents(b) == ["S", "10"]
    assert [type(t) for t in a.schedule.transforms] == [Split, Split]


def test_split_by_a_symbol() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor(["N", tf.dim("T", min=1)], dtype=float32)
        a = tf.sin(x)
        fusion.add_output(a)
    a.split(0, sym("T") * 2)
    assert extents(a) == ["ceildiv(N, 2*T)", "2*T", "T"]


def test_merge_next_and_far() -> None:
    _, a, _ = pair("A", "B", "C")
    a.merge(1)
    assert extents(a) == ["A", "B*C"]
    _, a, _ = pair(2, 3, 5)
    a.merge(0, 2)
    assert extents(a) == ["10", "3"]
    _, a, _ = pair(2, 3, 5)
    a.merge(2, 0)
    assert extents(a) == ["10", "3"]
    merge = a.schedule.transforms[0]
    assert isinstance(merge, Merge)
    assert (merge.outer, merge.inner) == (a.root[2], a.root[0])


def test_reorder() -> None:
    _, a, _ = pair(2, 3, 5, 7)
    a.reorder({0: -1})
    assert extents(a) == ["3", "5", "7", "2"]
    a.reorder([3, 0, 1, 2])
    assert extents(a) == ["2", "3", "5", "7"]
    a.reorder({3: 1, 1: 0})
    assert extents(a) == ["3", "7", "2", "5"]
    assert a.schedule.transforms == []


def test_swizzle() -> None:
    _, a, _ = pair(8, 8)
    a.swizzle(0, 1)
    assert extents(a) == ["8", "8"]
    assert isinstance(a.schedule.transforms[0], Swizzle)
    found, inside = indices(a.loop, a.schedule.transforms, a.root)
    assert inside.all()
    assert (found[a.root[1]] == np.arange(64) % 8 ^ np.arange(64) // 8).all()


def test_rasterize() -> None:
    _, a, _ = pair(4, 6, 5)
    a.rasterize([0, 1], [W % 4, W // 4])
    assert extents(a) == ["24", "5"]
    assert isinstance(a.schedule.transforms[0], Rasterize)
    assert (visits(a) == 1).all()


def test_rasterize_with_holes_and_symbols() -> None:
    _, a, _ = pair(3, 3)
    a.rasterize([0, 1], [W // 4, W % 4], extent=12)
    assert extents(a) == ["12"]
    assert (visits(a) == 1).all()
    _, a, _ = pair("A", "B")
    a.rasterize([1, 0], [W // sym("A"), W % sym("A")])
    assert extents(a) == ["A*B"]


def test_transforms_keep_kinds() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 6], dtype=float32)
        s = tf.sum(x, axis=1)
        fusion.add_output(s)
    s.split(1, 2).split(0, 2)
    assert kinds(s) == "iirr"
    s.merge(2)
    assert kinds(s) == "iir"


def _random_transforms(data: st.DataObject, tv: TensorView) -> None:
    for _ in range(data.draw(st.integers(1, 6))):
        n = len(tv.loop)
        axis = data.draw(st.integers(0, n - 1))
        other = data.draw(st.integers(0, n - 1))
        match data.draw(st.sampled_from(["split", "merge", "reorder", "swizzle"])):
            case "split":
                tv.split(axis, data.draw(st.integers(1, 5)), inner=data.draw(st.booleans()))
            case "merge" if axis != other:
                tv.merge(axis, other)
            case "reorder":
                tv.reorder(data.draw(st.permutations(range(n))))
            case "swizzle" if axis != other:
                with suppress(ScheduleError):
                    tv.swizzle(axis, other)
            case _:
                pass


@given(st.data(), st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_every_element_is_computed_once(data: st.DataObject, shape: list[int]) -> None:
    _, a, _ = pair(*shape)
    _random_transforms(data, a)
    if np.prod([int(e) for e in extents(a)]) < 1 << 14:
        assert (visits(a) == 1).all()


@given(st.data())
def test_forward_is_the_inverse_of_backward_inside_the_extents(data: st.DataObject) -> None:
    _, a, _ = pair(4, 6)
    _random_transforms(data, a)
    found, inside = indices(a.loop, a.schedule.transforms, a.root)
    for t in a.schedule.transforms:
        assert not isinstance(t, Rasterize)
        if all(x in found for x in t.outputs):
            outputs = t.forward(tuple(sym(f"x{k}") for k in range(len(t.inputs))))
            env = {f"x{k}": found[x][inside] for k, x in enumerate(t.inputs)}
            for x, e in zip(t.outputs, outputs, strict=True):
                assert (np.asarray(evaluate(e, env)) == found[x][inside]).all()


# -- refusals -----------------------------------------------------------------------------------------------------------------------------


REFUSED: list[tuple[Callable[[TensorView], object], str]] = [
    (lambda a: a.split(3, 2), "split(tv1): axis 3 is out of range: the loop domain has 3 axes\nhelp: use an axis in [-3, 2]"),
    (lambda a: a.split(0, 0), "split(tv1): the factor is 0\nhelp: a factor is at least 1"),
    (lambda a: a.split(0, -4), "split(tv1): the factor is -4\nhelp: a factor is at least 1"),
    (
        lambda a: a.split(1, sym("S") - 1),
        "split(tv1): the factor S - 1 may be 0 or less\nhelp: declare facts about its dimensions: tf.dim(name, min=...)",
    ),
    (lambda a: a.split(1, sym("Q")), "split(tv1): the factor Q uses 'Q', which is not a dimension of the fusion\nhelp: known are: S"),
    (lambda a: a.merge(2), "merge(tv1): axis 2 (extent 6) is the last axis: there is no next one to merge with\nhelp: give both axes"),
    (lambda a: a.merge(1, 1), "merge(tv1): axis 1 (extent 8) is given twice"),
    (lambda a: a.merge(0, 5), "merge(tv1): axis 5 is out of range: the loop domain has 3 axes\nhelp: use an axis in [-3, 2]"),
    (lambda a: a.reorder([0, 1]), "reorder(tv1): [0, 1] is not a permutation of the 3 axes\nhelp: give each axis once, or {old: new} for those that move"),
    (
        lambda a: a.reorder({0: 1, 2: 1}),
        "reorder(tv1): {0: 1, 2: 1} moves two axes to one place, or one to two\nhelp: give each old and each new position once",
    ),
    (lambda a: a.reorder({0: 7}), "reorder(tv1): axis 7 is out of range: the loop domain has 3 axes\nhelp: use an axis in [-3, 2]"),
    (lambda a: a.swizzle(1, 1), "swizzle(tv1): axis 1 (extent 8) is given twice"),
    (
        lambda a: a.swizzle(0, 1),
        "swizzle(tv1): axis 0 (extent S) and axis 1 (extent 8) do not have one constant power-of-two extent\nhelp: split them to equal extents such as 8",
    ),
    (lambda a: a.rasterize([], []), "rasterize(tv1): axes [] are not a set of one or more axes"),
    (lambda a: a.rasterize([1, 1], [W, W]), "rasterize(tv1): axes [1, 1] are not a set of one or more axes"),
    (
        lambda a: a.rasterize([1], grouped(2)),
        "rasterize(tv1): rows and columns of tiles are two axes, not 1\nhelp: rasterize the axes that the order takes",
    ),
    (lambda a: a.rasterize([1, 2], [W]), 'rasterize(tv1): there are 2 axes but 1 maps\nhelp: give each axis one expression over tf.scalar.sym("i0")'),
    (
        lambda a: a.rasterize([1, 2], [W % 8, W // 8 + sym("q")]),
        "rasterize(tv1): the map i0//8 + q uses 'q', which is not a dimension of the fusion\nhelp: known are: S, i0",
    ),
    (
        lambda a: a.rasterize([1, 2], [W % 8, W // 8], extent=sym("q")),
        "rasterize(tv1): the extent q uses 'q', which is not a dimension of the fusion\nhelp: known are: S",
    ),
    (lambda a: a.rasterize([1, 2], [W % 8, W // 12]), "rasterize(tv1): the maps are not a bijection: tile (0, 0) is visited 2 times"),
    (lambda a: a.rasterize([1, 2], [W % 8, W // 8], extent=47), "rasterize(tv1): the maps are not a bijection: tile (7, 5) is visited 0 times"),
    (lambda a: a.rasterize([1, 2], [W % 8 - 1, W // 8]), "rasterize(tv1): work item 0 has the index -1\nhelp: a tile index is at least 0"),
]


@pytest.mark.parametrize(
    ("call", "text"),
    REFUSED,
)
def test_refused(call: object, text: str) -> None:
    _, a, _ = pair("S", 8, 6)
    assert callable(call)
    assert refused(lambda: call(a), a.fusion) == text


def test_axis_of_a_zero_dimensional_tensor() -> None:
    _, a, _ = pair()
    assert refused(lambda: a.split(0, 2), a.fusion) == "split(tv1): axis 0 is out of range: the loop domain has 0 axes"


def test_bound_axes_are_refused() -> None:
    _, a, _ = pair(8, 8)
    t1 = a.fusion.task([a], "load")
    a.axis(0).parallelize(P.TIDx)
    text = (
        "{}(tv1): axis 0 (extent 8) is bound to TIDx\nnote: tv1 lies in task load\n"
        "help: transform axes before they are parallelized, or bind this one to Serial again"
    )
    assert refused(lambda: a.split(0, 2), a.fusion) == text.format("split")
    assert refused(lambda: a.merge(0), a.fusion) == text.format("merge")
    assert refused(lambda: a.merge(1, 0), a.fusion) == text.format("merge")
    assert refused(lambda: a.reorder({1: 0}), a.fusion) == text.format("reorder")
    assert refused(lambda: a.swizzle(0, 1), a.fusion) == text.format("swizzle")
    assert refused(lambda: a.rasterize([1, 0], [W // 8, W % 8]), a.fusion) == text.format("rasterize")
    assert t1.tensors == [a]
    a.axis(0).parallelize(P.Serial)
    a.split(0, 2)
    assert extents(a) == ["4", "2", "8"]


def test_atom_axes_are_refused() -> None:
    x, _, _ = pair(8, 4)
    c = x.cache_after()
    c.set_atom(VECTOR, [1])
    assert refused(lambda: c.split(1, 2), c.fusion).startswith("split(tv3): axis 1 (extent 4) is bound to Vectorize")
    assert refused(lambda: c.reorder({0: 1}), c.fusion).startswith("reorder(tv3): axis 1 (extent 4) is bound to Vectorize")


def test_shared_loops_are_refused() -> None:
    _, a, b = pair(8, 6)
    a.inline_at(1)
    assert refused(lambda: a.split(0, 2), a.fusion) == (
        "split(tv1): axis 0 (extent 8) is shared with the readers: tv1 is inlined at 1\nhelp: transform before inlining, or tv1.inline_at(0)"
    )
    assert refused(lambda: b.split(0, 2), a.fusion) == (
        "split(tv2): axis 0 (extent 8) is shared with tv1, which is inlined at 1\nhelp: transform before inlining, or tv1.inline_at(0)"
    )
    a.split(1, 2)
    b.split(1, 3)
    assert extents(a) == ["8", "3", "2"]
    assert extents(b) == ["8", "2", "3"]


def test_reductions_do_not_mix() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([8, 8, 8], dtype=float32)
        s = tf.sum(x, axis=1)
        t = tf.define_tensor([3, 8, 8], dtype=float32) + s
        fusion.add_output(t)
    assert refused(lambda: s.merge(0), fusion) == "merge(tv1): axis 1 (extent 8) is a reduction axis and axis 0 (extent 8) is not"
    assert refused(lambda: s.rasterize([0, 1], [W // 8, W % 8]), fusion) == "rasterize(tv1): axis 1 (extent 8) is a reduction axis and axis 0 (extent 8) is not"
    t.propagate([s], upto=1)
    assert refused(lambda: s.swizzle(0, 1), fusion) == "swizzle(tv1): axis 0 (extent 3) is a foreign axis\nhelp: swizzle iteration axes"
    s.reorder({0: -1})
    assert refused(lambda: s.swizzle(0, 1), fusion) == "swizzle(tv1): axis 1 (extent 8) is a reduction axis\nhelp: swizzle iteration axes"
