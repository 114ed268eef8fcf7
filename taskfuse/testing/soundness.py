"""``python -m taskfuse.testing.soundness``: the static proof against the simulator, on random kernels and on mutants of them.

A kernel that is proved must behave under every schedule, at several extents, and the second machine (:mod:`taskfuse.testing.machine`) must find no fault.
One that is refuted, and behaves under every schedule that was tried, is not a contradiction: eight schedules are few. It is counted.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from taskfuse.check import Verdict, verify
from taskfuse.errors import TaskfuseError
from taskfuse.kir import Kernel
from taskfuse.testing.case import Case, seeded_case
from taskfuse.testing.machine import find_fault
from taskfuse.testing.operators import OPERATORS
from taskfuse.testing.options import Mix
from taskfuse.testing.outcomes import is_valid, misbehaves

STEPS = 30_000
"""Iterations of loops that the second machine runs."""
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 16)


def kernels(case: Case, mutants: int, chance: random.Random) -> Iterator[tuple[str, Kernel]]:
    """The kernel of a case, and some mutants of it, one per operator at most."""
    kernel = case.kernel
    if kernel is None:
        return
    yield "unchanged", kernel
    found = [(op.name, made) for op in OPERATORS if (made := list(op.apply(kernel)))]
    for name, made in chance.sample(found, min(mutants, len(found))):
        mutant = chance.choice(made)
        if is_valid(mutant):
            yield name, mutant


def resized(case: Case, chance: random.Random) -> Case:
    """The case at other extents, within what its kernel knows of them."""
    assert case.kernel is not None
    sizes = dict(case.sizes)
    for e in case.kernel.extents:
        allowed = [n for n in EXTENTS if n >= e.min and (e.max is None or n <= e.max) and n % e.multiple_of == 0]
        if allowed:
            sizes[e.name] = chance.choice(allowed)
    return replace(case, sizes=sizes)


def contradiction(case: Case, kernel: Kernel, chance: random.Random, sizes: int) -> str | None:
    """How a proved kernel misbehaves, at the case's extents or at others; ``None`` if it does not."""
    for k in range(sizes if case.sizes else 1):
        sized = case if k == 0 else resized(case, chance)
        try:
            found = misbehaves(kernel, sized.arguments())
        except TaskfuseError:  # more threads, or more Shared memory, than there are at these extents
            continue
        if found is not None:
            return f"sizes {sized.sizes}: {found}"
        fault = find_fault(kernel, [sized.sizes], 1, STEPS)
        if fault is not None:
            return f"sizes {sized.sizes}: {fault}"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare on the cases of consecutive seeds. Returns the exit status: 1 if a kernel was proved and misbehaves."""
    parser = argparse.ArgumentParser(prog="python -m taskfuse.testing.soundness", description="Compare the static proof with the simulator.")
    parser.add_argument("--cases", type=int, default=100, metavar="N", help="how many cases (default: 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed (default: 0)")
    parser.add_argument("--mutants", type=int, default=4, metavar="K", help="mutants per case (default: 4)")
    parser.add_argument("--sizes", type=int, default=2, metavar="Z", help="extents at which proved kernels run (default: 2)")
    parser.add_argument("--mix", choices=[m.value for m in Mix], default=Mix.MIXED.value, help="what cases are made of (default: mixed)")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    times: list[float] = []
    false = 0
    for seed in range(options.seed, options.seed + options.cases):
        chance = random.Random(seed)
        case = seeded_case(seed, Mix(options.mix))
        for name, kernel in kernels(case, options.mutants, chance):
            start = time.perf_counter()
            verdict = verify(kernel).verdict
            kind = "kernels" if name == "unchanged" else "mutants"
            if kind == "kernels":
                times.append(time.perf_counter() - start)
            counts[f"{kind} {verdict.value}"] += 1
            if verdict is Verdict.PROVED:
                found = contradiction(case, kernel, chance, options.sizes)
                if found is not None:
                    false += 1
                    print(f"FALSE ACCEPT seed {seed}, {name}: {found}", flush=True)
    for key, n in sorted(counts.items()):
        print(f"{n:7} {key}")
    times.sort()
    if times:
        print(f"verify: median {1e3 * times[len(times) // 2]:.1f} ms, 99% below {1e3 * times[int(0.99 * len(times))]:.1f} ms")
    print(f"{false} false accepts")
    return 1 if false else 0


if __name__ == "__main__":
    sys.exit(main())
