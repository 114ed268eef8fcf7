"""Random math around matrix products: prologues, products and epilogues, at extents that instruction tiles divide or do not.

A product has operands of any types that tensor cores multiply, stored with any axis contiguous, directly or through views and functions; it is a
``matmul`` or an ``einsum`` with its letters in any order, with or without batch axes. Then come biases, casts, reductions, views, and at times a
second product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import taskfuse as tf
from taskfuse.dtypes import DType, bfloat16, float8_e4m3, float8_e5m2, float16, float32, int8, int32, uint8
from taskfuse.ir.dims import Dim
from taskfuse.ir.identity import among
from taskfuse.ir.matrix_instructions import Family, accumulator_dtype, rows
from taskfuse.ir.tensor import TensorView
from taskfuse.testing.graphs import UNARY, Graph
from taskfuse.testing.inputs import Dimension

FACTORS = (bfloat16, float16, float32, float8_e4m3, float8_e5m2, int8, uint8)
TYPES = tuple((a, b) for a in FACTORS for b in FACTORS if accumulator_dtype(a, b) is not None)
"""Every pair of types that tensor cores multiply."""
HALVES = tuple((a, b) for a, b in TYPES if a.itemsize == 2)

ROWS = (64, 128, 64, 100, 16, 32, 48, 7, 12, 1)
COLUMNS = (64, 32, 16, 64, 8, 40, 72, 24, 12, 5, 1)
STEPS = (2, 4, 1, 3, 8, 5)
"""Steps of an instruction along k."""
ODD_DEPTHS = (12, 7, 40, 1, 72, 20)
BATCHES = (2, 3, 1)
LARGEST_MULTIPLE = 16


class ProductGraph(Graph):
    """Builds the math of a fusion with a product."""

    def grow(self) -> None:
        """Add factors, product, epilogue and outputs."""
        result = self._product()
        self.tensors.append(result)
        for _ in range(self.chooser.integer(0, 3)):
            made = self._next(result)
            if made is not None:
                self.tensors.append(made)
                result = made
        rounded = self._try("cast", result, self.chooser.pick((bfloat16, float16))) if result.dtype is float32 and self.chooser.chance(45) else None
        if rounded is not None:
            self.tensors.append(rounded)
            result = rounded
        if self.chooser.chance(self.options.chains):
            made = self._second(result)
            self.tensors += [] if made is None else [made]
        for tv in self.fusion.tensors():
            if not tv.is_input and (not tv.uses or (among(tv, self.tensors) and self.chooser.chance(12))):
                self.recorder.call(self.fusion, "add_output", tv)

    # -- extents --------------------------------------------------------------------------------------------------------------------

    def _dimensions(self) -> list[Dimension]:
        """The dimensions of a product: rows, columns, depth; others are added on demand."""
        self._types = self._pair()
        self._unit = rows(Family.WGMMA, *self._types)[0].k
        m, n = self.chooser.pick(ROWS), self.chooser.pick(COLUMNS)
        k = self.chooser.pick(ODD_DEPTHS) if self.chooser.chance(25) else self._unit * self.chooser.pick(STEPS)
        if self.chooser.chance(self.options.empty):
            m, n, k = self.chooser.pick(((0, n, k), (m, 0, k), (m, n, 0)))
        self._mnk = [self._named(name, size) for name, size in zip("MNK", (m, n, k), strict=True)]
        self._batches = [self._named(name, self.chooser.pick(BATCHES)) for name in "BC" if self.chooser.chance(self.options.batches)]
        return [d for d in (*self._mnk, *self._batches) if not isinstance(d, str)] or [2]

    def _pair(self) -> tuple[DType, DType]:
        """Operand dtypes: mostly 16-bit floats, which have the most instructions."""
        return self.chooser.pick(HALVES if self.chooser.chance(55) else TYPES)

    def _named(self, name: str, size: int) -> Dimension:
        """An extent, as a number or as a symbol with some facts about it."""
        if not self.chooser.chance(self.options.symbolic):
            return size
        self.sizes[name] = size
        least = 0 if size == 0 or self.chooser.chance(8) else 1
        most = size + self.chooser.integer(0, 40) if self.chooser.chance(25) else None
        multiple = math.gcd(size, LARGEST_MULTIPLE) if size and self.chooser.chance(75) else 1
        self._facts[name] = Dim(name, least, most, multiple)
        return name

    # -- the product ----------------------------------------------------------------------------------------------------------------

    def _product(self) -> TensorView:
        extents = dict(zip("mnk", self._mnk, strict=True)) | dict(zip("bc", self._batches, strict=False))
        a_type, b_type = self._types
        dtype = accumulator_dtype(a_type, b_type)
        batch = "bc"[: len(self._batches)]
        if self.chooser.chance(50):
            left, right = (self.chooser.order([*self.chooser.some(batch, 85), *own]) for own in ("mk", "nk"))
            kept = self.chooser.order([*(x for x in batch if x in left or x in right), "m", "n"])
            a, b = (self._factor([extents[x] for x in axes], t) for axes, t in ((left, a_type), (right, b_type)))
            result: TensorView = self.recorder.call(tf, "einsum", f"{''.join(left)},{''.join(right)}->{''.join(kept)}", a, b, dtype=dtype)
            return result
        a, b = (self._matrix([extents[x] for x in (*batch, *own)], t) for own, t in (("mk", a_type), ("kn", b_type)))
        result = self.recorder.call(tf, "matmul", a, b, dtype=dtype)
        return result

    def _matrix(self, shape: Sequence[Dimension], dtype: DType) -> TensorView:
        """A factor with its last two axes stored in either order."""
        if self.chooser.chance(50):
            return self._factor(shape, dtype)
        turned = self._factor([*shape[:-2], shape[-1], shape[-2]], dtype)
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        result: TensorView = self.recorder.call(tf, "permute", turned, order)
        return result

    def _factor(self, shape: Sequence[Dimension], dtype: DType) -> TensorView:
        """A tensor of a shape: an input, a view of one, or computed from inputs."""
        if not self.chooser.chance(self.options.prologues):
            return self.new_input(list(shape), dtype)
        made: TensorView | None = None
        at = self.chooser.integer(0, len(shape) - 1)
        match self.chooser.integer(0, 6):
            case 0 | 1:
                made = self._try(self.chooser.pick(("relu", "neg", "abs", *UNARY)), self.new_input(list(shape), dtype))
            case 2:
                made = self._try("cast", self.new_input(list(shape), self.chooser.pick((int8, float32, bfloat16, uint8, float16))), dtype)
            case 3:
                scale = self.new_input([d if k == at else 1 for k, d in enumerate(shape)], dtype)
                made = self._try("mul", self.new_input(list(shape), dtype), scale)
            case 4:
                made = self._try("flip", self.new_input(list(shape), dtype), at)
            case 5:
                made = self._part(shape, dtype, at)
            case _:
                made = self._folded(shape, dtype, at)
        if made is not None and made.dtype is not dtype:
            made = self._try("cast", made, dtype)
        return self.new_input(list(shape), dtype) if made is None else made

    def _part(self, shape: Sequence[Dimension], dtype: DType, at: int) -> TensorView | None:
        """A slice of an input that is longer along an axis, or an input with zeros around it."""
        size = shape[at]
        if isinstance(size, str) or size == 0:
            return None
        if size > 2 and self.chooser.chance(40):
            smaller = self.new_input([*shape[:at], size - 2, *shape[at + 1 :]], dtype)
            return self._try("pad", smaller, [(1, 1) if k == at else (0, 0) for k in range(len(shape))], 0)
        first = self.chooser.pick((8, 1, 16))
        longer = self.new_input([*shape[:at], size + 16, *shape[at + 1 :]], dtype)
        starts = [first if k == at else None for k in range(len(shape))]
        return self._try("slice", longer, starts, [first + size if k == at else None for k in range(len(shape))], [None] * len(shape))

    def _folded(self, shape: Sequence[Dimension], dtype: DType, at: int) -> TensorView | None:
        """A view of an input that merges or splits an axis."""
        size = shape[at]
        divisors = [d for d in (2, 8, 4, 16) if not isinstance(size, str) and size and size % d == 0]
        if isinstance(size, str) or not divisors:
            return None
        part = self.chooser.pick(divisors)
        folded = self.new_input([*shape[:at], size // part, part, *shape[at + 1 :]], dtype)
        names = self._extents(folded)
        return self._try("reshape", folded, [*names[:at], -1, *names[at + 2 :]])

    # -- what follows ---------------------------------------------------------------------------------------------------------------

    def _next(self, x: TensorView) -> TensorView | None:
        """One more op: mostly elementwise."""
        self._latest = x
        match self.chooser.integer(0, 11):
            case 0 | 1:
                return self._unary()
            case 2:
                return self._try("cast", x, self.chooser.pick((bfloat16, float16, float32, int8, int32)))
            case 3 | 4:
                return self._side(x)
            case 5:
                return self._binary()
            case 6:
                return self._reduction()
            case 7:
                return self._composite()
            case 8:
                return self._view()
            case 9:
                return self._with_scalar()
            case 10:
                return self._ternary()
            case _:
                return self._select()

    def _operand(self) -> TensorView:
        """Mostly the last tensor."""
        return super()._operand() if self.chooser.chance(20) else self._latest

    def _side(self, x: TensorView) -> TensorView | None:
        """A bias, a factor or a residual."""
        shape = [self._dimension(e) for e in x.shape]
        if None in shape or not shape:
            return None
        known = [d for d in shape if d is not None]
        kept = self.chooser.some(range(len(known)), 60)
        dtype = x.dtype if self.chooser.chance(60) else self.chooser.pick((float32, bfloat16, float16))
        side = self.new_input([d if k in kept else 1 for k, d in enumerate(known)], dtype)
        return self._try(self.chooser.pick(("add", "mul", "sub", "maximum")), x, side)

    def _second(self, x: TensorView) -> TensorView | None:
        """A product of what was made so far, rounded to the type of the first one's factor."""
        if x.ndim < 2:
            return None
        inner = self._dimension(x.shape[-1])
        if inner is None:
            return None
        dtype = self.chooser.pick((bfloat16, float16))
        rounded = x if x.dtype is dtype else self._try("cast", x, dtype)
        if rounded is None:
            return None
        columns = self.chooser.pick((16, 32, 8, 64))
        if self.size(x.shape[-2]) * columns > self.options.elements:
            return None
        return self._try("matmul", rounded, self._matrix([inner, columns], dtype), dtype=float32)
