"""TMA loads and stores: boxes, swizzles, clipping, and what they must be ordered with."""

import numpy as np
import numpy.typing as npt
import pytest

from taskfuse.ir.values import MODULAR
from taskfuse.kir import parse_kernel
from taskfuse.sim import Interleaving
from tests.sim.kernels import error, errors, kernel, load, replaced, run_all, without

DOUBLE = load("double")


def _rows(m: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((m, 32)).astype(np.float32)


@pytest.mark.parametrize("m", [1, 8, 19])
def test_boxes_that_overhang_are_filled_and_clipped(m: int) -> None:
    run_all(parse_kernel(DOUBLE), [_rows(m)], 2 * _rows(m))


def test_in_the_ring() -> None:
    k = parse_kernel(DOUBLE)
    words = MODULAR.encode(_rows(9), k.inputs[0].dtype)
    two = MODULAR.literal(2.0, k.inputs[0].dtype)
    run_all(k, [_rows(9)], words * two, values=MODULAR)


def test_outside_the_tensor_a_box_reads_zero() -> None:
    text = replaced(DOUBLE, "map_y(8*blockIdx.x, 0) <- s[0, 0]", "map_y(8*blockIdx.x - 1, 0) <- s[0, 0]")
    text = replaced(text, "map_x(8*blockIdx.x, 0)", "map_x(8*blockIdx.x - 1, -4)")
    x = _rows(7)
    expected = np.zeros((7, 32), np.float32)
    expected[:, 4:] = 2 * x[:, :-4]
    run_all(parse_kernel(text), [x], expected)


def test_a_box_takes_every_third_row() -> None:
    text = replaced(DOUBLE, "map_x = x box (8, 32) swizzle 0", "map_x = x box (8, 32) step (3, 1) swizzle 0")
    text = replaced(text, "map_x(8*blockIdx.x, 0)", "map_x(24*blockIdx.x - 2, 0)")
    x = _rows(19)
    expected = np.zeros((19, 32), np.float32)
    expected[1:7] = 2 * x[1::3]
    run_all(parse_kernel(text), [x], expected)


def test_a_box_begins_at_multiples_of_16_bytes_of_the_last_axis() -> None:
    text = replaced(DOUBLE, "map_x(8*blockIdx.x, 0)", "map_x(8*blockIdx.x, -1)")
    assert "TMA at byte -4 along the last axis of input 'x', not a multiple of 16" in error(parse_kernel(text), [_rows(7)])


@pytest.mark.parametrize(("span", "chunk"), [(32, "r % 8//4"), (64, "r % 8//2"), (128, "r % 8")])
def test_swizzles(span: int, chunk: str) -> None:
    """A row of ``span`` bytes has its 16-byte chunks permuted by its number in the period."""
    columns = span // 4
    k = kernel(
        f"""
        IF threadIdx.x == 0:
          INIT full[0] count 1
          FENCE mbarrier_init
        SYNC block
        IF threadIdx.x == 0:
          EXPECT full[0] bytes {16 * span}
          TMA s[0, 0] <- map_x(0, 0) on full[0]
        WAIT full[0] parity 0
        FOR r in 0..16:
          y[r, threadIdx.x] = copy(s[r, 4*xor(threadIdx.x//4, {chunk}) + threadIdx.x % 4])
        """,
        f"TENSORMAP map_x = x box (16, {columns}) swizzle {span}",
        f"SHARED s: float32[16, {columns}] align 1024",
        "MBARRIER full[1]",
        inputs=f"x: float32[16, {columns}]",
        outputs=f"y: float32[16, {columns}]",
        block=f"({columns}, 1, 1)",
    )
    x = np.arange(16 * columns, dtype=np.float32).reshape(16, columns)
    run_all(k, [x], x)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("align 128 @ 0", "align 64 @ 64", "double: TMA at byte 64 of Shared memory, not a multiple of 128"),
        ("box (8, 32) swizzle 0\n  TENSORMAP map_y", "box (9, 32) swizzle 0\n  TENSORMAP map_y", "double: Shared 's' accessed out of bounds"),
        ("s: float32[8, 32]", "s: int32[8, 32]", "double: TMA between float32 and int32"),
        ("  FENCE mbarrier_init", "  PASS", "double: mbarrier full[0] used by the copy engine before fence.mbarrier_init by the thread that initialized it"),
        ("FENCE proxy.async", "SYNC warp", "double: missing fence.proxy.async: Shared 's' was written by a thread and is accessed by an asynchronous engine"),
        ("  COMMIT bulk", "  PASS", "double: thread exits with a TMA store that was never waited for"),
        ("  WAIT_GROUP bulk <= 0", "  WAIT_GROUP bulk <= 1", "double: thread exits with a TMA store that was never waited for"),
        ("TMA map_y(8*blockIdx.x, 0)", "TMA map_x(8*blockIdx.x, 0)", "double: write to input 'x'"),
        ("bytes 1024", "bytes 1020", "double: deadlock: no thread can continue"),
        ("EXPECT full[0] bytes 1024", "PASS", "double: deadlock: no thread can continue"),
    ],
)
def test_faults_under_every_schedule(old: str, new: str, message: str) -> None:
    assert errors(parse_kernel(replaced(DOUBLE, old, new)), [_rows(8)]) == {message}


def test_texts() -> None:
    assert error(parse_kernel(replaced(DOUBLE, "FENCE proxy.async", "PASS")), [_rows(8)]).splitlines() == [
        "double: missing fence.proxy.async: Shared 's' was written by a thread and is accessed by an asynchronous engine",
        "note: statement: TMA map_y(8*blockIdx.x, 0) <- s[0, 0]",
        "note: block (0, 0, 0), thread (0, 0, 0)",
        "note: written by thread (0, 0, 0)",
        "help: the writer must execute fence.proxy.async after the write and before it publishes it",
    ]
    assert error(parse_kernel(replaced(DOUBLE, "s: float32[8, 32]", "s: float32[7, 32]")), [_rows(8)]).splitlines()[-1] == "note: byte 896 of 896"
    assert error(parse_kernel(replaced(DOUBLE, "bytes 1024", "bytes 1020")), [_rows(8)]).splitlines()[1:] == [
        "note: block (0, 0, 0), threads 0-31: WAIT full[0] parity 0: "
        "full[0] wants parity 0 to complete; phase 0 (parity 0): 0 of 1 arrivals and -4 bytes pending; its ring carries s"
    ]


def test_a_load_that_nobody_waits_for() -> None:
    k = parse_kernel(without(DOUBLE, "WAIT full"))
    early = "double: read of uninitialized Shared 's'"
    assert errors(k, [_rows(8)]) == {"none", early, "double: Shared 's' accessed while a TMA load that writes it is in flight"}
    assert error(k, [_rows(8)], interleaving=Interleaving.ASYNC_LATE).splitlines()[-1] == "help: wait for the mbarrier of the load"
    alone = kernel(
        "IF threadIdx.x == 0:\n  INIT full[0] count 1\n  FENCE mbarrier_init\n  TMA s[0] <- map_x(0) on full[0]\ny[threadIdx.x] = copy(x[threadIdx.x])",
        "TENSORMAP map_x = x box (32) swizzle 0",
        "SHARED s: float32[32] align 128",
        "MBARRIER full[1]",
    )
    assert errors(alone, [_rows(1)[0]]) == {"none", "k: the block exits while 1 TMA loads are in flight"}


REUSE = """
FOR i in 0..3:
  s[threadIdx.x] = add.int64(index(threadIdx.x), index(i))
  FENCE proxy.async
  SYNC block
  IF threadIdx.x == 0:
    TMA map_y(i, 0) <- s[0]
    COMMIT bulk
    WAIT_GROUP bulk.read <= 0
  SYNC block
WAIT_GROUP bulk <= 0
"""


def test_a_source_is_written_again_only_after_it_was_read() -> None:
    declarations = ("TENSORMAP map_y = y box (1, 32) swizzle 0", "SHARED s: float32[32] align 128")
    expected = np.arange(32) + np.arange(3, dtype=np.float32)[:, None]
    run_all(kernel(REUSE, *declarations, outputs="y: float32[3, 32]"), [np.zeros(32, np.float32)], expected)
    broken = kernel(without(REUSE, "WAIT_GROUP bulk.read"), *declarations, outputs="y: float32[3, 32]")
    message = "k: Shared 's' written before the asynchronous operation that reads it was waited for"
    assert errors(broken, [np.zeros(32, np.float32)]) == {message}
    assert error(broken, [np.zeros(32, np.float32)]).splitlines()[-1] == (
        "help: wait for the operation, and synchronize the thread that waited with the writer, before the write"
    )


def test_a_load_into_a_source_that_is_not_retired() -> None:
    body = """
    IF threadIdx.x == 0:
      FOR i in 0..2:
        INIT full[i] count 1
      FENCE mbarrier_init
      FOR i in 0..2:
        EXPECT full[i] bytes 128
        TMA s[0] <- map_x(0) on full[i]
        WAIT full[i] parity 0
        TMA map_y(i, 0) <- s[0]
        COMMIT bulk
      WAIT_GROUP bulk <= 0
    """
    declarations = (
        "TENSORMAP map_x = x box (32) swizzle 0",
        "TENSORMAP map_y = y box (1, 32) swizzle 0",
        "SHARED s: float32[32] align 128",
        "MBARRIER full[2]",
    )
    k = kernel(body, *declarations, outputs="y: float32[2, 32]")
    x = _rows(1)[0]
    assert errors(k, [x]) == {"k: TMA load into Shared 's' before the asynchronous operation that reads it was waited for"}
    assert error(k, [x]).splitlines()[-1] == "help: wait for the operation before its slot is released"
    fixed = kernel(replaced(body, "COMMIT bulk\n", "COMMIT bulk\n        WAIT_GROUP bulk.read <= 0\n"), *declarations, outputs="y: float32[2, 32]")
    run_all(fixed, [x], np.stack([x, x]))


def test_a_retire_waits_for_the_write_too() -> None:
    """A thread reads back what its store wrote: right after a full wait_group, too early after a wait_group of the read, whenever the store runs."""
    body = """
    s[threadIdx.x] = copy(x[threadIdx.x])
    FENCE proxy.async
    SYNC block
    IF threadIdx.x == 0:
      TMA map_w(0) <- s[0]
      COMMIT bulk
      WAIT_GROUP bulk <= 0
    SYNC block
    y[threadIdx.x] = copy(w[threadIdx.x])
    WAIT_GROUP bulk <= 0
    """
    x = _rows(1)[0]
    for read, found in (("", {"none"}), (".read", {"k: Global 'w' accessed while a TMA store that writes it may be in flight"})):
        k = kernel(
            replaced(body, "WAIT_GROUP bulk", f"WAIT_GROUP bulk{read}"),
            "TENSORMAP map_w = w box (32) swizzle 0",
            "SHARED s: float32[32] align 128",
            "GLOBAL w: float32[32]",
        )
        assert errors(k, [x]) == found, read


def test_a_store_is_retired_for_good_before_the_exit() -> None:
    """That its source has been read is not enough: nothing says when the tensor is written."""
    for line in ("WAIT_GROUP bulk <= 0", "WAIT_GROUP bulk.read <= 0"):
        text = replaced(DOUBLE, "WAIT_GROUP bulk <= 0", line)
        assert errors(parse_kernel(text), [_rows(8)]) == (
            {"none"} if line == "WAIT_GROUP bulk <= 0" else {"double: thread exits with a TMA store that was never waited for"}
        )
