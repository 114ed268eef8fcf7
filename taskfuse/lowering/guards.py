"""Guards: conditions for code that must not run at every index of its loops and threads.

A split with a remainder has indices past the end of its axis; axes of consumers have indices at which a thread would only repeat the write of the first one. A
guard that follows from the ranges of loops and threads is omitted. Code that an atom fills, clips or covers (:class:`taskfuse.ir.atoms.Bounds`) has a guard
only for its first element, or none.
"""

from __future__ import annotations

from taskfuse.ir.atoms import Bounds
from taskfuse.ir.axes import Axis, Merge, Rasterize, Split
from taskfuse.ir.expr import Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr, Facts, FloorDiv, const, eq, lt, prove, simplify, substitute, sym
from taskfuse.ir.storage import storage_terms
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.lowering.completion import has_copies_of_threads
from taskfuse.lowering.domains import ancestors, backward, bound, refused
from taskfuse.lowering.fragments import atom_symbols
from taskfuse.lowering.overhang import along, end_of, is_zero_past_the_end

ZERO = const(0)


def with_merged(tv: TensorView, start: dict[Axis, Expr], values: dict[Axis, Expr], facts: Facts) -> tuple[dict[Axis, Expr], Facts]:
    """The indices, with a new symbol for each merged axis whose index, a quotient, stays within its extent.

    What is proved with these symbols holds of ``values``; the prover finds in two steps what it cannot find in one. Tile axes of a work axis
    get symbols, too: its maps are a bijection, so they stay within their extents if there are as many work items as tiles.
    """
    named: dict[Axis, Expr] = {}
    ranged = facts
    for t in tv.schedule.transforms:
        if isinstance(t, Rasterize) and t.result in values and not t.has_holes and prove(lt(values[t.result], t.result.extent), facts):
            for source in t.sources:
                named[source] = sym(f"merged.{len(named)}")
                ranged = ranged.with_range(f"merged.{len(named) - 1}", 0, source.extent - 1)
        if isinstance(t, Merge) and t.outer in values and isinstance(values[t.outer], FloorDiv) and prove(lt(values[t.outer], t.outer.extent), facts):
            named[t.outer] = sym(f"merged.{len(named)}")
            ranged = ranged.with_range(f"merged.{len(named) - 1}", 0, t.outer.extent - 1)
    return backward(tv, {**start, **named}) if named else values, ranged


def remainder(fusion: Fusion, tv: TensorView, source: Axis, value: Expr, facts: Facts, inside: tuple[dict[Axis, Expr], Facts]) -> list[Expr]:
    """The guard of a split with a remainder; of an atom that fills or clips, only that of its first element."""
    atom = tv.schedule.atom
    within = {name: ZERO for name in atom_symbols(tv).values() if name in value.free}
    if atom is not None and atom.bounds is Bounds.COVER and (within or _is_outside(tv, source)):
        _check_neutral(fusion, tv, source, value, facts)
        return []
    if atom is None or atom.bounds in (Bounds.PREDICATE, Bounds.ZERO):
        within = {}
    elif within and atom.bounds is Bounds.CLIP and source not in tv.logical:
        raise refused(
            tv,
            f"its atom {atom.name} clips at the end of the tensor, and its tile overhangs an axis of {source.extent} inside it",
            "split by divisors, or split the tensor's own axis",
        )
    if atom is not None and atom.bounds in (Bounds.FILL, Bounds.CLIP) and _is_outside(tv, source):
        return []
    same, ranged = inside
    if source in same and prove(lt(substitute(same[source], within), source.extent), ranged):
        return []
    return bound(substitute(value, within), source.extent, facts)


def _is_outside(tv: TensorView, source: Axis) -> bool:
    """True if an index past the end of ``source`` makes all of an atom's tile lie past the end of the tensor: then it reads 0, or writes nothing."""
    above = {t.outer: t.source for t in tv.schedule.transforms if isinstance(t, Split)}
    above |= {t.result: t.outer for t in tv.schedule.transforms if isinstance(t, Merge)}
    while source not in tv.logical and source in above:
        source = above[source]
    return source in tv.logical and any(source in ancestors(tv, (a,)) for a in tv.schedule.atom_axes)


def _check_neutral(fusion: Fusion, tv: TensorView, source: Axis, value: Expr, facts: Facts) -> None:
    """An atom that covers its whole tile adds nothing past the end of a reduction axis: all its operands are filled there."""
    expr = fusion.definition(tv)
    if not source.is_reduction or prove(lt(value, source.extent), facts) or not isinstance(expr, Reduction):
        return
    end = end_of(tv, source)
    if end is None:
        raise refused(
            tv,
            f"its atom computes whole tiles, and its tile overhangs an axis of {source.extent} inside the sum: elements would be added twice",
            "split by divisors, or split the reduction axis itself",
        )
    for read in storage_terms(fusion, expr):
        axis = along(tv, end, read, facts) if isinstance(read, Read) else None
        if not isinstance(read, Read) or axis is None or not is_zero_past_the_end(fusion, read.tensor, axis, facts):
            name = read.tensor.name if isinstance(read, Read) else "an operand"
            raise refused(
                tv,
                f"its atom computes whole tiles, the reduction axis of {source.extent} may end inside one, and {name} is not filled with 0 there",
                "copy its operands (cache_after) to Shared memory, or declare the extent with tf.dim(..., multiple_of=...)",
            )


def first_of_others(
    tv: TensorView, values: dict[Axis, Expr], memory: MemoryType | None, facts: Facts, loops: list[str], *, once: bool = False
) -> tuple[list[Expr], frozenset[str]]:
    """The conditions under which code is at the first index of the axes that would repeat its writes, and the loops that still repeat them.

    A loop that an asynchronous copy shares with its readers has a fill in each iteration. If the index of an axis depends on such
    a loop and on those inside it, the fill of an iteration may have no first index: the inner loops write elements again.

    Args:
        loops: the variables of the loops around the code, outermost first.
        once: an element must not be written again, even with the same value: updates come in between, or it is an update.
    """
    shared, inside = frozenset[str](), frozenset[str]()
    if has_copies_of_threads(tv):
        shared, inside = frozenset(loops[: tv.schedule.inline]), frozenset(loops[tv.schedule.inline :])
    conditions: list[Expr] = []
    again = frozenset[str]()
    for a in _others(tv, memory, once=once):
        if a in values:
            free = simplify(values[a], facts).free
            if free.isdisjoint(shared):
                conditions.append(eq(values[a], 0))
            else:
                again |= free & inside
    return conditions, again


def _others(tv: TensorView, memory: MemoryType | None, *, once: bool) -> list[Axis]:
    """The axes of consumers over which stores to Global memory write an element again: those mixed with own axes and bound, and all loops of a bulk copy.

    So do the loops of an asynchronous copy that it shares with none of its readers. Copies of one thread that are done later, bulk and
    asynchronous ones, are in no order, so that even equal ones must not overlap. ``once``: all loops repeat what must not be repeated.
    """
    is_copied = memory is MemoryType.Shared and has_copies_of_threads(tv)
    if memory is None or not (memory is MemoryType.Global or is_copied):
        return []
    types = {a: tv.schedule.ptype(a) for a in tv.loop}
    repeated = tv.loop if once or ParallelType.Bulk in types.values() else tv.loop[tv.schedule.inline :] if is_copied else ()
    written = [a for a, p in types.items() if (p.is_bound and not MEDIA[memory].is_private_to(p)) or (p.is_loop and a in repeated)]
    found = [a for a in written if a.is_foreign and types[a].is_loop]
    around = ancestors(tv, tuple(written))
    for t in tv.schedule.transforms:
        if len(t.inputs) > 1 and not around.isdisjoint(t.outputs) and not all(a.is_foreign for a in t.inputs):
            found += [a for a in t.inputs if a.is_foreign]
    return found
