"""No deadlock: an order of all synchronization in which every wait comes after everything that it needs.

Loops that the ends of a ring share are superimposed, iteration by iteration. What remains at each level is a finite graph: program order inside each
thread, and an edge from the arrivals of a position to the waits for it. If the graph has no cycle at any level, it has a topological order, and ordering
dynamic events by (place at the outermost level, iteration, place at the next level, ...) gives a total order in which every wait comes after all that
it waits for. The first blocked event of a stuck execution in this order would then have everything it needs: a contradiction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from taskfuse.check.endpoints import Ring
from taskfuse.check.paths import Paths
from taskfuse.check.rings import Rings
from taskfuse.check.statement_tree import Node, StatementBlock, StatementTree
from taskfuse.check.threads import Threads
from taskfuse.check.traversals import Choice, Either, Part, Repeat, Visit
from taskfuse.ir.connectivity import find_cycle
from taskfuse.ir.scalar import Const, Sym, const, substitute
from taskfuse.kir.clusters import remote_barriers
from taskfuse.kir.nodes import For, TmaLoad
from taskfuse.kir.synchronization import Arrive, ArriveAsync, Barrier, BarrierScope, Expect, FenceInit, InitBarrier, Wait
from taskfuse.reports.certificate import Layer, Obligation, Verdict


class _Merged:
    """Which loops are superimposed."""

    def __init__(self) -> None:
        self._parent: dict[Node, Node] = {}

    def of(self, node: Node) -> Node:
        while node in self._parent:
            node = self._parent[node]
        return node

    def join(self, a: Node, b: Node) -> None:
        a, b = self.of(a), self.of(b)
        if a is not b:
            self._parent[b] = a


@dataclass(frozen=True, slots=True, eq=False)
class _Span:
    """A part of a block: ``low <= index <= high``. Instances that take turns execute it one after another: a loop without code."""

    block: StatementBlock
    low: int
    high: int


class _Level:
    """One iteration of some superimposed loops, as a graph.

    Attributes:
        successors: of statements, and of loops as a whole, what comes directly after; keys of the inner mapping, in order.
    """

    def __init__(self, spans: list[_Span], merged: _Merged, paths: Paths, pingpong: dict[StatementBlock, list[tuple[_Span, Node]]]) -> None:
        self.successors: dict[Node, dict[Node, None]] = {}
        self._merged = merged
        self._paths = paths
        self._pingpong = pingpong
        self._spans = spans
        self._of: dict[Node, Node] = {}
        for span in spans:
            self._chain(span, set())

    def _chain(self, span: _Span, before: set[Node]) -> set[Node]:
        """Program order through a block; returns what is last."""
        last = before
        held = [(s, n) for s, n in self._pingpong.get(span.block, []) if s not in self._spans]
        for node in span.block.nodes[span.low : span.high + 1]:
            if not self._paths.holds(node):
                continue
            inside = next((n for s, n in held if s.low <= node.index <= s.high), None)
            if inside is None and node.blocks and not isinstance(node.stmt, For):
                exits: set[Node] = set(last)
                for arm in node.blocks:
                    exits |= self._chain(_whole(arm), last)
                last = exits
                continue
            mine = self._merged.of(inside or node)
            self._of[node] = mine
            self.successors.setdefault(mine, {})
            for n in last:
                if n is not mine:
                    self.edge(n, mine)
            if mine in last and inside is None:
                self.edge(mine, mine)
            last = {mine}
        return last

    def edge(self, a: Node, b: Node) -> None:
        """``a`` comes before ``b``."""
        self.successors[a][b] = None

    def at(self, node: Node) -> Node | None:
        """The node that is, or contains, a statement; ``None`` if it is elsewhere."""
        return next((self._of[n] for n in reversed(node.path) if n in self._of), None)


def _whole(block: StatementBlock) -> _Span:
    return _Span(block, 0, len(block.nodes))


TRIPS = 1 << 10
"""The most trips of loops around an initialization of mbarriers that are enumerated."""


def deadlocks(tree: StatementTree, paths: Paths, rings: Rings, others: Sequence[tuple[Node, Node]]) -> list[Obligation]:
    """Whether such an order exists. ``others``: further order edges: fills and waits of rings inside one role, register budgets."""
    held = [Obligation(Layer.ORDER, "deadlock", Verdict.PROVED, "one order of all waits and arrivals has every wait after what it waits for")]
    if not (rings.rings or rings.turns or rings.once or others):  # what is left is program order, of loops none of which are superimposed
        return held
    merged = _Merged()
    pingpong: dict[StatementBlock, list[tuple[_Span, Node]]] = {}
    groups: dict[Node, list[_Span]] = {}
    for ring in rings.rings:
        for a, b, *_ in (*ring.loops, *ring.later):
            merged.join(a, b)
    for ring in rings.rings:
        for loop, t in ring.pingpong:
            span = _span(t.before, t.after)
            if span is None:
                return [Obligation(Layer.ORDER, f"ring {ring.full}/{ring.empty}", Verdict.OUTSIDE, "its turn is not taken and passed in one block")]
            for _, other in (pair for pair in pingpong.get(span.block, []) if pair[0].low <= span.high and span.low <= pair[0].high):
                if [merged.of(n) for n in loop.loops] != [merged.of(n) for n in other.loops]:
                    return [Obligation(Layer.ORDER, f"ring {ring.full}/{ring.empty}", Verdict.OUTSIDE, "its turn overlaps that of loops it does not share")]
                merged.join(loop, other)  # an instance takes both turns in one iteration
            pingpong.setdefault(span.block, []).append((span, loop))
    for t in rings.turns:
        span = _span(t.take, t.give)
        if span is None:
            return [Obligation(Layer.ORDER, f"turn {t.barrier}", Verdict.OUTSIDE, "it is not taken and passed in one block")]
        if any(other.low <= span.high and span.low <= other.high for other, _ in pingpong.get(span.block, [])):
            return [Obligation(Layer.ORDER, f"turn {t.barrier}", Verdict.OUTSIDE, "it overlaps another turn")]
        pingpong.setdefault(span.block, []).append((span, t.take))  # a loop of its own
    divided = _divided_turn(rings)
    if divided is not None:
        return [divided]
    for ring in rings.rings:
        for a, b, *_ in (*ring.loops, *ring.later):
            if _turns_around(a, merged, pingpong) != _turns_around(b, merged, pingpong):
                reason = "instances take turns around the loop of one of its ends, and not around that of the other"
                return [Obligation(Layer.ORDER, f"ring {ring.full}/{ring.empty}", Verdict.OUTSIDE, reason, (a.text, b.text))]
    for spans in pingpong.values():
        for span, loop in spans:
            groups.setdefault(merged.of(loop), []).append(span)
    for n in tree.nodes:
        if isinstance(n.stmt, For) and paths.holds(n):
            groups.setdefault(merged.of(n), []).append(_whole(n.blocks[0]))
    levels = [("the kernel", _Level([_whole(tree.root)], merged, paths, pingpong))]
    levels += [(_level_name(n), _Level(spans, merged, paths, pingpong)) for n, spans in groups.items()]
    edges = [(a, b) for ring in rings.rings for a, b in _edges(ring)] + _once(rings) + list(others)
    for a, b in edges:
        placed = False
        for _, level in levels:
            one, two = level.at(a), level.at(b)
            if one is None or two is None:
                continue
            placed = True
            if one is not two:
                level.edge(one, two)
        if not placed:
            notes = (a.text, b.text)
            return [Obligation(Layer.ORDER, "deadlock", Verdict.OUTSIDE, "an arrival and the wait for it lie in loops that cannot be superimposed", notes)]
    for what, level in levels:
        cycle = find_cycle(level.successors)
        if cycle is not None:
            notes = tuple(n.text + (f" in {n.role}" if n.role else "") for n, _ in cycle)
            return [Obligation(Layer.ORDER, what, Verdict.OUTSIDE, "waits form a cycle: each of these can come only after the one before it", notes)]
    return held


def _span(first: Node, last: Node) -> _Span | None:
    """The part of the innermost block around two statements from the first to the last; ``None`` if they lie in two blocks of one node."""
    one, two = next((x, y) for x, y in zip(first.path, last.path, strict=False) if x is not y)
    return _Span(one.block, one.index, two.index) if one.block is two.block else None


def _divided_turn(rings: Rings) -> Obligation | None:
    """A turn that instances take while they hold another one, if they are not all one instance of that one: the next of them waits for both, for ever."""
    every = [(t, _span(t.before, t.after)) for ring in rings.rings for _, t in ring.pingpong] + [(t, _span(t.take, t.give)) for t in rings.turns]
    for (inner, own), (outer, span) in product(every, every):
        if span is None or outer.count == 1 or inner.barrier == outer.barrier:
            continue
        is_within = any(n.block is span.block and span.low <= n.index <= span.high for n in inner.take.path)
        is_beside = own is not None and own.block is span.block and (inner.index, inner.count) == (outer.index, outer.count)
        if not is_within or is_beside:  # each instance takes both in one iteration
            continue
        mask, values = rings.threads.mask(rings.threads.split(inner.take.conditions).threads), rings.threads.values(outer.index)
        if mask is None or values is None or len(set(values[mask].tolist())) > 1:
            reason = f"its instances take it while they hold that of {outer.barrier}, and are not known to be one instance there"
            return Obligation(Layer.ORDER, f"turn {inner.barrier}", Verdict.OUTSIDE, reason, (outer.take.text, inner.take.text))
    return None


def _level_name(node: Node) -> str:
    match node.stmt:
        case For(var=var):
            return f"the loop over {var}"
        case Wait(barrier=slot):
            return f"the turns of {slot.name}"
        case _:
            raise AssertionError("neither a loop nor a turn is a level")


def _turns_around(loop: Node, merged: _Merged, pingpong: dict[StatementBlock, list[tuple[_Span, Node]]]) -> set[Node]:
    """The loops over instances that a loop runs in, once for each of them: loops with code, or turns.

    An order of events by iterations, outermost first, is one only if ends that share a loop share what runs around it.
    """
    every = {merged.of(over) for spans in pingpong.values() for _, over in spans}
    found = {merged.of(n) for n in loop.loops} & every
    for n in loop.path:
        found |= {merged.of(over) for span, over in pingpong.get(n.block, []) if span.low <= n.index <= span.high}
    return found


def _edges(ring: Ring) -> list[tuple[Node, Node]]:
    """From the arrivals of a position to the waits for it, in one iteration of the loops around it.

    A position that a consumer visits some iterations later is over in the earlier iteration. It is released fewer than ``slots`` iterations after the producer
    visits it, and needed ``slots`` iterations after that.
    """
    found: list[tuple[Node, Node]] = []
    for one, two in ring.pairs:
        if two.wait is not None and not any(y in two.wait.loops for _, y, _ in ring.later):
            found += [(a, two.wait) for a in one.arrivals]
    for c in ring.consumers:
        found += _back(ring.producer.traversal, c.releases, ring.slots)
    return found


def _back(mine: tuple[Part, ...], releases: tuple[Part, ...], slots: int) -> list[tuple[Node, Node]]:
    """From the release of a position to the producer's wait for the same slot, within one iteration."""
    found: list[tuple[Node, Node]] = []
    plain = all(isinstance(p, Visit) for p in mine)
    for j, later in enumerate(mine):
        for i in range(j):
            if plain and i != j - slots:
                continue
            sources = _arrivals(releases[i]) if i < len(releases) else []
            found += [(s, target) for target in _first_of(later) for s in sources]
    for one, two in zip(mine, releases, strict=False):
        match one, two:
            case Either(), Either():  # in one iteration positions of one arm, at both ends
                found += _back(one.yes, two.yes, slots) + _back(one.no, two.no, slots)
            case Either(), _:
                found += _back(one.yes, (two,), slots) + _back(one.no, (two,), slots)
            case _, Either():
                found += _back((one,), two.yes, slots) + _back((one,), two.no, slots)
            case ((Repeat(inner=left) | Choice(inner=left)), (Repeat(inner=right) | Choice(inner=right))):
                found += _back(left, right, slots)
            case _:
                pass
    return found


def _first_of(part: Part) -> list[Node]:
    """The waits, or the loops around them, that some positions begin with."""
    match part:
        case Visit(wait=wait):
            return [] if wait is None else [wait]
        case Repeat(node=Node() as node):
            return [node]
        case Either(yes=yes, no=no):
            return [*_first_of(yes[0]), *_first_of(no[0])]
        case Repeat(inner=inner) | Choice(inner=inner):
            return _first_of(inner[0])


def _arrivals(part: Part) -> list[Node]:
    if isinstance(part, Visit):
        return list(part.releases)
    return [a for p in part.inner for a in _arrivals(p)]


def _once(rings: Rings) -> list[tuple[Node, Node]]:
    """From the arrivals to the waits of barriers that complete once."""
    shots = rings.once.items()
    return [(a, w) for w, k in shots if isinstance(w.stmt, Wait) for a, j in shots if j == k and not isinstance(a.stmt, Wait)]


def initialization(tree: StatementTree, rings: Rings, paths: Paths) -> list[Obligation]:
    """Every mbarrier that is used is initialized once, by one thread, before a barrier that precedes all its uses: of the whole block, or of the whole cluster
    if other blocks use it. An unused one is not initialized twice.
    """
    if not tree.kernel.mbarriers:
        return []
    threads = rings.threads
    found: list[Obligation] = []
    inits: dict[str, list[Node]] = {}
    uses: dict[str, list[Node]] = {}
    for n in tree.leaves():
        match n.stmt:
            case InitBarrier(barrier=slot):
                inits.setdefault(slot.name, []).append(n)
            case Wait(barrier=slot) | Arrive(barrier=slot) | ArriveAsync(barrier=slot) | Expect(barrier=slot) | TmaLoad(barrier=slot):
                uses.setdefault(slot.name, []).append(n)
            case _:
                pass
    wide = (BarrierScope.BLOCK, BarrierScope.CLUSTER)
    barriers = [n for n in tree.root.nodes if isinstance(n.stmt, Barrier) and n.stmt.scope in wide and n in rings.barriers.at]
    remote = remote_barriers(n.stmt for n in tree.leaves())
    slots = {m.name: m.slots for m in tree.kernel.mbarriers}
    held = 0
    for name in {**uses, **inits}:
        reason = ""
        mine, nodes = inits.get(name, []), uses.get(name, [])
        covered: list[int] = []
        for n in mine:
            slots_of, why = _initialized(n, threads)
            covered += slots_of
            reason = reason or why
        if not reason and len(covered) > len(set(covered)):
            reason = "a slot is initialized twice"
        if not reason and nodes and sorted(covered) != list(range(slots[name])):
            missing = sorted(set(range(slots[name])) - set(covered))
            reason = f"slots {missing} are never initialized"
        if not reason and nodes:
            last = max(n.path[0].index for n in mine)
            first = min(n.path[0].index for n in nodes)
            between = [b for b in barriers if last < b.index < first]
            if name in remote:
                between = [b for b in between if isinstance(b.stmt, Barrier) and b.stmt.scope is BarrierScope.CLUSTER]
            if not between:
                who = "cluster" if name in remote else "block"
                reason = f"no barrier of the whole {who} stands between its initialization and its first use"
            elif any(isinstance(n.stmt, TmaLoad) for n in nodes):
                late = next((n for n in mine if not _fenced(n, between[-1], paths, threads)), None)
                if late is not None:
                    mine = [late]
                    reason = "its initializer executes no FENCE mbarrier_init before the barrier, so the copy engine may not see it"
        if reason:
            verdict = Verdict.OUTSIDE
            found.append(Obligation(Layer.ORDER, f"mbarrier {name}", verdict, reason, tuple(n.text for n in (*mine[:1], *nodes[:1]))))
        else:
            held += 1
    if held:
        found.append(Obligation(Layer.ORDER, "initialization", Verdict.PROVED, f"{held} mbarrier arrays are initialized once, before all use"))
    return found


def _initialized(node: Node, threads: Threads) -> tuple[list[int], str]:
    """The slots that a statement initializes, each as often as it does so; and why they are not known, or who else does.

    One thread may initialize all, or each thread some: a block of constant extents is enumerated, with the trips of the loops around the statement.
    """
    assert isinstance(node.stmt, InitBarrier)
    slot, split = node.stmt.barrier.slot, threads.split(node.conditions)
    loops = [loop.stmt for loop in node.loops]
    match slot, loops:
        case Const(value=k), []:
            once = [k]
        case Sym(name=name), [For(var=var, start=Const(value=a), stop=Const(value=b), step=Const(value=1))] if name == var:
            once = list(range(a, b))
        case _:
            once = None
    if once is not None and not split.varying and not split.uniform:
        count = threads.count(split.threads)
        if isinstance(count, Const) and count.value == 1:
            return once, ""
        return [], f"{'an unknown number of' if count is None else count} threads initialize it"
    trips = [_trips(loop) for loop in loops if isinstance(loop, For)]
    known = [t for t in trips if t is not None]
    if len(known) < len(trips) or prod(map(len, known)) > TRIPS:
        return [], "the slots that are initialized are not constants"
    found: list[int] = []
    for point in product(*known):
        at = {loop.var: const(k) for loop, k in zip(loops, point, strict=True) if isinstance(loop, For)}
        mask, values = threads.mask([substitute(c, at) for c in node.conditions]), threads.values(substitute(slot, at))
        if mask is None or values is None:
            return [], "the slots that are initialized are not constants"
        found += values[mask].tolist()
    return found, ""


def _trips(loop: For) -> range | None:
    match loop.start, loop.stop, loop.step:
        case Const(value=start), Const(value=stop), Const(value=step):
            return range(start, stop, step)
        case _:
            return None


def _fenced(init: Node, barrier: Node, paths: Paths, threads: Threads) -> bool:
    """True only if the thread that initializes an mbarrier fences that on its way to a barrier."""
    one = threads.split(init.conditions).threads
    for s in paths.forward(init, barrier) or ():
        split = threads.split(s.node.conditions)
        if isinstance(s.node.stmt, FenceInit) and not (split.uniform or split.varying) and threads.implies(one, split.threads):
            return True
    return False
