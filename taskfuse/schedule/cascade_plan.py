"""The plan of a cascade: which reductions of one axis can share a walk, and how each depends on those that it reads.

A reduction may read a running maximum or minimum through functions whose repair is known (:mod:`taskfuse.schedule.repairs`), and an earlier sum as a factor,
which is deferred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from taskfuse.errors import ScheduleError
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Pointwise, Read, Reduction
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import TRUE, Expr, substitute
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.schedule.call import Call, is_list
from taskfuse.schedule.repairs import Repair, Repairs, depends, product_of

COPY, MUL = ELEMENTWISE["copy"], ELEMENTWISE["mul"]


@dataclass(frozen=True, slots=True, eq=False)
class CascadePlan:
    """How one reduction joins the walk.

    Attributes:
        top: the maximum or minimum that its terms are relative to.
        repair: of its terms, for the change of ``top``.
        factors: sums that are factors of its terms, with the function of each.
    """

    tv: TensorView
    top: TensorView | None
    repair: Repair | None
    factors: dict[TensorView, Repair]


class CascadePlans:
    """The plans of the reductions of one call, in their order; nothing is changed.

    Args:
        name: of the call, for errors.

    Attributes:
        exprs: the definitions of the reductions.
        axes: where in its iteration space each has the reduced axis.
        extent: of that axis.
        along: the tensors between a reduction and earlier ones that it reads, and which of their axes is that of the walk; ``None``: they have none.
        index: by a reduction and an earlier one, at which element it reads that.

    Raises:
        ScheduleError: they cannot share a walk.
    """

    def __init__(self, reductions: tuple[TensorView, ...], name: str = "cascade") -> None:
        self.reductions = reductions
        self.name = name
        self.fusion = reductions[0].fusion
        self.exprs = {tv: self._checked(tv) for tv in reductions}
        self.axes = {tv: next(k for k, a in enumerate(tv.root) if a.is_reduction) for tv in reductions}
        self.extent = reductions[0].root[self.axes[reductions[0]]].extent
        self.along: dict[TensorView, int | None] = {}
        self.index: dict[tuple[TensorView, TensorView], tuple[Expr, ...]] = {}
        self.every = tuple(self._plan(tv, reductions[:k]) for k, tv in enumerate(reductions))

    def _checked(self, tv: TensorView) -> Reduction:
        call = Call(self.name, tv)
        expr = call.reduction()
        if tv.loop != tv.root or sum(a.is_reduction for a in tv.root) != 1:
            raise call.error(f"{tv.name} does not reduce one axis, or has a schedule", f"call {self.name} before split, merge, reorder and rfactor")
        first = self.reductions[0]
        mine, other = (next(a.extent for a in t.root if a.is_reduction) for t in (tv, first))
        if mine is not other:
            raise call.error(f"{tv.name} reduces {mine} elements, and {first.name} {other}", "give reductions of one axis")
        if tv.fusion is not self.fusion:
            raise call.error(f"{tv.name} and {first.name} belong to two fusions")
        call.check_not_inlined()
        return expr

    def _plan(self, tv: TensorView, earlier: Sequence[TensorView]) -> CascadePlan:
        call, expr = Call(self.name, tv), self.exprs[tv]
        later = self.reductions[len(earlier) :]
        early = next((r for r in later if r is not tv and depends(self.fusion, tv, (r,))), None)
        if early is not None:
            raise call.error(f"{tv.name} reads {early.name}, which comes behind it", "give them in an order in which each reads earlier ones")
        reads = [o for o in storage_operands(self.fusion, expr) if isinstance(o, Read)]
        used = [r for r in earlier if any(depends(self.fusion, o.tensor, (r,), [x for x in earlier if x is not r]) for o in reads)]
        self._trace(tv, earlier)
        if not used:
            return CascadePlan(tv, None, None, {})
        if expr.combine.name != "add" or expr.body not in (COPY, MUL) or expr.init.value != 0 or not tv.dtype.is_float:
            raise call.error(f"{tv.name} reads {used[0].name} and is not a sum of floats or of their products", "only such sums are repaired")
        found: dict[TensorView, Repair] = {}
        for r in used:
            repair = self._repair(tv, r, [x for x in earlier if x is not r])
            if repair is None or repair.factor is None:
                reason = f"how the terms of {tv.name} change with {r.name} is not one factor for all of them"
                raise call.error(reason, "a sum may read a maximum through differences and exp, and another sum as a factor")
            found[r] = repair
        tops = [r for r in used if self.is_top(r)]
        if any(not r.dtype.is_float for r in tops):
            raise call.error(f"{tv.name} reads a maximum or a minimum of integers", "cast what is reduced to a float")
        wrong = next((r for r in tops if self.exprs[r].init.value != self.exprs[r].combine.neutral(r.dtype)), None)
        if wrong is not None:
            raise call.error(f"{wrong.name} starts with {self.exprs[wrong].init.value}, which is not neutral")
        if len(tops) > 1:
            raise call.error(f"{tv.name} reads two reductions that are incomplete while it is summed, {tops[0].name} and {tops[1].name}")
        other = next((r for r in used if not among(r, tops) and self.exprs[r].combine.name != "add"), None)
        if other is not None:
            raise call.error(f"{tv.name} reads {other.name}, which is neither a maximum, a minimum nor a sum")
        return CascadePlan(tv, *((tops[0], found[tops[0]]) if tops else (None, None)), {r: found[r] for r in used if not among(r, tops)})

    def is_top(self, tv: TensorView) -> bool:
        """True for a maximum or a minimum."""
        return self.exprs[tv].combine.name in ("maximum", "minimum")

    def _repair(self, tv: TensorView, source: TensorView, others: Sequence[TensorView]) -> Repair | None:
        """A maximum may be read as a term, as it is infinite and zero at times; a sum as a factor, which waits for its value."""
        repairs = Repairs(self.fusion, source, others, as_factor=not self.is_top(source))
        found = [repairs.of_operand(o) for o in storage_operands(self.fusion, self.exprs[tv])]
        known = [f for f in found if f is not None]
        return product_of(known) if len(known) == len(found) else None

    def _trace(self, tv: TensorView, earlier: Sequence[TensorView]) -> None:
        """Where the axis of the walk is in each tensor between a reduction and earlier ones, and where these are read. Raises :class:`ScheduleError`."""
        call = Call(self.name, tv)
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
                    if self.index.setdefault((tv, o.tensor), index) != index:
                        raise call.error(f"{o.tensor.name} is read at two elements")
                    continue
                place = found[0] if found else None
                if self.along.setdefault(o.tensor, place) != place:
                    raise call.error(f"{o.tensor.name} is read along two of its axes")
                if not isinstance(self.fusion.definition(o.tensor), Pointwise):
                    raise call.error(f"{o.tensor.name}, between {tv.name} and a reduction that it reads, is not elementwise")
                stack.append((o.tensor, place, index))


def given_reductions(name: str, given: object) -> tuple[TensorView, ...]:
    """The tensors that a call is given. Raises :class:`ScheduleError`: there are none, or one twice."""
    every = cast("Sequence[object]", given) if is_list(given) else ()
    found = tuple(tv for tv in every if isinstance(tv, TensorView))
    if not found or len(found) != len(every):
        raise ScheduleError(call=name, tensor="", reason="no tensors are given", help="give the reductions of one axis", location=caller())
    again = next((tv for k, tv in enumerate(found) if among(tv, found[:k])), None)
    if again is not None:
        raise Call(name, again).error(f"{again.name} is given twice", "give each reduction once")
    return found
