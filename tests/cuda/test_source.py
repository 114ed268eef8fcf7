"""The emitted text: what it holds, what it assumes, what its names are. That it compiles is shown in test_compile_all.py."""

from __future__ import annotations

import re

import pytest

import taskfuse as tf
from taskfuse.cuda import instructions
from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.signature import DivisorArgument, IntegerArgument, PointerArgument, StrideArgument, WorkspaceArgument
from taskfuse.cuda.source import emit
from taskfuse.kir.variant import ArgumentLayout, Variant
from tests.cuda.adding import ADD, checked
from tests.cuda.calls import HANDED


def test_the_text_has_one_line_for_one_statement() -> None:
    source = emit(checked(ADD))
    assert source.text == instructions.STREAM_WAIT.text + "\n\n" + (
        "// grid (M, 1, 1), block (128, 1, 1)\n"
        'extern "C" __global__ void __launch_bounds__(128, 1)\n'
        "add(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ z, int N) {\n"
        "  const int blockIdx_x = blockIdx.x;\n"
        "  __builtin_assume(blockIdx_x >= 0);\n"
        "  const int threadIdx_x = threadIdx.x;\n"
        "  __builtin_assume(threadIdx_x < 128);\n"
        "  wait_for_stream();\n"
        "  for (int i = 0; i < (N + 127) / 128; ++i) {\n"
        "    if (128 * i + threadIdx_x < N) {\n"
        "      z[blockIdx_x * N + 128 * i + threadIdx_x] = x[blockIdx_x * N + 128 * i + threadIdx_x] + y[blockIdx_x * N + 128 * i + threadIdx_x];\n"
        "    }\n"
        "  }\n"
        "}\n"
    )
    assert [type(a) for a in source.arguments] == [PointerArgument] * 3 + [IntegerArgument]


def test_wide_integers_stand_where_they_may_be_needed() -> None:
    text = emit(checked(ADD), Variant((ArgumentLayout.DENSE,) * 3, wide=True)).text
    assert "long long N" in text
    assert "for (long long i = 0; i < (N + 127) / 128; ++i)" in text
    small = ADD.replace("DIM M, N", "DIM M max 1000, N max 1000")
    assert "long long" not in emit(checked(small), Variant((ArgumentLayout.DENSE,) * 3, wide=True)).text


@pytest.mark.parametrize(
    ("form", "index"), [(ArgumentLayout.STRIDED, "* x_stride1"), (ArgumentLayout.ROWS, "x[blockIdx_x * x_stride0 + (128 * i + threadIdx_x)]")]
)
def test_strides_are_parameters(form: ArgumentLayout, index: str) -> None:
    source = emit(checked(ADD), Variant((form, ArgumentLayout.DENSE, ArgumentLayout.DENSE)))
    assert index in source.text
    assert [a.axis for a in source.arguments if isinstance(a, StrideArgument)] == ([0, 1] if form is ArgumentLayout.STRIDED else [0])


def test_uniform_divisors_are_prepared_by_the_host() -> None:
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor(["M", "N"])
        y = tf.sin(x)
        fusion.add_output(y)
    y.merge(0, 1)
    y.split(0, 128)
    y.axis(0).parallelize(tf.ParallelType.BIDx)
    y.axis(1).parallelize(tf.ParallelType.TIDx)
    lowered = tf.lower(fusion)
    source = emit(lowered)
    divisors = [a for a in source.arguments if isinstance(a, DivisorArgument)]
    assert [str(d.value) for d in divisors] in (["N"], [])
    if divisors:
        assert re.search(r"/ by_N", source.text)


def test_a_counter_is_zeroed_and_a_workspace_is_not() -> None:
    with tf.Fusion("total") as fusion:
        x = tf.define_tensor([4096])
        total = tf.sum(x, 0)
        fusion.add_output(total)
    total.split(0, 1024)
    total.axis(0).parallelize(tf.ParallelType.BIDx)
    source = emit(tf.lower(fusion))
    assert source.cooperative
    assert {a.zero for a in source.arguments if isinstance(a, WorkspaceArgument)} == {True, False}


FILLED = """\
KERNEL filled(x: float32[8], v: int32[8]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (8, 1, 1)

y[threadIdx.x] = copy(0.0)
SYNC block
UPDATE y[t] by add of x[threadIdx.x] at t = v[threadIdx.x] of 8
"""
TWICE = """\
KERNEL twice(x: float32[8]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (8, 1, 1)

y[threadIdx.x] = copy(0.0)
SYNC block
y[7 - threadIdx.x] = copy(x[threadIdx.x])
"""


@pytest.mark.parametrize(("kernel", "parameters"), [(HANDED, "float* y, float* __restrict__ z"), (FILLED, "float* y"), (TWICE, "float* y")])
def test_what_other_threads_store_is_not_restricted(kernel: str, parameters: str) -> None:
    """NVRTC moves accesses through ``__restrict__`` pointers across barriers."""
    text = emit(checked(kernel)).text
    assert parameters in text
    assert "const float* __restrict__ x" in text


def test_a_load_of_what_other_threads_store_stays_behind_the_barrier() -> None:
    source = emit(checked(HANDED))
    lines = compile_ptx(source.text, source.name, CompileOptions(arch="sm_90a")).splitlines()
    barrier = next(k for k, line in enumerate(lines) if "bar.sync" in line)
    assert [k > barrier for k, line in enumerate(lines) if re.search(r"ld\.global\.f32", line)] == [True]
