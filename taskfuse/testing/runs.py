"""``python -m taskfuse.testing.runs``: the PTX of random kernels is run without a GPU (:mod:`taskfuse.testing.ptx.run`), against the simulator.

Kernels whose functions all have one right result give the simulator's results exactly; others stay within the bounds of :mod:`taskfuse.testing.tolerance`.
Cases are, in turn, chains of functions in registers (:mod:`taskfuse.testing.chains`), fusions of narrow floats, and fusions of all mixes. The seed also picks
the variant of the text, and one of the targets that it allows: conversions of older ones are other code.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from math import prod
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.ranges import dense
from taskfuse.cuda.source import emit
from taskfuse.dtypes import bfloat16, float8_e4m3, float8_e5m2, float16, float32
from taskfuse.errors import RegisterError, SimulationError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.evaluate import evaluate_tensors
from taskfuse.ir.expr import Pointwise, reads
from taskfuse.ir.values import NATIVE
from taskfuse.kir import Kernel
from taskfuse.kir.arguments import bind_symbols, integer, wanted
from taskfuse.kir.declarations import IntegerParam, TensorMapParam, TensorParam
from taskfuse.kir.variant import ArgumentLayout, Variant
from taskfuse.sim import simulate
from taskfuse.testing.campaign import parser, run
from taskfuse.testing.case import Case, random_case
from taskfuse.testing.chains import chain
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.options import OPTIONS, CaseOptions, Mix
from taskfuse.testing.ptx.nodes import PtxError
from taskfuse.testing.ptx.run import Argument
from taskfuse.testing.ptx.run import run as run_ptx
from taskfuse.testing.tolerance import Accepted, accepted, is_exact

Array = NDArray[Any]
TARGETS = (80, 89, 90)
"""Compute capabilities, times ten, that kernels are compiled for."""
LARGE = 4_000_000
"""Statements of the simulator, and threads times lines of PTX, above which a case is left out."""
NARROW = (bfloat16, bfloat16, float16, float8_e4m3, float8_e5m2, float32)
_SIGNS = frozenset({ELEMENTWISE["copysign"]})


class KernelSource(Enum):
    """Where kernels come from. ALL: the others in turn."""

    ALL = "all"
    CHAINS = "chains"
    NARROW = "narrow"
    FUSIONS = "fusions"

    def of(self, seed: int) -> KernelSource:
        """The source of a seed's kernel."""
        return (KernelSource.CHAINS, KernelSource.NARROW, KernelSource.FUSIONS)[seed % 3] if self is KernelSource.ALL else self


class End(Enum):
    """How a case ended. UNKNOWN: its PTX has an instruction that the machine does not know."""

    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    LARGE = "large"
    UNDEFINED = "undefined"


@dataclass(frozen=True, slots=True)
class RunRow:
    """The result of a case.

    Attributes:
        source: where it is from; ``mix``: the mix of a fusion.
        end: how it ended.
        exact: whether results must be equal.
        said: what is wrong or unknown.
    """

    seed: int
    source: str
    mix: str
    end: str
    exact: bool
    said: str = ""


def difference(found: Array, wanted: Array) -> str | None:
    """How an array differs from another one; NaNs are equal."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    wrong = np.argwhere((found != wanted) & ~((found != found) & (wanted != wanted)))
    if not len(wrong):
        return None
    at = tuple(int(k) for k in wrong[0])
    return f"{len(wrong)} of {found.size} elements are wrong, the first at {list(at)}: {found[at]}, not {wanted[at]}"


def variant(kernel: Kernel, seed: int) -> Variant:
    """One of the variants of a kernel's text: of dense tensors with narrow integers in half of the cases."""
    rng = Random(seed)
    usual = dense(kernel)
    by_map = {p.tensor for p in kernel.params if isinstance(p, TensorMapParam)}
    tensors = [p for p in kernel.params if isinstance(p, TensorParam)]
    if rng.random() < 0.5:
        return usual
    forms = [ArgumentLayout.DENSE if p.name in by_map or not p.shape else rng.choice([*ArgumentLayout]) for p in tensors]
    return Variant(tuple(forms), wide=rng.random() < 0.3)


def ran(kernel: Kernel, arguments: Sequence[Argument], seed: int = 0) -> tuple[Array, ...]:
    """The results of a kernel's PTX, in the variant, for the target and in the order of threads that a seed picks."""
    source = emit(kernel, variant(kernel, seed))
    targets = [t for t in TARGETS if t >= source.arch]
    target = targets[seed // 7 % len(targets)]
    arch = f"sm_{target}{'a' if target == 90 else ''}"
    return run_ptx(kernel, source, compile_ptx(source.text, source.name, CompileOptions(arch=arch)), arguments, seed=seed)


def mismatch(kernel: Kernel, found: Sequence[Array], simulated: Sequence[Array], bounds: Sequence[Accepted] | None = None) -> str | None:
    """How results differ from the simulator's, or leave what is accepted in their place."""
    for k, (p, a, b) in enumerate(zip(kernel.outputs, found, simulated, strict=True)):
        said = difference(a, b)
        if said is None:
            continue
        if bounds is None:
            return f"{p.name}: {said}"
        if len(wrong := bounds[k].wrong(a)):
            at = tuple(int(i) for i in wrong[0])
            return f"{p.name}: {len(wrong)} of {a.size} elements are wrong, the first at {list(at)}: {a[at]}, not {bounds[k].low[at]} to {bounds[k].high[at]}"
    return None


def fusion_case(seed: int, source: KernelSource) -> tuple[Case, Mix]:
    """The fusion of a seed, with few threads and elements."""
    mix = list(OPTIONS)[seed // 3 % len(OPTIONS)]
    options = OPTIONS[mix]
    small: CaseOptions = replace(options, threads=min(options.threads, 128), blocks=min(options.blocks, 8), elements=min(options.elements, 200))
    if source is KernelSource.NARROW:
        small = replace(small, dtypes=NARROW)
    return random_case(RandomChooser(seed), small), mix


def look(source: KernelSource, seed: int) -> Sequence[RunRow]:
    """Run one case. Returns its row; no row if no kernel is made."""
    kind = source.of(seed)
    case, mix = None, ""
    if kind is KernelSource.CHAINS:
        made = chain(seed)
        kernel, arguments, exact = made.kernel, list[Argument](made.arguments), True
    else:
        case, drawn = fusion_case(seed, kind)
        mix = drawn.value
        if case.kernel is None:
            return ()
        kernel, arguments, exact = case.kernel, case.arguments(), is_exact(case.fusion)

    def row(end: End, said: str = "") -> Sequence[RunRow]:
        return (RunRow(seed, kind.value, mix, end.value, exact, said),)

    if case is not None and _has_signs_of_nan(case, arguments):
        return row(End.UNDEFINED)
    if _threads(kernel, arguments) > LARGE // 100:
        return row(End.LARGE)
    try:
        simulated = simulate(kernel, arguments, seed=seed, max_steps=LARGE)
        found = ran(kernel, arguments, seed)
    except PtxError as error:
        return row(End.UNKNOWN if "not known" in error.what else End.WRONG, str(error))
    except (SimulationError, RegisterError) as error:
        if "steps" in str(error) or isinstance(error, RegisterError):
            return row(End.LARGE)
        raise
    said = mismatch(kernel, found, simulated)
    if said is not None and case is not None and not exact:
        said = mismatch(kernel, found, simulated, accepted(case.fusion, arguments))
    return row(End.RIGHT) if said is None else row(End.WRONG, said)


def _has_signs_of_nan(case: Case, arguments: Sequence[Argument]) -> bool:
    """Whether the fusion takes the sign of a NaN, which is unspecified."""
    found = [e for e in case.fusion.exprs() if isinstance(e, Pointwise) and e.op in _SIGNS]
    if not found:
        return False
    tensors = evaluate_tensors(case.fusion, arguments, NATIVE)
    return any(r.tensor.dtype.is_float and np.isnan(tensors[r.tensor].astype(np.float64)).any() for e in found for r in reads(e))


def _threads(kernel: Kernel, arguments: Sequence[Argument]) -> int:
    """The threads of a launch."""
    given = list(zip(wanted(kernel), arguments, strict=True))
    shapes = {p.name: np.asarray(a).shape for p, a in given if isinstance(p, TensorParam)}
    symbols = bind_symbols(kernel, shapes, {}, {p.name: a for p, a in given if isinstance(p, IntegerParam)})
    return prod(integer(e, symbols) for e in (*kernel.grid, *kernel.block))


@dataclass(slots=True)
class RunTally:
    """Counts over rows."""

    rows: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    unknown: Counter[str] = field(default_factory=Counter[str])
    wrong: list[RunRow] = field(default_factory=list[RunRow])

    def add(self, row: RunRow) -> bool:
        """Count a kernel."""
        self.rows += 1
        self.counts[row.source, f"{row.end}, {'exact' if row.exact else 'within bounds'}"] += 1
        if row.end == End.UNKNOWN.value:
            self.unknown[row.said.partition(": ")[2].partition(";")[0]] += 1
        if row.end == End.WRONG.value:
            self.wrong.append(row)
        return True

    def __str__(self) -> str:
        lines = [f"{n:8} {source:8} {what}" for (source, what), n in sorted(self.counts.items())]
        lines += [f"{n:8} not known: {what}" for what, n in self.unknown.most_common()]
        return "\n".join([*lines, f"{self.rows} kernels, {len(self.wrong)} wrong"])


def _alarm(source: KernelSource, row: RunRow) -> str:
    command = f"python -m taskfuse.testing.runs --kernels {source.value} --seed {row.seed} --cases 1"
    return f"WRONG {command} ({f'{row.source} {row.mix}'.strip()})\n  {row.said}" if row.end == End.WRONG.value else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the kernels of consecutive seeds. Returns the exit status: 1 if results are wrong."""
    line = parser("runs", "Run the PTX of random kernels without a GPU, and compare the results with the simulator.", cases=300)
    line.add_argument("--kernels", choices=[s.value for s in KernelSource], default=KernelSource.ALL.value, help="where they come from (default: all)")
    options = line.parse_args(arguments)
    source = KernelSource(options.kernels)
    tally = RunTally()
    seeds = range(options.seed, options.seed + options.cases)
    run(RunRow, tally, partial(look, source), seeds, options, done=lambda row: row.seed, alarm=partial(_alarm, source))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
