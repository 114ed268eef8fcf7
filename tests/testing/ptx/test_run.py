"""PTX that is run gives the numbers of the simulator, and a mistake in the text gives others."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import taskfuse as tf
from taskfuse.cuda.source import emit
from taskfuse.errors import InputError
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.variant import ArgumentLayout, Variant
from taskfuse.testing.instruction_subjects import INSTRUCTIONS
from taskfuse.testing.ptx.nodes import PtxError
from taskfuse.testing.ptx.run import Argument, run
from taskfuse.testing.runs import mismatch
from tests.products import ALL_PRODUCTS
from tests.testing.ptx.compiled import ptx_of, written

Array = NDArray[Any]

NARROW = """\
KERNEL narrow(a: bfloat16[256], h: float16[256], f: float32[256], m: int32[256]) -> (b: bfloat16[256], c: float16[256], q: float8_e4m3[256], e: float8_e5m2[256], w: float32[256], s: float32[256], g: int8[256])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL x: bfloat16[8]
  LOCAL y: bfloat16[8]
  LOCAL u: float16[8]
  LOCAL v: float32[8]
  LOCAL p: float32[8]
  LOCAL t: float32[8]
  SHARED z: float32[256] align 16 @ 0

COPY x[0] <- a[8*threadIdx.x] width 8
COPY u[0] <- h[8*threadIdx.x] width 8
COPY v[0] <- f[8*threadIdx.x] width 4
COPY v[4] <- f[8*threadIdx.x + 4] width 4
FOR i in 0..8 UNROLL:
  y[i] = sub.float32(x[i], x[7 - i])
FOR i in 0..8 UNROLL:
  y[i] = maximum.float32(y[i], x[i])
COPY b[8*threadIdx.x] <- y[0] width 8
FOR i in 0..8 UNROLL:
  p[i] = mul.float32(v[i], v[i])
FOR i in 0..8 UNROLL:
  c[i + 8*threadIdx.x] = cast.float32(p[i])
FOR i in 0..8 UNROLL:
  q[i + 8*threadIdx.x] = cast.float32(v[i])
FOR i in 0..8 UNROLL:
  e[i + 8*threadIdx.x] = cast.float16(u[i])
FOR i in 0..8 UNROLL:
  g[i + 8*threadIdx.x] = cast.float32(v[i])
FOR i in 0..8 UNROLL:
  SHUFFLE t[i] <- v[i] xor 4
COPY z[8*threadIdx.x] <- t[0] width 4
COPY z[8*threadIdx.x + 4] <- t[4] width 4
SYNC block
FOR i in 0..8 UNROLL:
  w[threadIdx.x + 32*i] = where.float32(m[threadIdx.x + 32*i], z[(threadIdx.x + 32*i + 9) % 256], v[i])
FOR i in 0..8 UNROLL:
  s[threadIdx.x + 32*i] = minimum.float32(z[threadIdx.x + 32*i], 0.5)
"""  # noqa: E501

FLOATS = """\
KERNEL floats(a: bfloat16[8]) -> (b: bfloat16[8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL x: bfloat16[8]
  LOCAL r: bfloat16[8]

FOR i in 0..8 UNROLL:
  x[i] = copy(a[i])
FOR i in 0..8 UNROLL:
  r[i] = relu.float32(x[i])
FOR i in 0..8 UNROLL:
  b[i] = copy(r[i])
"""

UPDATES = """\
KERNEL updates(x: float32[32], v: int32[32], y0: float32[16], z0: float32[32]) -> (y: float32[16] into y0, z: float32[32] into z0)
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: float32[2]

IF threadIdx.x < 16:
  y[threadIdx.x] = copy(y0[threadIdx.x])
z[threadIdx.x] = copy(z0[threadIdx.x])
SYNC block
r[0] = copy(x[threadIdx.x])
UPDATE y[t] by add of r[0] at t = v[threadIdx.x] of 16
IF threadIdx.x < 16:
  COPY r[0] <- x[2*threadIdx.x] width 2
  UPDATE z[2*threadIdx.x] by add of r[0] width 2
"""


def numbers(dtype: Any, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Numbers that rounding changes, with those at limits."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        found = (rng.normal(0, 1, shape) * rng.choice([1, 30, 2.0**-10], shape)).astype(dtype)
    flat = found.reshape(-1)
    limits = np.array([np.nan, 300.0, -300.0, 61440.0, 0.0]).astype(dtype)
    flat[: min(5, flat.size)] = limits[: flat.size]
    return found


@cache
def arguments(name: str) -> tuple[Argument, ...]:
    """Inputs of a kernel of this module."""
    rng = np.random.default_rng(1)
    match name:
        case "narrow":
            return (
                numbers(ml_dtypes.bfloat16, (256,)),
                numbers(np.float16, (256,), 1),
                numbers(np.float32, (256,), 2),
                rng.integers(0, 2, 256).astype(np.int32),
            )
        case "floats":
            return (np.array([1, -2, 3.5, -0.5, 100, -7, 9, 11]).astype(ml_dtypes.bfloat16),)
        case "updates":
            small = rng.integers(-9, 10, 32).astype(np.float32)
            return small, rng.integers(-1, 18, 32).astype(np.int32), np.ones(16, np.float32), small[::-1].copy()
        case "gemm_fp8":
            return rng.integers(-2, 3, (9, 48)).astype(ml_dtypes.float8_e4m3fn), rng.integers(-2, 3, (8, 48)).astype(ml_dtypes.float8_e5m2), 0.5
        case _:
            raise ValueError(name)


@cache
def kernel(name: str) -> tf.Kernel:
    """A kernel of this module, or of tests/kernels."""
    texts = {"narrow": NARROW, "floats": FLOATS, "updates": UPDATES}
    return tf.parse_kernel(texts[name]) if name in texts else written(name)


@cache
def simulated(name: str) -> tuple[Array, ...]:
    """The results of the simulator."""
    return kernel(name).simulate(*arguments(name))


def difference(name: str, text: str | None = None) -> str | None:
    """How the results of a kernel's PTX, or of another text of it, differ from those of the simulator."""
    source = emit(kernel(name))
    return mismatch(kernel(name), run(kernel(name), source, ptx_of(source, text), arguments(name)), simulated(name))


@pytest.mark.parametrize("name", ["narrow", "floats", "updates", "gemm_fp8"])
def test_right_texts(name: str) -> None:
    assert difference(name) is None


SUBJECTS = ("wgmma:e4m3", "wgmma:registers", "wgmma:cluster", "mma:stmatrix", "mma:cp.async", "update:boxes", "update:blocks")


@pytest.mark.parametrize("name", SUBJECTS)
def test_instructions_on_tiles(name: str) -> None:
    """Copies, fragments and tensor cores, by layouts that are written here independently of those of lowering."""
    made = tf.lower(INSTRUCTIONS[name]())
    check(made)


@pytest.mark.parametrize("name", ["bfloat16-n128-MN64-MN64", "uint8-int8-n16-registers-K128", "float8_e4m3-float8_e5m2-rows", "quad-pairs-col-row-float32"])
def test_forms_of_products(name: str) -> None:
    check(next(p for p in ALL_PRODUCTS if p.name == name).kernel())


def check(made: tf.Kernel) -> None:
    """The PTX of a kernel gives, for small integers, what the simulator gives."""
    rng = np.random.default_rng(0)
    given = [rng.integers(0, 3, [int(str(e)) for e in p.shape]).astype(p.dtype.numpy) for p in made.params if isinstance(p, TensorParam) and not p.is_output]
    source = emit(made)
    assert mismatch(made, run(made, source, ptx_of(source), given), made.simulate(*given)) is None


# kernel, what is replaced (a regular expression, its first match), by what, and the output that is wrong
FAULTS = {
    "halves of a word in the wrong order": ("narrow", r"\(word >> 8 \* sizeof\(T\) \* i\)", "(word >> 8 * sizeof(T) * (1 - i))", "b"),
    "elements of a word in the wrong order": ("narrow", r"\(unsigned short\)x\[0\] \| (.*)x\[1\] << 16", r"(unsigned short)x[1] | \1x[0] << 16", "b"),
    "a pair that does not keep NaN": ("narrow", r"max\.NaN\.bf16x2", "max.bf16x2", "b"),
    "operands of a difference in the wrong order": ("narrow", r"(from_bfloat16\(x\[i\]\)) - (from_bfloat16\(x\[7 - i\]\))", r"\2 - \1", "b"),
    "a rounding that cuts off": ("narrow", r"cvt\.rn\.bf16\.f32", "cvt.rz.bf16.f32", "b"),
    "a rounding left out": ("narrow", r"to_packed_bfloat16\((\(.*\))\);", r"__float_as_uint(\1) >> 16;", "b"),
    "the upper half of a conversion": (
        "narrow",
        r'"f"\(0\.0f\), "f"\(x\)\);\n  return \(unsigned short\)',
        '"f"(x), "f"(0.0f));\n  return (unsigned short)',
        "c",
    ),
    "a conversion to another type of 8 bits": ("narrow", r"e4m3x2\.f32", "e5m2x2.f32", "q"),
    "a limit that is one exponent too great": ("narrow", r"0x47700000", "0x47800000", "e"),
    "a number that does not saturate": ("narrow", r"float_to_char\((v\[i\])\)", r"__float2int_rz(\1)", "g"),
    "a shuffle with another lane": ("narrow", r"(v\[i\]), 4\)", r"\1, 2)", "w"),
    "a select the wrong way round": ("narrow", r"\? (z\[.*\]) : (v\[i\]);", r"? \2 : \1;", "w"),
    "a minimum that does not keep NaN": ("narrow", r"min\.NaN\.f32", "min.f32", "s"),
    "a constant of fewer bits": ("narrow", r"0\.5f", "0.49999997f", "s"),
    "words of registers that hold floats": (
        "floats",
        r"for \(int i = 0; i < 8; \+\+i\) \{\n    r\[i\] = .*",
        "for (int i = 0; i < 8; i += 2) {\n    r[i] = __uint_as_float(max(__float_as_int(x[i]), 0) & 0xffff0000);",
        "b",
    ),
    "an update that takes the wrong neighbor": ("updates", r"v2\.f32 \[%0\], \{%1, %2\}", "v2.f32 [%0], {%2, %1}", "z"),
    "another function of an update": ("updates", r"global\.add\.f32", "global.max.s32", "y"),
    "types of the operands of a product": ("gemm_fp8", r"\.e4m3\.e5m2", ".e5m2.e4m3", "D"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_gives_other_numbers(fault: str) -> None:
    name, pattern, replacement, output = FAULTS[fault]
    text = emit(kernel(name)).text
    wrong = re.sub(pattern, replacement, text, count=1)
    assert wrong != text
    found = difference(name, wrong)
    assert found is not None
    assert found.startswith(f"{output}: ")


@pytest.mark.parametrize(
    ("pattern", "replacement", "said"),
    [
        (r"__shfl_xor_sync\(0xffffffff", "__shfl_xor_sync(0xffff", r"lane \d+ is not one of the lanes 0xffff"),
        (r"__syncthreads\(\)", 'if (threadIdx_x < 16) asm volatile("barrier.sync 1, 32;")', "16 threads wait for ever: .* in BARRIER"),
        (r"&a\[8 \* threadIdx_x\]", "&a[8 * threadIdx_x + 8]", "an access of 16 bytes at .* of global memory"),
        (r"&a\[8 \* threadIdx_x\]", "&a[8 * threadIdx_x + 4 * (threadIdx_x < 31)]", "a load of 16 bytes at .* is not aligned"),
    ],
)
def test_what_must_not_happen(pattern: str, replacement: str, said: str) -> None:
    text = re.sub(pattern, replacement, emit(kernel("narrow")).text, count=1)
    with pytest.raises(PtxError, match=said):
        difference("narrow", text)


def test_layouts_with_gaps() -> None:
    """Tensors get the strides of the variant; what lies between their elements must stay."""
    strided = kernel("floats")
    source = emit(strided, Variant((ArgumentLayout.STRIDED, ArgumentLayout.STRIDED)))
    (found,) = run(strided, source, ptx_of(source), arguments("floats"))
    assert np.array_equal(found, simulated("floats")[0])
    wrong = re.sub(r"b\[(.*?)\] = ", r"b[\1 + 1] = ", source.text, count=1)
    with pytest.raises(PtxError, match=r"between its elements|an access of 2 bytes"):
        run(strided, source, ptx_of(source, wrong), arguments("floats"))


def test_arguments_that_do_not_fit() -> None:
    source = emit(kernel("floats"))
    with pytest.raises(InputError, match="has dtype float32, not bfloat16"):
        run(kernel("floats"), source, ptx_of(source), [np.zeros(8, np.float32)])
    with pytest.raises(InputError, match="0 arguments given"):
        run(kernel("floats"), source, ptx_of(source), [])
