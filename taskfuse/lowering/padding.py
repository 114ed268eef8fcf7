"""Which copies write zeros past the end of a tensor, so that what computes whole tiles adds nothing there.

An atom that covers its tile reads all of it, also where the tensor ends inside (:class:`taskfuse.ir.atoms.Bounds`); sums of threads may
(:mod:`taskfuse.lowering.tails`). The copy engine fills such places; copies of threads do it where a split's tail has room in Shared memory:
``cp.async`` by its own form, a plain copy by a choice between the element and 0. What is computed on the way is not padded: a function of 0 need
not be 0.
"""

from __future__ import annotations

from taskfuse.ir.atoms import Bounds
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import MathExpr, Read, Reduction, is_copy
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Facts
from taskfuse.ir.storage import storage_operands, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.lowering.edges import along


def pads(fusion: Fusion, tv: TensorView) -> bool:
    """True if the code of ``tv`` writes zeros past the end of the tensor where its storage has room."""
    atom = tv.schedule.atom
    if atom is not None:
        return atom.bounds is Bounds.ZERO
    expr = fusion.definition(tv)
    if tv.schedule.memory is not MemoryType.Shared or expr is None or not is_copy(expr):
        return False
    return covered(fusion, tv) or _is_summed(fusion, tv)


def covered(fusion: Fusion, tv: TensorView) -> bool:
    """True if a contraction reads whole tiles of ``tv``, directly or through atoms that load them."""
    return any(_computes_whole_tiles(fusion, use.output) for use in storage_uses(fusion, tv))


def is_zero_past_the_end(fusion: Fusion, tv: TensorView, axis: int, facts: Facts) -> bool:
    """True if an atom that reads ``tv`` past the end of one of its axes finds zeros.

    What an atom brings from there is 0 if the tensor that it reads ends there, too: a slice of a longer one is not filled.
    """
    atom = tv.schedule.atom
    if atom is None or atom.bounds is Bounds.ZERO:
        return pads(fusion, tv)
    expr = fusion.definition(tv)
    if expr is None or not atom.copies_only:
        return False
    for operand in storage_operands(fusion, expr):
        source = along(tv, tv.root[axis], operand, facts) if isinstance(operand, Read) and tv.root == tv.logical else None
        if not isinstance(operand, Read) or source is None:
            return False
        if atom.bounds is not Bounds.FILL and not (atom.bounds is Bounds.COVER and is_zero_past_the_end(fusion, operand.tensor, source, facts)):
            return False
    return True


def is_sum(expr: MathExpr) -> bool:
    """True for a sum, or a sum of products, to which zeros add nothing."""
    return isinstance(expr, Reduction) and expr.combine.op is ELEMENTWISE["add"] and expr.body in (ELEMENTWISE["copy"], ELEMENTWISE["mul"])


def _is_summed(fusion: Fusion, tv: TensorView) -> bool:
    """True if sums take ``tv``, directly or from copies in registers."""
    uses = storage_uses(fusion, tv)
    if any(map(is_sum, uses)):
        return True
    copies = [use.output for use in uses if is_copy(use) and not use.output.is_output]
    return any(copy.schedule.memory is not MemoryType.Shared and _is_summed(fusion, copy) for copy in copies)


def _computes_whole_tiles(fusion: Fusion, tv: TensorView) -> bool:
    """True if the atom of ``tv`` contracts whole tiles, or loads tiles for one that does."""
    atom = tv.schedule.atom
    if atom is None or atom.bounds is not Bounds.COVER:
        return False
    return atom.contraction is not None or covered(fusion, tv)
