"""cascade: reductions along one axis, of which later ones read earlier ones, as one walk over the axis.

Let ``r = max of x_j`` and ``y = sum of g(x_j, r)``. The axis is split into chunks. After each, r is a running maximum, y the sum of terms that were taken
with it; when it grows from r to r', what has been summed is multiplied by the repair ``h(r, r')``, for which ``g(x, r) * h(r, r') = g(x, r')``
(:mod:`taskfuse.schedule.repairs`). So y is a fold, and every tensor is read once (Milakov and Gimelshein, arXiv:1805.02867, for the normalizer of softmax;
Dao et al., arXiv:2205.14135, for its product with V). A later reduction that reads y as a factor, ``sum of u(x_j) * k(y)``, waits with it: it is
``k(y) * sum of u(x_j)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import cast

from taskfuse.dtypes import DType, bool_
from taskfuse.errors import ScheduleError
from taskfuse.ir.axes import Axis, AxisKind, axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, Fold, IndexValue, Literal, MathExpr, Operand, Pointwise, Read, Reduction, Scan
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import TRUE, Expr, and_, ceildiv, const, ge, is_multiple, le, lt, maximum, minimum, prove, simplify, substitute, sym
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, is_list
from taskfuse.schedule.cascade_plan import COPY, MUL, CascadePlan, CascadePlans
from taskfuse.schedule.index_conditions import as_choice
from taskfuse.schedule.masked_ends import constant_end, masked_end
from taskfuse.schedule.repairs import Repair


def cascade(reductions: object, chunk: object, parts: object = (), adjacent: object = None, rows: object = None) -> tuple[TensorView, ...]:
    """Make one walk of several reductions along one axis; the results stay those tensors, each computed after the last chunk.

    Rounding moves: a sum is multiplied when the running maximum grows. Where a maximum is -inf, a sum may be 0 or finite, where the math has NaN or infinity.

    With ``parts`` the axis is walked in that many parts, each with running values of its own, which may be those of threads, warps or blocks. Step s of part
    p takes chunk ``s * parts + p``. After the walks, parts are joined by reductions of their own: a maximum is that of the parts', and each part's sum is
    multiplied by the repair from its own maximum to that of all.

    Args:
        reductions: in an order in which each reads earlier ones only. Each reduces one axis, of the same extent, and has no schedule. Sums may read maxima
            or minima, elementwise, and sums as factors.
        chunk: elements of the axis between two repairs.
        parts: how many parts there are; several numbers are levels, the last of which is joined first: ``(blocks, threads)``.
        adjacent: elements of a chunk that lie side by side, of which it has one piece from each ``parts * adjacent`` elements; a divisor of ``chunk``;
            by default all of them.
        rows: leave out the chunks that masks exclude for all of so many neighboring elements, such as those behind the diagonal of causal
            attention: the walk of each such block ends where the last of its elements does. All that masks leave is taken to be finite; where the math
            multiplies 0 by an infinity, it has NaN. Without an effect if no end is known; not with ``parts``.

    Returns:
        The tensors of the walk, producers first: give them the loops of the results, and inline them into the loop over the chunks, which is that of
        the reduced axis that each result has now.

    Raises:
        ScheduleError: no walk is known: the message names the reduction and why.
    """
    every = cast("Sequence[object]", reductions) if is_list(reductions) else ()
    given = tuple(tv for tv in every if isinstance(tv, TensorView))
    if not given or len(given) != len(every):
        raise ScheduleError(call="cascade", tensor="", reason="no tensors are given", help="give the reductions of one axis", location=caller())
    if not isinstance(chunk, int) or isinstance(chunk, bool) or chunk < 1:
        raise Call("cascade", given[0]).error(f"a chunk has {chunk!r} elements", "use a positive integer")
    levels = tuple(cast("Sequence[object]", parts)) if is_list(parts) else (parts,)
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in levels):
        raise Call("cascade", given[0]).error(f"the parts are {parts!r}", "use a positive integer, or several")
    if adjacent is not None and (not isinstance(adjacent, int) or isinstance(adjacent, bool) or adjacent < 1 or chunk % adjacent):
        raise Call("cascade", given[0]).error(f"{adjacent!r} elements of a chunk of {chunk} are adjacent", "use a divisor of the chunk")
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 1 or parts):
        raise Call("cascade", given[0]).error(f"chunks are left out for {rows!r} rows", "use a positive integer, without parts")
    again = next((tv for k, tv in enumerate(given) if among(tv, given[:k])), None)
    if again is not None:
        raise Call("cascade", again).error(f"{again.name} is given twice", "give each reduction once")
    return _Cascade(given, chunk, cast("tuple[int, ...]", levels), chunk if adjacent is None else adjacent, rows).run()


class _Cascade:
    """One call. In the place of the reduced axis, the tensors of the walk have that of its steps, and those of its parts, by levels."""

    def __init__(self, reductions: tuple[TensorView, ...], chunk: int, parts: tuple[int, ...], adjacent: int, rows: int | None) -> None:
        self.reductions = reductions
        self.fusion = reductions[0].fusion
        self.facts = self.fusion.facts()
        self.chunk = chunk
        self.parts = parts
        self.adjacent = adjacent
        self.plans = CascadePlans(reductions)
        self.exprs, self.axes, self.extent = self.plans.exprs, self.plans.axes, self.plans.extent
        self.ranks = {tv: len(tv.root) for tv in reductions}
        self.depth = 1 + len(parts)
        step = chunk * prod(parts)
        self.is_whole = is_multiple(self.extent, step, self.facts)
        self.steps = simplify(ceildiv(self.extent, step), self.facts)
        ends = {tv: None if rows is None else self._end(tv, rows) for tv in reductions}
        self.ends = {tv: e for tv, e in ends.items() if e is not None} if None not in ends.values() else {}
        self.made: list[TensorView] = []
        self._functions: dict[object, TensorView] = {}
        self._chunked: dict[tuple[TensorView, int | None], TensorView] = {}
        self._padded: dict[TensorView, TensorView] = {}
        self.running: dict[TensorView, TensorView] = {}
        self.base: dict[TensorView, TensorView] = {}
        self.before: dict[TensorView, TensorView] = {}
        self.totals: dict[TensorView, list[TensorView]] = {}

    def run(self) -> tuple[TensorView, ...]:
        """The walk."""
        self.fusion.check()
        for plan in self.plans.every:
            self._rewrite(plan)
        self.fusion.remove_unread([*self.plans.along, *(tv for tv, _ in self._chunked)])
        return tuple(self.made)

    def _end(self, tv: TensorView, rows: int) -> Expr | None:
        """The steps of the walk in which blocks of ``rows`` have terms that are not masked, over the symbols of the axes of a reduction; ``None``: all."""
        end = masked_end(self.fusion, self.exprs[tv], self.axes[tv])
        if end is None:
            return None
        along = sorted(name for name in end.free if name in {str(iteration_symbol(p)) for p in range(len(tv.root))})
        if len(along) > 1:
            return None
        for name in along:
            first = sym(name) // rows * rows
            if not prove(ge(substitute(end, {name: sym(name) + 1}) - end, 0), self.facts):
                return None
            end = substitute(end, {name: first + (rows - 1)})
        return minimum(self.steps, ceildiv(maximum(end, 0), self.chunk))

    def _rewrite(self, plan: CascadePlan) -> None:
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
            old, new = (_own(self._base(plan.top, found[plan.top])) for found in (self.before, self.running))
            decay = self._decay(plan.top, plan.repair, new.tensor.shape, old, new)
            later = {str(iteration_symbol(p)): iteration_symbol(p + 1) for p in range(k + 1, self.ranks[tv])}
            operands += (Read(decay, (*(substitute(e, later) for e in self.plans.index[tv, plan.top]), iteration_symbol(k))),)
            rescaled = k
        made = self._added(Reduction(walk, expr.combine, expr.body, operands, expr.init, expr.location, rescaled, self._ends(tv, 1)), tv)
        if is_finished:
            self._finish(plan, made)

    def _ends(self, tv: TensorView, more: int) -> tuple[tuple[int, Expr], ...]:
        """Where the terms of a reduction end along the axis of steps, which stands in the place of the reduced one; ``more`` axes follow it."""
        if tv not in self.ends:
            return ()
        k = self.axes[tv]
        later = {str(iteration_symbol(p)): iteration_symbol(p + more) for p in range(k + 1, self.ranks[tv])}
        return ((k, substitute(self.ends[tv], later)),)

    def _by_chunks(self, tv: TensorView, expr: Reduction, root: list[Axis]) -> tuple[Operand, ...]:
        """The operands of a reduction by chunks, which are neutral past the end."""
        operands = tuple(self._moved(o, self.axes[tv], len(tv.root)) for o in storage_operands(self.fusion, expr))
        return operands if self.is_whole else tuple(self._masked(o, expr, root, self.axes[tv]) for o in operands)

    def _walk(self, plan: CascadePlan, part: TensorView, is_finished: bool) -> TensorView:
        """The reduction of all steps of each part, from the reductions of their chunks."""
        tv, levels = plan.tv, len(self.parts)
        expr, k = self.exprs[tv], self.axes[tv]
        root = self._root(tv, [axis(self.steps, AxisKind.REDUCTION), *map(_constant, self.parts)])
        walk = self._target(tv, root, is_new=is_finished or levels > 0)
        init = Literal(expr.combine.neutral(tv.dtype), tv.dtype) if levels else expr.init
        read = Read(part, _point(len(root)))  # the step is where the reduced axis was
        if plan.top is None or plan.repair is None:
            return self._added(Reduction(walk, expr.combine, COPY, (read,), init, expr.location, None, self._ends(tv, 0)), tv)
        old, new = (_own(self._base(plan.top, found[plan.top])) for found in (self.before, self.running))
        decay = self._decay(plan.top, plan.repair, new.tensor.shape, old, new)
        return self._added(Fold(walk, ELEMENTWISE["fma"], (self._at_top(tv, plan.top, decay, levels), read), k, init, expr.location), tv)

    def _joined(self, plan: CascadePlan, parts: TensorView, level: int, is_finished: bool) -> TensorView:
        """The reduction of the parts of a level: of those that read a maximum, each multiplied by the repair from its own to that of them all."""
        tv = plan.tv
        expr = self.exprs[tv]
        root = self._root(tv, [*map(_constant, self.parts[:level]), axis(const(self.parts[level]), AxisKind.REDUCTION)])
        out = self._target(tv, root, is_new=is_finished or level > 0)
        init = Literal(expr.combine.neutral(tv.dtype), tv.dtype) if level else expr.init
        read = Read(parts, _point(len(root)))
        if plan.top is None or plan.repair is None:
            return self._added(Reduction(out, expr.combine, COPY, (read,), init, expr.location), tv)
        shape = [*(a.extent for a in plan.top.logical), *map(const, self.parts[: level + 1])]
        old, new = (self._of_part(plan.top, n, len(shape)) for n in (level + 1, level))
        decay = self._decay(plan.top, plan.repair, shape, old, new)
        return self._added(Reduction(out, expr.combine, MUL, (self._at_top(tv, plan.top, decay, level), read), init, expr.location), tv)

    def _root(self, tv: TensorView, instead: list[Axis]) -> list[Axis]:
        """Axes like those of a reduction, with others in the place of the reduced one."""
        k = self.axes[tv]
        return [*(axis(a.extent) for a in tv.root[:k]), *instead, *(axis(a.extent) for a in tv.root[k + 1 :])]

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
        """What follows from a maximum, in a reduction that has so many axes more than ``tv`` had, beginning in the place of the reduced one."""
        k = self.axes[tv]
        at: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(p + more) for p in range(k + 1, self.ranks[tv])}
        own = tuple(substitute(e, at) for e in self.plans.index[tv, top])
        return Read(factor, (*own, *(iteration_symbol(k + p) for p in range(more + 1))))

    def _of_part(self, top: TensorView, level: int, rank: int) -> Read:
        """What terms are taken with in a part of some level, at an index of the maximum's own axes, and those of levels."""
        k, kept, here = self.axes[top], self.ranks[top] - 1, _point(rank)
        base = self._base(top, self.totals[top][level])
        return Read(base, (*here[:k], *here[kept : kept + level], *here[k:kept]))

    def _part(self, tv: TensorView, expr: Reduction) -> TensorView:
        """The reduction of each chunk."""
        root = self._root(tv, [axis(self.steps), *map(_constant, self.parts), axis(const(self.chunk), AxisKind.REDUCTION)])
        neutral = Literal(expr.combine.neutral(tv.dtype), tv.dtype)
        return self._define(Reduction(self._new(root, tv), expr.combine, expr.body, self._by_chunks(tv, expr, root), neutral, expr.location))

    def _element(self, at: int, *, is_inside: bool = False) -> Expr:
        """The element of the axis, where the step is the index symbol ``at``, those of the parts come next, and that in the chunk last.

        Args:
            is_inside: past the end of the axis it is one of the last piece, if pieces end there, or the last one: so pieces may be loaded as vectors.
        """
        inside = iteration_symbol(at + self.depth)
        part: Expr = const(0)
        for level, n in enumerate(self.parts):
            part = part * n + iteration_symbol(at + 1 + level)
        pieces = self.chunk // self.adjacent
        piece = iteration_symbol(at) * pieces + inside // self.adjacent if pieces > 1 else iteration_symbol(at)
        first, inside = piece * prod(self.parts) + part, inside % self.adjacent if pieces > 1 else inside
        if not is_inside or self.is_whole:
            return first * self.adjacent + inside
        if is_multiple(self.extent, self.adjacent, self.facts):
            return minimum(first, self.extent // self.adjacent - 1) * self.adjacent + inside
        return minimum(first * self.adjacent + inside, self.extent - 1)

    def _masked(self, operand: Operand, expr: Reduction, root: Sequence[Axis], k: int) -> Operand:
        """An operand that is neutral past the end of the axis, which has become the axes of ``root`` from ``k`` on.

        In one part, a tensor has no other axes than the operand does, in the order of its own: so copy engines fill it.
        """
        if not isinstance(operand, Read) or all({f"i{p}" for p in range(k, k + self.depth + 1)}.isdisjoint(e.free) for e in operand.index):
            return operand
        dtype = operand.tensor.dtype
        neutral = expr.combine.neutral(dtype) if expr.body is COPY else 0.0 if dtype.is_float else 0
        if self._is_padded(operand, k, neutral):
            return operand
        own = list(range(len(root)))
        if not self.parts:
            own = list(dict.fromkeys(p for e in operand.index for p in range(len(root)) if f"i{p}" in e.free))
            own += [p for p in (k, k + 1) if p not in own]
        place: dict[str, Expr] = {f"i{p}": iteration_symbol(n) for n, p in enumerate(own)}
        inside = substitute(lt(self._element(k), self.extent), place)
        index = tuple(substitute(e, place) for e in operand.index)
        if not self.parts:
            facts = self.facts.with_range(f"i{own.index(k)}", 0, self.steps - 1).with_assumption(inside)
            index = tuple(simplify(e, facts) for e in index)
        made = self._new([axis(root[p].extent) for p in own], operand.tensor)
        there = Read(operand.tensor, index, and_(inside, substitute(operand.valid, place)))
        if there.index == _point(operand.tensor.ndim) == _point(len(own)) and operand.valid is TRUE:
            self._padded.setdefault(operand.tensor, made)
        return Read(self._define(FirstValid(made, "pad", (there, Literal(neutral, dtype)), expr.location)), tuple(map(iteration_symbol, own)))

    def _of_padded(self, operand: Operand) -> Operand:
        """An operand of a function; of what is padded already, if that is there: past the end it is masked, or neutral then."""
        padded = self._padded.get(operand.tensor) if isinstance(operand, Read) else None
        return operand if padded is None or not isinstance(operand, Read) else replace(operand, tensor=padded)

    def _is_padded(self, operand: Read, k: int, neutral: float) -> bool:
        """True for an operand that is neutral past the end of the axis as it is: a function of what is padded there."""
        if self.parts:
            return False
        end = constant_end(self.fusion, operand, f"i{k + 1}", neutral)
        facts = self.facts.with_range(f"i{k}", 0, self.steps - 1)
        return end is not None and prove(le(self._element(k) - iteration_symbol(k + 1) + end, self.extent), facts)

    def _moved(self, operand: Operand, along: int | None, rank: int) -> Operand:
        """An operand of a tensor of some rank, as its chunked form reads it."""
        first = rank if along is None else along
        step = tuple(iteration_symbol(first + p) for p in range(self.depth))
        at: dict[str, Expr] = {}
        if along is not None:
            at = {str(iteration_symbol(p)): iteration_symbol(p + self.depth) for p in range(along + 1, rank)}
            at[str(step[0])] = self._element(along, is_inside=True)
        match operand:
            case IndexValue():
                return IndexValue(substitute(operand.index, at))
            case Read(tensor=tv):
                if among(tv, self.reductions) and tv not in self.base:
                    return Literal(1.0, tv.dtype)  # a factor, which the whole sum gets
                index, valid = tuple(substitute(e, at) for e in operand.index), substitute(operand.valid, at)
                if tv in self.base:
                    return Read(self.base[tv], (*index, *step))
                place = self.plans.along.get(tv) if tv in self.plans.along else self._place_of_other(operand, along, rank)
                if tv not in self.plans.along and place is None:
                    return Read(tv, index, valid)
                if place is None:
                    return Read(self._chunks_of(tv, None), (*index, *step), valid)
                assert along is not None
                return Read(self._chunks_of(tv, place), (*index[:place], *step, iteration_symbol(along + self.depth), *index[place + 1 :]), valid)
            case _:
                return operand

    def _place_of_other(self, read: Read, along: int | None, rank: int) -> int | None:
        """The axis of a tensor that reads no reduction of the walk, if it is computed for each element of the walk: then it is by chunks, too.

        What is in memory is read in place; where the last chunks are short, an input that is read at a point of its own is copied, so that all its readers,
        with their own conditions, share one load.
        """
        expr = self.fusion.definition(read.tensor)
        is_copied = expr is None and not self.is_whole and read.index == _point(rank)
        if along is None or (is_copied and read.valid is not TRUE) or not (isinstance(expr, Pointwise | FirstValid | Reduction) or is_copied):
            return None
        if isinstance(expr, Reduction) and expr.output.logical != tuple(a for a in expr.output.root if not a.is_reduction):
            return None
        found = [k for k, e in enumerate(read.index) if str(iteration_symbol(along)) in e.free]
        return found[0] if len(found) == 1 and read.index[found[0]] is iteration_symbol(along) else None

    def _chunks_of(self, tv: TensorView, place: int | None) -> TensorView:
        """A tensor by chunks: that of the walk, an axis, is replaced by those of steps, parts and a chunk; without one, steps and parts are the last axes."""
        if (tv, place) not in self._chunked:
            expr = self.fusion.definition(tv)
            axes = tv.logical if expr is None else tv.root
            along = None if place is None else next(k for k, a in enumerate(axes) if a is tv.logical[place])
            root = [axis(a.extent, a.kind) for a in axes]
            if along is None:
                root += [axis(self.steps), *map(_constant, self.parts)]
            else:
                root[along : along + 1] = [axis(self.steps), *map(_constant, self.parts), _constant(self.chunk)]
            if expr is None:
                assert along is not None
                here = _point(len(root))
                element = Read(tv, (*here[:along], self._element(along, is_inside=True), *here[along + self.depth + 1 :]))
                self._chunked[tv, place] = self._define(Pointwise(self._new(root, tv), COPY, (element,), caller()))
                return self._chunked[tv, place]
            assert isinstance(expr, Pointwise | FirstValid | Reduction)
            expr = as_choice(self.fusion, expr) if isinstance(expr, Pointwise) else expr
            operands = tuple(self._moved(o, along, len(tv.root)) for o in storage_operands(self.fusion, expr))
            operands = tuple(self._of_padded(o) for o in operands)
            if isinstance(expr, Reduction) and expr.body is MUL and along is not None and not self.is_whole and not self.parts:
                operands = tuple(self._masked(o, expr, root, along) for o in operands)  # copies of whole tiles fill up with zeros
            self._chunked[tv, place] = self._define(replace(expr, output=self._new(root, tv), operands=operands))
        return self._chunked[tv, place]

    def _run(self, tv: TensorView, expr: Reduction, part: TensorView, k: int) -> None:
        """The running maximum after each chunk, that before it, and the one that terms are taken with: 0 as long as nothing but -inf has come."""
        kept = len(tv.logical)
        shape = [*(a.extent for a in tv.logical), self.steps, *map(const, self.parts)]
        here = _point(len(shape))
        read = Read(part, (*here[:k], *here[kept:], *here[k:kept]))
        for found, is_exclusive in ((self.running, False), (self.before, True)):
            found[tv] = self._define(Scan(self._new(list(map(axis, shape)), tv), expr.combine, (read,), kept, expr.location, is_exclusive))
        self.base[tv] = self._base(tv, self.running[tv])

    def _base(self, top: TensorView, found: TensorView) -> TensorView:
        """What terms are taken with at a maximum of some elements: 0 as long as these are nothing but -inf."""
        shape, here = found.shape, _own(found)
        nothing = self._pointwise("eq", shape, (here, Literal(self.exprs[top].combine.neutral(top.dtype), top.dtype)), top, bool_)
        zero = Literal(0.0 if top.dtype.is_float else 0, top.dtype)
        return self._pointwise("where", shape, (_own(nothing), zero, here), top, top.dtype)

    def _decay(self, top: TensorView, repair: Repair, shape: Sequence[Expr], old: Read, new: Read) -> TensorView:
        """The factor by which sums change from one maximum to another: 1 if they are the same, and finite, as a sum of no terms is 0."""
        wide = top.dtype.compute

        def emit(name: str, *operands: Operand) -> Operand:
            return _own(self._pointwise(name, shape, operands, top, ELEMENTWISE[name].result_dtype(wide)))

        assert repair.factor is not None
        factor = emit("minimum", repair.factor(old, new, emit), Literal(float(wide.max_value), wide))
        same = self._pointwise("eq", shape, (old, new), top, bool_)
        return self._pointwise("where", shape, (_own(same), Literal(1.0, wide), factor), top, wide)

    def _finish(self, plan: CascadePlan, walk: TensorView) -> None:
        """The sum that was taken without its factors, multiplied by them; and by the repair for a maximum of nothing, as its terms were taken with 0."""
        tv, k = plan.tv, self.axes[plan.tv]
        kept = [a for p, a in enumerate(tv.root) if p != k]
        shape = [a.extent for a in kept]
        at: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(p - 1) for p in range(k + 1, len(tv.root))}

        def emit(name: str, *operands: Operand) -> Operand:
            return _own(self._pointwise(name, shape, operands, tv, ELEMENTWISE[name].result_dtype(tv.dtype)))

        found: list[Operand] = [Read(walk, _point(len(shape)))]
        if plan.top is not None and plan.repair is not None:
            index = tuple(substitute(e, at) for e in self.plans.index[tv, plan.top])
            found.append(Read(self._for_nothing(plan.top, plan.repair, tv.dtype), index))
        for f, repair in plan.factors.items():
            assert repair.factor is not None
            index = tuple(substitute(e, at) for e in self.plans.index[tv, f])
            found.append(repair.factor(Literal(1.0, f.dtype), Read(f, index), emit))
        while len(found) > 2:
            found[:2] = [emit("mul", *found[:2])]
        tv.root = tuple(kept)
        tv.schedule = TensorSchedule(list(kept))
        self.fusion.define(Pointwise(tv, MUL, tuple(found), self.exprs[tv].location))

    def _for_nothing(self, top: TensorView, repair: Repair, wide: DType) -> TensorView:
        """What a sum changes by where its maximum is of nothing but -inf, of each element of the maximum; 1 elsewhere."""
        shape, last = [a.extent for a in top.logical], _own(top)

        def emit(name: str, *operands: Operand) -> Operand:
            return _own(self._pointwise(name, shape, operands, top, ELEMENTWISE[name].result_dtype(wide)))

        assert repair.factor is not None
        factor = emit("minimum", repair.factor(Literal(0.0, top.dtype), last, emit), Literal(float(wide.max_value), wide))
        nothing = self._pointwise("eq", shape, (last, Literal(self.exprs[top].combine.neutral(top.dtype), top.dtype)), top, bool_)
        return self._pointwise("where", shape, (_own(nothing), factor, Literal(1.0, wide)), top, wide)

    # -- tensors --------------------------------------------------------------------------------------------------------------------

    def _new(self, root: list[Axis], like: TensorView, dtype: DType | None = None) -> TensorView:
        made = self.fusion.new_tensor(root, dtype or like.dtype, location=caller(), origin=like)
        join_task(made, next((r for r in self.reductions if r is like), self.reductions[-1]))
        return made

    def _define(self, expr: MathExpr) -> TensorView:
        made = self.fusion.define(expr)
        self.made.append(made)
        return made

    def _pointwise(self, name: str, shape: Sequence[Expr], operands: tuple[Operand, ...], like: TensorView, dtype: DType) -> TensorView:
        """A function of tensors of the walk, each element at its own index, or of constants; made once."""
        key = name, dtype, tuple(shape), tuple((o.tensor, o.index) if isinstance(o, Read) else o for o in operands)
        if key not in self._functions:
            self._functions[key] = self._define(Pointwise(self._new(list(map(axis, shape)), like, dtype), ELEMENTWISE[name], operands, caller()))
        return self._functions[key]


def _own(tv: TensorView) -> Read:
    """A tensor's elements at their own index."""
    return Read(tv, _point(tv.ndim))


def _constant(extent: int) -> Axis:
    return axis(const(extent))


def _point(rank: int) -> tuple[Expr, ...]:
    return tuple(iteration_symbol(p) for p in range(rank))
