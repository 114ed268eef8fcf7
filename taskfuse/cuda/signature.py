"""The signature of an emitted function: its parameters, in order, and the memory that a launch provides."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.cuda.debug import WaitPoint
from taskfuse.dtypes import DType
from taskfuse.ir.scalar import Expr
from taskfuse.kir import Kernel
from taskfuse.kir.variant import Variant


@dataclass(frozen=True, slots=True)
class PointerArgument:
    """The address of a tensor's element [0, ..., 0]: 8 bytes."""

    tensor: str


@dataclass(frozen=True, slots=True)
class StrideArgument:
    """A stride of a tensor in elements: 4 bytes, 8 if ``wide``."""

    tensor: str
    axis: int
    wide: bool


@dataclass(frozen=True, slots=True)
class IntegerArgument:
    """The value of an extent: 4 bytes, 8 if ``wide``."""

    name: str
    wide: bool


@dataclass(frozen=True, slots=True)
class DivisorArgument:
    """A divisor ``value`` (1 <= value < 2**31) prepared for multiplication: three 32-bit words ``{value, multiplier, shift}``, 12 bytes aligned to 4.

    With ``shift = ceil(log2(value))`` and ``multiplier = 2**32 * (2**shift - value) // value + 1``, ``n // value`` is
    ``(umulhi(n, multiplier) + n) >> shift`` for 0 <= n < 2**31 (Granlund and Montgomery, "Division by Invariant Integers using
    Multiplication", figure 4.1).
    """

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A run-time scalar: its NumPy bytes, aligned to its size."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class TensorMapArgument:
    """A TMA descriptor, by value: 128 bytes aligned to 64 (``const __grid_constant__ CUtensorMap``)."""

    name: str


@dataclass(frozen=True, slots=True)
class WorkspaceArgument:
    """The address of a workspace buffer of ``bytes`` bytes in Global memory, aligned to 16 bytes: 8 bytes. Its content is undefined, or zero."""

    name: str
    bytes: Expr
    zero: bool


@dataclass(frozen=True, slots=True)
class ReportArgument:
    """The address of the report of a debug build: see ``taskfuse.cuda.debug``."""


Argument = PointerArgument | StrideArgument | IntegerArgument | DivisorArgument | ScalarArgument | TensorMapArgument | WorkspaceArgument | ReportArgument


@dataclass(frozen=True, slots=True)
class Source:
    """CUDA C++ of one kernel in one variant.

    Attributes:
        name: name of the function (``extern "C"``).
        text: the whole text; it includes no header.
        arguments: the function's parameters.
        shared_bytes: dynamic Shared memory of a block, in bytes.
        cooperative: all blocks must be resident at once (they wait for each other).
        arch: the least compute capability, times ten.
        feature_arch: true if it needs the architecture-specific target (``sm_90a``).
        debug: its waits are bounded and report.
        waits: the waits that a report may name.
    """

    kernel: Kernel
    variant: Variant
    name: str
    text: str
    arguments: tuple[Argument, ...]
    shared_bytes: Expr
    cooperative: bool
    arch: int
    feature_arch: bool
    debug: bool
    waits: tuple[WaitPoint, ...] = ()
