"""``python -m taskfuse.testing.value_faults``: the kill table of values. The tool plants mistakes in the values of kernels; the proof must not accept a mutant
with wrong results.

The rules of kernel IR may refuse a mutant; otherwise the proof runs for all extents, then for those of the first launch. Then the mutant runs, on
modular values and on ordinary numbers, in launches with known results. A proved mutant with other modular values is a **false accept**: the tool prints
it and exits with status 1. A refused one with equal results may be a false reject, or right only at these extents. A proved mutant with equal modular
values and other ordinary numbers rounds differently. A mutant that reads uninitialized memory must give the same results for any content of it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import Enum
from itertools import zip_longest
from multiprocessing import get_context

from taskfuse.check import Certificate, Layer, Verdict, verify
from taskfuse.errors import TaskfuseError
from taskfuse.ir.values import NATIVE
from taskfuse.kir import Kernel, to_text
from taskfuse.sim import simulate
from taskfuse.testing.launches import NoVerdict
from taskfuse.testing.mutations import Operator
from taskfuse.testing.outcomes import UNWRITTEN, equal, is_valid, other_words
from taskfuse.testing.value_operators import VALUE_OPERATORS
from taskfuse.testing.value_subjects import STEPS, SubjectLaunch, ValueSubject, names, subjects

CRASH = "the checker fails:"


class Said(Enum):
    """The verdict on a mutant. PROVED: for all extents; PROVED_AT: only for those of the first launch."""

    INVALID = "invalid"
    PROVED = "proved"
    PROVED_AT = "proved at"
    REFUTED = "refuted"
    OUTSIDE = "outside"


class Ran(Enum):
    """The result of the launches. ROUNDS: equal modular values, other ordinary numbers. UNDECIDED: a launch
    exceeds the limit of steps, or there is none."""

    EQUAL = "equal"
    ROUNDS = "rounds"
    DIFFERS = "differs"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class ValueMutant:
    """The result for a mutant.

    Attributes:
        edit: the first line of its text, with witness, that differs from the subject's, and the subject's line.
        reason: of the first failure of the proof, with its layer.
        shown: a counterexample names an element and the thread that writes it.
        ran: the result of its launches; not set for an invalid mutant.
    """

    subject: str
    operator: str
    edit: str
    said: Said
    reason: str = ""
    shown: bool = False
    ran: Ran | None = None

    @property
    def proved(self) -> bool:
        """True if proved for all extents or for some."""
        return self.said in (Said.PROVED, Said.PROVED_AT)

    @property
    def escaped(self) -> bool:
        """True if proved and wrong."""
        return self.proved and self.ran is Ran.DIFFERS

    def __str__(self) -> str:
        return f"{self.operator}: {self.subject}: {self.edit}" + (f" [{self.reason}]" if self.reason else "")


@dataclass(slots=True)
class ValueFaultTable:
    """The mutants, and the table that ``str`` gives: by operator, then by subject."""

    mutants: list[ValueMutant] = field(default_factory=list[ValueMutant])

    @property
    def escaped(self) -> list[ValueMutant]:
        """Mutants that are proved and wrong: bugs in the proof."""
        return [m for m in self.mutants if m.escaped]

    def __str__(self) -> str:
        by_operator = [(op.name, [m for m in self.mutants if m.operator == op.name]) for op in VALUE_OPERATORS]
        by_subject = [(name, [m for m in self.mutants if m.subject == name]) for name in dict.fromkeys(m.subject for m in self.mutants)]
        lines: list[str] = []
        for what, rows in (("operator", by_operator), ("subject", by_subject)):
            lines += ([""] if lines else []) + [f"{what:34}" + "".join(f"{c:>11}" for c in _COLUMNS)]
            lines += [f"{name:34}" + "".join(f"{n:11}" for n in _counts(mine)) for name, mine in (*rows, ("all", self.mutants))]
        return "\n".join(lines)

    def lists(self) -> str:
        """A list of the mutants to inspect."""
        lines: list[str] = []
        for title, found in (
            ("proved, and wrong", self.escaped),
            ("the checker fails", [m for m in self.mutants if CRASH in m.reason]),
            ("proved, and rounds otherwise", [m for m in self.mutants if m.proved and m.ran is Ran.ROUNDS]),
            ("refused, and equal in the launches", [m for m in self.mutants if m.said in (Said.REFUTED, Said.OUTSIDE) and m.ran in (Ran.EQUAL, Ran.ROUNDS)]),
            ("outside the model", [m for m in self.mutants if m.said is Said.OUTSIDE and m.ran is Ran.DIFFERS]),
        ):
            lines += ["", f"{title} ({len(found)})", *(f"  {m}" for m in found)]
        return "\n".join(lines)


_COLUMNS = ("mutants", "invalid", "refuted", "outside", "with notes", "equal", "proved", "at", "rounds", "undecided", "escaped")


def _counts(mine: Sequence[ValueMutant]) -> tuple[int, ...]:
    """The columns of a row."""
    said = Counter(m.said for m in mine)
    refused = [m for m in mine if m.said in (Said.REFUTED, Said.OUTSIDE)]
    return (
        len(mine),
        said[Said.INVALID],
        said[Said.REFUTED],
        said[Said.OUTSIDE],
        sum(m.shown for m in refused),
        sum(m.ran in (Ran.EQUAL, Ran.ROUNDS) for m in refused),
        said[Said.PROVED],
        said[Said.PROVED_AT],
        sum(m.proved and m.ran is Ran.ROUNDS for m in mine),
        sum(m.ran is Ran.UNDECIDED for m in mine),
        sum(m.escaped for m in mine),
    )


def mutants(subject: ValueSubject, most: int, seed: int) -> Iterator[tuple[Operator, Kernel]]:
    """A sample of the mutants of a subject: as many operators as possible, each in another place."""
    chance = random.Random(f"{seed}:{subject.name}")
    text = to_text(subject.kernel, witness=True)
    left = {op.name: (op, [*op.apply(subject.kernel)]) for op in VALUE_OPERATORS}
    for _, made in left.values():
        chance.shuffle(made)
    while most and left:
        for name in chance.sample([*left], len(left)):
            op, made = left[name]
            if not most or not made:
                left.pop(name)
                continue
            mutant = made.pop()
            if to_text(mutant, witness=True) != text:
                most -= 1
                yield op, mutant


def judge(subject: ValueSubject, op: Operator, mutant: Kernel) -> ValueMutant:
    """The verdict on a mutant, and the result of its launches."""
    edited = edit(subject.kernel, mutant)
    if not is_valid(mutant):
        return ValueMutant(subject.name, op.name, edited, Said.INVALID)
    said, reason, shown = _proof(subject, mutant)
    return ValueMutant(subject.name, op.name, edited, said, reason, shown, ran(_launches(subject, said), mutant))


def escape(subject: ValueSubject, op: Operator, mutant: Kernel) -> ValueMutant | None:
    """A mutant that is proved and wrong; ``None`` for all others. What the proof refuses is neither run nor searched for a counterexample."""
    said, _ = _asked(subject, mutant) if is_valid(mutant) else (None, None)
    if said is None:
        return None
    found = ValueMutant(subject.name, op.name, edit(subject.kernel, mutant), said, ran=ran(_launches(subject, said), mutant))
    return found if found.escaped else None


def _launches(subject: ValueSubject, said: Said) -> tuple[SubjectLaunch, ...]:
    """Those that a proof is about."""
    first = subject.launches[0].extents
    return tuple(at for at in subject.launches if at.extents == first) if said is Said.PROVED_AT else subject.launches


def _asked(subject: ValueSubject, mutant: Kernel) -> tuple[Said | None, Certificate]:
    """Whether a mutant is proved, for all extents or for those of the first launch; ``None`` if not."""
    certificate = verify(mutant)
    if certificate.is_proved:
        return Said.PROVED, certificate
    if mutant.extents:
        certificate = verify(mutant, subject.launches[0].extents)
    return (Said.PROVED_AT if certificate.is_proved else None), certificate


def _proof(subject: ValueSubject, mutant: Kernel) -> tuple[Said, str, bool]:
    try:
        proved, certificate = _asked(subject, mutant)
        if proved is not None:
            return proved, "", False
        first = certificate.failures[0]
    except TaskfuseError as error:
        return Said.OUTSIDE, f"{CRASH} {type(error).__name__}: {error}".split("\n")[0], False
    except Exception as error:
        return Said.OUTSIDE, f"{CRASH} {type(error).__name__}: {error}".split("\n")[0], False
    said = Said.REFUTED if first.verdict is Verdict.REFUTED else Said.OUTSIDE
    shown = said is Said.REFUTED and first.layer in (Layer.VALUES, Layer.INSTANCE) and bool(first.notes)
    return said, f"{first.layer.value}: {first.subject}: {first.reason}", shown


def ran(launches: Sequence[SubjectLaunch], mutant: Kernel) -> Ran:
    """The result of a mutant in launches."""
    rounds = False
    for seed, launch in enumerate(launches):
        try:
            if other_words(mutant, launch.arguments, launch.exact, seed, extents=launch.extents, most=4 * STEPS) is not None:
                return Ran.DIFFERS
            numbers = simulate(mutant, launch.arguments, values=NATIVE, extents=launch.extents, max_steps=4 * STEPS)
            rounds = rounds or not equal(numbers, launch.native)
        except NoVerdict:
            return Ran.UNDECIDED
        except (TaskfuseError, ZeroDivisionError, IndexError) as error:
            if UNWRITTEN not in str(error):
                return Ran.DIFFERS
    return Ran.ROUNDS if rounds else Ran.EQUAL


def edit(old: Kernel, new: Kernel) -> str:
    """The first difference of two kernels' texts, with witnesses."""
    for a, b in zip_longest(to_text(old, witness=True).split("\n"), to_text(new, witness=True).split("\n"), fillvalue="(end)"):
        if a != b:
            return f"{a.strip()}  ->  {b.strip()}"
    return "(nothing)"


def judged(task: tuple[str, int, int]) -> list[ValueMutant]:
    """The results for the mutants of one name: a work item of :func:`main`. It builds the kernel again, since its text has no witness."""
    name, most, seed = task
    return [judge(subject, op, mutant) for subject in subjects(name) for op, mutant in mutants(subject, most, seed)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the kill table. Returns the exit status: 1 if a mutant was proved and is wrong."""
    parser = argparse.ArgumentParser(prog="python -m taskfuse.testing.value_faults", description="Plant mistakes in what kernels compute.")
    what = "programs that build fusions, as python -m taskfuse takes them, or random cases: 'products 7'"
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=what)
    parser.add_argument("--cases", type=int, default=150, metavar="N", help="how many random fusions (default: 150)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed (default: 0)")
    parser.add_argument("--mutants", type=int, default=24, metavar="K", help="most mutants per kernel (default: 24)")
    parser.add_argument("--seconds", type=float, default=0.0, metavar="T", help="end after so long (default: never)")
    parser.add_argument("--list", action="store_true", help="also list those that one would look at")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes (default: 1)")
    options = parser.parse_args(arguments)
    table = ValueFaultTable()
    start = time.monotonic()
    tasks = [(name, options.mutants, options.seed) for name in names(options.programs, options.cases, options.seed)]
    with nullcontext() if options.jobs == 1 else ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for (name, *_), found in zip(tasks, (map if pool is None else pool.map)(judged, tasks), strict=True):
            print(f"{len(table.mutants)} mutants, {time.monotonic() - start:.0f} s; {name}", file=sys.stderr, flush=True)
            table.mutants += found
            for mutant in found:
                if mutant.escaped:
                    print(f"ESCAPED {mutant}", flush=True)
            if options.seconds and time.monotonic() - start > options.seconds:
                break
    print(table)
    if options.list:
        print(table.lists())
    return 1 if table.escaped else 0


if __name__ == "__main__":
    sys.exit(main())
