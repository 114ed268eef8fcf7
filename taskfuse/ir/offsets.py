"""Offsets of groups whose lengths are in a table: where each group begins, and where the last one ends.

Routers produce lengths, and indices need their prefix sums. The sums are a table, too, ``lengths.offsets``, which no caller passes: element g is the sum of the
first g lengths. Every block of a kernel that reads them computes them once.

A negative length counts as 0, and no sum exceeds the total. So for any lengths the offsets rise from 0 to the total; rows that
remain belong to the last group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

OFFSETS = ".offsets"
"""Suffix of the name of offsets, after the name of the lengths."""


def offsets_name(lengths: str) -> str:
    """The name of the offsets of groups, from that of the table of their lengths."""
    return lengths + OFFSETS


def lengths_name(offsets: str) -> str | None:
    """The table of lengths behind offsets of this name; ``None``: it is not a name of offsets."""
    return offsets.removesuffix(OFFSETS) if offsets.endswith(OFFSETS) else None


def offsets(lengths: NDArray[np.integer], total: int) -> NDArray[np.int64]:
    """The offsets of groups: one more than there are ``lengths``, from 0 to ``total``."""
    ends = np.minimum(np.cumsum(np.clip(lengths, 0, total), dtype=np.int64), total)
    return np.concatenate([[0], ends[:-1], [total]]).astype(np.int64)
