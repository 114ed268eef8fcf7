"""``tf.schedulers.reduction``: schedules a fusion whose reductions need one walk over each row."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from taskfuse.errors import LoweringError, ScheduleError
from taskfuse.ir.arithmetic import among
from taskfuse.ir.expr import Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const, bounds
from taskfuse.ir.storage import storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.lowering.steps import lower
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.persistent_buffers import Keep, Phases
from taskfuse.schedulers.row_cost import RowProblem, estimate, rank
from taskfuse.schedulers.rows import RowConfig, Rows, check
from taskfuse.schedulers.schedule import Chosen, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.space import Space, find, settle
from taskfuse.target import DEFAULT, Target


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
    check_call(fusion, "reduction", config, RowConfig)
    trial, _ = _settled(fusion)
    phases = Phases(trial, find(trial)).count
    if phases > 1:
        raise refuse(fusion, "reduction", f"a row is walked over {phases} times", "tf.schedulers.normalization takes such fusions")
    return schedule("reduction", fusion, config, sizes, target)


def _settled(fusion: Fusion) -> tuple[Fusion, bool]:
    """A copy of a fusion in which all is computed, or copied, where it is read (:func:`settle`), and whether that changed anything."""
    trial, _ = copy_fusion(fusion)
    script = Script(trial)
    settle(script)
    return trial, bool(script.lines)


def schedule(name: str, fusion: Fusion, config: RowConfig | None, sizes: Mapping[str, int] | None, target: Target) -> Chosen[RowConfig]:
    """Choose the parameters, unless they are given, and make the calls."""
    trial, is_changed = _settled(fusion)
    space = find(trial)
    problem = _problem(trial, space, Phases(trial, space), Sizes(fusion, sizes, target))
    alternatives = tuple(rank(problem))
    chosen = alternatives[0].config if config is None else config
    check(trial, space, chosen)
    expected = estimate(problem, chosen)
    _try(fusion, trial, chosen)
    script = Script(fusion)
    if is_changed:
        script.comment("what is read elsewhere than at its own place is computed there")
        settle(script)
    Rows(script, fusion, find(fusion), chosen, expected.residents).apply()
    phased = f"{problem.phases} phases" if problem.phases > 1 else "1 phase"
    size = f"of {problem.rows} rows of {problem.columns} elements, {'along' if problem.is_inner else 'across'} vectors of {problem.width}, {phased}"
    waits = f"{expected.registers} registers, {expected.residents} resident blocks; waits for: {expected.bound}; expected: {expected.us:.1f} us"
    return Chosen(name, size, expected, alternatives, config is not None, script.text, waits)


def _try(fusion: Fusion, trial: Fusion, config: RowConfig) -> None:
    """Schedule and lower a copy: what the form of the space does not show (reads through views) is found here, before anything has changed."""
    copy, _ = copy_fusion(trial)
    try:
        Rows(Script(copy), copy, find(copy), config).apply()
        lower(copy)
    except (LoweringError, ScheduleError) as error:
        raise refuse(fusion, "reduction", str(error).split("\n", 1)[0], "leave what is at fault to a fusion of its own") from error


def _problem(fusion: Fusion, space: Space, phases: Phases, extent: Sizes) -> RowProblem:
    wide, private = space.having(fusion, space.reduced), space.having(fusion, space.kept) if space.kept else set(fusion.tensors())
    rows, columns = space.extent(space.kept), space.extent(space.reduced)
    most = bounds(rows, fusion.facts())[1]
    sources = {tv: _source(fusion, tv) for tv in space.moved}
    once = sum(extent.elements(tv) * tv.dtype.itemsize for tv in fusion.inputs if not among(tv, sources.values()))
    once += sum(min(prod(extent(a.extent) for a in tv.root), extent.elements(source)) * tv.dtype.itemsize for tv, source in sources.items())
    return RowProblem(
        rows=extent(rows),
        columns=extent(columns),
        width=space.width,
        is_inner=space.is_inner,
        phases=phases.count,
        loads=tuple(tv.dtype.itemsize for tv in (*(x for x in fusion.inputs if not among(x, sources.values())), *space.moved) if tv in wide & private),
        store_bytes=sum(tv.dtype.itemsize for tv in fusion.outputs if tv in wide & private and tv.ndim == len(space.axes)),
        loaded=float(once),
        stored=float(sum(extent.elements(tv) * tv.dtype.itemsize for tv in fusion.outputs)),
        common=tuple(tv.dtype.itemsize for tv in fusion.inputs if tv in wide - private and among(tv, space.loads)),
        reductions=sum(isinstance(e, Reduction) for e in fusion.exprs()),
        held=tuple((keep, phases.held_bytes(keep)) for keep in Keep),
        functions=phases.functions,
        repeated=tuple((keep, phases.repeated(keep)) for keep in Keep),
        is_constant=isinstance(columns, Const),
        may_share=most is not None and most <= extent(rows),
        target=extent.target,
    )


def _source(fusion: Fusion, tv: TensorView) -> TensorView:
    """The input that a tensor is elements of."""
    expr = fusion.definition(tv)
    assert expr is not None
    return storage_reads(fusion, expr)[0].tensor
