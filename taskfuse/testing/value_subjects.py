"""Subjects for wrong values: kernels of programs and of random fusions, with launches whose results are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.cli.load import load
from taskfuse.errors import TaskfuseError
from taskfuse.ir.dims import Dim, nearest
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.scalar import evaluate as value_of
from taskfuse.ir.values import MODULAR, NATIVE
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorParam
from taskfuse.sim import simulate
from taskfuse.testing.case import Case, fusion_case, seeded_case
from taskfuse.testing.instruction_subjects import INSTRUCTIONS
from taskfuse.testing.options import Mix
from taskfuse.testing.outcomes import Argument, equal

BASES = (2, 41, 9, 1)
"""Approximate extents of a program, in units of each dimension."""
MOST = 1 << 14
"""Most elements of the tensors of a launch."""
STEPS = 400_000
"""Most statements of a launch."""

Results = tuple[NDArray[Any], ...]


@dataclass(frozen=True, slots=True)
class SubjectLaunch:
    """Arguments of a kernel, and the right results.

    Attributes:
        exact: the outputs in modular values.
        native: the outputs of the right kernel on ordinary numbers.
    """

    extents: Mapping[str, int]
    arguments: tuple[Argument, ...]
    exact: Results
    native: Results


@dataclass(frozen=True, slots=True)
class ValueSubject:
    """A right kernel with its witness, and the launches for its mutants; the proof for single extents uses those of the first."""

    name: str
    kernel: Kernel
    launches: tuple[SubjectLaunch, ...]


def names(programs: list[str], cases: int, seed: int) -> list[str]:
    """The names of subjects: programs as ``python -m taskfuse`` takes them, names of :data:`INSTRUCTIONS`, and random cases, of all mixes in turn."""
    return [*programs, *(f"{mix.value} {k}" for k, mix in zip(range(seed, seed + cases), _mixes(), strict=False))]


def _mixes() -> Iterator[Mix]:
    while True:
        yield from Mix


def subjects(name: str) -> Iterator[ValueSubject]:
    """The subjects of a name; none if taskfuse refuses the schedule, or no launch is possible."""
    mix, _, seed = name.partition(" ")
    if seed:
        found = [seeded_case(int(seed), Mix(mix))]
    elif name in INSTRUCTIONS:
        found = [fusion_case(INSTRUCTIONS[name]())]
    else:
        found = [fusion_case(program.required_fusion()) for program in load(name)]
    for case in found:
        if case.kernel is not None:
            launches = tuple(_launches(case, case.kernel))
            if launches:
                yield ValueSubject(name if seed or name in INSTRUCTIONS else f"{name} {case.fusion.name}", case.kernel, launches)


def _launches(case: Case, kernel: Kernel) -> Iterator[SubjectLaunch]:
    """Launches at several extents, each with its own arguments; the case's extents first."""
    sizes = [dict(case.sizes)] if len(case.sizes) == len(kernel.extents) or not kernel.extents else []
    for base in BASES if kernel.extents else ():
        found = nearest(kernel.extents, {e.name: _wanted(e, base + k) for k, e in enumerate(kernel.extents)})
        sizes += [] if found is None else [found]
    seen: list[dict[str, int]] = []
    for extents in sizes:
        if extents not in seen and len(seen) < 3:
            seen.append(extents)
            for seed in range(2):
                launch = _launch(replace(case, sizes=extents, seed=case.seed + seed), kernel)
                if launch is None:
                    seen.pop()
                    break
                yield launch


def _wanted(extent: Dim, base: int) -> int:
    return (base if extent.multiple_of == 1 else min(base, 3)) * extent.multiple_of


def _launch(case: Case, kernel: Kernel) -> SubjectLaunch | None:
    """One launch, if the right kernel's results equal NumPy's."""
    try:
        shapes = [tuple(int(value_of(e, case.sizes)) for e in p.shape) for p in kernel.params if isinstance(p, TensorParam)]
        if sum(int(np.prod(s)) for s in shapes) > MOST:
            return None
        arguments = tuple(case.arguments())
        exact = evaluate(case.plain, arguments, MODULAR)
        found = simulate(kernel, arguments, values=MODULAR, extents=case.sizes, max_steps=STEPS)
        native = simulate(kernel, arguments, values=NATIVE, extents=case.sizes, max_steps=STEPS)
    except (TaskfuseError, ZeroDivisionError):
        return None
    return SubjectLaunch(dict(case.sizes), arguments, exact, native) if equal(found, exact) else None
