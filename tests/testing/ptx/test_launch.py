"""One launch of both sides: numbers, addresses, and the bytes of parameters."""

from __future__ import annotations

import pytest

from taskfuse.cuda.source import emit
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.variant import ArgumentLayout, Variant
from taskfuse.testing.ptx.launch import DATA_AT, PARAMS_AT, SHARED_AT, TENSORS_AT, PtxLaunch, blocks, extents, launches, linear, row_major, threads
from taskfuse.testing.ptx.nodes import Data, Param, PtxFunction
from taskfuse.testing.ptx.unknown import UNKNOWN

TEXT = """\
KERNEL k(x: float32[N, 20]) -> (y: float32[N, 20])
  DIM N min 2 max 64 multiple_of 2
  GRID (N, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[8] align 16 @ 0
  SHARED t: float32[8] align 128

s[0] = copy(x[blockIdx.x, 0])
y[blockIdx.x, 0] = copy(s[0])
"""


def function(sizes: tuple[int, ...], **data: Data) -> PtxFunction:
    params = tuple(Param(f"p{k}", size, min(size, 8)) for k, size in enumerate(sizes))
    return PtxFunction("k", params, (), {}, {}, data, "sm_90a", {})


def launch(n: int = 4, *forms: ArgumentLayout, text: str = TEXT, **data: Data) -> PtxLaunch | None:
    kernel: Kernel = parse_kernel(text)
    source = emit(kernel, Variant(forms or (ArgumentLayout.DENSE, ArgumentLayout.DENSE), False))
    sizes = {"PointerArgument": 8, "IntegerArgument": 4, "StrideArgument": 4, "DivisorArgument": 12}
    return launches(kernel, source, function(tuple(sizes[type(a).__name__] for a in source.arguments), **data), {"N": n})


def made(n: int = 4, *forms: ArgumentLayout, text: str = TEXT, **data: Data) -> PtxLaunch:
    found = launch(n, *forms, text=text, **data)
    assert found is not None
    return found


def test_numbers_and_addresses() -> None:
    found = made()
    assert (found.grid, found.block, found.cluster) == ((4, 1, 1), (32, 1, 1), (1, 1, 1))
    assert found.bases["x"] == TENSORS_AT
    assert found.bases["y"] > TENSORS_AT + 4 * 20 * 4
    assert (found.bases["s"], found.bases["t"]) == (SHARED_AT, SHARED_AT + 128)  # aligned, behind the other
    assert found.parts == {"s": (SHARED_AT, 32), "t": (SHARED_AT + 128, 32)}
    assert found.strides["x"] == (20, 1)


def test_strides_that_a_form_allows() -> None:
    assert made(4, ArgumentLayout.ROWS, ArgumentLayout.STRIDED).strides["x"] == (48, 1)
    assert made(4, ArgumentLayout.ROWS, ArgumentLayout.STRIDED).strides["y"] == (60, 3)
    assert row_major((2, 3, 4)) == (12, 4, 1)
    assert row_major(()) == ()


def test_the_bytes_of_parameters() -> None:
    found = made(4, ArgumentLayout.ROWS, ArgumentLayout.DENSE)
    known = {found.read(address, 8) for address in found.words}
    assert {found.bases["x"], found.bases["y"]} <= known
    assert 48 in {found.read(address, 4) for address in found.words}
    assert found.read(PARAMS_AT + 1, 8) is UNKNOWN
    assert found.read(UNKNOWN, 4) is UNKNOWN
    assert found.read(TENSORS_AT, 4) is UNKNOWN  # data


def test_constant_data() -> None:
    found = made(4, numbers=Data("global", 2, (1, -2, 3)), more=Data("global", 1, None))
    assert found.at["numbers"] >= DATA_AT
    assert found.read(found.at["numbers"] + 2, 2) == 0xFFFE
    assert found.read(found.at["numbers"], 4) == 0xFFFE0001
    assert found.read(found.at["numbers"] + 5, 4) is UNKNOWN  # behind the end
    assert found.read(found.at["more"], 1) is UNKNOWN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BLOCK (32, 1, 1)", "BLOCK (N - 4, 1, 1)"),
        ("BLOCK (32, 1, 1)", "BLOCK (32, 33, 1)"),
        ("BLOCK (32, 1, 1)", "BLOCK (1, 1, 128)"),
        ("GRID (N, 1, 1)", "GRID (N - 4, 1, 1)"),
        ("GRID (N, 1, 1)", "GRID (1, 65536, 1)"),
        ("GRID (N, 1, 1)  BLOCK (32, 1, 1)", "GRID (N - 1, 1, 1)  BLOCK (32, 1, 1)  CLUSTER (2, 1, 1)"),
    ],
)
def test_what_a_gpu_refuses(old: str, new: str) -> None:
    assert old in TEXT
    assert launch(text=TEXT.replace(old, new)) is None


def test_special_registers() -> None:
    found = made().special((3, 0, 0), (5, 0, 0))
    assert (found["tid.x"], found["ctaid.x"], found["ntid.x"], found["nctaid.x"], found["cluster_ctaid.x"]) == (5, 3, 32, 4, 0)


def test_extents_obey_their_facts_and_grow() -> None:
    found = [values["N"] for values in extents(parse_kernel(TEXT))]
    assert found == [2, 4, 10, 40, 64, 64, 64]
    assert list(extents(parse_kernel(TEXT.replace("  DIM N min 2 max 64 multiple_of 2\n", "").replace("N", "4").replace("KER4EL", "KERNEL")))) == [{}]


def test_threads_to_look_at() -> None:
    assert threads((4, 2, 1)) == [(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0), (0, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 0)]
    found = threads((32, 8, 1))
    assert {linear((32, 8, 1), t) // 32 for t in found} == set(range(8))
    assert (31, 7, 0) in found
    assert len(found) < 30


def test_blocks_to_look_at() -> None:
    assert blocks((1, 1, 1)) == [(0, 0, 0)]
    assert {(0, 0, 0), (3, 4, 0), (2, 2, 0), (1, 0, 0), (0, 1, 0)} == set(blocks((4, 5, 1)))
