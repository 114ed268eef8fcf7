"""Executables of automatic schedules: their kernels are compiled, proved and counted, or come from the cache of decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from taskfuse.count import Count, count
from taskfuse.errors import UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import sym
from taskfuse.runtime.chain import Chain, Link
from taskfuse.runtime.decision_cache import DecisionCache
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import CompiledKernel, Maker
from taskfuse.runtime.progress import Progress
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.alpha_equivalence import form
from taskfuse.schedulers.budget import SECONDS, Budget, Work
from taskfuse.schedulers.candidates import failure, result, tried
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import Target

if TYPE_CHECKING:
    from taskfuse.schedulers.schedule import Schedule


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
        with Progress(f"tf.compile of '{fusion.name}'") as progress:
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
    alike: dict[str, tuple[Executable, Count | None]] = {}

    def trial(scheduled: Fusion, schedule: Schedule) -> Count | None:
        progress(f"{len(runs)} schedules tried, {len(alike)} kernels of segments")
        is_segment = scheduled.name != fusion.name  # the arguments of the whole have the names that the user gave them
        key = result(lambda: form(scheduled).text, None, "no form up to names", []) if is_segment else None
        known = None if key is None else alike.get(key)
        if known is None:
            budget.spend(Work.MADE, len(scheduled.tensors()))
            run = make(scheduled, schedule=schedule)
            extents = assumed(scheduled, sizes, target)
            check_open(run, scheduled, extents)
            made = result(lambda: count(run.kernel, extents, target), None, "no count", [])
            known = run, made  # what cannot be counted is proved all the same
            if key is not None:
                alike[key] = known
        runs[scheduled, scheduled.name], counted = run, _ = known
        if code.refuses and (reason := code.refusal(run)) is not None:
            raise UnsupportedError(what=f"machine code of kernel '{scheduled.name}'", reason=reason)
        return counted

    while True:
        if known is None or any(tried(trial, step.fusion, step.schedule).refused for step in known.steps):
            known = choose_segments(fusion, sizes=sizes, target=target, trial=trial, budget=budget)
        found = known
        made = [runs[step.fusion, step.fusion.name] for step in found.steps]
        if code.suits(made):
            break
        known, budget = None, begin()
    for step, run in zip(found.steps, made, strict=True):
        run.schedule = step.schedule
    if not found.is_segmented:
        return make.in_place(made[0])
    whole = fusion if found.whole_fusion is None else found.whole_fusion
    return Chain(copy_fusion(whole)[0], [Link(run, step.arguments, step.outputs) for step, run in zip(found.steps, made, strict=True)], found)


class _MachineCode:
    """Which kernels a GPU runs that is there, or asked for: the compiler takes them, and they fit it."""

    def __init__(self, make: Maker) -> None:
        self._make = make
        self._reasons: dict[Executable, str | None] = {}

    @property
    def refuses(self) -> bool:
        """Whether the compiler or the GPU rejects a kernel."""
        return any(self._reasons.values())

    def suits(self, runs: Iterable[Executable]) -> bool:
        """Whether all kernels are accepted; several are compiled in parallel."""
        new = [run for run in dict.fromkeys(runs) if run not in self._reasons and isinstance(run, CompiledKernel) and run.is_for_gpu]
        if len(new) > 1:
            from taskfuse.cuda.fit import compile_ahead  # only who has a GPU pays for its import

            compile_ahead([run.kernel for run in new], self._make.options.target, self._make.arch, self._make.fast_math)
        for run in new:
            self._reasons[run] = failure(partial(run.check_code, self._make.options.target))
            if self._reasons[run] is not None:
                return False
        return True

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
