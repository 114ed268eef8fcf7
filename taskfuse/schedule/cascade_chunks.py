"""The common part of walks over chunks and of chunks side by side: the tensors of a cascade by chunks, and the join of sums relative to different maxima.

The axis of the reductions becomes two or more: one or more axes of chunks, and the axis of the elements of a chunk. Elementwise tensors are computed
by chunks, padded past the end with neutral elements. Terms are relative to the maximum of a chunk, or a running one,
or to 0 as long as that is -inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskfuse.dtypes import DType, bool_
from taskfuse.ir.axes import Axis, axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, IndexValue, Literal, MathExpr, Operand, Pointwise, Read, Reduction, at_point
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import TRUE, Expr, Sym, and_, const, le, lt, prove, simplify, substitute
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.cascade_plan import COPY, MUL, CascadePlan, CascadePlans
from taskfuse.schedule.index_conditions import as_choice, of_indices
from taskfuse.schedule.masked_ends import constant_end
from taskfuse.schedule.repairs import Emit, Repair, computed


class CascadeChunks:
    """One call. In the place of the reduced axis, tensors have those of chunks, and those of parts, by levels.

    Args:
        plans: of the reductions.
        steps: the number of chunks of each part.
        length: elements of a chunk.
        parts: sets of chunks beside one another, by levels.
        is_whole: chunks divide the axis.

    Attributes:
        made: the new tensors, producers first.
        base: by a maximum, the number that terms of a chunk are relative to.
    """

    def __init__(self, plans: CascadePlans, steps: Expr, length: Expr, parts: tuple[int, ...], *, is_whole: bool) -> None:
        self.plans = plans
        self.reductions = plans.reductions
        self.fusion = plans.fusion
        self.facts = self.fusion.facts()
        self.exprs, self.axes, self.extent = plans.exprs, plans.axes, plans.extent
        self.ranks = {tv: len(tv.root) for tv in self.reductions}
        self.steps = steps
        self.length = length
        self.parts = parts
        self.depth = 1 + len(parts)
        self.is_whole = is_whole
        self.made: list[TensorView] = []
        self.base: dict[TensorView, TensorView] = {}
        self._functions: dict[object, TensorView] = {}
        self._chunked: dict[tuple[TensorView, int | None], TensorView] = {}
        self._padded: dict[TensorView, TensorView] = {}
        self._masks: dict[object, list[TensorView]] = {}

    def run(self) -> None:
        """Replace the definitions of the reductions."""
        self.fusion.check()
        self._rewrite()
        self.fusion.remove_unread([*self.plans.along, *(tv for tv, _ in self._chunked)])

    def _rewrite(self) -> None:
        """Replace them all."""
        raise NotImplementedError

    def _element(self, at: int, *, is_inside: bool = False) -> Expr:
        """The element of the axis, where the chunk is the index symbol ``at``, those of the parts come next, and that in the chunk last.

        Args:
            is_inside: past the end of the axis it is one before it.
        """
        raise NotImplementedError

    def _of_base(self, top: TensorView, index: tuple[Expr, ...], step: tuple[Expr, ...]) -> Read:
        """The maximum by which terms are shifted, at an index of a maximum and at a chunk."""
        return Read(self.base[top], (*index, *step))

    def _by_chunks(self, tv: TensorView, expr: Reduction, root: list[Axis]) -> tuple[Operand, ...]:
        """The operands of a reduction by chunks, which are neutral past the end."""
        operands = self._operands(expr, self.axes[tv], len(tv.root))
        return operands if self.is_whole else tuple(self._masked(o, expr, root, self.axes[tv]) for o in operands)

    def _operands(self, expr: MathExpr, along: int | None, rank: int) -> tuple[Operand, ...]:
        """The operands of a tensor of some rank, as its chunked form reads them: what has no element of the axis as before, through views."""
        at: dict[str, Expr] = {}
        if along is not None:
            at = {str(iteration_symbol(p)): iteration_symbol(p + self.depth) for p in range(along + 1, rank)}
        operands: list[Operand] = []
        for given, o in zip(expr.operands, storage_operands(self.fusion, expr), strict=True):
            moved = self._moved(o, along, rank)
            is_same = isinstance(o, Read) and isinstance(moved, Read) and moved.tensor is o.tensor
            is_apart = isinstance(o, Read) and not any(f"i{along}" in e.free for e in o.index)
            operands.append(at_point(given, at) if is_same and is_apart else moved)
        return tuple(operands)

    def _root(self, tv: TensorView, instead: list[Axis]) -> list[Axis]:
        """Axes like those of a reduction, with others in the place of the reduced one."""
        k = self.axes[tv]
        return [*(axis(a.extent) for a in tv.root[:k]), *instead, *(axis(a.extent) for a in tv.root[k + 1 :])]

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
        mine = list(range(len(root)))
        if not self.parts:
            mine = list(dict.fromkeys(p for e in operand.index for p in range(len(root)) if f"i{p}" in e.free))
            mine += [p for p in (k, k + 1) if p not in mine]
        place: dict[str, Expr] = {f"i{p}": iteration_symbol(n) for n, p in enumerate(mine)}
        inside = substitute(lt(self._element(k), self.extent), place)
        index = tuple(substitute(e, place) for e in operand.index)
        if not self.parts:
            facts = self.facts.with_range(f"i{mine.index(k)}", 0, self.steps - 1)
            inside = simplify(inside, facts)
            facts = facts.with_assumption(inside)
            index = tuple(e if isinstance(e, Sym) else simplify(e, facts) for e in index)  # an axis of one chunk remains one
        there = Read(operand.tensor, index, and_(inside, substitute(operand.valid, place)))
        shape = [root[p].extent for p in mine]
        known = self._masks.setdefault((operand.tensor, index, there.valid, neutral), [])
        for copy in known:  # several products read one copy, or its first columns
            if all(n is have or prove(le(n, have), self.facts) for n, have in zip(shape, copy.shape, strict=True)):
                return Read(copy, tuple(map(iteration_symbol, mine)))
        made = self._new(list(map(axis, shape)), operand.tensor)
        known.append(made)
        if there.index == point(operand.tensor.ndim) == point(len(mine)) and operand.valid is TRUE:
            self._padded.setdefault(operand.tensor, made)
        return Read(self._define(FirstValid(made, "pad", (there, Literal(neutral, dtype)), expr.location)), tuple(map(iteration_symbol, mine)))

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
                    return self._of_base(tv, index, step)
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
        is_copied = expr is None and not self.is_whole and read.index == point(rank)
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
                root += [axis(self.steps), *map(constant_axis, self.parts)]
            else:
                root[along : along + 1] = [axis(self.steps), *map(constant_axis, self.parts), axis(self.length)]
            if expr is None:
                assert along is not None
                here = point(len(root))
                element = Read(tv, (*here[:along], self._element(along, is_inside=True), *here[along + self.depth + 1 :]))
                self._chunked[tv, place] = self._define(Pointwise(self._new(root, tv), COPY, (element,), caller()))
                return self._chunked[tv, place]
            assert isinstance(expr, Pointwise | FirstValid | Reduction)
            expr = as_choice(self.fusion, of_indices(self.fusion, expr)) if isinstance(expr, Pointwise) else expr
            operands = tuple(self._of_padded(o) for o in self._operands(expr, along, len(tv.root)))
            if isinstance(expr, Reduction) and expr.body is MUL and along is not None and not self.is_whole and not self.parts:
                operands = tuple(self._masked(o, expr, root, along) for o in operands)  # copies of whole tiles fill up with zeros
            self._chunked[tv, place] = self._define(replace(expr, output=self._new(root, tv), operands=operands))
        return self._chunked[tv, place]

    def _base(self, top: TensorView, found: TensorView) -> TensorView:
        """The number by which terms are shifted, for a running maximum: 0 as long as all its elements are -inf."""
        shape, here = found.shape, own(found)
        nothing = self._pointwise("eq", shape, (here, Literal(self.exprs[top].combine.neutral(top.dtype), top.dtype)), top, bool_)
        zero = Literal.zero(top.dtype)
        return self._pointwise("where", shape, (own(nothing), zero, here), top, top.dtype)

    def _decay(self, top: TensorView, repair: Repair, shape: Sequence[Expr], old: Read, new: Read) -> TensorView:
        """The factor by which sums change from one maximum to another: 1 if they are the same, and finite, as a sum of no terms is 0."""
        wide = top.dtype.compute

        emit = self._emits(shape, top, wide)

        assert repair.factor is not None
        factor = emit("minimum", repair.factor(old, new, emit), Literal(float(wide.max_value), wide))
        same = self._pointwise("eq", shape, (old, new), top, bool_)
        return self._pointwise("where", shape, (own(same), Literal(1.0, wide), factor), top, wide)

    def _finish(self, plan: CascadePlan, walk: TensorView) -> None:
        """The sum that was taken without its factors, multiplied by them; and by the repair for a maximum of nothing, as its terms were taken with 0."""
        tv, k = plan.tv, self.axes[plan.tv]
        kept = [a for p, a in enumerate(tv.root) if p != k]
        shape = [a.extent for a in kept]
        at: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(p - 1) for p in range(k + 1, len(tv.root))}

        emit = self._emits(shape, tv, tv.dtype)

        found: list[Operand] = [Read(walk, point(len(shape)))]
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
        """The factor of a sum where all elements of its maximum are -inf, for each element of the maximum; 1 elsewhere."""
        shape, last = [a.extent for a in top.logical], own(top)

        emit = self._emits(shape, top, wide)

        assert repair.factor is not None
        factor = emit("minimum", repair.factor(Literal(0.0, top.dtype), last, emit), Literal(float(wide.max_value), wide))
        nothing = self._pointwise("eq", shape, (last, Literal(self.exprs[top].combine.neutral(top.dtype), top.dtype)), top, bool_)
        return self._pointwise("where", shape, (own(nothing), factor, Literal(1.0, wide)), top, wide)

    def _new(self, root: list[Axis], like: TensorView, dtype: DType | None = None) -> TensorView:
        made = self.fusion.new_tensor(root, dtype or like.dtype, location=caller(), origin=like)
        join_task(made, next((r for r in self.reductions if r is like), self.reductions[-1]))
        return made

    def _define(self, expr: MathExpr) -> TensorView:
        made = self.fusion.define(expr)
        self.made.append(made)
        return made

    def _emits(self, shape: Sequence[Expr], like: TensorView, wide: DType) -> Emit:
        """A function that defines tensors of some shape; functions of constants are constants."""

        def emit(name: str, *operands: Operand) -> Operand:
            if all(isinstance(o, Literal) for o in operands):
                return computed(name, *operands)
            return own(self._pointwise(name, shape, operands, like, ELEMENTWISE[name].result_dtype(wide)))

        return emit

    def _pointwise(self, name: str, shape: Sequence[Expr], operands: tuple[Operand, ...], like: TensorView, dtype: DType) -> TensorView:
        """A function of tensors of the walk, each element at its own index, or of constants; made once."""
        key = name, dtype, tuple(shape), tuple((o.tensor, o.index) if isinstance(o, Read) else o for o in operands)
        if key not in self._functions:
            self._functions[key] = self._define(Pointwise(self._new(list(map(axis, shape)), like, dtype), ELEMENTWISE[name], operands, caller()))
        return self._functions[key]


def own(tv: TensorView) -> Read:
    """A tensor's elements at their own index."""
    return Read(tv, point(tv.ndim))


def constant_axis(extent: int) -> Axis:
    """An axis of a constant extent."""
    return axis(const(extent))


def point(rank: int) -> tuple[Expr, ...]:
    """The point of an iteration space."""
    return tuple(iteration_symbol(p) for p in range(rank))
