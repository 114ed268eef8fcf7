"""The ends of a ring: who waits and arrives there, with which cursors, at which positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from taskfuse.check.clusters import Types
from taskfuse.check.forms import Part, Pingpong, Visit, visits
from taskfuse.check.program import Node
from taskfuse.check.threads import Conditions
from taskfuse.ir.scalar import Expr


@dataclass(slots=True, eq=False)
class Endpoint:
    """A side of a ring.

    Attributes:
        cursor: what it waits with.
        release: what a consumer arrives with: the same cursor, or one that trails.
        threads: conditions that select who waits.
        form: its positions.
        lag: how many positions the release trails.
        instance: of a ring between blocks, which of several rings a block uses; empty: all blocks share one.
    """

    cursor: str
    release: str
    threads: Conditions
    form: tuple[Part, ...]
    lag: int = 0
    releases: tuple[Part, ...] = ()
    pingpong: Pingpong | None = None
    instance: tuple[Expr, ...] = ()

    def visits(self) -> Iterator[Visit]:
        """All positions in the text."""
        return visits(self.form)


@dataclass(slots=True, eq=False)
class Ring:
    """A disciplined ring. ``across``: the cluster types whose blocks it joins."""

    full: str
    empty: str
    slots: int
    producer: Endpoint
    consumers: list[Endpoint]
    loops: list[tuple[Node, Node]] = field(default_factory=lambda: list[tuple[Node, Node]]())
    pingpong: list[tuple[Node, Pingpong]] = field(default_factory=lambda: list[tuple[Node, Pingpong]]())
    pairs: list[tuple[Visit, Visit]] = field(default_factory=lambda: list[tuple[Visit, Visit]]())
    across: Types = ()

    @property
    def endpoints(self) -> list[Endpoint]:
        """Producer and consumers."""
        return [self.producer, *self.consumers]
