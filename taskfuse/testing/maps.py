"""``python -m taskfuse.testing.maps``: compares the proof of values with the definitions, on small kernels with random index maps.

A proved kernel of :mod:`taskfuse.testing.small.maps`, :mod:`~taskfuse.testing.small.tables`, :mod:`~taskfuse.testing.small.registers` or
:mod:`~taskfuse.testing.small.selected` must give, under hostile interleavings and at every tested size, the modular values of its definitions
(:mod:`taskfuse.kir.meaning`), and with tables also the ordinary numbers; otherwise it is a **false accept**. A kernel that gives them and is not proved is
counted by its unproved obligation. Launches that decide nothing are counted by kind (:mod:`taskfuse.testing.launches`); an error of the checker or of what
computes the definitions is a failure of the campaign.

``--log FILE`` keeps a line per kernel, ``--resume`` continues after them, ``--seconds`` ends a run early.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.errors import SimulationError, TaskfuseError
from taskfuse.ir.scalar import TableIndexError, evaluate
from taskfuse.ir.values import NATIVE
from taskfuse.kir import Kernel
from taskfuse.kir.meaning import meaning
from taskfuse.kir.point_values import UndefinedElementError
from taskfuse.kir.walk import looked_up
from taskfuse.sim import Interleaving, simulate
from taskfuse.testing.agreement import pattern
from taskfuse.testing.campaign import parser, run
from taskfuse.testing.checks import CaseStanding, proof
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.launches import Ending, Launches, NoVerdict, Oracle, fails, is_idle, key, table
from taskfuse.testing.outcomes import UNWRITTEN, is_valid, no_verdict, other_words
from taskfuse.testing.small.maps import mapped
from taskfuse.testing.small.registers import registered
from taskfuse.testing.small.selected import selected
from taskfuse.testing.small.tables import tabled
from taskfuse.testing.small.text import Small

TABLES = 7
"""One in this many kernels has tables, one several accumulators or slots of its own, and one something that a cursor, a thread or a wait decides."""
MOST = 200_000
"""Most steps of a launch."""


@dataclass(frozen=True, slots=True)
class MapsRow:
    """The result for a kernel.

    Attributes:
        seed, number: seed of the run, and number of the kernel in it; they reproduce the kernel.
        said: ``proved``, the only sizes at which it is proved, or empty; gap: the unproved obligation.
        fault: how it differs from its definitions, if it ran; launches: its launches by ending.
        error: how the checker or an oracle fails.
    """

    seed: int
    number: int
    kind: str
    said: str
    gap: str
    fault: str
    launches: Mapping[str, int]
    error: str = ""

    @property
    def false_accept(self) -> bool:
        """True if a proved kernel computes other values."""
        return bool(self.said) and bool(self.fault)


def drawn(seed: int, number: int) -> Small | None:
    """A kernel of a run; ``None`` if kernel IR refuses it."""
    try:
        made = {TABLES - 2: tabled, TABLES - 3: registered, TABLES - 1: selected}.get(number % TABLES, mapped)
        small = made(RandomChooser(random.Random(f"{seed}:{number}").getrandbits(48)))
    except TaskfuseError:
        return None
    return small if is_valid(small.kernel) else None


def difference(kernel: Kernel, sizes: Mapping[str, int], number: int) -> str | None:
    """How the outputs differ from the definitions, also from definitions that have no value; ``None`` if they are equal.

    Raises:
        NoVerdict: the launch is impossible, or takes too long.
    """
    numbers = np.random.default_rng(number)
    tables = looked_up(kernel)
    arguments = [
        numbers.integers(*((-1, 8) if p.name in tables else (-99, 99)), tuple(int(evaluate(e, sizes)) for e in p.shape)).astype(p.dtype.numpy)
        for p in kernel.inputs
    ]
    try:
        wanted = meaning(kernel, arguments, sizes)
    except (UndefinedElementError, TableIndexError, ZeroDivisionError) as error:
        return f"definitions without a value: {error}"
    interleaving = [*Interleaving][number % len(Interleaving)]
    found = other_words(kernel, arguments, wanted, number, interleaving, sizes, MOST)
    return found if found is not None or not tables else _other_numbers(kernel, arguments, sizes, number)


def _other_numbers(kernel: Kernel, arguments: Sequence[NDArray[Any]], sizes: Mapping[str, int], number: int) -> str | None:
    """How ordinary numbers differ from the definitions: modular values do not model conversions of constants to narrow types."""
    try:
        found = simulate(kernel, arguments, seed=number, values=NATIVE, max_steps=MOST, extents=sizes)
    except SimulationError as error:
        reason = str(error).split("\n")[0]
        if (undecided := no_verdict(reason)) is not None:
            raise undecided from error
        return None if UNWRITTEN in reason else reason  # of what nobody wrote the modular values do not depend
    wanted = meaning(kernel, arguments, sizes, NATIVE)
    return None if all(np.allclose(a, b, rtol=1e-3, equal_nan=True) for a, b in zip(found, wanted, strict=True)) else "other numbers"


def look(seed: int, number: int) -> Sequence[MapsRow]:
    """Check one kernel. Returns its row; no row if the kernel is invalid."""
    small = drawn(seed, number)
    if small is None:
        return ()
    last = small.extents[-1]
    said = gap = fault = failed = ""
    try:
        found = proof(small.kernel, last)
        said, gap = "" if found.standing in (CaseStanding.OUTSIDE, None) else found.standing.value, found.gap
    except Exception as error:
        failed = fails("the checker", error)
    launches = Launches()
    for sizes in small.extents if said != CaseStanding.AT.value else (last,):
        ending, other = Ending.DECIDED, None
        try:
            other = difference(small.kernel, sizes, number)
        except NoVerdict as undecided:
            ending = undecided.ending
        except Exception as error:
            ending, failed = Ending.RAISES, failed or f"{dict(sizes)}: {fails('the reference', error)}"
        launches[key(Oracle.SIMULATOR, ending)] += 1
        if other is not None:
            fault = f"{dict(sizes)}: {other}"
            break
    return (MapsRow(seed, number, small.kind, said, pattern(gap), fault, dict(launches), failed),)


@dataclass(slots=True)
class MapsTally:
    """Counts over rows."""

    rows: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    gaps: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    launches: Launches = field(default_factory=Launches)
    accepts: list[MapsRow] = field(default_factory=list[MapsRow])
    errors: list[MapsRow] = field(default_factory=list[MapsRow])
    idle: int = 0

    def add(self, row: MapsRow) -> bool:
        """Count a kernel."""
        self.rows += 1
        self.launches.update(row.launches)
        idle = is_idle(row.launches)
        self.idle += bool(row.said) and idle
        right = "wrong" if row.fault else "not run" if idle else "right"
        self.counts[row.kind, f"{right}, {row.said or 'not proved'}"] += 1
        if right == "right" and not row.said:
            self.gaps[row.kind, row.gap] += 1
        if row.false_accept:
            self.accepts.append(row)
        if row.error:
            self.errors.append(row)
        return True

    def __str__(self) -> str:
        lines = [f"{n:8} {kind:8} {what}" for (kind, what), n in sorted(self.counts.items())]
        lines += ["", "right and not proved, by what the proof lacks"]
        lines += [f"{n:8} {kind:8} {gap}" for (kind, gap), n in self.gaps.most_common(40)]
        lines += ["", *table(self.launches), "", f"{self.idle} proved kernels were not run: no launch of theirs decided anything"]
        return "\n".join([*lines, f"{self.rows} kernels; {len(self.accepts)} false accepts; {len(self.errors)} errors of the checker or an oracle"])


def _alarm(row: MapsRow) -> str:
    at = f"seed {row.seed}, kernel {row.number}, {row.kind}"
    return f"FALSE ACCEPT {at}: {row.said}; {row.fault}" if row.false_accept else f"ERROR {at}: {row.error}" if row.error else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Check consecutive kernels. Returns the exit status: 1 if a proved kernel computes other values, or a tool failed."""
    options = parser("maps", "Compare the proof of values with what definitions mean.", cases=1000, seed=1).parse_args(arguments)
    tally = MapsTally()
    run(
        MapsRow,
        tally,
        partial(look, options.seed),
        range(options.cases),
        options,
        done=lambda row: row.number if row.seed == options.seed else None,
        alarm=_alarm,
    )
    return 1 if tally.accepts or tally.errors else 0


if __name__ == "__main__":
    sys.exit(main())
