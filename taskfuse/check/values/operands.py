"""Statements read the operands of their definitions, and the elements that copying instructions move."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from weakref import proxy

from taskfuse.check.statement_tree import Node
from taskfuse.check.values.claims import ClaimedWrite, Instructions, Place
from taskfuse.check.values.questions import equal, inside, known_at, proves
from taskfuse.check.values.reaching_writes import ReachingWrites
from taskfuse.check.values.reductions import Reductions
from taskfuse.check.values.solve import Open
from taskfuse.check.values.writes import Writes
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.scalar import Expr, conjuncts, substitute
from taskfuse.kir.nodes import AsyncCopy, Compute, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, Holds, Immediate, IndexOf, Operand, ScalarValue
from taskfuse.kir.products import LdMatrix, StMatrix
from taskfuse.kir.witness import Iterate, Reduce

COPY = ELEMENTWISE["copy"]


class Zeros(Protocol):
    """The interface of the search for zeros."""

    def zero(self, place: Place, along: frozenset[int] | None = None) -> None:
        """Raises :class:`Open` unless a write leaves zeros wherever its element does not exist.

        Args:
            along: only where its index is out of bounds on some of these axes, and in bounds on all others.
        """
        ...


class CheckedOperands:
    """The operands of the statements of a kernel. Methods raise :class:`Open` for what is not known to be right.

    Args:
        statements: what asks for the zeros of a write. It holds these operands, which do not hold it.
    """

    def __init__(self, writes: Writes, reads: ReachingWrites, instructions: Instructions, reductions: Reductions, statements: Zeros) -> None:
        self.writes = writes
        self.reads = reads
        self.instructions = instructions
        self.reductions = reductions
        self.zeros: Zeros = proxy(statements)

    def match(
        self,
        node: Node,
        op: Elementwise,
        operands: tuple[Operand, ...],
        wanted: tuple[Operand, ...],
        index: tuple[Expr, ...],
        given: Iterable[Expr],
        *,
        past: bool = False,
    ) -> None:
        """Operands are those of the definition at an index: in its order, or the first two of a commutative function exchanged."""
        if len(operands) != len(wanted):
            raise Open(f"it has {len(operands)} operands in the place of {len(wanted)}", node)
        given = tuple(given)
        try:
            self._each(node, operands, wanted, index, given, past=past)
        except Open as error:
            if not op.commutative:
                raise
            try:
                self._each(node, (operands[1], operands[0], *operands[2:]), wanted, index, given, past=past)
            except Open:
                raise error from None

    def _each(
        self, node: Node, operands: tuple[Operand, ...], wanted: tuple[Operand, ...], index: tuple[Expr, ...], given: tuple[Expr, ...], *, past: bool
    ) -> None:
        for have, want in zip(operands, wanted, strict=True):
            self.match_one(node, have, want, index, given, past=past)

    def match_one(self, node: Node, have: Operand, want: Operand, index: tuple[Expr, ...], given: tuple[Expr, ...], *, past: bool = False) -> None:
        """An operand is that of the definition at an index."""
        point = {f"i{k}": e for k, e in enumerate(index)}
        match have, want:
            case Access(), Access():
                element = tuple(substitute(e, point) for e in want.index)
                self.read(self.instructions.read(node, have, want.buffer, element), given, past=past)
            case Immediate(), Immediate() if have == want:
                pass
            case ScalarValue(), ScalarValue() if have.name == want.name:
                pass
            case IndexOf(), IndexOf():
                wanted = substitute(want.value, point)
                if not equal(node.context.constraints.given(*given), have.value, wanted):
                    raise Open(f"it takes the index {have.value}, where {wanted} is wanted", node)
            case _:
                raise Open("an operand is another than its definition's", node)

    def read(self, want: Place, given: tuple[Expr, ...], *, past: bool = False, along: frozenset[int] | None = None) -> None:
        """A read finds the wanted element; ``past``: or a zero where the element does not exist, ``along`` some axes (:meth:`Zeros.zero`)."""
        definition = self.writes.definitions.get(want.tensor)
        accumulates = want.buffer in self.reductions.terms or want.buffer in self.reductions.starts.places  # one of nothing takes no term
        if accumulates and definition is not None and isinstance(definition.rule, Reduce | Iterate):
            if past:
                raise Open("an accumulator is read past the end", want.node)
            if definition.rule.dtype is not definition.dtype:
                raise Open(f"it reads an accumulator of {definition.rule.dtype} in the place of an element of {definition.dtype}", want.node)
            self.reductions.complete(want, given)
            return
        for hit in self.reads.found(want, given, past=past):
            if past:
                self.zeros.zero(hit, along)

    def copied(self, w: ClaimedWrite, source: Access, given: tuple[Expr, ...], *, past: bool, along: frozenset[int] | None = None) -> None:
        """An instruction copies ``source``, over the axes of its tensor. ``past``, ``along``: see :meth:`read`; the axes are those of ``source``."""
        node, stmt, i = w.node, w.node.stmt, self.instructions
        element = element_of(source, w.holds)
        given = given if not past else ()
        match stmt:
            case Compute():
                self.match_one(node, stmt.operands[0], source, w.holds.index, given, past=past)
                return
            case VectorCopy():
                want = i.vector(node, stmt.source, stmt.width, source.buffer, element)
            case AsyncCopy():
                if not past:
                    around = known_at(w.place).given(*inside(w.place.element, self.writes.shape(w.place.tensor)))
                    if not all(proves(around, c) for c in conjuncts(stmt.valid)):
                        raise Open(f"it writes a zero where {stmt.valid} fails, and elements exist there", node)
                want = i.vector(node, stmt.source, stmt.width, source.buffer, element)
            case TmaLoad():
                want = i.loaded_box(node, stmt, w.holds, element, source.buffer)
            case TmaStore():
                want = i.stored_box(node, stmt, w.holds, source.buffer, element)
            case LdMatrix():
                want = i.matrix_rows(node, stmt, source.buffer, element)
            case StMatrix():
                want = i.matrix_registers(node, stmt, source.buffer, element)
            case _:
                raise Open("it is not a copy", node)
        if not past:  # in the terms of what the instruction touches
            given = inside(want.element, self.writes.shape(source.buffer))
        self.read(want, given, past=past, along=along)


def element_of(source: Access, holds: Holds) -> tuple[Expr, ...]:
    """The index of an access of a definition at the element that a claim names."""
    point = {f"i{k}": e for k, e in enumerate(holds.index)}
    return tuple(substitute(e, point) for e in source.index)
