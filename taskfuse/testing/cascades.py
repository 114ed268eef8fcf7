"""Random reductions along one axis of which later ones read earlier ones: softmax, its products, weighted means, norms behind sums.

Some become one walk (``tf.cascade``), or walks over chunks and one over their results (``tf.chunk_cascade``). That is other math, equal in real numbers, so it
is part of the math of the case; the proof compares it with what was written.
"""

from __future__ import annotations

import taskfuse as tf
from taskfuse.dtypes import DType, float32, float64
from taskfuse.ir.tensor import TensorView
from taskfuse.testing.graphs import Graph
from taskfuse.testing.inputs import Dimension
from taskfuse.testing.program import Recorder

ROWS = (3, 1, 4, 2, 5)
LENGTHS = (8, 5, 12, 7, 1, 9, 16)
CHUNKS = (4, 2, 3, 1, 5, 8, 20)


class CascadeGraph(Graph):
    """Builds the math of a fusion with dependent reductions."""

    def grow(self) -> None:
        """Add inputs, reductions, functions of them, and outputs; then make cascades of the reductions."""
        x = self.new_input([self._m, self._n], self._type)
        source = self._source(x)
        top = self._call(self.chooser.pick(("max", "max", "min")), source, axis=1)
        is_least = self.recorder.lines[-1].find("tf.min") >= 0
        below = self._call("expand_dims", top, 1)
        far = self._call("sub", below, source) if is_least else self._call("sub", source, below)
        reductions = [top]
        total = self._call("sum", self._term(x, far), axis=1)
        reductions.append(total)
        for _ in range(self.chooser.integer(0, 2)):
            term = self._term(x, far)
            if self.chooser.chance(50):
                term = self._call("div", term, self._call("expand_dims", total, 1))
            if self.chooser.chance(50):
                reductions.append(self._call("matmul", term, self.new_input([self._n, self.chooser.pick((3, 2, 1))], self._type)))
            else:
                reductions.append(self._call("sum", term, axis=1))
        results = [*(reductions[2:] or [total]), *([top] if self.chooser.chance(30) else [])]
        if self.chooser.chance(40):
            results[0] = self._call(self.chooser.pick(("neg", "relu", "abs")), results[0])
        for tv in results:
            self.recorder.call(self.fusion, "add_output", tv)
        if self.chooser.chance(85):
            self._walk(reductions)

    def _dimensions(self) -> list[Dimension]:
        """Rows, and the axis of the reductions."""
        self._type: DType = self.chooser.pick((float32, float32, float64))
        self._m: Dimension = self.chooser.pick(ROWS)
        self._n: Dimension = self.chooser.pick(LENGTHS)
        for name in ("M", "N"):
            if self.chooser.chance(self.options.symbolic):
                size = self._m if name == "M" else self._n
                assert isinstance(size, int)
                self.sizes[name] = size
                self._facts[name] = self._stated(name, size)
                self._m, self._n = (name, self._n) if name == "M" else (self._m, name)
        return [self._m, self._n]

    def _call(self, op: str, *args: object, **keywords: object) -> TensorView:
        made: TensorView = self.recorder.call(tf, op, *args, **keywords)
        return made

    def _source(self, x: TensorView) -> TensorView:
        """What the first reduction is of: an input, a function of it, masked, or a product."""
        match self.chooser.integer(0, 4):
            case 0 | 1:
                return x
            case 2:
                return self._call("mul", x, 2.0)
            case 3:
                return self._call("add", x, self.new_input([self._n], self._type))
            case _:
                k = self.chooser.pick((4, 2))
                scores = self._call("matmul", self.new_input([self._m, k], self._type), self._call("permute", self.new_input([self._n, k], self._type), [1, 0]))
                return self._call("mul", scores, 0.5)

    def _term(self, x: TensorView, far: TensorView) -> TensorView:
        """What a later reduction sums."""
        match self.chooser.integer(0, 4):
            case 0 | 1:
                return self._call("exp", far)
            case 2:
                return self._call("exp2", self._call("mul", far, self.chooser.pick((1.0, 0.5, 2.0))))
            case 3:
                return self._call("mul", self._call("exp", far), x)
            case _:
                return self._call("mul", x, x)

    def _walk(self, reductions: list[TensorView]) -> None:
        recorder: Recorder = self.recorder
        if self.chooser.chance(35):
            recorder.attempt(tf, "chunk_cascade", reductions, self.chooser.pick((2, 3, 4, 1)), self.chooser.pick((1, 2, 4)))
            return
        parts = self.chooser.pick(((), (2,), (3,), (2, 2), (4,), ()))
        chunk = self.chooser.pick(CHUNKS)
        adjacent = [self.chooser.pick([d for d in range(1, chunk + 1) if chunk % d == 0])] if self.chooser.chance(30) else []
        recorder.attempt(tf, "cascade", reductions, chunk, list(parts), *adjacent)
