"""Which kernels compute a fusion: one, where a scheduler takes it whole and well; else several, cut where the least data goes through memory.

The search starts with a piece for each tensor that is computed, and puts two pieces together while the cost models say that this takes no longer,
those first between which the most bytes go. Pieces stay convex: what leaves one and comes back would have to run before and after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from taskfuse.errors import UnsupportedError
from taskfuse.ir.contraction import factors
from taskfuse.ir.expr import Assemble, Pointwise, Read, Reduction, Select, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import made_from, needed, producers, storage_reads, strided
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.cut import piece
from taskfuse.schedulers.auto import auto
from taskfuse.schedulers.elementwise import cost, is_aligned
from taskfuse.schedulers.machine import VECTOR_BYTES
from taskfuse.schedulers.scan import LONG, chunk_long_rows
from taskfuse.schedulers.schedule import Chosen, Sizes
from taskfuse.target import DEFAULT, Target

SLACK = 1.5
"""A kernel that takes no more than so many times as long as its bytes, or its arithmetic, is not cut."""
Piece = frozenset[TensorView]


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel of a :class:`Plan`.

    Attributes:
        fusion: what it computes, scheduled.
        schedule: how, and why so.
        tensors: names of the tensors of the whole that it computes.
        views: names of the views that it takes as inputs.
    """

    fusion: Fusion
    schedule: Chosen[Any]
    tensors: tuple[str, ...]
    views: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernels of a fusion, in the order in which they run.

    Attributes:
        name: of the fusion.
        steps: the kernels.
        crossing: the tensors that go from one to another through memory, and their bytes.
        whole: why it is not the kernel that takes it whole; empty if it is.
        chunked: scans that are split before the fusion is cut.
    """

    name: str
    steps: tuple[Step, ...]
    crossing: tuple[tuple[str, float], ...] = ()
    whole: str = ""
    chunked: tuple[str, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether the kernels compute pieces: one piece may be all, without the views and inputs that nothing needs."""
        return bool(self.whole)

    @property
    def scheduler(self) -> str:
        """Name of the scheduler, if there is one kernel."""
        return self.steps[0].schedule.scheduler if len(self.steps) == 1 else "cut"

    @property
    def us(self) -> float:
        """Microseconds that the cost models expect."""
        return sum(step.schedule.us for step in self.steps)

    @property
    def code(self) -> str:
        """The cut and the scheduling calls, as Python that takes the unscheduled fusion as ``fusion``; ``tf.compile(cut)`` if there are several."""
        if not self.is_cut:
            return self.steps[0].schedule.code
        pieces, views = _lists([s.tensors for s in self.steps]), _lists([s.views for s in self.steps])
        taken = f", views={views}" if any(s.views for s in self.steps) else ""
        chunked = [f"fusion.tensor({name!r}).chunk_scan({LONG})" for name in self.chunked]
        lines = ["import taskfuse as tf", "", *chunked, f"cut = tf.cut(fusion, {pieces}{taken})"]
        for k, step in enumerate(self.steps):
            lines += [f"fusion = cut.parts[{k}]", *step.schedule.code.splitlines()]
        return "\n".join(lines) + "\n"

    def explain(self) -> str:
        """Which kernels, why these, and where the cuts are."""
        if not self.is_cut:
            return self.steps[0].schedule.explain()
        lines = [f"{len(self.steps)} kernel{'s' if len(self.steps) > 1 else ''}, {self.us:.1f} us expected; {self.whole}"]
        lines += [f"{name} is scanned in chunks of {LONG}: a row may be longer than what a block holds" for name in self.chunked]
        lines += [f"cut at {name}: {size / 1e6:.1f} MB" for name, size in self.crossing]
        for step in self.steps:
            taken = f" of the views {', '.join(step.views)}" if step.views else ""
            lines += ["", f"{step.fusion.name} computes {', '.join(step.tensors)}{taken}: {step.schedule.us:.1f} us", step.schedule.explain()]
        return "\n".join(lines)


def _lists(names: Sequence[Sequence[str]]) -> str:
    """Lists of names as Python."""
    return str([list(part) for part in names])


def plan(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Plan:
    """The kernels of an unscheduled fusion, scheduled.

    Args:
        fusion: it is not changed.
        sizes: values of its dimensions for cost models; 4096, within what is known, where there is none.
        target: the GPU.

    Raises:
        UnsupportedError: no outputs; an op that no scheduler takes even alone; or ``sizes`` names no dimension of it.
    """
    extent = Sizes(fusion, sizes, target)
    whole, _ = copy_fusion(fusion)
    chunked = chunk_long_rows(whole)
    if chunked:
        fusion, _ = copy_fusion(whole)
    reason = "no scheduler takes it whole"
    one = None
    try:
        found = auto(whole, sizes=sizes, target=target)
        one = Plan(fusion.name, (Step(whole, found, tuple(e.output.name for e in needed(fusion))),))
        reason = f"as one kernel {found.us:.1f} us ({found.scheduler})"
        if found.us <= SLACK * _least(fusion, extent):
            return one
    except UnsupportedError:
        if len(needed(fusion)) <= 1 and not _rows_of(fusion, [e.output for e in needed(fusion)]):
            raise
    several = replace(_Search(fusion, sizes, target).plan(reason), chunked=chunked)
    return several if one is None or several.us < one.us else one


def _rows_of(fusion: Fusion, tensors: Sequence[TensorView]) -> tuple[TensorView, ...]:
    """The views that reductions of several tensors read, as far as they have rows that a kernel may take as those of an array."""
    found: dict[TensorView, None] = {}
    for tv in tensors:
        expr = fusion.definition(tv)
        for operand in expr.operands if isinstance(expr, Reduction) and len(expr.operands) > 1 else ():
            view = operand.tensor if isinstance(operand, Read) else None
            while view is not None and fusion.is_view(view):
                place = strided(fusion, view)
                if place is not None and place.has_rows(VECTOR_BYTES, fusion.facts()):
                    found[view] = None
                    break
                inner = fusion.definition(view)
                view = inner.operand.tensor if isinstance(inner, View) else None
    return tuple(found)


def _least(fusion: Fusion, extent: Sizes) -> float:
    """Microseconds that no cut takes less than: one launch, and the bytes of inputs and outputs, or each tensor computed once.

    What sums products of two tensors is not counted: tensor cores may do it, in a small part of the time.
    """
    code = (e for e in needed(fusion) if factors(fusion, e) is None)
    instructions = sum(prod(extent(a.extent) for a in e.output.root) * cost(e) for e in code)
    target = extent.target
    return target.launch_us + max(_bytes(fusion, extent) / target.dram_bytes_per_us, instructions / (target.lanes * target.cycles_per_us))


def _bytes(fusion: Fusion, extent: Sizes) -> float:
    return float(sum(extent.elements(tv) * tv.dtype.itemsize for tv in (*fusion.inputs, *fusion.outputs)))


class _Search:
    """Pieces put together, greedily."""

    def __init__(self, fusion: Fusion, sizes: Mapping[str, int] | None, target: Target) -> None:
        self.fusion = fusion
        self.sizes = sizes
        self.extent = Sizes(fusion, sizes, target)
        self.target = self.extent.target
        self.tensors = tuple(e.output for e in needed(fusion))
        self.place = {tv: k for k, tv in enumerate(self.tensors)}
        self.reads = {tv: self._read_by(tv) for tv in self.tensors}
        self.readers = {tv: frozenset(r for r in self.tensors if tv in self.reads[r]) for tv in self.tensors}
        self._steps: dict[Piece, Step | None] = {}
        self._sizes: dict[TensorView, float] = {}
        self._through: dict[Piece, frozenset[TensorView]] = {}

    def plan(self, reason: str) -> Plan:
        """The pieces that the search ends with."""
        pieces = self._start()
        while True:
            merged = next((pair for pair in self._pairs(pieces) if self._gains(pieces, *pair)), None)
            if merged is None:
                break
            a, b = merged
            pieces = [p for p in pieces if p not in (a, b)] + [a | b]
        while (moved := self._moved(pieces)) is not None:
            pieces = moved
        steps: list[Step] = []
        for p in self._sorted(pieces):
            found = self._step(p)
            if found is None:
                raise self._refused(p)
            steps.append(found)
        return Plan(self.fusion.name, self._named(steps), self._crossing(pieces), reason)

    def _moved(self, pieces: Sequence[Piece]) -> list[Piece] | None:
        """The pieces with one tensor on the other side of a cut, if that is faster: what makes elements wider is done where they are read."""
        parts = {tv for e in self.fusion.exprs() if isinstance(e, Assemble) for tv in made_from(self.fusion, e.output)}
        for a in pieces:
            for tv in sorted(a - parts, key=lambda tv: self.place[tv]):
                readers = {r for r in self.tensors if tv in self.reads[r]}
                home = next((b for b in pieces if b is not a and readers and readers <= b), None)
                if home is None or len(a) == 1 or tv.is_output or not isinstance(self.fusion.definition(tv), Pointwise):
                    continue
                left, right = a - {tv}, home | {tv}
                moved = [p for p in pieces if p not in (a, home)] + [left, right]
                if not all(self._is_convex(moved, p) for p in (left, right)):
                    continue
                before, after = [self._step(a), self._step(home)], [self._step(left), self._step(right)]
                if None not in after and sum(s.schedule.us for s in after if s) < sum(s.schedule.us for s in before if s):
                    return moved
        return None

    def _read_by(self, tv: TensorView) -> tuple[TensorView, ...]:
        return tuple(dict.fromkeys(t for read in producers(self.fusion, tv) for t in (read, *made_from(self.fusion, read))))

    def _start(self) -> list[Piece]:
        """A piece for each tensor; those of one assembly together, and what is read once, at its reader's point, with its reader."""
        joined: dict[TensorView, Piece] = {tv: frozenset([tv]) for tv in self.tensors}

        def join(tensors: Sequence[TensorView]) -> None:
            together = frozenset[TensorView]().union(*(joined[tv] for tv in tensors))
            for tv in together:
                joined[tv] = together

        for expr in self.fusion.exprs():
            if isinstance(expr, Assemble):
                join([tv for tv in made_from(self.fusion, expr.output) if tv in joined])
        for tv in self.tensors:
            readers = self.readers[tv]
            if len(readers) == 1 and not tv.is_output and self._is_simple(tv, *readers):
                join([tv, *readers])
        return list(dict.fromkeys(joined.values()))

    def _is_simple(self, tv: TensorView, reader: TensorView) -> bool:
        expr, use = self.fusion.definition(tv), self.fusion.definition(reader)
        if not isinstance(expr, Pointwise | Select) or not isinstance(use, Pointwise | Select):
            return False
        found = [is_aligned(r, reader) for r in storage_reads(self.fusion, use) if r.tensor is tv]
        return bool(found) and all(found)

    def _pairs(self, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Piece]]:
        """Pairs that have data in common, those with the most bytes first."""
        found: list[tuple[float, int, Piece, Piece]] = []
        for k, a in enumerate(pieces):
            for b in pieces[k + 1 :]:
                shared = self._touched(a) & self._touched(b)
                if shared:
                    found.append((-sum(self._size(tv) for tv in shared), len(found), a, b))
        return ((a, b) for _, _, a, b in sorted(found, key=lambda item: item[:2]))

    def _touched(self, p: Piece) -> frozenset[TensorView]:
        """What goes into a piece or comes out of it through memory."""
        if p not in self._through:
            read = {t for tv in p for t in self.reads[tv]}
            self._through[p] = frozenset((read - p) | {tv for tv in p if tv.is_output or not self.readers[tv] <= p})
        return self._through[p]

    def _gains(self, pieces: Sequence[Piece], a: Piece, b: Piece) -> bool:
        if not self._is_convex(pieces, a | b):
            return False
        together = self._step(a | b)
        if together is None:
            return False
        apart = [self._step(a), self._step(b)]
        return any(s is None for s in apart) or together.schedule.us <= sum(s.schedule.us for s in apart if s is not None)

    def _is_convex(self, pieces: Sequence[Piece], together: Piece) -> bool:
        """No other piece needs a tensor of ``together`` and makes one that it needs."""
        after = set(together)
        for tv in self.tensors:
            if after.intersection(self.reads[tv]):
                after.add(tv)
        outside = [p for p in pieces if not p <= together]
        grown = True
        while grown:
            grown = False
            for p in outside:
                if not p <= after and p & after:
                    after |= p
                    grown = True
            for tv in self.tensors:
                if tv not in after and after.intersection(self.reads[tv]):
                    after.add(tv)
                    grown = True
        return not any(t in after and t not in together for tv in together for t in self.reads[tv])

    def _step(self, p: Piece) -> Step | None:
        if p not in self._steps:
            tensors = [tv for tv in self.tensors if tv in p]
            part = piece(self.fusion, tensors, self.fusion.name)
            sizes = {name: value for name, value in (self.sizes or {}).items() if name in part.dims}
            try:
                found = Step(part, auto(part, sizes=sizes, target=self.target), tuple(tv.name for tv in tensors))
            except UnsupportedError:
                found = None
            moved = _bytes(part, Sizes(part, sizes, self.target))
            if found is None or found.schedule.us > SLACK * (self.target.launch_us + moved / self.target.dram_bytes_per_us):
                found = self._of_views(tensors, sizes, found)
            self._steps[p] = found
        return self._steps[p]

    def _of_views(self, tensors: Sequence[TensorView], sizes: Mapping[str, int], found: Step | None) -> Step | None:
        """The same with views as inputs, if there are any, and that is faster."""
        views = _rows_of(self.fusion, tensors)
        if not views:
            return found
        part = piece(self.fusion, tensors, self.fusion.name, views)
        try:
            step = Step(part, auto(part, sizes=sizes, target=self.target), tuple(tv.name for tv in tensors), tuple(tv.name for tv in views))
        except UnsupportedError:
            return found
        return step if found is None or step.schedule.us < found.schedule.us else found

    def _refused(self, p: Piece) -> UnsupportedError:
        part = piece(self.fusion, [tv for tv in self.tensors if tv in p], self.fusion.name)
        try:
            auto(part, target=self.target)
        except UnsupportedError as error:
            return error
        raise AssertionError("it was refused before")

    def _sorted(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Those first that others need."""
        left, order, done = list(pieces), list[Piece](), set[TensorView]()
        while left:
            ready = next(p for p in left if all(t in done or t in p or t not in self.place for tv in p for t in self.reads[tv]))
            left.remove(ready)
            order.append(ready)
            done |= ready
        return order

    def _named(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        for k, step in enumerate(steps):
            step.fusion.name = f"{self.fusion.name}_{k}"
        return tuple(steps)

    def _crossing(self, pieces: Sequence[Piece]) -> tuple[tuple[str, float], ...]:
        owner = {tv: p for p in pieces for tv in p}
        found = {t: None for tv in self.tensors for t in self.reads[tv] if t in owner and owner[t] is not owner[tv]}
        return tuple((tv.name, self._size(tv)) for tv in found)

    def _size(self, tv: TensorView) -> float:
        if tv not in self._sizes:
            self._sizes[tv] = float(self.extent.elements(tv) * tv.dtype.itemsize)
        return self._sizes[tv]
