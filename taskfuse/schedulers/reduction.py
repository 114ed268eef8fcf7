"""``tf.schedulers.reduction``: fusions whose reductions need one pass over each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from math import prod
from typing import Any, NamedTuple, TypeVar

from taskfuse.errors import LoweringError, ScheduleError, UnsupportedError
from taskfuse.ir.axes import Axis, iteration_symbol
from taskfuse.ir.expr import Gather, Pointwise, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE, Const, bounds
from taskfuse.ir.storage import needed, reads_of, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.lowering import LoweringOptions
from taskfuse.lowering.steps import lower
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.keys import Key, Keys
from taskfuse.schedule.split_reduction import digits
from taskfuse.schedulers.elementwise import gathered, is_coalesced
from taskfuse.schedulers.persistent_buffers import Keep, Phases
from taskfuse.schedulers.row_cost import RowEstimate, RowProblem, estimate, rank
from taskfuse.schedulers.rows import RowConfig, RowSchedule, check
from taskfuse.schedulers.schedule import Chosen, Memo, Offer, Option, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.space import Space, find, settle, split_reductions
from taskfuse.target import DEFAULT, LINE_BYTES, Target

T = TypeVar("T")
UNVERIFIED = LoweringOptions(verify=False)
"""To see whether there is a kernel: that which is made of the schedule in the end is verified."""


@tries_parameters
def reduction(fusion: Fusion, config: RowConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[RowConfig]:
    """Schedule a fusion whose reductions all reduce the same axes and do not depend elementwise on each other's results.

    Elementwise ops may precede and follow them; several reductions and outputs are allowed. The reduced axes may be contiguous, not
    contiguous, or on both sides of a kept one. If there are too few rows to fill the device, blocks share a row.

    Args:
        fusion: it is changed: tensors and schedule are added.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model; by default 4096, clamped to the known bounds.
        target: the GPU.

    Returns:
        The parameters, why they were chosen, and the schedule as code.

    Raises:
        UnsupportedError: the fusion or the parameters do not fit this scheduler.
    """
    return schedule(plan("reduction", fusion, config, sizes, target), fusion)


class Plan(NamedTuple):
    """The plan of a schedule of rows.

    Attributes:
        name: of the scheduler.
        splits: whether reductions run over the axes of what they read first (:func:`split_reductions`).
        is_changed: whether tensors are first recomputed, or copied, at the points of their readers (:func:`settle`).
        problem: the problem for the cost model.
        alternatives: its candidates, the fastest first.
        option: the chosen one.
        given: whether the caller gave the parameters.
    """

    name: str
    splits: bool
    is_changed: bool
    problem: RowProblem
    alternatives: tuple[Option[RowConfig], ...]
    option: RowEstimate
    given: bool


def plan(name: str, fusion: Fusion, config: RowConfig | None, sizes: Mapping[str, int] | None, target: Target, memo: Memo | None = None) -> Plan:
    """Choose the parameters of ``reduction`` or ``normalization``, unless they are given.

    Args:
        memo: of the offers for ``fusion``; the rows are those of both schedulers.

    Raises:
        UnsupportedError: see there; what lowering refuses is found by :func:`schedule`.
    """
    check_call(fusion, name, config, RowConfig)
    return rows_of(fusion, sizes, target, memo or Memo(), lambda splits, found: _planned(name, config, splits, found))


def rows_of(fusion: Fusion, sizes: Mapping[str, int] | None, target: Target, memo: Memo, plan: Callable[[bool, KernelRows], T]) -> T:
    """The plan of a scheduler of rows: of those of ``fusion``, or, if that is refused, where its reductions run over the axes of what they read.

    Raises:
        UnsupportedError: the fusion has none, or ``plan`` refuses them.
    """
    try:
        return plan(False, memo("rows", lambda: _rows(fusion, sizes, target, splits=False)))
    except UnsupportedError:
        if not any(isinstance(e, Reduction) and digits(fusion, e) is not None for e in needed(fusion)):
            raise
    return plan(True, memo("rows of digits", lambda: _rows(fusion, sizes, target, splits=True)))


def _planned(name: str, config: RowConfig | None, splits: bool, found: KernelRows) -> Plan:
    if name == "reduction" and found.problem.phases > 1:
        raise refuse(found.trial, name, f"a row is read {found.problem.phases} times", "tf.schedulers.normalization takes such fusions")
    chosen = found.alternatives[0].config if config is None else config
    check(found.trial, found.space, chosen)
    option = found.alternatives[0] if config is None else estimate(found.problem, chosen)
    return Plan(name, splits, found.is_changed, found.problem, found.alternatives, option, config is not None)


class KernelRows(NamedTuple):
    """The rows of a fusion.

    Attributes:
        trial: a copy in which all is read at the readers' own points.
        is_changed: whether calls made it so.
    """

    trial: Fusion
    space: Space
    is_changed: bool
    problem: RowProblem
    alternatives: tuple[RowEstimate, ...]


def _rows(fusion: Fusion, sizes: Mapping[str, int] | None, target: Target, splits: bool) -> KernelRows:
    if not any(isinstance(e, Reduction) for e in fusion.exprs()):
        find(fusion)  # refuses it
    trial, _ = copy_fusion(fusion)
    script = Script(trial)
    if splits:
        split_reductions(script)
    settle(script)
    space = find(trial)
    problem = _problem(trial, space, Phases(trial, space), Sizes(fusion, sizes, target))
    return KernelRows(trial, space, bool(script.lines), problem, rank(problem))


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT, memo: Memo | None = None, lowers: bool = True) -> Offer:
    """The offer of ``reduction``. Raises :class:`UnsupportedError`."""
    return row_offer("reduction", fusion, sizes, target, memo or Memo(), lowers)


def row_offer(name: str, fusion: Fusion, sizes: Mapping[str, int] | None, target: Target, memo: Memo, lowers: bool) -> Offer:
    """The offer of ``reduction`` or ``normalization``, also for other parameters than the chosen ones. Raises :class:`UnsupportedError`."""
    make = tried if lowers else applied

    def given(config: Any) -> Callable[[Fusion], Chosen[Any]]:
        return partial(make, plan(name, fusion, config, sizes, target, memo))

    planned = plan(name, fusion, None, sizes, target, memo)
    return Offer(planned.option.us, partial(make, planned), given)


def schedule(planned: Plan, fusion: Fusion) -> Chosen[RowConfig]:
    """Make the calls, first on a copy. Raises :class:`UnsupportedError` if they make no kernel; ``fusion`` is then unchanged."""
    tried(planned, copy_fusion(fusion)[0])
    return applied(planned, fusion)


def tried(planned: Plan, fusion: Fusion) -> Chosen[RowConfig]:
    """Make the calls, and lower what they make: what the form of the space does not show (reads through views) is found here. Raises
    :class:`UnsupportedError` if no kernel comes of them; then ``fusion`` is of no further use."""
    try:
        found = applied(planned, fusion)
        lower(fusion, UNVERIFIED)
    except (LoweringError, ScheduleError) as error:
        raise refuse(fusion, "reduction", str(error).split("\n", 1)[0], "move the offending tensors to a separate fusion") from error
    return found


def applied(planned: Plan, fusion: Fusion) -> Chosen[RowConfig]:
    """Make the calls. Whether a kernel comes of them is seen when it is lowered."""
    problem, expected = planned.problem, planned.option
    script = Script(fusion)
    if planned.is_changed:
        script.comment("tensors read at other points are computed at those points")
        if planned.splits:
            split_reductions(script)
        settle(script)
    RowSchedule(script, fusion, find(fusion), expected.config, expected.residents).apply()
    phased = f"{problem.phases} phases" if problem.phases > 1 else "1 phase"
    size = f"of {problem.rows} rows of {problem.columns} elements, {'along' if problem.is_inner else 'across'} vectors of {problem.width}, {phased}"
    waits = f"{expected.registers} registers, {expected.residents} resident blocks; waits for: {expected.bound}; expected: {expected.us:.1f} us"
    return Chosen(planned.name, size, expected, planned.alternatives, planned.given, script.text, waits)


def _problem(fusion: Fusion, space: Space, phases: Phases, extent: Sizes) -> RowProblem:
    wide, private = space.having(fusion, space.reduced), space.having(fusion, space.kept) if space.kept else set(fusion.tensors())
    rows, columns = space.extent(space.kept), space.extent(space.reduced)
    most = bounds(rows, fusion.facts())[1]
    contiguous = space.having(fusion, [space.contiguous])
    sources = {tv: _source(fusion, tv) for tv in space.moved}
    once = sum(extent.elements(tv) * tv.dtype.itemsize for tv in fusion.inputs if not among(tv, sources.values()))
    once += sum(_bytes_from(fusion, x, [tv for tv, source in sources.items() if source is x], extent) for x in dict.fromkeys(sources.values()))
    own = [tv for tv in (*(x for x in fusion.inputs if not among(x, sources.values())), *space.moved) if tv in wide & private]
    keys = Keys(fusion)
    beside = keys.key(space.axes[space.contiguous])
    whole = [tv for tv in fusion.outputs if tv in wide & private & contiguous and _long(tv.logical) == _long(space.axes)]
    again = sum((len(needing) - 1) * extent.elements(tv) * tv.dtype.itemsize for tv, needing in phases.passes().items())
    return RowProblem(
        rows=extent(rows),
        columns=extent(columns),
        width=space.width,
        is_inner=space.is_inner,
        run=extent(space.extent(space.run)) if space.is_inner and len(space.run) < len(space.reduced) else None,
        phases=phases.count,
        loads=tuple(tv.dtype.itemsize for tv in own if tv in contiguous),
        crossed=len(crossed := [tv for tv in own if tv in contiguous and _is_crossed(fusion, keys, tv, beside)]),
        apart=sum(_is_apart(fusion, keys, tv, {keys.key(space.axes[p]) for p in space.reduced}, extent) for tv in crossed),
        turn=max(1, extent(space.axes[space.contiguous].extent) // space.width),
        span=prod(extent(space.axes[p].extent) for p in space.kept if p > max(space.reduced)) if not space.is_inner else None,
        spread=sum(_is_spread(keys, tv, beside) for tv in fusion.inputs if space.is_inner and tv in wide - private and among(tv, space.loads)),
        scattered=sum(keys.key(tv.logical[-1]) != beside for tv in whole if tv.logical[-1].extent is not ONE),
        store_bytes=sum(tv.dtype.itemsize for tv in fusion.outputs if tv in wide & private and tv.ndim == len(space.axes)),
        loaded=float(once),
        again=float(again),
        stored=float(sum(extent.elements(tv) * tv.dtype.itemsize for tv in fusion.outputs)),
        beside=tuple(tv.dtype.itemsize for tv in own if tv not in contiguous),
        common=tuple(tv.dtype.itemsize for tv in fusion.inputs if tv in wide - private and among(tv, space.loads)),
        reductions=sum(isinstance(e, Reduction) for e in fusion.exprs()),
        values=len({read.tensor for tv in wide if not tv.is_input for read in reads_of(fusion, tv)} & (private - wide)),
        held=tuple((keep, phases.held_bytes(keep)) for keep in Keep),
        functions=phases.functions,
        slots=phases.slots,
        repeated=tuple((keep, phases.repeated(keep)) for keep in Keep),
        are_whole=all(_long(tv.logical) == _long(space.axes) for tv in fusion.inputs if tv in wide & private and not among(tv, sources.values())),
        is_constant=isinstance(columns, Const),
        may_share=most is not None and most <= extent(rows),
        has_constant_rows=isinstance(rows, Const),
        offsets=extent.offsets,
        target=extent.target,
    )


def _is_crossed(fusion: Fusion, keys: Keys, tv: TensorView, beside: Key) -> bool:
    """True if neighbors along the contiguous axis, whose key is given, are not neighbors in an input, or in that of which a tensor has elements."""
    if tv.is_input:
        return keys.key(tv.logical[-1]) != beside
    expr = fusion.definition(tv)
    axis = next((p for p, a in enumerate(tv.root) if keys.key(a) == beside), None)
    return axis is not None and isinstance(expr, Pointwise) and not is_coalesced(fusion, storage_reads(fusion, expr)[0], tv, axis)


def _is_apart(fusion: Fusion, keys: Keys, tv: TensorView, reduced: AbstractSet[Key], extent: Sizes) -> bool:
    """True if neighbors along the reduced axes, whose keys are given, have lines of memory of their own in an input, or in that of which a tensor has elements:
    these lie along another axis, and it is no short one."""
    source, along = tv, {keys.key(tv.logical[-1])}
    if not tv.is_input:
        expr = fusion.definition(tv)
        if expr is None or not (reads := storage_reads(fusion, expr)) or not (index := reads[0].index):
            return False
        source, along = reads[0].tensor, {keys.key(a) for p, a in enumerate(tv.root) if iteration_symbol(p).free & index[-1].free}
    return along.isdisjoint(reduced) and extent(source.logical[-1].extent) * source.dtype.itemsize >= LINE_BYTES


def _is_spread(keys: Keys, tv: TensorView, beside: Key) -> bool:
    """True if the last axis of an input that has one element is behind the contiguous axis, whose key is given."""
    *before, last = tv.logical
    inner = next((a for a in reversed(before) if a.extent is not ONE), None)
    return last.extent is ONE and inner is not None and keys.key(inner) == beside


def _long(axes: Sequence[Axis]) -> int:
    """How many axes have more than one element."""
    return sum(a.extent is not ONE for a in axes)


def _bytes_from(fusion: Fusion, source: TensorView, moved: Sequence[TensorView], extent: Sizes) -> float:
    """Bytes that come from memory for all tensors of elements of an input: those that several have, such as neighbors, come from the L2 cache again, if that
    holds the input, and count as the bytes that memory moves meanwhile."""
    total = sum(_moved_bytes(fusion, tv, source, extent) for tv in moved)
    size, target = float(extent.elements(source) * source.dtype.itemsize), extent.target
    if size > target.l2_bytes or total <= size:
        return total
    return size + (total - size) * target.dram_bytes_per_us / target.l2_bytes_per_us


def _moved_bytes(fusion: Fusion, tv: TensorView, source: TensorView, extent: Sizes) -> float:
    """Bytes that come from memory for a tensor of elements from other places of an input."""
    points, expr = prod(extent(a.extent) for a in tv.root), fusion.definition(tv)
    if isinstance(expr, Gather):
        return gathered(storage_reads(fusion, expr)[0], points * tv.dtype.itemsize, extent)
    return min(points, extent.elements(source)) * tv.dtype.itemsize


def _source(fusion: Fusion, tv: TensorView) -> TensorView:
    """The input whose elements a tensor copies."""
    expr = fusion.definition(tv)
    assert expr is not None
    return storage_reads(fusion, expr)[0].tensor
