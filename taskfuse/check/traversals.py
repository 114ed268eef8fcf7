"""The traversal of one end of a ring: the positions that it visits, as statements, loops and conditions (:func:`parse`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taskfuse.check.barriers import uneven
from taskfuse.check.paths import Paths
from taskfuse.check.ranges import terms_of
from taskfuse.check.statement_tree import THREADS, Conditions, Node, StatementBlock
from taskfuse.ir.scalar import (
    And,
    Compare,
    CompareOp,
    Const,
    Expr,
    Not,
    Or,
    Sym,
    and_,
    conjuncts,
    const,
    eq,
    ge,
    le,
    maximum,
    minimum,
    not_,
    or_,
    prove,
    simplify,
    sym,
)
from taskfuse.kir.nodes import For, TmaLoad
from taskfuse.kir.synchronization import Acquire, Advance, Arrive, ArriveAsync, Cursor, Expect, Release, Wait

CursorTree = Node | tuple[Node | Conditions, list["CursorTree"]]
"""An operation on a cursor, or a loop or conditions around several of them."""


class NotRing(Exception):
    """The use of an mbarrier does not have the form of a ring."""

    def __init__(self, reason: str, *nodes: Node) -> None:
        super().__init__(reason)
        self.reason = reason
        self.nodes = nodes


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """One position in the text: the wait, the arrivals, the advance.

    ``wait`` is ``None`` in the visits of a release cursor, ``arrivals`` empty in those of the cursor that it trails.

    Attributes:
        lag: of a release cursor: the number of positions by which it trails.
        drain: of a release cursor: the arrivals after the loop, by position in the text; ``arrivals`` are those in the loop.
    """

    wait: Node | None
    arrivals: tuple[Node, ...]
    advance: Node
    lag: int = 0
    drain: tuple[tuple[Node, ...], ...] = ()

    @property
    def releases(self) -> tuple[Node, ...]:
        """All arrivals, in the loop and after it."""
        return (*self.arrivals, *(n for group in self.drain for n in group))


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """Positions in a loop, or in instances that share a distributed ring.

    Attributes:
        node: the loop; ``None`` for instances.
        count: of instances.
        index: the number of a thread's instance.
    """

    node: Node | None
    inner: tuple[Part, ...]
    count: Expr | None = None
    index: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Positions under conditions that all threads of a block agree on."""

    conditions: Conditions
    inner: tuple[Part, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Either:
    """Positions under conditions that all threads of a block agree on, and others otherwise."""

    conditions: Conditions
    yes: tuple[Part, ...]
    no: tuple[Part, ...]

    @property
    def inner(self) -> tuple[Part, ...]:
        """All of them."""
        return (*self.yes, *self.no)


Part = Visit | Repeat | Choice | Either


@dataclass(frozen=True, slots=True, eq=False)
class PingpongTurn:
    """How instances share a ring: instance ``index`` of ``count`` takes the turn at ``take`` and passes it at ``give``.

    Attributes:
        trips: the number of positions that instance ``index`` visits each time.
        before, after: the first and the last of an instance's statements on slots and turns.
    """

    barrier: str
    index: Expr
    count: int
    trips: Expr
    take: Node
    give: Node
    before: Node
    after: Node


def at_instance(index: Expr, number: Expr) -> dict[str, Expr]:
    """The thread index where the instance index equals ``number``; empty unless the instance index is one thread index plus a constant."""
    match terms_of(index):
        case ((Sym(name=name), (1 | -1) as k),), constant if name in THREADS:
            return {name: (number - constant) * k}
        case _:
            return {}


def visits(traversal: tuple[Part, ...]) -> Iterator[Visit]:
    """All positions in the text."""
    for part in traversal:
        if isinstance(part, Visit):
            yield part
        else:
            yield from visits(part.inner)


def skeleton(block: StatementBlock, ops: set[Node], paths: Paths) -> list[CursorTree]:
    """The nodes in ``ops`` with the loops and uniform conditions around them: nodes, and (node of loop or conditions, list)."""
    found: list[CursorTree] = []
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
                uniform = tuple(part for c in own if c.free.isdisjoint(THREADS) for part in conjuncts(_plain(c)))
                match found[-1:]:
                    case [(tuple() as before, list() as earlier)] if uniform and before == uniform and _stays(uniform):
                        found[-1] = before, [*earlier, *inner]  # one choice, in two places of one iteration
                    case _:
                        found += [(uniform, inner)] if uniform else inner
    return found


def _stays(conditions: Conditions) -> bool:
    """True only if no statement of one iteration changes what conditions say: they depend on no cursor."""
    return all(Cursor.of(name) is None for c in conditions for name in c.free)


def _plain(c: Expr, *, negated: bool = False) -> Expr:
    """A condition, or its negation, with negations at its atoms alone."""
    match c:
        case Not(a):
            return _plain(a, negated=not negated)
        case And(args) | Or(args):
            parts = (_plain(a, negated=negated) for a in args)
            return and_(*parts) if isinstance(c, And) is not negated else or_(*parts)
        case _:
            return not_(c) if negated else c


def same_conditions(a: Conditions, b: Conditions) -> bool:
    """True only if two conjunctions have the same conjuncts."""
    return _atoms(and_(*a)) == _atoms(and_(*b))


def _atoms(c: Expr) -> object:
    """A condition, whatever the order of its parts."""
    match c:
        case And(args) | Or(args):
            return type(c), frozenset(map(_atoms, args))
        case _:
            return c


def _kind(c: Expr) -> str:
    """What a condition is made of, which is something else than its negation is: it says which of the two is named first, at all ends of a ring."""
    match c:
        case And(args) | Or(args):
            return f"{type(c).__name__}({', '.join(sorted(map(_kind, args)))})"
        case Compare(op=op):
            return op.name
        case _:
            return type(c).__name__


def _opposite(conditions: Conditions) -> Conditions:
    """What holds where a conjunction does not."""
    return conjuncts(_plain(and_(*conditions), negated=True))


def _merged(parts: list[Part]) -> tuple[Part, ...]:
    """Positions under conditions, and then those where the conditions do not hold, are one choice between the two."""
    found: list[Part] = []
    for part in parts:
        match found[-1:], part:
            case [Choice(conditions=c, inner=yes)], Choice(conditions=d, inner=no):
                common = tuple(e for e in c if e in d)
                mine, theirs = tuple(e for e in c if e not in common), tuple(e for e in d if e not in common)
                if mine and theirs and same_conditions(_opposite(mine), theirs):
                    either = Either(mine, yes, no) if _kind(and_(*mine)) <= _kind(and_(*theirs)) else Either(theirs, no, yes)
                    found[-1] = Choice(common, (either,)) if common else either
                    continue
            case _:
                pass
        found.append(part)
    return tuple(found)


def clipped(part: Repeat) -> tuple[Expr, Expr, tuple[Part, ...]] | None:
    """The iterations of a loop in which it visits positions, if one condition on its variable decides: the first, the one after the last, and these positions.
    ``None`` for a loop whose step is not one.
    """
    match part:
        case Repeat(node=Node(stmt=For(var=var, start=start, stop=stop, step=Const(value=1))) as loop, inner=(Choice(conditions=conditions, inner=inner),)):
            first, end = list[Expr](), list[Expr]()
            for c in conditions:
                match c:
                    case Compare(op=(CompareOp.LT | CompareOp.LE) as op, a=a, b=b):
                        difference = a - b - (1 if op is CompareOp.LE else 0)  # it is below zero
                        below, above = simplify(sym(var) - difference), simplify(sym(var) + difference + 1)
                        if var not in below.free:
                            end.append(below)
                        elif var not in above.free:
                            first.append(above)
                        else:
                            return None
                    case _:
                        return None
            facts = loop.context.facts
            low, high = maximum(*first) if first else start, minimum(*end) if end else stop
            begin = low if prove(ge(low, start), facts) else maximum(low, start)
            return begin, high if prove(le(high, stop), facts) else minimum(high, stop), inner
        case Repeat(node=Node(stmt=For(start=start, stop=stop, step=Const(value=1))), inner=inner):
            return start, stop, inner
        case _:
            return None


def parse(trees: list[CursorTree], *, trailing: bool, waits: bool, arrives: bool, alike: frozenset[str] = frozenset()) -> tuple[Part, ...]:
    """Positions: a wait, arrivals, an advance by one; loops and conditions around whole positions.

    ``alike``: thread indices on which all threads that visit these positions agree; trips of loops may depend on them.
    """
    parts: list[Part] = []
    wait: Node | None = None
    arrivals: list[Node] = []
    last: Node | None = None
    for tree in trees:
        if isinstance(tree, tuple):
            key, inner = tree
            loads = _loads(tree)
            if loads:
                if waits and wait is None:
                    raise NotRing("it arrives at a position without waiting for it", loads[0])
                arrivals += loads
                continue
            if wait is not None or arrivals:
                raise NotRing("a position begins outside a loop or condition and ends inside", *([wait] if wait else arrivals[:1]))
            parsed = parse(inner, trailing=trailing, waits=waits, arrives=arrives, alike=alike)
            if isinstance(key, Node):
                reason = uneven(next(visits(parsed)).advance, alike=alike)
                if reason:
                    raise NotRing(reason, key)
                parts.append(Repeat(key, parsed))
            else:
                parts.append(Choice(key, parsed))
            continue
        assert isinstance(tree, Node)
        last = tree
        match tree.stmt:
            case Wait() | Acquire():
                if wait is not None or arrivals:
                    raise NotRing("it waits twice for one position", tree)
                wait = tree
            case Advance(count=count):
                if count is not const(1):
                    raise NotRing("it advances by more than one position without taking a turn", tree)
                if waits and wait is None:
                    raise NotRing("it advances past a position without waiting for it", tree)
                if arrives and not any(isinstance(a.stmt, (Arrive, ArriveAsync, Expect, Release)) for a in arrivals):
                    raise NotRing("it advances past a position without arriving", tree)
                parts.append(Visit(wait, tuple(arrivals), tree))
                wait, arrivals = None, []
            case _:
                if waits and wait is None:
                    raise NotRing("it arrives at a position without waiting for it", tree)
                arrivals.append(tree)
    if (wait is not None or arrivals) and last is not None:
        raise NotRing("it does not advance after a position", last)
    return _merged(list(_peeled(parts)) if trailing else parts)


def _loads(tree: CursorTree) -> list[Node]:
    """The loads of a loop of loads only; empty for any other tree."""
    if not isinstance(tree, tuple):
        return [tree] if isinstance(tree.stmt, TmaLoad) else []
    key, inner = tree
    if not isinstance(key, Node):
        return []
    found = [_loads(i) for i in inner]
    return [n for loads in found for n in loads] if all(found) else []


def _peeled(parts: list[Part]) -> tuple[Part, ...]:
    """``for i in a..b: if i >= a + L: position`` and ``min(L, b - a)`` positions after it are ``for i in a..b: position``."""
    found: list[Part] = []
    k = 0
    while k < len(parts):
        match parts[k]:
            case Repeat(node=Node(stmt=For(var=var, start=start, step=Const(value=1))) as loop, inner=(Choice(conditions=(c,), inner=(Visit() as one,)),)):
                lag = _lag(c, sym(var) - start)
                drain = _drain(parts[k + 1 :], loop, lag)
                if drain:
                    found.append(Repeat(loop, (Visit(None, one.arrivals, one.advance, lag, tuple(v.arrivals for v in visits(drain))),)))
                    k += 1 + len(drain)
                    continue
            case _:
                pass
        found.append(parts[k])
        k += 1
    return tuple(found)


def _lag(condition: Expr, trip: Expr) -> int:
    """``L`` of a condition ``trip >= L``, and 0 if it is something else."""
    match condition:
        case Compare(op=(CompareOp.LT | CompareOp.LE) as op, a=a, b=b):
            least = trip - (b - a) + (1 if op is CompareOp.LT else 0)
            return least.value if isinstance(least, Const) and least.value > 0 else 0
        case _:
            return 0


def _drain(behind: list[Part], loop: Node, lag: int) -> tuple[Part, ...]:
    """The positions after a loop that are the ``min(lag, trips)`` last ones that it leaves: the parts; none if there are fewer."""
    assert isinstance(loop.stmt, For)
    trips = loop.stmt.stop - loop.stmt.start
    facts = loop.context.facts
    left = minimum(lag, trips)
    if not lag or not behind:
        return ()
    match behind[0]:
        case Repeat(node=Node(stmt=For(start=start, stop=stop, step=Const(value=1))), inner=(Visit(),)):
            count = stop - start
            return (behind[0],) if any(count is e or prove(eq(count, e), facts) for e in (left, maximum(left, 0))) else ()
        case _:
            pass
    first = behind[:lag]
    if len(first) < lag:
        return ()
    for k, part in enumerate(first):
        match part:
            case Visit() if prove(ge(trips, k + 1), facts):
                pass
            case Choice(conditions=(c,), inner=(Visit(),)) if _lag(c, trips) == k + 1:
                pass
            case _:
                return ()
    return tuple(first)
