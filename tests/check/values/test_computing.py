"""Computations: the function, its dtypes and its operands are the definition's, whatever a statement claims."""

import pytest

from tests.executions import changed, finding

TEXT = """\
KERNEL k(x: float32[4], h: float16[4], s: float32) -> (y: float32[4], z: float16[4])
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE t: float32[4] = sub(x[i0], s)
  DEFINE y: float32[4] = mul(t[i0], x[3 - i0])
  DEFINE z: float16[4] = cast.float16(t[i0])

t = sub(x[threadIdx.x], s)  ~ value t[threadIdx.x]
y[threadIdx.x] = mul(t, x[3 - threadIdx.x])  ~ value y[threadIdx.x]
z[threadIdx.x] = cast.float16(t)  ~ value z[threadIdx.x]
"""


def test_it_holds() -> None:
    assert finding(TEXT) == ""
    assert finding(changed(TEXT, "= mul(t, x[3 - threadIdx.x])", "= mul(x[3 - threadIdx.x], t)")) == ""


WRONG = {
    "another function": ("= mul(t,", "= add(t,", "y[0]: computes add where y is mul"),
    "operands exchanged": ("sub(x[threadIdx.x], s)  ~", "sub(s, x[threadIdx.x])  ~", "y[0]: for element [0] of t: reads s where element [0] of x is defined"),
    "another element": ("t, x[3 - threadIdx.x])", "t, x[threadIdx.x])", "y[0]: for element [0] of y: reads element [0] of x where element [3] of x is defined"),
    "a claim of another element": (
        "~ value y[threadIdx.x]",
        "~ value y[3 - threadIdx.x]",
        "y[0]: for element [3] of y: reads element [0] of t where element [3] of t",
    ),
    "what no definition says": (
        "t = sub(x[threadIdx.x], s)  ~ value t[threadIdx.x]",
        "t = sub(x[threadIdx.x], s)",
        "y[0]: computes sub, which no definition says",
    ),
    "an intermediate in a narrow buffer": (
        "LOCAL t: float32[]",
        "LOCAL t: float16[]",
        "y[0]: computes sub in float16, a float16 where t is sub in float32, a float32",
    ),
    "a conversion through another dtype": (
        "cast.float16(t)  ~",
        "cast.bfloat16(t)  ~",
        "z[0]: computes cast in bfloat16, a float16 where z is cast in float16, a float16",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name: str) -> None:
    old, new, reason = WRONG[name]
    assert reason in finding(changed(TEXT, old, new))


ROWS = """\
KERNEL k(x: float32[4, 3]) -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL c: float32[]
  DEFINE y: float32[4] over (4, 3) at (i0) = reduce add of copy(x[i0, i1]) from 0.0

c = copy(0.0)  ~ start y
FOR i in 0..3:
  c = add(c, x[threadIdx.x, i])  ~ term y[threadIdx.x, i]
y[threadIdx.x] = copy(c)  ~ value y[threadIdx.x]
"""


def test_a_complete_result_is_the_element_that_it_is_of() -> None:
    assert finding(ROWS) == ""
    other = changed(ROWS, "y[threadIdx.x] = copy(c)  ~ value y[threadIdx.x]", "y[3 - threadIdx.x] = copy(c)  ~ value y[3 - threadIdx.x]")
    assert "y[0]: element [0] of y" in finding(other)


HALVES = """\
KERNEL k(x: int32[7]) -> (total: int32[], most: int32[])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL a: int32[]
  LOCAL b: int32[]
  LOCAL c: int32[]
  LOCAL d: int32[]
  DEFINE total: int32[] over (7) at () = reduce add of copy(x[i0]) from 0
  DEFINE most: int32[] over (7) at () = reduce maximum of copy(x[i0]) from 5

a = copy(0)  ~ start total
b = copy(0)  ~ start total
c = copy(5)  ~ start most
d = copy(4)  ~ start most
FOR i in 0..3:
  a = add(a, x[i])  ~ term total[i]
  c = maximum(c, x[i])  ~ term most[i]
FOR i in 3..7:
  b = add(b, x[i])  ~ term total[i]
  d = maximum(d, x[i])  ~ term most[i]
total[] = add(a, b)  ~ value total[]
most[] = maximum(c, d)  ~ value most[]
"""


def test_the_last_join_stores_the_result() -> None:
    """An initial value of a maximum may be combined with what it is not less than."""
    assert finding(HALVES) == ""


WRONG_HALVES = {
    "a part twice": ("= add(a, b)", "= add(a, a)", "total[]: element [] of total lacks the term at [3] and 3 more"),
    "a term twice": ("FOR i in 0..3", "FOR i in 0..4", "total[]: element [] of total has the term at [3] twice"),
    "another function": ("= add(a, b)", "= mul(a, b)", "total[]: computes mul, which no definition says"),
    "in another dtype": ("= add(a, b)", "= add.int64(a, b)", "total[]: combines in int64 where total is combined in int32"),
    "nowhere the initial value": ("c = copy(5)", "c = copy(4)", "most[]: element [] of most lacks its initial value"),
    "a greater one": ("d = copy(4)", "d = copy(6)", "most[]: joins the constant 6, which is not a partial result of most"),
    "a sum that starts with a number": ("b = copy(0)", "b = copy(-1)", "total[]: joins the constant -1, which is not a partial result of total"),
}


@pytest.mark.parametrize("name", WRONG_HALVES)
def test_the_last_join_is_wrong(name: str) -> None:
    good, bad, reason = WRONG_HALVES[name]
    assert finding(changed(HALVES, good, bad)).startswith(reason)
