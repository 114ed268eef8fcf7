"""The emitted text: what it holds, what it assumes, what its names are. That it compiles is shown in test_compile_all.py."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import taskfuse as tf
from examples import nested_groups, pipeline, stream
from taskfuse.cuda import copy_instructions, instructions, matrices, nvrtc
from taskfuse.cuda.expressions import DIVISOR, FLOOR_DIVIDE, FLOOR_MODULO
from taskfuse.cuda.ranges import dense, fits
from taskfuse.cuda.signature import DivisorArgument, IntegerArgument, PointerArgument, ScalarArgument, StrideArgument, WorkspaceArgument
from taskfuse.cuda.source import emit
from taskfuse.cuda.text import Helper
from taskfuse.cuda.writer import Names
from taskfuse.errors import VerifyError
from taskfuse.ir.scalar import const
from taskfuse.ir.shared_layouts import Major
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.operands import Access, Descriptor
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.kir.variant import Form, Variant

ADD = """\
KERNEL add(x: float32[M, N], y: float32[M, N]) -> (z: float32[M, N])
  DIM M, N
  GRID (M, 1, 1)  BLOCK (128, 1, 1)

FOR i in 0..ceildiv(N, 128):
  IF 128*i + threadIdx.x < N:
    z[blockIdx.x, 128*i + threadIdx.x] = add(x[blockIdx.x, 128*i + threadIdx.x], y[blockIdx.x, 128*i + threadIdx.x])
"""


def kernel(text: str) -> Kernel:
    found = parse_kernel(text)
    found.check_ir()
    return found


def test_the_text_has_one_line_for_one_statement() -> None:
    source = emit(kernel(ADD))
    assert source.text == instructions.STREAM_WAIT.text + "\n\n" + (
        "// grid (M, 1, 1), block (128, 1, 1)\n"
        'extern "C" __global__ void __launch_bounds__(128, 1)\n'
        "add(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ z, int N) {\n"
        "  const int blockIdx_x = blockIdx.x;\n"
        "  const int threadIdx_x = threadIdx.x;\n"
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
    text = emit(kernel(ADD), Variant((Form.DENSE,) * 3, wide=True)).text
    assert "long long N" in text
    assert "for (long long i = 0; i < (N + 127) / 128; ++i)" in text
    small = ADD.replace("DIM M, N", "DIM M max 1000, N max 1000")
    assert "long long" not in emit(kernel(small), Variant((Form.DENSE,) * 3, wide=True)).text


@pytest.mark.parametrize(("form", "index"), [(Form.STRIDED, "* x_stride1"), (Form.ROWS, "x[blockIdx_x * x_stride0 + (128 * i + threadIdx_x)]")])
def test_strides_are_parameters(form: Form, index: str) -> None:
    source = emit(kernel(ADD), Variant((form, Form.DENSE, Form.DENSE)))
    assert index in source.text
    assert [a.axis for a in source.arguments if isinstance(a, StrideArgument)] == ([0, 1] if form is Form.STRIDED else [0])


@pytest.mark.parametrize(
    ("m", "n", "expected"),
    [(1, 1, True), (0, 0, True), (46340, 46340, True), (46341, 46341, False), (2**31 - 1, 1, True), (2**31, 1, False), (2**20, 2**20, False)],
)
def test_fits(m: int, n: int, expected: bool) -> None:
    assert fits(kernel(ADD), {"M": m, "N": n}) is expected


def test_an_index_before_its_guard_must_fit_too() -> None:
    # the last thread of the last tile computes 2**31 before its guard fails
    assert not fits(kernel(ADD), {"M": 1, "N": 2**31 - 1})


@pytest.mark.parametrize("build", [pipeline.build, stream.build, nested_groups.build])
def test_rings_do_not_make_integers_wide(build: Callable[[], tf.Fusion]) -> None:
    lowered = tf.lower(build())
    assert fits(lowered, {"M": 8192, "N": 8192})
    assert not fits(lowered, {"M": 2**16, "N": 2**16})


def test_a_kernel_of_known_shapes_has_one_width() -> None:
    big = ADD.replace("  DIM M, N\n", "").replace("M", "65536").replace("N", "65536").replace("KER65536EL", "KERNEL")
    assert dense(kernel(big)).wide
    assert "long long" in emit(kernel(big)).text
    assert not dense(kernel(big.replace("65536", "256"))).wide


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
    source = emit(kernel(text))
    nvrtc.compile_cubin(source.text, source.name, nvrtc.CompileOptions(arch="sm_80"))
    assert [a.name for a in source.arguments if isinstance(a, ScalarArgument)] == ["alpha"]


def test_names_of_helpers_are_taken() -> None:
    helpers = [h for module in (instructions, copy_instructions, matrices) for h in vars(module).values() if isinstance(h, Helper)]
    helpers += [copy_instructions.copy_vector(16), copy_instructions.async_copy(4, fills=True), copy_instructions.async_copy(16, fills=False)]
    helpers += [copy_instructions.tma_load(3), copy_instructions.tma_store(1), instructions.set_registers(40, 168)]
    helpers += [instructions.cluster_index("x"), copy_instructions.tma_multicast(2), FLOOR_DIVIDE, FLOOR_MODULO, DIVISOR]
    register = Access("r", (const(0),))
    tile = Descriptor(register, const(0), 0, 0, 0, Major.MN)
    helpers += [matrices.wgmma(Wgmma(64, 16, register, a, tile, const(1), tf.bfloat16)) for a in (tile, register)]
    helpers += [matrices.mma(Mma(16, register, register, register, tf.bfloat16))]
    helpers += [matrices.ldmatrix(LdMatrix(register, register, 2)), matrices.stmatrix(StMatrix(register, register, 4, transpose=True))]
    assert len(helpers) > 30
    for helper in helpers:
        for defined in re.findall(r"(?:\w+\*? )(\w+)\([^)]*\) \{", helper.text):
            assert Names()[defined] != defined or defined == "operator"
        assert Names()[helper.name] != helper.name


def test_only_what_is_called_is_defined() -> None:
    for path in ("sin", "atan2"):
        with tf.Fusion(path) as fusion:
            x = tf.define_tensor(["N"])
            fusion.add_output(tf.sin(x) if path == "sin" else tf.atan2(x, x))
        text = tf.lower(fusion)
        assert "#include" not in emit(text).text
        assert emit(text).text.count("__device__") == 1, "the wait for the stream alone"


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


def test_a_warp_meets_with_all_its_lanes() -> None:
    """One meaning everywhere: those that execute it are whole warps, or the verifier and the proof refuse it."""
    text = ADD.replace("FOR i", "IF threadIdx.x < {}:\n  SYNC warp{}\nFOR i")
    assert "__syncwarp();" in emit(kernel(text.format(32, ""))).text
    with pytest.raises(VerifyError, match="a warp barrier of 16 threads"):
        emit(kernel(text.format(16, " 16")))
    assert kernel(text.format(32, "")).verify().is_proved
    assert kernel(text.format(16, "")).verify().failures[0].reason == "16 of 32 lanes of a warp come to it"


def test_debug_builds_name_their_waits() -> None:
    text = """\
KERNEL handoff(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  MBARRIER b[2]

IF threadIdx.x == 0:
  INIT b[1] count 32
SYNC block
IF threadIdx.x >= 0:  # receiver
  ARRIVE b[1]
  WAIT b[1] parity 0
  y[threadIdx.x] = copy(x[threadIdx.x])
"""
    source = emit(kernel(text), debug=True)
    assert [(w.path, w.barrier) for w in source.waits] == [(("receiver",), "b")]
    assert "mbarrier_wait_bounded(&b[1], 0, report, 0, 1);" in source.text
    assert emit(kernel(text)).waits == ()


def test_chaos_delays_around_synchronization() -> None:
    lowered = tf.lower(pipeline.build())
    plain, chaos = emit(lowered), emit(lowered, debug=True, chaos=7)
    assert "delay_at_random" not in plain.text
    assert chaos.text.count("delay_at_random(7u, ") > 20
    places = re.findall(r"delay_at_random\(7u, (\d+)\);", chaos.text)
    assert len(places) == len(set(places))
    nvrtc.compile_cubin(chaos.text, chaos.name, nvrtc.CompileOptions(arch="sm_90a"))
