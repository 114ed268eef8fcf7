"""Matrix products of float32 as sums of products of bfloat16, which tensor cores multiply.

A float32 has 24 significant bits, a bfloat16 8. ``a = a1 + a2 + a3`` exactly, where ``a1`` is ``a`` rounded to bfloat16, ``a2`` the remainder, rounded,
and ``a3`` the rest; so ``a * b`` is the sum of nine products of parts, each exact in float32. The omitted products are small: a part is at most 2**-8 of the
one before. (Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", 2019.)

The products of a sum are one sum along a longer axis: ``[a2, a1, a1]`` and ``[b1, b2, b1]``, one after another along k, have the product
``a2 b1 + a1 b2 + a1 b1``. The smallest come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from taskfuse import ops
from taskfuse.dtypes import bfloat16, float32
from taskfuse.errors import UnsupportedError, shown
from taskfuse.ir.atoms import SUM_OF_PRODUCTS
from taskfuse.ir.axes import AxisKind, axis, iteration_position
from taskfuse.ir.contraction import computes, factors
from taskfuse.ir.expr import Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, Const
from taskfuse.ir.signatures import checked
from taskfuse.ir.storage import needed, resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.through_view import is_whole, own_index, through_view

EXACT = "ieee"
"""Products of float32 without a split."""
ALIGNED = 8
"""Elements in 16 bytes: a part begins at a multiple, for the copy engine."""
GREATEST = float(np.ldexp(2.0**8 - 1, 120))
"""The greatest number of bfloat16; greater numbers, which would round to infinity, are clamped to it."""


@dataclass(frozen=True, slots=True)
class SplitProducts:
    """The products of one precision.

    Attributes:
        pairs: the parts of both factors that are multiplied, counted from 0, in the order of addition.
        left_out: a bound of the omitted products, relative to the product of the magnitudes of two elements.
    """

    pairs: tuple[tuple[int, int], ...]
    left_out: float

    @property
    def parts(self) -> int:
        """The number of parts of each factor."""
        return 1 + max(max(pair) for pair in self.pairs)

    def bound(self, k: int) -> float:
        """The error of a sum of ``k`` products, relative to the sum of the magnitudes of their terms: the omitted products, and a rounding of each addition by
        tensor cores, which lose up to 2**-22 of a sum, as they truncate."""
        return self.left_out + 2.0**-22 * len(self.pairs) * k


# |a2| <= 2**-8 |a1|(1 + 2**-8), |a3| <= 2**-16 |a|: of three products a2*b2 and all products of a third part are missing, of six those beyond 2**-24
SPLITS: Mapping[str, SplitProducts] = {
    "bf16x3": SplitProducts(((1, 0), (0, 1), (0, 0)), 3.1 * 2.0**-16),
    "bf16x6": SplitProducts(((1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0)), 2.1 * 2.0**-24),
    "bf16x9": SplitProducts(((2, 2), (2, 1), (1, 2), (1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0)), 0.0),
}
"""By name."""


@checked
def split_products(fusion: Fusion, name: str) -> Fusion:
    """A copy whose matrix products of float32 are sums of products of bfloat16, added in float32.

    The error of an element is at most ``bound(k)`` of :data:`SPLITS` times the sum of the magnitudes of its terms, for factors whose parts are normal
    numbers: of magnitudes from 2**-110 to the greatest float32. An infinite or NaN factor gives NaN. ``evaluate`` of the copy is the
    reference for what ``tf.compile(..., float32_products=name)`` computes.

    Args:
        name: ``"bf16x3"``: three products, about 16 bits; ``"bf16x6"``: six, about those of float32; ``"bf16x9"``: nine, which are exact but for the sums;
            ``"ieee"``: unchanged.

    Raises:
        UnsupportedError: the name is unknown.
    """
    new, _ = copy_fusion(fusion)
    if name == EXACT:
        return new
    way = SPLITS.get(name) if isinstance(cast("object", name), str) else None
    if way is None:
        known = ", ".join(map(repr, (EXACT, *SPLITS)))
        raise UnsupportedError(what=f"float32_products {shown(name)}", reason="there is no such choice", help=f"use one of {known}", location=caller())
    splitter = _Splitter(new, way)
    for expr in needed(new):
        if isinstance(expr, Reduction) and _is_split(new, expr):
            splitter.split(expr)
    new.restate()
    return new


def _is_split(fusion: Fusion, expr: Reduction) -> bool:
    """True for a product of two matrices of float32, with one sum."""
    tv = expr.output
    if not computes(expr, SUM_OF_PRODUCTS) or expr.rescaled is not None or not expr.is_whole or tv.dtype is not float32:
        return False
    two = factors(fusion, expr)
    return two is not None and two.make_a_matrix and len(two.summed) == 1 and all(r.tensor.dtype is float32 and r.valid is TRUE for r in (two.a, two.b))


class _Splitter:
    """Splits products of one fusion; each tensor into parts once."""

    def __init__(self, fusion: Fusion, way: SplitProducts) -> None:
        self.fusion = fusion
        self.way = way
        self._parts: dict[tuple[TensorView, int], list[TensorView]] = {}

    def split(self, expr: Reduction) -> None:
        """Replace a product's factors by those of all pairs, along a longer axis."""
        fusion, tv = self.fusion, expr.output
        k = next(p for p, a in enumerate(tv.root) if a.is_reduction)
        operands: list[Read] = []
        old: list[TensorView] = []
        for place, operand in enumerate(expr.operands):
            assert isinstance(operand, Read)
            read = self._plain(tv, place)
            dim = next(d for d, e in enumerate(read.index) if iteration_position(e) == k)
            parts = self._of(read.tensor, dim)
            joined = ops.cat([parts[pair[place]] for pair in self.way.pairs], dim)
            operands.append(replace(read, tensor=joined))
            old += [operand.tensor] if operand.tensor is not read.tensor else []
        dim = next(d for d, e in enumerate(operands[0].index) if iteration_position(e) == k)
        tv.root = (*tv.root[:k], axis(operands[0].tensor.shape[dim], AxisKind.REDUCTION), *tv.root[k + 1 :])
        tv.schedule = TensorSchedule(list(tv.root))
        definition = fusion.definition(tv)
        assert isinstance(definition, Reduction)
        fusion.define(replace(definition, operands=tuple(operands)))
        fusion.remove_unread(list(dict.fromkeys(old)))

    def _plain(self, tv: TensorView, place: int) -> Read:
        """A factor where it is read at axes of the product: as it lies in memory, or else a view."""
        fusion = self.fusion
        definition = fusion.definition(tv)
        assert isinstance(definition, Reduction)
        given = definition.operands[place]
        assert isinstance(given, Read)
        stored = resolve(fusion, given)
        stored = replace(stored, index=own_index(fusion, definition, stored))
        for read in (stored, given):
            if is_whole(definition, read, read.index) and all(iteration_position(e) is not None for e in read.index):
                return read
        view = through_view(tv, place)
        definition = fusion.definition(tv)
        assert isinstance(definition, Reduction)
        return next(o for o in definition.operands if isinstance(o, Read) and o.tensor is view)

    def _of(self, tv: TensorView, dim: int) -> Sequence[TensorView]:
        """The parts of a tensor, the greatest first, with zeros along an axis up to a multiple of :data:`ALIGNED`, if that is known."""
        found = self._parts.get((tv, dim))
        if found is None:
            length, rest = tv.shape[dim], tv
            missing = -length.value % ALIGNED if isinstance(length, Const) else 0
            width = [(0, missing if d == dim else 0) for d in range(tv.ndim)]
            found = list[TensorView]()
            for number in range(self.way.parts):
                within = ops.minimum(ops.maximum(rest, -GREATEST), GREATEST) if number == 0 else rest
                part = ops.cast(within, bfloat16)
                found.append(ops.pad(part, width) if missing else part)
                if number + 1 < self.way.parts:
                    rest = ops.sub(rest, ops.cast(part, float32))
            self._parts[tv, dim] = found
        return found
