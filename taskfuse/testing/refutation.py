"""``python -m taskfuse.testing.refutation``: compares the static proof with the second machine, on small kernels with side conditions.

A proved kernel on which the machine finds a fault is a **false accept**. One that is not proved although the machine finds no fault is counted by
its kind and its unproved obligation: a false reject, if its generator knows it to be right. The tool also counts kernels on which the
generator and the machine disagree, and launches that decide nothing, by kind (:mod:`taskfuse.testing.launches`); an error of the checker or of the machine is a
failure of the campaign. If a kernel is not proved for all extents, the proof and the machine run at one of the listed ones.

``--log FILE`` keeps a line per kernel, ``--resume`` continues after them, ``--seconds`` ends a run early.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from taskfuse.check import Verdict, verify
from taskfuse.errors import TaskfuseError
from taskfuse.kir import Kernel
from taskfuse.testing.agreement import code, pattern
from taskfuse.testing.campaign import parser, run
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.launches import Ending, Launches, Oracle, fails, is_idle, key, table
from taskfuse.testing.machine import find_fault
from taskfuse.testing.outcomes import is_valid
from taskfuse.testing.small.sides import Side, side_kernel

SAMPLED = 10
"""The machine runs one in this many kernels that are known to be wrong and not proved."""


@dataclass(frozen=True, slots=True)
class RefutationRow:
    """The result for one kernel.

    Attributes:
        seed, case: seed of the run, and number of the kernel in it; they reproduce the kernel.
        right: whether the generator knows the kernel to be right.
        proved: for all extents; at: the only extents for which it is proved.
        gap: the unproved obligation; fault: the machine's finding, if it ran.
        launches: its launches by ending; error: how the checker or the machine fails.
    """

    seed: int
    case: int
    kind: str
    code: str
    right: bool | None
    proved: bool
    at: str
    gap: str
    fault: str
    looked: bool
    launches: Mapping[str, int] = field(default_factory=dict[str, int])
    error: str = ""

    @property
    def false_accept(self) -> bool:
        """True if the kernel is proved and has a fault."""
        return (self.proved or bool(self.at)) and bool(self.fault)

    @property
    def false_reject(self) -> bool:
        """True if the kernel is right and not proved."""
        return self.right is True and self.looked and not self.proved and not self.at and not self.fault and not self.error


def case(seed: int, number: int) -> Side | None:
    """A kernel of a run; ``None`` if kernel IR refuses it."""
    try:
        side = side_kernel(RandomChooser(random.Random(f"{seed}:{number}").getrandbits(48)))
    except TaskfuseError:
        return None
    return side if is_valid(side.kernel) else None


def gap(kernel: Kernel, extents: Mapping[str, int] | None = None) -> str:
    """The unproved obligation; empty if the kernel is proved."""
    for obligation in verify(kernel, extents).argument:
        if obligation.verdict is not Verdict.PROVED:
            return pattern(f"{obligation.subject}: {obligation.reason}")
    return ""


def look(seed: int, number: int, side: Side, interleavings: int) -> RefutationRow:
    """Run the proof and the machine on a kernel."""
    lacks = failed = said = ""
    at: Mapping[str, int] = {}
    try:
        lacks = gap(side.kernel)
        if lacks and side.extents[0]:
            chosen = side.extents[number % len(side.extents)]
            at = chosen if not gap(side.kernel, chosen) else {}
    except Exception as error:
        lacks = lacks or "the checker fails"
        failed = fails("the checker", error)
    trusted = side.right is False and bool(lacks) and not at and number % SAMPLED != 0
    once = 1 if lacks and not at else interleavings
    launches = Launches()
    try:
        fault = None if trusted else find_fault(side.kernel, (at,) if at else side.extents, once, endings=launches)
        said = "" if fault is None else f"{fault.kind.value}: {pattern(fault.reason)}"
    except Exception as error:
        launches[key(Oracle.MACHINE, Ending.RAISES)] += 1
        failed = failed or fails(Oracle.MACHINE.value, error)
    extents = json.dumps(dict(at)) if at else ""
    return RefutationRow(seed, number, side.kind, code(side.kernel), side.right, not lacks, extents, lacks, said, not trusted, dict(launches), failed)


@dataclass(slots=True)
class RefutationTally:
    """Counts over rows."""

    rows: int = 0
    table: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    kinds: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    rejects: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    accepts: list[RefutationRow] = field(default_factory=list[RefutationRow])
    mistaken: list[RefutationRow] = field(default_factory=list[RefutationRow])
    errors: list[RefutationRow] = field(default_factory=list[RefutationRow])
    launches: Launches = field(default_factory=Launches)
    idle: int = 0
    seen: set[str] = field(default_factory=set[str])

    def add(self, row: RefutationRow) -> bool:
        """Count a kernel once."""
        if row.code in self.seen:
            return False
        self.seen.add(row.code)
        self.rows += 1
        known = {True: "right", False: "wrong", None: "unknown"}[row.right]
        verdict = "proved" if row.proved else "proved at extents" if row.at else "not proved"
        self.table[f"{known}, {'a fault' if row.fault else 'no fault' if row.looked else 'not looked at'}", verdict] += 1
        kind = self.kinds.setdefault(row.kind, Counter())
        kind["kernels"] += 1
        kind["proved"] += row.proved or bool(row.at)
        kind["faults"] += bool(row.fault)
        kind["false accepts"] += row.false_accept
        kind["right, not proved"] += row.false_reject
        if row.false_accept:
            self.accepts.append(row)
        if row.error:
            self.errors.append(row)
        self.launches.update(row.launches)
        idle = is_idle(row.launches)
        self.idle += idle and (row.proved or bool(row.at))
        if row.false_reject:
            self.rejects[row.kind, row.gap] += 1
        if row.looked and not idle and not row.at and ((row.right is True and row.fault) or (row.right is False and not row.fault)):
            self.mistaken.append(row)
        return True

    def __str__(self) -> str:
        lines = [f"{n:8} {known:22} {verdict}" for (known, verdict), n in sorted(self.table.items())]
        columns = ("kernels", "proved", "faults", "false accepts", "right, not proved")
        lines += ["", f"{'':28}" + "".join(f"{column:>18}" for column in columns)]
        lines += [f"{kind:28}" + "".join(f"{counts[column]:18}" for column in columns) for kind, counts in sorted(self.kinds.items())]
        lines += ["", f"{self.rows:8} different kernels", f"{len(self.accepts):8} false accepts: proved, and the machine finds a fault"]
        lines += [f"{n:8} {kind}: {fault}" for (kind, fault), n in Counter((r.kind, r.fault) for r in self.accepts).most_common()]
        lines += [f"{sum(self.rejects.values()):8} false rejects: right, and not proved"]
        lines += [f"{n:8} {kind}: {reason}" for (kind, reason), n in self.rejects.most_common(60)]
        lines += [f"{len(self.errors):8} at which the checker or the machine fails"]
        lines += [f"{n:8} {kind}: {error}" for (kind, error), n in Counter((r.kind, r.error) for r in self.errors).most_common()]
        lines += [f"{self.idle:8} proved, and no launch decided anything"]
        lines += [f"{len(self.mistaken):8} of which the generator knows something else than the machine finds"]
        lines += [f"{n:8} {kind}: {fault or 'no fault'}" for (kind, fault), n in Counter((r.kind, r.fault) for r in self.mistaken).most_common()]
        lines += ["", *table(self.launches)]
        return "\n".join(lines)


def find(seed: int, interleavings: int, number: int) -> Sequence[RefutationRow]:
    """The row of a kernel of a run; none if kernel IR refuses it."""
    side = case(seed, number)
    return () if side is None else (look(seed, number, side, interleavings),)


def _alarm(row: RefutationRow) -> str:
    at = f"seed {row.seed}, case {row.case}, {row.kind}"
    return f"FALSE ACCEPT {at}: {row.fault}" if row.false_accept else f"ERROR {at}: {row.error}" if row.error else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Check ``--cases`` different kernels. Returns the exit status: 1 if there are false accepts, or errors of a tool."""
    line = parser("refutation", "The static proof against a second machine.", cases=500)
    line.add_argument("--interleavings", type=int, default=2, metavar="K", help="orders of the threads per launch (default: 2)")
    options = line.parse_args(argv)
    tally = RefutationTally()
    each = partial(find, options.seed, options.interleavings)
    run(RefutationRow, tally, each, count(), options, done=lambda row: row.case if row.seed == options.seed else None, alarm=_alarm, most=options.cases)
    return 1 if tally.accepts or tally.errors else 0


if __name__ == "__main__":
    sys.exit(main())
