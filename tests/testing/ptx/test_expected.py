"""What kernel IR says that a thread does."""

from __future__ import annotations

import pytest

import taskfuse as tf
from taskfuse.kir.variant import ArgumentLayout
from taskfuse.testing.ptx import expected
from taskfuse.testing.ptx.events import ANY, Kind, PtxPlace, WarpLanes
from taskfuse.testing.ptx.expected import ExpectedTrace, Traces
from taskfuse.testing.ptx.launch import SHARED_AT, TENSORS_AT
from taskfuse.testing.ptx.machine import TooLong
from taskfuse.testing.updates import in_vectors
from tests.cuda.compiled import variant
from tests.testing.ptx.compiled import compared
from tests.testing.ptx.launched import launched

HEAD = """\
KERNEL k(x: float32[N, 32]) -> (y: float32[N, 32])
  DIM N
  GRID (2, 1, 1)  BLOCK {block}
  LOCAL r: float32[4]
  SHARED s: float32[64] align 128 @ 0
  MBARRIER b[2]
  COUNTER done

"""


def traces(body: str, n: int = 4, block: str = "(64, 1, 1)") -> Traces:
    return Traces(launched(HEAD.format(block=block) + body.strip("\n") + "\n", N=n))


def trace(body: str, thread: int = 3, n: int = 4, block: int = 0) -> ExpectedTrace:
    return traces(body, n).thread((block, 0, 0), (thread, 0, 0))


def steps(body: str, thread: int = 3, n: int = 4, block: int = 0) -> list[tuple[object, ...]]:
    return [(s.kind, *s.operands) for s in trace(body, thread, n, block).steps]


# -- memory -------------------------------------------------------------------------------------------------------------------------------


def test_accesses_stand_in_front_of_the_step_that_orders_them() -> None:
    found = trace("s[threadIdx.x] = copy(x[0, 0])\nSYNC block\ny[0, threadIdx.x % 32] = copy(s[63 - threadIdx.x])")
    (sync,) = found.steps
    assert (sync.kind, sync.operands) == (Kind.BARRIER, (0, 64))
    assert (sync.stores, sync.loads) == (((SHARED_AT + 12, 4),), ())
    assert (found.stores, found.loads) == ([], [(SHARED_AT + 240, 4)])
    assert found.tensor_loads == [(TENSORS_AT, 4)]
    assert len(found.tensor_stores) == 1


def test_vectors_and_choices() -> None:
    found = trace("COPY r[0] <- x[0, 4] width 4\nCOPY y[0, 4] <- r[0] width 4")
    assert found.tensor_loads == [(TENSORS_AT + 16, 16)]
    chosen = trace("y[0, 0] = cat(s[0] if threadIdx.x < 3, s[1] if threadIdx.x >= 3)")
    assert chosen.loads == [(SHARED_AT + 4, 4)]


# -- control ------------------------------------------------------------------------------------------------------------------------------


def test_loops_branches_and_cursors() -> None:
    text = "c = CURSOR(slots 2, slot 0, parity 1)\nFOR k in 0..N:\n  IF threadIdx.x == 3:\n    WAIT b[c.slot] parity c.parity\n  c.advance(1)"
    waits = steps(text, n=3)
    operands = [(PtxPlace("b", 0), 1), (PtxPlace("b", 8), 1), (PtxPlace("b", 0), 0)]
    assert waits == [(Kind.WAIT, "acquire cta shared::cta", *o) for o in operands for _ in range(2)]  # first it does not pass, then it does
    assert [s.result for s in trace(text, n=1).steps] == [0, 1]
    assert steps(text, thread=4) == []
    assert steps(text, n=0) == []


def test_a_thread_that_does_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "MOST", 10)
    with pytest.raises(TooLong):
        trace("FOR k in 0..N:\n  SYNC block", n=11)


# -- steps --------------------------------------------------------------------------------------------------------------------------------


def test_mbarriers() -> None:
    text = "INIT b[1] count 7\nARRIVE b[0]\nEXPECT b[1] bytes 32*N\nARRIVE.async b[0]"
    assert steps(text) == [
        (Kind.INIT, PtxPlace("b", 8), 7),
        (Kind.ARRIVE, "release cta shared::cta", PtxPlace("b", 0), 1),
        (Kind.EXPECT, "release cta shared::cta", PtxPlace("b", 8), 128),
        (Kind.COPY_ARRIVE, "noinc.shared", PtxPlace("b", 0)),
    ]


def test_copies_that_are_not_valid_may_come_from_anywhere() -> None:
    text = "COPY.async s[threadIdx.x] <- x[0, threadIdx.x % 32] width 1 if threadIdx.x < N"
    assert steps(text, thread=3) == [(Kind.COPY, SHARED_AT + 12, TENSORS_AT + 12, 4, 4)]
    assert steps(text, thread=5) == [(Kind.COPY, SHARED_AT + 20, ANY, 4, 0)]


def test_queues() -> None:
    assert steps("COMMIT copy\nWAIT_GROUP copy <= 1\nCOMMIT bulk\nWAIT_GROUP bulk.read <= 0\nWAIT_GROUP bulk <= 2") == [
        (Kind.COPY_COMMIT,),
        (Kind.COPY_WAIT, 1),
        (Kind.BULK_COMMIT,),
        (Kind.BULK_WAIT_READ, 0),
        (Kind.BULK_WAIT, 2),
    ]


def test_barriers_of_some() -> None:
    assert steps("SYNC named 3, 32") == [(Kind.BARRIER, 3, 32)]
    ((kind, lanes),) = steps("SYNC warp")
    assert kind is Kind.WARP_BARRIER
    assert isinstance(lanes, WarpLanes)


def test_a_barrier_of_the_grid_is_one_thread_of_each_block_between_two_of_the_block() -> None:
    text = "SYNC grid done, 128"
    assert [s[0] for s in steps(text, thread=5)] == [Kind.BARRIER] * 2
    first = steps(text, thread=0)
    assert [s[0] for s in first] == [Kind.BARRIER, Kind.FENCE, Kind.COUNT, Kind.ACQUIRE, Kind.ACQUIRE, Kind.BARRIER]
    assert first[2][2:] == (PtxPlace("done", 0), 1)
    results = [s.result for s in trace(text, thread=0).steps]
    assert results[2] // 2 == 2  # in the third round of two blocks
    assert results[3:5] == [5, 6]  # it waits for the end of that round
    some = [s[0] for s in steps("SYNC grid done, 64", thread=5)]
    assert some == [Kind.FENCE, Kind.COUNT, Kind.ACQUIRE, Kind.ACQUIRE]


def test_registers_and_fences() -> None:
    text = "SETMAXNREG 232\nSETMAXNREG 24\nFENCE proxy.async\nFENCE proxy.async.global\nFENCE mbarrier_init\nFENCE wgmma"
    assert [(s.kind, *s.operands) for s in traces(text, block="(384, 1, 1)").thread((0, 0, 0), (0, 0, 0)).steps] == [
        (Kind.REGISTERS, "inc", 232),
        (Kind.REGISTERS, "dec", 24),
        (Kind.FENCE, "proxy.async.shared::cta"),
        (Kind.FENCE, "proxy.async.global"),
        (Kind.FENCE, "mbarrier_init.release.cluster"),
        (Kind.WGMMA_FENCE,),
    ]


def test_the_lanes_that_come_to_a_statement_so_often() -> None:
    made = traces("FOR k in 0..threadIdx.x:\n  SYNC warp", block="(40, 1, 1)")
    (step, *more) = made.thread((0, 0, 0), (3, 0, 0)).steps
    (lanes,) = step.operands
    assert isinstance(lanes, WarpLanes)
    assert len(more) == 2
    assert made.lanes((0, 0, 0), (3, 0, 0), lanes) == ((1 << 32) - 2, (1 << 32) - 1)  # all but the first, which has no trip
    later = more[-1].operands[0]
    assert isinstance(later, WarpLanes)
    assert made.lanes((0, 0, 0), (3, 0, 0), later) == ((1 << 32) - 8, (1 << 32) - 1)
    assert made.lanes((0, 0, 0), (35, 0, 0), lanes) == (0xFF, 0xFF)  # a warp of 8 lanes


def test_shuffles_order_no_memory() -> None:
    found = trace("s[0] = copy(r[0])\nSHUFFLE r[1] <- r[0] xor 16\nSYNC block")
    shuffle, sync = found.steps
    assert shuffle.operands[:3] == ("bfly", 16, 31)
    assert shuffle.stores == ()
    assert sync.stores == ((SHARED_AT, 4),)


@pytest.mark.parametrize("layout", ArgumentLayout)
def test_updates_of_vectors_in_every_layout(layout: ArgumentLayout) -> None:
    """One instruction, or one for each element where the output has no vectors."""
    kernel = tf.lower(in_vectors(2))
    assert compared(kernel, variant(kernel, layout)).difference is None
