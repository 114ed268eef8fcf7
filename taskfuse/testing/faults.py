"""``python -m taskfuse.testing.faults``: the kill table. The tool plants mistakes in kernels and checks each mutant in three ways.

- **static proof**: ``verify`` refutes it, with a counterexample;
- **exhaustive**: ``explore`` finds an interleaving that fails, in a few small launches;
- **random**: one of the simulator's eight interleavings fails, in the same launches.

Not every mutant is wrong: the barrier may be redundant; the wait may work one statement later, too. A mutant is *equivalent* if it is proved (for all
extents and interleavings), or if it is outside the model of the proof and a complete exploration of every launch finds no failure. All other
mutants that are not refuted are *open*. A mutant that is proved and fails is a bug in the proof: the tool prints it and exits with status 1.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import zip_longest
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from taskfuse.check import Verdict, verify
from taskfuse.dtypes import DTypeKind
from taskfuse.errors import SimulationError
from taskfuse.ir.dims import nearest
from taskfuse.ir.scalar import evaluate
from taskfuse.kir import Kernel, parse_kernel, walk
from taskfuse.kir.declarations import IntegerParam, ScalarParam, TensorParam
from taskfuse.kir.nodes import For
from taskfuse.sim import simulate
from taskfuse.testing.case import seeded_case
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.mutations import Operator
from taskfuse.testing.operators import OPERATORS
from taskfuse.testing.outcomes import LIMITS, Argument, Truth, explored, is_valid, misbehaves
from taskfuse.testing.small import small_kernel

BASES = (1, 3, 9, 27)
"""Approximate extents, in units of each dimension: loops have few trips, but more than stages."""
MOST = 1 << 18
"""Most elements of the tensors of a launch."""


@dataclass(frozen=True, slots=True)
class FaultLaunch:
    """Arguments of a kernel, and their extents."""

    arguments: tuple[Argument, ...]
    extents: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FaultSubject:
    """A kernel to plant mistakes in, and the launches in which its mutants run."""

    name: str
    kernel: Kernel
    launches: tuple[FaultLaunch, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    """The result for a mutant.

    Attributes:
        edit: the first line of its text that differs from the subject's, and the subject's line.
        static: the verdict of the proof; reason: of its first failure.
        exhaustive: the verdict of exploration on all launches.
        random: a random interleaving fails.
    """

    subject: str
    operator: str
    edit: str
    static: Verdict
    reason: str
    exhaustive: Truth
    random: bool

    @property
    def fails(self) -> bool:
        """True if some interleaving fails."""
        return self.exhaustive is Truth.FAILS or self.random

    @property
    def equivalent(self) -> str:
        """The evidence that the mistake is harmless; empty if there is none."""
        if self.fails or self.static is Verdict.REFUTED:
            return ""
        if self.static is Verdict.PROVED:
            return "proved"
        return "explored" if self.exhaustive is Truth.HOLDS else ""

    @property
    def escaped(self) -> bool:
        """True if the mutant is proved and an interleaving fails."""
        return self.static is Verdict.PROVED and self.fails

    def __str__(self) -> str:
        return f"{self.operator}: {self.subject}: {self.edit}"


@dataclass(slots=True)
class FaultTable:
    """The mutants, and the table that ``str`` gives."""

    mutants: list[Mutant] = field(default_factory=list[Mutant])

    @property
    def escaped(self) -> list[Mutant]:
        """Mutants that are proved and fail: bugs in the proof."""
        return [m for m in self.mutants if m.escaped]

    @property
    def open(self) -> list[Mutant]:
        """Mutants that are neither refuted nor equivalent."""
        return [m for m in self.mutants if m.static is Verdict.OUTSIDE and not m.equivalent]

    def __str__(self) -> str:
        lines = [f"{'':34} {'':>7} {'equivalent':>15} {'found by':>26} {'':>7}", f"{'operator':34} mutants  proved explored   static exhaustive random    open"]
        rows = {op.name: [m for m in self.mutants if m.operator == op.name] for op in OPERATORS}
        for name, mine in [*rows.items(), ("all", self.mutants)]:
            equivalent = [m.equivalent for m in mine]
            static = sum(m.static is Verdict.REFUTED for m in mine)
            exhaustive, some = sum(m.exhaustive is Truth.FAILS for m in mine), sum(m.random for m in mine)
            left = sum(m.static is Verdict.OUTSIDE and not m.equivalent for m in mine)
            lines.append(
                f"{name:34} {len(mine):7} {equivalent.count('proved'):7} {equivalent.count('explored'):8}  {static:7} {exhaustive:10} {some:6} {left:7}"
            )
        return "\n".join(lines)

    def lists(self) -> str:
        """A list of the mutants that are not refuted, and of the refuted ones for which no interleaving fails."""
        lines: list[str] = []
        for title, found in (
            ("proved, and an interleaving fails", self.escaped),
            ("open: neither refuted nor equivalent", self.open),
            ("equivalent: explored", [m for m in self.mutants if m.equivalent == "explored"]),
            ("equivalent: proved", [m for m in self.mutants if m.equivalent == "proved"]),
            ("refuted, no interleaving of the launches fails", [m for m in self.mutants if m.static is Verdict.REFUTED and not m.fails]),
        ):
            lines += ["", f"{title} ({len(found)})", *(f"  {m}" + (f" [{m.reason}; {m.exhaustive.value}]" if m.reason else "") for m in found)]
        return "\n".join(lines)


def launches(kernel: Kernel) -> tuple[FaultLaunch, ...]:
    """Small launches with random arguments, without those that have large tensors or that a device would refuse."""
    found: list[FaultLaunch] = []
    for base in BASES if kernel.extents else (0,):
        extents = nearest(kernel.extents, {e.name: (base + k) * e.multiple_of for k, e in enumerate(kernel.extents)})
        if extents is None:
            continue
        shapes = [tuple(int(evaluate(e, extents)) for e in p.shape) for p in kernel.params if isinstance(p, TensorParam)]
        if sum(int(np.prod(s)) for s in shapes) > MOST or extents in [launch.extents for launch in found]:
            continue
        launch = FaultLaunch(_arguments(kernel, extents), extents)
        try:
            simulate(kernel, launch.arguments, extents=extents)
        except SimulationError as error:
            if any(text in str(error) for text in LIMITS):
                continue
            raise
        found.append(launch)
    return tuple(found)


def _arguments(kernel: Kernel, extents: Mapping[str, int]) -> tuple[Argument, ...]:
    rng = np.random.default_rng(0)
    found: list[Argument] = []
    for p in kernel.params:
        if isinstance(p, ScalarParam) or (isinstance(p, TensorParam) and not p.is_output):
            shape = tuple(int(evaluate(e, dict(extents))) for e in p.shape) if isinstance(p, TensorParam) else ()
            values = rng.standard_normal(shape) if p.dtype.kind is DTypeKind.FLOAT else rng.integers(0, 2, shape)
            found.append(np.asarray(values).astype(p.dtype.numpy))
        elif isinstance(p, IntegerParam):
            found.append(extents[p.name])
    return tuple(found)


def subjects(files: Sequence[Path], small: int, cases: int, seed: int) -> Iterator[FaultSubject]:
    """The kernels of files; proved small ones of :mod:`taskfuse.testing.small`; those of random fusions."""
    for path in files:
        kernel = parse_kernel(path.read_text(encoding="utf-8"))
        yield FaultSubject(path.stem, kernel, launches(kernel))
    number = seed
    while small:
        made = small_kernel(RandomChooser(number))
        if verify(made.kernel).verdict is Verdict.PROVED and not any(isinstance(s, For) and s.start is s.stop for s in walk(made.kernel)):
            small -= 1
            yield FaultSubject(f"small {number}", made.kernel, tuple(FaultLaunch(_arguments(made.kernel, e), e) for e in made.extents))
        number += 1
    for k in range(seed, seed + cases):
        case = seeded_case(k)
        if case.kernel is not None:
            yield FaultSubject(f"case {k}", case.kernel, (FaultLaunch(tuple(case.arguments()), dict(case.sizes)),))


def mutants(subject: FaultSubject, op: Operator, most: int, chance: random.Random) -> Iterator[Kernel]:
    """At most ``most`` valid mutants of a subject by one operator."""
    made = [*op.apply(subject.kernel)]
    chance.shuffle(made)
    found = 0
    for mutant in made:
        if found < most and mutant != subject.kernel and is_valid(mutant):
            found += 1
            yield mutant


def judge(subject: FaultSubject, op: Operator, mutant: Kernel, limit: int, rounds: int = 1) -> Mutant:
    """The three verdicts on a mutant: explorations of up to ``limit`` states, ``rounds`` runs under each interleaving."""
    certificate = verify(mutant)
    truth, shown = Truth.HOLDS, False
    for launch in reversed(subject.launches):  # launches with many trips show a failing interleaving sooner
        if truth is not Truth.FAILS:
            now = explored(mutant, launch.arguments, launch.extents, limit)
            truth = now.truth if now.truth is not Truth.HOLDS else truth
        shown = shown or misbehaves(mutant, launch.arguments, launch.extents, rounds) is not None
    failures = certificate.failures
    reason = f"{failures[0].subject}: {failures[0].reason}" if failures else ""
    return Mutant(subject.name, op.name, edit(subject.kernel, mutant), certificate.verdict, reason, truth, shown)


def _judged(task: tuple[FaultSubject, int, int, int, int, int]) -> list[Mutant]:
    """The results for the mutants of one subject by one operator: a work item of :func:`main`."""
    subject, number, seed, most, limit, rounds = task
    op = OPERATORS[number]
    chance = random.Random(f"{seed}:{subject.name}:{op.name}")  # independent of other subjects and operators
    return [judge(subject, op, mutant, limit, rounds) for mutant in mutants(subject, op, most, chance)]


def edit(old: Kernel, new: Kernel) -> str:
    """The first difference of two kernels' texts."""
    for a, b in zip_longest(str(old).split("\n"), str(new).split("\n"), fillvalue="(end)"):
        if a != b:
            return f"{a.strip()}  ->  {b.strip()}"
    return "(notes)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the kill table. Returns the exit status: 1 if a mutant was proved and fails."""
    parser = argparse.ArgumentParser(prog="python -m taskfuse.testing.faults", description="Plant mistakes in kernels and see who finds them.")
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="kernels as text")
    parser.add_argument("--small", type=int, default=20, metavar="N", help="how many small kernels (default: 20)")
    parser.add_argument("--cases", type=int, default=0, metavar="N", help="how many random fusions (default: 0)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed (default: 0)")
    parser.add_argument("--mutants", type=int, default=2, metavar="K", help="most mutants per operator and kernel (default: 2)")
    parser.add_argument("--limit", type=int, default=2000, metavar="K", help="states of an exploration (default: 2000)")
    parser.add_argument("--rounds", type=int, default=1, metavar="R", help="runs under each of the eight interleavings (default: 1)")
    parser.add_argument("--list", action="store_true", help="also list the mutants that are not refuted")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes (default: 1)")
    options = parser.parse_args(arguments)
    table = FaultTable()
    found = list(subjects(options.files, options.small, options.cases, options.seed))
    tasks = [(subject, k, options.seed, options.mutants, options.limit, options.rounds) for subject in found for k in range(len(OPERATORS))]
    with nullcontext() if options.jobs == 1 else ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for (subject, number, *_), judged in zip(tasks, (map if pool is None else pool.map)(_judged, tasks), strict=True):
            if number == 0:
                print(f"{len(table.mutants)} mutants; {subject.name}", file=sys.stderr, flush=True)
            table.mutants += judged
            for mutant in judged:
                if mutant.escaped:
                    print(f"ESCAPED {mutant}", flush=True)
    print(table)
    if options.list:
        print(table.lists())
    return 1 if table.escaped else 0


if __name__ == "__main__":
    sys.exit(main())
