"""Resolving views: the storage tensors that an expression reads, by composed op maps; and the views that are strides over a row-major tensor.

Views cost nothing: a read of a view becomes a read of the storage tensor behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from taskfuse.ir.axes import iteration_point, iteration_symbol
from taskfuse.ir.expr import Assemble, Gather, MathExpr, Operand, Read, Reduction, Update, View, rebuilt
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Expr, Facts, Substitution, and_, const, ge, is_multiple, prove, simplify, substitute
from taskfuse.ir.tensor import TensorView


def resolve(fusion: Fusion, read: Read, stop: Collection[TensorView] = ()) -> Read:
    """``read`` as a read of a storage tensor, or of a tensor in ``stop``: the views between are composed away."""
    while fusion.is_view(read.tensor) and not among(read.tensor, stop):
        view = fusion.definition(read.tensor)
        assert isinstance(view, View)
        moved = Substitution({f"i{k}": e for k, e in enumerate(read.index)})
        inner = view.operand
        valid = read.valid if inner.valid is TRUE else and_(read.valid, moved(inner.valid))
        read = Read(inner.tensor, tuple(map(moved, inner.index)), valid)
    return read


def has_code(fusion: Fusion, expr: MathExpr) -> bool:
    """True if ``expr`` is executed: it is neither a view nor an assembly of parts."""
    return not isinstance(expr, Assemble) and not fusion.is_view(expr.output)


def storage_operands(fusion: Fusion, expr: MathExpr) -> tuple[Operand, ...]:
    """The operands of ``expr`` with every read resolved."""
    return tuple(resolve(fusion, o) if isinstance(o, Read) else o for o in expr.operands)


def storage_terms(fusion: Fusion, expr: MathExpr) -> tuple[Operand, ...]:
    """As :func:`storage_operands`, without the factor of a rescaled sum."""
    operands = storage_operands(fusion, expr)
    return operands[: len(expr.terms)] if isinstance(expr, Reduction) else operands


def storage_reads(fusion: Fusion, expr: MathExpr) -> tuple[Read, ...]:
    """The resolved tensor operands of ``expr``."""
    return tuple([resolve(fusion, o) for o in expr.operands if isinstance(o, Read)])


def reads_of(fusion: Fusion, tv: TensorView) -> tuple[Read, ...]:
    """The resolved tensor operands of the definition of ``tv``; empty for an input."""
    expr = fusion.definition(tv)
    return () if expr is None else storage_reads(fusion, expr)


def behind(fusion: Fusion, tv: TensorView) -> TensorView:
    """The storage tensor of ``tv``: itself unless it is a view."""
    while fusion.is_view(tv):
        view = fusion.definition(tv)
        assert isinstance(view, View)
        tv = view.operand.tensor
    return tv


def producers(fusion: Fusion, tv: TensorView) -> tuple[TensorView, ...]:
    """The storage tensors that the definition of ``tv`` reads, each once; empty for an input."""
    expr = fusion.definition(tv)
    return () if expr is None else tuple(dict.fromkeys([behind(fusion, o.tensor) for o in expr.operands if isinstance(o, Read)]))


def needed(fusion: Fusion) -> tuple[MathExpr, ...]:
    """The code that the outputs need, producers first."""
    found: set[TensorView] = set()
    stack = list(fusion.outputs)
    while stack:  # through views, which have no code themselves
        tv = stack.pop()
        if tv not in found:
            found.add(tv)
            expr = fusion.definition(tv)
            if expr is not None:
                stack += [o.tensor for o in expr.operands if isinstance(o, Read)]
    return tuple([e for e in fusion.exprs() if e.output in found and has_code(fusion, e)])


def table(fusion: Fusion, expr: MathExpr) -> TensorView | None:
    """The tensor that a gather reads, or an update changes, at a computed index; ``None`` for other expressions."""
    if not isinstance(expr, Gather | Update):
        return None
    first = expr.operands[0]
    assert isinstance(first, Read)
    return behind(fusion, first.tensor)


def storage_uses(fusion: Fusion, tv: TensorView) -> tuple[MathExpr, ...]:
    """The expressions with code that read the storage of ``tv``, directly or through views and assemblies, in creation order."""
    found: dict[TensorView, MathExpr] = {}
    stack = list(reversed(fusion.uses(tv)))
    while stack:
        expr = stack.pop()
        if isinstance(expr, Assemble) or has_code(fusion, expr):
            found[expr.output] = expr
        else:
            stack += reversed(fusion.uses(expr.output))
    return tuple(sorted(found.values(), key=lambda e: e.output.id))


def made_from(fusion: Fusion, tv: TensorView) -> tuple[TensorView, ...]:
    """The tensors whose code writes the storage of ``tv``: ``tv`` itself, or the parts of an assembly, recursively."""
    expr = fusion.definition(tv)
    if not isinstance(expr, Assemble):
        return (tv,)
    return tuple(dict.fromkeys(t for part in expr.parts for t in made_from(fusion, behind(fusion, part.tensor))))


def with_reads(expr: MathExpr, old: TensorView, new: TensorView) -> MathExpr:
    """``expr`` with each direct read of ``old`` replaced by a read of ``new`` at the same index."""
    return rebuilt(expr, lambda read: replace(read, tensor=new) if read.tensor is old else read)


def with_reads_at(fusion: Fusion, expr: MathExpr, old: TensorView, new: Mapping[tuple[tuple[Expr, ...], Expr], TensorView]) -> MathExpr:
    """``expr``, no assembly, with its storage reads of ``old`` replaced: at (index, valid) by reads of ``new[index, valid]`` at its own point."""
    assert not isinstance(expr, Assemble)

    def swap(operand: Read) -> Read:
        read = resolve(fusion, operand)
        if read.tensor is not old:
            return operand
        tensor = new[read.index, read.valid]
        return Read(tensor, iteration_point(tensor.ndim), read.valid)

    return rebuilt(expr, swap)


@dataclass(frozen=True, slots=True, eq=False)
class Strided:
    """A view of a row-major tensor.

    Attributes:
        tensor: the storage tensor.
        shape: of the view.
        start: offset of its first element, in elements.
        strides: in elements, for each axis; 0 if the extent is 1.
    """

    tensor: TensorView
    shape: tuple[Expr, ...]
    start: Expr
    strides: tuple[Expr, ...]

    def has_rows(self, alignment: int, facts: Facts) -> bool:
        """True if neighbors along the last axis are adjacent, and every row starts at a multiple of ``alignment`` bytes, or of the smaller power of two to
        which rows of an array of this shape are aligned: code for such an array assumes no more.
        """
        last = self.strides[-1] if self.strides else ONE
        itemsize = self.tensor.dtype.itemsize
        row = (self.shape[-1] if self.shape else ONE) * itemsize
        while alignment > itemsize and not is_multiple(row, alignment, facts):
            alignment //= 2
        return last in (ONE, ZERO) and all(is_multiple(e * itemsize, alignment, facts) for e in (self.start, *self.strides[:-1]))


def strided(fusion: Fusion, view: TensorView, repeats: bool = False) -> Strided | None:
    """The strides of a view, all positive; ``None`` if it has none: an element has no place, several, or one that is not linear in its indices.

    Args:
        repeats: whether several elements may share a place: strides of 0.
    """
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
    is_injective = repeats or all(step is not ZERO or extent is ONE for step, extent in zip(strides, view.shape, strict=True))
    return Strided(read.tensor, view.shape, start, tuple(strides)) if is_linear and is_injective else None
