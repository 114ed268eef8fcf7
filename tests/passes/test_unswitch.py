"""Unswitch: tiles that no condition cuts make no choices; what is no such nest, or does not pay, stays."""

from dataclasses import replace

import pytest

from taskfuse.kir import map_stmts, parse_kernel, verify_kernel
from taskfuse.kir import walk as statements
from taskfuse.location import Location
from taskfuse.passes.unswitch import Unswitch

HEAD = """\
KERNEL k(x: float32[M, N], t: int32[8]) -> (y: float32[M, N])
  DIM M, N
  GRID (1, 1, 1)  BLOCK (64, 2, 1)
  LOCAL a: float32[16]
  LOCAL b: float32[16]

"""
NEST = """\
  FOR threadIdx.y in TIDy{2}:
    FOR threadIdx.x in TIDx{64}:
      FOR j in 0..16 UNROLL:
        b[j] = pad(a[j] if CONDITION, otherwise 0.0)
"""


def unswitched(body: str) -> str:
    kernel = Unswitch().run(parse_kernel(HEAD + body))
    verify_kernel(kernel)
    return str(kernel).split("\n\n", 1)[1]


def test_the_branch_comes_from_the_line_of_its_nest() -> None:
    here = Location("model.py", 7)
    kernel = parse_kernel(HEAD + walk("16*i + j < N"))
    found = Unswitch().run(replace(kernel, body=map_stmts(kernel.body, lambda s: replace(s, location=here))))
    assert {s.location for s in statements(found)} == {here}


def walk(condition: str) -> str:
    return "FOR i in 0..N:\n" + NEST.replace("CONDITION", condition)


WHOLE = {
    "the end of an axis": ("1024*i + j + 16*threadIdx.x < N", "1024*i + 1023 < N"),
    "a diagonal": ("16*i + j <= threadIdx.x + 64*threadIdx.y", "16*i + 15 <= 64*threadIdx.y"),
    "a warp has one row of threads": ("i < threadIdx.y", "i < threadIdx.y"),
    "digits of the lane": ("16*(threadIdx.x//32) + i + j + 2*(threadIdx.x % 4) < N", "i + 37 < N"),
    "the other sign": ("i <= N - j - threadIdx.x", "i <= N - 78"),
    "an element of a table": ("16*i + j < clamp(t[min(M, 3) of 8], 0, N)", "16*i + 15 < clamp(t[min(M, 3) of 8], 0, N)"),
    "a bound of the whole loop": ("16*i + j < threadIdx.x + min(M, 40)", "16*i + 15 < min(M, 40)"),
    "one of two conditions": ("16*i + j < M || i <= threadIdx.x", "16*i + 15 < M || i <= 0"),
    "one of two, of which one holds for no whole tile": ("16*i + j < M || j % 2 - i == 0", "16*i + 15 < M"),
    "one of two, and a third": ("(16*i + j < M || i <= threadIdx.x) && i + j < N", "(16*i + 15 < M || i <= 0) && i + 15 < N"),
    "several conditions": ("16*i + j < N && i <= threadIdx.x", "16*i + 15 < N && i <= 0"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_tiles_that_are_whole(name: str) -> None:
    condition, everywhere = WHOLE[name]
    text = unswitched(walk(condition))
    assert f"IF {everywhere}:" in text
    first, second = text.split("ELSE:")
    assert "b[j] = pad(otherwise a[j])" in first
    assert f"b[j] = pad(a[j] if {condition}, otherwise 0.0)" in second
    if "&&" not in everywhere:
        assert unswitched(text) == text


def test_a_clamp_goes_where_the_other_conditions_decide_it() -> None:
    two = NEST.replace("CONDITION", "min(16*i + j, N - 1) <= M") + NEST.replace("CONDITION", "16*i + j < N")
    text = unswitched("FOR i in 0..N:\n" + two)
    assert "IF 16*i + 15 < N && 16*i + 15 <= M:" in text
    assert text.count("ELSE:") == 1


STAY = {
    "outside a loop": NEST.replace("CONDITION", "j < N").replace("\n  ", "\n")[2:],
    "few choices": walk("j < N").replace("0..16", "0..8"),
    "never all": walk("64*threadIdx.y + threadIdx.x < i && j > 100"),
    "of data in memory": walk("j < N").replace("a[j] if", "x[0, j] if"),
    "to memory": walk("j < N").replace("b[j] =", "y[0, j] ="),
    "not linear": walk("i * j * threadIdx.x < N"),
    "a clamped index": walk("min(16*i + j, N - 1) <= M"),
    "equal": walk("i + j == N"),
    "with a barrier": walk("j < N").replace("        b[j]", "        SYNC warp\n        b[j]"),
    "a reduction": walk("16*i + j < N").rstrip("\n") + "\n        b[0] = add(b[0], b[j])\n",
    "nothing is chosen": walk("j < N").replace("a[j] if j < N, otherwise 0.0", "otherwise a[j]"),
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name: str) -> None:
    assert "ELSE" not in unswitched(STAY[name])


@pytest.mark.parametrize("width", [32, 24])
def test_rows_of_threads_may_share_a_warp(width: int) -> None:
    """Then the condition is one for all of them."""
    head = HEAD.replace("(64, 2, 1)", f"({width}, 4, 1)")
    body = walk("16*i + j < N + threadIdx.y").replace("TIDx{64}", f"TIDx{{{width}}}").replace("TIDy{2}", "TIDy{4}")
    text = str(Unswitch().run(parse_kernel(head + body)))
    assert ("IF 16*i + 15 < threadIdx.y + N:" in text) == (width == 32)
    assert ("IF 16*i + 15 < N:" in text) == (width == 24)
