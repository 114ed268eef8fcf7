"""``tf.schedulers.online``: rows whose reductions read one another, in one walk: the online softmax, log-sum-exp, cross-entropy.

    inner (the contiguous axis is reduced)    [rows: BIDx, TIDy | parts: TIDx | steps | unroll, vector]
    outer (it is kept)                        [rows: BIDx, TIDx | parts: TIDy | steps | unroll | vector]

Each thread walks a part of its row, with a running maximum and sums of its own (:func:`taskfuse.cascade`), and the threads of a row join theirs in the end. So
a row that fits neither registers nor Shared memory is read once for all of its reductions, and no thread waits for another before its last element. Outputs
that have elements of a row read it once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import NamedTuple

from taskfuse.errors import LoweringError, ScheduleError
from taskfuse.ir.axes import Axis
from taskfuse.ir.expr import Fold, Reduction, is_copy
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE, Const, const
from taskfuse.ir.storage import has_code, needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.lowering import LoweringOptions
from taskfuse.lowering.steps import lower
from taskfuse.schedule.cascade_plan import CascadePlans
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.keys import Keys
from taskfuse.schedulers.online_cost import OnlineConfig, OnlineEstimate, estimate, rank
from taskfuse.schedulers.reduction import KernelRows, rows_of
from taskfuse.schedulers.row_cost import RowProblem
from taskfuse.schedulers.schedule import Chosen, Memo, Offer, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.space import Space, find, settle, split_reductions
from taskfuse.target import DEFAULT, VECTOR_BYTES, Target

UNVERIFIED = LoweringOptions(verify=False)
NORMALIZATION = "tf.schedulers.normalization takes rows in several passes"
GAIN = {1: 0.95, 2: 0.93}
"""The most time, by the number of walks, relative to rows that are kept or read again, for it to be preferred: a margin for the error of both estimates, since
both take as long where rows fit registers."""


@tries_parameters
def online(fusion: Fusion, config: OnlineConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[OnlineConfig]:
    """Schedule a fusion whose reductions all reduce one axis, and read one another as :func:`taskfuse.cascade` allows: softmax, log-sum-exp, cross-entropy.

    Each element is read once for all reductions, and once more for outputs that have elements of rows. Rounding moves: each thread's sum is multiplied when its
    running maximum grows.

    Args:
        fusion: it is changed: tensors and schedule are added.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model; by default 4096, clamped to the known bounds.
        target: the GPU.

    Raises:
        UnsupportedError: the fusion or the parameters do not fit this scheduler.
    """
    check_call(fusion, "online", config, OnlineConfig)
    planned = rows_of(fusion, sizes, target, Memo(), lambda splits, rows: _plan(config, splits, rows))
    _tried(planned, copy_fusion(fusion)[0])
    return _applied(planned, fusion)


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT, memo: Memo | None = None, lowers: bool = True) -> Offer:
    """The offer of :func:`online`. Raises :class:`UnsupportedError`, also where rows that are kept or read again are expected to be as fast."""
    check_call(fusion, "online", None, OnlineConfig)
    planned = rows_of(fusion, sizes, target, memo or Memo(), lambda splits, rows: _plan(None, splits, rows, rows.alternatives[0].us))
    return Offer(planned.option.us, partial(_tried if lowers else _applied, planned))


class _Plan(NamedTuple):
    """What was chosen for a fusion: see :class:`taskfuse.schedulers.reduction.Plan`."""

    splits: bool
    problem: RowProblem
    alternatives: tuple[OnlineEstimate, ...]
    option: OnlineEstimate
    given: bool


def _plan(config: OnlineConfig | None, splits: bool, rows: KernelRows, other: float = inf) -> _Plan:
    """Choose the parameters, if they are not given. Raises :class:`UnsupportedError`, also where it gains too little over ``other`` microseconds."""
    trial, space, problem = rows.trial, rows.space, rows.problem
    if problem.phases < 2:
        raise refuse(trial, "online", "no reduction reads another", "tf.schedulers.reduction takes such fusions")
    if other < inf and problem.target.dram_us(problem.loaded or 0.0) < problem.target.launch_us:
        raise refuse(trial, "online", "so few bytes are read that a kernel's launch takes longer", NORMALIZATION)
    walked = _reductions(trial)
    wide = space.having(trial, space.reduced)
    walks = 1 + any(out in wide and not among(out, walked) for out in trial.outputs)
    most = GAIN[walks] * other
    if problem.target.kernel_us(problem.target.dram_us((problem.loaded or 0.0) + (problem.stored or 0.0))) > most:
        raise refuse(trial, "online", "rows that are kept, or read again, are expected to be as fast", NORMALIZATION)
    if not space.kept or len(space.reduced) != 1:
        raise refuse(trial, "online", f"it has {len(space.kept)} kept and {len(space.reduced)} reduced axes", NORMALIZATION)
    try:
        CascadePlans(tuple(walked))
    except ScheduleError as error:
        raise refuse(trial, "online", error.message.split("\n", 1)[0], NORMALIZATION) from error
    if not isinstance(space.extent(space.reduced), Const) and space.is_inner and problem.width > 1:  # vectors whose last is not the last step's are not proved
        if other < inf:
            raise refuse(trial, "online", f"rows of {space.extent(space.reduced)} elements would be walked without vectors", NORMALIZATION)
        problem = replace(problem, width=1)
    alternatives = rank(problem, walks)
    if config is None and (not alternatives or alternatives[0].us > most):
        raise refuse(trial, "online", "rows that are kept, or read again, are expected to be as fast", NORMALIZATION)
    option = alternatives[0] if config is None else estimate(problem, walks, config)
    return _Plan(splits, problem, alternatives, option, config is not None)


def _settled(script: Script, splits: bool) -> None:
    if splits:
        split_reductions(script)
    settle(script)


def _reductions(fusion: Fusion) -> list[TensorView]:
    return [e.output for e in needed(fusion) if isinstance(e, Reduction)]


def _tried(planned: _Plan, fusion: Fusion) -> Chosen[OnlineConfig]:
    """Make the calls, and lower what they make. Raises :class:`UnsupportedError` if no kernel comes of them; then ``fusion`` is of no further use."""
    try:
        found = _applied(planned, fusion)
        lower(fusion, UNVERIFIED)
    except (LoweringError, ScheduleError) as error:
        raise refuse(fusion, "online", str(error).split("\n", 1)[0], NORMALIZATION) from error
    return found


def _applied(planned: _Plan, fusion: Fusion) -> Chosen[OnlineConfig]:
    problem, option = planned.problem, planned.option
    script = Script(fusion)
    script.comment("tensors read at other points are computed at those points")
    _settled(script, planned.splits)
    OnlineSchedule(script, find(fusion), option.config, problem.width).apply()
    size = f"of {problem.rows} rows of {problem.columns} elements, {'along' if problem.is_inner else 'across'} vectors of {problem.width}"
    expected = f"{option.walks} walk{'s' * (option.walks > 1)}, {option.registers} registers; expected: {option.us:.1f} us"
    return Chosen("online", size, option, planned.alternatives, planned.given, script.text, expected)


@dataclass(frozen=True, slots=True)
class _Roles:
    """The axes of the walk's tensors: one that has them all, in the order of its iteration space."""

    kept: tuple[Axis, ...]
    steps: Axis
    parts: Axis
    chunk: Axis


class OnlineSchedule:
    """The schedule of one fusion.

    Args:
        script: takes the calls.
        space: of the fusion, all of which is read at its readers' own points.
        width: elements of a vector.

    Attributes:
        rows: loops over rows.
        loads, again: inputs in registers, in the walk and in that of the outputs.
        stores: outputs that have elements of rows.
    """

    def __init__(self, script: Script, space: Space, config: OnlineConfig, width: int) -> None:
        self.script = script
        self.fusion = script.fusion
        self.space = space
        self.config = config
        self.width = width
        self.rows = 1 + (config.rows > 1)
        self.loads: list[TensorView] = []
        self.again: list[TensorView] = []
        self.stores: list[TensorView] = []
        self.code: list[TensorView] = []

    def apply(self) -> None:
        """Make the calls. Raises :class:`ScheduleError` if the reductions have no common walk."""
        reference = self._cascade()
        self._copies()
        self._loops(reference)
        self._inline()

    # -- tensors --------------------------------------------------------------------------------------------------------------------

    def _cascade(self) -> TensorView:
        """The walk. Returns the reduction of a chunk, which has all of its axes."""
        self.script.comment("one walk for all reductions: threads take parts, joined at the end")
        found = _reductions(self.fusion)
        k = next(k for k, a in enumerate(found[0].root) if a.is_reduction)
        along = self.width if self.space.is_inner else 1
        made = self.script.cascade(found, self.config.unroll * along, self.config.threads, along)
        reference = next(tv for tv in made if isinstance(tv.definition, Reduction) and len(tv.root) == len(self.space.axes) + 2)
        own = [p if p < k else p + 2 for p in range(len(self.space.axes)) if p != k]
        kept = [p if p < self.space.reduced[0] else p - 1 for p in self.space.kept]
        root = reference.root
        self.roles = _Roles(tuple(root[own[p]] for p in kept), root[k], root[k + 1], root[k + 2])
        return reference

    def _copies(self) -> None:
        """Inputs in registers, in the walk and in that of the outputs; outputs that others read are copies of what these read."""
        script, fusion = self.script, self.fusion
        script.comment("copies")
        for out in fusion.outputs:
            if out.uses:
                script.new(out, "cache_fork")
        keys = Keys(fusion)
        walked = {keys.key(a) for a in (self.roles.steps, self.roles.parts)}
        known = walked | {keys.key(a) for a in self.roles.kept}
        readers: dict[tuple[TensorView, bool], list[TensorView]] = {}
        for expr in needed(fusion):
            tv = expr.output
            if not has_code(fusion, expr):
                continue
            axes = {keys.key(a) for a in tv.root if a.extent is not ONE}
            is_walked = bool(axes & walked)
            if axes <= known:
                continue
            sources = [r.tensor for r in storage_reads(fusion, expr) if r.tensor.is_input]
            if sources and is_copy(expr) and not tv.is_output:
                (self.loads if is_walked else self.again).append(tv)
                continue
            for x in dict.fromkeys(sources):
                readers.setdefault((x, is_walked), []).append(tv)
        for (x, is_walked), found in readers.items():
            made = script.recompute(x, found)
            (self.loads if is_walked else self.again).extend(made)
        for out in fusion.outputs:
            if {keys.key(a) for a in out.root if a.extent is not ONE} - known:
                script.new(out, "cache_before")
                self.stores.append(out)

    # -- loops ----------------------------------------------------------------------------------------------------------------------

    def _loops(self, reference: TensorView) -> None:
        script, roles = self.script, self.roles
        self.code = [e.output for e in needed(self.fusion) if has_code(self.fusion, e)]
        kinds = [*[P.BIDx, P.TIDy if self.space.is_inner else P.TIDx][: self.rows], P.TIDx if self.space.is_inner else P.TIDy]
        places = [reference.root.index(a) for a in (*roles.kept, roles.parts, roles.steps, roles.chunk)]
        known = {reference} if not self.stores else {reference, *self._loops_of_outputs(self.stores[0], kinds)}
        script.comment("loops of the walk: [rows | part, step | unroll, vector]")
        self._arrange(reference, places)
        others = [tv for tv in self.code if tv not in known]
        script.on(reference).propagate(others)
        for position, kind in enumerate(kinds):
            script.on(reference).bind(position, kind)
        script.parallelize_like(reference, others)
        self._vectors()

    def _loops_of_outputs(self, out: TensorView, kinds: Sequence[P]) -> list[TensorView]:
        """The loops of what has elements of rows outside the walk, by those of one output; returns it all."""
        script, config, keys = self.script, self.config, Keys(self.fusion)
        place = {keys.key(a): p for p, a in enumerate(out.root)}
        kept = [place[keys.key(a)] for a in self.roles.kept if keys.key(a) in place]
        along = [p for p in range(len(out.root)) if p not in kept]
        if len(kept) < len(self.roles.kept) or len(along) > 1:
            raise refuse(self.fusion, "online", f"{out.name} lacks an axis of the rows", NORMALIZATION)
        long = keys.key(out.root[along[0]])
        wide = [tv for tv in self.code if tv is not out and long in {keys.key(a) for a in tv.root}]
        script.comment("loops of the outputs: [rows | trip, unroll, thread | vector]")
        self._arrange(out, [*kept, *along])
        script.on(out).split(self.rows, config.threads).split(self.rows, config.unroll).propagate(wide, len(out.loop))
        for position, kind in (*enumerate(kinds[:-1]), (self.rows + 2, kinds[-1])):
            script.on(out).bind(position, kind)
        script.parallelize_like(out, wide)
        return [out, *wide]

    def _arrange(self, tv: TensorView, order: list[int]) -> None:
        """[rows (by threads) | the other axes | vector], from the axes in this order."""
        call, kept = self.script.on(tv), len(self.roles.kept)
        if order != sorted(order):
            call.reorder(order)
        if self.width > 1 and self.space.is_inner:
            call.split(-1, self.width)
        elif self.width > 1:
            call.split(kept - 1, self.width).reorder({kept: -1})
        for _ in range(kept - 1):
            call.merge(0)
        if self.config.rows > 1:
            call.split(0, self.config.rows)

    def _vectors(self) -> None:
        if self.width == 1:
            return
        self.script.comment("vectors")
        for tv in (*self.loads, *self.again, *self.stores):
            last = tv.loop[-1].extent
            expr = self.fusion.definition(tv)
            if expr is None or not is_copy(expr) or last is not const(self.width):
                continue
            most = VECTOR_BYTES // tv.dtype.itemsize
            if most < self.width:
                self.script.on(tv).split(-1, most)
            self.script.on(tv).bind(len(tv.loop) - 1, P.Vectorize)

    def _inline(self) -> None:
        """Everything shares as many loops as it can, but for the values of parts, which are complete before any is joined."""
        self.script.comment("inlining")
        self.script.inline_most(self.code)
        keys = Keys(self.fusion)
        steps = keys.key(self.roles.steps)
        totals = [
            tv for tv in self.code if isinstance(self.fusion.definition(tv), Reduction | Fold) and any(a.is_reduction and keys.key(a) == steps for a in tv.root)
        ]
        self.script.inline_at(totals, self.rows)
        self.script.inline_most([tv for tv in self.code if not among(tv, totals)])
        self.script.inline_at(self.loads, self.rows + 2)
        self.script.inline_at(self.again, self.rows + 1)
