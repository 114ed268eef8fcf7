"""Random products whose tiles have unequal work, at extents of tensor-core tiles: triangles of products, and independent products of different extents.

A triangle is that of one product, of a sum of two, or a sum of two triangles, with its diagonal or an adjacent one.
"""

from __future__ import annotations

from collections.abc import Sequence

import taskfuse as tf
from taskfuse.dtypes import DType, bfloat16, float16, float32
from taskfuse.ir.tensor import TensorView
from taskfuse.testing.graphs import UNARY_EXACT, Graph
from taskfuse.testing.inputs import Dimension

SIDES = (128, 64, 160, 72, 200, 16)
DEPTHS = (64, 128, 16, 40)
ROWS = (64, 80, 128, 7, 33)
COLUMNS = (64, 32, 24, 128)
MOST = 3
"""The most independent products."""
DIAGONALS = (0, 0, 0, -1, 1, 70)


class UnevenGraph(Graph):
    """Builds the math of a fusion with a triangle of products, or with several products."""

    def grow(self) -> None:
        """Add factors, products, functions of them, and outputs."""
        self._factor_dtype: DType = self.chooser.pick((bfloat16, bfloat16, float16))
        if self.chooser.chance(60):
            self._finish(self._triangle())
        else:
            for _ in range(self.chooser.integer(2, MOST)):
                self._finish(self._product(self._factor(self.chooser.pick(ROWS), self._k), self._factor(self._drawn_columns(), self._k)))
                self._k = self.chooser.pick(DEPTHS)

    def _dimensions(self) -> list[Dimension]:
        """The terms of a product; other extents are numbers, drawn where they are needed."""
        self._k = self.chooser.pick(DEPTHS)
        return [self._k]

    def _drawn_columns(self) -> int:
        return self.chooser.pick(COLUMNS)

    def _factor(self, rows: int, terms: int, batch: Sequence[int] = ()) -> TensorView:
        tv: TensorView = self.recorder.call(tf, "define_tensor", [*batch, rows, terms], dtype=self._factor_dtype)
        return tv

    def _product(self, a: TensorView, b: TensorView) -> TensorView:
        turned: TensorView = self.recorder.call(tf, "permute", b, [*range(b.ndim - 2), b.ndim - 1, b.ndim - 2])
        made: TensorView = self.recorder.call(tf, "matmul", a, turned, dtype=float32)
        return made

    def _triangle(self) -> TensorView:
        """A half of a square result: ``a @ b.T``, or of rank 2k."""
        side = self.chooser.pick(SIDES)
        batch = [2] if self.chooser.chance(20) else []
        a = self._factor(side, self._k, batch)
        b = a if self.chooser.chance(30) else self._factor(side, self._k, batch)
        half, diagonal = self.chooser.pick(("tril", "triu")), self.chooser.pick(DIAGONALS)

        def kept(x: TensorView) -> TensorView:
            found: TensorView = self.recorder.call(tf, half, x, diagonal if half == "tril" else -diagonal)
            return found

        first = self._product(a, b)
        if b is a or self.chooser.chance(40):
            return kept(first)
        second = self._product(b, a)
        if self.chooser.chance(50):
            both: TensorView = self.recorder.call(tf, "add", kept(first), kept(second))
            return both
        return kept(self.recorder.call(tf, "add", first, second))

    def _finish(self, x: TensorView) -> None:
        """Elementwise math, a cast, and the output."""
        made = self._try(self.chooser.pick(UNARY_EXACT), x) if self.chooser.chance(40) else None
        if made is None and self.chooser.chance(30):
            side = self.new_input([1, int(str(x.shape[-1]))], self.chooser.pick((float32, bfloat16)))
            made = self._try(self.chooser.pick(("add", "mul")), x, side)
        x = x if made is None else made
        if x.dtype is float32 and self.chooser.chance(70):
            x = self.recorder.call(tf, "cast", x, self._factor_dtype)
        self.recorder.call(self.fusion, "add_output", x)
