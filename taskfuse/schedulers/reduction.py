"""``tf.schedulers.reduction``: a fusion whose reductions need one walk over each row, scheduled."""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.errors import LoweringError, ScheduleError
from taskfuse.ir.expr import Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const, bounds
from taskfuse.lowering.lower import lower
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.machine import SMS
from taskfuse.schedulers.phases import Keep, Phases
from taskfuse.schedulers.row_cost import RowProblem, estimate, rank
from taskfuse.schedulers.rows import RowConfig, Rows, check
from taskfuse.schedulers.schedule import Chosen, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.space import Space, find


@tries_parameters
def reduction(fusion: Fusion, config: RowConfig | None = None, *, sizes: Mapping[str, int] | None = None, sms: int = SMS) -> Chosen[RowConfig]:
    """Schedule a fusion whose reductions all reduce the same axes and do not depend on one another's results element by element.

    Elementwise ops may stand before and behind; there may be several reductions and outputs. The reduced axes may be contiguous, not
    contiguous, or on both sides of a kept one. Rows that are too few to fill the device are shared by blocks.

    Args:
        fusion: it is changed: tensors and schedule are added.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model; 4096, within what is known, where there is none.
        sms: multiprocessors of the GPU.

    Returns:
        The parameters, why they were chosen, and the schedule as code.

    Raises:
        UnsupportedError: the fusion or the parameters are not of that kind.
    """
    check_call(fusion, "reduction", config, RowConfig)
    space = find(fusion)
    phases = Phases(fusion, space)
    if phases.count > 1:
        raise refuse(fusion, "reduction", f"a row is walked over {phases.count} times", "tf.schedulers.normalization takes such fusions")
    return schedule("reduction", fusion, space, phases, config, sizes, sms)


def schedule(name: str, fusion: Fusion, space: Space, phases: Phases, config: RowConfig | None, sizes: Mapping[str, int] | None, sms: int) -> Chosen[RowConfig]:
    """Choose the parameters, unless they are given, and make the calls."""
    problem = _problem(fusion, space, phases, Sizes(fusion, sizes), sms)
    alternatives = tuple(rank(problem))
    chosen = alternatives[0].config if config is None else config
    check(fusion, space, chosen)
    expected = estimate(problem, chosen)
    _try(fusion, chosen)
    script = Script(fusion)
    Rows(script, fusion, space, chosen, expected.residents).apply()
    phased = f"{problem.phases} phases" if problem.phases > 1 else "1 phase"
    size = f"of {problem.rows} rows of {problem.columns} elements, {'along' if problem.is_inner else 'across'} vectors of {problem.width}, {phased}"
    waits = f"{expected.registers} registers, {expected.residents} resident blocks; waits for: {expected.bound}; expected: {expected.us:.1f} us"
    return Chosen(name, size, expected, alternatives, config is not None, script.text, waits)


def _try(fusion: Fusion, config: RowConfig) -> None:
    """Schedule and lower a copy: what the form of the space does not show (reads through views) is found here, before anything has changed."""
    copy, _ = copy_fusion(fusion)
    try:
        Rows(Script(copy), copy, find(copy), config).apply()
        lower(copy)
    except (LoweringError, ScheduleError) as error:
        raise refuse(fusion, "reduction", str(error).split("\n", 1)[0], "leave what is at fault to a fusion of its own") from error


def _problem(fusion: Fusion, space: Space, phases: Phases, extent: Sizes, sms: int) -> RowProblem:
    wide, private = space.having(fusion, space.reduced), space.having(fusion, space.kept) if space.kept else set(fusion.tensors())
    rows, columns = space.extent(space.kept), space.extent(space.reduced)
    most = bounds(rows, fusion.facts())[1]
    return RowProblem(
        rows=extent(rows),
        columns=extent(columns),
        width=space.width,
        is_inner=space.is_inner,
        phases=phases.count,
        loads=tuple(tv.dtype.itemsize for tv in fusion.inputs if tv in wide & private),
        store_bytes=sum(tv.dtype.itemsize for tv in fusion.outputs if tv in wide & private and tv.ndim == len(space.axes)),
        common=tuple(tv.dtype.itemsize for tv in fusion.inputs if tv in wide - private),
        reductions=sum(isinstance(e, Reduction) for e in fusion.exprs()),
        held=tuple((keep, phases.held_bytes(keep)) for keep in Keep),
        functions=phases.functions,
        repeated=tuple((keep, phases.repeated(keep)) for keep in Keep),
        is_constant=isinstance(columns, Const),
        may_share=most is not None and most <= extent(rows),
        sms=sms,
    )
