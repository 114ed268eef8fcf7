"""stmatrix: four 8x8 matrices from the registers of a warp."""

import numpy as np

from taskfuse.kir import Kernel
from tests.sim.kernels import X, error, errors, kernel, replaced, run_all

BODY = """
FOR v in 0..8 UNROLL:
  a[v] = copy.int64(index(128*(v//2) + 8*(threadIdx.x//4) + 2*(threadIdx.x % 4) + v % 2))
STMATRIX s[threadIdx.y, 1 + threadIdx.x//8, threadIdx.x % 8, 0] <- a[0]
SYNC block
FOR i in 0..4:
  FOR j in 0..2:
    y[threadIdx.y, i, 32*j + threadIdx.x] = copy(s[threadIdx.y, 1 + i, (32*j + threadIdx.x)//8, threadIdx.x % 8])
"""
DECLARATIONS = ("LOCAL a: float16[8]", "SHARED s: float16[2, 5, 8, 8] align 16")


def _kernel(body: str = BODY) -> Kernel:
    return kernel(body, *DECLARATIONS, outputs="y: float16[2, 4, 64]", block="(32, 2, 1)")


def test_every_lane_s_pairs_land_in_the_row_that_another_lane_addresses() -> None:
    expected = (128 * np.arange(4)[:, None] + np.arange(64)).astype(np.float16)
    run_all(_kernel(), [X], np.stack([expected, expected]))


def test_faults() -> None:
    store = "STMATRIX s[threadIdx.y, 1 + threadIdx.x//8, threadIdx.x % 8, 0] <- a[0]"
    for new, message in (
        (f"IF threadIdx.y == 0:\n  IF threadIdx.x < 8:\n    {store}", "k: stmatrix executed by 8 threads of warp 0"),
        (store.replace("a[0]", "a[1]"), "k: stmatrix needs 8 registers of Local 'a', which does not have them"),
        (store.replace("1 + threadIdx.x//8", "2 + threadIdx.x//8"), "k: Shared 's' accessed out of bounds"),
        (store.replace("threadIdx.x % 8", "threadIdx.x % 4"), "k: stmatrix rows overlap"),
    ):
        assert errors(_kernel(replaced(BODY, store, new)), [X]) == {message}
    unset = replaced(BODY, "0..8 UNROLL", "0..7 UNROLL")
    assert errors(_kernel(unset), [X]) == {"k: read of uninitialized Local 'a'"}
    odd = kernel(BODY.replace("y[", "z["), DECLARATIONS[0], "SHARED s: float16[2, 5, 8, 9] align 16", outputs="z: float16[2, 4, 64]", block="(32, 2, 1)")
    assert error(odd, [X]).splitlines()[0] == "k: access of 16 bytes to Shared 's' at an address that is not a multiple of 16"


def test_a_warp_comes_together_for_it() -> None:
    """Lane 0 waits for another warp on its own; the others of its warp wait for lane 0 before the collective."""
    body = replaced(BODY, "STMATRIX", "IF threadIdx.x == 0 && threadIdx.y == 0:\n  WAIT m[0] parity 0\nIF threadIdx.y == 1:\n  ARRIVE m[0]\nSTMATRIX")
    start = "IF threadIdx.x == 0 && threadIdx.y == 0:\n  INIT m[0] count 32\nSYNC block\n"
    k = kernel(start + body, *DECLARATIONS, "MBARRIER m[1]", outputs="y: float16[2, 4, 64]", block="(32, 2, 1)")
    expected = (128 * np.arange(4)[:, None] + np.arange(64)).astype(np.float16)
    run_all(k, [X], np.stack([expected, expected]))


def test_parts_of_a_warp_with_cursors_of_their_own_come_together_behind_a_barrier() -> None:
    """Half of a warp moves a cursor that nobody reads later: the halves are in unequal state from there on, and one warp again for the collective."""
    role = "IF threadIdx.y == 0:\n  c = CURSOR(slots 2, slot 0, parity 0)\n  IF threadIdx.x < 16:\n    WAIT m[c.slot] parity c.parity\n    c.advance(1)\n"
    body = replaced(BODY, "STMATRIX", role + "ELSE:\n  ARRIVE m[0]\nSYNC block\nSTMATRIX")
    start = "IF threadIdx.x == 0 && threadIdx.y == 0:\n  INIT m[0] count 32\n  INIT m[1] count 32\nSYNC block\n"
    k = kernel(start + body, *DECLARATIONS, "MBARRIER m[2]", outputs="y: float16[2, 4, 64]", block="(32, 2, 1)")
    expected = (128 * np.arange(4)[:, None] + np.arange(64)).astype(np.float16)
    run_all(k, [X], np.stack([expected, expected]))


def test_parts_of_two_warps_that_came_to_a_branch_apart_come_together_in_it() -> None:
    """Lane 0 of a warp waits for others of the next one, which go on without both first lanes: at the branch each pair of parts splits for itself."""
    role = "IF threadIdx.x == 0:\n  IF threadIdx.y == 0:\n    WAIT m[0] parity 0\nIF threadIdx.x > 0:\n  IF threadIdx.y == 1:\n    ARRIVE m[0]\n"
    store = next(line for line in BODY.splitlines() if line.startswith("STMATRIX"))
    arm = f"  WAIT m[0] parity 0\n  {store}"  # one that waits: its threads split
    body = replaced(BODY, store, f"{role}IF threadIdx.y == 0:\n{arm}\nELSE:\n{arm}")
    start = "IF threadIdx.x == 0 && threadIdx.y == 0:\n  INIT m[0] count 31\nSYNC block\n"
    k = kernel(start + body, *DECLARATIONS, "MBARRIER m[1]", outputs="y: float16[2, 4, 64]", block="(32, 2, 1)")
    expected = (128 * np.arange(4)[:, None] + np.arange(64)).astype(np.float16)
    run_all(k, [X], np.stack([expected, expected]))


def test_a_torn_warp_that_cannot_come_together() -> None:
    body = replaced(BODY, "STMATRIX", "IF threadIdx.x == 0 && threadIdx.y == 0:\n  WAIT m[0] parity 0\nSTMATRIX")
    start = "IF threadIdx.x == 0 && threadIdx.y == 0:\n  INIT m[0] count 32\nSYNC block\n"
    k = kernel(start + body, *DECLARATIONS, "MBARRIER m[1]", outputs="y: float16[2, 4, 64]", block="(32, 2, 1)")
    lines = error(k, [X]).splitlines()
    assert lines[0] == "k: deadlock: no thread can continue"
    assert lines[1].startswith("note: block (0, 0, 0), thread 0: WAIT m[0] parity 0")
    assert lines[2].endswith("STMATRIX s[threadIdx.y, threadIdx.x//8 + 1, threadIdx.x % 8, 0] <- a[0]: stmatrix executed by 31 threads of warp 0")
