"""``python -m taskfuse.testing.fuzz``: checks random cases for a range of seeds; a failure prints the command that reproduces it.

``--prove`` also runs the static proof on each kernel and prints, per mix, how many are proved for all extents or for those of their case.
``--ptx`` compiles each kernel and compares its PTX with kernel IR.
``--log FILE`` keeps a line per case, ``--resume`` continues after them, ``--jobs J`` runs J processes.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from taskfuse.sim import Interleaving
from taskfuse.testing.agreement import pattern
from taskfuse.testing.campaign import Log, look_at, parser
from taskfuse.testing.case import seeded_case
from taskfuse.testing.checks import CaseProof, CaseStanding, CheckError, Effort, check_case
from taskfuse.testing.measure import Distribution
from taskfuse.testing.minimize import shortest
from taskfuse.testing.options import Mix

EVERY = 5.0  # seconds between two lines of progress
LOWERED = "lowered"


@dataclass(frozen=True, slots=True)
class FuzzRow:
    """The result of a case.

    Attributes:
        mix: its mix of options.
        end: ``lowered`` or ``refused``.
        said: the verdict of the proof, if it ran; gap: the obligation that is unproved at the extents of the case, or else for all.
        failure: the violated property, and how.
        long: runs that exceeded the simulator's limit of steps.
    """

    seed: int
    mix: str
    end: str
    said: str = ""
    gap: str = ""
    failure: str = ""
    long: int = 0


def reproduction(seed: int, mix: Mix = Mix.MIXED, effort: Effort | None = None) -> str:
    """The command that repeats the check of a seed."""
    usual = Effort()
    effort = effort or usual
    rest = [f"--mix {mix.value}"] if mix is not Mix.MIXED else []
    rest += [f"--interleavings {effort.interleavings}"] if effort.interleavings != usual.interleavings else []
    rest += [f"--orders {effort.orders}"] if effort.orders != usual.orders else []
    rest += ["--prove"] if effort.prove and not usual.prove else []
    rest += ["--ptx"] if effort.ptx and not usual.ptx else []
    return " ".join((f"python -m taskfuse.testing.fuzz --seed {seed} --cases 1", *rest))


def failure(command: str, error: CheckError, budget: int) -> str:
    """The report of a failed case: the command, the failure, and the shortest program found with the same failure."""
    found = shortest(error, budget) if budget else error
    return f"FAILED {command}\n{found}"


def look(mix: Mix, effort: Effort, minimize: int, seed: int) -> tuple[FuzzRow, Distribution, str]:
    """Check the case of a seed. Returns its row, its coverage, and the report of its failure."""
    case = seeded_case(seed, mix)
    seen = Distribution()
    seen.add(case)
    end, proof, failed, text = "refused" if case.kernel is None else LOWERED, CaseProof(), "", ""
    try:
        proof = check_case(case, effort)
    except CheckError as error:
        failed = f"{error.prop.value}: {error.reason}".split("\n")[0]
        text = failure(reproduction(seed, mix, effort), error, minimize)
    said = "" if proof.standing is None else proof.standing.value
    return FuzzRow(seed, mix.kind(seed).value, end, said, pattern(proof.gap), failed, proof.long), seen, text


def verdicts(rows: Iterable[FuzzRow]) -> str:
    """Per mix: how many cases lower, the verdicts on their kernels, and the obligations that are unproved for some extents."""
    heads = (LOWERED, *(s.value for s in CaseStanding), "failures")
    table: dict[str, Counter[str]] = {}
    gaps: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for name in (row.mix, "all"):
            counts = table.setdefault(name, Counter())
            counts["cases"] += 1
            counts["failures"] += bool(row.failure)
            counts.update(word for word in (row.end, row.said) if word)
        if row.gap:
            gaps[row.said, row.gap] += 1
    lines = [f"{'mix':12} {'cases':>8}" + "".join(f"{h:>19}" for h in heads)]
    lines += [f"{name:12} {counts['cases']:8}" + "".join(f"{counts[h]:19}" for h in heads) for name, counts in sorted(table.items())]
    lines += [f"{n:7} {said}: {gap}" for (said, gap), n in gaps.most_common()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the cases of consecutive seeds. Returns the exit status: 1 if a case failed."""
    line = parser("fuzz", "Check random fusions with random tasks, groups and schedules.", cases=1000, what="case")
    line.add_argument("--mix", choices=[m.value for m in Mix], default=Mix.MIXED.value, help="what kind of cases (default: mixed)")
    line.add_argument("--interleavings", type=int, default=2, metavar="K", choices=range(1, len(Interleaving) + 1), help="per case (default: 2)")
    line.add_argument("--orders", type=int, default=1, metavar="K", help="other orders of the code per case (default: 1)")
    line.add_argument("--prove", action="store_true", help="ask for the static proof of each kernel, too: refuted is a failure")
    line.add_argument("--ptx", action="store_true", help="compile each kernel with NVRTC, and compare its PTX with kernel IR")
    line.add_argument("--failures", type=int, default=5, metavar="F", help="stop after so many failures (default: 5)")
    line.add_argument("--minimize", type=int, default=400, metavar="B", help="runs spent on shortening a failing program; 0: none (default: 400)")
    line.add_argument("--quiet", action="store_true", help="print failures only")
    options = line.parse_args(arguments)
    effort = Effort(interleavings=options.interleavings, orders=options.orders, prove=options.prove, ptx=options.ptx)
    log = Log(FuzzRow, options.log, resume=options.resume)
    rows = list(log.kept)
    done = {row.seed for row in rows}
    seeds = [s for s in range(options.seed, options.seed + options.cases) if s not in done]
    seen = Distribution()
    start = shown = time.monotonic()
    for row, covered, text in look_at(partial(look, Mix(options.mix), effort, options.minimize), seeds, options.jobs, options.seconds):
        rows.append(row)
        log.add(row)
        seen.join(covered)
        if text:
            print(text, flush=True)
            if sum(bool(r.failure) for r in rows) >= options.failures:
                break
        now = time.monotonic()
        if not options.quiet and now - shown > EVERY:
            shown = now
            failures = sum(bool(r.failure) for r in rows)
            rate = seen.cases / (now - start)
            print(f"{len(rows)}/{options.cases} cases, {seen.lowered} lowered, {failures} failures, {rate:.1f} cases/s", file=sys.stderr, flush=True)
    if not options.quiet:
        print(seen.text())
        if options.prove:
            print(verdicts(rows))
    failures = sum(bool(r.failure) for r in rows)
    long = sum(r.long for r in rows)
    too_long = f", {long} runs exceeded the limit of steps" if long else ""
    print(f"{len(rows)} cases, {sum(r.end == LOWERED for r in rows)} checked, {failures} failures{too_long}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
