"""``python -m taskfuse.testing.soundness``: compares the static proof with the simulator, on random fusions and on mutants of their kernels.

The tool plants mistakes in each kernel's synchronization and in its values, and changes its definitions: then these say what it must compute. A proved
kernel must give NumPy's modular values, or those of the changed definitions, under every tested interleaving and at several extents, and the second
machine (:mod:`taskfuse.testing.machine`) must find no fault; otherwise the kernel is a **contradiction**. A kernel that is proved only at the extents of
its case is tested only there. Kernels that are not proved are counted by the layer of the unproved obligation. Launches that decide nothing are counted by
kind (:mod:`taskfuse.testing.launches`), and so are proved kernels of which no launch decided anything. An error of the checker, of the reference or of the
second machine is a failure of the campaign.

``--log FILE`` keeps a line per kernel, ``--resume`` continues after them, ``--jobs J`` runs J processes.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.scalar import TableIndexError
from taskfuse.ir.values import MODULAR
from taskfuse.kir import Kernel, to_text
from taskfuse.kir.declarations import TensorMapParam, TensorParam
from taskfuse.kir.meaning import meaning
from taskfuse.kir.point_values import UndefinedElementError
from taskfuse.sim import Interleaving
from taskfuse.testing.agreement import pattern
from taskfuse.testing.campaign import parser, run
from taskfuse.testing.case import Case, seeded_case
from taskfuse.testing.checks import CaseProof, CaseStanding, proof
from taskfuse.testing.definition_operators import DEFINITION_OPERATORS, DTYPES_OF_DEFINITIONS
from taskfuse.testing.launches import Ending, Launches, NoVerdict, Oracle, count, fails, is_idle, key, table
from taskfuse.testing.machine import find_fault
from taskfuse.testing.mutations import Mutants, Operator
from taskfuse.testing.operators import OPERATORS
from taskfuse.testing.options import Mix
from taskfuse.testing.outcomes import MOST, is_valid, other_words
from taskfuse.testing.value_operators import VALUE_OPERATORS

STEPS = 30_000
"""Limit of loop iterations on the second machine."""
EXTENTS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16)
PLACES = 32
"""One in this many mutants of an operator is tested."""
UNCHANGED = "unchanged"


def _outputs(kernel: Kernel) -> Mutants:
    """A tensor without storage of its own is an output, too, which nothing stores."""
    names = {s.name for s in (*kernel.buffers, *kernel.params)}
    maps = tuple(p for p in kernel.params if isinstance(p, TensorMapParam))
    for d in kernel.definitions:
        if d.tensor not in names:
            yield replace(kernel, params=(*(p for p in kernel.params if p not in maps), TensorParam(d.tensor, d.dtype, d.shape, is_output=True), *maps))


RESPECIFIED = (*(Operator(op.name, op.apply) for op in (*DEFINITION_OPERATORS, DTYPES_OF_DEFINITIONS)), Operator("another output", _outputs))
KINDS = (("order", OPERATORS), ("values", VALUE_OPERATORS), ("definitions", RESPECIFIED))


@dataclass(frozen=True, slots=True)
class SoundnessRow:
    """The result for a kernel.

    Attributes:
        seed, number: seed of the case, and number of the mutant; 0: the kernel itself.
        mix: the mix of the case's options.
        kind: ``kernel``, or the kind of mistake or change; operator: the mistake.
        said: the verdict of the proof; gap: the unproved obligation with its layer, without names and numbers.
        launches: the launches of a proved kernel by oracle and ending.
        failure: how a proved kernel misbehaves; error: how the checker or an oracle fails.
    """

    seed: int
    number: int
    mix: str
    kind: str
    operator: str
    said: str
    gap: str = ""
    launches: Mapping[str, int] = field(default_factory=dict[str, int])
    failure: str = ""
    error: str = ""


def kernels(case: Case, mutants: int, chance: random.Random) -> Iterator[tuple[str, str, Kernel]]:
    """The kernel of a case and mutants of it, by kind and operator: mistakes in synchronization and in values, and other definitions,
    in turn, each by another operator."""
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
            yield kind, found[0], replace(found[1], written=()) if kind == "definitions" else found[1]


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
    """Launches of a proved kernel: how they ended, how the kernel misbehaves in one of them (empty: it does not), and how an oracle fails."""

    launches: Launches = field(default_factory=Launches)
    failure: str = ""
    error: str = ""


def contradiction(cases: Sequence[Case], kernel: Kernel, interleavings: int, seed: int, most: int = MOST) -> Compared:
    """Run a proved kernel, at most ``most`` steps of the simulator per launch."""
    done = Compared()
    for sized in cases:
        try:
            found = _compared(sized, kernel, interleavings, seed, most, done.launches)
        except Exception as error:
            done.launches[key(Oracle.SIMULATOR, Ending.RAISES)] += 1
            done.error = f"sizes {sized.sizes}: {fails('the reference', error)}"
            return done
        try:
            fault = None if found else find_fault(kernel, [sized.sizes], 1, STEPS, done.launches)
        except Exception as error:
            done.launches[key(Oracle.MACHINE, Ending.RAISES)] += 1
            done.error = f"sizes {sized.sizes}: {fails(Oracle.MACHINE.value, error)}"
            return done
        if found or fault is not None:
            done.failure = f"sizes {sized.sizes}{found or f': {fault}'}"
            return done
    return done


def _compared(sized: Case, kernel: Kernel, interleavings: int, seed: int, most: int, launches: Launches) -> str:
    """How the kernel's words differ from those of the reference at some sizes; empty: they do not."""
    arguments = sized.arguments()
    try:
        plain = sized.kernel
        same = plain is not None and (kernel.definitions, kernel.outputs) == (plain.definitions, plain.outputs)
        wanted = evaluate(sized.plain, arguments, MODULAR) if same else meaning(kernel, arguments, sized.sizes)
    except (UndefinedElementError, TableIndexError) as error:
        return f": definitions without a value: {error}"
    kinds = tuple(Interleaving)
    for k in range(interleavings):
        interleaving = kinds[(seed + launches.total()) % len(kinds)]
        try:
            found = other_words(kernel, arguments, wanted, seed + k, interleaving, most=most)
        except NoVerdict as undecided:
            launches[key(Oracle.SIMULATOR, undecided.ending)] += 1
            continue
        launches[key(Oracle.SIMULATOR, Ending.DECIDED)] += 1
        if found is not None:
            return f", {interleaving.value}: {found}"
    return ""


def look(mix: Mix, mutants: int, sizes: int, interleavings: int, seed: int) -> list[SoundnessRow]:
    """Run the proof and the simulator on the kernel of a case and on its mutants."""
    chance = random.Random(seed)
    case = seeded_case(seed, mix)
    if case.kernel is None:
        return []
    cases = [case, *(resized(case, chance) for _ in range(sizes - 1) if case.sizes)]
    made: list[SoundnessRow] = []
    for number, (kind, operator, kernel) in enumerate(kernels(case, mutants, chance)):
        done = Compared()
        try:
            found = proof(kernel, case.sizes)
        except Exception as error:
            done.error = fails("the checker", error)
            found = CaseProof(CaseStanding.OUTSIDE, done.error)
        if found.standing is not CaseStanding.OUTSIDE:
            done = contradiction(cases if found.standing is CaseStanding.PROVED else [case], kernel, interleavings, seed)
        said = "" if found.standing is None else found.standing.value
        made.append(SoundnessRow(seed, number, mix.kind(seed).value, kind, operator, said, pattern(found.gap), dict(done.launches), done.failure, done.error))
    return made


@dataclass(slots=True)
class SoundnessTally:
    """Counts over rows."""

    said: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    endings: dict[tuple[str, str, str], Launches] = field(default_factory=dict[tuple[str, str, str], Launches])
    idle: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    gaps: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    launches: Launches = field(default_factory=Launches)
    rows: int = 0
    failures: list[SoundnessRow] = field(default_factory=list[SoundnessRow])
    errors: list[SoundnessRow] = field(default_factory=list[SoundnessRow])

    def add(self, row: SoundnessRow) -> bool:
        """Count a kernel."""
        self.rows += 1
        self.launches.update(row.launches)
        at = row.mix, row.kind, row.said
        self.said[at] += 1
        self.endings.setdefault(at, Launches()).update(row.launches)
        is_open = row.said == CaseStanding.OUTSIDE.value
        self.idle[at] += not is_open and is_idle(row.launches)
        if is_open:
            self.gaps[row.kind, row.gap if row.kind == "kernel" else row.gap.partition(":")[0]] += 1
        if row.failure:
            self.failures.append(row)
        if row.error:
            self.errors.append(row)
        return True

    def __str__(self) -> str:
        heads = ("kernels", "not run", *(e.value for e in Ending))
        lines = ["".join(f"{h:>10}" for h in heads)]
        for at, n in sorted(self.said.items()):
            numbers = (n, self.idle[at], *(count(self.endings[at], e) for e in Ending))
            lines.append("".join(f"{k:10}" for k in numbers) + f" {at[0]:12} {at[1]:8} {at[2]}")
        lines += ["", "not proved, by kind and layer; of kernels by what the proof lacks"]
        lines += [f"{n:8} {kind:8} {reason}" for (kind, reason), n in self.gaps.most_common()]
        mutants = sum(n for (_, kind, _), n in self.said.items() if kind != "kernel")
        proved = sum(n for (_, _, said), n in self.said.items() if said != CaseStanding.OUTSIDE.value)
        lines += ["", *table(self.launches), "", f"{self.rows} kernels, {mutants} of them mutants; {proved} are proved"]
        lines.append(f"{self.idle.total()} of these were not run: no launch of theirs decided anything")
        return "\n".join((*lines, f"{len(self.errors)} errors of the checker or an oracle", f"{len(self.failures)} contradictions"))


def _alarm(row: SoundnessRow) -> str:
    at = f"seed {row.seed}, kernel {row.number}, {row.kind}, {row.operator}"
    return f"CONTRADICTION {at}: {row.failure}" if row.failure else f"ERROR {at}: {row.error}" if row.error else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare on the cases of consecutive seeds. Returns the exit status: 1 if a kernel was proved and misbehaves, or a tool failed."""
    line = parser("soundness", "Compare the static proof with the simulator.", cases=100)
    line.add_argument("--mutants", type=int, default=4, metavar="K", help="mutants per kernel (default: 4)")
    line.add_argument("--sizes", type=int, default=2, metavar="Z", help="extents at which proved kernels run (default: 2)")
    line.add_argument("--interleavings", type=int, default=8, metavar="K", help="interleavings at each (default: 8)")
    line.add_argument("--mix", choices=[m.value for m in Mix], default=Mix.SMALL.value, help="what cases are made of (default: small)")
    options = line.parse_args(arguments)
    tally = SoundnessTally()
    each = partial(look, Mix(options.mix), options.mutants, options.sizes, options.interleavings)
    run(SoundnessRow, tally, each, range(options.seed, options.seed + options.cases), options, done=lambda row: row.seed, alarm=_alarm)
    return 1 if tally.failures or tally.errors else 0


if __name__ == "__main__":
    sys.exit(main())
