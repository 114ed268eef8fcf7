"""A kernel with definitions, for the tests of the witness."""

from taskfuse.kir import Kernel, held, parse_kernel, walk
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Send, Whole

DEFINITIONS = """\
  DEFINE whole: float32[N, 4] = copy(x[i0, i1])
  DEFINE s: float32[N] over (N, 4) at (i0) = reduce add of mul(x[i0, i1], alpha) from 0.0
  DEFINE d: float32[N] over (N, 4) at (i0) = reduce maximum of abs.float64(x[i0, i1]) from -inf
  DEFINE t: float32[N, 4] = scan add.float64 along 1 of x[i0, i1]
  DEFINE p: float32[N, 4] = pick(x[i0, i1] if i1 < 2, otherwise 0.5)
  DEFINE q: float32[N, 4] = pick(x[i0, 3 - i1] if i1 < 2, 1.0:float64 if i1 >= 2)
  DEFINE f: float32[N] = find x[i0, v0] at j[i0] of 4
  DEFINE l: bool[N] = lt.int64(index(i0 + N), 3)
  DEFINE one: float32[] = neg(0.5)
  DEFINE w: float32[N, 4] = whole p at (i0, i1), q at (N - i0 - 1, i1)
  DEFINE y: float32[N, 4] = add(s[i0], one[])
"""
HEADER = f"""\
KERNEL k(x: float32[N, 4], j: int32[N], alpha: float32) -> (y: float32[N, 4])
  DIM N
  TENSORMAP map_x = x box (8, 4) swizzle 0
  GRID (N, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: float32[]
  LOCAL acc: float32[8]
  LOCAL ab: bfloat16[8]
  SHARED b: bfloat16[32, 8] align 128
  SHARED g: float32[8, 4] align 128
  MBARRIER full[1]
{DEFINITIONS}
"""


def kernel(body: str) -> Kernel:
    return parse_kernel(HEADER + body + "\n")


def assert_equal(found: Kernel, wanted: Kernel) -> None:
    """Equal with the witness, and of the same rows of the tables of dtypes and functions."""
    assert found == wanted
    assert found.definitions == wanted.definitions
    assert [held(s) for s in walk(found)] == [held(s) for s in walk(wanted)]
    for a, b in zip(found.definitions, wanted.definitions, strict=True):
        assert rows(a) == rows(b)


def rows(d: Definition) -> list[int]:
    """The identities of the rows that a definition names."""
    match d.rule:
        case Apply(op=op, dtype=dtype):
            found: tuple[object, ...] = (op, dtype)
        case Reduce(combine=combine, body=body, init=init, dtype=dtype):
            found = (combine, body, init.dtype, dtype)
        case Accumulate(combine=combine, dtype=dtype):
            found = (combine, dtype)
        case Iterate(op=op, init=init, dtype=dtype):
            found = (op, init.dtype, dtype)
        case Send(combine=combine):
            found = (combine,)
        case Pick() | Find() | Whole():
            found = ()
    return [id(row) for row in (d.dtype, *found)]
