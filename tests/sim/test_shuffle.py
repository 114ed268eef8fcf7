"""Shuffles: lanes of a warp exchange registers."""

import numpy as np
import pytest

from taskfuse.ir.values import MODULAR
from taskfuse.kir import Kernel
from taskfuse.sim import simulate
from tests.sim.kernels import X, error, errors, kernel, run_all

MASKS = (1, 2, 4, 8, 16)
BUTTERFLY = "\n".join(f"SHUFFLE t <- r xor {m}\nr = add(r, t)" for m in reversed(MASKS))


def _kernel(body: str, *declarations: str, block: str = "(32, 1, 1)", dtype: str = "float32") -> Kernel:
    shape = block[1:-1].split(",")
    size = int(shape[0]) * int(shape[1]) * int(shape[2])
    linear = f"threadIdx.x + {int(shape[0])}*threadIdx.y"
    text = f"r = copy(x[{linear}])\n{body}\ny[{linear}] = copy(r)"
    registers = (f"LOCAL r: {dtype}[]", f"LOCAL t: {dtype}[]")
    return kernel(text, *registers, *declarations, inputs=f"x: {dtype}[{size}]", outputs=f"y: {dtype}[{size}]", block=block)


@pytest.mark.parametrize("mask", MASKS)
def test_each_lane_gets_what_its_partner_holds(mask: int) -> None:
    x = np.arange(96, dtype=np.float32)
    run_all(_kernel(f"SHUFFLE r <- r xor {mask}", block="(96, 1, 1)"), [x], x[np.arange(96) ^ mask])


@pytest.mark.parametrize("dtype", ["float64", "float16", "bool", "int8"])
def test_registers_of_any_dtype(dtype: str) -> None:
    x = (np.arange(32) % 7).astype(dtype)
    run_all(_kernel("SHUFFLE t <- r xor 4\nr = copy(t)", dtype=dtype), [x], x[np.arange(32) ^ 4])


def test_lanes_follow_the_linear_thread_id() -> None:
    """Of a block of 8 x 8 threads, lanes that differ by 8 are neighbors on y."""
    x = np.arange(64, dtype=np.float32)
    run_all(_kernel("SHUFFLE r <- r xor 8", block="(8, 8, 1)"), [x], x[np.arange(64) ^ 8])


def test_a_butterfly_gives_every_lane_the_sum() -> None:
    run_all(_kernel(BUTTERFLY), [X], np.full(32, X.sum(), np.float32))
    (words,) = simulate(_kernel(BUTTERFLY), [X], values=MODULAR)
    assert len(np.unique(words)) == 1


def test_a_branch_on_whole_warps() -> None:
    x = np.arange(64, dtype=np.float32)
    expected = x.copy()
    expected[32:] = x[32:][np.arange(32) ^ 1]
    run_all(_kernel("IF threadIdx.y == 1:\n  SHUFFLE r <- r xor 1", block="(32, 2, 1)"), [x], expected)


def test_a_part_of_a_warp() -> None:
    assert errors(_kernel("IF threadIdx.x < 16:\n  SHUFFLE r <- r xor 1")) == {"k: shuffle executed by 16 threads of warp 0"}
    partial = _kernel("SHUFFLE r <- r xor 1", block="(40, 1, 1)")
    assert errors(partial, [np.zeros(40, np.float32)]) == {"k: shuffle executed by 8 threads of warp 1"}
    waits = _kernel(
        "IF threadIdx.x == 0:\n  INIT m[0] count 1\nSYNC block\nIF threadIdx.x < 16:\n  WAIT m[0] parity 1\n  SHUFFLE r <- r xor 1", "MBARRIER m[1]"
    )
    assert errors(waits) == {"k: shuffle executed by 16 threads of warp 0"}


def test_an_uninitialized_register() -> None:
    assert errors(_kernel("SHUFFLE r <- t xor 1")) == {"k: read of uninitialized Local 't'"}
    assert errors(_kernel("IF threadIdx.x < 16:\n  t = copy(r)\nSHUFFLE r <- t xor 1")) == {"k: read of uninitialized Local 't'"}


APART = """
IF threadIdx.x == 0 && threadIdx.y == 0:
  INIT m[0] count 32
SYNC block
c = CURSOR(slots 1, slot 0, parity 0)
IF threadIdx.x < 5 && threadIdx.y == 0:
  WAIT m[0] parity 0
  c.advance(1)
IF threadIdx.y == 1:
  ARRIVE m[0]
r = copy(x[threadIdx.x + 32*threadIdx.y])
SHUFFLE r <- r xor 1
SHUFFLE r <- r xor 16
y[threadIdx.x + 32*threadIdx.y] = copy(r)
"""


def test_lanes_that_come_apart_meet_at_a_shuffle() -> None:
    """Five lanes wait for another warp and then differ from the others of their warp in a cursor."""
    x = np.arange(64, dtype=np.float32)
    k = kernel(APART, "LOCAL r: float32[]", "MBARRIER m[1]", inputs="x: float32[64]", outputs="y: float32[64]", block="(32, 2, 1)")
    run_all(k, [x], x[np.arange(64) ^ 17])


def test_lanes_that_never_come() -> None:
    """The other warp never arrives, so five lanes stay at the mbarrier and the others at the shuffle."""
    text = APART.replace("  ARRIVE m[0]", "  PASS")
    k = kernel(text, "LOCAL r: float32[]", "MBARRIER m[1]", inputs="x: float32[64]", outputs="y: float32[64]", block="(32, 2, 1)")
    lines = error(k, [np.zeros(64, np.float32)]).splitlines()
    assert lines[0] == "k: deadlock: no thread can continue"
    assert lines[1].startswith("note: block (0, 0, 0), threads 0-4: WAIT m[0] parity 0")
    assert lines[2] == "note: block (0, 0, 0), threads 5-31: SHUFFLE r <- r xor 1: warp 0: 27 of 32 threads are there"
