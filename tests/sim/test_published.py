"""What the copy engine need not see of tensors in Global memory: writes of threads and of stores without their proxy fence, in every interleaving."""

import numpy as np
import pytest

from taskfuse.kir import parse_kernel
from taskfuse.sim import explore
from tests.sim.kernels import error, errors, replaced

REREAD = """\
KERNEL reread(x: float32[8, 32]) -> (y: float32[8, 32], z: float32[8, 32])
  TENSORMAP m = y box (8, 32) swizzle 0
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[8, 32] align 128
  MBARRIER full[1]

IF threadIdx.x == 0:
  INIT full[0] count 1
  FENCE mbarrier_init
SYNC block
FOR i in 0..8:
  y[i, threadIdx.x] = copy(x[i, threadIdx.x])
FENCE proxy.async.global
SYNC block
IF threadIdx.x == 0:
  EXPECT full[0] bytes 1024
  TMA s[0, 0] <- m(0, 0) on full[0]
WAIT full[0] parity 0
FOR i in 0..8:
  z[i, threadIdx.x] = copy(s[i, threadIdx.x])
"""
STORES = """\
KERNEL stores(x: float32[8, 32]) -> (y: float32[8, 32], z: float32[8, 32])
  TENSORMAP m = y box (8, 32) swizzle 0
  GRID (1, 1, 1)  BLOCK (64, 1, 1)
  SHARED s: float32[8, 32] align 128
  SHARED t: float32[8, 32] align 128
  MBARRIER full[1]

IF threadIdx.x == 0:
  INIT full[0] count 1
  FENCE mbarrier_init
SYNC block
IF threadIdx.x < 32:
  FOR i in 0..8:
    s[i, threadIdx.x] = copy(x[i, threadIdx.x])
  FENCE proxy.async
SYNC block
IF threadIdx.x == 0:
  TMA m(0, 0) <- s[0, 0]
  COMMIT bulk
  WAIT_GROUP bulk <= 0
  FENCE proxy.async.global
SYNC block
IF threadIdx.x == 32:
  EXPECT full[0] bytes 1024
  TMA t[0, 0] <- m(0, 0) on full[0]
WAIT full[0] parity 0
IF threadIdx.x < 32:
  FOR i in 0..8:
    z[i, threadIdx.x] = copy(t[i, threadIdx.x])
"""
X = np.arange(256, dtype=np.float32).reshape(8, 32)
MISSING = "missing fence.proxy.async.global: Global 'y' was written by a thread and is accessed by an asynchronous engine"


@pytest.mark.parametrize("text", [REREAD, STORES])
def test_fenced_writes_are_seen(text: str) -> None:
    k = parse_kernel(text)
    assert errors(k, [X]) == {"none"}
    np.testing.assert_array_equal(k.simulate(X)[1], X)


@pytest.mark.parametrize(
    ("text", "old", "new", "found"),
    [
        (REREAD, "FENCE proxy.async.global", "PASS", MISSING),
        (REREAD, "FENCE proxy.async.global", "FENCE proxy.async", MISSING),
        (REREAD, "FENCE proxy.async.global", "IF threadIdx.x == 0:\n  FENCE proxy.async.global", MISSING),
        (STORES, "FENCE proxy.async.global", "PASS", MISSING),
        (STORES, "WAIT_GROUP bulk <= 0\n  FENCE proxy.async.global", "FENCE proxy.async.global\n  WAIT_GROUP bulk <= 0", MISSING),
        (STORES, "WAIT_GROUP bulk <= 0", "WAIT_GROUP bulk.read <= 0", "Global 'y' accessed while a TMA store that writes it may be in flight"),
    ],
)
def test_faults_under_every_schedule(text: str, old: str, new: str, found: str) -> None:
    name = "reread" if text is REREAD else "stores"
    assert errors(parse_kernel(replaced(text, old, new)), [X]) == {f"{name}: {found}"}


def test_a_thread_sees_its_own_stores() -> None:
    own = STORES.replace("IF threadIdx.x == 32:", "IF threadIdx.x == 0:")
    assert errors(parse_kernel(replaced(own, "  FENCE proxy.async.global\n", "")), [X]) == {"none"}


def test_texts() -> None:
    assert error(parse_kernel(replaced(REREAD, "FENCE proxy.async.global", "PASS")), [X]).splitlines() == [
        f"reread: {MISSING}",
        "note: statement: TMA s[0, 0] <- m(0, 0) on full[0]",
        "note: block (0, 0, 0), thread (0, 0, 0)",
        "note: written by thread 0 of block 0",
        "help: the writer must execute fence.proxy.async.global after the write, or the wait_group of its store, and before it publishes it",
    ]


def test_in_blocks_that_meet() -> None:
    """Each block's writes are read by another one past a grid barrier; a fence behind the barrier is too late."""
    text = replaced(REREAD, "GRID (1, 1, 1)", "GRID (2, 1, 1)").replace("float32[8, 32]", "float32[16, 32]")
    text = replaced(text, "SHARED s: float32[16", "SHARED s: float32[8").replace("full[1]\n", "full[1]\n  COUNTER c\n")
    for tensor in "xyz":
        text = text.replace(f"{tensor}[i, ", f"{tensor}[8*blockIdx.x + i, ")
    text = replaced(text, "m(0, 0)", "m(8 - 8*blockIdx.x, 0)").replace("global\nSYNC block", "global\nSYNC grid c, 64")
    x = np.arange(512, dtype=np.float32).reshape(16, 32)
    k = parse_kernel(text)
    assert errors(k, [x]) == {"none"}
    np.testing.assert_array_equal(k.simulate(x)[1], np.concatenate([x[8:], x[:8]]))
    late = parse_kernel(replaced(text, "FENCE proxy.async.global\nSYNC grid c, 64", "SYNC grid c, 64\nFENCE proxy.async.global"))
    assert any(MISSING in found for found in errors(late, [x]))


def test_exploration_finds_the_schedule_that_lacks_the_fence() -> None:
    """A fence that only some interleavings execute in time."""
    late = "SYNC block\nIF threadIdx.x == 0:\n  FENCE proxy.async.global\n"
    found = explore(parse_kernel(replaced(STORES, "  FENCE proxy.async.global\nSYNC block\n", late)), [X])
    assert found.failure is not None
    assert MISSING in str(found.failure)
    assert explore(parse_kernel(STORES), [X]).failure is None


ADDED = """\
KERNEL added(x: float32[8, 32], s: float32[2, 8, 32]) -> (y: float32[8, 32])
  TENSORMAP m = y box (8, 32) swizzle 0
  GRID (2, 1, 1)  BLOCK (32, 1, 1)
  SHARED t: float32[8, 32] align 128
  COUNTER c

IF blockIdx.x == 0:
  FOR i in 0..8:
    y[i, threadIdx.x] = copy(x[i, threadIdx.x])
FENCE proxy.async.global
SYNC grid c, 64
FOR i in 0..8:
  t[i, threadIdx.x] = copy(s[blockIdx.x, i, threadIdx.x])
FENCE proxy.async
SYNC block
IF threadIdx.x == 0:
  TMA m(0, 0) <- t[0, 0] by add
  COMMIT bulk
  WAIT_GROUP bulk <= 0
"""
S = np.arange(512, dtype=np.float32).reshape(2, 8, 32)


def test_boxes_of_two_blocks_are_added_without_an_order() -> None:
    k = parse_kernel(ADDED)
    assert errors(k, [X, S]) == {"none"}
    np.testing.assert_array_equal(k.simulate(X, S, seed=1)[0], X + S[0] + S[1])
    found = explore(k, [X, S])
    assert found.failure is None


def test_a_box_that_overhangs_is_added_where_there_are_elements() -> None:
    text = ADDED.replace("-> (y: float32[8, 32])", "-> (y: float32[5, 32])").replace("x: float32[8, 32]", "x: float32[5, 32]")
    k = parse_kernel(text.replace("FOR i in 0..8:\n    y", "FOR i in 0..5:\n    y"))
    np.testing.assert_array_equal(k.simulate(X[:5], S)[0], (X + S[0] + S[1])[:5])


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("FENCE proxy.async.global", "PASS", MISSING),
        ("FENCE proxy.async.global\nSYNC grid c, 64", "SYNC grid c, 64\nFENCE proxy.async.global", MISSING),
        ("FOR i in 0..8:\n    y", "FOR i in 0..7:\n    y", "update of uninitialized Global 'y'"),
    ],
)
def test_updates_of_what_is_not_there_yet(old: str, new: str, found: str) -> None:
    assert any(found in e for e in errors(parse_kernel(replaced(ADDED, old, new)), [X, S]))


def test_threads_and_the_engine_do_not_update_the_same_elements_at_once() -> None:
    behind = "SYNC grid c, 64\nIF blockIdx.x == 1:\n  UPDATE y[3, threadIdx.x] by add of x[3, threadIdx.x]\n"
    right = parse_kernel(ADDED + behind)
    expected = X + S[0] + S[1]
    expected[3] += X[3]
    assert errors(right, [X, S]) == {"none"}
    np.testing.assert_array_equal(right.simulate(X, S)[0], expected)
    found = explore(parse_kernel(ADDED + behind.removeprefix("SYNC grid c, 64\n")), [X, S])
    assert found.failure is not None
    assert "may be in flight" in str(found.failure)


def test_exploration_takes_updates_by_two_functions_in_both_orders() -> None:
    """So a kernel whose result depends on their order has two results."""
    text = """\
KERNEL both(x: int32[1]) -> (y: int32[1])
  GRID (2, 1, 1)  BLOCK (1, 1, 1)
  COUNTER c

IF blockIdx.x == 0:
  y[0] = copy(x[0])
SYNC grid c, 2
IF blockIdx.x == 0:
  UPDATE y[0] by add of x[0]
ELSE:
  UPDATE y[0] by {} of x[0]
"""
    x = np.array([5], np.int32)
    one, two = (explore(parse_kernel(text.format(f)), [x]) for f in ("add", "maximum"))
    assert one.failure is None
    assert two.interleavings > one.interleavings
