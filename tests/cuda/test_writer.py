"""Identifiers of the text: names of users, of helpers, of C++."""

from __future__ import annotations

import re

import pytest

import taskfuse as tf
from taskfuse.cuda import copy_instructions, instructions, matrices, nvrtc
from taskfuse.cuda.expressions import DIVISOR, FLOOR_DIVIDE, FLOOR_MODULO, Divisors, Indices
from taskfuse.cuda.ranges import IntegerRanges
from taskfuse.cuda.signature import ScalarArgument
from taskfuse.cuda.source import emit
from taskfuse.cuda.text import Helper, HelperCall
from taskfuse.cuda.writer import Identifiers, TextScope, Writer
from taskfuse.ir.scalar import Facts, const
from taskfuse.ir.shared_layouts import Major
from taskfuse.kir.operands import Access, Descriptor
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.kir.synchronization import SetMaxNReg
from tests.cuda.adding import checked


def test_hostile_names() -> None:
    """Names of tensors, symbols and loops may be words of C++, of CUDA, of its math library, of the text itself, or differ by a dot only."""
    text = """\
KERNEL main(int: float32[N], sinf: float32[N], threadIdx_x: float32[N], alpha: float32) -> (shared: float32[N], report: float32[N])
  DIM N
  GRID (ceildiv(N, 32), 1, 1)  BLOCK (32, 1, 1)
  LOCAL double: float32[2]
  LOCAL a.b: float32[]
  LOCAL a_b: float32[]

FOR for in 0..2 UNROLL:
  IF 32*blockIdx.x + threadIdx.x < N:
    double[for] = sin(int[32*blockIdx.x + threadIdx.x])
    a.b = mul(alpha, sinf[32*blockIdx.x + threadIdx.x])
    a_b = add(a.b, threadIdx_x[32*blockIdx.x + threadIdx.x])
    shared[32*blockIdx.x + threadIdx.x] = add(double[for], a_b)
    report[32*blockIdx.x + threadIdx.x] = add(double[for], a.b)
"""
    source = emit(checked(text))
    nvrtc.compile_cubin(source.text, source.name, nvrtc.CompileOptions(arch="sm_80"))
    assert [a.name for a in source.arguments if isinstance(a, ScalarArgument)] == ["alpha"]


def test_names_of_helpers_are_taken() -> None:
    helpers = [h for module in (instructions, copy_instructions, matrices) for h in vars(module).values() if isinstance(h, Helper)]
    helpers += [copy_instructions.copy_vector(16), copy_instructions.async_copy(4, fills=True), copy_instructions.async_copy(16, fills=False)]
    helpers += [copy_instructions.tma_load(3), copy_instructions.tma_store(1), instructions.set_registers(40, 168), copy_instructions.store_vector_if(4)]
    helpers += [instructions.cluster_index("x"), copy_instructions.tma_multicast(2), FLOOR_DIVIDE, FLOOR_MODULO, DIVISOR]
    register = Access("r", (const(0),))
    tile = Descriptor(register, const(0), 0, 0, 0, Major.MN)
    helpers += [matrices.wgmma(Wgmma(64, 16, register, a, tile, const(1), tf.bfloat16)) for a in (tile, register)]
    helpers += [matrices.mma(Mma(16, register, register, register, tf.bfloat16))]
    helpers += [matrices.ldmatrix(LdMatrix(register, register, 2)), matrices.stmatrix(StMatrix(register, register, 4, transpose=True))]
    assert len(helpers) > 30
    for helper in helpers:
        for defined in re.findall(r"(?:\w+\*? )(\w+)\([^)]*\) \{", helper.text):
            assert Identifiers()[defined] != defined or defined == "operator"
        assert Identifiers()[helper.name] != helper.name


def test_a_statement_that_is_one_call() -> None:
    kernel = tf.parse_kernel("KERNEL k() -> (y: float32[4])\n  GRID (1, 1, 1)  BLOCK (4, 1, 1)\n\ny[threadIdx.x] = copy(1.0)\n")
    helper = Helper("budget", "__device__ void budget(int n) {}")
    writer = Writer(kernel, Identifiers(), {}, {}, set(), {})
    scope = TextScope(Indices({}, IntegerRanges({}), Facts, False, frozenset(), Divisors(frozenset(), Identifiers().reserve), set()), (), 1, set())
    writer.statement(SetMaxNReg(40), HelperCall(helper, ("registers",)), scope)
    assert writer.lines == ["  budget(40);"]
    assert writer.helpers == {helper}


@pytest.mark.parametrize(
    ("index", "dtype", "text"),
    [
        ("64*blockIdx.x + 2*i - threadIdx.x", "int64", "(float)(64 * blockIdx_x - threadIdx_x) + (float)(2 * i)"),
        ("64*blockIdx.x + 2*i - threadIdx.x + 8388608", "int32", "(float)(64 * blockIdx_x - threadIdx_x + 8388608) + (float)(2 * i)"),
        ("64*blockIdx.x + 2*i - threadIdx.x + 16777216", "int64", "(float)(long long)(64 * blockIdx_x + 2 * i - threadIdx_x + 16777216)"),
        ("64*blockIdx.x + 2*i - threadIdx.x", "int8", "float_of_char(((signed char)(long long)(64 * blockIdx_x + 2 * i - threadIdx_x)))"),
        ("2*i", "int64", "(float)(long long)(2 * i)"),
        ("64*blockIdx.x - threadIdx.x", "int64", "(float)(long long)(64 * blockIdx_x - threadIdx_x)"),
        ("64*blockIdx.x + 2*w - threadIdx.x", "int64", "(float)(long long)(64 * blockIdx_x + 2 * w - threadIdx_x)"),
    ],
)
def test_floats_of_indices_in_unrolled_loops_share_a_conversion(index: str, dtype: str, text: str) -> None:
    """Where float32 has the number, both parts of it, and what they have in common is more than a constant."""
    kernel = f"""\
KERNEL k() -> (y: float32[128])
  GRID (4, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: float32[4]

FOR w in 0..2:
  FOR i in 0..4 UNROLL:
    r[i] = cast.{dtype}(index({index}))
  FOR i in 0..4 UNROLL:
    y[32*i + threadIdx.x] = copy(r[i])
"""
    assert text in emit(tf.parse_kernel(kernel)).text


@pytest.mark.parametrize("name", ["norm", "abs", "round", "malloc", "j0f", "rnorm3d", "llrint", "fabs", "printf"])
def test_kernels_have_names_of_their_own(name: str) -> None:
    """CUDA declares such functions with C linkage, as kernels are."""
    with tf.Fusion(name) as fusion:
        fusion.add_output(tf.neg(tf.define_tensor(4, name="x")))
    kernel = tf.lower(fusion)
    assert f"kernel_{name}(" in kernel.cuda_source()
    assert kernel.ptx()
    assert Identifiers().function(f"{name}_of_rows") == f"{name}_of_rows"
