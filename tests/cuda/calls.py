"""Small kernels that are called on a GPU that is not there."""

from __future__ import annotations

COPY = """
KERNEL k(x: float32[M, N]) -> (y: float32[M, N])
  DIM M, N
  GRID (M, 1, 1)  BLOCK (N, 1, 1)

y[blockIdx.x, threadIdx.x] = copy(x[blockIdx.x, threadIdx.x])
"""
EXCHANGE = """
KERNEL k(x: float32[B, 32]) -> (y: float32[B, 32])
  DIM B min 1
  GRID (B, 1, 1)  BLOCK (32, 1, 1)
  GLOBAL w: float32[B, 32]
  COUNTER written

w[blockIdx.x, threadIdx.x] = square(x[blockIdx.x, threadIdx.x])
SYNC grid written, 32*B
y[blockIdx.x, threadIdx.x] = copy(w[(blockIdx.x + 1) % B, threadIdx.x])
"""
HANDED = """\
KERNEL handed(x: float32[8, 4]) -> (y: float32[4], z: float32[8, 4])
  GRID (1, 1, 1)  BLOCK (4, 8, 1)
  LOCAL r: float32[]

r = mul(x[threadIdx.y, threadIdx.x], 2.0)
IF threadIdx.y == 0:
  y[threadIdx.x] = copy(r)
SYNC block
z[threadIdx.y, threadIdx.x] = sub(r, y[threadIdx.x])
"""
"""Threads read a result that others store, behind a barrier."""
OVERLAPPING = (6, 1, 0, 0)
"""The attribute of launches that may overlap with the end of the one before."""
OVERLAP = ": one begins between the first and the last address of the other\nhelp: pass memory of its own; arrays that interleave count as overlapping"
