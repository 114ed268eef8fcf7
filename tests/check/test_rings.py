"""Releases that lag, rings inside one role, loads in loops, and what goes wrong with them."""

from pathlib import Path

import pytest

from taskfuse.check import Certificate, Verdict, verify
from taskfuse.kir import parse_kernel

KERNELS = Path(__file__).parent.parent / "kernels"
GEMM = (KERNELS / "gemm.kir").read_text(encoding="utf-8")
RING = (KERNELS / "ring.kir").read_text(encoding="utf-8")


def arrive(indent: int) -> str:
    lines = ("IF threadIdx.x % 32 == 0:", "  ARRIVE empty[r.slot]", "r.advance(1)")
    return "".join(f"{' ' * indent}{line}\n" for line in lines)


def lagging(lag: int, slots: int, least: int = 0, *, drain: str = "loop", retire: int | None = None, after: int | None = None, left: int | None = None) -> str:
    """gemm.kir with consumers that release ``lag`` positions behind.

    Args:
        least: the least K.
        drain: how the last positions are released: in a loop, in as many conditions, or as if there were as many.
        retire, after, left: other numbers than ``lag``: of wgmmas in flight, of positions before the first release, of positions behind the loop.
    """
    retire, after, left = (lag if n is None else n for n in (retire, after, left))
    first, last = GEMM.index("      COMMIT wgmma\n"), GEMM.index("    FOR c in 0..2 UNROLL")
    trips = "ceildiv(K, 64)"
    text = f"      COMMIT wgmma\n      WAIT_GROUP wgmma <= {retire}\n"
    text += f"      IF ko >= {after}:\n{arrive(8)}" if after else arrive(6)
    text += "      a.advance(1)\n    WAIT_GROUP wgmma <= 0\n"
    match drain:
        case "loop":
            text += f"    FOR d in 0..min({left}, {trips}):\n{arrive(6)}" if left else ""
        case "conditions":
            text += "".join(f"    IF {trips} > {d}:\n{arrive(6)}" for d in range(left))
        case _:
            text += arrive(4) * left
    text = GEMM[:first] + text + GEMM[last:]
    for old in ("full[3]", "empty[3]", "slots 3", "FOR i in 0..3", "_s: bfloat16[3,"):
        text = text.replace(old, old.replace("3", str(slots)))
    return text.replace("K multiple_of 8 min 8", f"K multiple_of 8 min {least}")


def verdict(text: str) -> Certificate:
    return verify(parse_kernel(text))


@pytest.mark.parametrize(("lag", "slots", "least", "drain"), [
    (0, 1, 0, "loop"), (0, 3, 0, "loop"), (1, 2, 0, "loop"), (1, 2, 0, "conditions"), (1, 3, 8, "plain"), (2, 3, 0, "loop"), (2, 4, 0, "conditions"),
    (2, 3, 128, "plain"), (3, 4, 0, "loop"), (3, 5, 8, "conditions"), (3, 4, 192, "plain"),
])  # fmt: skip
def test_releases_may_lag(lag: int, slots: int, least: int, drain: str) -> None:
    verdict(lagging(lag, slots, least, drain=drain)).require()


def by_warpgroup(lag: int) -> str:
    """gemm.kir with one release for each warpgroup, by a thread that has met the others at the warpgroup's named barrier."""
    text = lagging(lag, 3)
    for indent in (6, 8):
        alone = f"{' ' * indent}IF threadIdx.x % 32 == 0:\n{' ' * indent}  ARRIVE empty[r.slot]\n"
        text = text.replace(f"\n{alone}", f"\n{' ' * indent}SYNC named threadIdx.y, 128\n{alone.replace('threadIdx.x % 32', 'threadIdx.x')}")
    return text.replace("count 8", "count 2")


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_a_thread_may_release_for_its_warpgroup(lag: int) -> None:
    assert "SYNC named threadIdx.y, 128\n" + " " * (8 if lag else 6) + "IF threadIdx.x == 0:" in by_warpgroup(lag)
    verdict(by_warpgroup(lag)).require()


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize(
    "changes",
    [
        (("SYNC named threadIdx.y, 128\n{}IF threadIdx.x == 0:\n{}  ARRIVE", "PASS\n{}IF threadIdx.x == 0:\n{}  ARRIVE"),),
        (("IF threadIdx.x == 0:\n{}  ARRIVE empty", "IF threadIdx.x == 0 && threadIdx.y == 1:\n{}  ARRIVE empty"), ("count 2", "count 1")),
        (("SYNC named threadIdx.y, 128\n{}IF threadIdx.x == 0:\n{}  ARRIVE", "SYNC warp\n{}IF threadIdx.x == 0:\n{}  ARRIVE"),),
    ],
    ids=["nobody meets it", "one warpgroup for both", "its own warp alone"],
)
def test_but_it_must_have_met_all_of_it(lag: int, changes: tuple[tuple[str, str], ...]) -> None:
    text = by_warpgroup(lag)
    for old, new in changes:
        for indent in (" " * 6, " " * 8):
            text = text.replace(old.replace("{}", indent), new.replace("{}", indent))
    assert text != by_warpgroup(lag)
    assert not verdict(text).is_proved


@pytest.mark.parametrize("barrier", ["SYNC named threadIdx.y, 128", "SYNC named 3, 256"])
def test_and_past_its_own_retire(barrier: str) -> None:
    """A warp that waits for has its own part of a wgmma behind it: the thread that arrives must meet the other warps after that, not before."""
    text = by_warpgroup(0).replace("SYNC named threadIdx.y, 128", barrier)
    if "256" in barrier:
        text = text.replace("IF threadIdx.x == 0:\n        ARRIVE empty", "IF threadIdx.x == 0 && threadIdx.y == 1:\n        ARRIVE empty").replace(
            "count 2", "count 1"
        )
    verdict(text).require()
    behind = f"WAIT_GROUP wgmma <= 0\n      {barrier}\n"
    assert text.count(behind) == 1
    assert not verdict(text.replace(behind, f"{barrier}\n      WAIT_GROUP wgmma <= 0\n")).is_proved


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_a_wgmma_more_in_flight_is_refuted(lag: int) -> None:
    assert verdict(lagging(lag, lag + 2, retire=lag + 1)).verdict is Verdict.REFUTED


@pytest.mark.parametrize(("lag", "after", "left"), [(1, 0, None), (2, 1, None), (2, None, 3)])
def test_a_release_too_early_is_refuted(lag: int, after: int | None, left: int | None) -> None:
    assert verdict(lagging(lag, 4, after=after, left=left)).verdict is Verdict.REFUTED


@pytest.mark.parametrize(("lag", "after", "left"), [(2, 3, None), (2, None, 1), (1, None, 0)])
def test_a_release_that_is_missing_is_not_proved(lag: int, after: int | None, left: int | None) -> None:
    assert not verdict(lagging(lag, 4, after=after, left=left)).is_proved


@pytest.mark.parametrize("lag", [2, 3])
def test_no_more_slots_than_the_lag_deadlock(lag: int) -> None:
    first = verdict(lagging(lag, lag, 8)).failures[0]
    assert str(first).startswith("refuted: deadlock: no thread can continue")


@pytest.mark.parametrize(("lag", "least"), [(1, 0), (2, 64)])
def test_a_drain_of_more_than_there_was_is_not_proved(lag: int, least: int) -> None:
    assert not verdict(lagging(lag, lag + 1, least, drain="plain")).is_proved


def test_a_drain_that_waits_for_what_needs_it_is_not_proved() -> None:
    """The consumer drains only after a wait for the next fill of a ring without room for it."""
    text = lagging(1, 2, 72, drain="plain")
    wait = "      WAIT full[a.slot] parity a.parity\n"
    assert wait in text
    moved = text.replace("    WAIT_GROUP wgmma <= 0\n", "    WAIT full[a.slot] parity a.parity\n    WAIT_GROUP wgmma <= 0\n")
    assert not verdict(moved).is_proved


STAGED = """\
KERNEL staged(x: float32[N, 64]) -> (y: float32[N, 64])
  DIM N
  TENSORMAP to = y box (1, 64) swizzle 0
  GRID (1, 1, 1)  BLOCK (64, 1, 1)
  SHARED s: float32[SLOTS, 1, 64] align 128

c = CURSOR(slots SLOTS, slot 0, parity 0)
FOR i in 0..N:
  IF threadIdx.x == 0:
    WAIT_GROUP bulk.read <= LEFT
  SYNC block  # the slot has been read
  s[c.slot, 0, threadIdx.x] = exp(x[i, threadIdx.x])
  FENCE proxy.async
  SYNC block  # the slot is written
  IF threadIdx.x == 0:
    TMA to(i, 0) <- s[c.slot, 0, 0]
    COMMIT bulk
  c.advance(1)
IF threadIdx.x == 0:
  WAIT_GROUP bulk <= 0
"""


def staged(slots: int, left: int) -> str:
    return STAGED.replace("SLOTS", str(slots)).replace("LEFT", str(left))


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_stores_from_a_ring_inside_one_role(slots: int) -> None:
    verdict(staged(slots, slots - 1)).require()
    verdict(staged(slots, 0)).require()
    late = verdict(staged(slots, slots)).failures[0]
    assert str(late).startswith("refuted: s: race: nothing orders a read and a write of one element")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  FENCE proxy.async\n", ""),
        ("  SYNC block  # the slot is written\n", ""),
        ("  SYNC block  # the slot has been read\n", ""),
        ("    COMMIT bulk\n", ""),
        ("  IF threadIdx.x == 0:\n    WAIT_GROUP bulk.read <= 1\n", "  IF threadIdx.x == 1:\n    WAIT_GROUP bulk.read <= 1\n"),
        ("  c.advance(1)\n", ""),
        ("IF threadIdx.x == 0:\n  WAIT_GROUP bulk <= 0\n", ""),
    ],
)
def test_mutants_of_such_stores_are_refuted(old: str, new: str) -> None:
    text = staged(2, 1)
    assert old in text
    assert verdict(text.replace(old, new)).verdict is Verdict.REFUTED


POSITIONS = """\
KERNEL staged(x: float32[M, N, EACH, 64]) -> (y: float32[M, N, EACH, 64])
  DIM M, N
  TENSORMAP to = y box (1, 1, 1, 64) swizzle 0
  GRID (1, 1, 1)  BLOCK (64, 1, 1)
  SHARED s: float32[SLOTS, 1, 64] align 128

c = CURSOR(slots SLOTS, slot 0, parity 0)
FOR i in 0..M:
  FOR j in 0..N:
    FOR k in 0..EACH UNROLL:
      IF threadIdx.x == 0:
        WAIT_GROUP bulk.read <= LEFT
      SYNC block  # the slot has been read
      s[c.slot, 0, threadIdx.x] = exp(x[i, j, k, threadIdx.x])
      FENCE proxy.async
      SYNC block  # the slot is written
      IF threadIdx.x == 0:
        TMA to(i, j, k, 0) <- s[c.slot, 0, 0]
        COMMIT bulk
      c.advance(1)
IF threadIdx.x == 0:
  WAIT_GROUP bulk <= 0
"""


def positions(slots: int, each: int, left: int) -> str:
    return POSITIONS.replace("SLOTS", str(slots)).replace("EACH", str(each)).replace("LEFT", str(left))


@pytest.mark.parametrize(("slots", "each"), [(1, 2), (2, 2), (2, 3), (2, 4), (3, 2), (4, 2)])
def test_several_positions_in_one_iteration(slots: int, each: int) -> None:
    verdict(positions(slots, each, slots - 1)).require()
    late = verdict(positions(slots, each, slots)).failures[0]
    assert str(late).startswith("refuted: s: race: nothing orders a read and a write of one element")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("      FENCE proxy.async\n", ""),
        ("      SYNC block  # the slot is written\n", ""),
        ("      SYNC block  # the slot has been read\n", ""),
        ("        COMMIT bulk\n", ""),
        ("      c.advance(1)\n", ""),
        ("      c.advance(1)\n", "      IF k == 0:\n        c.advance(1)\n"),
        ("      c.advance(1)\n", "    c.advance(1)\n"),
        ("      c.advance(1)\n", "      IF threadIdx.x < 32:\n        c.advance(1)\n"),
        ("      c.advance(1)\n", "      IF threadIdx.x < i:\n        c.advance(1)\n"),
    ],
)
def test_mutants_of_several_positions_are_refuted(old: str, new: str) -> None:
    text = positions(2, 2, 1)
    assert old in text
    assert verdict(text.replace(old, new)).verdict is Verdict.REFUTED


def test_whoever_arrives_has_waited() -> None:
    """Threads that neither wait nor advance arrive at slot 0 again and again."""
    text = RING.replace("    WAIT empty[p.slot] parity p.parity\n", "    IF threadIdx.x < 16:\n      WAIT empty[p.slot] parity p.parity\n")
    text = text.replace("    s[p.slot, threadIdx.x] = mul(x[k, threadIdx.x], 2.0)\n", "")
    text = text.replace("    p.advance(1)\n", "    IF threadIdx.x < 16:\n      p.advance(1)\n")
    certificate = verdict(text)
    assert certificate.verdict is Verdict.REFUTED
    assert "the threads that arrive at a position are not those that waited for it" in str(certificate)


def test_threads_may_carry_a_cursor_that_one_waits_with() -> None:
    text = RING.replace("    WAIT empty[p.slot] parity p.parity\n", "    IF threadIdx.x == 0:\n      WAIT empty[p.slot] parity p.parity\n    SYNC warp\n")
    text = text.replace("    ARRIVE full[p.slot]\n", "    SYNC warp\n    IF threadIdx.x == 0:\n      ARRIVE full[p.slot]\n")
    one = text.replace("INIT full[i] count 32", "INIT full[i] count 1")
    certificate = verdict(one)
    assert "proved: ring full/empty" in str(certificate)
    few = verdict(text.replace("      ARRIVE full[p.slot]", "      PASS"))
    assert few.verdict is Verdict.REFUTED


DOUBLE = (KERNELS / "double.kir").read_text(encoding="utf-8")


def test_initialization_must_be_fenced_for_the_copy_engine() -> None:
    text = DOUBLE.replace("  FENCE mbarrier_init\n", "")
    assert text != DOUBLE
    verdict(DOUBLE).require()
    first = verdict(text).failures[0]
    assert first.verdict is Verdict.REFUTED
    assert first.reason == "the copy engine may use it before its initialization is visible: without an mbarrier_init fence of the initializer"


UNUSED = """\
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  MBARRIER b[2]

IF threadIdx.x {who}:
  INIT b[{first}] count 1
  INIT b[{second}] count 1
SYNC block
FOR k in 0..0:
  IF threadIdx.x == 0:
    ARRIVE b[0]
    ARRIVE b[1]
FOR k in 0..N:
  IF threadIdx.x == 0:
    y[k] = copy(x[k])
"""


@pytest.mark.parametrize(
    ("who", "first", "second", "reason"),
    [
        ("== 0", 0, 1, ""),
        ("== 3", 1, 0, ""),
        ("< 2", 0, 1, "2 threads initialize it"),
        ("!= 0", 0, 1, "31 threads initialize it"),
        ("== 0", 1, 1, "a slot is initialized twice"),
    ],
)
def test_an_mbarrier_that_nobody_uses_is_initialized_once_too(who: str, first: int, second: int, reason: str) -> None:
    certificate = verdict(UNUSED.format(who=who, first=first, second=second))
    assert certificate.is_proved is not bool(reason)
    assert all(reason in o.reason for o in certificate.argument if o.verdict is not Verdict.PROVED)
    assert certificate.verdict is (Verdict.REFUTED if reason else Verdict.PROVED)


EACH = """\
KERNEL k(x: float32[64]) -> (y: float32[64])
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[2, 32]
  MBARRIER b[4]

{init}
SYNC block
s[threadIdx.y, threadIdx.x] = copy(x[32*threadIdx.y + threadIdx.x])
ARRIVE b[0]
WAIT b[0] parity 0
ARRIVE b[1]
WAIT b[1] parity 0
ARRIVE b[2]
WAIT b[2] parity 0
ARRIVE b[3]
WAIT b[3] parity 0
y[32*threadIdx.y + threadIdx.x] = copy(s[1 - threadIdx.y, threadIdx.x])
"""
INITIALIZERS = {
    "each thread one": ("IF threadIdx.x < 4 && threadIdx.y == 0:\n  INIT b[threadIdx.x] count 64", ""),
    "one thread of each warp": ("IF threadIdx.x == 7:\n  FOR i in 0..2:\n    INIT b[2*i + threadIdx.y] count 64", ""),
    "in a loop of other steps": ("IF threadIdx.x == 7 && threadIdx.y == 1:\n  FOR i in 0..8 step 2:\n    INIT b[i//2] count 64", ""),
    "of a condition on the loop": ("FOR i in 0..32:\n  IF threadIdx.x == i && threadIdx.y == 0 && i % 8 == 3:\n    INIT b[i//8] count 64", ""),
    "two threads one": ("IF threadIdx.x < 8 && threadIdx.y == 0:\n  INIT b[threadIdx.x//2] count 64", "a slot is initialized twice"),
    "both warps": ("IF threadIdx.x < 4:\n  INIT b[threadIdx.x] count 64", "a slot is initialized twice"),
    "one is left out": ("IF threadIdx.x < 3 && threadIdx.y == 0:\n  INIT b[threadIdx.x] count 64", "slots [3] are never initialized"),
    "twice in a loop": ("IF threadIdx.x == 7:\n  FOR i in 0..3:\n    INIT b[i + threadIdx.y] count 64", "a slot is initialized twice"),
}


@pytest.mark.parametrize("name", INITIALIZERS)
def test_several_threads_may_initialize_mbarriers_each_its_own(name: str) -> None:
    init, reason = INITIALIZERS[name]
    certificate = verdict(EACH.format(init=init))
    assert certificate.is_proved is not bool(reason)
    assert all(reason in o.reason for o in certificate.argument if o.verdict is not Verdict.PROVED)
    assert certificate.verdict is (Verdict.REFUTED if reason else Verdict.PROVED)


PHASES = """\
KERNEL k(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[32]
  MBARRIER b[1]

IF threadIdx.x == 0:
  INIT b[0] count 32
SYNC block
s[threadIdx.x] = copy(x[threadIdx.x])
ARRIVE b[0]
WAIT b[0] parity 0
y[threadIdx.x] = copy(s[31 - threadIdx.x])
ARRIVE b[0]
WAIT b[0] parity 1
s[threadIdx.x] = copy(1.0)
SYNC block
ARRIVE b[0]
WAIT b[0] parity 0
"""


def test_phases_may_be_counted_in_the_text() -> None:
    assert verdict(PHASES).is_proved


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("WAIT b[0] parity 1", "WAIT b[0] parity 0", "it counts 32 arrivals, but gets 96"),
        ("ARRIVE b[0]\nWAIT b[0] parity 1", "IF threadIdx.x < 16:\n  ARRIVE b[0]\n  WAIT b[0] parity 1", "threads with true synchronize at it, too"),
        ("ARRIVE b[0]\nWAIT b[0] parity 1\n", "", "it counts 32 arrivals, but gets 64"),
    ],
)
def test_parities_alternate(old: str, new: str, reason: str) -> None:
    certificate = verdict(PHASES.replace(old, new, 1))
    assert certificate.verdict is Verdict.REFUTED
    assert reason in str(certificate)


def test_a_phase_under_a_condition_may_be_left_out() -> None:
    """The parities behind it then name other phases."""
    text = PHASES.replace("GRID", "DIM N\n  GRID").replace("ARRIVE b[0]\nWAIT b[0] parity 1", "IF N > 5:\n  ARRIVE b[0]\n  WAIT b[0] parity 1")
    assert verdict(text).verdict is Verdict.REFUTED


WALK = """\
KERNEL walk(x: float32[N, 3, 32]) -> (y: float32[N, 3, 32])
  DIM N
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[SLOTS, 32] align 16
  MBARRIER full[SLOTS], empty[SLOTS]

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR i in 0..SLOTS:
    INIT full[i] count 32
    INIT empty[i] count 32
SYNC block
IF threadIdx.y == 0:
  p = CURSOR(slots SLOTS, slot 0, parity 1)
  FOR k in 0..N:
    FOR j in 0..TRIPS:
      WAIT empty[p.slot] parity p.parity
      s[p.slot, threadIdx.x] = copy(x[k, j, threadIdx.x])
      ARRIVE full[p.slot]
      p.advance(1)
ELSE:
  c = CURSOR(slots SLOTS, slot 0, parity 0)
  r = CURSOR(slots SLOTS, slot 0, parity 0)
  FOR k in 0..N:
    FOR j in 0..TRIPS:
      WAIT full[c.slot] parity c.parity
      y[k, j, threadIdx.x] = copy(s[c.slot, 31 - threadIdx.x])
      c.advance(1)
    FOR q in 0..LEFT:
      ARRIVE empty[r.slot]
      r.advance(1)
"""


@pytest.mark.parametrize(
    ("slots", "trips", "left", "verdict"),
    [
        (2, "2", "2", Verdict.PROVED),
        (3, "min(k, 3)", "min(k, 3)", Verdict.PROVED),
        (2, "min(k, 3)", "min(k, 3)", Verdict.REFUTED),  # the third fill needs a slot of the same walk
        (3, "3", "2", Verdict.REFUTED),
        (3, "min(N, 3)", "3", Verdict.REFUTED),
        (3, "N", "N", Verdict.REFUTED),
    ],
)
def test_a_loop_behind_may_release_all_that_one_waited_for(slots: int, trips: str, left: str, verdict: Verdict) -> None:
    text = WALK.replace("SLOTS", str(slots)).replace("TRIPS", trips).replace("LEFT", left)
    assert verify(parse_kernel(text)).verdict is verdict
