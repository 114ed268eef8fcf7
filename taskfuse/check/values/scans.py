"""A scan carries its total in a register, along loops that run over its axis in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskfuse.check.ranges import terms_of
from taskfuse.check.statement_tree import Node
from taskfuse.check.values.claims import Instructions
from taskfuse.check.values.match import where_found
from taskfuse.check.values.neutral_terms import neutral_of, set_to
from taskfuse.check.values.questions import equal, inside, known_at, proves
from taskfuse.check.values.solve import Open
from taskfuse.check.values.write_and_read import WriteAndRead
from taskfuse.check.values.writes import Writes
from taskfuse.check.values.written import Writing, cursors_of, moves_of
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import ZERO, Compare, CompareOp, Expr, Sym, conjuncts, const, lt, simplify, substitute, sym
from taskfuse.kir.nodes import Compute, For
from taskfuse.kir.operands import Access, Content, Holds
from taskfuse.kir.witness import Accumulate


class Scans:
    """The totals of a kernel."""

    def __init__(self, writes: Writes, instructions: Instructions) -> None:
        self.writes = writes
        self.instructions = instructions
        self._terms: dict[str, list[tuple[Node, Holds]]] = {}
        self._starts: dict[str, list[Node]] = {}

    def enter(self, node: Node, holds: Holds) -> None:
        """Add a statement that starts a total, or adds to it."""
        assert isinstance(node.stmt, Compute)
        if holds.content is Content.START:
            self._starts.setdefault(node.stmt.out.buffer, []).append(node)
        else:
            self._terms.setdefault(node.stmt.out.buffer, []).append((node, holds))

    def complete(self, node: Node, total: Access, holds: Holds) -> None:
        """A total that is stored is that of its element. Raises :class:`Open`."""
        definition = self.writes.definitions[holds.tensor]
        rule = definition.rule
        assert isinstance(rule, Accumulate)
        terms, starts = self._terms.get(total.buffer, []), self._starts.get(total.buffer, [])
        match terms, starts:
            case [(term, at)], [start]:
                pass
            case _:
                raise Open("its total is not started once and added to in one place", node)
        if at.tensor != holds.tensor or at.index != holds.index or term.loops != node.loops or set(term.conditions) != set(node.conditions):
            raise Open("it is not stored after the step that adds its element", node)
        assert isinstance(term.stmt, Compute)
        assert isinstance(start.stmt, Compute)
        if term.stmt.out != total:
            raise Open("it stores another total than the one that is added to", node)
        if rule.is_exclusive != (term.number > node.number):
            raise Open(f"it is stored {'behind' if rule.is_exclusive else 'before'} the step that adds its element", node)
        value = set_to(start.stmt, rule.dtype)
        if value is None:
            raise Open("its total does not start with a constant", start)
        if not is_same_number(value, neutral_of(rule)):
            raise Open("its total does not start with the neutral element", start)
        scope = [n for n in start.loops if n in term.loops]
        own = [n for n in term.loops if n not in scope]
        if start.number > min(term.number, node.number):
            raise Open("its total starts after its first step", start)
        self._set(start, term)
        self._stays(term, node, own, (*holds.index, *total.index))
        index = holds.index
        if rule.start is not ZERO:  # steps count from there
            start = substitute(rule.start, {f"i{k}": e for k, e in enumerate(index)})
            index = (*index[: rule.axis], simplify(index[rule.axis] - start, term.context.facts), *index[rule.axis + 1 :])
        self._in_order(term, own, index, rule.axis, total)
        exists = inside(holds.index, definition.shape)
        assumptions = (i for i in term.context.constraints.assumptions if not isinstance(i, Expr))
        around = term.context.constraints.about(const(0))[0].given(*assumptions, *exists)
        steps = [n.stmt.var for n in own if isinstance(n.stmt, For)]
        along = next((var for var in steps if var in holds.index[rule.axis].free), None)
        for c in term.conditions:
            for part in conjuncts(c):
                varying = not part.free.isdisjoint(steps)
                if varying and not _ends(part, along, steps) and not proves(around, part):
                    raise Open(f"its steps are taken under {part} only", term)

    def _stays(self, term: Node, node: Node, own: Sequence[Node], index: Sequence[Expr]) -> None:
        """No cursor that says which steps are taken, or where the total is, moves while they are: in their loops, or before the total is stored.
        Raises :class:`Open`."""
        bounds = (e for n in own if isinstance(n.stmt, For) for e in (n.stmt.start, n.stmt.stop, n.stmt.step))
        cursors = cursors_of((*index, *term.conditions, *bounds))
        first, last = min(term.number, node.number), max(term.number, node.number)
        for move in moves_of(term, cursors) if cursors else ():
            if first < move.number < last or any(n in move.loops for n in own):
                raise Open("which steps are taken is said by a cursor, which moves", move, term)

    def _set(self, start: Node, term: Node) -> None:
        """The total that a step adds to has been set before the loops along the axis."""
        claim, target = (self.instructions.written(n, Holds("", content=Content.START)) for n in (start, term))
        same = {n.stmt.var: sym(n.stmt.var) for n in start.loops if isinstance(n.stmt, For) and n in term.loops}
        storage = self.writes.storages[claim.buffer]
        found = where_found(
            WriteAndRead(Writing(claim, storage.memory, same), replace(target, element=()), storage, (), None, known_at(target), None, past=False)
        )
        if found is None or found.under or found.rest is not None:
            raise Open("its total is not known to be set before its first step", start)

    @staticmethod
    def _in_order(term: Node, own: list[Node], index: tuple[Expr, ...], axis: int, total: Access) -> None:
        """Steps are taken in order, from the first one on; see :func:`in_order`."""
        in_order(term, own, index, axis, total.index, some=False)


def _ends(condition: Expr, var: str | None, steps: Sequence[str]) -> bool:
    """True only if a condition that holds at a step holds at all earlier ones: it bounds the variable of the outermost loop along the axis from above."""
    match condition:
        case Compare(op=CompareOp.LT | CompareOp.LE, a=a, b=b) if var is not None:
            return simplify(sym(var) - (a - b)).free.isdisjoint(steps)
        case _:
            return False


def in_order(term: Node, own: Sequence[Node], index: tuple[Expr, ...], axis: int, place: tuple[Expr, ...], *, some: bool) -> None:
    """The loops along an axis, innermost first: each steps by the extent of all loops inside it, or by more than any of their steps. Raises :class:`Open`.

    Args:
        term: the statement that takes a step.
        own: the loops around it that take the steps of one total, outermost first, and those over other totals.
        index: of its point in the iteration space.
        place: the place of the total.
        some: conditions may skip steps; the caller checks which are taken.
    """
    facts = term.context.facts
    terms, constant = terms_of(index[axis])
    weights = {str(t): k for t, k in terms}
    reach: Expr = const(1)
    within: Expr = const(0)
    for n in reversed(own):
        s = n.stmt
        assert isinstance(s, For)
        if s.var not in index[axis].free:
            if any(e is sym(s.var) for e in place):
                continue
            if s.var in {name for e in index for name in e.free}:
                raise Open(f"one total is used for different values of {s.var}", term)
            raise Open(f"its steps are taken again in each iteration of {s.var}", term)
        if s.var in {name for k, e in enumerate(index) if k != axis for name in e.free} or s.var not in weights:
            raise Open("its loops do not run along its axis in order", term)
        if any(s.var in e.free for e in place):
            raise Open(f"its steps add to another total in each iteration of {s.var}", term)
        weight = const(weights[s.var])
        follows = equal(term.context.constraints, weight, reach) or (some and proves(term.context.constraints, lt(within, weight)))
        if s.start is not const(0) or s.step is not const(1) or not follows:
            raise Open("its loops do not run along its axis in order", term)
        reach = simplify(reach * s.stop, facts)
        within = within + weight * sym(s.var)
    if constant or any(not isinstance(t, Sym) or t.name not in {n.stmt.var for n in own if isinstance(n.stmt, For)} for t, _ in terms):
        raise Open("its axis does not start with its loops", term)
