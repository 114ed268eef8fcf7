"""The traffic of a warp's access: sectors of 32 bytes from and to Global memory, passes through the banks of Shared memory."""

from __future__ import annotations

from typing import Final

import numpy as np

from taskfuse.count.launch import Array

SECTOR: Final = 32
"""Bytes that the caches transfer at a time."""
LINE: Final = 128
"""Bytes that a multiprocessor looks up at a time."""
BANKS: Final = 32
"""Banks of Shared memory, each with one word per cycle."""
BANK_BYTES: Final = 4


def distinct(values: Array, active: Array) -> Array:
    """How many different values each row has among its active lanes."""
    found = np.sort(np.where(active, values, -1), axis=1)
    return (found[:, 0] >= 0).astype(np.int64) + ((found[:, 1:] != found[:, :-1]) & (found[:, 1:] >= 0)).sum(axis=1)


def sectors(begin: Array, size: int, active: Array) -> Array:
    """Sectors that each row touches; every lane has ``size`` bytes from ``begin`` on."""
    first = begin // SECTOR
    return sum((distinct(first + k, active) for k in range(1, size // SECTOR)), distinct(first, active))


def lines(begin: Array, size: int, active: Array) -> Array:
    """Cycles in which a multiprocessor looks its lines up."""
    return np.maximum(distinct(begin // LINE, active), -(-size * active.sum(axis=1) // LINE))


def kept(begin: Array, before: Array, size: int, active: Array) -> Array:
    """The share of the sectors of each row that a trip before it touched, too."""
    if size > SECTOR:
        return np.zeros(len(begin))
    here, there = np.where(active, begin // SECTOR, -1), np.where(active, before // SECTOR, -2)
    return (here[:, :, None] == there[:, None, :]).any(axis=2).sum(axis=1) / np.maximum(active.sum(axis=1), 1)


def passes(begin: Array, size: int, active: Array) -> Array:
    """Cycles of Shared memory that each row takes: the most words that one bank has to find, for as many lanes as 128 bytes serve at once."""
    words = np.where(active, begin // BANK_BYTES, -1)
    found = np.sort(words, axis=1)
    new = found >= 0
    new[:, 1:] &= found[:, 1:] != found[:, :-1]
    used = np.zeros((len(found), BANKS), np.int64)
    rows = np.broadcast_to(np.arange(len(found))[:, None], found.shape)
    np.add.at(used, (rows[new], found[new] % BANKS), 1)
    wide = max(size // BANK_BYTES, 1)
    return np.maximum(used.max(axis=1), -(-wide * new.sum(axis=1) // BANKS)) if wide == 1 else np.maximum(-(-wide * new.sum(axis=1) // BANKS), 1)
