"""The ends of a ring: the threads that wait and arrive there, their cursors, their positions; and which of several rings between blocks an element belongs to.

Blocks with rings of their own must access elements of their own: two accesses of one element at the ends of a ring are ordered only if the
element determines the ring. It does if an axis of its index is the ring's number, or if several axes are the digits of that number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from taskfuse.check.accesses import Use
from taskfuse.check.clusters import Types
from taskfuse.check.statement_tree import BLOCK_NAMES, Conditions, Node
from taskfuse.check.traversals import Part, PingpongTurn, Visit, visits
from taskfuse.ir.scalar import Const, Expr, Mod, private, simplify, substitute, sym

RING = private("ring.number")


@dataclass(slots=True, eq=False)
class Endpoint:
    """A side of a ring.

    Attributes:
        cursor: the cursor of its waits.
        release: the cursor of a consumer's arrivals: the same, or one that trails.
        threads: conditions that select the threads that wait.
        traversal: its positions.
        lag: number of positions by which the release trails.
        ring_index: for a ring between blocks, the ring that a block uses; empty: all blocks share one.
    """

    cursor: str
    release: str
    threads: Conditions
    traversal: tuple[Part, ...]
    lag: int = 0
    releases: tuple[Part, ...] = ()
    pingpong: PingpongTurn | None = None
    ring_index: tuple[Expr, ...] = ()

    def visits(self) -> Iterator[Visit]:
        """All positions in the text."""
        return visits(self.traversal)


@dataclass(slots=True, eq=False)
class Ring:
    """A disciplined ring.

    Attributes:
        loops: corresponding loops of the producer and a consumer, whose positions correspond iteration by iteration.
        later: other corresponding loops, of which a consumer visits a position in a later iteration than the producer, and by how many.
        across: the cluster types whose blocks it joins.
    """

    full: str
    empty: str
    slots: int
    producer: Endpoint
    consumers: list[Endpoint]
    loops: list[tuple[Node, Node]] = field(default_factory=lambda: list[tuple[Node, Node]]())
    later: list[tuple[Node, Node, int]] = field(default_factory=lambda: list[tuple[Node, Node, int]]())
    pingpong: list[tuple[Node, PingpongTurn]] = field(default_factory=lambda: list[tuple[Node, PingpongTurn]]())
    pairs: list[tuple[Visit, Visit]] = field(default_factory=lambda: list[tuple[Visit, Visit]]())
    across: Types = ()

    @property
    def endpoints(self) -> list[Endpoint]:
        """Producer and consumers."""
        return [self.producer, *self.consumers]


def share_ring(a: Use, mine: Endpoint, b: Use, theirs: Endpoint) -> bool:
    """True only if accesses of one element, at two ends of rings, are made by blocks of the same ring."""
    if not mine.ring_index:
        return True
    return a.buffer == b.buffer and all(_tells(a, e, b, f) for e, f in zip(mine.ring_index, theirs.ring_index, strict=True))


def _tells(a: Use, e: Expr, b: Use, f: Expr) -> bool:
    """True only if the index of an element determines ``e`` (in ``a``) and ``f`` (in ``b``), which are then equal."""
    pairs = [(x, y) for x, y in zip(a.index, b.index, strict=True) if x is not None and y is not None]
    if any(x is e and y is f for x, y in pairs):
        return True
    digits = {g for x, y in pairs if (g := _in_terms_of(x, e, a)) is _in_terms_of(y, f, b) and g.free == RING.free}
    return _determined(RING, digits)


def _in_terms_of(index: Expr, ring: Expr, use: Use) -> Expr:
    """An index with the block index replaced by the number of the block's ring."""
    name = next(n for n in BLOCK_NAMES if n in ring.free)
    shift = simplify(sym(name) - ring)
    lo, hi = use.context.ranges.of(sym(name))
    facts = use.context.facts.with_range(RING.name, None if lo is None else lo - shift, None if hi is None else hi - shift)
    return simplify(substitute(index, {name: RING + shift}), facts)


def _determined(e: Expr, digits: set[Expr]) -> bool:
    """True only if an expression follows from some digits: it is one, or its remainder is, and its quotient follows."""
    if e in digits:
        return True
    remainders = [d for d in digits if isinstance(d, Mod) and d.a is e and isinstance(d.b, Const) and d.b.value > 0]
    return any(_determined(simplify(e // d.b), digits - {d}) for d in remainders)
