"""What iterations of an unrolled loop repeat."""

import pytest

from taskfuse.count import Count, count
from taskfuse.kir import parse_kernel

SIZE = 1 << 22
TEXT = """KERNEL k(x: float32[{size}]) -> (y: float32[{size}])
  GRID ({grid}, 1, 1)  BLOCK (256, 1, 1)
  LOCAL t: float32[8]
  LOCAL u: float32[8]
  LOCAL v: float32[8]

FOR k in 0..8 UNROLL:
  IF threadIdx.x < 128:
    t[k] = copy(x[{first}])
FOR k in 0..8 UNROLL:
  u[k] = sin({second})
FOR k in 0..8 UNROLL:
  y[8*(256*blockIdx.x + threadIdx.x) + k] = copy(u[k])
"""


def unrolled(first: str, second: str) -> Count:
    """Eight elements of a thread: loads, and functions of what registers hold."""
    return count(parse_kernel(TEXT.format(size=SIZE, grid=SIZE // 256 // 8, first=first, second=second)), {})


def test_a_load_of_one_element_and_a_function_of_it_count_once() -> None:
    """Not a function of elements that differ, or of which nothing is known."""
    one, eight = unrolled("256*blockIdx.x + threadIdx.x", "t[k]"), unrolled("8*(256*blockIdx.x + threadIdx.x) + k", "t[k]")
    assert eight.reads["x"].asked == 8 * one.reads["x"].asked == 4 * SIZE / 2
    sines = eight.instructions - unrolled("8*(256*blockIdx.x + threadIdx.x) + k", "t[0]").instructions
    assert sines > 0
    assert unrolled("256*blockIdx.x + threadIdx.x", "v[k]").instructions - one.instructions == pytest.approx(sines)
    assert unrolled("256*blockIdx.x + threadIdx.x", "t[0]").instructions == one.instructions


def test_a_sum_over_iterations_does_not_repeat() -> None:
    text = TEXT.format(size=SIZE, grid=SIZE // 256 // 8, first="256*blockIdx.x + threadIdx.x", second="t[k]").replace(
        "u[k] = sin(t[k])", "u[0] = add(u[0], t[k])"
    )
    added = count(parse_kernel(text), {}).instructions
    once = count(parse_kernel(text.replace("u[0] = add(u[0], t[k])", "v[0] = add(u[0], t[k])")), {}).instructions
    assert added > once
