"""Loops with quotients and roots in two versions: which have them, what becomes of the rest of a loop, how it is printed."""

import numpy as np
import pytest

from taskfuse.cuda.loop_versions import has_versions, parted
from taskfuse.cuda.rounded import ShorterForms
from taskfuse.cuda.source import emit
from taskfuse.kir import Kernel, parse_kernel, verify_kernel, walk
from taskfuse.kir.nodes import For

HEAD = """\
KERNEL k(x: float32[64, 8], y: float32[64, 8]) -> (z: float32[64, 8], t: float32[64])
  GRID (1, 1, 1)  BLOCK (64, 1, 1)
  LOCAL a: float32[8]
  LOCAL b: float32[8]
  LOCAL c: float32[8]
  LOCAL p: float32[]
  LOCAL q: float32[]
  LOCAL s: float32[]

FOR threadIdx.x in TIDx{64}:
  COPY a[0] <- x[threadIdx.x, 0] width 4
  COPY a[4] <- x[threadIdx.x, 4] width 4
  COPY b[0] <- y[threadIdx.x, 0] width 4
  COPY b[4] <- y[threadIdx.x, 4] width 4
  s = copy(0.0)
"""
TAIL = """\
  COPY z[threadIdx.x, 0] <- c[0] width 4
  COPY z[threadIdx.x, 4] <- c[4] width 4
  t[threadIdx.x] = copy(s)
"""


def kernel(*lines: str, head: str = "FOR i in 0..8 UNROLL:") -> Kernel:
    found = parse_kernel(HEAD + f"  {head}\n" + "".join(f"    {line}\n" for line in lines) + TAIL)
    verify_kernel(found)
    return found


def loops(k: Kernel) -> list[str]:
    """The unrolled loops, as text."""
    verify_kernel(k)
    text = str(k).split("s = copy(0.0)\n")[1].split("  COPY z")[0]
    return [loop.replace("\n    ", "; ").strip() for loop in text.split("  FOR ")[1:]]


VERSIONS = {
    "a quotient": ("c[i] = div(a[i], b[i])",),
    "a root of a sum": ("p = add(a[i], b[i])", "c[i] = sqrt(p)"),
    "with a choice": ("p = pad(a[i] if threadIdx.x < 9, otherwise 1.0)", "c[i] = reciprocal(p)"),
}
LEFT = {
    "no such function": ("c[i] = exp(a[i])",),
    "a quotient by a power of two": ("c[i] = div(a[i], 0.25)",),
    "a sum over the loop": ("s = add(s, a[i])", "c[i] = mul(a[i], b[i])"),
    "a quotient of what the loop before left": ("c[i] = div(p, a[i])", "p = copy(b[i])"),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_a_loop_asks_once_about_all_of_its_operands(name: str) -> None:
    k = parted(kernel(*VERSIONS[name]))
    *before, loop = (s for s in walk(k) if isinstance(s, For))
    assert len(before) == len(VERSIONS[name]) - 1  # what computes the operands
    assert not any(has_versions(s, ShorterForms(k)) for s in before)
    assert has_versions(loop, ShorterForms(k))
    text = emit(k).text.split("__global__")[1]
    assert text.count("for (int i = 0; i < 8; ++i)") == 3 + len(before)
    assert "bool is_usual = true;\n#pragma unroll\n  for" in text
    assert "    is_usual &= is_usual_" in text
    assert "  if (is_usual) {\n#pragma unroll\n    for" in text
    assert "  } else {\n#pragma unroll\n    for" in text
    assert "is_usual" not in emit(k, fast_math=True).text


@pytest.mark.parametrize("name", LEFT)
def test_others_are_printed_once(name: str) -> None:
    k = kernel(*LEFT[name])
    assert loops(parted(k)) == loops(k)
    assert "is_usual" not in emit(k).text


def test_a_sum_gets_a_loop_of_its_own() -> None:
    k = kernel("p = div(a[i], b[i])", "q = mul(p, 2.0)", "c[i] = add(p, q)", "s = add(s, q)")
    split = parted(k)
    assert loops(split) == [
        "i in 0..8 UNROLL:; p = div(a[i], b[i]); q = mul(p, 2.0); c[i] = add(p, q); q_each[i] = copy(q)",
        "i in 0..8 UNROLL:; s = add(s, q_each[i])",
    ]
    x, y = np.random.default_rng(0).uniform(1, 2, (2, 64, 8)).astype(np.float32)
    for got, expected in zip(split.simulate(x, y), k.simulate(x, y), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_what_follows_a_sum_and_needs_it_stays_behind_it() -> None:
    lines = ("p = sqrt(a[i])", "s = add(s, p)", "q = mul(s, 2.0)", "c[i] = sub(q, b[i])")
    first, rest = loops(parted(kernel(*lines)))
    assert first == "i in 0..8 UNROLL:; p = sqrt(a[i]); p_each[i] = copy(p)"
    assert rest == "i in 0..8 UNROLL:; s = add(s, p_each[i]); q = mul(s, 2.0); c[i] = sub(q, b[i])"


def test_a_register_that_a_sum_reads_is_not_written_before_it() -> None:
    lines = ("p = div(a[i], b[i])", "s = add(s, p)", "p = add(p, 1.0)", "c[i] = copy(p)")
    first, rest = loops(parted(kernel(*lines)))
    assert first == "i in 0..8 UNROLL:; p = div(a[i], b[i]); p_each[i] = copy(p)"
    assert rest.endswith("s = add(s, p_each[i]); p = add(p_each[i], 1.0); c[i] = copy(p)")


def test_a_guard_of_all_iterations_stands_around_both() -> None:
    k = kernel("IF threadIdx.x < 9:", "  p = div(a[i], b[i])", "  s = add(s, p)", "  c[i] = neg(p)")
    text = str(parted(k))
    assert text.count("IF threadIdx.x < 9:\n    FOR i in 0..8 UNROLL:") == 1
    assert text.count("FOR i in 0..8 UNROLL:") == 2


def test_a_long_body_is_executed_a_few_elements_at_a_time() -> None:
    chain = ["p = div(a[i], b[i])", *["q = add(p, 1.0)", "p = mul(q, 0.5)"] * 35, "c[i] = copy(p)"]
    assert [loop.split(":")[0] for loop in loops(parted(kernel(*chain)))] == [f"i in {k}..{k + 2} UNROLL" for k in (0, 2, 4, 6)]


def test_operands_are_computed_in_loops_before() -> None:
    k = kernel("p = add(a[i], b[i])", "q = sqrt(p)", "p = add(q, p)", "c[i] = div(q, p)")
    split = parted(k)
    assert loops(split) == [
        "i in 0..8 UNROLL:; p = add(a[i], b[i]); p_each[i] = copy(p)",
        "i in 0..8 UNROLL:; q = sqrt(p_each[i]); p = add(q, p_each[i]); q_each[i] = copy(q); p_each_each[i] = copy(p)",
        "i in 0..8 UNROLL:; c[i] = div(q_each[i], p_each_each[i])",
    ]
    x, y = np.random.default_rng(0).uniform(1, 2, (2, 64, 8)).astype(np.float32)
    for got, expected in zip(split.simulate(x, y), k.simulate(x, y), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_elements_that_iterations_share_keep_a_loop_whole() -> None:
    k = kernel("c[0] = add(a[i], b[i])", "p = sqrt(c[0])", "c[0] = copy(p)")
    assert loops(parted(k)) == loops(k)


def test_results_that_are_stored_one_by_one_stay_in_the_rest() -> None:
    first, rest = loops(parted(kernel("p = div(a[i], b[i])", "s = add(s, p)", "c[i] = copy(p)", "z[threadIdx.x, i] = mul(s, p)")))
    assert first == "i in 0..8 UNROLL:; p = div(a[i], b[i]); c[i] = copy(p); p_each[i] = copy(p)"
    assert rest == "i in 0..8 UNROLL:; s = add(s, p_each[i]); z[threadIdx.x, i] = mul(s, p_each[i])"


def test_quotients_of_short_floats_have_one_version() -> None:
    """They are exact in steps for all operands."""
    text = str(kernel("p = div(a[i], b[i])", "c[i] = add(p, a[i])", "s = add(s, p)"))
    for shape in ("[8]", "[64, 8]"):
        text = text.replace(f"float32{shape}", f"bfloat16{shape}")
    k = parse_kernel(text.replace("p: float32[]", "p: bfloat16[]").replace("div(a[i], b[i])", "div.float32(a[i], b[i])"))
    verify_kernel(k)
    assert parted(k) is k
    assert "is_usual" not in emit(k).text
