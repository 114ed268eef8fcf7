"""Kernel IR in one launch: values, addresses, and what others can see."""

import pytest

from taskfuse.ir.scalar import const, parse_expr, sym
from taskfuse.kir.operands import Access, SemaphoreSlot
from taskfuse.testing.ptx.launch import SHARED_AT, TENSORS_AT
from taskfuse.testing.ptx.reading import LaunchReader
from tests.testing.ptx.launched import launched

TEXT = """\
KERNEL k(x: float32[N, 8]) -> (y: bfloat16[N, 8])
  DIM N
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: float32[4]
  SHARED s: float32[8, 4] align 16 @ 64
  SEMAPHORE g[2, 3] count 5

r[0] = neg(r[1])
y[0, 0] = copy(r[0])
FOR i in 0..N:
  r[0] = neg(r[1])
FOR i in 0..N:
  s[0, 0] = copy(r[1])
SYNC warp
c = CURSOR(slots 2, slot 0, parity 0)
IF threadIdx.x < 3:
  RELEASE g[0, 0]
"""


@pytest.fixture(scope="module")
def reader() -> LaunchReader:
    return LaunchReader(launched(TEXT, N=3))


def test_values(reader: LaunchReader) -> None:
    env = {"i": 7, "N": 3}
    assert [reader.value(e, env) for e in (sym("i"), const(4), parse_expr("i // N + 1"), parse_expr("i < N"))] == [7, 4, 3, 0]
    assert reader.value(parse_expr("i // N + 1"), env | {"i": 9}) == 4  # compiled once, evaluated anew


def test_addresses(reader: LaunchReader) -> None:
    assert reader.address(Access("x", (sym("i"), const(2))), {"i": 3}) == TENSORS_AT + 4 * (3 * 8 + 2)
    assert reader.address(Access("s", (const(1), sym("i"))), {"i": 3}) == SHARED_AT + 64 + 4 * (4 + 3)
    assert reader.address(Access("s", (const(1), sym("i"))), {"i": 0}) == SHARED_AT + 64 + 16
    assert reader.semaphore(SemaphoreSlot("g", (const(1), sym("i"))), {"i": 2}) == reader.launch.bases["g"] + 8 * 5
    assert str(reader.count("g")) == "5"


def test_kinds_of_memory(reader: LaunchReader) -> None:
    names = {name: (reader.is_register(Access(name, ())), reader.is_tensor(Access(name, ()))) for name in "xyrs"}
    assert names == {"x": (False, True), "y": (False, True), "r": (True, False), "s": (False, False)}
    assert (reader.size(Access("y", ())), reader.size(Access("x", ()), 4)) == (2, 16)


def test_what_only_computes_in_registers_does_not_matter(reader: LaunchReader) -> None:
    body = reader.kernel.body
    assert [reader.matters(s, False) for s in body] == [False, True, False, True, True, True, True]
    assert [reader.matters(s, True) for s in body] == [False, False, False, False, True, True, False]
