"""Random math around products of groups: all layouts, groups of any length, weights of rows, biases and functions of the result.

Small ones have any types; a share has extents of tensor cores. Tables are made with the arguments of a case: :func:`rising` has empty groups and one
group, too; :func:`hostile` breaks every promise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import taskfuse as tf
from taskfuse.dtypes import DType, bfloat16, float8_e4m3, float32, int32, int64
from taskfuse.ir.dims import Dim
from taskfuse.ir.identity import among
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import PlaceSearch
from taskfuse.testing.graphs import UNARY_EXACT, Graph
from taskfuse.testing.inputs import Dimension

ROWS = (4, 5, 8, 12, 1, 13)
TILES = (4, 2, 5, 1, 128)
GROUPS = (2, 3, 1, 4, 5)
DEPTHS = (3, 4, 1, 7)
COLUMNS = (2, 4, 1, 3, 5)
SCALED = 128
"""Elements of a row that share a scale."""
EXTREMES = (-(2**31), 2**31 - 1, -1)


class GroupedGraph(Graph):
    """Builds the math of a fusion with a product of groups."""

    def grow(self) -> None:
        """Add factors, tables, the product, functions of it, and outputs."""
        layouts = [self._rows, self._rows, self._rows, self._terms, self._masked, self._tiled, self._aligned]
        result = self.chooser.pick([*layouts, self._scaled, self._two] if self._large else layouts)()
        self.tensors.append(result)
        for _ in range(self.chooser.integer(0, 2)):
            made = self._next(result)
            if made is not None:
                self.tensors.append(made)
                result = made
        for tv in self.fusion.tensors():
            if not tv.is_input and (not tv.uses or (among(tv, self.tensors) and self.chooser.chance(8))):
                self.recorder.call(self.fusion, "add_output", tv)

    def _dimensions(self) -> list[Dimension]:
        """The extents of the product: of tensor cores, or small."""
        self._large = self.chooser.chance(self.options.tiles)
        self._dtype_of_factors: DType = bfloat16 if self._large else self.chooser.pick((float32, float32, int32, bfloat16))
        self._groups = self.chooser.pick(GROUPS[:3] if self._large else GROUPS)
        self._k = self.chooser.pick((64, 16)) if self._large else self.chooser.pick(DEPTHS)
        self._n = self.chooser.pick((64, 24)) if self._large else self.chooser.pick(COLUMNS)
        return [self._n]

    def _tile(self) -> tuple[str, int]:
        """The argument ``tile=``, and its value."""
        return "tile", 64 if self._large else self.chooser.pick(TILES)

    def _named(self, name: str, size: int, least: int, multiple: int = 1) -> Dim | int:
        """An extent as a number, or as a symbol that has at least some value."""
        if least > size or not self.chooser.chance(self.options.symbolic):
            return size
        self.sizes[name] = size
        return Dim(name, least, None, multiple)

    def _factor(self, shape: list[Dim | int | str]) -> TensorView:
        tv: TensorView = self.recorder.call(tf, "define_tensor", shape, dtype=self._dtype_of_factors)
        return tv

    def _table(self, size: int, high: Dim | int, *, rising: bool = False, lengths: bool = False) -> TensorView:
        name = high.name if isinstance(high, Dim) else high
        options: dict[str, object] = {"rising": True} if rising else {"lengths": True} if lengths else {}
        tv: TensorView = self.recorder.call(tf, "table", f"t{len(self.fusion.tables)}", size, name, self.chooser.pick((int32, int64)), **options)
        return tv

    # -- layouts --------------------------------------------------------------------------------------------------------------------

    def _rows(self) -> TensorView:
        key, tile = self._tile()
        rows = self._named("M", self.chooser.pick((80, 64)) if self._large else self.chooser.pick(ROWS), tile)
        a, b = self._factor([rows, self._k]), self._factor([self._groups, self._k, self._n])
        if self._large and self.chooser.chance(20):
            a = self.recorder.call(tf, self.chooser.pick(("relu", "neg")), a)
        table, given = self._cuts(rows, rising=True)
        result: TensorView = self.recorder.call(tf, "grouped_matmul", a, b, **given, **{key: tile})
        self._search(table, tile)
        return result

    def _two(self) -> TensorView:
        """Two products of the same groups whose results are multiplied: those of a gated activation."""
        key, tile = self._tile()
        rows = self._named("M", self.chooser.pick((80, 64)), tile)
        a, b, c = self._factor([rows, self._k]), *(self._factor([self._groups, self._k, self._n]) for _ in range(2))
        table, given = self._cuts(rows, rising=True)
        up, gate = (self.recorder.call(tf, "grouped_matmul", a, x, **given, **{key: tile}) for x in (b, c))
        self._search(table, tile)
        result: TensorView = self.recorder.call(tf, "mul", self.recorder.call(tf, "relu", gate), up)
        return result

    def _scaled(self) -> TensorView:
        """8-bit floats with scales: of 128 elements of a row and blocks of 128 x 128, of rows and columns, or of all of a factor."""
        key, tile = self._tile()
        rows = self._named("M", self.chooser.pick((80, 64)), tile)
        name, terms = (rows.name if isinstance(rows, Dim) else rows), SCALED * self.chooser.pick((1, 2))
        a: TensorView = self.recorder.call(tf, "define_tensor", [rows, terms], dtype=float8_e4m3)
        b: TensorView = self.recorder.call(tf, "define_tensor", [self._groups, self._n, terms], dtype=float8_e4m3)
        of_a, of_b = self.chooser.pick((((name, terms // SCALED), (-(-self._n // SCALED), terms // SCALED)), ((name, 1), (self._n, 1)), ((), ())))
        scale_a: TensorView = self.recorder.call(tf, "define_tensor", list(of_a), dtype=float32)
        scale_b: TensorView = self.recorder.call(tf, "define_tensor", [self._groups, *of_b] if of_b else [], dtype=float32)
        turned = self.recorder.call(tf, "permute", b, [0, 2, 1])
        scales = {"scale_a": scale_a, "scale_b": self.recorder.call(tf, "permute", scale_b, [0, 2, 1]) if of_b else scale_b}
        table, given = self._cuts(rows, rising=True)
        result: TensorView = self.recorder.call(tf, "grouped_matmul", a, turned, **given, **scales, **{key: tile})
        self._search(table, tile)
        return result

    def _cuts(self, high: Dim | int, *, rising: bool) -> tuple[TensorView, dict[str, TensorView]]:
        """A table of offsets or of lengths, and as an argument."""
        by_lengths = self.chooser.chance(40)
        table = self._table(self._groups, high, lengths=True) if by_lengths else self._table(self._groups + 1, high, rising=rising)
        return table, {"lengths" if by_lengths else "offsets": table}

    def _search(self, offsets: TensorView, tile: int) -> None:
        """Say how places are found in a table, of tiles as the product has, or of others."""
        if self._groups > 1 and self.chooser.chance(60):
            hows = (PlaceSearch.BALLOT, PlaceSearch.BISECTION) if self.fusion.tables[offsets].lengths else tuple(PlaceSearch)
            how = self.chooser.pick(hows)
            self.recorder.call(offsets, "search_by", how, **({"divisor": self.chooser.pick((tile, tile, tile, 1))} if how is PlaceSearch.TABLE else {}))

    def _terms(self) -> TensorView:
        terms = self._named("K", self.chooser.pick((80, 64)) if self._large else self.chooser.pick(ROWS), 1)
        known = terms.name if isinstance(terms, Dim) else terms
        a, b = self._factor([terms, self._k]), self._factor([known, self._n])
        turned: TensorView = self.recorder.call(tf, "permute", a, [1, 0])
        _, given = self._cuts(terms, rising=self.chooser.chance(50))
        return self.recorder.call(tf, "grouped_matmul", turned, b, **given)

    def _masked(self) -> TensorView:
        rows = self._named("M", self.chooser.pick((80, 64)) if self._large else self.chooser.pick(ROWS), 1)
        a, b = self._factor([self._groups, rows, self._k]), self._factor([self._groups, self._k, self._n])
        return self.recorder.call(tf, "grouped_matmul_masked", a, b, self._table(self._groups, rows))

    def _padded(self) -> tuple[Dim | int, str, int]:
        key, tile = self._tile()
        tile = min(tile, 8) if not self._large else tile
        rows = tile * self.chooser.pick((2, 1, 3))
        return self._named("M", rows, tile, tile), key, tile

    def _tiled(self) -> TensorView:
        rows, key, tile = self._padded()
        a, b = self._factor([rows, self._k]), self._factor([self._groups, self._k, self._n])
        name = rows.name if isinstance(rows, Dim) else rows
        table = self.recorder.call(tf, "table", f"t{len(self.fusion.tables)}", name, self._groups - 1, low=-1)
        return self.recorder.call(tf, "grouped_matmul_tiled", a, b, table, **{key: tile})

    def _aligned(self) -> TensorView:
        rows, key, tile = self._padded()
        a, b = self._factor([rows, self._k]), self._factor([self._groups, self._k, self._n])
        return self.recorder.call(tf, "grouped_matmul_aligned", a, b, self._table(self._groups + 1, rows), **{key: tile})

    # -- behind it ------------------------------------------------------------------------------------------------------------------

    def _next(self, x: TensorView) -> TensorView | None:
        """A function of the result: with a weight of each row, a bias of each column, or by itself."""
        match self.chooser.integer(0, 3):
            case 0:
                return self._try(self.chooser.pick(UNARY_EXACT), x)
            case 1:
                return self._try("mul", x, self.new_input([*(1 for _ in x.shape[1:]), self._n], x.dtype))
            case 2:
                kept = [self._dimension(e) for e in x.shape[:-1]]
                return None if None in kept else self._try("mul", x, self.new_input([d for d in kept if d is not None] + [1], x.dtype))
            case _:
                return self._try("cast", x, self.chooser.pick((bfloat16, float32))) if x.dtype.is_float else self._try("add", x, 1)


# -- tables ---------------------------------------------------------------------------------------------------------------------------


def rising(rng: np.random.Generator, size: int, low: int, high: int) -> NDArray[np.int64]:
    """Elements that rise from ``low`` to ``high``: random ones, few different ones, or all in one group."""
    inner = max(0, size - 2)
    match int(rng.integers(4)):
        case 0:
            cuts = rng.choice(rng.integers(low, high + 1, 2), inner)
        case 1:
            cuts = np.full(inner, low if rng.integers(2) else high)
        case _:
            cuts = rng.integers(low, high + 1, inner)
    return np.array([low, *np.sort(cuts), high][:size], np.int64)


def hostile(rng: np.random.Generator, size: int, low: int, high: int) -> NDArray[np.int64]:
    """Elements that break every promise: they fall, are out of range, or have the wrong ends."""
    found = rng.integers(low - 2, high + 3, size)
    extreme = rng.choice(EXTREMES, size)
    return np.where(rng.integers(0, 3, size) == 0, extreme, found if rng.integers(2) else np.sort(found)[::-1])
