"""Asynchronous copies: what waits for them, what does not, widths, zeros, dtypes, and what is refused."""

import numpy as np
import numpy.typing as npt
import pytest

from taskfuse.check import Verdict
from taskfuse.ir.values import MODULAR
from taskfuse.kir import parse_kernel
from tests.sim.kernels import error, errors, exchanged, kernel, load, replaced, run_all, without

RING_TEXT, TILE = load("async_ring"), load("async_tile")
IN_FLIGHT = "Shared 's' accessed while an asynchronous copy that writes it may be in flight"


def rows(n: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((n, 32)).astype(np.float32)


def expected(name: str, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return x + np.float32(1) if name == "async_ring" else 2 * x


@pytest.mark.parametrize("name", ["async_ring", "async_tile"])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 9])
def test_every_scheduler_gives_the_copy(name: str, n: int) -> None:
    run_all(parse_kernel(load(name)), [rows(n)], expected(name, rows(n)))


@pytest.mark.parametrize("name", ["async_ring", "async_tile"])
def test_in_the_ring(name: str) -> None:
    k = parse_kernel(load(name))
    x = MODULAR.encode(rows(3), k.inputs[0].dtype)
    assert k.explore(x, values=MODULAR).holds


@pytest.mark.parametrize("name", ["async_ring", "async_tile"])
def test_every_interleaving_gives_the_copy(name: str) -> None:
    k = parse_kernel(load(name))
    reduced, full = k.explore(rows(3)), k.explore(rows(3), reduce=False)
    assert reduced.holds
    assert full.holds
    assert reduced.interleavings == 1 < full.interleavings  # nothing is left to chance


@pytest.mark.parametrize(
    "text",
    [
        without(TILE, "COMMIT copy"),
        without(TILE, "WAIT_GROUP copy"),
        replaced(TILE, "WAIT_GROUP copy <= 0", "WAIT_GROUP copy <= 1"),
        without(TILE, "SYNC block"),
        exchanged(TILE, "WAIT_GROUP copy", "SYNC block"),
        replaced(RING_TEXT, "ARRIVE.async", "ARRIVE"),
        without(RING_TEXT, "WAIT full"),
    ],
    ids=["no commit", "no wait_group", "a wait_group of all but one", "no barrier", "barrier before wait_group", "arrival at once", "no wait"],
)
def test_what_a_copy_needs(text: str) -> None:
    k = parse_kernel(text)
    found = errors(k, [rows(5)])
    assert any(IN_FLIGHT in e or "uninitialized" in e for e in found)
    assert not k.explore(rows(3)).holds
    assert not k.explore(rows(2), reduce=False).holds


def test_a_retire_is_the_issuing_threads() -> None:
    """Half a warp waits for, all of it reads: that is late enough for half of what is read."""
    k = parse_kernel(replaced(TILE, "  WAIT_GROUP copy <= 0", "  IF threadIdx.x % 2 == 0:\n    WAIT_GROUP copy <= 0"))
    assert errors(k, [rows(5)]) == {f"async_tile: {IN_FLIGHT}"}


def test_an_arrival_waits_for_earlier_copies_alone() -> None:
    """The second copy is issued after the arrival that the consumer waits for."""
    text = replaced(RING_TEXT, "    ARRIVE.async full[p.slot]\n", "")
    text = replaced(text, "    IF threadIdx.x < 16:\n", "    ARRIVE.async full[p.slot]\n    IF threadIdx.x < 16:\n")
    assert f"async_ring: {IN_FLIGHT}" in errors(parse_kernel(text), [rows(9)])


COPY = """
COPY.async s[{index}] <- x[{index}] width {width}
COMMIT copy
WAIT_GROUP copy <= 0
SYNC block
y[31 - threadIdx.x] = copy(s[31 - threadIdx.x])
"""


@pytest.mark.parametrize(("dtype", "width"), [("float32", 1), ("float32", 2), ("float32", 4), ("float64", 1), ("float64", 2), ("bfloat16", 2), ("int8", 16)])
def test_widths_and_dtypes(dtype: str, width: int) -> None:
    body = COPY.format(index=f"{width}*(threadIdx.x % {32 // width})" if width > 1 else "threadIdx.x", width=width)
    guarded = body.replace("COPY.async", f"IF threadIdx.x < {32 // width}:\n  COPY.async", 1)
    k = kernel(guarded, f"SHARED s: {dtype}[32] align 16", inputs=f"x: {dtype}[32]", outputs=f"y: {dtype}[32]")
    x = np.arange(32).astype(k.inputs[0].dtype.numpy)
    run_all(k, [x], x)


def test_zeros_where_the_condition_fails() -> None:
    k = kernel(COPY.format(index="threadIdx.x", width="1 if threadIdx.x < 20"), "SHARED s: float32[32] align 16")
    x = np.arange(1, 33, dtype=np.float32)
    run_all(k, [x], np.where(x <= 20, x, 0))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("s[threadIdx.x]", "s[threadIdx.x//2]", "k: threads copy to one element of Shared 's' in one statement"),
        ("x[threadIdx.x]", "x[threadIdx.x + 1]", "k: input 'x' accessed out of bounds"),
        ("s[threadIdx.x]", "s[threadIdx.x + 1]", "k: Shared 's' accessed out of bounds"),
        ("width 1", "width 2", "k: Shared 's' accessed out of bounds"),
        (
            "COMMIT copy\nWAIT_GROUP copy <= 0\nSYNC block\ny[31 - threadIdx.x] = copy(s[31 - threadIdx.x])",
            "y[threadIdx.x] = copy(0.0)",
            "k: thread exits with an asynchronous copy that was never waited for",
        ),
    ],
)
def test_faults(old: str, new: str, message: str) -> None:
    assert error(kernel(replaced(COPY.format(index="threadIdx.x", width="1"), old, new), "SHARED s: float32[32] align 16")).startswith(message)


def test_an_address_is_a_multiple_of_the_size() -> None:
    body = "IF threadIdx.x == 0:\n  COPY.async s[0] <- x[1] width 2\nCOMMIT copy\nWAIT_GROUP copy <= 0\ny[threadIdx.x] = copy(0.0)"
    k = kernel(body, "SHARED s: float32[32] align 16")
    assert error(k).startswith("k: access of 8 bytes to input 'x' at an address that is not a multiple of 8")


def test_arrivals_to_come_when_the_block_exits() -> None:
    k = kernel(
        "IF threadIdx.x == 0:\n  INIT full[0] count 32\nSYNC block\nCOPY.async s[threadIdx.x] <- x[threadIdx.x] width 1\n"
        "ARRIVE.async full[0]\ny[threadIdx.x] = copy(0.0)",
        "SHARED s: float32[32] align 16",
        "MBARRIER full[1]",
    )
    assert "k: the block exits while 1 arrivals for asynchronous copies are outstanding" in errors(k)


def test_a_fence_covers_copies_that_were_retired_before_it() -> None:
    """A TMA store of what asynchronous copies wrote."""
    k = kernel(
        """
        COPY.async s[threadIdx.x] <- x[threadIdx.x] width 1
        COMMIT copy
        WAIT_GROUP copy <= 0
        FENCE proxy.async
        SYNC block
        IF threadIdx.x == 0:
          TMA map_y(0) <- s[0]
          COMMIT bulk
          WAIT_GROUP bulk <= 0
        """,
        "TENSORMAP map_y = y box (32) swizzle 0",
        "SHARED s: float32[32] align 128",
    )
    x = np.arange(32, dtype=np.float32)
    run_all(k, [x], x)
    early = parse_kernel(exchanged(str(k), "WAIT_GROUP copy", "FENCE proxy.async"))
    assert errors(early, [x]) == {"k: missing fence.proxy.async: Shared 's' was written by a thread and is accessed by an asynchronous engine"}
    k.verify().require()
    assert early.verify().verdict is Verdict.REFUTED
