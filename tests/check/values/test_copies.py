"""Copies by instructions of their own: what is copied stays what it is; choices, validity, lanes and data that are indices."""

import pytest

from taskfuse.kir import parse_kernel
from tests.executions import changed, finding

CHOICE = """\
KERNEL k(x: float32[3], z: float32[5]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  DEFINE y: float32[8] = pick(x[i0] if i0 < 3, z[i0 - 3] if i0 < 8)

y[threadIdx.x] = choose(x[threadIdx.x] if threadIdx.x < 3, z[threadIdx.x - 3] if threadIdx.x < 8)  ~ value y[threadIdx.x]
"""

CONVERTING = """\
KERNEL k(x: uint8[8], w: int8[8]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  SHARED s: int8[8]
  DEFINE t: int8[8] = pick(x[i0] if i0 < 3, w[i0] if i0 < 6, otherwise 7)
  DEFINE y: float32[8] = neg(t[i0])

s[threadIdx.x] = choose(x[threadIdx.x] if threadIdx.x < 3, w[threadIdx.x] if threadIdx.x < 6, otherwise 7)  ~ value t[threadIdx.x]
SYNC block
y[threadIdx.x] = neg(s[threadIdx.x])  ~ value y[threadIdx.x]
"""

VECTORS = """\
KERNEL k(x: float32[6, 4]) -> (y: float32[8, 4])
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  SHARED s: float32[8, 4] align 16
  LOCAL r: float32[4]
  DEFINE s: float32[8, 4] = pick(x[i0, i1] if i0 < 6, otherwise 0.0)
  DEFINE y: float32[8, 4] = copy(s[i0, i1])

COPY.async s[threadIdx.x, 0] <- x[min(threadIdx.x, 5), 0] width 4 if threadIdx.x < 6  ~ value s[threadIdx.x, tile.0] tile (4)
COMMIT copy
WAIT_GROUP copy <= 0
COPY r[0] <- s[threadIdx.x, 0] width 4  ~ value s[threadIdx.x, tile.0] tile (4)
COPY y[threadIdx.x, 0] <- r[0] width 4  ~ value y[threadIdx.x, tile.0] tile (4)
"""

SHUFFLED = """\
KERNEL k(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL t: float32[]
  LOCAL o: float32[]
  DEFINE t: float32[32] = copy(x[i0])
  DEFINE y: float32[32] = add(t[i0], t[xor(i0, 4)])

t = copy(x[threadIdx.x])  ~ value t[threadIdx.x]
SHUFFLE o <- t xor 4  ~ value t[xor(threadIdx.x, 4)]
y[threadIdx.x] = add(t, o)  ~ value y[threadIdx.x]
"""

GATHER = """\
KERNEL k(x: float32[5, 4], g: int64[4]) -> (y: float32[4, 4])
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  DEFINE y: float32[4, 4] = find x[v0, i1] at g[i0] of 5

FOR j in 0..4:
  GATHER y[threadIdx.x, j] <- x[v, j] at v = g[threadIdx.x] of 5  ~ value y[threadIdx.x, j]
"""


@pytest.mark.parametrize("text", [CHOICE, CONVERTING, VECTORS, SHUFFLED, GATHER], ids=["choice", "converting choice", "vectors", "shuffle", "gather"])
def test_it_holds(text: str) -> None:
    assert finding(text) == ""


WRONG = {
    "a choice that does not convert": (CONVERTING, "s: int8", "s: uint8", "reads element [0] of x where element [0] of t is defined"),
    "a choice of others": (CONVERTING, "x[threadIdx.x]", "x[2 - threadIdx.x]", "converts element [2] of x to int8"),
    "a case too wide": (CHOICE, "if threadIdx.x < 3, z", "if threadIdx.x < 2, z", "index -1"),
    "cases exchanged": (
        CHOICE,
        "choose(x[threadIdx.x] if threadIdx.x < 3",
        "choose(z[threadIdx.x] if threadIdx.x < 3",
        "reads element [0] of z where element [0] of x",
    ),
    "no case": (CHOICE, "z[threadIdx.x - 3] if threadIdx.x < 8)  ~", "z[threadIdx.x - 3] if threadIdx.x < 7)  ~", "no case of its choice holds"),
    "zeros where there are elements": (VECTORS, "if threadIdx.x < 6  ~", "if threadIdx.x < 5  ~", "y[5, 0]: reads the constant 0.0 where element [5, 0] of x"),
    "elements where there are zeros": (VECTORS, "width 4 if threadIdx.x < 6  ~", "width 4  ~", "y[6, 0]: reads element [5, 0] of x where the constant 0.0"),
    "another row": (VECTORS, "<- s[threadIdx.x, 0] width 4", "<- s[7 - threadIdx.x, 0] width 4", "y[0, 0]: reads the constant 0.0 where element [0, 0] of x"),
    "another lane": (SHUFFLED, "<- t xor 4", "<- t xor 8", "y[0]: for element [0] of y: reads element [8] of x where element [4] of x"),
    "another place in the data": (GATHER, "x[v, j] at", "x[v, 3 - j] at", "y[0, 0]: gathers for element [0, 0] of y from where it is not defined"),
    "other data": (GATHER, "v = g[threadIdx.x]", "v = g[3 - threadIdx.x]", "gathers for element [0, 0] of y from where it is not defined"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name: str) -> None:
    text, old, new, reason = WRONG[name]
    assert reason in finding(changed(text, old, new))


TABLE = """\
KERNEL k(x: float32[{n}], at: int32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED b: float32[{n}]
  DEFINE b: float32[{n}] = mul(x[i0], 2.0)
  DEFINE y: float32[32] = find b[v0] at at[i0] of {n}

FOR k in 0..{trips}:
  IF 32*k + threadIdx.x < {n}:
    b[32*k + threadIdx.x] = mul(x[{entry}], 2.0)  ~ value b[32*k + threadIdx.x]
SYNC block
GATHER y[threadIdx.x] <- b[v] at v = at[threadIdx.x] of {n}  ~ value y[threadIdx.x]
"""
OTHER = "select(32*k + threadIdx.x == 37, 0, 32*k + threadIdx.x)"


@pytest.mark.parametrize("n", [64, 500, 4000])
def test_a_table_with_a_wrong_entry_is_not_proved_by_looking_at_some(n: int) -> None:
    right = parse_kernel(TABLE.format(n=n, trips=-(-n // 32), entry="32*k + threadIdx.x"))
    right.verify().require()
    certificate = parse_kernel(TABLE.format(n=n, trips=-(-n // 32), entry=OTHER)).verify()
    assert not certificate.is_proved
    assert "gathers for element [0] of y from where it is not defined" in str(certificate)


@pytest.mark.parametrize("n", [64, 500])
def test_a_run_that_looks_at_all_entries_of_a_table_decides(n: int) -> None:
    same = "select(32*k + threadIdx.x == 37, 37, xor(xor(32*k + threadIdx.x, 5), 5))"
    certificate = parse_kernel(TABLE.format(n=n, trips=-(-n // 32), entry=same)).verify()
    certificate.require()


def test_an_input_that_is_gathered_from_and_overwritten_is_not_proved_by_looking_at_some() -> None:
    text = """\
KERNEL k(x: float32[500], at: int32[500]) -> (y: float32[500] into x)
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL r: float32[]
  DEFINE y: float32[500] = find x[v0] at at[i0] of 500

FOR k in 0..500:
  GATHER r <- x[v] at v = at[k] of 500  ~ value y[k]
  y[k] = copy(r)  ~ value y[k]
"""
    assert not parse_kernel(text).verify().is_proved
