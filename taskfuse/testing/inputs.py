"""Random inputs of a fusion: dimensions with facts, shapes, dtypes.

The generator tracks shapes as numbers next to the fusion's symbolic extents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import taskfuse as tf
from taskfuse.dtypes import DType
from taskfuse.ir.dims import Dim
from taskfuse.ir.scalar import Const, Expr, evaluate
from taskfuse.ir.tensor import TensorView
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.options import CaseOptions
from taskfuse.testing.program import Recorder

Dimension = str | int


class RandomInputs:
    """Declares the inputs of a fusion.

    Attributes:
        sizes: the value of each symbolic dimension.
        tensors: tensors that ops may read.
    """

    def __init__(self, chooser: Chooser, options: CaseOptions, recorder: Recorder) -> None:
        self.chooser = chooser
        self.options = options
        self.recorder = recorder
        self.fusion = recorder.fusion
        self.sizes: dict[str, int] = {}
        self.tensors: list[TensorView] = []
        self._facts: dict[str, Dim] = {}
        self._dims = self._dimensions()

    def size(self, e: Expr) -> int:
        """The value of an extent."""
        return int(evaluate(e, self.sizes))

    def shape(self, tv: TensorView) -> tuple[int, ...]:
        """The shape of a tensor as numbers."""
        return tuple(self.size(e) for e in tv.shape)

    def _dimensions(self) -> list[Dimension]:
        """The extents of this fusion's inputs; a symbol's facts are stated where it is used first."""
        found: list[Dimension] = []
        empty = self.chooser.chance(self.options.empty)
        for k in range(1 + self.chooser.integer(0, 2)):
            zero = empty and k == 0
            size = 0 if zero else self.chooser.pick(self.options.sizes)
            if not self.chooser.chance(self.options.symbolic):
                found.append(size)
                continue
            name = "NMK"[k]
            self.sizes[name] = size
            self._facts[name] = self._stated(name, size)
            found.append(name)
        return found

    def _stated(self, name: str, size: int) -> Dim:
        """Some true facts about a symbol of the given value."""
        least = 0 if size == 0 or self.chooser.chance(self.options.may_be_empty) else 1
        most = None if self.chooser.chance(60) else size + self.chooser.integer(0, 5)
        multiple = 2 if size % 2 == 0 and self.chooser.chance(15) else 1
        return Dim(name, least, most, multiple)

    def _operand(self) -> TensorView:
        """A tensor, often one without readers."""
        unused = [tv for tv in self.tensors if not tv.uses]
        if unused and self.chooser.chance(50):
            return self.chooser.pick(unused)
        return self.chooser.pick(self.tensors)

    def random_shape(self) -> list[Dimension]:
        """A shape of the fusion's dimensions and of 1, with few enough elements."""
        shape: list[Dimension] = []
        for _ in range(self.chooser.integer(0 if self.chooser.chance(12) else 1, self.options.rank)):
            d = 1 if self.chooser.chance(8) else self.chooser.pick(self._dims)
            if math.prod(self._sizes([*shape, d])) <= self.options.elements:
                shape.append(d)
        return shape

    def _dimension(self, e: Expr) -> Dimension | None:
        """An extent as the dimension of a new input; ``None`` if it is neither a number nor a symbol."""
        if isinstance(e, Const):
            return e.value
        return str(e) if str(e) in self.sizes else None

    def _sizes(self, shape: Sequence[Dimension]) -> list[int]:
        return [self.sizes[d] if isinstance(d, str) else d for d in shape]

    def _dtype(self) -> DType:
        return self.chooser.pick(self.options.dtypes)

    def declared(self) -> list[Dimension]:
        """The dimensions that an op may be given: of others the fusion does not have the facts yet, which inputs declare."""
        return [d for d in self._dims if not isinstance(d, str) or d in self.fusion.dims]

    def new_input(self, shape: list[Dimension], dtype: DType | None = None) -> TensorView:
        """Declare an input; ``dtype``: by default a random one."""
        given = [self._facts.pop(d, d) if isinstance(d, str) else d for d in shape]
        tv: TensorView = self.recorder.call(tf, "define_tensor", given, dtype=self._dtype() if dtype is None else dtype)
        self.tensors.append(tv)
        return tv

    def _fits(self, *extents: int) -> bool:
        return math.prod(extents) <= self.options.elements
