"""A write in symbols of its own: other threads and iterations than those of the read, but for what both share."""

from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.claims import Place
from taskfuse.check.values.written import BufferStorage, Writing, bytes_behind
from taskfuse.ir.scalar import const, parse_expr, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir import parse_kernel

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
    assert [str(e) for e in writing.index] == ["m", "written.n + written.p"]
    assert {name: (str(a), str(b)) for name, (a, b) in writing.spans.items()} == {
        "written.threadIdx.x": ("0", "64"),
        "written.threadIdx.y": ("0", "1"),
        "written.threadIdx.z": ("0", "1"),
        "written.n": ("0", "64"),
        "written.p": ("0", "2"),
    }
    assert [str(c) for _, c in writing.conditions] == ["written.threadIdx.x == 3", "written.n % 2 == 0"]
    assert [(str(a), str(b)) for a, b in writing.who()] == [("written.threadIdx.x - 3", "0"), ("written.n % 2", "0")]


def test_registers_are_those_of_the_thread_and_global_memory_those_of_all_blocks() -> None:
    assert not any("Idx" in name for name in Writing(CLAIM, MemoryType.Local, {}).spans)
    assert "written.blockIdx.x" in Writing(CLAIM, MemoryType.Global, {}).spans


def test_bytes_from_one_index_to_the_next() -> None:
    storage = BufferStorage(MemoryType.Shared, (const(2), const(3), const(5)), 4)
    assert [bytes_behind(storage, axes) for axes in range(4)] == [120, 60, 20, 4]
