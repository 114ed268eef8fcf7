"""Sample values of symbols that satisfy all constraints: a condition that fails at one of them needs no search for a proof.

The search takes longest if there is no proof. A question that intervals leave open is therefore evaluated at some samples first. They can reject a
condition, never accept one: nothing is proved by them, and no proof is lost. They are drawn item by item: extents from their declarations,
threads and blocks from the launch, iterations between the bounds of their loops; samples at which a known condition fails are dropped.
"""

from __future__ import annotations

from typing import Protocol

from taskfuse.check.bounded_variables import BoundedElement, Trip
from taskfuse.check.flags import all_of
from taskfuse.ir.scalar import (
    Expr,
    Facts,
    Samples,
    fails_somewhere,
    lookups_of,
    sample_count,
    sampled_values,
    samples_of,
    samples_of_tables,
    samples_where,
    samples_with,
)


class Sampled(Protocol):
    """The assumptions at a place, as far as samples need them; see :class:`~taskfuse.check.constraints.Constraints`."""

    samples: Samples | None
    assumptions: tuple[Expr | Trip | BoundedElement, ...]

    @property
    def facts(self) -> Facts:
        """All of it, as facts."""
        ...

    @property
    def under(self) -> Sampled | None:
        """The constraints to which the last assumption was added."""
        ...


def fails(constraints: Sampled, condition: Expr) -> bool:
    """True only if a condition does not follow from the assumptions, or has no value."""
    table = _table(constraints)
    if not sample_count(table):
        return False
    try:
        if not condition.free <= table.keys() or lookups_of(condition):
            return fails_somewhere(condition, table)
        found = table.at.of(condition)
        return not (found if isinstance(found, int) else all_of(found))
    except ZeroDivisionError:  # of constants
        return True


def _table(constraints: Sampled) -> Samples:
    """Symbols that something is known of, each with as many values as the others; none if no sample is known."""
    if constraints.samples is None:
        try:
            constraints.samples = samples_of(constraints.facts) if constraints.under is None else _with(_table(constraints.under), constraints)
        except ZeroDivisionError:  # of constants: what is assumed has no value
            constraints.samples = Samples()
    return constraints.samples


def _with(table: Samples, constraints: Sampled) -> Samples:
    """A table with one more item."""
    if not sample_count(table):
        return table
    match constraints.assumptions[-1]:
        case Trip(symbol=symbol, start=start, stop=stop, implied=implied):
            table = samples_of_tables(samples_of_tables(table, start), stop)
            if not (start.free | stop.free) <= table.keys():
                return Samples()
            table = samples_with(table, str(symbol), sampled_values(start, table), sampled_values(stop, table) - 1)
            for c in implied:
                table = samples_where(table, c)
            return table
        case BoundedElement(symbol=symbol, span=(lo, hi)):
            return samples_with(table, str(symbol), lo, hi)
        case condition:
            return samples_where(table, condition)
