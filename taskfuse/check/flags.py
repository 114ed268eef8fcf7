"""Whether some flags hold, or all of them, and which; the extremes of numbers; arrays of one number.

NumPy's functions for these go through Python or a general reduction: for the flags of a block's threads they take four to ten times as long.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

S = TypeVar("S", bound=np.generic)


def any_of(flags: NDArray[Any] | np.bool_) -> bool:
    """Whether one is not 0."""
    return bool(np.count_nonzero(flags))


def all_of(flags: NDArray[Any] | np.bool_) -> bool:
    """Whether none is 0."""
    return bool(np.count_nonzero(flags) == flags.size)


def least(numbers: NDArray[np.int64]) -> int:
    """The least of one or more."""
    return numbers.item(numbers.argmin())


def greatest(numbers: NDArray[np.int64]) -> int:
    """The greatest of one or more."""
    return numbers.item(numbers.argmax())


def numbers_of(flags: NDArray[Any]) -> NDArray[np.int64]:
    """Where they hold, in rising order; where there are several axes, as numbers of all points."""
    return (flags if flags.ndim == 1 else flags.reshape(-1)).nonzero()[0]


def filled(shape: int | tuple[int, ...], number: int) -> NDArray[np.int64]:
    """An array of one number."""
    found = np.empty(shape, np.int64)
    found.fill(number)
    return found


def ones(shape: int | tuple[int, ...]) -> NDArray[np.bool_]:
    """Flags that hold."""
    found = np.empty(shape, np.bool_)
    found.fill(True)
    return found


def spread(values: NDArray[S], count: int) -> NDArray[S]:
    """One value for each of ``count``, or one for all of them, each time the same one in memory (stride 0). Not to be written."""
    return values if values.shape == (count,) else np.ndarray((count,), values.dtype, values, 0, (0,))
