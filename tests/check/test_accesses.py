"""What statements access: the elements, who makes the access, and with which others it is compared."""

import pytest

from taskfuse.check.accesses import Engine, Partners, Use
from taskfuse.ir.types import MemoryType
from taskfuse.kir.operands import Queue
from tests.check.structured import structure, uses

HEAD = """\
KERNEL k(x: bfloat16[N, 64]) -> (y: bfloat16[N, 64])
  DIM N min 1
  TENSORMAP map = x box (1, 64) swizzle 0
  TENSORMAP out = y box (1, 64) swizzle 0
  GRID (4, 1, 1)  BLOCK {block}
  LOCAL r: bfloat16[8]
  SHARED s: bfloat16[64, 64] align 1024
  MBARRIER full[2]

"""


def found(body: str, buffer: str = "s") -> list[Use]:
    return uses(structure(body, head=HEAD), buffer)


@pytest.mark.parametrize(
    ("body", "made"),
    [
        ("s[0, threadIdx.x] = copy(s[1, threadIdx.x])", [(True, Engine.THREAD), (False, Engine.THREAD)]),
        ("COPY.async s[threadIdx.x, 0] <- x[0, 0] width 8", [(True, Engine.COPY)]),
        ("TMA s[0, 0] <- map(0, 0) on full[0]", [(True, Engine.LOAD)]),
        ("TMA out(0, 0) <- s[0, 0]", [(False, Engine.STORE)]),
        ("r[0] = copy(x[0, threadIdx.x])", []),
    ],
)
def test_who_reads_and_who_writes(body: str, made: list[tuple[bool, Engine]]) -> None:
    assert sorted((u.is_write, u.engine.name) for u in found(body)) == sorted((w, e.name) for w, e in made)
    assert all(u.memory is MemoryType.Shared for u in found(body))


def test_registers_are_nobody_elses() -> None:
    assert found("r[0] = copy(r[1])", "r") == []


def test_engines() -> None:
    assert [e.is_async for e in Engine] == [False, True, True, True, True]
    assert [e.is_async_proxy for e in Engine] == [False, False, True, True, True]
    assert [e.queue for e in Engine] == [None, Queue.COPY, None, Queue.BULK, Queue.WGMMA]


def test_outputs_are_memory_that_all_share() -> None:
    (one,) = found("y[0, threadIdx.x] = copy(x[0, threadIdx.x])", "y")
    assert (one.memory, one.is_write, one.text) == (MemoryType.Global, True, "y[0, threadIdx.x]")
    assert found("y[0, threadIdx.x] = copy(x[0, threadIdx.x])", "x") == []


def test_an_instruction_of_several_elements_has_symbols_for_them() -> None:
    (write,) = found("COPY s[threadIdx.x, 8] <- r[0] width 8")
    assert len(write.span) == 1
    (symbol,) = write.span
    last = write.index[1]
    assert last is not None
    assert symbol in last.free
    assert write.context.ranges.of(last) == (8, 15)


def test_reads_are_not_compared_and_rows_of_a_store_have_partners_of_their_own() -> None:
    write, read = found("s[0, threadIdx.x] = copy(s[1, threadIdx.x])")
    if not write.is_write:
        write, read = read, write
    assert write.conflicts_with(read)
    assert read.conflicts_with(write)
    assert write.conflicts_with(write)
    assert not read.conflicts_with(read)
    rows = found("STMATRIX.x4 s[threadIdx.x, 0] <- r[0]")
    assert {u.partners for u in rows} == {Partners.STORES, Partners.OTHERS}
    (stores,) = [u for u in rows if u.partners is Partners.STORES]
    (others,) = [u for u in rows if u.partners is Partners.OTHERS]
    assert stores.conflicts_with(stores)
    assert not stores.conflicts_with(read)
    assert not stores.conflicts_with(others)
    assert not others.conflicts_with(others)
    assert others.conflicts_with(read)
