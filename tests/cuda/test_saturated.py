"""Conversions to float8_e4m3 of what is clamped to its range: one instruction for two, of which clamps are a part; and no others."""

import pytest

from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.saturated import SATURATED, with_saturating_conversions
from taskfuse.cuda.source import emit
from taskfuse.kir import Kernel, parse_kernel, walk
from taskfuse.kir.nodes import Compute


def made(*lines: str, function: str = "exp") -> Kernel:
    """A loop over registers r of 8 bits, of w, results of a function, and of m and l."""
    body = "\n".join(f"  {line}" for line in lines)
    return parse_kernel(f"""\
KERNEL k(a: float32[8]) -> (b: float8_e4m3[8], c: float32[8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL r: float8_e4m3[8]
  LOCAL w: float32[8]
  LOCAL m: float32[]
  LOCAL l: float32[]

FOR i in 0..8 UNROLL:
  w[i] = {function}(a[i])
FOR i in 0..8 UNROLL:
{body}
COPY b[0] <- r[0] width 8
""")


UPPER, LOWER = "m = minimum(w[i], 448.0)", "l = maximum(m, -448.0)"


def functions(kernel: Kernel) -> list[str]:
    return [s.op.name for s in walk(with_saturating_conversions(kernel)) if isinstance(s, Compute)]


def test_a_clamp_is_a_part_of_the_conversion() -> None:
    assert functions(made(UPPER, "r[i] = cast.float32(m)")) == ["exp", SATURATED.name]
    assert functions(made(UPPER, LOWER, "r[i] = cast.float32(l)", function="sin")) == ["sin", SATURATED.name]
    turned = "m = maximum(w[i], -448.0)", "l = minimum(m, 448.0)", "r[i] = cast.float32(l)"
    assert functions(made(*turned, function="sin")) == ["sin", SATURATED.name]
    text = emit(made(UPPER, "r[i] = cast.float32(m)")).text.split("__global__")[1]
    assert "to_saturated_float8_e4m3x2(&r[i], w[i], w[i + 1]);" in text


@pytest.mark.parametrize(
    ("lines", "function"),
    [
        ((UPPER, "r[i] = cast.float32(m)"), "sin"),  # less than -448 is NaN, for all that is known
        (("m = minimum(w[i], 440.0)", "r[i] = cast.float32(m)"), "exp"),
        (("m = maximum(w[i], 448.0)", "r[i] = cast.float32(m)"), "exp"),
        ((UPPER, "l = maximum(m, -1.0)", "r[i] = cast.float32(l)"), "exp"),
        ((UPPER, "w[i] = neg(w[i])", "r[i] = cast.float32(m)"), "exp"),
        ((UPPER, "r[i] = cast.float32(w[i])"), "exp"),
        (("m = minimum(w[i], 448.0)", "r[i] = exp.float32(m)"), "exp"),
    ],
)
def test_others_stay(lines: tuple[str, ...], function: str) -> None:
    kernel = made(*lines, function=function)
    assert with_saturating_conversions(kernel) is kernel


def test_a_clamp_that_is_read_elsewhere_stays() -> None:
    assert functions(made(UPPER, "r[i] = cast.float32(m)", "c[i] = copy(m)")) == ["exp", "minimum", SATURATED.name, "copy"]


def test_the_instruction_of_two_where_there_is_one() -> None:
    source = emit(made(UPPER, LOWER, "r[i] = cast.float32(l)", function="sin")).text
    ptx = compile_ptx(source, "k", CompileOptions(arch="sm_90a"))
    assert ptx.count("cvt.rn.satfinite.e4m3x2.f32") == 4
    assert "setp" not in ptx.split("cvt.rn.satfinite")[1]
    assert "satfinite" not in compile_ptx(source, "k", CompileOptions(arch="sm_80"))
