"""Operations in flight, and barriers that mix: each kernel is refuted, exploration finds a schedule that fails, and its twin is proved."""

import numpy as np
import pytest

from taskfuse.check import Verdict
from taskfuse.check.counterexample import counterexample
from taskfuse.kir import Kernel, parse_kernel

HEAD = """\
KERNEL small(x: float32[2, 32]) -> (y: float32[2, 32])
  TENSORMAP x.map = x box (1, 32) swizzle 0
  TENSORMAP y.map = y box (1, 32) swizzle 0
  GRID (1, 1, 1)  BLOCK (32, ROWS, 1)
  SHARED a: float32[32] align 128
  SHARED b: float32[32] align 128
"""
LOADS = """\
  MBARRIER fa[1], fb[1]

IF threadIdx.x == 0:
  INIT fa[0] count 1
  INIT fb[0] count 1
  FENCE mbarrier_init
SYNC block
IF threadIdx.x == 0:
  EXPECT fa[0] bytes 128
  TMA a[0] <- x.map(0, 0) on fa[0]
  EXPECT fb[0] bytes 128
  TMA b[0] <- x.map(1, 0) on fb[0]
"""
UNSEEN = """\
WAIT fb[0] parity 0
y[1, threadIdx.x] = copy(b[threadIdx.x])
"""
OTHER_LOAD = """\
WAIT fb[0] parity 0
y[0, threadIdx.x] = copy(a[threadIdx.x])
WAIT fa[0] parity 0
"""
COPIES = """\
  MBARRIER fa[1]

IF threadIdx.x == 0:
  INIT fa[0] count 32
SYNC block
COPY.async b[threadIdx.x] <- x[0, threadIdx.x] width 1
ARRIVE.async fa[0]
y[0, threadIdx.x] = copy(0.0)
y[1, threadIdx.x] = copy(0.0)
"""
STORE = """\

b[threadIdx.x] = copy(x[0, threadIdx.x])
FENCE proxy.async
SYNC block
IF threadIdx.x == 0:
  TMA y.map(0, 0) <- b[0]
  COMMIT bulk
  WAIT_GROUP bulk.read <= 0
  y[0, 0] = copy(0.0)
  WAIT_GROUP bulk <= 0
"""
MEETINGS = """\

IF threadIdx.y == 0:
  a[threadIdx.x] = copy(x[0, threadIdx.x])
  SYNC named 1, 32
  y[0, threadIdx.x] = copy(a[31 - threadIdx.x])
ELSE:
  b[threadIdx.x] = copy(x[1, threadIdx.x])
  SYNC named 1, 32
  y[1, threadIdx.x] = copy(b[31 - threadIdx.x])
"""
COUNTS = """\

SYNC named 1, 64 - 32*threadIdx.y
"""


def kernel(body: str) -> Kernel:
    return parse_kernel(HEAD.replace("ROWS", "2" if "threadIdx.y" in body else "1") + body)


# kernel, what is changed in its twin, to what, the counterexample
FOUND = {
    "a load that nobody waits for": (
        LOADS + UNSEEN,
        ("WAIT fb[0]", "WAIT fa[0] parity 0\nWAIT fb[0]"),
        "fa[0]: the block may exit while a TMA load is in flight: no thread waits for it",
    ),
    "a wait for a later load": (
        LOADS + OTHER_LOAD,
        ("WAIT fb[0] parity 0\ny", "WAIT fb[0] parity 0\nWAIT fa[0] parity 0\ny"),
        "a: race: nothing orders a write and a read of one element",
    ),
    "a store whose source has been read is not written": (
        STORE,
        ("bulk.read", "bulk"),
        "y: race: nothing orders a write and a write of one element",
    ),
    "two roles meet at one named barrier": (
        MEETINGS,
        ("SYNC named 1, 32\n  y[1", "SYNC named 2, 32\n  y[1"),
        "SYNC named 1: nothing orders an arrival after the preceding completion of the barrier, so threads of two rounds may mix",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_it_is_refuted(name: str) -> None:
    bad, _, reason = FOUND[name]
    certificate = kernel(bad).verify()
    assert certificate.verdict is Verdict.REFUTED
    assert reason in [f"{o.subject}: {o.reason}" for o in certificate.failures]


@pytest.mark.parametrize("name", FOUND)
def test_a_schedule_fails(name: str) -> None:
    bad, _, _ = FOUND[name]
    values = np.arange(64, dtype=np.float32).reshape(2, 32) + 1
    assert "an interleaving fails" in str(kernel(bad).explore(values, in_step=16))


@pytest.mark.parametrize("name", FOUND)
def test_its_twin_is_proved(name: str) -> None:
    bad, (old, new), _ = FOUND[name]
    assert bad.count(old) == 1
    kernel(bad.replace(old, new)).verify().require()


def test_threads_that_meet_expect_as_many() -> None:
    certificate = kernel(COUNTS).verify()
    assert "SYNC named 1: participants expect different numbers of threads" in [f"{o.subject}: {o.reason}" for o in certificate.failures]


def test_somebody_waits_for_an_arrival_behind_copies() -> None:
    bad = kernel(COPIES)
    certificate = bad.verify()
    assert certificate.verdict is Verdict.REFUTED
    assert certificate.failures[0].reason == "it exits while an asynchronous copy of its may be in flight"
    assert "the block exits while 1 arrivals for asynchronous copies are outstanding" in str(bad.explore(np.ones((2, 32), np.float32)))
    good = kernel(COPIES + "WAIT fa[0] parity 0\n")
    good.verify().require()
    assert "all interleavings end" in str(good.explore(np.ones((2, 32), np.float32)))


def test_a_thread_may_commit_nothing() -> None:
    assert counterexample(kernel("\nCOMMIT copy\n"), {}) is None


RING = """\
  SHARED r: float32[2, 32] align 128
  MBARRIER full[2], empty[2]

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR i in 0..2:
    INIT full[i] count COUNT
    INIT empty[i] count 32
  FENCE mbarrier_init
SYNC block
IF threadIdx.y == 0:
  p = CURSOR(slots 2, slot 0, parity 0)
  BRING
ELSE:
  c = CURSOR(slots 2, slot 0, parity 1)
  FOR k in 0..4:
    WAIT full[c.slot] parity c.parity
    y[k % 2, threadIdx.x] = copy(1.0)
    ARRIVE empty[c.slot]
    c.advance(1)
"""
LOAD = """\
IF threadIdx.x == 0:
    FOR k in 0..4:
      WAIT empty[p.slot] parity p.parity
      EXPECT full[p.slot] bytes 128
      TMA r[p.slot, 0] <- x.map(k % 2, 0) on full[p.slot]
      p.advance(1)
"""
COPY = """\
FOR k in 0..4:
    WAIT empty[p.slot] parity p.parity
    COPY.async r[p.slot, threadIdx.x] <- x[k % 2, threadIdx.x] width 1
    ARRIVE.async full[p.slot]
    p.advance(1)
"""
LAST = "a consumer arrives by ARRIVE.async: its last copies may be in flight at exit"


@pytest.mark.parametrize(
    ("bring", "count", "failure"),
    [
        (LOAD, 1, "the block exits while 2 TMA loads are in flight"),
        (LOAD.replace("bytes 128", "bytes 256"), 1, "deadlock"),
        (COPY, 32, "arrivals for asynchronous copies are outstanding"),
    ],
)
def test_copies_that_bring_what_a_ring_calls_empty(bring: str, count: int, failure: str) -> None:
    """Both ends with the other one's parity: whoever copies is the consumer, and nobody waits for the last positions."""
    bad = kernel(RING.replace("COUNT", str(count)).replace("BRING", bring.rstrip("\n")))
    certificate = bad.verify()
    assert not certificate.is_proved
    assert LAST in [o.reason for o in certificate.argument if o.verdict is not Verdict.PROVED]
    assert failure in str(bad.explore(np.ones((2, 32), np.float32)))
