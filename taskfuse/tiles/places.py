"""The group of each tile of ragged rows, as a table that replaces searches in kernels: the input that ``search_by(tf.PlaceSearch.TABLE)`` declares."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def places(offsets: npt.ArrayLike, tile: int, rows: int | None = None) -> npt.NDArray[np.int32]:
    """The group of each tile of ``tile`` rows, in the order of :mod:`taskfuse.ir.row_tiles`: an element for each of ``rows//tile + G`` tiles.

    Args:
        offsets: G + 1 positions that rise from 0 to the number of rows.
        tile: rows of a tile.
        rows: of all groups; by default the last position.

    Raises:
        ValueError: there are fewer than two groups, or ``tile`` is less than 1.
    """
    cut = np.asarray(offsets, np.int64)
    if cut.ndim != 1 or cut.size < 3 or tile < 1:
        raise ValueError(f"{cut.size} offsets and tiles of {tile} rows: give at least 3 offsets and 1 row")
    count = (int(cut[-1]) if rows is None else rows) // tile + cut.size - 1
    return np.searchsorted(cut[1:-1] // tile, np.arange(count), side="right").astype(np.int32)
