"""The walks of a fusion: products with reductions, or elementwise functions, between them, which one kernel may compute although merging any two parts of
them does not pay.

A search that merges two segments at a time does not find a walk: scores and the maxima of their rows, as one kernel, take longer than both apart. So walks are
found as a whole, from the graph; the scheduler decides whether a kernel can compute one, and how long it takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from taskfuse.errors import UnsupportedError
from taskfuse.ir.contraction import Factors, factors
from taskfuse.ir.expr import FirstValid, MathExpr, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers.back_to_back import find
from taskfuse.schedulers.back_to_back_cost import WIDEST, has_room
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.segment_ways import RowViews
from taskfuse.target import Target


def walks(fusion: Fusion) -> Iterator[tuple[TensorView, ...]]:
    """The tensors of each walk, producers first: the first products, all reductions along the axis that the last ones sum, the tensors between them, constants,
    and the padding of inputs.

    Walks whose only reductions are products come last, if their factors fit into a block and they share nothing with other walks.
    """
    products = {e.output: two for e in needed(fusion) if isinstance(e, Reduction) and (two := factors(fusion, e)) is not None and two.make_a_matrix}
    if len(products) < 2:
        return
    behind, keys = _Behind(fusion, products), Keys(fusion)
    along: dict[object, list[TensorView]] = {}
    for e in behind.exprs:
        if isinstance(e, Reduction) and len(axes := [a for a in e.output.root if a.is_reduction]) == 1:
            along.setdefault(keys.key(axes[0]), []).append(e.output)
    cascades: list[list[TensorView]] = []
    chains: list[list[TensorView]] = []
    seen = set[TensorView]()
    for same in along.values():
        for last in same:
            first = behind.direct[last]
            if last not in products or not first or last in seen:
                continue
            reductions = [tv for tv in same if behind.has(tv, first)]
            if all(tv in products for tv in reductions):
                seen.update(reductions)
                chains.append(reductions)
            elif len(first) == 1:
                cascades.append(reductions)
    place = {e.output: k for k, e in enumerate(behind.exprs)}
    taken = set[TensorView]()
    ordered = [(is_chain, found) for is_chain, some in ((False, cascades), (True, chains)) for found in sorted(some, key=lambda found: place[found[0]])]
    for is_chain, reductions in ordered:
        first = frozenset[TensorView]().union(*(behind.direct[r] for r in reductions if r in products))
        if is_chain and not all(_has_room(tv, products[tv], is_last=among(tv, reductions)) for tv in (*first, *reductions)):
            continue
        before = behind.ancestors(reductions)
        found = tuple(
            e.output for e in behind.exprs if e.output in before and (behind.has(e.output, first) or e.output not in behind.of_inputs or _is_padding(fusion, e))
        )
        computed = {tv for tv in found if behind.has(tv, first)}
        if taken.isdisjoint(computed) or not is_chain:
            yield found
        if not is_chain:
            taken |= computed


class _Behind:
    """What lies behind the tensors of a fusion, found once for all of them.

    Attributes:
        exprs: those with code, producers first.
        direct: the products that each tensor is computed of, not by way of others.
        of_inputs: the tensors that are computed of inputs.
    """

    def __init__(self, fusion: Fusion, products: Collection[TensorView]) -> None:
        self.exprs = tuple(e for e in needed(fusion) if not fusion.is_view(e.output))
        self.direct: dict[TensorView, frozenset[TensorView]] = {}
        self.of_inputs: set[TensorView] = set()
        self._every: dict[TensorView, frozenset[TensorView]] = {}
        self._read: dict[TensorView, list[TensorView]] = {}
        nothing = frozenset[TensorView]()
        for e in fusion.exprs():
            read = self._read[e.output] = [o.tensor for o in e.operands if isinstance(o, Read)]
            own = [frozenset((tv,)) if tv in products else self.direct.get(tv, nothing) for tv in read]
            self.direct[e.output] = nothing.union(*own)
            self._every[e.output] = nothing.union(*own, *(self._every.get(tv, nothing) for tv in read))
            if any(tv.is_input or tv in self.of_inputs for tv in read):
                self.of_inputs.add(e.output)

    def has(self, tv: TensorView, products: Collection[TensorView]) -> bool:
        """Whether a tensor is one of some products, or computed of one."""
        return among(tv, products) or not self._every[tv].isdisjoint(products)

    def follows(self, tv: TensorView, product: TensorView) -> bool:
        """Whether a tensor is computed of one of the products."""
        return product in self._every[tv]

    def ancestors(self, tensors: Sequence[TensorView]) -> set[TensorView]:
        """Some tensors, and all that they are computed of."""
        found = set[TensorView]()
        stack = list(tensors)
        while stack:
            tv = stack.pop()
            if tv not in found:
                found.add(tv)
                stack += self._read.get(tv, ())
        return found


def _has_room(tv: TensorView, two: Factors, *, is_last: bool) -> bool:
    """Whether rows of the factors that a block holds, and columns of its sums, are few enough."""
    axes = two.summed if not is_last else tuple(p for p in (*two.rows, *two.columns) if isinstance(tv.root[p].extent, Const))
    extents = [e.value for p in axes if isinstance(e := tv.root[p].extent, Const)]
    return bool(extents) and min(extents) <= WIDEST


def walks_apart(fusion: Fusion, target: Target) -> Script | None:
    """A copy in which each walk recomputes the tensors that it shares with others, which then need not be stored; ``None`` if there are none.

    Sums along one axis form one walk if the registers hold them all, else one walk each.
    """
    script = Script(copy_fusion(fusion)[0])
    _separate(script, list(walks(script.fusion)))
    for walk in list(walks(script.fusion)):
        _separate(script, list(_fitting(script.fusion, walk, target)))
    return script if script.lines else None


def _computed_of(fusion: Fusion, sources: Collection[TensorView]) -> set[TensorView]:
    """Some tensors, and all that is computed of them."""
    found = set(sources)
    for e in fusion.exprs():
        if any(isinstance(o, Read) and o.tensor in found for o in e.operands):
            found.add(e.output)
    return found


def _separate(script: Script, parts: Sequence[tuple[TensorView, ...]]) -> None:
    """Let each of several sets of tensors have no tensor that is computed in an earlier one."""
    taken = set[TensorView]()
    for tensors in parts:
        again = [tv for tv in tensors if tv in taken]
        of_inputs = _computed_of(script.fusion, script.fusion.inputs) if again else set[TensorView]()
        shared = [tv for tv in again if tv in of_inputs]
        behind = _computed_of(script.fusion, shared) if shared else set[TensorView]()
        between = [e.output for e in script.fusion.exprs() if e.output in behind and (among(e.output, shared) or script.fusion.is_view(e.output))]
        mine = {tv for tv in tensors if tv not in taken}
        for tv in reversed(between) if shared else ():  # readers first
            readers = [use.output for use in tv.uses if use.output in mine]
            if readers:
                mine.add(tv if len(readers) == len(tv.uses) else script.duplicate(tv, readers))
        taken |= mine


def _fitting(fusion: Fusion, tensors: tuple[TensorView, ...], target: Target) -> Iterator[tuple[TensorView, ...]]:
    """The tensors of a walk; of products of functions of products, where no kernel takes them all, those of each of the last ones."""
    behind = _Behind(fusion, {tv for tv in tensors if isinstance(tv.definition, Reduction)})
    last = [tv for tv in tensors if isinstance(tv.definition, Reduction) and not any(behind.follows(t, tv) for t in tensors if t is not tv)]
    try:
        is_one = len(last) == 1 or has_room(find(Parts(fusion).extract(tensors, fusion.name, RowViews(fusion).of(tensors))), target)
    except UnsupportedError:
        is_one = True
    if is_one:
        yield tensors
    else:
        for one in last:
            before = behind.ancestors([one])
            yield tuple(tv for tv in tensors if tv in before)


def _is_padding(fusion: Fusion, expr: MathExpr) -> bool:
    """True for an input that is padded."""
    return isinstance(expr, FirstValid) and all(r.tensor.is_input for r in storage_reads(fusion, expr))
