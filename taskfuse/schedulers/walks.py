"""The walks of a fusion: products with reductions, or functions of elements, between them, which one kernel may compute although no two parts of them are
worth one.

A search that merges two segments at a time does not find it: scores and the maxima of their rows, as one kernel, take longer than both apart. So walks are
looked for as a whole, in the graph alone; whether a kernel computes one, and how long it takes, the scheduler says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from taskfuse.errors import UnsupportedError
from taskfuse.ir.contraction import factors
from taskfuse.ir.expr import FirstValid, MathExpr, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.parts import Parts
from taskfuse.schedule.repairs import depends
from taskfuse.schedulers.back_to_back import find
from taskfuse.schedulers.back_to_back_cost import has_room
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.segment_ways import RowViews
from taskfuse.target import Target


def walks(fusion: Fusion) -> Iterator[tuple[TensorView, ...]]:
    """The tensors of each walk, producers first: the first products, all reductions along the axis that the last ones sum, what is between them, what is
    computed of no input, and the padding of inputs. Walks with no other reductions than products come last, those that have nothing of others."""
    exprs = [e for e in needed(fusion) if not fusion.is_view(e.output)]
    products = [e.output for e in exprs if isinstance(e, Reduction) and (two := factors(fusion, e)) is not None and two.make_a_matrix]
    if len(products) < 2:
        return
    keys, seen = Keys(fusion), set[TensorView]()
    chains: list[list[TensorView]] = []
    cascades: list[list[TensorView]] = []
    for last in products:
        first = _first(fusion, last, products)
        if not first or last in seen:
            continue
        reductions = [e.output for e in exprs if isinstance(e, Reduction) and depends(fusion, e.output, first) and _is_along(keys, e.output, last)]
        if all(among(r, products) for r in reductions):
            seen.update(reductions)
            chains.append(reductions)
        elif len(first) == 1:
            cascades.append(reductions)
    taken = set[TensorView]()
    for reductions in (*cascades, *chains):
        first = list(dict.fromkeys(tv for r in reductions if among(r, products) for tv in _first(fusion, r, products)))
        before = [e for e in exprs if any(depends(fusion, r, (e.output,)) for r in reductions)]
        found = tuple(e.output for e in before if depends(fusion, e.output, first) or not depends(fusion, e.output, fusion.inputs) or _is_padding(fusion, e))
        computed = {tv for tv in found if depends(fusion, tv, first)}
        if taken.isdisjoint(computed):
            yield found
        taken |= computed if any(reductions is c for c in cascades) else set()


def _first(fusion: Fusion, last: TensorView, products: Sequence[TensorView]) -> list[TensorView]:
    """The products that one depends on, not by way of others."""
    return [tv for tv in products if tv is not last and depends(fusion, last, (tv,), [p for p in products if not among(p, (tv, last))])]


def walks_apart(fusion: Fusion, target: Target) -> Script | None:
    """A copy in which each walk computes for itself what several have in common, which then need not be in memory; ``None`` if there is no such tensor.

    Sums along one axis are one walk if a multiprocessor has registers for them all, else a walk each.
    """
    script = Script(copy_fusion(fusion)[0])
    _separate(script, list(walks(script.fusion)))
    for walk in list(walks(script.fusion)):
        _separate(script, list(_fitting(script.fusion, walk, target)))
    return script if script.lines else None


def _separate(script: Script, parts: Sequence[tuple[TensorView, ...]]) -> None:
    """Let each of several sets of tensors have no tensor that is computed in an earlier one."""
    taken = set[TensorView]()
    for tensors in parts:
        shared = [tv for tv in tensors if tv in taken and depends(script.fusion, tv, script.fusion.inputs)]
        made = [e.output for e in script.fusion.exprs()]
        between = [tv for tv in made if among(tv, shared) or (script.fusion.is_view(tv) and depends(script.fusion, tv, shared))]
        mine = {tv for tv in tensors if tv not in taken}
        for tv in reversed(between) if shared else ():  # readers first
            readers = [use.output for use in tv.uses if use.output in mine]
            if readers:
                mine.add(tv if len(readers) == len(tv.uses) else script.duplicate(tv, readers))
        taken |= mine


def _fitting(fusion: Fusion, tensors: tuple[TensorView, ...], target: Target) -> Iterator[tuple[TensorView, ...]]:
    """The tensors of a walk; of products of functions of products, where no kernel takes them all, those of each of the last ones."""
    last = [tv for tv in tensors if isinstance(tv.definition, Reduction) and not any(depends(fusion, t, (tv,)) for t in tensors if t is not tv)]
    try:
        is_one = len(last) == 1 or has_room(find(Parts(fusion).extract(tensors, fusion.name, RowViews(fusion).of(tensors))), target)
    except UnsupportedError:
        is_one = True
    if is_one:
        yield tensors
    else:
        yield from (tuple(tv for tv in tensors if depends(fusion, one, (tv,))) for one in last)


def _is_padding(fusion: Fusion, expr: MathExpr) -> bool:
    """True for an input that is padded."""
    return isinstance(expr, FirstValid) and all(r.tensor.is_input for r in storage_reads(fusion, expr))


def _is_along(keys: Keys, tv: TensorView, second: TensorView) -> bool:
    """True if both reduce the same axis."""
    mine, yours = ([a for a in t.root if a.is_reduction] for t in (tv, second))
    return len(mine) == len(yours) == 1 and keys.equal(mine[0], yours[0])
