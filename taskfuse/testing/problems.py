"""Random fusions that one scheduler of the library is for: attention, products of functions of products, products by narrow weights, convolutions, sums of
short sums, writes at indices.

Parameters of the schedulers are drawn, too (:mod:`taskfuse.testing.parameters`).
"""

from __future__ import annotations

import taskfuse as tf
from taskfuse.dtypes import DType, bfloat16, float8_e4m3, float16, float32, int8, int32, uint8
from taskfuse.ir.dims import Dim
from taskfuse.ir.tensor import TensorView
from taskfuse.testing.graphs import UNARY_EXACT, Graph
from taskfuse.testing.inputs import Dimension

QUERIES, KEYS, HEADS, DEPTHS = (64, 70, 5, 1, 128, 130), (64, 48, 70, 1, 5, 128, 96), ((), (2,), (), (1, 2)), (32, 64, 32, 16)
FEW = (5, 1, 20)
MOST_POINTS = 1 << 18
"""Rows times elements of the depth times pairs of keys: the reference computes all of them for each chunk of a walk."""


class ProblemGraph(Graph):
    """Builds the math of a fusion that a scheduler is for."""

    def grow(self) -> None:
        """Add the problem, and its outputs."""
        attention = (self._attention, self._gradient, self._layers)
        others = (self._windows, self._windows, self._windows, self._nested, self._nested, self._written, self._narrow, self._narrow)
        self.chooser.pick((*attention, *attention, *others))()

    def _dimensions(self) -> list[Dimension]:
        self._dtype16: DType = self.chooser.pick((bfloat16, float16))
        return [self.chooser.pick((4, 2, 8))]

    def _named(self, name: str, size: int, least: int = 1) -> Dimension:
        """An extent, as a number or as a symbol."""
        if not self.chooser.chance(self.options.symbolic):
            return size
        self.sizes[name] = size
        self._facts[name] = Dim(name, self.chooser.pick((least, 0, min(size, 4))), self.chooser.pick((None, size + 7)), 1)
        return name

    def _call(self, op: str, *args: object, **keywords: object) -> TensorView:
        made: TensorView = self.recorder.call(tf, op, *args, **keywords)
        return made

    def _output(self, x: TensorView) -> None:
        self.recorder.call(self.fusion, "add_output", x)

    def _turned(self, x: TensorView) -> TensorView:
        return self._call("permute", x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])

    # -- products of functions of products --------------------------------------------------------------------------------------------

    def _factors(self) -> tuple[TensorView, TensorView, TensorView, int]:
        heads, d = self.chooser.pick(HEADS), self.chooser.pick(DEPTHS)
        queries, keys = (QUERIES, KEYS) if len(heads) < 2 else (FEW, FEW)  # what the reference computes of all heads fits memory
        rows, columns = self.chooser.pick(queries), self.chooser.pick(keys)
        rows = min(rows, max(1, MOST_POINTS // (columns * columns * d)))
        m, n = self._named("M", rows), self._named("N", columns)
        fewer = (*heads[:-1], 1) if len(heads) == 2 and self.chooser.chance(50) else heads
        q = self.new_input([*heads, m, d], self._dtype16)
        k, v = (self.new_input([*fewer, n, e], self._dtype16) for e in (d, self.chooser.pick((d, 32))))
        return q, k, v, d

    def _attention(self) -> None:
        q, k, v, _ = self._factors()
        options = {"is_causal": True} if self.chooser.chance(35) else {}
        if q.ndim > 2 and q.shape[-3] is not k.shape[-3]:
            options["enable_gqa"] = True
        self._output(self._call("scaled_dot_product_attention", q, k, v, **options))

    def _gradient(self) -> None:
        """Of queries: a sum over keys of what is computed from two products."""
        q, k, v, _ = self._factors()
        if q.ndim > 2 and q.shape[-3] is not k.shape[-3]:
            return self._layers()
        heads: list[Dimension] = [d for e in q.shape[:-1] if (d := self._dimension(e)) is not None]
        last = self._dimension(v.shape[-1])
        assert last is not None
        g = self.new_input([*heads, last], self._dtype16)
        sums = self.new_input([*heads, 1], float32)
        p = self._call("exp2", self._call("sub", self._call("matmul", q, self._turned(k), dtype=float32), sums))
        ds = self._call("mul", p, self._call("matmul", g, self._turned(v), dtype=float32))
        self._output(self._call("cast", self._call("matmul", self._call("cast", ds, self._dtype16), k, dtype=float32), self._dtype16))
        return None

    def _layers(self) -> None:
        """Two layers of a perceptron."""
        m, n, d = self._named("R", self.chooser.pick(QUERIES)), self._named("H", self.chooser.pick(KEYS)), self.chooser.pick(DEPTHS)
        x, w, u = (self.new_input([a, b], self._dtype16) for a, b in ((m, d), (n, d), (n, self.chooser.pick((32, 64)))))
        hidden = self._call("matmul", x, self._turned(w), dtype=float32)
        if self.chooser.chance(50):
            hidden = self._call("add", hidden, self.new_input([n], float32))
        hidden = self._call("cast", self._call(self.chooser.pick(("relu", "silu", "neg")), hidden), self._dtype16)
        out = self._call("matmul", hidden, u, dtype=float32)
        self._output(out if self.chooser.chance(40) else self._call("cast", out, self._dtype16))

    def _narrow(self) -> None:
        """A few rows by weights of fewer bits, with scales and a bias."""
        rows, weights, k = self.chooser.pick((8, 5, 1, 20)), self.chooser.pick((32, 48, 40, 16)), self.chooser.pick((256, 512, 128))
        x, w = self.new_input([rows, k], self._dtype16), self.new_input([weights, k], self.chooser.pick((int8, uint8, float8_e4m3)))
        wide = self._call("cast", w, self._dtype16)
        if self.chooser.chance(50):
            wide = self._call("mul", wide, self.new_input([weights, 1] if self.chooser.chance(50) else [k], self._dtype16))
        is_second = self.chooser.chance(70)
        y = self._call("matmul", *((x, self._turned(wide)) if is_second else (wide, self._turned(x))), dtype=float32)
        if self.chooser.chance(50):
            y = self._call("add", y, self.new_input([weights] if is_second else [weights, 1], float32))
        self._output(y if self.chooser.chance(40) else self._call("cast", y, self._dtype16))

    # -- without tensor cores ---------------------------------------------------------------------------------------------------------

    def _windows(self) -> None:
        """Of depthwise convolutions and pooling, channels last or second."""
        is_last, dtype = self.chooser.chance(85), self.chooser.pick((float32, float32, bfloat16))
        channels, sides = self.chooser.pick((8, 4, 12)), [self.chooser.pick((7, 9, 5)) for _ in range(2)]
        batch = self._named("B", self.chooser.pick((2, 1)))
        x = self.new_input([batch, *sides, channels] if is_last else [batch, channels, *sides], dtype)
        x = self._call("permute", x, [0, 3, 1, 2]) if is_last else x
        stride, padding = self.chooser.pick((1, 2)), self.chooser.pick((1, 0))
        if self.chooser.chance(30):
            y = self._call(self.chooser.pick(("max_pool", "avg_pool")), x, [3, 3], stride, padding)
        else:
            groups = self.chooser.pick((channels, channels, channels // 2))
            w = self.new_input([channels, channels // groups, 3, 3], dtype)
            y = self._call("conv2d", x, w, None, stride, padding, 1, groups)
        y = self._call("relu", y) if self.chooser.chance(40) else y
        self._output(self._call("permute", y, [0, 2, 3, 1]) if is_last else y)

    def _nested(self) -> None:
        """Sums of short sums, of products or of weights of 4 bits with scales."""
        rows, groups, each = self._named("W", self.chooser.pick((9, 5, 12))), self.chooser.pick((5, 9, 3)), self.chooser.pick((32, 16, 64))
        if self.chooser.chance(40):
            w = self.new_input([rows, groups, each], uint8)
            low = self._call("sub", self._call("cast", self._call("bitwise_and", w, 15), float32), 8.0)
            inner = self._call("sum", self._call("mul", low, self.new_input([groups, each], float32)), axis=[2])
        else:
            x = self.new_input([rows, groups, each], float32)
            inner = self._call("sum", self._call("mul", x, x) if self.chooser.chance(50) else x, axis=[2])
        scaled = self._call("mul", inner, self.new_input([rows, groups] if self.chooser.chance(50) else [groups], float32))
        y = self._call(self.chooser.pick(("sum", "max")), scaled, axis=[1])
        self._output(self._call(self.chooser.pick(UNARY_EXACT[:3]), y) if self.chooser.chance(40) else y)

    def _written(self) -> None:
        """Sums of rows at computed indices."""
        many, columns, places = self._named("T", self.chooser.pick((9, 5, 16))), self.chooser.pick((4, 8, 3)), self.chooser.pick((5, 3, 12))
        index = self.new_input([many], int32)
        if self.chooser.chance(50):
            self._output(self._call("segment_sum", self.new_input([many, columns], float32), index, places))
        else:
            self._output(self._call("index_put", self.new_input([places, columns], float32), [index], self.new_input([many, columns], float32), True))
