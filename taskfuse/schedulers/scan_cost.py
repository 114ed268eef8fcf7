"""The cost model of scans across rows: how many threads have chunks of one row, how many rows lie side by side in a block.

A kernel takes the greatest of several times, and a part of the others: its bytes at the speed of memory, the sectors that pass the L2 cache, the cache lines
that it looks up, its instructions, and its waits. A block waits for its loads, for the elements of a thread, for the totals of chunks that one thread of a
row adds, for barriers and for its stores; blocks that are resident together wait at the same time. The figures are those of the target
(:class:`taskfuse.figures.RowFigures`, :class:`taskfuse.figures.AssumedFigures`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import ClassVar

from taskfuse.cuda.resources import occupancy
from taskfuse.reports.resources import Resources
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.schedule import Option
from taskfuse.target import DEFAULT, LINE_BYTES, MAX_THREADS, SECTOR_BYTES, VECTOR_BYTES, WARP, Target

CHUNK_BYTES = 128
"""Of the elements of one row that a thread has at most, as they are accumulated: 32 registers; a block of 1024 threads leaves each 64."""
ADDED_BYTES, HELD_BYTES = 128, 64
"""Of the totals that one thread adds one after another at most, of all rows that it has; and of those that it has in registers where there are more."""
BASE_REGISTERS, INPUT_REGISTERS, ROW_REGISTERS, STEP_REGISTERS = 2, 4, 14, 8
"""Registers of a thread: for indices; per input, for addresses; per further row of a thread, for its totals; they are given in steps."""
TOTAL_REGISTERS = 4, 14
"""Per 4 bytes of a total: where one thread adds all, and where several have some in registers."""
MOST_REGISTERS = 248
TOTAL_CYCLES = 12
"""Cycles of a thread to add one more total, which it reads from Shared memory ahead."""
FEWEST_THREADS = 64
"""The fewest threads of a block, if there is work for them."""
MOST_ROWS = 256
"""The most rows, or vectors of rows, side by side in a block."""


@dataclass(frozen=True, slots=True)
class ScanConfig(Parameters):
    """The parameters of a scan schedule.

    Attributes:
        chunk: elements of a row per thread.
        rows: rows per block; vectors of rows, where these lie side by side in memory.
        width: rows of a thread, which it loads and stores as vectors: 1 where the rows themselves are contiguous.
    """

    POWERS: ClassVar = frozenset({"width"})

    chunk: int
    rows: int = 1
    width: int = 1

    def __post_init__(self) -> None:
        self.check_fields()
        if self.width > VECTOR_BYTES:
            raise self.error(f"width is {self.width}", f"a vector has at most {VECTOR_BYTES} bytes")

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        if self.width > 1:
            return f"{self.chunk} vectors of {self.width} rows of a thread, {self.rows} such vectors per block"
        return f"{self.chunk} elements of a thread, {self.rows} rows per block"


@dataclass(frozen=True, slots=True)
class ScanProblem:
    """Scans of rows that lie side by side, with numbers for their extents.

    Attributes:
        rows, columns: rows, and the elements of each.
        run: rows whose elements lie side by side in memory; after it come the next elements of the first ones.
        width: rows of the longest vectors.
        loads, stores: bytes of an element, of each input and output that has all axes.
        elsewhere: of inputs that are loaded for readers at other points.
        totals: bytes of an element as it is accumulated, of each scan.
        late: bytes of an element of each input that is also needed once totals are known.
        kept: bytes of an element, of each tensor that is in Shared memory for readers at other points.
        exchanged: how often these are stored there, or read.
        along: of each output whose elements of a row lie side by side: bytes of one, and how many these are; neighboring threads have neighbors there, too.
        loaded, stored: bytes that cross between the chip and its memory.
        slots: issue slots of all threads, for what is computed.
        target: the GPU.
    """

    rows: int
    columns: int
    run: int
    loads: tuple[int, ...]
    stores: tuple[int, ...]
    totals: tuple[int, ...]
    loaded: float
    stored: float
    slots: float
    width: int = 1
    late: tuple[int, ...] = ()
    elsewhere: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    exchanged: int = 0
    along: tuple[tuple[int, int], ...] = ()
    target: Target = DEFAULT

    @property
    def elements(self) -> int:
        """Of all rows."""
        return self.rows * self.columns


@dataclass(frozen=True, slots=True)
class ScanEstimate(Option[ScanConfig]):
    """The estimate of the model for one configuration.

    Attributes:
        residents: blocks of a multiprocessor at once.
        bound: the resource that limits the kernel.
    """

    HEADING: ClassVar[str] = "residents  bound         parameters"

    residents: int
    bound: str

    @property
    def row(self) -> str:
        """Its row of the table."""
        return f"{self.residents:9}  {self.bound:12}  {self.config.words}"


def totals_of(itemsize: int, width: int) -> tuple[int, int]:
    """The most totals of ``itemsize`` bytes that one thread adds, and how many it has of more, of each of ``width`` rows."""
    return max(ADDED_BYTES // (itemsize * width), 2), max(HELD_BYTES // (itemsize * width), 2)


def levels(threads: int, held: int, totals: int) -> tuple[int, ...]:
    """How many totals a thread adds, one after another, at each level of those of a row.

    Args:
        threads: of a row.
        held: the most totals that one thread adds.
        totals: how many it has of more.
    """
    return (threads,) if threads <= held else (totals, *levels(ceil(threads / totals), held, totals))


def registers(problem: ScanProblem, config: ScanConfig) -> int:
    """Registers of a thread: its elements as they are loaded, then as they are accumulated, which it keeps until it knows what comes before them."""
    loaded = sum(ceil(config.width * size / 4) for size in problem.loads)
    held = config.width * sum(ceil(size / 4) for size in problem.totals) + sum(ceil(config.width * size / 4) for size in problem.late)
    found = BASE_REGISTERS + INPUT_REGISTERS * len(problem.loads) + config.chunk * max(loaded, held)
    itemsize = max(problem.totals)
    is_split = ceil(problem.columns / config.chunk) > totals_of(itemsize, config.width)[0]
    found += ROW_REGISTERS * (config.width - 1) + TOTAL_REGISTERS[is_split] * ceil(itemsize / 4)
    return ceil(found / STEP_REGISTERS) * STEP_REGISTERS


def shared_bytes(problem: ScanProblem, config: ScanConfig) -> int:
    """Shared memory of a block: totals and their sums, and rows that are kept, with a place more beside those of one element."""
    threads = ceil(problem.columns / config.chunk)
    totals = 2 * threads * config.rows * config.width * sum(problem.totals) if threads > 1 or problem.kept else 0
    return totals + threads * config.chunk * (config.rows * config.width + 1) * sum(problem.kept)


def residents(problem: ScanProblem, config: ScanConfig) -> int:
    """Resident blocks of a multiprocessor; 0 if no block fits."""
    threads, needed = ceil(problem.columns / config.chunk), registers(problem, config)
    shared = shared_bytes(problem, config)
    if needed > MOST_REGISTERS or shared > problem.target.limits.block_shared:
        return 0
    return occupancy(Resources(needed, 0, 0, 0, 0, 0), threads * config.rows, shared, problem.target.arch)


def estimate(problem: ScanProblem, config: ScanConfig) -> ScanEstimate:
    """The time of ``config`` for ``problem``, if a multiprocessor holds a block of it."""
    target, figures, assumed = problem.target, problem.target.rows, problem.target.assumed
    threads = ceil(problem.columns / config.chunk)
    block = threads * config.rows
    blocks = ceil(ceil(problem.rows / config.width) / config.rows)
    held = max(1, min(residents(problem, config), ceil(blocks / target.sms)))
    together = target.sms * held
    waves = blocks / together if blocks > 4 * together else ceil(blocks / together)
    of_thread = config.chunk * config.width * problem.slots / problem.elements
    steps = levels(threads, *totals_of(max(problem.totals), config.width)) if threads > 1 else ()
    joins = len(problem.totals) * (2 * len(steps) * assumed.barrier_cycles + sum(steps) * config.width * TOTAL_CYCLES)
    is_alone = held == 1 and blocks >= target.sms  # while a block waits no other one loads or stores
    latency = target.latency_cycles if is_alone else figures.load_cycles
    cycles = latency + of_thread * figures.issue_cycles + joins + figures.store_cycles
    if blocks < target.sms:  # no other block of a multiprocessor waits while one moves its bytes
        cycles += (problem.loaded + problem.stored) / (blocks * target.l2_bytes_per_cycle)
    full = problem.columns / (threads * config.chunk) * block / (ceil(block / WARP) * WARP)
    passed, moved, lines = _traffic(problem, config)
    if problem.along:  # its rows are dealt to as many threads as a row of the scans has
        full *= config.rows / (ceil(config.rows / threads) * threads)
    most = ceil(blocks / target.sms) * target.sms / blocks  # of what all blocks do, on the multiprocessor with most, relative to an even part
    times = {
        "memory": max(target.dram_us(problem.loaded + problem.stored), passed, most * moved / (target.l2_bytes_per_cycle * target.cycles_per_us)),
        "lookups": most * (lines + problem.exchanged * problem.elements / (WARP * full)) / target.cycles_per_us,
        "instructions": most * target.issue_us(problem.slots / full),
        "waits": waves * cycles / target.clock_mhz,
    }
    bound = max(times, key=lambda name: times[name])
    us = target.kernel_us(*times.values()) + figures.others * sum(t for name, t in times.items() if name != bound)
    if is_alone and bound != "waits":
        us += (1 - figures.others) * times["waits"]
    us = max(us, target.kernel_us(blocks / target.sms * figures.block_cycles / target.clock_mhz))
    return ScanEstimate(config, us, held, bound, block=(config.rows, threads, 1))


def _traffic(problem: ScanProblem, config: ScanConfig) -> tuple[float, float, float]:
    """Microseconds and bytes of the sectors that pass the L2 cache, and the lines that warps look up: as many rows stand side by side."""
    target = problem.target
    beside = min(config.rows * config.width, problem.run)
    asked = min(WARP, config.rows * ceil(problem.columns / config.chunk)) * config.width
    passed = moved = lines = 0.0
    across = [(size, problem.run, beside) for size in (*problem.loads, *problem.elsewhere, *problem.stores)]
    for size, whole, own in (*across, *((size, whole, min(config.rows, whole)) for size, whole in problem.along)):
        run = own * size
        is_aligned = whole * size % min(run, SECTOR_BYTES) == 0 and (run % SECTOR_BYTES == 0 or SECTOR_BYTES % run == 0)
        sectors = problem.elements * (max(run, SECTOR_BYTES) if is_aligned else run + SECTOR_BYTES - size) / own
        share = next((of for unit, of in target.rows.run_shares if run % unit == 0 and whole * size % unit == 0), target.rows.run_shares[-1][1])
        passed, moved = passed + sectors / (target.l2_bytes_per_us * share), moved + sectors
        of_warp = min(own, asked)
        lines += problem.elements / of_warp * (1 + (0 if is_aligned and run <= LINE_BYTES else max(0, of_warp * size - SECTOR_BYTES) / LINE_BYTES))
    return passed, moved, lines


def candidates(problem: ScanProblem) -> Iterator[ScanEstimate]:
    """The configurations that the model chooses from, with their estimates."""
    most = max(CHUNK_BYTES // max(problem.totals), 1)
    even = {ceil(problem.columns / (1 << k)) for k in range(MAX_THREADS.bit_length())}
    whole = {n for n in range(1, most + 1) if problem.columns % n == 0}
    widths = [1 << k for k in range(problem.width.bit_length())]
    for width in widths:
        vectors = ceil(problem.rows / width)
        for chunk in sorted(n for n in even | whole if n * width <= most):
            threads = ceil(problem.columns / chunk)
            for rows in (1 << k for k in range(MOST_ROWS.bit_length())):
                if threads * rows > MAX_THREADS or (rows >= 2 * vectors and rows > 1):
                    break
                if threads * rows < FEWEST_THREADS and 2 * rows < 2 * vectors and rows < MOST_ROWS:
                    continue
                config = ScanConfig(chunk, rows, width)
                if residents(problem, config) > 0:
                    yield estimate(problem, config)


@lru_cache(maxsize=256)
def rank(problem: ScanProblem) -> tuple[ScanEstimate, ...]:
    """All candidates, the fastest first; ties go to fewer threads."""
    return tuple(sorted(candidates(problem), key=lambda e: (e.us, e.config.chunk * -1, e.config.rows)))
