"""Element types and their promotion.

The table is closed: every dtype of taskfuse is a row here. NumPy has no bfloat16 and no 8-bit floats; ``ml_dtypes`` gives them NumPy
dtypes, so that every dtype can be stored in an ordinary array.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import ml_dtypes
import numpy as np

from taskfuse.errors import DTypeError, shown

# NumPy's finfo, extended to the dtypes of ml_dtypes; its type is only partly known
_finfo = cast("Callable[[np.dtype[np.generic]], Any]", ml_dtypes.finfo)

PythonScalar = bool | int | float


class DTypeKind(Enum):
    """The meaning of the bits of an element."""

    FLOAT = "float"
    INT = "int"
    UINT = "uint"
    BOOL = "bool"


FLOAT, INT, UINT, BOOL = DTypeKind  # looked up once: Python 3.11 takes long to find a member in its class


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DType:
    """An element type. Each is one object: they are compared by identity, which their hash is of, too.

    Attributes:
        name: printed name.
        bits: storage bits of an element.
        kind: what the bits mean.
        numpy: the NumPy dtype that stores it.
        precision: significant binary digits, the hidden bit included: integers up to ``2**precision`` are exact.
        max_value: greatest finite value.
        min_value: least finite value.
        has_infinity: true if there are infinities.
    """

    name: str
    bits: int
    kind: DTypeKind
    numpy: np.dtype[np.generic]
    precision: int
    max_value: int | float
    min_value: int | float
    has_infinity: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind is FLOAT

    @property
    def is_bool(self) -> bool:
        return self.kind is BOOL

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned; bool is not an integer."""
        return self.kind is INT or self.kind is UINT

    @property
    def compute(self) -> DType:
        """The dtype in which elements are computed: float32 for floats below 32 bits (the result is rounded once), otherwise the dtype itself."""
        return float32 if self.is_float and self.bits < 32 else self

    @property
    def lowest(self) -> int | float | bool:
        """The least value, the neutral element of ``maximum``: minus infinity if the dtype has infinities."""
        return -float("inf") if self.has_infinity else self.min_value

    @property
    def highest(self) -> int | float | bool:
        """The greatest value, the neutral element of ``minimum``: infinity if the dtype has infinities."""
        return float("inf") if self.has_infinity else self.max_value

    def holds(self, value: PythonScalar) -> bool:
        """True if a Python scalar converts to an element within the range and without losing its kind (a float may round)."""
        if self.kind is FLOAT:
            return True
        return isinstance(value, bool) if self.kind is BOOL else not isinstance(value, float) and self.min_value <= value <= self.max_value

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        """A copy is the dtype itself: dtypes are compared by identity."""
        return as_dtype, (self.name,)


def _float(name: str, scalar: type[np.generic]) -> DType:
    dtype = np.dtype(scalar)
    info = _finfo(dtype)
    with np.errstate(all="ignore"):
        has_infinity = bool(np.isinf(np.asarray(np.inf).astype(dtype).astype(np.float64)))
    return DType(name, dtype.itemsize * 8, DTypeKind.FLOAT, dtype, int(info.nmant) + 1, float(info.max), float(info.min), has_infinity)


def _integer(name: str, kind: DTypeKind) -> DType:
    dtype: np.dtype[np.generic] = np.dtype(name)
    info = np.iinfo(name)
    return DType(name, dtype.itemsize * 8, kind, dtype, info.bits - (kind is DTypeKind.INT), int(info.max), int(info.min))


float64 = _float("float64", np.float64)
float32 = _float("float32", np.float32)
float16 = _float("float16", np.float16)
bfloat16 = _float("bfloat16", ml_dtypes.bfloat16)
float8_e4m3 = _float("float8_e4m3", ml_dtypes.float8_e4m3fn)
float8_e5m2 = _float("float8_e5m2", ml_dtypes.float8_e5m2)
int8 = _integer("int8", DTypeKind.INT)
int16 = _integer("int16", DTypeKind.INT)
int32 = _integer("int32", DTypeKind.INT)
int64 = _integer("int64", DTypeKind.INT)
uint8 = _integer("uint8", DTypeKind.UINT)
uint16 = _integer("uint16", DTypeKind.UINT)
uint32 = _integer("uint32", DTypeKind.UINT)
uint64 = _integer("uint64", DTypeKind.UINT)
bool_ = DType("bool", 8, DTypeKind.BOOL, np.dtype(np.bool_), 1, True, False)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        *(float64, float32, float16, bfloat16, float8_e4m3, float8_e5m2),
        *(int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool_),
    )
}
_BY_NUMPY = {d.numpy: d for d in DTYPES.values()}
_BY_PYTHON = {bool: bool_, int: int64, float: float64}
_FLOATS = (float8_e4m3, float8_e5m2, float16, bfloat16, float32, float64)

DTypeLike = DType | np.dtype[np.generic] | str | type


def as_dtype(x: DTypeLike) -> DType:
    """The dtype for a dtype, a NumPy dtype, a name, a NumPy scalar type, or ``bool``, ``int``, ``float`` (bool, int64, float64).

    Raises :class:`DTypeError` if none exists.
    """
    if isinstance(x, DType):
        return x
    if isinstance(x, str) and x in DTYPES:
        return DTYPES[x]
    if isinstance(x, type) and x in _BY_PYTHON:
        return _BY_PYTHON[x]
    try:
        found = None if cast("object", x) is None else _BY_NUMPY.get(np.dtype(x))  # NumPy takes nothing for float64
    except TypeError:
        found = None
    if found is None and "complex" in str(x):
        help = "hold real and imaginary parts in a last dimension of 2 (array.view of their floats, torch.view_as_real) and multiply by their formula"
        raise DTypeError(op="dtype", reason=f"{shown(x)} is complex: no dtype of taskfuse is", help=help)
    if found is None:
        raise DTypeError(op="dtype", reason=f"{shown(x)} is not a dtype of taskfuse", help=f"use one of {', '.join(DTYPES)}")
    return found


def result_type(*operands: DType | PythonScalar) -> DType:
    """The dtype that operands are promoted to: the rules of NumPy 2, continued to bfloat16 and the 8-bit floats.

    - bool promotes to anything; two integers to the smallest integer that holds both (float64 for uint64 with a signed integer).
    - Two floats, or an integer and a float, promote to the smallest float that holds every value of both, float16 being tried before
      bfloat16; integers of 32 bits and more need float64. So bfloat16 + float16 is float32, float8_e4m3 + float8_e5m2 is float16,
      float8 + bfloat16 is bfloat16, int8 + float8 is float16, int8 + bfloat16 is bfloat16, int16 + bfloat16 is float32.
    - Python scalars are weak: they take the dtype of the others unless they are of a higher kind (bool < int < float), where an int counts
      as int64 and a float as float64. Whether the value fits is not checked here.

    Raises :class:`DTypeError` without operands.
    """
    if not operands:
        raise DTypeError(op="result_type", reason="needs an operand")
    dtypes = [x for x in operands if isinstance(x, DType)]
    weak = [x for x in operands if not isinstance(x, DType)]
    found = functools.reduce(_promote, dtypes) if dtypes else bool_
    if any(isinstance(x, float) for x in weak):
        return found if found.is_float else float64
    if any(not isinstance(x, bool) for x in weak):
        return int64 if found.is_bool else found
    return found


@functools.cache
def _promote(a: DType, b: DType) -> DType:
    if a is b or b.is_bool:
        return a
    if a.is_bool:
        return b
    if not a.is_float and not b.is_float:
        return _BY_NUMPY[np.promote_types(a.numpy, b.numpy)]
    return next((f for f in _FLOATS if contains(f, a) and contains(f, b)), float64)


@functools.cache
def contains(wide: DType, narrow: DType) -> bool:
    """True if ``wide`` has every value of ``narrow``, so that a conversion to it loses nothing."""
    if wide is narrow or narrow.is_bool:
        return True
    if not wide.is_float:
        return narrow.is_integer and wide.min_value <= narrow.min_value and narrow.max_value <= wide.max_value
    if narrow.is_integer:
        return wide.precision >= narrow.precision and wide.max_value >= narrow.max_value
    covers = wide.max_value >= narrow.max_value and _smallest(wide) <= _smallest(narrow)
    return wide.precision >= narrow.precision and covers and wide.has_infinity >= narrow.has_infinity


def converts_once(computed: DType, source: DType, result: DType) -> bool:
    """True if a copy that computes in a given dtype converts its operand to the result without an intermediate loss."""
    return computed in (source, source.compute, result)


def _smallest(dtype: DType) -> float:
    """The least positive value, subnormals included."""
    return float(_finfo(dtype.numpy).smallest_subnormal)
