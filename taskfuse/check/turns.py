"""Distributed rings: instances of a consumer share a ring, each takes the slots of its own iterations and advances past the others'.

In one iteration of the loop around the distributing axis, instance ``w`` of ``n`` advances by ``w*T``, visits ``T`` positions and advances by
``(n - 1 - w)*T``: together they visit ``n*T`` positions, each once. A *turn*, one mbarrier per instance, goes round: ``w`` waits for it before
its first position and passes it to ``w + 1`` after its last one, so that everything that ``w`` has advanced past has completed by then, and
nothing newer than one phase can have. Instance 0 begins: its parity is inverted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskfuse.check.forms import Choice, Item, NotRing, Part, Repeat, Turns, Visit, parse
from taskfuse.check.program import THREADS, Node
from taskfuse.check.threads import Conditions
from taskfuse.ir.scalar import Expr, const, eq, ge, prove, select, sym, xor
from taskfuse.kir.nodes import Advance, Arrive, BarrierScope, CursorInit, For, Wait

if TYPE_CHECKING:
    from taskfuse.check.meetings import Meeting
    from taskfuse.check.rings import Rings


def distributed(rings: Rings, cursor: str, who: Conditions) -> tuple[tuple[Part, ...], Turns]:
    """The positions of a consumer whose instances share a ring. Raises :class:`taskfuse.check.rings.NotRing` if it has another form."""
    threads = rings.threads
    moves = [n for n in rings.ops(cursor) if isinstance(n.stmt, Advance) and n.stmt.count is not const(1)]
    waits = {name: nodes for name, nodes in rings.turn_waits.items() if any(_near(moves[0], n) for n in nodes)}
    if len(waits) != 1:
        raise NotRing("it advances by more than one position, and takes no turn", moves[0])
    ((name, takes),) = waits.items()
    gives = rings.turn_gives.get(name, [])
    count = rings.slots[name]
    if len(takes) != 1 or len(gives) < 1:
        raise NotRing("its turn is taken and passed more than once in the text", *takes[1:], *gives[1:])
    take, give = takes[0], gives[0]
    assert isinstance(take.stmt, Wait)
    if not isinstance(give.stmt, Arrive):
        raise NotRing("its turn is passed when copies are done", give)
    w = take.stmt.barrier.slot
    body = rings.skeleton({*rings.ops(cursor), take, give})
    items = _around(body, take)
    before = [n for n in moves if n.number < take.number]
    after = [n for n in moves if n.number > take.number]
    first, last = items[0], items[-1]
    if before and (len(before) != 1 or first is not before[0]):
        raise NotRing("it advances elsewhere than before its turn", *before)
    if after and (len(after) != 1 or last is not after[0]):
        raise NotRing("it advances elsewhere than after its turn", *after)
    inner = [i for i in items if i is not take and i is not give and i not in before and i not in after]
    if items.index(take) > min(items.index(i) for i in inner) or items.index(give) < max(items.index(i) for i in inner):
        raise NotRing("it uses slots outside of its turn", take, give)
    form = parse(inner, trailing=False, waits=True, arrives=True)
    trips = _total(form)
    if trips is None:
        raise NotRing("how many positions an instance visits is unknown", take)
    skip, rest = (sum((n.stmt.count for n in ns if isinstance(n.stmt, Advance)), start=const(0)) for ns in (before, after))
    context = take.context
    facts = context.facts
    if not prove(eq(skip, w * trips), facts) or not prove(eq(skip + trips + rest, trips * count), facts):
        raise NotRing(f"instance {w} does not advance by {trips} positions for each of {count} instances", *moves)
    lo, hi = context.ranges.of(w)
    if lo is None or hi is None or lo < 0 or hi > count - 1:
        raise NotRing(f"instances {w} are not known to be 0 to {count - 1}", take)
    _check_token(rings, name, count, w, take, give, who)
    index = w
    if not w.free <= THREADS | threads.launch:
        raise NotRing(f"the instance {w} of a thread changes", take)
    parts = form if count == 1 else (Repeat(None, form, const(count)),)
    return _wrapped(body, items, parts), Turns(name, index, count, take, give, (before or [take])[0], (after or [give])[0])


def _check_token(rings: Rings, name: str, count: int, w: Expr, take: Node, give: Node, who: Conditions) -> None:
    """The turn goes round: taken and passed once per iteration, by whole instances, from 0 on."""
    threads = rings.threads
    assert isinstance(take.stmt, Wait)
    assert isinstance(give.stmt, Arrive)
    facts = take.context.facts
    cursors = [n.removesuffix(".parity") for n in take.stmt.parity.free if n.endswith(".parity")]
    if len(cursors) != 1:
        raise NotRing("the parity of its turn is not that of a cursor", take)
    turn = cursors[0]
    wanted = xor(sym(f"{turn}.parity"), select(eq(w, 0), 1, 0))
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
    if moves[0].number < take.number or give.loops != take.loops or len(rings.turn_gives[name]) != 1:
        raise NotRing("its turn is not passed once per iteration", give)
    if not prove(eq(give.stmt.barrier.slot, (w + 1) % count), facts):
        raise NotRing(f"its turn goes to {give.stmt.barrier.slot}, not to the next instance", give)
    for n in (take, moves[0]):
        if not threads.same(threads.split(n.conditions).threads, who):
            raise NotRing("others take the turn than those that use the slots", n)
    arriving = threads.split(give.conditions).threads
    per = {threads.count((*arriving, eq(w, k))) for k in range(count)}
    (one,) = per if len(per) == 1 else (None,)
    if one is None or any(c is not one and not prove(eq(c, one), facts) for c in rings.counts(name)):
        raise NotRing("the arrivals of its turn are not what it counts", give)
    # while an instance holds the turn the others wait: nothing in between may need them
    for node in rings.program.leaves():
        meeting = rings.meetings.at.get(node)
        if count == 1 or meeting is None or not take.number < node.number < give.number:
            continue
        if not all(_within(rings, meeting, w, k) for k in range(count)):
            raise NotRing("a barrier of several instances stands where one holds the turn", take, node, give)
    if not rings.covers(take, give, who, w):
        raise NotRing("threads that took the turn go on without meeting the one that passes it", take, give)


def _within(rings: Rings, meeting: Meeting, w: Expr, k: int) -> bool:
    """No barrier group has threads of instance ``k`` and of another one."""
    threads = rings.threads
    values = threads.values(w)
    mask = threads.mask(meeting.participants)
    match meeting.scope:
        case BarrierScope.WARP if values is not None and mask is not None:
            return threads.constant_in_warps(values, mask)
        case BarrierScope.NAMED if meeting.id is not None:
            numbers = threads.values(meeting.id)
            if values is None or mask is None or numbers is None:
                return False
            return not set(numbers[mask & (values == k)].tolist()) & set(numbers[mask & (values != k)].tolist())
        case _:
            return False


def _near(a: Node, b: Node) -> bool:
    return a.loops == b.loops


def _around(items: list[Item], wanted: Node) -> list[Item]:
    """The innermost list of a skeleton that holds a node."""
    for item in items:
        if isinstance(item, tuple) and _holds(item[1], wanted):
            return _around(item[1], wanted)
    return items


def _holds(items: list[Item], wanted: Node) -> bool:
    return any(i is wanted or (isinstance(i, tuple) and _holds(i[1], wanted)) for i in items)


def _wrapped(items: list[Item], place: list[Item], form: tuple[Part, ...]) -> tuple[Part, ...]:
    """Some parts in the loops and conditions around their place."""
    if items is place:
        return form
    if len(items) != 1 or not isinstance(items[0], tuple):
        raise NotRing("a distributed consumer uses slots in several places")
    key, inner = items[0]
    below = _wrapped(inner, place, form)
    return (Repeat(key, below),) if isinstance(key, Node) else (Choice(key, below),)


def _total(form: tuple[Part, ...]) -> Expr | None:
    """How many positions some parts visit."""
    total: Expr = const(0)
    for part in form:
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
