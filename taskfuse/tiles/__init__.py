"""Orders of tiles, and lists of the tiles of several problems: which block computes which tile, and when.

``raster``, ``grouped``, ``halves``, ``rotated``, ``descending`` and ``dynamic`` make orders for ``tv.rasterize``. A ``WorkList`` assigns the tiles
of several problems to blocks round-robin, and tells how balanced that is. ``split_k`` and ``stream_k`` let blocks share
tiles, for ``tv.chunk_product``.
"""

from taskfuse.tiles.halves import Halves, halves
from taskfuse.tiles.orders import Descending, Dynamic, Grouped, Raster, Rotated, descending, dynamic, grouped, raster, rotated
from taskfuse.tiles.shared import SplitK, StreamK, split_k, stream_k
from taskfuse.tiles.triangles import Half, macro_tiles, triangle, triangular
from taskfuse.tiles.work_list_picture import picture, table
from taskfuse.tiles.work_lists import Problem, WorkItem, WorkList, places, sort_problems

__all__ = [
    "Descending",
    "Dynamic",
    "Grouped",
    "Half",
    "Halves",
    "Problem",
    "Raster",
    "Rotated",
    "SplitK",
    "StreamK",
    "WorkItem",
    "WorkList",
    "descending",
    "dynamic",
    "grouped",
    "halves",
    "macro_tiles",
    "picture",
    "places",
    "raster",
    "rotated",
    "sort_problems",
    "split_k",
    "stream_k",
    "table",
    "triangle",
    "triangular",
]
