"""Alignment of two ends of a ring that visit the same positions: loop by loop and condition by condition."""

from __future__ import annotations

from dataclasses import dataclass, field

from taskfuse.check.statement_tree import Conditions, Node
from taskfuse.check.traversals import Choice, Either, NotRing, Part, Repeat, Visit, at_instance, clipped, same_conditions, visits
from taskfuse.ir.scalar import Const, Expr, bounds, const, eq, maximum, prove, simplify, substitute, sym
from taskfuse.kir.nodes import For


@dataclass(slots=True)
class AlignedTraversals:
    """The correspondence of two ends of a ring.

    Attributes:
        loops: corresponding loops, the first end's first.
        later: other corresponding loops, of which the second end visits a position in a later iteration than the first one does, and by how many.
        pairs: corresponding positions in the text.
        shared: loops of the first end whose iterations instances of the second one share.
    """

    loops: list[tuple[Node, Node]] = field(default_factory=lambda: list[tuple[Node, Node]]())
    later: list[tuple[Node, Node, int]] = field(default_factory=lambda: list[tuple[Node, Node, int]]())
    pairs: list[tuple[Visit, Visit]] = field(default_factory=lambda: list[tuple[Visit, Visit]]())
    shared: list[Node] = field(default_factory=lambda: list[Node]())

    @property
    def behind(self) -> int:
        """The most iterations by which the second end visits a position later."""
        return max((behind for *_, behind in self.later), default=0)

    def align(self, mine: tuple[Part, ...], theirs: tuple[Part, ...], names: dict[str, Expr]) -> None:
        """Align the traversals of two endpoints. ``names``: loop variables of the second, in terms of those of the first.

        Raises :class:`NotRing` if they visit different positions.
        """
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
                            self._shifted(one, two, names)
                            break
                    else:
                        self.loops.append((x, y))
                        self.align(left, right, {**names, b.var: sym(a.var)} if a.var != b.var else names)
                case Repeat(node=Node(stmt=For() as a) as x, inner=left), Repeat(node=None, inner=right, count=Expr() as n, index=Expr() as w):
                    if not (prove(eq(a.stop - a.start, n), x.context.facts) and a.step is const(1)):
                        raise NotRing(f"its producer makes {a.stop - a.start} positions for {n} instances", x)
                    self.shared.append(x)
                    self.align(left, right, {**names, **at_instance(w, sym(a.var) - a.start)})
                case Choice(conditions=c, inner=left), Choice(conditions=d, inner=right) if same_conditions(c, _named(d, names)):
                    self.align(left, right, names)
                case Either(conditions=c), Either(conditions=d) if same_conditions(c, _named(d, names)):
                    self.align(one.yes, two.yes, names)
                    self.align(one.no, two.no, names)
                case Either(yes=yes, no=no), _:
                    self.align(yes, (two,), names)
                    self.align(no, (two,), names)
                case _, Either(yes=yes, no=no):
                    self.align((one,), yes, names)
                    self.align((one,), no, names)
                case _:
                    raise NotRing("its ends visit positions in different loops", *(n for n in (_first((one,)), _first((two,))) if n))

    def _shifted(self, mine: Repeat, theirs: Repeat, names: dict[str, Expr]) -> None:
        """Align two loops whose positions are visited in iterations of their own, the second end's as late as the first one's, or later.

        Raises :class:`NotRing` if they are others.
        """
        assert mine.node is not None
        assert theirs.node is not None
        one, two = clipped(mine), clipped(theirs)
        a, b = mine.node.stmt, theirs.node.stmt
        assert isinstance(a, For)
        assert isinstance(b, For)
        failure = NotRing("its ends have different trips", mine.node, theirs.node)
        if one is None or two is None:
            raise failure
        facts = mine.node.context.facts
        (first, end, left), (start, stop, right) = one, two
        start, stop, begin = (substitute(e, names) for e in (start, stop, b.start))
        if not prove(eq(end - first, stop - start), facts) or not prove(eq(a.start, begin), facts):
            raise failure
        match simplify(start - first, facts):
            case Const(value=0):
                self.loops.append((mine.node, theirs.node))
            case Const(value=behind) if behind > 0 and len(left) == len(right) == 1 and isinstance(left[0], Visit):
                self.later.append((mine.node, theirs.node, behind))
            case _:
                raise failure
        self.align(left, right, {**names, b.var: sym(a.var) + (start - first)})


def _named(conditions: Conditions, names: dict[str, Expr]) -> Conditions:
    return tuple(substitute(c, names) for c in conditions) if names else conditions


def match_trailing(waits: tuple[Part, ...], releases: tuple[Part, ...]) -> int:
    """Check that a release cursor visits the positions of the cursor that waits, in the same loops.

    Returns:
        By how many positions it trails where a separate loop releases all positions of one that waits for them, at most.

    Raises:
        NotRing: it visits others.
    """
    if len(waits) != len(releases):
        raise NotRing("the cursor that releases visits other positions than the one that waits", *(n for n in (_first(waits), _first(releases)) if n))
    lag = 0
    for one, two in zip(waits, releases, strict=True):
        match one, two:
            case Visit(wait=Node() as wait), Visit(arrivals=arrivals) as two:
                if not two.lag and (not arrivals or min(a.number for a in arrivals) < wait.number or any(a.loops != wait.loops for a in arrivals)):
                    raise NotRing("it arrives at a position before it waits for it", *arrivals[:1], wait)
            case Repeat(node=x, inner=left), Repeat(node=y, inner=right) if x is y and one.count is two.count:
                lag = max(lag, match_trailing(left, right))
            case Repeat(node=Node() as x, inner=(Visit(),)), Repeat(node=Node() as y, inner=(Visit(lag=0, arrivals=[_, *_]),)) if (
                most := _behind(x, y)
            ) is not None:
                lag = max(lag, most - 1)
            case Choice(conditions=c, inner=left), Choice(conditions=d, inner=right) if c == d:
                lag = max(lag, match_trailing(left, right))
            case Either(conditions=c), Either(conditions=d) if c == d:
                lag = max(lag, match_trailing(one.yes, two.yes), match_trailing(one.no, two.no))
            case _:
                raise NotRing("the cursor that releases moves in other loops than the one that waits", *(n for n in (_first((one,)), _first((two,))) if n))
    return lag


def _behind(loop: Node, later: Node) -> int | None:
    """The most iterations of a loop that another one with as many follows in the same block; ``None``: it is another, or may have any number."""
    if loop.block is not later.block or loop.number > later.number:
        return None
    match loop.stmt, later.stmt:
        case For(start=a, stop=b, step=s), For(start=c, stop=d, step=t) if s is const(1) and t is const(1):
            facts = loop.context.facts
            most = bounds(b - a, facts)[1]
            return most if most is not None and prove(eq(maximum(b - a, 0), maximum(d - c, 0)), facts) else None
        case _:
            return None


def _first(traversal: tuple[Part, ...]) -> Node | None:
    """A node of some positions, to point at."""
    return next((v.wait or v.advance for v in visits(traversal)), None)
