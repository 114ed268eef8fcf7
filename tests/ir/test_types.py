"""The closed vocabularies: every parallel type is of one kind."""

import pytest

from taskfuse.ir.types import GRID_TYPES, INDEX_TYPES, MemoryType, ParallelType


@pytest.mark.parametrize("ptype", ParallelType)
def test_a_parallel_type_is_an_index_an_instruction_or_a_loop(ptype: ParallelType) -> None:
    assert [ptype.is_bound, ptype.is_atom, ptype.is_loop].count(True) == 1
    assert [ptype.is_block, ptype.is_cluster, ptype.is_thread].count(True) == ptype.is_bound
    assert (ptype in GRID_TYPES) == (ptype.is_block or ptype.is_cluster)


def test_names_of_indices_are_cudas() -> None:
    assert [p.index_name for p in INDEX_TYPES] == [f"{kind}Idx.{d}" for kind in ("block", "cluster", "thread") for d in "xyz"]
    with pytest.raises(KeyError):
        _ = ParallelType.Serial.index_name


def test_a_memory_is_found_in_a_table_by_its_word() -> None:
    assert {MemoryType("Shared"): 1}[MemoryType.Shared] == 1
    assert len({*MemoryType}) == len(MemoryType) == 4
