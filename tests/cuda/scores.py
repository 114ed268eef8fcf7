"""Scores that are masked, compared with their maximum, and raised to powers."""

KERNEL = """\
KERNEL scores(x: float32[32, 8]) -> (p: float32[32, 8], m: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL s: float32[8]
  LOCAL t: float32[]
  LOCAL r: float32[]
  LOCAL h: float32[8]
  LOCAL u: float32[]
  LOCAL v: float32[]

FOR w in 0..2:
  FOR i in 0..8 UNROLL:
    h[i] = tanh(x[threadIdx.x, i])
    t = mul(h[i], 0.25)
    s[i] = where(t if i + threadIdx.x < 32, otherwise -inf)
  r = copy(-inf)
  FOR i in 0..8 UNROLL:
    r = maximum(r, s[i])
  m[threadIdx.x] = copy(r)
  FOR i in 0..8 UNROLL:
    v = sub(s[i], r)
    p[threadIdx.x, i] = exp(v)
"""
