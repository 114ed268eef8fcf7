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
from taskfuse.ir.scalar import TRUE
from taskfuse.ir.storage import needed, resolve, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.through_view import is_whole, own_index
from taskfuse.schedulers.elementwise import is_aligned
from taskfuse.schedulers.factors import made_of_inputs
from taskfuse.schedulers.script import Script


def compute_where_multiplied(fusion: Fusion) -> Script | None:
    """A copy of ``fusion`` whose computed factors of products have the axes of the products; ``None`` if all have, or none can."""
    found = [(e.output.name, k) for e in needed(fusion) if computes(e, SUM_OF_PRODUCTS) for k, o in enumerate(e.operands) if _is_elsewhere(fusion, e, o)]
    if not found:
        return None
    script = Script(copy_fusion(fusion)[0])
    try:
        for name, k in found:
            _move(script, script.fusion.tensor(name), k)
    except TaskfuseError:  # a view that there is not
        return None
    return script


def _is_elsewhere(fusion: Fusion, expr: MathExpr, operand: object) -> bool:
    """Whether a factor is made of inputs for this product alone, and, in part, at other points than its."""
    if not isinstance(operand, Read):
        return False
    read = resolve(fusion, operand)
    made = made_of_inputs(fusion, read.tensor)
    if not made or read.valid is not TRUE or any(u is not expr and not among(u.output, made) for tv in made for u in storage_uses(fusion, tv)):
        return False
    inside = [(r, tv) for tv in made for r in storage_reads(fusion, _definition(fusion, tv)) if not r.tensor.is_input]
    return not is_whole(expr, read, own_index(fusion, expr, read)) or not all(is_aligned(r, tv) for r, tv in inside)


def _move(script: Script, product: TensorView, operand: int) -> None:
    """Compute a factor, and what it is computed of, at the points of the product that have elements of it."""
    fusion = script.fusion
    stack = [script.new(script.through_view(product, operand), "cache_after")]
    while stack:
        reader = stack.pop()
        expr = _definition(fusion, reader)
        if isinstance(expr, FirstValid) and any(isinstance(o, Read) and resolve(fusion, o).tensor.is_input for o in expr.operands):
            stack.append(script.new(reader, "clamp_read"))  # what is not read is an element, too: no branch is needed
            continue
        for k, o in enumerate(expr.operands):
            if not isinstance(o, Read):
                continue
            read = resolve(fusion, o)
            if not read.tensor.is_input:
                stack += [read.tensor] if is_aligned(read, reader) else script.recompute(read.tensor, [reader])
            elif own_index(fusion, expr, read) != read.index:
                script.through_view(reader, k)  # an element in its place, through views before


def _definition(fusion: Fusion, tv: TensorView) -> MathExpr:
    expr = fusion.definition(tv)
    assert expr is not None
    return expr
