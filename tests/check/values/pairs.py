"""What a thread writes, and what another one reads."""

from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.claims import Place
from taskfuse.check.values.questions import known_at
from taskfuse.check.values.write_and_read import WriteAndRead
from taskfuse.check.values.written import BufferStorage, Writing
from taskfuse.ir.scalar import const, parse_expr
from taskfuse.ir.types import MemoryType
from taskfuse.kir import parse_kernel

TEXT = """\
KERNEL k(x: float32[64]) -> (y: float32[64])
  GRID (1, 1, 1)  BLOCK (64, 1, 1)
  SHARED s: float32[64] align 16

IF {condition}:
  s[threadIdx.x] = copy(x[threadIdx.x])
SYNC block
y[threadIdx.x] = copy(s[threadIdx.x])
"""


def pair(condition: str = "threadIdx.x < 64", *, write: str = "threadIdx.x", read: str = "63 - threadIdx.x") -> WriteAndRead:
    """What a thread writes at one index against what another reads at another one."""
    leaves = StatementTree.of(parse_kernel(TEXT.format(condition=condition))).leaves()
    index, wanted = (parse_expr(write),), (parse_expr(read),)
    storage = BufferStorage(MemoryType.Shared, (const(64),), 4)
    writing = Writing(Place(leaves[0], "s", index, "x", (parse_expr("threadIdx.x"),)), storage.memory, {})
    want = Place(leaves[-1], "s", wanted, "x", (parse_expr("63 - threadIdx.x"),))
    return WriteAndRead(writing, want, storage, (const(64),), None, known_at(want), None, past=False)
