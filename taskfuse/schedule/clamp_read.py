"""clamp_read: load an element first, choose then.

``y[i] = x[i - 1] if i >= 1 else 0`` loads an element or none, so neighbors are no vector. ``t[i] = x[max(i - 1, 0)]`` loads one for each point, at a place
that always exists, and ``y[i] = t[i] if i >= 1 else 0`` chooses in registers.

Along the last axis a place is that of a vector: of ``x[i - 8] if i >= 8 else 0`` neighbors of a vector of 8 all have an element or none, and
``t[i] = x[8 * max(i // 8 - 1, 0) + i % 8]``.
"""

from __future__ import annotations

from taskfuse.ir.axes import axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, Literal, Pointwise, Read
from taskfuse.ir.scalar import And, Compare, CompareOp, Expr, Facts, and_, ge, is_multiple, le, lt, maximum, minimum, prove, simplify
from taskfuse.ir.storage import resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers
from taskfuse.schedule.tile_windows import facts_of


def clamp_read(tv: TensorView, vector: int = 1) -> TensorView:
    """See :meth:`TensorView.clamp_read`.

    Raises:
        ScheduleError: ``tv`` is no choice between an element of one tensor and a constant, or has a schedule; the tensor may be empty; of neighbors along the
            last axis some have an element and some have none.
        TaskError: a law of tasks and groups is broken.
    """
    call = Call("clamp_read", tv)
    fusion = tv.fusion
    match fusion.definition(tv):
        case FirstValid(operands=(Read() as given, Literal() as fill)) as definition:
            read = resolve(fusion, given)
        case _:
            raise call.error("it is no choice between an element and a constant", "clamp what pads a tensor")
    if tv.loop != tv.root:
        raise call.error(f"the loops of {tv.name} are not the axes of its math", "call clamp_read before split, merge and reorder")
    for producer in inlined_producers(tv):
        raise call.error(f"{producer.name} is inlined into it at {producer.schedule.inline}", f"clamp first, or {producer.name}.inline_at(0)")
    fusion.check()
    facts = facts_of(fusion, tv)
    for extent in read.tensor.shape:
        if not prove(ge(extent, 1), facts):
            raise call.error(f"{read.tensor.name} may be empty", "declare the extent with tf.dim(..., min=1)")
    index = [_clamped(e, extent, facts) for e, extent in zip(read.index, read.tensor.shape, strict=True)]
    valid = read.valid
    if vector > 1:
        found = at_vectors(read, len(tv.root), vector, facts)
        if found is None:
            raise call.error(f"elements of a vector of {vector} are no vector of {read.tensor.name}, or some have no place", "use vector=1")
        index[-1], valid = found
    made = fusion.new_tensor([axis(a.extent) for a in tv.root], tv.dtype, location=caller(), origin=tv)
    join_task(made, tv)
    fusion.define(Pointwise(made, ELEMENTWISE["copy"], (Read(read.tensor, tuple(index)),), definition.location))
    here = tuple(map(iteration_symbol, range(len(tv.root))))
    fusion.define(FirstValid(tv, definition.label, (Read(made, here, valid), fill), definition.location))
    return made


def _clamped(e: Expr, extent: Expr, facts: Facts) -> Expr:
    """The place that is nearest to ``e``."""
    low = e if prove(ge(e, 0), facts) else maximum(e, 0)
    return simplify(low if prove(le(e, extent - 1), facts) else minimum(low, extent - 1), facts)


def at_vectors(read: Read, rank: int, vector: int, facts: Facts) -> tuple[Expr, Expr] | None:
    """The index along the last axis of what a reader reads, in the nearest vector that exists, and the condition under which that is its own, as one of the
    numbers of vectors; ``None`` if neighbors along the reader's last axis are not in one vector, or if the condition is not the same for all of them.

    Args:
        rank: axes of the reader.
    """
    if rank == 0 or not read.index:
        return None
    here, extent = iteration_symbol(rank - 1), read.tensor.shape[-1]
    first = simplify(read.index[-1] - here, facts)
    if here.free & first.free or not is_multiple(first, vector, facts) or not is_multiple(extent, vector, facts):
        return None
    terms = list[Expr]()
    for term in read.valid.args if isinstance(read.valid, And) else (read.valid,):
        found = term if not here.free & term.free else _of_vector(term, here, vector, facts)
        if found is None:
            return None
        terms.append(found)
    place = _clamped(simplify(first // vector, facts) + here // vector, simplify(extent // vector, facts), facts)
    return place * vector + here % vector, and_(*terms)


def _of_vector(term: Expr, here: Expr, vector: int, facts: Facts) -> Expr | None:
    """A comparison of an index as one of the number of its vector, if it is the same for all elements of that."""
    if not isinstance(term, Compare) or term.op not in (CompareOp.LT, CompareOp.LE):
        return None
    for side, other, is_below in ((term.a, term.b, True), (term.b, term.a, False)):
        rest = simplify(side - here, facts)
        if here.free & (rest.free | other.free):
            continue
        bound = simplify(other - rest + (1 if is_below == (term.op is CompareOp.LE) else 0), facts)  # here < bound, or bound <= here
        if is_multiple(bound, vector, facts):
            number = simplify(bound // vector, facts)
            return lt(here // vector, number) if is_below else le(number, here // vector)
    return None
