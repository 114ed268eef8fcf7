"""Order between roles: the statements that follow a position of a ring, at its consumers and transitively at theirs.

What precedes an arrival at a position comes before all that a consumer does after its wait for that position; if the consumer then arrives at a
position of another ring, also before what the consumers of that one do after *their* wait. Ends of a ring share their loops, so positions are
compared by the iterations around them: those of the loops around the first wait and all that follows it must be equal; inner loops are over.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskfuse.check.accesses import Use
from taskfuse.check.endpoints import Endpoint, Ring
from taskfuse.check.paths import Paths
from taskfuse.check.statement_tree import BLOCKS, Context, Node
from taskfuse.check.threads import Threads
from taskfuse.check.traversals import Visit
from taskfuse.kir.nodes import For
from taskfuse.kir.synchronization import Arrive, Expect, Wait


class RingOrder:
    """Questions about the rings of one block, except rings across blocks, and those whose consumers take turns."""

    def __init__(self, rings: list[Ring], threads: Threads, paths: Paths) -> None:
        self.threads = threads
        self.paths = paths
        self._rings = [r for r in rings if not r.across and all(isinstance(v.wait.stmt, Wait) for e in r.endpoints for v in e.visits() if v.wait is not None)]

    def positions(self, a: Node) -> Iterator[tuple[Ring, Visit]]:
        """The positions of rings at which a node follows the producer's wait, and precedes or is an arrival."""
        for ring in self._rings:
            for visit in ring.producer.visits():
                wait = visit.wait
                if wait is None or not wait.number < a.number or a.loops[: len(wait.loops)] != wait.loops:
                    continue
                if any(a is n or self.paths.forward(a, n) is not None for n in visit.arrivals):
                    yield ring, visit

    def comes_first(self, ring: Ring, visit: Visit, a: Use, b: Use, equal: frozenset[str] | set[str]) -> bool:
        """True only if ``a``, which precedes the completion of a position, comes before ``b``.

        Args:
            equal: names of symbols that have one value in both, since they access one element.
        """
        if not equal >= BLOCKS:
            return False
        return any(_equal(a.node, b.node, depth, equal) for depth in self._depths(ring, visit, b, len(_wait(visit).loops), True, set()))

    def _depths(self, ring: Ring, visit: Visit, b: Use, depth: int, known: bool, seen: set[int]) -> Iterator[int]:
        """For each way to an access: how many loops around the first wait have to be in the same iteration.

        Args:
            depth: how many have to be so far.
            known: the position is visited, in the iteration that is asked about. Otherwise what follows it must show that.
            seen: positions, by the number of their advance.
        """
        if visit.advance.number in seen:
            return
        seen = {*seen, visit.advance.number}
        for consumer, there in self._consumers(ring, visit):
            wait = _wait(there)
            left = self._left(ring, visit, consumer, wait, b.node, b.context, known)
            if left is not None:
                yield min(depth, left)
            for other in self._rings:
                for later in other.producer.visits():
                    for n in later.arrivals:
                        if isinstance(n.stmt, (Arrive, Expect)):
                            left = self._left(ring, visit, consumer, wait, n, n.block.context, known)
                            if left is not None:
                                yield from self._depths(other, later, b, min(depth, left), False, seen)

    @staticmethod
    def _consumers(ring: Ring, visit: Visit) -> Iterator[tuple[Endpoint, Visit]]:
        """Where consumers visit a position: each in one place of its text, at which it visits no other position of the producer's text."""
        for consumer in ring.consumers:
            mine = list(consumer.visits()) if consumer.pingpong is None else []
            match [two for one, two in ring.pairs if one is visit and two in mine]:
                case [there] if there.wait is not None and sum(two is there for _, two in ring.pairs) == 1:
                    yield consumer, there
                case _:
                    pass

    def _left(self, ring: Ring, visit: Visit, consumer: Endpoint, wait: Node, then: Node, context: Context, known: bool) -> int | None:
        """How many loops a statement shares with a consumer's wait that it follows, if its threads are the consumer's; else ``None``."""
        if self.paths.forward(wait, then) is None or not self.threads.implies(context.conditions, consumer.threads, context):
            return None
        shared = 0
        while shared < min(len(wait.loops), len(then.loops)) and wait.loops[shared] is then.loops[shared]:
            shared += 1
        if not known and (shared < len(wait.loops) or not set(self.threads.split(wait.conditions).uniform) <= set(then.conditions)):
            return None
        return shared if all(pair in ring.loops for pair in zip(_wait(visit).loops[:shared], wait.loops[:shared], strict=True)) else None


def _wait(visit: Visit) -> Node:
    assert visit.wait is not None
    return visit.wait


def _equal(a: Node, b: Node, depth: int, equal: frozenset[str] | set[str]) -> bool:
    """True only if the outer loops around two nodes are in the same iteration."""
    outer = [[n.stmt.var for n in node.loops[:depth] if isinstance(n.stmt, For)] for node in (a, b)]
    return outer[0] == outer[1] and equal >= set(outer[0])
