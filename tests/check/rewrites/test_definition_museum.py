"""Definitions that were taken for what was written, and are something else: each is not proved, and its twin, which is what was written, is."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from taskfuse.check.rewrites.verify import rewritings
from taskfuse.kir import parse_kernel
from tests.check.rewrites.rewritten import is_proved


class Exhibit(NamedTuple):
    """Arguments and results; what was written; what is there now, right and wrong."""

    arguments: str
    results: str
    written: str
    right: str
    wrong: str


TOP = "m: float32[] over (8) at () = reduce maximum of copy(x[i0]) from -inf"
SOFTMAX = f"{TOP}; z: float32[] = copy(m[]); a: float32[8] = sub(x[i0], m[]); b: float32[8] = exp(a[i0]); " + (
    "y: float32[] over (8) at () = reduce add of copy(b[i0]) from 0.0"
)


def _halves(condition: str, *, result: str = "float32", factor: str = "f: float32[2] = exp(q[i0])") -> str:
    """The sum of exponentials in two halves, each relative to its own maximum ``k``, or 0 if that is of nothing."""
    return (
        f"{TOP}; z: float32[] = copy(m[]); p: {result}[2] over (8) at (i0//4) = reduce maximum of copy.float32(x[i0]) from -inf; c: bool[2] = {condition}; "
        f"k: {result}[2] = where(c[i0], 0.0, p[i0]); r: float32[8] = sub(x[i0], k[i0//4]); t: float32[8] = exp(r[i0]); "
        f"s: float32[2] over (8) at (i0//4) = reduce add of copy(t[i0]) from 0.0; q: float32[2] = sub(k[i0], m[]); {factor}; "
        "u: float32[2] = mul(s[i0], f[i0]); y: float32[] over (2) at () = reduce add of copy(u[i0]) from 0.0"
    )


NOTHING = "eq.float32(p[i0], -inf)"
CLIPPED = "g: float32[2] = exp(q[i0]); f: float32[2] = minimum(g[i0], 1.0)"


def _chosen(dtype: str) -> str:
    return f"g: float32[2] = exp(q[i0]); d: bool[2] = eq.{dtype}(k[i0], m[]); f: float32[2] = where(d[i0], 1.0, g[i0])"


def _parts(combine: str, result: str, computed: str, start: str, part: str = "") -> tuple[str, str]:
    """A reduction, and the same in two parts."""
    whole = f"y: {result}[] over (4) at () = reduce {combine} of copy.{computed}(x[i0]) from {start}"
    parts = f"p: {part or result}[2] over (4) at (i0//2) = reduce {combine} of copy.{computed}(x[i0]) from {start}"
    return whole, f"{parts}; y: {result}[] over (2) at () = reduce {combine} of copy.{computed}(p[i0]) from {start}"


LEAST = -(2**31)
FIRST = "y: float32[300] = pick(x[i0] if i0 < 5, otherwise 0.0)"
FIRST_BY = "c: bool[300] = lt.{}(index(i0), 5); y: float32[300] = where(c[i0], x[i0], 0.0)"
MUSEUM = {
    "an index that wraps in a comparison": Exhibit("x: float32[300]", "y: float32[300]", FIRST, FIRST_BY.format("int64"), FIRST_BY.format("int8")),
    "maxima of integers that wrap": Exhibit(
        "x: int32[4]", "y: int8[]", *_parts("maximum", "int8", "int32", str(LEAST), "int32"), _parts("maximum", "int8", "int32", str(LEAST))[1]
    ),
    "sums of integers that wrap": Exhibit("x: int32[4]", "y: int8[]", *_parts("add", "int8", "int32", "0"), _parts("add", "int8", "int32", "0", "bool")[1]),
    "sums of floats that are truncated": Exhibit(
        "x: float32[4]", "y: int32[]", *_parts("add", "int32", "float32", "0.0", "float32"), _parts("add", "int32", "float32", "0.0")[1]
    ),
    "a maximum that overflows": Exhibit(
        "x: float32[4]",
        "y: float8_e4m3[]",
        *_parts("minimum", "float8_e4m3", "float32", "inf", "float32"),
        _parts("minimum", "float8_e4m3", "float32", "inf")[1],
    ),
    "one term, combined in a narrow type": Exhibit(
        "x: float64[1]",
        "y: float64[]",
        "y: float64[] over (1) at () = reduce maximum of copy(x[i0]) from -inf",
        "y: float64[] = copy(x[0])",
        "y: float64[] over (1) at () = reduce maximum of copy.float16(x[i0]) from -inf",
    ),
    "a clamped integer": Exhibit(
        "x: int32[8]",
        "y: int8[8]",
        "a: int64[8] = copy(x[i0]); y: int8[8] = copy(a[i0])",
        "y: int8[8] = copy(x[i0])",
        "a: float64[8] = copy(x[i0]); y: int8[8] = copy(a[i0])",
    ),
    "zero times an element": Exhibit(
        "x: float32[8], z: float32[8]",
        "y: float32[]",
        "a: float32[8] = pick(x[i0] if i0 < 4, otherwise 0.0); b: float32[8] = pick(z[i0] if i0 < 4, otherwise 0.0); "
        "p: float32[8] = mul(a[i0], b[i0]); y: float32[] over (8) at () = reduce add of copy(p[i0]) from 0.0",
        "y: float32[] over (4) at () = reduce add of mul(x[i0], z[i0]) from 0.0",
        "a: float32[8] = pick(x[i0] if i0 < 4, otherwise 0.0); y: float32[] over (8) at () = reduce add of mul(a[i0], z[i0]) from 0.0",
    ),
    **{
        f"nothing, asked by {condition}": Exhibit("x: float32[8]", "y: float32[], z: float32[]", SOFTMAX, _halves(NOTHING), _halves(condition))
        for condition in ("eq.float16(p[i0], -inf)", "eq.float32(p[i0], inf)", "isnan.float32(p[i0])", "isinf.float16(p[i0])")
    },
    "a maximum that is rounded is no bound": Exhibit(
        "x: float32[8]", "y: float32[], z: float32[]", SOFTMAX, _halves(NOTHING, factor=CLIPPED), _halves(NOTHING, result="bfloat16", factor=CLIPPED)
    ),
    "equal after they are rounded": Exhibit(
        "x: float32[8]", "y: float32[], z: float32[]", SOFTMAX, _halves(NOTHING, factor=_chosen("float32")), _halves(NOTHING, factor=_chosen("float8_e5m2"))
    ),
}


def _proved(exhibit: Exhibit, written: str, now: str) -> bool:
    lines = [*(f"  DEFINE {d}" for d in now.split("; ")), *(f"  WRITTEN {d}" for d in written.split("; "))]
    head = f"KERNEL k({exhibit.arguments}) -> ({exhibit.results})\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n"
    kernel = parse_kernel(head + "\n".join(lines) + "\n\nPASS\n")
    kernel.check_ir()
    return is_proved(rewritings(kernel))


@pytest.mark.parametrize("name", MUSEUM)
def test_exhibits(name: str) -> None:
    e = MUSEUM[name]
    assert _proved(e, e.written, e.right)
    assert not _proved(e, e.written, e.wrong)
