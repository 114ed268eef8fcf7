"""A write in symbols of its own: other threads and iterations than those of the read, but for what both share."""

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.claims import Place
from taskfuse.check.values.written import BufferStorage, Writing, bytes_behind
from taskfuse.ir.scalar import const, parse_expr, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel, parse_kernel

TEXT = """\
KERNEL k(x: float32[4, 64]) -> (y: float32[4, 64])
  GRID (4, 1, 1)  BLOCK (64, 1, 1)
  LOCAL t: float32[4]
  SHARED s: float32[4, 64] align 16

FOR m in 0..4:
  FOR n in 0..64 step 2:
    IF threadIdx.x == 3:
      s[m, n + p] = copy(x[m, n])
"""
(NODE,) = StatementTree.of(parse_kernel(TEXT.replace(" + p", ""))).leaves()
INDEX = (parse_expr("m"), parse_expr("n + p"))
CLAIM = Place(NODE, "s", INDEX, "x", INDEX, (("p", 2),))


def test_symbols_of_its_own() -> None:
    writing = Writing(CLAIM, MemoryType.Shared, {"m": sym("m")})
    assert [str(e) for e in writing.index] == ["m", "'written.n + 'written.p"]
    assert {name: (str(a), str(b)) for name, (a, b) in writing.spans.items()} == {
        "'written.threadIdx.x": ("0", "64"),
        "'written.threadIdx.y": ("0", "1"),
        "'written.threadIdx.z": ("0", "1"),
        "'written.n": ("0", "64"),
        "'written.p": ("0", "2"),
    }
    assert [str(c) for _, c in writing.conditions] == ["'written.threadIdx.x == 3", "'written.n % 2 == 0"]
    assert [(str(a), str(b)) for a, b in writing.who] == [("'written.threadIdx.x - 3", "0"), ("'written.n % 2", "0")]


def test_registers_are_those_of_the_thread_and_global_memory_those_of_all_blocks() -> None:
    assert not any("Idx" in name for name in Writing(CLAIM, MemoryType.Local, {}).spans)
    assert "'written.blockIdx.x" in Writing(CLAIM, MemoryType.Global, {}).spans


def test_bytes_from_one_index_to_the_next() -> None:
    storage = BufferStorage(MemoryType.Shared, (const(2), const(3), const(5)), 4)
    assert [bytes_behind(storage, axes) for axes in range(4)] == [120, 60, 20, 4]


SLOTS = """\
KERNEL slots(x: float32[N, 8]) -> (y: float32[N, 8])
  DIM N
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  SHARED s: float32[3, 8]
  DEFINE a: float32[N, 8] = neg(x[i0, i1])
  DEFINE y: float32[N, 8] = exp(a[i0, 7 - i1])

FOR i in 0..N:
  c = CURSOR(slots 3, slot 0, parity 0)
  {before}
  s[c.slot, threadIdx.x] = neg(x[i, threadIdx.x])  ~ value a[i, threadIdx.x]
  SYNC block
  {between}
  y[i, threadIdx.x] = exp(s[c.slot, 7 - threadIdx.x])  ~ value y[i, threadIdx.x]
  SYNC block
  {behind}
"""
MOVE = "c.advance(1)"
HALF = "IF threadIdx.x < 4:\n    c.advance(1)"
ODD = "IF i % 2 == 1:\n    c.advance(1)"
OWN = "FOR k in 0..threadIdx.x:\n    c.advance(1)"


def kernel(before: str = "PASS", between: str = "PASS", behind: str = "PASS") -> Kernel:
    lines = SLOTS.format(before=before, between=between, behind=behind).split("\n")
    return parse_kernel("\n".join(line for line in lines if line.strip() != "PASS"))


@pytest.mark.parametrize("behind", ["PASS", MOVE, HALF])
@pytest.mark.parametrize("before", ["PASS", MOVE, ODD])
def test_it_stays(before: str, behind: str) -> None:
    found = verify(kernel(before, "PASS", behind))
    assert found.verdict is (Verdict.PROVED if behind is not HALF else Verdict.OUTSIDE), found


@pytest.mark.parametrize("between", [MOVE, HALF, ODD])
def test_it_moves_in_between(between: str) -> None:
    assert verify(kernel(between=between)).verdict is Verdict.REFUTED


@pytest.mark.parametrize("before", [HALF, OWN, "c.advance(threadIdx.x)"])
def test_threads_move_theirs_apart(before: str) -> None:
    assert verify(kernel(before)).verdict is Verdict.REFUTED


def test_a_loop_around_the_write_moves_it() -> None:
    write = "s[c.slot, threadIdx.x] = neg(x[i, threadIdx.x])  ~ value a[i, threadIdx.x]"
    lines = SLOTS.format(before="PASS", between="PASS", behind="PASS").replace(write, f"FOR k in 0..2:\n    {write}\n    {MOVE}").split("\n")
    moved = parse_kernel("\n".join(line for line in lines if line.strip() != "PASS"))
    assert verify(moved).verdict is Verdict.REFUTED
