"""Terms of reductions and partial results joined: each has the terms that its statements added, in the dtype of the reduction."""

import pytest

from tests.executions import changed, finding

SUM = """\
KERNEL k(x: float32[2, 5], w: float32[5]) -> (y: float32[2])
  GRID (1, 1, 1)  BLOCK (2, 1, 1)
  LOCAL a: float32[]
  LOCAL b: float32[]
  LOCAL p: float32[]
  DEFINE y: float32[2] over (2, 5) at (i0) = reduce add of mul(x[i0, i1], w[i1]) from 0.0

a = copy(0.0)  ~ start y
b = copy(0.0)  ~ start y
FOR i in 0..3:
  a = fma(x[threadIdx.x, i], w[i], a)  ~ term y[threadIdx.x, i]
FOR j in 3..5:
  p = mul(x[threadIdx.x, j], w[j])  ~ body y[threadIdx.x, j]
  b = add(b, p)  ~ term y[threadIdx.x, j]
a = add(a, b)  ~ part y
y[threadIdx.x] = copy(a)  ~ value y[threadIdx.x]
"""

SCAN = """\
KERNEL k(x: float32[2, 5]) -> (y: float32[2, 5])
  GRID (1, 1, 1)  BLOCK (2, 1, 1)
  LOCAL t: float32[]
  DEFINE y: float32[2, 5] = scan add along 1 of x[i0, i1]

t = copy(0.0)  ~ start y
FOR i in 0..5:
  t = add(t, x[threadIdx.x, i])  ~ term y[threadIdx.x, i]
  y[threadIdx.x, i] = copy(t)  ~ value y[threadIdx.x, i]
"""


@pytest.mark.parametrize("text", [SUM, SCAN])
def test_it_holds(text: str) -> None:
    assert finding(text) == ""


def test_the_order_of_operands_does_not_matter() -> None:
    text = changed(changed(SUM, "add(b, p)", "add(p, b)"), "a = add(a, b)", "a = add(b, a)")
    assert finding(changed(SCAN, "add(t, x[threadIdx.x, i])", "add(x[threadIdx.x, i], t)")) == ""
    assert finding(changed(text, "fma(x[threadIdx.x, i], w[i], a)", "fma(w[i], x[threadIdx.x, i], a)")) == ""


WRONG = {
    "a term left out": (SUM, "FOR i in 0..3", "FOR i in 0..2", "y[0]: element [0] of y lacks the term at [0, 2]"),
    "a term twice": (SUM, "FOR j in 3..5", "FOR j in 2..5", "y[0]: element [0] of y has the term at [0, 2] twice"),
    "a part twice": (SUM, "a = add(a, b)", "a = add(a, a)", "y[0]: element [0] of y lacks the term at [0, 3]"),
    "another function": (SUM, "a = add(a, b)", "a = mul(a, b)", "y[0]: computes mul, which no definition says"),
    "a term of another point": (SUM, "x[threadIdx.x, i], w[i]", "x[threadIdx.x, i], w[4 - i]", "at [0, 0] of y: reads element [4] of w where element [0] of w"),
    "a start that counts": (SUM, "b = copy(0.0)", "b = copy(1.0)", "joins the constant 1.0, which is not a partial result of y"),
    "a body of another tensor": (SUM, "p = mul(x[threadIdx.x, j], w[j])", "p = add(x[threadIdx.x, j], w[j])", "takes add in float32 where a term of y is mul"),
    "a total of later terms": (
        SCAN,
        "copy(t)  ~ value y[threadIdx.x, i]",
        "copy(x[threadIdx.x, i])  ~ value y[threadIdx.x, i]",
        "y[0, 0]: reads element [0, 0] of x",
    ),
    "a scan that skips": (SCAN, "FOR i in 0..5", "FOR i in 1..5", "is never stored"),
    "a scan that begins later": (
        SCAN,
        "add(t, x[threadIdx.x, i])  ~ term y[threadIdx.x, i]",
        "add(t, x[threadIdx.x, 4 - i])  ~ term y[threadIdx.x, 4 - i]",
        "y[0, 0]: element [0, 0] of y has the term at [0, 4], which is of another",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name: str) -> None:
    text, old, new, reason = WRONG[name]
    assert reason in finding(changed(text, old, new))


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("fold along 0 of maximum(x[i0]) from 1.0", "takes a step of y, which has none"),
        ("reduce maximum of copy(x[i0]) from 1.0 until 0 < 3", "a term past the end of y need not be neutral"),
    ],
)
def test_terms_of_none(rule: str, reason: str) -> None:
    text = f"""\
KERNEL k(x: float32[4]) -> (y: float32[])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL a: float32[]
  DEFINE y: float32[] over (0) at () = {rule}

a = copy(1.0)  ~ start y
FOR i in 0..4:
  a = maximum(a, x[i])  ~ term y[i]
y[] = copy(a)  ~ value y[]
"""
    assert reason in finding(text)
