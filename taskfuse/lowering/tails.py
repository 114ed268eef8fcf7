"""Code in registers that runs in the tails of splits, too: guards that nobody needs.

A tile of a split with a remainder has indices past the end of the tensor. Copies into Shared memory write zeros there
(:mod:`taskfuse.lowering.padding`), so what a thread makes of such a tile may be computed whole: a sum of products adds nothing along k, and rows
and columns past the end are read by nobody. Without guards around each multiply-add the compiler keeps factors in registers and schedules freely.

Two kinds of code run in tails, if what they read is there:

- a copy into registers of what is *full*: filled with zeros wherever its code runs, by a tensor map or a copy that pads, without other guards;
- a sum, or a sum of products, of operands that are full or such copies, each of which has all the reduced axes: past the end of one of them all
  operands are 0. Threads and blocks reduce for themselves.

What is read must be what was written: the point of each operand lies in the loops of the operand's code.
"""

from __future__ import annotations

from taskfuse.ir.atoms import Bounds, Instruction
from taskfuse.ir.expr import Read, Reduction
from taskfuse.ir.scalar import TRUE, Expr, ge, lt, prove, simplify, substitute
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.lowering.domains import forward
from taskfuse.lowering.environments import Environment
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.padding import is_copy, is_sum, pads

COPYING = (None, Instruction.VECTOR)
"""What copies into registers that may run past the end."""


class Tails:
    """Tells which code of one fusion runs in tails."""

    def __init__(self, indexer: Indexer) -> None:
        self.indexer = indexer
        self.fusion = indexer.fusion
        self._known: dict[TensorView, bool] = {}
        self._full: dict[TensorView, bool] = {}

    def widened(self, tv: TensorView, env: Environment) -> Environment:
        """``env``, an environment of ``tv``; without tails where code of ``tv`` runs in them."""
        return env.past_the_end() if env.tails and self.run(tv) else env

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
        env = self.indexer.environments.reading(tv).past_the_end()
        reduced = [a for a in tv.root if a.is_reduction]
        for operand in storage_operands(self.fusion, expr):
            if not isinstance(operand, Read) or operand.valid is not TRUE or operand.tensor not in self.indexer.tree.place:
                return False
            source = operand.tensor
            if not (self._is_full(source) or (self.run(source) and self._is_everywhere(source))):
                return False
            point = self.indexer.environments.point(tv, env)
            index = [simplify(substitute(e, point), env.facts) for e in operand.index]
            symbols = frozenset[str]().union(*(e.free for e in operand.index))
            if any(f"i{tv.root.index(a)}" not in symbols for a in reduced) or not self._is_written(source, tuple(index), tv, env):
                return False
        return True

    def _is_written(self, source: TensorView, index: tuple[Expr, ...], reader: TensorView, env: Environment) -> bool:
        """True if the code of ``source`` runs at ``index``, also where that lies past the end."""
        values = forward(source, index, env.facts)
        for a, b in list(zip(source.loop, reader.loop, strict=False))[: source.schedule.inline]:
            if b in env.values:
                values[a] = env.values[b]
        for a in source.loop:
            value = values.get(a)
            if value is None or not (prove(ge(value, 0), env.facts) and prove(lt(value, a.extent), env.facts)):
                return False
        return True

    def _is_everywhere(self, tv: TensorView) -> bool:
        """True if nothing but tails guards the code of a tensor."""
        return not self.indexer.environments.of(tv).past_the_end().guards

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
        env = self.indexer.environments.of(tv)
        return self._is_everywhere(tv) and (not env.tails or (pads(self.fusion, tv) and self.has_room(tv)))

    def has_room(self, tv: TensorView) -> bool:
        """True if storage has the places in tails that code of ``tv`` would write."""
        env = self.indexer.environments.of(tv).past_the_end()
        kept = self.indexer.kept_axes(tv)
        index = self.indexer.write(tv, env).index
        own = index[len(index) - len(kept) :]
        return all(prove(ge(e, 0), env.facts) and prove(lt(e, a.extent), env.facts) for e, a in zip(own, kept, strict=True))
