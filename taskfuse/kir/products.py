"""Statements of tensor cores, and of warps that move matrices and registers. Fragments are those of :mod:`taskfuse.ir.matrix_instructions`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from taskfuse.dtypes import DType
from taskfuse.ir.fragments import Fragment
from taskfuse.ir.matrix_instructions import Family, MatrixInstruction, OperandLayouts, find
from taskfuse.ir.scalar import Expr
from taskfuse.kir.operands import Access, Descriptor, Updated, WritingStmt, Written


class _Product(WritingStmt):
    """The common part of matrix products: the element types of A and B, and a row in the table of matrix instructions."""

    __slots__ = ()
    FAMILY: ClassVar[Family]
    k: int
    dtype: DType
    b_dtype: DType | None

    def __post_init__(self) -> None:
        if self.b_dtype is self.dtype:
            object.__setattr__(self, "b_dtype", None)

    @property
    def factors(self) -> tuple[DType, DType]:
        """The element types of A and B."""
        return self.dtype, self.b_dtype or self.dtype

    @property
    def row(self) -> MatrixInstruction:
        """Its row in the table of matrix instructions; every kernel that the verifier accepts has one."""
        found = find(self.FAMILY, *self.factors, self.k)
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class Wgmma(_Product):
    """``acc += A @ B^T`` by one warpgroup, asynchronously: A is m64 x k, B is n x k; operands are read when the engine gets to it.

    Fragments (of accumulators, and of A in registers) are those of :mod:`taskfuse.ir.matrix_instructions`. Products of float32 operands are tf32.

    Attributes:
        acc: first of the n/2 accumulator registers of each thread: float32, or int32 for integer operands.
        a: a tile in Shared memory, or the first of the k/2 registers of each thread that hold A.
        b: a tile in Shared memory.
        accumulate: false: acc = A @ B^T.
        dtype: element type of A, and of B unless ``b_dtype`` says otherwise.
        b_dtype: element type of B where it differs (8-bit types of one kind mix); ``None``: that of A.
    """

    FAMILY: ClassVar[Family] = Family.WGMMA
    n: int
    k: int
    acc: Updated
    a: Descriptor | Access
    b: Descriptor
    accumulate: Expr
    dtype: DType
    b_dtype: DType | None = None

    @property
    def accumulators(self) -> Fragment:
        """The layout of the sums in registers."""
        return self.row.accumulator(self.n)


@dataclass(frozen=True, slots=True)
class Mma(_Product):
    """``mma.sync``: ``acc += A @ B`` by one warp, all in registers (fragments: :mod:`taskfuse.ir.matrix_instructions`).

    A is m16 x k, or m8 x k, and B is k x n8; or, with ``layouts``, each quad pair of the warp multiplies an m8 x k by a k x n8 of its own. Products of
    float32 operands are tf32.

    Attributes:
        acc: first of the accumulator registers of each thread, m/4 or with ``layouts`` 8: float32, float64, or int32 for integer operands.
        a, b: first of the operand registers of each thread, m*k/32 and k/4, with ``layouts`` 4 of both.
        dtype: element type of A, and of B unless ``b_dtype`` says otherwise.
        b_dtype: element type of B where it differs (8-bit types of one kind mix); ``None``: that of A.
        layouts: those of A and B in the registers of quad pairs; ``None``: the whole warp makes one product.
        sums: the type of the accumulators where it is not the widest: float16, with ``layouts``.
        m: 16, or 8; with ``layouts`` 8.
    """

    FAMILY: ClassVar[Family] = Family.MMA
    k: int
    acc: Updated
    a: Access
    b: Access
    dtype: DType
    b_dtype: DType | None = None
    layouts: OperandLayouts | None = None
    sums: DType | None = None
    m: int = 16

    def __post_init__(self) -> None:
        _Product.__post_init__(self)
        if self.layouts is not None:
            object.__setattr__(self, "m", 8)

    @property
    def row(self) -> MatrixInstruction:
        """Its row in the table of matrix instructions; every kernel that the verifier accepts has one."""
        found = find(self.FAMILY, *self.factors, self.k, self.layouts, self.sums, self.m)
        assert found is not None
        return found

    @property
    def n(self) -> int:
        """Columns of B and of the sums."""
        return self.row.shape.widths[0]

    @property
    def accumulators(self) -> Fragment:
        """The layout of the sums in registers."""
        return self.row.accumulator(self.n)


@dataclass(frozen=True, slots=True)
class LdMatrix(WritingStmt):
    """``ldmatrix``: a warp loads matrices of 8 rows of 16 bytes from Shared memory into registers.

    Lane l gives the address ``source`` of row l%8 of matrix l/8; where there are fewer than 4 matrices, the addresses of the last lanes are
    not used. A lane gets 32 bits of each matrix: of row l/4, or of column l/4 if ``transpose`` (16-bit elements only). Its registers
    are ``out``, those of one matrix after those of another (:func:`taskfuse.ir.fragments.matrices`).

    Attributes:
        matrices: 1, 2 or 4.
    """

    out: Written
    source: Access
    matrices: int = 4
    transpose: bool = False


@dataclass(frozen=True, slots=True)
class StMatrix(WritingStmt):
    """``stmatrix``: a warp stores matrices of 8 rows of 16 bytes from registers to Shared memory; the inverse of :class:`LdMatrix`.

    Lane l gives the address ``out`` of row l%8 of matrix l/8. For 16-bit elements, it holds of row l/4 (of column l/4 if ``transpose``)
    of matrix i the elements 2*(l%4) and +1 in registers ``source + 2*i`` and ``+ 1``.

    Attributes:
        matrices: 1, 2 or 4.
    """

    out: Written
    source: Access
    matrices: int = 4
    transpose: bool = False


@dataclass(frozen=True, slots=True)
class Shuffle(WritingStmt):
    """``shfl.sync.bfly``: ``out`` = the ``source`` of lane ``lane ^ mask``; all 32 lanes of a warp execute it together.

    Attributes:
        out, source: registers of one dtype; they may be the same.
        mask: exclusive-or of the numbers of the two lanes: 1, 2, 4, 8 or 16.
    """

    FORM: ClassVar[str] = "SHUFFLE {out} <- {source} xor {mask}"
    out: Written
    source: Access
    mask: int


WarpStmt = Wgmma | Mma | LdMatrix | StMatrix | Shuffle
"""All of them."""
