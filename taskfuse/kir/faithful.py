"""Compares the definitions of a kernel with the expressions of the fusion that it was lowered from.

The proof compares a kernel with its definitions, so these must be right. Lowering writes them; this module compares them with the fusion, definition by
definition: function, compute dtype, operands with their indices, conditions, combining function, initial value, axis, extents. It shares no code with
lowering, and reads the fusion as the caller scheduled it, before lowering copies and prepares it (except for names that are invalid in a kernel and are
replaced there). Two facts about the names are used: a tensor ``t.b`` that the fusion lacks is a copy of ``t``; and a view of the fusion may have
no definition, so that its readers read the underlying tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from taskfuse.errors import VerifyError
from taskfuse.ir.axes import Axis, Rasterize, iteration_point
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import (
    Assemble,
    FirstValid,
    Fold,
    Gather,
    IndexValue,
    Literal,
    MathExpr,
    Pointwise,
    Read,
    Reduction,
    ScalarRead,
    Scan,
    Update,
    View,
    operand_dtype,
)
from taskfuse.ir.expr import Operand as Wanted
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, Expr, and_, substitute
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.written import as_written
from taskfuse.kir.declarations import IntegerParam, Param, ScalarParam, TensorParam
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.operands import Access, Immediate, IndexOf, Operand, ScalarValue
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Send, Whole


class Unfaithful(Exception):
    """A definition that differs from the fusion."""


def check_faithful(kernel: Kernel, fusion: Fusion) -> None:
    """Return if a kernel's arguments and definitions equal those of a fusion, and its written definitions those of the original (:mod:`taskfuse.ir.written`).

    Raises:
        VerifyError: they differ; the message names the first tensor that does, and the difference.
    """
    try:
        comparison = _Comparison(kernel.definitions, fusion)
        comparison.arguments(kernel)
        comparison.definitions()
        written = as_written(fusion)
        if written is not None:
            _Comparison(kernel.written, written).definitions()
        elif kernel.written:
            raise Unfaithful("it was not rewritten, and the kernel says so")
    except Unfaithful as error:
        help = "this is a fault of lowering, not of the schedule: report it with the fusion's text"
        raise VerifyError(reason=f"the definitions of kernel '{kernel.name}' are not those of its fusion: {error}", help=help) from None


class _Comparison:
    def __init__(self, definitions: tuple[Definition, ...], fusion: Fusion) -> None:
        self._definitions = definitions
        self._fusion = fusion
        self._tensors = {tv.name: tv for tv in fusion.tensors()}
        self._defined = {d.tensor for d in definitions}
        self._above: set[str] = set()

    def arguments(self, kernel: Kernel) -> None:
        """Compare the arguments of the kernel."""
        fusion = self._fusion
        wanted: list[Param] = []
        for tv in fusion.inputs:
            param, known = TensorParam(tv.name, tv.dtype, tuple(tv.shape), False), fusion.tables.get(tv)
            if known is not None:
                rises, lengths = (known.low, known.high) if known.rises else None, known.high if known.lengths else None
                param = replace(param, rises=rises, search=known.search, holds=known.holds, lengths=lengths)
            wanted.append(param)
        wanted += [ScalarParam(s.name, s.dtype) for s in fusion.scalars]
        wanted += map(IntegerParam, fusion.integers)
        for tv in fusion.outputs:
            places = [r.into for r in fusion.results if r.tensor is tv and r.into is not None and r.into.is_input]
            wanted.append(TensorParam(tv.name, tv.dtype, tuple(tv.shape), True, places[0].name if places else None))
        _equal("list of arguments", wanted, [p for p in kernel.params if isinstance(p, (TensorParam, ScalarParam, IntegerParam))])

    def definitions(self) -> None:
        """Compare all definitions, in order."""
        if len(self._defined) < len(self._definitions):
            raise Unfaithful("a tensor has two definitions")
        for tv in self._fusion.outputs:
            if tv.name not in self._defined:
                raise Unfaithful(f"{tv.name} has none")
        for d in self._definitions:
            try:
                self._definition(d)
            except Unfaithful as error:
                raise Unfaithful(f"{d.tensor}: {error}") from None
            self._above.add(d.tensor)

    def _definition(self, d: Definition) -> None:
        tv = self._tensor(d.tensor)
        own = tv.name == d.tensor
        expr = self._fusion.definition(tv) if own else _copy(tv)
        if expr is None:
            raise Unfaithful("it is an argument")
        space = [a.extent for a in tv.root] if own else tv.shape
        _equal("dtype", tv.dtype, d.dtype)
        _equal("shape", tuple(tv.shape), d.shape)
        _equal("iteration space", tuple(space), d.space)
        _equal("place of a point", _places(tv) if own else iteration_point(tv.ndim), d.place)
        self._rule(expr, d)

    def _rule(self, expr: MathExpr, d: Definition) -> None:
        """Check the rule of a definition against an expression."""
        wide = expr.output.dtype.compute
        match expr, d.rule:
            case Pointwise(), Apply() as rule:
                _equal("function", expr.op.name, rule.op.name)
                _equal("dtype of the function", expr.op.compute_dtype(tuple(map(operand_dtype, expr.operands)), d.dtype), rule.dtype)
                self._operands(expr.operands, rule.operands)
            case View(), Apply() as rule:
                _equal("function", "copy", rule.op.name)
                _equal("dtype of the function", d.dtype, rule.dtype)
                self._operands(expr.operands, rule.operands)
            case FirstValid(), Pick() as rule:
                self._operands(expr.operands, [c.operand for c in rule.cases])
                conditions = [self._seen(o)[2] if isinstance(o, Read) else TRUE for o in expr.operands]
                _equal("conditions", conditions, [c.cond for c in rule.cases])
            case Reduction(), Reduce() as rule:
                _equal("combine", expr.combine, rule.combine)
                _equal("function", expr.body.name, rule.body.name)
                _equal("start", Immediate(expr.init.value, expr.init.dtype), rule.init)
                _equal("dtype of the sum", wide, rule.dtype)
                _equal("axis along which it is rescaled", expr.rescaled, rule.rescaled)
                _equal("starts of its terms", expr.starts, rule.starts)
                _equal("ends of its terms", expr.ends, rule.ends)
                self._operands(expr.operands, rule.operands)
            case Scan(), Accumulate() as rule:
                _equal("combine", expr.combine, rule.combine)
                _equal("axis", expr.axis, rule.axis)
                _equal("whether it is exclusive", expr.is_exclusive, rule.is_exclusive)
                _equal("start of its terms", expr.start, rule.start)
                _equal("dtype of the sum", wide, rule.dtype)
                self._operands(expr.operands, (rule.operand,))
            case Fold(), Iterate() as rule:
                _equal("step", expr.step.name, rule.op.name)
                _equal("axis", expr.axis, rule.axis)
                _equal("start", Immediate(expr.init.value, expr.init.dtype), rule.init)
                _equal("dtype of the state", wide, rule.dtype)
                self._operands(expr.operands, rule.operands)
            case Gather(), Find() as rule:
                _equal("extents of the values", expr.extents, rule.extents)
                self._operands(expr.operands, (rule.source, *rule.values))
            case Update(), Send() as rule:
                _equal("combine", expr.combine, rule.combine)
                _equal("extents of the values", expr.extents, rule.extents)
                self._operands(expr.operands[1:], (rule.operand, *rule.values))
            case Assemble(places=places, parts=parts), Whole() as rule:
                _equal("places of the parts", places, rule.places)
                _equal("conditions of the parts", tuple(part.valid for part in parts), rule.conditions)
                self._parts(parts, rule.parts)
            case _:
                raise Unfaithful(f"{type(expr).__name__} became {type(d.rule).__name__}")

    def _operands(self, wanted: Sequence[Wanted], found: Sequence[Operand]) -> None:
        _equal("number of operands", len(wanted), len(found))
        for k, (a, b) in enumerate(zip(wanted, found, strict=True)):
            what = f"operand {k}"
            match a, b:
                case Read(), Access(buffer=name, index=index):
                    self._same_element(what, a, Read(self._tensor(name), index))
                    self._is_there(name)
                case Literal(), Immediate():
                    _equal(what, Immediate(a.value, a.dtype), b)
                case ScalarRead(), ScalarValue():
                    _equal(what, a.scalar.name, b.name)
                case IndexValue(), IndexOf():
                    _equal(what, a.index, b.value)
                case _:
                    raise Unfaithful(f"{what}: {type(a).__name__} became {type(b).__name__}")

    def _parts(self, wanted: Sequence[Read], found: Sequence[str]) -> None:
        """A part is a tensor of the same shape, each element of which is that of the part wanted."""
        _equal("number of parts", len(wanted), len(found))
        for k, (a, name) in enumerate(zip(wanted, found, strict=True)):
            tv = self._tensor(name)
            _equal(f"shape of part {k}", tuple(a.tensor.shape), tuple(tv.shape))
            self._same_element(f"part {k}", Read(a.tensor, iteration_point(tv.ndim)), Read(tv, iteration_point(tv.ndim)))
            self._is_there(name)

    def _same_element(self, what: str, wanted: Read, found: Read) -> None:
        """Two reads are of one element, views seen through."""
        (a, at, _), (b, there, _) = self._seen(wanted), self._seen(found)
        _equal(what, f"{a.name}[{', '.join(map(str, at))}]", f"{b.name}[{', '.join(map(str, there))}]")
        _equal(what, at, there)

    # -- names --------------------------------------------------------------------------------------------------------------------------

    def _tensor(self, name: str) -> TensorView:
        """The tensor of the fusion that a name stands for, as itself or as a copy of it."""
        known = name
        while known not in self._tensors:
            known, dot, _ = known.rpartition(".")
            if not dot:
                raise Unfaithful(f"the fusion has no tensor '{name}'")
        return self._tensors[known]

    def _is_there(self, name: str) -> None:
        if name not in self._above and not self._tensor(name).is_input:
            raise Unfaithful(f"it reads {name}, which is not defined above it")

    def _seen(self, read: Read) -> tuple[TensorView, tuple[Expr, ...], Expr]:
        """The tensor behind views that the kernel does not define, the index, and the condition under which the element exists."""
        tv, index, valid = read.tensor, read.index, read.valid
        while tv.name not in self._defined and isinstance(view := self._fusion.definition(tv), View):
            at = {str(i): e for i, e in zip(iteration_point(tv.ndim), index, strict=True)}
            valid = and_(valid, substitute(view.operand.valid, at))
            index = tuple(substitute(e, at) for e in view.operand.index)
            tv = view.operand.tensor
        return tv, index, valid


def _copy(tv: TensorView) -> Pointwise:
    """The definition of a copy of a tensor."""
    return Pointwise(tv, ELEMENTWISE["copy"], (Read(tv, iteration_point(tv.ndim)),))


def _places(tv: TensorView) -> tuple[Expr, ...]:
    """The element that a point of the iteration space belongs to: each logical axis from the root axes that it was made of."""
    made = {a: (t, k) for t in tv.schedule.transforms if not isinstance(t, Rasterize) for k, a in enumerate(t.outputs)}
    points = dict(zip(tv.root, iteration_point(len(tv.root)), strict=True))

    def index(a: Axis) -> Expr:
        if a in points:
            return points[a]
        transform, k = made[a]
        return transform.forward(tuple(map(index, transform.inputs)))[k]

    return tuple(map(index, tv.logical))


def _equal(what: str, wanted: object, found: object) -> None:
    """Check that two values are equal."""
    if wanted != found:
        raise Unfaithful(f"its {what} is {_shown(found)}, where the fusion has {_shown(wanted)}")


def _shown(value: object) -> str:
    match value:
        case tuple() | list():
            return f"({', '.join(map(_shown, cast('Sequence[object]', value)))})"
        case _:
            return str(value)
