"""Parts of one fusion, as fusions: facts of the whole fusion that are needed repeatedly are computed once.

A search for segments asks for thousands of parts of one fusion, most of which are equal up to names: a model repeats its layers. So the *form* of a part is
told without making it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from math import prod
from typing import Final, NamedTuple

from taskfuse.ir.axes import Axis
from taskfuse.ir.expr import Assemble, Leaf, MathExpr, Read, ScalarRead, View, map_exprs, reads, rebuilt
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.offsets import offsets_name
from taskfuse.ir.scalar import Const, Sym
from taskfuse.ir.storage import made_from, producers, resolve
from taskfuse.ir.tensor import Scalar, TensorView

_NAMED: Final = ("output", "operand", "operands", "parts", "location")
"""Fields of an expression that its skeleton omits or represents differently."""


class PartForm(NamedTuple):
    """A part up to names.

    Attributes:
        key: equal for equal parts of fusions of the same dimensions.
        names: of the tensors, in the order of the fusion, and then of the scalars.
    """

    key: Hashable
    names: tuple[str, ...]


class _Outline(NamedTuple):
    """The contents of a part.

    Attributes:
        exprs: its code, producers first, with reads resolved.
        skeletons: of these.
        inside: the tensors that it computes.
        read: its inputs.
        tensors: all of these, in the order of the whole.
        outputs: those of ``inside`` that others need.
        scalars: its run-time scalars.
    """

    exprs: tuple[MathExpr, ...]
    skeletons: Mapping[TensorView, Hashable]
    inside: frozenset[TensorView]
    read: Mapping[TensorView, None]
    tensors: tuple[TensorView, ...]
    outputs: frozenset[TensorView]
    scalars: tuple[Scalar, ...]


class Parts:
    """The parts of a fusion, which must not change meanwhile.

    Args:
        fusion: the whole, unscheduled.
    """

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self._place = {tv: k for k, tv in enumerate(fusion.tensors())}
        self._order = {e.output: k for k, e in enumerate(fusion.exprs())}
        self._outputs = frozenset(fusion.outputs)
        self._assembled = [(e, frozenset(made_from(fusion, e.output))) for e in fusion.exprs() if isinstance(e, Assemble)]
        self._readers: dict[TensorView, set[TensorView]] = {}
        for e in fusion.exprs():
            if not fusion.is_view(e.output):
                for tv in producers(fusion, e.output):
                    self._readers.setdefault(tv, set()).add(e.output)
        self._is_symbolic = any(isinstance(a.extent, Sym) for tv in fusion.inputs for a in tv.logical)
        self._resolved: dict[tuple[TensorView, tuple[TensorView, ...]], MathExpr] = {}
        self._skeletons: dict[tuple[TensorView, tuple[TensorView, ...]], Hashable] = {}
        self._behind: dict[TensorView, frozenset[TensorView]] = {}

    def extract(self, tensors: Sequence[TensorView], name: str, views: Sequence[TensorView] = ()) -> Fusion:
        """The part that computes ``tensors``: it reads what they need and others make, and its outputs are what others need of it.

        A part that reads no tensor takes one nevertheless, if there are inputs: it is computed on the device, and in the stream, of its arguments.

        Args:
            views: those that it takes as inputs.
        """
        fusion, own = self.fusion, self._outline(tensors, views)
        new = Fusion(name)
        symbols = {s for tv in own.tensors for a in tv.root for s in a.extent.free}
        symbols |= {s for e in own.exprs for i in map_exprs(e) for s in i.free if s in fusion.dims}
        symbols |= {s for tv in own.read for a in tv.logical for s in a.extent.free}
        tables = {tv: table for tv, table in fusion.tables.items() if tv in own.read}
        symbols |= {s for table in tables.values() for e in table.expressions for s in e.free}
        # what is said of a dimension by others that are not here is checked by the whole
        known = {k: v if v.bound is None or v.bound.free <= symbols else replace(v, bound=None) for k, v in fusion.dims.items()}
        new.dims.update((k, v) for k, v in known.items() if k in symbols)
        new.integers += [name for name in fusion.integers if name in symbols]
        copies: dict[TensorView, TensorView] = {}
        for tv in own.tensors:
            if tv in own.read:
                copies[tv] = new.add_input(new.new_tensor(tv.logical, tv.dtype, name=tv.name, location=tv.location))
            else:
                copies[tv] = new.new_tensor(tv.root, tv.dtype, logical=tv.logical, name=tv.name, location=tv.location)
        new.tables.update((copies[tv], known) for tv, known in tables.items())
        scalars = {scalar: new.add_scalar(scalar.name, scalar.dtype, scalar.promotes) for scalar in own.scalars}

        def moved(read: Read) -> Read:
            return replace(read, tensor=copies[read.tensor])

        def leaf(operand: Leaf) -> Leaf:
            return ScalarRead(scalars[operand.scalar]) if isinstance(operand, ScalarRead) else operand

        for e in own.exprs:
            new.define(rebuilt(e, moved, leaf=leaf, output=copies[e.output]))
        new.add_output(*(copies[tv] for tv in own.tensors if tv in own.outputs))
        return new

    def form(self, tensors: Sequence[TensorView], views: Sequence[TensorView] = ()) -> PartForm:
        """The form of the part that :meth:`extract` makes."""
        own = self._outline(tensors, views)
        numbers: dict[TensorView | Scalar, int] = {tv: k for k, tv in enumerate((*own.tensors, *own.scalars))}
        code: dict[TensorView, Hashable] = {}
        for e in own.exprs:
            tensors_read = tuple(numbers[o.tensor if isinstance(o, Read) else o.scalar] for o in e.operands if isinstance(o, Read | ScalarRead))
            code[e.output] = own.skeletons[e.output], tensors_read, e.output in own.outputs
        key = tuple((tv.dtype, code.get(tv) or tuple(a.extent for a in tv.logical)) for tv in own.tensors), tuple(s.dtype for s in own.scalars)
        return PartForm(key, (*(tv.name for tv in own.tensors), *(s.name for s in own.scalars)))

    def _outline(self, tensors: Sequence[TensorView], views: Sequence[TensorView]) -> _Outline:
        fusion, own = self.fusion, frozenset(tensors)
        chosen = [e for tv in own if (e := fusion.definition(tv)) is not None and not isinstance(e, Assemble)]
        chosen += [e for e, parts in self._assembled if e.output in own or own >= parts]
        chosen.sort(key=lambda e: self._order[e.output])
        exprs: list[MathExpr] = []
        skeletons: dict[TensorView, Hashable] = {}
        for e in chosen:
            key = e.output, tuple(view for view in views if view in self._passed(e))
            if key not in self._resolved:
                self._resolved[key] = rebuilt(e, partial(resolve, fusion, stop=key[1]))
                self._skeletons[key] = _skeleton(self._resolved[key])
            exprs.append(self._resolved[key])
            skeletons[e.output] = self._skeletons[key]
        inside = frozenset(skeletons)
        read = dict.fromkeys(r.tensor for e in exprs for r in reads(e) if r.tensor not in inside)
        tables = {tv for tv in fusion.tables if any(not i.free.isdisjoint((tv.name, offsets_name(tv.name))) for e in exprs for i in map_exprs(e))}
        tables |= {tv for tv, known in fusion.tables.items() if known.holds is not None and any(t.name in known.holds.free for t in tables)}
        read |= dict.fromkeys(tables)
        if self._is_symbolic:
            self._tell_extents(read, inside, exprs)
        if not read and fusion.inputs:  # arrays come from where an array is
            read[min(fusion.inputs, key=_size)] = None
        all = tuple(sorted((*read, *inside), key=self._place.__getitem__))
        outputs = frozenset(tv for tv in inside if tv in self._outputs or not self._readers.get(tv, inside) <= inside)
        used = {o.scalar for e in exprs for o in e.operands if isinstance(o, ScalarRead)}
        return _Outline(tuple(exprs), skeletons, inside, read, all, outputs, tuple(s for s in fusion.scalars if s in used) if used else ())

    def _tell_extents(self, read: dict[TensorView, None], inside: Iterable[TensorView], exprs: Iterable[MathExpr]) -> None:
        """Add inputs to a part that alone determine extents which occur in it."""
        symbols = {s for tv in (*read, *inside) for a in tv.root for s in a.extent.free}
        symbols |= {s for e in exprs for i in map_exprs(e) for s in i.free if s in self.fusion.dims}
        symbols |= {s for tv, known in self.fusion.tables.items() if tv in read for e in known.expressions for s in e.free}
        bound = {a.extent.name for tv in read for a in tv.logical if isinstance(a.extent, Sym)} | {*self.fusion.integers}
        for tv in self.fusion.inputs:
            if missing := {a.extent.name for a in tv.logical if isinstance(a.extent, Sym)} & symbols - bound:
                read[tv] = None
                bound |= missing

    def _passed(self, expr: MathExpr) -> frozenset[TensorView]:
        """The views between an expression and the storage that it reads."""
        found = self._behind.get(expr.output)
        if found is None:
            through: set[TensorView] = set()
            for read in reads(expr):
                tv = read.tensor
                while self.fusion.is_view(tv) and tv not in through:
                    through.add(tv)
                    view = self.fusion.definition(tv)
                    assert isinstance(view, View)
                    tv = view.operand.tensor
            found = self._behind[expr.output] = frozenset(through)
        return found


def _skeleton(expr: MathExpr) -> Hashable:
    """An expression without the identity of the tensors and scalars that it reads."""
    root = {a: k for k, a in enumerate(expr.output.root)}
    logical = tuple(root[a] if a in root else _axis(a) for a in expr.output.logical)
    operands = tuple((o.index, o.valid, o.tensor.dtype) if isinstance(o, Read) else o.scalar.dtype if isinstance(o, ScalarRead) else o for o in expr.operands)
    own = tuple(getattr(expr, f.name) for f in fields(expr) if f.name not in _NAMED)
    return type(expr), own, tuple(map(_axis, expr.output.root)), logical, operands


def _axis(axis: Axis) -> Hashable:
    return axis.extent, axis.kind


def _size(tv: TensorView) -> tuple[int, int]:
    """Axes of no constant extent, and elements along the others: what tells inputs that are small."""
    extents = [a.extent for a in tv.logical]
    constant = [e.value for e in extents if isinstance(e, Const)]
    return len(extents) - len(constant), prod(constant)
