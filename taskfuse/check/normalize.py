"""A kernel's body as the checker reads it: indices as the variables that they are, iterations of some loops copied out.

A rewritten expression has a value only where the original has one. ``ranges``: what the launch bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from taskfuse.check.masks import THREAD_NAMES
from taskfuse.check.ranges import Ranges
from taskfuse.ir.scalar import ONE, ZERO, Const, Element, Expr, Facts, FloorDiv, Mod, Table, children, const, remembered, simplify, substitute, sym
from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES
from taskfuse.kir import Kernel, barrier_slots, bodies, expressions, held, map_expressions, map_stmts, walk, with_bodies
from taskfuse.kir.nodes import Bind, For, If, Stmt, TmaLoad, TmaStore
from taskfuse.kir.operands import Queue
from taskfuse.kir.products import LdMatrix, StMatrix, Wgmma
from taskfuse.kir.synchronization import Commit, Cursor, CursorInit, WaitGroup

BLOCK_NAMES = tuple(p.index_name for p in BLOCK_TYPES)
CLUSTER_NAMES = tuple(p.index_name for p in CLUSTER_TYPES)
UNROLL_LIMIT = 64
QUEUED = (Commit, WaitGroup, LdMatrix, StMatrix, TmaLoad, TmaStore, Wgmma)


def in_blocks(kernel: Kernel, facts: Facts, ranges: Ranges) -> tuple[Stmt, ...]:
    """The body with indices in normal form.

    A block's index in its cluster is a remainder of its index in the grid, or that index if there is one cluster; a thread index of extent 1 is 0.
    """
    places: dict[str, Expr] = {name: ZERO for name, extent in zip(THREAD_NAMES, kernel.block, strict=True) if extent is ONE}
    clusters = not all(e is ONE for e in kernel.cluster)
    if clusters:
        places |= {name: sym(b) % c for name, b, c in zip(CLUSTER_NAMES, BLOCK_NAMES, kernel.cluster, strict=True)}
    known = {*places, *(BLOCK_NAMES if clusters else ())}
    if all(e.free.isdisjoint(known) for s in walk(kernel) for e in expressions(s)):
        return kernel.body

    def written(e: Expr) -> Expr:
        if e.free.isdisjoint(known):
            return e
        found = _put(e, places, ranges, facts)
        return e if found is None else found

    return map_stmts(kernel.body, lambda s: map_expressions(s, written) if _mentions(s, known) else s)


def _mentions(stmt: Stmt, names: AbstractSet[str]) -> bool:
    """True if an expression of a statement itself, or its claim, has one of some symbols; most statements have none, and stay the same objects."""
    claim = held(stmt)
    return any([not e.free.isdisjoint(names) for e in (*expressions(stmt), *(claim.index if claim is not None else ()))])


def in_iteration(loop: For, value: Expr, ranges: Ranges) -> tuple[Stmt, ...] | None:
    """A loop's body in one iteration; ``None`` if its expressions cannot be expressed."""
    at = {loop.var: value}
    lost = False

    def written(e: Expr) -> Expr:
        nonlocal lost
        found = _put(e, at, ranges) if loop.var in e.free else e
        lost = lost or found is None
        return e if found is None else found

    body = map_stmts(loop.body, lambda s: map_expressions(s, written) if _mentions(s, at.keys()) else s)
    return None if lost else body


def _put(e: Expr, values: Mapping[str, Expr], ranges: Ranges, facts: Facts | None = None) -> Expr | None:
    """An expression with values in it, simplified if ``facts`` are given; ``None`` if that has a value where it has none: ``0//d`` is 0, unless ``d`` is."""

    def put(part: Expr) -> Expr:
        found = substitute(part, values)
        return found if facts is None else simplify(found, facts)

    try:
        found = put(e)
        lost = {(put(part), low) for part, low in _partial(e)} - _partial(found)
    except (ZeroDivisionError, IndexError):
        return None
    return found if all((least := ranges.of(part)[0]) is not None and least >= low for part, low in lost) else None


@remembered(1 << 14)
def _partial(e: Expr) -> frozenset[tuple[Expr, int]]:
    """The expressions that decide whether ``e`` has a value, each with its least value: divisors, indices of tables, the distances from these to the end."""
    found = frozenset[tuple[Expr, int]]().union(*map(_partial, children(e)))
    match e:
        case FloorDiv(_, b) | Mod(_, b) if not (isinstance(b, Const) and b.value > 0):
            return found | {(b, 1)}
        case Table(values, index):
            return found | {(index, 0), (const(len(values) - 1) - index, 0)}
        case Element(_, index, size, low, high):
            return found | {(index, 0), (size - 1 - index, 0), (high - low, 0)}
        case _:
            return found


@dataclass(frozen=True, slots=True)
class Unrolled:
    """The loops of a body that are copied out, by identity.

    Attributes:
        slots: unrolled loops that number slots; positions depend on the copy.
        queues: those, and the ones that contain asynchronous operations; the number of batches in flight depends on the copy.
    """

    slots: frozenset[int] = frozenset()
    queues: frozenset[int] = frozenset()


def unrolled(body: Kernel | tuple[Stmt, ...]) -> Unrolled:
    """The loops that are copied out. Unrolled loops around the other ends of the mbarriers in them are copied out alike.

    A loop whose iterations leave no copy in flight is not split for copies of threads: a ring that it fills ahead stays whole.
    """
    every = list(walk(body))
    loops = [s for s in every if isinstance(s, For) and _copies(s)]
    if not loops:
        return Unrolled()
    pending = any(isinstance(s, WaitGroup) and s.queue is Queue.COPY and s.pending for s in every)

    def counts(loop: For) -> bool:
        left = pending and not _drains(loop.body)
        return any(isinstance(s, QUEUED) and (left or not _is_of_copies(s)) for s in walk(loop.body))

    cursors = {Cursor(s.name).slot.name for s in every if isinstance(s, CursorInit)}
    slots = {id(loop) for loop in loops if cursors and _numbers_slots(loop, cursors)}
    queues = {id(loop) for loop in loops if counts(loop)} | slots
    if not queues:
        return Unrolled()
    inside = {id(loop): {slot.name for s in walk(loop.body) for slot in barrier_slots(s)} for loop in loops}
    return Unrolled(_with_other_ends(slots, inside), _with_other_ends(queues, inside))


def _with_other_ends(chosen: set[int], inside: Mapping[int, set[str]]) -> frozenset[int]:
    """Some loops, and those that hold an mbarrier of one of these."""
    while True:
        names = {name for loop in chosen for name in inside[loop]}
        more = {loop for loop, mine in inside.items() if mine & names} | chosen
        if more == chosen:
            return frozenset(chosen)
        chosen = more


def copied_out(body: tuple[Stmt, ...], chosen: frozenset[int], ranges: Ranges) -> tuple[Stmt, ...]:
    """A body with the iterations of some of its loops one after another."""
    if not chosen:
        return body
    found: list[Stmt] = []
    for stmt in body:
        inner = bodies(stmt)
        made = with_bodies(stmt, tuple([copied_out(b, chosen, ranges) for b in inner])) if inner else stmt
        copies = [in_iteration(made, const(value), ranges) for value in _copies(made)] if id(stmt) in chosen and isinstance(made, For) else [None]
        found += [made] if None in copies else [s for copy in copies for s in copy or ()]
    return tuple(found)


def _is_of_copies(s: Stmt) -> bool:
    """True for what opens and closes batches of asynchronous copies of threads."""
    return isinstance(s, (Commit, WaitGroup)) and s.queue is Queue.COPY


def _drains(body: tuple[Stmt, ...]) -> bool:
    """True if the last that a body does about asynchronous copies of threads is to wait for all of them: each run of it begins with none."""
    last = next((s for s in reversed(body) if any(map(_is_of_copies, walk(s)))), None)
    match last:
        case None:
            return True
        case WaitGroup(pending=pending):
            return pending == 0
        case For() | Bind() | If():
            return all(map(_drains, bodies(last)))
        case _:
            return False


def _numbers_slots(loop: For, cursors: set[str]) -> bool:
    """True if a loop's variable says how much further than a cursor's a slot is."""
    return any(loop.var in e.free and not e.free.isdisjoint(cursors) for s in walk(loop.body) for e in expressions(s))


def _copies(loop: For) -> range:
    """The values of an unrolled loop's variable; none if it is another loop, or a long one."""
    match loop:
        case For(start=Const(value=start), stop=Const(value=stop), step=Const(value=step), unroll=True) if 0 < len(range(start, stop, step)) <= UNROLL_LIMIT:
            return range(start, stop, step)
        case _:
            return range(0)
