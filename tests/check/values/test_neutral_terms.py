"""Terms that are neutral by definition need not be taken; others must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from taskfuse.check.values.neutral_terms import end_of_terms
from taskfuse.ir.scalar import parse_expr
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.reports.certificate import Verdict

TEXT = (Path(__file__).parents[2] / "kernels" / "segment_sum.kir").read_text(encoding="utf-8")
MASKED = """\
KERNEL k(x: float32[N, K], n: int32[N]) -> (y: float32[N])
  DIM N min 1, K min 1
  GRID (N, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[]
  DEFINE p: float32[N, K] = pick(x[i0, i1] if i1 {test} clamp(n[i0 of N], 0, K), otherwise {other})
  DEFINE y: float32[N] over (N, K) at (i0) = reduce {combine} of {body} from {init}

acc = copy({init})  ~ start y
FOR r in 0..min({stop}, K):
  acc = {combine}(acc, {term})  ~ term y[blockIdx.x, r]
y[blockIdx.x] = copy(acc)  ~ value y[blockIdx.x]
"""


def kernel(
    *, test: str = "<", other: str = "0.0", combine: str = "add", init: str = "0.0", stop: str = "clamp(n[blockIdx.x of N], 0, K)", square: bool = False
) -> Kernel:
    """Terms under a mask, in a loop that ends with it."""
    body = "mul(p[i0, i1], p[i0, i1])" if square else "copy(p[i0, i1])"
    text = MASKED.format(test=test, other=other, combine=combine, init=init, stop=stop, body=body, term="t")
    pick = f"  t = pick(x[blockIdx.x, r] if r {test} clamp(n[blockIdx.x of N], 0, K), otherwise {other})  ~ value p[blockIdx.x, r]\n"
    text = text.replace("  acc = ", f"{pick}  acc = ").replace("  LOCAL acc", "  LOCAL t: float32[]\n  LOCAL acc")
    if square:
        text = text.replace(f"{combine}(acc, t)  ~ term", "fma(t, t, acc)  ~ term")
    return parse_kernel(text)


def test_a_loop_may_end_with_its_terms() -> None:
    assert parse_kernel(TEXT).verify().is_proved
    assert kernel().verify().is_proved
    assert kernel(test="<=", stop="clamp(n[blockIdx.x of N], 0, K) + 1").verify().is_proved
    assert kernel(other="-inf", combine="maximum", init="-inf").verify().is_proved


@pytest.mark.parametrize(
    "changes",
    [
        {"test": "<="},
        {"other": "1.0"},
        {"other": "-inf"},
        {"stop": "clamp(n[blockIdx.x of N], 0, K) - 1"},
        {"stop": "clamp(n[0 of N], 0, K)"},
        {"combine": "maximum", "init": "-inf"},
        {"combine": "mul", "init": "1.0"},
    ],
)
def test_a_loop_may_not_end_before_them(changes: dict[str, Any]) -> None:
    certificate = kernel(**changes).verify()
    assert not certificate.is_proved
    assert any("points along an axis" in o.reason for o in certificate.argument)


def test_whole_loops_are_right_too() -> None:
    assert kernel(other="1.0", stop="K").verify().is_proved
    assert parse_kernel(TEXT.replace("FOR r in 0..max(", "FOR r in 0..M + 0*max(")).verify().is_proved


def test_the_end_is_an_expression_over_the_other_indices() -> None:
    k = parse_kernel(TEXT)
    definitions = {d.tensor: d for d in k.definitions}
    end = end_of_terms(definitions["y"], 1, definitions)
    assert end is parse_expr("clamp(offsets[i0 + 1 of G + 1], 0, M) - clamp(offsets[i0 of G + 1], 0, M)")
    assert end_of_terms(definitions["y"], 0, definitions) is None
    assert end_of_terms(definitions["p"], 1, definitions) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FOR r in 0..max(", "FOR r in 0..min(M, 1) + 0*max("),
        ("offsets[blockIdx.x + 1 of G + 1], 0, M) - clamp(offsets[blockIdx.x of G + 1], 0, M), 0):", "offsets[blockIdx.x of G + 1], 0, M), 0):"),
        ("x[r + clamp(offsets[blockIdx.x of", "x[r + clamp(offsets[blockIdx.x + 1 of"),
        ("x[r + clamp(offsets[blockIdx.x of", "x[1 + r + clamp(offsets[blockIdx.x of"),
        ("if r < clamp(offsets[blockIdx.x + 1 of G + 1]", "if r < clamp(offsets[blockIdx.x + 2 of G + 1]"),
    ],
)
def test_bad_twins(old: str, new: str) -> None:
    assert old in TEXT
    assert parse_kernel(TEXT.replace(old, new)).verify().verdict is Verdict.REFUTED


def test_zero_is_not_neutral_to_its_negative() -> None:
    """-0.0 + 0.0 is 0.0: a sum that begins with -0.0 and leaves a term out may keep its sign."""
    text = TEXT.replace("from 0.0", "from -0.0").replace("acc = copy(0.0)", "acc = copy(-0.0)")
    assert parse_kernel(text).verify().verdict is Verdict.REFUTED
    whole = text.replace("FOR r in 0..max(", "FOR r in 0..M + 0*max(")
    assert parse_kernel(whole).verify().is_proved


def test_an_end_that_another_reduced_axis_decides_is_none() -> None:
    text = (
        "KERNEL k(x: float32[N, K]) -> (y: float32[])\n  DIM N, K\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n"
        "  DEFINE p: float32[N, K] = pick(x[i0, i1] if i1 < 2*i0 + 1, otherwise 0.0)\n"
        "  DEFINE y: float32[] over (N, K) at () = reduce add of copy(p[i0, i1]) from 0.0\n\ny[] = copy(0.0)\n"
    )
    definitions = {d.tensor: d for d in parse_kernel(text).definitions}
    assert end_of_terms(definitions["y"], 1, definitions) is None


@pytest.mark.parametrize(("start", "verdict"), [("0.0", Verdict.PROVED), ("-0.0", Verdict.REFUTED)])
def test_padding_is_not_neutral_to_negative_zero(start: str, verdict: Verdict) -> None:
    text = (
        "KERNEL k(x: float32[N]) -> (y: float32[])\n  DIM N\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n  LOCAL acc: float32[]\n  LOCAL t: float32[]\n"
        "  DEFINE c: float32[N] = copy(x[i0])\n"
        f"  DEFINE y: float32[] over (N) at () = reduce add of copy(c[i0]) from {start}\n\nacc = copy({start})  ~ start y\n"
        "FOR o in 0..ceildiv(N, 4):\n  FOR j in 0..4:\n    t = pad(x[4*o + j] if 4*o + j < N, otherwise 0.0)  ~ value c[4*o + j]\n"
        "    acc = add(acc, t)  ~ term y[4*o + j]\ny[] = copy(acc)  ~ value y[]\n"
    )
    assert parse_kernel(text).verify().verdict is verdict


@pytest.mark.parametrize(
    ("combine", "init", "start"),
    [
        ("add", "0.1:float16", "0.1"),
        ("add", "0.1", "0.1:float16"),
        ("add", "500.0:float8_e4m3", "500.0"),
        ("maximum", "-inf", "-inf:float8_e4m3"),
        ("maximum", "-1e30", "-1e30:float16"),
        ("add", "0.0", "-0.0"),
    ],
)
def test_a_start_is_the_number_that_its_dtype_makes_of_it(combine: str, init: str, start: str) -> None:
    def made(first: str) -> Kernel:
        return parse_kernel(
            "KERNEL k(x: float32[N]) -> (y: float32[])\n  DIM N\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n  LOCAL acc: float32[]\n"
            f"  DEFINE y: float32[] over (N) at () = reduce {combine} of copy(x[i0]) from {init}\n\nacc = copy({first})  ~ start y\n"
            f"FOR j in 0..N:\n  acc = {combine}(acc, x[j])  ~ term y[j]\ny[] = copy(acc)  ~ value y[]\n"
        )

    assert made(init).verify().is_proved
    assert not made(start).verify().is_proved
    assert not made(start).verify({"N": 3}).is_proved


@pytest.mark.parametrize(("middle", "right"), [("float32", True), ("float16", True), ("float8_e5m2", True), ("float8_e4m3", False), ("int32", False)])
def test_what_is_neutral_is_so_behind_every_conversion(middle: str, right: bool) -> None:
    """8-bit floats of the first kind have no infinity."""
    text = kernel(other="-inf", combine="maximum", init="-inf").text(witness=True)
    text = text.replace("  DEFINE y", f"  DEFINE q: float32[N, K] = copy.{middle}(p[i0, i1])\n  DEFINE y").replace("of copy(p[", "of copy(q[")
    text = text.replace("  acc = maximum(acc, t)", f"  u = copy.{middle}(t)  ~ value q[blockIdx.x, r]\n  acc = maximum(acc, u)")
    text = text.replace("  LOCAL t", "  LOCAL u: float32[]\n  LOCAL t")
    assert parse_kernel(text).verify().is_proved is right


TWO_ENDS = """\
KERNEL k(x: float32[N, K], n: int32[N], m: int32[N]) -> (y: float32[N])
  DIM N min 1, K min 1
  GRID (N, 1, 1)  BLOCK (1, 1, 1)
  LOCAL t: float32[]
  LOCAL acc: float32[]
  DEFINE p: float32[N, K] = pick(x[i0, i1] if i1 < clamp(n[i0 of N], 0, K) && i1 < clamp(m[i0 of N], 0, K), otherwise 0.0)
  DEFINE y: float32[N] over (N, K) at (i0) = reduce add of copy(p[i0, i1]) from 0.0

acc = copy(0.0)  ~ start y
FOR r in 0..{stop}:
  IF {guard}:
    t = pick(x[blockIdx.x, r] if r < {a} && r < {b}, otherwise 0.0)  ~ value p[blockIdx.x, r]
    acc = add(acc, t)  ~ term y[blockIdx.x, r]
y[blockIdx.x] = copy(acc)  ~ value y[blockIdx.x]
"""
ENDS = {"a": "clamp(n[blockIdx.x of N], 0, K)", "b": "clamp(m[blockIdx.x of N], 0, K)"}


def two_ends(stop: str, guard: str) -> Kernel:
    text = TWO_ENDS
    for name, part in ({"stop": stop, "guard": guard} | ENDS).items():
        text = text.replace("{" + name + "}", part)
    for name, part in ENDS.items():
        text = text.replace("{" + name + "}", part)
    return parse_kernel(text)


@pytest.mark.parametrize(
    ("stop", "guard"),
    [("min({a}, {b})", "r >= 0"), ("{b}", "r >= 0"), ("{a}", "r < {b}"), ("{b}", "r < {a}"), ("K", "r < {a} && r < {b}"), ("K", "r < {b}"), ("K", "r >= 0")],
)
def test_terms_end_at_the_first_of_two_ends(stop: str, guard: str) -> None:
    two_ends(stop, guard).verify().require()


@pytest.mark.parametrize(
    ("stop", "guard"),
    [
        ("min({a}, {b}) - 1", "r >= 0"),
        ("{a}", "r < {b} - 1"),
        ("K", "r + 1 < {a} && r < {b}"),
        ("min({a}, clamp(m[0 of N], 0, K))", "r >= 0"),
        ("K", "r < {a} && r < {b} && r > 0"),
        ("K", "r < {a} && r < {b} && r < K//2"),
    ],
)
def test_terms_in_front_of_both_ends_are_taken(stop: str, guard: str) -> None:
    kernel = two_ends(stop, guard)
    assert not kernel.verify().is_proved
    assert kernel.verify({"N": 2, "K": 3}).verdict is not Verdict.PROVED
