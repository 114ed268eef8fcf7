"""``tf.schedulers.reduction``: a fusion whose reductions need one walk over each row, scheduled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskfuse.errors import LoweringError, ScheduleError
from taskfuse.ir.expr import Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const, bounds
from taskfuse.lowering.lower import lower
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.machine import SMS
from taskfuse.schedulers.phases import Keep, Phases
from taskfuse.schedulers.row_cost import RowEstimate, RowProblem, estimate, rank
from taskfuse.schedulers.rows import RowConfig, Rows, check
from taskfuse.schedulers.schedule import Sizes, check_call, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.space import Space, find, unsupported


@dataclass(frozen=True, slots=True)
class RowSchedule:
    """What :func:`reduction` or :func:`~taskfuse.schedulers.normalization.normalization` did.

    Attributes:
        scheduler: its name.
        config: the parameters.
        problem: the extents that the cost model took.
        estimate: what it says of ``config``.
        alternatives: all that it chose from, the fastest first.
        given: true if the caller gave the parameters.
        code: the scheduling calls, as Python that takes the unscheduled fusion as ``fusion``.
    """

    scheduler: str
    config: RowConfig
    problem: RowProblem
    estimate: RowEstimate
    alternatives: tuple[RowEstimate, ...]
    given: bool
    code: str

    @property
    def us(self) -> float:
        """Microseconds that the cost model expects."""
        return self.estimate.us

    def explain(self, shown: int = 5) -> str:
        """Why this schedule: the problem, the choice, and the ``shown`` fastest candidates by the cost model."""
        p, e = self.problem, self.estimate
        phases = f"{p.phases} phases" if p.phases > 1 else "1 phase"
        lines = [
            f"{self.scheduler} of {p.rows} rows of {p.columns} elements, {'along' if p.is_inner else 'across'} vectors of {p.width}, {phases}: "
            f"{'given' if self.given else 'chosen'}: {_described(self.config)}",
            f"{e.registers} registers, {e.residents} resident blocks; waits for: {e.bound}; expected: {e.us:.1f} us",
            "",
            "     us  residents  bound         parameters",
        ]
        lines += [f"{a.us:7.1f}  {a.residents:9}  {a.bound:12}  {_described(a.config)}" for a in self.alternatives[:shown]]
        return "\n".join(lines)


def _described(c: RowConfig) -> str:
    blocks = f", {c.blocks} blocks per row" if c.blocks > 1 else ""
    return f"{c.threads} threads per row, {c.rows} rows per block{blocks}, {c.unroll} vectors at once, {c.keep.value} kept"


@tries_parameters
def reduction(fusion: Fusion, config: RowConfig | None = None, *, sizes: Mapping[str, int] | None = None, sms: int = SMS) -> RowSchedule:
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
        raise unsupported(fusion, f"a row is walked over {phases.count} times", "tf.schedulers.normalization takes such fusions")
    return schedule("reduction", fusion, space, phases, config, sizes, sms)


def schedule(name: str, fusion: Fusion, space: Space, phases: Phases, config: RowConfig | None, sizes: Mapping[str, int] | None, sms: int) -> RowSchedule:
    """Choose the parameters, unless they are given, and make the calls."""
    problem = _problem(fusion, space, phases, Sizes(fusion, sizes), sms)
    alternatives = tuple(rank(problem))
    chosen = alternatives[0].config if config is None else config
    check(fusion, space, chosen)
    expected = estimate(problem, chosen)
    _try(fusion, chosen)
    script = Script(fusion)
    Rows(script, fusion, space, chosen, expected.residents).apply()
    return RowSchedule(name, chosen, problem, expected, alternatives, config is not None, script.text)


def _try(fusion: Fusion, config: RowConfig) -> None:
    """Schedule and lower a copy: what the form of the space does not show (reads through views) is found here, before anything has changed."""
    copy, _ = copy_fusion(fusion)
    try:
        Rows(Script(copy), copy, find(copy), config).apply()
        lower(copy)
    except (LoweringError, ScheduleError) as error:
        raise unsupported(fusion, str(error).split("\n", 1)[0], "leave what is at fault to a fusion of its own") from error


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
