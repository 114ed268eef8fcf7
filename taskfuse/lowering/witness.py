"""The witness of a kernel: definitions of the tensors that have code, and the content of the results of statements."""

from __future__ import annotations

from taskfuse.ir.axes import Axis, Rasterize, iteration_symbol
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
from taskfuse.ir.expr import Operand as MathOperand
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, Expr, const, substitute, sym
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tensor import TensorView
from taskfuse.kir.operands import Access, ChoiceCase, Content, Holds, Immediate, IndexOf, Operand, ScalarValue
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Rule, Send, Whole
from taskfuse.lowering.fragments import atom_symbols
from taskfuse.lowering.index_maps import IndexMap


def holds(tv: TensorView, index_map: IndexMap, content: Content = Content.VALUE) -> Holds:
    """The claim about the value that a statement of ``tv`` writes at the point of an index map."""
    if content is Content.RESCALED:
        kept = (a for a in tv.root if a in index_map.values)
        return Holds(tv.name, tuple(index_map.values[a] if a in kept else const(0) for a in tv.root), content)
    if content not in (Content.VALUE, Content.BODY, Content.TERM):
        return Holds(tv.name, (), content)
    every = atom_symbols(tv)
    atoms = {a: name for a, name in every.items() if a.extent is not const(1)}
    names: dict[str, Expr] = {n: const(0) for a, n in every.items() if a not in atoms}
    for k, name in enumerate(atoms.values()):
        names[name] = sym(f"tile.{k}")
    axes = tv.logical if content is Content.VALUE else tv.root
    index = tuple(substitute(index_map.values[a], names) if names else index_map.values[a] for a in axes)
    return Holds(tv.name, index, content, tuple(int(str(a.extent)) for a in atoms))


def definitions(fusion: Fusion) -> tuple[Definition, ...]:
    """The definitions of all tensors of a fusion that are not views, producers first."""
    return tuple(_definition(fusion, e) for e in fusion.exprs() if not fusion.is_view(e.output))


def _definition(fusion: Fusion, expr: MathExpr) -> Definition:
    tv = expr.output
    shape, space = tuple(a.extent for a in tv.logical), tuple(a.extent for a in tv.root)
    return Definition(tv.name, tv.dtype, shape, space, _place(tv), _rule(fusion, expr), fusion.replaced_at(tv) or tv.location)


def _place(tv: TensorView) -> tuple[Expr, ...]:
    """The logical index of a point of the iteration space."""
    at: dict[Axis, Expr] = {a: iteration_symbol(k) for k, a in enumerate(tv.root)}
    for transform in tv.schedule.transforms:
        if all(a in at for a in tv.logical):
            break
        if not isinstance(transform, Rasterize) and all(a in at for a in transform.inputs):
            at.update(zip(transform.outputs, transform.forward(tuple(at[a] for a in transform.inputs)), strict=True))
    return tuple(at[a] for a in tv.logical)


def _rule(fusion: Fusion, expr: MathExpr) -> Rule:
    tv = expr.output
    if isinstance(expr, Assemble):
        reads = tuple(o for o in storage_operands(fusion, expr) if isinstance(o, Read))
        return Whole(tuple(r.tensor.name for r in reads), expr.places, tuple(part.valid for part in expr.parts))
    resolved = storage_operands(fusion, expr)
    operands = tuple(map(_operand, resolved))
    wide = tv.dtype.compute
    match expr:
        case Pointwise():
            return Apply(expr.op, operands, expr.op.compute_dtype(tuple(operand_dtype(o) for o in expr.operands), tv.dtype))
        case View():
            return Apply(ELEMENTWISE["copy"], operands, tv.dtype)
        case FirstValid():
            conditions = (o.valid if isinstance(o, Read) else TRUE for o in resolved)
            return Pick(tuple(ChoiceCase(c, o) for c, o in zip(conditions, operands, strict=True)))
        case Reduction():
            return Reduce(expr.combine, expr.body, operands, Immediate(expr.init.value, expr.init.dtype), wide, expr.rescaled, expr.ends, expr.starts)
        case Scan():
            return Accumulate(expr.combine, operands[0], expr.axis, wide, expr.is_exclusive, expr.start)
        case Fold():
            return Iterate(expr.step, operands, expr.axis, Immediate(expr.init.value, expr.init.dtype), wide)
        case Update():
            _, sent, *found = operands
            return Send(expr.combine, sent, tuple(o for o in found if isinstance(o, Access)), expr.extents)
        case Gather():
            source, *values = (o for o in operands if isinstance(o, Access))
            return Find(source, tuple(values), expr.extents)


def _operand(operand: MathOperand) -> Operand:
    match operand:
        case Read():
            return Access(operand.tensor.name, operand.index)
        case Literal():
            return Immediate(operand.value, operand.dtype)
        case ScalarRead():
            return ScalarValue(operand.scalar.name)
        case IndexValue():
            return IndexOf(operand.index)
