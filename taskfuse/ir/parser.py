"""The fusion in a text: names are resolved, and objects are made in the order in which the printed fusion made them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from taskfuse.errors import FusionError, TaskError
from taskfuse.ir.axes import Axis, is_map_symbol, iteration_symbol
from taskfuse.ir.definition_rules import broken_rule
from taskfuse.ir.dims import Dim
from taskfuse.ir.expr import (
    Assemble,
    FirstValid,
    Fold,
    Gather,
    IndexValue,
    MathExpr,
    Operand,
    Pointwise,
    Read,
    Reduction,
    ScalarRead,
    Scan,
    Update,
    View,
    misplaced_bound,
    misplaced_factor,
)
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.grammar import read_fusion
from taskfuse.ir.offsets import lengths_name
from taskfuse.ir.scalar import Const, Expr, Token, elements_of, integers_of, lookups_of, shape_text
from taskfuse.ir.signatures import checked_first
from taskfuse.ir.syntax import (
    AssembleText,
    BoundAxis,
    FirstValidText,
    FoldText,
    FusionText,
    GatherText,
    GroupText,
    Name,
    OperandText,
    PointwiseText,
    ReadText,
    ReductionText,
    ScanText,
    ScheduleText,
    TaskText,
    TensorText,
    UpdateText,
    ViewText,
)
from taskfuse.ir.tasks import Group, Node
from taskfuse.ir.tensor import Scalar, TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.ir.text_axes import TextAxes, counted_axes
from taskfuse.ir.types import ParallelType
from taskfuse.location import Location

_FILE = "<fusion text>"


@checked_first
def parse_fusion(text: str, file: str = _FILE) -> Fusion:
    """The fusion in ``text``: ``fusion_to_text(parse_fusion(t)) == t`` for every printed ``t``.

    Tensors, expressions, tasks and groups have locations in the text. Lowering, not the parser, checks the laws of schedules.

    Args:
        file: the file of the text.

    Raises:
        ParseError: the text leaves the grammar of docs/fusion-text.md, or a name, a rank or an axis in it does not fit.
        FusionError: an input is made an output, or one tensor twice.
        TaskError: a task or group breaks a law.
    """
    return _FusionBuilder(read_fusion(text), file).build()


class _FusionBuilder:
    def __init__(self, text: FusionText, file: str) -> None:
        self.text = text
        self.file = file
        self.fusion = Fusion(text.name)
        self.scalars: dict[str, Scalar] = {}
        self.tensors: dict[str, TensorView] = {}
        self.declared: dict[str, TensorText] = {}

    def build(self) -> Fusion:
        text, fusion = self.text, self.fusion
        for d in text.dims:
            if d.name.text in fusion.dims:
                raise d.name.token.error(f"dimension '{d.name.text}' is given twice")
            if is_map_symbol(d.name.text):
                raise d.name.token.error(f"'{d.name.text}' is a symbol of index maps, not a dimension")
            if not d.dim.is_possible:
                raise d.name.token.error(f"no value of '{d.name.text}' is {d.dim.allowed}")
            fusion.dims[d.name.text] = d.dim
        for d in text.dims:
            with self._located(d.name.token):
                fusion.add_dim(d.dim)
        for name in text.integers:
            with self._located(name.token):
                fusion.add_integer(fusion.dims.get(name.text, Dim(name.text, min=0)))
        for s in text.scalars:
            self._check_new(s.name)
            self.scalars[s.name.text] = fusion.add_scalar(s.name.text, s.dtype)
            self.scalars[s.name.text].location = self._location(s.name.token)
        for t in text.tensors:
            self._check_new(t.name)
            self._check_extents(t.name, t.shape)
            self.declared[t.name.text] = t
        schedules = self._schedules()
        axes = TextAxes(text)
        for t in self._order():
            tv = fusion.new_tensor(axes.root(t), t.dtype, name=t.name.text, location=self._location(t.name.token))
            self.tensors[t.name.text] = tv
            self._check_extents(t.name, [a.extent for a in tv.root])
        for t in text.tensors:
            self._schedule(t, schedules.get(t.name.text), axes)
        self._define_all()
        for t in text.tensors:
            if t.strides is not None:
                with self._located(t.name.token):
                    fusion.set_strides(self._tensor(t.name), t.strides)
            if t.table is not None:
                self._check_symbols(t.name.token, t.table.expressions, 0)
                self._check_symbols(t.name.token, () if t.table.holds is None else (t.table.holds,), 1)
                fusion.tables[self._tensor(t.name)] = t.table
        for result in text.outputs:
            with self._located(result.tensor.token):
                into = None if result.into is None else self._tensor(result.into)
                fusion.add_output(self._tensor(result.tensor), strides=result.strides, into=into)
        if text.resident is not None:
            token, count = text.resident
            with self._located(token):
                fusion.resident_blocks(count)
        self._build_tree(axes)
        return fusion

    # -- names ----------------------------------------------------------------------------------------------------------------------

    def _check_new(self, name: Name) -> None:
        if name.text in self.scalars or name.text in self.declared:
            raise name.token.error(f"there is already a value named '{name.text}'")

    def _check_extents(self, name: Name, extents: Sequence[Expr]) -> None:
        """Extents are made of dimensions, and none is negative."""
        self._check_symbols(name.token, extents, 0)
        negative = next((e for e in extents if isinstance(e, Const) and e.value < 0), None)
        if negative is not None:
            raise name.token.error(f"extent {negative} of {name.text} is negative")

    def _check_symbols(self, token: Token, exprs: Iterable[Expr], space: int, values: int = 0) -> None:
        """Every symbol is a dimension, an iteration symbol of ``space`` axes or one of so many values of a gather."""
        allowed = {*self.fusion.dims, *(f"i{k}" for k in range(space)), *(f"v{k}" for k in range(values))}
        for e in exprs:
            unknown = integers_of(e) - allowed
            if unknown:
                raise token.error(f"there is no dimension '{min(unknown)}': declare it with DIM")
            for found in lookups_of(e):
                lengths = lengths_name(found.tensor.name)
                declared = self.declared.get(found.tensor.name if lengths is None else lengths)
                if declared is None or declared.table is None or not (lengths is None or declared.table.lengths):
                    raise token.error(f"'{found.tensor}' is not a table")
                size = declared.shape[0] if lengths is None else declared.shape[0] + 1
                if size is not found.size:
                    raise token.error(f"table '{found.tensor}' has {size} elements, not {found.size}")

    def _tensor(self, name: Name) -> TensorView:
        if name.text not in self.tensors:
            raise name.token.error(f"there is no tensor '{name.text}'")
        return self.tensors[name.text]

    def _order(self) -> list[TensorText]:
        """The tensors in the order they were made."""
        if self.text.order is None:
            return self.text.tensors
        token, names = self.text.order
        found: dict[str, TensorText] = {}
        for name in names:
            if name.text not in self.declared:
                raise name.token.error(f"there is no tensor '{name.text}'")
            if name.text in found:
                raise name.token.error(f"ORDER names {name.text} twice")
            found[name.text] = self.declared[name.text]
        missing = [n for n in self.declared if n not in found]
        if missing:
            raise token.error(f"ORDER leaves out {missing[0]}")
        return list(found.values())

    def _schedules(self) -> dict[str, ScheduleText]:
        found: dict[str, ScheduleText] = {}
        for s in self.text.schedules:
            if s.tensor.text not in self.declared:
                raise s.tensor.token.error(f"there is no tensor '{s.tensor.text}'")
            if s.tensor.text in found:
                raise s.tensor.token.error(f"{s.tensor.text} has a SCHEDULE line already")
            found[s.tensor.text] = s
        return found

    # -- schedules ------------------------------------------------------------------------------------------------------------------

    def _schedule(self, t: TensorText, text: ScheduleText | None, axes: TextAxes) -> None:
        tv = self.tensors[t.name.text]
        if t.root is not None and (text is None or text.logical is None):
            raise t.name.token.error(f"{tv.name} has a root domain of its own: its SCHEDULE line must give the logical domain")
        if text is None:
            return
        if t.root is None and text.logical is not None:
            raise text.tensor.token.error(f"{tv.name} has no root domain of its own: its shape is the logical domain")

        def axis_list(names: Sequence[Name]) -> tuple[Axis, ...]:
            for k, name in enumerate(names):
                if any(name.text == other.text for other in names[:k]):
                    raise name.token.error(f"axis '{name.text}' is given twice")
            return tuple(axes.of(tv.name, name) for name in names)

        schedule = TensorSchedule([])
        schedule.transforms = [axes.transform(tv.name, transform) for transform in text.transforms]
        if text.logical is not None:
            tv.logical = axis_list(text.logical)
            if tv.shape != t.shape:
                raise t.name.token.error(f"the logical domain of {tv.name} is {shape_text(tv.shape)}, its shape {shape_text(t.shape)}")
        schedule.loop = list(tv.root if text.loop is None else axis_list([b.name for b in text.loop]))
        schedule.inline = text.inline
        schedule.memory, schedule.stages, schedule.ring, schedule.atom = text.memory, text.stages, text.ring, text.atom
        if text.allocation is not None:
            schedule.allocation = axis_list([b.name for b in text.allocation])
        schedule.atom_axes = axis_list(text.atom_axes)
        schedule.in_flight, schedule.pipeline_stage, schedule.turns = text.in_flight, text.pipeline_stage, text.turns
        self._bind(schedule, tv.name, (*(text.loop or ()), *text.bind, *(text.allocation or ())), axes)
        tv.schedule = schedule

    def _bind(self, schedule: TensorSchedule, tensor: str, bound: Iterable[BoundAxis], axes: TextAxes) -> None:
        for b in bound:
            if b.ptype is ParallelType.Serial:
                continue
            a = axes.of(tensor, b.name)
            if a in schedule.ptypes:
                raise b.name.token.error(f"axis '{b.name.text}' is bound to {schedule.ptypes[a].value} already")
            schedule.ptypes[a] = b.ptype

    # -- the math -------------------------------------------------------------------------------------------------------------------

    def _define_all(self) -> None:
        above: set[str] = set()
        for t in self.text.tensors:
            tv = self.tensors[t.name.text]
            if t.value is None:
                self.fusion.add_input(tv)
            else:
                expr = self._value(t, tv, above)
                broken = broken_rule(expr, self.fusion.dims.values())
                if broken is not None:
                    raise t.name.token.error(f"{tv.name} cannot be computed: {broken}")
                self.fusion.define(expr)
            above.add(tv.name)
            if t.origin is not None:
                tv.origin = self._tensor(t.origin)
            if t.owner is not None:
                self.fusion.set_owner(tv, self._tensor(t.owner))

    def _value(self, t: TensorText, tv: TensorView, above: set[str]) -> MathExpr:
        space, location = len(tv.root), self._location(t.name.token)

        def operands(texts: Sequence[OperandText]) -> tuple[Operand, ...]:
            return tuple(self._operand(o, space, above, t.name.token) for o in texts)

        match t.value:
            case PointwiseText():
                return Pointwise(tv, t.value.op, operands(t.value.operands), location)
            case FirstValidText():
                return FirstValid(tv, t.value.label, operands(t.value.operands), location)
            case ReductionText():
                factor = () if t.value.rescaled is None else operands(t.value.rescaled[1:2])
                return self._reduction(t.value, tv, operands(t.value.operands), factor, location)
            case ViewText():
                return View(tv, t.value.label, self._read(t.value.operand, space, above), location)
            case AssembleText():
                parts = tuple(self._read(p, None, above) for p in t.value.parts)
                for p, part, place in zip(t.value.parts, parts, t.value.places, strict=True):
                    update = self.fusion.definition(part.tensor)
                    values = len(update.extents) if isinstance(update, Update) else 0
                    self._check_symbols(p.name.token, place, part.tensor.ndim, values)
                    if len(place) != tv.ndim:
                        raise p.name.token.error(f"{tv.name} has {counted_axes(tv.ndim)}, the place of {p.name.text} has {len(place)}")
                return Assemble(tv, parts, t.value.places, location)
            case GatherText(table=table, values=values, extents=extents):
                self._check_symbols(t.name.token, extents, 0)
                reads = (self._read(table, space, above, len(values)), *(self._read(v, space, above) for v in values))
                return Gather(tv, reads, extents, location)
            case UpdateText(combine=combine, target=target, operand=operand, values=values, extents=extents):
                self._check_symbols(t.name.token, extents, 0)
                into = self._read(target, space, above, len(values))
                reads = tuple(self._read(v, space, above) for v in values)
                return Update(tv, combine, (into, *operands((operand,)), *reads), extents, location)
            case ScanText(combine=combine, operand=operand, axis=axis, token=token):
                if axis >= space:
                    raise token.error(f"{tv.name} has {counted_axes(space)}, there is no i{axis}")
                start = t.value.start
                self._check_symbols(token, (start,), space)
                if str(iteration_symbol(axis)) in start.free or elements_of(start):
                    raise token.error(f"{tv.name} cannot start there: its start is not a function of the other axes")
                return Scan(tv, combine, operands((operand,)), axis, location, t.value.is_exclusive, start)
            case FoldText(axis=axis, token=token):
                if [k for k, a in enumerate(tv.root) if a.is_reduction] != [axis]:
                    raise token.error(f"{tv.name} is folded along i{axis}, which has to be its only reduction axis")
                return Fold(tv, t.value.step, operands(t.value.operands), axis, t.value.init, location)
            case None:
                raise AssertionError(tv.name)

    def _reduction(self, text: ReductionText, tv: TensorView, terms: tuple[Operand, ...], factor: tuple[Operand, ...], location: Location) -> Reduction:
        axis = None if text.rescaled is None else text.rescaled[0]
        starts, ends = (tuple((k, e) for k, e, _ in bounds) for bounds in (text.starts, text.ends))
        made = Reduction(tv, text.combine, text.body, (*terms, *factor), text.init, location, axis, ends, starts)
        if text.rescaled is not None and (wrong := misplaced_factor(made)) is not None:
            raise text.rescaled[2].error(f"{tv.name} cannot be rescaled along i{axis}: {wrong}")
        bounds = (*text.starts, *text.ends)
        for _, e, token in bounds:
            self._check_symbols(token, (e,), len(tv.root))
        if bounds and (wrong := misplaced_bound(made)) is not None:
            raise bounds[0][2].error(f"the terms of {tv.name} cannot {'start' if text.starts else 'end'} there: {wrong}")
        return made

    def _operand(self, text: OperandText, space: int, above: set[str], token: Token) -> Operand:
        if not isinstance(text, ReadText):
            if isinstance(text, IndexValue):
                self._check_symbols(token, (text.index,), space)
            return text
        scalar = self.scalars.get(text.name.text)
        if scalar is None:
            return self._read(text, space, above)
        if text.index is not None:
            raise text.name.token.error(f"'{scalar.name}' is a scalar and has no index")
        return ScalarRead(scalar)

    def _read(self, text: ReadText, space: int | None, above: set[str], values: int = 0) -> Read:
        """A read in an iteration space of ``space`` axes (``None``: that of the tensor which is read), with so many values of a gather."""
        token = text.name.token
        tv = self._tensor(text.name)
        if tv.name not in above:
            raise token.error(f"{tv.name} is defined below this line")
        size = tv.ndim if space is None else space
        if text.index is None and tv.ndim != size:
            raise token.error(f"{tv.name} has {counted_axes(tv.ndim)}, the iteration space has {size}: give the index")
        index = tuple(iteration_symbol(k) for k in range(size)) if text.index is None else text.index
        if len(index) != tv.ndim:
            raise token.error(f"{tv.name} has {counted_axes(tv.ndim)}, the index has {len(index)}")
        self._check_symbols(token, (*index, text.valid), size, values)
        return Read(tv, index, text.valid)

    # -- tasks ----------------------------------------------------------------------------------------------------------------------

    def _build_tree(self, axes: TextAxes) -> None:
        if not self.text.nodes:
            return
        groups: list[tuple[GroupText, Group]] = []
        with self._located(self.text.nodes[0].name.token):
            self.fusion.tasks.rebuild(lambda: self._add_nodes(groups))
        for n, group in groups:
            group.pingpong_axis = None if n.pingpong is None else axes.named(n.pingpong)
            if n.ptype is not None:
                with self._located(n.name.token):
                    group.parallelize(n.ptype)

    def _location(self, token: Token) -> Location:
        return Location(self.file, token.line, token.column - 1)

    @contextmanager
    def _located(self, token: Token) -> Generator[None, None, None]:
        """Errors of the fusion itself point to ``token``."""
        try:
            yield
        except (FusionError, TaskError) as error:
            if error.location is None or error.location.file != self.file:
                error.location = self._location(token)
            raise

    def _add_nodes(self, groups: list[tuple[GroupText, Group]]) -> None:
        nodes: dict[str, Node] = {}
        for n in self.text.nodes:
            with self._located(n.name.token):
                match n:
                    case TaskText():
                        node: Node = self.fusion.task([self._tensor(t) for t in n.tensors], n.name.text)
                    case GroupText():
                        for m in n.members:
                            if m.text not in nodes:
                                raise m.token.error(f"there is no task or group '{m.text}' above this line")
                        node = self.fusion.group([nodes[m.text] for m in n.members], n.name.text)
                        groups.append((n, node))
                node.location = self._location(n.name.token)
                if n.budget is not None:
                    node.registers(n.budget or None)
                nodes[n.name.text] = node
