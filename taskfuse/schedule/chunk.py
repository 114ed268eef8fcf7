"""chunk_scan: one scan as parallel scans of chunks, a scan of their totals, and a combination of both.

The two levels are those of every parallel scan (Blelloch, "Prefix Sums and Their Applications", 1990): each chunk is scanned by itself, the totals
of the chunks are scanned, and each element is combined with the total of all chunks before its own. The scan of the totals is a scan again, which
may be chunked in turn.
"""

from __future__ import annotations

from typing import NamedTuple

from taskfuse.errors import shown
from taskfuse.ir.axes import axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.expr import FirstValid, Literal, Operand, Pointwise, Read, Scan
from taskfuse.ir.scalar import TRUE, ZERO, Expr, and_, ceildiv, const, ge, is_multiple, lt, simplify, substitute
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers


class Chunks(NamedTuple):
    """The tensors that :func:`chunk_scan` makes of a scan along an axis of N elements in chunks of C; other axes are those of the scan.

    Attributes:
        terms: [ceildiv(N, C), C], the scanned elements; the neutral element past the end of a shorter last chunk.
        local: [ceildiv(N, C), C], the scan of each chunk.
        totals: [ceildiv(N, C)], the combination of all its elements.
        sums: [ceildiv(N, C)], the scan of the totals.
        before: [ceildiv(N, C)], the sum before each chunk: the neutral element for the first.
    """

    terms: TensorView
    local: TensorView
    totals: TensorView
    sums: TensorView
    before: TensorView


def chunk_scan(tv: TensorView, extent: object) -> Chunks:
    """See :meth:`TensorView.chunk_scan`. All new tensors are in the dtype in which ``tv`` accumulates, ``terms`` in that of what is scanned.

    Raises:
        ScheduleError: ``tv`` is not a scan of a tensor, ``extent`` is not a positive integer, or loops are shared already.
        TaskError: a law of tasks and groups is broken.
    """
    call = Call("chunk_scan", tv)
    fusion = tv.fusion
    definition = fusion.definition(tv)
    if not isinstance(definition, Scan) or not isinstance(definition.operands[0], Read):
        raise call.error(f"{tv.name} is not a scan of a tensor")
    if definition.start is not ZERO:
        raise call.error("its terms start late", "call chunk_scan before cascade")
    if not isinstance(extent, int) or isinstance(extent, bool) or extent < 1:
        raise call.error(f"a chunk has {shown(extent)} elements", "use a positive integer")
    call.check_not_inlined()
    for producer in inlined_producers(tv):
        raise call.error(f"{producer.name} is inlined into it at {producer.schedule.inline}", f"chunk it before inlining, or {producer.name}.inline_at(0)")
    fusion.check()
    return _ScanChunking(tv, definition, definition.operands[0], extent).run()


class _ScanChunking:
    """One call."""

    def __init__(self, tv: TensorView, scan: Scan, source: Read, extent: int) -> None:
        self.tv = tv
        self.scan = scan
        self.source = source
        self.extent = extent
        self.axis = scan.axis
        self.facts = tv.fusion.facts()
        self.dtype = tv.dtype.compute
        shape = [a.extent for a in tv.root]
        self.whole = shape[self.axis]
        chunks = simplify(ceildiv(self.whole, extent), self.facts)
        self.totals_shape = [*shape[: self.axis], chunks, *shape[self.axis + 1 :]]
        self.chunked_shape = [*self.totals_shape[: self.axis + 1], const(extent), *self.totals_shape[self.axis + 1 :]]

    def run(self) -> Chunks:
        """The tensors; ``tv`` joins them."""
        combine, k = self.scan.combine, self.axis
        terms = self._terms()
        local = self._new(self.chunked_shape)
        self._define(Scan(local, combine, (self._here(terms),), k + 1, self.scan.location, self.scan.is_exclusive))
        place = [iteration_symbol(d) for d in range(len(self.totals_shape))]
        last_of = (*place[: k + 1], const(self.extent - 1), *place[k + 1 :])
        last = self._in_compute_dtype(Read(terms, last_of)) if self.scan.is_exclusive else None
        totals = self._new(self.totals_shape)
        if last is None:
            self._pointwise(totals, ELEMENTWISE["copy"], Read(local, last_of))
        else:  # an exclusive scan lacks its last element
            self._pointwise(totals, combine.op, Read(local, last_of), last)
        sums = self._new(self.totals_shape)
        self._define(Scan(sums, combine, (self._here(totals),), k, self.scan.location))
        before = self._new(self.totals_shape)
        earlier = Read(sums, (*place[:k], place[k] - 1, *place[k + 1 :]), ge(place[k], 1))
        self._define(FirstValid(before, "pad", (earlier, self._neutral(before)), self.scan.location))
        self._join(before, local)
        return Chunks(terms, local, totals, sums, before)

    def _terms(self) -> TensorView:
        """The scanned elements by chunk and position in it; past the end, the neutral element."""
        k, read = self.axis, self.source
        terms = self._new(self.chunked_shape, read.tensor)
        element = iteration_symbol(k) * self.extent + iteration_symbol(k + 1)
        later = {str(iteration_symbol(d)): iteration_symbol(d + 1) for d in range(k + 1, len(self.tv.root))}
        at: dict[str, Expr] = {str(iteration_symbol(k)): element, **later}
        moved = Read(read.tensor, tuple(substitute(e, at) for e in read.index), substitute(read.valid, at))
        if is_multiple(self.whole, self.extent, self.facts) and moved.valid is TRUE:
            self._pointwise(terms, ELEMENTWISE["copy"], moved)
        else:
            inside = Read(moved.tensor, moved.index, and_(moved.valid, lt(element, self.whole)))
            self._define(FirstValid(terms, "pad", (inside, self._neutral(terms)), self.scan.location))
        return terms

    def _join(self, before: TensorView, local: TensorView) -> None:
        """The elements of the scan: the total before the chunk, combined with the chunk up to the element."""
        k, tv = self.axis, self.tv
        place = [iteration_symbol(d) for d in range(len(tv.root))]
        chunk, inside = place[k] // self.extent, place[k] % self.extent
        reads = Read(before, (*place[:k], chunk, *place[k + 1 :])), Read(local, (*place[:k], chunk, inside, *place[k + 1 :]))
        if tv.dtype is self.dtype:
            self._pointwise(tv, self.scan.combine.op, *reads)
            return
        joined = self._new([a.extent for a in tv.root])
        self._pointwise(joined, self.scan.combine.op, *reads)
        self._pointwise(tv, ELEMENTWISE["cast"], self._here(joined))

    def _in_compute_dtype(self, read: Read) -> Read:
        """An element of each chunk in the dtype in which the scan accumulates."""
        if read.tensor.dtype is self.dtype:
            return read
        cast = self._new(self.totals_shape)
        self._pointwise(cast, ELEMENTWISE["cast"], read)
        return self._here(cast)

    def _new(self, shape: list[Expr], like: TensorView | None = None) -> TensorView:
        dtype = self.dtype if like is None else like.dtype
        return self.tv.fusion.new_tensor([axis(e) for e in shape], dtype, location=caller(), origin=self.tv)

    def _here(self, tv: TensorView) -> Read:
        return Read(tv, tuple(iteration_symbol(d) for d in range(tv.ndim)))

    def _neutral(self, tv: TensorView) -> Literal:
        return Literal(self.scan.combine.neutral(tv.dtype), tv.dtype)

    def _pointwise(self, tv: TensorView, op: Elementwise, *operands: Operand) -> None:
        self._define(Pointwise(tv, op, operands, self.scan.location))

    def _define(self, expr: Pointwise | FirstValid | Scan) -> None:
        self.tv.fusion.define(expr)
        if expr.output is not self.tv:
            join_task(expr.output, self.tv)  # before anything reads it: half of a scan elsewhere would be a cycle
