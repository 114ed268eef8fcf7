"""chunk_cascade: a cascade of reductions as cascades of chunks, in parallel, and a cascade of their results.

Let ``r = max of x_j`` and ``y = sum of g(x_j, r)``. For each chunk c of the axis ``r_c = max of x_j`` and ``y_c = sum of g(x_j, r_c)`` are a separate cascade,
for all chunks at once. Then ``r = max of r_c`` and ``y = sum of y_c * h(r_c, r)``, with the repair h of :mod:`taskfuse.schedule.repairs`. So two kernels
can compute the two, and few rows of many elements fill a GPU (Dao et al., "Flash-Decoding for long-context inference", 2023). The parts of ``tf.cascade`` are
the same within one kernel; this call comes before all scheduling, like ``chunk_reduction`` for one reduction.
"""

from __future__ import annotations

from taskfuse.errors import shown
from taskfuse.ir.axes import AxisKind, axis, iteration_symbol
from taskfuse.ir.expr import Literal, Read, Reduction, at_point
from taskfuse.ir.scalar import Expr, ceildiv, const, is_multiple, minimum, simplify
from taskfuse.ir.signatures import checked
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.schedule.call import Call
from taskfuse.schedule.cascade_chunks import CascadeChunks, own, point
from taskfuse.schedule.cascade_plan import COPY, MUL, CascadePlan, CascadePlans, given_reductions


@checked
def chunk_cascade(reductions: object, n: object, multiple: object = 1) -> tuple[TensorView, ...]:
    """Replace reductions along one axis by cascades of ``n`` chunks and a cascade of their results; the results stay those tensors.

    Chunk c has the elements from ``c * length`` on, where length is ``ceildiv(N, n)``, or the next multiple; the last chunks may have fewer, or none. A chunk
    of no elements, or of nothing but -inf where its maximum is read, adds nothing.

    Rounding moves: each chunk's sum is multiplied by the repair from its own maximum to that of all. Where a maximum is -inf, a sum may be 0 or finite, where
    the math has NaN or infinity.

    Args:
        reductions: as :func:`taskfuse.cascade` takes them.
        n: the number of chunks.
        multiple: divides the length of a chunk, such as the length of a step of the walk over a chunk.

    Returns:
        The results of the chunks, of each reduction in their order, with the chunks as first axis: ``[n, ...]``, of the reduction's dtype.

    Raises:
        ScheduleError: no cascade is known: the message names the reduction and why.
    """
    given = given_reductions("chunk_cascade", reductions)
    for name, value in (("n", n), ("multiple", multiple)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Call("chunk_cascade", given[0]).error(f"{name} is {shown(value)}", "use a positive integer")
    assert isinstance(n, int)
    assert isinstance(multiple, int)
    call = _ChunkCascade(given, n, multiple)
    call.run()
    return tuple(call.partial[tv] for tv in given)


class _ChunkCascade(CascadeChunks):
    """One call.

    Attributes:
        partial: the results of the chunks.
    """

    def __init__(self, reductions: tuple[TensorView, ...], n: int, multiple: int) -> None:
        plans, facts = CascadePlans(reductions, "chunk_cascade"), reductions[0].fusion.facts()
        length = simplify(ceildiv(plans.extent, n * multiple) * multiple, facts)
        super().__init__(plans, const(n), length, (), is_whole=is_multiple(plans.extent, n * multiple, facts))
        self.partial: dict[TensorView, TensorView] = {}

    def _element(self, at: int, *, is_inside: bool = False) -> Expr:
        element = iteration_symbol(at) * self.length + iteration_symbol(at + 1)
        return minimum(element, self.extent - 1) if is_inside and not self.is_whole else element

    def _of_base(self, top: TensorView, index: tuple[Expr, ...], step: tuple[Expr, ...]) -> Read:
        return Read(self.base[top], (*step, *index))

    def _rewrite(self) -> None:
        for tv, expr in self.exprs.items():
            self.partial[tv] = self._partial(tv, expr)
            if self.plans.is_top(tv):
                self.base[tv] = self._base(tv, self.partial[tv])
        self._functions.clear()  # what joins the chunks is computed of their results alone, which another kernel may have made
        for plan in self.plans.every:
            self._join(plan)
        self.fusion.remove_unread(list(self.base.values()))

    def _partial(self, tv: TensorView, expr: Reduction) -> TensorView:
        """The reduction of each chunk, with the chunks as first axis."""
        k = self.axes[tv]
        inner = axis(self.length, AxisKind.REDUCTION)
        operands = self._by_chunks(tv, expr, self._root(tv, [axis(self.steps), inner]))
        first: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(p + 1) for p in range(k)}
        first[str(iteration_symbol(k))] = iteration_symbol(0)
        made = self._new([axis(self.steps), *self._root(tv, [inner])], tv)
        neutral = Literal(expr.combine.neutral(tv.dtype), tv.dtype)
        return self._define(Reduction(made, expr.combine, expr.body, tuple(at_point(o, first) for o in operands), neutral, expr.location))

    def _join(self, plan: CascadePlan) -> None:
        """The reduction of the chunks' results: of those that read a maximum, each multiplied by the repair from its own to that of all."""
        tv, partial = plan.tv, self.partial[plan.tv]
        expr, k = self.exprs[tv], self.axes[tv]
        is_finished = plan.top is not None or bool(plan.factors)
        root = self._root(tv, [axis(self.steps, AxisKind.REDUCTION)])
        if is_finished:
            out = self._new(root, tv)
        else:
            out = tv
            tv.root = (*tv.root[:k], root[k], *tv.root[k + 1 :])
            tv.schedule = TensorSchedule(list(tv.root))
        here = point(len(root))
        read = Read(partial, (here[k], *here[:k], *here[k + 1 :]))
        if plan.top is None or plan.repair is None:
            self.fusion.define(Reduction(out, expr.combine, COPY, (read,), expr.init, expr.location))
        else:
            parts = self.partial[plan.top]
            old, new = own(self._base(plan.top, parts)), Read(self._base(plan.top, plan.top), point(parts.ndim)[1:])
            decay = self._decay(plan.top, plan.repair, parts.shape, old, new)
            factor = Read(decay, (here[k], *self.plans.index[tv, plan.top]))
            self.fusion.define(Reduction(out, expr.combine, MUL, (factor, read), expr.init, expr.location))
        if is_finished:
            self.made.append(out)
            self._finish(plan, out)
