"""Instructions of elementwise code: of one expression, and of a fusion each of whose tensors is computed at the points of its readers."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import Any

import numpy as np

from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, IndexValue, Literal, MathExpr, Pointwise, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, Expr, evaluate
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.schedule import Sizes

SAMPLE = 256
"""The points that are taken for all points of a tensor."""


def cost(expr: MathExpr) -> int:
    """Instructions per point, as the text of a kernel has them."""
    match expr:
        case Pointwise(op=op):
            return op.instructions
        case _:
            return 1 + len(expr.operands)


def slots(expr: MathExpr) -> int:
    """Issue slots of a warp per point of each lane."""
    match expr:
        case Pointwise() if _is_operand(expr):
            return 0
        case Pointwise(op=op, operands=operands):
            return op.issue_slots(expr.output.dtype, is_constant=isinstance(operands[-1], Literal))
        case _:
            return cost(expr)


def _is_operand(expr: Pointwise) -> bool:
    """True if the result is the first operand, whatever that is, so that a compiler leaves nothing of it."""
    match expr:
        case Pointwise(op=op, operands=(Read(tensor=x),)):
            return op is ELEMENTWISE["cast"] and x.dtype is expr.output.dtype
        case Pointwise(op=op, operands=(Read(tensor=x), Literal(value=value))) if x.dtype is expr.output.dtype:
            return (op is ELEMENTWISE["mul"] and value == 1) or (op in (ELEMENTWISE["add"], ELEMENTWISE["sub"]) and value == 0 and x.dtype.is_integer)
        case _:
            return False


def issued(fusion: Fusion, vector: int, extent: Sizes, *, is_sunk: bool) -> float:
    """Issue slots of all threads, each of which computes what it needs: a short tensor that all rows read, for every row. What is the same along the last axis
    is computed once for a vector, and one function of the same elements once, in however many tensors.

    Args:
        vector: elements of a thread.
        is_sunk: parts of concatenations are computed only where they are read (:mod:`taskfuse.passes.sinking`), by warps that all read the same part.
    """
    changing = set[TensorView]()
    first: dict[Hashable, TensorView] = {}
    alike: dict[TensorView, TensorView] = {}
    needed_at = shares(fusion, extent) if is_sunk else {}
    found = 0.0
    for expr in needed(fusion):
        tv = expr.output
        last = iteration_symbol(len(tv.root) - 1).free if tv.root else frozenset[str]()
        reads = storage_reads(fusion, expr)
        places = [e for r in reads if r.tensor.is_input for e in (*r.index, r.valid)]
        places += [r.valid for r in reads if not r.tensor.is_input] + [o.index for o in expr.operands if isinstance(o, IndexValue)]
        is_changing = any(last & e.free for e in places) or not changing.isdisjoint(r.tensor for r in reads)
        if is_changing:
            changing.add(tv)
        if isinstance(expr, Pointwise):
            operands = [o for o in expr.operands if not isinstance(o, Read)], [(alike.get(r.tensor, r.tensor), r.index, r.valid) for r in reads]
            places_of_reads = tuple(isinstance(o, Read) for o in expr.operands)
            alike[tv] = first.setdefault((expr.op, tv.dtype, tuple(a.extent for a in tv.root), places_of_reads, *map(tuple, operands)), tv)
            if alike[tv] is not tv:
                continue
        found += slots(expr) * needed_at.get(tv, 1.0) * prod(extent(a.extent) for a in tv.root) / (1 if is_changing else vector)
    return found


def shares(fusion: Fusion, extent: Sizes) -> dict[TensorView, float]:
    """The share of its points at which each tensor is needed: parts of concatenations, and what only they read."""
    found = dict.fromkeys(fusion.outputs, 1.0)
    for expr in reversed(needed(fusion)):
        own = found.get(expr.output, 1.0)
        for read in storage_reads(fusion, expr):
            share = own * (holds(read.valid, expr.output, extent) if isinstance(expr, FirstValid) else 1.0)
            found[read.tensor] = min(1.0, found.get(read.tensor, 0.0) + share)
    return found


def holds(condition: Expr, tv: TensorView, extent: Sizes) -> float:
    """The share of the points of a tensor at which a condition holds."""
    if condition is TRUE:
        return 1.0
    random = np.random.default_rng(SAMPLE)
    values: dict[str, Any] = dict(extent.values)
    values |= {str(iteration_symbol(k)): random.integers(0, max(extent(a.extent), 1), SAMPLE) for k, a in enumerate(tv.root)}
    try:
        return float(np.mean(evaluate(condition, values)))
    except KeyError:  # elements of a table
        return 1.0
