"""The launch shape: limits of grids, blocks, clusters and Shared memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cuda.calls import COPY, OVERLAPPING
from tests.cuda.fakes import GPU, FakeDriver, FakeTorch
from tests.cuda.launched import Case, tensor


def test_clusters(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[M, 32]) -> (y: float32[M, 32])
  DIM M
  GRID (M, 1, 1)  BLOCK (32, 1, 1)  CLUSTER (4, 1, 1)

y[blockIdx.x, threadIdx.x] = copy(x[blockIdx.x, threadIdx.x])
"""
    case = Case(text, driver)
    case.run((tensor(8, 32),))
    assert driver.launches[0].attributes == (OVERLAPPING, (4, 4, 1, 1))
    assert case.error(tensor(6, 32)) == "kernel 'k' cannot be launched: 6 blocks in x are not whole clusters of 4"
    driver.clusters = 0
    assert case.error(tensor(12, 32)) == (
        "kernel 'k' cannot be launched: fake GPU holds no cluster of 4 such blocks\nhelp: use smaller clusters, or blocks with less Shared memory"
    )
    large = Case(text.replace("(4, 1, 1)", "(16, 1, 1)"), FakeDriver())
    large.driver.parameter_sizes = driver.parameter_sizes
    large.run((tensor(16, 32),))
    assert large.driver.log[0] == ("allow_large_clusters",)


def test_empty_arrays(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    for shape in ((0, 32), (3, 0), (0, 0)):
        (y,) = case.run((tensor(*shape),))
        assert y.shape == shape
    assert driver.launches == []
    with open("tests/kernels/double.kir", encoding="utf-8") as file:
        assert Case(file.read(), driver).error(tensor(0, 32)) == "input 0 of fusion 'double': M is 0; it must be at least 1"
    total = """
KERNEL k(x: float32[N]) -> (y: float32[32])
  DIM N
  GRID (GRIDSIZE, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x] = copy(0.0)
"""
    written = Case(total.replace("GRIDSIZE", "1"), driver)
    written.run((tensor(0),))
    assert len(driver.launches) == 1
    assert Case(total.replace("GRIDSIZE", "N"), driver).error(tensor(0)) == (
        "kernel 'k' cannot be launched: it has no thread to write 'y': grid (0, 1, 1)  block (32, 1, 1)  shared 0 bytes"
    )


LIMITS: list[tuple[Callable[[FakeDriver], object], tuple[int, int], str]] = [
    (lambda d: None, (3, 1025), "1025 threads per block; a block of fake GPU has at most 1024"),
    (lambda d: setattr(d, "devices", (GPU._replace(max_block=(512, 1, 1)),)), (3, 513), "513 threads per block in x; fake GPU has at most 512"),
    (
        lambda d: setattr(d, "devices", (GPU._replace(max_grid=(65535, 1, 1)),)),
        (65536, 1),
        "65536 blocks in x; fake GPU has at most 65535",
    ),
    (
        lambda d: setattr(d, "function_threads", 64),
        (3, 65),
        "65 threads per block; its registers allow 64\nhelp: give it fewer threads, or fewer values in registers",
    ),
    (lambda d: setattr(d, "devices", (GPU._replace(arch=75),)), (3, 32), "it has instructions of sm_80 and newer; fake GPU is sm_75"),
]


@pytest.mark.parametrize(("change", "shape", "reason"), LIMITS)
def test_limits(driver: FakeDriver, torch: FakeTorch, change: Callable[[FakeDriver], object], shape: tuple[int, int], reason: str) -> None:
    change(driver)
    assert Case(COPY, driver).error(tensor(*shape)) == f"kernel 'k' cannot be launched: {reason}"
    assert driver.log == []


def test_shared_memory(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[N] align 4 @ 0

FOR i in 0..ceildiv(N, 32):
  IF threadIdx.x + 32*i < N:
    s[threadIdx.x + 32*i] = copy(x[threadIdx.x + 32*i])
    y[threadIdx.x + 32*i] = copy(s[threadIdx.x + 32*i])
"""
    case = Case(text, driver)
    case.run((tensor(1000),))
    assert driver.log == [("launch", 11)]
    case.run((tensor(20_000),))
    assert driver.log[1:] == [("allow_shared", 80_000), ("launch", 11)]
    assert driver.launches[-1].shared == 80_000
    assert case.error(tensor(60_000)) == (
        "kernel 'k' cannot be launched: 240000 bytes of Shared memory per block; fake GPU has 232448\nhelp: use smaller tiles or fewer stages"
    )
