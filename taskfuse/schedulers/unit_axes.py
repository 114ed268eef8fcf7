"""Statistics with a last axis of one element, read along the axis before: through views without it, whose rows are vectors.

Means of channels that a norm keeps as ``[N, H, W, 1]`` are one number per pixel. Where pixels are neighbors in memory, as in NCHW, a vector of an image needs
a vector of means; but elements of the last axis of a tensor are what vectors are made of, and it has one.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from taskfuse.ir.axes import iteration_position
from taskfuse.ir.expr import MathExpr, Pointwise, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, TRUE, Expr
from taskfuse.ir.storage import needed, resolve, storage_reads
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.through_view import is_whole, own_index
from taskfuse.schedulers.script import Script


def without_unit_axes(fusion: Fusion) -> Script | None:
    """A copy whose elementwise functions read inputs without their last axes of one element, along an axis before that is the last one of another input;
    ``None`` if there are none."""
    turned = {(e.output.root[p].extent, p - len(e.output.root)) for e in needed(fusion) if isinstance(e, Pointwise) for p in _turned(fusion, e)}
    found = [(e.output.name, k) for e in needed(fusion) if turned and isinstance(e, Pointwise) for k in _units(fusion, e, turned)]
    if not found:
        return None
    script = Script(copy_fusion(fusion)[0])
    for name, operand in found:
        script.through_view(script.fusion.tensor(name), operand)
    return script


def _turned(fusion: Fusion, expr: MathExpr) -> list[int]:
    """The axes of an expression, other than its last one, along which it reads neighbors of an input."""
    found = [iteration_position(read.index[-1]) for read in storage_reads(fusion, expr) if read.tensor.is_input and read.index]
    return [p for p in found if p is not None and p < len(expr.output.root) - 1]


def _units(fusion: Fusion, expr: MathExpr, turned: AbstractSet[tuple[Expr, int]]) -> list[int]:
    """The operands of an expression that are inputs with a last axis of one element and one of ``turned`` before it."""
    found: list[int] = []
    for k, operand in enumerate(expr.operands):
        read = resolve(fusion, operand) if isinstance(operand, Read) else None
        if read is None or not read.tensor.is_input or read.valid is not TRUE or read.tensor.shape[-1:] != (ONE,):
            continue
        index = own_index(fusion, expr, read)
        places = [p for e in index if (p := iteration_position(e)) is not None]
        rank = len(expr.output.root)
        if is_whole(expr, read, index) and places and (expr.output.root[places[-1]].extent, places[-1] - rank) in turned:
            found.append(k)
    return found
