"""Statements of tensor cores as nodes."""

from taskfuse import dtypes
from taskfuse.ir.matrix_instructions import Family, accumulator_dtype, rows
from taskfuse.ir.scalar import sym
from taskfuse.ir.shared_layouts import Major
from taskfuse.kir.operands import Access, Descriptor
from taskfuse.kir.products import LdMatrix, Mma, Wgmma


def test_one_form_per_meaning() -> None:
    r = Access("r", ())
    d = Descriptor(r, sym("N"), 0, 0, 0, Major.K)
    assert Wgmma(8, 16, r, d, d, sym("N"), dtypes.int8, dtypes.int8) == Wgmma(8, 16, r, d, d, sym("N"), dtypes.int8)
    assert Wgmma(8, 16, r, d, d, sym("N"), dtypes.int8, dtypes.uint8).b_dtype is dtypes.uint8
    assert Mma(8, r, r, r, dtypes.int8, dtypes.int8) == Mma(8, r, r, r, dtypes.int8)
    assert LdMatrix(r, r) == LdMatrix(r, r, 4, False)


def test_products() -> None:
    assert accumulator_dtype(dtypes.float8_e4m3, dtypes.float8_e5m2) is dtypes.float32
    assert accumulator_dtype(dtypes.uint8, dtypes.int8) is dtypes.int32
    assert accumulator_dtype(dtypes.bfloat16, dtypes.float16) is None
    assert accumulator_dtype(dtypes.float8_e4m3, dtypes.int8) is None
    # PTX ISA, the shapes of wgmma.mma_async with .s8 and .u8
    integers = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
    assert rows(Family.WGMMA, dtypes.int8, dtypes.uint8)[0].widths == integers
    assert rows(Family.WGMMA, dtypes.bfloat16, dtypes.bfloat16)[0].widths == tuple(range(8, 257, 8))
