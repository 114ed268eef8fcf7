"""The overhang of splits with a remainder, past the end of a tensor or inside it, and the copies that write zeros there.

An index past the end of one of the tensor's own axes is not an element: a copy that pads writes zeros to places that hold nothing else, and a reader
finds zeros. This holds for the axis itself, for the outer part of its split, and for a merge in which it is the outer part. Any other overhang, of the
inner part of a split, repeats elements of other iterations: code there stays under a guard.

An atom that covers its tile reads all of it, also past the end of the tensor (:class:`taskfuse.ir.atoms.Bounds`); sums of threads may
(:mod:`taskfuse.lowering.guard_elimination`). The copy engine fills such places; copies of threads do so if the tail of the split has room in Shared memory:
``cp.async`` by its own form, a plain copy by a choice between the element and 0. Computed values are not padded: a function of 0 need
not be 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.ir.atoms import Bounds, Instruction
from taskfuse.ir.axes import Axis, Merge, Rasterize, Split, iteration_position
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import MathExpr, Read, Reduction, is_copy, padded_read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, Facts, eq, ge, lt, prove
from taskfuse.ir.storage import resolve, storage_operands, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.lowering.domains import divides


def end_of(tv: TensorView, source: Axis) -> Axis | None:
    """The root axis past whose end the overhang of a split of ``source`` is; ``None``: the overhang is inside the tensor."""
    above = {t.outer: t.source for t in tv.schedule.transforms if isinstance(t, Split)}
    above |= {t.result: t.outer for t in tv.schedule.transforms if isinstance(t, Merge)}
    while source not in tv.root and source in above:
        source = above[source]
    return source if source in tv.root else None


def overhanging(tv: TensorView, facts: Facts) -> dict[Axis, Axis]:
    """The axes of ``tv`` whose splits overhang past its end, with the root axis that ends there."""
    splits = [t for t in tv.schedule.transforms if isinstance(t, Split) and not t.source.is_foreign and not divides(t, facts)]
    return {t.source: end for t in splits if (end := end_of(tv, t.source)) is not None}


def along(reader: TensorView, end: Axis, read: Read, facts: Facts) -> int | None:
    """The axis of the read tensor that ends where ``end``, a root axis of the reader, does; ``None`` if elements past ``end`` may exist there."""
    position = reader.root.index(end)
    for k, (index, a) in enumerate(zip(read.index, read.tensor.logical, strict=True)):
        if iteration_position(index) == position and prove(eq(a.extent, end.extent), facts):
            return k
    return None


def told_apart(tv: TensorView, stored: tuple[Axis, ...], values: Mapping[Axis, Expr], facts: Facts) -> set[Axis]:
    """The axes whose index in code follows from the place that it writes, which determines the values of ``stored``.

    ``facts``: facts where the code runs. An index of an inner part that may leave its extent is lost where it is merged with another.
    """

    def is_inside(a: Axis) -> bool:
        value = values.get(a)
        return value is not None and prove(ge(value, 0), facts) and prove(lt(value, a.extent), facts)

    known = set(stored)
    before = -1
    while len(known) != before:
        before = len(known)
        for t in tv.schedule.transforms:
            if all(a in known for a in t.outputs) and (not isinstance(t, Merge) or is_inside(t.inner)):
                known.update(t.inputs)
            if all(a in known for a in t.inputs) and not isinstance(t, Rasterize) and (not isinstance(t, Split) or is_inside(t.inner)):
                known.update(t.outputs)
    return known


def pads(fusion: Fusion, tv: TensorView) -> bool:
    """True if the code of ``tv`` writes zeros past the end of the tensor as far as its storage has room."""
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
    """True if an atom that reads ``tv`` past the end of one of its axes reads zeros.

    The elements that an atom, or a copy into registers, loads from there are 0 if its source ends there, too: a slice of a longer tensor is not
    zero-filled.
    """
    atom = tv.schedule.atom
    expr = fusion.definition(tv)
    if pads(fusion, tv):
        return True
    if expr is None:
        return False
    padded = padded_read(expr)  # where it has no element of what it copies, it is 0 already
    is_held = is_copy(expr) and tv.schedule.memory in (None, MemoryType.Local) and (atom is None or atom.instruction is Instruction.VECTOR)
    is_moved = (is_copy(expr) or padded is not None) and atom is not None and atom.copies_only
    if not is_held and not is_moved:
        return False
    for operand in storage_operands(fusion, expr) if padded is None else (resolve(fusion, padded),):
        source = along(tv, tv.root[axis], operand, facts) if isinstance(operand, Read) and tv.root == tv.logical else None
        if not isinstance(operand, Read) or source is None:
            return False
        brings_zeros = atom is not None and atom.bounds is Bounds.FILL
        passes_zeros = is_held or (atom is not None and atom.bounds is Bounds.COVER)
        if not brings_zeros and not (passes_zeros and is_zero_past_the_end(fusion, operand.tensor, source, facts)):
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
