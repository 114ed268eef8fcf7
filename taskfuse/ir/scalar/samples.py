"""Values of symbols at which facts hold: if a form is negative at one of them, no search can find a proof that it is nonnegative.

They can reject a question, never accept one: nothing is proved by them, and no proof is lost. Symbols are drawn one after another between their bounds;
samples at which an assumed condition fails are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.ir.scalar.evaluation import Evaluation, evaluate
from taskfuse.ir.scalar.expr import MEMORY, ZERO, Const, Expr, FloorDiv, Mod, Table, children, sym
from taskfuse.ir.scalar.facts import Facts
from taskfuse.ir.scalar.logic import ge, lt, ne
from taskfuse.ir.scalar.lookups import lookups_of
from taskfuse.ir.scalar.memory import remembered

Ints = NDArray[np.int64]
Samples = Mapping[str, Ints]
"""Symbols with known ranges, each with equally many values; empty if no sample is known."""

ROWS = 256
NEAR, FAR, MOST = 8, 400, 1 << 10
"""How far above its least value a symbol is sampled: one without an upper bound, in every other row, and any symbol."""

_RANDOM = np.random.default_rng(7).random((61, ROWS))


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
    if lookups_of(condition) or not sample_count(table):
        return False
    at = Evaluation(_with_any(condition.free, table))
    wrong = np.logical_not(at.of(condition))
    if wrong.any():
        for has_value in _demands(condition):
            wrong = np.logical_and(wrong, at.of(has_value))
    return bool(wrong.any())


def _with_any(names: Iterable[str], table: Samples) -> Samples:
    """Samples of some symbols: any integers for those of which nothing is known."""
    for name in sorted(n for n in names if n not in table):
        table = samples_with(table, name, -NEAR, np.where(np.arange(sample_count(table)) % 2, FAR, NEAR))
    return table


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
    table: Samples = {"": np.zeros(ROWS, np.int64)}
    left = dict(facts.ranges)
    while left:
        ready = [name for name, bounds in left.items() if all(b is None or b.free <= table.keys() for b in bounds)]
        if not ready:
            return {}
        for name in ready:
            low, high = left.pop(name)
            step = facts.multiples.get(sym(name), 1)
            lo = 0 if low is None else -(-sampled_values(low, table) // step)
            width = np.where(np.arange(sample_count(table)) % 2, FAR, NEAR) if high is None else np.minimum(sampled_values(high, table) // step - lo, MOST)
            table = samples_with(table, name, lo, lo + width)
            if step != 1:
                table = {**table, name: table[name] * step}
    for condition in facts.known:
        table = samples_where(table, condition)
    return table


def sample_count(table: Samples) -> int:
    """The number of samples."""
    return next(iter(table.values())).size if table else 0


def sampled_values(e: Expr, table: Samples) -> Ints | int:
    """A value for each row, or one for all."""
    if isinstance(e, Const):
        return e.value
    return np.broadcast_to(np.asarray(evaluate(e, table), np.int64), sample_count(table))


def samples_with(table: Samples, name: str, lo: Ints | int, hi: Ints | int) -> Samples:
    """Samples of one more symbol between two bounds, where it has a value."""
    if name in table:
        return {}
    found = (_RANDOM[len(table) % len(_RANDOM), : sample_count(table)] * (hi - lo + 1)).astype(np.int64) + lo
    return _chosen({**table, name: found}, lo <= hi)


def samples_where(table: Samples, condition: Expr) -> Samples:
    """The samples at which a condition holds; none are known of tables."""
    if lookups_of(condition):
        return {}
    table = _with_any(condition.free, table)
    return _chosen(table, evaluate(condition, table))


def _chosen(table: Samples, mask: NDArray[Any] | int) -> Samples:
    """The rows at which a condition holds: one value for all rows, or one for each."""
    if isinstance(mask, np.ndarray) and mask.ndim:
        mask = mask.astype(np.bool_, copy=False)
        return table if np.count_nonzero(mask) == mask.size else {name: column[mask] for name, column in table.items()}
    return table if mask else {name: column[:0] for name, column in table.items()}
