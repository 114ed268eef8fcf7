"""split_reduction: a reduced axis as two, the digits of its index.

``y[m] = sum over k of x[m, k // 64, k % 64]`` becomes ``y[m] = sum over a, b of x[m, a, b]``: a reduction of a reshaped tensor reads it in place.
"""

from __future__ import annotations

from dataclasses import replace

from taskfuse.ir.axes import AxisKind, axis, iteration_symbol
from taskfuse.ir.expr import IndexValue, Literal, Operand, Read, Reduction, ScalarRead, at_point
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const, Expr, FloorDiv, Mod, const, is_multiple, simplify
from taskfuse.ir.storage import resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.schedule.call import Call
from taskfuse.schedule.chunk_reduction import divided_axis


def split_reduction(tv: TensorView, position: int, inner: object) -> None:
    """See :meth:`TensorView.split_reduction`.

    Raises:
        ScheduleError: ``tv`` is not a reduction over that axis or has a schedule, or ``inner`` does not provably divide the axis.
    """
    k, length, definition = divided_axis(Call("split_reduction", tv), position, inner, "the inner axis")
    outer = simplify(tv.root[k].extent // length, tv.fusion.facts())
    operands = tuple(_at_digits(tv, k, length, outer, operand) for operand in definition.operands)
    tv.root = (*tv.root[:k], axis(outer, AxisKind.REDUCTION), axis(const(length), AxisKind.REDUCTION), *tv.root[k + 1 :])
    tv.schedule = TensorSchedule(list(tv.root))
    tv.fusion.define(Reduction(tv, definition.combine, definition.body, operands, definition.init, definition.location))


def digits(fusion: Fusion, expr: Reduction) -> tuple[int, int] | None:
    """A reduced axis whose digits index the operands, and the length of the inner one; ``None`` if there is none."""
    tv = expr.output
    reads = [resolve(fusion, operand) for operand in expr.operands if isinstance(operand, Read)]
    for k, a in enumerate(tv.root):
        if not a.is_reduction:
            continue
        symbol = iteration_symbol(k)
        found = {length for r in reads for e in r.index for length in _lengths(e, symbol)}
        for length in sorted(found, reverse=True):
            if length > 1 and a.extent is not const(length) and is_multiple(a.extent, length, fusion.facts()):
                outer = simplify(a.extent // length, fusion.facts())
                new = {str(iteration_symbol(k)), str(iteration_symbol(k + 1))}
                moved = [_at_digits(tv, k, length, outer, r) for r in reads]
                if all(isinstance(m, Read) and m.valid is r.valid and not any(new <= e.free for e in m.index) for m, r in zip(moved, reads, strict=True)):
                    return k, length
    return None


def _lengths(e: Expr, symbol: Expr) -> tuple[int, ...]:
    """The numbers by which a symbol is divided in an index that is one of its digits."""
    match e:
        case FloorDiv(a=a, b=Const(value=length)) if a is symbol:
            return (length,)
        case Mod(a=a, b=Const(value=length)):
            return (length,) if a is symbol else _lengths(a, symbol)
        case _:
            return ()


def _at_digits(tv: TensorView, k: int, length: int, outer: Expr, operand: Operand) -> Operand:
    """An operand at the two digits of an index."""
    facts = tv.fusion.facts()
    extents = [*(a.extent for a in tv.root[:k]), outer, const(length), *(a.extent for a in tv.root[k + 1 :])]
    for p, extent in enumerate(extents):
        facts = facts.with_range(str(iteration_symbol(p)), 0, extent - 1)
    place: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(p + 1) for p in range(k + 1, len(tv.root))}
    place[str(iteration_symbol(k))] = iteration_symbol(k) * length + iteration_symbol(k + 1)
    moved = at_point(resolve(tv.fusion, operand) if isinstance(operand, Read) else operand, place)
    match moved:
        case Read():
            return replace(moved, index=tuple(simplify(e, facts) for e in moved.index), valid=simplify(moved.valid, facts))
        case IndexValue():
            return IndexValue(simplify(moved.index, facts))
        case Literal() | ScalarRead():
            return moved
