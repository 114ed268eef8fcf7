"""Operands against those of a definition, thread by thread; constants folded; what was wrong before stays the reason."""

import pytest

from tests.executions import changed, finding

TEXT = """\
KERNEL k(x: float32[4], m: bool[4], z: float32[4]) -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE t: float32[4] = where(m[i0], x[i0], z[i0])
  DEFINE y: float32[4] = add(t[i0], 2.0)

t = where(m[threadIdx.x], x[threadIdx.x], z[threadIdx.x])  ~ value t[threadIdx.x]
y[threadIdx.x] = add(t, 2.0)  ~ value y[threadIdx.x]
"""


def test_it_holds() -> None:
    assert finding(TEXT) == ""
    assert finding(changed(TEXT, "add(t, 2.0)  ~", "add(2.0, t)  ~")) == ""


WRONG = {
    "the arms of a selection": ("x[threadIdx.x], z[threadIdx.x])  ~", "z[threadIdx.x], x[threadIdx.x])  ~", "element [0] of t: reads element [0] of z where"),
    "its condition": ("where(m[threadIdx.x]", "where(m[3 - threadIdx.x]", "reads element [3] of m where element [0] of m is defined"),
    "another constant": ("add(t, 2.0)  ~", "add(t, 3.0)  ~", "y[0]: for element [0] of y: reads the constant 3.0 where the constant 2.0 is defined"),
    "in some threads alone": ("z[threadIdx.x])  ~", "z[min(threadIdx.x, 2)])  ~", "y[3]: for element [3] of t: reads element [2] of z where element [3]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name: str) -> None:
    old, new, reason = WRONG[name]
    assert reason in finding(changed(TEXT, old, new))


PADDED = """\
KERNEL k(x: float32[3]) -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL p: float32[]
  DEFINE p: float32[4] = pick(x[i0] if i0 < 3, otherwise 1.0)
  DEFINE y: float32[4] = exp(p[i0])

p = choose(x[threadIdx.x] if threadIdx.x < 3, otherwise 1.0)  ~ value p[threadIdx.x]
y[threadIdx.x] = exp(p)  ~ value y[threadIdx.x]
"""


def test_constants_are_equal_where_their_definition_is() -> None:
    assert finding(PADDED) == ""
    reason = "y[3]: for element [3] of y: reads the constant 0.0 where the constant 1.0 is defined"
    assert finding(changed(PADDED, "threadIdx.x < 3, otherwise 1.0)", "threadIdx.x < 3, otherwise 0.0)")) == reason
