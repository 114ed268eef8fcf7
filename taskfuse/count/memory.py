"""The traffic of a warp's access: sectors of 32 bytes from and to Global memory, passes through the banks of Shared memory."""

from __future__ import annotations

import numpy as np

from taskfuse.count.launch import Array
from taskfuse.target import BANK_BYTES, BANKS, LINE_BYTES, SECTOR_BYTES


def distinct(values: Array, active: Array) -> Array:
    """The number of different values in each row among its active lanes."""
    found = np.sort(np.where(active, values, -1), axis=1)
    return (found[:, 0] >= 0).astype(np.int64) + ((found[:, 1:] != found[:, :-1]) & (found[:, 1:] >= 0)).sum(axis=1)


def sectors(begin: Array, size: int, active: Array) -> Array:
    """Sectors that each row accesses; every lane accesses ``size`` bytes from ``begin`` on."""
    first = begin // SECTOR_BYTES
    return sum((distinct(first + k, active) for k in range(1, size // SECTOR_BYTES)), distinct(first, active))


def lines(begin: Array, size: int, active: Array) -> Array:
    """Cycles in which a multiprocessor looks up the cache lines of each row."""
    return np.maximum(distinct(begin // LINE_BYTES, active), -(-size * active.sum(axis=1) // LINE_BYTES))


def kept(begin: Array, before: Array, size: int, active: Array) -> Array:
    """The share of each row's sectors that an earlier trip accessed, too."""
    if size > SECTOR_BYTES:
        return np.zeros(len(begin))
    here, there = np.where(active, begin // SECTOR_BYTES, -1), np.where(active, before // SECTOR_BYTES, -2)
    return (here[:, :, None] == there[:, None, :]).any(axis=2).sum(axis=1) / np.maximum(active.sum(axis=1), 1)


def passes(begin: Array, size: int, active: Array) -> Array:
    """Cycles of Shared memory for each row: 32 words at a time, plus the further cycles of bank conflicts among the lanes that 128 bytes serve at once."""
    words = np.where(active, begin // BANK_BYTES, -1)
    wide = max(size // BANK_BYTES, 1)
    together = max(BANKS // wide, 1)
    groups = words.reshape(-1, together)
    waits = _most_in_a_bank(groups, wide) - 1
    later = np.maximum(waits, 0).reshape(len(words), -1).sum(axis=1)
    return np.maximum(-(-wide * distinct(words, active) // BANKS), 1) + later


def _most_in_a_bank(words: Array, wide: int) -> Array:
    """The most different accesses that begin in one bank, for each row of lanes; ``words``: where the accesses begin, negative for lanes without one."""
    found = np.sort(words, axis=1)
    new = found >= 0
    new[:, 1:] &= found[:, 1:] != found[:, :-1]
    used = np.zeros((len(found), BANKS), np.int64)
    rows = np.broadcast_to(np.arange(len(found))[:, None], found.shape)
    np.add.at(used, (rows[new], found[new] // wide * wide % BANKS), 1)
    return used.max(axis=1)
