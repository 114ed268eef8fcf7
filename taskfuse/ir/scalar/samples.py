"""Values of symbols at which facts hold: if a form is negative at one of them, no search can find a proof that it is nonnegative.

They can reject a question, never accept one: nothing is proved by them, and no proof is lost. Symbols are drawn one after another between their bounds;
samples at which an assumed condition fails are dropped.

In each sample a table has elements of its own: rising ones, as callers promise of offsets, if there are few; otherwise the same at all indices. If what is
first known of a table is that an element is equal to something, all of its elements are. An index outside of a table finds its last element, or the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.ir.scalar.evaluation import Samples
from taskfuse.ir.scalar.expr import MEMORY, ZERO, Compare, CompareOp, Const, Element, Expr, FloorDiv, Mod, Table, UpperBound, children, sym
from taskfuse.ir.scalar.facts import Bounds, Facts
from taskfuse.ir.scalar.logic import ge, lt, ne
from taskfuse.ir.scalar.lookups import lookups_of
from taskfuse.ir.scalar.memory import remembered

Ints = NDArray[np.int64]

ROWS = 256
NEAR, FAR, MOST = 8, 400, 1 << 10
"""How far above its least value a symbol is sampled: one without an upper bound, in every other row, and any symbol."""

ENDS = 32
"""The rows in which each symbol has its least or its greatest value: most forms that are negative somewhere are so at such ends."""

LONGEST = 64
"""The most elements of a table that differ."""

_RANDOM = np.random.default_rng(7).random((61, ROWS))
_RANDOM[:, :ENDS] = np.where(_RANDOM[:, :ENDS] < 0.5, 0, np.nextafter(1, 0))
_RANDOM_TABLES = np.random.default_rng(8).random((ROWS, LONGEST))
_WITHOUT_END = np.where(np.arange(ROWS) % 2, FAR, NEAR)
"""How far above its least value a symbol without an upper bound is sampled."""


def is_negative_somewhere(form: Expr, facts: Facts) -> bool:
    """True only if a form is negative for some values of its symbols at which the facts hold."""
    try:
        return fails_somewhere(ge(form, ZERO), samples_of(facts))
    except ZeroDivisionError:  # of constants
        return False


def fails_somewhere(condition: Expr, table: Samples) -> bool:
    """True only if a condition has a value at some samples, and fails there.

    A symbol without samples may be any integer: nothing is known of it.

    Raises:
        ZeroDivisionError: it has no value for any symbols.
    """
    table = _with_any(condition, table)
    if not sample_count(table):
        return False
    at = table.at
    wrong = np.logical_not(at.of(condition))
    if np.count_nonzero(wrong):  # the method takes four times as long
        for has_value in _demands(condition):
            wrong = np.logical_and(wrong, at.of(has_value))
    return bool(np.count_nonzero(wrong))


def possible_quotients(a: Expr, b: Expr, facts: Facts) -> tuple[int, ...] | None:
    """The numbers q with ``0 <= a - q*b < b`` at all samples of the facts, one at most: no proof can find another. ``None``: there are no such samples."""
    try:
        table = _with_any(b, _with_any(a, samples_of(facts)))
        if not sample_count(table):
            return None
        at = table.at
        number, size = np.asarray(at.of(a), np.int64), np.asarray(at.of(b), np.int64)
        demands = [np.asarray(at.of(c), np.bool_) for c in (*_demands(a), *_demands(b))]
    except (ZeroDivisionError, OverflowError):  # of constants
        return None
    if demands:
        number, size, has_value = np.broadcast_arrays(number, size, np.logical_and.reduce(np.broadcast_arrays(*demands)))
        number, size = number[has_value], size[has_value]
        if not number.size:
            return None
    if np.count_nonzero(size < 1):
        return ()
    found = number // size
    first = found.item(0)
    return (first,) if np.count_nonzero(found == first) == found.size else ()


def _with_any(e: Expr, table: Samples) -> Samples:
    """Samples of the symbols of an expression: any integers for those of which nothing is known."""
    table = samples_of_tables(table, e)
    for name in sorted(n for n in e.free if n not in table) if table else ():
        known = table.more.get((name,))
        if known is None:
            known = table.more[name,] = samples_with(table, name, -NEAR, np.where(np.arange(sample_count(table)) % 2, FAR, NEAR))
        table = known
    return table


def samples_of_tables(table: Samples, e: Expr) -> Samples:
    """Samples with the tables in which an expression looks up; none if it searches in one whose elements do not differ."""
    for found in lookups_of(e) if table else ():
        name, size = found.tensor.name, found.size.value if isinstance(found.size, Const) else 0
        if name not in table:
            key = name, size, found.low, found.high
            known = table.more.get(key)
            if known is None:
                low, high = (end.value if isinstance(end, Const) else other for end, other in ((found.low, 0), (found.high, FAR)))
                drawn = np.roll(_RANDOM_TABLES[:, : size if 0 < size <= LONGEST else 1], len(table), axis=0)[: sample_count(table)]
                known = table.more[key] = Samples({**table, name: _elements(drawn, low, high)}, table.at)
            table = known
        if isinstance(found, UpperBound) and table[name].shape[1] != size:
            return Samples()
    return table


def _elements(drawn: NDArray[np.float64], low: int, high: int) -> Ints:
    """Rising elements in each row, from the least to the greatest value; or one, in every other row more likely near 0, as conditions on places ask for."""
    parts = np.sort(drawn, axis=1)
    if parts.shape[1] > 1:
        parts[:, 0], parts[:, -1] = 0, 1
    found = np.minimum(low + parts * max(0, high - low + 1), max(low, high)).astype(np.int64)
    if parts.shape[1] == 1 and low < high:
        middle = min(max(0, low), high)
        side, far = np.divmod(2 * parts[1::2], 1)
        reach = np.where(side > 0, high - middle, middle - low)
        found[1::2] = middle + np.where(side > 0, 1, -1) * ((reach + 1.0) ** far).astype(np.int64) + np.where(side > 0, -1, 1)
    return found


@remembered(MEMORY)
def _demands(e: Expr) -> tuple[Expr, ...]:
    """The conditions under which an expression surely has a value."""
    found = dict.fromkeys(c for part in children(e) for c in _demands(part))
    match e:
        case FloorDiv(_, b) | Mod(_, b) if b.free:
            found[ne(b, ZERO)] = None
        case Table(entries, index):
            found |= {ge(index, ZERO): None, lt(index, len(entries)): None}
        case _:
            pass
    return tuple(found)


def samples_of(facts: Facts) -> Samples:
    """Samples of the symbols whose ranges are known."""
    if facts.samples is None:
        facts.samples = _of_facts(facts)
    return facts.samples


def _of_facts(facts: Facts) -> Samples:
    weaker = facts.weaker
    if weaker is None:
        table, ranges, conditions = Samples({"": np.zeros(ROWS, np.int64)}), facts.ranges, facts.known
    else:
        known, more = weaker
        table = samples_of(known)
        ranges, conditions = (dict[str, Bounds](), (more,)) if isinstance(more, Expr) else (more, ())
    for e in (e for bounds in ranges.values() for e in bounds if e is not None and e.free):
        table = samples_of_tables(table, e)
    left = dict(ranges)
    while left and table:
        ready = [name for name, bounds in left.items() if all(b is None or b.free <= table.keys() for b in bounds)]
        if not ready:
            return Samples()
        table = _with_ranges(table, {name: left.pop(name) for name in ready}, facts.multiples)
    for condition in conditions:
        table = samples_where(table, condition)
    return table


def _with_ranges(table: Samples, ranges: Mapping[str, Bounds], multiples: Mapping[Expr, int]) -> Samples:
    """Samples of more symbols between bounds of which none depends on another one of them, where all have values; one table for all, as each is a copy."""
    if not ranges.keys().isdisjoint(table):
        return Samples()
    columns = dict(table)
    exists: NDArray[Any] | int = True
    for name, (low, high) in ranges.items():
        step = multiples.get(sym(name), 1)
        lo = 0 if low is None else -(-sampled_values(low, table) // step)
        if high is None:
            width: Ints | int = _WITHOUT_END[: sample_count(table)]
        else:
            width = sampled_values(high, table) // step - lo
            exists = exists & (width >= 0)
            width = min(width, MOST) if isinstance(width, int) else np.minimum(width, MOST)
        drawn = _drawn(table, len(columns), lo, width)
        columns[name] = drawn if step == 1 else drawn * step
    return _chosen(Samples(columns, table.at), exists)


def _drawn(table: Samples, number: int, lo: Ints | int, width: Ints | int) -> Ints:
    """A value for each row, between a bound and one above it: the random numbers are those of the column with this number."""
    if isinstance(width, int) and width == 0 and isinstance(lo, int):  # as of the indices of most axes of a launch
        return np.full(sample_count(table), lo, np.int64)
    return (_RANDOM[number % len(_RANDOM), : sample_count(table)] * (width + 1)).astype(np.int64) + lo


def sample_count(table: Samples) -> int:
    """The number of samples."""
    return next(iter(table.values())).size if table else 0


def sampled_values(e: Expr, table: Samples) -> Ints | int:
    """A value for each row, or one for all."""
    if isinstance(e, Const):
        return e.value
    found = table.at.of(e)
    return int(found) if isinstance(found, int) else found.astype(np.int64, copy=False)


def samples_with(table: Samples, name: str, lo: Ints | int, hi: Ints | int) -> Samples:
    """Samples of one more symbol between two bounds, where it has a value."""
    if name in table:
        return Samples()
    return _chosen(Samples({**table, name: _drawn(table, len(table), lo, hi - lo)}, table.at), lo <= hi)


def samples_where(table: Samples, condition: Expr) -> Samples:
    """The samples at which a condition holds."""
    match condition:
        case Compare(CompareOp.EQ, value, Element(tensor)) | Compare(CompareOp.EQ, Element(tensor), value) if tensor.name not in table:
            if value.free <= table.keys() and not lookups_of(value):
                table = Samples({**table, tensor.name: np.broadcast_to(sampled_values(value, table), sample_count(table))[:, None]}, table.at)
        case _:
            pass
    table = _with_any(condition, table)
    return _chosen(table, table.at.of(condition)) if table else table


def _chosen(table: Samples, mask: NDArray[Any] | int) -> Samples:
    """The rows at which a condition holds: one value for all rows, or one for each."""
    if isinstance(mask, np.ndarray) and mask.ndim:
        rows = mask.nonzero()[0]  # by these a column is taken in half the time
        return table if rows.size == mask.size else Samples({name: column[rows] for name, column in table.items()}, table.at, rows)
    return table if mask else Samples({name: column[:0] for name, column in table.items()})
