"""Adjacent axes that everything reads together, as one axis: batch and sequence of what a linear layer multiplies.

``x`` of ``[B, S, K]`` times weights of ``[K, N]`` is one product of ``B * S`` rows. As ``B`` products of ``S`` rows each, tiles of rows end with each
sequence: 260 rows take three tiles of 128. A product that sees both axes as one has full tiles, whatever the extents are. So it has together with the bias,
the residual and the elementwise functions after it, if all of these run over the one axis, too. They do wherever no element is read by the position in one of
the axes alone: then ``m`` takes the place of ``i * S + j`` in all indices, and none has the digits ``m // S`` and ``m % S``. Inputs are read through views, and
results are views of what is stored, which cost nothing (:mod:`taskfuse.runtime.result_views`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul
from typing import Final

from taskfuse.ir.axes import axis, iteration_point, iteration_symbol
from taskfuse.ir.contraction import factors
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue, MathExpr, Operand, Pointwise, Read, Reduction, View, Written, at_point, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Expr, Facts, is_multiple, simplify, substitute
from taskfuse.ir.storage import needed, storage_operands, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.copy import copy_fusion

ROWS: Final = 128
"""Rows of a tile of usual size: where sequences are a multiple of it, no tile ends within one."""

Run = tuple[Expr, ...]
"""The extents of adjacent axes."""


def coalesced(fusion: Fusion) -> Fusion | None:
    """A copy in which adjacent axes of the rows, or of the columns, of a product are one axis; ``None`` if there are none that everything reads together.

    It computes what ``fusion`` does, bit for bit.
    """
    whole: Fusion | None = None
    for run in _runs(fusion):
        here = whole or fusion
        found = _coalescence(here, run)
        if found is None:
            continue
        if whole is None:
            whole, _ = copy_fusion(fusion)
            found = _coalescence(whole, run)
            assert found is not None
        found.apply()
    return whole


def _runs(fusion: Fusion) -> list[Run]:
    """Extents of adjacent axes that are rows, or columns, of a product, the longest runs first; of those in whose last axis a tile may end."""
    found: dict[Run, None] = {}
    facts = fusion.facts()
    for expr in needed(fusion):
        two = factors(fusion, expr)
        if two is None or not two.make_a_matrix:
            continue
        root = expr.output.root
        for own in (two.rows, two.columns):
            found |= dict.fromkeys(tuple(root[p].extent for p in group) for group in _adjacent(own) if len(group) > 1)
            wholes = {simplify(root[p].extent, facts) for p in own}
            found |= dict.fromkeys(run for run in _split(fusion, facts) if _whole(run, fusion) in wholes)
    return sorted((run for run in found if not is_multiple(_whole(run[1:], fusion), ROWS, facts)), key=len, reverse=True)


def _adjacent(positions: Sequence[int] | frozenset[int]) -> Iterator[list[int]]:
    """Positions in order, those one after another together."""
    group: list[int] = []
    for p in sorted(positions):
        if group and p > group[-1] + 1:
            yield group
            group = []
        group.append(p)
    if group:
        yield group


def _split(fusion: Fusion, facts: Facts) -> Iterator[Run]:
    """The extents of adjacent axes of elementwise tensors that read one axis of another tensor by all of them."""
    for expr in needed(fusion):
        if not isinstance(expr, Pointwise):
            continue
        root = expr.output.root
        for read in storage_reads(fusion, expr):
            for e in read.index:
                positions = [k for k in range(len(root)) if str(iteration_symbol(k)) in e.free]
                run = tuple(root[k].extent for k in positions)
                if len(positions) > 1 and positions[-1] - positions[0] == len(positions) - 1 and _linear(e, positions[0], run, facts) is not None:
                    yield run


def _linear(e: Expr, first: int, run: Run, facts: Facts) -> Expr | None:
    """An index over adjacent axes as one over a single axis in their place, if it is linear in the place of an element of them.

    Args:
        first: position of the first of the axes.
    """
    own = [iteration_symbol(first + j) for j in range(len(run))]
    nowhere: dict[str, Expr] = {str(s): ZERO for s in own}
    rest = simplify(substitute(e, nowhere), facts)
    step = simplify(substitute(e, nowhere | {str(own[-1]): ONE}) - rest, facts)
    return rest + step * own[0] if simplify(e - rest - step * _place(own, run), facts) is ZERO else None


@dataclass(frozen=True, slots=True, eq=False)
class _Moved:
    """What an operand reads, over an iteration space with one axis.

    Attributes:
        joined: the first and the last of the axes of the tensor that become one in ``index``; ``None``: all stay.
    """

    tensor: TensorView
    joined: tuple[int, int] | None
    index: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Coalescence:
    """Tensors whose axes of some extents become one.

    Attributes:
        at: position of the first of these axes; producers come first.
    """

    fusion: Fusion
    run: Run
    at: dict[TensorView, int]

    def moved(self, expr: MathExpr, operand: Operand) -> _Moved | Operand | None:
        """An operand over the iteration space with one axis; ``None``: it depends on the position in some of the axes alone."""
        first, count = self.at[expr.output], len(self.run)
        own = {str(iteration_symbol(first + j)) for j in range(count)}
        later: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(p - count + 1) for p in range(first + count, len(expr.output.root))}
        if not isinstance(operand, Read):
            return None if isinstance(operand, IndexValue) and operand.index.free & own else at_point(operand, later)
        if operand.valid is not TRUE:
            return None
        tv, index = operand.tensor, operand.index
        dims = [k for k, e in enumerate(index) if e.free & own]
        if tv in self.at:
            low, high = self.at[tv], self.at[tv] + count - 1
        elif not dims:
            return at_point(operand, later)
        else:
            low, high = dims[0], dims[-1]
        facts = self.fusion.facts().with_ranges({str(iteration_symbol(k)): (0, a.extent - 1) for k, a in enumerate(expr.output.root)})
        place = _linear(_place(index[low : high + 1], tv.shape[low : high + 1]), first, self.run, facts)
        if place is None or not set(dims) <= set(range(low, high + 1)):
            return None
        is_stored = tv in self.at or low == high or (tv.is_input and tv not in self.fusion.strides and tv not in self.fusion.tables)
        moved = tuple(substitute(e, later) for e in (*index[:low], place, *index[high + 1 :]))
        return _Moved(tv, None if low == high else (low, high), moved) if is_stored else None

    def apply(self) -> None:
        """Let the tensors be views of tensors with one axis."""
        made: dict[tuple[TensorView, tuple[int, int]], TensorView] = {}
        for tv, first in self.at.items():
            expr = self.fusion.definition(tv)
            assert expr is not None
            made[tv, (first, first + len(self.run) - 1)] = self._join(expr, first, made)
        for (tv, (first, last)), new in made.items():
            if tv in self.at:
                self._view(tv, first, last, new)

    def _join(self, expr: MathExpr, first: int, made: dict[tuple[TensorView, tuple[int, int]], TensorView]) -> TensorView:
        """The tensor with one axis."""
        fusion, tv = self.fusion, expr.output
        root = [axis(a.extent, a.kind) for a in tv.root]
        root[first : first + len(self.run)] = [axis(_whole(self.run, fusion))]
        new = fusion.new_tensor(root, tv.dtype, location=tv.location, origin=tv)
        join_task(new, tv)
        operands: list[Operand] = []
        for operand in storage_operands(fusion, expr):
            found = self.moved(expr, operand)
            assert found is not None
            if isinstance(found, _Moved):
                source = found.tensor
                if found.joined is not None:
                    key = source, found.joined
                    source = made[key] if key in made else made.setdefault(key, self._joined_input(*key))
                found = Read(source, found.index)
            operands.append(found)
        assert isinstance(expr, Pointwise | Reduction)
        return fusion.define(replace(expr, output=new, operands=tuple(operands)))

    def _joined_input(self, tv: TensorView, axes: tuple[int, int]) -> TensorView:
        """A view of an input in which some axes are one."""
        low, high = axes
        run = tv.shape[low : high + 1]
        extents = [*tv.shape[:low], _whole(run, self.fusion), *tv.shape[high + 1 :]]
        view = self.fusion.new_tensor([axis(e) for e in extents], tv.dtype, location=caller(), origin=None)
        at = list(iteration_point(len(extents)))
        at[low : low + 1] = digits(at[low], run)
        return self.fusion.define(View(view, "reshape", Read(tv, tuple(at)), view.location))

    def _view(self, tv: TensorView, first: int, last: int, new: TensorView) -> None:
        """Let a tensor be a view of the one with one axis; the proof compares that one with what the tensor was."""
        fusion = self.fusion
        given = fusion.definition(tv)
        assert given is not None
        at = list(iteration_point(new.ndim))
        at[first : first + 1] = digits(at[first], self.run)
        logical = [axis(a.extent) for a in new.logical]
        fusion.set_written(new, Written(Pointwise(new, ELEMENTWISE["copy"], (Read(tv, tuple(at)),)), tuple(logical), tuple(logical), new.dtype), caller())
        tv.root = tv.logical
        tv.schedule = TensorSchedule(list(tv.root))
        here = list(iteration_point(tv.ndim))
        here[first : last + 1] = [_place(here[first : last + 1], self.run)]
        fusion.define(View(tv, "reshape", Read(new, tuple(here)), tv.location))
        fusion.remove_unread([tv, *(r.tensor for r in reads(given))])


def _coalescence(fusion: Fusion, run: Run) -> _Coalescence | None:
    """All tensors whose axes of some extents can become one; ``None`` if that helps no product."""
    exprs = needed(fusion)
    stored = {r.tensor for r in fusion.results if not r.is_plain}
    at: dict[TensorView, int] = {}
    for expr in exprs:
        places = _places_of(expr.output, run)
        if isinstance(expr, Pointwise | Reduction) and len(places) == 1 and expr.output not in stored and _is_plain(expr):
            at[expr.output] = places[0]
    found = _Coalescence(fusion, run, at)
    count = -1
    while count != len(at):
        count = len(at)
        for expr in exprs:
            if isinstance(expr, View):
                continue  # a result, which lies on what it is a view of
            if expr.output not in at:
                for read in storage_reads(fusion, expr):
                    at.pop(read.tensor, None)
            elif any(found.moved(expr, operand) is None for operand in storage_operands(fusion, expr)):
                del at[expr.output]
    return found if any(_helps(fusion, expr, at) for expr in exprs if expr.output in at) else None


def _helps(fusion: Fusion, expr: MathExpr, at: dict[TensorView, int]) -> bool:
    """Whether an expression is a product, or reads what is computed of one, so that it would be computed with the axes of that."""
    if isinstance(expr, Reduction):
        two = factors(fusion, expr)
        return two is not None and two.make_a_matrix
    return any(not read.tensor.is_input and read.tensor not in at and read.tensor.ndim < expr.output.ndim for read in storage_reads(fusion, expr))


def _is_plain(expr: Pointwise | Reduction) -> bool:
    return isinstance(expr, Pointwise) or (expr.is_whole and expr.rescaled is None)


def _places_of(tv: TensorView, run: Run) -> list[int]:
    """Where a tensor has axes of some extents, none of them reduced, one after another."""
    extents = [None if a.is_reduction else a.extent for a in tv.root]
    return [k for k in range(len(extents) - len(run) + 1) if tuple(extents[k : k + len(run)]) == run]


def _whole(run: Run, fusion: Fusion) -> Expr:
    return simplify(reduce(mul, run, ONE), fusion.facts())


def _place(index: Sequence[Expr], extents: Sequence[Expr]) -> Expr:
    """The place of an element in the order of memory."""
    return reduce(lambda found, pair: found * pair[1] + pair[0], zip(index, extents, strict=True), ZERO)


def digits(place: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """The index of the element at a place."""
    found: list[Expr] = []
    for extent in reversed(extents[1:]):
        found.append(place % extent)
        place = place // extent
    return [place, *reversed(found)]
