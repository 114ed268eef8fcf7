"""Index maps: the indices around a tensor's code, the facts about them, and the guards under which it runs (docs/loop-nests.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from taskfuse.ir.axes import Axis, Rasterize, Resize, Split, is_map_symbol, iteration_symbol, value_symbol
from taskfuse.ir.expr import Assemble, Fold, Gather, Read, Reduction, Update
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import TRUE, ZERO, Expr, Facts, Max, conjuncts, const, eq, ge, lookups_of, lt, maximum, minimum, prove, simplify, substitute, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, THREAD_TYPES, MemoryType
from taskfuse.lowering.completion import has_copies_of_threads
from taskfuse.lowering.domains import backward, bound, digit_values, digits, divides, onward, product
from taskfuse.lowering.fragments import atom_symbols, register, registers, tile_of_register
from taskfuse.lowering.grid_stride import GridStrideLoops
from taskfuse.lowering.guards import first_of_others, remainder, with_merged
from taskfuse.lowering.overhang import end_of
from taskfuse.lowering.plan import LoopVariables, base_name
from taskfuse.lowering.read_parts import ReadPart
from taskfuse.lowering.thread_ranges import ThreadRanges
from taskfuse.schedule.order import Tree
from taskfuse.schedule.shared_loops import Loop, SharedLoops


@dataclass(frozen=True, slots=True)
class IndexMap:
    """The indices around one tensor's code, in local form.

    Attributes:
        values: axis -> index, for loop axes and all axes that follow from them.
        facts: ranges of the symbols in ``values``, guards included.
        guards: conditions under which the code runs.
        work: those of ``guards`` that say whether there is an item of work at all.
        tails: those of ``guards`` that exclude indices past the end of the tensor (:mod:`taskfuse.lowering.overhang`), where some code runs, too.
        beyond: the facts without ``tails``.
        anywhere: the facts without ``guards`` except ``work``.
        again: the variables of loops in which an asynchronous copy writes the same elements again, despite ``guards``.
    """

    values: dict[Axis, Expr]
    facts: Facts
    guards: tuple[Expr, ...]
    work: tuple[Expr, ...] = ()
    tails: tuple[Expr, ...] = ()
    beyond: Facts | None = None
    anywhere: Facts | None = None
    again: frozenset[str] = frozenset()

    def past_the_end(self) -> IndexMap:
        """The index map of code that also runs in the tails of splits: their guards must not be used to simplify."""
        assert self.beyond is not None
        return IndexMap(self.values, self.beyond, tuple(g for g in self.guards if g not in self.tails))

    def unguarded(self) -> IndexMap:
        """The index map of code that runs wherever there is work: guards that it lacks must not be used to simplify."""
        assert self.anywhere is not None
        return IndexMap(self.values, self.anywhere, self.work, self.work)


class IndexMaps:
    """The index maps of all tensors of a fusion, for one order of its nest.

    Attributes:
        memory: tensor -> its memory, as far as known.
        variables: the variables of loops with code.
        grid_stride: the loops whose trips depend on the block index.
        starts: the first values of the axes of loops over reduced axes, if all terms before are neutral or not part of the reduction: variables of these loops
            count from there. Hardware indices in them count from the first of a role.
        ends: the values from which on the same holds.
        belongs: a part of an assembly that has more elements than places -> the condition under which an element has one.
        read_parts: where elements of a tile that warpgroups share are read.
    """

    def __init__(self, fusion: Fusion, tree: Tree, shared_loops: SharedLoops, ranges: ThreadRanges) -> None:
        self.fusion = fusion
        self.tree = tree
        self.shared_loops = shared_loops
        self.ranges = ranges
        self.memory: dict[TensorView, MemoryType] = {}
        self.variables = LoopVariables()
        self.grid_stride = GridStrideLoops(fusion, tree, shared_loops, ranges, self.variables)
        self.starts: dict[Loop, Expr] = {}
        self.ends: dict[Loop, Expr] = {}
        self.belongs = {p.tensor: p.valid for e in fusion.exprs() if isinstance(e, Assemble) for p in e.parts if p.valid is not TRUE}
        wholes = [[p.tensor for p in e.parts] for e in fusion.exprs() if isinstance(e, Assemble)]
        self.read_parts: dict[TensorView, ReadPart] = {}
        self._updated = {tv for parts in wholes if any(isinstance(fusion.definition(part), Update) for part in parts) for tv in parts}
        self._known: dict[TensorView, IndexMap] = {}
        self._accumulating: dict[TensorView, IndexMap] = {}

    def trips(self, loop: Loop, extent: Expr, tv: TensorView) -> Expr:
        """The trips of a loop of an extent around code of ``tv``, in hardware indices and the variables of loops around it."""
        trips = self.grid_stride.trips(loop, extent, tv)
        if loop not in self.starts and loop not in self.ends:
            return trips
        task = self.tree.place[tv]
        hardware = {p.index_name: sym(p.index_name) - self.ranges.range(task, p).start for p in INDEX_TYPES}
        return simplify(self.length(loop, trips, lambda bound: substitute(bound, hardware)), self.outer_facts)

    @property
    def outer_facts(self) -> Facts:
        """Facts of the launch, and of the items of work that loops visit."""
        facts = self.ranges.facts
        for walk in self.grid_stride.walks.values():
            facts = facts.with_range(str(walk.item), 0, walk.stop - 1)
        return facts

    def length(self, loop: Loop, extent: Expr, here: Callable[[Expr], Expr]) -> Expr:
        """The trips of a loop of an extent between its start and its end, which ``here`` says in the indices of the extent."""
        stop = minimum(extent, here(self.ends[loop])) if loop in self.ends else extent
        return maximum(stop - here(self.starts[loop]), 0) if loop in self.starts else stop

    def before_ends(self, tv: TensorView, facts: Facts) -> Facts:
        """Facts about the indices around the code of ``tv``, including that loops end with their terms."""
        for loop in self.shared_loops.path[tv]:
            if loop in self.ends:
                end = self.in_code(self.ends[loop], tv)
                ends = [e for e in end.args if e is not ZERO] if isinstance(end, Max) else [end]
                facts = facts.with_assumption(lt(self.value(loop, tv), ends[0] if len(ends) == 1 else end))
        return facts

    def in_code(self, bound: Expr, tv: TensorView) -> Expr:
        """A start or an end of a loop, in the indices of the code of ``tv``."""
        task = self.tree.place[tv]
        return substitute(bound, {p.index_name: sym(base_name(p, task)) for p in INDEX_TYPES})

    def value(self, loop: Loop, tv: TensorView) -> Expr:
        """The index of a loop's axis around the code of ``tv``: its variable, counted from its start."""
        variable = self.variables.symbol(loop)
        return variable + self.in_code(self.starts[loop], tv) if loop in self.starts else variable

    def forget(self) -> None:
        """Discard all index maps: they have guards for remainders that grid-stride loops now bound."""
        self._known.clear()
        self._accumulating.clear()

    def of(self, tv: TensorView) -> IndexMap:
        """The indices around the code of ``tv`` in its own memory type."""
        known = self._known.get(tv)
        if known is None:
            known = self._build(tv, self.loop_symbols(tv), self.memory.get(tv))
            if tv in self.memory:
                self._known[tv] = known
        return known

    def reading(self, tv: TensorView) -> IndexMap:
        """The indices where the expression of ``tv`` reads its operands: a reduction accumulates in Local memory, whatever the memory of its result."""
        if not isinstance(self.fusion.definition(tv), Reduction | Fold):
            return self.of(tv)
        known = self._accumulating.get(tv)
        if known is None:
            known = self._accumulating[tv] = self.variant(tv, self.loop_symbols(tv), MemoryType.Local)
        return known

    def variant(self, tv: TensorView, names: dict[Axis, Expr], memory: MemoryType, outside: bool = False) -> IndexMap:
        """The index map with other loop variables (axes absent from ``names`` have none) and another memory type.

        ``outside``: outside the reduction loops, on every index that shares an accumulator (for memory that is not private to a
        reduced index type: on the first index of its digit).
        """
        return self._build(tv, names, memory, outside)

    def rescaling(self, tv: TensorView, loops: dict[Axis, Expr] | None = None) -> IndexMap:
        """The index map of the code that multiplies the accumulators of a sum by its factor: one accumulator, at one index of the axis.

        Args:
            loops: the variables of the loops around that code; by default those around the code that adds terms.
        """
        expr = self.fusion.definition(tv)
        assert isinstance(expr, Reduction)
        assert expr.rescaled is not None
        loops = loops or {a: s for a, s in self.loop_symbols(tv).items() if not a.is_reduction or a is tv.root[expr.rescaled]}
        return self._build(tv, loops, MemoryType.Local, outside=True, tile=tile_of_register(tv, sym(base_name(THREAD_TYPES[0], self.tree.place[tv]))))

    def loop_symbols(self, tv: TensorView) -> dict[Axis, Expr]:
        """The loop variables around the code of ``tv``."""
        return {a: self.variables.symbol(loop) for a, loop in zip(tv.loop, self.shared_loops.path[tv], strict=True)}

    def point(self, tv: TensorView, index_map: IndexMap) -> dict[str, Expr]:
        """The symbols of an op map at the place of an index map."""
        return {f"i{k}": index_map.values[a] for k, a in enumerate(tv.root) if a in index_map.values} | {
            str(value_symbol(k)): s for k, s in enumerate(self.value_symbols(tv))
        }

    def value_symbols(self, tv: TensorView) -> tuple[Expr, ...]:
        """The symbols of the values that a gather or an update reads, in its statement."""
        expr = self.fusion.definition(tv)
        return tuple(sym(f"{tv.name}.v{k}") for k in range(len(expr.extents))) if isinstance(expr, Gather | Update) else ()

    def _build(
        self, tv: TensorView, loops: dict[Axis, Expr], memory: MemoryType | None, outside: bool = False, tile: Mapping[Axis, Expr] | None = None
    ) -> IndexMap:
        start, facts, guards = self._of_loop_axes(tv, loops, memory, outside)
        if tile:
            start.update(tile)
            facts = facts.with_range(str(register(tv)), 0, registers(tv) - 1)
        for source, item in self.grid_stride.items(tv, loops).items():
            start[source] = item
            facts = facts.with_range(str(item), 0, source.extent - 1)
        values = backward(tv, start)
        around = [self.variables.name(loop) for loop in self.shared_loops.path[tv]] if has_copies_of_threads(tv) else []
        first, again = first_of_others(tv, values, memory, facts, around, once=tv in self._updated)
        guards += first
        bounded = self.grid_stride.bounded(tv, loops)
        for t in bounded:
            if t.source in values and not t.source.is_foreign:
                facts = facts.with_assumption(lt(values[t.source], t.source.extent))
        whole, early = self.grid_stride.whole(tv, values), list[Expr]()
        implied = {t.outer for t in whole}
        skips = self.grid_stride.skips_empty(tv, loops)
        for t in whole:
            rest = bound(values[t.source], t.source.extent, facts)
            early += [] if skips else rest
            for condition in rest:
                facts = facts.with_assumption(condition)
        ragged = self.grid_stride.has_rows(tv, values, facts)
        early += [] if skips else ragged
        for condition in ragged:
            facts = facts.with_assumption(condition)
        inside = with_merged(tv, start, values, facts)
        values = onward(tv, values, facts)
        if tv in self.read_parts and not (outside and self.read_parts[tv].is_chosen):
            part = self.read_parts[tv].at(values, facts)
            early += part
            for condition in part:
                facts = facts.with_assumption(condition)
        tails: list[Expr] = []
        pieces: list[Expr] = []  # that there is a piece of work: asked first, since only then the map from work to tiles is defined
        made = {a for t in tv.schedule.transforms if isinstance(t, Rasterize) for a in t.outputs}
        for t in tv.schedule.transforms:
            if isinstance(t, Split) and t.source in made:
                made.update(t.outputs)
            match t:
                case Split() if t in bounded or t in whole or (whole and t.source in implied):
                    pass
                case Split(source=source) if source.is_foreign or (outside and source.is_reduction):
                    pass
                case Split(source=source) if source in values and not divides(t, self.ranges.facts):
                    rest = remainder(self.fusion, tv, source, values[source], facts, inside)
                    tails += rest if end_of(tv, source) is not None else []
                    if source in made:
                        pieces += rest
                    else:
                        guards += rest
                case Rasterize() if t.has_holes:
                    for source in t.sources:
                        if source in values and not (source.is_foreign or (outside and source.is_reduction)):
                            guards += bound(values[source], source.extent, facts)
                case Resize(source=source) if source in values:
                    guards += bound(values[source], source.extent, facts)
                    if not prove(ge(values[source], 0), facts):
                        guards.append(ge(simplify(values[source], facts), 0))
                case _:
                    pass
        if tv in self.belongs and not outside and all(a in values for a in tv.logical):
            place = {str(iteration_symbol(k)): values[a] for k, a in enumerate(tv.logical)}
            wanted = (simplify(substitute(c, place), facts) for c in conjuncts(self.belongs[tv]))
            guards += [c for c in wanted if not prove(c, facts)]
        # The indices are simplified without the guards: which axes storage keeps must not depend on what guards cut off.
        guards = early + pieces + guards
        values = {a: simplify(v, facts) for a, v in values.items()}
        beyond = anywhere = facts
        for guard in early:
            anywhere = anywhere.with_assumption(guard)
        for guard in guards:
            facts = facts.with_assumption(guard)
            if guard not in tails:
                beyond = beyond.with_assumption(guard)
        return IndexMap(values, facts, tuple(dict.fromkeys(guards)), tuple(early), tuple(dict.fromkeys(tails)), beyond, anywhere, again)

    def _of_loop_axes(self, tv: TensorView, loops: dict[Axis, Expr], memory: MemoryType | None, outside: bool) -> tuple[dict[Axis, Expr], Facts, list[Expr]]:
        """The indices of the loop axes, in loop variables, points of an atom and indices of threads and blocks; what is known of these; their guards."""
        task = self.tree.place[tv]
        facts: Facts = self.ranges.facts
        values: dict[Axis, Expr] = {}
        guards: list[Expr] = []
        atoms = atom_symbols(tv)
        late: list[Expr] = []  # indices of loops that do not begin at 0
        path = self.shared_loops.path.get(tv, ())
        for a, loop in zip_longest(tv.loop, path):
            ptype = tv.schedule.ptype(a)
            if ptype.is_loop and a in loops:
                values[a] = loops[a]
                facts = facts.with_range(str(loops[a]), 0, a.extent - 1)
                if loop in self.starts and loops[a] is self.variables.symbol(loop):
                    values[a] = self.value(loop, tv)
                    late.append(lt(values[a], a.extent))
            elif a in atoms:
                values[a] = sym(atoms[a])
                facts = facts.with_range(atoms[a], 0, a.extent - 1)
        for p in INDEX_TYPES:
            index_range = self.ranges.range(task, p)
            own = digits(tv, p)
            name = base_name(p, task)
            private = memory is None or MEDIA[memory].is_private_to(p)
            if outside and own and all(a.is_reduction for a in own):
                facts = facts.with_range(name, 0, simplify(index_range.extent - 1, self.ranges.facts))
                if not private and index_range.extent is not const(1):
                    guards.append(eq(sym(name), 0))
            elif own:
                extent = product(own)
                facts = facts.with_range(name, 0, simplify(extent - 1, self.ranges.facts))
                if not prove(lt(index_range.extent - 1, extent), self.ranges.facts):
                    guards.append(lt(sym(name), extent))
                for a, value in digit_values(own, sym(name), facts).items():
                    values[a] = value
                    if (a.is_foreign or (outside and a.is_reduction)) and not private:
                        guards.append(eq(value, 0))
            elif private:
                facts = facts.with_range(name, 0, simplify(index_range.extent - 1, self.ranges.facts))
            else:
                facts = facts.with_range(name, 0, 0)
                if index_range.extent is not const(1):
                    guards.append(eq(sym(name), 0))
        for condition in late:
            facts = facts.with_assumption(condition)
        return values, facts, guards


def has_values(read: Read) -> bool:
    """True if the index of a read depends on data: it contains symbols of values, or elements of tables."""
    return any(lookups_of(e) or any(is_map_symbol(name) and name[0] == "v" for name in e.free) for e in read.index)
