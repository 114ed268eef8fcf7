"""Arrivals and bytes of an mbarrier in each of its phases: as many arrivals as it counts, as many bytes as it expects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from taskfuse.check.endpoints import Endpoint
from taskfuse.check.statement_tree import BLOCKS, Conditions, Context, Node
from taskfuse.check.threads import Threads
from taskfuse.check.traversals import NotRing, Part, Visit, visits
from taskfuse.ir.scalar import ONE, Expr, const, eq, maximum, prove, simplify
from taskfuse.kir import Kernel
from taskfuse.kir.clusters import reached
from taskfuse.kir.declarations import TensorMapParam, TensorParam
from taskfuse.kir.nodes import For, TmaLoad
from taskfuse.kir.synchronization import Expect


class Arrivals:
    """Sums over the statements of a kernel. Each method raises :class:`NotRing` if a sum is wrong.

    Attributes:
        initial: the count of each mbarrier's initialization.
    """

    def __init__(self, kernel: Kernel, threads: Threads, initial: Mapping[str, list[Expr]]) -> None:
        self.kernel = kernel
        self.threads = threads
        self.initial = initial
        self._transfers = _transfers(kernel)

    def counted(self, name: str, ends: list[tuple[Endpoint, tuple[Part, ...]]], blocks: Expr = ONE) -> None:
        """The arrivals of one position, summed over all ends and all ``blocks``, equal the barrier's count."""
        total: Expr = const(0)
        for end, traversal in ends:
            one: Expr | None = None
            for visit in visits(traversal):
                for count in self._arrivals_of(end, visit):
                    if one is not None and one is not count and not prove(eq(one, count), self.threads.context.facts):
                        raise NotRing("positions have different numbers of arrivals", visit.arrivals[0])
                    one = count
            total = total if one is None else total + one * blocks
        for count in self.initial.get(name, []):
            if count is not total and not prove(eq(count, total), self.threads.context.facts):
                raise NotRing(f"{name} counts {count} arrivals, but gets {total}", *(n for _, parts in ends for v in visits(parts) for n in v.arrivals[:1]))

    def _arrivals_of(self, end: Endpoint, visit: Visit) -> list[Expr]:
        """The arrivals of one position; of the visits of a trailing cursor, in the loop and in each position after it."""
        found: list[Expr] = []
        for group in (visit.arrivals, *visit.drain):
            total: Expr = const(0)
            for n in group:
                if isinstance(n.stmt, TmaLoad):
                    continue
                split = self.threads.split(n.conditions)
                if split.varying:
                    raise NotRing("the set of threads that arrive varies", n)
                count = self._instance_count(end, split.threads)
                if count is None:
                    raise NotRing("the number of threads that arrive is unknown", n)
                total = total + count
            found.append(total)
        return found

    def _instance_count(self, end: Endpoint, conditions: Conditions) -> Expr | None:
        if end.pingpong is None:
            return self.threads.count(conditions)
        counts = {self.threads.count((*conditions, eq(end.pingpong.index, k))) for k in range(end.pingpong.count)}
        return counts.pop() if len(counts) == 1 else None

    def balanced(self, nodes: Sequence[Node], around: tuple[Node, ...] = ()) -> None:
        """The bytes that arrivals expect equal those that loads write, in an iteration of the loops ``around`` them.

        The expecting and the loading threads may differ: both sides are sums of terms that are the same for all of them. They are compared by what holds
        in all such iterations: not by the facts of a statement, which say that one of its threads exists, and that the loops around it have trips.
        """
        expected: Expr = const(0)
        brought: Expr = const(0)
        concerned: list[Node] = []
        for n in nodes:
            match n.stmt:
                case Expect(bytes=b):
                    split = self.threads.split(n.conditions)
                    count = None if split.varying else self.threads.count(split.threads)
                    if count is None:
                        raise NotRing("the number of threads that expect bytes is unknown", n)
                    expected = expected + self._of_all(b, n, n.context, around) * count
                    concerned.append(n)
                case TmaLoad(map=name, across=across):
                    if not self.threads.exactly_one(n.conditions):
                        raise NotRing("a load is not issued by exactly one thread", n)
                    brought = brought + self._trips(n, around) * self._transfers[name] * reached(self.kernel.cluster, across)
                    concerned.append(n)
                case _:
                    pass
        if expected is brought:
            return
        context = around[-1].blocks[0].context if around else self.threads.context
        if not prove(eq(expected, brought), context.under(self.threads.split(concerned[0].conditions).uniform).facts):
            raise NotRing(f"{expected} bytes are expected, but loads bring {brought}", *concerned[:1])

    def _trips(self, node: Node, around: tuple[Node, ...]) -> Expr:
        """How often one thread executes a statement in an iteration of the loops ``around``: the product of the trips of the loops inside.

        The trips of a loop are those that it has where it stands: its own iterations must not show that there are some.
        """
        mine = self.threads.split(node.conditions).threads
        total: Expr = const(1)
        for loop in node.loops[len(around) :]:
            assert isinstance(loop.stmt, For)
            if loop.stmt.step is not const(1):
                raise NotRing("the number of times a load is issued is unknown", loop)
            total = total * self._of_all(maximum(loop.stmt.stop - loop.stmt.start, 0), node, loop.context.under(mine), around)
        return total

    def _of_all(self, e: Expr, node: Node, context: Context, around: tuple[Node, ...]) -> Expr:
        """An expression of a statement, if it has one value for all threads in an iteration of the loops ``around``."""
        shared = self.threads.launch | BLOCKS | {loop.stmt.var for loop in around if isinstance(loop.stmt, For)}
        found = e if e.free <= shared else simplify(e, context.facts)
        if not found.free <= shared:
            raise NotRing(f"{found} may differ between the threads that expect bytes and those that load them", node)
        return found


def _transfers(kernel: Kernel) -> dict[str, int]:
    """Bytes of one transfer by each tensor map."""
    sizes = {p.name: p.dtype.itemsize for p in kernel.params if isinstance(p, TensorParam)}
    return {p.name: math.prod(p.box) * sizes[p.tensor] for p in kernel.params if isinstance(p, TensorMapParam)}
