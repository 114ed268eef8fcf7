"""Tables that are promised to rise: what calls on host arrays say of those that do not."""

from __future__ import annotations

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import InputError
from taskfuse.kir.arguments import specialized
from taskfuse.kir.promises import check_rises, promised

KERNEL = """
KERNEL k(x: float32[M], offsets: int32[G + 1] rising 0..M) -> (y: float32[G])
  DIM G min 1, M min 1
  GRID (G, 1, 1)  BLOCK (1, 1, 1)

IF clamp(offsets[blockIdx.x of G + 1], 0, M) < M:
  y[blockIdx.x] = copy(x[min(clamp(offsets[blockIdx.x of G + 1], 0, M), M - 1)])
IF clamp(offsets[blockIdx.x of G + 1], 0, M) >= M:
  y[blockIdx.x] = copy(0.0)
"""
BROKEN: dict[tuple[int, ...], str] = {
    (1, 2, 8): "element 0 is 1",
    (0, 9, 8): "element 1 is 9, element 2 is 8",
    (0, 5, -3, 8): "element 1 is 5, element 2 is -3",
    (0, 0, 7): "element 2, the last, is 7",
}


def test_a_kernel_says_what_is_promised() -> None:
    kernel = tf.parse_kernel(KERNEL.lstrip("\n"))
    ((index, param),) = promised(kernel)
    assert (index, param.name) == (1, "offsets")
    for kept in ([0, 8], [0, 0, 0, 8, 8], []):
        check_rises(kernel, index, param, np.array(kept, np.int32), {"M": 8, "G": 2})
    assert promised(tf.parse_kernel(KERNEL.lstrip("\n").replace(" rising 0..M", ""))) == ()


@pytest.mark.parametrize("values", BROKEN)
def test_calls_on_host_arrays(values: tuple[int, ...]) -> None:
    run = tf.compile(tf.parse_kernel(KERNEL.lstrip("\n")), backend="sim")
    x, table = np.arange(8, dtype=np.float32), np.array(values, np.int32)
    with pytest.raises(InputError) as caught:
        run(x, table)
    assert str(caught.value) == (
        f"input 1 of fusion 'k': table 'offsets' does not rise from 0 to M = 8: {BROKEN[values]}\n"
        "help: pass nondecreasing elements, or declare the table without rising=True"
    )
    tf.parse_kernel(KERNEL.lstrip("\n")).simulate(x, table)  # whatever it holds, no access leaves its tensor


def test_a_kernel_at_given_extents_promises_the_same() -> None:
    at = specialized(tf.parse_kernel(KERNEL.lstrip("\n")), {"M": 8, "G": 2})
    assert "offsets: int32[3] rising 0..8" in str(at)
    with pytest.raises(InputError, match="does not rise from 0 to 8: element 1 is 9"):
        tf.compile(at, backend="sim")(np.zeros(8, np.float32), np.array([0, 9, 8], np.int32))


LENGTHS = KERNEL.replace("offsets: int32[G + 1] rising 0..M", "lengths: int32[G] lengths of M").replace("offsets[", "lengths.offsets[")


@pytest.mark.parametrize(
    ("values", "found"),
    [((3, -1, 6), "element 1 is -1"), ((3, 0, 4), "their sum is 7"), ((2**31 - 1, 1, 0), "their sum is 2147483648"), ((0, 0), "their sum is 0")],
)
def test_lengths_add_up(values: tuple[int, ...], found: str) -> None:
    kernel = tf.parse_kernel(LENGTHS.lstrip("\n"))
    assert [(k, p.name) for k, p in promised(kernel)] == [(1, "lengths")]
    x, table = np.arange(8, dtype=np.float32), np.array(values, np.int32)
    with pytest.raises(InputError) as caught:
        tf.compile(kernel, backend="sim")(x, table)
    assert str(caught.value) == (
        f"input 1 of fusion 'k': the elements of table 'lengths' are not lengths of M = 8 in all: {found}\n"
        "help: pass the lengths of all groups, including those without rows"
    )
    kernel.simulate(x, table)  # whatever it holds, no access leaves its tensor
    (y,) = tf.compile(kernel, backend="sim")(x, np.array([3, 0, 5], np.int32))
    assert y.tolist() == [0, 3, 3]
