"""gather_as_sum: elements that a gather picks along one axis as sums over that axis, all of whose terms but one are zero.

``y[i] = x[i, v]`` of an index v becomes ``y[i] = sum over j of where(j == v, x[i, j], 0)``. Who computes all of ``x[i, ...]`` anyway, and reduces it, picks the
element on the way: the logit of a target among those that a tile of their product has. A negative v counts from the end, and where there is no element at v,
no term is chosen: the result is 0, as that of the gather. No sum is rounded, but one of -0.0 is 0.0.
"""

from __future__ import annotations

from taskfuse.dtypes import DType, bool_, int32, int64
from taskfuse.ir.axes import AxisKind, axis, iteration_point, iteration_symbol, value_symbol
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Gather, IndexValue, Literal, MathExpr, Operand, Pointwise, Read, Reduction, View, at_point
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, ZERO, Const, Expr, substitute
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call

NOWHERE = -1
"""The place of an element that there is not."""


def gather_as_sum(tv: TensorView) -> TensorView:
    """See :meth:`TensorView.gather_as_sum`.

    Raises:
        ScheduleError: ``tv`` is not a gather of numbers along one axis, or has a schedule.
        TaskError: a law of tasks and groups is broken.
    """
    call = Call("gather_as_sum", tv)
    fusion, definition = tv.fusion, tv.definition
    if not isinstance(definition, Gather) or gathered_axis(fusion, definition) is None or tv.dtype.is_bool:
        raise call.error(f"{tv.name} is not a gather of numbers along one axis", "call it on the result of take_along_axis, or of take")
    if tv.loop != tv.root:
        raise call.error(f"the loops of {tv.name} are not the axes of its math", "call gather_as_sum before split, merge and reorder")
    call.check_not_inlined()
    fusion.check()
    source, value = storage_operands(fusion, definition)
    assert isinstance(source, Read)
    (extent,) = definition.extents
    kept = [k for k, a in enumerate(tv.root) if a.extent is not ONE]
    place: dict[str, Expr] = {str(iteration_symbol(k)): iteration_symbol(kept.index(k)) if k in kept else ZERO for k in range(len(tv.root))}
    rows = _Picked(tv, [tv.root[k].extent for k in kept])
    at = rows.place(at_point(value, place), _dtype(fusion, value), extent)
    here, j = rows.here, iteration_symbol(len(kept))
    index = tuple(substitute(e, {**place, "v0": j}) for e in source.index)
    there = rows.of("eq", (IndexValue(j), Read(at, here)), bool_, extent)
    chosen = rows.of("where", (Read(there, (*here, j)), Read(source.tensor, index, substitute(source.valid, place)), Literal.zero(tv.dtype)), tv.dtype, extent)
    made = rows.new(tv.dtype)
    made.root = (*made.root, axis(extent, AxisKind.REDUCTION))
    made.schedule = TensorSchedule(list(made.root))
    fusion.define(Reduction(made, COMBINES["add"], ELEMENTWISE["copy"], (Read(chosen, (*here, j)),), Literal.zero(tv.dtype), definition.location))
    read = Read(made, tuple(iteration_symbol(k) for k in kept))
    fusion.define(Pointwise(tv, ELEMENTWISE["copy"], (read,), definition.location) if tv.is_output else View(tv, "broadcast_to", read, definition.location))
    fusion.remove_unread([o.tensor for o in definition.operands if isinstance(o, Read)])
    return made


def gathered_axis(fusion: Fusion, expr: MathExpr | None) -> int | None:
    """The axis along which a gather picks elements of the table in memory; ``None`` if it is not one axis, or for another expression."""
    if not isinstance(expr, Gather) or len(expr.extents) != 1:
        return None
    source = storage_operands(fusion, expr)[0]
    assert isinstance(source, Read)
    found = [k for k, e in enumerate(source.index) if "v0" in e.free]
    is_axis = len(found) == 1 and source.index[found[0]] is value_symbol(0) and source.tensor.shape[found[0]] is expr.extents[0]
    return found[0] if is_axis and "v0" not in source.valid.free else None


def _dtype(fusion: Fusion, value: Operand) -> DType:
    """The dtype of an index."""
    match value:
        case Read(tensor=tensor):
            return tensor.dtype
        case Literal(dtype=dtype):
            return dtype
        case _:
            return int64


class _Picked:
    """Makes elementwise tensors with an element for each that is gathered, or also for each of the axis.

    Args:
        tv: the gather.
        shape: its extents.
    """

    def __init__(self, tv: TensorView, shape: list[Expr]) -> None:
        self.tv, self.shape = tv, shape
        self.here = iteration_point(len(shape))

    def new(self, dtype: DType, *more: Expr) -> TensorView:
        """A tensor without a definition."""
        made = self.tv.fusion.new_tensor([axis(e) for e in (*self.shape, *more)], dtype, location=caller(), origin=self.tv)
        join_task(made, self.tv)
        return made

    def of(self, op: str, operands: tuple[Operand, ...], dtype: DType, *more: Expr) -> TensorView:
        """A function of some operands."""
        return self.tv.fusion.define(Pointwise(self.new(dtype, *more), ELEMENTWISE[op], operands, caller()))

    def place(self, value: Operand, dtype: DType, extent: Expr) -> TensorView:
        """The index counted from 0; outside of the axis one that no element has. In few bits if they hold all indices: it is compared for each element."""
        wide = dtype if dtype is int32 else int64
        if dtype is not wide:
            value = Read(self.of("cast", (value,), wide), self.here)
        is_short = isinstance(extent, Const) and extent.value < 2**31
        n: Operand = Literal(extent.value, wide) if isinstance(extent, Const) and is_short else IndexValue(extent)
        back = self.of("lt", (value, Literal(0, wide)), bool_)
        behind = self.of("add", (value, n), wide)
        found = self.of("where", (Read(back, self.here), Read(behind, self.here), value), wide)
        if not is_short or wide is int32:
            return found
        starts = self.of("ge", (Read(found, self.here), Literal(0, wide)), bool_)
        ends = self.of("lt", (Read(found, self.here), n), bool_)
        inside = self.of("logical_and", (Read(starts, self.here), Read(ends, self.here)), bool_)
        there = self.of("where", (Read(inside, self.here), Read(found, self.here), Literal(NOWHERE, wide)), wide)
        return self.of("cast", (Read(there, self.here),), int32)
