"""The walks of a fusion: two products with reductions between them, which one kernel may compute although no two parts of them are worth one.

A search that merges two segments at a time does not find it: scores and the maxima of their rows, as one kernel, take longer than both apart. So walks are
looked for as a whole, in the graph alone; whether a kernel computes one, and how long it takes, the scheduler says.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskfuse.ir.contraction import factors
from taskfuse.ir.expr import FirstValid, MathExpr, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.repairs import depends


def walks(fusion: Fusion) -> Iterator[tuple[TensorView, ...]]:
    """The tensors of each walk, producers first: the first product, all reductions along the axis that the second one sums, what is between them, what is
    computed of no input, and the padding of inputs."""
    exprs = [e for e in needed(fusion) if not fusion.is_view(e.output)]
    products = [e.output for e in exprs if isinstance(e, Reduction) and (two := factors(fusion, e)) is not None and two.make_a_matrix]
    if len(products) < 2:
        return
    keys = Keys(fusion)
    for second in products:
        first = [tv for tv in products if tv is not second and depends(fusion, second, (tv,), [p for p in products if not among(p, (tv, second))])]
        if len(first) != 1:
            continue
        reductions = [e.output for e in exprs if isinstance(e, Reduction) and depends(fusion, e.output, first) and _is_along(keys, e.output, second)]
        if len(reductions) < 2:
            continue
        before = [e for e in exprs if any(depends(fusion, r, (e.output,)) for r in reductions)]
        yield tuple(e.output for e in before if depends(fusion, e.output, first) or not depends(fusion, e.output, fusion.inputs) or _is_padding(fusion, e))


def _is_padding(fusion: Fusion, expr: MathExpr) -> bool:
    """True for an input that is padded."""
    return isinstance(expr, FirstValid) and all(r.tensor.is_input for r in storage_reads(fusion, expr))


def _is_along(keys: Keys, tv: TensorView, second: TensorView) -> bool:
    """True if both reduce the same axis."""
    mine, yours = ([a for a in t.root if a.is_reduction] for t in (tv, second))
    return len(mine) == len(yours) == 1 and keys.equal(mine[0], yours[0])
