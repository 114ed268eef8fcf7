"""The table of matrix instructions: shapes and types of tensor-core products, and the layouts of operands and sums in registers and Shared memory.

Rows are shapes, each with every pair of operand types (PTX ISA, "wgmma.mma_async" and "mma"; 16-bit accumulators only of m8n8k4). Schedules,
lowering, the verifier, the simulator, the proof and CUDA look them up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache

from taskfuse.dtypes import DType, bfloat16, float8_e4m3, float8_e5m2, float16, float32, float64, int8, int32, uint8
from taskfuse.ir import fragments
from taskfuse.ir.fragments import Fragment


class Family(Enum):
    """Instructions that are issued and waited for alike. The value is their name in messages."""

    WGMMA = "wgmma"
    MMA = "mma"


class OperandLayout(Enum):
    """The axis of an operand along which a lane's registers run: PTX's ``.row`` and ``.col``. The value is its name in messages and texts."""

    ROW = "row"
    COLUMN = "col"


OperandLayouts = tuple[OperandLayout, OperandLayout]
"""The layouts of A and of B."""

PTX_TYPES = {bfloat16: "bf16", float16: "f16", float32: "tf32", float64: "f64", float8_e4m3: "e4m3", float8_e5m2: "e5m2", int8: "s8", uint8: "u8"}
"""The operand types, as PTX spells them; float32 is multiplied as tf32."""
_PTX_SUMS = {float32: "f32", float64: "f64", float16: "f16", int32: "s32"}


_ALIKE = (bfloat16, float16, float32)
_FLOATS = (float8_e4m3, float8_e5m2)
_INTEGERS = (int8, uint8)
# 16-bit floats and float32 (as tf32) go with their like; 8-bit floats mix, and so do 8-bit integers, whose sums are int32 (they wrap).
ALL_TYPES = (
    *((a, a, float32) for a in _ALIKE),
    *((a, b, float32) for a in _FLOATS for b in _FLOATS),
    *((a, b, int32) for a in _INTEGERS for b in _INTEGERS),
)
"""Operand types, with the accumulator type of their products."""


@dataclass(frozen=True, slots=True)
class InstructionShape:
    """Instructions of one shape.

    Attributes:
        m: rows of A and of the sums.
        widths: every n: columns of B and of the sums.
        integer_widths: every n for integers.
        k_bytes: bytes of an operand along k.
        threads: threads that execute it together.
        tiles: whether A and B may be tiles in Shared memory.
        registers: whether they may be fragments in registers.
        ptx: its spelling.
        arch: the compute capability that it needs.
        float8_arch: the compute capability that it needs for 8-bit floats.
        figure: prefix of its figures' titles in the PTX ISA.
        types: its operand types.
        layouts: the layouts of A and B in registers, for instructions of quad pairs; ``None``: whole warps or warpgroups execute it.
    """

    family: Family
    m: int
    widths: tuple[int, ...]
    integer_widths: tuple[int, ...]
    k_bytes: int
    threads: int
    tiles: tuple[bool, bool]
    registers: tuple[bool, bool]
    ptx: str
    arch: int
    float8_arch: int
    figure: str
    types: tuple[tuple[DType, DType, DType], ...] = ALL_TYPES
    layouts: OperandLayouts | None = None

    def accumulator(self, n: int, itemsize: int = 4) -> Fragment:
        """The layout of m x n sums in registers, which does not depend on the operands; ``itemsize``: bytes of a sum."""
        figure = f"{self.figure}k* fragment layout for accumulator matrix D"
        return fragments.accumulator(self.m, n, figure) if self.layouts is None else fragments.quad_pair_accumulator(self.m, n, itemsize, figure)

    def left(self, k: int, itemsize: int) -> Fragment:
        """The layout of A in registers, with ``itemsize`` bytes per element."""
        figure = f"{self.figure}k{k} fragment layout for matrix A"
        if self.layouts is None:
            return fragments.left(self.m, k, itemsize, figure)
        return fragments.quad_pair_left(self.m, k, along_k=self.layouts[0] is OperandLayout.ROW, figure=figure)

    def right(self, k: int, itemsize: int) -> Fragment:
        """The layout of B in registers."""
        figure = f"{self.figure}k{k} fragment layout for matrix B"
        if self.layouts is None:
            return fragments.right(k, self.widths[0], itemsize, figure)
        return fragments.quad_pair_right(k, self.widths[0], along_k=self.layouts[1] is OperandLayout.COLUMN, figure=figure)

    @property
    def units(self) -> int:
        """Products that one instruction computes side by side, each by some lanes of the warp."""
        return self.accumulator(self.widths[0]).units


def _quad_pair_shape(layouts: OperandLayouts) -> InstructionShape:
    """Four products, one by each quad pair of a warp, since sm_70: what later GPUs have for it is slow (PTX ISA, "mma", the note on .m8n8k4)."""
    return InstructionShape(
        Family.MMA,
        8,
        (8,),
        (),
        8,
        32,
        tiles=(False, False),
        registers=(True, True),
        ptx="mma.sync.aligned.m{m}n{n}k{k}." + ".".join(layout.value for layout in layouts) + ".{sums}.{a}.{b}.{sums}",
        arch=70,
        float8_arch=70,
        figure="MMA .m8n8",
        types=((float16, float16, float32), (float16, float16, float16)),
        layouts=layouts,
    )


def _double_shape(m: int, k_bytes: int, arch: int) -> InstructionShape:
    """Products of float64, whose every multiply-add rounds as ``fma`` does (PTX ISA, "mma", floating point operations)."""
    return InstructionShape(
        Family.MMA,
        m,
        (8,),
        (),
        k_bytes,
        32,
        tiles=(False, False),
        registers=(True, True),
        ptx="mma.sync.aligned.m{m}n{n}k{k}.row.col.{sums}.{a}.{b}.{sums}",
        arch=arch,
        float8_arch=arch,
        figure=f"MMA .m{m}n8",
        types=((float64, float64, float64),),
    )


SHAPES = (
    InstructionShape(
        Family.WGMMA,
        64,
        tuple(range(8, 257, 8)),
        tuple(n for n in range(8, 257, 8) if n <= 32 or n % 16 == 0),
        32,
        128,
        tiles=(True, True),
        registers=(True, False),
        ptx="wgmma.mma_async.sync.aligned.m{m}n{n}k{k}.{sums}.{a}.{b}",
        arch=90,
        float8_arch=90,
        figure="WGMMA .m64nN",
    ),
    InstructionShape(
        Family.MMA,
        16,
        (8,),
        (8,),
        32,
        32,
        tiles=(False, False),
        registers=(True, True),
        ptx="mma.sync.aligned.m{m}n{n}k{k}.row.col.{sums}.{a}.{b}.{sums}",
        arch=80,
        float8_arch=89,
        figure="MMA .m16n8",
    ),
    *(_double_shape(16, k_bytes, 90) for k_bytes in (128, 64, 32)),
    _double_shape(8, 32, 80),
    *(_quad_pair_shape((a, b)) for a in OperandLayout for b in OperandLayout),
)


@dataclass(frozen=True, slots=True, eq=False)
class MatrixInstruction:
    """A row: a shape, for operands of two types.

    Attributes:
        k: columns of A and rows of B.
        a, b: the operand types.
        sums: the accumulator type.
        a_registers, b_registers: layout of the operand in the registers of a warp or warpgroup; ``None``: it is never in registers.
    """

    shape: InstructionShape
    k: int
    a: DType
    b: DType
    sums: DType
    a_registers: Fragment | None
    b_registers: Fragment | None

    @property
    def m(self) -> int:
        """Rows of A and of the sums."""
        return self.shape.m

    @property
    def widths(self) -> tuple[int, ...]:
        """Every n."""
        return self.shape.widths if self.a.is_float else self.shape.integer_widths

    @property
    def arch(self) -> int:
        """The compute capability that it needs."""
        return self.shape.float8_arch if self.a.is_float and self.a.bits == 8 else self.shape.arch

    @property
    def transposes(self) -> bool:
        """Whether tiles in Shared memory may be contiguous along m or n."""
        return any(self.shape.tiles) and self.a.itemsize == 2

    def accumulator(self, n: int) -> Fragment:
        """The layout of the sums in registers."""
        return self.shape.accumulator(n, self.sums.itemsize)

    def ptx(self, n: int) -> str:
        """Its spelling, without operands."""
        return self.shape.ptx.format(m=self.m, n=n, k=self.k, sums=_PTX_SUMS[self.sums], a=PTX_TYPES[self.a], b=PTX_TYPES[self.b])


def _row(shape: InstructionShape, a: DType, b: DType, sums: DType) -> MatrixInstruction:
    k = shape.k_bytes // a.itemsize
    in_a = shape.left(k, a.itemsize) if shape.registers[0] else None
    in_b = shape.right(k, b.itemsize) if shape.registers[1] else None
    return MatrixInstruction(shape, k, a, b, sums, in_a, in_b)


MATRIX_INSTRUCTIONS = tuple(_row(shape, *types) for shape in SHAPES for types in shape.types)


@cache
def find(
    family: Family, a: DType, b: DType, k: int, layouts: OperandLayouts | None = None, sums: DType | None = None, m: int | None = None
) -> MatrixInstruction | None:
    """The row for operands of two types with k terms.

    Args:
        layouts: of the operands in registers, if instructions differ in them.
        sums: the accumulator type; ``None``: the widest.
        m: the rows, if instructions differ in them; ``None``: the most.
    """
    found = (row for row in rows(family, a, b) if row.k == k and row.shape.layouts == layouts and sums in (None, row.sums) and m in (None, row.m))
    return next(found, None)


@cache
def rows(family: Family, a: DType, b: DType) -> tuple[MatrixInstruction, ...]:
    """The rows for operands of two types, those of the largest shape first."""
    return tuple(row for row in MATRIX_INSTRUCTIONS if row.shape.family is family and (row.a, row.b) == (a, b))


@cache
def accumulator_dtype(a: DType, b: DType, family: Family | None = None) -> DType | None:
    """The accumulator dtype for products of A and B, by instructions of one family or of any; ``None``: no instruction multiplies them."""
    return next((row.sums for row in MATRIX_INSTRUCTIONS if (row.a, row.b) == (a, b) and family in (None, row.shape.family)), None)


@cache
def transposes(dtype: DType) -> bool:
    """Whether ``wgmma`` takes tiles of a dtype with m or n contiguous; of all others k must be (PTX ISA, "wgmma.mma_async")."""
    return any(row.transposes for row in rows(Family.WGMMA, dtype, dtype))


def shapes(family: Family) -> tuple[InstructionShape, ...]:
    """The shapes of a family."""
    return tuple(shape for shape in SHAPES if shape.family is family)


def shape_of(family: Family, m: int, layouts: OperandLayouts | None = None) -> InstructionShape:
    """The first shape with m rows; others differ in the number of terms."""
    return next(shape for shape in SHAPES if shape.family is family and shape.m == m and shape.layouts == layouts)


@cache
def in_registers(shape: InstructionShape, k: int, dtype: DType) -> tuple[Fragment | None, Fragment | None]:
    """The layouts of A and B of a dtype in registers, for instructions with the rows and layouts of a shape, and k terms; for any k if no row has this one."""
    kind = shape.family, shape.m, shape.layouts
    alike = [row for row in MATRIX_INSTRUCTIONS if (row.shape.family, row.m, row.shape.layouts) == kind and row.a.itemsize == dtype.itemsize]
    found = next((row for row in alike if row.k == k), alike[0] if alike else None)
    return (None, None) if found is None else (found.a_registers, found.b_registers)


def exists(family: Family, m: int, n: int, k: int, layouts: OperandLayouts | None = None) -> bool:
    """True if some operand types have an instruction m x n x k."""
    found = (row for row in MATRIX_INSTRUCTIONS if row.shape.family is family and row.shape.layouts == layouts)
    return any(row.m == m and n in row.widths and row.k == k for row in found)


def spans(found: Iterable[InstructionShape]) -> str:
    """The extents of k of instructions in bytes of an operand, for messages."""
    *others, last = (str(n) for n in sorted({shape.k_bytes for shape in found}))
    return f"{', '.join(others)} or {last} bytes" if others else f"{last} bytes"
