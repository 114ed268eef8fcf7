"""Executables of automatic schedules: their kernels are compiled, proved and counted, or come from the cache of decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from taskfuse.collector import SEARCH
from taskfuse.count import Count, count
from taskfuse.errors import UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import sym
from taskfuse.ir.written import as_written
from taskfuse.runtime.chain import Chain, Link, written_into
from taskfuse.runtime.decision_cache import DecisionCache
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import CompiledKernel, Maker
from taskfuse.runtime.progress import Progress
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.alpha_equivalence import form
from taskfuse.schedulers.beside import SCHEDULER as SIDE_BY_SIDE
from taskfuse.schedulers.budget import SECONDS, Budget, Work
from taskfuse.schedulers.candidates import MOST_PARAMETERS, failure, result, tried
from taskfuse.schedulers.schedule import Scheduler, Sizes, expendable
from taskfuse.schedulers.segmentation import Segmentation, SegmentStep
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import Target

if TYPE_CHECKING:
    from taskfuse.cuda.fit import Ahead
    from taskfuse.schedulers.schedule import Schedule

LOSS = 1.25
"""How many times as long a kernel is taken to take whose registers spill, whose arrays are in local memory, or whose products wait for their registers, which
no cost model expects."""
SPILLED = 32
"""Bytes of registers that a thread may spill, or have in arrays in local memory: a store and a load of a few values are not worth other parameters."""


def auto_scheduled(
    fusion: Fusion,
    make: Maker,
    *,
    sizes: Mapping[str, int] | None,
    target: Target,
    budget: float = SECONDS,
    known: Segmentation | None = None,
) -> Executable:
    """The executable of an automatic schedule of ``fusion``, all of whose kernels are proved: the cached one, if there is one.

    Args:
        known: a schedule to try first, if given; it is taken if its kernels are proved.
        make: makes the kernels.

    Raises:
        UnsupportedError: see :func:`taskfuse.schedulers.segmenter.choose_segments`.
    """
    Sizes(fusion, sizes, target)  # what cannot be sizes is an error, also where the decision is known
    memory = DecisionCache(fusion, make, "automatic", sorted((sizes or {}).items()), target, budget)
    run = memory.recall()
    if run is None:
        with SEARCH, Progress(f"tf.compile of '{fusion.name}'") as progress:
            run = _searched(fusion, make, sizes, target, partial(Budget, budget, tensors=len(fusion.tensors())), known, progress)
        memory.keep(run)
    return run


def _searched(
    fusion: Fusion,
    make: Maker,
    sizes: Mapping[str, int] | None,
    target: Target,
    begin: Callable[[], Budget],
    known: Segmentation | None,
    progress: Callable[[str], None],
) -> Executable:
    """The executable of the schedule that a search finds. Machine code is made of its kernels alone; if one is refused, the search is repeated without it, and
    each kernel compiled when it is made."""
    budget = begin()
    code = _MachineCode(make)
    runs: dict[tuple[Fusion, str], Executable] = {}
    alike: dict[str | None, tuple[Executable, Count | None]] = {}
    wholes: list[tuple[Fusion, tuple[Executable, Count | None]]] = []

    def key_of(scheduled: Fusion) -> str | None:
        return result(lambda: form(scheduled).text, None, "no form up to names", [])

    def trial(scheduled: Fusion, schedule: Schedule) -> Count | None:
        progress(f"{len(runs)} schedules tried, {len(alike)} kernels of segments")
        is_segment = scheduled.name != fusion.name  # the arguments of the whole have the names that the user gave them
        while is_segment and wholes:  # a segment may be all of it
            other, made = wholes.pop()
            alike[key_of(other)] = made
        key = key_of(scheduled) if is_segment else None
        known = None if key is None else alike.get(key)
        if known is None:
            budget.spend(Work.JOINED if schedule.scheduler == SIDE_BY_SIDE else Work.MADE, len(scheduled.tensors()))
            run = make(scheduled, schedule=schedule)
            extents = assumed(scheduled, sizes, target)
            check_open(run, scheduled, extents)
            counted = result(lambda: count(run.kernel, extents, target), None, "no count", [])
            code.begin(run)
            known = run, counted  # what cannot be counted is proved all the same
            if key is not None:
                alike[key] = known
            if not is_segment:
                wholes.append((scheduled, known))
        runs[scheduled, scheduled.name], counted = run, _ = known
        if code.refuses and (reason := code.refusal(run)) is not None:
            raise UnsupportedError(what=f"machine code of kernel '{scheduled.name}'", reason=reason)
        return counted

    try:
        while True:
            if known is None or any(tried(trial, step.fusion, step.schedule).refused for step in known.steps):
                known = choose_segments(fusion, sizes=sizes, target=target, trial=trial, budget=budget)
            pairs = [(step, runs[step.fusion, step.fusion.name]) for step in known.steps]
            code.compile_ahead(run for _, run in pairs)
            pairs = [code.keeping_registers(step, run, sizes, target) for step, run in pairs]
            found = replace(known, steps=tuple(step for step, _ in pairs))
            made = [run for _, run in pairs]
            if code.suits(made):
                break
            known, budget = None, begin()
    finally:
        code.end()
    for step, run in zip(found.steps, made, strict=True):
        run.schedule = step.schedule
    if not found.is_segmented:
        inputs, outputs = [[tv.name for tv in tensors] for tensors in (fusion.inputs, fusion.outputs)]
        return make.in_place(made[0], [(outputs.index(output), inputs.index(source)) for output, source in make.into])
    whole = copy_fusion(fusion if found.whole_fusion is None else found.whole_fusion)[0]
    links = [Link(run, step.arguments, step.outputs) for step, run in zip(found.steps, made, strict=True)]
    places = written_into(whole, links, make.into)
    writing: dict[tuple[Executable, tuple[tuple[int, int], ...]], Executable] = {}
    for link, into in zip(links, places, strict=True):
        if (link.run, into) not in writing:  # segments that differ only in names share a kernel
            writing[link.run, into] = make.in_place(link.run, into)
    return Chain(whole, [link._replace(run=writing[link.run, into]) for link, into in zip(links, places, strict=True)], found)


class _MachineCode:
    """Which kernels a GPU runs that is there, or asked for: the compiler takes them, and they fit it."""

    def __init__(self, make: Maker) -> None:
        self._make = make
        self._reasons: dict[Executable, str | None] = {}
        self._lost: dict[Executable, float] = {}
        self._kept: dict[tuple[Fusion, tuple[str, ...], tuple[str, ...]], tuple[SegmentStep, Executable]] = {}
        self._ahead: Ahead | None = None

    @property
    def refuses(self) -> bool:
        """Whether the compiler or the GPU rejects a kernel."""
        return any(self._reasons.values())

    def begin(self, run: Executable) -> None:
        """Have a kernel compiled while the search goes on: most that it makes are taken."""
        for new in self._new([run]):
            if self._ahead is None:
                from taskfuse.cuda.fit import Ahead  # only who has a GPU pays for its import

                self._ahead = Ahead(self._make.options.target, self._make.arch, self._make.fast_math)
            self._ahead.begin(new.interface)

    def compile_ahead(self, runs: Iterable[Executable]) -> None:
        """Compile the kernels that were chosen in parallel, and no others."""
        if self._ahead is not None:
            self._ahead.keep([run.interface for run in self._new(runs)])

    def end(self) -> None:
        """Compile nothing more."""
        if self._ahead is not None:
            self._ahead.end()

    def suits(self, runs: Iterable[Executable]) -> bool:
        """Whether all kernels are accepted."""
        for run in self._new(runs):
            self._reasons[run] = failure(partial(run.check_code, self._make.options.target))
            if self._reasons[run] is not None:
                return False
        return True

    def keeping_registers(self, step: SegmentStep, run: Executable, sizes: Mapping[str, int] | None, target: Target) -> tuple[SegmentStep, Executable]:
        """A step and its kernel, or those with other parameters of its scheduler if the kernel spills registers, has arrays in local memory, or the compiler
        serializes its products: the first parameters that avoid it and whose expected time is at most :data:`LOSS` times as long; if none do, those that lose
        least."""
        own = step.fusion, step.arguments, step.outputs  # not the kernel: segments that differ only in names share it
        if own not in self._kept:
            lost = self._lost_registers(run)
            self._kept[own] = step, run
            for other in self._others(step, sizes, target) if lost > SPILLED else ():
                if (less := self._lost_registers(other[1])) < lost:
                    self._kept[own], lost = other, less
                if lost <= SPILLED:
                    break
        return self._kept[own]

    def _others(self, step: SegmentStep, sizes: Mapping[str, int] | None, target: Target) -> Iterator[tuple[SegmentStep, Executable]]:
        """A step with other parameters whose kernels are proved and taken; the fastest by the cost model first."""
        chosen, scheduler = step.schedule, step.scheduler
        if scheduler is None:
            return
        better = [o for o in chosen.alternatives if o.config != chosen.config and o.us <= LOSS * chosen.us]
        for option in better[:MOST_PARAMETERS]:
            fusion = as_written(step.fusion)
            if fusion is None:
                return
            found = result(partial(self._with, replace(step, fusion=fusion), scheduler, option.config, sizes, target), None, "no kernel", [])
            if found is not None and self.suits([found[1]]):
                yield found

    def _with(self, step: SegmentStep, scheduler: Scheduler, config: object, sizes: Mapping[str, int] | None, target: Target) -> tuple[SegmentStep, Executable]:
        """A step whose fusion has no schedule, scheduled with some parameters, and its kernel."""
        extents = {name: size for name, size in (sizes or {}).items() if name in step.fusion.dims}
        schedule = replace(expendable(scheduler)(step.fusion, config, sizes=extents, target=target), given=False)
        run = self._make(step.fusion, schedule=schedule)
        check_open(run, step.fusion, assumed(step.fusion, extents, target))
        return replace(step, schedule=schedule), run

    def _lost_registers(self, run: Executable) -> float:
        if not isinstance(run, CompiledKernel) or not run.is_for_gpu:
            return 0.0
        if run not in self._lost:  # segments that differ only in names share a kernel
            self._lost[run] = result(partial(run.lost_registers, self._make.options.target), 0.0, "no code", [])
        return self._lost[run]

    def _new(self, runs: Iterable[Executable]) -> list[CompiledKernel]:
        """Kernels for GPUs that have not been tried."""
        return [run for run in dict.fromkeys(runs) if run not in self._reasons and isinstance(run, CompiledKernel) and run.is_for_gpu]

    def refusal(self, run: Executable) -> str | None:
        """The reason why a kernel, or an equal one before, is rejected."""
        known = next((reason for other, reason in self._reasons.items() if reason and other.kernels == run.kernels), None)
        if known is None and not self.suits([run]):
            known = self._reasons[run]
        return known


def assumed(part: Fusion, sizes: Mapping[str, int] | None, target: Target) -> dict[str, int]:
    """The extents of a part of a fusion for which its kernel is counted, and proved if it is not proved for all."""
    extent = Sizes(part, {name: size for name, size in (sizes or {}).items() if name in part.dims}, target)
    found = {name: extent(sym(name)) for name in part.dims}
    return {name: d.near(found[name], found) for name, d in part.dims.items()}


def check_open(run: Executable, part: Fusion, extents: Mapping[str, int]) -> None:
    """Check a kernel whose proof is open for all extents at some of them, if it allows these.

    Raises:
        ProofError: it is not proved for them either, so it might never run.
    """
    if all(d.admits(extents[name], extents) for name, d in part.dims.items()):
        run.check_open(extents)


def as_scheduled(fusion: Fusion, make: Maker) -> Executable:
    """The executable of a scheduled fusion: the cached one, if there is one."""
    memory = DecisionCache(fusion, make, "as scheduled")
    run = memory.recall()
    if run is None:
        run = make(fusion)
        memory.keep(run)
    return run
