"""Normalizing elementwise parts of a fusion: every tensor gets the iteration space of the output that it serves.

Operands that an output reads at another index (through views, slices, pads, broadcasts, concatenations) are computed at its own points
(:meth:`~taskfuse.ir.tensor.TensorView.recompute`), and inputs are copied to registers there. All loops of an output are then alike, and a
schedule of the output schedules all that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import Any, NamedTuple

import numpy as np

from taskfuse.errors import UnsupportedError
from taskfuse.ir.axes import iteration_position, iteration_symbol
from taskfuse.ir.expr import Assemble, FirstValid, Gather, Literal, MathExpr, Pointwise, Read, Reduction, Update, View, is_copy
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import TRUE, ZERO, Expr, Facts, evaluate, is_multiple, simplify, substitute, sym
from taskfuse.ir.storage import has_code, made_from, needed, producers, storage_operands, storage_reads, storage_uses, table
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.recompute import is_gathered_elementwise, is_place_everywhere, reduces_one
from taskfuse.schedulers.gathers import is_scattered, waited
from taskfuse.schedulers.instructions import slots
from taskfuse.schedulers.schedule import Sizes, refuse
from taskfuse.schedulers.script import Script
from taskfuse.target import SECTOR_BYTES, Target

MOST_NEW = 128
"""The most tensors that recomputation may add: their number multiplies if concatenations or reductions of one another are read at several points."""
SURELY = 8
"""How many times as many tensors are refused before the first is made: the estimate of their number is no bound."""
NEIGHBORS = 64
"""The points that are taken for those at which a warp loads."""
VECTOR, INSIDE = sym("vector.outer"), sym("vector.inner")
"""A point along an axis: of which vector it is, and its place in that."""


def stored(fusion: Fusion) -> tuple[TensorView, ...]:
    """The tensors that the code stores: the outputs, and the parts of assembled ones."""
    return tuple(dict.fromkeys(tv for out in fusion.outputs for tv in made_from(fusion, out)))


def is_aligned(read: Read, reader: TensorView) -> bool:
    """True if an iteration reads the element at its own point: all of the reader's axes, in order."""
    shape = read.tensor.shape
    return (
        len(shape) == len(reader.root)
        and all(iteration_position(e) == k for k, e in enumerate(read.index))
        and all(e is a.extent for e, a in zip(shape, reader.root, strict=True))
    )


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A tensor in registers whose code is the only reader of a Global tensor.

    Attributes:
        tensor: it has the iteration space of its reader.
        reads: its reads.
        is_copy: it copies one element, so that consecutive elements may form a vector.
        values: its further reads: the indices of a gather.
    """

    tensor: TensorView
    reads: tuple[Read, ...]
    is_copy: bool
    values: tuple[Read, ...] = ()


def align(
    script: Script, fusion: Fusion, owner: Mapping[TensorView, TensorView] | None = None, is_in_place: Callable[[Read, TensorView], bool] | None = None
) -> tuple[Leaf, ...]:
    """Bring the ancestors of the outputs, up to reductions and inputs, into the form of the module. Returns the tensors that read Global tensors.

    Args:
        owner: the output that each tensor serves, if each output is to load for itself.
        is_in_place: as for :func:`recompute_all`.
    """
    recompute_all(script, fusion, is_in_place)
    reads: dict[TensorView, list[tuple[TensorView, Read]]] = {}
    leaves: dict[TensorView, None] = {}
    for expr in needed(fusion):
        if isinstance(expr, Gather):  # its indices are read where it is: at a point of their own they would have the axis of its vectors
            leaves[script.new(expr.output, "cache_before") if among(expr.output, stored(fusion)) else expr.output] = None
            continue
        operands = storage_operands(fusion, expr)
        for read in operands[1:2] if isinstance(expr, Update) else operands:  # of an update, what is sent: its indices are read where it is, too
            if isinstance(read, Read) and read.tensor.is_input:
                reads.setdefault(read.tensor, []).append((expr.output, read))
    roots = stored(fusion)
    for source, found in reads.items():
        alone = all(not isinstance(use, Gather | Update) for use in storage_uses(fusion, source))
        if owner is None and alone and all(is_aligned(read, reader) and read.valid is TRUE for reader, read in found):
            leaves[script.new(source, "cache_after")] = None
            continue
        spaces: dict[tuple[object, ...], dict[TensorView, None]] = {}
        for reader, _ in found:
            if not among(reader, roots) and _only_loads(fusion, reader):
                leaves[reader] = None
            else:
                spaces.setdefault((owner and owner[reader], *(a.extent for a in reader.root)), {})[reader] = None
        for readers in spaces.values():
            leaves.update(dict.fromkeys(script.recompute(source, list(readers))))
    return tuple(leaf_of(fusion, tv) for tv in leaves)


def recompute_all(script: Script, fusion: Fusion, is_in_place: Callable[[Read, TensorView], bool] | None = None, *, is_shared: bool = False) -> None:
    """Have everything elementwise read at the reader's own point; tables, and the results of reductions and scans, may be read anywhere.

    Args:
        is_in_place: whether a read is at the reader's own point; by default :func:`is_aligned`.
        is_shared: readers over the same axes have in common what they read of one tensor, so that it can be kept for the later ones of them.

    Raises:
        UnsupportedError: that makes more than :data:`MOST_NEW` tensors. The fusion has changed by then: callers try it on a copy.
    """
    before = len(fusion.tensors())
    if _points(fusion) > before + SURELY * MOST_NEW:  # a call for one of them would already take long
        raise refuse(fusion, "single", "it reads operands at too many points", "tf.compile makes several kernels")
    for expr in needed(fusion):
        if reduces_one(fusion, expr):  # at its own points, where it loses these axes
            tv = expr.output
            whole, own = (script.new(tv, "cache_before"), tv) if tv.is_output else (tv, script.new(tv, "cache_after"))
            script.recompute(whole, [own])
    stack, done = list(fusion.outputs), set[TensorView]()
    while stack:
        reader = stack.pop()
        expr = fusion.definition(reader)
        if reader in done or expr is None:
            continue
        done.add(reader)
        reads = storage_reads(fusion, expr)
        for tv in dict.fromkeys(r.tensor for r in reads):
            own = [r for r in reads if r.tensor is tv]
            if tv is table(fusion, expr) and is_gathered_elementwise(fusion, expr) and not tv.is_input:
                script.recompute(tv, [reader])
                check_new(fusion, before, reader)
                done.discard(reader)
                stack.append(reader)
                break
            stays = isinstance(expr, Assemble) or tv is table(fusion, expr) or not _commutes(fusion, own, reader)
            if stays or all((is_in_place or is_aligned)(r, reader) for r in own):
                stack.append(tv)
            else:
                stack += script.recompute(tv, _beside(fusion, tv, reader, is_in_place or is_aligned) if is_shared else [reader])
                check_new(fusion, before, reader)


def _beside(fusion: Fusion, tv: TensorView, reader: TensorView, is_in_place: Callable[[Read, TensorView], bool]) -> list[TensorView]:
    """A reader, and those others that run over the same axes and do not read the tensor at their own points, either."""
    found = [reader]
    for use in storage_uses(fusion, tv):
        own = [r for r in storage_reads(fusion, use) if r.tensor is tv]
        alike = isinstance(use, Pointwise) and [a.extent for a in use.output.root] == [a.extent for a in reader.root]
        if alike and use.output is not reader and not all(is_in_place(r, use.output) for r in own):
            found.append(use.output)
    return found


class _AtReaders(NamedTuple):
    """What :func:`at_readers` found for a fusion with these expressions and outputs: a change of the fusion makes new ones."""

    exprs: tuple[MathExpr, ...]
    outputs: tuple[TensorView, ...]
    found: Fusion | UnsupportedError


def at_readers(fusion: Fusion) -> Fusion:
    """A copy of an unscheduled fusion after :func:`recompute_all`, for reading: all schedulers that ask share it while the fusion stays as it is.

    Raises:
        UnsupportedError: see :func:`recompute_all`.
    """
    known = fusion.derived.get(at_readers.__name__)
    if not isinstance(known, _AtReaders) or known.exprs is not fusion.exprs() or any(a is not b for a, b in zip_longest(known.outputs, fusion.outputs)):
        copy, _ = copy_fusion(fusion)
        found: Fusion | UnsupportedError = copy
        try:
            recompute_all(Script(copy), copy)
        except UnsupportedError as error:
            found = error
        known = fusion.derived[at_readers.__name__] = _AtReaders(fusion.exprs(), tuple(fusion.outputs), found)
    if isinstance(known.found, UnsupportedError):
        raise known.found
    return known.found


def _points(fusion: Fusion) -> int:
    """How many tensors there are once all that is elementwise is computed at its readers' points: those that readers at the same points read at these, once."""
    here: dict[TensorView, int] = {}
    apart: dict[TensorView, int] = {}
    total = 0
    for expr in reversed(needed(fusion)):
        tv = expr.output
        own = max(1, here.get(tv, 0) + apart.get(tv, 0)) if isinstance(expr, Pointwise | FirstValid | Gather) else 1
        total += own
        for read in dict.fromkeys(storage_reads(fusion, expr)):
            if is_aligned(read, tv):
                here[read.tensor] = max(here.get(read.tensor, 0), own)
            else:
                apart[read.tensor] = apart.get(read.tensor, 0) + own
    return total


def is_permuted(read: Read, reader: TensorView) -> bool:
    """True if a read is at axes of the reader, each of them once, in any order."""
    places = [iteration_position(e) for e in read.index]
    found = [p for p in places if p is not None]
    whole = all(reader.root[p].extent is e for p, e in zip(found, read.tensor.shape, strict=True)) if len(found) == len(places) else False
    return whole and len(set(found)) == len(found)


def reduce_where_read(script: Script, extent: Sizes) -> bool:
    """Have reductions that are read at other points than their own, as where two of their axes become one, reduce at the points of their readers, if these are
    no more. Returns whether there are any."""
    fusion, found = script.fusion, False
    for expr in [e for e in needed(fusion) if isinstance(e, Reduction)]:
        tv = expr.output
        reads = [(use.output, r) for use in storage_uses(fusion, tv) for r in storage_reads(fusion, use) if r.tensor is tv]
        readers = list(dict.fromkeys(reader for reader, _ in reads))
        if tv.is_output or expr.rescaled is not None or not expr.is_whole or all(is_permuted(read, reader) for reader, read in reads):
            continue
        are_whole = all(read.valid is TRUE for _, read in reads) and all(isinstance(fusion.definition(reader), Pointwise | View) for reader in readers)
        if are_whole and sum(map(extent.elements, readers)) <= extent.elements(tv) and len({tuple(a.extent for a in r.root) for r in readers}) == 1:
            script.recompute(tv, readers)
            found = True
    return found


def _commutes(fusion: Fusion, reads: Sequence[Read], reader: TensorView) -> bool:
    """True if what is read of one tensor can be computed at the reader's points; a gather, only where all of them have an element, or the table has."""
    match fusion.definition(reads[0].tensor):
        case Pointwise() | FirstValid():
            return True
        case Gather() as gather:
            return all(read.valid is TRUE or is_place_everywhere(fusion, gather, read.index, reader) for read in reads)
        case _:
            return False


def check_new(fusion: Fusion, before: int, reader: TensorView) -> None:
    """Check that there are no more than :data:`MOST_NEW` tensors beyond those ``before``. Raises :class:`UnsupportedError`."""
    if len(fusion.tensors()) > before + MOST_NEW:
        raise refuse(fusion, "single", f"{reader.name} reads its operands at too many points", "tf.compile makes several kernels")


def _only_loads(fusion: Fusion, tv: TensorView) -> bool:
    """True if the code of ``tv`` is nothing but reads of Global tensors: a copy, or a choice among elements of inputs and constants."""
    expr = fusion.definition(tv)
    if expr is None or not (isinstance(expr, FirstValid) or is_copy(expr)):
        return False
    return all(p.is_input for p in producers(fusion, tv)) and all(isinstance(o, Read | Literal) for o in expr.operands)


def leaf_of(fusion: Fusion, tv: TensorView) -> Leaf:
    """The reads of the code of ``tv``."""
    expr = fusion.definition(tv)
    assert expr is not None
    reads = storage_reads(fusion, expr)
    if isinstance(expr, Gather):
        return Leaf(tv, reads[:1], True, reads[1:])
    return Leaf(tv, reads, not isinstance(expr, FirstValid))


def divides(width: int, extent: Expr, facts: Facts) -> bool:
    """True if vectors of ``width`` fill an axis; none fills an empty one, whose indices have no places."""
    return extent is not ZERO and is_multiple(extent, width, facts)


def vector_fits(fusion: Fusion, leaf: Leaf, width: int, axis: int = -1) -> bool:
    """True if ``width`` consecutive points along an axis read consecutive elements that start at multiples of ``width``."""
    if not leaf.is_copy:
        return False
    (read,) = leaf.reads
    if not leaf.tensor.root or not read.index:
        return False
    axis %= len(leaf.tensor.root)
    if any(iteration_symbol(axis).free & e.free for value in leaf.values for e in value.index):
        return False
    facts = fusion.facts()
    *heads, last = _along(fusion, read, leaf.tensor, axis, width)
    offset = simplify(last - INSIDE, facts)
    fits = not any(INSIDE.free & e.free for e in (*heads, offset)) and is_multiple(offset, width, facts)
    return fits and (len(read.index) == 1 or is_multiple(read.tensor.shape[-1], width, facts))


def _along(fusion: Fusion, read: Read, reader: TensorView, axis: int, width: int) -> list[Expr]:
    """The index of what a reader reads at the place :data:`INSIDE` of a vector of ``width`` along one of its axes, which it fills."""
    facts = fusion.facts().with_range(str(INSIDE), 0, width - 1).with_range(str(VECTOR), 0, None)
    for k, a in enumerate(reader.root):
        facts = facts.with_range(str(iteration_symbol(k)), 0, a.extent - 1)
    at = {str(iteration_symbol(axis)): VECTOR * width + INSIDE}
    return [simplify(substitute(e, at), facts) for e in read.index]


def widest(fusion: Fusion, leaves: Sequence[Leaf]) -> int:
    """Bytes of the widest element that is loaded or stored, of those that are others along the last axis: a vector takes one element of the statistics of its
    channel."""
    moving = [r.tensor.dtype.itemsize for leaf in leaves for r in leaf.reads if leaf.tensor.root and _moves(r, iteration_symbol(len(leaf.tensor.root) - 1))]
    return max(moving + [tv.dtype.itemsize for tv in fusion.outputs])


def _moves(read: Read, symbol: Expr) -> bool:
    """True if the element that is read depends on an index: not if only whether it is read does."""
    return any(symbol.free & e.free for e in read.index)


def ancestors(fusion: Fusion, tv: TensorView) -> list[TensorView]:
    """The ancestors of ``tv`` without inputs, nearest first."""
    found: dict[TensorView, None] = {}
    stack = [tv]
    while stack:
        new = [p for p in producers(fusion, stack.pop()) if not p.is_input and p not in found]
        found.update(dict.fromkeys(new))
        stack += new
    return list(found)


def follow(script: Script, reader: TensorView, tensors: Sequence[TensorView]) -> None:
    """Give ``tensors``, ancestors of ``reader``, its loops: each from what reads it directly, so that no other axis of equal extent is meant."""
    left, stack = dict.fromkeys(tensors), [reader]
    keys = Keys(script.fusion)
    while stack:
        tv = stack.pop()
        found = [p for p in producers(script.fusion, tv) if p in left]
        if found:
            script.propagate(tv, found, keys)
            script.parallelize_like(tv, found, keys)
        for producer in found:
            del left[producer]
        stack += found


def registers(script: Script, outputs: Sequence[TensorView], loads: Sequence[TensorView], vector: int) -> None:
    """Compute what is stored as vectors, or read again, in registers; a copy of loads needs none."""
    fusion = script.fusion
    script.comment("results in registers, stored as vectors" if vector > 1 else "results that others read in registers")
    for out in outputs:
        is_read = any(has_code(fusion, use) and not (isinstance(use, Update) and table(fusion, use) is out) for use in storage_uses(fusion, out))
        if not (is_read or (vector > 1 and not _is_copy_of(fusion, out, loads))):
            continue
        new = script.new(out, "cache_fork" if is_read else "cache_before")
        if fusion.is_view(new):
            script.on(new).set_memory_type(MemoryType.Local)


def bind_vectors(script: Script, leaves: Sequence[Leaf], outputs: Sequence[TensorView], vector: int) -> None:
    """Copy the innermost axis of the outputs, and of the inputs where that can be done, as one."""
    if vector > 1:
        for tv in [*(leaf.tensor for leaf in leaves if vector_fits(script.fusion, leaf, vector)), *outputs]:
            script.on(tv).bind(-1, P.Vectorize)


def _is_copy_of(fusion: Fusion, tv: TensorView, loads: Sequence[TensorView]) -> bool:
    expr = fusion.definition(tv)
    return expr is not None and is_copy(expr) and all(among(p, loads) for p in producers(fusion, tv))


@dataclass(frozen=True, slots=True)
class OutputWork:
    """The work of the outputs.

    Attributes:
        loaded, stored: bytes between the chip and its memory.
        instructions: of all threads together.
        target: the GPU.
        waited: gathers that are waited for, one after another (:func:`taskfuse.schedulers.gathers.waited`).
    """

    loaded: float
    stored: float
    instructions: float
    target: Target
    waited: float = 0.0

    def us(self, vector_bytes: int) -> float:
        """Microseconds if a thread loads and stores ``vector_bytes`` at a time: the longest of memory, arithmetic and waits, and the launch."""
        target = self.target
        memory = target.dram_us(self.loaded + self.stored, target.assumed.load_share(vector_bytes))
        return target.kernel_us(memory, target.issue_us(self.instructions), self.waited * target.assumed.load_cycles / target.clock_mhz)


def work(fusion: Fusion, extent: Sizes, turned: bool = False, apart: bool = False) -> OutputWork:
    """Of a fusion.

    Args:
        turned: reads along any axis are coalesced.
        apart: what several tensors read at the same points is loaded for each, not once.
    """
    loaded = instructions = 0.0
    seen: set[tuple[object, ...]] = set()
    for expr in needed(fusion):
        tv = expr.output
        points = prod(extent(a.extent) for a in tv.root)
        for read in storage_reads(fusion, expr):
            key = read.tensor, read.index, tuple(a.extent for a in tv.root), tv if apart else None
            if read.tensor.is_input and key not in seen:
                seen.add(key)
                elements = min(prod(map(extent, read.tensor.shape)), points)
                size = read.tensor.dtype.itemsize
                if isinstance(expr, Gather) and read.tensor is table(fusion, expr):
                    loaded += gathered(read, points * (SECTOR_BYTES if is_scattered(fusion, expr) else size), extent)
                else:
                    loaded += elements * (size if turned or is_coalesced(fusion, read, tv) else fetched(read, tv, extent))
        instructions += points * slots(expr)
    stored = float(sum(extent.elements(tv) * tv.dtype.itemsize for tv in fusion.outputs))
    return OutputWork(loaded, stored, instructions, extent.target, waited(fusion, extent))


def gathered(read: Read, asked: float, extent: Sizes) -> float:
    """Bytes that come from memory where ``asked`` bytes of a table are read at an index that is data, for one place along the axes before it after another."""
    is_data = [iteration_position(e) is None and any(iteration_position(sym(name)) is None for name in e.free) for e in read.index]
    parts = prod(extent(e) for e in read.tensor.shape[: is_data.index(True) if True in is_data else 0])
    return extent.target.gathered(asked, extent.elements(read.tensor) * read.tensor.dtype.itemsize, parts)


def is_coalesced(fusion: Fusion, read: Read, reader: TensorView, axis: int = -1) -> bool:
    """True if neighbors along an axis of the reader read neighbors, or one element; at least as many as lie in a sector of memory."""
    if not reader.root or not read.index:
        return True
    last = axis % len(reader.root)
    if not any(iteration_symbol(last).free & e.free for e in read.index[:-1]):
        return True
    *heads, _ = _along(fusion, read, reader, last, SECTOR_BYTES // read.tensor.dtype.itemsize)
    return not any(INSIDE.free & e.free for e in heads)


def fetched(read: Read, reader: TensorView, extent: Sizes) -> float:
    """Bytes of whole sectors for each element of a tensor that is read, counted for the first points of its reader: its neighbors along the last axes."""
    size = read.tensor.dtype.itemsize
    left = np.arange(min(NEIGHBORS, prod(extent(a.extent) for a in reader.root)))
    values: dict[str, Any] = dict(extent.values)
    for axis in range(len(reader.root) - 1, -1, -1):
        values[str(iteration_symbol(axis))] = left % extent(reader.root[axis].extent)
        left = left // extent(reader.root[axis].extent)
    try:
        index = [np.broadcast_to(np.asarray(evaluate(e, values), np.int64), left.shape) for e in read.index]
    except KeyError:  # elements of a table
        return SECTOR_BYTES
    place = np.zeros_like(left)
    for position, own in zip(index, read.tensor.shape, strict=True):
        place = place * extent(own) + position
    return min(SECTOR_BYTES, SECTOR_BYTES * len(np.unique(place * size // SECTOR_BYTES)) / len(np.unique(place)))
