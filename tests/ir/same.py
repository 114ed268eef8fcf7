"""Fusions told apart without their text, and small ones to try it on."""

from collections.abc import Iterable, Sequence
from typing import Any

import taskfuse.ops as tf
from taskfuse.ir.axes import Axis, Merge, Rasterize, Resize, Split, Swizzle, Transform
from taskfuse.ir.expr import MathExpr, Operand, Read, ScalarRead
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.ir.printer import fusion_to_text
from taskfuse.ir.tasks import Group, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P


class Same:
    """Asserts that two fusions are equal, up to locations: axes correspond one to one."""

    def __init__(self, a: Fusion, b: Fusion) -> None:
        self.axes: dict[Axis, Axis] = {}
        assert (a.name, a.dims) == (b.name, b.dims)
        assert list(a.dims) == list(b.dims)
        assert [(s.name, s.id, s.dtype) for s in a.scalars] == [(s.name, s.id, s.dtype) for s in b.scalars]
        pairs = list(zip(a.tensors(), b.tensors(), strict=True))
        for x, y in pairs:
            self.tensor(x, y)
        for x, y in pairs:
            self.definition(a.definition(x), b.definition(y))
            assert names(u.output for u in x.uses) == names(u.output for u in y.uses)
            assert name(x.origin) == name(y.origin)
            assert name(a.owner(x)) == name(b.owner(y))
        for x, y in list(self.axes.items()):
            assert (x.source is None) == (y.source is None)
            if x.source is not None and y.source is not None:
                assert self.axes.setdefault(x.source, y.source) is y.source
        assert len(set(self.axes.values())) == len(self.axes)
        assert names(a.inputs) == names(b.inputs)
        assert names(a.outputs) == names(b.outputs)
        assert [(n.name, n.budget) for n in a.tasks.nodes] == [(n.name, n.budget) for n in b.tasks.nodes]
        self.group(a.tasks.root, b.tasks.root)

    def axis(self, x: Axis, y: Axis) -> None:
        assert (x.extent, x.kind) == (y.extent, y.kind)
        assert self.axes.setdefault(x, y) is y

    def all_axes(self, xs: Sequence[Axis], ys: Sequence[Axis]) -> None:
        for x, y in zip(xs, ys, strict=True):
            self.axis(x, y)

    def tensor(self, x: TensorView, y: TensorView) -> None:
        assert (x.name, x.id, x.dtype) == (y.name, y.id, y.dtype)
        self.all_axes(x.root, y.root)
        s, t = x.schedule, y.schedule
        for p, q in zip(s.transforms, t.transforms, strict=True):
            self.transform(p, q)
        self.all_axes(x.logical, y.logical)
        self.all_axes(s.loop, t.loop)
        assert (s.allocation is None) == (t.allocation is None)
        self.all_axes(s.allocation or (), t.allocation or ())
        self.all_axes(s.atom_axes, t.atom_axes)
        assert (s.inline, s.memory, s.stages, s.ring, s.atom, s.in_flight) == (t.inline, t.memory, t.stages, t.ring, t.atom, t.in_flight)
        assert (s.pipeline_stage, s.turns) == (t.pipeline_stage, t.turns)
        bound = {self.axes[a]: p for a, p in s.ptypes.items() if p is not P.Serial and a in self.axes}
        assert bound == {a: p for a, p in t.ptypes.items() if p is not P.Serial}

    def transform(self, p: Transform, q: Transform) -> None:
        assert type(p) is type(q)
        self.all_axes((*p.inputs, *p.outputs), (*q.inputs, *q.outputs))
        match p, q:
            case Resize(), Resize():
                assert (p.left, p.right) == (q.left, q.right)
            case Rasterize(), Rasterize():
                assert p.maps == q.maps
            case _:
                assert isinstance(p, Split | Merge | Swizzle)

    def definition(self, x: MathExpr | None, y: MathExpr | None) -> None:
        assert type(x) is type(y)
        if x is None or y is None:
            return
        for o, p in zip(x.operands, y.operands, strict=True):
            self.operand(o, p)
        for field in ("op", "label", "combine", "body", "init", "places"):
            assert repr(getattr(x, field, None)) == repr(getattr(y, field, None))

    def operand(self, o: Operand, p: Operand) -> None:
        match o, p:
            case Read(), Read():
                assert (o.tensor.name, o.index, o.valid) == (p.tensor.name, p.index, p.valid)
            case ScalarRead(), ScalarRead():
                assert o.scalar.name == p.scalar.name
            case _:
                assert repr(o) == repr(p)

    def group(self, g: Group, h: Group) -> None:
        assert (g.name, g.ptype, g.pingpong_axis is None) == (h.name, h.ptype, h.pingpong_axis is None)
        if g.pingpong_axis is not None and h.pingpong_axis is not None:  # it may be an axis that no tensor has any more
            assert self.axes.setdefault(g.pingpong_axis, h.pingpong_axis) is h.pingpong_axis
        for m, n in zip(g.members, h.members, strict=True):
            assert m.parent is g
            assert n.parent is h
            if isinstance(m, Group):
                assert isinstance(n, Group)
                self.group(m, n)
            else:
                assert isinstance(n, Task)
                assert m.name == n.name
                assert names(m.tensors) == names(n.tensors)


def name(x: Any) -> str | None:
    return None if x is None else x.name


def names(xs: Iterable[Any]) -> list[str]:
    return [x.name for x in xs]


def check_round_trip(fusion: Fusion) -> Fusion:
    text = fusion_to_text(fusion)
    parsed = parse_fusion(text)
    Same(fusion, parsed)
    assert fusion_to_text(parsed) == text
    return parsed


def founding() -> Fusion:
    with Fusion("cat") as fusion:
        tv0 = tf.define_tensor(["B", tf.dim("S", multiple_of=4), "T"])
        tv1, tv2 = tf.sin(tv0), tf.tan(tv0)
        tv3, tv4 = tf.cos(tv1), tf.relu(tv2)
        tv5 = tf.cat([tv3, tv4], 1)
        tv6 = tf.neg(tv5)
        fusion.add_output(tv6)
    t1, t2, t3 = fusion.task([tv1, tv3]), fusion.task([tv2, tv4]), fusion.task([tv5, tv6])
    group1 = fusion.group([t1, t2])
    group2 = fusion.group([t3])
    group3 = fusion.group([group1, group2])
    for tv in fusion.tensors():
        for k, p in enumerate((P.BIDx, P.TIDy, P.TIDx)):
            tv.axis(k).parallelize(p)
    fusion.inline_most()
    group1.parallelize(P.TIDy)
    group3.parallelize(P.TIDz)
    return fusion


FOUNDING = """\
FUSION cat
DIM B, S multiple_of 4, T
INPUT tv0: float32[B, S, T]
tv1: float32[B, S, T] = sin(tv0)
tv2: float32[B, S, T] = tan(tv0)
tv3: float32[B, S, T] = cos(tv1)
tv4: float32[B, S, T] = relu(tv2)
tv5: float32[B, 2*S, T] = select cat(tv3 if i1 < S, tv4[i0, i1 - S, i2] if i1 >= S)
tv6: float32[B, 2*S, T] = neg(tv5)
OUTPUT tv6
SCHEDULE tv0: loop [a0:BIDx, a1:TIDy, a2:TIDx]
SCHEDULE tv1: loop [a0:BIDx, a1:TIDy, a2:TIDx |]
SCHEDULE tv2: loop [a0:BIDx, a1:TIDy, a2:TIDx |]
SCHEDULE tv3: loop [a0:BIDx | a1:TIDy, a2:TIDx]
SCHEDULE tv4: loop [a0:BIDx | a1:TIDy, a2:TIDx]
SCHEDULE tv5: loop [a0:BIDx, a1:TIDy, a2:TIDx |]
SCHEDULE tv6: loop [a0:BIDx, a1:TIDy, a2:TIDx]
TASK t1 = tv1, tv3
TASK t2 = tv2, tv4
TASK t3 = tv5, tv6
GROUP group1 = t1, t2 on TIDy  # horizontal
GROUP group2 = t3  # both
GROUP group3 = group1, group2 on TIDz  # vertical"""
HEAD = "FUSION f\nDIM S\nSCALAR alpha: float32\nINPUT x: float32[S, 4]\n"  # errors below start at line 5
Y = HEAD + "y: float32[S, 4] = sin(x)\n"  # and here at line 6
Z = Y + "z: float32[S, 4] = cos(y)\n"  # and here at line 7
