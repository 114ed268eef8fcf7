"""The group of each tile, as a host makes it: what the tiles of ragged rows are defined by."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.scalar import const, sym
from taskfuse.ir.tables import held_places, places


@pytest.mark.parametrize("offsets", [[0, 3, 9], [0, 0, 0, 12], [0, 12, 12, 12], [0, 1, 2, 3, 12]])
@pytest.mark.parametrize("tile", [1, 4, 5, 64])
def test_the_groups_of_tiles(offsets: list[int], tile: int) -> None:
    made = tf.tiles.places(offsets, tile)
    holds, _ = held_places(sym("t"), const(len(offsets)), const(0), const(offsets[-1]), tile)
    assert made.dtype == np.int32
    assert made.tolist() == places(holds, offsets[-1] // tile + len(offsets) - 1, {"t": np.array(offsets)}).tolist()


def test_rows_behind_the_last_group_count() -> None:
    assert len(tf.tiles.places([0, 3, 9], 4, rows=40)) == 12


@pytest.mark.parametrize(("offsets", "tile"), [([0, 3], 4), ([0, 3, 9], 0), ([[0, 3, 9]], 4)])
def test_refused(offsets: list[int], tile: int) -> None:
    with pytest.raises(ValueError, match="offsets and tiles of"):
        tf.tiles.places(offsets, tile)
