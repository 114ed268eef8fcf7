"""Reads at indices that contain a sum with an element of a table: the sum becomes one unknown number.

A table's element is an unknown number, so no table lists its values, and where index and element of a read name it in different digits, it does not
cancel. If an axis of the wanted element is ``e + a`` with an unknown ``a``, an element or a function of elements, the sum is one number ``u`` inside the
axis, and ``a`` is ``u - e`` wherever the read names it. What holds for every ``u`` holds for this one.
"""

from __future__ import annotations

from dataclasses import replace

from taskfuse.check.bounded_variables import BoundedElement
from taskfuse.check.ranges import terms_of
from taskfuse.check.values.questions import proves
from taskfuse.check.values.write_and_read import WriteAndRead
from taskfuse.ir.scalar import Const, Element, Expr, UpperBound, children, le, lookups_of, private, rebuild, simplify


def with_any_sum(pair: WriteAndRead) -> WriteAndRead | None:
    """The question for any values of the sums; ``None`` if there are no sums, or their values are not bounded.

    An answer that is not open, and names no conditions, also answers the original question.
    """
    want, constraints = pair.want, pair.constraints
    index = want.index
    element = tuple(simplify(e, pair.facts) if lookups_of(e) else e for e in want.element)
    places: dict[str, tuple[int, int]] = {}
    for k, extent in enumerate(pair.shape if pair.alike and len(pair.shape) == len(element) else ()):
        total = element[k]
        terms = [(t, c) for t, c in terms_of(total)[0] if c in (1, -1) and lookups_of(t)]
        unknown = next((found for found in terms if isinstance(found[0], Element | UpperBound)), next(iter(terms), None))
        if unknown is None or not isinstance(extent, Const):
            continue
        if not proves(constraints, le(0, total)) or not proves(constraints, le(total, extent - 1)):
            continue
        atom, sign = unknown
        number = private(f"sum {total}")
        places[number.name] = 0, extent.value - 1
        value = (number - (total - atom * sign)) * sign
        index, element = (tuple(simplify(_replaced(e, atom, value), pair.facts) for e in some) for some in (index, element))
    if not places:
        return None
    given = constraints.given(*(BoundedElement(private(name[1:]), span) for name, span in places.items()))
    wider = WriteAndRead(
        pair.writing, replace(want, index=index, element=element), pair.storage, pair.shape, pair.skip, given, pair.among, past=pair.past, bare=pair.bare
    )
    wider.plain = False
    wider.places |= places
    return wider


def _replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    """``e`` with ``new`` in the place of every ``old``, but not inside of indices of tables."""
    if e is old:
        return new
    if not children(e) or not old.free <= e.free or isinstance(e, Element | UpperBound):
        return e
    return rebuild(e, lambda part: _replaced(part, old, new))
