"""The text of a fusion: its math, its schedule, its tasks and groups. docs/fusion-text.md has the grammar; ``parse_fusion`` reads it back.

The text has everything that lowering reads, so equal texts lower to equal kernels.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from taskfuse.dtypes import DType
from taskfuse.errors import FusionError
from taskfuse.ir.axes import Axis, AxisKind, Rasterize, Transform, is_map_symbol, iteration_point, iteration_symbol, value_symbol
from taskfuse.ir.dims import Dim
from taskfuse.ir.expr import (
    Assemble,
    Finder,
    FirstValid,
    Fold,
    Gather,
    IndexValue,
    Literal,
    MathExpr,
    Operand,
    Pointwise,
    Read,
    Reduction,
    ScalarRead,
    Scan,
    Update,
    View,
    map_exprs,
    reads,
)
from taskfuse.ir.fusion import Fusion, Result
from taskfuse.ir.identity import alike
from taskfuse.ir.scalar import TRUE, ZERO, Expr, integers_of
from taskfuse.ir.syntax import (
    EXCLUSIVE,
    INDEX,
    INTO,
    KIND_WORDS,
    RESCALED,
    RESERVED,
    SINCE,
    STRIDES,
    TABLE,
    UNTIL,
    ClauseWord,
    Keyword,
    arguments_of,
    default_outputs,
)
from taskfuse.ir.tasks import Group, Node, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType

_PLAIN = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)


def fusion_to_text(fusion: Fusion) -> str:
    """The text of ``fusion``, without a final newline.

    Raises :class:`FusionError` for a fusion without a text: a tensor without a definition that is not an input, or a domain with an axis that
    is neither a root axis, nor foreign, nor made by a transform.
    """
    return "\n".join(_FusionPrinter(fusion).text())


def readable_order(fusion: Fusion) -> list[TensorView]:
    """Every tensor after those that it reads, otherwise in creation order."""
    done: dict[TensorView, None] = {}
    for start in fusion.tensors():
        stack = [start]
        while stack:
            expr = fusion.definition(stack[-1])
            waiting = [] if expr is None else [r.tensor for r in reads(expr) if r.tensor not in done]
            if waiting and stack[-1] not in done:
                stack += reversed(waiting)
            else:
                done[stack.pop()] = None
    return list(done)


def quoted(name: str) -> str:
    """``name`` as printed: in quotes unless it is a plain name and no keyword."""
    return name if _PLAIN.fullmatch(name) and name not in RESERVED else json.dumps(name)


def _result(result: Result) -> str:
    text = quoted(result.tensor.name)
    if result.strides is not None:
        text += f" {STRIDES} {_exprs(result.strides)}"
    return text if result.into is None else f"{text} {INTO} {quoted(result.into.name)}"


def _list(items: Iterable[str]) -> str:
    return f"[{', '.join(items)}]"


def _exprs(items: Iterable[Expr]) -> str:
    return _list(map(str, items))


class _FusionPrinter:
    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.follows = {tv: self._root_follows(tv) for tv in fusion.tensors()}
        self.untouched = {tv for tv, follows in self.follows.items() if follows and tv.schedule.is_untouched(tv.root)}
        self.axes = {tv: {} if tv in self.untouched else self._name_axes(tv) for tv in fusion.tensors()}
        self.lost: dict[Axis, str] = {}

    @cached_property
    def home(self) -> dict[Axis, tuple[TensorView, str]]:
        """The first tensor that has an axis, and its name there."""
        found: dict[Axis, tuple[TensorView, str]] = {}
        for tv, names in self.axes.items():
            for a, name in (names or self._name_axes(tv)).items():
                found.setdefault(a, (tv, name))
        return found

    def text(self) -> Iterator[str]:
        fusion = self.fusion
        yield f"{Keyword.FUSION.value} {quoted(fusion.name)}"
        dims = list(self._dims())
        if dims:
            yield f"{Keyword.DIM.value} {', '.join(dims)}"
        if fusion.integers:
            yield f"{Keyword.INTEGER.value} {', '.join(fusion.integers)}"
        for scalar in fusion.scalars:
            yield f"{Keyword.SCALAR.value} {quoted(scalar.name)}: {scalar.dtype.name}"
        shown = readable_order(fusion)
        self._check_inputs(shown)
        for tv in shown:
            yield self._tensor(tv)
        if fusion.results:
            yield f"{Keyword.OUTPUT.value} {', '.join(map(_result, fusion.results))}"
        if not alike(shown, fusion.tensors()):
            yield f"{Keyword.ORDER.value} {self._names(fusion.tensors())}"
        if fusion.residents > 1:
            yield f"{Keyword.RESIDENT.value} {fusion.residents}"
        for tv in shown:
            clauses = [] if tv in self.untouched else list(self._clauses(tv))
            if clauses:
                yield f"{Keyword.SCHEDULE.value} {quoted(tv.name)}: {'; '.join(clauses)}"
        for node in fusion.tasks.nodes:
            match node:
                case Task():
                    yield f"{Keyword.TASK.value} {quoted(node.name)} = {self._names(node.tensors)}{_budget(node)}"
                case Group():
                    yield self._group(node)

    def _names(self, tensors: Iterable[TensorView]) -> str:
        return ", ".join(quoted(tv.name) for tv in tensors)

    # -- the math -------------------------------------------------------------------------------------------------------------------

    def _dims(self) -> Iterator[str]:
        """Facts about symbols; symbols of the math that have none are named too, so that the text declares all it uses."""
        dims = self.fusion.dims
        for d in dims.values():
            known = Dim(d.name)
            text = d.name
            if d.min != known.min:
                text += f" min {d.min}"
            if d.limit is not None:
                text += f" max {d.limit}"
            yield text if d.multiple_of == known.multiple_of else f"{text} multiple_of {d.multiple_of}"
        used: dict[str, None] = {}
        for tv in self.fusion.tensors():
            expr = self.fusion.definition(tv)
            others = () if self.follows[tv] else tv.shape  # else they are among those of its root domain
            for e in (*[a.extent for a in tv.root], *others, *(() if expr is None else map_exprs(expr))):
                if e.free:
                    used.update(dict.fromkeys(sorted(integers_of(e))))
        yield from (name for name in used if name not in dims and not is_map_symbol(name))

    def _check_inputs(self, shown: Sequence[TensorView]) -> None:
        undefined = [tv for tv in shown if self.fusion.definition(tv) is None]
        if not alike(undefined, self.fusion.inputs):
            names = [self._names(tensors) or "none" for tensors in (undefined, self.fusion.inputs)]
            raise FusionError(fusion=self.fusion.name, reason=f"the tensors without a definition ({names[0]}) are not its inputs ({names[1]})")

    def _tensor(self, tv: TensorView) -> str:
        expr = self.fusion.definition(tv)
        text = f"{quoted(tv.name)}: {tv.dtype.name}{_exprs(tv.shape)}"
        if expr is None:
            text = f"{Keyword.INPUT.value} {text}"
            if tv in self.fusion.strides:
                text += f" {STRIDES} {_exprs(self.fusion.strides[tv])}"
            if tv in self.fusion.tables:
                text += f" {TABLE} {self.fusion.tables[tv]}"
        if not self.follows[tv]:
            text += f" root {_list(self._axis(a) for a in tv.root)}"
        if expr is not None:
            text += f" = {self._value(expr)}"
        if tv.origin is not None:
            text += f" from {quoted(tv.origin.name)}"
        owner = self.fusion.owner(tv)
        return text if owner is None else f"{text} for {quoted(owner.name)}"

    def _root_follows(self, tv: TensorView) -> bool:
        """True if the shape, with the reduction axes of a reduction, tells the root domain."""
        if tv.logical != tuple([a for a in tv.root if a.kind is AxisKind.ITERATION]):
            return False
        if len(tv.logical) == len(tv.root):
            return True
        is_reduced = isinstance(self.fusion.definition(tv), Reduction | Fold)
        return is_reduced and all(a.kind is AxisKind.ITERATION or a.kind is AxisKind.REDUCTION for a in tv.root)

    def _axis(self, a: Axis) -> str:
        if a.kind is AxisKind.ITERATION and a.source is None:
            return str(a.extent)
        return f"{a.extent} {KIND_WORDS[a.kind]}{self._source(a)}"

    def _source(self, a: Axis) -> str:
        return "" if a.source is None else f" of {self._global_name(a.source)}"

    def _global_name(self, a: Axis) -> str:
        """``tv7.a1``, or ``x0`` for an axis that no tensor has any more (what is foreign of one such axis still shares its loops)."""
        found = self.home.get(a)
        if found is None:
            return self.lost.setdefault(a, f"x{len(self.lost)}")
        tv, name = found
        return f"{quoted(tv.name)}.{name}"

    def _value(self, expr: MathExpr) -> str:
        space = len(expr.output.root)
        dtype = expr.output.dtype
        match expr:
            case Pointwise():
                return f"{expr.op.name}({self._operands(expr.operands, space, dtype)})"
            case FirstValid():
                return f"select {quoted(expr.label)}({self._operands(expr.operands, space, dtype)})"
            case Reduction():
                text = f"reduce {expr.combine.name} of {expr.body.name}({self._operands(expr.terms, space, dtype)})"
                reduced = [f"i{k}: {a.extent}" for k, a in enumerate(expr.output.root) if a.is_reduction]
                if reduced and self.follows[expr.output]:
                    text += f" over {', '.join(reduced)}"
                text += f" init {_literal(expr.init, dtype)}"
                if expr.rescaled is not None:
                    text += f" {RESCALED} i{expr.rescaled} by {_operand(expr.operands[-1], space, dtype)}"
                if expr.starts:
                    text += f" {SINCE} {', '.join(f'i{k} >= {e}' for k, e in expr.starts)}"
                return text if not expr.ends else f"{text} {UNTIL} {', '.join(f'i{k} < {e}' for k, e in expr.ends)}"
            case View():
                return f"view {quoted(expr.label)}({_read(expr.operand, space)})"
            case Assemble():
                parts = (f"{_read(p, len(p.tensor.logical))} -> {_exprs(place)}" for p, place in zip(expr.parts, expr.places, strict=True))
                return f"assemble({', '.join(parts)})"
            case Gather():
                return f"gather({self._found(expr, space, dtype)})"
            case Update():
                return f"update {expr.combine.name}({self._found(expr, space, dtype)})"
            case Scan():
                text = f"scan {expr.combine.name} of {self._operands(expr.operands, space, dtype)} along {iteration_symbol(expr.axis)}"
                text += f" {EXCLUSIVE}" if expr.is_exclusive else ""
                return text if expr.start is ZERO else f"{text} {SINCE} {expr.start}"
            case Fold():
                extent = f": {expr.output.root[expr.axis].extent}" if self.follows[expr.output] else ""
                steps = f"({self._operands(expr.operands, space, dtype)}) along {iteration_symbol(expr.axis)}{extent}"
                return f"fold {expr.step.name} of {steps} init {_literal(expr.init, dtype)}"

    def _found(self, expr: Finder, space: int, dtype: DType) -> str:
        """Operands, of which the last are values that have symbols."""
        texts = [_operand(o, space, dtype) for o in expr.operands]
        first = len(texts) - len(expr.extents)
        found = (f"{value_symbol(k)} = {value} of {extent}" for k, (value, extent) in enumerate(zip(texts[first:], expr.extents, strict=True)))
        return ", ".join((*texts[:first], *found))

    def _operands(self, operands: Sequence[Operand], space: int, dtype: DType) -> str:
        return ", ".join(_operand(o, space, dtype) for o in operands)

    # -- the schedule ---------------------------------------------------------------------------------------------------------------

    def _name_axes(self, tv: TensorView) -> dict[Axis, str]:
        """Names per tensor: root axes, then foreign axes in the order they are met, then the axes that transforms make, in order."""
        schedule = tv.schedule
        made = dict.fromkeys(a for t in schedule.transforms for a in t.outputs)
        met = (*(a for t in schedule.transforms for a in t.inputs), *schedule.loop, *(schedule.allocation or ()), *tv.logical)
        starts = dict.fromkeys((*tv.root, *(a for a in met if a not in made)))
        for a in starts:
            if a not in tv.root and not a.is_foreign:
                reason = f"an axis of {tv.name} (extent {a.extent}) is neither a root axis, nor foreign, nor made by a transform"
                raise FusionError(fusion=self.fusion.name, reason=reason, location=tv.location)
        return {a: f"a{k}" for k, a in enumerate((*starts, *made))}

    def _clauses(self, tv: TensorView) -> Iterator[str]:
        schedule, names = tv.schedule, self.axes[tv]
        ptypes = {a: p for a, p in schedule.ptypes.items() if p is not ParallelType.Serial}
        made = {a for t in schedule.transforms for a in t.outputs}
        for a, name in names.items():
            if a not in tv.root and a not in made:
                yield f"{ClauseWord.FOREIGN.value} {name}: {a.extent}{self._source(a)}"
        for t in schedule.transforms:
            yield _transform(t, names)
        if not self.follows[tv]:
            yield f"{ClauseWord.LOGICAL.value} {_list(names[a] for a in tv.logical)}"
        if schedule.inline or tuple(schedule.loop) != tv.root or any(a in ptypes for a in schedule.loop):
            loop = [_bound(a, names, ptypes) for a in schedule.loop]
            head, tail = ", ".join(loop[: schedule.inline]), ", ".join(loop[schedule.inline :])
            yield f"{ClauseWord.LOOP.value} [{f'{head} | {tail}'.rstrip() if schedule.inline else tail}]"
        allocation = schedule.allocation or ()
        elsewhere = [_bound(a, names, ptypes) for a in names if a in ptypes and a not in schedule.loop and a not in allocation]
        if elsewhere:
            yield f"{ClauseWord.BIND.value} {_list(elsewhere)}"
        if schedule.memory is not None:
            yield f"{ClauseWord.MEMORY.value} {schedule.memory.value}"
        if schedule.allocation is not None:
            outside = {a: p for a, p in ptypes.items() if a not in schedule.loop}
            yield f"{ClauseWord.ALLOCATION.value} {_list(_bound(a, names, outside) for a in allocation)}"
        if schedule.stages != 1:
            yield f"{ClauseWord.STAGES.value} {schedule.stages}"
        if schedule.ring:
            yield f"{ClauseWord.RING.value} {quoted(schedule.ring)}"
        if schedule.atom is not None:
            yield f"{ClauseWord.ATOM.value} {schedule.atom.name}({', '.join(names[a] for a in schedule.atom_axes)})"
        if schedule.in_flight:
            yield f"{ClauseWord.IN_FLIGHT.value} {schedule.in_flight}"
        if schedule.pipeline_stage:
            yield f"{ClauseWord.PIPELINE_STAGE.value} {schedule.pipeline_stage}"
        if schedule.turns is not None:
            yield f"{ClauseWord.TURNS.value} {schedule.turns.value}"

    # -- tasks ----------------------------------------------------------------------------------------------------------------------

    def _group(self, group: Group) -> str:
        text = f"{Keyword.GROUP.value} {quoted(group.name)} = {', '.join(quoted(m.name) for m in group.members)}"
        if group.ptype is not None:
            text += f" on {group.ptype.value}"
        if group.pingpong_axis is not None:
            text += f" pingpong {self._global_name(group.pingpong_axis)}"
        return f"{text}{_budget(group)}  # {group.kind.value}"


def _budget(node: Node) -> str:
    return "" if node.budget is None else f" registers {node.budget or 'chosen'}"


def _operand(operand: Operand, space: int, dtype: DType) -> str:
    match operand:
        case Read():
            return _read(operand, space)
        case Literal():
            return _literal(operand, dtype)
        case ScalarRead():
            return quoted(operand.scalar.name)
        case IndexValue():
            return f"{INDEX}({operand.index})"


def _read(read: Read, space: int) -> str:
    """``tv3[i0, 0] if i1 < S``; the index is left out if each axis is read at the iteration symbol of its place."""
    text = quoted(read.tensor.name)
    if len(read.index) != space or read.index != iteration_point(space):
        text += _exprs(read.index)
    return text if read.valid is TRUE else f"{text} if {read.valid}"


def _literal(literal: Literal, dtype: DType) -> str:
    """The value, with its dtype unless that is ``dtype``."""
    match literal.value:
        case bool():
            text = "true" if literal.value else "false"
        case int():
            text = str(literal.value)
        case float():
            text = "nan" if math.isnan(literal.value) else repr(float(literal.value))
    return text if literal.dtype is dtype else f"{text}:{literal.dtype.name}"


def _transform(t: Transform, names: Mapping[Axis, str]) -> str:
    word, arguments, inner = arguments_of(t)
    text = ", ".join(names[a] for a in t.inputs)
    shown = ", ".join(map(str, arguments))
    if shown:
        text += f" by {shown}" if isinstance(t, Rasterize) else f", {shown}"
    outputs: list[str] = []
    for a, made in zip(t.outputs, default_outputs(word, t.inputs, arguments, inner), strict=True):
        outputs.append(names[a] if (a.extent, a.kind) == made else f"{names[a]} as {KIND_WORDS[a.kind]}: {a.extent}")
    return f"{word.value}({text}{'' if inner else ' outer'}) -> {', '.join(outputs)}"


def _bound(a: Axis, names: Mapping[Axis, str], ptypes: Mapping[Axis, ParallelType]) -> str:
    return f"{names[a]}:{ptypes[a].value}" if a in ptypes else names[a]
