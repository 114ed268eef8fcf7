"""Views that are strides over a row-major tensor: what can be handed on as an array of its own, without a copy."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Expr, Facts, const, ge, is_multiple, prove, simplify, substitute
from taskfuse.ir.storage import resolve
from taskfuse.ir.tensor import TensorView


@dataclass(frozen=True, slots=True, eq=False)
class Strided:
    """A view of a row-major tensor.

    Attributes:
        tensor: what has the storage.
        shape: of the view.
        start: the place of its first element, in elements.
        strides: in elements, for each axis; 0 where the extent is 1.
    """

    tensor: TensorView
    shape: tuple[Expr, ...]
    start: Expr
    strides: tuple[Expr, ...]

    def has_rows(self, alignment: int, facts: Facts) -> bool:
        """True if neighbors along the last axis lie side by side, and every row starts at a multiple of ``alignment`` bytes."""
        last = self.strides[-1] if self.strides else ONE
        places = (self.start, *self.strides[:-1])
        return last in (ONE, ZERO) and all(is_multiple(e * self.tensor.dtype.itemsize, alignment, facts) for e in places)


def strided(fusion: Fusion, view: TensorView) -> Strided | None:
    """The strides of a view, all positive; ``None`` if it has no such: where an element has no place, several, or none that is linear in its indices."""
    if not fusion.is_view(view):
        return None
    axes = [iteration_symbol(k) for k in range(view.ndim)]
    read = resolve(fusion, Read(view, tuple(axes)))
    facts = fusion.facts()
    for axis, extent in zip(axes, view.shape, strict=True):
        facts = facts.with_range(str(axis), 0, extent - 1)
    place: Expr = ZERO
    for e, extent in zip(read.index, read.tensor.shape, strict=True):
        place = place * extent + e
    place = simplify(place, facts)
    nowhere = {str(axis): ZERO for axis in axes}
    start = simplify(substitute(place, nowhere), facts)
    strides: list[Expr] = []
    for axis, extent in zip(axes, view.shape, strict=True):
        step = ZERO if extent is ONE else simplify(substitute(place, nowhere | {str(axis): const(1)}) - start, facts)
        if step is not ZERO and not prove(ge(step, 1), fusion.facts()):
            return None
        strides.append(step)
        place = place - axis * step
    is_linear = read.valid is TRUE and simplify(place - start, facts) is ZERO
    is_injective = all(step is not ZERO or extent is ONE for step, extent in zip(strides, view.shape, strict=True))
    return Strided(read.tensor, view.shape, start, tuple(strides)) if is_linear and is_injective else None
