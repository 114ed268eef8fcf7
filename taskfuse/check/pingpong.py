"""Turns: instances of a role execute a part of each iteration one after another. In distributed rings they share a ring: each takes the slots of its own
iterations and advances past the others'.

The *turn*, one mbarrier per instance, goes round: ``w`` of ``n`` waits for it before its part and passes it to ``w + 1`` after that. Instance 0 begins: its
parity is inverted. Between two passes to an instance it takes the turn, since the second one follows a part of each other instance, the first of which follows
its own: so no phase is missed, whatever else the part holds (:func:`turn`).

In one iteration of the loop around the distributing axis, instance ``w`` of ``n`` advances by ``T(0) + .. + T(w - 1)``, visits ``T(w)`` positions and
advances by ``T(w + 1) + .. + T(n - 1)``: together they visit all positions of the iteration, each once. It holds the turn from its first position to
its last. So everything that ``w`` has advanced past has completed by then, and the ring is at most one phase further.

A cursor that releases trails through the same positions and makes the same advances around them. It may do so after the turn is passed: the
remaining releases wait for no other instance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from taskfuse.check.barriers import Barriers, BarrierSite, uneven
from taskfuse.check.slot_release import SlotRelease
from taskfuse.check.statement_tree import THREADS, Conditions, Node, StatementTree
from taskfuse.check.threads import Threads
from taskfuse.check.traversals import Choice, CursorTree, NotRing, Part, PingpongTurn, Repeat, Visit, at_instance, parse, visits
from taskfuse.ir.scalar import Expr, Facts, const, eq, ge, prove, select, substitute, xor
from taskfuse.kir.nodes import For
from taskfuse.kir.synchronization import Advance, Arrive, BarrierScope, Cursor, CursorInit, CursorPart, Wait


class CursorUses(Protocol):
    """The statements of a kernel that use cursors and mbarriers; see :class:`~taskfuse.check.rings.Rings`.

    Attributes:
        slots: of each array of mbarriers.
        order_waits, order_arrivals: those at mbarriers that put instances in order.
    """

    tree: StatementTree
    threads: Threads
    barriers: Barriers
    slots: dict[str, int]
    slot_release: SlotRelease
    order_waits: dict[str, list[Node]]
    order_arrivals: dict[str, list[Node]]

    def ops(self, cursor: str) -> list[Node]:
        """Waits, arrivals and advances with a cursor."""
        ...

    def uses(self, name: str) -> list[Node]:
        """All waits and arrivals at an mbarrier, in the order of the text."""
        ...

    def inits(self, cursor: str) -> list[Node]:
        """Where a cursor starts."""
        ...

    def counts(self, name: str) -> list[Expr]:
        """The counts with which an mbarrier is initialized."""
        ...

    def skeleton(self, ops: set[Node]) -> list[CursorTree]:
        """Nodes with the loops and uniform conditions around them."""
        ...


def turn(rings: CursorUses, name: str) -> PingpongTurn:
    """The turn that the mbarriers ``name`` are, of instances that share no ring.

    Raises:
        NotRing: they are something else.
    """
    take, give = _ends(rings, name)
    assert isinstance(take.stmt, Wait)
    if give.number < take.number:
        raise NotRing("its turn is passed before it is taken", give, take)
    reason = uneven(take)
    if reason:
        raise NotRing(reason, take)
    w, count = take.stmt.barrier.slot, rings.slots[name]
    _check_instances(rings, w, count, take)
    _check_token(rings, name, count, w, take, give, rings.threads.split(take.conditions).threads)
    found = PingpongTurn(name, w, count, const(0), take, give, take, give)
    _check_alone(rings, found)
    return found


def _ends(rings: CursorUses, name: str) -> tuple[Node, Node]:
    """Where a turn is taken, and where it is passed. Raises :class:`NotRing`."""
    uses = rings.uses(name)  # at the slots of cursors, too, which are turns of some instance
    takes, gives = [n for n in uses if isinstance(n.stmt, Wait)], [n for n in uses if not isinstance(n.stmt, Wait)]
    if len(takes) != 1 or len(gives) != 1:
        raise NotRing("its turn is taken and passed more than once in the text", *takes[1:], *gives[1:])
    if not isinstance(gives[0].stmt, Arrive):
        raise NotRing("its turn is passed by ARRIVE.async", gives[0])
    return takes[0], gives[0]


def _check_instances(rings: CursorUses, w: Expr, count: int, take: Node) -> None:
    """A thread belongs to one of some instances. Raises :class:`NotRing`."""
    lo, hi = take.context.ranges.of(w)
    if lo is None or hi is None or lo < 0 or hi > count - 1:
        raise NotRing(f"instances {w} are not known to be 0 to {count - 1}", take)
    if not w.free <= THREADS | rings.threads.launch:
        raise NotRing(f"the instance {w} of a thread changes", take)


def distributed(rings: CursorUses, cursor: str, who: Conditions, *, arrives: bool) -> tuple[tuple[Part, ...], PingpongTurn]:
    """The positions of a consumer whose instances share a ring; ``arrives``: it also releases them with this cursor.

    If several turns are nested, its own is the nearest around its advances that has the form.

    Raises:
        NotRing: it has another form.
    """
    moves = [n for n in rings.ops(cursor) if isinstance(n.stmt, Advance) and n.stmt.count is not const(1)]
    names = [name for name, nodes in rings.order_waits.items() if any(n.loops == moves[0].loops for n in nodes)]
    failure = NotRing("it advances by more than one position without taking a turn", moves[0])
    around = {name: (*rings.order_waits[name], *rings.order_arrivals.get(name, [])) for name in names}
    for name in sorted(names, key=lambda name: min(abs(n.number - moves[0].number) for n in around[name])):
        try:
            return _by_turn(rings, cursor, who, name, arrives=arrives)
        except NotRing as e:
            failure = e
    raise failure


def trailing(rings: CursorUses, cursor: str, pingpong: PingpongTurn) -> tuple[tuple[Part, ...], PingpongTurn]:
    """The positions of the cursor that releases, of instances that share a ring; the turns, with everything between its advances.

    Raises:
        NotRing: it has another form.
    """
    take = pingpong.take
    body = rings.skeleton({*rings.ops(cursor), take})
    trees = _around(body, take)
    before, inner, after = _skips([i for i in trees if i is not take], cursor, take)
    traversal = parse(inner, trailing=True, waits=False, arrives=True, alike=_fixed(pingpong.index, pingpong.count))
    _check_skips(before, after, pingpong.trips, pingpong.index, pingpong.count, take)
    ends = sorted((pingpong.before, pingpong.after, *before, *after, *(n for v in visits(traversal) for n in v.releases)), key=lambda n: n.number)
    pingpong = replace(pingpong, before=ends[0], after=ends[-1])
    _check_alone(rings, pingpong)
    return _wrapped(body, trees, _instances(traversal, pingpong.index, pingpong.count)), pingpong


def _by_turn(rings: CursorUses, cursor: str, who: Conditions, name: str, *, arrives: bool) -> tuple[tuple[Part, ...], PingpongTurn]:
    """The positions, if one turn orders them. Raises :class:`NotRing` if it does not."""
    take, give = _ends(rings, name)
    assert isinstance(take.stmt, Wait)
    w, count = take.stmt.barrier.slot, rings.slots[name]
    body = rings.skeleton({*rings.ops(cursor), take, give})
    trees = _around(body, take)
    if give not in trees:
        raise NotRing("its turn is not passed where it is taken", take, give)
    before, inner, after = _skips([i for i in trees if i is not take and i is not give], cursor, take)
    if not inner or trees.index(take) > min(trees.index(i) for i in inner) or trees.index(give) < max(trees.index(i) for i in inner):
        raise NotRing("it uses slots outside its turn", take, give)
    reason = uneven(take)
    if reason:
        raise NotRing(reason, take)
    traversal = parse(inner, trailing=False, waits=True, arrives=arrives, alike=_fixed(w, count))
    trips = _total(traversal)
    if trips is None:
        raise NotRing("the number of positions that an instance visits is unknown", take)
    _check_skips(before, after, trips, w, count, take)
    _check_token(rings, name, count, w, take, give, who)
    _check_instances(rings, w, count, take)
    pingpong = PingpongTurn(name, w, count, trips, take, give, (before or [take])[0], (after or [give])[0])
    _check_alone(rings, pingpong)
    return _wrapped(body, trees, _instances(traversal, w, count)), pingpong


def _fixed(w: Expr, count: int) -> frozenset[str]:
    """The thread index on which all threads of an instance agree, and that is known of each instance."""
    return frozenset(at_instance(w, const(0)) if count > 1 else ())


def _instances(traversal: tuple[Part, ...], w: Expr, count: int) -> tuple[Part, ...]:
    """The positions of all instances."""
    return traversal if count == 1 else (Repeat(None, traversal, const(count), w),)


def _skips(trees: list[CursorTree], cursor: str, take: Node) -> tuple[list[Node], list[CursorTree], list[Node]]:
    """The advances of a cursor before its own positions, these positions, and the advances after them; ``take``: where the turn is taken."""

    def skips(tree: CursorTree) -> bool:
        return isinstance(tree, Node) and isinstance(tree.stmt, Advance) and tree.stmt.count is not const(1)

    moves = [i for i in trees if isinstance(i, Node) and skips(i)]
    before, after = [n for n in moves if n.number < take.number], [n for n in moves if n.number > take.number]
    if before and (len(before) != 1 or trees[0] is not before[0]):
        raise NotRing(f"{cursor} advances elsewhere than before its turn", *before)
    if after and (len(after) != 1 or trees[-1] is not after[0]):
        raise NotRing(f"{cursor} advances elsewhere than after its turn", *after)
    return before, [i for i in trees if not skips(i)], after


def _check_skips(before: list[Node], after: list[Node], trips: Expr, w: Expr, count: int, take: Node) -> None:
    """An instance advances past the positions of those before it, and of those after it."""
    facts = take.context.facts
    skip, rest = (sum((n.stmt.count for n in ns if isinstance(n.stmt, Advance)), start=const(0)) for ns in (before, after))
    if trips.free.isdisjoint(THREADS) and _equal(skip, w * trips, facts) and _equal(skip + trips + rest, trips * count, facts):
        return
    each = [substitute(trips, at_instance(w, const(k))) for k in range(count)]
    for k in range(count if at_instance(w, const(0)) else 0):
        mine = [substitute(e, at_instance(w, const(k))) for e in (skip, rest)]
        if not all(_equal(e, sum(others, start=const(0)), facts) for e, others in zip(mine, (each[:k], each[k + 1 :]), strict=True)):
            break
    else:
        if at_instance(w, const(0)) and all(e.free.isdisjoint(THREADS) for e in each):
            return
    raise NotRing(f"instance {w} does not advance by the {trips} positions of each of {count} instances", *before, *after, *([] if before or after else [take]))


def _equal(a: Expr, b: Expr, facts: Facts) -> bool:
    return a is b or prove(eq(a, b), facts)


def _check_alone(rings: CursorUses, pingpong: PingpongTurn) -> None:
    """Instances take what stands between their first and last advance one after another: no barrier in between may need several of them."""
    for node in rings.tree.leaves():
        site = rings.barriers.at.get(node)
        if pingpong.count == 1 or site is None or not pingpong.before.number < node.number < pingpong.after.number:
            continue
        if not all(_within(rings, site, pingpong.index, k) for k in range(pingpong.count)):
            raise NotRing("a barrier of several instances stands where one holds the turn", pingpong.take, node, pingpong.give)


def _check_token(rings: CursorUses, name: str, count: int, w: Expr, take: Node, give: Node, who: Conditions) -> None:
    """The turn goes round: taken and passed once per iteration, by whole instances, from 0 on, and passed only by those that have taken it."""
    threads = rings.threads
    assert isinstance(take.stmt, Wait)
    assert isinstance(give.stmt, Arrive)
    facts = take.context.facts
    cursors = [of[0].name for n in take.stmt.parity.free if (of := Cursor.of(n)) is not None and of[1] is CursorPart.PARITY]
    if len(cursors) != 1:
        raise NotRing("the parity of its turn is not that of a cursor", take)
    turn = cursors[0]
    wanted = xor(Cursor(turn).parity, select(eq(w, 0), 1, 0))
    if take.stmt.parity is not wanted and not prove(eq(take.stmt.parity, wanted), facts):
        raise NotRing("instance 0 does not begin, or others do", take)
    inits = [n for n in rings.inits(turn)]
    match [n.stmt for n in inits]:
        case [CursorInit(slots=1, slot=0, parity=0)] if not inits[0].loops:
            pass
        case _:
            raise NotRing("the cursor of its turn does not begin in phase 0", *inits)
    moves = rings.ops(turn)
    if len(moves) != 1 or not isinstance(moves[0].stmt, Advance) or moves[0].stmt.count is not const(1) or moves[0].loops != take.loops:
        raise NotRing("the cursor of its turn does not advance once per iteration", *moves)
    if moves[0].number < take.number or give.loops != take.loops:
        raise NotRing("its turn is not passed once per iteration", give)
    if not prove(eq(give.stmt.barrier.slot, (w + 1) % count), facts):
        raise NotRing(f"its turn goes to {give.stmt.barrier.slot}, not to the next instance", give)
    for n in (take, give, moves[0]):
        split = threads.split(n.conditions)
        if split.varying or set(split.uniform) != set(take.conditions) - {c for c in take.conditions if c.free & THREADS}:
            raise NotRing("its turn is taken and passed under varying conditions", take, n)
        if n is not give and not threads.same(split.threads, who):
            raise NotRing("the threads that take the turn are not those that use the slots", n)
    arriving = threads.split(give.conditions).threads
    per = {threads.count((*arriving, eq(w, k))) for k in range(count)}
    (one,) = per if len(per) == 1 else (None,)
    if one is None or any(c is not one and not prove(eq(c, one), facts) for c in rings.counts(name)):
        raise NotRing("the count of its turn is not the number of its arrivals", give)
    if not threads.implies(arriving, who):
        raise NotRing("threads pass the turn that have not taken it", give)
    if not rings.slot_release.covers(take, give, who, w):
        raise NotRing("threads that took the turn are not synchronized with the one that passes it", take, give)


def _within(rings: CursorUses, site: BarrierSite, w: Expr, k: int) -> bool:
    """No barrier group has threads of instance ``k`` and of another one."""
    threads = rings.threads
    values = threads.values(w)
    mask = threads.mask(site.participants)
    match site.scope:
        case BarrierScope.WARP if values is not None and mask is not None:
            return threads.constant_in_warps(values, mask)
        case BarrierScope.NAMED if site.id is not None:
            numbers = threads.values(site.id)
            if values is None or mask is None or numbers is None:
                return False
            return not set(numbers[mask & (values == k)].tolist()) & set(numbers[mask & (values != k)].tolist())
        case _:
            return False


def _around(trees: list[CursorTree], wanted: Node) -> list[CursorTree]:
    """The innermost list of a skeleton that holds a node."""
    for tree in trees:
        if isinstance(tree, tuple) and _holds(tree[1], wanted):
            return _around(tree[1], wanted)
    return trees


def _holds(trees: list[CursorTree], wanted: Node) -> bool:
    return any(i is wanted or (isinstance(i, tuple) and _holds(i[1], wanted)) for i in trees)


def _wrapped(trees: list[CursorTree], place: list[CursorTree], traversal: tuple[Part, ...]) -> tuple[Part, ...]:
    """Some parts in the loops and conditions around their place."""
    if trees is place:
        return traversal
    if len(trees) != 1 or not isinstance(trees[0], tuple):
        raise NotRing("a distributed consumer uses slots in several places")
    key, inner = trees[0]
    below = _wrapped(inner, place, traversal)
    return (Repeat(key, below),) if isinstance(key, Node) else (Choice(key, below),)


def _total(traversal: tuple[Part, ...]) -> Expr | None:
    """How many positions some parts visit."""
    total: Expr = const(0)
    for part in traversal:
        match part:
            case Visit():
                total = total + 1
            case Repeat(node=Node(stmt=For(var=var, start=start, stop=stop, step=step)) as loop, inner=inner) if step is const(1):
                below = _total(inner)
                if below is None or var in below.free or not prove(ge(stop, start), loop.context.facts):
                    return None
                total = total + (stop - start) * below
            case _:
                return None
    return total
