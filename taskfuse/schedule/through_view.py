"""through_view: an operand that is read at any index becomes one that is read at the reader's own axes, through a view that has the index.

``y[m, n] = sum of x[m // S, m % S, k] * w[k, n]`` reads ``x`` at an index that is not a list of axes; ``y[m, n] = sum of v[m, k] * w[k, n]`` with the view
``v[m, k] = x[m // S, m % S, k]`` computes the same. A view takes no code. Schedulers that require factors with axes of rows, columns and k find them; and a
view with strides is an array that a kernel may take as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from taskfuse.errors import shown
from taskfuse.ir.axes import axis, is_value_symbol, iteration_position, iteration_symbol
from taskfuse.ir.expr import Assemble, MathExpr, Operand, Read, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Const, Expr, FloorDiv, children, ge, is_multiple, lt, private, prove, simplify, substitute
from taskfuse.ir.storage import resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.schedule.call import Call


def through_view(
    tv: TensorView, operand: int, view: TensorView | None = None, also: Sequence[tuple[TensorView, int]] = (), *, packed: bool = False
) -> TensorView:
    """See :meth:`TensorView.through_view`.

    Raises:
        ScheduleError: ``tv``, or one of ``also``, has no such operand, it is not a tensor's, may lack elements or has an index of data, or ``tv`` is an
            assembly of parts; ``view`` lacks elements that the operand reads, or is not read at axes of ``tv``; or one of ``also`` reads another tensor, or at
            other points.
    """
    call = Call("through_view", tv)
    fusion = tv.fusion
    fusion.check()
    expr, read = _read_of(call, tv, operand)
    used, index = _viewed(fusion, expr, read)
    units = _units(fusion, expr, used, index) if packed and view is None else [1] * len(used)
    for reader, k in (pairs := _pairs(call, also)):
        other, its = _read_of(call, reader, k)
        is_same = its.tensor is read.tensor and own_index(fusion, other, its) == own_index(fusion, expr, read)
        if not is_same or any(p >= len(reader.root) or reader.root[p].extent is not tv.root[p].extent for p in used):
            raise call.error(f"operand {k} of {reader.name} is not the element of {read.tensor.name} that {tv.name} reads", "give it a view of its own")
    if view is not None and not isinstance(cast("object", view), TensorView):
        raise call.error(f"{shown(view)} is not a tensor", "give a view, or leave it out, and one is made")
    at = tuple(iteration_symbol(p) // n for p, n in zip(used, units, strict=True)) if view is None else _within(fusion, view, expr, read, used)
    if at is None:
        assert view is not None
        raise call.error(f"{view.name} is another view than that of operand {operand}", "leave it out, and a view is made")
    if view is None:
        extents = [axis(simplify(tv.root[p].extent // n, fusion.facts())) for p, n in zip(used, units, strict=True)]
        view = fusion.new_tensor(extents, read.tensor.dtype, location=caller(), origin=None)
        place: dict[str, Expr] = {str(iteration_symbol(k)): iteration_symbol(k) * n for k, n in enumerate(units)}
        facts = fusion.facts()
        for k, a in enumerate(view.root):
            facts = facts.with_range(str(iteration_symbol(k)), 0, a.extent - 1)
        index = tuple(simplify(substitute(e, place), facts) for e in index) if packed else index
        fusion.define(View(view, "through_view", Read(read.tensor, index), view.location))
    for reader, k in ((tv, operand), *pairs):
        changed = fusion.definition(reader)
        assert changed is not None
        given, new = changed.operands[k], list[Operand](changed.operands)
        assert isinstance(given, Read)
        new[k] = Read(view, at)
        fusion.define(replace(changed, operands=tuple(new)))
        if given.tensor is not read.tensor:
            fusion.remove_unread([given.tensor])
    return view


def _pairs(call: Call, also: object) -> list[tuple[TensorView, int]]:
    """Readers and the numbers of their operands."""
    found: list[tuple[TensorView, int]] = []
    for pair in call.several(also, "pairs of a reader and the number of its operand"):
        match pair:
            case (TensorView() as reader, number):
                found.append((reader, number))
            case _:
                raise call.error(f"{shown(pair)} is not a reader with the number of its operand", "give pairs such as (y, 0)")
    return found


def _read_of(call: Call, tv: TensorView, operand: int) -> tuple[MathExpr, Read]:
    """A reader, and what its operand reads of storage."""
    fusion = tv.fusion
    expr = fusion.definition(tv)
    if expr is None or isinstance(expr, Assemble | View):
        raise call.error(f"{tv.name} has no operands", "name what reads the view")
    given = expr.operands[call.operand(operand, len(expr.operands))]
    if not isinstance(given, Read):
        raise call.error(f"operand {operand} reads no tensor")
    read = resolve(fusion, given)
    if read.valid is not TRUE:
        raise call.error(f"operand {operand} reads {read.tensor.name} only in some iterations")
    if any(is_value_symbol(name) for e in read.index for name in e.free):
        raise call.error(f"operand {operand} is an element of {read.tensor.name} that data selects", "a view has an index without data")
    return expr, read


def reads_through(tv: TensorView, operand: int, view: TensorView) -> bool:
    """Whether ``tv.through_view(operand, view)`` can be called."""
    fusion, expr = tv.fusion, tv.definition
    given = None if expr is None or isinstance(expr, Assemble | View) else expr.operands[operand]
    if expr is None or not isinstance(given, Read):
        return False
    read = resolve(fusion, given)
    used, _ = _viewed(fusion, expr, read)
    return read.valid is TRUE and _within(fusion, view, expr, read, used) is not None


def _viewed(fusion: Fusion, expr: MathExpr, read: Read) -> tuple[list[int], tuple[Expr, ...]]:
    """The axes of a reader that the view of an operand has, and the index of what is read over those of the view."""
    index = own_index(fusion, expr, read)
    free = {name for e in index for name in e.free}
    used = _ordered(fusion, read, index, [p for p in range(len(expr.output.root)) if str(iteration_symbol(p)) in free], expr.output)
    place: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(k) for k, p in enumerate(used)}
    return used, tuple(substitute(e, place) for e in index)


def _units(fusion: Fusion, expr: MathExpr, used: Sequence[int], index: Sequence[Expr]) -> list[int]:
    """For each axis of a view, how many neighbors along it read one element: the greatest number by which quotients of its position are all that is read.

    ``e(n * (i // n)) = e(i)`` for all ``i``, with ``n * q + r`` in place of ``i``.
    """
    root, units = expr.output.root, [1] * len(used)
    for k, p in enumerate(used):
        own, extent = iteration_symbol(k), root[p].extent
        quotient, rest = private("quotient"), private("rest")
        for n in sorted({n for e in index for n in _divisors(e, own)}, reverse=True):
            if not is_multiple(extent, n, fusion.facts()):
                continue
            facts = fusion.facts().with_range(quotient.name, 0, extent // n - 1).with_range(rest.name, 0, n - 1)
            for other, q in enumerate(used):
                facts = facts.with_range(str(iteration_symbol(other)), 0, root[q].extent - 1)
            inside, first = ({str(own): quotient * n + r} for r in (rest, ZERO))
            if all(simplify(substitute(e, inside), facts) is simplify(substitute(e, first), facts) for e in index):
                units[k] = n
                break
    return units


def _divisors(e: Expr, own: Expr) -> set[int]:
    """The constants by which an expression divides what depends on a symbol alone."""
    found = {n for child in children(e) for n in _divisors(child, own)}
    return found | {e.b.value} if isinstance(e, FloorDiv) and isinstance(e.b, Const) and e.a is own else found


def _within(fusion: Fusion, view: TensorView, expr: MathExpr, read: Read, used: Sequence[int]) -> tuple[Expr, ...] | None:
    """The index at which a view has the elements of a tensor that an expression reads; ``None`` if it lacks some.

    The view has an axis for each of those that are used, in any order, along which elements lie as far apart; it may have more of them, such as more columns.
    """
    made, wanted, root = fusion.definition(view), own_index(fusion, expr, read), expr.output.root
    if not isinstance(made, View) or made.operand.tensor is not read.tensor or made.operand.valid is not TRUE or view.ndim != len(used):
        return None
    facts = fusion.facts()
    for p in used:
        facts = facts.with_range(str(iteration_symbol(p)), 0, root[p].extent - 1)
    nowhere: dict[str, Expr] = {str(iteration_symbol(p)): ZERO for p in range(max(view.ndim, len(root)))}

    def steps(index: tuple[Expr, ...], p: int) -> list[Expr]:
        beside = nowhere | {str(iteration_symbol(p)): ONE}
        return [simplify(substitute(e, beside) - substitute(e, nowhere), facts) for e in index]

    mine = [steps(wanted, p) for p in used]
    place: list[int] = []
    for k in range(view.ndim):
        own = steps(made.operand.index, k)
        place += [p for p, step in zip(used, mine, strict=True) if p not in place and all(a is b for a, b in zip(step, own, strict=True))][:1]
    if len(place) < view.ndim:
        return None
    at = [iteration_symbol(p) for p in place]
    for e, w in zip(made.operand.index, wanted, strict=True):
        if (k := iteration_position(e)) is not None:
            begin = simplify(substitute(w, nowhere), facts)
            if not prove(ge(begin, 0), facts):
                return None
            at[k] = at[k] + begin
    if not all(prove(lt(e, n), facts) for e, n in zip(at, view.shape, strict=True)):
        return None
    there: dict[str, Expr] = {str(iteration_symbol(k)): e for k, e in enumerate(at)}
    return tuple(at) if all(simplify(substitute(e, there), facts) is w for e, w in zip(made.operand.index, wanted, strict=True)) else None


def own_index(fusion: Fusion, expr: MathExpr, read: Read) -> tuple[Expr, ...]:
    """The index of a storage read of ``expr``, simplified by what its iteration symbols can be."""
    root = expr.output.root
    if all(isinstance(e, Const) or ((k := iteration_position(e)) is not None and _is_long(root[k].extent)) for e in read.index):
        return read.index
    facts = fusion.facts()
    for k, a in enumerate(root):
        facts = facts.with_range(str(iteration_symbol(k)), 0, a.extent - 1)
    return tuple(simplify(e, facts) for e in read.index)


def _is_long(extent: Expr) -> bool:
    """True for a constant greater than 1: nothing is known of the index of such an axis but its range."""
    return isinstance(extent, Const) and extent.value > 1


def is_whole(expr: MathExpr, read: Read, index: tuple[Expr, ...]) -> bool:
    """True if an index is a list of different axes of ``expr``, each of the extent of the axis that is read, or the one element of an axis."""
    found: list[int] = []
    for e, n in zip(index, read.tensor.shape, strict=True):
        position = iteration_position(e)
        if position is not None and expr.output.root[position].extent is n:
            found.append(position)
        elif n is not ONE or e is not ZERO:
            return False
    return len(set(found)) == len(found)


def _ordered(fusion: Fusion, read: Read, index: tuple[Expr, ...], used: list[int], tv: TensorView) -> list[int]:
    """The axes of the view: that along which neighbors lie side by side comes last."""
    facts = fusion.facts()
    for p in used:
        facts = facts.with_range(str(iteration_symbol(p)), 0, tv.root[p].extent - 1)
    place: Expr = ZERO
    for e, extent in zip(index, read.tensor.shape, strict=True):
        place = place * extent + e
    nowhere: dict[str, Expr] = {str(iteration_symbol(p)): ZERO for p in used}
    start = simplify(substitute(place, nowhere), facts)
    for p in used:
        if tv.root[p].extent is not ONE and simplify(substitute(place, nowhere | {str(iteration_symbol(p)): ONE}) - start, facts) is ONE:
            return [*(q for q in used if q != p), p]
    return used
