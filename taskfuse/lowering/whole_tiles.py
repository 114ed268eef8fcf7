"""Code in registers that runs for whole tiles, also past the ends of the tensor.

A tensor core writes all registers of its tile. Elementwise functions of these registers need no guard: elements past the end are never read. Nor
does a sum in registers of such tiles, one in each trip of a loop, if no axis that it reduces has a tail. Guards would stand around each multiply-add, and
differ from register to register. Other operands of such sums and functions are also read past the end, with the index clamped to the last element:
a condition around each element's math would keep the compiler from overlapping one with the next.
"""

from __future__ import annotations

from taskfuse.ir.atoms import VECTOR, Bounds
from taskfuse.ir.expr import FirstValid, Pointwise, Read, Reduction, Scan, View, is_copy
from taskfuse.ir.scalar import ONE, Const, Facts, ge, is_multiple, le, minimum, prove
from taskfuse.ir.storage import storage_operands, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.kir.operands import Access
from taskfuse.lowering.domains import product
from taskfuse.lowering.guard_elimination import GuardElimination
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.lanes import warp_reduction
from taskfuse.lowering.overhang import overhanging


class WholeTiles:
    """Determines which code of one fusion needs no guards."""

    def __init__(self, indexer: Indexer, tails: GuardElimination) -> None:
        self.indexer = indexer
        self.tails = tails
        self.fusion = indexer.fusion
        self._known: dict[TensorView, bool] = {}
        self._with_tiles: dict[TensorView, bool | None] = {}

    def are_computed(self, tv: TensorView) -> bool:
        """True if code of ``tv`` writes all of its registers wherever there is work, from registers that all have values or from existing elements."""
        known = self._known.get(tv)
        if known is None:
            known = self._known[tv] = self.indexer.memory[tv] is MemoryType.Local and self._computes(tv)
        return known

    def _computes(self, tv: TensorView) -> bool:
        expr, atom = self.fusion.definition(tv), tv.schedule.atom
        if self.is_input(tv) or self._is_staged(tv):
            return any(map(self._is_sum, self._sums_of(tv))) or self._is_beside_tiles(tv)
        if atom is not None:
            index_map = self.indexer.index_maps.reading(tv)
            return atom.bounds is Bounds.COVER and set(index_map.guards) <= set(index_map.work)
        if isinstance(expr, Reduction):
            return self._is_sum(tv) or (self._joins_in_warps(tv) and self._is_of_tiles(tv))
        return isinstance(expr, Pointwise | FirstValid | Scan | View) and self._is_of_tiles(tv)

    def _is_of_tiles(self, tv: TensorView) -> bool:
        """True if all operands are registers that are computed for whole tiles."""
        sources = self._sources(tv)
        return bool(sources) and all(s in self.indexer.tree.place and self.are_computed(s) for s in sources)

    def _joins_in_warps(self, tv: TensorView) -> bool:
        """True for a reduction in registers, of axes without tails, whose parts the lanes of a warp join."""
        if (
            tv.schedule.atom is not None
            or tv.dtype.compute is not tv.dtype
            or any(end.is_reduction for end in overhanging(tv, self.indexer.ranges.facts).values())
        ):
            return False
        index_map = self.indexer.index_maps.reading(tv)
        if not set(index_map.guards) <= {*index_map.tails, *index_map.work}:
            return False
        if not any(a.is_reduction and tv.schedule.ptype(a).is_bound for a in tv.loop):
            return True
        joined = warp_reduction(self.indexer.ranges, self.indexer.tree.place[tv], tv)
        return joined is not None and joined.is_local

    def is_input(self, tv: TensorView) -> bool:
        """True for a copy in registers of an argument of the kernel."""
        expr = self.fusion.definition(tv)
        if not isinstance(expr, Pointwise | View) or tv.schedule.atom not in (None, VECTOR) or tv.schedule.stages > 1:
            return False
        (source,) = self._sources(tv) if is_copy(expr) else (None,)
        if source is None or not source.is_input:
            return False
        facts, vector = self.fusion.facts(), product(tv.schedule.atom_axes)
        whole = isinstance(vector, Const) and (vector is ONE or (bool(source.shape) and is_multiple(source.shape[-1], vector.value, facts)))
        return whole and all(prove(ge(n, 1), facts) for n in source.shape)

    def existing(self, tv: TensorView, access: Access, facts: Facts, width: int = 1) -> Access:
        """The access of code of ``tv``; for a copy of a whole tile, clamped to the last elements of an axis if the index may be past its end.

        Args:
            width: elements along the last axis.
        """
        if not (self.are_computed(tv) and self.is_input(tv) and self.indexer.index_maps.of(tv).tails):
            return access
        (source,) = self._sources(tv)
        widths = (*(1 for _ in access.index[1:]), width)
        index = tuple(e if prove(le(e, n - w), facts) else minimum(e, n - w) for e, n, w in zip(access.index, source.shape, widths, strict=True))
        return Access(access.buffer, index)

    def _is_staged(self, tv: TensorView) -> bool:
        """True for a copy in registers of Shared memory that has zeros past the end, where the copy needs no other guard than work."""
        expr = self.fusion.definition(tv)
        if expr is None or not is_copy(expr) or tv.schedule.atom not in (None, VECTOR) or not self.tails.run(tv):
            return False
        index_map = self.indexer.index_maps.of(tv)
        return set(index_map.past_the_end().guards) <= set(index_map.work)

    def _sources(self, tv: TensorView) -> list[TensorView]:
        expr = self.fusion.definition(tv)
        return [] if expr is None else [o.tensor for o in storage_operands(self.fusion, expr) if isinstance(o, Read)]

    def _sums_of(self, tv: TensorView) -> list[TensorView]:
        """The reductions that take ``tv``, directly or through terms in registers."""
        return [use.output for term in (tv, *self._made_of(tv)) for use in storage_uses(self.fusion, term) if isinstance(use, Reduction)]

    def _is_sum(self, tv: TensorView) -> bool:
        """True for a reduction in registers, of tiles and of terms that are made of tiles and copies of inputs, all in registers."""
        expr, index_maps = self.fusion.definition(tv), self.indexer.index_maps
        serial = not any(a.is_reduction and tv.schedule.ptype(a).is_bound for a in tv.loop)
        if not isinstance(expr, Reduction) or tv.schedule.atom is not None or not serial or tv.dtype.compute is not tv.dtype:
            return False
        if self.indexer.memory[tv] is not MemoryType.Local or any(end.is_reduction for end in overhanging(tv, self.indexer.ranges.facts).values()):
            return False
        index_map = index_maps.reading(tv)
        if not set(index_map.guards) <= {*index_map.tails, *index_map.work}:
            return False
        return self._has_tiles(tv)

    def _made_of(self, tv: TensorView) -> list[TensorView]:
        """The tensors that are computed in registers, element by element, from ``tv``, directly or through others."""
        found: dict[TensorView, None] = {}
        stack = [tv]
        while stack:
            uses = storage_uses(self.fusion, stack.pop())
            new = [u.output for u in uses if isinstance(u, Pointwise) and u.output not in found and self.indexer.memory.get(u.output) is MemoryType.Local]
            found.update(dict.fromkeys(new))
            stack += new
        return list(found)

    def _is_beside_tiles(self, tv: TensorView) -> bool:
        """True if something is computed of ``tv`` in registers, element by element, and of tiles, too, and of nothing that is not for all of one."""
        return any(map(self._has_tiles, self._made_of(tv)))

    def _has_tiles(self, tv: TensorView) -> bool:
        """True if ``tv`` is made, element by element in registers, of tiles and of copies of inputs."""
        stack = [tv]
        while stack:
            top = stack[-1]
            inner = [s for s in self._sources(top) if s not in self._with_tiles and self._is_between(s)]
            if inner and top not in self._with_tiles:
                stack += inner
            elif stack.pop() not in self._with_tiles:
                self._with_tiles[top] = self._content(top)
        return self._with_tiles[tv] is True

    def _is_between(self, tv: TensorView) -> bool:
        """True for what is computed in registers, element by element, of other tensors than copies."""
        is_local = self.indexer.memory.get(tv) is MemoryType.Local and tv.schedule.atom is None
        return is_local and isinstance(self.fusion.definition(tv), Pointwise) and not self.is_input(tv) and not self._is_staged(tv)

    def _content(self, tv: TensorView) -> bool | None:
        """Whether tiles are among what ``tv`` is made of; ``None`` if anything else is than tiles that are computed, and copies."""
        found: bool | None = False
        for source in self._sources(tv):
            if self.indexer.memory.get(source) is not MemoryType.Local:
                return None
            if self._is_between(source):
                of = self._with_tiles[source]
            elif self.is_input(source) or self._is_staged(source):
                of = False
            else:
                of = True if source.schedule.atom is not None and self.are_computed(source) else None
            if of is None:
                return None
            found = found or of
        return found
