"""Small kernels in which something besides loops says what a statement does: a cursor that moves, the thread that takes a term, an arm that waits for another.

Each computes its result in a way that is right, then in a second way, whose result takes the first one's place where a condition holds. About half of the
kernels are right, and the generator does not know which.
"""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.kir import parse_kernel
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import Small

PLACE = "@"
"""A line at which a cursor may move."""
TRIED = ({"N": 2}, {"N": 3}, {"N": 5})

ELEMENTS = """\
KERNEL selected(x: float32[3], n: float32[N]) -> (y: float32[3])
  DIM N min 2
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL a: float32[]
  LOCAL b: float32[]
  LOCAL c: float32[]
  DEFINE t: float32[3] = copy(x[i0])
  DEFINE u: float32[3] = exp(t[i0])
  DEFINE y: float32[3] = copy(u[i0])

p = CURSOR(slots 3, slot FIRST, parity 0)
FOR i in 0..3:
  a = copy(x[i])  ~ value t[i]
  b = exp(a)  ~ value u[i]
  @
  c = copy(x[p.slot])  ~ value t[p.slot]
  @
  IF p.slot == i:
    @
    b = exp(c)  ~ value u[p.slot]
  @
  y[i] = copy(b)  ~ value y[i]
  @
"""
TERMS = """\
KERNEL selected(x: float32[3, 2, N]) -> (y: float32[3])
  DIM N min 2
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL one: float32[]
  LOCAL two: float32[]
  LOCAL r: float32[]
  DEFINE s: float32[3] over (3, 2, N) at (i0) = reduce add of copy(x[i0, i1, i2]) from 0.0
  DEFINE y: float32[3] = copy(s[i0])

p = CURSOR(slots 3, slot FIRST, parity 0)
FOR j in 0..3:
  one = copy(0.0)  ~ start s
  FOR h in 0..2:
    FOR i in 0..N:
      one = add(one, x[j, h, i])  ~ term s[j, h, i]
  r = copy(one)  ~ value s[j]
  @
  two = copy(0.0)  ~ start s
  @
  FOR i in 0..N:
    two = add(two, x[p.slot, 0, i])  ~ term s[p.slot, 0, i]
  @
  FOR i in 0..N:
    two = add(two, x[p.slot, 1, i])  ~ term s[p.slot, 1, i]
    @
  @
  IF p.slot == j:
    r = copy(two)  ~ value s[p.slot]
  y[j] = copy(r)  ~ value y[j]
  @
"""
STEPS = """\
KERNEL selected(x: float32[3, N]) -> (y: float32[3, N])
  DIM N min 2
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL one: float32[]
  LOCAL two: float32[]
  LOCAL a: float32[]
  LOCAL b: float32[]
  LOCAL c: float32[]
  DEFINE s: float32[3, N] = scan add along 1 of x[i0, i1]
  DEFINE z: float32[3, N] = exp(s[i0, i1])
  DEFINE y: float32[3, N] = copy(z[i0, i1])

p = CURSOR(slots 3, slot FIRST, parity 0)
FOR j in 0..3:
  one = copy(0.0)  ~ start s
  two = copy(0.0)  ~ start s
  @
  FOR i in 0..N:
    one = add(one, x[j, i])  ~ term s[j, i]
    a = copy(one)  ~ value s[j, i]
    c = exp(a)  ~ value z[j, i]
    @
    two = add(two, x[p.slot, i])  ~ term s[p.slot, i]
    @
    b = copy(two)  ~ value s[p.slot, i]
    @
    IF p.slot == j:
      c = exp(b)  ~ value z[p.slot, i]
    y[j, i] = copy(c)  ~ value y[j, i]
    @
  @
"""
SOME_STEPS = """\
KERNEL selected(x: float32[N]) -> (y: float32[N])
  DIM N min 2
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL one: float32[]
  LOCAL two: float32[]
  LOCAL r: float32[]
  DEFINE s: float32[N] = scan add along 0 of x[i0]
  DEFINE y: float32[N] = copy(s[i0])

p = CURSOR(slots 3, slot FIRST, parity 0)
one = copy(0.0)  ~ start s
@
two = copy(0.0)  ~ start s
@
FOR i in 0..N:
  one = add(one, x[i])  ~ term s[i]
  r = copy(one)  ~ value s[i]
  @
  IF p.slot == 1:
    two = add(two, x[i])  ~ term s[i]
    r = copy(two)  ~ value s[i]
    @
  y[i] = copy(r)  ~ value y[i]
@
"""
JOINS = """\
KERNEL selected(x: float32[N, 2]) -> (y: float32[1])
  DIM N min 2
  GRID (1, 1, 1)  BLOCK (2, 1, 1)
  LOCAL one: float32[]
  LOCAL two: float32[]
  LOCAL r: float32[]
  SHARED w: float32[2]
  DEFINE s: float32[1] over (1, N, 2) at (i0) = reduce add of copy(x[i1, i2]) from 0.0
  DEFINE y: float32[1] = copy(s[i0])

p = CURSOR(slots 3, slot FIRST, parity 0)
one = copy(0.0)  ~ start s
FOR i in 0..N:
  FOR h in 0..2:
    one = add(one, x[i, h])  ~ term s[0, i, h]
r = copy(one)  ~ value s[0]
two = copy(0.0)  ~ start s
FOR i in 0..N:
  two = add(two, x[i, threadIdx.x])  ~ term s[0, i, threadIdx.x]
w[threadIdx.x] = copy(two)  ~ part s
SYNC block
@
IF threadIdx.x == 0 && p.slot == 1:
  two = add(two, w[1])  ~ part s
@
IF threadIdx.x == 0 && p.slot == 1:
  r = copy(two)  ~ value s[0]
@
IF threadIdx.x == 0:
  y[0] = copy(r)  ~ value y[0]
"""
ARMS = """\
KERNEL selected(x: float32[32], n: float32[N]) -> (y: float32[32])
  DIM N min 2
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[2, 32] align 16 @ 0
  SHARED o: float32[2, 32] align 16 @ OFFSET
  MBARRIER full[1], empty[1]
  DEFINE t: float32[32] = copy(x[i0])
  DEFINE u: float32[32] = exp(x[i0])
  DEFINE y: float32[32] = copy(t[i0])

IF threadIdx.x == 0 && threadIdx.y == 0:
  INIT full[0] count 32
  INIT empty[0] count 32
SYNC block
IF threadIdx.y == MINE:
  MY
ELSE:
  WAIT full[0] parity 0
  THEIRS
  ARRIVE empty[0]
"""
TAKERS = """\
KERNEL selected(x: float32[2, N]) -> (y: float32[2])
  DIM N min 2
  GRID (1, 1, 1)  BLOCK (2, 1, 1)
  MEMORY acc: float32[2]
  DEFINE y: float32[2] over (2, N) at (i0) = reduce add of copy(x[i0, i1]) from 0.0

acc[SET] = copy(0.0)  ~ start y
SYNC block
FOR i in FROM..TO:
  acc[TAKE] = add(acc[TAKE], x[TAKE, i])  ~ term y[TAKE, i]
SYNC block
IF threadIdx.x == 0:
  y[0] = copy(acc[0])  ~ value y[0]
  y[1] = copy(acc[1])  ~ value y[1]
"""
STRAYS = """\
KERNEL selected(x: float32[N]) -> (y: float32[1], z: float32[N], e: float32[N])
  DIM N min 2
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL a: float32[]
  LOCAL b: float32[]
  LOCAL c: float32[]
  LOCAL other: float32[]
  DEFINE t: float32[N] = copy(x[i0])
  DEFINE e: float32[N] = exp(t[i0])
  DEFINE z: float32[N] = scan add along 0 of x[i0]
  DEFINE y: float32[1] over (1, N) at (i0) = reduce add of copy(x[i1]) from 0.0

FOR i in 0..N:
  a = copy(x[i])  ~ value t[i]
  @
  e[i] = exp(a)  ~ value e[i]
  @
b = copy(0.0)  ~ start z
@
FOR i in 0..N:
  b = add(b, x[i])  ~ term z[i]
  @
  z[i] = copy(b)  ~ value z[i]
  @
c = copy(0.0)  ~ start y
FOR i in 0..N:
  @
  c = add(c, x[i])  ~ term y[0, i]
@
y[0] = copy(c)  ~ value y[0]
"""
NAMES = """\
KERNEL selected(x: float32[4, N]) -> (y: float32[4])
  DIM N min 2
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[4]
  LOCAL r: float32[]
  DEFINE s: float32[4] over (4, N) at (i0) = reduce add of copy(x[i0, i1]) from 0.0
  DEFINE y: float32[4] = exp(s[READ])

FOR SET in 0..4 UNROLL:
  acc[SET] = copy(0.0)  ~ start s
FOR TAKE in 0..4 UNROLL:
  FOR ALONG in 0..N:
    IF ASKED:
      acc[TAKE] = add(acc[TAKE], x[TAKE, ALONG])  ~ term s[TAKE, ALONG]
FOR OUT in 0..4 UNROLL:
  r = copy(acc[PLACE])  ~ value s[PLACE]
  y[OUT] = exp(r)  ~ value y[OUT]
"""
PEERS = """\
KERNEL selected(x: float32[2*N, 4]) -> (y: float32[2*N, 4])
  DIM N min 2
  GRID (2*N, 1, 1)  BLOCK (4, 1, 1)  CLUSTER (2, 1, 1)
  CLUSTER s: float32[2, 4] align 16 @ 0
  DEFINE a: float32[2*N, 4] = copy(x[i0, i1])
  DEFINE y: float32[2*N, 4] = copy(a[ROW, i1])

SYNC cluster
IF WRITES:
  s[MINE, threadIdx.x] = copy(x[blockIdx.x, threadIdx.x])  ~ value a[blockIdx.x, threadIdx.x]
SYNC cluster
FOR k in 0..6:
  IF STORES:
    y[blockIdx.x, threadIdx.x] = copy(s[THEIRS, threadIdx.x])  ~ value y[blockIdx.x, threadIdx.x]
SYNC cluster
"""
MOVED = (ELEMENTS, TERMS, STEPS, SOME_STEPS, JOINS)


def selected(c: Chooser) -> Small:
    """A kernel and the sizes to look at. Raises :class:`~taskfuse.errors.TaskfuseError` if the text is not a kernel."""
    made = c.pick((_moved, _moved, _moved, _arms, _taken, _strayed, _named, _peers))
    return Small(parse_kernel(made(c)), "selected", tuple(dict(t) for t in TRIED))


def _moved(c: Chooser) -> str:
    """A cursor starts anywhere, and moves at some places."""
    chance = c.pick((10, 25, 45))
    lines = c.pick(MOVED).replace("FIRST", str(c.integer(0, 2))).split("\n")
    return "\n".join(line.replace(PLACE, "p.advance(1)") for line in lines if line.strip() != PLACE or c.chance(chance))


def _arms(c: Chooser) -> str:
    """One arm writes and reads, another one writes when it has waited for the first."""
    mine = ["s[0, threadIdx.x] = copy(x[threadIdx.x])  ~ value t[threadIdx.x]", "ARRIVE full[0]", "WAIT empty[0] parity 0"]
    mine.insert(c.pick((1, 2, 3, 3)), "y[threadIdx.x] = copy(s[0, threadIdx.x])  ~ value y[threadIdx.x]")
    op, tensor = c.pick((("exp", "u"), ("copy", "t")))
    theirs = f"{c.pick('ssoo')}[{c.integer(0, 1)}, threadIdx.x] = {op}(x[threadIdx.x])  ~ value {tensor}[threadIdx.x]"
    text = ARMS.replace("OFFSET", str(c.pick((0, 128, 256)))).replace("MINE", str(c.integer(0, 1)))
    return text.replace("MY", "\n  ".join(mine)).replace("THEIRS", theirs)


def _taken(c: Chooser) -> str:
    """A thread takes as many terms as its index says, for an accumulator of its own or of the other thread."""
    indices = ("threadIdx.x", "1 - threadIdx.x")
    said: Mapping[str, str] = {
        "MEMORY": c.pick(("SHARED", "SHARED", "LOCAL")),
        "SET": c.pick(indices),
        "TAKE": c.pick(indices),
        "FROM": c.pick(("0", "0", "threadIdx.x")),
        "TO": c.pick(("N", "N - threadIdx.x", "N - 1 + threadIdx.x")),
    }
    return _filled(TAKERS, said)


def _filled(text: str, said: Mapping[str, str]) -> str:
    for name, value in said.items():
        text = text.replace(name, value)
    return text


def _named(c: Chooser) -> str:
    """Loops that take terms and loops that read have names in common, and indices in any order."""
    take, along = c.pick((("i", "j"), ("j", "i")))
    out = c.pick("ijk")
    asked = c.pick((f"{along} < {c.pick((3, 4, 9))}", f"{along} <= {take}", f"{take} < 4", f"{along} >= 0"))
    turned = c.chance(40)
    said = {"SET": c.pick("ijk"), "TAKE": take, "ALONG": along, "OUT": out, "ASKED": asked}
    return _filled(NAMES, {**said, "READ": "3 - i0" if turned else "i0", "PLACE": f"3 - {out}" if turned else out})


def _peers(c: Chooser) -> str:
    """Blocks of a cluster write for each other, under conditions on the block, the thread or the iteration."""
    ranks = ("clusterIdx.x", "1 - clusterIdx.x", "blockIdx.x % 2", "0", "1")
    said = {
        "WRITES": c.pick(("clusterIdx.x == 0", "clusterIdx.x == 1", "blockIdx.x >= 0", "blockIdx.x % 2 == 0", "threadIdx.x >= 0")),
        "STORES": c.pick(("k % 3 != 1", "k == 0", "k >= 0", "threadIdx.x % 3 != 1")),
        "MINE": c.pick(ranks),
        "THEIRS": c.pick(ranks),
        "ROW": c.pick(("i0", "i0//2*2", "i0//2*2 + 1")),
    }
    return _filled(PEERS, said)


def _strayed(c: Chooser) -> str:
    """Storage of an element, of a total, of a sum or of nothing is set for another tensor somewhere."""
    lines = STRAYS.split("\n")
    at = c.pick([k for k, line in enumerate(lines) if line.strip() == PLACE])
    claim = c.pick(("0.0)  ~ start z", "0.0)  ~ start y", "0.0)  ~ part y", "x[0])  ~ value t[0]"))
    stray = f"{c.pick(('a', 'b', 'c', 'other'))} = copy({claim}"
    return "\n".join(line.replace(PLACE, stray) for k, line in enumerate(lines) if k == at or line.strip() != PLACE)
