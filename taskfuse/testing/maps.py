"""``python -m taskfuse.testing.maps``: the proof of values against what definitions mean, on small kernels whose index maps nobody lowered.

A kernel of :mod:`taskfuse.testing.small.maps` that is proved must give, under hostile schedules and at every size that is tried, the words in the ring that its
definitions give (:mod:`taskfuse.testing.meaning`): else it is a **false accept**. One that gives them and is not proved is counted by what the proof lacks.

``--log FILE`` keeps a line per kernel, ``--resume`` goes on behind them, ``--seconds`` ends a run early.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from taskfuse.errors import TaskfuseError
from taskfuse.kir import Kernel
from taskfuse.sim import Interleaving
from taskfuse.testing.agreement import pattern
from taskfuse.testing.campaign import FOREVER, Log, look_at
from taskfuse.testing.checks import Standing, proof
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.meaning import meaning
from taskfuse.testing.outcomes import LongRun, is_valid, other_words
from taskfuse.testing.small.maps import mapped
from taskfuse.testing.small.text import Small

CRASH = "the checker fails:"
WRONG = "a launch that cannot be"
MOST = 200_000
"""Steps of a launch."""


@dataclass(frozen=True, slots=True)
class Row:
    """What was found about a kernel.

    Attributes:
        seed, number: of the run, and of the kernel in it; they make it again.
        said: ``proved``, at what sizes alone, or nothing; gap: what the proof lacks.
        fault: how it differs from its definitions, if it was looked at; launches: how many were.
    """

    seed: int
    number: int
    kind: str
    said: str
    gap: str
    fault: str
    launches: int

    @property
    def false_accept(self) -> bool:
        """Proved, and it computes something else; or the checker fails."""
        return self.gap.startswith(CRASH) or (bool(self.said) and bool(self.fault))


def drawn(seed: int, number: int) -> Small | None:
    """A kernel of a run; ``None`` if kernel IR refuses it."""
    try:
        small = mapped(RandomChooser(random.Random(f"{seed}:{number}").getrandbits(48)))
    except TaskfuseError:
        return None
    return small if is_valid(small.kernel) else None


def difference(kernel: Kernel, sizes: Mapping[str, int], number: int) -> str | None:
    """How what it computes differs from what its definitions mean; ``None`` if it does not.

    Raises:
        TaskfuseError, LongRun: there is no such launch, or it takes too long.
    """
    numbers = np.random.default_rng(number)
    arguments = [numbers.integers(-99, 99, tuple(sizes[str(e)] if str(e) in sizes else int(e) for e in p.shape)).astype(p.dtype.numpy) for p in kernel.inputs]
    wanted = meaning(kernel, arguments, sizes)
    return other_words(kernel, arguments, wanted, number, [*Interleaving][number % len(Interleaving)], sizes, MOST)


def look(seed: int, number: int) -> Row | None:
    """Proof and meaning of one kernel."""
    small = drawn(seed, number)
    if small is None:
        return None
    last = small.extents[-1]
    try:
        found = proof(small.kernel, last)
        said, gap = "" if found.standing in (Standing.OUTSIDE, None) else found.standing.value, found.gap
    except Exception as error:
        said, gap = "", f"{CRASH} {type(error).__name__}: {error}".split("\n")[0]
    launches, fault = 0, ""
    for sizes in small.extents if said != Standing.AT.value else (last,):
        try:
            other = difference(small.kernel, sizes, number)
        except (TaskfuseError, LongRun):
            continue
        except (ZeroDivisionError, IndexError):
            other = WRONG
        launches += 1
        if other is not None:
            fault = f"{dict(sizes)}: {other}"
            break
    return Row(seed, number, small.kind, said, pattern(gap) if not gap.startswith(CRASH) else gap, fault, launches)


@dataclass(slots=True)
class Tally:
    """Counts over rows."""

    rows: int = 0
    refused: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    gaps: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    accepts: list[Row] = field(default_factory=list[Row])

    def add(self, row: Row) -> None:
        """Count a kernel."""
        self.rows += 1
        right = "right" if not row.fault and row.launches else "wrong" if row.fault else "not run"
        self.counts[row.kind, f"{right}, {row.said or 'not proved'}"] += 1
        if right == "right" and not row.said:
            self.gaps[row.kind, row.gap] += 1
        if row.false_accept:
            self.accepts.append(row)

    def __str__(self) -> str:
        lines = [f"{n:8} {kind:8} {what}" for (kind, what), n in sorted(self.counts.items())]
        lines += ["", "right and not proved, by what the proof lacks"]
        lines += [f"{n:8} {kind:8} {gap}" for (kind, gap), n in self.gaps.most_common(40)]
        return "\n".join([*lines, "", f"{self.rows} kernels, {self.refused} more are no kernel IR; {len(self.accepts)} false accepts"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Look at consecutive kernels. Returns the exit status: 1 if one was proved that computes something else."""
    parser = argparse.ArgumentParser(prog="python -m taskfuse.testing.maps", description="Compare the proof of values with what definitions mean.")
    parser.add_argument("--cases", type=int, default=1000, metavar="N", help="how many kernels (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the run (default: 1)")
    parser.add_argument("--seconds", type=float, default=FOREVER, metavar="T", help="end a run after so long")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes (default: 1)")
    parser.add_argument("--log", type=Path, metavar="FILE", help="a line per kernel, as JSON")
    parser.add_argument("--resume", action="store_true", help="go on behind the lines of the log")
    options = parser.parse_args(arguments)
    tally = Tally()
    log = Log(Row, options.log, resume=options.resume)
    for row in log.kept:
        tally.add(row)
    done = {row.number for row in log.kept}
    numbers = (n for n in range(options.cases) if n not in done)
    start, before = time.monotonic(), tally.rows
    for row in look_at(partial(look, options.seed), numbers, options.jobs, options.seconds):
        if row is None:
            tally.refused += 1
            continue
        tally.add(row)
        log.add(row)
        if row.false_accept:
            print(f"FALSE ACCEPT seed {row.seed}, kernel {row.number}, {row.kind}: {row.said or row.gap}; {row.fault}", flush=True)
    print(tally)
    if tally.rows > before:
        print(f"{1e3 * (time.monotonic() - start) / (tally.rows - before):.1f} ms per kernel")
    return 1 if tally.accepts else 0


if __name__ == "__main__":
    sys.exit(main())
