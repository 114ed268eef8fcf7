"""Tiles that several blocks share: split-K and stream-K, for ``tv.chunk_product``.

A result of few tiles and long sums leaves most blocks without a tile. Split-K gives each tile the same number of blocks; stream-K gives all blocks the same
number of steps, across tiles, and so has no partial last wave.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.ir.shares import Shares
from taskfuse.ir.signatures import checked_first


@dataclass(frozen=True, slots=True)
class SplitK:
    """Each tile by ``parts`` blocks.

    Attributes:
        parts: blocks of a tile; fewer if shares do not get longer.
    """

    parts: int

    def shares(self, tiles: int, steps: int) -> Shares:
        """The shares of ``tiles`` tiles, each of ``steps`` steps of k."""
        return Shares(tiles, steps, 1, -(-steps // self.parts))


@dataclass(frozen=True, slots=True)
class StreamK:
    """All steps of all tiles by ``blocks`` blocks.

    Attributes:
        blocks: of the grid; fewer if shares do not get longer.
    """

    blocks: int

    def shares(self, tiles: int, steps: int) -> Shares:
        """The shares of ``tiles`` tiles, each of ``steps`` steps of k."""
        return Shares(tiles, steps, tiles, -(-tiles * steps // self.blocks))


@checked_first
def split_k(parts: int) -> SplitK:
    """Each tile by ``parts`` blocks, which divide its sum.

    Raises:
        ValueError: ``parts`` is less than 1.
    """
    if parts < 1:
        raise ValueError(f"a tile has at least 1 block, not {parts}")
    return SplitK(parts)


@checked_first
def stream_k(blocks: int) -> StreamK:
    """All steps of all tiles, in equal shares for ``blocks`` blocks: a share may span tiles, and a tile may span shares.

    Raises:
        ValueError: ``blocks`` is less than 1.
    """
    if blocks < 1:
        raise ValueError(f"a grid has at least 1 block, not {blocks}")
    return StreamK(blocks)
