"""Tensors that points are sent to: one part is stored unchanged; then each point of the others is combined once with the element that data selects.

An element is then its own value in the first part, combined with every point that goes to it, in any order: each point that has a place is sent by one
execution of one statement, to the place that its definition gives for any value of the data, and nothing else changes the element in between. Updates are
atomic, so none is lost; the other layers prove that all stores are ordered before all updates, and these before all reads.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from taskfuse.check.accesses import Use, Uses
from taskfuse.check.constraints import Constraints
from taskfuse.check.paths import common_loops
from taskfuse.check.relation import Relation
from taskfuse.check.statement_tree import Node
from taskfuse.check.threads import Threads
from taskfuse.check.values.arms import in_other_arm
from taskfuse.check.values.claims import Instructions, Place
from taskfuse.check.values.cover import covered
from taskfuse.check.values.outputs import launched
from taskfuse.check.values.questions import equal, inside, known_at, nonempty, proves
from taskfuse.check.values.runs import Visits, stores
from taskfuse.check.values.solve import Open
from taskfuse.check.values.writes import Writes
from taskfuse.ir.axes import iteration_point
from taskfuse.ir.scalar import Expr, conjuncts, const, eq, ge, lt, maximum, range_where, simplify, substitute, sym
from taskfuse.kir.nodes import AtomicUpdate, For, TmaStore
from taskfuse.kir.operands import Content, Holds
from taskfuse.kir.walk import updating
from taskfuse.kir.witness import Send, Whole


class Updates:
    """Such tensors of a kernel. They have storage of their own name.

    Attributes:
        tensors: their names.
    """

    def __init__(self, writes: Writes, instructions: Instructions, threads: Threads) -> None:
        self.writes = writes
        self.instructions = instructions
        self.threads = threads
        self._rules: dict[str, Whole] = {d.tensor: d.rule for d in writes.definitions.values() if isinstance(d.rule, Whole) and d.tensor in writes.updated}
        self.tensors = frozenset(self._rules)
        self._stored: dict[str, list[Place]] = {}
        self._sent: dict[tuple[str, str], list[Place]] = {}
        self._known: dict[str, Open | None] = {}
        self._found: Uses | None = None

    def enter(self, node: Node, holds: Holds) -> None:
        """Add a write to the storage of such a tensor: a store of the part that is not sent, or an update. Raises :class:`Open`."""
        place = self.instructions.written(node, holds)
        whole = place.buffer
        rule = self._rules[whole]
        if holds.content is not Content.VALUE or holds.tensor not in rule.parts:
            raise Open(f"it writes {holds.tensor}, which is not a part of {whole}", node)
        which = rule.parts.index(holds.tensor)
        at = rule.places[which]
        point = {f"i{k}": e for k, e in enumerate(place.element)}
        if updating(node.stmt) is not None:
            definition = self.writes.definitions[holds.tensor]
            values = node.stmt.values if isinstance(node.stmt, AtomicUpdate) else ()
            clipped = inside(place.index, self.writes.shape(whole)) if isinstance(node.stmt, TmaStore) else ()
            known = known_at(place).given(*clipped)
            wanted = (*inside(place.element, definition.shape), *conjuncts(substitute(rule.conditions[which], point)))
            missing = next((c for c in wanted if not proves(known, c)), None)
            if missing is not None:
                raise Open(f"it may send a point that does not exist, or has no place: it is not known that {missing}", node)
            point |= {f"v{k}": sym(v.symbol) for k, v in enumerate(values)}
            given = (*clipped, *(c for v in values for c in (ge(sym(v.symbol), 0), lt(sym(v.symbol), v.extent))))
            self._sent.setdefault((whole, holds.tensor), []).append(place)
        else:
            given = inside(place.index, self.writes.shape(whole))
            self._stored.setdefault(whole, []).append(place)
        constraints = known_at(place).given(*given)
        for k, (e, wanted) in enumerate(zip(place.index, (substitute(e, point) for e in at), strict=True)):
            if not equal(constraints, e, wanted):
                raise Open(f"it writes to index {e} of {whole} on axis {k}, where {wanted} is the place of {holds.tensor}", node)

    def check(self, whole: str) -> None:
        """Every element is stored; then every point is sent once. Raises :class:`Open`."""
        if whole not in self._known:
            try:
                self._check(whole)
                self._known[whole] = None
            except Open as error:
                self._known[whole] = error.again()
        error = self._known[whole]
        if error is not None:
            raise error.again()

    def read(self, want: Place) -> None:
        """A read finds an element of the whole, complete: it comes after all writes. Raises :class:`Open`."""
        whole = want.buffer
        if want.tensor != whole:
            raise Open(f"it reads {want.tensor} where {whole} is updated", want.node)
        constraints = known_at(want).given(*inside(want.element, self.writes.shape(whole)))
        for k, (e, wanted) in enumerate(zip(want.index, want.element, strict=True)):
            if not equal(constraints, e, wanted):
                raise Open(f"it reads index {e} of {whole} on axis {k}, where {wanted} is wanted", want.node)
        for place in self._writes(whole):
            self._behind(whole, place.node, want.node, f"{whole} may be read before it is complete")
        self.check(whole)

    def _writes(self, whole: str) -> list[Place]:
        return [*self._stored.get(whole, []), *(p for part in self._rules[whole].parts for p in self._sent.get((whole, part), []))]

    def _check(self, whole: str) -> None:
        rule, tree = self._rules[whole], self.writes.tree
        root = tree.root.context.constraints
        for part, condition in zip(rule.parts, rule.conditions, strict=True):
            definition = self.writes.definitions[part]
            if any(e is const(0) for e in definition.shape):
                continue
            launched(tree, part, definition.shape)
            is_sent = isinstance(definition.rule, Send)
            places = self._sent.get((whole, part), []) if is_sent else [p for p in self._stored.get(whole, []) if p.tensor == part]
            if not places:
                raise Open(f"{part} is never {'sent' if is_sent else 'stored'}")
            visits = [stores(tree, place, definition.shape, condition, each=is_sent) for place in places]
            if is_sent:
                _sent_once(visits, definition.shape, condition, root)
            else:
                covered(visits, definition.shape, root.given(*nonempty(definition.shape, root.ranges)), again=True)
        for store in self._stored.get(whole, []):
            for part in rule.parts:
                for update in self._sent.get((whole, part), []):
                    self._behind(whole, store.node, update.node, f"{whole} may be updated before it is stored")

    def _behind(self, whole: str, first: Node, second: Node, otherwise: str) -> None:
        """What one statement does to an element is over before another reaches that element. Raises :class:`Open`.

        It precedes the other; and of each loop around both, either it is executed in the first iteration only, or the two reach one element in one iteration
        only.
        """
        if first.number >= second.number or in_other_arm(first, second):
            raise Open(otherwise, second, first)
        loops = [n.stmt for n in common_loops(first, second) if isinstance(n.stmt, For)]
        again = [s for s in loops if not proves(first.context.constraints, eq(sym(s.var), s.start))]
        if not again:
            return
        pairs = [*product(self._uses(whole, first), self._uses(whole, second))]
        if not pairs or not all(_meet_in_one_iteration(again, a, b, self.threads) for a, b in pairs):
            raise Open(otherwise, second, first)

    def _uses(self, whole: str, node: Node) -> list[Use]:
        """The accesses of a statement to such a tensor."""
        if self._found is None:
            self._found = Uses(self.writes.tree)
        return [u for u in self._found.by_buffer.get(whole, ()) if u.node is node]


def _sent_once(visits: list[Visits], shape: tuple[Expr, ...], condition: Expr, root: Constraints) -> None:
    """Every point of a shape that meets a condition is sent once. No statement sends others (:meth:`Updates.enter`).

    Along an axis, points may be counted from the first one that meets the condition, if this begins somewhere: different points have different numbers then,
    too, and those that meet it have numbers within the extent, and below the first one behind them. Raises :class:`Open`.
    """
    known = root.given(*nonempty(shape, root.ranges))
    try:
        covered(visits, shape, known)
    except Open as error:
        points = root.given(*inside(iteration_point(len(shape)), shape), *conjuncts(condition))
        for k, name in enumerate(map(str, iteration_point(len(shape)))):
            first, end = range_where(condition, name)
            if first is None:
                continue
            first = simplify(maximum(first, 0), points.facts)
            count = shape[k] if end is None else end - first
            count = count if count.free.isdisjoint(map(str, iteration_point(len(shape)))) else shape[k]
            try:
                covered([_counted_from(v, k, first) for v in visits], (*shape[:k], count, *shape[k + 1 :]), known)
            except Open:
                continue
            return
        raise error


def _counted_from(v: Visits, axis: int, first: Expr) -> Visits:
    """Visits whose points are counted from some index of an axis, which the indices of the others determine."""
    others = {f"i{k}": e for k, e in enumerate(v.point) if k != axis}
    at = v.point[axis] - substitute(first, others)
    return replace(v, point=tuple(at if k == axis else e for k, e in enumerate(v.point)))


def _meet_in_one_iteration(loops: list[For], a: Use, b: Use, threads: Threads) -> bool:
    """True only if two accesses to one element are made at one value of each loop's variable, which counts alike for the threads that make them."""
    found = Relation(a, b, threads)
    return found.never or all(s.var in found.equal and found.known(s.start) and found.known(s.step) for s in loops)
