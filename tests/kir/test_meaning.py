"""What definitions mean: the interpreter equals NumPy on each kind of rule, and refuses those that have no value."""

import numpy as np
import pytest

from taskfuse.ir.values import NATIVE
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.meaning import meaning

RNG = np.random.default_rng(0)
X = RNG.integers(-4, 5, (6, 4)).astype(np.float32)
T = np.array([2, -1, 9, 0, 5, 3], np.int32)


def defined(*definitions: str, shape: str = "6, 4") -> Kernel:
    head = f"KERNEL k(x: float32[N, 4], t: int32[6], s: float32) -> (y: float32[{shape}])\n  DIM N\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n"
    return parse_kernel(head + "".join(f"  DEFINE {d}\n" for d in definitions))


def of(kernel: Kernel) -> np.ndarray:
    (found,) = meaning(kernel, [X, T, 3.0], {"N": 6}, NATIVE)
    return found


def test_elements() -> None:
    assert np.array_equal(of(defined("y: float32[6, 4] = mul(x[5 - i0, i1], s)")), X[::-1] * 3)
    assert np.array_equal(of(defined("y: float32[6, 4] = add(x[i0, i1], index(i0))")), X + np.arange(6)[:, None])
    chosen = of(defined("y: float32[6, 4] = pick(x[i0, i1] if i0 < 2, otherwise 1.0)"))
    assert np.array_equal(chosen, np.where(np.arange(6)[:, None] < 2, X, 1))


def test_reductions_and_scans() -> None:
    total = defined("y: float32[6] over (N, 4) at (i0) = reduce add of mul(x[i0, i1], x[i0, i1]) from 2.0", shape="6")
    assert np.array_equal(of(total), (X * X).sum(1) + 2)
    assert np.array_equal(of(defined("y: float32[6, 4] = scan maximum along 0 of x[i0, i1]")), np.maximum.accumulate(X, 0))


def test_sums_that_are_rescaled() -> None:
    found = of(defined("y: float32[N] over (N, 4) at (i0) = reduce add of copy(x[i0, i1]) from 0.0 rescaled 1 by x[5 - i0, i1]", shape="6"))
    wanted = np.zeros(6)
    for k in range(4):
        wanted = wanted * X[::-1, k] + X[:, k]
    assert np.array_equal(found, wanted)


def test_gathers_give_0_outside() -> None:
    at = T.astype(np.int64)
    inside = (at >= -6) & (at < 6)
    wanted = np.where(inside[:, None], X[np.where(inside, at, 0)], 0)
    assert np.array_equal(of(defined("y: float32[6, 4] = find x[v0, i1] at t[i0] of N")), wanted)


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("y: float32[6, 4] = copy(x[i0 + 1, i1])", "index 1 to 6 of axis 0 is outside 0..6"),
        ("y: float32[6, 4] = pick(x[i0, i1] if i0 < 2)", "no case of y holds"),
    ],
)
def test_no_value(definition: str, reason: str) -> None:
    with pytest.raises(IndexError, match=reason):
        of(defined(definition))


def test_what_no_element_of_an_output_needs_is_not_computed() -> None:
    beyond = "t2: float32[6] = copy(x[i0 + 1, 0])"
    assert of(defined(beyond, "y: float32[6, 0] = copy(t2[i0])", shape="6, 0")).shape == (6, 0)
    none = "y: float32[6] over (6, 0) at (i0) = reduce add of copy(t2[i0]) from 2.0"
    assert np.array_equal(of(defined(beyond, none, shape="6")), np.full(6, 2.0))
    with pytest.raises(IndexError, match="index 1 to 6 of axis 0"):
        of(defined(beyond, "y: float32[6] = copy(t2[i0])", shape="6"))
