"""Results that are computed in groups: with the axes of the reductions that they read, of which they are then views.

A model quantizes ``x`` of ``[4096, 7168]`` in groups of 32: the greatest of a group, the scaled elements, and at last the elements in the shape of ``x`` again,
in another dtype or beside another tensor. An elementwise function commutes with a view, so what stands after the last view is computed before it, with the
axes of the groups, and the result is the view: all of it runs over the axes of one reduction, which one kernel computes. Without that, the result's loops
would have other axes than the reduction, and a second kernel would read everything again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from taskfuse.ir.axes import axis, iteration_point, iteration_position, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Operand, Pointwise, Read, Reduction, View, Written, at_point, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Const, Expr, simplify, substitute
from taskfuse.ir.storage import needed, storage_operands, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.copy import copy_fusion


def in_groups(fusion: Fusion) -> Fusion | None:
    """A copy in which elementwise results that read functions of a reduction through a view that changes how axes are grouped are views of tensors with
    the axes of the reduction; ``None`` if there are no such results. Where another result of the same shape is not, both stay as they are, for one kernel.

    It computes what ``fusion`` does, bit for bit.
    """
    read = {r.tensor: _grouped(fusion, r.tensor) for r in fusion.results if r.is_plain and isinstance(fusion.definition(r.tensor), Pointwise)}
    staying = {tv.shape for tv, found in read.items() if found is None}
    names = [tv.name for tv, found in read.items() if found is not None and tv.shape not in staying]
    if not names:
        return None
    whole, _ = copy_fusion(fusion)
    changed = False
    for tv in map(whole.tensor, names):
        grouped = _grouped(whole, tv)  # of those before, it may have read views
        changed |= grouped is not None and _regroup(whole, tv, grouped)
    return whole if changed else None


_ReadKey = tuple[TensorView, tuple[Expr, ...], Expr]
"""A tensor, where it is read, and where that is defined."""


def _read_key(read: Read) -> _ReadKey:
    return read.tensor, read.index, read.valid


@dataclass(frozen=True, slots=True, eq=False)
class _AtOwnPoints:
    """Elementwise functions that are computed at the same points, those that others read first, and what they read of other tensors."""

    tensors: tuple[TensorView, ...]
    reads: tuple[Read, ...]


def _at_own_points(fusion: Fusion, tv: TensorView) -> _AtOwnPoints:
    """An elementwise tensor, and the elementwise tensors that it is computed of at its own points."""
    own = iteration_point(tv.ndim)
    found, seen, stack = dict[_ReadKey, Read](), {tv}, [tv]
    while stack:
        definition = fusion.definition(stack.pop())
        assert definition is not None
        for read in storage_reads(fusion, definition):
            if read.index != own or read.valid is not TRUE or not isinstance(fusion.definition(read.tensor), Pointwise):
                found[_read_key(read)] = read
            elif read.tensor not in seen:
                seen.add(read.tensor)
                stack.append(read.tensor)
    return _AtOwnPoints(tuple(e.output for e in fusion.exprs() if e.output in seen), tuple(found.values()))


def _grouped(fusion: Fusion, tv: TensorView) -> Read | None:
    """What an elementwise tensor reads of another one over whose axes reductions walk, as many elements as it has itself and in the same order;
    ``None`` if it reads no such tensor, or some of different shapes, or if reductions walk over its own axes, too."""
    if not isinstance(fusion.definition(tv), Pointwise) or fusion.is_view(tv):
        return None
    walked = {_long([a.extent for a in e.output.root]) for e in needed(fusion) if isinstance(e, Reduction)}
    if _long(tv.shape) in walked:
        return None
    found: dict[tuple[Expr, ...], Read] = {}
    for read in _at_own_points(fusion, tv).reads:
        source = fusion.definition(read.tensor)
        if isinstance(source, Pointwise) and _long(read.tensor.shape) in walked and _is_same_place(fusion, read, tv):
            found.setdefault(read.tensor.shape, read)
    return next(iter(found.values())) if len(found) == 1 else None


def _long(extents: Sequence[Expr]) -> tuple[Expr, ...]:
    """The extents other than 1."""
    return tuple(e for e in extents if e is not ONE)


def _is_same_place(fusion: Fusion, read: Read, tv: TensorView) -> bool:
    """Whether a tensor is read at the place that its reader has itself, in the order of memory, for all elements."""
    if read.valid is not TRUE:
        return False
    facts = fusion.facts().with_ranges({str(iteration_symbol(k)): (0, e - 1) for k, e in enumerate(tv.shape)})
    return simplify(_place(read.index, read.tensor.shape) - _place(iteration_point(tv.ndim), tv.shape), facts) is ZERO


def _place(index: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr:
    """The place of an element in the order of memory."""
    found: Expr = ZERO
    for e, extent in zip(index, shape, strict=True):
        found = found * extent + e
    return found


def _regroup(fusion: Fusion, tv: TensorView, grouped: Read) -> bool:
    """Have a result computed with the axes of what it reads, and be a view of that, where all else that it reads has the same elements, or some of the axes."""
    shape, chain = grouped.tensor.shape, _at_own_points(fusion, tv)
    here = iteration_point(len(shape))
    facts = fusion.facts().with_ranges({str(iteration_symbol(k)): (0, e - 1) for k, e in enumerate(shape)})
    at = {str(iteration_symbol(k)): simplify(e, facts) for k, e in enumerate(index_at(_place(here, shape), tv.shape))}
    moved: dict[_ReadKey, Read] = {}
    for read in chain.reads:
        is_same = _is_same_place(fusion, read, tv)
        index = here if is_same and read.tensor.shape == shape else tuple(simplify(substitute(e, at), facts) for e in read.index)
        if read.valid is not TRUE or not (is_same or all(isinstance(e, Const) or iteration_position(e) is not None for e in index)):
            return False
        moved[_read_key(read)] = Read(read.tensor, index)
    made: dict[TensorView, TensorView] = {}
    for old in chain.tensors:
        definition = fusion.definition(old)
        assert definition is not None
        new = fusion.new_tensor([axis(e) for e in shape], old.dtype, location=old.location, origin=old)
        join_task(new, old)
        operands: list[Operand] = []
        for operand in storage_operands(fusion, definition):
            match operand:
                case Read(tensor=tensor):
                    operands.append(moved.get(_read_key(operand)) or Read(made[tensor], here))
                case _:
                    operands.append(at_point(operand, at))
        fusion.define(replace(definition, output=new, operands=tuple(operands)))
        made[old] = new
    given, new = fusion.definition(tv), made[tv]
    assert given is not None
    own = Read(tv, tuple(at[str(iteration_symbol(k))] for k in range(tv.ndim)))
    fusion.set_written(new, Written(Pointwise(new, ELEMENTWISE["copy"], (own,)), new.root, new.logical, new.dtype), caller())  # what the proof compares it with
    fusion.define(View(tv, "reshape", Read(made[tv], grouped.index), tv.location))
    fusion.remove_unread([r.tensor for r in reads(given)])
    return True


def index_at(place: Expr, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The index of the element at a place in the order of memory."""
    found: list[Expr] = []
    for extent in reversed(shape):
        found.append(place % extent)
        place = place // extent
    return tuple(reversed(found))
