"""The walks of a fusion: two products with reductions between them, which one kernel may compute although no two parts of them are worth one.

A search that merges two segments at a time does not find it: scores and the maxima of their rows, as one kernel, take longer than both apart. So walks are
looked for as a whole, in the graph alone; whether a kernel computes one, and how long it takes, the scheduler says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from taskfuse.ir.contraction import factors
from taskfuse.ir.expr import FirstValid, MathExpr, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.keys import Keys


def walks(fusion: Fusion) -> Iterator[tuple[TensorView, ...]]:
    """The tensors of each walk, producers first: the first product, all reductions along the axis that the second one sums, what is between them, what is
    computed of no input, and the padding of inputs."""
    exprs = [e for e in needed(fusion) if not fusion.is_view(e.output)]
    products = [e.output for e in exprs if isinstance(e, Reduction) and (two := factors(fusion, e)) is not None and two.make_a_matrix]
    if len(products) < 2:
        return
    keys, known = Keys(fusion), _Ancestors(fusion, products)
    inputs = known.of(fusion.inputs)
    for second in products:
        nearest = known.products[second]
        if len(nearest) != 1:
            continue
        (first,) = nearest
        reductions = [e.output for e in exprs if isinstance(e, Reduction) and known.has(e.output, first) and _is_along(keys, e.output, second)]
        if len(reductions) < 2:
            continue
        before = known.of(reductions)
        yield tuple(
            e.output
            for e in exprs
            if known.bit(e.output) & before and (known.has(e.output, first) or not known.of([e.output]) & inputs or _is_padding(fusion, e))
        )


class _Ancestors:
    """What each tensor is computed from, itself included: as bits, one for each tensor, since a long fusion has many pairs of them.

    Attributes:
        products: of each product, those that it is computed from without another one between.
    """

    def __init__(self, fusion: Fusion, products: Sequence[TensorView]) -> None:
        self._number: dict[TensorView, int] = {}
        self._of: dict[TensorView, int] = {}
        self.products: dict[TensorView, frozenset[TensorView]] = {}
        nearest: dict[TensorView, frozenset[TensorView]] = {}
        for tv in fusion.inputs:
            self._of[tv] = self.bit(tv)
        for expr in fusion.exprs():
            tv, own = expr.output, [o.tensor for o in expr.operands if isinstance(o, Read)]
            self._of[tv] = self.bit(tv) | self.of(own)
            found = frozenset[TensorView]().union(*(nearest.get(p, frozenset[TensorView]()) for p in own))
            if among(tv, products):
                self.products[tv] = found
            nearest[tv] = frozenset((tv,)) if among(tv, products) else found

    def bit(self, tv: TensorView) -> int:
        """That of a tensor."""
        return 1 << self._number.setdefault(tv, len(self._number))

    def of(self, tensors: Sequence[TensorView]) -> int:
        """What some tensors are computed from."""
        found = 0
        for tv in tensors:
            found |= self._of[tv]
        return found

    def has(self, tv: TensorView, source: TensorView) -> bool:
        """Whether a tensor is computed from another one."""
        return bool(self._of[tv] & self.bit(source))


def _is_padding(fusion: Fusion, expr: MathExpr) -> bool:
    """True for an input that is padded."""
    return isinstance(expr, FirstValid) and all(r.tensor.is_input for r in storage_reads(fusion, expr))


def _is_along(keys: Keys, tv: TensorView, second: TensorView) -> bool:
    """True if both reduce the same axis."""
    mine, yours = ([a for a in t.root if a.is_reduction] for t in (tv, second))
    return len(mine) == len(yours) == 1 and keys.equal(mine[0], yours[0])
