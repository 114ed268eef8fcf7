"""A launch: blocks, threads, blocks resident on a multiprocessor, and the sample of warps that is counted.

The threads of a launch behave alike, so a few warps of a few blocks represent all. They are spread evenly over the grid and over a block, so that the members
of a horizontal group are sampled in proportion to their size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from taskfuse.count.live import most_at_once
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr, const
from taskfuse.ir.tables import places
from taskfuse.kir import Kernel
from taskfuse.kir.arguments import integer
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.shared_memory import shared_layout
from taskfuse.kir.walk import looked_up, table_range
from taskfuse.target import REGISTERS, THREAD_REGISTERS, WARP, Target

ROWS = 48
"""The approximate number of sampled warps."""
WARPS = 16
"""The most sampled warps of one block."""
SPREAD = 0.6180339887498949
"""Multiples of this number are spread evenly modulo 1 (golden ratio)."""
SPARE_REGISTERS = 24
"""Registers of a thread beyond those of its buffers: addresses, indices, loop variables, loads in flight."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Launch:
    """The shape of a launch.

    Attributes:
        symbols: values of the extents.
        tables: the integers of inputs whose elements occur in expressions: offsets of rows of one length; others rise from the least to the greatest.
        grid, block, cluster: x, y, z.
        resident: resident blocks of a multiprocessor, as limited by threads, Shared memory and the registers of buffers.
    """

    symbols: Mapping[str, int]
    tables: Mapping[str, Array]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    resident: int

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.block)

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return -(-self.threads // WARP)

    @staticmethod
    def of(kernel: Kernel, extents: Mapping[str, int], target: Target) -> Launch:
        """The launch for given extents."""
        symbols = dict(extents)

        def three(e: tuple[Expr, Expr, Expr]) -> tuple[int, int, int]:
            x, y, z = (max(integer(v, symbols), 1) for v in e)
            return x, y, z

        block = three(kernel.block)
        threads = prod(block)
        shared = integer(shared_layout(kernel).bytes, symbols)
        sizes = {b.name: _bytes(b, symbols) for b in kernel.buffers if not MEDIA[b.memory].has_addresses}
        local = most_at_once(kernel.body, sizes)
        registers = min(THREAD_REGISTERS, SPARE_REGISTERS + local // 4)
        limits = target.limits
        held = min(limits.blocks, limits.warps * WARP // max(threads, WARP), REGISTERS // (registers * max(threads, WARP)))
        if shared:
            held = min(held, limits.shared // (shared + limits.shared - limits.block_shared))
        used = looked_up(kernel)
        tables: dict[str, Array] = {}
        for p in (p for p in kernel.tables if p.name in used and p.holds is None):
            low, high = (integer(e, symbols) for e in p.rises or table_range(kernel, p.name) or (const(0), const(max(symbols.values(), default=1))))
            tables[p.name] = np.linspace(low, high, integer(p.shape[0], symbols)).astype(np.int64)
            if (found := p.offsets) is not None and found.rises is not None:  # of groups of equal lengths; their offsets come later
                first, last = (integer(e, symbols) for e in found.rises)
                tables[p.name] = np.diff(np.linspace(first, last, integer(found.shape[0], symbols)).astype(np.int64))
        for p in kernel.tables:
            if p.name in used and p.holds is not None:
                tables[p.name] = places(p.holds, integer(p.shape[0], symbols), {**symbols, **tables})
        return Launch(symbols, tables, three(kernel.grid), block, three(kernel.cluster), max(1, held, kernel.residents))


def _bytes(b: Buffer, symbols: Mapping[str, int]) -> int:
    return prod(integer(e, symbols) for e in b.shape) * b.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Sample:
    """Warps of a launch: rows of 32 lanes.

    Attributes:
        env: values of symbols: arrays that broadcast to rows x lanes.
        active: which lanes exist; the last warp of a block may have fewer.
        spread: a number in [0, 1) for each row.
        blocks: number of blocks that the rows belong to; rows of one block are consecutive.
    """

    env: dict[str, Any]
    active: Array
    spread: Array
    blocks: int

    @staticmethod
    def of(launch: Launch) -> Sample:
        """The sample of a launch."""
        warps = min(launch.warps, WARPS)
        blocks = min(launch.blocks, max(3, ROWS // warps))
        each = np.arange(warps) if warps == launch.warps else np.linspace(0, launch.warps - 1, warps).astype(np.int64)
        at = np.arange(blocks) if blocks == launch.blocks else ((0.5 + np.arange(blocks) * SPREAD) % 1 * launch.blocks).astype(np.int64)
        block = np.repeat(at, warps)[:, None]
        thread = np.tile(each, blocks)[:, None] * WARP + np.arange(WARP)[None, :]
        env: dict[str, Any] = {**launch.symbols, **launch.tables}
        for name, extents, linear in (("blockIdx", launch.grid, block), ("threadIdx", launch.block, thread)):
            x, y, _ = extents
            env |= {f"{name}.x": linear % x, f"{name}.y": linear // x % y, f"{name}.z": linear // (x * y)}
        env |= {f"clusterIdx.{c}": env[f"blockIdx.{c}"] % extent for c, extent in zip("xyz", launch.cluster, strict=True)}
        return Sample(env, thread < launch.threads, (np.arange(blocks * warps) * SPREAD)[:, None] % 1, blocks)
