"""The form of one end of a ring: which positions it visits, in terms of the text; and when two forms are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from taskfuse.check.meetings import uneven
from taskfuse.check.paths import Paths
from taskfuse.check.program import THREADS, Block, Node
from taskfuse.check.threads import Conditions
from taskfuse.ir.scalar import Const, Expr, const, eq, lt, prove, substitute, sym
from taskfuse.kir.nodes import Advance, Arrive, ArriveAsync, Expect, For, Wait

Item = Node | tuple[Node | Conditions, list["Item"]]
"""An operation on a cursor, or the loop or the conditions around some of them."""


class NotRing(Exception):
    """An mbarrier is not used in the form of a ring."""

    def __init__(self, reason: str, *nodes: Node) -> None:
        super().__init__(reason)
        self.reason = reason
        self.nodes = nodes


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """One position in the text: the wait, the arrivals, the advance.

    ``wait`` is ``None`` in the visits of a release cursor, ``arrivals`` empty in those of the cursor that it trails.
    """

    wait: Node | None
    arrivals: tuple[Node, ...]
    advance: Node


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """Positions in a loop. ``node`` is ``None`` for the instances that share a distributed ring: ``count`` times."""

    node: Node | None
    inner: tuple[Part, ...]
    count: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Positions under conditions that all threads of a block agree on."""

    conditions: Conditions
    inner: tuple[Part, ...]


Part = Visit | Repeat | Choice


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """How instances share a ring: instance ``index`` of ``count`` takes the turn at ``take`` and passes it at ``give``."""

    barrier: str
    index: Expr
    count: int
    take: Node
    give: Node
    before: Node
    after: Node


def visits(form: tuple[Part, ...]) -> Iterator[Visit]:
    """All positions in the text."""
    for part in form:
        if isinstance(part, Visit):
            yield part
        else:
            yield from visits(part.inner)


def skeleton(block: Block, ops: set[Node], paths: Paths) -> list[Item]:
    """The nodes in ``ops`` with the loops and uniform conditions around them: nodes, and (node of loop or conditions, list)."""
    found: list[Item] = []
    for node in block.nodes:
        if not node.blocks:
            if node in ops:
                found.append(node)
            continue
        if not paths.holds(node):
            continue
        if isinstance(node.stmt, For):
            inner = skeleton(node.blocks[0], ops, paths)
            if inner:
                found.append((node, inner))
            continue
        for arm in node.blocks:
            inner = skeleton(arm, ops, paths)
            if inner:
                own = arm.context.conditions[len(block.context.conditions) :]
                uniform = tuple(c for c in own if c.free.isdisjoint(THREADS))
                found += [(uniform, inner)] if uniform else inner
    return found


def parse(items: list[Item], *, trailing: bool, waits: bool, arrives: bool) -> tuple[Part, ...]:
    """Positions: a wait, arrivals, an advance by one; loops and conditions around whole positions."""
    parts: list[Part] = []
    wait: Node | None = None
    arrivals: list[Node] = []
    last: Node | None = None
    for item in items:
        if isinstance(item, tuple):
            key, inner = item
            if wait is not None or arrivals:
                raise NotRing("a position begins outside of a loop or condition and ends inside", *([wait] if wait else arrivals[:1]))
            parsed = parse(inner, trailing=trailing, waits=waits, arrives=arrives)
            if isinstance(key, Node):
                reason = uneven(next(visits(parsed)).advance)
                if reason:
                    raise NotRing(reason, key)
                parts.append(Repeat(key, parsed))
            else:
                parts.append(Choice(key, parsed))
            continue
        assert isinstance(item, Node)
        last = item
        match item.stmt:
            case Wait():
                if wait is not None or arrivals:
                    raise NotRing("it waits twice for one position", item)
                wait = item
            case Advance(count=count):
                if count is not const(1):
                    raise NotRing("it advances by more than one position, and takes no turn", item)
                if waits and wait is None:
                    raise NotRing("it advances past a position without waiting for it", item)
                if arrives and not any(isinstance(a.stmt, (Arrive, ArriveAsync, Expect)) for a in arrivals):
                    raise NotRing("it advances past a position without arriving", item)
                parts.append(Visit(wait, tuple(arrivals), item))
                wait, arrivals = None, []
            case _:
                if waits and wait is None:
                    raise NotRing("it arrives at a position without waiting for it", item)
                arrivals.append(item)
    if (wait is not None or arrivals) and last is not None:
        raise NotRing("it does not advance after a position", last)
    return _peeled(parts) if trailing else tuple(parts)


def _peeled(parts: list[Part]) -> tuple[Part, ...]:
    """``for i in a..b: if i > a: position`` and a position behind is ``for i in a..b: position`` if the loop runs at all."""
    found: list[Part] = []
    k = 0
    while k < len(parts):
        part = parts[k]
        following = parts[k + 1] if k + 1 < len(parts) else None
        match part, following:
            case Repeat(
                node=Node(stmt=For(var=var, start=start, step=Const(value=1))) as node, inner=(Choice(conditions=(c,), inner=(Visit() as one,)),)
            ), Visit() as two if c is lt(start, sym(var)) and node.runs():
                found.append(Repeat(node, (Visit(None, (*one.arrivals, *two.arrivals), one.advance),)))
                k += 2
            case _:
                found.append(part)
                k += 1
    return tuple(found)


@dataclass(slots=True)
class Match:
    """What two ends of a ring have in common.

    Attributes:
        loops: loops that are laid on top of each other, the first end's first.
        pairs: positions in the text that are the same ones.
        shared: loops of the first end whose iterations instances of the second one share.
    """

    loops: list[tuple[Node, Node]] = field(default_factory=lambda: list[tuple[Node, Node]]())
    pairs: list[tuple[Visit, Visit]] = field(default_factory=lambda: list[tuple[Visit, Visit]]())
    shared: list[Node] = field(default_factory=lambda: list[Node]())

    def forms(self, mine: tuple[Part, ...], theirs: tuple[Part, ...], names: dict[str, Expr]) -> None:
        """Two endpoints visit the same positions. ``names``: variables of the second one's loops, in terms of the first one's."""
        if len(mine) != len(theirs):
            raise NotRing("its ends visit different numbers of positions", *(n for n in (_first(mine), _first(theirs)) if n))
        for one, two in zip(mine, theirs, strict=True):
            match one, two:
                case Visit(), Visit():
                    self.pairs.append((one, two))
                case Repeat(node=Node(stmt=For() as a) as x, inner=left), Repeat(node=Node(stmt=For() as b) as y, inner=right):
                    for e, f in ((a.start, b.start), (a.stop, b.stop), (a.step, b.step)):
                        other = substitute(f, names) if names else f
                        if e is not other and not prove(eq(e, other), x.context.facts):
                            raise NotRing("its ends have different trips", x, y)
                    self.loops.append((x, y))
                    self.forms(left, right, {**names, b.var: sym(a.var)} if a.var != b.var else names)
                case Repeat(node=Node(stmt=For() as a) as x, inner=left), Repeat(node=None, inner=right, count=n) if n is not None:
                    if not (prove(eq(a.stop - a.start, n), x.context.facts) and a.step is const(1)):
                        raise NotRing(f"its producer makes {a.stop - a.start} positions for {n} instances", x)
                    self.shared.append(x)
                    self.forms(left, right, names)
                case Choice(conditions=c, inner=left), Choice(conditions=d, inner=right) if set(c) == {substitute(e, names) for e in d}:
                    self.forms(left, right, names)
                case _:
                    raise NotRing("its ends visit positions in different loops", *(n for n in (_first((one,)), _first((two,))) if n))


def match_trailing(waits: tuple[Part, ...], releases: tuple[Part, ...]) -> None:
    """A release cursor visits the positions of the one that waits, in the same loops. Raises :class:`NotRing` if not."""
    if len(waits) != len(releases):
        raise NotRing("the cursor that releases visits other positions than the one that waits", *(n for n in (_first(waits), _first(releases)) if n))
    for one, two in zip(waits, releases, strict=True):
        match one, two:
            case Visit(wait=Node() as wait), Visit(arrivals=arrivals):
                behind = [a for a in arrivals if a.loops == wait.loops]
                peeled = len(behind) < len(arrivals)
                if not behind or (not peeled and min(a.number for a in behind) < wait.number):
                    raise NotRing("it arrives at a position before it waits for it", *arrivals[:1], wait)
            case Repeat(node=Node() as x, inner=left), Repeat(node=Node() as y, inner=right) if x is y:
                match_trailing(left, right)
            case Choice(conditions=c, inner=left), Choice(conditions=d, inner=right) if c == d:
                match_trailing(left, right)
            case _:
                raise NotRing("the cursor that releases moves in other loops than the one that waits", *(n for n in (_first((one,)), _first((two,))) if n))


def _first(form: tuple[Part, ...]) -> Node | None:
    """A node of some positions, to point at."""
    return next((v.wait or v.advance for v in visits(form)), None)
