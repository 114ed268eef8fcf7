"""The phases of a fusion with reductions: the computation between one reduction and the next, and the tensors that later phases need.

A phase is one pass over the elements of a row. A tensor that a later phase also reads is either *kept*, in registers or in Shared memory, or
computed again. The kept bytes are minimized: if a few arithmetic instructions compute a tensor from one with smaller elements, that one is kept (a bfloat16
input rather than its float32 copy; the input rather than its distance from the mean).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from taskfuse.ir.elementwise_function import FUNCTIONS
from taskfuse.ir.expr import IndexValue, MathExpr, Pointwise, Read, Reduction, View, is_copy, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.storage import resolve, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.instructions import slots
from taskfuse.schedulers.space import Space

CHEAP = 4
"""The most instructions to recompute an element rather than keep it."""


class Keep(Enum):
    """Where the elements of a row are kept between phases."""

    REGISTERS = "registers"
    SHARED = "Shared memory"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class _Source:
    """One way to have a tensor in a later phase: what is kept, and the instructions that make the tensor of it."""

    kept: frozenset[TensorView]
    cost: int

    @property
    def bytes(self) -> int:
        return sum(tv.dtype.itemsize for tv in self.kept)


class Phases:
    """The phases of a fusion as it is now.

    Attributes:
        of: the phase of a tensor that has a reduced axis, or of a view of one: of an input the phase that reads it first, of a reduction its own.
    """

    def __init__(self, fusion: Fusion, space: Space) -> None:
        self.fusion = fusion
        self.of: dict[TensorView, int] = {}
        self._wide = space.having(fusion, space.reduced)
        self._varying = self._find_varying(space.symbols(fusion, space.reduced))
        self._partial = space.partial(fusion)
        self._private = space.having(fusion, space.kept) if space.kept else self._wide
        self._loads = {tv for tv in fusion.tensors() if among(tv, (*space.loads, *space.moved)) or self._is_load(tv)}
        self._sources: dict[TensorView, _Source] = {}
        ready: dict[TensorView, int] = {}
        for tv in fusion.inputs:
            if tv in self._wide:
                self.of[tv] = 0
        for expr in fusion.exprs():
            first = max((ready.get(r.tensor, self.of.get(r.tensor, 0)) for r in reads(expr)), default=0)
            if not self._is_wide(expr.output):
                ready[expr.output] = first
                continue
            self.of[expr.output] = first
            if isinstance(expr, Reduction):
                ready[expr.output] = first + 1
        for tv in self._backward():
            read_in = self._read_in(tv)
            if read_in and not tv.is_output and not isinstance(fusion.definition(tv), Reduction):
                self.of[tv] = min(read_in)

    @property
    def count(self) -> int:
        """Number of phases."""
        return 1 + max(self.of.values(), default=0)

    def _is_wide(self, tv: TensorView) -> bool:
        """True if ``tv`` has elements of a row, itself or as a view; the view of a reduction's result has none, though the reduction runs over them."""
        source = resolve(self.fusion, Read(tv, tuple(a.extent for a in tv.logical))).tensor
        return source in self._wide and (source is tv or self._is_elementwise(source))

    def _is_load(self, tv: TensorView) -> bool:
        """True if ``tv`` is the copy of an input."""
        return tv.origin is not None and tv.origin.is_input

    def _backward(self) -> list[TensorView]:
        """Tensors with phases, readers first."""
        computed = [e.output for e in reversed(self.fusion.exprs()) if e.output in self.of]
        return [*computed, *(tv for tv in self.fusion.inputs if tv in self.of)]

    def _read_in(self, tv: TensorView) -> set[int]:
        return {self.of[use.output] for use in self.fusion.uses(tv) if use.output in self.of}

    def _crossing(self) -> list[TensorView]:
        """Tensors that a later phase reads, too."""
        return [tv for tv in self._backward() if self._is_elementwise(tv) and any(p > self.of[tv] for p in self._read_in(tv))]

    def _is_elementwise(self, tv: TensorView) -> bool:
        return not isinstance(self.fusion.definition(tv), Reduction)

    # -- what is kept ---------------------------------------------------------------------------------------------------------------

    def kept(self, keep: Keep) -> set[TensorView]:
        """The tensors whose elements are kept from phase to phase. Inputs that all rows share stay in the cache of their own."""
        match keep:
            case Keep.REGISTERS:
                found = {tv for crossing in self._crossing() for tv in self._source(crossing).kept}
            case Keep.SHARED:
                found = {tv for crossing in self._crossing() for tv in self._leaves(crossing)}
            case Keep.NOTHING:
                return set()
        return found - self._partial

    def held_bytes(self, keep: Keep) -> int:
        """Bytes per element of a row that are kept, at the end of the phase where that is most."""
        kept = self.kept(keep)
        lives = {tv: (self.of[tv], self._last(tv, kept)) for tv in kept}
        return max((sum(tv.dtype.itemsize for tv, (a, b) in lives.items() if a <= p < b) for p in range(self.count)), default=0)

    def _last(self, tv: TensorView, kept: set[TensorView]) -> int:
        """The last phase that needs ``tv``, if tensors that are not kept are computed again."""
        last, seen, stack = self.of[tv], {tv}, [tv]
        while stack:
            for reader in {use.output for use in self.fusion.uses(stack.pop())} - seen:
                if reader in self.of:
                    seen.add(reader)
                    last = max(last, self.of[reader])
                    stack += [reader] if reader not in kept and self._is_elementwise(reader) else []
        return last

    def _source(self, tv: TensorView) -> _Source:
        known = self._sources.get(tv)
        if known is None:
            known = self._sources[tv] = self._find_source(tv)
        return known

    def _find_source(self, tv: TensorView) -> _Source:
        expr = self.fusion.definition(tv)
        if tv in self._loads:
            return _Source(frozenset([tv] if tv in self._private else ()), 0)
        itself = _Source(frozenset([tv]), 0)
        cost = _cost(expr)
        if expr is None or cost is None:
            return itself
        parts = [self._source(r.tensor) for r in reads(expr) if r.tensor in self.of]
        again = _Source(frozenset(t for s in parts for t in s.kept), cost + sum(s.cost for s in parts))
        return again if again.cost <= CHEAP and again.bytes < tv.dtype.itemsize else itself

    def _leaves(self, tv: TensorView) -> set[TensorView]:
        """The copies of inputs that a tensor is computed from, and tensors that are not functions of such copies."""
        found, seen, stack = set[TensorView](), {tv}, [tv]
        while stack:
            here = stack.pop()
            expr = self.fusion.definition(here)
            if here in self._loads or expr is None:
                found |= {here} & self._loads & self._private
                continue
            new = {r.tensor for r in reads(expr) if r.tensor in self.of} - seen
            seen |= new
            stack += new
        return found

    @property
    def functions(self) -> int:
        """Functions of an element that take many instructions."""
        exprs = (self.fusion.definition(tv) for tv in self._wide)
        return sum(isinstance(e, Pointwise) and e.op.rule in FUNCTIONS for e in exprs)

    @property
    def slots(self) -> int:
        """Issue slots of a warp per element of each lane, for all that is computed of an element once. What is one value for all elements of a row is none of
        these, wherever it stands: a compiler takes it out of their loop."""
        exprs = [self.fusion.definition(tv) for tv in self._varying]
        return sum(slots(e) for e in exprs if e is not None and not isinstance(e, View) and not is_copy(e))

    def _find_varying(self, along: Mapping[TensorView, frozenset[str]]) -> set[TensorView]:
        """The tensors whose elements differ along a row, and the reductions of it.

        Args:
            along: the iteration symbols along a row.
        """
        found = set[TensorView]()
        computed = {tv for tv in along if not isinstance(self.fusion.definition(tv), Reduction)}
        for expr in self.fusion.exprs():
            own, places = along.get(expr.output, frozenset[str]()), [o.index for o in expr.operands if isinstance(o, IndexValue)]
            read = storage_reads(self.fusion, expr)
            places += [e for r in read if r.tensor not in computed for e in r.index]
            reads_varying = not found.isdisjoint(r.tensor for r in read if r.tensor in computed)
            if isinstance(expr, Reduction) or reads_varying or any(not own.isdisjoint(e.free) for e in places):
                found.add(expr.output)
        return found & self._wide

    def repeated(self, keep: Keep) -> int:
        """Functions of an element that later phases compute again, since their results are not kept."""
        kept = self.kept(keep)
        return sum(tv not in kept and tv not in self._loads and self._source(tv).kept == frozenset([tv]) for tv in self._crossing())

    def passes(self) -> dict[TensorView, set[int]]:
        """The phases that need each load, if nothing is kept: what a phase stores or reduces is then computed from loads."""
        found: dict[TensorView, set[int]] = {}
        for tv, phase in self.of.items():
            expr = self.fusion.definition(tv)
            if expr is None or not (tv.is_output or isinstance(expr, Reduction)):
                continue
            for read in reads(expr):
                for leaf in self._leaves(read.tensor) if read.tensor in self.of else ():
                    found.setdefault(leaf, set()).add(phase)
        return found

    # -- computing again ------------------------------------------------------------------------------------------------------------

    def separate(self, kept: Iterable[TensorView], duplicate: Callable[[TensorView, list[TensorView]], TensorView]) -> None:
        """Recompute in each phase the tensors that it reads, except those in ``kept``.

        Args:
            duplicate: makes a tensor with the definition of another one for some of its readers.
        """
        stays = set(kept)
        for tv in self._backward():
            if tv in stays or tv.is_input or not self._is_elementwise(tv):
                continue
            uses = [use.output for use in self.fusion.uses(tv) if use.output in self.of]
            first = self.of[tv] if tv.is_output else min((self.of[u] for u in uses), default=self.of[tv])
            self.of[tv] = first
            for phase in sorted({self.of[u] for u in uses} - {first}):
                self.of[duplicate(tv, [u for u in uses if self.of[u] == phase])] = phase


def _cost(expr: MathExpr | None) -> int | None:
    """Instructions per element; ``None`` for a function of many instructions."""
    match expr:
        case View():
            return 0
        case Pointwise() if expr.op.rule not in FUNCTIONS:
            return 1
        case _:
            return None
