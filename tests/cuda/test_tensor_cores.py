"""The CUDA form of every tensor-core instruction: NVRTC compiles it, and the assembler neither serializes wgmma nor spills."""

import re
from collections.abc import Sequence

import pytest

from taskfuse import ParallelType as P
from taskfuse import lower
from taskfuse.cuda.nvrtc import CompileOptions, compile_cubin
from taskfuse.cuda.resources import Diagnostic
from taskfuse.cuda.signature import Source
from taskfuse.cuda.source import emit
from taskfuse.cuda.stages import check_target
from taskfuse.dtypes import bfloat16, float8_e4m3, float8_e5m2, float16, float32, int8, uint8
from taskfuse.errors import UnsupportedError
from taskfuse.ir.matrix_instructions import OperandLayout
from taskfuse.kir import Kernel, parse_kernel
from tests.lowering.joined import CASES
from tests.lowering.joined import Product as Joined
from tests.products import PRODUCTS, QUAD_PAIR_PRODUCTS, WARP_PRODUCTS, AnyProduct, Layout, Product, QuadPairProduct, WarpProduct
from tests.sim.kernels import load, replaced

BATCH = 14


def compiled(sources: Sequence[Source], arch: str) -> tuple[Diagnostic, ...]:
    """What the assembler complains about in several kernels, compiled as one text."""
    texts = (re.sub(rf"(?m)^{source.name}(?=\()", f"{source.name}_{k}", source.text) for k, source in enumerate(sources))
    text = "\n".join(f"namespace kernel{k} {{\n{text}}}" for k, text in enumerate(texts))
    return compile_cubin(text, f"{sources[0].name}_0", CompileOptions(arch=arch)).diagnostics


@pytest.mark.parametrize("first", range(0, len(PRODUCTS), BATCH))
def test_wgmma(first: int) -> None:
    sources = [emit(p.kernel()) for p in PRODUCTS[first : first + BATCH]]
    assert all(s.feature_arch and s.arch == 90 for s in sources)
    assert compiled(sources, "sm_90a") == ()


def test_mma_of_ampere() -> None:
    sources = [emit(p.kernel()) for p in WARP_PRODUCTS]
    older = [s for s in sources if s.arch == 80]
    assert [p.dtype.bits for p, s in zip(WARP_PRODUCTS, sources, strict=True) if s.arch == 89] == [8, 8]  # 8-bit floats
    assert len(older) == len(sources) - 2
    assert compiled(older, "sm_80") == ()
    assert compiled(sources, "sm_89") == ()
    assert compiled([*sources, emit(parse_kernel(load("gemm_sync")))], "sm_90a") == ()


def test_mma_of_quad_pairs() -> None:
    sources = [emit(p.kernel()) for p in QUAD_PAIR_PRODUCTS]
    assert {s.arch for s in sources} <= {70, 80}
    assert compiled(sources, "sm_90a") == ()


def test_8_bit_floats_need_a_newer_gpu() -> None:
    source = emit(WarpProduct(float8_e4m3, float8_e5m2).kernel())
    check_target(source, "sm_89")
    with pytest.raises(UnsupportedError, match="it has instructions of sm_89 and newer"):
        check_target(source, "sm_80")


def test_joined_parts_of_wgmma() -> None:
    """What joins the parts of a tile is not an instruction of its atom: it opens no batch, which would take the registers from the reads behind it."""
    cases = [*(Joined("wgmma", p, 2) for p in (P.TIDy, P.BIDz, P.CIDx)), CASES["several tiles of a thread"], CASES["integers"]]
    assert compiled([emit(lower(case.fusion())) for case in cases], "sm_90a") == ()


ASSEMBLY = (
    (Product(bfloat16, bfloat16), "m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1, 0, 0;"),
    (Product(float16, float16, 8, Layout(64, False), Layout(128, False)), "m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 1, 1;"),
    (Product(float16, float16, 8, None, Layout(128, False)), "m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1, 1;"),
    (Product(float32, float32, 8, None), "m64n8k8.f32.tf32.tf32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1;"),
    (Product(float8_e5m2, float8_e4m3, 8), "m64n8k32.f32.e5m2.e4m3 {%0, %1, %2, %3}, %4, %5, p, 1, 1;"),
    (Product(int8, uint8, 8), "m64n8k32.s32.s8.u8 {%0, %1, %2, %3}, %4, %5, p;"),
    (WarpProduct(bfloat16, bfloat16), "m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"),
    (WarpProduct(float32, float32), "m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"),
    (WarpProduct(uint8, int8), "m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"),
    (
        QuadPairProduct((OperandLayout.ROW, OperandLayout.COLUMN)),
        "m8n8k4.row.col.f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%0, %1, %2, %3, %4, %5, %6, %7};",
    ),
    (
        QuadPairProduct((OperandLayout.COLUMN, OperandLayout.ROW), float16),
        "m8n8k4.col.row.f16.f16.f16.f16 {%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3};",
    ),
    (WarpProduct(float16, float16, "columns"), "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"),
)


@pytest.mark.parametrize(("product", "text"), ASSEMBLY, ids=lambda x: getattr(x, "name", None))
def test_assembly(product: AnyProduct, text: str) -> None:
    assert text in emit(product.kernel()).text


MOVES = """\
KERNEL moves(x: ELEMENT[32, COLUMNS]) -> (y: ELEMENT[32, COLUMNS])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: ELEMENT[PACKED]
  SHARED s: ELEMENT[32, COLUMNS] align 16
  SHARED t: ELEMENT[32, COLUMNS] align 16

COPY s[threadIdx.x, 0] <- x[threadIdx.x, 0] width COLUMNS
COPY t[threadIdx.x, 0] <- x[threadIdx.x, 0] width COLUMNS
SYNC warp
LDMATRIX.FORM r[0] <- s[threadIdx.x, 0]
STMATRIX.FORM t[threadIdx.x, 0] <- r[0]
SYNC warp
COPY y[threadIdx.x, 0] <- t[threadIdx.x, 0] width COLUMNS
"""


def moves(dtype: str, size: int, form: str) -> Kernel:
    text = MOVES.replace("ELEMENT", dtype).replace("COLUMNS", str(16 // size)).replace("PACKED", str(int(form[1]) * 4 // size))
    return parse_kernel(text.replace(".FORM", f".{form}"))


def test_matrices_of_every_element_and_form() -> None:
    kinds = [("bfloat16", 2), ("float16", 2), ("int16", 2), ("uint16", 2), ("float32", 4), ("int32", 4), ("uint32", 4)]
    kinds += [("int8", 1), ("uint8", 1), ("float8_e4m3", 1)]
    kernels = [moves(dtype, size, form) for dtype, size in kinds for form in ("x1", "x2", "x4")]
    kernels += [moves(dtype, 2, f"{form}.trans") for dtype in ("bfloat16", "int16") for form in ("x1", "x2", "x4")]
    for k in kernels:
        k.verify().require()
    sources = [emit(k) for k in kernels]
    assert {s.arch for s in sources} == {90}  # stmatrix
    assert not any(s.feature_arch for s in sources)
    assert compiled(sources, "sm_90") == ()


FP8, RS = load("gemm_fp8"), load("gemm_rs")
TOUCHED = "      COMMIT wgmma\n", "      COMMIT wgmma\n      acc[3] = mul(acc[3], 2.0)\n"
SERIALIZED, WAITED = "wgmma.mma_async instructions are serialized due to", "wgmma.wait_group is injected by compiler"
SERIAL = {
    "an accumulator is touched in flight": (replaced(FP8, *TOUCHED), SERIALIZED),
    "the same, A in registers": (replaced(RS, *TOUCHED), SERIALIZED),
    "nothing is waited for before the accumulators are read": (replaced(RS, "    WAIT_GROUP wgmma <= 0\n", ""), WAITED),
}


@pytest.mark.parametrize("name", SERIAL)
def test_serialized_wgmma_is_reported(name: str) -> None:
    text, reported = SERIAL[name]
    source = emit(parse_kernel(text))
    found = compile_cubin(source.text, source.name, CompileOptions(arch="sm_90a")).diagnostics
    assert any(d.text.startswith(reported) for d in found)
    assert all(d.of_registers for d in found)


@pytest.mark.parametrize("name", ["gemm_fp8", "gemm_rs", "gemm_mn"])
def test_hand_written_kernels_run_wgmma_in_parallel(name: str) -> None:
    source = emit(parse_kernel(load(name)))
    binary = compile_cubin(source.text, source.name, CompileOptions(arch="sm_90a"))
    assert binary.diagnostics == ()
    assert binary.resources is not None
    assert binary.resources.stack == 0
