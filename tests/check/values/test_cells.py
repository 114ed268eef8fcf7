"""Cells of a launch: buffers that share bytes share cells; an element that another buffer wrote over in part is not whole any more."""

import numpy as np
import pytest

from taskfuse.check.refuted import Refuted, TooLarge
from taskfuse.check.values.cells import Cells, CellStore
from taskfuse.check.values.terms import Terms
from taskfuse.kir import parse_kernel

TEXT = """\
KERNEL k(x: float32[4]) -> (y: float32[4])
  GRID (2, 1, 1)  BLOCK (4, 1, 1)
  LOCAL r: float32[2]
  SHARED a: float32[4] align 16 @ 0
  SHARED b: float16[8] align 16 @ 8
  SHARED c: float32[2] align 16 @ 32
  GLOBAL g: float32[3]

y[threadIdx.x] = neg(x[threadIdx.x])
"""


def cells() -> Cells:
    return Cells(parse_kernel(TEXT), {}, threads=8, blocks=2)


def put(store: CellStore, owner: int, element: int, data: int) -> None:
    Cells.write(store, Cells.cells(store, np.array([owner]), np.array([element])), Terms(np.array([9]), np.array([data])))


def got(store: CellStore, owner: int, element: int) -> tuple[int, bool]:
    found, whole = Cells.read(store, Cells.cells(store, np.array([owner]), np.array([element])))
    return int(found.data[0]), whole is None or bool(whole[0])


def test_who_has_copies_of_a_buffer() -> None:
    s = cells().stores
    assert s["x"].region is None
    for name, owners in (("r", 8), ("c", 2), ("g", 1), ("y", 1)):
        region = s[name].region
        assert region is not None
        assert len(region.terms) == owners * region.count
    put(s["r"], 3, 1, 7)
    assert [got(s["r"], t, 1)[0] for t in (2, 3, 4)] == [0, 7, 0]
    put(s["g"], 1, 2, 5)  # of all blocks
    assert got(s["g"], 0, 2) == (5, True)


def test_buffers_that_overlap_are_one_region() -> None:
    s = cells().stores
    assert s["a"].region is s["b"].region is not s["c"].region
    assert (s["a"].shares, s["b"].shares, s["c"].shares) == (True, True, False)


def test_what_is_overwritten_in_part_is_not_whole() -> None:
    s = cells().stores
    put(s["a"], 0, 2, 1)
    put(s["a"], 0, 3, 2)
    assert got(s["a"], 0, 2) == (1, True)
    put(s["b"], 0, 1, 3)  # the upper half of a[2]
    assert got(s["b"], 0, 1) == (3, True)
    assert not got(s["a"], 0, 2)[1]
    assert got(s["a"], 0, 3) == (2, True)
    put(s["a"], 0, 2, 4)
    assert got(s["a"], 0, 2) == (4, True)
    assert not got(s["b"], 0, 1)[1]
    assert got(s["a"], 1, 2)[0] == 0  # another block's


def test_addresses_of_an_engine() -> None:
    s = cells().stores
    put(s["a"], 1, 1, 6)
    at = Cells.addressed(s["a"], np.array([1]), np.array([4]), "it")
    assert Cells.read(s["a"], at)[0].data.tolist() == [6]
    for address in (-4, 24, 32):
        with pytest.raises(Refuted, match=f"it touches byte {address} of Shared memory, outside it"):
            Cells.addressed(s["a"], np.array([1]), np.array([address]), "it")


def test_a_launch_of_too_many_cells() -> None:
    with pytest.raises(TooLarge):
        Cells(parse_kernel(TEXT), {}, threads=1 << 23, blocks=1)
