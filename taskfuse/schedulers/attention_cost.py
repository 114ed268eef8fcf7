"""The parameters of ``tf.schedulers.attention`` that fit a fusion and a multiprocessor, and the time of a walk over the keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.dtypes import float32
from taskfuse.ir.atoms import WGMMA_K_BYTES, WGMMA_ROWS
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.offsets import offsets_name
from taskfuse.ir.scalar import Const, Expr, evaluate, integers_of, is_multiple
from taskfuse.ir.tables import places
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.attention_config import APART, APART_CHUNK, ITEMSIZE, PIECE, REGISTERS, SHARED_COLUMNS, STAGED, STEP, WIDEST, AttentionConfig
from taskfuse.schedulers.config import shared_room
from taskfuse.schedulers.roofline import bytes_of
from taskfuse.schedulers.schedule import Option, Sizes, check_wgmma, refuse
from taskfuse.target import Target

KEYS = 128
"""Keys of the chunk for which the target has figures."""
SAMPLES = 8
"""The number of blocks whose trips are counted for the mean."""
INSTRUCTIONS = 4.5
"""Instructions per score besides the exponential: maximum, scale, sum, rounding, and those for the rescaled sums."""


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """Two products with reductions between them.

    Attributes:
        scores: the first product.
        reductions: those of its elements along its columns, in order; the last one is the second product.
        batch, m, n, d: positions of axes in the iteration space of ``scores``.
        columns: extent of the columns of the second product.
        queries, keys: which operands of ``scores`` have its rows, and its columns.
        is_padded: keys, or values, are inputs that are padded with zeros.
        start, end: the keys before which, and from which on, a mask excludes all keys, over the symbols of a row and of batch axes; ``None``: unknown.
        row: the symbol of a row, if the end depends on it.
        run: the length of runs of contiguous keys, such as pages; 0: all keys are contiguous.
        itemsize: bytes of an element of the queries and of the keys.
        value_itemsize: bytes of an element of the values, and of the exponentials that multiply them.
        start_in_keys: the element of a key at which its value begins, if that is a part of it; ``None``: it is not.
        has_bulk_results: the copy engine can store all results that have columns, in pieces.
    """

    scores: TensorView
    reductions: tuple[TensorView, ...]
    batch: tuple[int, ...]
    m: int
    n: int
    d: int
    columns: int
    queries: int
    keys: int
    is_padded: bool
    start: Expr | None
    end: Expr | None
    row: str
    run: int
    itemsize: int
    value_itemsize: int
    start_in_keys: int | None
    has_bulk_results: bool

    @property
    def is_masked(self) -> bool:
        """Whether walks of some rows are shorter than the keys."""
        return self.start is not None or self.end is not None

    def value_bytes(self, config: AttentionConfig, *, is_whole: bool) -> int:
        """Bytes of a value in a ring of values; 0: products read it from the ring of keys.

        ``is_whole``: chunks divide the keys; others are copies, padded with zeros, of which products read the first columns.
        """
        is_part = self.start_in_keys is not None and (is_whole or self.start_in_keys == 0)
        return 0 if is_part and not config.is_pipelined else self.columns * self.value_itemsize

    @property
    def rows(self) -> tuple[int, ...]:
        """Positions of the axes that blocks divide."""
        return (*self.batch, self.m)


def planned(fusion: Fusion, found: Attention, extent: Sizes) -> tuple[Option[AttentionConfig], ...]:
    """Parameters that fit, the fastest first. Raises :class:`UnsupportedError`: none do."""
    target = extent.target
    check_wgmma(fusion, "attention", target)
    walk = WalkExtents.of(fusion, found, extent)
    fit = [c for c in _every(found, target) if _problem(fusion, found, c, walk.depth, extent) is None]
    options = sorted((Option(c, _us(found, c, walk, extent)) for c in fit), key=lambda o: o.us)
    if not options:
        raise refuse(fusion, "attention", f"tiles of {walk.depth} and {found.columns} columns do not fit a multiprocessor")
    return tuple(options)


def planned_chunks(
    fusion: Fusion, found: Attention, counts: Iterable[int], extent: Sizes, most: Callable[[int], float] = lambda _: math.inf
) -> dict[int, Option[AttentionConfig]]:
    """The fastest parameters for parallel chunks of the keys (:func:`taskfuse.chunk_cascade`), whose length is a multiple of ``config.chunk``, if some fit.

    The copy engine fills short chunks with zeros past the end of a tensor; if keys end elsewhere, as in pages, chunks divide them.

    Args:
        counts: numbers of chunks.
        most: the most microseconds of interest for a number of chunks; where the bytes alone take longer, no parameters are looked for.
    """
    whole = WalkExtents.of(fusion, found, extent)
    fit = [c for c in _every(found, extent.target) if _problem(fusion, found, c, whole.depth, extent, is_whole=True) is None]
    made: dict[int, Option[AttentionConfig]] = {}
    for n in counts if fit else ():
        written = float(n * whole.batch * whole.m * (found.columns + len(found.reductions) - 1) * float32.itemsize)
        walk = replace(whole, batch=n * whole.batch, moved=whole.moved - whole.written + written, written=written)
        if extent.target.kernel_us(extent.target.dram_us(walk.moved)) > most(n):
            continue
        several = fit if not (found.run or found.is_padded) else [c for c in fit if is_multiple(found.scores.root[found.n].extent, n * c.chunk, fusion.facts())]
        options = (Option(c, _us(found, c, replace(walk, n=-(-whole.n // (n * c.chunk)) * c.chunk), extent)) for c in several)
        best = min(options, key=lambda o: o.us, default=None)
        if best is not None:
            made[n] = best
    return made


@dataclass(frozen=True, slots=True)
class WalkExtents:
    """The extents of walks, in numbers.

    Attributes:
        batch: products with rows, and keys, of their own.
        m, n, depth: rows, keys, and elements of each.
        moved: bytes of inputs and outputs.
        written: those of outputs.
    """

    batch: int
    m: int
    n: int
    depth: int
    moved: float
    written: float

    @classmethod
    def of(cls, fusion: Fusion, found: Attention, extent: Sizes) -> WalkExtents:
        """Those of a fusion."""
        root = found.scores.root
        m, n, depth = (extent(root[p].extent) for p in (found.m, found.n, found.d))
        written = float(sum(extent.elements(tv) * tv.dtype.itemsize for tv in fusion.outputs))
        return cls(prod(extent(root[p].extent) for p in found.batch), m, n, depth, bytes_of(fusion, extent), written)


def _every(found: Attention, target: Target) -> list[AttentionConfig]:
    """Parameters that may be tried."""
    least = 64 if found.columns <= WIDEST else 32
    every = [AttentionConfig(w, c, s) for w in REGISTERS for c in range(least, 256 + STEP, STEP) for s in (2, 3)]
    if found.columns > WIDEST:
        every = [replace(c, parts=c.warpgroups) for c in every if c.warpgroups == -(-found.columns // WIDEST)]
        every += [replace(c, apart=True) for c in every if c.warpgroups == APART and c.chunk <= APART_CHUNK]
    every += [replace(c, blocks=target.sms, query_stages=q) for c in every for q in (1, 2)]
    if not found.is_masked and SHARED_COLUMNS <= found.columns <= WIDEST:
        every += [replace(c, cluster=2) for c in every if c.query_stages == 1]
    every += [replace(c, staged=STAGED) for c in every if c.stages == 2 and found.has_bulk_results]
    every += [replace(c, staged=1) for c in every if c.staged and c.blocks and c.query_stages > 1 and found.is_masked]  # beside what blocks claim
    figures, has_bytes = target.attention, found.value_itemsize < ITEMSIZE
    gains = figures.byte_ahead_gains if has_bytes else figures.ahead_gains
    gaining = [c for c in every if c.warpgroups == c.stages == 2 and c.cluster == 1 and (found.columns, c.chunk) in gains]
    gaining = [c for c in gaining if c.chunk <= c.rows or not found.is_masked]  # more of a longer chunk is masked
    turning = [c for c in every if c.stages == 2 and not c.staged and (c.warpgroups, found.columns, c.chunk) in figures.byte_turns]
    turning = [] if found.is_masked or not has_bytes else turning  # walks of one length were measured
    return every + [replace(c, is_pipelined=True) for c in gaining] + [replace(c, is_pipelined=True, in_turn=True) for c in turning]


def _problem(fusion: Fusion, found: Attention, config: AttentionConfig, depth: int, extent: Sizes, *, is_whole: bool = False) -> tuple[str, str] | None:
    """Why parameters do not suit the fusion or a multiprocessor, and which would; ``None`` if they do.

    ``is_whole``: their chunks will divide the keys.
    """
    is_masked = found.is_masked
    if config.cluster > 1 and is_masked:
        return "blocks of a cluster read the same keys, but a mask ends their walks at different ones", "use cluster=1"
    if config.blocks and is_masked and not all(isinstance(found.scores.root[p].extent, Const) for p in found.rows):
        return "blocks claim rows, as walks are of unequal length, and the number of rows is not constant", "use blocks=0"
    if config.chunk % (WGMMA_K_BYTES // found.value_itemsize):
        return f"an instruction multiplies {WGMMA_K_BYTES // found.value_itemsize} keys", "use chunks of a multiple of them"
    if config.apart and found.value_itemsize < ITEMSIZE:
        return f"exponentials of {8 * found.value_itemsize} bits stay in the registers that have their scores", "use apart=False"
    if config.staged and not found.has_bulk_results:
        return f"the copy engine stores 16-bit results of multiples of {PIECE} columns whose rows are inputs' rows", "use staged=0"
    is_whole = is_whole or is_multiple(found.scores.root[found.n].extent, config.chunk, fusion.facts())
    if found.is_padded and not is_whole:
        return "keys are padded, and the last chunk is not full", "use chunks that divide the keys"
    if found.run and not is_whole:
        return "keys lie in pages, and the last chunk is not full", "use chunks that divide the keys"
    masks = 2 * is_masked or int(found.is_padded or not is_whole)
    if found.columns > WIDEST * config.parts:
        return f"a warpgroup has {found.columns // config.parts} columns", f"use warpgroups with parts of at most {WIDEST}"
    if config.parts > 1 and found.columns % (config.parts * PIECE):
        return f"{config.parts} parts of {found.columns} columns are no multiples of {PIECE}", "use parts=1"
    registers, most = config.registers(found.columns, masks, found.value_itemsize), config.register_room
    if registers > most:
        return f"a thread needs {registers} registers and has {most}", "use smaller chunks, fewer warpgroups or fewer residents"
    room = extent.room - extent.target.limits.block_shared + shared_room(extent.target, config.residents)
    shared = config.shared_bytes(depth * found.itemsize, found.value_bytes(config, is_whole=is_whole), _claimed(found, config))
    if shared > room:
        return f"a block needs {shared} bytes of Shared memory and has {room}", "use smaller chunks, fewer stages, fewer warpgroups or fewer residents"
    return None


def _claimed(found: Attention, config: AttentionConfig) -> int:
    """Tiles of rows that a block may claim, if blocks do."""
    if not config.blocks or not found.is_masked:
        return 0
    *batch, rows = (found.scores.root[p].extent for p in found.rows)
    return prod(map(int, batch)) * -(-int(rows) // config.rows)


def check_fits(fusion: Fusion, found: Attention, config: AttentionConfig, extent: Sizes) -> None:
    """Raise :class:`UnsupportedError` if parameters do not fit a multiprocessor."""
    depth = found.scores.root[found.d].extent
    assert isinstance(depth, Const)
    problem = _problem(fusion, found, config, depth.value, extent)
    if problem is not None:
        raise refuse(fusion, "attention", f"with {config.words}: {problem[0]}", problem[1])


def _us(found: Attention, config: AttentionConfig, walk: WalkExtents, extent: Sizes) -> float:
    """Microseconds: of a chunk the products, and what they do not hide of the softmax; of rows what comes before and after their chunks. Or of all bytes.

    Of several blocks of a multiprocessor the products of a chunk of each come after one another, and all else at once.
    """
    target, figures = extent.target, extent.target.attention
    scores = config.rows * config.chunk * (1 if config.apart else config.parts)
    reading = max(1.0, (WGMMA_ROWS + config.chunk) / (2 * config.chunk))  # of few columns an instruction waits for its first factor
    products = (
        scores * walk.depth * found.itemsize * reading + config.rows * config.chunk * found.columns * found.value_itemsize
    ) / target.tensor_bytes_per_cycle
    softmax = scores * (1 / target.functions_per_cycle + INSTRUCTIONS / target.lanes) + config.rows * found.columns / target.lanes
    beside = min(config.residents * config.warpgroups, max(REGISTERS)) - 1
    if config.residents > 1:  # what one block waits for its keys is in the figures
        products = max(products, config.chunk * (walk.depth * found.itemsize + found.columns * found.value_itemsize) / target.l2_bytes_per_cycle)
    exposed = figures.exposed[beside] * config.chunk / KEYS
    cycles = config.residents * (products + exposed * softmax) + figures.chunk_cycles[beside]
    cycles += figures.apart_cycles if config.apart else 0
    cycles *= figures.ahead if config.is_pipelined else 1
    cycles *= figures.byte_turn if config.in_turn else 1
    cycles += figures.byte_chunk_cycles if found.value_itemsize < ITEMSIZE else 0
    cycles *= 1 if config.cluster == 1 else figures.shared_chunk
    cycles += figures.masked_cycles if found.is_masked else 0
    cycles += figures.staged_chunk_cycles if config.staged and not config.is_pipelined else 0
    tiles = -(-walk.m // (config.rows * config.cluster)) * config.cluster  # the last cluster may have a block without rows
    each = _chunks(found, config, tiles, walk.n, extent) * cycles
    cut = (found.start is not None) + (found.end is not None)  # diagonals that tiles of keys lie on
    each += cut * figures.diagonal * config.residents * products * config.rows / config.chunk
    stored = found.columns / PIECE * figures.piece_cycles if config.staged else 0
    waves = walk.batch * tiles / (config.blocks or target.sms * config.residents)
    waves = waves if found.row and waves > 1 else math.ceil(waves)  # where the shortest come last, they fill up the last wave
    if config.blocks:
        turn = (figures.claimed_cycles if found.is_masked else figures.turn_cycles)[config.query_stages - 1]
        total = figures.block_cycles + waves * (each + turn - stored)
    else:
        total = waves * (each + figures.block_cycles - stored)
    return target.kernel_us(total / target.clock_mhz, target.dram_us(walk.moved))


def _chunks(found: Attention, config: AttentionConfig, tiles: int, n: int, extent: Sizes) -> float:
    """Chunks of keys that a block walks, on average over some blocks; the most, if all run at once and each sequence has its own length."""
    if not found.is_masked:
        return -(-n // config.chunk)
    root = found.scores.root
    counts = [tiles, *(extent(root[p].extent) for p in found.batch)]
    samples = min(prod(counts), SAMPLES)
    blocks = np.linspace(0, prod(counts) - 1, samples).astype(np.int64)
    known: dict[str, Any] = {**extent.values, **_expected_tables(found.scores.fusion, extent)}
    row = blocks % tiles * config.rows
    for p, count in zip((found.m, *found.batch), counts, strict=True):
        known[str(iteration_symbol(p))] = blocks % count
        blocks = blocks // count

    def keys(bound: Expr | None, of_row: NDArray[np.int64], otherwise: int) -> NDArray[np.int64]:
        at = {**known, str(iteration_symbol(found.m)): of_row}
        return np.full(samples, otherwise) if bound is None else np.clip(np.broadcast_to(np.asarray(evaluate(bound, at)), (samples,)), 0, n)

    chunks = -(-keys(found.end, row + config.rows - 1, n) // config.chunk) - keys(found.start, row, 0) // config.chunk
    symbols = {name for bound in (found.start, found.end) if bound is not None for name in integers_of(bound)}
    at_once = prod(counts) <= extent.target.sms and not symbols <= {str(iteration_symbol(found.m)), *extent.values}
    return float((np.max if at_once else np.mean)(np.maximum(chunks, 0)))


def _expected_tables(fusion: Fusion, extent: Sizes) -> dict[str, NDArray[np.int64]]:
    """Elements of tables: offsets of groups of equal lengths; others from the least to the greatest, as :mod:`taskfuse.count` takes them to be."""
    found: dict[str, NDArray[np.int64]] = {}
    for tv, known in fusion.tables.items():
        low, high = (int(evaluate(e, extent.values)) for e in (known.low, known.high))
        size = extent(tv.shape[0])
        if known.rises or known.lengths:
            cuts = np.linspace(low, high, size + known.lengths).astype(np.int64)
            found |= {offsets_name(tv.name): cuts, tv.name: np.diff(cuts)} if known.lengths else {tv.name: cuts}
        elif known.holds is None:
            found[tv.name] = np.linspace(low, high, size).astype(np.int64)
    for tv, known in fusion.tables.items():
        if known.holds is not None:
            found[tv.name] = places(known.holds, extent(tv.shape[0]), {**extent.values, **found})
    return found
