"""split_fold: a fold as folds of parts of its axis, whose states are joined, if the composition of its steps is known.

A step ``s * d + x`` is affine in its state, and so is a sequence of steps: that of part p takes s to ``s * D_p + S_p``, with ``D_p`` the product of its decays
and ``S_p`` its own fold from 0. So the last state is the sum over p of ``S_p`` times the product of all later ``D_q`` (Blelloch, "Prefix Sums and Their
Applications", 1990, section 1.4, for linear recurrences). A step that combines the state with one operand, as a sum or a maximum does, needs no more than
the same function of the parts' states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskfuse.dtypes import DType
from taskfuse.errors import shown
from taskfuse.ir.axes import Axis, AxisKind, axis, iteration_symbol
from taskfuse.ir.combine import COMBINES, Combine
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, Fold, Literal, MathExpr, Operand, Pointwise, Read, Reduction
from taskfuse.ir.scalar import Expr, ceildiv, const, gt, is_multiple, lt, minimum, simplify, substitute
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call

COPY, MUL, ADD = ELEMENTWISE["copy"], ELEMENTWISE["mul"], ELEMENTWISE["add"]


def split_fold(tv: TensorView, parts: object) -> tuple[TensorView, ...]:
    """See :meth:`TensorView.split_fold`. Part p takes ``ceildiv(N, parts)`` elements; its axis stands in the place of the fold's. Producers come first.

    Rounding moves; products of decays may underflow or overflow where no state does.

    Raises:
        ScheduleError: the steps are neither ``fma`` nor a reduction's, ``tv`` has a schedule, or ``parts`` is not a positive integer.
    """
    call, expr = Call("split_fold", tv), tv.fusion.definition(tv)
    if not isinstance(expr, Fold):
        raise call.error(f"{tv.name} is not a fold", "tv.rfactor divides a reduction, tv.chunk_scan a scan")
    if not isinstance(parts, int) or isinstance(parts, bool) or parts < 1:
        raise call.error(f"there are {shown(parts)} parts", "use a positive integer")
    if expr.step.name != "fma" and expr.step.name not in COMBINES:
        raise call.error(f"how two sequences of steps {expr.step.name} compose is not known", "leave the axis to one thread")
    if tv.loop != tv.root:
        raise call.error(f"the loops of {tv.name} are not the axes of its math", "call split_fold before split, merge and reorder")
    if not all(isinstance(o, Read) for o in storage_operands(tv.fusion, expr)):
        raise call.error(f"{tv.name} folds a constant", "make it a tensor: tf.full(...)")
    call.check_not_inlined()
    tv.fusion.check()
    return _Parts(tv, expr, parts).run()


class _Parts:
    """One call."""

    def __init__(self, tv: TensorView, expr: Fold, parts: int) -> None:
        self.tv = tv
        self.expr = expr
        self.fusion = tv.fusion
        self.parts = parts
        self.k = expr.axis
        self.extent = tv.root[self.k].extent
        facts = tv.fusion.facts()
        self.length = simplify(ceildiv(self.extent, parts), facts)
        self.is_whole = is_multiple(self.extent, parts, facts)
        self.made: list[TensorView] = []

    def run(self) -> tuple[TensorView, ...]:
        """The tensors."""
        tv, expr, k = self.tv, self.expr, self.k
        reads = [o for o in storage_operands(self.fusion, expr) if isinstance(o, Read)]
        if expr.step.name != "fma":
            combine = COMBINES[expr.step.name]
            states = self._folded(self._elements(reads[0], combine), combine)
            self._join(Reduction(tv, combine, COPY, (Read(states, self._point(len(tv.root))),), expr.init, expr.location))
            return tuple(self.made)
        decay, term = self._elements(reads[0], COMBINES["mul"]), self._elements(reads[1], COMBINES["add"])
        inner = [*self._axes(k), axis(const(self.parts)), axis(self.length, AxisKind.REDUCTION), *self._axes_behind(k)]
        start = Literal(COMBINES["add"].neutral(tv.dtype), tv.dtype)
        states = self._define(Fold(self._new(inner), expr.step, (decay, term), k + 1, start, expr.location))
        decays = self._folded(decay, COMBINES["mul"])
        later = self._later(decays)
        operands = (Read(later, self._point(len(tv.root))), Read(states, self._point(len(tv.root))))
        if expr.init.value == 0:
            self._join(Reduction(tv, COMBINES["add"], MUL, operands, start, expr.location))
            return tuple(self.made)
        one = Literal(COMBINES["mul"].neutral(tv.dtype), tv.dtype)
        over = [*self._axes(k), axis(const(self.parts), AxisKind.REDUCTION), *self._axes_behind(k)]
        total = self._define(Reduction(self._new(over), COMBINES["add"], MUL, operands, start, expr.location))
        whole = [axis(a.extent, a.kind) for a in over]
        product = Reduction(self._new(whole), COMBINES["mul"], COPY, (Read(decays, self._point(len(whole))),), one, expr.location)
        kept = self._point(len(tv.root) - 1)
        self._define(product)
        tv.root = (*tv.root[:k], *tv.root[k + 1 :])
        tv.schedule = TensorSchedule(list(tv.root))
        self.fusion.define(Pointwise(tv, ELEMENTWISE["fma"], (Read(product.output, kept), expr.init, Read(total, kept)), expr.location))
        return tuple(self.made)

    def _elements(self, read: Read, combine: Combine) -> Read:
        """An operand by parts; past the end of the axis, what changes no state that it is combined with."""
        k, rank = self.k, len(self.tv.root)
        element = iteration_symbol(k) * self.length + iteration_symbol(k + 1)
        at: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(p + 1) for p in range(k + 1, rank)}
        at[str(iteration_symbol(k))] = element if self.is_whole else minimum(element, self.extent - 1)
        moved = replace(read, index=tuple(substitute(e, at) for e in read.index), valid=substitute(read.valid, at))
        if self.is_whole:
            return moved
        root = [*self._axes(k), axis(const(self.parts)), axis(self.length), *self._axes_behind(k)]
        made = self._new(root, read.tensor.dtype)
        inside = replace(moved, valid=lt(element, self.extent))
        self._define(FirstValid(made, "pad", (inside, Literal(combine.neutral(read.tensor.dtype), read.tensor.dtype)), self.expr.location))
        return Read(made, self._point(rank + 1))

    def _folded(self, elements: Operand, combine: Combine) -> TensorView:
        """The reduction of each part's elements."""
        root = [*self._axes(self.k), axis(const(self.parts)), axis(self.length, AxisKind.REDUCTION), *self._axes_behind(self.k)]
        neutral = Literal(combine.neutral(self.tv.dtype), self.tv.dtype)
        return self._define(Reduction(self._new(root), combine, COPY, (elements,), neutral, self.expr.location))

    def _later(self, decays: TensorView) -> TensorView:
        """For each part, the product of the decays of all later ones."""
        k, here = self.k, self._point(len(self.tv.root) + 1)
        root = [*self._axes(k), axis(const(self.parts)), axis(const(self.parts)), *self._axes_behind(k)]
        later = Read(decays, (*here[:k], *here[k + 1 :]), gt(here[k + 1], here[k]))
        neutral = Literal(COMBINES["mul"].neutral(self.tv.dtype), self.tv.dtype)
        those = self._define(FirstValid(self._new(root), "pad", (later, neutral), self.expr.location))
        over = [axis(a.extent, AxisKind.REDUCTION if p == k + 1 else AxisKind.ITERATION) for p, a in enumerate(root)]
        return self._define(Reduction(self._new(over), COMBINES["mul"], COPY, (Read(those, here),), neutral, self.expr.location))

    def _join(self, expr: Reduction) -> None:
        tv, k = self.tv, self.k
        tv.root = (*tv.root[:k], axis(const(self.parts), AxisKind.REDUCTION), *tv.root[k + 1 :])
        tv.schedule = TensorSchedule(list(tv.root))
        self.fusion.define(expr)

    def _axes(self, end: int) -> list[Axis]:
        return [axis(a.extent) for a in self.tv.root[:end]]

    def _axes_behind(self, place: int) -> list[Axis]:
        return [axis(a.extent) for a in self.tv.root[place + 1 :]]

    def _new(self, root: Sequence[Axis], dtype: DType | None = None) -> TensorView:
        made = self.fusion.new_tensor(list(root), dtype or self.tv.dtype, location=caller(), origin=self.tv)
        join_task(made, self.tv)
        return made

    def _define(self, expr: MathExpr) -> TensorView:
        self.made.append(self.fusion.define(expr))
        return self.made[-1]

    @staticmethod
    def _point(rank: int) -> tuple[Expr, ...]:
        return tuple(iteration_symbol(p) for p in range(rank))
