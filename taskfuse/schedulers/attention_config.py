"""The parameters of ``tf.schedulers.attention``: what they mean, and the registers and Shared memory that they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from taskfuse.dtypes import float32
from taskfuse.ir.atoms import WGMMA_K_BYTES, WGMMA_ROWS
from taskfuse.kir.declarations import CLAIM_BYTES
from taskfuse.schedulers.config import BARRIER_BYTES
from taskfuse.schedulers.parameters import Parameters
from taskfuse.target import WARPGROUP, launch_registers

ITEMSIZE = 2
"""Bytes of an element of the factors, except for queries and keys of 8 bits."""
STEP = WGMMA_K_BYTES // ITEMSIZE
"""Terms of an instruction."""
PIECE = 64
"""Columns of results that the copy engine stores at once: the longest rows that it swizzles."""
OTHERS = 24
"""Registers of a thread for other values than tiles."""
ROUNDED = 16
"""The number of exponentials per register of rounded ones that coexists with them."""
TURN = 6
"""Registers of a thread for the indices of rows that blocks take in turn."""
STAGING = 6
"""Registers of a thread for the indices of staged results."""
MASK = 8
"""Registers of a thread for the indices that a mask, or the end of the keys, compares."""
PIPELINED = 28
"""Registers of a thread for other values than tiles that live while products of two chunks are in flight, besides :data:`OTHERS`: with fewer, ptxas of CUDA
13.0 and 13.5 spilled, with ``fast_math``. Without, staged results take some more; ``tf.compile`` then takes other parameters."""
REGISTERS = {1: 240, 2: 240, 3: 160}
"""Registers of a thread that multiplies, by warpgroups, of the one block of a multiprocessor."""
LOADING = 24
"""Registers of a thread that loads."""
SCORING, HOLDING = 152, 168
"""Registers of a thread that computes scores, and of one that has sums, of three warpgroups beside the one that loads."""
HANDED = 3
"""Numbers of each row that go with the exponentials: the factor of the sums, the maximum, and its sum."""
APART_COLUMNS = 128
"""The most columns of an instruction of theirs: ptxas (CUDA 13.0, 13.5) takes no more accumulators than fit the registers at launch, 128 of each thread."""
APART_CHUNK = 128
"""The most keys of a chunk whose scores, exponentials and rounded ones fit :data:`SCORING`."""
APART = 2
"""The warpgroups, and parts of the columns, beside one of scores."""
STAGED = 2
"""Staged pieces of results that are tried: one is filled while the other is stored."""
CLUSTERS = (1, 2)
"""Possible numbers of blocks that share keys and values."""
SHARED_COLUMNS = 256
"""The fewest columns for which two blocks share one copy of keys and values: with fewer, sharing was slower."""
WIDEST = 256
"""The most columns of a result that the registers of one warpgroup hold."""


def span(row: int) -> int:
    """Bytes of the pieces that rows of some bytes are cut into in Shared memory, where they are swizzled: the most that divides rows; if nothing does, the rest
    of a last piece is filled with zeros."""
    return next((s for s in (128, 64, 32) if row % s == 0), 128)


@dataclass(frozen=True, slots=True)
class AttentionConfig(Parameters):
    """The parameters of a schedule of two products with a cascade of reductions between them.

    Attributes:
        warpgroups: multiplying warpgroups, with 64 rows of a block each, or part of the columns of 64 rows.
        chunk: keys per step of the walk, after which the sums are rescaled.
        stages: chunks of keys, and of values, in Shared memory.
        cluster: blocks of neighboring rows that share one copy of keys and values.
        blocks: blocks of a persistent grid, which take tiles of rows in turn, so that loads run ahead into the next tile, or claim them if walks differ in
            length; 0: one block for each tile.
        query_stages: tiles of queries in Shared memory, in a persistent grid.
        staged: pieces of results, of 64 columns, that each warpgroup has in Shared memory, from where the copy engine stores them; 0: threads store results.
        residents: blocks of a multiprocessor: while one waits, or stores, others multiply. Threads have fewer registers, rings fewer slots.
        parts: warpgroups that have the same rows, each with its part of the columns of the result, for heads whose results do not fit the registers of one:
            each computes the scores.
        apart: a warpgroup of its own computes the scores and their exponentials, and hands them to the others through Shared memory.
        is_pipelined: the product with the values of a chunk is issued behind that of queries and the next keys, and runs while the next exponentials are
            computed (FlashAttention-3, arXiv:2407.08608, section 3.2).
        in_turn: warpgroups issue their products one after another, so that one multiplies while others compute exponentials (section 3.1).
    """

    LEAST: ClassVar[Mapping[str, int]] = {"blocks": 0, "staged": 0}
    warpgroups: int = 3
    chunk: int = 128
    stages: int = 2
    cluster: int = 1
    blocks: int = 0
    query_stages: int = 1
    staged: int = 0
    residents: int = 1
    parts: int = field(default=1, kw_only=True)
    apart: bool = field(default=False, kw_only=True)
    is_pipelined: bool = field(default=False, kw_only=True)
    in_turn: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self.check_fields()
        if self.warpgroups > max(REGISTERS):
            raise self.error(f"{self.warpgroups} warpgroups", f"use 1 to {max(REGISTERS)}")
        if self.parts not in (1, self.warpgroups) or (self.apart and (self.parts != APART or self.residents > 1)):
            raise self.error(f"{self.parts} parts of the columns, of {self.warpgroups} warpgroups", "use as many as warpgroups, or 1; beside scores, 2")
        if self.chunk % STEP or self.chunk > 256:
            raise self.error(f"chunks of {self.chunk} keys", f"use a multiple of {STEP} up to 256")
        if self.cluster not in CLUSTERS:
            raise self.error(f"clusters of {self.cluster} blocks", f"use clusters of {' or '.join(map(str, CLUSTERS))} blocks")
        if self.blocks % self.cluster:
            raise self.error(f"{self.blocks} blocks in clusters of {self.cluster}", f"use a multiple of {self.cluster} blocks")
        if self.cluster > 1 and self.residents > 1:
            raise self.error(f"{self.residents} blocks of a multiprocessor, in clusters", "use residents=1")
        if self.is_pipelined and self.stages < 2:
            raise self.error("values are released one chunk late, with 1 stage", "use stages=2")
        if self.in_turn and self.warpgroups < 2:
            raise self.error("turns of 1 warpgroup", "use in_turn=False")
        if self.parts > 1 and (self.in_turn or self.is_pipelined):
            raise self.error("turns, or products ahead, of warpgroups with the same rows", "use in_turn=False and is_pipelined=False, or parts=1")
        if self.apart and self.chunk > APART_CHUNK:
            raise self.error(f"a warpgroup of its own with scores of {self.chunk} keys", f"use chunk={APART_CHUNK} or fewer")

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        several = f"{self.warpgroups} warpgroup{'s' if self.warpgroups > 1 else ''}"
        found = f"{several} of {WGMMA_ROWS} rows" if self.parts == 1 else f"{several} of parts of the columns of {WGMMA_ROWS} rows"
        found += f"{' and one of their scores' if self.apart else ''}, chunks of {self.chunk} keys, {self.stages} stages"
        found += f", clusters of {self.cluster} blocks" if self.cluster > 1 else ""
        found += f", {self.blocks} blocks in turn, {self.query_stages} stages of queries" if self.blocks else ""
        found += f", {self.staged} staged pieces of results" if self.staged else ""
        found += f", {self.residents} on a multiprocessor" if self.residents > 1 else ""
        found += ", products ahead" if self.is_pipelined else ""
        return f"{found}, in turn" if self.in_turn else found

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.warpgroups // self.parts * WGMMA_ROWS

    @property
    def register_room(self) -> int:
        """Registers of a thread that multiplies, at most."""
        if self.apart:
            return HOLDING
        if self.residents == 1:
            return REGISTERS[self.warpgroups]
        at_launch = launch_registers((1 + self.warpgroups) * WARPGROUP * self.residents)
        return max(0, at_launch * (1 + self.warpgroups) - LOADING) // self.warpgroups // 8 * 8

    def shared_bytes(self, row: int, value: int, claimed: int = 0) -> int:
        """Shared memory of a block: queries, the rings of keys and values, barriers, and the numbers of tiles of rows that it may claim.

        Args:
            row: bytes of a query, and of a key.
            value: bytes of a value; 0: it is a part of its key.
        """
        row, value = (-(-n // span(n)) * span(n) for n in (row, value))
        tiles = self.query_stages * self.rows * row + self.stages * self.chunk * (row + value) + self.staged * self.rows * PIECE * ITEMSIZE
        handed = self.rows * (self.chunk * ITEMSIZE + HANDED * float32.itemsize) if self.apart else 0
        return tiles + handed + BARRIER_BYTES + CLAIM_BYTES * claimed

    def registers(self, columns: int, masks: int, itemsize: int = ITEMSIZE) -> int:
        """Registers of a thread: scores, overwritten by their exponentials, the rounded exponentials, of the chunk before if they are multiplied behind the
        scores, and the sums.

        Args:
            columns: of the sums.
            masks: 0, 1 for the end of keys that chunks do not divide, or 2 for a diagonal.
            itemsize: bytes of a rounded exponential.
        """
        compared = 2 * MASK * min(masks, 1) if self.is_pipelined else MASK * masks
        held = columns // (2 * self.parts) + OTHERS + (TURN if self.blocks else 0) + (STAGING if self.staged else 0)
        if self.apart:
            return held
        rounded = self.chunk // 8 * itemsize if self.is_pipelined else self.chunk // ROUNDED
        if self.is_pipelined and itemsize < ITEMSIZE:  # ptxas spilled where this is 254, and not up to 240
            return self.chunk // 2 + rounded + held
        return self.chunk // 2 + rounded + (PIPELINED if self.is_pipelined else 0) + held + compared
