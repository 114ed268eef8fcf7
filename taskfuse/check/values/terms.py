"""Terms: the contents of a run's cells, in place of numbers.

A term is two integers, so that those of many cells are two arrays: a *tag* for its kind and its tensor, and *data* for the
rest. Tags are, in this order: nothing (never written); wrong, with the reason as the data; a constant of a dtype, whose bits are the data; a
scalar argument; and three for each tensor: its element (row-major offset in its shape), the body of its reduction at a point (row-major offset in
its iteration space), and a partial result (a node of :class:`taskfuse.check.values.partials.PartialNodes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.flags import any_of
from taskfuse.dtypes import DTYPES, DType

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_DTYPES: tuple[DType, ...] = tuple(DTYPES.values())
_ORDER = {d: k for k, d in enumerate(_DTYPES)}

NOTHING = 0
WRONG = 1
CONSTANT = 2
SCALAR = CONSTANT + len(_DTYPES)
TENSORS = SCALAR + 1
ELEMENT, BODY, PART = range(3)

NUMBERS = 1 << 10
"""Constants of which it is remembered what they are in other dtypes."""


@dataclass(slots=True, eq=False)
class Terms:
    """Terms of some cells: two arrays of one shape."""

    tag: Ints
    data: Ints

    @staticmethod
    def full(shape: tuple[int, ...], tag: int, data: int = 0) -> Terms:
        """One term everywhere. Zeros take no memory, and no time, until they are written."""
        return Terms(*(np.full(shape, n, np.int64) if n else np.zeros(shape, np.int64) for n in (tag, data)))

    def __len__(self) -> int:
        return len(self.tag)

    def __getitem__(self, at: Any) -> Terms:
        return Terms(self.tag[at], self.data[at])

    def __setitem__(self, at: Any, new: Terms) -> None:
        self.tag[at] = new.tag
        self.data[at] = new.data

    def reshape(self, *shape: int) -> Terms:
        """The same terms in another shape."""
        return Terms(self.tag.reshape(*shape), self.data.reshape(*shape))

    def flat(self) -> Terms:
        """The same terms, flat."""
        return Terms(self.tag.reshape(-1), self.data.reshape(-1))

    def copy(self) -> Terms:
        """A copy of the terms."""
        return Terms(self.tag.copy(), self.data.copy())


def tensor_tag(number: int, kind: int) -> int:
    """The tag of elements, bodies or partial results of a tensor."""
    return TENSORS + 3 * number + kind


def constant_tag(dtype: DType) -> int:
    """The tag of constants of a dtype."""
    return CONSTANT + _ORDER[dtype]


def is_constant(tags: Ints) -> Bools:
    """A mask of the constants."""
    return (tags >= CONSTANT) & (tags < SCALAR)


def kind_of(tag: int) -> tuple[int, int] | None:
    """Tensor and kind of a tag, if it has them."""
    return divmod(tag - TENSORS, 3) if tag >= TENSORS else None


def constant(value: int | float | bool, dtype: DType) -> Terms:
    """A constant, converted to its dtype."""
    return constants(np.asarray([value], np.float64 if isinstance(value, float) else np.uint64 if value >= 2**63 else np.int64), dtype)


def constants(values: NDArray[Any], dtype: DType) -> Terms:
    """Constants of a dtype from numbers of any."""
    with np.errstate(all="ignore"):
        stored = values.astype(dtype.numpy)
        if dtype.is_float:
            wide = stored.astype(np.float64)
            wide[np.isnan(wide)] = np.nan
            data = wide.view(np.int64)
        else:
            data = stored.astype(np.int64)
    return Terms(np.full(values.shape, constant_tag(dtype), np.int64), data)


def numbers(data: Ints, dtype: DType) -> NDArray[Any]:
    """The values of constants of a dtype."""
    with np.errstate(all="ignore"):
        return data.view(np.float64).astype(dtype.numpy) if dtype.is_float else data.astype(dtype.numpy)


def converted(terms: Terms, dtype: DType) -> Terms:
    """Terms, flat, with their constants converted to a dtype; others unchanged."""
    want = constant_tag(dtype)
    where = is_constant(terms.tag) & (terms.tag != want)
    if not any_of(where):
        return terms
    found = terms.copy()
    tags: list[int] = terms.tag[where].tolist()
    for tag in set(tags):
        mine = terms.tag == tag
        found[mine] = constants(numbers(terms.data[mine], _DTYPES[tag - CONSTANT]), dtype)
    return found


def number(value: int | float | bool, *dtypes: DType) -> int | float:
    """A constant of the first of some dtypes, converted to the others one after another."""
    return _number(type(value), str(value), value, dtypes)


@lru_cache(NUMBERS)
def _number(kind: type, text: str, value: int | float | bool, dtypes: tuple[DType, ...]) -> int | float:
    """The same. Numbers that are equal, as 0.0 and -0.0, are told apart by type and text."""
    found = constant(value, dtypes[0])
    for dtype in dtypes[1:]:
        found = converted(found, dtype)
    given = numbers(found.data, dtypes[-1])[0]
    return float(given) if dtypes[-1].is_float else int(given)


def constant_dtype(tag: int) -> DType:
    """The dtype of the constants of a tag."""
    return _DTYPES[tag - CONSTANT]
