"""A small kernel that sends points."""

KERNEL = """\
KERNEL k(x: float32[3], t: int32[2], s: float32[2]) -> (y: float32[3])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE b: float32[3] = copy(x[i0])
  DEFINE u: float32[2] = send add of s[i0] at t[i0] of 3
  DEFINE y: float32[3] = whole b at (i0), u at (v0)

FOR i in 0..3:
  y[i] = copy(x[i])  ~ value b[i]
FOR k in 0..2:
  UPDATE y[v] by add of s[k] at v = t[k] of 3  ~ value u[k]
"""
