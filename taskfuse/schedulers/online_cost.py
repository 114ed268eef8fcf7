"""The cost model of one walk of rows (:mod:`taskfuse.schedulers.online`): that of rows (:mod:`taskfuse.schedulers.row_cost`), with fewer passes and a repair
for each chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import ClassVar

from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.persistent_buffers import Keep
from taskfuse.schedulers.row_cost import RowProblem, residents
from taskfuse.schedulers.row_cost import estimate as estimate_of_rows
from taskfuse.schedulers.rows import RowConfig
from taskfuse.schedulers.schedule import Option
from taskfuse.target import MAX_THREADS, WARP

MOST_ELEMENTS = 32
"""The most elements of all inputs that a thread loads at once."""
REPAIR_INSTRUCTIONS = 24
"""Instructions of a thread after each chunk: the running maximum, the factor of the sums, and their products."""


@dataclass(frozen=True, slots=True)
class OnlineConfig(Parameters):
    """The parameters of one walk of rows.

    Attributes:
        threads: threads of a block that share a row, each with a part of it.
        rows: rows of a block at a time; if the contiguous axis is kept, vectors of rows.
        unroll: vectors of a chunk, which a thread loads at once; if the contiguous axis is kept, elements.
    """

    threads: int = 256
    rows: int = 1
    unroll: int = 2

    def __post_init__(self) -> None:
        self.check_fields()
        self.check_threads(self.threads * self.rows, f"{self.threads} threads for each of {self.rows} rows")

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        return f"{self.threads} threads per row, {self.rows} rows per block, chunks of {self.unroll} vectors"


@dataclass(frozen=True, slots=True)
class OnlineEstimate(Option[OnlineConfig]):
    """The estimate of the model for one configuration.

    Attributes:
        registers: of a thread.
        walks: passes over a row: one, and one more if outputs have its elements.
    """

    HEADING: ClassVar[str] = "registers  parameters"

    registers: int
    walks: int

    @property
    def row(self) -> str:
        """Its row of the table."""
        return f"{self.registers:9}  {self.config.words}"


def estimate(problem: RowProblem, walks: int, config: OnlineConfig) -> OnlineEstimate:
    """The time of ``config``: that of rows that are read once in each walk and kept nowhere, and the repairs."""
    rows = estimate_of_rows(_walked(problem, walks), _as_rows(config))
    chunk = config.unroll * (problem.width if problem.is_inner else 1)
    chunks = problem.rows * ceil(problem.columns / chunk)
    repairs = problem.target.issue_us(chunks * REPAIR_INSTRUCTIONS, min(problem.target.sms, max(problem.rows // config.rows, 1)))
    us = rows.us + repairs * problem.target.rows.others
    return OnlineEstimate(config, us, rows.registers, walks, block=rows.block)


def _walked(problem: RowProblem, walks: int) -> RowProblem:
    """The problem of rows with so many phases: an element is a term of all reductions at once."""
    repeated = dict(problem.repeated).get(Keep.NOTHING, 0) if walks > 1 else 0
    return replace(problem, phases=walks, again=None, repeated=((Keep.NOTHING, repeated),), reductions=2 * problem.reductions)


def _as_rows(config: OnlineConfig) -> RowConfig:
    return RowConfig(config.threads, config.rows, config.unroll, 1, Keep.NOTHING)


def candidates(problem: RowProblem, walks: int) -> Iterator[OnlineEstimate]:
    """The configurations that the model chooses from."""
    inner = problem.is_inner
    vectors = ceil(problem.columns / (problem.width if inner else 1))
    for threads in (n for k in range(5 if inner else 0, 11) for n in sorted({1 << k, 3 << (k - 1) if k > 5 else 1 << k})):
        if threads > max(vectors // 2, WARP if inner else 1) or threads > MAX_THREADS:
            continue
        if inner and threads == WARP and vectors > problem.target.rows.warp_vectors:
            continue
        rows = [1] if threads > WARP else [4, 8]
        rows = rows if inner else [n for n in (8, 16, 32, 64) if n <= max(problem.row_vectors, 1) and n * threads <= MAX_THREADS]
        for n in rows:
            for unroll in (1, 2, 4, 8):
                config = OnlineConfig(threads, n, unroll)
                if unroll * problem.width * len(problem.loads) > MOST_ELEMENTS:
                    continue
                if residents(_walked(problem, walks), _as_rows(config)) > 0:
                    yield estimate(problem, walks, config)


@lru_cache(maxsize=256)
def rank(problem: RowProblem, walks: int) -> tuple[OnlineEstimate, ...]:
    """All candidates, the fastest first. Rows whose vectors no number of threads divides are walked element by element."""
    return tuple(sorted(candidates(problem, walks), key=lambda e: (e.us, e.config.threads * e.config.rows)))
