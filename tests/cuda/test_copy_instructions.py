"""Helpers that copy: their instructions, operands in order, and the machine that they need."""

import re

import pytest

from taskfuse.cuda.copy_instructions import (
    BULK_COMMIT,
    LEAST_ASYNC_COPY,
    STORED,
    TENSOR_MAP,
    async_copy,
    coordinates,
    copy_vector,
    store_vector_if,
    tma_load,
    tma_multicast,
    tma_store,
)
from taskfuse.cuda.instructions import SHARED_ADDRESS
from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.text import Helper, closure

EVERY = [
    *(copy_vector(size) for size in (2, 4, 8, 16)),
    *(store_vector_if(size) for size in STORED),
    *(async_copy(size, fills=fills) for size in (4, 8, 16) for fills in (False, True)),
    *(make(rank) for make in (tma_load, tma_store, tma_multicast) for rank in range(1, 6)),
]


def operands(helper: Helper) -> tuple[int, int]:
    """How many operands the instruction names, and how many it is given."""
    return len(set(re.findall(r"%\d", helper.text))), len(re.findall(r'"[hlrn]"\(', helper.text))


@pytest.mark.parametrize("helper", [h for h in EVERY if "asm" in h.text], ids=lambda h: h.name)
def test_an_instruction_has_all_its_operands(helper: Helper) -> None:
    named, given = operands(helper)
    assert named == given
    assert '"memory"' in helper.text


def test_they_compile() -> None:
    """All of them, on the oldest machine that has them."""
    for arch in (80, 90):
        helpers = closure(h for h in EVERY if h.arch <= arch)
        text = "\n".join(h.text for h in helpers)
        assert compile_ptx(f'{text}\nextern "C" __global__ void k() {{}}\n', "k", CompileOptions(arch=f"sm_{arch}"))


def test_names_are_different() -> None:
    assert len({h.name for h in EVERY}) == len(EVERY)
    assert all(re.search(rf"\b{h.name}\(", h.text) for h in EVERY)


def test_bytes_of_a_vector() -> None:
    assert "reinterpret_cast<uint2*>" in copy_vector(8).text
    with pytest.raises(KeyError):
        copy_vector(12)
    assert "@p st.global.b64 [%1], %2" in store_vector_if(8).text
    assert 16 not in STORED  # there is no register of 16 bytes


def test_only_copies_of_16_bytes_go_past_the_first_level_cache() -> None:
    assert "cp.async.cg.shared.global [%0], [%1], 16;" in async_copy(16, fills=False).text
    assert "cp.async.ca.shared.global [%0], [%1], 4;" in async_copy(LEAST_ASYNC_COPY, fills=False).text
    assert "[%1], 8, %2;" in (filled := async_copy(8, fills=True).text)
    assert "valid ? 8 : 0" in filled
    assert async_copy(8, fills=True).requires == (SHARED_ADDRESS,)


def test_coordinates_come_behind_the_other_operands() -> None:
    assert coordinates(2, 3) == (", int c0, int c1", "%3, %4", ', "r"(c0), "r"(c1)')
    assert coordinates(0, 3) == ("", "", "")


def test_boxes() -> None:
    assert "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" in tma_load(3).text
    assert "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%2}], [%1];" in tma_store(1).text
    assert '.multicast::cluster "\n' in tma_multicast(2).text
    assert "[%0], [%1, {%4, %5}], [%2], %3;" in tma_multicast(2).text
    for made in (tma_load(3), tma_store(1), tma_multicast(2)):
        assert made.arch == 90
        assert TENSOR_MAP in made.requires
    assert BULK_COMMIT.arch == 90
