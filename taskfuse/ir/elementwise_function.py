"""The row of an elementwise function: the columns of the table in :mod:`taskfuse.ir.elementwise`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType, bool_, float32, float64, result_type, uint32, uint64
from taskfuse.ir.spelling import Spelling

Array = npt.NDArray[Any]
Function = Callable[..., Array]
Range = tuple[int, int]
"""The least and the greatest value."""
RangeRule = Callable[..., Range | None]


class DTypeRule(Enum):
    """How an elementwise function treats dtypes. Operands are cast to the promoted dtype D first, except where stated.

    - SAME: any D; the result is D.
    - NUMERIC: D is not bool; the result is D.
    - FLOAT: bool and integers become the float that NumPy gives them (8 bits: float16, 16 bits: float32, else float64); the result is D.
    - DIVIDE: as FLOAT, but bool and all integers become float64.
    - BOOL: any D; the result is bool.
    - LOGICAL: operands are cast to bool; the result is bool.
    - BITWISE: D is bool or an integer; the result is D.
    - SHIFT: D is an integer; the result is D.
    - BITS: D is a float; the result is the unsigned integer as wide as what computes D: uint32 or uint64.
    - OF_BITS: D is uint32 or uint64; the result is the float as wide.
    - CAST: one operand of any dtype; the result is the dtype asked for.
    - SELECT: the first operand is cast to bool, D is promoted from the others; the result is D.
    """

    SAME = "same"
    NUMERIC = "numeric"
    FLOAT = "float"
    DIVIDE = "divide"
    BOOL = "bool"
    LOGICAL = "logical"
    BITWISE = "bitwise"
    SHIFT = "shift"
    BITS = "bits"
    OF_BITS = "of bits"
    CAST = "cast"
    SELECT = "select"
    __hash__ = object.__hash__  # of the identity: rules are looked up often


_COMPUTES_IN: Final[Mapping[DTypeRule, Callable[[DType], bool]]] = {
    **dict.fromkeys((DTypeRule.FLOAT, DTypeRule.DIVIDE, DTypeRule.BITS), lambda d: d.is_float),
    **dict.fromkeys((DTypeRule.SAME, DTypeRule.BOOL, DTypeRule.LOGICAL, DTypeRule.CAST, DTypeRule.SELECT), lambda d: True),
    DTypeRule.NUMERIC: lambda d: not d.is_bool,
    DTypeRule.BITWISE: lambda d: not d.is_float,
    DTypeRule.SHIFT: lambda d: d.is_integer,
    DTypeRule.OF_BITS: lambda d: d in (uint32, uint64),
}
"""Whether a function of a rule is defined on operands of a dtype."""

FUNCTIONS: Final = (DTypeRule.FLOAT, DTypeRule.DIVIDE)
"""The rules of expensive functions, such as exponentials, roots and quotients."""
FUNCTION_INSTRUCTIONS: Final = 16
"""Instructions of such a function in the text of a kernel; arithmetic takes one. An assumption."""
CONSTANT_SLOTS: Final = 5
"""Issue slots of a power, a remainder or a quotient by a constant."""
FLOAT8_SLOTS: Final = 3
"""Issue slots of the conversion to a float of 8 bits: what is too great is NaN or infinity, and four are packed into a word."""
DOUBLE_FACTOR: Final = 2
"""How many issue slots types of 64 bits take for one of float32."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Elementwise:
    """One row: an elementwise function.

    Attributes:
        name: public name, NumPy's where NumPy has it.
        operands: names of the operands.
        rule: how it treats dtypes.
        function: the NumPy implementation, on arrays of the compute dtype.
        cpp: its C++.
        doc: one sentence for its documentation.
        modular: the implementation on modular words (``taskfuse.ir.modular``); ``None``: a hash of the words, keyed by the name.
        commutative: true if the first two operands may be exchanged.
        ulps: how many units in the last place float32 and float64 may be off on a GPU, from the correctly rounded result; ``None``: exact. Functions
            of CUDA's library: CUDA C++ Programming Guide, "Mathematical Functions"; others from the errors of their steps.
        torch: its names in torch; ``None``: the same name alone.
        numpy: its name in NumPy, if that differs from the name of ``function``.
        slots: issue slots of a warp in float32, on the path that most operands take: instructions of sm_90 by NVRTC of CUDA 13.0, without conversions.
        short_slots: of results that are rounded to 16 bits; ``None``: as many.
        bound: the greatest magnitude that results have, whatever the operands are, but for NaN; ``None``: no number.
        ranges: the range of results that are integers (:mod:`taskfuse.ir.function_ranges`); ``None``: any.
    """

    name: str
    operands: tuple[str, ...]
    rule: DTypeRule
    function: Function
    cpp: Spelling
    doc: str
    modular: Function | None = None
    commutative: bool = False
    ulps: tuple[float, float] | None = None
    torch: str | None = None
    numpy: str | None = None
    slots: int = 1
    short_slots: int | None = None
    bound: float | None = None
    ranges: RangeRule | None = None

    @property
    def instructions(self) -> int:
        """GPU instructions per element, for the length of a text."""
        return FUNCTION_INSTRUCTIONS if self.rule in FUNCTIONS else 1

    def issue_slots(self, dtype: DType, *, is_constant: bool = False) -> int:
        """Issue slots of a warp for an element each of its lanes computes.

        Args:
            dtype: of the result.
            is_constant: the last of several operands is a number, so that a power is a product or a root, and a quotient a product or two.
        """
        if dtype.bits == 64:
            return DOUBLE_FACTOR * self.instructions
        if is_constant and self.rule in (DTypeRule.NUMERIC, DTypeRule.DIVIDE):
            return min(self.slots, CONSTANT_SLOTS)
        if dtype.is_float and dtype.bits == 8:
            return self.slots + FLOAT8_SLOTS
        if not (dtype.is_float and dtype.bits == 16) or self.cpp.moves:
            return self.slots
        return 1 + (self.slots if self.short_slots is None else self.short_slots)  # the result is rounded

    @property
    def arity(self) -> int:
        """The number of operands."""
        return len(self.operands)

    @property
    def numpy_name(self) -> str:
        """Its name in NumPy; empty if NumPy lacks it."""
        return self.numpy or (self.function.__name__ if isinstance(self.function, np.ufunc) else "")

    def compute_dtype(self, operands: Sequence[DType], out: DType) -> DType:
        """The dtype that operands are cast to before ``function`` computes (a SELECT's first operand is cast to bool instead).

        Args:
            operands: dtypes of the operands.
            out: dtype of the result.
        """
        match self.rule:
            case DTypeRule.CAST | DTypeRule.OF_BITS:
                return operands[0]
            case DTypeRule.BOOL | DTypeRule.BITS:
                return result_type(*operands).compute
            case DTypeRule.LOGICAL:
                return bool_
            case _:
                return out.compute

    def computes_in(self, dtype: DType) -> bool:
        """True if ``function`` is defined on operands of ``dtype``."""
        return _COMPUTES_IN[self.rule](dtype)

    def result_dtype(self, dtype: DType) -> DType:
        """The dtype of the result of ``function`` when it computes in ``dtype``."""
        match self.rule:
            case DTypeRule.BOOL | DTypeRule.LOGICAL:
                return bool_
            case DTypeRule.BITS:
                return uint64 if dtype.bits == 64 else uint32
            case DTypeRule.OF_BITS:
                return float64 if dtype.bits == 64 else float32
            case _:
                return dtype

    def __repr__(self) -> str:
        return self.name
