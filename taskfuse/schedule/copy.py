"""Copies of a fusion with its schedule, tasks and groups: as a new fusion, or into another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from taskfuse.errors import FusionError
from taskfuse.ir.axes import Axis, Merge, Rasterize, Resize, Split, Swizzle, Transform
from taskfuse.ir.dims import Dim
from taskfuse.ir.expr import IndexValue, Leaf, Literal, Read, ScalarRead, Written, rebuilt
from taskfuse.ir.fusion import Fusion, Result
from taskfuse.ir.identity import among
from taskfuse.ir.offsets import offsets_name
from taskfuse.ir.scalar import Expr, Sym, const, substitute, sym
from taskfuse.ir.signatures import checked_first
from taskfuse.ir.tasks import Node
from taskfuse.ir.tensor import Scalar, TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.ir.written import rewritten
from taskfuse.location import caller


@dataclass(frozen=True, slots=True, eq=False)
class Renaming:
    """The names of a copy; a name that is absent is kept.

    Attributes:
        values: of tensors and scalars: the name in the copy.
        symbols: of symbolic extents: the extent in the copy.
        nodes: of tasks and groups: the name in the copy.
        rings: of rings that tensors share: the name in the copy.
        inputs: of inputs and scalars: the one of the other fusion that replaces it.
    """

    values: Mapping[str, str] = field(default_factory=dict[str, str])
    symbols: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    nodes: Mapping[str, str] = field(default_factory=dict[str, str])
    rings: Mapping[str, str] = field(default_factory=dict[str, str])
    inputs: Mapping[str, TensorView | Scalar] = field(default_factory=dict[str, "TensorView | Scalar"])


@dataclass(frozen=True, slots=True, eq=False)
class Copied:
    """The copies of tensors, and of the nodes of the task tree."""

    tensors: dict[TensorView, TensorView]
    nodes: dict[Node, Node]


@checked_first
def copy_fusion(fusion: Fusion) -> tuple[Fusion, dict[TensorView, TensorView]]:
    """A fusion equal to ``fusion`` that shares no mutable state with it, and the map from its tensors to theirs in the copy.

    Axes and transforms are shared: they never change. Names, locations and the order of everything are kept.
    """
    new = Fusion(fusion.name)
    new.dims.update(fusion.dims)
    new.residents = fusion.residents
    return new, embed(fusion, new, Renaming()).tensors


def embed(fusion: Fusion, into: Fusion, names: Renaming) -> Copied:
    """Add a copy of ``fusion`` to ``into``, which already has its symbols. Its nodes are added below the root without a check, since they were lawful."""
    return _Copier(fusion, into, names).run()


def narrowed(fusion: Fusion, facts: Iterable[Dim]) -> Fusion:
    """A copy of ``fusion`` whose dimensions are those of ``facts``; those of one value are constants, unless they are arguments."""
    new, known = Fusion(fusion.name), tuple(facts)
    constants: dict[str, Expr] = {d.name: const(d.min) for d in known if d.min == d.max and d.name not in fusion.integers}
    new.dims.update((d.name, d.with_symbols(constants)) for d in known if d.name not in constants)
    embed(fusion, new, Renaming(symbols=constants))
    return new


class _Copier:
    """One copy in progress. Axes are new where they, or what they were made from, speak of a symbol that changes; all others are shared."""

    def __init__(self, fusion: Fusion, into: Fusion, names: Renaming) -> None:
        self.fusion = fusion
        self.into = into
        self.names = names
        given = [(tv.name, self._name(tv)) for tv in fusion.tables]
        given += [(offsets_name(old), offsets_name(new)) for old, new in given]
        self._symbols: dict[str, Expr] = {**names.symbols, **{old: sym(new) for old, new in given if old != new}}
        self._tensors: dict[TensorView, TensorView] = {}
        self._scalars: dict[Scalar, Scalar] = {}
        self._axes: dict[Axis, Axis] = {}

    def run(self) -> Copied:
        fusion, new, tensors = self.fusion, self.into, self._tensors
        for scalar in fusion.scalars:
            given = self.names.inputs.get(scalar.name)
            if isinstance(given, Scalar):
                self._scalars[scalar] = given
            else:
                self._scalars[scalar] = copy = new.add_scalar(self.names.values.get(scalar.name, scalar.name), scalar.dtype, scalar.promotes)
                copy.location = scalar.location
        for name in fusion.integers:
            own = self._scalar(sym(name))
            if not isinstance(own, Sym):
                help = "share no input whose shape decides it"
                raise FusionError(fusion=new.name, reason=f"the argument '{name}' is {own} in it", help=help, location=caller())
            if own.name not in new.integers:
                new.integers.append(own.name)
        first = len(new.tensors())
        for tv in fusion.tensors():
            given = self.names.inputs.get(tv.name)
            tensors[tv] = given if isinstance(given, TensorView) else self._tensor(tv, first)
        for tv in fusion.tensors():
            if tv.origin is not None and not isinstance(self.names.inputs.get(tv.name), TensorView):
                tensors[tv].origin = tensors[tv.origin]
            expr = fusion.definition(tv)
            if expr is not None:
                new.define(rebuilt(expr, lambda r: self._read(r, tensors), leaf=self._leaf, index=self._scalar, output=tensors[tv]))
        self._keep_written()
        for tv in fusion.tensors():
            owner = fusion.owner(tv)
            if owner is not None:
                new.set_owner(tensors[tv], tensors[owner])
        for tv in fusion.inputs:
            if tv.name not in self.names.inputs and not among(tensors[tv], new.inputs):
                new.add_input(tensors[tv])
        for tv in fusion.inputs:
            if tv in fusion.strides and tensors[tv].is_input:
                new.strides[tensors[tv]] = tuple(map(self._scalar, fusion.strides[tv]))
            if tv in fusion.tables and tensors[tv].is_input:
                new.tables[tensors[tv]] = fusion.tables[tv].mapped(self._scalar)
        new.outputs += [tensors[tv] for tv in fusion.outputs]
        for r in fusion.results:
            strides = None if r.strides is None else tuple(map(self._scalar, r.strides))
            new.results.append(Result(tensors[r.tensor], strides, None if r.into is None else tensors[r.into]))
        return Copied(tensors, new.tasks.adopt(fusion.tasks, tensors, self._axis, self.names.nodes))

    def _keep_written(self) -> None:
        """Let the copies have the first definitions that the tensors had; those that were removed have copies outside the new fusion."""
        found = rewritten(self.fusion)
        copies = dict(self._tensors)
        for tv, w in found.items():
            if tv not in copies:
                copies[tv] = TensorView(self.into, tv.id, tv.name, w.dtype, self._domain(w.root), self._domain(w.logical), tv.location)
        for tv, w in found.items():
            copied = self.into.definition(copies[tv]) if self.fusion.definition(tv) is w.expr else None
            kept = copied or rebuilt(w.expr, lambda r: self._read(r, copies), leaf=self._leaf, index=self._scalar, output=copies[tv])
            self.into.set_written(copies[tv], Written(kept, self._domain(w.root), self._domain(w.logical), w.dtype), self.fusion.replaced_at(tv))

    def _name(self, tv: TensorView) -> str:
        """The name of a tensor in the copy."""
        given = self.names.inputs.get(tv.name)
        return given.name if isinstance(given, TensorView) else self.names.values.get(tv.name, tv.name)

    def _tensor(self, tv: TensorView, first: int) -> TensorView:
        name = self.names.values.get(tv.name, tv.name)
        root, logical = self._domain(tv.root), self._domain(tv.logical)
        copy = self.into.new_tensor(root, tv.dtype, logical=logical, name=name, location=tv.location, schedule=self._schedule(tv.schedule))
        copy.id = first + tv.id
        return copy

    # -- axes -----------------------------------------------------------------------------------------------------------------------

    def _scalar(self, e: Expr) -> Expr:
        return substitute(e, self._symbols) if self._symbols else e

    def _axis(self, axis: Axis) -> Axis:
        if not self._symbols:
            return axis
        known = self._axes.get(axis)
        if known is None:
            source = None if axis.source is None else self._axis(axis.source)
            known = self._axes[axis] = Axis(self._scalar(axis.extent), axis.kind, source)
        return known

    def _domain(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(map(self._axis, axes)) if self._symbols else axes

    def _transform(self, t: Transform) -> Transform:
        axis = self._axis
        match t:
            case Split():
                return Split(axis(t.source), axis(t.outer), axis(t.inner))
            case Merge():
                return Merge(axis(t.outer), axis(t.inner), axis(t.result))
            case Swizzle():
                return Swizzle(axis(t.x), axis(t.y), axis(t.x_out), axis(t.y_out))
            case Resize():
                return Resize(axis(t.source), self._scalar(t.left), self._scalar(t.right), axis(t.result))
            case Rasterize():
                return Rasterize(self._domain(t.sources), axis(t.result), tuple(map(self._scalar, t.maps)))

    def _schedule(self, schedule: TensorSchedule) -> TensorSchedule:
        ring = self.names.rings.get(schedule.ring, schedule.ring)
        if not self._symbols:
            return schedule.copied(ring)
        return replace(
            schedule,
            ring=ring,
            loop=[self._axis(a) for a in schedule.loop],
            transforms=[self._transform(t) for t in schedule.transforms],
            ptypes={self._axis(a): p for a, p in schedule.ptypes.items()},
            allocation=None if schedule.allocation is None else self._domain(schedule.allocation),
            atom_axes=self._domain(schedule.atom_axes),
        )

    # -- math -----------------------------------------------------------------------------------------------------------------------

    def _read(self, r: Read, tensors: Mapping[TensorView, TensorView]) -> Read:
        if not self._symbols:
            return Read(tensors[r.tensor], r.index, r.valid)
        return Read(tensors[r.tensor], tuple(map(self._scalar, r.index)), self._scalar(r.valid))

    def _leaf(self, o: Leaf) -> Leaf:
        match o:
            case ScalarRead():
                return ScalarRead(self._scalars[o.scalar])
            case IndexValue():
                return IndexValue(self._scalar(o.index))
            case Literal():
                return o
