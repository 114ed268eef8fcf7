"""fragment: loop axes over threads and registers as the PTX ISA draws the accumulators of mma and wgmma."""

from typing import Any, cast

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.fragments import Fragment
from taskfuse.ir.matrix_instructions import Family
from tests.products import row_of
from tests.schedule.points import indices, pair, refused, size, visits


@pytest.mark.parametrize(("family", "rows", "columns"), [(Family.MMA, 16, 8), (Family.WGMMA, 64, 8), (Family.WGMMA, 64, 24)])
def test_threads_hold_what_the_instructions_table_says(family: Family, rows: int, columns: int) -> None:
    _, a, _ = pair(rows, columns)
    a.fragment((0, 1))
    found, inside = indices(a.loop, a.schedule.transforms, a.root)
    assert inside.all()
    assert (visits(a) == 1).all()
    threads = [k for k, axis in enumerate(a.loop) if a.schedule.ptype(axis) is tf.ParallelType.TIDx]
    assert threads == [0, 1, 2]
    shape = [size(axis) for axis in a.loop]
    grid = np.indices(shape).reshape(len(shape), -1)
    thread = np.ravel_multi_index(tuple(grid[:3]), shape[:3])
    register = np.ravel_multi_index(tuple(grid[3:]), shape[3:])
    held: Fragment = row_of(family, 2).accumulator(columns)
    table = held.table()
    assert held.count == int(np.prod(shape[3:]))
    assert (table[0][thread, register] == found[a.root[0]]).all()
    assert (table[1][thread, register] == found[a.root[1]]).all()


def test_axes_side_by_side() -> None:
    _, a, _ = pair(16, 8, 16)
    text = "are not two axes side by side\nhelp: use axes such as (-2, -1), after reorder"
    for axes in ((1, 0), (0, 2), (0,), (0, 1, 2)):
        assert refused(lambda axes=axes: a.fragment(axes), a.fusion) == f"fragment(tv1): axes {list(axes)} {text}"
    assert refused(lambda: a.fragment(cast("Any", 0)), a.fusion) == f"fragment(tv1): axes [0] {text}"
    assert refused(lambda: a.fragment((0, 1), cast("Any", "mma"), "a"), a.fusion).startswith("fragment(tv1): 'mma' is not an atom")


@pytest.mark.parametrize(("shape", "position", "unit"), [((12, 8), 0, 16), ((16, 12), 1, 8), (("N", 8), 0, 16)])
def test_whole_tiles_alone(shape: tuple[int | str, int], position: int, unit: int) -> None:
    _, a, _ = pair(*shape)
    expected = f"fragment(tv1): axis {position} (extent {shape[position]}) is not a constant multiple of {unit}\nhelp: split it by a multiple of {unit}"
    assert refused(lambda: a.fragment((0, 1)), a.fusion) == expected
