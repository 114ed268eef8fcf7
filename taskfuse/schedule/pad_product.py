"""pad_product: a sum of products over a longer axis, of factors that are copied, with zeros past their ends.

``y[m, n] = sum over k < 1023 of a[m, k] * b[k, n]`` becomes ``y[m, n] = sum over k < 1024 of left[m, k] * right[n, k]``, where ``left[m, k]`` is ``a[m, k]``,
``right[n, k]`` is ``b[k, n]``, and both are 0 past the last k. Rows of the copies are contiguous along k: the copy engine loads rows that are multiples of
16 bytes, threads load others element by element.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.axes import AxisKind, axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, Literal, Pointwise, Read, Reduction
from taskfuse.ir.scalar import TRUE, Const, Expr, const, lt, substitute
from taskfuse.ir.storage import resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers
from taskfuse.schedule.through_view import own_index


def pad_product(tv: TensorView, extent: object, operands: Sequence[int]) -> tuple[TensorView, ...]:
    """See :meth:`TensorView.pad_product`.

    Raises:
        ScheduleError: ``tv`` is not a sum over one axis of constant extent of products of two tensors, has a schedule, or ``extent`` is less than that axis; or
            it is more, and a factor is not among ``operands``.
        TaskError: a law of tasks and groups is broken.
    """
    call = Call("pad_product", tv)
    fusion, definition = tv.fusion, call.reduction()
    reduced = [k for k, a in enumerate(tv.root) if a.is_reduction]
    if tv.loop != tv.root:
        raise call.error(f"the loops of {tv.name} are not the axes of its math", "call pad_product before split, merge, reorder and rfactor")
    is_product = definition.combine.name == "add" and definition.body is ELEMENTWISE["mul"] and definition.rescaled is None and not definition.ends
    if not is_product or len(reduced) != 1 or not all(isinstance(o, Read) for o in definition.operands):
        raise call.error(f"{tv.name} is not a sum over one axis of products of two tensors")
    (k,) = reduced
    length = tv.root[k].extent
    if not isinstance(length, Const) or not isinstance(extent, int) or isinstance(extent, bool) or extent < length.value:
        raise call.error(f"{length} elements of k cannot become {extent!r}", "use a number that is no less than a constant extent")
    if not operands or not set(operands) <= {0, 1} or (extent > length.value and len(set(operands)) < 2):
        raise call.error(f"operands {list(operands)} are copied", "copy both factors of a sum that becomes longer, else one or both")
    call.check_not_inlined()
    for producer in inlined_producers(tv):
        raise call.error(f"{producer.name} is inlined into it at {producer.schedule.inline}", f"pad before inlining, or {producer.name}.inline_at(0)")
    fusion.check()
    made: dict[int, TensorView] = {}
    given = list(definition.operands)
    for place in sorted(set(operands)):
        operand = given[place]
        assert isinstance(operand, Read)
        made[place] = _copy(tv, definition, resolve(fusion, operand), k, extent)
        axes = _axes(tv, definition, resolve(fusion, operand), k)
        given[place] = Read(made[place], tuple(map(iteration_symbol, axes)))
    tv.root = (*tv.root[:k], axis(const(extent), AxisKind.REDUCTION), *tv.root[k + 1 :])
    tv.schedule = TensorSchedule(list(tv.root))
    fusion.define(Reduction(tv, definition.combine, definition.body, tuple(given), definition.init, definition.location))
    fusion.remove_unread([o.tensor for o in definition.operands if isinstance(o, Read)])
    return tuple(made.values())


def _axes(tv: TensorView, definition: Reduction, read: Read, k: int) -> list[int]:
    """The axes of a product that a factor has, k last."""
    free = {name for e in own_index(tv.fusion, definition, read) for name in e.free}
    return [*(p for p in range(len(tv.root)) if p != k and str(iteration_symbol(p)) in free), k]


def _copy(tv: TensorView, definition: Reduction, read: Read, k: int, extent: int) -> TensorView:
    """A factor with k last, and zeros past its end."""
    fusion = tv.fusion
    axes = _axes(tv, definition, read, k)
    place: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(q) for q, p in enumerate(axes)}
    index = tuple(substitute(e, place) for e in own_index(fusion, definition, read))
    extents = [const(extent) if p == k else tv.root[p].extent for p in axes]
    new = fusion.new_tensor([axis(e) for e in extents], read.tensor.dtype, location=caller(), origin=tv)
    join_task(new, tv)
    length = tv.root[k].extent
    if extents[-1] is length:
        return fusion.define(Pointwise(new, ELEMENTWISE["copy"], (Read(read.tensor, index, read.valid),), definition.location))
    valid = lt(iteration_symbol(len(axes) - 1), length)
    assert read.valid is TRUE
    zero = Literal(0.0 if new.dtype.is_float else 0, new.dtype)
    return fusion.define(FirstValid(new, "pad", (Read(read.tensor, index, valid), zero), definition.location))
