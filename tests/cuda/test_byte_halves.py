"""Bytes that lie two apart in registers are taken apart together: which are, their text, and their numbers, by PTX that is run."""

import numpy as np
import pytest

from taskfuse.cuda.source import emit
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.sim import simulate
from taskfuse.testing.runs import mismatch, ran


def halves(function: str, condition: str = "j == 0", x: str = "x[j + 2*i]") -> Kernel:
    """Eight bytes in registers of a thread, taken apart in pairs two apart."""
    return parse_kernel(f"""\
KERNEL k(a: uint8[256]) -> (b: bfloat16[256])
  GRID (1, 1, 1)  BLOCK (64, 1, 1)
  LOCAL x: uint8[4]
  LOCAL n: uint8[]
  LOCAL u: uint8[]
  LOCAL v: uint8[]
  LOCAL q: uint8[]
  LOCAL f: float32[]
  LOCAL g: float32[]
  LOCAL r: bfloat16[4]

COPY x[0] <- a[4*threadIdx.x] width 4
FOR j in 0..2 UNROLL:
  FOR i in 0..2 UNROLL:
    n = copy({x})
    u = bitwise_and(n, 15)
    v = {function}
    q = stack(u if {condition}, v if 1 - ({condition.replace("==", "-")}) == 0)
    f = cast.uint8(q)
    g = sub(f, 8.0)
    r[2*j + i] = cast.float32(g)
COPY b[4*threadIdx.x] <- r[0] width 4
""")


@pytest.mark.parametrize("function", ["right_shift(n, 4)", "bitwise_and(n, 96)", "right_shift(n, 1)"])
def test_bytes_are_taken_apart_together(function: str) -> None:
    made = halves(function)
    found = emit(made).text
    assert "n_halves = (x[2 * i + j] | (unsigned)x[2 * i + j + 2] << 16);" in found
    assert "_first" not in found
    numbers = (np.arange(256, dtype=np.uint8),)
    wanted = simulate(made, numbers, seed=0)
    for seed in (0, 14):  # two targets
        assert mismatch(made, ran(made, numbers, seed), wanted) is None, str(made)


@pytest.mark.parametrize(("function", "condition"), [("right_shift(n, u)", "j == 0"), ("add(n, 1)", "j == 0"), ("right_shift(n, 4)", "i == 0")])
def test_others_are_taken_apart_alone(function: str, condition: str) -> None:
    assert "_halves =" not in emit(halves(function, condition)).text
