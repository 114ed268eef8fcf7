"""Offsets of groups whose lengths a table holds: where each group begins, and where the last one ends.

Routers make lengths, and indices need their sums. The sums are a table too, ``lengths.offsets``, which no caller passes: element g is the sum of the first g
lengths. Every block of a kernel that reads them sums them up itself, once.

A length counts as 0 if it is negative, and no sum is more than the total. So whatever the lengths are, their offsets rise from 0 to the total; what the lengths
leave of it belongs to the last group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

OFFSETS = ".offsets"
"""The end of a name of offsets; it begins with that of the lengths."""


def offsets_name(lengths: str) -> str:
    """The name of the offsets of groups, from that of the table of their lengths."""
    return lengths + OFFSETS


def lengths_name(offsets: str) -> str | None:
    """The table of lengths that offsets of this name are of; ``None``: it is no such name."""
    return offsets.removesuffix(OFFSETS) if offsets.endswith(OFFSETS) else None


def offsets(lengths: NDArray[np.integer], total: int) -> NDArray[np.int64]:
    """The offsets of groups: one more than there are ``lengths``, from 0 to ``total``."""
    ends = np.minimum(np.cumsum(np.clip(lengths, 0, total), dtype=np.int64), total)
    return np.concatenate([[0], ends[:-1], [total]]).astype(np.int64)
