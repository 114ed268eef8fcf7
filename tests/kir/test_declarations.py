"""Declarations: what of a buffer one block has."""

from taskfuse.dtypes import bfloat16, float32
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import const, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir.declarations import Buffer


def test_a_block_has_the_part_of_its_rank() -> None:
    n = sym("N")
    for memory in MemoryType:
        buffer = Buffer("b", float32, memory, (const(4), n, const(8)), 16)
        of_block = (n, const(8)) if MEDIA[memory].is_by_rank else (const(4), n, const(8))
        assert buffer.extents_of_block == of_block
        assert buffer.bytes_of_block == (32 * n if MEDIA[memory].is_by_rank else 128 * n)
    assert any(m.is_by_rank for m in MEDIA.values())


def test_a_scalar_has_the_bytes_of_its_type() -> None:
    assert Buffer("r", bfloat16, MemoryType.Local, (), 2).bytes_of_block is const(2)
