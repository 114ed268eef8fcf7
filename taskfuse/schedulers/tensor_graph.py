"""The tensors that the kernels of a fusion compute, who reads whom, and what follows from that for segments: sets of tensors that one kernel computes.

Nothing here depends on schedules. The search that asks is in :mod:`taskfuse.schedulers.segment_search`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from taskfuse.ir.connectivity import components
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, FirstValid, Gather, Pointwise, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE
from taskfuse.ir.storage import made_from, needed, producers, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.scatter import ragged_rows
from taskfuse.schedulers.apart import atoms
from taskfuse.schedulers.elementwise import is_aligned
from taskfuse.schedulers.schedule import Sizes

ELEMENTWISE_KINDS = (Pointwise, FirstValid, Gather)
"""Expressions that compute an element of operands at its own point, or of a table that is there before."""
Segment = frozenset[TensorView]


class TensorGraph:
    """The tensors of a fusion and their readers.

    Args:
        extent: the values of extents.

    Attributes:
        tensors: those that are computed, producers first.
        place: the number of each.
        reads: what each reads, and what that is made of.
        readers: those of each tensor.
    """

    def __init__(self, fusion: Fusion, extent: Sizes) -> None:
        self.fusion = fusion
        self.extent = extent
        self.tensors = tuple(e.output for e in needed(fusion))
        self.place = {tv: k for k, tv in enumerate(self.tensors)}
        self.reads = {tv: self._read_by(tv) for tv in self.tensors}
        readers: dict[TensorView, set[TensorView]] = {tv: set() for tv in self.tensors}
        for tv in self.tensors:
            for read in self.reads[tv]:
                readers.setdefault(read, set()).add(tv)
        self.readers = {tv: frozenset(found) for tv, found in readers.items()}
        self._sizes: dict[TensorView, float] = {}
        self._through: dict[Segment, frozenset[TensorView]] = {}
        self._after: dict[Segment, Segment] = {}

    def products_of(self, p: Segment) -> int:
        """The number of products of tensors that a segment sums."""
        return sum(isinstance(e, Reduction) and len(e.operands) > 1 for e in map(self.fusion.definition, p))

    def movable(self, segments: Sequence[Segment]) -> Iterator[tuple[Segment, Segment, Segment]]:
        """From where, what and where to: a tensor to all that reads it, since what makes elements wider is done where they are read; one to what it is computed
        of, since what makes them narrower is done where these are made; and a reduction, with what follows from it, to reductions of the same axes, which walk
        over them together."""
        parts = {tv for e in self.fusion.exprs() if isinstance(e, Assemble) for tv in made_from(self.fusion, e.output)}
        for a in segments:
            for tv in sorted(a - parts, key=lambda tv: self.place[tv]):
                readers = self.readers[tv]
                home = next((b for b in segments if b is not a and readers and readers <= b), None)
                if home is not None and len(a) > 1 and not tv.is_output and isinstance(self.fusion.definition(tv), Pointwise):
                    yield a, frozenset([tv]), home
        owner = {tv: p for p in segments for tv in p}
        for a in segments:
            for tv in sorted(a - parts, key=lambda tv: self.place[tv]) if len(a) > 1 else ():
                read = [t for t in self.reads[tv] if t in owner]
                home = owner[read[0]] if read else a
                if home is not a and self._is_narrowed(tv) and all(owner[t] is home for t in read):
                    yield a, frozenset([tv]), home
        spaces = {p: {self._walked(tv) for tv in p} - {None} for p in segments}
        for a in segments:
            for tv in sorted(a, key=lambda tv: self.place[tv]):
                space = self._walked(tv)
                homes = [] if space is None else [b for b in segments if b is not a and space in spaces[b]]
                if homes and not (follows := self._following(tv, a)) & parts and follows != a:
                    yield from ((a, follows, home) for home in homes)

    def _is_narrowed(self, tv: TensorView) -> bool:
        """True for a conversion of as many wider elements."""
        expr = self.fusion.definition(tv)
        is_cast = isinstance(expr, Pointwise) and expr.op is ELEMENTWISE["cast"]
        return is_cast and all(tv.dtype.itemsize < t.dtype.itemsize and self.size(tv) < self.size(t) for t in self.reads[tv])

    def _walked(self, tv: TensorView) -> Hashable:
        """The axes that a reduction of one tensor walks over; ``None`` for anything else."""
        expr = self.fusion.definition(tv)
        is_walk = isinstance(expr, Reduction) and len(self.reads[tv]) == 1
        return tuple((str(a.extent), a.is_reduction) for a in tv.root if a.extent is not ONE) if is_walk else None

    def _following(self, tv: TensorView, p: Segment) -> Segment:
        """A tensor of a segment, and what needs it there."""
        found, left = {tv}, [tv]
        while left:
            new = (self.readers[left.pop()] & p) - found
            found |= new
            left += new
        return frozenset(found)

    def _read_by(self, tv: TensorView) -> tuple[TensorView, ...]:
        return tuple(dict.fromkeys(t for read in producers(self.fusion, tv) for t in (read, *made_from(self.fusion, read))))

    def beginning(self) -> list[Segment]:
        """A segment for each tensor; those of one assembly together, and what only one segment reads, at its readers' points, with that. Rows out of tiles
        belong to the product that makes the tiles, which then stores nothing else."""
        ragged = set(ragged_rows(self.fusion))
        ragged |= {use.output for tv in ragged for use in tv.uses if isinstance(use, Pointwise)}
        joined: dict[TensorView, Segment] = {tv: frozenset([tv]) for tv in self.tensors}

        def join(tensors: Sequence[TensorView]) -> None:
            together = frozenset[TensorView]().union(*(joined[tv] for tv in tensors))
            for tv in together:
                joined[tv] = together

        for expr in self.fusion.exprs():
            if isinstance(expr, Assemble):
                join([tv for tv in made_from(self.fusion, expr.output) if tv in joined])
        for tv in reversed(self.tensors):
            readers = self.readers[tv]
            if tv.is_output or tv in ragged or len({joined[r] for r in readers}) != 1:
                continue
            if all(self._is_simple(tv, r) for r in readers):
                join([tv, *readers])
        return list(dict.fromkeys(joined[tv] for tv in self.tensors))

    def connected(self, p: Segment) -> list[Segment]:
        """The parts of a segment none of which reads a tensor of another one, or is assembled with one."""
        order = sorted(p, key=self.place.__getitem__)
        edges = [(tv, own) for tv in order for own in self.reads[tv] if own in p]
        edges += [(first, tv) for first, *rest in map(tuple, atoms(self.fusion, order)) for tv in rest]
        return [frozenset(part) for part in components(order, edges)]

    def _is_simple(self, tv: TensorView, reader: TensorView) -> bool:
        """True if a reader of ``tv`` reads it where the reader itself is computed, by elementwise functions and reads at computed indices."""
        expr, use = self.fusion.definition(tv), self.fusion.definition(reader)
        if not isinstance(expr, ELEMENTWISE_KINDS) or not isinstance(use, ELEMENTWISE_KINDS):
            return False
        found = [is_aligned(r, reader) for r in storage_reads(self.fusion, use) if r.tensor is tv]
        return bool(found) and all(found)

    def touched(self, p: Segment) -> frozenset[TensorView]:
        """The tensors that a segment reads from memory or writes to it."""
        if p not in self._through:
            read = {t for tv in p for t in self.reads[tv]}
            self._through[p] = frozenset((read - p) | {tv for tv in p if tv.is_output or not self.readers[tv] <= p})
        return self._through[p]

    def is_number(self, tv: TensorView) -> bool:
        """Whether a tensor is an input of one element: it costs next to nothing to read it once more."""
        return tv not in self.place and self.extent.elements(tv) == 1

    def saved(self, a: Segment, b: Segment) -> float:
        """Bytes that need not be moved if two segments are one: what both read is read once, and what only one reads of the other neither written nor read."""
        whole = a | b
        return sum(self.size(tv) * (2 if tv in whole and not tv.is_output and self.readers[tv] <= whole else 1) for tv in self.touched(a) & self.touched(b))

    def is_convex(self, owner: Mapping[TensorView, Segment], together: Segment) -> bool:
        """No other segment needs a tensor of ``together`` and makes one that it needs, itself or through others.

        Args:
            owner: the segment of each tensor; what it says of those of ``together`` is not asked.
        """
        left = list(self._reading(together))
        seen = set[TensorView]()
        while left:
            tv = left.pop()
            if tv in seen or tv not in owner:
                continue
            other = owner[tv]
            seen |= other
            after = self._reading(other)
            if not together.isdisjoint(after):
                return False
            left += after - seen
        return True

    def _reading(self, p: Segment) -> Segment:
        """The tensors outside of a segment that read its tensors."""
        if p not in self._after:
            self._after[p] = frozenset[TensorView]().union(*(self.readers[tv] for tv in p)) - p
        return self._after[p]

    def in_order(self, segments: Sequence[Segment]) -> list[Segment]:
        """Segments, producers first."""
        left, order, done = list(segments), list[Segment](), set[TensorView]()
        while left:
            ready = next(p for p in left if all(t in done or t in p or t not in self.place for tv in p for t in self.reads[tv]))
            left.remove(ready)
            order.append(ready)
            done |= ready
        return order

    def crossing(self, segments: Sequence[Segment]) -> tuple[tuple[str, float], ...]:
        """The tensors that segments read of others, and their bytes."""
        owner = {tv: p for p in segments for tv in p}
        found = {t: None for tv in self.tensors for t in self.reads[tv] if t in owner and owner[t] is not owner[tv]}
        return tuple((tv.name, self.size(tv)) for tv in found)

    def size(self, tv: TensorView) -> float:
        """Bytes of a tensor."""
        if tv not in self._sizes:
            self._sizes[tv] = float(self.extent.elements(tv) * tv.dtype.itemsize)
        return self._sizes[tv]
