"""A kernel that adds, for the tests of the text."""

from __future__ import annotations

from taskfuse.kir import Kernel, parse_kernel

ADD = """\
KERNEL add(x: float32[M, N], y: float32[M, N]) -> (z: float32[M, N])
  DIM M, N
  GRID (M, 1, 1)  BLOCK (128, 1, 1)

FOR i in 0..ceildiv(N, 128):
  IF 128*i + threadIdx.x < N:
    z[blockIdx.x, 128*i + threadIdx.x] = add(x[blockIdx.x, 128*i + threadIdx.x], y[blockIdx.x, 128*i + threadIdx.x])
"""


def checked(text: str) -> Kernel:
    found = parse_kernel(text)
    found.check_ir()
    return found
