"""Orders in which the tiles of a result are worked on: objects for ``tv.rasterize``, made of plain scalar expressions."""

from taskfuse.tiles.raster import Raster, raster
from taskfuse.tiles.swizzle import Swizzle, swizzle

__all__ = ["Raster", "Swizzle", "raster", "swizzle"]
