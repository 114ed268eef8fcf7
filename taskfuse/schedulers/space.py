"""The iteration space of a fusion with reductions: its reduced and kept axes, and the one that is contiguous in memory.

All tensors run over the axes of one of them, the *reference*, or over some of these. Axes are compared by their keys
(:mod:`taskfuse.schedule.keys`), whichever op made a tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from taskfuse.ir.axes import Axis, iteration_position, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, Fold, Gather, MathExpr, Pointwise, Read, Reduction, Scan, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Const, Expr, Facts, integers_of, is_multiple, substitute
from taskfuse.ir.storage import has_code, needed, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.drop_axes import free_axes
from taskfuse.schedule.keys import Key, Keys
from taskfuse.schedule.split_reduction import digits
from taskfuse.schedulers.elementwise import ancestors, recompute_all
from taskfuse.schedulers.schedule import refuse
from taskfuse.schedulers.script import Script
from taskfuse.target import VECTOR_BYTES

MOST_OF_RESULTS = 8
"""The longest vectors that results of rows ask for: longer ones of wider elements take registers that few threads have."""


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """The axes of a fusion whose reductions all reduce the same ones.

    Attributes:
        axes: root axes of a tensor that has all of them.
        kept, reduced: positions in ``axes``, each in the order of memory, the contiguous one last.
        is_inner: the contiguous axis of memory is a reduced one.
        loads: inputs of which each iteration reads the element at its own place; others may read them elsewhere.
        moved: tensors that are elements of an input from other places: through views, or at computed indices.
        width: elements along the contiguous axis that are one access of the tensor with the smallest elements.
        run: positions of the last axes in the order of memory that are all reduced, or all kept: elements along them lie side by side.
        again: root axes of tensors that have all of them as well, in the same order, but share some with none that has ``axes``: what a phase computes
            again of nothing that is loaded, as a mask of positions.
    """

    axes: tuple[Axis, ...]
    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    is_inner: bool
    loads: tuple[TensorView, ...]
    moved: tuple[TensorView, ...]
    width: int
    run: tuple[int, ...]
    again: tuple[tuple[Axis, ...], ...] = ()

    def extent(self, positions: Iterable[int]) -> Expr:
        """The number of values of some axes together."""
        total: Expr = ONE
        for p in positions:
            total = total * self.axes[p].extent
        return total

    @property
    def contiguous(self) -> int:
        """The position of the axis that is contiguous in memory."""
        return (self.reduced if self.is_inner else self.kept)[-1]

    def ends_contiguous(self, tv: TensorView) -> bool:
        """True if what ``tv``, a copy, reads or writes in memory has the contiguous axis as its last, so that its vectors lie at multiples."""
        return tv.ndim > 0 and tv.logical[-1].extent is self.axes[self.contiguous].extent

    def readers(self, fusion: Fusion, tv: TensorView) -> tuple[TensorView, ...]:
        """What reads an input at its own place."""
        uses = storage_uses(fusion, tv)
        return tuple(e.output for e in uses if all(is_in_place(r, e.output) for r in storage_reads(fusion, e) if r.tensor is tv))

    def references(self, fusion: Fusion) -> list[TensorView]:
        """The tensors that have ``axes`` now, and each of ``again``."""
        return [next(tv for tv in fusion.tensors() if tv.root == axes) for axes in (self.axes, *self.again)]

    def with_again(self, fusion: Fusion) -> Space:
        """The same space of the fusion as it is now, in which phases compute tensors again."""
        keys, found = Keys(fusion), list[tuple[Axis, ...]]()
        known = {keys.key(a) for a in self.axes}
        for e in fusion.exprs():
            root = e.output.root
            if not has_code(fusion, e) or [a.extent for a in root] != [a.extent for a in self.axes]:
                continue
            if new := {keys.key(a) for a in root if a.extent is not ONE} - known:
                known |= new
                found.append(root)
        return replace(self, again=tuple(found))

    def having(self, fusion: Fusion, positions: Iterable[int]) -> set[TensorView]:
        """The inputs and the tensors with code that have one of some axes."""
        keys = Keys(fusion)
        wanted = {keys.key(axes[p]) for p in positions for axes in (self.axes, *self.again)}
        return {tv for tv in fusion.tensors() if not fusion.is_view(tv) and any(keys.key(a) in wanted for a in (tv.logical if tv.is_input else tv.root))}

    def symbols(self, fusion: Fusion, positions: Iterable[int]) -> dict[TensorView, frozenset[str]]:
        """The iteration symbols along some axes, of the tensors with code that have one of them."""
        keys = Keys(fusion)
        wanted = {keys.key(axes[p]) for p in positions for axes in (self.axes, *self.again)}
        found = {e.output: frozenset(str(iteration_symbol(k)) for k, a in enumerate(e.output.root) if keys.key(a) in wanted) for e in fusion.exprs()}
        return {tv: names for tv, names in found.items() if names}

    def partial(self, fusion: Fusion) -> set[TensorView]:
        """What has some of several reduced axes, but not all: loops have one index for all of these, so a thread's element is another in each trip."""
        found = [self.having(fusion, [p]) for p in self.reduced]
        return set[TensorView]().union(*found) - found[0].intersection(*found)


def find(fusion: Fusion) -> Space:
    """The space of ``fusion``.

    Raises:
        UnsupportedError: it has no reduction, or a scan or fold; reductions reduce different axes; a tensor has an axis that the others lack, or
            one twice; or a computed tensor is read elsewhere than at its own place.
    """
    code = [e for e in fusion.exprs() if has_code(fusion, e)]
    if any(isinstance(e, Assemble) for e in fusion.exprs()):
        raise refuse(fusion, "reduction", "it assembles a tensor from parts", "move the concatenation to a separate fusion")
    reductions = [e for e in code if isinstance(e, Reduction)]
    if not reductions:
        raise refuse(fusion, "reduction", "it reduces nothing", "tf.schedulers.pointwise takes such fusions")
    in_order = next((e for e in code if isinstance(e, Scan | Fold)), None)
    if in_order is not None:
        raise refuse(fusion, "reduction", f"{in_order.output.name} takes elements one after another, and threads have parts of a row each")
    loads = _loads(fusion, code)
    keys = Keys(fusion)
    axes = {e.output: _axes(keys, e.output) for e in code}
    reduced = _reduced(fusion, keys, reductions)
    space = max(axes.values(), key=len)
    reference = next(tv for tv, own in axes.items() if own.keys() == space.keys())
    for tv, own in axes.items():
        if not own.keys() <= space.keys():
            raise refuse(fusion, "reduction", f"{tv.name} has an axis that {reference.name} lacks", "move it to a separate fusion")
        if reduced & own.keys() and not reduced <= own.keys():
            raise refuse(fusion, "reduction", f"{tv.name} has some of the reduced axes and lacks others", "broadcast it, or pass it with all of them")
    if not reduced <= space.keys():
        raise refuse(fusion, "reduction", f"{reference.name} lacks an axis that is reduced elsewhere", "move it to a separate fusion")
    order, memory = _memory_order(keys, fusion, axes, loads, space)
    single = [p for p, a in enumerate(reference.root) if a.extent is ONE]  # outermost, where they are in nobody's way
    kept = (*single, *(space[k] for k in order if k not in reduced))
    inner = order[-1] in reduced
    positions = tuple(space[k] for k in order if k in reduced)
    width = _width(fusion, memory, len(space), reference.root[(positions if inner else kept)[-1]].extent)
    run = tuple(space[k] for k in takewhile(lambda k: (k in reduced) == inner, reversed(order)))
    moved = tuple(e.output for e in code if space.keys() == axes[e.output].keys() and _is_moved(fusion, e))
    return Space(reference.root, kept, positions, inner, loads, moved, width, run)


def split_reductions(script: Script) -> None:
    """Have reductions run over the axes of what they read, where they read it at the digits of an axis of their own."""
    fusion = script.fusion
    for expr in needed(fusion):
        tv = expr.output
        while isinstance(now := fusion.definition(tv), Reduction) and (found := digits(fusion, now)) is not None:
            script.on(tv).split_reduction(*found)


def settle(script: Script) -> None:
    """Have what is elementwise computed, and inputs copied, where they are read, if that is not their own place; an output that is a
    view, or of elements from other places, is a copy of what its readers read.

    Raises:
        UnsupportedError: that makes too many tensors. The fusion has changed by then: callers try it on a copy.
    """
    fusion = script.fusion
    recompute_all(script, fusion, is_in_place, is_shared=True)
    _drop_axes_of_indices(script)
    for out in fusion.outputs:
        definition = out.definition
        if not out.uses or definition is None:
            continue
        if isinstance(definition, View) or not any(is_in_place(r, out) for r in storage_reads(fusion, definition)):
            made = script.new(out, "cache_fork")  # computed again for its readers, it would share no axis with them
            if isinstance(definition, View):
                script.new(made, "cache_after")
    for source in fusion.inputs:
        spaces: dict[tuple[object, ...], list[TensorView]] = {}
        for expr in storage_uses(fusion, source):
            reads = [r for r in storage_reads(fusion, expr) if r.tensor is source]
            if isinstance(expr, Pointwise | Reduction) and not _is_moved(fusion, expr) and not any(is_in_place(r, expr.output) for r in reads):
                spaces.setdefault(tuple(a.extent for a in expr.output.root), []).append(expr.output)
        for readers in spaces.values():
            script.recompute(source, readers)


def _drop_axes_of_indices(script: Script) -> None:
    """Have the indices of gathers computed without the kept axes that they do not depend on: once for all elements of a vector, which one load then takes."""
    fusion = script.fusion
    code = needed(fusion)
    indices = {tv for e in code if isinstance(e, Gather) for tv in ancestors(fusion, e.output)}
    if not indices:
        return
    keys = Keys(fusion)
    reduced = {keys.key(a) for e in code if isinstance(e, Reduction) for a in e.output.root if a.is_reduction}
    for expr in code:
        tv = expr.output
        free = free_axes(fusion, expr) if tv in indices and not tv.is_output else ()
        if free and reduced.isdisjoint(keys.key(tv.root[k]) for k in free):
            script.new(tv, "drop_axes")


def _is_moved(fusion: Fusion, expr: MathExpr) -> bool:
    """True if ``expr`` is nothing but elements of an input from other places than its own."""
    reads = storage_reads(fusion, expr)
    if isinstance(expr, Gather):
        return reads[0].tensor.is_input
    is_copy = isinstance(expr, Pointwise) and expr.op is ELEMENTWISE["copy"] and len(reads) == 1
    return is_copy and reads[0].tensor.is_input and not is_in_place(reads[0], expr.output)


def _axes(keys: Keys, tv: TensorView) -> dict[Key, int]:
    """The positions of a tensor's root axes by key. Axes of extent 1 are omitted unless other tensors have them."""
    found: dict[Key, int] = {}
    for p, a in enumerate(tv.root):
        if a.extent is ONE:
            continue
        if keys.key(a) in found:
            raise refuse(tv.fusion, "reduction", f"{tv.name} runs over one axis twice", "move it to a separate fusion")
        found[keys.key(a)] = p
    return found


def _reduced(fusion: Fusion, keys: Keys, reductions: Sequence[Reduction]) -> set[Key]:
    """The axes that every reduction reduces."""
    found = [{keys.key(a) for a in e.output.root if a.is_reduction and a.extent is not ONE} for e in reductions]
    for e, axes in zip(reductions, found, strict=True):
        if axes != found[0]:
            raise refuse(fusion, "reduction", f"{reductions[0].output.name} and {e.output.name} reduce different axes", "give each its own fusion")
        if any(a.is_reduction and a.extent is ONE for a in e.output.root) or not axes:
            raise refuse(fusion, "reduction", f"{e.output.name} reduces an axis of extent 1", "reshape the axis away")
    return found[0]


def _loads(fusion: Fusion, code: Sequence[MathExpr]) -> tuple[TensorView, ...]:
    """See :class:`Space`. Computed tensors must all be read so."""
    found: dict[TensorView, None] = {}
    for expr in code:
        for read in storage_reads(fusion, expr):
            if is_in_place(read, expr.output):
                found[read.tensor] = None
            elif not read.tensor.is_input and not is_in_place(replace(read, valid=TRUE), expr.output):  # what a choice does not take is there, too
                place = ", ".join(map(str, read.index))
                raise refuse(fusion, "reduction", f"{expr.output.name} reads {read.tensor.name} at [{place}]", "shift or reshape inputs, not computed tensors")
    return tuple(tv for tv in fusion.inputs if tv in found)


def is_in_place(read: Read, reader: TensorView) -> bool:
    """True if an iteration of ``reader`` reads the element that has its own axes; it may have more of them."""
    if read.valid is not TRUE:
        return False
    for inner, e in zip(read.tensor.logical, read.index, strict=True):
        position = iteration_position(e)
        own = position is not None and reader.root[position].extent is inner.extent
        if not own and not (inner.extent is ONE and isinstance(e, Const)):
            return False
    return True


def _memory_order(
    keys: Keys, fusion: Fusion, axes: dict[TensorView, dict[Key, int]], loads: Sequence[TensorView], space: dict[Key, int]
) -> tuple[list[Key], list[tuple[TensorView, list[Key]]]]:
    """All axes, as the tensors that move most bytes have them; and the tensors in memory, with their axes. Where none of these has all axes, the last one is
    that along which elements from other places of an input lie side by side, such as pixels of all images, each of which is a row of channels."""
    memory = [(tv, [keys.key(a) for a in tv.logical if a.extent is not ONE]) for tv in (*loads, *fusion.outputs)]
    whole = [(tv, own) for tv, own in memory if set(own) == space.keys() and len(own) == len(space)]
    if not whole:
        last = _last_elsewhere(keys, fusion, axes, space)
        if last is None or last == list(space)[-1]:
            return list(space), memory
        return [*(k for k in space if k != last), last], [(tv, own) for tv, own in memory if own and own[-1] == last]
    _, order = max(whole, key=lambda m: sum(tv.dtype.itemsize for tv, own in whole if own[-1] == m[1][-1]))
    return order, [(tv, own) for tv, own in memory if own and own[-1] == order[-1]]


def _last_elsewhere(keys: Keys, fusion: Fusion, axes: dict[TensorView, dict[Key, int]], space: dict[Key, int]) -> Key | None:
    """The axis along which most bytes from other places of inputs lie side by side, among the elements that have all axes; ``None`` if there is no such."""
    found: dict[Key, int] = {}
    for tv, own in axes.items():
        expr = fusion.definition(tv)
        if expr is None or own.keys() != space.keys() or not _is_moved(fusion, expr):
            continue
        read = storage_reads(fusion, expr)[0]
        for key, position in own.items():
            if _steps_one(read, position):
                found[key] = found.get(key, 0) + read.tensor.dtype.itemsize
    return max(found, key=lambda key: found[key], default=None)


def _steps_one(read: Read, position: int) -> bool:
    """True if the second element along an axis of the reader is the neighbor of the first in memory."""
    name = str(iteration_symbol(position))
    first, second = ([substitute(e, {n: ONE if n == name and k else ZERO for n in integers_of(e)}) for e in read.index] for k in (0, 1))
    return bool(first) and first[:-1] == second[:-1] and second[-1] - first[-1] is ONE


def _width(fusion: Fusion, memory: Sequence[tuple[TensorView, list[Key]]], axes: int, extent: Expr) -> int:
    """See :class:`Space`. An array of all elements whose last axis has one is accessed element by element: neighboring threads then take neighbors, not
    every fourth one. Results of rows, of which there are few, do not lengthen vectors of wider elements beyond :data:`MOST_OF_RESULTS`."""
    if any(own and tv.logical[-1].extent is ONE and len(own) == axes for tv, own in memory):
        return 1
    every = VECTOR_BYTES // min((tv.dtype.itemsize for tv, _ in memory), default=VECTOR_BYTES)
    elements = VECTOR_BYTES // min((tv.dtype.itemsize for tv, own in memory if len(own) == axes), default=VECTOR_BYTES)
    width = max(elements, min(every, MOST_OF_RESULTS)) if every > elements else every
    facts: Facts = fusion.facts()
    while width > 1 and not is_multiple(extent, width, facts):
        width //= 2
    return width
