"""Random cases: a fusion with tasks, groups and a schedule, and arguments for it."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.errors import LoweringError, ScheduleError, TaskError, TaskfuseError, UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import evaluate
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel
from taskfuse.lowering import LoweringOptions, lower
from taskfuse.testing import partitions
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.graphs import Graph
from taskfuse.testing.options import CaseOptions
from taskfuse.testing.program import Program, Recorder
from taskfuse.testing.schedules import Scheduler

Array = NDArray[Any]
REPAIRS = 6


@dataclass(frozen=True, slots=True)
class Case:
    """A fusion and arguments for it.

    Attributes:
        program: the calls that made the fusion.
        math: the first of them, which made the unscheduled fusion.
        sizes: the value of each symbolic dimension.
        seed: picks the arguments, the orders and the interleavings that checks use.
        fusion: the fusion.
        kernel: its kernel; ``None`` if it does not lower.
        refusal: why it does not lower.
        made, refused: how often each call was made, and refused, while the case was generated.
        options: what the case was made by.
    """

    program: Program
    math: Program
    sizes: dict[str, int]
    seed: int
    fusion: Fusion
    kernel: Kernel | None
    refusal: TaskfuseError | None
    options: CaseOptions
    made: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])

    def arguments(self) -> list[Array | int | float]:
        """Inputs and run-time scalars: small integers and, unless the case is exact, fractions; random words stand for them in the ring."""
        rng = np.random.default_rng(self.seed)
        found: list[Array | int | float] = []
        for tv in self.fusion.inputs:
            shape = tuple(int(evaluate(e, self.sizes)) for e in tv.shape)
            if tv.dtype.is_bool:
                array: Array = rng.integers(0, 2, shape).astype(np.bool_)
            elif tv.dtype.is_float and not self.options.exact:
                array = rng.integers(-32, 33, shape) / 16
            else:
                array = rng.integers(0 if tv.dtype.min_value == 0 else -3, 4, shape)
            found.append(_restrided(rng, np.asarray(array).astype(tv.dtype.numpy)))
        return found + [2.5 if s.dtype.is_float and not self.options.exact else 3 for s in self.fusion.scalars]

    def report(self) -> str:
        """The case as a short program, its arguments in words."""
        shapes = ", ".join(f"{k} = {v}" for k, v in self.sizes.items())
        return f"{self.program.source()}# sizes: {shapes or 'static'}; arguments: case seed {self.seed}\n"


def _restrided(rng: np.random.Generator, array: Array) -> Array:
    """Equal elements, at times with negative or permuted strides."""
    match rng.integers(0, 6):
        case 0 if array.ndim:
            return array[::-1].copy()[::-1]
        case 1 if array.ndim > 1:
            return array.T.copy().T
        case _:
            return array


def random_case(chooser: Chooser, options: CaseOptions | None = None) -> Case:
    """A case from the answers of ``chooser``; the same answers give the same case.

    Most cases lower. Calls that taskfuse refuses are left out of the program; where the whole schedule is refused at lowering, memory types
    and inline positions of the tensor at fault are changed, a few times. A case that still does not lower has ``refusal`` set.

    Raises:
        Exception: anything but a refusal that taskfuse raises on the way is a bug of it.
    """
    options = options or CaseOptions()
    recorder = Recorder()
    graph = Graph(chooser, options, recorder)
    graph.grow()
    return _schedule(chooser, options, recorder, graph.sizes)


def reschedule(case: Case, chooser: Chooser) -> Case:
    """The math of ``case`` with other tasks, groups and schedule: results must be the same."""
    recorder = Recorder.replay(case.math)
    return _schedule(chooser, case.options, recorder, case.sizes, case.seed)


def _schedule(chooser: Chooser, options: CaseOptions, recorder: Recorder, sizes: dict[str, int], seed: int | None = None) -> Case:
    math = recorder.program()
    scheduler = Scheduler(chooser, options, recorder, lambda e: int(evaluate(e, sizes)))
    early = chooser.chance(50)
    if early:
        scheduler.cache()
        scheduler.rfactor()
    found = partitions.partition(chooser, options, recorder)
    if not early:
        scheduler.cache()
        scheduler.rfactor()
    scheduler.loops()
    first = chooser.chance(50)
    if first:
        partitions.parallelize(chooser, options, recorder, found)
    scheduler.inline()
    if not first:
        partitions.parallelize(chooser, options, recorder, found)
    scheduler.rings()
    scheduler.memory()
    kernel, refusal = _lowered(recorder)
    if kernel is not None:
        refusal = _too_large(kernel, options, sizes)
    program = recorder.program()
    chosen = zlib.crc32(program.source().encode()) if seed is None else seed
    return Case(program, math, sizes, chosen, recorder.fusion, None if refusal else kernel, refusal, options, recorder.made, recorder.refused)


def _lowered(recorder: Recorder) -> tuple[Kernel | None, TaskfuseError | None]:
    """The kernel, after repairs: the tensor at fault goes to Shared, then to Global memory, then shares no loops."""
    fusion = recorder.fusion
    tried: Counter[str] = Counter()
    while True:
        try:
            return lower(fusion, LoweringOptions(verify=False)), None
        except (ScheduleError, TaskError, UnsupportedError) as error:
            return None, error
        except LoweringError as error:
            name = str(error.fields["what"]).removesuffix(".b")
            at_fault = next((tv for tv in fusion.tensors() if tv.name == name), None)
            if at_fault is None or sum(tried.values()) >= REPAIRS or tried[name] > 2:
                return None, error
            step = tried[name]
            tried[name] += 1
            match step:
                case 0:
                    recorder.attempt(at_fault, "set_memory_type", MemoryType.Shared)
                case 1:
                    recorder.attempt(at_fault, "set_memory_type", MemoryType.Global)
                case _:
                    recorder.attempt(at_fault, "inline_at", 0)


def _too_large(kernel: Kernel, options: CaseOptions, sizes: dict[str, int]) -> TaskfuseError | None:
    counts: list[int] = []
    for shape in (kernel.block, kernel.grid):
        total = 1
        for e in shape:
            total *= int(evaluate(e, sizes))
        counts.append(total)
    if counts[0] > options.threads or counts[1] > options.blocks:
        return LoweringError(what=kernel.name, reason=f"{counts[0]} threads and {counts[1]} blocks are more than the options allow")
    return None
