"""Guard elimination: code in registers that also runs in the tails of splits.

A tile of a split with a remainder has indices past the end of the tensor. Copies into Shared memory write zeros there
(:mod:`taskfuse.lowering.overhang`), so a thread may compute with the whole tile: a sum of products adds nothing along k, and rows
and columns past the end are never read. Without guards around each multiply-add the compiler keeps factors in registers and schedules freely.

Two kinds of code run in tails, if their operands are there:

- a copy into registers of a *full* tensor: filled with zeros wherever its code runs, by a tensor map or a copy that pads, without other guards;
- a sum, or a sum of products, of operands that are full or such copies, each of which has all the reduced axes: past the end of one of them all
  operands are 0. Threads and blocks reduce for themselves.

A read must find what was written: the point of each operand lies in the loops of the operand's code.
"""

from __future__ import annotations

from taskfuse.ir.atoms import Bounds, Instruction
from taskfuse.ir.axes import Resize
from taskfuse.ir.expr import Read, Reduction
from taskfuse.ir.scalar import TRUE, Expr, ge, lt, prove, simplify, substitute
from taskfuse.ir.storage import storage_terms
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.lowering.domains import ancestors, forward
from taskfuse.lowering.index_maps import IndexMap
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.overhang import along, is_copy, is_sum, overhanging, pads, told_apart

COPYING = (None, Instruction.VECTOR)
"""The copies into registers that may run past the end."""


class GuardElimination:
    """Determines which code of one fusion runs in tails."""

    def __init__(self, indexer: Indexer) -> None:
        self.indexer = indexer
        self.fusion = indexer.fusion
        self._known: dict[TensorView, bool] = {}
        self._full: dict[TensorView, bool] = {}

    def widened(self, tv: TensorView, index_map: IndexMap) -> IndexMap:
        """``index_map``, an index map of ``tv``, without tails if code of ``tv`` runs in them."""
        return index_map.past_the_end() if index_map.tails and self.run(tv) else index_map

    def run(self, tv: TensorView) -> bool:
        """True if code of ``tv`` runs in the tails of its splits."""
        known = self._known.get(tv)
        if known is None:
            known = self._known[tv] = self._finds_all(tv) if self._may_run(tv) else False
        return known

    def _may_run(self, tv: TensorView) -> bool:
        """True for a copy into registers, and for a sum that each thread takes for itself."""
        expr, atom = self.fusion.definition(tv), tv.schedule.atom
        if expr is None or (atom.instruction if atom else None) not in COPYING:
            return False
        if isinstance(expr, Reduction):
            serial = not any(a.is_reduction and tv.schedule.ptype(a).is_bound for a in tv.loop)
            return serial and is_sum(expr)
        return is_copy(expr) and self.indexer.memory[tv] is MemoryType.Local and tv not in self.indexer.placed

    def _finds_all(self, tv: TensorView) -> bool:
        """True if all operands are there, in tails, too, and 0 past the end of what is reduced."""
        expr = self.fusion.definition(tv)
        assert expr is not None
        index_map = self.indexer.index_maps.reading(tv).past_the_end()
        if not self.has_room(tv):
            return False
        ends = {end for end in overhanging(tv, self.indexer.ranges.facts).values() if end.is_reduction or not isinstance(expr, Reduction)}
        for operand in storage_terms(self.fusion, expr):
            if not isinstance(operand, Read) or operand.valid is not TRUE or operand.tensor not in self.indexer.tree.place:
                return False
            if any(along(tv, end, operand, index_map.facts) is None for end in ends) or not self.finds(tv, operand, index_map):
                return False
        return True

    def finds(self, tv: TensorView, read: Read, index_map: IndexMap) -> bool:
        """True if code of ``tv`` that runs past the end reads an element there, or a zero in its place."""
        source = read.tensor
        found = self._is_full(source) or (self.run(source) and self._is_everywhere(source))
        return found and self._is_written(source, self._index(tv, read, index_map), tv, index_map)

    def is_brought(self, tv: TensorView, read: Read, index_map: IndexMap) -> bool:
        """True if some thread or engine writes the elements in Shared memory that an atom of ``tv`` reads past the end.

        Guards of the writing code may select its thread, or exclude repeated elements.
        """
        source = read.tensor
        atom, around = source.schedule.atom, self.indexer.index_maps.of(source)
        cut = any(isinstance(t, Resize) and t.result in ancestors(source, source.loop) for t in source.schedule.transforms)
        brought = atom is not None and atom.bounds is Bounds.FILL
        brought = brought or (not (cut or around.work) and (not around.tails or (pads(self.fusion, source) and self.has_room(source))))
        return brought and self._is_written(source, self._index(tv, read, index_map), tv, index_map)

    def _index(self, tv: TensorView, read: Read, index_map: IndexMap) -> tuple[Expr, ...]:
        point = self.indexer.index_maps.point(tv, index_map)
        return tuple(simplify(substitute(e, point), index_map.facts) for e in read.index)

    def _is_written(self, source: TensorView, index: tuple[Expr, ...], reader: TensorView, index_map: IndexMap) -> bool:
        """True if the code of ``source`` runs at ``index``, also where that lies past the end."""
        values = forward(source, index, index_map.facts)
        for a, b in list(zip(source.loop, reader.loop, strict=False))[: source.schedule.inline]:
            if b in index_map.values:
                values[a] = index_map.values[b]
        index_maps = self.indexer.index_maps
        shared = index_maps.shared_loops.path[reader]
        for a, loop in zip(source.loop, index_maps.shared_loops.path[source], strict=True):
            value = values.get(a)
            if value is None and a.is_foreign:
                continue
            trips = a.extent if loop in shared else index_maps.trips(loop, a.extent, source)  # fewer where the block has less work
            if loop not in shared and loop in index_maps.starts:
                return False
            if value is None or not (prove(ge(value, 0), index_map.facts) and prove(lt(value, trips), index_map.facts)):
                return False
        return True

    def _is_everywhere(self, tv: TensorView) -> bool:
        """True if nothing but tails guards the code of a tensor."""
        return not self.indexer.index_maps.of(tv).past_the_end().guards

    def _is_full(self, tv: TensorView) -> bool:
        """True if all that the code of ``tv`` could write in Shared memory is written, with zeros past the end."""
        known = self._full.get(tv)
        if known is None:
            known = self._full[tv] = self._fills(tv)
        return known

    def _fills(self, tv: TensorView) -> bool:
        if self.indexer.memory.get(tv) is not MemoryType.Shared or tv in self.indexer.placed:
            return False
        atom = tv.schedule.atom
        if atom is not None and atom.bounds is Bounds.FILL:
            return True
        index_map = self.indexer.index_maps.of(tv)
        return self._is_everywhere(tv) and (not index_map.tails or (pads(self.fusion, tv) and self.has_room(tv)))

    def has_room(self, tv: TensorView) -> bool:
        """True if storage has the places that code of ``tv`` would write in tails, and none of them is read.

        A reduction writes accumulators, where only zeros are added past the end of the reduced axes.
        """
        indexer, facts = self.indexer, self.indexer.ranges.facts
        expr = self.fusion.definition(tv)
        memory = MemoryType.Local if isinstance(expr, Reduction) else indexer.memory[tv]
        index_map = indexer.index_maps.reading(tv).past_the_end()
        kept = indexer.kept_axes(tv, memory)
        if not all(prove(ge(index_map.values[a], 0), index_map.facts) and prove(lt(index_map.values[a], a.extent), index_map.facts) for a in kept):
            return False
        ends = {source for source, end in overhanging(tv, facts).items() if not end.is_reduction}
        return ends <= told_apart(tv, (*indexer.stored_axes(tv, memory), *kept), index_map.values, index_map.facts)
