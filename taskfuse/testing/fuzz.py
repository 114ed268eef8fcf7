"""``python -m taskfuse.testing.fuzz``: random cases until all seeds are done; a failure prints the line that reproduces it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from taskfuse.sim import Scheduler
from taskfuse.testing.case import seeded_case
from taskfuse.testing.checks import CheckError, Effort, check_case
from taskfuse.testing.measure import Distribution
from taskfuse.testing.minimize import shortest
from taskfuse.testing.options import Mix

EVERY = 5.0  # seconds between two lines of progress


def reproduction(seed: int, mix: Mix = Mix.MIXED, effort: Effort | None = None) -> str:
    """The command that checks the case of a seed again."""
    usual = Effort()
    effort = effort or usual
    rest = [f"--mix {mix.value}"] if mix is not Mix.MIXED else []
    rest += [f"--schedulers {effort.schedulers}"] if effort.schedulers != usual.schedulers else []
    rest += [f"--orders {effort.orders}"] if effort.orders != usual.orders else []
    rest += ["--prove"] if effort.prove and not usual.prove else []
    return " ".join((f"python -m taskfuse.testing.fuzz --seed {seed} --cases 1", *rest))


def failure(command: str, error: CheckError, budget: int) -> str:
    """What is printed for a case that fails: the command, what fails, and the shortest program found that fails alike."""
    found = shortest(error, budget) if budget else error
    return f"FAILED {command}\n{found}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the cases of consecutive seeds. Returns the exit status: 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m taskfuse.testing.fuzz", description="Check random fusions with random tasks, groups and schedules.")
    parser.add_argument("--cases", type=int, default=1000, metavar="N", help="how many cases (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed; further cases have the seeds after it (default: 0)")
    parser.add_argument("--mix", choices=[m.value for m in Mix], default=Mix.MIXED.value, help="what kind of cases (default: mixed)")
    parser.add_argument("--schedulers", type=int, default=2, metavar="K", choices=range(1, len(Scheduler) + 1), help="interleavings per case (default: 2)")
    parser.add_argument("--orders", type=int, default=1, metavar="K", help="other orders of the code per case (default: 1)")
    parser.add_argument("--prove", action="store_true", help="ask for the static proof of each kernel, too: refuted is a failure")
    parser.add_argument("--failures", type=int, default=5, metavar="F", help="stop after so many failures (default: 5)")
    parser.add_argument("--minimize", type=int, default=400, metavar="B", help="runs spent on shortening a failing program; 0: none (default: 400)")
    parser.add_argument("--quiet", action="store_true", help="print failures only")
    options = parser.parse_args(arguments)
    effort = Effort(schedulers=options.schedulers, orders=options.orders, prove=options.prove)
    mix = Mix(options.mix)
    seen = Distribution()
    failures = 0
    start = shown = time.monotonic()
    for seed in range(options.seed, options.seed + options.cases):
        case = seeded_case(seed, mix)
        seen.add(case)
        try:
            check_case(case, effort)
        except CheckError as error:
            failures += 1
            print(failure(reproduction(seed, mix, effort), error, options.minimize), flush=True)
            if failures >= options.failures:
                break
        now = time.monotonic()
        if not options.quiet and now - shown > EVERY:
            shown = now
            rate = seen.cases / (now - start)
            print(f"{seen.cases}/{options.cases} cases, {seen.lowered} lowered, {failures} failures, {rate:.0f} cases/s", file=sys.stderr, flush=True)
    if not options.quiet:
        print(seen.text())
    print(f"{seen.cases} cases, {seen.lowered} checked, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
