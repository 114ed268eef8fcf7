"""Functions of two 16-bit floats at a time: which loops take them, and their text."""

import re

import pytest

import taskfuse as tf
from taskfuse.cuda.functions import call_of_pair
from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.source import emit
from taskfuse.cuda.text import closure
from taskfuse.dtypes import DType
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.kir import parse_kernel


def loop(line: str, extent: int = 4) -> str:
    """The text of an unrolled loop over registers r, of values x, y and s; x is full of numbers before."""
    kernel = parse_kernel(f"""\
KERNEL k(a: bfloat16[8], f: float32[]) -> (b: bfloat16[8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL x: bfloat16[8]
  LOCAL r: bfloat16[9]
  LOCAL w: float32[8]

COPY x[0] <- a[0] width 8
r[0] = copy(x[0])
w[0] = copy.float32(1.0)
FOR i in 0..{extent} UNROLL:
  {line}
COPY b[0] <- r[0] width 8
""")
    return emit(kernel).text.split("__global__")[1].split("for (int i = 0")[1].split("}")[0]


def test_a_loop_over_neighbors_takes_two() -> None:
    assert loop("r[i] = relu.float32(x[i])") == "; i < 4; i += 2) {\n    set_word(&r[i], bf16x2_maximum(word(&x[i]), 0u));\n  "
    assert "bf16x2_sum(word(&x[i]), word(&x[i + 4]))" in loop("r[i] = add.float32(x[i], x[i + 4])")
    assert "bf16x2_sum(word(&r[i]), 0x3fc03fc0u)" in loop("r[i] = add.float32(r[i], 1.5)")


@pytest.mark.parametrize(
    "line",
    [
        "r[i] = exp.float32(x[i])",  # no such instruction
        "r[i] = add.float32(x[i], 0.3)",  # a number that rounding would change
        "r[i] = add.float32(x[i], w[i])",  # float32
        "w[i] = relu.float32(x[i])",
        "r[i] = add.float32(x[i], x[0])",  # one of neighbors
        "r[i] = relu.float32(x[2 * i])",
        "r[2 * i] = relu.float32(x[i])",
        "r[i + 1] = relu.float32(r[i])",  # the element before
        "r[i] = relu.float32(a[i])",  # memory
    ],
)
def test_others_take_one(line: str) -> None:
    assert "; ++i) {" in loop(line)


def test_registers_that_hold_floats_take_one() -> None:
    """What only computations write and read is kept as the floats that elements are rounded to."""
    text = emit(
        parse_kernel("""\
KERNEL k(a: bfloat16[8]) -> (b: bfloat16[8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL x: bfloat16[8]
  LOCAL r: bfloat16[8]

FOR i in 0..8 UNROLL:
  x[i] = copy(a[i])
FOR i in 0..8 UNROLL:
  r[i] = relu.float32(x[i])
FOR i in 0..8 UNROLL:
  b[i] = copy(r[i])
""")
    ).text.split("__global__")[1]
    assert "float x[8];" in text
    assert "float r[8];" in text
    assert "word(" not in text


def narrowed(line: str, before: str = "") -> str:
    """The text of an unrolled loop over registers of ``float8_e4m3``, of the floats w."""
    kernel = parse_kernel(f"""\
KERNEL k(a: float32[8]) -> (b: float8_e4m3[8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL r: float8_e4m3[8]
  LOCAL w: float32[8]
  LOCAL m: float32[]

FOR i in 0..8 UNROLL:
  w[i] = exp(a[i])
FOR i in 0..8 UNROLL:
{before}  {line}
COPY b[0] <- r[0] width 8
""")
    return emit(kernel).text.split("__global__")[1].split("for (int i = 0")[2].split("}")[0]


def test_conversions_to_8_bits_take_two() -> None:
    assert narrowed("r[i] = cast.float32(w[i])") == "; i < 8; i += 2) {\n    to_float8_e4m3x2(&r[i], w[i], w[i + 1]);\n  "
    assert "to_float8_e4m3x2(&r[i], w[2 * (i % 4)], w[2 * ((i + 1) % 4)]);" in narrowed("r[i] = cast.float32(w[2 * (i % 4)])")
    assert "; ++i) {" in narrowed("r[7 - i] = cast.float32(w[i])")
    assert "; ++i) {" in narrowed("r[i] = exp.float32(w[i])")


def test_an_odd_count_takes_one() -> None:
    assert "; ++i) {" in loop("r[i] = relu.float32(x[i])", 3)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16], ids=str)
def test_every_function_is_a_few_instructions_on_words(dtype: DType) -> None:
    calls = [call_of_pair(op, ["a", "b", "c"][: op.arity], dtype) for op in ELEMENTWISE.values() if op.cpp.pair is not None]
    helpers = "\n\n".join(h.text for h in closure(h for c in calls for h in c.helpers))
    body = "\n".join(f"  out[{k}] = {c.text};" for k, c in enumerate(calls))
    ptx = compile_ptx(
        f'{helpers}\nextern "C" __global__ void f(unsigned* out, unsigned a, unsigned b, unsigned c) {{\n{body}\n}}', "f", CompileOptions(arch="sm_80")
    )
    found = re.findall(r"\b(\w[\w.]*16x2|cvt\.\S*|\S+f32)\b", ptx)
    assert len(found) >= len(calls) - 2  # the signs of two are bits
    assert {name.split(".")[0] for name in found} == {"fma", "max", "min"}
