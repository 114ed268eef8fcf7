"""Accumulators of elements without terms, as in a reduction that has more parts than points: they keep their initial value.

An element has no terms if no point of the iteration space belongs to it: one of its indices is outside the range that the points' places take. An
accumulator that no statement adds to, in any iteration or under any condition, holds its initial value when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from taskfuse.check.constraints import Constraints
from taskfuse.check.tables import ValueTable
from taskfuse.check.values.accumulators import Term
from taskfuse.check.values.claims import Place
from taskfuse.check.values.match_tables import never_meet
from taskfuse.check.values.questions import proves
from taskfuse.check.values.write_and_read import WriteAndRead
from taskfuse.check.values.written import BufferStorage, Writing
from taskfuse.ir.scalar import NO_FACTS, Const, Expr, const, gt, lt, private, simplify, substitute
from taskfuse.kir.witness import Definition


def has_no_points(want: Place, definition: Definition, constraints: Constraints, among: ValueTable | None) -> bool:
    """True only if no point of a reduction belongs to the elements that are read.

    Args:
        constraints: the constraints at the read.
        among: the points of the read in question; ``None``: all.
    """
    if any(n is const(0) for n in definition.space):
        return True
    facts = NO_FACTS
    ranges = constraints.ranges
    points: dict[str, Expr] = {}
    for k, n in enumerate(definition.space):
        points[f"i{k}"] = point = private(f"point.{k}")
        facts = facts.with_range(point.name, 0, n - 1 if isinstance(n, Const) else None)
        ranges = ranges.with_span(point, (0, n.value - 1 if isinstance(n, Const) else None))
    left = None if among is None else np.ones(among.count, np.bool_)
    for e, wanted in zip(definition.place, want.element, strict=True):
        lo, hi = ranges.of(simplify(substitute(e, points), facts))
        if (lo is not None and proves(constraints, lt(wanted, lo))) or (hi is not None and proves(constraints, gt(wanted, hi))):
            return True
        if among is not None and left is not None and wanted.free <= among.names:
            values = among.values(wanted)
            left &= ((lo is None) | (values >= (lo or 0))) & ((hi is None) | (values <= (hi or 0)))
    return left is not None and not left.any()


def takes_no_term(want: Place, terms: Iterable[Term], storage: BufferStorage, constraints: Constraints, among: ValueTable | None) -> bool:
    """True only if no statement that takes terms accesses the accumulators that are read.

    Raises:
        Open: no proof was found.
    """
    for t in terms:
        claim = replace(t.place, element=(), given=())  # also a term past the end
        if claim.offset is not None or want.offset is not None or len(claim.index) != len(want.index):
            return False
        target = replace(want, element=())
        pair = WriteAndRead(Writing(claim, storage.memory, {}), target, storage, (), None, constraints, among, past=False, bare=True)
        pair.plain = False
        if not never_meet(pair):
            return False
    return True
