"""Which write a read sees: one that may come between is asked for in every iteration and thread that may make it, not in one of them."""

import pytest

import taskfuse as tf
from taskfuse.check import Layer, Verdict
from tests.executions import changed, finding

KERNEL = """\
KERNEL k(x: float32[4]) -> (y: float32[4])
  DIM N min 1, M min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE a: float32[4] = exp(x[i0])
  DEFINE b: float32[4] = sin(x[i0])
  DEFINE y: float32[4] = neg(a[i0])

t = exp(x[threadIdx.x])  ~ value a[threadIdx.x]
FOR k in 0..{stop}:
  IF {condition}:
    t = {write}
y[threadIdx.x] = neg(t)  ~ value y[threadIdx.x]
"""
OTHER = "sin(x[threadIdx.x])  ~ value b[threadIdx.x]"
SAME = "exp(x[threadIdx.x])  ~ value a[threadIdx.x]"
WHY = (
    "it may find b where a is wanted",
    "it is not known to be written there: some conditions depend on more than its place",
    "the symbols of its index have too many values, or unknown ones",
)
CONDITIONS = ["k == N", "k >= N", "k + N == 5", "k == threadIdx.x + 1", "k > threadIdx.x", "2*k == N", "k*N == 3", "k % 2 == 1", "N % (k + 1) == 1", "k == 2"]


def gaps(text: str) -> list[str]:
    """What the proof for all extents lacks of values."""
    kernel = tf.parse_kernel(text)
    kernel.check_ir()
    return [o.reason for o in kernel.verify().argument if o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED]


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("stop", ["4", "M"])
def test_a_write_in_one_iteration_of_a_loop_that_the_place_does_not_name(condition: str, stop: str) -> None:
    (gap,) = gaps(KERNEL.format(condition=condition, stop=stop, write=OTHER))
    assert gap in WHY
    assert gaps(KERNEL.format(condition=condition, stop=stop, write=SAME)) == ([gap] if gap == WHY[2] else [])


@pytest.mark.parametrize("condition", ["k < 0", "k >= 4", "k + N < 1", "k + threadIdx.x == 9"])
def test_a_write_in_no_iteration(condition: str) -> None:
    assert gaps(KERNEL.format(condition=condition, stop=4, write=OTHER)) == []


@pytest.mark.parametrize("stop", [4, "N"])
def test_a_write_of_another_element_in_one_iteration(stop: int | str) -> None:
    """At ``k = 1`` the threads with an odd index write what the one before it has."""
    write = "exp(x[threadIdx.x - threadIdx.x % 2])  ~ value a[threadIdx.x - threadIdx.x % 2]"
    text = KERNEL.format(condition="k == threadIdx.x % 2", stop=stop, write=write)
    assert gaps(text) == ["it may find index threadIdx.x - threadIdx.x % 2 where threadIdx.x is wanted on axis 0 of a"]


BEGINS = """\
KERNEL k(x: float32[4]) -> (y: float32[4])
  DIM N min 1 max 5
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE a: float32[4] = exp(x[i0])
  DEFINE y: float32[4] = neg(a[i0])

t = sin(x[threadIdx.x])
FOR k in {start}..6:
  IF k == {at}:
    t = exp(x[threadIdx.x])  ~ value a[threadIdx.x]
y[threadIdx.x] = neg(t)  ~ value y[threadIdx.x]
"""


def test_an_iteration_that_need_not_come() -> None:
    """``k = 1`` is none of ``2..6``; ``k = 5`` is an iteration whatever ``N`` is."""
    first = "t = sin(x[threadIdx.x])\n"
    right = changed(BEGINS, first, "")
    assert gaps(right.format(start="N", at=5)) == []
    assert gaps(right.format(start="N", at=1)) == ["no write of t is known to come before it in every case"]
    assert "reads nothing where element [0] of a is defined" in finding(right.format(start="N", at=1), N=2)


SHARED = """\
KERNEL k(x: float32[8]) -> (y: float32[8])
  DIM N min 1 max 3
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  SHARED s: float32[8] align 16
  DEFINE a: float32[8] = exp(x[i0])
  DEFINE b: float32[8] = sin(x[i0])
  DEFINE y: float32[8] = neg(a[i0])

s[threadIdx.x] = exp(x[threadIdx.x])  ~ value a[threadIdx.x]
SYNC block
FOR k in 0..4:
  FOR j in 0..2:
    IF threadIdx.x == 0 && j == k - {at}:
      s[j] = sin(x[j])  ~ value b[j]
SYNC block
y[threadIdx.x] = neg(s[threadIdx.x])  ~ value y[threadIdx.x]
"""


def test_writes_in_tables() -> None:
    """The loop ``k`` is not in the index, and its condition decides between rows of the table."""
    for at in ("1", "2", "N"):
        assert gaps(SHARED.format(at=at)) != []
    assert gaps(SHARED.format(at="4")) == []
    assert gaps(changed(SHARED, "sin(x[j])  ~ value b[j]", "exp(x[j])  ~ value a[j]").format(at="1")) == []


CARRIED = """\
KERNEL k(x: float32[N + 1]) -> (y: float32[N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL t: float32[]
  DEFINE a: float32[N + 1] = exp(x[i0])
  DEFINE b: float32[N + 1] = sin(x[i0])
  DEFINE y: float32[N] = neg(a[i0])

t = exp(x[0])  ~ value a[0]
FOR i in 0..N:
  y[i] = neg(t)  ~ value y[i]
  t = {}
  t = {}
"""


def test_the_last_write_of_the_iteration_before() -> None:
    writes = "sin(x[i])  ~ value b[i]", "exp(x[i + 1])  ~ value a[i + 1]"
    assert gaps(CARRIED.format(*writes)) == []
    assert gaps(CARRIED.format(*reversed(writes))) == ["it may find b where a is wanted"]
    assert finding(CARRIED.format(*reversed(writes)), N=2) != ""


PARTS = """\
KERNEL k(a: float32[K], c: float32[4]) -> ({out})
  DIM K min 1 max 16
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  GLOBAL t: float32[K + 4]
  LOCAL acc: float32[]
  DEFINE pa: float32[K] = copy(a[i0])
  DEFINE pc: float32[4] = copy(c[i0])
  DEFINE w: float32[K + 4] = whole pa at (i0), pc at (i0 + K)
  DEFINE {define}

FOR k in 0..4:
  t[K + k] = copy(c[k])  ~ value pc[k]
FOR k in 0..{stored}:
  t[k] = pad(a[k] if k < K, otherwise 0)  ~ value pa[k]
"""
READ = (
    PARTS.replace("{out}", "y: float32[K + 4]").replace("{define}", "y: float32[K + 4] = copy(w[i0])")
    + "FOR k in 0..K + 4:\n  y[k] = copy(t[k])  ~ value y[k]\n"
)
TOTAL = (
    PARTS.replace("{out}", "z: float32[]").replace("{define}", "z: float32[] over (K) at () = reduce add of copy(pa[i0]) from 0.0").replace("{stored}", "K")
    + "acc = copy(0.0)  ~ start z\nFOR k in 0..{taken}:\n  acc = add(acc, t[k])  ~ term z[k]\nz[] = copy(acc)  ~ value z[]\n"
)


@pytest.mark.parametrize(("text", "hole"), [(READ, "stored"), (TOTAL, "taken")])
def test_behind_the_end_of_a_part_is_another_part(text: str, hole: str) -> None:
    """A zero that pads a part is not an element of the next one, and an element of the next one is not a zero that pads."""
    assert not gaps(text.replace(f"{{{hole}}}", "K"))
    for stop in ("K + 1", "4*ceildiv(K, 4)"):
        found = gaps(text.replace(f"{{{hole}}}", stop))
        assert "it may be past the end of pa, where w has elements of another part" in found, (stop, found)


LISTED = """\
KERNEL k(x: float32[2, 4, 8]) -> (y: float32[2, 4, 8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL t: float32[4, 8]
  DEFINE a: float32[2, 4, 8] = exp(x[i0, i1, i2])
  DEFINE b: float32[2, 4, 8] = sin(x[i0, i1, i2])
  DEFINE y: float32[2, 4, 8] = neg(a[i0, i1, i2])

FOR o in 0..2:
  FOR i in 0..4 UNROLL:
    FOR j in 0..8 UNROLL:
      t[i, j] = exp(x[o, i, j])  ~ value a[o, i, j]
  FOR k in 0..4 UNROLL:
    FOR l in 0..8 UNROLL:
      y[o, k, l] = neg(t[k, l])  ~ value y[o, k, l]
"""
WRITE = "      t[i, j] = exp(x[o, i, j])  ~ value a[o, i, j]\n"
STORE = "      y[o, k, l] = neg(t[k, l])  ~ value y[o, k, l]\n"
AGAIN = "      t[{}, l] = sin(x[o, {}, l])  ~ value b[o, {}, l]\n"


def test_a_register_that_loops_of_its_own_write() -> None:
    assert gaps(LISTED) == []
    assert gaps(changed(LISTED, "t[k, l]", "t[k, 7 - l]").replace("y[o, k, l]", "y[o, k, 7 - l]")) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FOR i in 0..4", "FOR i in 1..4"),  # not all of it is written
        ("FOR j in 0..8", "FOR j in 0..7"),
        (WRITE, "      IF i > 0:\n  " + WRITE),
        ("exp(x[o, i, j])  ~ value a[o, i, j]", "exp(x[o, i, 7 - j])  ~ value a[o, i, 7 - j]"),  # another element
        ("exp(x[o, i, j])  ~ value a[o, i, j]", "exp(x[1 - o, i, j])  ~ value a[1 - o, i, j]"),
        ("exp(x[o, i, j])  ~ value a[o, i, j]", "sin(x[o, i, j])  ~ value b[o, i, j]"),  # another tensor
        ("t[i, j]", "t[i, 0]"),  # several elements in one place
        (WRITE, WRITE + "      t[3, j] = sin(x[o, i, j])  ~ value b[o, i, j]\n"),  # and another one behind it
        (STORE, STORE + AGAIN.format("3", "3", "3")),  # in a later iteration of a loop around the read
        (STORE, AGAIN.format("k", "k", "k") + STORE),
        (f"    FOR j in 0..8 UNROLL:\n{WRITE}", f"    IF o == 0:\n      FOR j in 0..8 UNROLL:\n  {WRITE}"),
    ],
)
def test_a_register_that_loops_of_its_own_do_not_write(old: str, new: str) -> None:
    assert gaps(changed(LISTED, old, new)) != []


def test_a_register_that_is_written_behind_its_read() -> None:
    assert gaps(changed(LISTED, STORE, STORE + AGAIN.format("k", "k", "k"))) == []
