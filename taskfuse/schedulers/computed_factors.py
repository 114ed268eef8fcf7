"""Factors of matrix products that are computed, at the points at which the product reads them.

A product computes the elements of a factor on their way to the tensor cores (:mod:`taskfuse.schedulers.prologue`), if elementwise functions make them of an
input, at its rows and its k. Weights of few bits with a scale of each group are computed as an array of groups, and then viewed: their math is moved to the
points behind the view, by public scheduling calls. The law is that of :mod:`taskfuse.schedulers.canonical`.
"""

from __future__ import annotations

from taskfuse.errors import TaskfuseError
from taskfuse.ir.atoms import SUM_OF_PRODUCTS
from taskfuse.ir.contraction import computes
from taskfuse.ir.expr import FirstValid, MathExpr, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import TRUE, Expr
from taskfuse.ir.storage import needed, resolve, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.through_view import is_whole, own_index
from taskfuse.schedulers.elementwise import is_aligned
from taskfuse.schedulers.factors import made_of_inputs
from taskfuse.schedulers.script import Script


def compute_where_multiplied(fusion: Fusion) -> Script | None:
    """A copy of ``fusion`` whose computed factors of products have the axes of the products; ``None`` if all have, or none can."""
    found = [e.output.name for e in needed(fusion) if computes(e, SUM_OF_PRODUCTS) and _elsewhere(fusion, e)]
    if not found:
        return None
    script = Script(copy_fusion(fusion)[0])
    try:
        for name in found:
            compute_at(script, script.fusion.tensor(name))
    except TaskfuseError:  # a view that there is not
        return None
    return script


def compute_at(script: Script, product: TensorView) -> None:
    """Compute the factors of a product that are made of inputs, for it alone, at its own points."""
    for k in _elsewhere(script.fusion, _definition(script.fusion, product)):
        _move(script, product, k)


def computed_for(fusion: Fusion, expr: MathExpr) -> list[TensorView]:
    """The tensors of which a product's factors are made, for it alone, out of inputs."""
    found = [made for o in expr.operands if isinstance(o, Read) and (made := _made_for(fusion, expr, resolve(fusion, o)))]
    return [tv for made in found for tv in made]


def _made_for(fusion: Fusion, expr: MathExpr, read: Read) -> list[TensorView]:
    """A factor and those of which it is computed, if nothing else reads them."""
    made = made_of_inputs(fusion, read.tensor)
    is_shared = any(u is not expr and not among(u.output, made) for tv in made for u in storage_uses(fusion, tv))
    return [] if is_shared or read.valid is not TRUE else made


def _elsewhere(fusion: Fusion, expr: MathExpr) -> list[int]:
    """The operands of a product for which :func:`_is_elsewhere` holds."""
    return [k for k, o in enumerate(expr.operands) if _is_elsewhere(fusion, expr, o)]


def _is_elsewhere(fusion: Fusion, expr: MathExpr, operand: object) -> bool:
    """Whether a factor is made of inputs for this product alone, and, in part, at other points than its."""
    if not isinstance(operand, Read):
        return False
    read = resolve(fusion, operand)
    made = _made_for(fusion, expr, read)
    if not made:
        return False
    inside = [(r, tv) for tv in made for r in storage_reads(fusion, _definition(fusion, tv)) if not r.tensor.is_input]
    return not is_whole(expr, read, own_index(fusion, expr, read)) or not all(is_aligned(r, tv) for r, tv in inside)


def _move(script: Script, product: TensorView, operand: int) -> None:
    """Compute a factor, and what it is computed of, at the points of the product that have elements of it."""
    fusion = script.fusion
    stack = [script.new(script.through_view(product, operand), "cache_after")]
    views: dict[tuple[TensorView, tuple[Expr, ...]], list[tuple[TensorView, int]]] = {}
    while stack:
        reader = stack.pop()
        expr = _definition(fusion, reader)
        if isinstance(expr, FirstValid) and any(isinstance(o, Read) and resolve(fusion, o).tensor.is_input for o in expr.operands):
            stack.append(script.new(reader, "clamp_read"))  # what is not read is an element, too: no branch is needed
            continue
        for k, o in enumerate(expr.operands):
            if not isinstance(o, Read):
                continue
            read, index = resolve(fusion, o), own_index(fusion, expr, resolve(fusion, o))
            if not read.tensor.is_input:
                stack += [read.tensor] if is_aligned(read, reader) else script.recompute(read.tensor, [reader])
            elif index != read.index or any(len(e.free) > 1 for e in index):
                views.setdefault((read.tensor, index), []).append((reader, k))
    for (reader, k), *others in views.values():  # an element in its place, through views before: one of those that several read
        script.through_view(reader, k, also=others, packed=True)


def _definition(fusion: Fusion, tv: TensorView) -> MathExpr:
    expr = fusion.definition(tv)
    assert expr is not None
    return expr
