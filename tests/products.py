"""Kernels of one matrix product, for every form of the tensor-core instructions: read by the tests of every reader of kernel IR.

Each multiplies ``a [rows, k]`` by ``b [columns, k]`` transposed. Operands come to Shared memory by plain stores, fragments to and from
registers as :mod:`taskfuse.ir.matrix_instructions` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as combinations

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType, bfloat16, float8_e4m3, float8_e5m2, float16, float32, int8, uint8
from taskfuse.ir.fragments import Fragment
from taskfuse.ir.matrix_instructions import Family, MatrixInstruction, OperandLayout, accumulator_dtype, find
from taskfuse.ir.scalar import Expr, sym, xor
from taskfuse.kir import Kernel, parse_kernel

THREAD, REGISTER = sym("threadIdx.x"), sym("v")
K_BYTES = 32  # of an operand along k
CHUNK = 16  # bytes that a swizzle moves as one


TYPES = {1: int8, 2: bfloat16, 4: float32}


def row_of(family: Family, itemsize: int) -> MatrixInstruction:
    """An instruction on elements of a size."""
    found = find(family, TYPES[itemsize], TYPES[itemsize], K_BYTES // itemsize)
    assert found is not None
    return found


def wgmma_accumulator(n: int) -> Fragment:
    return row_of(Family.WGMMA, 2).accumulator(n)


def mma_accumulator() -> Fragment:
    return row_of(Family.MMA, 2).accumulator(8)


def held(fragment: Fragment | None) -> Fragment:
    assert fragment is not None
    return fragment


def wgmma_a(itemsize: int) -> Fragment:
    return held(row_of(Family.WGMMA, itemsize).a_registers)


def mma_a(itemsize: int) -> Fragment:
    return held(row_of(Family.MMA, itemsize).a_registers)


def mma_b(itemsize: int) -> Fragment:
    return held(row_of(Family.MMA, itemsize).b_registers)


@dataclass(frozen=True)
class Layout:
    """A canonical layout of the PTX ISA of a tile of a wgmma operand, rows (along m or n) by k; ``swizzle`` in bytes."""

    swizzle: int
    is_k_major: bool = True

    def element(self, r: Expr, c: Expr, rows: int, itemsize: int) -> Expr:
        """The element index of row ``r`` and column ``c`` in a tile of ``rows`` rows."""
        inner, outer = (c, r) if self.is_k_major else (r, c)
        chunk = CHUNK // itemsize
        if not self.swizzle:
            lbo, sbo = self.strides(rows)
            along, across = (lbo, sbo) if self.is_k_major else (sbo, lbo)
            return outer // 8 * (across // itemsize) + inner // chunk * (along // itemsize) + outer % 8 * chunk + inner % chunk
        span = self.swizzle // itemsize
        lbo, sbo = self.strides(rows)
        place = inner % span // chunk
        key = outer % 8 // (128 // self.swizzle)
        return outer // 8 * (sbo // itemsize) + inner // span * (lbo // itemsize) + outer % 8 * span + chunk * xor(place, key) + inner % chunk

    def strides(self, rows: int) -> tuple[int, int]:
        """Leading and stride byte offset of a tile of ``rows`` rows and 32 bytes (16 of 16-bit elements) along k."""
        if self.is_k_major:
            return (0, 8 * self.swizzle) if self.swizzle else (128, 256)
        if self.swizzle:
            return 16 * self.swizzle, 8 * self.swizzle
        return 128, 256

    def size(self, rows: int, itemsize: int) -> int:
        """Elements of a tile, with the gaps of one that is shorter than a span; a multiple of the swizzle's period."""
        if self.is_k_major:
            return rows * max(self.swizzle, 32) // itemsize
        span = max(self.swizzle, CHUNK) // itemsize
        return -(-rows // span) * 16 * span

    @property
    def name(self) -> str:
        return f"{'K' if self.is_k_major else 'MN'}{self.swizzle}"


@dataclass(frozen=True)
class Product:
    """One product by wgmma, its operands in ``steps`` tiles along k.

    Attributes:
        a_layout: ``None``: A in registers.
    """

    dtype: DType
    b_dtype: DType
    n: int = 16
    a_layout: Layout | None = Layout(128)
    b_layout: Layout = Layout(128)
    steps: int = 2

    @property
    def name(self) -> str:
        kinds = self.dtype.name if self.dtype is self.b_dtype else f"{self.dtype.name}-{self.b_dtype.name}"
        return f"{kinds}-n{self.n}-{self.a_layout.name if self.a_layout else 'registers'}-{self.b_layout.name}"

    @property
    def k(self) -> int:
        return K_BYTES // self.dtype.itemsize

    def kernel(self) -> Kernel:
        """The kernel, for one warpgroup."""
        size, k, n, steps = self.dtype.itemsize, self.k, self.n, self.steps
        acc = accumulator_dtype(self.dtype, self.b_dtype)
        accumulator, a_fragment = wgmma_accumulator(n), wgmma_a(size)
        kinds = ["tf32" if d is float32 else d.name for d in (self.dtype, self.b_dtype)]
        kind = kinds[0] if self.dtype is self.b_dtype else ".".join(kinds)
        declarations = [f"LOCAL acc: {acc}[{accumulator.count}]"]
        body: list[str] = []
        a = f"a_r[{a_fragment.count}*t]"
        if self.a_layout is None:
            row, column = a_fragment.position(THREAD, REGISTER)
            declarations.append(f"LOCAL a_r: {self.dtype}[{steps * a_fragment.count}]")
            body += [
                f"FOR t in 0..{steps} UNROLL:",
                f"  FOR v in 0..{a_fragment.count} UNROLL:",
                f"    a_r[{a_fragment.count}*t + v] = copy(a[{row}, {k}*t + {column}])",
            ]
        else:
            a = _tile("a", self.a_layout, 64, self.dtype, steps, declarations, body)
        b = _tile("b", self.b_layout, n, self.b_dtype, steps, declarations, body)
        row, column = accumulator.position(THREAD, REGISTER)
        body += [
            "FENCE proxy.async",
            "SYNC block",
            "FENCE wgmma",
            f"FOR t in 0..{steps} UNROLL:",
            f"  WGMMA.m64n{n}k{k}.{kind} acc[0], {a}, {b}, accumulate t > 0",
            "COMMIT wgmma",
            "WAIT_GROUP wgmma <= 0",
            f"FOR v in 0..{accumulator.count} UNROLL:",
            f"  d[{row}, {column}] = copy(acc[v])",
        ]
        signature = f"KERNEL wgmma(a: {self.dtype}[64, {steps * k}], b: {self.b_dtype}[{n}, {steps * k}]) -> (d: {acc}[64, {n}])"
        return parse_kernel("\n  ".join([signature, "GRID (1, 1, 1)  BLOCK (128, 1, 1)", *declarations]) + "\n\n" + "\n".join(body) + "\n")

    def arguments(self, seed: int = 0) -> list[npt.NDArray[np.generic]]:
        """Random operands."""
        return operands(self.dtype, self.b_dtype, (64, self.n), self.steps * self.k, seed)


def _tile(name: str, layout: Layout, rows: int, dtype: DType, steps: int, declarations: list[str], body: list[str]) -> str:
    """Bring an operand to Shared memory; gives its descriptor in step ``t``."""
    k, tile = K_BYTES // dtype.itemsize, layout.size(rows, dtype.itemsize)
    r, c = sym("r"), sym("c")
    declarations.append(f"SHARED {name}_s: {dtype}[{steps}, {tile}] align 1024")
    body += [
        f"FOR t in 0..{steps}:",
        f"  FOR c in 0..{k}:",
        f"    FOR r in threadIdx.x..{rows} step 128:",
        f"      {name}_s[t, {layout.element(r, c, rows, dtype.itemsize)}] = copy({name}[r, {k}*t + c])",
    ]
    lbo, sbo = layout.strides(rows)
    return f"desc({name}_s[t, 0], swizzle {layout.swizzle}, lbo {lbo}, sbo {sbo}, major {'K' if layout.is_k_major else 'MN'})"


def operands(a: DType, b: DType, rows: tuple[int, int], k: int, seed: int = 0) -> list[npt.NDArray[np.generic]]:
    """Random operands, small enough that every sum of products is exact: of the whole range for integers."""
    rng = np.random.default_rng(seed)

    def values(dtype: DType, shape: tuple[int, int]) -> npt.NDArray[np.generic]:
        low, high = (int(dtype.min_value), int(dtype.max_value) + 1) if dtype.is_integer else (-4, 5)
        return rng.integers(low, high, shape).astype(dtype.numpy)

    return [values(a, (rows[0], k)), values(b, (rows[1], k))]


def expected(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """``a @ b^T``, exactly."""
    return a.astype(np.float64) @ b.astype(np.float64).T


def products() -> Iterator[Product]:
    """Every operand type, with A in Shared memory and in registers; every layout; some widths."""
    kinds = ((bfloat16, bfloat16), (float16, float16), (float32, float32), (float8_e4m3, float8_e4m3), (float8_e5m2, float8_e4m3))
    for a, b in (*kinds, (float8_e4m3, float8_e5m2), (int8, int8), (uint8, int8), (int8, uint8), (uint8, uint8)):
        yield Product(a, b)
        yield Product(a, b, a_layout=None)
    for swizzle in (0, 32, 64):
        for dtype in (bfloat16, float32, int8):
            yield Product(dtype, dtype, 24, Layout(swizzle), Layout(swizzle))
    for swizzle in (0, 32, 64, 128):
        for a in (Layout(swizzle, False), None):
            yield Product(bfloat16, bfloat16, 128, a, Layout(swizzle, False))
    yield Product(float16, float16, 8, None, Layout(128, False))
    yield Product(int8, int8, 48)
    yield Product(float8_e4m3, float8_e4m3, 40)
    yield Product(bfloat16, bfloat16, 256, None)


PRODUCTS = tuple(products())


@dataclass(frozen=True)
class WarpProduct:
    """One product by mma of two warps, 16 rows each, whose operands ldmatrix loads.

    Attributes:
        loads: how B comes to registers: ``rows`` ([n, k] in Shared memory), ``columns`` ([k, n], transposed by ldmatrix), or ``plain``
            loads of A and B.
    """

    dtype: DType
    b_dtype: DType
    loads: str = "rows"
    steps: int = 3

    @property
    def name(self) -> str:
        return f"{self.dtype}-{self.b_dtype}-{self.loads}"

    @property
    def k(self) -> int:
        return K_BYTES // self.dtype.itemsize

    def kernel(self) -> Kernel:
        """The kernel."""
        size, k, steps = self.dtype.itemsize, self.k, self.steps
        half = k // 2
        acc = accumulator_dtype(self.dtype, self.b_dtype)
        accumulator, a_fragment, b_fragment = mma_accumulator(), mma_a(size), mma_b(size)
        kinds = ["tf32" if d is float32 else d.name for d in (self.dtype, self.b_dtype)]
        lane = THREAD
        row, column = accumulator.position(lane, REGISTER)
        pad = steps * k + CHUNK // size
        b_shape, b_place = (f"{steps * k}, 8", "r, 4*threadIdx.y + i") if self.loads == "columns" else (f"8, {pad}", "4*threadIdx.y + i, r")
        if self.loads == "plain":
            (ar, ac), (br, bc) = a_fragment.position(lane, REGISTER), b_fragment.position(lane, REGISTER)
            load = [
                f"  FOR v in 0..{a_fragment.count} UNROLL:",
                f"    a_r[v] = copy(a_s[16*threadIdx.y + {ar}, {k}*t + {ac}])",
                f"  FOR v in 0..{b_fragment.count} UNROLL:",
                f"    b_r[v] = copy(b_s[{bc}, {k}*t + {br}])",
            ]
        else:
            # matrix i of A: rows 8 * (i % 2), the 16 bytes i // 2; of B: the 16 bytes i along k
            load = [f"  LDMATRIX a_r[0] <- a_s[16*threadIdx.y + threadIdx.x % 16, {k}*t + {half}*(threadIdx.x//16)]"]
            if self.loads == "columns":
                load.append(f"  LDMATRIX.x2.trans b_r[0] <- b_s[{k}*t + threadIdx.x % 16, 0]")
            else:
                load.append(f"  LDMATRIX.x2 b_r[0] <- b_s[threadIdx.x % 8, {k}*t + {half}*(threadIdx.x % 16//8)]")
        body = [
            f"FOR r in threadIdx.x..{steps * k} step 32:",
            "  FOR i in 0..16:",
            "    a_s[16*threadIdx.y + i, r] = copy(a[16*threadIdx.y + i, r])",
            "  FOR i in 0..4:",
            f"    b_s[{b_place}] = copy(b[4*threadIdx.y + i, r])",
            f"FOR v in 0..{accumulator.count} UNROLL:",
            "  acc[v] = copy(0)" if acc is not float32 else "  acc[v] = copy(0.0)",
            "SYNC block",
            f"FOR t in 0..{steps} UNROLL:",
            *load,
            f"  MMA.m16n8k{k}.{kinds[0] if self.dtype is self.b_dtype else '.'.join(kinds)} acc[0], a_r[0], b_r[0]",
            f"FOR v in 0..{accumulator.count} UNROLL:",
            f"  d[16*threadIdx.y + {row}, {column}] = copy(acc[v])",
        ]
        declarations = [
            "GRID (1, 1, 1)  BLOCK (32, 2, 1)",
            f"LOCAL acc: {acc}[4]",
            f"LOCAL a_r: {self.dtype}[{a_fragment.count}]",
            f"LOCAL b_r: {self.b_dtype}[{b_fragment.count}]",
            f"SHARED a_s: {self.dtype}[32, {pad}] align 16",
            f"SHARED b_s: {self.b_dtype}[{b_shape}] align 16",
        ]
        signature = f"KERNEL mma(a: {self.dtype}[32, {steps * k}], b: {self.b_dtype}[8, {steps * k}]) -> (d: {acc}[32, 8])"
        return parse_kernel("\n  ".join([signature, *declarations]) + "\n\n" + "\n".join(body) + "\n")

    def arguments(self, seed: int = 0) -> list[npt.NDArray[np.generic]]:
        """Random operands."""
        return operands(self.dtype, self.b_dtype, (32, 8), self.steps * self.k, seed)


def warp_products() -> Iterator[WarpProduct]:
    """Every operand type, loaded in every way that there is."""
    for a, b in ((bfloat16, bfloat16), (float16, float16), (float32, float32), (int8, int8), (uint8, int8), (float8_e4m3, float8_e5m2)):
        yield WarpProduct(a, b)
        yield WarpProduct(a, b, "plain")
    yield WarpProduct(bfloat16, bfloat16, "columns")
    yield WarpProduct(float16, float16, "columns")


WARP_PRODUCTS = tuple(warp_products())


@dataclass(frozen=True)
class QuadPairProduct:
    """Products by the quad pairs of two warps, 8 rows each, all with the same columns; threads load their fragments from Global memory.

    Attributes:
        layouts: of A and B in registers.
        sums: float32 or float16.
    """

    layouts: tuple[OperandLayout, OperandLayout]
    sums: DType = float32
    steps: int = 3
    dtype: DType = float16
    b_dtype: DType = float16

    @property
    def name(self) -> str:
        return "-".join(("quad-pairs", *(layout.value for layout in self.layouts), self.sums.name))

    @property
    def row(self) -> MatrixInstruction:
        """Its instruction."""
        found = find(Family.MMA, float16, float16, 4, self.layouts, self.sums)
        assert found is not None
        return found

    @property
    def k(self) -> int:
        return 4

    def kernel(self) -> Kernel:
        """The kernel."""
        (ar, ac), (br, bc) = (held(f).position(THREAD, REGISTER) for f in (self.row.a_registers, self.row.b_registers))
        row, column = self.row.accumulator(8).position(THREAD, REGISTER)
        pair = "8*(threadIdx.x//4 % 4) + 32*threadIdx.y"
        types = "float16" if self.sums is float32 else "float16.float16.float16"
        body = [
            "FOR v in 0..8 UNROLL:",
            "  acc[v] = copy(0.0)",
            f"FOR t in 0..{self.steps} UNROLL:",
            "  FOR v in 0..4 UNROLL:",
            f"    a_r[v] = copy(a[{pair} + {ar}, 4*t + {ac}])",
            f"    b_r[v] = copy(b[{bc}, 4*t + {br}])",
            f"  MMA.m8n8k4.{self.layouts[0].value}.{self.layouts[1].value}.{types} acc[0], a_r[0], b_r[0]",
            "FOR v in 0..8 UNROLL:",
            f"  d[{pair} + {row}, {column}] = copy(acc[v])",
        ]
        declarations = ["GRID (1, 1, 1)  BLOCK (32, 2, 1)", f"LOCAL acc: {self.sums}[8]", "LOCAL a_r: float16[4]", "LOCAL b_r: float16[4]"]
        signature = f"KERNEL mma(a: float16[64, {4 * self.steps}], b: float16[8, {4 * self.steps}]) -> (d: {self.sums}[64, 8])"
        return parse_kernel("\n  ".join([signature, *declarations]) + "\n\n" + "\n".join(body) + "\n")

    def arguments(self, seed: int = 0) -> list[npt.NDArray[np.generic]]:
        """Random operands."""
        return operands(float16, float16, (64, 8), 4 * self.steps, seed)


QUAD_PAIR_PRODUCTS = tuple(QuadPairProduct((a, b), sums) for a, b, sums in combinations(OperandLayout, OperandLayout, (float32, float16)))
AnyProduct = Product | WarpProduct | QuadPairProduct
ALL_PRODUCTS: tuple[AnyProduct, ...] = (*PRODUCTS, *WARP_PRODUCTS, *QUAD_PAIR_PRODUCTS)
