"""unroll_reduction: a reduction over axes of constant extent as elementwise functions of its terms, one after another.

``y[m, n] = sum over k < 3 of f(a[m, k], b[n, k])`` becomes ``y[m, n] = (f(a[m, 0], b[n, 0]) + f(a[m, 1], b[n, 1])) + f(a[m, 2], b[n, 2])``. It is
then elementwise, and its readers can compute it in their own loops.
"""

from __future__ import annotations

from itertools import product

from taskfuse.ir.axes import axis, iteration_point, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Operand, Pointwise, Read, Reduction, at_point, is_same_number, operand_dtype
from taskfuse.ir.scalar import Const, Expr, const
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers

MOST = 16
"""The most terms of a reduction that is unrolled."""


def unroll_reduction(tv: TensorView) -> tuple[TensorView, ...]:
    """See :meth:`TensorView.unroll_reduction`.

    Raises:
        ScheduleError: ``tv`` is not a reduction, has a schedule or more than :data:`MOST` terms, or its terms differ in dtype from its accumulator.
        TaskError: a law of tasks and groups is broken.
    """
    call = Call("unroll_reduction", tv)
    fusion, definition = tv.fusion, call.reduction()
    if tv.loop != tv.root:
        raise call.error(f"the loops of {tv.name} are not the axes of its math", "call unroll_reduction before split, merge, reorder and rfactor")
    extents = [a.extent for a in tv.root if a.is_reduction]
    counts = [e.value for e in extents if isinstance(e, Const)]
    terms = 1
    for n in counts:
        terms *= n
    if len(counts) < len(extents) or not 1 <= terms <= MOST:
        raise call.error(f"it has {' x '.join(map(str, extents))} terms", f"a reduction of up to {MOST} terms can be unrolled; chunk_reduction makes it one")
    if not definition.is_whole:
        raise call.error("its terms start late or end early", "call unroll_reduction before cascade")
    if tv.dtype.compute is not tv.dtype or any(operand_dtype(o) is not tv.dtype for o in definition.operands):
        raise call.error(f"its terms are rounded to {tv.dtype.name}, which its operands or its arithmetic are not", "cast its operands first")
    call.check_not_inlined()
    for producer in inlined_producers(tv):
        raise call.error(f"{producer.name} is inlined into it at {producer.schedule.inline}", f"unroll it before inlining, or {producer.name}.inline_at(0)")
    fusion.check()
    made: list[TensorView] = []

    def new(op: str, operands: tuple[Operand, ...]) -> TensorView:
        tensor = fusion.new_tensor([axis(a.extent) for a in left], tv.dtype, location=caller(), origin=tv)
        join_task(tensor, tv)
        made.append(fusion.define(Pointwise(tensor, ELEMENTWISE[op], operands, definition.location)))
        return tensor

    left = [a for a in tv.root if not a.is_reduction]
    here = iteration_point(len(left))
    found: list[Operand] = []
    if not is_same_number(definition.init.value, definition.combine.neutral(tv.dtype)):
        found.append(definition.init)
    for at in product(*(range(n) for n in counts)):
        own = [at_point(o, _point(tv, at)) for o in definition.operands]
        found.append(own[0] if definition.body is ELEMENTWISE["copy"] else Read(new(definition.body.name, tuple(own)), here))
    while len(found) > 2:
        found[:2] = [Read(new(definition.combine.op.name, (found[0], found[1])), here)]
    tv.root = tuple(left)
    tv.schedule = TensorSchedule(list(left))
    op = definition.combine.op if len(found) == 2 else ELEMENTWISE["copy"]
    fusion.define(Pointwise(tv, op, tuple(found), definition.location))
    return tuple(made)


def can_unroll(tv: TensorView, expr: Reduction, most: int) -> bool:
    """Whether :func:`unroll_reduction` takes a reduction without a schedule that has at most ``most`` terms."""
    terms = 1
    for a in tv.root:
        if a.is_reduction:
            terms *= a.extent.value if isinstance(a.extent, Const) else MOST + 1
    plain = expr.rescaled is None and expr.is_whole and tv.dtype.compute is tv.dtype
    return 1 < terms <= min(most, MOST) and plain and all(operand_dtype(o) is tv.dtype for o in expr.operands)


def _point(tv: TensorView, at: tuple[int, ...]) -> dict[str, Expr]:
    """The place of one term, in the iteration symbols of the axes that are left."""
    values, kept = iter(at), 0
    point: dict[str, Expr] = {}
    for k, a in enumerate(tv.root):
        name = str(iteration_symbol(k))
        if a.is_reduction:
            point[name] = const(next(values))
        else:
            point[name], kept = iteration_symbol(kept), kept + 1
    return point
