"""What the elements of a pointwise kernel have in common, computed once: by a thread for all of its elements, or for all of a vector.

Compilers compute it for each element where functions have branches, and do not know of registers that all hold one number.
"""

from __future__ import annotations

from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import FirstValid, Gather, IndexValue, Pointwise, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.drop_axes import free_axes
from taskfuse.schedulers.elementwise import ancestors
from taskfuse.schedulers.instructions import slots
from taskfuse.schedulers.script import Script

MOST_AGAIN = 32
"""The most issue slots of what all elements have in common that are computed for each of them."""


def once(script: Script, fusion: Fusion) -> dict[TensorView, int]:
    """The tensors all of whose elements are one, such as a bias correction that an optimizer computes of its step, with their issue slots: a thread computes it
    once if that takes long, and not for each of its elements."""
    found: dict[TensorView, int] = {}
    for e in needed(fusion):
        free = {read.index == () or read.tensor in found for read in storage_reads(fusion, e)}
        if isinstance(e, Pointwise) and free <= {True} and not e.output.is_output and not any(isinstance(o, IndexValue) for o in e.operands):
            found[e.output] = slots(e)
    if sum(found.values()) <= MOST_AGAIN:
        return {}
    for tv in found:
        if (expr := fusion.definition(tv)) is not None and free_axes(fusion, expr):
            script.new(tv, "drop_axes")
    return found


def once_per_vector(script: Script, fusion: Fusion) -> frozenset[TensorView]:
    """What the indices of gathers are computed of, if these are the same along the last axis: without it, a thread computes them once for all elements of a
    vector, which one load then takes. The other axes stay, since the loops of a pointwise kernel merge them (rows around reductions drop all:
    :mod:`taskfuse.schedulers.space`)."""
    alike: dict[TensorView, bool] = {}
    indices = set[TensorView]()
    for e in needed(fusion):
        if isinstance(e, Gather) and (last := len(e.output.root) - 1) >= 0:
            values = [r for r in storage_reads(fusion, e)[1:] if not r.tensor.is_input]
            if values and all(_is_alike(fusion, r, last, alike) for r in values):
                indices.update(tv for r in values for tv in (r.tensor, *ancestors(fusion, r.tensor)))
    found = set[TensorView]()
    for e in needed(fusion) if indices else ():
        last = len(e.output.root) - 1
        if e.output in indices and alike.get(e.output) and last in free_axes(fusion, e):
            script.new(e.output, "drop_axes", last)
            found.add(e.output)
    return frozenset(found)


def _is_alike(fusion: Fusion, read: Read, last: int, known: dict[TensorView, bool]) -> bool:
    """Whether what is read, at the reader's own points, is the same along the last axis."""
    moving, tv = iteration_symbol(last).free, read.tensor
    if not any(moving & e.free for e in (*read.index, read.valid)):
        return True
    if tv.is_input or tv.is_output or len(tv.root) != last + 1 or read.index != tuple(map(iteration_symbol, range(last + 1))):
        return False
    if tv not in known:
        expr = fusion.definition(tv)
        computes = isinstance(expr, Pointwise | FirstValid) and not any(isinstance(o, IndexValue) and moving & o.index.free for o in expr.operands)
        known[tv] = computes and expr is not None and all(_is_alike(fusion, r, last, known) for r in storage_reads(fusion, expr))
    return known[tv]
