"""The statements of one tensor's expression at one point of its loops, in local indices.

A reduction has three stages: ``INIT`` sets the accumulator before the outermost reduction loop, ``MAIN`` accumulates, ``FINISH`` joins the
accumulators of threads and blocks after that loop and stores the result. A sum that is rescaled along that loop has a fourth stage, ``RESCALE``, before
the terms of each iteration: it multiplies the accumulators, in all threads with parts of the sum. A scan has the first two: its
``MAIN`` stores every total. Everything else has only ``MAIN``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from taskfuse.dtypes import DType
from taskfuse.ir.atoms import Bounds, Instruction
from taskfuse.ir.axes import Axis
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import (
    Assemble,
    FirstValid,
    Fold,
    Gather,
    IndexValue,
    Literal,
    MathExpr,
    Pointwise,
    Read,
    Reduction,
    ScalarRead,
    Scan,
    Update,
    View,
    operand_dtype,
)
from taskfuse.ir.scalar import FALSE, TRUE, Expr, and_, const, ge, prove, simplify, substitute
from taskfuse.ir.storage import storage_operands, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.kir import nodes as kir
from taskfuse.kir.nodes import AsyncCopy, Choose, Compute, Stmt, VectorCopy
from taskfuse.kir.operands import Access, ChoiceCase, Content, GatherValue, Immediate, IndexOf, Operand, ScalarValue
from taskfuse.kir.products import Shuffle
from taskfuse.lowering.domains import refused
from taskfuse.lowering.fragments import atom_symbols, register, registers
from taskfuse.lowering.guard_elimination import GuardElimination
from taskfuse.lowering.index_maps import IndexMap
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.overhang import covered, pads
from taskfuse.lowering.plan import Needs, PLoop, PNode, PStmt
from taskfuse.lowering.scans import carried_axes
from taskfuse.lowering.whole_tiles import WholeTiles
from taskfuse.lowering.witness import holds

COPY = ELEMENTWISE["copy"]


class Stage(Enum):
    """A part of a tensor's code."""

    INIT = "init"
    RESCALE = "rescale"
    MAIN = "main"
    FINISH = "finish"


class Statements:
    """Builds the statements of tensors.

    Args:
        needs: the statements add their requirements to it.
    """

    def __init__(self, indexer: Indexer, builders: Mapping[Instruction, Callable[[Statements, TensorView], list[PStmt]]], needs: Needs) -> None:
        self.indexer = indexer
        self._builders = builders
        self.fusion = indexer.fusion
        self.needs = needs
        self.tails = GuardElimination(indexer)
        self.tiles = WholeTiles(indexer, self.tails)

    def definition(self, tv: TensorView) -> MathExpr:
        """The expression of a tensor with code."""
        expr = self.fusion.definition(tv)
        assert expr is not None
        return expr

    def is_reduction(self, tv: TensorView) -> bool:
        """True if the code of ``tv`` has stages: it is a reduction or a fold."""
        return isinstance(self.definition(tv), Reduction | Fold)

    def accumulator(self, tv: TensorView) -> str:
        """The name of the Local buffer in which a reduction, a scan or a fold accumulates."""
        direct = self.is_reduction(tv) and self.indexer.memory[tv] is MemoryType.Local and tv.dtype.compute is tv.dtype
        return tv.name if direct else f"{tv.name}.acc"

    # -- operands -------------------------------------------------------------------------------------------------------------------

    def _operand(self, tv: TensorView, index_map: IndexMap, operand: Read | Literal | ScalarRead | IndexValue) -> tuple[Operand, Expr]:
        match operand:
            case Read():
                return self.indexer.read(tv, index_map, operand)
            case Literal():
                return Immediate(operand.value, operand.dtype), TRUE
            case ScalarRead():
                return ScalarValue(operand.scalar.name), TRUE
            case IndexValue():
                return IndexOf(simplify(substitute(operand.index, self.indexer.index_maps.point(tv, index_map)), index_map.facts)), TRUE

    def operands(self, tv: TensorView, index_map: IndexMap) -> tuple[list[Operand], list[Expr]]:
        """The operands of a tensor's expression, and the condition of each under which it exists."""
        pairs = [self._operand(tv, index_map, o) for o in storage_operands(self.fusion, self.definition(tv))]
        return [o for o, _ in pairs], [c for _, c in pairs]

    def _compute_dtype(self, tv: TensorView) -> DType:
        """The dtype in which a pointwise op runs: that of its first tensor operand for comparisons and casts, else the result's."""
        expr = self.definition(tv)
        assert isinstance(expr, Pointwise)
        return expr.op.compute_dtype(tuple(operand_dtype(o) for o in expr.operands), tv.dtype)

    # -- stages ---------------------------------------------------------------------------------------------------------------------

    def term(self, tv: TensorView) -> str:
        """The name of the Local buffer for one term of a reduction whose body is neither a copy nor a product that is summed."""
        return f"{tv.name}.term"

    def has_term(self, tv: TensorView) -> bool:
        """True if the reduction needs :meth:`term`."""
        expr = self.definition(tv)
        return isinstance(expr, Reduction) and expr.body is not COPY and (expr.body, expr.combine.op) != (ELEMENTWISE["mul"], ELEMENTWISE["add"])

    def main(self, tv: TensorView) -> list[PStmt]:
        """The statements inside all loops of ``tv``."""
        expr = self.definition(tv)
        atom = tv.schedule.atom
        if atom is not None:
            return self._builders[atom.instruction](self, tv)
        if isinstance(expr, Scan):
            return self._next_total(tv, expr)
        if isinstance(expr, Update):
            return [self._update(tv, expr)]
        if isinstance(expr, Fold):
            return self._next_state(tv, expr)
        if not isinstance(expr, Reduction):
            return self.plain(tv)
        index_map = self.widened(tv, self.indexer.index_maps.reading(tv))
        operands, valid = self.operands(tv, index_map)
        operands, valid = operands[: len(expr.terms)], valid[: len(expr.terms)]
        out = self.indexer.write(tv, index_map, MemoryType.Local, self.accumulator(tv))
        guards = index_map.guards + tuple(c for c in valid if c is not TRUE)
        dtype = tv.dtype.compute
        if self.has_term(tv):
            term = Access(self.term(tv), ())
            stmts: list[Stmt] = [Compute(term, expr.body, tuple(operands), dtype)]
            stmts.append(Compute(out, expr.combine.op, (out, term), dtype))
        elif expr.body is COPY:
            stmts = [Compute(out, expr.combine.op, (out, operands[0]), dtype)]
        else:
            stmts = [Compute(out, ELEMENTWISE["fma"], (*operands, out), dtype)]
        contents = (Content.BODY, Content.TERM)[-len(stmts) :]
        return [self.statement(tv, stmt, index_map, guards, content) for stmt, content in zip(stmts, contents, strict=True)]

    def _next_total(self, tv: TensorView, expr: Scan) -> list[PStmt]:
        """One step of a scan: the total so far, and the element that it is."""
        index_map = self.indexer.index_maps.of(tv)
        if self.tiles.are_computed(tv):
            index_map = index_map.unguarded()
        ((operand,), _) = self.operands(tv, index_map)
        total = Access(self.accumulator(tv), tuple(index_map.values[a] for a in carried_axes(expr)))
        step = Compute(total, expr.combine.op, (total, operand), tv.dtype.compute)
        store = Compute(self.indexer.write(tv, index_map), COPY, (total,), tv.dtype)
        stmts = [self.statement(tv, step, index_map, index_map.guards, Content.TERM), self.statement(tv, store, index_map, index_map.guards)]
        return stmts[::-1] if expr.is_exclusive else stmts

    def _next_state(self, tv: TensorView, expr: Fold) -> list[PStmt]:
        """One step of a fold."""
        index_map = self.indexer.index_maps.reading(tv)
        operands, _ = self.operands(tv, index_map)
        state = self.indexer.write(tv, index_map, MemoryType.Local, self.accumulator(tv))
        step = Compute(state, expr.step, (state, *operands), tv.dtype.compute)
        return [self.statement(tv, step, index_map, index_map.guards, Content.TERM)]

    def plain(self, tv: TensorView) -> list[PStmt]:
        """The statement of an elementwise expression, element by element."""
        index_map, expr = self.indexer.index_maps.of(tv), self.definition(tv)
        index_map = self.widened(tv, index_map)
        out = self.indexer.write(tv, index_map)
        operands, valid = self.operands(tv, index_map)
        operands = [self.tiles.existing(tv, o, index_map.facts) if isinstance(o, Access) else o for o in operands]
        match expr:
            case FirstValid():
                cases = tuple(ChoiceCase(c, o if c is not FALSE else self._never(tv, o)) for c, o in zip(valid, operands, strict=True))
                stmt = Choose(out, expr.label, cases)
            case Pointwise():
                stmt = Compute(out, expr.op, tuple(operands), self._compute_dtype(tv))
            case View():
                stmt = Compute(out, COPY, tuple(operands), tv.dtype)
            case Gather():
                stmt = self.gather(tv, expr, out, operands)
            case Assemble() | Reduction() | Scan() | Update() | Fold():
                raise AssertionError("no plain code")
        valid, wide = self.past_the_end(tv, index_map)
        if valid is not TRUE:
            cases = ChoiceCase(valid, operands[0]), ChoiceCase(TRUE, Immediate(0 if not tv.dtype.is_bool else False, tv.dtype))
            return [self.statement(tv, Choose(self.indexer.write(tv, wide), "pad", cases), wide, wide.guards)]
        made = [self.statement(tv, stmt, index_map, index_map.guards)]
        if index_map.guards and not self.tiles.are_computed(tv) and self._is_gathered(tv):
            fill = Compute(out, COPY, (Immediate(0 if not tv.dtype.is_bool else False, tv.dtype),), tv.dtype)
            made.insert(0, self.statement(tv, fill, index_map, (), Content.ZERO))
        return made

    def past_the_end(self, tv: TensorView, index_map: IndexMap) -> tuple[Expr, IndexMap]:
        """The condition under which the source elements of a copy exist, and the index map in which it runs: it pads the tail of a split with zeros.

        Returns:
            ``TRUE`` and ``index_map`` if it pads nothing: there is no tail, or no room for one.

        Raises:
            LoweringError: an atom computes whole tiles of ``tv``, and there is no room.
        """
        if not index_map.tails or not pads(self.fusion, tv):
            return TRUE, index_map
        if self.tails.has_room(tv):
            return and_(*index_map.tails), index_map.past_the_end()
        if covered(self.fusion, tv):
            reason = f"an atom computes whole tiles of it, and past {' and '.join(map(str, index_map.tails))} it has no room for zeros"
            raise refused(tv, reason, "inline it into the loop over its tiles")
        return TRUE, index_map

    def widened(self, tv: TensorView, index_map: IndexMap) -> IndexMap:
        """``index_map``, an index map of ``tv``, without the guards that its code does not need."""
        return index_map.unguarded() if self.tiles.are_computed(tv) else self.tails.widened(tv, index_map)

    def gather(self, tv: TensorView, expr: Gather, out: Access, operands: Sequence[Operand], width: int = 1) -> kir.GatherCopy:
        """The statement of a gather: elements at an index given by the other operands."""
        source, *values = (o for o in operands if isinstance(o, Access))
        return kir.GatherCopy(out, source, self._found(tv, expr.extents, values), width)

    def _found(self, tv: TensorView, extents: Sequence[Expr], values: Sequence[Access]) -> tuple[GatherValue, ...]:
        symbols = self.indexer.index_maps.value_symbols(tv)
        return tuple(GatherValue(str(s), value, extent) for s, value, extent in zip(symbols, values, extents, strict=True))

    def _update(self, tv: TensorView, expr: Update) -> PStmt:
        """The statement of an update: the element that it is combined with lies in the assembly."""
        index_map = self.indexer.index_maps.of(tv)
        stmt = self.update(tv, expr, self.indexer.write(tv, index_map), self.operands(tv, index_map)[0])
        return self.statement(tv, stmt, index_map, index_map.guards)

    def update(self, tv: TensorView, expr: Update, out: Access, operands: Sequence[Operand], width: int = 1) -> kir.AtomicUpdate:
        """The statement of an update: the element, what is combined with it, and the values that say where it is."""
        _, source, *values = operands
        if not isinstance(source, Access):
            raise refused(tv, "what it combines with an element is a constant", "make it a tensor: tf.full(...)")
        found = self._found(tv, expr.extents, [v for v in values if isinstance(v, Access)])
        return kir.AtomicUpdate(out, expr.combine, source, found, width)

    def _is_gathered(self, tv: TensorView) -> bool:
        """True if an atom reads all registers of ``tv``, also those of elements that do not exist."""
        if self.indexer.memory[tv] is not MemoryType.Local:
            return False
        users = (u.output for u in storage_uses(self.fusion, tv))
        return any(u.schedule.atom is not None and u.schedule.atom.bounds is Bounds.COVER for u in users)

    def fills(self, tv: TensorView) -> bool:
        """True if a reduction's accumulators are set before its loops; otherwise an atom's first step sets them, if there always is one."""
        expr, atom = self.definition(tv), tv.schedule.atom
        if atom is None or not atom.sets_first:
            return True
        assert isinstance(expr, Reduction)
        if expr.init.value != 0 or expr.rescaled is not None:
            return True
        index_maps = self.indexer.index_maps
        around = index_maps.loop_symbols(tv)
        result = index_maps.variant(tv, {a: s for a, s in around.items() if not a.is_reduction}, MemoryType.Local, outside=True)
        loops = {str(s): a.extent for a, s in around.items() if a.is_reduction and tv.schedule.ptype(a).is_loop}
        path = zip(tv.loop, index_maps.shared_loops.path[tv], strict=True)
        bounded = ((a, p) for a, p in path if p in index_maps.starts or p in index_maps.ends)
        loops |= {str(index_maps.variables.symbol(p)): index_maps.length(p, a.extent, lambda bound: index_maps.in_code(bound, tv)) for a, p in bounded}
        first = dict.fromkeys(loops, const(0))
        runs = [substitute(g, first) for g in index_maps.reading(tv).guards if g not in result.guards]
        return not all(prove(c, result.facts) for c in (*(ge(extent, 1) for extent in loops.values()), *runs))

    def init(self, tv: TensorView, loops: dict[Axis, Expr]) -> list[PNode]:
        """The accumulator set to the initial value of the reduction or fold, or to the neutral one."""
        expr = self.definition(tv)
        if isinstance(expr, Scan):
            neutral = Immediate(expr.combine.neutral(tv.dtype.compute), tv.dtype.compute)
            total = Access(self.accumulator(tv), tuple(loops[a] for a in carried_axes(expr)))
            everywhere = IndexMap({}, self.indexer.ranges.facts, ())
            return [self.statement(tv, Compute(total, COPY, (neutral,), tv.dtype.compute), everywhere, (), Content.START)]
        if not self.fills(tv):
            return []
        assert isinstance(expr, Reduction | Fold)
        index_map = self.indexer.index_maps.variant(tv, loops, MemoryType.Local, outside=True)
        index_map = self.widened(tv, index_map)
        value = (Immediate(expr.init.value, expr.init.dtype),)
        first = self.first_accumulator(tv, index_map)
        if tv.schedule.atom is None or not tv.schedule.atom.spreads:
            return [self.statement(tv, Compute(first, COPY, value, tv.dtype), index_map, index_map.guards, Content.START)]
        (place,) = first.index
        every = Access(first.buffer, (simplify(place + register(tv), index_map.facts),))
        start = self.statement(tv, Compute(every, COPY, value, tv.dtype), index_map, index_map.guards, Content.START)
        return [PLoop(str(register(tv)), const(registers(tv)), True, [start])]

    def rescale(self, tv: TensorView, loops: dict[Axis, Expr]) -> list[PNode]:
        """The accumulators of a sum, times its factor at an index of the axis where it is rescaled."""
        index_maps = self.indexer.index_maps
        index_map = self.widened(tv, index_maps.rescaling(tv, loops))
        factor = storage_operands(self.fusion, self.definition(tv))[-1]
        assert isinstance(factor, Read)
        value, _ = self.indexer.read(tv, index_map, factor)
        acc = self.first_accumulator(tv, index_maps.variant(tv, loops, MemoryType.Local, outside=True))
        if registers(tv) > 1:
            (place,) = acc.index
            acc = Access(acc.buffer, (simplify(place + register(tv), index_map.facts),))
        stmt = Compute(acc, ELEMENTWISE["mul"], (acc, value), tv.dtype.compute)
        made: PNode = self.statement(tv, stmt, index_map, index_map.guards, Content.RESCALED)
        return [PLoop(str(register(tv)), const(registers(tv)), True, [made])] if registers(tv) > 1 else [made]

    def first_accumulator(self, tv: TensorView, index_map: IndexMap) -> Access:
        """The accumulator of an element; of a tile that an atom computes, that of its first."""
        access = self.indexer.write(tv, index_map, MemoryType.Local, self.accumulator(tv))
        start = dict.fromkeys(atom_symbols(tv).values(), const(0))
        return Access(access.buffer, tuple(simplify(substitute(e, start), index_map.facts) for e in access.index)) if start else access

    def store(self, tv: TensorView, loops: dict[Axis, Expr]) -> PStmt:
        """The result of a reduction stored from its accumulator, at the first index of replicating axes."""
        index_map = self.indexer.index_maps.variant(tv, loops, self.indexer.memory[tv], outside=True)
        source = Access(self.accumulator(tv), tuple(index_map.values[a] for a in self.indexer.kept_axes(tv, MemoryType.Local)))
        return self.statement(tv, Compute(self.indexer.write(tv, index_map), COPY, (source,), tv.dtype), index_map, index_map.guards)

    def _never(self, tv: TensorView, operand: Operand) -> Operand:
        """An operand that no iteration reads, at an index that exists: it stays, since the ends of a channel are where the math reads."""
        if not isinstance(operand, Access):
            return operand
        source = next((t for t in self.fusion.tensors() if t.name == operand.buffer), None)
        ring = 0 if source is None or source not in self.indexer.tree.place else int(self.indexer.slot(source, tv) is not None)
        return Access(operand.buffer, operand.index[:ring] + (const(0),) * (len(operand.index) - ring))

    def source(self, tv: TensorView) -> TensorView:
        """The tensor that a copy reads, or an update sends."""
        expr = self.definition(tv)
        read = next(o for o in storage_operands(self.fusion, expr)[isinstance(expr, Update) :] if isinstance(o, Read))
        return read.tensor

    def statement(self, tv: TensorView, stmt: Stmt, index_map: IndexMap, guards: tuple[Expr, ...], content: Content = Content.VALUE) -> PStmt:
        """A plan statement, with its accesses and its claim."""
        writes: tuple[Access, ...] = ()
        reads: tuple[Access, ...] = ()
        match stmt:
            case Compute():
                writes, reads = (stmt.out,), tuple(o for o in stmt.operands if isinstance(o, Access))
            case Choose():
                writes, reads = (stmt.out,), tuple(c.operand for c in stmt.cases if isinstance(c.operand, Access))
            case kir.GatherCopy():
                writes, reads = (stmt.out,), (stmt.source, *(v.source for v in stmt.values))
            case kir.AtomicUpdate():
                writes, reads = (stmt.out,), (stmt.out, stmt.source, *(v.source for v in stmt.values))
            case VectorCopy() | AsyncCopy() | Shuffle():
                writes, reads = (stmt.out,), (stmt.source,)
            case _:
                raise AssertionError(stmt)
        stmt = replace(stmt, holds=holds(tv, index_map, content))
        facts = index_map.facts
        for g in guards:
            if g not in index_map.guards:
                facts = facts.with_assumption(g)
        return PStmt(tv, self.indexer.tree.place[tv], stmt, guards, facts, writes, reads)
