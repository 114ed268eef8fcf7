"""rfactor: domains, and that no element is lost or counted twice."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.dtypes import float32, int64
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.expr import Literal, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import evaluate as number
from taskfuse.ir.scalar import parse_expr
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from tests.schedule.points import extents, indices, kinds, pair, refused, size


def summed(*shape: int | str, axis: tuple[int, ...] = (1,)) -> TensorView:
    with Fusion("f") as fusion:
        x = tf.define_tensor(list(shape), dtype=int64)
        s = tf.sum(x, axis=axis)
        fusion.add_output(s)
    return s


def executed(tv: TensorView, arrays: dict[TensorView, np.ndarray]) -> np.ndarray:
    """The sum that the loop nest of ``tv`` computes, point by point."""
    definition = tv.fusion.definition(tv)
    assert isinstance(definition, Reduction)
    (read,) = [o for o in definition.operands if isinstance(o, Read)]
    found, inside = indices(tv.schedule.loop, tv.schedule.transforms, tv.root)
    env = {f"i{k}": found[a] for k, a in enumerate(tv.root)}
    out = np.zeros([size(a) for a in tv.logical], np.int64)
    source = tuple(np.broadcast_to(np.asarray(number(e, env), np.int64), inside.shape)[inside] for e in read.index)
    np.add.at(out, tuple(found[a][inside] for a in tv.logical), arrays[read.tensor][source])
    return out


def test_domains() -> None:
    s = summed("B", "K")
    s.split(1, 4).split(0, 8)
    s.axis(0).parallelize(P.BIDx)
    s.axis(3).parallelize(P.TIDx)
    iteration = s.loop[:2]
    p = s.rfactor([3])
    assert (extents(p), kinds(p)) == (["ceildiv(B, 8)", "8", "ceildiv(K, 4)", "4"], "iiir")
    assert ([str(a.extent) for a in p.root], [str(e) for e in p.shape]) == (["B", "K"], ["B", "ceildiv(K, 4)"])
    assert (extents(s), kinds(s)) == (["ceildiv(B, 8)", "8", "ceildiv(K, 4)"], "iir")
    assert ([str(a.extent) for a in s.root], [str(e) for e in s.shape]) == (["B", "ceildiv(K, 4)"], ["B"])
    assert s.loop[:2] == iteration
    assert [s.axis(k).ptype for k in range(3)] == [P.BIDx, P.Serial, P.Serial]
    assert [p.axis(k).ptype for k in range(4)] == [P.BIDx, P.Serial, P.Serial, P.TIDx]
    assert p.origin is s
    p.inline_at(3)


def test_start_values() -> None:
    s = summed(4, 8)
    definition = s.fusion.definition(s)
    assert isinstance(definition, Reduction)
    s.fusion.define(Reduction(s, definition.combine, definition.body, definition.operands, Literal(5, int64)))
    p = s.split(1, 4).rfactor([2])
    first, second = s.fusion.definition(p), s.fusion.definition(s)
    assert isinstance(first, Reduction)
    assert isinstance(second, Reduction)
    assert (first.init.value, second.init.value) == (0, 5)
    assert second.body.name == "copy"


@pytest.mark.parametrize(
    ("start", "end", "inside", "of_parts"),
    [
        ("4*(i0//2)", "4*i0 + 4", ("", ""), ("i0//2", "i0 + 1")),
        ("i0", "2*i0 + 3", ("i0", "2*i0 + 3"), ("i0//4", "ceildiv(i0, 2) + 1")),
        ("0", "min(4*i0 + 4, 13)", ("", "min(4*i0 + 4, 13)"), ("0", "min(i0 + 1, 4)")),
    ],
)
def test_bounds_of_terms(start: str, end: str, inside: tuple[str, str], of_parts: tuple[str, str]) -> None:
    """Those of parts, and, where a part is cut, those of its terms."""
    s = summed(6, 16)
    definition = s.fusion.definition(s)
    assert isinstance(definition, Reduction)
    s.fusion.define(replace(definition, starts=((1, parse_expr(start)),), ends=((1, parse_expr(end)),)))
    x = np.arange(96, dtype=np.int64).reshape(6, 16)
    (before,) = s.fusion.evaluate(x)
    p = s.split(1, 4).rfactor([2])
    for tv, wanted in ((p, inside), (s, of_parts)):
        expr = s.fusion.definition(tv)
        assert isinstance(expr, Reduction)
        assert tuple("".join(str(e) for _, e in bounds) for bounds in (expr.starts, expr.ends)) == wanted
    assert np.array_equal(s.fusion.evaluate(x)[0], before)


def test_tasks() -> None:
    s = summed(4, 8).split(1, 4)
    assert s.fusion.owner(s.rfactor([1])) is s
    s = summed(4, 8).split(1, 4)
    task = s.fusion.task([s])
    p = s.rfactor([1])
    assert task.tensors == [s, p]


def test_twice_and_on_the_producer() -> None:
    s = summed(3, 29).split(1, 10).split(2, 3)
    x = np.arange(87).reshape(3, 29)
    p = s.rfactor([3])
    assert [size(a) for a in p.logical] == [3, 3, 4]
    q = s.rfactor([2])
    assert [size(a) for a in q.logical] == [3, 3]
    p.split(3, 2)
    r = p.rfactor([3])
    assert [size(a) for a in r.logical] == [3, 3, 4, 2]
    source = s.fusion.inputs[0]
    arrays = {source: x}
    for tv in (r, p, q, s):
        arrays[tv] = executed(tv, arrays)
    assert (arrays[s] == x.sum(1)).all()
    assert (evaluate(s.fusion, [x])[0] == x.sum(1)).all()


@given(st.data())
def test_no_element_is_lost_or_counted_twice(data: st.DataObject) -> None:
    s = summed(2, data.draw(st.integers(1, 12)), data.draw(st.integers(1, 5)), axis=(1, 2))
    for _ in range(data.draw(st.integers(0, 3))):
        if data.draw(st.booleans()) or kinds(s).count("r") < 2:
            s.split(data.draw(st.integers(0, len(s.loop) - 1)), data.draw(st.integers(1, 4)), inner=data.draw(st.booleans()))
        else:
            reduced = [k for k, kind in enumerate(kinds(s)) if kind == "r"]
            outer, inner = data.draw(st.permutations(reduced))[:2]
            s.merge(outer, inner)
    s.reorder(data.draw(st.permutations(range(len(s.loop)))))
    reduced = [k for k, kind in enumerate(kinds(s)) if kind == "r"]
    if len(reduced) < 2 or np.prod([size(a) for a in s.loop]) > 1 << 13:
        return
    axes = data.draw(st.lists(st.sampled_from(reduced), min_size=1, max_size=len(reduced) - 1, unique=True))
    p = s.rfactor(axes)
    shape = [size(a) for a in s.fusion.inputs[0].logical]
    x = np.random.default_rng(0).integers(-9, 9, shape)
    arrays = {s.fusion.inputs[0]: x}
    arrays[p] = executed(p, arrays)
    arrays[s] = executed(s, arrays)
    assert (arrays[s] == x.sum((1, 2))).all()
    assert (evaluate(s.fusion, [x])[0] == x.sum((1, 2))).all()


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        ([], "axes [] are not a set of one or more axes"),
        ([1, 1], "axes [1, 1] are not a set of one or more axes"),
        ([0, 1], "axis 0 (extent 4) is not a reduction axis\nhelp: the reduction axes are 1, 2"),
        ([1, 2], "all reduction axes are given: one must be left\nhelp: split a reduction axis first"),
        ([3], "axis 3 is out of range: the loop domain has 3 axes\nhelp: use an axis in [-3, 2]"),
    ],
)
def test_refused(axes: list[int], text: str) -> None:
    s = summed(4, 8).split(1, 4)
    assert refused(lambda: s.rfactor(axes), s.fusion) == f"rfactor(tv1): {text}"


def test_refused_tensors() -> None:
    _, a, _ = pair(4, 4)
    assert refused(lambda: a.rfactor([0]), a.fusion) == "rfactor(tv1): tv1 is not a reduction"
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 8], dtype=float32)
        e = tf.exp(x)
        s = tf.sum(e, axis=1)
        t = tf.sin(s)
        fusion.add_output(t)
    for tv in (e, s):
        tv.split(1, 4)
    e.inline_at(1)
    assert refused(lambda: s.rfactor([1]), fusion) == "rfactor(tv2): tv1 is inlined into it at 1\nhelp: call rfactor before inlining, or tv1.inline_at(0)"
    e.inline_at(0)
    s.inline_at(1)
    assert refused(lambda: s.rfactor([1]), fusion) == "rfactor(tv2): tv2 is inlined at 1\nhelp: call rfactor before inlining, or tv2.inline_at(0)"


def test_refused_foreign_axes() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 8, 2], dtype=float32)
        y = tf.define_tensor([3, 4, 8, 2], dtype=float32)
        s = tf.sum(x, axis=(1, 2))
        w = x + y
        fusion.add_output(s)
        fusion.add_output(w)
    w.merge(0, 2)
    assert extents(w) == ["24", "4", "2"]
    w.propagate([s], upto=3)
    assert (extents(s), kinds(s)) == (["24", "4", "2"], "rir")
    assert refused(lambda: s.rfactor([0]), fusion) == ("rfactor(tv2): a reduction axis derives from a foreign axis of extent 3\nhelp: rfactor before propagate")
