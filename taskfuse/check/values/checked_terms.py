"""Terms of reductions, scans and folds: every term that a statement takes is one of the definition; past the end it adds nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from taskfuse.check.bounded_variables import BoundedElement
from taskfuse.check.statement_tree import Node
from taskfuse.check.values.claims import ClaimedWrite, Place, taken
from taskfuse.check.values.neutral_terms import is_signed_zero
from taskfuse.check.values.operands import COPY, CheckedOperands, element_of
from taskfuse.check.values.questions import equal, in_spans, inside, known_at, proves
from taskfuse.check.values.solve import Open
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import Expr, ge, le, lt, substitute, sym
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import Access, Content, Holds, Immediate, Operand
from taskfuse.kir.products import Mma, Wgmma
from taskfuse.kir.witness import Accumulate, Definition, Iterate, Reduce

ADD, FMA, MUL = ELEMENTWISE["add"], ELEMENTWISE["fma"], ELEMENTWISE["mul"]


class CheckedTerms:
    """The writes of a kernel that take terms. Methods raise :class:`Open` if a write is not proved right."""

    def __init__(self, operands: CheckedOperands) -> None:
        self.operands = operands
        self.instructions = operands.instructions
        self.writes = operands.writes
        self.reads = operands.reads

    def term(self, w: ClaimedWrite) -> None:
        """A term of a reduction or a scan, or one that is added."""
        definition = self.writes.definitions[w.holds.tensor]
        rule, stmt, node = definition.rule, w.node.stmt, w.node
        point = {f"i{k}": e for k, e in enumerate(w.holds.index)}
        exists = (*inside(w.holds.index, definition.space), *inside((substitute(e, point) for e in definition.place), definition.shape))
        if isinstance(rule, Accumulate):
            step = taken(stmt, rule.combine)
            if step is None or not isinstance(stmt, Compute) or stmt.dtype is not rule.dtype:
                raise Open("it is not a step of its scan", node)
            self.operands.match_one(node, step, rule.operand, w.holds.index, exists)
            return
        if isinstance(rule, Iterate):
            if w.holds.content is Content.BODY or not isinstance(stmt, Compute) or stmt.op is not rule.op or stmt.dtype is not rule.dtype:
                raise Open("it is not a step of its fold", node)
            if stmt.operands[0] != stmt.out:
                raise Open("it takes a step from another state than the one that it writes", node)
            state = Immediate(0, rule.dtype)
            self.operands.match(node, rule.op, (state, *stmt.operands[1:]), (state, *rule.operands), w.holds.index, exists)
            return
        assert isinstance(rule, Reduce)
        if w.holds.content is Content.TERM:
            self._in_bounds(w, rule, point, exists)
        match body_of(w.node, w.holds, rule):
            case Place() as body:
                self.reads.found(body)
            case tuple() as operands:
                self.operands.match(node, rule.body, operands, rule.terms, w.holds.index, exists)
            case product:
                for side, _ in self._sides(node, product, rule, w.holds):
                    self.operands.read(side, ())

    @staticmethod
    def _in_bounds(w: ClaimedWrite, rule: Reduce, point: Mapping[str, Expr], exists: Iterable[Expr]) -> None:
        """No term is taken before the first that the definition has, nor from where on it has none."""
        if not rule.starts and not rule.ends:
            return
        points = (BoundedElement(sym(f"tile.{k}"), (0, n - 1)) for k, n in enumerate(w.holds.tile))
        around = known_at(w.place).given(*exists, *points)
        for k, start in rule.starts:
            if not proves(around, le(in_spans(around, substitute(start, point)), w.holds.index[k])):
                raise Open(f"terms before the start along axis {k} may be taken", w.node)
        for k, end in rule.ends:
            if not proves(around, lt(w.holds.index[k], in_spans(around, substitute(end, point)))):
                raise Open(f"terms behind the end along axis {k} may be taken", w.node)

    def rescaled(self, w: ClaimedWrite, definition: Definition) -> None:
        """The partial sum is multiplied in place by the factor at the index."""
        rule, stmt, node = definition.rule, w.node.stmt, w.node
        if not isinstance(rule, Reduce) or rule.rescaled is None:
            raise Open(f"{w.holds.tensor} is not rescaled", node)
        if not isinstance(stmt, Compute) or stmt.op is not MUL or stmt.dtype is not rule.dtype or stmt.out not in stmt.operands:
            raise Open(f"it does not multiply an accumulator in {rule.dtype}", node)
        factor = stmt.operands[1] if stmt.operands[0] == stmt.out else stmt.operands[0]
        self.operands.match_one(node, factor, rule.operands[-1], w.holds.index, inside(w.holds.index, definition.indexed(Content.RESCALED)))

    def neutral(self, w: ClaimedWrite) -> None:
        """A term, or the body of one, adds nothing at a point past the end of its reduction: all factors of a sum of products are zeros there.

        No statement takes points before the first one.
        """
        node = w.node
        definition = self.writes.definitions[w.holds.tensor]
        rule = definition.rule
        point = {f"i{k}": e for k, e in enumerate(w.holds.index)}
        kept = inside((substitute(e, point) for e in definition.place), definition.shape)
        around = known_at(w.place)
        points = (BoundedElement(sym(f"tile.{k}"), (0, n - 1)) for k, n in enumerate(w.holds.tile))
        front = around.given(*kept, *points)
        if not all(proves(front, ge(e, 0)) for e in w.holds.index):
            raise Open("terms before the first may be taken", node)
        beyond = [k for k, (e, n) in enumerate(zip(w.holds.index, definition.space, strict=True)) if not proves(around.given(*kept), lt(e, n))]
        if not beyond:
            return
        if not isinstance(rule, Reduce) or rule.combine.op is not ADD or rule.body not in (MUL, COPY):
            raise Open("terms past the end may be taken, and it is not a sum of products", node)
        if is_signed_zero(rule):
            raise Open("terms past the end may be taken: they add 0.0 to a sum that begins with -0.0", node)
        for want in rule.terms:
            if not isinstance(want, Access):
                raise Open("terms past the end may be taken, and a factor is not a tensor", node)
            shape = self.writes.shape(want.buffer)
            for k in beyond:
                if not any(e is sym(f"i{k}") and equal(around, n, definition.space[k]) for e, n in zip(want.index, shape, strict=True)):
                    raise Open(f"terms past the end of axis {k} may be taken, and {want.buffer} does not end there", node)
        match body_of(w.node, w.holds, rule):
            case Place() as body:
                for hit in self.reads.found(body, kept, past=True):
                    self.operands.zeros.zero(hit)
            case tuple() as operands:
                self.operands.match(node, rule.body, operands, rule.terms, w.holds.index, kept, past=True)
            case product:
                for side, factor in self._sides(node, product, rule, w.holds):
                    ends = [d for d, e in enumerate(factor.index) if any(e is sym(f"i{k}") for k in beyond)]
                    self.operands.read(side, (), past=True, along=only_along(factor.index, ends))

    def _sides(self, node: Node, stmt: Wgmma | Mma, rule: Reduce, holds: Holds) -> Iterator[tuple[Place, Access]]:
        """The factors of a matrix product: the one with its rows and the one with its columns; where they are, and as the definition has them."""
        factors = [o for o in rule.terms if isinstance(o, Access)]
        if len(factors) != 2 or len(rule.terms) != 2:
            raise Open("its factors are not tensors", node)
        elements = [element_of(f, holds) for f in factors]
        rows = next((k for k, e in enumerate(elements) if any("tile.0" in x.free for x in e)), 0)
        for side, k in ((0, rows), (1, 1 - rows)):
            yield self.instructions.fragment(node, stmt, side, factors[k].buffer, elements[k]), factors[k]


def only_along(index: Sequence[Expr], axes: Collection[int]) -> frozenset[int] | None:
    """The axes of an operand along which it may be out of bounds where a point of its reader is: axes that the reader has, too.

    ``None``, all of them, if the same axes of the reader determine more of its index, which is then arbitrary.
    """
    deciding = {name for d in axes for name in index[d].free}
    others = (e for d, e in enumerate(index) if d not in axes)
    return frozenset(axes) if all(deciding.isdisjoint(e.free) for e in others) else None


def body_of(node: Node, holds: Holds, rule: Reduce) -> tuple[Operand, ...] | Place | Wgmma | Mma:
    """The content of a term: operands, as a statement has them; the place with its body; or the factors of a matrix product.

    Raises :class:`Open`.
    """
    match stmt := node.stmt:
        case Wgmma() | Mma() if rule.combine.op is ADD and rule.body is MUL:
            if stmt.row.sums is not rule.dtype:
                raise Open(f"it sums in {stmt.row.sums}, not in {rule.dtype}", node)
            return stmt
        case Compute() if stmt.dtype is not rule.dtype:
            raise Open(f"it computes in {stmt.dtype}, not in {rule.dtype}", node)
        case Compute(op=op, operands=operands) if holds.content is Content.BODY and op is rule.body:
            return operands
        case _ if holds.content is Content.BODY:
            raise Open("it is not the body of its reduction", node)
        case Compute(op=op, out=out, operands=(*factors, acc)) if op is FMA and rule.body is MUL and rule.combine.op is ADD and acc == out:
            return tuple(factors)
        case _:
            match taken(stmt, rule.combine):
                case Access() as term if rule.body is not COPY:
                    return Place(node, term.buffer, term.index, holds.tensor, holds.index, content=Content.BODY)
                case term if term is not None and rule.body is COPY:
                    return (term,)
                case _:
                    raise Open("it takes no term of its reduction", node)
