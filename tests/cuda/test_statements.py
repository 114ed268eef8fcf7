"""Bodies, control flow and computations of kernel IR in CUDA C++."""

import re

import pytest

import taskfuse as tf
from taskfuse.cuda.source import emit
from taskfuse.cuda.statements import operand_dtypes
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import const
from taskfuse.kir import parse_kernel, walk
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import Access
from taskfuse.kir.products import Wgmma
from taskfuse.kir.variant import ArgumentLayout, Variant
from taskfuse.schedulers import BackToBackConfig
from tests.cuda.adding import checked
from tests.schedulers.back_to_backs import of_keys

HEAD = """\
KERNEL k(x: {dtype}[N, 32], p: bool[32]) -> (y: {dtype}[N, 32])
  DIM N{facts}
  GRID (N, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: {dtype}[8]
  LOCAL t: {dtype}[]

"""


def body(text: str, *, dtype: str = "float32", facts: str = "", wide: bool = False) -> list[str]:
    """The lines of a body's text, behind the wait for the stream."""
    kernel = checked(HEAD.format(dtype=dtype, facts=facts) + text.strip("\n") + "\n")
    lines = emit(kernel, Variant((ArgumentLayout.DENSE,) * 3, wide)).text.split("\n")
    start = next(k for k, line in enumerate(lines) if line == "  wait_for_stream();")
    return [line[2:] for line in lines[start + 1 : -2]]


# -- control flow -------------------------------------------------------------------------------------------------------------------------


def test_loops() -> None:
    assert body("FOR i in 0..N:\n  y[i, threadIdx.x] = copy(1.0)")[0] == "for (int i = 0; i < N; ++i) {"
    assert body("FOR i in 2..N step 3:\n  y[i, threadIdx.x] = copy(1.0)")[0] == "for (int i = 2; i < N; i += 3) {"
    unrolled = body("FOR i in 0..4 UNROLL:\n  r[i] = copy(1.0)\ny[0, threadIdx.x] = copy(r[0])")
    assert unrolled[2] == "for (int i = 0; i < 4; ++i) {"
    assert unrolled[1].endswith("ragma unroll")  # which is not indented


def test_a_variable_is_wide_only_if_its_range_may_be() -> None:
    text = "FOR i in 0..N:\n  y[i, threadIdx.x] = copy(1.0)"
    assert body(text, wide=True)[0] == "for (long long i = 0; i < N; ++i) {"
    assert body(text, wide=True, facts=" max 1000")[0] == "for (int i = 0; i < N; ++i) {"


def test_branches_and_what_they_are() -> None:
    found = body("IF threadIdx.x < 3:  # one\n  r[0] = copy(1.0)\nELSE IF threadIdx.x % 2 == 0:  # two\n  r[1] = copy(1.0)\nELSE:\n  r[2] = copy(1.0)")
    assert found[1:] == [
        "if (threadIdx_x < 3) {  // one",
        "  r[0] = 1.0f;",
        "} else if (threadIdx_x % 2 == 0) {  // two",
        "  r[1] = 1.0f;",
        "} else {",
        "  r[2] = 1.0f;",
        "}",
    ]


def test_what_holds_for_every_thread_is_not_asked() -> None:
    found = body("IF threadIdx.x >= 0 && threadIdx.x < 7:\n  y[0, threadIdx.x] = copy(1.0)")
    assert found[0] == "if (threadIdx_x < 7) {"


def test_a_choice_is_made_among_values() -> None:
    found = body("y[0, threadIdx.x] = cat(x[0, threadIdx.x] if threadIdx.x < 3, 2.0 if threadIdx.x >= 3)")
    assert found == [
        "float y_chosen;",
        "if (threadIdx_x < 3) {",
        "  y_chosen = x[threadIdx_x];",
        "} else {",
        "  y_chosen = 2.0f;",
        "}",
        "y[threadIdx_x] = y_chosen;",
    ]
    found = body("t = cat(x[0, threadIdx.x] if threadIdx.x < 3, 2.0 if threadIdx.x >= 3)\ny[0, threadIdx.x] = copy(t)")
    assert found[1:] == ["if (threadIdx_x < 3) {", "  t = x[threadIdx_x];", "} else {", "  t = 2.0f;", "}", "y[threadIdx_x] = t;"]


# -- registers ----------------------------------------------------------------------------------------------------------------------------


def test_registers_are_declared_if_they_are_used() -> None:
    found = body("FOR i in 0..N:\n  t = copy(x[i, threadIdx.x])\n  y[i, threadIdx.x] = copy(t)")
    assert [line.strip() for line in found] == [
        "float t;",
        "for (int i = 0; i < N; ++i) {",
        "t = x[i * 32 + threadIdx_x];",
        "y[i * 32 + threadIdx_x] = t;",
        "}",
    ]


def test_an_array_that_vectors_move_is_aligned_for_them() -> None:
    found = body("COPY r[0] <- x[0, 4*(threadIdx.x % 8)] width 4\ny[0, threadIdx.x] = copy(r[0])")
    assert found[0] == "alignas(16) float r[8];"
    assert body("COPY r[0] <- x[0, 2*(threadIdx.x % 8)] width 2\ny[0, threadIdx.x] = copy(r[0])")[0] == "alignas(8) float r[8];"


def test_divisions_that_repeat_have_a_name() -> None:
    found = body("FOR i in 0..4:\n  y[threadIdx.x // N, i] = copy(1.0)\n  y[threadIdx.x // (threadIdx.x + 1), i] = copy(1.0)")
    assert found[0] == "const int quotient = threadIdx_x / (threadIdx_x + 1);"
    assert any("quotient" in line for line in found[1:])


# -- computations -------------------------------------------------------------------------------------------------------------------------


def test_an_element_that_is_only_moved_is_not_converted() -> None:
    assert body("y[0, threadIdx.x] = copy(x[0, threadIdx.x])", dtype="bfloat16") == ["y[threadIdx_x] = x[threadIdx_x];"]
    (computed,) = body("y[0, threadIdx.x] = neg(x[0, threadIdx.x])", dtype="bfloat16")
    assert computed == "y[threadIdx_x] = to_bfloat16((-from_bfloat16(x[threadIdx_x])));"


def test_the_first_operand_of_a_selection_is_a_truth_value() -> None:
    (line,) = body("y[0, threadIdx.x] = where(p[threadIdx.x], x[0, threadIdx.x], 2.0)")
    assert line == "y[threadIdx_x] = p[threadIdx_x] ? x[threadIdx_x] : 2.0f;"
    place = Access("y", (const(0),))
    select = Compute(place, ELEMENTWISE["where"], (place, place, place), tf.float16)
    assert operand_dtypes(select) == (tf.bool_, tf.float16, tf.float16)
    assert operand_dtypes(Compute(place, ELEMENTWISE["add"], (place, place), tf.int8)) == (tf.int8, tf.int8)


@pytest.mark.parametrize(("dtype", "cast"), [("float32", ""), ("bfloat16", "(unsigned short)"), ("int8", "(signed char)")])
def test_a_shuffle_of_a_small_element_comes_back_as_one(dtype: str, cast: str) -> None:
    found = body("r[0] = copy(x[0, threadIdx.x])\nSHUFFLE r[1] <- r[0] xor 16\ny[0, threadIdx.x] = copy(r[1])", dtype=dtype)
    assert f"r[1] = {cast}__shfl_xor_sync(0xffffffff, r[0], 16);" in found


# -- locations and delays -----------------------------------------------------------------------------------------------------------------


def test_a_line_is_named_once_and_never_goes_on_in_the_next() -> None:
    text = HEAD.format(dtype="float32", facts="") + "r[0] = copy(1.0)\nr[1] = copy(2.0)\ny[0, threadIdx.x] = copy(r[0])\n"
    kernel = parse_kernel(text, "k.kir")
    lines = [line.strip() for line in emit(kernel, locations=True).text.split("\n") if line.strip().startswith("// k.kir")]
    assert lines == ["// k.kir:7:1", "// k.kir:8:1", "// k.kir:9:1"]
    assert "// k.kir" not in emit(kernel).text


def test_a_chaos_build_delays_around_synchronization_alone() -> None:
    kernel = checked(HEAD.format(dtype="float32", facts="") + "r[0] = copy(1.0)\nSYNC block\ny[0, threadIdx.x] = copy(r[0])\n")
    lines = [line.strip() for line in emit(kernel, chaos=5).text.split("\n")]
    at = lines.index("__syncthreads();")
    assert lines[at - 1] == "delay_at_random(5u, 0);"
    assert lines[at + 1] == "delay_at_random(5u, 1);"
    assert sum(line.startswith("delay_at_random(5u") for line in lines) == 2


def test_a_table_is_read_before_a_loop_not_in_each_iteration() -> None:
    text = """\
KERNEL k(x: float32[64, 32], t: int32[5] rising 0..64) -> (y: float32[64, 32])
  GRID (4, 1, 1)  BLOCK (32, 1, 1)

FOR i in clamp(t[blockIdx.x of 5], 0, 64)..clamp(t[blockIdx.x + 1 of 5], 0, 64):
  y[i, threadIdx.x] = copy(x[i, threadIdx.x])
"""
    kernel = parse_kernel(text)
    (loop,) = [line.strip() for line in emit(kernel, Variant((ArgumentLayout.DENSE,) * 3)).text.split("\n") if "for (int i = " in line and "t[" in line]
    assert loop.endswith("; i < i_end; ++i) {")
    assert loop.index("t[blockIdx_x + 1]") < loop.index(";")


# -- tensor cores -------------------------------------------------------------------------------------------------------------------------


def test_reads_of_accumulators_stay_behind_the_waits_for_them() -> None:
    """Of two products in flight the first is waited for, and then the second."""
    fusion = of_keys(sizes=(64, 64))
    tf.schedulers.back_to_back(fusion, BackToBackConfig(1, 32, 2))
    kernel = tf.lower(fusion)
    scores, gradients = (s.acc.buffer for s in [s for s in walk(kernel) if isinstance(s, Wgmma)][:2])
    lines = re.findall(r"^\s+wgmma_(wait<\d>|retired)\((\w*)", kernel.cuda_source(), re.M)
    assert lines[:4] == [("wait<1>", ""), ("retired", scores), ("wait<0>", ""), ("retired", gradients)]
