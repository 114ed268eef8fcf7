"""A header with a name of each kind."""

HEADER = """\
KERNEL k(x: float32[N], alpha: float32) -> (y: float32[N])
  DIM N
  TENSORMAP map_x = x box (32) swizzle 0
  GRID (N, 1, 1)  BLOCK (32, 1, 1)
  LOCAL acc: float32[]
  SHARED s: float32[32] align 128
  MBARRIER full[2]
  COUNTER done

"""
FIRST = HEADER.count("\n") + 1
