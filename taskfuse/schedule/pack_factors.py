"""pack_factors: the factors of a sum of products as copies in the order in which an instruction reads them (packing: Goto and van de Geijn, "Anatomy of
high-performance matrix multiplication", 2008).

``y[m, n] = sum of a[k, m] * b[k, n]`` over 1023 terms becomes, with the copies ``c[m, k] = a[k, m]`` and ``d[n, k] = b[k, n]``, zeros past the last term,
``y[m, n] = sum of c[m, k] * d[n, k]`` over 1024: products of zeros add nothing. The call comes before all scheduling, so that other kernels can make the
copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskfuse.errors import shown
from taskfuse.ir.atoms import SUM_OF_PRODUCTS
from taskfuse.ir.axes import AxisKind, axis, iteration_point, iteration_symbol
from taskfuse.ir.contraction import axes_of, computes
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, Literal, Operand, Pointwise, Read, Reduction
from taskfuse.ir.fragments import GROUP, column_of_term, term_of_column
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import TRUE, Expr, and_, ceildiv, is_multiple, lt, simplify, substitute
from taskfuse.ir.storage import resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers
from taskfuse.schedule.through_view import own_index


def pack_factors(tv: TensorView, position: int, multiple: object, operands: Sequence[int] | None, turned: object, as_columns: object) -> tuple[TensorView, ...]:
    """See :meth:`TensorView.pack_factors`.

    Raises:
        ScheduleError: ``tv`` is not a sum of products of tensors over that axis or has a schedule; ``multiple`` is not a positive integer; or an operand that
            is not packed lacks the elements past the end of the axis.
        TaskError: a law of tasks and groups is broken.
    """
    call = Call("pack_factors", tv)
    definition = call.reduction()
    (k,) = call.positions([position])
    _check(call, definition, k)
    if not isinstance(multiple, int) or isinstance(multiple, bool) or multiple < 1:
        raise call.error(f"a multiple of {shown(multiple)}", "use a positive integer")
    for name, value in (("turned", turned), ("as_columns", as_columns)):
        if not isinstance(value, bool):
            raise call.error(f"{name} is {shown(value)}", "use True or False")
    if as_columns and multiple % GROUP:
        raise call.error(f"a multiple of {multiple}, of terms in the order of columns", f"use a multiple of {GROUP}")
    known = tuple(range(len(definition.operands)))
    given = known if operands is None else call.several(operands, "operands")
    chosen = tuple(dict.fromkeys(call.operand(k, len(known)) for k in given))
    if not chosen:
        raise call.error("it has no operand to pack", f"give some of {list(known)}")
    facts, extent = tv.fusion.facts(), tv.root[k].extent
    length = extent if is_multiple(extent, multiple, facts) else simplify(ceildiv(extent, multiple) * multiple, facts)
    if length is not extent and len(chosen) < len(known):
        raise call.error(f"{multiple} does not divide the axis of {extent}, and an operand has no zeros past its end", "pack all operands")
    call.check_not_inlined()
    for producer in inlined_producers(tv):
        raise call.error(f"{producer.name} is inlined into it at {producer.schedule.inline}", f"pack before inlining, or {producer.name}.inline_at(0)")
    tv.fusion.check()
    return _pack(tv, definition, k, length, chosen, bool(turned), bool(as_columns))


def _check(call: Call, definition: Reduction, k: int) -> None:
    """Raises :class:`ScheduleError` if the reduction is not a sum of products along an axis of its factors."""
    tv = call.tv
    if tv.loop != tv.root:
        raise call.error(f"the loops of {tv.name} are not the axes of its math", "call pack_factors before split, merge, reorder and rfactor")
    if not tv.root[k].is_reduction:
        raise call.error(f"axis {k} of {tv.name} is not a reduction axis")
    is_plain = computes(definition, SUM_OF_PRODUCTS) and definition.rescaled is None and definition.is_whole
    if not is_plain or not all(isinstance(o, Read) and k in axes_of(resolve(tv.fusion, o)) for o in definition.operands):
        raise call.error(f"{tv.name} is not a sum of products of tensors along axis {k}")


def _pack(tv: TensorView, definition: Reduction, k: int, length: Expr, chosen: Sequence[int], turned: bool, as_columns: bool) -> tuple[TensorView, ...]:
    fusion = tv.fusion
    made: list[TensorView] = []
    copied: list[tuple[Read, list[int]]] = []
    new: list[Operand] = list(definition.operands)
    left: list[TensorView] = []
    for place in chosen:
        given = definition.operands[place]
        assert isinstance(given, Read)
        read = resolve(fusion, given)
        read = replace(read, index=own_index(fusion, definition, read))
        used = [*sorted(axes_of(read) - {k}), k]
        if turned:
            used[-2:] = reversed(used[-2:])
        alike = [made[n] for n, other in enumerate(copied) if _are_alike(tv, other, (read, used), k)]
        itemsize = read.tensor.dtype.itemsize if as_columns else None
        copy = alike[0] if alike else _copy(tv, read, used, k, length, itemsize)
        point = iteration_point(len(tv.root))
        new[place] = Read(copy, tuple(term_of_column(point[p], itemsize) if p == k and itemsize else point[p] for p in used))
        left += [given.tensor] if given.tensor is not read.tensor else []
        if not alike:
            copied.append((read, used))
            made.append(copy)
    if length is not tv.root[k].extent:
        tv.root = (*tv.root[:k], axis(length, AxisKind.REDUCTION), *tv.root[k + 1 :])
        tv.schedule = TensorSchedule(list(tv.root))
    fusion.define(replace(definition, operands=tuple(new)))
    for copy in made:
        join_task(copy, tv)
    fusion.remove_unread([t for n, t in enumerate(left) if not among(t, left[:n])])
    return tuple(made)


def _are_alike(tv: TensorView, a: tuple[Read, Sequence[int]], b: tuple[Read, Sequence[int]], k: int) -> bool:
    """Whether copies at some axes of ``tv`` have the same elements, as those of both factors of ``x @ x.T``."""
    (one, these), (other, those) = a, b
    if one.tensor is not other.tensor or [p == k for p in these] != [p == k for p in those]:
        return False
    if any(tv.root[p].extent != tv.root[q].extent for p, q in zip(these, those, strict=True)):
        return False
    renamed = {str(iteration_symbol(p)): iteration_symbol(q) for p, q in zip(these, those, strict=True)}
    return [substitute(e, renamed) for e in (*one.index, one.valid)] == [*other.index, other.valid]


def _copy(tv: TensorView, read: Read, used: Sequence[int], k: int, length: Expr, itemsize: int | None) -> TensorView:
    """A factor as a tensor over some axes of ``tv``, with zeros past the end of ``k``.

    Args:
        itemsize: bytes of an element, if terms are in the order of columns.
    """
    fusion = tv.fusion
    place: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(n) for n, p in enumerate(used)}
    if itemsize is not None:
        place[str(iteration_symbol(k))] = column_of_term(iteration_symbol(used.index(k)), itemsize)
    ends = TRUE if length is tv.root[k].extent else lt(place[str(iteration_symbol(k))], tv.root[k].extent)
    valid = and_(substitute(read.valid, place), ends)
    moved = Read(read.tensor, tuple(substitute(e, place) for e in read.index), valid)
    extents = [length if p == k else tv.root[p].extent for p in used]
    copy = fusion.new_tensor([axis(e) for e in extents], read.tensor.dtype, location=caller(), origin=tv)
    if valid is TRUE:
        return fusion.define(Pointwise(copy, ELEMENTWISE["copy"], (moved,), copy.location))
    zero = Literal.zero(copy.dtype)
    return fusion.define(FirstValid(copy, "pad", (moved, zero), copy.location))
