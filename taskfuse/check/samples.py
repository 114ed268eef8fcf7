"""Sample values of symbols that satisfy all constraints: a condition that fails at one of them needs no search for a proof.

The search takes longest if there is no proof. A question that intervals leave open is therefore evaluated at some samples first. They can reject a
condition, never accept one: nothing is proved by them, and no proof is lost. They are drawn item by item: extents from their declarations,
threads and blocks from the launch, iterations between the bounds of their loops; samples at which a known condition fails are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.bounded_variables import BoundedElement, Trip
from taskfuse.ir.scalar import Const, Expr, Facts, evaluate, sym

Ints = NDArray[np.int64]
Table = Mapping[str, Ints]
ROWS = 256
NEAR, FAR, MOST = 8, 400, 1 << 10
"""How far beyond its least value a symbol is sampled: one without an end, in every other row, and any."""

_RANDOM = np.random.default_rng(7).random((61, ROWS))


class Sampled(Protocol):
    """What is known at a place, as far as samples need it; see :class:`~taskfuse.check.constraints.Constraints`."""

    samples: Mapping[str, Ints] | None
    assumptions: tuple[Expr | Trip | BoundedElement, ...]

    @property
    def facts(self) -> Facts:
        """All of it, as facts."""
        ...

    @property
    def under(self) -> Sampled | None:
        """What the last assumption was added to."""
        ...


def fails(constraints: Sampled, condition: Expr) -> bool:
    """True only if a condition does not follow from what is known, as one that has no value at all."""
    table = _table(constraints)
    if not condition.free <= table.keys() or not _rows(table):
        return False
    try:
        found = evaluate(condition, table)
        return not (found if isinstance(found, int) else found.all())
    except ZeroDivisionError:  # of constants
        return True


def _table(constraints: Sampled) -> Table:
    """Symbols that something is known of, each with as many values as the others; none if no sample is known."""
    if constraints.samples is None:
        constraints.samples = _root(constraints.facts) if constraints.under is None else _with(_table(constraints.under), constraints)
    return constraints.samples


def _rows(table: Table) -> int:
    return next(iter(table.values())).size if table else 0


def _random(table: Table) -> NDArray[np.float64]:
    """Numbers from 0 to 1 for one more symbol."""
    return _RANDOM[len(table) % len(_RANDOM), : _rows(table)]


def _with(table: Table, constraints: Sampled) -> Table:
    """A table with one more item."""
    if not _rows(table):
        return table
    match constraints.assumptions[-1]:
        case Trip(symbol=symbol, start=start, stop=stop, implied=implied):
            if not (start.free | stop.free) <= table.keys():
                return {}
            table = _drawn(table, str(symbol), _values(start, table), _values(stop, table) - 1)
            for c in implied:
                table = _where(table, c)
            return table
        case BoundedElement(symbol=symbol, span=(lo, hi)):
            return _drawn(table, str(symbol), lo, hi)
        case condition:
            return _where(table, condition)


def _values(e: Expr, table: Table) -> Ints | int:
    """A value for each row, or the one of all."""
    if isinstance(e, Const):
        return e.value
    return np.broadcast_to(np.asarray(evaluate(e, table), np.int64), _rows(table))


def _drawn(table: Table, name: str, lo: Ints | int, hi: Ints | int) -> Table:
    """A table with one more symbol between two bounds, where it has a value."""
    if name in table:
        return {}
    values = (_random(table) * (hi - lo + 1) // 1).astype(np.int64) + lo
    return _chosen({**table, name: values}, lo <= hi)


def _where(table: Table, condition: Expr) -> Table:
    if not condition.free <= table.keys():
        return {}
    return _chosen(table, evaluate(condition, table))


def _chosen(table: Table, mask: NDArray[Any] | int) -> Table:
    """The rows at which a condition holds: one value for all rows, or one for each."""
    if isinstance(mask, np.ndarray) and mask.ndim:
        mask = mask.astype(np.bool_, copy=False)
        return table if np.count_nonzero(mask) == mask.size else {name: values[mask] for name, values in table.items()}
    return table if mask else {name: values[:0] for name, values in table.items()}


def _root(facts: Facts) -> Table:
    """What holds in a whole kernel."""
    table: Table = {"": np.zeros(ROWS, np.int64)}
    left = dict(facts.ranges)
    while left:
        ready = [name for name, bounds in left.items() if all(b is None or b.free <= table.keys() for b in bounds)]
        if not ready:
            return {}
        for name in ready:
            low, high = left.pop(name)
            step = facts.multiples.get(sym(name), 1)
            lo = 0 if low is None else -(-_values(low, table) // step)
            width = np.where(np.arange(_rows(table)) % 2, FAR, NEAR) if high is None else np.minimum(_values(high, table) // step - lo, MOST)
            table = _drawn(table, name, lo, lo + width)
            if step != 1:
                table = {**table, name: table[name] * step}
    for condition in facts.known:
        table = _where(table, condition)
    return table
