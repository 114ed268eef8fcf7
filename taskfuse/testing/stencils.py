"""Random math of neighbors: shifted slices of padded tensors, windows of convolutions and pooling, expanded rows, sums of short sums, small products."""

from __future__ import annotations

import taskfuse as tf
from taskfuse.dtypes import DType, float32, float64, int32
from taskfuse.ir.dims import Dim
from taskfuse.ir.identity import among
from taskfuse.ir.tensor import TensorView
from taskfuse.testing.graphs import BINARY_EXACT, UNARY_EXACT, Graph
from taskfuse.testing.inputs import Dimension

LENGTHS = (9, 8, 5, 12, 7, 13, 3, 16)
SIDES = (2, 3, 1, 4, 5)
WIDEST = 3
"""The most elements that a slice is shifted by, or around a padded tensor."""


class StencilGraph(Graph):
    """Builds the math of a fusion that reads neighbors."""

    def grow(self) -> None:
        """Add inputs, two or three results over neighbors, functions of them, and outputs."""
        kinds = (self._shifted, self._shifted, self._pooled, self._convolved, self._expanded, self._short_sums, self._product, self._folded)
        for _ in range(self.chooser.integer(1, 2)):
            made = self.chooser.pick(kinds)()
            self.tensors += [] if made is None else [made]
            for _ in range(self.chooser.integer(0, 2)):
                step = None if made is None else self._try(self.chooser.pick(UNARY_EXACT), made)
                made = made if step is None else step
                self.tensors += [] if step is None else [step]
        if all(tv.is_input for tv in self.fusion.tensors()):
            self.tensors.append(self.recorder.call(tf, "copy", self._line()))
        for tv in self.fusion.tensors():
            if not tv.is_input and (not tv.uses or (among(tv, self.tensors) and self.chooser.chance(10))):
                self.recorder.call(self.fusion, "add_output", tv)

    def _dimensions(self) -> list[Dimension]:
        """The lengths of lines: one may be a symbol."""
        self._length = self.chooser.pick(LENGTHS)
        self._names = 0
        self._type: DType = self.chooser.pick((float32, float32, int32, float64))
        return [self._length]

    def _line(self, least: int = 1, *, length: int | None = None, constant: bool = False) -> TensorView:
        """An input with the neighbors along its second of two or three axes."""
        size = max(self._length if length is None else length, least)
        along: Dimension = size
        if not constant and self.chooser.chance(self.options.symbolic):
            along = f"L{self._names}"
            self._names += 1
            self.sizes[along] = size
            self._facts[along] = Dim(along, self.chooser.pick((least, size, 0)), self.chooser.pick((None, size, size + 3)), 1)
        return self.new_input([self.chooser.pick(SIDES), along, *([self.chooser.pick(SIDES)] if self.chooser.chance(60) else [])], self._type)

    def _after(self, op: str, x: TensorView, *args: object) -> TensorView:
        """A function of a tensor; itself if the function does not take it."""
        made = self._try(op, x, *args)
        return x if made is None else made

    def _shifted(self) -> TensorView | None:
        """A sum of functions of slices, which may be padded, with a step."""
        x = self._line(WIDEST)
        widths = [(0, 0)] * x.ndim
        if self.chooser.chance(70):
            widths[1] = self.chooser.integer(0, 2), self.chooser.integer(0, 2)
        padded = self._try("pad", x, widths, self.chooser.pick((0, 1))) if any(map(any, widths)) else x
        if padded is None:
            return None
        reach = self.chooser.integer(1, min(WIDEST, sum(widths[1]) + 1))
        step = self.chooser.pick((1, 1, 1, 2))
        total: TensorView | None = None
        for first in self.chooser.order(range(reach + 1))[: self.chooser.integer(2, 3)]:
            stop = first - reach or None
            part = self._try("slice", padded, [None, first], [None, stop], [None, step])
            part = None if part is None else self._try(self.chooser.pick(("relu", "neg", "abs", "exp") if not self.options.exact else UNARY_EXACT), part)
            if part is None:
                continue
            if self.chooser.chance(30):
                part = self._after("mul", part, self.chooser.pick((2, 3)))
            total = part if total is None else self._try(self.chooser.pick(BINARY_EXACT[:5]), total, part)
        return total

    def _pooled(self) -> TensorView | None:
        x = self._line(WIDEST, constant=True)
        x = x if x.ndim == 2 else self._after("permute", x, [0, 2, 1])
        options = {"stride": self.chooser.integer(1, 2), "padding": self.chooser.integer(0, 1)}
        return self._try("max_pool" if self.options.exact else self.chooser.pick(("avg_pool", "max_pool")), x, [self.chooser.integer(2, 3)], **options)

    def _convolved(self) -> TensorView | None:
        groups, each, out = self.chooser.pick((1, 2)), self.chooser.pick((1, 2, 3)), self.chooser.pick((1, 2))
        x = self.new_input([self.chooser.pick((1, 2)), groups * each, max(self._length, WIDEST)], self._type)
        w = self.new_input([groups * out, each, self.chooser.integer(1, WIDEST)], self._type)
        return self._try("conv1d", x, w, None, self.chooser.integer(1, 2), self.chooser.integer(0, 1), 1, groups)

    def _expanded(self) -> TensorView | None:
        """A product of a row that is expanded to several."""
        k, n, rows = self.chooser.pick((3, 4, 8)), self.chooser.pick(SIDES), self.chooser.pick((4, 6, 2))
        row = self.new_input([1, k], self._type)
        row = self._after("neg", row) if self.chooser.chance(40) else row
        wide = self._try("broadcast_to", row, [rows, k])
        return None if wide is None else self._try("matmul", wide, self.new_input([k, n], self._type))

    def _short_sums(self) -> TensorView | None:
        """Sums of sums of groups with a factor; or of a reshaped tensor, which is read at both digits of an index."""
        rows, groups, each = self.chooser.pick((3, 5, 4)), self.chooser.pick((2, 3, 4)), self.chooser.pick((4, 2, 8))
        if self.chooser.chance(40):
            x = self._try("reshape", self.new_input([rows, groups, each], self._type), [rows, groups * each])
            return None if x is None else self._try(self.chooser.pick(("sum", "max")), x, axis=[1])
        x = self.new_input([rows, groups, each], self._type)
        inner = self._try("sum", self._after("mul", x, x), axis=[2])
        scaled = None if inner is None else self._try("mul", inner, self.new_input([rows, groups] if self.chooser.chance(50) else [groups], self._type))
        return None if scaled is None else self._try(self.chooser.pick(("sum", "max")), scaled, axis=[1])

    def _product(self) -> TensorView | None:
        """Of two matrices, with an epilogue."""
        m, n, k = self.chooser.pick((5, 4, 8, 3)), self.chooser.pick((4, 7, 8, 2)), self.chooser.pick((9, 8, 6, 12, 1))
        a = self.new_input([m, k], self._type)
        b = self._try("permute", self.new_input([n, k], self._type), [1, 0]) if self.chooser.chance(50) else self.new_input([k, n], self._type)
        made = None if b is None else self._try("matmul", a, b)
        return self._try("add", made, self.new_input([1, n], self._type)) if made is not None and self.chooser.chance(40) else made

    def _folded(self) -> TensorView | None:
        """A fold whose steps compose."""
        x = self._line(constant=self.chooser.chance(60))
        at = self.chooser.integer(0, x.ndim - 1)
        if self._type.is_float and self.chooser.chance(60):
            decay = self.new_input([d for e in x.shape if (d := self._dimension(e)) is not None], self._type)
            return self._try("decayed_sum", x, decay, axis=at, init=self.chooser.pick((0, 3)))
        return self._try("fold", self.chooser.pick(("add", "maximum", "minimum")), x, axis=at, init=self.chooser.integer(0, 2))
