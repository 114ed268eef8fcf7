"""Rules of definitions that ops keep by construction, and texts can break: functions in dtypes for which they are defined, and reads inside tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

from taskfuse.dtypes import DType
from taskfuse.ir.dims import Dim, nearest
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.expr import Assemble, Fold, MathExpr, Pointwise, Read, Reduction, Scan, Update, operand_dtype
from taskfuse.ir.scalar import TRUE, Expr, evaluate, lookups_of

SAMPLES = (1, 7, 64)
"""Extents that reads are tried at, where they are symbolic."""


def broken_rule(expr: MathExpr, dims: Iterable[Dim]) -> str | None:
    """The rule that a definition breaks, in words; ``None`` if none is found. Reads are tried at the corners of the iteration space, for some extents."""
    return _undefined(expr) or _outside(expr, tuple(dims))


def _undefined(expr: MathExpr) -> str | None:
    """A function that is not defined in the dtype in which it would be computed."""
    out = expr.output.dtype
    match expr:
        case Pointwise(op=op) | Fold(step=op):
            return _computed(op, [operand_dtype(o) for o in expr.operands], out)
        case Reduction(combine=combine, body=body):
            return _computed(body, [operand_dtype(o) for o in expr.terms], out.compute) or _computed(combine.op, [out, out], out)
        case Scan(combine=combine) | Update(combine=combine):
            return _computed(combine.op, [out, out], out)
        case _:
            return None


def _computed(op: Elementwise, operands: list[DType], out: DType) -> str | None:
    dtype = op.compute_dtype(operands, out)
    return None if op.computes_in(dtype) else f"{op.name} does not compute in {dtype}"


def _outside(expr: MathExpr, dims: tuple[Dim, ...]) -> str | None:
    """A read of an element that its tensor lacks."""
    reads = [o for o in expr.operands if isinstance(o, Read) and o.valid is TRUE and not isinstance(expr, Assemble)]  # parts have spaces of their own
    for size in SAMPLES if dims else SAMPLES[:1]:
        sizes = nearest(dims, {d.name: size for d in dims})
        if sizes is None or any(_is_empty(a.extent, sizes) for a in expr.output.root):
            continue
        for read in reads:
            for e, extent in zip(read.index, read.tensor.shape, strict=True):
                found = _beyond(expr, e, extent, sizes)
                if found is not None:
                    at = f" at {', '.join(f'{name} = {value}' for name, value in sizes.items())}" if sizes else ""
                    return f"it reads {read.tensor.name} at {e}, which is {found[0]} of {found[1]} elements{at}"
    return None


def _is_empty(extent: Expr, sizes: Mapping[str, int]) -> bool:
    """Whether an axis has no elements, so that nothing is read."""
    return not lookups_of(extent) and extent.free <= sizes.keys() and int(evaluate(extent, sizes)) < 1


def _beyond(expr: MathExpr, index: Expr, extent: Expr, sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """The first value of an index that is no element of an axis, and the extent of that."""
    axes = {f"i{k}": a.extent for k, a in enumerate(expr.output.root)}
    used = [name for name in axes if name in index.free]
    if lookups_of(index) or lookups_of(extent) or any(lookups_of(axes[name]) for name in used) or not index.free <= {*used, *sizes}:
        return None
    most = int(evaluate(extent, sizes))
    ends = [int(evaluate(axes[name], sizes)) - 1 for name in used]
    values = (int(evaluate(index, {**sizes, **dict(zip(used, corner, strict=True))})) for corner in product(*((0, end) for end in ends)))
    return next(((value, most) for value in values if not 0 <= value < most), None)
