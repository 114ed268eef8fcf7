"""cascade: reductions along one axis, where later ones read earlier ones, as one walk over the axis.

Let ``r = max of x_j`` and ``y = sum of g(x_j, r)``. The axis is split into chunks. After each, r is a running maximum, y the sum of terms relative to
it; when it grows from r to r', the partial sum is multiplied by the repair ``h(r, r')``, for which ``g(x, r) * h(r, r') = g(x, r')``
(:mod:`taskfuse.schedule.repairs`). So y is a fold, and every tensor is read once (Milakov and Gimelshein, arXiv:1805.02867, for the normalizer of softmax;
Dao et al., arXiv:2205.14135, for its product with V). A later reduction that reads y as a factor, ``sum of u(x_j) * k(y)``, defers the factor: it is
``k(y) * sum of u(x_j)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import cast

from taskfuse.errors import shown
from taskfuse.ir.axes import Axis, AxisKind, axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, Fold, Literal, Pointwise, Read, Reduction, Scan, View
from taskfuse.ir.scalar import (
    ONE,
    ZERO,
    Expr,
    ceildiv,
    const,
    is_multiple,
    maximum,
    minimum,
    simplify,
    substitute,
)
from taskfuse.ir.signatures import checked
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.block_bounds import BlockWalk, ChunkTerms, block_bound, pieces, terms_of_chunks
from taskfuse.schedule.call import Call, is_list
from taskfuse.schedule.cascade_chunks import CascadeChunks, constant_axis, own, point
from taskfuse.schedule.cascade_plan import COPY, MUL, CascadePlan, CascadePlans, given_reductions
from taskfuse.schedule.keys import Keys


@checked
def cascade(
    reductions: object,
    chunk: object,
    parts: object = (),
    adjacent: object = None,
    rows: object = None,
    along: object = None,
    beside: object = (),
) -> tuple[TensorView, ...]:
    """Compute reductions along one axis in one walk; the results stay those tensors, each complete after the last chunk.

    Rounding moves: a sum is multiplied when the running maximum grows. Where a maximum is -inf, a sum may be 0 or finite, where the math has NaN or infinity.

    With ``parts`` the axis is walked in that many parts with separate running values, for threads, warps or blocks. Step s of part
    p takes chunk ``s * parts + p``. After the walks, further reductions join the parts: the maximum of their maxima, and the sum of their sums, each
    multiplied by the repair from its own maximum to that of all.

    Args:
        reductions: in an order in which each reads earlier ones only. Each reduces one axis, of the same extent, and has no schedule. Sums may read maxima
            or minima, elementwise, and sums as factors.
        chunk: elements of the axis between two repairs.
        parts: the number of parts; a tuple gives levels, the last of which is joined first: ``(blocks, threads)``.
        adjacent: contiguous elements of a chunk, which has one such run from each ``parts * adjacent`` elements; a divisor of ``chunk``;
            by default the whole chunk.
        rows: skip the chunks that masks exclude for a whole block of this many neighboring elements, such as chunks past the diagonal of causal
            attention, or before a window: the walk of a block begins with the first chunk that any of its elements has, and ends with the last. Unmasked values
            are assumed to be finite; the math has NaN where it multiplies 0 by an infinity. No effect if neither end nor start is known; not with ``parts``.
        along: the dimension of the first result along which a block has ``rows`` neighboring elements; along others it has one, for instance if each sequence
            of a batch has its own length. By default the one dimension on which the end depends.
        beside: tensors along the axis that each step of the walk computes for its chunk, such as a product of terms of the walk, which sums over another axis.
            Each is read by chunks, of a tensor of the walk. Not with ``parts``; chunks divide the axis. If ``rows`` have fewer chunks, so have the sums over
            these rows fewer terms; where that is not known of all, the walk has all chunks.

    Returns:
        The tensors of the walk, producers first: give them the loops of the results, and inline them into the loop over the chunks, the remaining
        reduced axis of each result.

    Raises:
        ScheduleError: no walk is known: the message names the reduction and why.
    """
    given = given_reductions("cascade", reductions)
    if not isinstance(chunk, int) or isinstance(chunk, bool) or chunk < 1:
        raise Call("cascade", given[0]).error(f"a chunk has {shown(chunk)} elements", "use a positive integer")
    levels = tuple(cast("Sequence[object]", parts)) if is_list(parts) else (parts,)
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in levels):
        raise Call("cascade", given[0]).error(f"the parts are {shown(parts)}", "use a positive integer, or several")
    if adjacent is not None and (not isinstance(adjacent, int) or isinstance(adjacent, bool) or adjacent < 1 or chunk % adjacent):
        raise Call("cascade", given[0]).error(f"{shown(adjacent)} elements of a chunk of {chunk} are adjacent", "use a divisor of the chunk")
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 1 or parts):
        raise Call("cascade", given[0]).error(f"chunks are left out for {shown(rows)} rows", "use a positive integer, without parts")
    kept = given[0].logical
    if along is not None and (not isinstance(along, int) or isinstance(along, bool) or rows is None or not 0 <= along < len(kept)):
        raise Call("cascade", given[0]).error(f"blocks have rows along dimension {shown(along)}", f"use one of 0 to {len(kept) - 1}, with rows=")
    others = given_reductions("cascade", beside) if beside else ()
    walk = _Cascade(
        given, chunk, cast("tuple[int, ...]", levels), chunk if adjacent is None else adjacent, rows, None if along is None else kept[along], others
    )
    walk.run()
    return tuple(walk.made)


class _Cascade(CascadeChunks):
    """One call: walks over chunks. In the place of the reduced axis, the tensors of the walk have that of its steps, and those of its parts, by levels."""

    def __init__(
        self,
        reductions: tuple[TensorView, ...],
        chunk: int,
        parts: tuple[int, ...],
        adjacent: int,
        rows: int | None,
        along: Axis | None,
        beside: tuple[TensorView, ...],
    ) -> None:
        plans, step = CascadePlans(reductions), chunk * prod(parts)
        facts = reductions[0].fusion.facts()
        steps = simplify(ceildiv(plans.extent, step), facts)
        super().__init__(plans, steps, const(chunk), parts, is_whole=is_multiple(plans.extent, step, facts))
        self.chunk = chunk
        self.adjacent = adjacent
        self._has_sums_beside = bool(beside)
        self.starts, self.ends = ({}, {}) if rows is None or steps is ONE else self._bounds(reductions, rows, along)  # one step is taken by all
        self.running: dict[TensorView, TensorView] = {}
        self.before: dict[TensorView, TensorView] = {}
        self.totals: dict[TensorView, list[TensorView]] = {}
        self.beside = {tv: self._place_beside(tv, step) for tv in beside}
        self.terms: dict[TensorView, ChunkTerms] = {}
        if rows is not None and (self.starts or self.ends):
            found = {tv: self._terms_beside(tv, place, rows) for tv, place in self.beside.items()}
            self.terms = {tv: terms for tv, terms in found.items() if terms is not None}
            if len(self.terms) < len(found):  # all chunks are walked
                self.starts, self.ends, self.terms = {}, {}, {}

    def _bounds(self, reductions: tuple[TensorView, ...], rows: int, along: Axis | None) -> tuple[dict[TensorView, Expr], dict[TensorView, Expr]]:
        """The first step of the walk in which blocks of ``rows`` have terms that are not masked, and the end of these steps, over the symbols of the axes of
        each reduction; nothing where that is not known of all of them.
        """
        starts = {tv: e for tv in reductions if (e := self._first_step(tv, rows, along)) is not None}
        ends = {tv: e for tv in reductions if (e := self._end_of_steps(tv, rows, along)) is not None}
        return starts if len(starts) == len(reductions) else {}, ends if len(ends) == len(reductions) else {}

    def _first_step(self, tv: TensorView, rows: int, along: Axis | None) -> Expr | None:
        bound = block_bound(self.exprs[tv], self.axes[tv], rows, along, is_end=False)
        if bound is None:
            return None
        start = simplify(self._chunks_before(bound.value, up=False), bound.facts)
        return None if start is ZERO else start

    def _end_of_steps(self, tv: TensorView, rows: int, along: Axis | None) -> Expr | None:
        bound = block_bound(self.exprs[tv], self.axes[tv], rows, along, is_end=True)
        return None if bound is None else minimum(self.steps, self._chunks_before(bound.value, up=True))

    def _chunks_before(self, element: Expr, *, up: bool) -> Expr:
        """The whole chunks before an element, or, if ``up``, all that begin before it: for sums beside the walk in the words that these are solved in."""
        if self._has_sums_beside:
            return maximum(pieces(element, self.chunk, up=up), 0)
        return ceildiv(maximum(element, 0), self.chunk) if up else maximum(element, 0) // self.chunk

    def _rewrite(self) -> None:
        for plan in self.plans.every:
            self._rewritten(plan)
        for tv, place in self.beside.items():
            chunked = self._chunks_of(tv, place)
            if tv in self.terms:
                self.fusion.define(self._bounded(tv, place, self.terms[tv], chunked))
            kept, here = tuple(a for a in tv.root if not a.is_reduction), point(tv.ndim)
            tv.root, tv.schedule = kept, TensorSchedule(list(kept))
            if tv.is_output:  # which has memory, in which chunks lie
                there = point(chunked.ndim)
                whole = *there[:place], there[place] * self.chunk + there[place + 1], *there[place + 2 :]
                self.fusion.define(Assemble(tv, (own(chunked),), (whole,), caller()))
            else:
                element = Read(chunked, (*here[:place], here[place] // self.chunk, here[place] % self.chunk, *here[place + 1 :]))
                self.fusion.define(View(tv, "chunks", element, caller()))

    def _terms_beside(self, tv: TensorView, place: int, rows: int) -> ChunkTerms | None:
        """Of a sum over the rows, for each chunk, those of the blocks that walk the chunk; ``None``: it is not known that these are all."""
        expr, first = self.fusion.definition(tv), self.reductions[0]
        reduced = [k for k, a in enumerate(tv.root) if a.is_reduction]
        if not isinstance(expr, Reduction) or len(reduced) != 1:
            return None
        chunks = next(p for p, a in enumerate(tv.root) if a is tv.logical[place])
        walk = BlockWalk(self.exprs[first], rows, self.chunk, self.steps, self.starts.get(first, ZERO), self.ends.get(first, self.steps))
        return terms_of_chunks(expr, reduced[0], chunks, walk)

    def _bounded(self, tv: TensorView, place: int, terms: ChunkTerms, chunked: TensorView) -> Reduction:
        """The sum of each element of a chunk, between the start and the end of its terms."""
        made = self.fusion.definition(chunked)
        assert isinstance(made, Reduction)
        (k,) = (k for k, a in enumerate(chunked.root) if a.is_reduction)
        chunks = next(p for p, a in enumerate(tv.root) if a is tv.logical[place])
        later = {str(iteration_symbol(p)): iteration_symbol(p + 1) for p in range(chunks + 1, len(tv.root))}
        start, end = (substitute(e, later) for e in (terms.start, terms.end))
        return replace(made, starts=() if start is ZERO else ((k, start),), ends=() if end is chunked.root[k].extent else ((k, end),))

    def _place_beside(self, tv: TensorView, step: int) -> int:
        """The dimension of a tensor that is the axis of the walk. Raises :class:`ScheduleError`: there is none, or it cannot be computed by chunks."""
        call, first, keys = Call("cascade", tv), self.reductions[0], Keys(self.fusion)
        walked = first.root[self.axes[first]]
        found = [k for k, a in enumerate(tv.logical) if keys.equal(a, walked)]
        if len(found) != 1 or not isinstance(tv.definition, Pointwise | Reduction) or tv.loop != tv.root:
            raise call.error(
                f"{tv.name} is not computed for each element of the axis, or has a schedule", "give elementwise tensors, or reductions of other axes"
            )
        if self.parts or not self.is_whole:
            raise call.error(f"{tv.name} needs whole chunks of {step} elements, all in one part", "choose a chunk that divides the axis, without parts")
        call.check_not_inlined()
        return found[0]

    def _rewritten(self, plan: CascadePlan) -> None:
        tv = plan.tv
        expr, k = self.exprs[tv], self.axes[tv]
        is_finished = plan.top is not None or bool(plan.factors)
        is_run = any((r, tv) in self.plans.index for r in self.reductions) and self.plans.is_top(tv)
        if not self.parts and not is_run:
            self._rescaled(plan, is_finished)
            return
        part = self._part(tv, expr)
        walk = self._walk(plan, part, is_finished)
        for level in reversed(range(len(self.parts))):
            walk = self._joined(plan, walk, level, is_finished)
        if is_finished:
            self._finish(plan, walk)
        if is_run:
            self._run(tv, expr, part, k)

    def _rescaled(self, plan: CascadePlan, is_finished: bool) -> None:
        """A reduction over steps and elements of a chunk, in one: what was summed up is multiplied by the repair before the terms of each step.

        So its accumulators may be those of tensor cores, and threads may have parts of the terms.
        """
        tv = plan.tv
        expr, k = self.exprs[tv], self.axes[tv]
        steps, chunk = axis(self.steps, AxisKind.REDUCTION), axis(const(self.chunk), AxisKind.REDUCTION)
        root = self._root(tv, [steps, chunk])
        operands = self._by_chunks(tv, expr, root)
        walk = tv
        if is_finished:
            walk = self._new(root, tv)
        else:
            tv.root = (*tv.root[:k], steps, chunk, *tv.root[k + 1 :])
            tv.schedule = TensorSchedule(list(tv.root))
        rescaled = None
        if plan.top is not None and plan.repair is not None:
            old, new = (own(self._base(plan.top, found[plan.top])) for found in (self.before, self.running))
            decay = self._decay(plan.top, plan.repair, new.tensor.shape, old, new)
            later = {str(iteration_symbol(p)): iteration_symbol(p + 1) for p in range(k + 1, self.ranks[tv])}
            operands += (Read(decay, (*(substitute(e, later) for e in self.plans.index[tv, plan.top]), iteration_symbol(k))),)
            rescaled = k
        made = self._added(
            Reduction(walk, expr.combine, expr.body, operands, expr.init, expr.location, rescaled, self._of(tv, self.ends, 1), self._of(tv, self.starts, 1)), tv
        )
        if is_finished:
            self._finish(plan, made)

    def _of(self, tv: TensorView, bounds: Mapping[TensorView, Expr], more: int) -> tuple[tuple[int, Expr], ...]:
        """A bound of the terms of a reduction along the axis of steps, which stands in the place of the reduced one; ``more`` axes follow it."""
        if tv not in bounds:
            return ()
        k = self.axes[tv]
        later = {str(iteration_symbol(p)): iteration_symbol(p + more) for p in range(k + 1, self.ranks[tv])}
        return ((k, substitute(bounds[tv], later)),)

    def _walk(self, plan: CascadePlan, part: TensorView, is_finished: bool) -> TensorView:
        """The reduction of all steps of each part, from the reductions of their chunks."""
        tv, levels = plan.tv, len(self.parts)
        expr, k = self.exprs[tv], self.axes[tv]
        root = self._root(tv, [axis(self.steps, AxisKind.REDUCTION), *map(constant_axis, self.parts)])
        walk = self._target(tv, root, is_new=is_finished or levels > 0)
        init = Literal(expr.combine.neutral(tv.dtype), tv.dtype) if levels else expr.init
        read = Read(part, point(len(root)))  # the step is where the reduced axis was
        if plan.top is None or plan.repair is None:
            return self._added(
                Reduction(walk, expr.combine, COPY, (read,), init, expr.location, None, self._of(tv, self.ends, 0), self._of(tv, self.starts, 0)), tv
            )
        old, new = (own(self._base(plan.top, found[plan.top])) for found in (self.before, self.running))
        decay = self._decay(plan.top, plan.repair, new.tensor.shape, old, new)
        return self._added(Fold(walk, ELEMENTWISE["fma"], (self._at_top(tv, plan.top, decay, levels), read), k, init, expr.location), tv)

    def _joined(self, plan: CascadePlan, parts: TensorView, level: int, is_finished: bool) -> TensorView:
        """The reduction of the parts of a level: of those that read a maximum, each multiplied by the repair from its own to that of them all."""
        tv = plan.tv
        expr = self.exprs[tv]
        root = self._root(tv, [*map(constant_axis, self.parts[:level]), axis(const(self.parts[level]), AxisKind.REDUCTION)])
        out = self._target(tv, root, is_new=is_finished or level > 0)
        init = Literal(expr.combine.neutral(tv.dtype), tv.dtype) if level else expr.init
        read = Read(parts, point(len(root)))
        if plan.top is None or plan.repair is None:
            return self._added(Reduction(out, expr.combine, COPY, (read,), init, expr.location), tv)
        shape = [*(a.extent for a in plan.top.logical), *map(const, self.parts[: level + 1])]
        old, new = (self._of_part(plan.top, n, len(shape)) for n in (level + 1, level))
        decay = self._decay(plan.top, plan.repair, shape, old, new)
        return self._added(Reduction(out, expr.combine, MUL, (self._at_top(tv, plan.top, decay, level), read), init, expr.location), tv)

    def _target(self, tv: TensorView, root: list[Axis], *, is_new: bool) -> TensorView:
        """The tensor with these axes that is defined next: another one, or ``tv`` itself."""
        if is_new:
            return self._new(root, tv)
        k = self.axes[tv]
        tv.root = (*tv.root[:k], root[k], *tv.root[k + 1 :])
        tv.schedule = TensorSchedule(list(tv.root))
        return tv

    def _added(self, expr: Reduction | Fold, tv: TensorView) -> TensorView:
        made = self.fusion.define(expr)
        if made is not tv:
            self.made.append(made)
        self.totals.setdefault(tv, []).insert(0, made)
        return made

    def _at_top(self, tv: TensorView, top: TensorView, factor: TensorView, more: int) -> Read:
        """The read of a maximum's factor in a reduction that has ``more`` axes beyond those of ``tv``, beginning in the place of the reduced one."""
        k = self.axes[tv]
        at: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(p + more) for p in range(k + 1, self.ranks[tv])}
        own = tuple(substitute(e, at) for e in self.plans.index[tv, top])
        return Read(factor, (*own, *(iteration_symbol(k + p) for p in range(more + 1))))

    def _of_part(self, top: TensorView, level: int, rank: int) -> Read:
        """The maximum by which terms of a part of some level are shifted, at an index of the maximum's own axes and of those of levels."""
        k, kept, here = self.axes[top], self.ranks[top] - 1, point(rank)
        base = self._base(top, self.totals[top][level])
        return Read(base, (*here[:k], *here[kept : kept + level], *here[k:kept]))

    def _part(self, tv: TensorView, expr: Reduction) -> TensorView:
        """The reduction of each chunk."""
        root = self._root(tv, [axis(self.steps), *map(constant_axis, self.parts), axis(const(self.chunk), AxisKind.REDUCTION)])
        neutral = Literal(expr.combine.neutral(tv.dtype), tv.dtype)
        return self._define(Reduction(self._new(root, tv), expr.combine, expr.body, self._by_chunks(tv, expr, root), neutral, expr.location))

    def _element(self, at: int, *, is_inside: bool = False) -> Expr:
        """See :class:`CascadeChunks`: past the end it is one of the last piece, if pieces end there, or the last one: so pieces may be loaded as vectors."""
        inside = iteration_symbol(at + self.depth)
        part: Expr = const(0)
        for level, n in enumerate(self.parts):
            part = part * n + iteration_symbol(at + 1 + level)
        pieces = self.chunk // self.adjacent
        step = iteration_symbol(at)
        piece = step * pieces + inside // self.adjacent if pieces > 1 else step
        first, inside = piece * prod(self.parts) + part, inside % self.adjacent if pieces > 1 else inside
        if not is_inside or self.is_whole:
            return first * self.adjacent + inside
        if is_multiple(self.extent, self.adjacent, self.facts):
            return minimum(first, self.extent // self.adjacent - 1) * self.adjacent + inside
        return minimum(first * self.adjacent + inside, self.extent - 1)

    def _run(self, tv: TensorView, expr: Reduction, part: TensorView, k: int) -> None:
        """The running maximum after each chunk, that before it, and the one that terms are taken with: 0 as long as nothing but -inf has come."""
        kept = len(tv.logical)
        shape = [*(a.extent for a in tv.logical), self.steps, *map(const, self.parts)]
        here = point(len(shape))
        read = Read(part, (*here[:k], *here[kept:], *here[k:kept]))
        fewer = {str(iteration_symbol(p)): iteration_symbol(p - 1) for p in range(k + 1, kept + 1)}
        start = substitute(self.starts.get(tv, ZERO), fewer)
        for found, is_exclusive in ((self.running, False), (self.before, True)):
            found[tv] = self._define(Scan(self._new(list(map(axis, shape)), tv), expr.combine, (read,), kept, expr.location, is_exclusive, start))
        self.base[tv] = self._base(tv, self.running[tv])
