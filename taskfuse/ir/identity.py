"""Membership and position by object identity.

``==`` of tensors compares elements, so ``in`` and ``index`` do not find an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import is_
from typing import TypeVar

T = TypeVar("T")


def among(one: T, several: Iterable[T]) -> bool:
    """True if ``several`` contains the object ``one``."""
    return True in map(is_, repeat(one), several)


def place_of(one: T, several: Iterable[T]) -> int:
    """The position of the object ``one`` in ``several``. Raises :class:`ValueError` if it is absent."""
    for k, other in enumerate(several):
        if other is one:
            return k
    raise ValueError(f"{one!r} is not there")


def alike(some: Sequence[object], others: Sequence[object]) -> bool:
    """True if both contain the same objects in the same order."""
    return len(some) == len(others) and all(map(is_, some, others))
