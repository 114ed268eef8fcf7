"""``tf.schedulers.tune``: choosing the parameters of a scheduler by measurement.

The cost model orders the candidates; they are measured in this order until the time is up. The fastest few are then measured again, in
turn. Every time is stored on disk immediately: an interrupted search resumes, and a finished one is free.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from taskfuse.errors import InputError, TaskfuseError, UnsupportedError, shown
from taskfuse.ir.fusion import Fusion, as_fusion
from taskfuse.location import caller
from taskfuse.options import read_options
from taskfuse.runtime.executable import Executable
from taskfuse.runtime.kernel import one_kernel
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.auto import auto
from taskfuse.schedulers.schedule import Chosen, Scheduler
from taskfuse.version import VERSION

SECONDS = 60.0
"""Budget of a search."""
FINALISTS = 3
"""The fastest candidates that are measured again, in turn."""
QUICK, THOROUGH = 5, 20
"""Rounds of a first measurement, and of the last."""


class Timer(Protocol):
    """Measures functions on arrays, in turn: microseconds of each. ``taskfuse.cuda.timing.in_turn`` is one."""

    def __call__(self, calls: Sequence[Executable], args: Sequence[Any], rounds: int) -> list[float]: ...


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate.

    Attributes:
        config: its parameters.
        expected_us: microseconds by the cost model.
        us: microseconds measured; ``None``: it does not run.
        reason: why it does not run.
    """

    config: object
    expected_us: float
    us: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of a search.

    Attributes:
        fusion: a copy of the fusion with the fastest schedule.
        schedule: that schedule.
        trials: the candidates measured, the fastest first, then those that do not run.
        left: candidates not measured within the budget.
    """

    fusion: Fusion
    schedule: Chosen[Any]
    trials: tuple[Trial, ...]
    left: int

    def explain(self, shown: int = 10) -> str:
        """The fastest candidates: measured, and by the cost model."""
        ran = [t for t in self.trials if t.us is not None]
        failed = len(self.trials) - len(ran)
        lines = [f"{self.schedule.scheduler}: {len(ran)} candidates measured, {failed} do not run, {self.left} left out", "", "     us  expected  parameters"]
        lines += [f"{t.us:7.1f}  {t.expected_us:8.1f}  {t.config}" for t in ran[:shown]]
        return "\n".join(lines)


def tune(
    fusion: Fusion,
    *args: Any,
    scheduler: Scheduler = auto,
    configs: Iterable[object] | None = None,
    sizes: Mapping[str, int] | None = None,
    seconds: float = SECONDS,
    fast_math: bool = False,
    progress: Callable[[Trial, int, int], None] | None = None,
    remember: bool = True,
    timer: Timer | None = None,
) -> Tuned:
    """Choose the parameters of ``scheduler`` for ``fusion`` by measuring its candidates on ``args``.

    Args:
        fusion: without a schedule; it is not changed.
        args: arrays on a GPU, and run-time scalars, as for the compiled fusion.
        scheduler: such as ``tf.schedulers.matmul``; by default the one that takes the fusion.
        configs: parameters to measure; ``None``: the scheduler's candidates, the fastest by its cost model first.
        sizes: values of the fusion's dimensions, for the cost model.
        seconds: budget; the candidate in progress at its end is the last. The first is always measured.
        fast_math: see :func:`taskfuse.compile`.
        progress: called with every trial, the number of trials done, and their total.
        remember: store times on disk, beside compiled kernels, and reuse those of the same fusion, shapes, GPU and version.
        timer: the function that measures; ``None``: on the GPU.

    Raises:
        UnsupportedError: the fusion has a schedule, the scheduler does not take it, the arguments are on the host, or no candidate runs.
        InputError: arguments that do not fit.
    """
    if not callable(cast("object", scheduler)):
        raise _error(as_fusion(fusion, "tf.schedulers.tune"), f"scheduler is {shown(scheduler)}", "use one such as tf.schedulers.matmul, or leave it out")
    if configs is not None and not isinstance(cast("object", configs), Iterable):
        raise _error(as_fusion(fusion, "tf.schedulers.tune"), f"configs is {shown(configs)}", "give a list of parameters of the scheduler")
    if as_fusion(fusion, "tf.schedulers.tune").has_schedule:
        raise _error(fusion, "it has a schedule already", "tune a fusion without scheduling calls")
    if timer is None and not _is_on_gpu(args):
        raise _error(fusion, "its arguments are on the host", "pass arrays on a GPU, or a timer")
    base, _ = copy_fusion(fusion)
    chosen = scheduler(base, sizes=sizes)
    expected = {repr(a.config): a.us for a in chosen.alternatives}
    wanted = [a.config for a in chosen.alternatives] if configs is None else list(configs)
    search = _Tuner(fusion, args, scheduler, sizes, fast_math, timer or _on_gpu)
    notes = _Notes(_key(fusion, args, chosen.scheduler, sizes, fast_math, wanted)) if remember else None
    known = {} if notes is None else notes.read()
    start = time.monotonic()
    trials: list[Trial] = []
    for done, config in enumerate(wanted):
        text = repr(config)
        if text not in known:
            if trials and time.monotonic() - start > seconds:
                break
            known[text] = search.measure(config)
            if notes is not None:
                notes.write(known)
        us, reason = known[text]
        trials.append(Trial(config, expected.get(text, float("nan")), us, reason))
        if progress is not None:
            progress(trials[-1], done + 1, len(wanted))
    if not trials:
        raise _error(fusion, "configs= is empty", "leave it out: what the scheduler chooses from is measured then")
    ran = sorted((t for t in trials if t.us is not None), key=_measured)
    failed = [t for t in trials if t.us is None]
    if not ran:
        raise _error(fusion, f"all {len(trials)} candidates fail: {failed[0].reason}", "give other parameters in configs=")
    final = "final"
    if len(ran) > 1 and final not in known:
        again = search.compare([t.config for t in ran[:FINALISTS]])
        ran[:FINALISTS] = sorted((Trial(t.config, t.expected_us, us) for t, us in zip(ran[:FINALISTS], again, strict=True)), key=_measured)
        if notes is not None and len(trials) == len(wanted):
            known.update({repr(t.config): (t.us, "") for t in ran[:FINALISTS]})
            known[final] = (None, "")
            notes.write(known)
    best, _ = copy_fusion(fusion)
    return Tuned(best, scheduler(best, ran[0].config, sizes=sizes), (*ran, *failed), len(wanted) - len(trials))


class _Tuner:
    """Builds and measures candidates."""

    def __init__(self, fusion: Fusion, args: Sequence[Any], scheduler: Scheduler, sizes: Mapping[str, int] | None, fast_math: bool, timer: Timer) -> None:
        self._fusion, self._args, self._scheduler, self._sizes, self._fast_math, self._timer = fusion, args, scheduler, sizes, fast_math, timer
        self._built: dict[str, Executable] = {}

    def measure(self, config: object) -> tuple[float | None, str]:
        """Microseconds, or the reason why it does not run."""
        try:
            (us,) = self._timer([self._build(config)], self._args, QUICK)
        except InputError:
            raise
        except TaskfuseError as error:
            return None, str(error).splitlines()[0]
        return us, ""

    def compare(self, configs: Sequence[object]) -> list[float]:
        """Microseconds of candidates that run, measured in turn."""
        return self._timer([self._build(config) for config in configs], self._args, THOROUGH)

    def _build(self, config: object) -> Executable:
        found = self._built.get(repr(config))
        if found is None:
            fusion, _ = copy_fusion(self._fusion)
            self._scheduler(fusion, config, sizes=self._sizes)
            found = self._built[repr(config)] = one_kernel(fusion, fast_math=self._fast_math)
        return found


class _Notes:
    """Figures on disk, by the text of the parameters."""

    def __init__(self, key: str) -> None:
        from taskfuse.cuda.cache import folder

        self._key = key
        self._disk = folder(read_options())

    def read(self) -> dict[str, tuple[float | None, str]]:
        """The stored figures."""
        content = None if self._disk is None else self._disk.get(self._key)
        return {} if content is None else {name: (us, reason) for name, (us, reason) in json.loads(content).items()}

    def write(self, known: Mapping[str, tuple[float | None, str]]) -> None:
        """Replace the stored figures."""
        from taskfuse.cuda.cache import keep

        if self._disk is not None:
            keep(self._disk, self._key, json.dumps(known).encode())


def _key(fusion: Fusion, args: Sequence[Any], scheduler: str, sizes: Mapping[str, int] | None, fast_math: bool, configs: Sequence[object]) -> str:
    shapes = [[list(a.shape), str(a.dtype)] if hasattr(a, "shape") else type(a).__name__ for a in args]
    parts = ["tuned", VERSION, str(fusion), scheduler, shapes, sorted((sizes or {}).items()), fast_math, [repr(c) for c in configs], _gpu(args)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _gpu(args: Sequence[Any]) -> str:
    """The name of the GPU of the arrays; empty if they are on the host."""
    from taskfuse.cuda.arrays import kinds

    return kinds().driver.device(kinds().device_of(args[0])).name if _is_on_gpu(args) else ""


def _is_on_gpu(args: Sequence[Any]) -> bool:
    from taskfuse.cuda.arrays import is_on_host

    return bool(args) and not is_on_host(args[0])


def _on_gpu(calls: Sequence[Executable], args: Sequence[Any], rounds: int) -> list[float]:
    from taskfuse.cuda.timing import in_turn

    return in_turn(calls, args, rounds)


def _measured(trial: Trial) -> float:
    assert trial.us is not None
    return trial.us


def _error(fusion: Fusion, reason: str, help: str) -> UnsupportedError:
    return UnsupportedError(what=f"a search for a schedule of fusion '{fusion.name}'", reason=reason, help=help, location=caller())
