"""Does a write leave the element that a read must find? One claim against one read, for all threads and iterations at once.

The read's index equals the write's index. The symbols of the write that have no value at the read (its thread, its own loops, its points) are
solved for; then its element must be the wanted one, and its conditions must hold. What cannot be solved for is tabulated
(:mod:`taskfuse.check.values.match_tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from taskfuse.check.constraints import Constraints
from taskfuse.check.tables import ValueTable
from taskfuse.check.values.match_tables import joined
from taskfuse.check.values.merged_axes import with_merged_axes
from taskfuse.check.values.questions import proves
from taskfuse.check.values.solve import Equation, Open, solved
from taskfuse.check.values.table_sums import with_any_sum
from taskfuse.check.values.write_and_read import Found, WriteAndRead
from taskfuse.ir.scalar import Expr, const, eq, ne, not_, substitute

W = TypeVar("W")


def where_found(pair: WriteAndRead) -> Found | None:
    """The points at which the write leaves the element; ``None``: nowhere.

    Raises:
        Open: it is unknown, or the write may leave another element.
    """
    for pair.plain in (True, False):  # what is the same in text needs no prover
        outcome = _tried(pair)
        if not isinstance(outcome, Open) and (outcome is None or not outcome.under):
            return outcome
        if pair.plain and isinstance(outcome, Found) and all(proves(pair.constraints, c) for c in outcome.under):
            return Found()
    if isinstance(outcome, Open) and (merged := with_merged_axes(pair)) is not None:
        outcome = _tried(merged)
    if isinstance(outcome, Open):
        wider = with_any_sum(pair)
        found = outcome if wider is None else _tried(wider)
        if isinstance(found, Open) or (found is not None and found.under):
            raise outcome.again()
        return found
    return outcome


def is_left_by_one(
    writes: Iterable[W], ask: Callable[[W, Constraints, ValueTable | None], Found | None], constraints: Constraints, among: ValueTable | None = None
) -> bool:
    """Whether the element is left at every point by one of several writes.

    Args:
        writes: tried in this order, each at the points where no earlier one is known to leave the element.
        ask: :func:`where_found` for one of them, under the constraints on these points, among those of a table.
        constraints: on all points.
        among: the points in question; ``None``: all.

    Raises:
        Open: ``ask`` raises it.
    """
    for write in writes:
        found = ask(write, constraints, among)
        if found is None:
            continue
        if found.rest is not None:
            among = found.rest
        elif not found.under:
            return True
        elif len(found.under) == 1:
            constraints = constraints.given(not_(found.under[0]))
    return False


def _tried(pair: WriteAndRead) -> Found | Open | None:
    """The answer by equations, or by tables where equations do not decide."""
    found: Found | Open | None
    try:
        found = _solved(pair)
    except Open as error:
        found = error.again()
    if found is None or (isinstance(found, Found) and not found.under) or not _has_table(pair):
        return found
    if pair.plain and isinstance(found, Found) and any(c in found.under for _, c in pair.conditions if c.free.isdisjoint(pair.spans)):
        return found  # a table does not decide it either, the prover may
    try:
        return joined(pair, {}, pair.equations, [])
    except Open as error:
        return error.again() if isinstance(found, Open) else found


def _has_table(pair: WriteAndRead) -> bool:
    """True if a table may decide more than equations."""
    return bool(pair.equations) and pair.countable({n for a, b in pair.equations for n in (a - b).free if n in pair.spans})


def _solved(pair: WriteAndRead) -> Found | None:
    at, left = solved(pair.equations, pair.spans, pair.simplified, digits=False)
    open_equations: list[Equation] = []
    under: list[Expr] = []
    for a, b in left:
        difference = pair.simplified(a - b)
        if difference is const(0):
            continue
        if difference.free.isdisjoint(pair.spans):
            if pair.constraints.ranges.refutes(eq(difference, 0)) or pair.proves(pair.constraints, ne(a, b)):
                return None
            if pair.equal(pair.constraints, a, b):
                continue
            if not pair.countable(difference.free):
                under.append(eq(a, b))
                continue
        open_equations.append((a, b))
    if open_equations and not _enumerable(pair, open_equations):
        more, rest = solved(open_equations, pair.spans, pair.simplified)
        at = {name: substitute(e, more) for name, e in at.items()} | more
        open_equations = [(a, b) for a, b in rest if not pair.equal(pair.constraints, a, b)]
    if open_equations:
        return joined(pair, at, open_equations, under)
    return _direct(pair, at, under)


def _enumerable(pair: WriteAndRead, equations: list[Equation]) -> bool:
    return pair.countable({n for a, b in equations for n in (a - b).free if n in pair.spans})


def _direct(pair: WriteAndRead, at: dict[str, Expr], under: list[Expr]) -> Found | None:
    """The answer if all relevant symbols are solved for."""
    elements = [(substitute(e, at), wanted) for e, wanted in pair.elements]
    free = {n for e, _ in elements for n in e.free if n in pair.spans}
    if free:
        return joined(pair, at, [], under)
    conditions = _conditions(pair, at)
    if conditions is None:
        return None
    left, certain = conditions
    residual = under + left
    constraints = pair.constraints.given(*residual) if residual else pair.constraints
    if constraints.empty:
        return None
    for k, (e, wanted) in enumerate(elements):
        if not pair.equal(constraints, e, wanted):
            raise Open(f"it may find index {pair.simplified(e)} where {wanted} is wanted on axis {k} of {pair.want.tensor}", pair.claim.node)
    if not certain:
        pair.may_be_there()
        return None
    return Found(tuple(residual))


def _conditions(pair: WriteAndRead, at: Mapping[str, Expr]) -> tuple[list[Expr], bool] | None:
    """The remaining conditions of the write, and whether they are all that decides; ``None`` if it never happens.

    Index and element do not depend on some symbols. It is enough that the write happens for one of their values, so one is tried; if it fails, nothing follows.
    """
    residual: list[Expr] = []
    certain = True
    free = pair.spans.keys() - at.keys()
    every = pair.required(at, pair.spans.keys() - at.keys())
    if pair.bare:  # but for the values that loops have
        every = [pair for pair in every if pair[0] is None]
    some = pair.some(every, at, set())
    if some is None:
        return None
    for original, part in every:
        if pair.never(part, free):
            return None
        if pair.proves(pair.constraints, substitute(part, some)) or pair.cuts_outside(original):
            continue
        if part.free.isdisjoint(free):
            residual.append(part)
        else:
            certain = False
    return residual, certain
