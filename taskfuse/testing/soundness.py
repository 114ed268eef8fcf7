"""``python -m taskfuse.testing.soundness``: compares the static proof with the simulator, on random fusions and on mutants of their kernels.

The tool plants mistakes in each kernel's synchronization and in its values. A proved kernel must give NumPy's modular values under every tested
interleaving and at several extents, and the second machine (:mod:`taskfuse.testing.machine`) must find no fault; otherwise the kernel is a
**contradiction**. A kernel that is proved only at the extents of its case is tested only there. Kernels that are not proved are counted by the layer of
the unproved obligation. A launch that exceeds the limit of steps decides nothing; it is counted.

``--log FILE`` keeps a line per kernel, ``--resume`` continues after them, ``--jobs J`` runs J processes.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from taskfuse.errors import TaskfuseError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.kir import Kernel, to_text
from taskfuse.sim import Interleaving
from taskfuse.testing.agreement import pattern
from taskfuse.testing.campaign import parser, run
from taskfuse.testing.case import Case, seeded_case
from taskfuse.testing.checks import CaseProof, CaseStanding, proof
from taskfuse.testing.machine import find_fault
from taskfuse.testing.mutations import Operator
from taskfuse.testing.operators import OPERATORS
from taskfuse.testing.options import Mix
from taskfuse.testing.outcomes import MOST, LongRun, is_valid, other_words
from taskfuse.testing.value_operators import VALUE_OPERATORS

STEPS = 30_000
"""Limit of loop iterations on the second machine."""
EXTENTS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16)
PLACES = 32
"""One in this many mutants of an operator is tested."""
UNCHANGED = "unchanged"
CRASH = "the checker fails:"
KINDS = (("order", OPERATORS), ("values", VALUE_OPERATORS))


@dataclass(frozen=True, slots=True)
class SoundnessRow:
    """The result for a kernel.

    Attributes:
        seed, number: seed of the case, and number of the mutant; 0: the kernel itself.
        mix: the mix of the case's options.
        kind: ``kernel``, or the kind of mistake; operator: the mistake.
        said: the verdict of the proof; gap: the unproved obligation with its layer, without names and numbers.
        launches: number of compared launches; long: number of launches that exceeded the limit of steps.
        failure: how a proved kernel misbehaves.
    """

    seed: int
    number: int
    mix: str
    kind: str
    operator: str
    said: str
    gap: str = ""
    launches: int = 0
    failure: str = ""
    long: int = 0


def kernels(case: Case, mutants: int, chance: random.Random) -> Iterator[tuple[str, str, Kernel]]:
    """The kernel of a case and mutants of it, by kind and operator: mistakes in synchronization and in values in turn, each by another operator."""
    kernel = case.kernel
    if kernel is None:
        return
    yield "kernel", UNCHANGED, kernel
    text = to_text(kernel, witness=True)
    kinds = [(kind, iter(chance.sample(operators, len(operators)))) for kind, operators in chance.sample(KINDS, len(KINDS))]
    for k in range(mutants):
        kind, operators = kinds[k % len(kinds)]
        found = next((made for op in operators if (made := _mutant(op, kernel, text, chance)) is not None), None)
        if found is not None:
            yield kind, *found


def _mutant(op: Operator, kernel: Kernel, text: str, chance: random.Random) -> tuple[str, Kernel] | None:
    made = [*islice(op.apply(kernel), PLACES)]
    chance.shuffle(made)
    return next(((op.name, m) for m in made if is_valid(m) and to_text(m, witness=True) != text), None)


def resized(case: Case, chance: random.Random) -> Case:
    """The case at other extents that the kernel's facts allow."""
    assert case.kernel is not None
    sizes = dict(case.sizes)
    for e in case.kernel.extents:
        allowed = [n for n in EXTENTS if e.admits(n, sizes)]
        if allowed:
            sizes[e.name] = chance.choice(allowed)
    return replace(case, sizes=sizes)


@dataclass(slots=True)
class Compared:
    """Launches of a proved kernel: how many were compared, how many were too long, and how the kernel misbehaves in one of them (empty: it does not)."""

    launches: int = 0
    long: int = 0
    failure: str = ""


def contradiction(cases: Sequence[Case], kernel: Kernel, interleavings: int, seed: int, most: int = MOST) -> Compared:
    """Run a proved kernel, at most ``most`` steps of the simulator per launch."""
    done = Compared()
    kinds = tuple(Interleaving)
    for sized in cases:
        try:
            arguments = sized.arguments()
            wanted = evaluate(sized.plain, arguments, MODULAR)
            for k in range(interleavings):
                interleaving = kinds[(seed + done.launches + done.long) % len(kinds)]
                try:
                    found = other_words(kernel, arguments, wanted, seed + k, interleaving, most=most)
                except LongRun:
                    done.long += 1
                    continue
                if found is not None:
                    done.failure = f"sizes {sized.sizes}, {interleaving.value}: {found}"
                    return done
                done.launches += 1
        except TaskfuseError:  # more threads, or more Shared memory, than there are at these extents
            continue
        fault = find_fault(kernel, [sized.sizes], 1, STEPS)
        if fault is not None:
            done.failure = f"sizes {sized.sizes}: {fault}"
            return done
    return done


def look(mix: Mix, mutants: int, sizes: int, interleavings: int, seed: int) -> list[SoundnessRow]:
    """Run the proof and the simulator on the kernel of a case and on its mutants."""
    chance = random.Random(seed)
    case = seeded_case(seed, mix)
    if case.kernel is None:
        return []
    cases = [case, *(resized(case, chance) for _ in range(sizes - 1) if case.sizes)]
    made: list[SoundnessRow] = []
    for number, (kind, operator, kernel) in enumerate(kernels(case, mutants, chance)):
        try:
            found = proof(kernel, case.sizes)
        except Exception as error:
            found = CaseProof(CaseStanding.OUTSIDE, f"{CRASH} {type(error).__name__}: {error}".split("\n")[0])
        done = Compared()
        if found.standing is not CaseStanding.OUTSIDE:
            done = contradiction(cases if found.standing is CaseStanding.PROVED else [case], kernel, interleavings, seed)
        said = "" if found.standing is None else found.standing.value
        made.append(SoundnessRow(seed, number, mix.kind(seed).value, kind, operator, said, pattern(found.gap), done.launches, done.failure, done.long))
    return made


@dataclass(slots=True)
class SoundnessTally:
    """Counts over rows."""

    said: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    gaps: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    launches: int = 0
    long: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    rows: int = 0
    failures: list[SoundnessRow] = field(default_factory=list[SoundnessRow])

    def add(self, row: SoundnessRow) -> bool:
        """Count a kernel."""
        self.rows += 1
        self.launches += row.launches
        self.said[row.mix, row.kind, row.said] += 1
        self.long[row.mix, row.kind, row.said] += row.long
        if row.said == CaseStanding.OUTSIDE.value:
            self.gaps[row.kind, row.gap if row.kind == "kernel" else row.gap.partition(":")[0]] += 1
        if row.failure:
            self.failures.append(row)
        return True

    def __str__(self) -> str:
        lines = [f"{'kernels':>8} {'too long':>8}", *(f"{n:8} {self.long[key]:8} {key[0]:12} {key[1]:8} {key[2]}" for key, n in sorted(self.said.items()))]
        lines += ["", "not proved, by kind and layer; of kernels by what the proof lacks"]
        lines += [f"{n:8} {kind:8} {reason}" for (kind, reason), n in self.gaps.most_common()]
        mutants = sum(n for (_, kind, _), n in self.said.items() if kind != "kernel")
        proved = sum(n for (_, _, said), n in self.said.items() if said != CaseStanding.OUTSIDE.value)
        lines += ["", f"{self.rows} kernels, {mutants} of them mutants; {proved} are proved, and compared in {self.launches} launches"]
        lines += [f"{sum(self.long.values())} launches more took more than {MOST} steps: nothing is known of them"]
        return "\n".join((*lines, f"{len(self.failures)} contradictions"))


def _alarm(row: SoundnessRow) -> str:
    return f"CONTRADICTION seed {row.seed}, kernel {row.number}, {row.kind}, {row.operator}: {row.failure}" if row.failure else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare on the cases of consecutive seeds. Returns the exit status: 1 if a kernel was proved and misbehaves."""
    line = parser("soundness", "Compare the static proof with the simulator.", cases=100)
    line.add_argument("--mutants", type=int, default=4, metavar="K", help="mutants per kernel (default: 4)")
    line.add_argument("--sizes", type=int, default=2, metavar="Z", help="extents at which proved kernels run (default: 2)")
    line.add_argument("--interleavings", type=int, default=8, metavar="K", help="interleavings at each (default: 8)")
    line.add_argument("--mix", choices=[m.value for m in Mix], default=Mix.SMALL.value, help="what cases are made of (default: small)")
    options = line.parse_args(arguments)
    tally = SoundnessTally()
    each = partial(look, Mix(options.mix), options.mutants, options.sizes, options.interleavings)
    run(SoundnessRow, tally, each, range(options.seed, options.seed + options.cases), options, done=lambda row: row.seed, alarm=_alarm)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
