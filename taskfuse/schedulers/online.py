"""``tf.schedulers.online``: rows whose reductions read one another, in one walk: the online softmax, log-sum-exp, cross-entropy.

    inner (the contiguous axis is reduced)    [rows: BIDx, TIDy | parts: TIDx | steps | unroll, vector]
    outer (it is kept)                        [rows: BIDx, TIDx | parts: TIDy | steps | unroll | vector]

Each thread walks a part of its row, with a running maximum and sums of its own (:func:`taskfuse.cascade`), and the threads of a row join theirs in the end. So
a row that fits neither registers nor Shared memory is read once for all of its reductions, and no thread waits for another before its last element. Outputs
that have elements of a row read it once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from taskfuse.errors import LoweringError, ScheduleError
from taskfuse.ir.axes import Axis
from taskfuse.ir.expr import Fold, Reduction, Select, is_copy
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import has_code, needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.lowering import LoweringOptions
from taskfuse.lowering.steps import lower
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.keys import Keys
from taskfuse.schedulers.online_cost import OnlineConfig, OnlineEstimate, estimate, rank, vector
from taskfuse.schedulers.reduction import plan as plan_of_rows
from taskfuse.schedulers.row_cost import RowProblem
from taskfuse.schedulers.schedule import Chosen, Memo, Offer, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.space import Space, find, settle, split_reductions
from taskfuse.target import DEFAULT, VECTOR_BYTES, Target

UNVERIFIED = LoweringOptions(verify=False)
GAIN = 0.93
"""The most time of one walk, relative to rows that are kept or read again, for it to be preferred."""


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
    planned = _plan(fusion, config, sizes, target, Memo())
    _tried(planned, copy_fusion(fusion)[0])
    return _applied(planned, fusion)


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT, memo: Memo | None = None, lowers: bool = True) -> Offer:
    """The offer of :func:`online`. Raises :class:`UnsupportedError`, also where rows that are read several times, or kept, are as fast."""
    memo = memo or Memo()
    planned = _plan(fusion, None, sizes, target, memo)
    rows = plan_of_rows("normalization", fusion, None, sizes, target, memo).option
    if planned.option.us > GAIN * rows.us:
        raise refuse(fusion, "online", f"one walk is expected to take {planned.option.us:.1f} us, and rows of normalization {rows.us:.1f}")
    return Offer(planned.option.us, partial(_tried if lowers else _applied, planned))


class _Plan(NamedTuple):
    """What was chosen for a fusion: see :class:`taskfuse.schedulers.reduction.Plan`."""

    splits: bool
    problem: RowProblem
    alternatives: tuple[OnlineEstimate, ...]
    option: OnlineEstimate
    given: bool


def _plan(fusion: Fusion, config: OnlineConfig | None, sizes: Mapping[str, int] | None, target: Target, memo: Memo) -> _Plan:
    rows = plan_of_rows("normalization", fusion, None, sizes, target, memo)
    if rows.problem.phases < 2:
        raise refuse(fusion, "online", "no reduction reads another", "tf.schedulers.reduction takes such fusions")
    trial = copy_fusion(fusion)[0]
    _settled(Script(trial), rows.splits)
    space = find(trial)
    walked = _reductions(trial)
    if not space.kept or len(space.reduced) != 1:
        raise refuse(fusion, "online", f"it has {len(space.kept)} kept axes, and {len(space.reduced)} reduced ones", "it takes rows along one axis")
    wide = space.having(trial, space.reduced)
    walks = 1 + any(out in wide and not among(out, walked) for out in trial.outputs)
    problem = rows.problem
    if not isinstance(space.extent(space.reduced), Const) and space.is_inner:
        problem = replace(problem, width=1)  # the last steps may be short
    alternatives = tuple(rank(problem, walks))
    option = alternatives[0] if config is None else estimate(problem, walks, config)
    return _Plan(rows.splits, problem, alternatives, option, config is not None)


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
        raise refuse(fusion, "online", str(error).split("\n", 1)[0], "tf.schedulers.normalization takes rows in several passes") from error
    return found


def _applied(planned: _Plan, fusion: Fusion) -> Chosen[OnlineConfig]:
    problem, option = planned.problem, planned.option
    script = Script(fusion)
    script.comment("tensors that are read at points other than their own are computed there")
    _settled(script, planned.splits)
    OnlineSchedule(script, find(fusion), option.config, vector(problem, option.config)).apply()
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
    """

    def __init__(self, script: Script, space: Space, config: OnlineConfig, width: int) -> None:
        self.script = script
        self.fusion = script.fusion
        self.space = space
        self.config = config
        self.width = width
        self.rows = 1 + (config.rows > 1)

    def apply(self) -> None:
        """Make the calls. Raises :class:`ScheduleError` if the reductions have no common walk."""
        reference = self._cascade()
        self._copies(reference)
        self._loops(reference)
        self._inline()

    # -- tensors --------------------------------------------------------------------------------------------------------------------

    def _cascade(self) -> TensorView:
        """The walk. Returns the reduction of a chunk, which has all of its axes."""
        self.script.comment("one walk of all reductions: parts for threads, joined behind it")
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

    def _copies(self, reference: TensorView) -> None:
        """Inputs in registers, in the walk and in that of the outputs; outputs that others read are copies of what these read."""
        script, fusion = self.script, self.fusion
        script.comment("copies")
        for out in fusion.outputs:
            if out.uses:
                script.new(out, "cache_fork")
        keys = Keys(fusion)
        self.loads, self.again, self.stores = [], [], []
        walked = {keys.key(a) for a in (self.roles.steps, self.roles.parts)}
        known = walked | {keys.key(a) for a in self.roles.kept}
        readers: dict[tuple[TensorView, bool], list[TensorView]] = {}
        for expr in needed(fusion):
            tv = expr.output
            if not has_code(fusion, expr):
                continue
            axes = {keys.key(a) for a in tv.root if str(a.extent) != "1"}
            is_walked = bool(axes & walked)
            if axes <= known:
                continue
            sources = [r.tensor for r in storage_reads(fusion, expr) if r.tensor.is_input]
            if sources and (is_copy(expr) or isinstance(expr, Select)) and not tv.is_output:
                (self.loads if is_walked else self.again).append(tv)
                continue
            for x in dict.fromkeys(sources):
                readers.setdefault((x, is_walked), []).append(tv)
        for (x, is_walked), found in readers.items():
            made = script.recompute(x, found)
            (self.loads if is_walked else self.again).extend(made)
        for out in fusion.outputs:
            if {keys.key(a) for a in out.root if str(a.extent) != "1"} - known:
                script.new(out, "cache_before")
                self.stores.append(out)

    # -- loops ----------------------------------------------------------------------------------------------------------------------

    def _loops(self, reference: TensorView) -> None:
        script, config, roles = self.script, self.config, self.roles
        script.comment("loops of the walk: [rows | part, step | unroll, vector]")
        places = [*(reference.root.index(a) for a in roles.kept), *(reference.root.index(a) for a in (roles.parts, roles.steps, roles.chunk))]
        self._arrange(reference, places, len(roles.kept))
        kinds = [*[P.BIDx, P.TIDy if self.space.is_inner else P.TIDx][: self.rows], P.TIDx if self.space.is_inner else P.TIDy]
        self.code = [e.output for e in needed(self.fusion) if has_code(self.fusion, e)]
        if self.stores:
            last = self.stores[0]
            out = last
            keys = Keys(self.fusion)
            by_key = {keys.key(a): p for p, a in enumerate(out.root)}
            kept = [by_key[keys.key(a)] for a in roles.kept if keys.key(a) in by_key]
            if len(kept) != len(roles.kept):
                raise refuse(self.fusion, "online", f"{out.name} lacks an axis of the rows")
            (long,) = [p for p in range(len(out.root)) if p not in kept]
            wide = [tv for tv in self.code if tv is not out and keys.key(out.root[long]) in {keys.key(a) for a in tv.root}]
            script.comment("loops of the outputs: [rows | trip, unroll, thread | vector]")
            self._arrange(out, [*kept, long], len(kept))
            r = script.on(out)
            r.split(self.rows, config.threads).split(self.rows, config.unroll)
            r.propagate(wide, len(out.loop))
            for position, kind in enumerate(kinds[:-1]):
                r.bind(position, kind)
            r.bind(self.rows + 2, kinds[-1])
            script.parallelize_like(out, wide)
        else:
            out, wide = None, []
        others = [tv for tv in self.code if tv is not reference and tv is not out and not among(tv, wide)]
        r = script.on(reference)
        r.propagate(others)
        for position, kind in enumerate(kinds):
            r.bind(position, kind)
        script.parallelize_like(reference, others)
        self._vectors()

    def _arrange(self, tv: TensorView, order: list[int], kept: int) -> None:
        """[rows (by threads) | the other axes | vector]."""
        call = self.script.on(tv)
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
            if not is_copy(self._definition(tv)) or str(last) != str(self.width) or not self.space.ends_contiguous(tv):
                continue
            most = VECTOR_BYTES // tv.dtype.itemsize
            if most < self.width:
                self.script.on(tv).split(-1, most)
            self.script.on(tv).bind(len(tv.loop) - 1, P.Vectorize)

    def _definition(self, tv: TensorView) -> object:
        return self.fusion.definition(tv)

    def _inline(self) -> None:
        """Everything shares as many loops as it can, but for the values of parts, which are complete before any is joined."""
        self.script.comment("inlining")
        self.script.inline_most(self.code)
        keys = Keys(self.fusion)
        steps = keys.key(self.roles.steps)
        totals = [
            tv for tv in self.code if isinstance(self.fusion.definition(tv), Reduction | Fold) and any(a.is_reduction and keys.key(a) == steps for a in tv.root)
        ]
        for tv in totals:
            self.script.on(tv).inline_at(self.rows)
        self.script.inline_most([tv for tv in self.code if not among(tv, totals)])
        for tv in self.loads:
            self.script.on(tv).inline_at(self.rows + 2)
        for tv in self.again:
            self.script.on(tv).inline_at(self.rows + 1)
