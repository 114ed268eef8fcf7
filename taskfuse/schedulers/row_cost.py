"""The cost model of rows: how many threads and blocks share a row, and where it is kept between phases.

A kernel takes the greatest of several times, and a part of the others: its bytes at the speed of the memory that they come from, its instructions, the cache
lines that it looks up, and its waits; but at least what its blocks take to begin. A block waits for its loads, for the instructions of one thread, for its
exchanges between threads, and for its store.
Blocks that are resident together wait at the same time; a block that is alone also waits for its bytes. The figures are those of the target
(:class:`taskfuse.figures.RowFigures`); register counts, and where walks are unrolled, were fitted to the same schedules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2
from typing import ClassVar

from taskfuse.cuda.resources import occupancy
from taskfuse.kir.declarations import OFFSET_BYTES
from taskfuse.reports.resources import Resources
from taskfuse.schedulers.persistent_buffers import Keep
from taskfuse.schedulers.rows import RowConfig
from taskfuse.schedulers.schedule import Option
from taskfuse.target import DEFAULT, LINE_BYTES, MAX_THREADS, SECTOR_BYTES, WARP, Target

SPAN_ELEMENTS = 64
"""The fewest adjacent elements that the threads of a row load together, so that whole sectors of memory are read."""
BASE_REGISTERS, INPUT_REGISTERS, LOOP_REGISTERS, STEP_REGISTERS = 6, 4, 18, 8
"""Registers of a thread: for indices; per input, for addresses; for counters and addresses of a loop over a row; per load of a step."""
SHORT_ROW = 4
"""The most vectors of a row that one thread has."""
IN_FLIGHT = 64
"""The most bytes that a thread loads at once of several short rows."""
FULL = 4
"""Bytes of an element as it is computed."""
SHORT_WALK = 8
"""The most trips of a loop over a row that the C++ compiler unrolls; it then loads ahead."""
MOST_REGISTERS = 248
MOST_ELEMENTS = 64
"""The most elements of a row that a thread keeps in registers, and the most elements of all inputs that it loads at once."""
FEWEST_THREADS = 128
"""The fewest threads of a block, if there is work for them."""


@dataclass(frozen=True, slots=True)
class RowProblem:
    """Rows with numbers for their extents.

    Attributes:
        rows, columns: elements that are kept and reduced.
        width: elements of a vector.
        is_inner: vectors lie along a row; else across rows.
        run: elements of a row that lie side by side in memory, where kept axes stand between the reduced ones; ``None``: all, or vectors lie across rows. After
            a run come those of the next rows.
        phases: passes over a row.
        loads: bytes of an element, of each input that has rows of its own.
        store_bytes: of each element, of all outputs.
        loaded, stored: bytes of all inputs and outputs, each counted once; ``None``: of inputs and outputs that have every axis.
        crossed: how many of those inputs have their elements along another axis side by side: each element of a vector is an access of its own, and each thread
            along the vectors reads another line of memory.
        apart: how many of these have no neighbors along the reduced axes, either: threads of one row read other lines, too.
        turn: vectors along the contiguous axis: threads behind its end read of the lines that the first ones read; ``None``: there are more than threads.
        span: where vectors lie across rows: elements of kept axes that follow one another in memory behind the reduced ones; ``None``: whole sectors.
        scattered: how many outputs have them so: a warp stores a part of a sector for each of its threads.
        spread: how many inputs that all rows share have them so, by an axis of one element: each element of a vector is an access of its own, whose
            neighbors in a warp are a vector apart.
        beside: the same of inputs that lack the contiguous axis: a vector of the others takes one element of theirs, such as a row's place in a table.
        again: bytes that phases after the first to need them load again, if nothing is kept; ``None``: each phase needs all inputs.
        common: bytes of an element, of each input that all rows share, such as weights.
        reductions: results of a row.
        values: values of a row that its elements use: inputs, and functions of inputs and results.
        held: bytes of each element that later phases find in registers, or in Shared memory, by what is kept.
        functions: of each element, such as exponentials, each computed once.
        slots: issue slots of a warp per element of each lane, for all that is computed of an element once.
        repeated: those functions that later phases compute again, by what is kept.
        are_whole: each input that has rows of its own has every kept axis; else a thread that has several rows finds them in several registers.
        is_constant: the length of a row is known: it may be kept.
        may_share: the number of rows is known to be no greater than ``rows``: blocks that share a row fit the device.
        has_constant_rows: the number of rows is known.
        offsets: of groups, which each block makes of their lengths.
        target: the GPU.
    """

    rows: int
    columns: int
    width: int = 8
    is_inner: bool = True
    run: int | None = None
    phases: int = 1
    loads: tuple[int, ...] = (2,)
    store_bytes: int = 2
    loaded: float | None = None
    stored: float | None = None
    crossed: int = 0
    apart: int = 0
    turn: int | None = None
    span: int | None = None
    scattered: int = 0
    spread: int = 0
    beside: tuple[int, ...] = ()
    again: float | None = None
    common: tuple[int, ...] = ()
    reductions: int = 1
    values: int = 0
    held: tuple[tuple[Keep, int], ...] = ()
    functions: int = 0
    slots: int = 0
    repeated: tuple[tuple[Keep, int], ...] = ()
    are_whole: bool = True
    is_constant: bool = True
    may_share: bool = True
    has_constant_rows: bool = True
    offsets: int = 0
    target: Target = DEFAULT

    @property
    def load_bytes(self) -> int:
        """Bytes per element of all inputs that have rows of their own."""
        return sum(self.loads)

    @property
    def vectors(self) -> int:
        """Vectors of a row."""
        return ceil(self.columns / (self.width if self.is_inner else 1))

    @property
    def row_vectors(self) -> int:
        """Vectors of the kept axes; a thread has one."""
        return ceil(self.rows / self.results)

    @property
    def results(self) -> int:
        """Elements of the kept axes that a thread has: each has results of its own."""
        return 1 if self.is_inner else self.width

    def bytes_held(self, keep: Keep) -> int:
        """See ``held``."""
        return dict(self.held).get(keep, 0)


@dataclass(frozen=True, slots=True)
class RowEstimate(Option[RowConfig]):
    """The estimate of the model for one configuration.

    Attributes:
        registers: of a thread.
        residents: blocks of a multiprocessor at once.
        bound: the resource that limits the kernel.
    """

    HEADING: ClassVar[str] = "residents  bound         parameters"

    registers: int
    residents: int
    bound: str

    @property
    def row(self) -> str:
        """Its row of the table."""
        return f"{self.residents:9}  {self.bound:12}  {self.config.words}"


def registers(problem: RowProblem, config: RowConfig) -> int:
    """Registers of a thread that let it hold all that is live, in the phase where that is most.

    A row that is kept, or so short that the C++ compiler keeps it: its elements in float32, since the assembler holds what several phases
    compute of one element rather than to compute it again, and as they were loaded, if that is narrower, or all that is kept of them; beside what
    is computed at the moment and what other blocks found. Else: what is loaded at once, and one vector in float32, before and after an operation.
    In both, for each of the kept axes' elements of a thread, the values of a row and the partial result of one.
    """
    width = problem.width
    loaded = sum(_vector_registers(width, size) for size in problem.loads) + sum(_vector_registers(1, size) for size in problem.beside)
    common = sum(_vector_registers(width if problem.is_inner else 1, size) for size in problem.common)
    share = ceil(problem.vectors / (config.threads * config.blocks))
    found = 0
    if _is_kept(problem, share):
        # where a row has no last vector for some threads, guards split its walk: half of what rows share is loaded before its use, and results wait
        is_full = problem.vectors % (config.threads * config.blocks) == 0
        guarded = 0 if is_full or not common else ceil(share * common / 2) + _vector_registers(width, problem.store_bytes)
        narrow = sum(_vector_registers(width, size) for size in problem.loads if size < FULL)
        wide = loaded - narrow  # what is loaded in float32 is not held twice
        wide = max(width, wide + (width if narrow else 0))
        held = _vector_registers(width, problem.bytes_held(Keep.REGISTERS))
        joined = 2 + (_slots(problem, config) if config.blocks > 1 else 0)
        found = guarded + share * max(wide + narrow, held) + joined * problem.results
    if config.keep is not Keep.REGISTERS:
        loaded += common
        trips = ceil(share / config.unroll)
        together = config.each * config.unroll * (2 if problem.is_constant and 1 < trips <= SHORT_WALK else 1)
        found = max(found, LOOP_REGISTERS + 2 * width + together * loaded)
    values = max(problem.reductions * config.each, problem.values)
    found += BASE_REGISTERS + INPUT_REGISTERS * (len(problem.loads) + len(problem.beside)) + (values + 1) * problem.results
    return ceil(found / STEP_REGISTERS) * STEP_REGISTERS


def _is_kept(problem: RowProblem, share: int) -> bool:
    """True if rows of this many vectors of a thread fit its registers."""
    return problem.phases > 1 and problem.is_constant and share * problem.width <= MOST_ELEMENTS


def _vector_registers(width: int, itemsize: int) -> int:
    """Registers of a vector as loaded: elements share 32-bit registers; each load has at least one."""
    return ceil(width * itemsize / 4)


def shared_bytes(problem: RowProblem, config: RowConfig) -> int:
    """Shared memory of a block: rows that are kept there, the partial results that cross warps, in float32, and offsets of groups."""
    slots = ceil(config.threads / _lanes(problem, config))
    partial = 4 * problem.reductions * slots * config.rows * problem.results if slots > 1 else 0
    row = ceil(problem.vectors / (config.threads * config.blocks * config.unroll)) * config.threads * config.unroll * problem.width
    return OFFSET_BYTES * problem.offsets + partial + (row * config.rows * problem.bytes_held(Keep.SHARED) if config.keep is Keep.SHARED else 0)


def _lanes(problem: RowProblem, config: RowConfig) -> int:
    """Threads of a warp that share a row: its results are joined by shuffles."""
    return min(config.threads, WARP if problem.is_inner else max(WARP // config.rows, 1))


def residents(problem: RowProblem, config: RowConfig) -> int:
    """Resident blocks of a multiprocessor; 0 if no block fits, or a thread would need more registers than it can have."""
    return _residents(problem, config, registers(problem, config))


def _residents(problem: RowProblem, config: RowConfig, needed: int) -> int:
    shared = shared_bytes(problem, config)
    if shared > problem.target.limits.block_shared or needed > MOST_REGISTERS:
        return 0
    return occupancy(Resources(needed, 0, 0, 0, 0, 0), config.threads * config.rows, shared, problem.target.arch)


def estimate(problem: RowProblem, config: RowConfig) -> RowEstimate:
    """The time of ``config`` for ``problem``, if a multiprocessor holds a block of it."""
    needed = registers(problem, config)
    return _estimate(problem, config, needed, _residents(problem, config, needed))


def _estimate(problem: RowProblem, config: RowConfig, needed: int, most: int) -> RowEstimate:
    """The same, with the registers of a thread and the resident blocks."""
    target, figures = problem.target, problem.target.rows
    threads = config.threads * config.rows
    total = ceil(problem.row_vectors / (config.rows * config.each)) * config.blocks
    held = max(1, min(most, ceil(total / target.sms)) if problem.has_constant_rows else most)  # no more than there are: threads then have more registers
    together = min(total, target.sms * held)
    waves = total / together if total > 4 * together else ceil(total / together)
    trips = ceil(problem.vectors / (config.threads * config.blocks * config.unroll))
    walks = problem.phases if config.keep is Keep.NOTHING else 1
    row_bytes = problem.columns * problem.load_bytes
    elements = problem.rows * problem.columns
    loaded = float(elements * problem.load_bytes) if problem.loaded is None else problem.loaded
    stored = float(elements * problem.store_bytes) if problem.stored is None else problem.stored
    again = (walks - 1) * loaded if walks == 1 or problem.again is None else problem.again
    rows_at_once = together * config.rows * config.each // config.blocks * problem.results
    speed = target.l2_bytes_per_us if rows_at_once * row_bytes <= target.l2_bytes else target.dram_bytes_per_us
    functions = problem.functions + dict(problem.repeated).get(config.keep, 0)
    per_element = max(problem.phases * figures.instructions + functions * figures.function_instructions, problem.slots)
    if config.keep is not Keep.REGISTERS:  # what lacks an axis, as two rows of which all elements are compared, is loaded once for a vector
        per_element += problem.phases * figures.copy_instructions / (1 if problem.load_bytes else problem.width)
    thread = config.each * trips * config.unroll * problem.width * (per_element * figures.issue_cycles + functions * figures.function_cycles)
    cycles = trips * walks * figures.load_cycles + thread + problem.phases * _exchange(problem, config, total) + figures.store_cycles
    if total < target.sms:  # blocks alone on their multiprocessors: no other block waits while they move what they move, at the rate of one
        cycles += (loaded + again + stored) / (total * target.l2_bytes_per_cycle)
    lanes = ceil(threads / WARP) * WARP  # a warp that is not full takes as long
    work = elements * per_element * lanes / threads + total * lanes * problem.phases * figures.overhead_instructions
    # a row's threads past its end wait for the others: they are resident, and load nothing
    full = min(1.0, problem.vectors / (trips * config.threads * config.blocks * config.unroll))
    along = config.threads if problem.is_inner else config.rows
    lines = min(WARP, along, problem.turn or WARP)
    own = min(WARP, along if problem.is_inner else lines * max(1, WARP // config.rows))  # there, threads of one row in a warp
    looked = ((problem.crossed - problem.apart) * lines + problem.apart * own) * elements / WARP
    looked += problem.scattered * elements / WARP * min(WARP, along)
    looked += problem.spread * elements / WARP * min(WARP, problem.width * FULL * WARP / LINE_BYTES)
    times = {
        "memory": target.dram_us(loaded + stored) + again / speed,
        "instructions": target.issue_us(work / full) * ceil(total / target.sms) * target.sms / total,  # of the multiprocessor with most blocks
        "waits": waves * cycles / target.clock_mhz,
        "lookups": looked / target.cycles_per_us,
        "scattered": problem.scattered * elements * figures.scattered_sectors * SECTOR_BYTES / target.l2_bytes_per_us,
        **_runs(problem, config, walks),
    }
    bound = max(times, key=lambda name: times[name])
    us = target.kernel_us(*times.values()) + figures.others * sum(t for name, t in times.items() if name != bound)
    us = max(us, target.kernel_us(total / target.sms * figures.block_cycles / target.clock_mhz))
    us += target.overlap_us if config.blocks > 1 else 0.0  # its launch is cooperative
    block = (config.threads, config.rows, 1) if problem.is_inner else (config.rows, config.threads, 1)
    return RowEstimate(config, us, needed, held, bound, block=block, is_cooperative=config.blocks > 1)


def _runs(problem: RowProblem, config: RowConfig, walks: int) -> dict[str, float]:
    """Microseconds for runs of elements that are no row's all: each begins and ends within a sector, but where a block has the next row, too; and a warp looks
    up the lines of all runs that its threads have, of which those of its rows at one place lie side by side. Across rows, what a block has of each element of
    its rows is such a run, where the kept axes behind the reduced ones are no multiple of a sector."""
    target, elements = problem.target, problem.rows * problem.columns
    sizes = [*problem.loads * walks, *([problem.store_bytes] if problem.store_bytes else [])]
    if not problem.is_inner:
        sizes = [size for size in sizes if problem.span is not None and problem.span * size % SECTOR_BYTES]
        beside, asked, rows = config.rows * problem.width, problem.width, min(config.rows, WARP)
        lines = sum(1 + rows * asked * size / LINE_BYTES for size in sizes) * elements / (asked * rows)
    elif problem.run is None:
        return {}
    else:
        beside = problem.run * config.rows
        threads = min(WARP, config.threads)
        asked, rows = threads * problem.width, min(WARP // threads, config.rows)
        wide = rows * min(problem.run, asked)
        lines = sum((1 + asked / problem.run) * max(1, wide * size / LINE_BYTES) for size in sizes) * elements / (asked * rows)
    moved = sum(elements * size * (1 + (SECTOR_BYTES - size) / (beside * size)) for size in sizes if size < SECTOR_BYTES)
    return {"sectors": moved / target.l2_bytes_per_us, "lines": lines / target.cycles_per_us}


def _exchange(problem: RowProblem, config: RowConfig, total: int) -> float:
    """Cycles from the last partial result of a thread to the result of the row, in a launch of ``total`` blocks."""
    lanes, figures = _lanes(problem, config), problem.target.rows
    others = ceil(config.threads / lanes)
    inside = log2(lanes) * figures.shuffle_cycles if lanes > 1 else 0
    across = figures.barrier_cycles + others * figures.slot_cycles if others > 1 else 0
    if config.blocks == 1:
        return problem.results * (inside + across)
    joins = 2 if problem.is_constant else 1  # the threads of a row join the results of blocks like those of threads, where its length is known
    grid = figures.grid_cycles + total * figures.arrival_cycles
    parts = problem.results * problem.reductions * _slots(problem, config)
    return problem.results * joins * (inside + across) + grid + parts * figures.block_slot_cycles


def _slots(problem: RowProblem, config: RowConfig) -> int:
    """Results of blocks that a thread joins, where several share a row."""
    return ceil(config.blocks / min(config.threads, config.blocks)) if problem.is_constant else config.blocks


def candidates(problem: RowProblem) -> Iterator[RowEstimate]:
    """The configurations that the model chooses from, with their estimates."""
    fewest = min(SPAN_ELEMENTS // problem.width, WARP, 1 << (problem.vectors - 1).bit_length()) if problem.is_inner else 1
    yield from _short(problem)
    for threads in (1 << k for k in range(fewest.bit_length() - 1, MAX_THREADS.bit_length())):
        if threads >= 2 * problem.vectors and threads > fewest:
            break
        for rows in _rows(problem, threads):
            for blocks in _blocks(problem, threads, rows):
                for config in _kept(problem, threads, rows, blocks):
                    needed = registers(problem, config)
                    held = _residents(problem, config, needed)
                    if held > 0 and _fits(problem, config, held):
                        yield _estimate(problem, config, needed, held)


def _short(problem: RowProblem) -> Iterator[RowEstimate]:
    """Rows so short that one thread has several: neighboring threads have neighboring rows, no thread waits for another, and each has more loads in flight."""
    if not problem.is_constant or problem.phases > 1 or problem.vectors > SHORT_ROW:
        return
    asked = problem.vectors * problem.width * problem.load_bytes
    for rows in (FEWEST_THREADS, 2 * FEWEST_THREADS):
        for each in (1, 2, 4):
            config = RowConfig(1, rows, problem.vectors, 1, Keep.NOTHING, each)
            if each == 1 or (problem.are_whole and each * asked <= IN_FLIGHT and problem.row_vectors >= rows * each * problem.target.sms):
                yield estimate(problem, config)


def _rows(problem: RowProblem, threads: int) -> list[int]:
    """Rows of a block: enough for a few warps. Across rows, as many vectors as make lines of memory, if there are so many; where these leave
    multiprocessors without a block, as in sums of the rows of a small matrix, as few as make whole sectors."""
    if problem.is_inner and threads > WARP:
        return [1]
    if problem.is_inner:
        return sorted({min(most // threads, 1 << (problem.rows - 1).bit_length()) for most in (FEWEST_THREADS, 2 * FEWEST_THREADS)})
    fewest = min(8, 1 << (problem.row_vectors - 1).bit_length())
    sector = ceil(SECTOR_BYTES / (problem.width * min(problem.loads, default=FULL)))
    narrow = [n for n in (2, 4) if sector <= n < fewest and n * threads >= FEWEST_THREADS and ceil(problem.row_vectors / fewest) < problem.target.sms]
    several = [n for n in (16, 32, 64, 128, 256) if n <= 64 or n * threads <= 2 * FEWEST_THREADS]
    return [n for n in (*narrow, fewest, *several) if n * threads <= MAX_THREADS and (n <= fewest or n < 2 * problem.row_vectors)]


def _blocks(problem: RowProblem, threads: int, rows: int) -> list[int]:
    """Blocks that share a row: more than one where rows are too few to fill the device."""
    found = [1]
    if problem.is_inner and rows > 1:
        return found
    groups, most = ceil(problem.row_vectors / rows), problem.vectors // (threads * 4)
    while problem.may_share and groups * found[-1] * 2 <= 2 * problem.target.sms and problem.vectors >= threads * found[-1] * 4:
        found.append(found[-1] * 2)
    if problem.may_share and problem.is_constant:  # as many blocks on each multiprocessor
        found += [n for each in (1, 2) if 1 < (n := each * problem.target.sms // groups) <= most and n not in found]
    return found


def _kept(problem: RowProblem, threads: int, rows: int, blocks: int) -> Iterator[RowConfig]:
    """Ways to have a row again. A row of known length that fits registers is not read again: NVVM would unroll its loops, and keep it anyway."""
    share = ceil(problem.vectors / (threads * blocks))
    if problem.phases > 1 and problem.is_constant and problem.bytes_held(Keep.SHARED):
        yield RowConfig(threads, rows, min(share, 4), blocks, Keep.SHARED)
    if _is_kept(problem, share):
        yield RowConfig(threads, rows, share, blocks, Keep.REGISTERS)
        return
    for unroll in (1, 2, 4, 8):
        if unroll == 1 or (unroll <= share and unroll * problem.width * len(problem.loads) <= MOST_ELEMENTS):
            yield RowConfig(threads, rows, unroll, blocks, Keep.NOTHING)


def _fits(problem: RowProblem, config: RowConfig, held: int) -> bool:
    """True if blocks that wait for each other are all on the device at once, this many on a multiprocessor."""
    return config.blocks == 1 or ceil(problem.row_vectors / config.rows) * config.blocks <= problem.target.sms * held


@lru_cache(maxsize=256)
def rank(problem: RowProblem) -> tuple[RowEstimate, ...]:
    """All candidates, the fastest first; ties go to full warps, then to fewer threads."""
    return tuple(sorted(candidates(problem), key=lambda e: (e.us, (threads := e.config.threads * e.config.rows) < WARP, threads)))
