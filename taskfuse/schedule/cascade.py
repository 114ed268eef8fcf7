"""cascade: reductions along one axis, of which later ones read earlier ones, as one walk over the axis.

Let ``r = max of x_j`` and ``y = sum of g(x_j, r)``. The axis is split into chunks. After each, r is a running maximum, y the sum of terms that were taken
with it; when it grows from r to r', what has been summed is multiplied by the repair ``h(r, r')``, for which ``g(x, r) * h(r, r') = g(x, r')``
(:mod:`taskfuse.schedule.repairs`). So y is a fold, and every tensor is read once (Milakov and Gimelshein, arXiv:1805.02867, for the normalizer of softmax;
Dao et al., arXiv:2205.14135, for its product with V). A later reduction that reads y as a factor, ``sum of u(x_j) * k(y)``, waits with it: it is
``k(y) * sum of u(x_j)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from taskfuse.dtypes import DType, bool_
from taskfuse.errors import ScheduleError
from taskfuse.ir.axes import Axis, AxisKind, axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, Fold, IndexValue, Literal, MathExpr, Operand, Pointwise, Read, Reduction, Scan
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import TRUE, Expr, ceildiv, const, is_multiple, lt, minimum, simplify, substitute
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, is_list
from taskfuse.schedule.repairs import Emit, Repair, Repairs, depends, product_of

COPY, MUL = ELEMENTWISE["copy"], ELEMENTWISE["mul"]


def cascade(reductions: object, chunk: object) -> tuple[TensorView, ...]:
    """Make one walk of several reductions along one axis; the results stay those tensors, each computed after the last chunk.

    Rounding moves: a sum is multiplied when the running maximum grows. Where a maximum is -inf, a sum may be 0 or finite, where the math has NaN or infinity.

    Args:
        reductions: in an order in which each reads earlier ones only. Each reduces one axis, of the same extent, and has no schedule. Sums may read maxima
            or minima, elementwise, and sums as factors.
        chunk: elements of the axis between two repairs.

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
    again = next((tv for k, tv in enumerate(given) if among(tv, given[:k])), None)
    if again is not None:
        raise Call("cascade", again).error(f"{again.name} is given twice", "give each reduction once")
    return _Cascade(given, chunk).run()


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """How one reduction joins the walk.

    Attributes:
        top: the maximum or minimum that its terms are taken with.
        repair: of its terms, for the change of ``top``.
        factors: sums that are factors of its terms, and how.
    """

    tv: TensorView
    top: TensorView | None
    repair: Repair | None
    factors: dict[TensorView, Repair]


class _Cascade:
    """One call."""

    def __init__(self, reductions: tuple[TensorView, ...], chunk: int) -> None:
        self.reductions = reductions
        self.fusion = reductions[0].fusion
        self.facts = self.fusion.facts()
        self.chunk = chunk
        self.exprs = {tv: self._checked(tv) for tv in reductions}
        self.axes = {tv: next(k for k, a in enumerate(tv.root) if a.is_reduction) for tv in reductions}
        self.extent = reductions[0].root[self.axes[reductions[0]]].extent
        self.is_whole = is_multiple(self.extent, chunk, self.facts)
        self.chunks = simplify(ceildiv(self.extent, chunk), self.facts)
        self.made: list[TensorView] = []
        self._functions: dict[object, TensorView] = {}
        self._chunked: dict[tuple[TensorView, int | None], TensorView] = {}
        self._along: dict[TensorView, int | None] = {}
        self._index: dict[tuple[TensorView, TensorView], tuple[Expr, ...]] = {}
        self.running: dict[TensorView, TensorView] = {}
        self.base: dict[TensorView, TensorView] = {}
        self.before: dict[TensorView, TensorView] = {}

    # -- what is asked --------------------------------------------------------------------------------------------------------------

    def _checked(self, tv: TensorView) -> Reduction:
        call, expr = Call("cascade", tv), self.fusion.definition(tv)
        if not isinstance(expr, Reduction):
            raise call.error(f"{tv.name} is not a reduction")
        if tv.loop != tv.root or sum(a.is_reduction for a in tv.root) != 1:
            raise call.error(f"{tv.name} does not reduce one axis, or has a schedule", "call cascade before split, merge, reorder and rfactor")
        first = self.reductions[0]
        mine, other = (next(a.extent for a in t.root if a.is_reduction) for t in (tv, first))
        if mine is not other:
            raise call.error(f"{tv.name} reduces {mine} elements, and {first.name} {other}", "give reductions of one axis")
        if tv.fusion is not self.fusion:
            raise call.error(f"{tv.name} and {first.name} belong to two fusions")
        call.check_not_inlined()
        return expr

    def run(self) -> tuple[TensorView, ...]:
        """The walk."""
        plans = [self._plan(tv, self.reductions[:k]) for k, tv in enumerate(self.reductions)]
        self.fusion.check()
        for plan in plans:
            self._rewrite(plan)
        self.fusion.remove_unread([*self._along, *(tv for tv, _ in self._chunked)])
        return tuple(self.made)

    def _plan(self, tv: TensorView, earlier: Sequence[TensorView]) -> _Plan:
        call, expr = Call("cascade", tv), self.exprs[tv]
        later = self.reductions[len(earlier) :]
        early = next((r for r in later if r is not tv and depends(self.fusion, tv, (r,))), None)
        if early is not None:
            raise call.error(f"{tv.name} reads {early.name}, which comes behind it", "give them in an order in which each reads earlier ones")
        reads = [o for o in storage_operands(self.fusion, expr) if isinstance(o, Read)]
        used = [r for r in earlier if any(depends(self.fusion, o.tensor, (r,), [x for x in earlier if x is not r]) for o in reads)]
        self._trace(tv, earlier)
        if not used:
            return _Plan(tv, None, None, {})
        if expr.combine.name != "add" or expr.body not in (COPY, MUL) or expr.init.value != 0 or not tv.dtype.is_float:
            raise call.error(f"{tv.name} reads {used[0].name} and is no sum of floats or of their products", "only such sums are repaired")
        found: dict[TensorView, Repair] = {}
        for r in used:
            repair = self._repair(tv, r, [x for x in earlier if x is not r])
            if repair is None or repair.factor is None:
                reason = f"how the terms of {tv.name} change with {r.name} is not one factor for all of them"
                raise call.error(reason, "a sum may read a maximum through differences and exp, and another sum as a factor")
            found[r] = repair
        tops = [r for r in used if self._is_top(r)]
        if any(not r.dtype.is_float for r in tops):
            raise call.error(f"{tv.name} reads a maximum or a minimum of integers", "cast what is reduced to a float")
        wrong = next((r for r in tops if self.exprs[r].init.value != self.exprs[r].combine.neutral(r.dtype)), None)
        if wrong is not None:
            raise call.error(f"{wrong.name} starts with {self.exprs[wrong].init.value}, which is not neutral")
        if len(tops) > 1:
            raise call.error(f"{tv.name} reads two of them that have no value yet while it is summed, {tops[0].name} and {tops[1].name}")
        other = next((r for r in used if not among(r, tops) and self.exprs[r].combine.name != "add"), None)
        if other is not None:
            raise call.error(f"{tv.name} reads {other.name}, which is neither a maximum, a minimum nor a sum")
        return _Plan(tv, *((tops[0], found[tops[0]]) if tops else (None, None)), {r: found[r] for r in used if not among(r, tops)})

    def _is_top(self, tv: TensorView) -> bool:
        return self.exprs[tv].combine.name in ("maximum", "minimum")

    def _repair(self, tv: TensorView, source: TensorView, others: Sequence[TensorView]) -> Repair | None:
        """A maximum may be read as a term, as it is infinite and zero at times; a sum as a factor, which waits for its value."""
        repairs = Repairs(self.fusion, source, others, as_factor=not self._is_top(source))
        found = [repairs.of_operand(o) for o in storage_operands(self.fusion, self.exprs[tv])]
        known = [f for f in found if f is not None]
        return product_of(known) if len(known) == len(found) else None

    def _trace(self, tv: TensorView, earlier: Sequence[TensorView]) -> None:
        """Where the axis of the walk is in each tensor between a reduction and earlier ones, and where these are read. Raises :class:`ScheduleError`."""
        call = Call("cascade", tv)
        stack: list[tuple[TensorView, int | None, tuple[Expr, ...]]] = [(tv, self.axes[tv], tuple(iteration_symbol(p) for p in range(len(tv.root))))]
        while stack:
            t, along, point = stack.pop()
            expr = self.fusion.definition(t)
            assert expr is not None
            at = {str(iteration_symbol(p)): e for p, e in enumerate(point)}
            for o in storage_operands(self.fusion, expr):
                if not isinstance(o, Read) or not depends(self.fusion, o.tensor, earlier):
                    continue
                found = [k for k, e in enumerate(o.index) if along is not None and str(iteration_symbol(along)) in e.free]
                if o.valid is not TRUE or len(found) > 1 or (found and (along is None or o.index[found[0]] is not iteration_symbol(along))):
                    raise call.error(f"{t.name} reads {o.tensor.name} at other elements of the axis than its own")
                index = tuple(substitute(e, at) for e in o.index)
                if among(o.tensor, earlier):
                    if found:
                        raise call.error(f"{t.name} reads {o.tensor.name}, which has lost the axis, along it")
                    if self._index.setdefault((tv, o.tensor), index) != index:
                        raise call.error(f"{o.tensor.name} is read at two elements")
                    continue
                place = found[0] if found else None
                if self._along.setdefault(o.tensor, place) != place:
                    raise call.error(f"{o.tensor.name} is read along two of its axes")
                if not isinstance(self.fusion.definition(o.tensor), Pointwise):
                    raise call.error(f"{o.tensor.name}, between {tv.name} and a reduction that it reads, is not elementwise")
                stack.append((o.tensor, place, index))

    # -- the walk -------------------------------------------------------------------------------------------------------------------

    def _rewrite(self, plan: _Plan) -> None:
        tv = plan.tv
        expr, k = self.exprs[tv], self.axes[tv]
        part = self._part(tv, expr)
        root = [axis(self.chunks, AxisKind.REDUCTION) if p == k else a for p, a in enumerate(tv.root)]
        is_finished = plan.top is not None or bool(plan.factors)
        if is_finished:
            walk = self._new([axis(a.extent, a.kind) for a in root], tv)
        else:
            walk = tv
            tv.root = tuple(root)
            tv.schedule = TensorSchedule(list(root))
        read = Read(part, _point(len(root)))  # the chunk is where the reduced axis was
        if plan.top is None or plan.repair is None:
            made = self.fusion.define(Reduction(walk, expr.combine, COPY, (read,), expr.init, expr.location))
        else:
            decay = Read(self._decay(plan.top, plan.repair), (*self._index[tv, plan.top], iteration_symbol(k)))
            made = self.fusion.define(Fold(walk, ELEMENTWISE["fma"], (decay, read), k, expr.init, expr.location))
        if is_finished:
            self.made.append(made)
            self._finish(plan, walk)
        if any((r, tv) in self._index for r in self.reductions) and self._is_top(tv):
            self._run(tv, expr, part, k)

    def _part(self, tv: TensorView, expr: Reduction) -> TensorView:
        """The reduction of each chunk."""
        k = self.axes[tv]
        root = [axis(a.extent) for a in tv.root]
        root[k : k + 1] = [axis(self.chunks), axis(const(self.chunk), AxisKind.REDUCTION)]
        operands = tuple(self._moved(o, k, len(tv.root)) for o in storage_operands(self.fusion, expr))
        if not self.is_whole:
            operands = tuple(self._masked(o, expr, [axis(a.extent) for a in root], k) for o in operands)
        neutral = Literal(expr.combine.neutral(tv.dtype), tv.dtype)
        return self._define(Reduction(self._new(root, tv), expr.combine, expr.body, operands, neutral, expr.location))

    def _masked(self, operand: Operand, expr: Reduction, root: list[Axis], k: int) -> Operand:
        """An operand that is neutral past the end of the axis."""
        if not isinstance(operand, Read) or all({f"i{k}", f"i{k + 1}"}.isdisjoint(e.free) for e in operand.index):
            return operand
        dtype = operand.tensor.dtype
        neutral = expr.combine.neutral(dtype) if expr.body is COPY else 0.0 if dtype.is_float else 0
        inside = replace(operand, valid=lt(iteration_symbol(k) * self.chunk + iteration_symbol(k + 1), self.extent))
        made = self._define(FirstValid(self._new(root, operand.tensor), "pad", (inside, Literal(neutral, dtype)), expr.location))
        return Read(made, _point(len(root)))

    def _moved(self, operand: Operand, along: int | None, rank: int) -> Operand:
        """An operand of a tensor of some rank, as its chunked form reads it."""
        chunk = iteration_symbol(rank if along is None else along)
        at: dict[str, Expr] = {}
        if along is not None:
            element = chunk * self.chunk + iteration_symbol(along + 1)
            at = {str(iteration_symbol(p)): iteration_symbol(p + 1) for p in range(along + 1, rank)}
            at[str(chunk)] = element if self.is_whole else minimum(element, self.extent - 1)
        match operand:
            case IndexValue():
                return IndexValue(substitute(operand.index, at))
            case Read(tensor=tv):
                if among(tv, self.reductions) and tv not in self.base:
                    return Literal(1.0, tv.dtype)  # a factor, which the whole sum gets
                index = tuple(substitute(e, at) for e in operand.index)
                if tv in self.base:
                    return Read(self.base[tv], (*index, chunk))
                place = self._along.get(tv) if tv in self._along else self._place_of_other(operand, along)
                if tv not in self._along and place is None:
                    return replace(operand, index=index)
                if place is None:
                    return Read(self._chunks_of(tv, None), (*index, chunk))
                assert along is not None
                return Read(self._chunks_of(tv, place), (*index[:place], chunk, iteration_symbol(along + 1), *index[place + 1 :]))
            case _:
                return operand

    def _place_of_other(self, read: Read, along: int | None) -> int | None:
        """The axis of a tensor that reads no reduction of the walk, if it is computed for each element of the walk: then it is by chunks, too."""
        expr = self.fusion.definition(read.tensor)
        if along is None or not isinstance(expr, Pointwise | Reduction) or read.valid is not TRUE:
            return None
        if isinstance(expr, Reduction) and expr.output.logical != tuple(a for a in expr.output.root if not a.is_reduction):
            return None
        found = [k for k, e in enumerate(read.index) if str(iteration_symbol(along)) in e.free]
        return found[0] if len(found) == 1 and read.index[found[0]] is iteration_symbol(along) else None

    def _chunks_of(self, tv: TensorView, place: int | None) -> TensorView:
        """A tensor by chunks: an axis, that of the walk, is replaced by two; without one, the chunk is the last axis."""
        if (tv, place) not in self._chunked:
            expr = self.fusion.definition(tv)
            assert isinstance(expr, Pointwise | Reduction)
            along = None if place is None else next(k for k, a in enumerate(tv.root) if a is tv.logical[place])
            root = [axis(a.extent, a.kind) for a in tv.root]
            if along is None:
                root.append(axis(self.chunks))
            else:
                root[along : along + 1] = [axis(self.chunks), axis(const(self.chunk))]
            operands = tuple(self._moved(o, along, len(tv.root)) for o in storage_operands(self.fusion, expr))
            self._chunked[tv, place] = self._define(replace(expr, output=self._new(root, tv), operands=operands))
        return self._chunked[tv, place]

    def _run(self, tv: TensorView, expr: Reduction, part: TensorView, k: int) -> None:
        """The running maximum after each chunk, that before it, and the one that terms are taken with: 0 as long as nothing but -inf has come."""
        shape = [*(a.extent for a in tv.logical), self.chunks]
        here = _point(len(shape))
        read = Read(part, (*here[:k], here[-1], *here[k:-1]))
        last = len(shape) - 1
        for found, is_exclusive in ((self.running, False), (self.before, True)):
            found[tv] = self._define(Scan(self._new(list(map(axis, shape)), tv), expr.combine, (read,), last, expr.location, is_exclusive))
        self.base[tv] = self._base(tv, self.running[tv])

    def _base(self, top: TensorView, running: TensorView) -> TensorView:
        """What terms are taken with at a running maximum: 0 as long as nothing but -inf has come."""
        shape, here = running.shape, _point(running.ndim)
        nothing = self._pointwise("eq", shape, (Read(running, here), Literal(self.exprs[top].combine.neutral(top.dtype), top.dtype)), top, bool_)
        zero = Literal(0.0 if top.dtype.is_float else 0, top.dtype)
        return self._pointwise("where", shape, (Read(nothing, here), zero, Read(running, here)), top, top.dtype)

    def _decay(self, top: TensorView, repair: Repair) -> TensorView:
        """The factor by which sums change with the running maximum: 1 where it does not grow, and finite, as a sum of no terms is 0."""
        wide = top.dtype.compute
        shape = list(self.running[top].shape)
        here = _point(len(shape))
        before, running = Read(self._base(top, self.before[top]), here), Read(self.base[top], here)

        def emit(name: str, *operands: Operand) -> Operand:
            return Read(self._pointwise(name, shape, operands, top, wide), here)

        assert repair.factor is not None
        factor = emit("minimum", repair.factor(before, running, emit), Literal(float(wide.max_value), wide))
        same = self._pointwise("eq", shape, (before, running), top, bool_)
        return self._pointwise("where", shape, (Read(same, here), Literal(1.0, wide), factor), top, wide)

    def _finish(self, plan: _Plan, walk: TensorView) -> None:
        """The sum that was taken without its factors, multiplied by them; and by the repair for a maximum of nothing, as its terms were taken with 0."""
        tv, k = plan.tv, self.axes[plan.tv]
        kept = [a for p, a in enumerate(tv.root) if p != k]
        shape = [a.extent for a in kept]
        at: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(p - 1) for p in range(k + 1, len(tv.root))}

        def emit(name: str, *operands: Operand) -> Operand:
            return Read(self._pointwise(name, shape, operands, tv, tv.dtype), _point(len(shape)))

        found: list[Operand] = [Read(walk, _point(len(shape)))]
        if plan.top is not None and plan.repair is not None:
            found.append(self._for_nothing(plan, plan.top, plan.repair, at, emit))
        for f, repair in plan.factors.items():
            assert repair.factor is not None
            index = tuple(substitute(e, at) for e in self._index[tv, f])
            found.append(repair.factor(Literal(1.0, f.dtype), Read(f, index), emit))
        while len(found) > 2:
            found[:2] = [emit("mul", *found[:2])]
        tv.root = tuple(kept)
        tv.schedule = TensorSchedule(list(kept))
        self.fusion.define(Pointwise(tv, MUL, tuple(found), self.exprs[tv].location))

    def _for_nothing(self, plan: _Plan, top: TensorView, repair: Repair, at: dict[str, Expr], emit: Emit) -> Operand:
        """What a sum changes by where its maximum is of nothing but -inf; 1 elsewhere."""
        wide = plan.tv.dtype
        last = Read(top, tuple(substitute(e, at) for e in self._index[plan.tv, top]))
        assert repair.factor is not None
        factor = emit("minimum", repair.factor(Literal(0.0, top.dtype), last, emit), Literal(float(wide.max_value), wide))
        shape = [a.extent for a in plan.tv.root if not a.is_reduction]
        nothing = self._pointwise("eq", shape, (last, Literal(self.exprs[top].combine.neutral(top.dtype), top.dtype)), plan.tv, bool_)
        return emit("where", Read(nothing, _point(len(shape))), factor, Literal(1.0, wide))

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


def _point(rank: int) -> tuple[Expr, ...]:
    return tuple(iteration_symbol(p) for p in range(rank))
