"""A product by mma whose second factor ldmatrix transposes: two warps, two steps."""

_TEXT = """\
KERNEL mma(a: bfloat16[32, 32], b: bfloat16[8, 32]) -> (d: float32[32, 8])
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  LOCAL acc: float32[4]
  LOCAL a_r: bfloat16[8]
  LOCAL b_r: bfloat16[4]
  SHARED a_s: bfloat16[32, 40] align 16
  SHARED b_s: bfloat16[32, 8] align 16
  DEFINE a_s: bfloat16[32, 32] = copy(a[i0, i1])
  DEFINE b_s: bfloat16[32, 8] = copy(b[i1, i0])
  DEFINE a_r: bfloat16[32, 32] = copy(a_s[i0, i1])
  DEFINE b_r: bfloat16[32, 8] = copy(b_s[i0, i1])
  DEFINE acc: float32[32, 8] over (32, 8, 32) at (i0, i1) = reduce add of mul(a_r[i0, i2], b_r[i2, i1]) from 0.0
  DEFINE d: float32[32, 8] = copy(acc[i0, i1])

FOR i in 0..16:
  a_s[16*threadIdx.y + i, threadIdx.x] = copy(a[16*threadIdx.y + i, threadIdx.x])  ~ value a_s[16*threadIdx.y + i, threadIdx.x]
FOR i in 0..4:
  b_s[threadIdx.x, 4*threadIdx.y + i] = copy(b[4*threadIdx.y + i, threadIdx.x])  ~ value b_s[threadIdx.x, 4*threadIdx.y + i]
FOR v in 0..4 UNROLL:
  acc[v] = copy(0.0)  ~ start acc
SYNC block
FOR t in 0..2 UNROLL:
  LDMATRIX a_r[0] <- a_s[{rows} + threadIdx.x % 16, 16*t + 8*(threadIdx.x//16)]  ~ value a_r[{rows} + tile.0 % 16, 16*t + 8*(tile.0//16) + tile.1] tile (32, 8)
  LDMATRIX.x2.trans b_r[0] <- b_s[16*t + threadIdx.x % 16, 0]  ~ value b_r[16*t + tile.0, tile.1] tile (16, 8)
  MMA.m16n8k16.bfloat16 acc[0], a_r[0], b_r[0]  ~ term acc[16*threadIdx.y + tile.0, tile.1, 16*t + tile.2] tile (16, 8, 16)
FOR v in 0..4 UNROLL:
  d[{place}] = copy(acc[v])  ~ value d[{place}]
"""
TRANSPOSED = _TEXT.replace("{rows}", "16*threadIdx.y").replace("{place}", "16*threadIdx.y + threadIdx.x//4 + 8*(v//2), 2*(threadIdx.x % 4) + v % 2")
