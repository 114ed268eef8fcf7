"""Whether some flags hold, or all of them; the extremes of numbers.

NumPy's methods go through Python and a reduction: for the flags of a block's threads they take four times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def any_of(flags: NDArray[Any] | np.bool_) -> bool:
    """Whether one is not 0."""
    return bool(np.count_nonzero(flags))


def all_of(flags: NDArray[Any] | np.bool_) -> bool:
    """Whether none is 0."""
    return bool(np.count_nonzero(flags) == flags.size)


def least(numbers: NDArray[np.int64]) -> int:
    """The least of one or more."""
    return int(np.minimum.reduce(numbers, axis=None))


def greatest(numbers: NDArray[np.int64]) -> int:
    """The greatest of one or more."""
    return int(np.maximum.reduce(numbers, axis=None))
