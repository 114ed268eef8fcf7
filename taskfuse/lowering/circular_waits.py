"""Circular waits of role instances: rings whose waits no order satisfies.

A loop that one role runs serially and another binds to threads hands out the positions of a ring one after another, one to each instance. Data that the
instances pass on together is complete when *all* of them have made their part, so its readers wait until the loop is over. If these readers also read
positions of that loop, and the loop can continue only when they have taken them, no role can continue.

The nest does not show this deadlock: it orders single iterations, and instances are iterations to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from taskfuse.errors import LoweringError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import has_code, storage_uses
from taskfuse.ir.tasks import Group, Node
from taskfuse.ir.tensor import TensorView
from taskfuse.lowering.channels import Channel
from taskfuse.schedule.order import Tree
from taskfuse.schedule.shared_loops import Loop

Place = tuple[int, ...]
"""The place of a tensor's code in the nest."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """A role that reads positions of a loop, from a channel."""

    node: Node
    channel: Channel


@dataclass(frozen=True, slots=True)
class _Nest:
    """Queries on a fusion's nest."""

    fusion: Fusion
    tree: Tree
    paths: Mapping[TensorView, tuple[Loop, ...]]
    places: Mapping[TensorView, Place]

    def shared(self, tv: TensorView) -> tuple[Loop, ...]:
        """The loops that a tensor shares with its readers."""
        return self.paths[tv][: tv.schedule.inline]

    def is_within(self, inner: Node, outer: Node) -> bool:
        """True if ``inner`` is ``outer`` or inside it."""
        while inner is not outer and inner in self.tree.parent:
            inner = self.tree.parent[inner]
        return inner is outer

    def share_threads(self, a: Node, b: Node) -> bool:
        """True if some threads belong to both nodes: a wait of one blocks the other."""
        return self.is_within(a, b) or self.is_within(b, a)

    def uses(self, channel: Channel, node: Node) -> list[Place]:
        """The places where code of a node reads a channel."""
        users = [u.output for tv in channel.tensors for u in storage_uses(self.fusion, tv) if has_code(self.fusion, u)]
        return [self.places[u] for u in users if self.is_within(self.tree.place[u], node)]


def check_circular_waits(
    channels: list[Channel], fusion: Fusion, tree: Tree, paths: Mapping[TensorView, tuple[Loop, ...]], places: Mapping[TensorView, Place]
) -> None:
    """Reject rings whose waits form a cycle.

    Args:
        paths: the loops around each tensor.
        places: the place of each tensor's code in the nest.

    Raises:
        LoweringError: it names the rings, and the groups or tasks that wait.
    """
    nest = _Nest(fusion, tree, paths, places)
    for channel in channels:
        for tv in channel.tensors:
            for loop in nest.shared(tv):
                if not tv.schedule.ptype(loop.axes[tv]).is_loop:
                    _check(nest, channels, channel, tv, loop)


def _check(nest: _Nest, channels: list[Channel], channel: Channel, tv: TensorView, loop: Loop) -> None:
    """Refuse a channel of a tensor whose instances are the iterations of a loop, if its readers hold that loop up."""
    for roles in _roles(nest, channels, loop):
        for first in roles:
            if not nest.share_threads(first.node, channel.producer.node) or nest.places[tv] < min(nest.uses(first.channel, first.node)):
                continue
            for chain in _chains(nest, channels, channel, loop):
                for last in roles:
                    end = chain[-1]
                    if last.channel is not end and any(
                        nest.share_threads(last.node, e.node) and min(nest.uses(end, e.node)) <= max(nest.uses(last.channel, last.node)) for e in end.consumers
                    ):
                        raise _circular(tv, loop, first, chain, last)


def _roles(nest: _Nest, channels: list[Channel], loop: Loop) -> list[list[_Reader]]:
    """The roles that read positions of a loop, in sets: those of one set can only go through the loop together with each other."""
    found: list[tuple[list[Node], list[_Reader]]] = []
    for ch in channels:
        if not any(loop in nest.shared(tv) and tv.schedule.ptype(loop.axes[tv]).is_loop for tv in ch.tensors):
            continue
        nodes, readers = [ch.producer.node, *(e.node for e in ch.consumers)], [_Reader(e.node, ch) for e in ch.consumers]
        joined = [f for f in found if any(nest.share_threads(a, b) for a in f[0] for b in nodes)]
        found = [f for f in found if f not in joined]
        found.append(([*nodes, *(n for f in joined for n in f[0])], [*readers, *(r for f in joined for r in f[1])]))
    return [readers for _, readers in found]


def _chains(nest: _Nest, channels: list[Channel], first: Channel, loop: Loop) -> Iterator[list[Channel]]:
    """A channel, and the chains of channels from its readers on, each of which is full only when its reader has passed the preceding one."""
    seen, chains = [first], [[first]]
    while chains:
        chain = chains.pop()
        yield chain
        for ch in channels:
            outside = not any(loop in nest.shared(tv) and tv.schedule.ptype(loop.axes[tv]).is_loop for tv in ch.tensors)
            if ch not in seen and outside and any(nest.share_threads(e.node, ch.producer.node) for e in chain[-1].consumers):
                seen.append(ch)
                chains.append([*chain, ch])


def _circular(tv: TensorView, loop: Loop, first: _Reader, chain: list[Channel], last: _Reader) -> LoweringError:
    maker = _called(last.channel.producer.node)
    steps = [
        f"{_called(first.node)} fills {chain[0].subject} when all its instances have had their turn at {first.channel.subject}",
        *(f"{_called(b.producer.node)} waits for {a.subject} before it fills {b.subject}" for a, b in pairwise(chain)),
        f"{_called(last.node)} waits for {chain[-1].subject} before it reads {last.channel.subject}",
        f"{maker} fills {last.channel.subject} one iteration after another, and waits when its {last.channel.stages} slots are full",
    ]
    return LoweringError(
        what=chain[0].subject,
        reason=f"waits form a cycle around the loop of axis {loop.depth} of {tv.name}: {'; '.join(steps)}",
        help=f"make axis {loop.depth} of {tv.name} Serial, or bind it alike where the loop is made, or put its readers into one task",
        location=tv.location,
    )


def _called(node: Node) -> str:
    return f"{'group' if isinstance(node, Group) else 'task'} {node.name}"
