"""Kernel IR alone, without the packages that read it."""

import pytest

from taskfuse.errors import UnsupportedError
from taskfuse.kir import KirReaders, parse_kernel

KERNEL = parse_kernel("""\
KERNEL k(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x] = copy(x[threadIdx.x])
""")


def test_kernel_ir_alone_neither_simulates_nor_proves() -> None:
    with pytest.raises(UnsupportedError, match="simulating with kernel IR alone is not supported: the simulator is not loaded\nhelp: import taskfuse"):
        KirReaders().simulate(KERNEL, (), 0, {})
    with pytest.raises(UnsupportedError, match="a proof with kernel IR alone is not supported: the checker is not loaded"):
        KirReaders().verify(KERNEL, None)
