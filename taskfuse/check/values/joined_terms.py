"""The terms in a reader's result: those of the threads and blocks whose partial results have been joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.bounded_variables import Trip
from taskfuse.check.constraints import Constraints
from taskfuse.check.flags import any_of, numbers_of
from taskfuse.check.tables import distinct_columns
from taskfuse.check.values.accumulators import Term
from taskfuse.check.values.block_threads import BlockThreads
from taskfuse.check.values.claims import Place
from taskfuse.check.values.cross_thread_reductions import Joined
from taskfuse.check.values.questions import equal, proves
from taskfuse.check.values.runs import Span
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import TRUE, Expr, Sym, children, conjuncts, const, le, lt, substitute, sym
from taskfuse.kir.nodes import For

Ints = NDArray[np.int64]


def members_of(joined: Joined, group: list[Term], axes: list[int], want: Place) -> list[Mapping[str, Ints]]:
    """The threads whose terms readers have, one set for each different set of terms; the terms of a set belong to one element.

    A set without the open thread index has all threads along it.
    """
    threads = joined.threads
    count = threads.count
    readers = threads.chosen(want.node.conditions)
    takers = np.logical_or.reduce([threads.chosen(t.node.conditions) for t in group])
    names = threads.index.keys()
    atoms = {a for e in group[0].place.element for a in thread_atoms(e, names)} | {a for c in joined.assumed for a in thread_atoms(c, names)}
    keys = [threads.values(a) for a in sorted(atoms, key=str)]
    packed = _packed(joined.members[readers])
    firsts: dict[tuple[object, ...], int] = {}
    for t, *alike in zip(numbers_of(readers).tolist(), packed, *(key[readers].tolist() for key in keys), strict=True):
        firsts.setdefault(tuple(alike), t)
    for t in firsts.values():
        members = numbers_of(joined.members[t])
        if not members.size:
            raise Open(f"thread {t} reads a result that has no terms", want.node)
        for a, key in zip(sorted(atoms, key=str), keys, strict=True):  # the first of those alike has their keys
            if any_of(key[members] != key[t]):
                raise Open(f"thread {t} has terms of another element: {a} of the threads that it joins differs", want.node)
    some = [np.frombuffer(row, np.uint8) for row in dict.fromkeys(packed)]
    taking = np.packbits(takers)
    sets = [np.unpackbits(np.frombuffer(row, np.uint8), count=count) for row in sorted({(row & taking).tobytes() for row in some})]
    found: dict[bytes, Mapping[str, Ints]] = {}
    said = [_said(t, axes, threads) for t in group]
    for s in sets:
        members = numbers_of(s)
        if not members.size:
            raise Open("threads join partial results of threads that take no terms", want.node)
        rows = np.concatenate([values[:, members] for values in said])
        found.setdefault(rows[:, np.lexsort(rows)].tobytes(), _rows(threads, members, want))
    return list(found.values())


def _packed(rows: NDArray[np.bool_]) -> list[bytes]:
    """Each row of flags as bytes."""
    data, width = np.packbits(rows, axis=1).tobytes(), -(-rows.shape[1] // 8)
    return [data[k : k + width] for k in range(0, len(data), width)]


def _rows(threads: BlockThreads, members: Ints, want: Place) -> Mapping[str, Ints]:
    """The indices of some threads, without the open one if all threads along it are among them."""
    rows = {n: v[members] for n, v in threads.index.items()}
    if not threads.along or not rows[threads.along].any():  # the first exists in every block
        return rows
    others = np.stack([np.zeros(members.size, np.int64), *(v for n, v in rows.items() if n != threads.along)])
    several = distinct_columns(others)
    if several.shape[1] * (int(threads.index[threads.along].max()) + 1) != members.size:
        raise Open("threads join partial results of some of the threads of a symbolic extent of the block", want.node)
    return dict(zip((n for n in rows if n != threads.along), several[1:], strict=True))


def _said(t: Term, axes: list[int], threads: BlockThreads) -> Ints:
    """The parts of a thread's index that determine its points of the reduced axes: a row for each part of an expression, a column for each thread."""
    atoms = sorted({a for e in taken_by(t, axes) for a in thread_atoms(e, threads.index.keys())}, key=str)
    return np.array([threads.values(a) for a in atoms] or [np.zeros(threads.count, np.int64)])


def taken_by(t: Term, axes: Iterable[int]) -> Iterator[Expr]:
    """The expressions that determine which terms a thread takes: indices of points along some axes, conditions, and bounds of loops."""
    yield from (t.point[k] for k in axes)
    for c in t.node.conditions:
        yield from conjuncts(c)
    yield from (e for n in t.node.loops if isinstance(n.stmt, For) for e in (n.stmt.start, n.stmt.stop, n.stmt.step))


def one_element(joined: Joined, group: Iterable[Term], constraints: Constraints) -> None:
    """The terms of all blocks whose partial results have been joined belong to the element of the block that has them. Raises :class:`Open`."""
    there = constraints.given(*(Trip(sym(n), start, stop, ()) for n, (start, stop) in joined.spans.items()))
    for t in group:
        for e in t.place.element:
            other = substitute(e, joined.blocks)
            if not equal(there, e, other):
                raise Open(f"a block has terms of another element: {other}, not {e}", t.node)


def in_blocks(
    joined: Joined, spans: dict[str, Span], conditions: list[Expr], grid: Mapping[str, Expr], constraints: Constraints
) -> tuple[dict[str, Span], list[Expr]]:
    """Spans and conditions of terms, for each of the blocks of the grid whose partial results have been joined.

    Args:
        constraints: the constraints of the block that has them.
    """
    there = constraints.given(*(Trip(sym(n), start, stop, ()) for n, (start, stop) in joined.spans.items()))
    for name, at in joined.blocks.items():
        start, stop = spans[name]
        if (start, stop) != (const(0), grid[name]) and not (isinstance(at, Sym) and joined.spans.get(at.name) == (start, stop)):
            ends = (le(start, sym(name)), *(() if stop is None else (lt(sym(name), stop),)))
            conditions = [*conditions, *(c for c in ends if not proves(there, substitute(c, joined.blocks)))]
    found: dict[str, Span] = {}
    for name, (start, stop) in spans.items():
        if name not in joined.blocks:
            end = None if stop is None else substitute(stop, joined.blocks)
            found[name] = substitute(start, joined.blocks), end
    made = [substitute(c, joined.blocks) for c in conditions]
    return {**found, **joined.spans}, [c for c in made if c is not TRUE]


def row_spans(row: Mapping[str, Ints] | None) -> dict[str, Span]:
    """The spans of thread indices with given joint values."""
    return {} if row is None else {n: (const(0), const(int(v.max(initial=0)) + 1)) for n, v in row.items()}


def thread_atoms(e: Expr, names: AbstractSet[str]) -> set[Expr]:
    """The largest parts of an expression that depend only on some thread indices."""
    if e.free.isdisjoint(names):
        return set()
    if e.free <= names:
        return {e}
    return set[Expr]().union(*(thread_atoms(c, names) for c in children(e)))
