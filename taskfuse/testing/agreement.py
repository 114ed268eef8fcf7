"""``python -m taskfuse.testing.agreement``: compares three verdicts on small kernels, half of them mutants: static proof, exhaustive exploration, random
interleavings.

A proved kernel also runs on the second machine (:mod:`taskfuse.testing.machine`); a fault there is a false accept, too.

For bounded trip counts (constants, or ``N`` in 0..4, all explored) the three must agree:

- a kernel that is *proved* and fails under some interleaving is a **false accept**: a bug in the proof;
- one that is *refuted* and holds under every interleaving is a **false reject**, counted by the proof's reason;
- one that is *outside the model* is counted separately, with the verdict of exploration;
- one that holds under every interleaving and fails under a random one is a bug in the exploration.

Runs that decide nothing are counted by kind (:mod:`taskfuse.testing.launches`); an error of the checker or of an oracle is a failure of the campaign.

Kernels that are generated several times are checked once. ``--log FILE`` keeps one line per kernel; ``--resume`` continues after the last. The
logs of several seeds can be concatenated.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from taskfuse.check import Verdict, verify
from taskfuse.ir.scalar import evaluate
from taskfuse.kir import Kernel
from taskfuse.testing.campaign import Log
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.launches import Ending, Launches, Oracle, fails, is_idle, key, table
from taskfuse.testing.machine import find_fault
from taskfuse.testing.operators import OPERATORS
from taskfuse.testing.outcomes import Argument, Explored, Truth, explored, is_valid, misbehaves
from taskfuse.testing.small import Small, small_kernel

UNCHANGED = "unchanged"
UNSEEN = "what is read reaches no output, or is equal, or the threads run in step for an instruction of their whole warp: a race in the model alone"
HARMLESS = (
    ("an arrival of phase", "nobody waits for that phase, or for one after it: with more trips somebody would"),
    ("may complete before a wait", "the parity is ambiguous, but it does no harm at these trip counts which of the two phases the wait saw"),
    ("may pass early", "the parity is ambiguous, but it does no harm at these trip counts which of the two phases the wait saw"),
    ("a write and a write", "threads write equal values: a race in the model, though no result can show it"),
    ("a read and a write", UNSEEN),
    ("a write and a read", UNSEEN),
    ("without FENCE proxy.async", "the threads of a warpgroup run in step for its wgmma, so that all have fenced when one goes on"),
)
"""Why a kernel may be refuted although every interleaving of its launches has the same result: a part of the reason, and its meaning there."""
TWICE = 0.12
"""Share of mutants with two mistakes."""


@dataclass(frozen=True, slots=True)
class AgreementRow:
    """The result for one kernel.

    Attributes:
        seed, case: seed of the run, and number of the kernel in it; they reproduce the kernel.
        kind: the generator; operator: the planted mistake, or ``unchanged``.
        code: a hash of its text.
        static, exhaustive, random: the three verdicts; ``random`` is ``fails``, ``passes`` or ``strict``: an error that the simulator reports,
            though every interleaving ends alike (:data:`STRICT`).
            ``exhaustive`` is empty if exploration failed.
        reason: why the proof fails, without names and numbers; failure: how an interleaving fails.
        fault: the second machine's fault in a proved kernel.
        launches: runs and explorations by ending; error: how the checker or an oracle fails.
    """

    seed: int
    case: int
    kind: str
    operator: str
    code: str
    static: str
    exhaustive: str
    random: str
    reason: str = ""
    failure: str = ""
    fault: str = ""
    launches: Mapping[str, int] = field(default_factory=dict[str, int])
    error: str = ""

    @property
    def false_accept(self) -> bool:
        """Proved, and an interleaving fails, or the second machine finds a fault."""
        return self.static == Verdict.PROVED.value and (self.exhaustive == Truth.FAILS.value or self.random in ("fails", "strict") or bool(self.fault))

    @property
    def false_reject(self) -> bool:
        """Refuted, and every interleaving holds."""
        return self.static == Verdict.REFUTED.value and self.exhaustive == Truth.HOLDS.value and self.random != "fails"

    @property
    def missed(self) -> bool:
        """Every interleaving holds, and a random one fails."""
        return self.exhaustive == Truth.HOLDS.value and self.random == "fails"


def case(seed: int, number: int) -> tuple[Small, str] | None:
    """A kernel of a run, with a planted mistake in every second one; ``None`` if the mutant is not a valid kernel."""
    chance = random.Random(f"{seed}:{number}")
    made = small_kernel(RandomChooser(chance.getrandbits(48)))
    if number % 2 == 0:
        return made, UNCHANGED
    first = mutate(made.kernel, chance)
    if first is None:
        return None
    kernel, name = first
    if chance.random() < TWICE and (second := mutate(kernel, chance)) is not None and second[0] != made.kernel:
        kernel, name = second[0], f"{name}, {second[1]}"
    return Small(kernel, made.kind, made.extents), name


def mutate(kernel: Kernel, chance: random.Random) -> tuple[Kernel, str] | None:
    """A mutant of a kernel, and the operator that made it; ``None`` if no operator applies."""
    for op in chance.sample(OPERATORS, len(OPERATORS)):
        mutants = [*op.apply(kernel)]
        chance.shuffle(mutants)
        for mutant in mutants:
            if mutant != kernel and is_valid(mutant):
                return mutant, op.name
    return None


def arguments(kernel: Kernel, extents: dict[str, int]) -> list[Argument]:
    """Random inputs: float32, or small integers."""
    rng = np.random.default_rng(0)
    shapes = [(p, tuple(int(evaluate(e, extents)) for e in p.shape)) for p in kernel.inputs]
    return [(rng.standard_normal(shape) if p.dtype.is_float else rng.integers(-99, 100, shape)).astype(p.dtype.numpy) for p, shape in shapes]


def compare(seed: int, number: int, small: Small, operator: str, limit: int, rounds: int) -> AgreementRow:
    """The three verdicts on a kernel. An error of the checker or of an oracle is part of the row, and there are no further verdicts."""
    launches = Launches()
    row = AgreementRow(seed, number, small.kind, operator, code(small.kernel), "", "", "")
    try:
        static, reason = proof(small.kernel)
    except Exception as error:
        return replace(row, error=fails("the checker", error))
    row = replace(row, static=static, reason=reason)
    steps: tuple[tuple[Oracle, Callable[[AgreementRow], AgreementRow]], ...] = (
        (Oracle.EXPLORATION, lambda row: _explored(row, small, limit, launches)),
        (Oracle.SIMULATOR, lambda row: _simulated(row, small, rounds, launches)),
        (Oracle.MACHINE, lambda row: replace(row, fault=fault(static, small, launches))),
    )
    for oracle, step in steps:
        try:
            row = step(row)
        except Exception as error:
            launches[key(oracle, Ending.RAISES)] += 1
            return replace(row, error=fails(oracle.value, error), launches=dict(launches))
    return replace(row, launches=dict(launches))


def _explored(row: AgreementRow, small: Small, limit: int, launches: Launches) -> AgreementRow:
    found = Explored(Truth.HOLDS)
    for extents in small.extents:
        now = explored(small.kernel, arguments(small.kernel, extents), extents, limit)
        launches[key(Oracle.EXPLORATION, Ending.LONG if now.truth is Truth.CUT else Ending.DECIDED)] += 1
        found = now if now.truth is not Truth.HOLDS else found
        if found.truth is Truth.FAILS:
            break
    return replace(row, exhaustive=found.truth.value, failure=pattern(found.reason))


def _simulated(row: AgreementRow, small: Small, rounds: int, launches: Launches) -> AgreementRow:
    last = small.extents[-1]
    shown = misbehaves(small.kernel, arguments(small.kernel, last), last, rounds, launches)
    some = "passes" if shown is None else "strict" if row.exhaustive == Truth.HOLDS.value and STRICT.search(shown) else "fails"
    return replace(row, random=some, failure=row.failure or pattern(shown or ""))


def fault(static: str, small: Small, launches: Launches | None = None) -> str:
    """The fault that the second machine finds in a proved kernel."""
    found = find_fault(small.kernel, small.extents, endings=launches) if static == Verdict.PROVED.value else None
    return "" if found is None else f"{found.kind.value}: {pattern(found.reason)}"


def proof(kernel: Kernel) -> tuple[str, str]:
    """The verdict of the proof, and why it fails."""
    certificate = verify(kernel)
    return certificate.verdict.value, "" if certificate.verdict is Verdict.PROVED else pattern(certificate.failures[0].reason)


STRICT = re.compile(r"\d+ arrivals while \d+ are pending|\d+ threads arrive where \d+ are expected|only some interleavings read what nobody wrote")
"""Errors that may be harmless: threads that arrive in one statement but in different phases of an mbarrier or rounds of a named barrier; reads of
uninitialized elements that no output depends on."""


def pattern(reason: str) -> str:
    """A reason without names and numbers, to count equal ones."""
    text = re.sub(r"^(small(_filled)?|[a-z-]+): ", "", reason.split("\n")[0])
    text = re.sub(r"\b[a-z]\w*(\.\w+)*\[[^\]]*\]", "_", text)
    return re.sub(r"\b(?:threadIdx|blockIdx)\.\w|\b[a-z]\d*\.\w+|-?\b\d+\b", "_", text)


def code(kernel: Kernel) -> str:
    """A hash of a kernel's text."""
    return hashlib.sha256(str(kernel).encode()).hexdigest()[:16]


@dataclass(slots=True)
class AgreementTally:
    """Counts over rows."""

    rows: int = 0
    table: Counter[tuple[str, str, str, str]] = field(default_factory=Counter[tuple[str, str, str, str]])
    rejects: Counter[str] = field(default_factory=Counter[str])
    outside: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    random_only: int = 0
    fails: int = 0
    accepts: list[AgreementRow] = field(default_factory=list[AgreementRow])
    missed: list[AgreementRow] = field(default_factory=list[AgreementRow])
    errors: list[AgreementRow] = field(default_factory=list[AgreementRow])
    launches: Launches = field(default_factory=Launches)
    idle: int = 0
    seen: set[str] = field(default_factory=set[str])
    last: dict[int, int] = field(default_factory=dict[int, int])

    def add(self, row: AgreementRow) -> None:
        """Count a kernel once."""
        self.last[row.seed] = row.case
        if row.code in self.seen:
            return
        self.rows += 1
        self.seen.add(row.code)
        kind = "kernels" if row.operator == UNCHANGED else "mutants"
        self.table[kind, row.static, row.exhaustive, row.random] += 1
        self.launches.update(row.launches)
        self.idle += row.static == Verdict.PROVED.value and is_idle(row.launches)
        if row.error:
            self.errors.append(row)
        if row.exhaustive == Truth.FAILS.value:
            self.fails += 1
            self.random_only += row.random == "fails"
        if row.false_reject:
            self.rejects[row.reason] += 1
        if row.static == Verdict.OUTSIDE.value:
            self.outside[row.exhaustive, row.reason] += 1
        if row.false_accept:
            self.accepts.append(row)
        if row.missed:
            self.missed.append(row)

    def __str__(self) -> str:
        lines = [f"{'':9} {'static proof':18} {'exhaustive':10} {'random':8} {'kernels':>8}"]
        lines += [f"{kind:9} {static:18} {all_:10} {some:8} {n:8}" for (kind, static, all_, some), n in sorted(self.table.items())]
        agree = sum(
            n
            for (_, static, all_, _), n in self.table.items()
            if (static, all_) in ((Verdict.PROVED.value, Truth.HOLDS.value), (Verdict.REFUTED.value, Truth.FAILS.value))
        )
        cut = sum(n for (_, static, all_, _), n in self.table.items() if static != Verdict.OUTSIDE.value and all_ == Truth.CUT.value)
        outside = sum(self.outside.values())
        lines += [
            "",
            f"{self.rows:8} different kernels, {sum(n for (kind, *_), n in self.table.items() if kind == 'mutants')} of them mutants",
            f"{agree:8} agree: proved and every interleaving holds, or refuted and one fails",
            f"{len(self.accepts):8} false accepts: proved, and an interleaving fails, or the second machine",
            f"{sum(self.rejects.values()):8} false rejects: refuted, and every interleaving holds",
            f"{outside:8} outside the model ({sum(n for (t, _), n in self.outside.items() if t == Truth.FAILS.value)} of them fail)",
            f"{cut:8} proved or refuted, exploration cut at its limit",
            f"{len(self.missed):8} missed by exploration: a random interleaving fails",
            f"{self.random_only:8} of {self.fails} kernels that fail are found by random interleavings",
            f"{self.idle:8} proved, and no launch decided anything",
            f"{len(self.errors):8} errors of the checker or an oracle",
            "",
            *table(self.launches),
        ]
        if self.rejects:
            lines += ["", "false rejects by reason"]
            for reason, n in self.rejects.most_common():
                lines += [f"{n:8} {reason}", *(f"{'':11}{why}" for part, why in HARMLESS if part in reason)]
        if self.outside:
            lines += ["", "outside the model by what exploration says, and reason"]
            lines += [f"{n:8} {truth:6} {reason}" for (truth, reason), n in self.outside.most_common()]
        return "\n".join(lines)


def reproved(row: AgreementRow) -> AgreementRow:
    """Rerun the proof on a row's kernel.

    Raises:
        ValueError: the generator now produces another kernel.
    """
    made = case(row.seed, row.case)
    if made is None or code(made[0].kernel) != row.code:
        raise ValueError(f"case {row.case} of seed {row.seed} is another kernel than in the log")
    static, reason = proof(made[0].kernel)
    launches = Launches({at: n for at, n in row.launches.items() if not at.startswith(Oracle.MACHINE.value)})
    return replace(row, static=static, reason=reason, fault=fault(static, made[0], launches), launches=dict(launches))


def main(argv: Sequence[str] | None = None) -> int:
    """Compare on ``--cases`` different kernels. Returns the exit status: 1 if there are false accepts, failing interleavings that exploration
    missed, or errors of a tool."""
    parser = argparse.ArgumentParser(
        prog="python -m taskfuse.testing.agreement", description="Static proof, exploration and random interleavings on small kernels."
    )
    parser.add_argument("--cases", type=int, default=500, metavar="N", help="how many different kernels (default: 500)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the seed of the run (default: 0)")
    parser.add_argument("--limit", type=int, default=3000, metavar="K", help="states of an exploration (default: 3000)")
    parser.add_argument("--rounds", type=int, default=1, metavar="R", help="runs under each of the eight interleavings (default: 1)")
    parser.add_argument("--log", type=Path, metavar="FILE", help="a line per kernel, as JSON")
    parser.add_argument("--resume", action="store_true", help="continue after the last line of the log")
    parser.add_argument("--reprove", action="store_true", help="take the kernels of the log and what interleavings say of them, and prove them anew")
    options = parser.parse_args(argv)
    tally = AgreementTally()
    log = Log(AgreementRow, options.log, resume=options.resume or options.reprove)
    for row in log.kept:
        tally.add(reproved(row) if options.reprove else row)
    start, before = time.perf_counter(), tally.rows
    if not options.reprove:
        _run(tally, options, log)
    print(tally)
    spent = time.perf_counter() - start
    if tally.rows > before:
        print(f"\n{1e3 * spent / (tally.rows - before):.1f} ms per kernel")
    return 1 if tally.accepts or tally.missed or tally.errors else 0


def _run(tally: AgreementTally, options: argparse.Namespace, log: Log[AgreementRow]) -> None:
    number = tally.last.get(options.seed, -1)
    while tally.rows < options.cases:
        number += 1
        made = case(options.seed, number)
        if made is None or code(made[0].kernel) in tally.seen:
            continue
        row = compare(options.seed, number, *made, options.limit, options.rounds)
        tally.add(row)
        log.add(row)
        if row.false_accept or row.missed or row.error:
            what, why = ("FALSE ACCEPT", row.failure or row.fault) if row.false_accept else ("MISSED", row.failure) if row.missed else ("ERROR", row.error)
            print(f"{what} seed {options.seed}, case {number}, {row.operator}: {why}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
