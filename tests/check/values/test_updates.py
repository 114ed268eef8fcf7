"""Points that are sent to elements which data names: what makes a kernel with updates wrong, beside the right one."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict, verify
from taskfuse.kir import parse_kernel
from taskfuse.kir.meaning import meaning

AT = "128*k + 32*blockIdx.x + threadIdx.x"
STORE = f"    y[{AT}] = copy(x[{AT}])  ~ value b[{AT}]\n"
SENT = f"    UPDATE y[v] by add of s[{AT}] at v = t[{AT}] of V  ~ value u[{AT}]\n"
ADDED = f"""\
KERNEL added(x: float32[V], t: int32[N], s: float32[N]) -> (y: float32[V])
  DIM V, N
  GRID (4, 1, 1)  BLOCK (32, 1, 1)
  COUNTER grid0
  DEFINE b: float32[V] = copy(x[i0])
  DEFINE u: float32[N] = send add of s[i0] at t[i0] of V
  DEFINE y: float32[V] = whole b at (i0), u at (v0)

FOR k in 0..ceildiv(V, 128):
  IF {AT} < V:
{STORE}SYNC grid grid0, 128
FOR k in 0..ceildiv(N, 128):
  IF {AT} < N:
{SENT}"""


def test_the_right_one_is_proved_and_adds() -> None:
    kernel = parse_kernel(ADDED)
    assert parse_kernel(str(kernel)) == kernel
    assert parse_kernel(kernel.text(witness=True)).definitions == kernel.definitions
    assert kernel.verify().is_proved
    assert not kernel.is_deterministic
    x, t, s = np.arange(5, dtype=np.float32), np.array([1, -1, 1, 7, -6, 0], np.int32), np.full(6, 8, np.float32)
    for seed in range(3):
        (found,) = kernel.simulate(x, t, s, seed=seed)
        assert found.tolist() == [8, 17, 2, 3, 12]
    assert meaning(kernel, [x, t, s], {"V": 5, "N": 6}, tf.NATIVE)[0].tolist() == [8, 17, 2, 3, 12]


WRONG = {
    "not stored": (STORE, "    PASS\n", "b is never stored"),
    "stored in part": ("FOR k in 0..ceildiv(V, 128):", "FOR k in 0..V//128:", "points along an axis of V are visited"),
    "stored elsewhere": ("y[128*k + 32*blockIdx.x + threadIdx.x] = copy", "y[V - 1 - (128*k + 32*blockIdx.x + threadIdx.x)] = copy", "is the place of b"),
    "not ordered": ("SYNC grid grid0, 128\n", "SYNC block\n", "nothing orders them"),
    "stored behind": (f"SYNC grid grid0, 128\n{ADDED[ADDED.index('FOR k in 0..ceildiv(N') :]}", "", "u is never sent"),
    "sent twice": (SENT, 2 * SENT, "is visited 2 times"),
    "sent by every block": ("UPDATE y[v] by add of s[128*k + 32*blockIdx.x", "UPDATE y[v] by add of s[128*k + 32*0", "where"),
    "sent again in a loop": (SENT, SENT.replace("    UPDATE", "    FOR again in 0..2:\n      UPDATE"), "is visited 2 times"),
    "not all sent": ("FOR k in 0..ceildiv(N, 128):", "FOR k in 0..N//128:", "points along an axis of N are visited"),
    "sent past the end": (f"IF {AT} < N:\n    UPDATE", f"IF {AT} < N + 1:\n    UPDATE", "is not known"),
    "another term": (f"by add of s[{AT}]", "by add of s[0]", "it reads index 0 of s"),
    "another index": (f"at v = t[{AT}]", "at v = t[0]", "it reads index 0 of t"),
    "another extent": (f"t[{AT}] of V  ~", f"t[{AT}] of V - 1  ~", "value 0 counts in V - 1, not in V"),
    "another place": ("UPDATE y[v]", "UPDATE y[V - 1 - v]", "is the place of u"),
    "one place": ("UPDATE y[v]", "UPDATE y[0]", "is the place of u"),
    "no claim": (f"  ~ value u[{AT}]", "", "it has no claim"),
    "stored beside": (SENT, SENT + f"    IF {AT} < V:\n  {STORE}", "nothing orders them"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refuted(name: str) -> None:
    """It is not proved for the reason that it is wrong, and a small launch shows that it is."""
    old, new, reason = WRONG[name]
    assert old in ADDED
    certificate = verify(parse_kernel(ADDED.replace(old, new)))
    assert certificate.verdict is Verdict.REFUTED
    assert any(reason in o.reason for o in certificate.argument if o.verdict is not Verdict.PROVED), [o.reason for o in certificate.argument]


HERE = "i + 2*blockIdx.x"
TRIPS = "FOR i in 0..N - 2*blockIdx.x:\n"
LATE = f"""\
KERNEL late(x: float32[N], s: float32[N, 4]) -> (y: float32[N])
  DIM N min 8
  GRID (4, 1, 1)  BLOCK (1, 1, 1)
  COUNTER grid0
  DEFINE b: float32[N] = copy(x[i0])
  DEFINE u: float32[N, 4] = send add of s[i0, i1]
  DEFINE y: float32[N] = whole b at (i0), u at (i0) if i1 < i0//2 + 1

FOR k in 0..ceildiv(N - blockIdx.x, 4):
  y[4*k + blockIdx.x] = copy(x[4*k + blockIdx.x])  ~ value b[4*k + blockIdx.x]
SYNC grid grid0, 4
{TRIPS}\
  UPDATE y[{HERE}] by add of s[{HERE}, blockIdx.x]  ~ value u[{HERE}, blockIdx.x]
"""
"""Of each column, points from an index on are sent."""


def test_points_that_have_a_place_are_sent() -> None:
    kernel = parse_kernel(LATE)
    assert parse_kernel(kernel.text(witness=True)).definitions == kernel.definitions
    assert kernel.verify().is_proved
    x, s = np.zeros(9, np.float32), np.arange(36, dtype=np.float32).reshape(9, 4)
    wanted = [float(sum(s[c, t] for t in range(4) if 2 * t <= c)) for c in range(9)]
    assert kernel.simulate(x, s, seed=1)[0].tolist() == wanted
    assert meaning(kernel, [x, s], {"N": 9}, tf.NATIVE)[0].tolist() == wanted


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (TRIPS, TRIPS.replace("N - 2*blockIdx.x", "N - 2*blockIdx.x - 1"), "leaves is not known"),
        (TRIPS, TRIPS.replace("0..", "1.."), "it visits points outside"),
        (TRIPS, TRIPS.replace("0..", "-2*blockIdx.x.."), "it may send a point that does not exist, or has no place"),
        (f"{TRIPS}  UPDATE", f"{TRIPS}  IF i < 7:\n    UPDATE", "are visited along an axis of N"),
        ("i0//2 + 1", "i0//2", "it may send a point that does not exist, or has no place"),
        ("i0//2 + 1", "i0//2 + 2", "it visits points outside"),
        (" if i1 < i0//2 + 1", "", "it visits points outside"),
    ],
)
def test_points_that_are_missing_or_have_no_place_are_refuted(old: str, new: str, reason: str) -> None:
    assert old in LATE
    certificate = verify(parse_kernel(LATE.replace(old, new)))
    assert certificate.verdict is Verdict.REFUTED
    assert any(reason in o.reason for o in certificate.argument if o.verdict is not Verdict.PROVED), [o.reason for o in certificate.argument]


def test_stores_in_a_loop_around_the_updates_may_come_behind_them() -> None:
    rounds = "FOR r in 0..2:\n" + "".join(f"  {line}\n" for line in ADDED[ADDED.index("FOR k") :].splitlines()) + "  SYNC grid grid0, 128\n"
    certificate = verify(parse_kernel(ADDED[: ADDED.index("FOR k")] + rounds))
    assert not certificate.is_proved


@pytest.mark.parametrize(
    ("store", "send", "verdict"),
    [
        ("r == 0", "r == 0", Verdict.PROVED),
        ("r == 0", "r == 1", Verdict.PROVED),
        ("r == 1", "r == 1", Verdict.PROVED),
        ("r == 0", "r >= 0", Verdict.REFUTED),
        ("r == 1", "r == 0", Verdict.REFUTED),
        ("r >= 0", "r == 0", Verdict.REFUTED),
    ],
)
def test_what_stands_before_the_updates_is_executed_in_the_first_iteration_of_their_loops_or_in_theirs(store: str, send: str, verdict: Verdict) -> None:
    lines = ADDED[ADDED.index("FOR k") :].replace(f"IF {AT} < V", f"IF {store} && {AT} < V").replace(f"IF {AT} < N", f"IF {send} && {AT} < N")
    rounds = "FOR r in 0..2:\n" + "".join(f"  {line}\n" for line in lines.splitlines()) + "  SYNC grid grid0, 128\n"
    assert verify(parse_kernel(ADDED[: ADDED.index("FOR k")] + rounds)).verdict is verdict


def test_functions_that_do_not_commute_with_each_other_race() -> None:
    ints = ADDED.replace("float32", "int32").replace("at v = t", "at v = t")
    assert verify(parse_kernel(ints)).is_proved
    assert parse_kernel(ints).is_deterministic
    other = ints.replace(SENT, SENT + SENT.replace("by add", "by maximum"))
    assert not verify(parse_kernel(other)).is_proved
    assert any("nothing orders them" in o.reason for o in verify(parse_kernel(other)).argument)


def test_what_is_updated_is_read_when_it_is_complete() -> None:
    tail = """\
SYNC grid grid0, 128
FOR k in 0..ceildiv(V, 128):
  IF 128*k + 32*blockIdx.x + threadIdx.x < V:
    z[128*k + 32*blockIdx.x + threadIdx.x] = neg(y[128*k + 32*blockIdx.x + threadIdx.x])  ~ value z[128*k + 32*blockIdx.x + threadIdx.x]
"""
    head = ADDED.replace("-> (y: float32[V])", "-> (y: float32[V], z: float32[V])").replace("u at (v0)\n", "u at (v0)\n  DEFINE z: float32[V] = neg(y[i0])\n")
    assert verify(parse_kernel(head + tail)).is_proved
    assert not verify(parse_kernel(head + tail.replace("SYNC grid grid0, 128\n", ""))).is_proved
    early = head.replace("FOR k in 0..ceildiv(N, 128):", tail.removeprefix("SYNC grid grid0, 128\n") + "SYNC grid grid0, 128\nFOR k in 0..ceildiv(N, 128):")
    certificate = verify(parse_kernel(early))
    assert not certificate.is_proved
    assert any("y may be read before it is complete" in o.reason for o in certificate.argument)
    part = (head + tail).replace("DEFINE z: float32[V] = neg(y[i0])", "DEFINE z: float32[V] = neg(b[i0])")
    certificate = verify(parse_kernel(part))
    assert any("it reads b where y is updated" in o.reason for o in certificate.argument)


def test_definitions_that_mean_nothing() -> None:
    outside = ADDED.replace("u at (v0)", "u at (v0 + 1)").replace("UPDATE y[v]", "UPDATE y[v + 1]")
    assert any("u may be sent outside" in o.reason for o in verify(parse_kernel(outside)).argument)


ROWS = """\
KERNEL rows(x: int32[R, 4], t: int32[M], s: int32[R, M]) -> (y: int32[R, 4], z: int32[R, 4])
  DIM R, M
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE b: int32[R, 4] = copy(x[i0, i1])
  DEFINE u: int32[R, M] = send add of s[i0, i1] at t[i1] of 4
  DEFINE y: int32[R, 4] = whole b at (i0, i1), u at (i0, v0)
  DEFINE z: int32[R, 4] = copy(y[i0, i1])

FOR i in 0..R:
"""
STORED = "  FOR j in 0..4:\n    y[i, j] = copy(x[i, j])  ~ value b[i, j]\n"
ADDED_TO = "  FOR k in 0..M:\n    UPDATE y[i, v] by add of s[i, k] at v = t[k] of 4  ~ value u[i, k]\n"
TAKEN = "  FOR j in 0..4:\n    z[i, j] = copy(y[i, j])  ~ value z[i, j]\n"


def at(row: str, text: str) -> str:
    """The lines with another row in them."""
    return text.replace("[i, ", f"[{row}, ")


IN_ROWS = {
    "as they come": (STORED + ADDED_TO + TAKEN, True),
    "all from below": (at("R - 1 - i", STORED + ADDED_TO + TAKEN), True),
    "stored behind": (ADDED_TO + STORED + TAKEN, False),
    "stored from below": (at("R - 1 - i", STORED) + ADDED_TO + TAKEN, False),
    "updated from below": (STORED + at("R - 1 - i", ADDED_TO) + TAKEN, False),
    "read from below": (STORED + ADDED_TO + at("R - 1 - i", TAKEN), False),
    "read before": (STORED + TAKEN + ADDED_TO, False),
    "stored in every iteration": ("  FOR r in 0..R:\n" + "".join(f"  {line}\n" for line in at("r", STORED).splitlines()) + ADDED_TO + TAKEN, False),
}


@pytest.mark.parametrize("name", IN_ROWS)
def test_rows_are_stored_and_updated_one_by_one(name: str) -> None:
    """What is stored, updated and read in one iteration only needs no order among iterations."""
    lines, right = IN_ROWS[name]
    kernel = parse_kernel(ROWS + lines)
    assert verify(kernel).verdict is (Verdict.PROVED if right else Verdict.REFUTED)
    if right:
        x, t, s = np.arange(12, dtype=np.int32).reshape(3, 4), np.array([3, 0, 3], np.int32), np.arange(9, dtype=np.int32).reshape(3, 3)
        wanted = x.copy()
        np.add.at(wanted, (np.arange(3)[:, None], t[None]), s)
        for found in kernel.simulate(x, t, s):
            assert found.tolist() == wanted.tolist()
