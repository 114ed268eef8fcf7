"""The rows of memory types: who sees one copy, what has addresses and offsets, what fences cover, how much there is."""

import pytest

from taskfuse.ir.medium import MEDIA, Reach, nearest
from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES, INDEX_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.kir import parse_kernel
from taskfuse.target import TARGETS

P = ParallelType


def test_every_memory_type_has_a_row_nearer_ones_first() -> None:
    assert list(MEDIA) == list(MemoryType)
    seen = [set(m.shared_along) for m in MEDIA.values()]
    assert seen == [set(), set(THREAD_TYPES), {*CLUSTER_TYPES, *THREAD_TYPES}, set(INDEX_TYPES)]
    assert [m.is_private for m in MEDIA.values()] == [True, False, False, False]
    assert [m.is_by_rank for m in MEDIA.values()] == [False, False, True, False]
    assert len({m.keyword for m in MEDIA.values()}) == len(MEDIA)


def test_a_cluster_is_between_a_block_and_the_grid() -> None:
    assert set(Reach.BLOCK.value) < set(Reach.CLUSTER.value) < set(Reach.GRID.value)


@pytest.mark.parametrize("ptype", INDEX_TYPES)
def test_the_nearest_memory_is_the_first_that_all_indices_see(ptype: ParallelType) -> None:
    memory = {**dict.fromkeys(THREAD_TYPES, MemoryType.Shared), **dict.fromkeys(CLUSTER_TYPES, MemoryType.Cluster)}
    assert nearest(ptype) is memory.get(ptype, MemoryType.Global)
    assert [MEDIA[m].is_private_to(ptype) for m in MemoryType] == [True, ptype not in THREAD_TYPES, ptype in BLOCK_TYPES, False]


def test_capacities_are_those_of_the_target() -> None:
    for target in TARGETS.values():
        assert MEDIA[MemoryType.Shared].capacity(target) == MEDIA[MemoryType.Cluster].capacity(target) == target.limits.block_shared
        assert MEDIA[MemoryType.Local].capacity(target) == 255 * 4
        assert MEDIA[MemoryType.Global].capacity(target) is None


def test_declarations_and_fences_are_written_as_rows_say() -> None:
    for memory, medium in MEDIA.items():
        shape = "2, 4" if medium.is_by_rank else "4"
        text = (
            "KERNEL k() -> (y: float32[32])\n  GRID (2, 1, 1)  BLOCK (32, 1, 1)  CLUSTER (2, 1, 1)\n"
            f"  {medium.keyword} b: float32[{shape}] align 16\n\nSYNC block"
        )
        if medium.fence is not None:
            text += f"\nFENCE {medium.fence}"
        kernel = parse_kernel(text)
        assert kernel.buffers[0].memory is memory
        assert str(kernel) == text
