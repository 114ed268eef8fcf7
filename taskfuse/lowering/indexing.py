"""Index environments, memory types and accesses.

The owner of an element follows from the allocation domain; writer, owner and reader are functions element -> thread, compared as index
expressions, never as parallel types (docs/loop-nests.md).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from taskfuse.errors import UnsupportedError
from taskfuse.ir.atoms import Bounds, Instruction
from taskfuse.ir.axes import Axis, Merge, Rasterize, Resize, Split, is_map_symbol, iteration_position, value_symbol
from taskfuse.ir.expr import Assemble, Gather, MathExpr, Read, Reduction, Scan
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const, Expr, Facts, FloorDiv, and_, const, eq, ge, lt, prove, select, simplify, substitute, sym
from taskfuse.ir.storage import has_code, storage_operands, storage_uses
from taskfuse.ir.tasks import Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.kir.nodes import Access
from taskfuse.lowering.domains import allocation_axes, ancestors, backward, digit_values, digits, forward, owner_digits, product, refused
from taskfuse.lowering.fragments import atom_symbols, operand
from taskfuse.lowering.padding import is_zero_past_the_end, pads
from taskfuse.lowering.plan import Environment, base_name
from taskfuse.lowering.regions import Regions, Span, hardware_index
from taskfuse.lowering.scans import check_scan, first_accumulated
from taskfuse.lowering.work import WorkLoops
from taskfuse.schedule.allocation import default_allocation
from taskfuse.schedule.joins import Joins, Loop
from taskfuse.schedule.order import Tree

ZERO = const(0)


class Indexer:
    """Indices and accesses of all tensors of a fusion, for one order of its nest.

    Attributes:
        memory: tensor -> where it lives.
        slot: the slot of a tensor's ring that code of a task uses, or ``None`` (set by the channels).
        work: the loops whose trips the block index decides (``None`` until memory types are known).
        full: the mbarriers at which a fill of a tensor's ring is complete, or ``None`` (set by the channels).
    """

    def __init__(self, fusion: Fusion, tree: Tree, joins: Joins, regions: Regions) -> None:
        self.fusion = fusion
        self.tree = tree
        self.joins = joins
        self.regions = regions
        self.memory: dict[TensorView, MemoryType] = {}
        self.placed: dict[TensorView, tuple[TensorView, tuple[Expr, ...]]] = {}
        self.slot: Callable[[TensorView, Task], Expr | None] = lambda tv, task: None
        self.full: Callable[[TensorView], str | None] = lambda tv: None
        self.loop_names: dict[Loop, str] = {}
        self._environments: dict[TensorView, Environment] = {}
        self._accumulating: dict[TensorView, Environment] = {}
        self._kept: dict[tuple[TensorView, MemoryType], tuple[Axis, ...]] = {}
        for expr in fusion.exprs():
            if isinstance(expr, Assemble):
                for part, place in zip(expr.parts, expr.places, strict=True):
                    self.placed[part.tensor] = (expr.output, place)
        self.work: WorkLoops | None = None
        self._set_memory()
        self.work = WorkLoops(fusion, tree, regions, self.memory, joins.loops, self._indexes_registers)
        self._environments.clear()  # those so far guard what work loops now bound
        self._accumulating.clear()
        self._kept.clear()

    # -- memory types ---------------------------------------------------------------------------------------------------------------

    def _set_memory(self) -> None:
        exprs = self.fusion.exprs()
        for tv in self.fusion.inputs:
            self.memory[tv] = MemoryType.Global
        for expr in reversed(exprs):
            tv = expr.output
            if isinstance(expr, Assemble) or tv.is_output or tv in self.placed:
                self.memory[tv] = MemoryType.Global
            elif has_code(self.fusion, expr):
                self.memory[tv] = self._follow(tv)
                self._check_mixed(tv)
            if isinstance(expr, Scan):
                check_scan(expr)
            if isinstance(expr, Reduction | Scan):
                self._check_accumulation(tv, expr)

    def _check_accumulation(self, tv: TensorView, expr: Reduction | Scan) -> None:
        """A loop over a foreign axis inside of the loops that accumulate would accumulate every element again in each of its trips."""
        what = "reduction" if isinstance(expr, Reduction) else "scan"
        for p in INDEX_TYPES:
            own = digits(tv, p)
            if len(own) > 1 and any(a.is_reduction and not prove(ge(a.extent, 1), self.regions.facts) for a in own):
                raise refused(
                    tv,
                    f"a reduction axis that shares {p.value} with another axis may be empty",
                    "declare its extent with tf.dim(..., min=1), or bind the axes to different index types",
                )
        first = first_accumulated(expr)
        for a in () if first is None else tv.loop[first:]:
            if any(x.is_foreign for x in ancestors(tv, (a,))) and tv.schedule.ptype(a).is_loop:
                raise refused(
                    tv,
                    f"loop axis {tv.loop.index(a)} runs over an axis of a consumer inside of the {what}: each element would be accumulated more than once",
                    f"reorder that axis before the {what} axes, or do not merge it with one",
                )

    def _check_mixed(self, tv: TensorView) -> None:
        """An index of an axis that mixes own and foreign ones neither computes the tensor's element alone nor replicates it."""
        for a in tv.loop:
            p = tv.schedule.ptype(a)
            if p.is_bound and not self.memory[tv].is_private_to(p) and not a.is_foreign and any(x.is_foreign for x in ancestors(tv, (a,))):
                raise refused(
                    tv,
                    f"axis {tv.loop.index(a)} merges own axes with a consumer's and is bound to {p.value}, which shares {self.memory[tv].value} memory",
                    "bind the axis in Local memory only, or do not merge what the tensor lacks",
                )

    def _follow(self, tv: TensorView) -> MemoryType:
        """The memory type that the readers of ``tv`` need, or the explicit one if it serves them."""
        given = tv.schedule.memory
        needed = MemoryType.Local
        why = ""
        for use in storage_uses(self.fusion, tv):
            if not has_code(self.fusion, use):
                continue
            for read in storage_operands(self.fusion, use):
                if isinstance(read, Read) and read.tensor is tv:
                    if needed is MemoryType.Local and _has_values(read):
                        needed, why = MemoryType.Shared, f"{use.output.name} reads it at an index that it computes: registers have no addresses"
                    for p in INDEX_TYPES:
                        if self._crosses(tv, use, read, p):
                            if p.is_cluster and given is not MemoryType.Global:
                                raise UnsupportedError(
                                    what=f"Shared memory of a cluster for {tv.name}",
                                    reason=f"{use.output.name} reads elements of {tv.name} that other indices of {p.value} make",
                                    help="set_memory_type(Global), or bind the axes alike",
                                    location=tv.location,
                                )
                            reached = MemoryType.Shared if p.is_thread else MemoryType.Global
                            if needed is MemoryType.Local or reached is MemoryType.Global:
                                needed, why = reached, f"{use.output.name} reads elements of {tv.name} that other indices of {p.value} make"
        if given is None:
            return needed
        order = (MemoryType.Local, MemoryType.Shared, MemoryType.Global)
        if order.index(given) < order.index(needed):
            raise refused(tv, f"it is set to {given.value}, but {why}", f"set_memory_type({needed.value}), leave it unset, or bind the axes alike")
        return given

    def _crosses(self, tv: TensorView, use: MathExpr, read: Read, p: ParallelType) -> bool:
        """True if a value of ``tv`` in memory private to ``p`` would not be where ``use`` reads it."""
        consumer = use.output
        task, other = self.tree.place[tv], self.tree.place[consumer]
        mine, theirs = self.regions.region(task, p), self.regions.region(other, p)
        own = owner_digits(tv, p)
        if not own and not digits(consumer, p) and mine == theirs:
            return False
        env = self.reading_environment(consumer)
        base = sym(base_name(p, other))
        index = theirs.start + self._lane(consumer, read, p, base)
        kept = [a for a in own if not a.is_reduction]
        if not kept:
            reach = Span(mine.start, mine.extent)
            return not (prove(ge(index, reach.start), env.facts) and prove(lt(index, reach.start + reach.extent), env.facts))
        values = forward(tv, self._logical(consumer, read), env.facts)
        shared = list(zip(tv.loop, consumer.loop, strict=False))[: tv.schedule.inline]
        values.update((a, env.values[b]) for a, b in shared if b in env.values)  # a shared loop has one index, also where the map back has none
        if len(kept) == len(own) and all(a in values for a in own):
            total = ZERO
            for k, a in enumerate(own):
                total = total + values[a] * product(own[k + 1 :])
            return not prove(eq(total + mine.start, index), env.facts)
        delta = index - mine.start
        if not (prove(ge(delta, 0), env.facts) and prove(lt(delta, product(own)), env.facts)):
            return True
        for a, value in digit_values(own, delta, env.facts).items():
            if not a.is_reduction and not a.is_foreign and not (a in values and prove(eq(values[a], value), env.facts)):
                return True
        return any(a.is_reduction for a in own) and not prove(eq(theirs.start, mine.start), env.facts)

    def _lane(self, consumer: TensorView, read: Read, p: ParallelType, base: Expr) -> Expr:
        """The index that reads registers: the thread's own, or the lane that an atom takes the element from."""
        held = operand(consumer, read) if p is THREAD_TYPES[0] else None
        return base if held is None else base // held.fragment.threads * held.fragment.threads + held.lane()

    def _logical(self, consumer: TensorView, read: Read) -> tuple[Expr, ...]:
        env = self.reading_environment(consumer)
        point = self.point(consumer, env)
        return tuple(simplify(substitute(e, point), env.facts) for e in read.index)

    # -- environments ---------------------------------------------------------------------------------------------------------------

    def loop_name(self, loop: Loop) -> str:
        """The variable of a loop with code."""
        return self.loop_names.setdefault(loop, f"i{len(self.loop_names)}")

    def environment(self, tv: TensorView) -> Environment:
        """The indices around the code of ``tv`` in its own memory type."""
        known = self._environments.get(tv)
        if known is None:
            known = self._build(tv, self.loop_symbols(tv), self.memory.get(tv))
            if tv in self.memory:
                self._environments[tv] = known
        return known

    def reading_environment(self, tv: TensorView) -> Environment:
        """The indices where the expression of ``tv`` reads its operands: a reduction accumulates in Local memory, whatever its result lives in."""
        if not isinstance(self.fusion.definition(tv), Reduction):
            return self.environment(tv)
        known = self._accumulating.get(tv)
        if known is None:
            known = self._accumulating[tv] = self.variant(tv, self.loop_symbols(tv), MemoryType.Local)
        return known

    def variant(self, tv: TensorView, names: dict[Axis, Expr], memory: MemoryType, outside: bool = False) -> Environment:
        """The environment with other loop variables (axes absent from ``names`` have none) and another memory type.

        ``outside``: outside of the reduction loops, on every index that shares an accumulator (for memory that is not private to a
        reduced index type: on the first index of its digit).
        """
        return self._build(tv, names, memory, outside)

    def _build(self, tv: TensorView, loops: dict[Axis, Expr], memory: MemoryType | None, outside: bool = False) -> Environment:
        task = self.tree.place[tv]
        facts: Facts = self.regions.facts
        values: dict[Axis, Expr] = {}
        guards: list[Expr] = []
        tails: list[Expr] = []
        atoms = atom_symbols(tv)
        for a in tv.loop:
            ptype = tv.schedule.ptype(a)
            if ptype.is_loop and a in loops:
                values[a] = loops[a]
                facts = facts.with_range(str(loops[a]), 0, a.extent - 1)
            elif a in atoms:
                values[a] = sym(atoms[a])
                facts = facts.with_range(atoms[a], 0, a.extent - 1)
        for p in INDEX_TYPES:
            region = self.regions.region(task, p)
            own = digits(tv, p)
            name = base_name(p, task)
            private = memory is None or memory.is_private_to(p)
            if outside and own and all(a.is_reduction for a in own):
                facts = facts.with_range(name, 0, simplify(region.extent - 1, self.regions.facts))
                if not private and region.extent is not const(1):
                    guards.append(eq(sym(name), 0))
            elif own:
                extent = product(own)
                facts = facts.with_range(name, 0, simplify(extent - 1, self.regions.facts))
                if not prove(lt(region.extent - 1, extent), self.regions.facts):
                    guards.append(lt(sym(name), extent))
                for a, value in digit_values(own, sym(name), facts).items():
                    values[a] = value
                    if (a.is_foreign or (outside and a.is_reduction)) and not private:
                        guards.append(eq(value, 0))
            elif private:
                facts = facts.with_range(name, 0, simplify(region.extent - 1, self.regions.facts))
            else:
                facts = facts.with_range(name, 0, 0)
                if region.extent is not const(1):
                    guards.append(eq(sym(name), 0))
        start = values
        values = backward(tv, values)
        first, again = self._first_of_others(tv, values, memory, facts)
        guards += first
        bounded = self._bounded(tv, loops)
        for t in bounded:
            if t.source in values and not t.source.is_foreign:
                facts = facts.with_assumption(lt(values[t.source], t.source.extent))
        whole, early = self._of_work(tv, values), list[Expr]()
        implied = {t.outer for t in whole}
        cut = self._cut(tv, loops)
        for t in whole:
            rest = self._bound(values[t.source], t.source.extent, facts)
            early += [] if cut else rest
            for condition in rest:
                facts = facts.with_assumption(condition)
        inside = self._merged(tv, start, values, facts)
        if all(a in values for a in tv.logical):
            for a, v in forward(tv, tuple(values[a] for a in tv.logical), facts).items():
                values.setdefault(a, v)
        for t in tv.schedule.transforms:
            match t:
                case Split() if t in bounded or t in whole or (whole and t.source in implied):
                    pass
                case Split(source=source) if source.is_foreign or (outside and source.is_reduction):
                    pass
                case Split(source=source) if source in values and not self._covers(t):
                    rest = self._remainder(tv, source, values[source], facts, inside)
                    tails += rest
                    guards += rest
                case Rasterize() if t.has_holes:
                    for source in t.sources:
                        if source in values and not (source.is_foreign or (outside and source.is_reduction)):
                            guards += self._bound(values[source], source.extent, facts)
                case Resize(source=source) if source in values:
                    guards += self._bound(values[source], source.extent, facts)
                    if not prove(ge(values[source], 0), facts):
                        guards.append(ge(simplify(values[source], facts), 0))
                case _:
                    pass
        # The indices are simplified without the guards: which axes storage keeps must not depend on what guards cut off.
        guards = early + guards
        values = {a: simplify(v, facts) for a, v in values.items()}
        fills = pads(self.fusion, tv)
        beyond = facts if fills else None
        anywhere = facts
        for guard in early:
            anywhere = anywhere.with_assumption(guard)
        for guard in guards:
            facts = facts.with_assumption(guard)
            if beyond is not None and guard not in tails:
                beyond = beyond.with_assumption(guard)
        return Environment(values, facts, tuple(dict.fromkeys(guards)), tuple(early), tuple(dict.fromkeys(tails)) if fills else (), beyond, anywhere, again)

    def _first_of_others(self, tv: TensorView, values: dict[Axis, Expr], memory: MemoryType | None, facts: Facts) -> tuple[list[Expr], frozenset[str]]:
        """The conditions under which code is at the first index of the axes that would repeat its writes, and the loops that repeat them nevertheless.

        A loop that an asynchronous copy shares with its readers has a fill of its own in each iteration. Where the index of an axis depends on such
        a loop and on those inside of it, the fill of an iteration may have no first index: the loops inside write elements again.
        """
        shared, inside = frozenset[str](), frozenset[str]()
        if _is_copied(tv):
            names = [self.loop_name(loop) for loop in self.joins.path[tv]]
            shared, inside = frozenset(names[: tv.schedule.inline]), frozenset(names[tv.schedule.inline :])
        conditions: list[Expr] = []
        again = frozenset[str]()
        for a in self._others(tv, memory):
            if a in values:
                free = simplify(values[a], facts).free
                if free.isdisjoint(shared):
                    conditions.append(eq(values[a], 0))
                else:
                    again |= free & inside
        return conditions, again

    def _others(self, tv: TensorView, memory: MemoryType | None) -> list[Axis]:
        """The axes of consumers over which stores to Global memory write an element again: those mixed with own axes and bound, and all loops of a bulk copy.

        So do the loops of an asynchronous copy that it shares with none of its readers. Copies of one thread that are done later, bulk and
        asynchronous ones, are in no order, so that even equal ones must not overlap.
        """
        is_copied = memory is MemoryType.Shared and _is_copied(tv)
        if memory is None or not (memory is MemoryType.Global or is_copied):
            return []
        types = {a: tv.schedule.ptype(a) for a in tv.loop}
        repeated = tv.loop if ParallelType.Bulk in types.values() else tv.loop[tv.schedule.inline :] if is_copied else ()
        written = [a for a, p in types.items() if (p.is_bound and not memory.is_private_to(p)) or (p.is_loop and a in repeated)]
        found = [a for a in written if a.is_foreign and types[a].is_loop]
        around = ancestors(tv, tuple(written))
        for t in tv.schedule.transforms:
            if len(t.inputs) > 1 and not around.isdisjoint(t.outputs) and not all(a.is_foreign for a in t.inputs):
                found += [a for a in t.inputs if a.is_foreign]
        return found

    def _bounded(self, tv: TensorView, loops: dict[Axis, Expr]) -> list[Split]:
        """The splits whose remainder is cut off by the bound of a work loop."""
        work = self.work
        if work is None or tv not in self.joins.path:
            return []
        found: list[Split] = []
        for a, loop in zip(tv.loop, self.joins.path[tv], strict=True):
            if a in loops and loops[a] is sym(self.loop_name(loop)) and (t := work.split(tv, a)) is not None and work.trips(loop) is not None:
                found.append(t)
        return found

    def _of_work(self, tv: TensorView, values: dict[Axis, Expr]) -> list[Split]:
        """The splits with a remainder of an axis of work, where a loop that distributes it leaves some of the last pieces empty."""
        work = self.work
        if work is None or tv not in self.joins.path or not any(work.distributes(loop) for loop in self.joins.path[tv]):
            return []
        made = {a for t in tv.schedule.transforms if isinstance(t, Rasterize) for a in t.outputs}
        implied: set[Axis] = set()  # an index within its axis makes the outer index of a split one within the outer axis
        found: list[Split] = []
        for t in tv.schedule.transforms:
            if isinstance(t, Split) and t.source in made:
                made.update(t.outputs)
                if t.source in values and not self._covers(t):
                    if t.source not in implied:
                        found.append(t)
                    implied.add(t.outer)
        return found

    def _cut(self, tv: TensorView, loops: dict[Axis, Expr]) -> bool:
        """True inside of a loop that runs no trips for an empty piece of work."""
        work = self.work
        if work is None or tv not in self.joins.path:
            return False
        around = zip(tv.loop, self.joins.path[tv], strict=True)
        return any(a in loops and loops[a] is sym(self.loop_name(loop)) and work.is_cut(loop) for a, loop in around)

    def trips(self, loop: Loop, extent: Expr, tv: TensorView) -> Expr:
        """The trips of a loop of an extent around code of ``tv``, in hardware indices and the variables of loops around it."""
        if self.work is None:
            return extent
        trips = self.work.trips(loop)
        if trips is not None or not self.work.is_cut(loop):
            return extent if trips is None else trips
        facts = self.regions.facts
        values: dict[Axis, Expr] = {}
        for a, other in zip(tv.loop, self.joins.path[tv], strict=True):
            ptype = tv.schedule.ptype(a)
            if ptype.is_loop:
                values[a] = sym(self.loop_name(other))
                facts = facts.with_range(str(values[a]), 0, a.extent - 1)
            elif ptype.is_bound:
                index = hardware_index(ptype) - self.regions.region(self.tree.place[tv], ptype).start
                values[a] = digit_values(digits(tv, ptype), simplify(index, facts), facts)[a]
        values = backward(tv, values)
        rest = [c for t in self._of_work(tv, values) for c in self._bound(values[t.source], t.source.extent, facts)]
        return simplify(select(and_(*rest), extent, 0), facts) if rest else extent

    def _indexes_registers(self, tv: TensorView, loop: Loop) -> bool:
        """True if code of ``tv`` finds elements of a Local tensor, or its accumulators, by the index of a loop."""
        expr = self.fusion.definition(tv)
        assert expr is not None
        env = self.reading_environment(tv)
        found = [self.read(tv, env, o)[0] for o in storage_operands(self.fusion, expr) if isinstance(o, Read) and self.memory[o.tensor] is MemoryType.Local]
        if self.memory[tv] is MemoryType.Local or isinstance(expr, Reduction):
            found.append(self.write(tv, env, MemoryType.Local, tv.name))
        return any(self.loop_name(loop) in e.free for access in found for e in access.index)

    def _covers(self, t: Split) -> bool:
        """True if the split divides, so that it makes no index out of range."""
        return prove(eq(t.outer.extent * t.inner.extent, t.source.extent), self.regions.facts)

    def _merged(self, tv: TensorView, start: dict[Axis, Expr], values: dict[Axis, Expr], facts: Facts) -> tuple[dict[Axis, Expr], Facts]:
        """The indices once more, with a symbol of its own for each axis that was merged and whose index, a quotient, stays within its extent.

        What is proved of them holds of ``values``; the prover finds in two steps what it does not find in one. Tile axes of a work axis
        are named, too: its maps are a bijection, so that they stay within their extents where there are as many work items as tiles.
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

    def _remainder(self, tv: TensorView, source: Axis, value: Expr, facts: Facts, inside: tuple[dict[Axis, Expr], Facts]) -> list[Expr]:
        """The guard of a split with a remainder; of an atom that fills or clips, only that of its first element."""
        atom = tv.schedule.atom
        within = {name: ZERO for name in atom_symbols(tv).values() if name in value.free}
        if atom is not None and atom.bounds is Bounds.COVER and (within or self._is_outside(tv, source)):
            self._check_neutral(tv, source, value, facts)
            return []
        if atom is None or atom.bounds in (Bounds.PREDICATE, Bounds.ZERO):
            within = {}
        elif within and atom.bounds is Bounds.CLIP and source not in tv.logical:
            raise refused(
                tv,
                f"its atom {atom.name} clips at the end of the tensor, and its tile overhangs an axis of {source.extent} inside of it",
                "split by divisors, or split the tensor's own axis",
            )
        if atom is not None and atom.bounds in (Bounds.FILL, Bounds.CLIP) and self._is_outside(tv, source):
            return []
        same, ranged = inside
        if source in same and prove(lt(substitute(same[source], within), source.extent), ranged):
            return []
        return self._bound(substitute(value, within), source.extent, facts)

    def _is_outside(self, tv: TensorView, source: Axis) -> bool:
        """True if an index past the end of ``source`` makes all of an atom's tile lie past the end of the tensor: then it reads 0, or writes nothing."""
        outer = {t.outer: t for t in tv.schedule.transforms if isinstance(t, Split)}
        while source not in tv.logical and source in outer:
            source = outer[source].source
        return source in tv.logical and any(source in ancestors(tv, (a,)) for a in tv.schedule.atom_axes)

    def _check_neutral(self, tv: TensorView, source: Axis, value: Expr, facts: Facts) -> None:
        """An atom that covers its whole tile adds nothing past the end of a reduction axis: all its operands are filled there."""
        expr = self.fusion.definition(tv)
        if not source.is_reduction or prove(lt(value, source.extent), facts) or not isinstance(expr, Reduction):
            return
        for read in storage_operands(self.fusion, expr):
            if not isinstance(read, Read) or not is_zero_past_the_end(self.fusion, read.tensor):
                name = read.tensor.name if isinstance(read, Read) else "an operand"
                raise refused(
                    tv,
                    f"its atom computes whole tiles, the reduction axis of {source.extent} may end inside of one, and {name} is not filled with 0 there",
                    "copy its operands (cache_after) to Shared memory, or declare the extent with tf.dim(..., multiple_of=...)",
                )

    def _bound(self, value: Expr, extent: Expr, facts: Facts) -> list[Expr]:
        cond = lt(simplify(value, facts), extent)
        return [] if prove(cond, facts) else [cond]

    def point(self, tv: TensorView, env: Environment) -> dict[str, Expr]:
        """The symbols of an op map at the place of an environment."""
        return {f"i{k}": env.values[a] for k, a in enumerate(tv.root) if a in env.values} | {
            str(value_symbol(k)): s for k, s in enumerate(self.value_symbols(tv))
        }

    def value_symbols(self, tv: TensorView) -> tuple[Expr, ...]:
        """The symbols of the values that a gather reads, in its statement."""
        expr = self.fusion.definition(tv)
        return tuple(sym(f"{tv.name}.v{k}") for k in range(len(expr.extents))) if isinstance(expr, Gather) else ()

    # -- storage --------------------------------------------------------------------------------------------------------------------

    def kept_axes(self, tv: TensorView, memory: MemoryType | None = None) -> tuple[Axis, ...]:
        """The allocation axes that storage has: not those that a loop left of the inline position or a private index fixes."""
        memory = memory or self.memory[tv]
        if memory is MemoryType.Global and (tv.is_input or tv.is_output):
            return tv.logical
        known = self._kept.get((tv, memory))
        if known is not None:
            return known
        env = self.environment(tv) if memory is self.memory[tv] else self.variant(tv, self.loop_symbols(tv), memory)
        fixed = set(self.fusion.dims)
        fixed |= {base_name(p, self.tree.place[tv]) for p in INDEX_TYPES if memory.is_private_to(p)}
        shared = list(zip(tv.loop, self.joins.path[tv], strict=True))[: tv.schedule.inline]
        fixed |= {self.loop_name(loop) for a, loop in shared if tv.schedule.ptype(a).is_loop}
        if memory is not self.memory[tv]:  # an accumulator lives inside of the loops that stand outside of the reduction loops
            outer = takewhile(lambda pair: not pair[0].is_reduction, zip(tv.loop, self.joins.path[tv], strict=True))
            fixed |= {self.loop_name(loop) for a, loop in outer if tv.schedule.ptype(a).is_loop}
        spreads = tv.schedule.atom is not None and tv.schedule.atom.spreads
        instances = tuple(a for a, _ in shared if tv.schedule.ptype(a).is_bound and not memory.is_private_to(tv.schedule.ptype(a)) and not a.is_foreign)
        bases = fixed | {base_name(tv.schedule.ptype(a), self.tree.place[tv]) for a in instances}
        kept: list[Axis] = []
        # an allocation domain says where the result lies, not the accumulators
        for a in allocation_axes(tv) if memory is self.memory[tv] else default_allocation(tv):
            if a not in env.values:
                raise refused(tv, "its allocation domain is not determined by its loop domain", "derive both from the tensor's own axes")
            if spreads and memory is MemoryType.Local and a not in tv.loop and tv.schedule.ptype(a).is_bound:
                continue  # the atom puts an element into the registers of the index that the axis says
            if not env.values[a].free <= fixed:
                # what loops shared with all readers determine is one element per index that they are bound to
                kept += [x for x in instances if x not in kept] if a not in tv.loop and env.values[a].free <= bases else [a]
            elif memory is MemoryType.Local and tv.schedule.ptype(a).is_bound and a not in tv.loop:
                self._check_owner(tv, tv.schedule.ptype(a), env)
        self._kept[(tv, memory)] = tuple(kept)
        return tuple(kept)

    def _check_owner(self, tv: TensorView, p: ParallelType, env: Environment) -> None:
        """A scalar instruction writes registers of its own thread: the allocation's digits of ``p`` are the writer's index."""
        stored = tuple(a for a in allocation_axes(tv) if tv.schedule.ptype(a) is p)
        owner = ZERO
        for k, a in enumerate(stored):
            owner = owner + env.values[a] * product(stored[k + 1 :])
        if not prove(eq(owner, sym(base_name(p, self.tree.place[tv]))), env.facts):
            raise refused(
                tv,
                f"its allocation puts an element into the registers of index {simplify(owner, env.facts)} of {p.value}, which does not compute it",
                "bind loop and allocation axes alike",
            )

    def loop_symbols(self, tv: TensorView) -> dict[Axis, Expr]:
        """The loop variables around the code of ``tv``."""
        return {a: sym(self.loop_name(loop)) for a, loop in zip(tv.loop, self.joins.path[tv], strict=True)}

    def write(self, tv: TensorView, env: Environment, memory: MemoryType | None = None, name: str | None = None) -> Access:
        """The access that writes the element of ``tv`` at the place of an environment of its own."""
        if tv in self.placed and name is None:
            return self._in_assembly(tv, tuple(env.values[a] for a in tv.logical), env.facts)
        slot = self._ring(tv, tv) if name is None else ()
        return Access(name or tv.name, self._registers(tv, slot, tuple(env.values[a] for a in self.kept_axes(tv, memory)), env.facts, memory))

    def in_order(self, tv: TensorView, memory: MemoryType | None = None) -> bool:
        """True if an atom names registers of ``tv`` by their first: they then have one number each, row-major."""
        if (memory or self.memory[tv]) is not MemoryType.Local:
            return False
        atoms = [u.output.schedule.atom for u in storage_uses(self.fusion, tv)]
        own = tv.schedule.atom
        return (own is not None and own.spreads) or any(a is not None and a.gathers for a in atoms)

    def _registers(self, tv: TensorView, slot: tuple[Expr, ...], index: tuple[Expr, ...], facts: Facts, memory: MemoryType | None = None) -> tuple[Expr, ...]:
        """The index in the storage of ``tv`` with what names a slot of it, if it is a ring."""
        if not self.in_order(tv, memory):
            return (*slot, *(simplify(e, facts) for e in index))
        place = slot[0] if slot else ZERO
        for e, a in zip(index, self.kept_axes(tv, memory), strict=True):
            place = place * a.extent + e
        return (simplify(place, facts),)

    def _in_assembly(self, tv: TensorView, index: tuple[Expr, ...], facts: Facts) -> Access:
        """The element of a part of an assembly: a place in the storage of the whole."""
        while tv in self.placed:
            tv, place = self.placed[tv]
            point = {f"i{k}": e for k, e in enumerate(index)}
            index = tuple(simplify(substitute(e, point), facts) for e in place)
        return Access(tv.name, index)

    def _ring(self, tv: TensorView, user: TensorView) -> tuple[Expr, ...]:
        slot = self.slot(tv, self.tree.place[user])
        return () if slot is None else (slot,)

    def read(self, consumer: TensorView, env: Environment, read: Read) -> tuple[Access, Expr]:
        """The access of one operand, and the condition under which the operand is valid."""
        tv = read.tensor
        point = self.point(consumer, env)
        valid = simplify(substitute(read.valid, point), env.facts)
        facts = env.facts if isinstance(valid, Const) else env.facts.with_assumption(valid)
        expr = self.fusion.definition(consumer)
        if isinstance(expr, Gather) and _has_values(read):
            for symbol, extent in zip(self.value_symbols(consumer), expr.extents, strict=True):
                facts = facts.with_range(str(symbol), 0, extent - 1)
        logical = tuple(simplify(substitute(e, point), facts) for e in read.index)
        if tv in self.placed:
            return self._in_assembly(tv, logical, facts), valid
        if tv.is_input or tv.is_output or isinstance(tv.definition, Assemble):
            return Access(tv.name, logical), valid
        if all(iteration_position(e) is not None for e in read.index):
            # what a condition says of an index, such as i == 0, would hide that the loops of both are the same
            facts = env.facts
            logical = tuple(simplify(substitute(e, point), facts) for e in read.index)
        values = forward(tv, logical, facts)
        for a, b in list(zip(tv.loop, consumer.loop, strict=False))[: tv.schedule.inline]:
            if b in env.values and a not in values:
                values[a] = env.values[b]
        missing = [a for a in self.kept_axes(tv) if a not in values]
        if missing:
            raise refused(tv, f"{consumer.name} cannot find its elements: the allocation domain has no forward map", "use split, merge or swizzle")
        return Access(tv.name, self._registers(tv, self._ring(tv, consumer), tuple(values[a] for a in self.kept_axes(tv)), facts)), valid


def _is_copied(tv: TensorView) -> bool:
    """True if asynchronous copies of threads make a tensor."""
    return tv.schedule.atom is not None and tv.schedule.atom.instruction is Instruction.CP_ASYNC


def _has_values(read: Read) -> bool:
    """True if the index of a read depends on data: it has symbols of values."""
    return any(is_map_symbol(name) and name[0] == "v" for e in read.index for name in e.free)
