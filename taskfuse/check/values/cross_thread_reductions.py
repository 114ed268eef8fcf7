"""The threads whose partial results a thread holds after a cross-thread reduction: the combining steps, executed for all threads of a block at once.

Shuffles, trees over Shared memory and slots of warps are straight-line code over registers and workspaces. Each register and each element of a workspace
holds a set of threads: those whose accumulators are in it. A step joins two disjoint sets, and what it reads has been written.
Workspaces in Global memory also hold the partial results of all blocks along a digit of the block index: a loop takes each of these once.

Where an extent of the block is symbolic, the steps are those of the largest block (:mod:`taskfuse.check.values.block_threads`). In a block of extent
``n``, each place holds what it holds there but for the threads from ``n`` on. By induction over the steps: a statement of thread ``t`` under conditions
``e < n`` is executed if ``n > u``, the largest of ``t`` and all ``e``. What it reads must have been written wherever ``n > u``. Where ``n <= u``, the
place that it writes keeps what it held, so of the threads below ``u`` it must hold the same before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from taskfuse.check.bounded_variables import Trip
from taskfuse.check.constraints import Constraints
from taskfuse.check.flags import all_of, any_of, filled, numbers_of, ones, spread
from taskfuse.check.statement_tree import BLOCK_NAMES, BLOCKS, THREAD_NAMES, Node, StatementBlock
from taskfuse.check.tables import numbered
from taskfuse.check.values.block_threads import BlockThreads
from taskfuse.check.values.claims import taken
from taskfuse.check.values.neutral_terms import neutral_of, partial_start, set_to
from taskfuse.check.values.partial_results import Bools, Ints, SharedSets, ThreadSets, Words, writers_of
from taskfuse.check.values.questions import equal, proves
from taskfuse.check.values.solve import Open, solved
from taskfuse.check.values.written import BufferStorage, W, is_said_alike, written_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.scalar import Const, Expr, Sym, conjuncts, const, ge, lt, ne, simplify, substitute, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir import held
from taskfuse.kir.nodes import Compute, For, If
from taskfuse.kir.operands import Access, Content, Immediate
from taskfuse.kir.products import Shuffle
from taskfuse.kir.witness import Definition, Reduce

STEPS = 4096
COPY = ELEMENTWISE["copy"]


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """The partial results of a reduction that threads have.

    Attributes:
        members: for each thread, the threads whose accumulators it has: ``[threads, threads]``; the first of threads that take the same terms stands for all.
        blocks: block indices, by the variables of the loops that have taken partial results of blocks, and the ranges of these.
        assumed: conditions that must hold for all members of a thread alike.
        threads: the threads of a block.
    """

    threads: BlockThreads
    members: Bools
    blocks: Mapping[str, Expr]
    spans: Mapping[str, tuple[Expr, Expr]]
    assumed: tuple[Expr, ...]


class CrossThreadReductions:
    """The steps that join the partial results of one reduction."""

    def __init__(
        self,
        definition: Definition,
        accumulator: str,
        others: frozenset[str],
        storages: Mapping[str, BufferStorage],
        threads: BlockThreads,
        constraints: Constraints,
    ) -> None:
        assert isinstance(definition.rule, Reduce)
        self.rule = definition.rule
        self.tensor = definition.tensor
        self.accumulator = accumulator
        self.others = others
        self.storages = storages
        self.constraints = constraints
        self.threads = threads
        self.count = threads.count
        self.along: Ints = threads.index[threads.along] if threads.along else np.zeros(self.count, np.int64)
        self.words = (self.count + 63) // 64
        self.registers: dict[tuple[str, tuple[int, ...]], ThreadSets] = {}
        self.shared: dict[str, SharedSets] = {}
        self.workspace: dict[str, list[tuple[tuple[Expr, ...], ThreadSets]]] = {}
        self.assumed: dict[Expr, None] = {}
        self.under: frozenset[Expr] = frozenset()  # conditions around the statement at hand that are not of threads alone
        self.above = self.along  # each thread executes it in blocks of a greater extent
        self.steps = 0
        self.first, self.last = 0, 0
        self.reader: Node | None = None
        self.staying: set[Node] = set()  # the statements whose conditions are at the reader what they were
        self.alike = np.arange(self.count, dtype=np.int64)
        self.takers = ones(self.count)
        self.numbers: dict[tuple[int, ...], int] = {}

    def take(self, keys: list[Ints], takers: Bools) -> None:
        """Threads with equal keys take the same terms: their accumulators are one partial result, that of the first of them.

        Args:
            takers: those that may take a term. The others have neutral elements, which may be joined any number of times.
        """
        self.takers = takers
        if keys:
            numbers = spread(numbered((key, key) for key in keys)[0], self.count)
            _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
            self.alike = first[inverse.reshape(-1)].astype(np.int64)
            if (self.along[self.alike] > self.along).any():
                raise Open("threads take the same terms, of which not all exist in a smaller block")

    def run(self, nodes: Iterator[Node], conditions: tuple[Expr, ...], first: Node, reader: Node) -> None:
        """Execute the steps inside statements between a term and a reader, under the conditions around all of them. Raises :class:`Open`."""
        self.first, self.last, self.reader = first.number, reader.number, reader
        mask, self.under, self.above = self._mask(conditions, {})
        for node in nodes:
            self._node(node, {}, mask)

    def result(self, index: tuple[int, ...], reader: Node, given: Iterable[Expr] = ()) -> Joined:
        """The contents of each thread's accumulator, where it is read under the conditions ``given``. Raises :class:`Open`."""
        cells = self._own(index)
        if (cells.known & (cells.of >= 0) & (cells.of != self.numbers.get(index, -1))).any():
            raise Open("an accumulator holds joined partial results of another element", reader)
        trips = (Trip(sym(n), start, stop, ()) for n, (start, stop) in cells.spans.items())
        there = self.constraints.given(*trips, *given)
        for part in sorted(cells.under, key=str):  # of all whose results it has: ``assumed`` has what is known of their threads
            if not proves(there, part):
                raise Open(f"partial results are joined under {part}, which is not known to hold for all of them", reader)
        bits = np.unpackbits(cells.sets.view(np.uint8), axis=1, bitorder="little")[:, : self.count].astype(np.bool_)
        bits[~cells.known] = False
        return Joined(self.threads, bits, cells.blocks, cells.spans, tuple(self.assumed))

    def _own(self, index: tuple[int, ...]) -> ThreadSets:
        """The accumulators before any step: each thread has its own. That each is set before it is joined is checked elsewhere."""
        found = self.registers.get((self.accumulator, index))
        if found is None:
            sets = np.zeros((self.count, self.words), np.uint64)
            t = np.arange(self.count)
            sets[t, self.alike // 64] = np.uint64(1) << (self.alike % 64).astype(np.uint64)
            sets[~self.takers] = 0
            of = filled(self.count, self.numbers.setdefault(index, len(self.numbers)))
            found = self.registers[self.accumulator, index] = ThreadSets(sets, ones(self.count), of, self.along, {}, {})
        return found

    # -- control --------------------------------------------------------------------------------------------------------------------

    def _node(self, node: Node, env: dict[str, int], mask: Bools) -> None:
        stmt = node.stmt
        if isinstance(stmt, For):
            if not any(self._is_mine(n) for n in _leaves(node.blocks[0])):
                return
            ends = [self._constant(e, env) for e in (stmt.start, stmt.stop, stmt.step)]
            if self._takes_blocks(node, env, mask):
                return
            start, stop, step = ends
            if start is None or stop is None or not step:
                raise Open("a loop that joins partial results has an unknown number of trips", node)
            for value in range(start, stop, step):
                self._body(node.blocks[0], {**env, stmt.var: value}, mask)
        elif isinstance(stmt, If):
            for arm in node.blocks:
                if not any(self._is_mine(n) for n in _leaves(arm)):
                    continue
                own, under, above = self._mask(arm.context.conditions[len(node.block.context.conditions) :], env)
                around = self.under, self.above
                self.under, self.above = self.under | under, np.maximum(self.above, above)
                self._body(arm, env, mask & own)
                self.under, self.above = around
        elif self._is_mine(node):
            self._execute(node, env, mask)

    def _body(self, block: StatementBlock, env: dict[str, int], mask: Bools) -> None:
        for node in block.nodes:
            self._node(node, env, mask)

    def _is_mine(self, node: Node) -> bool:
        holds = held(node.stmt)
        return holds is not None and holds.tensor == self.tensor and holds.content is Content.PART and self.first < node.number < self.last

    def _mask(self, conditions: Iterable[Expr], env: Mapping[str, int]) -> tuple[Bools, frozenset[Expr], Ints]:
        """The threads at which conditions on threads hold, the other conditions, and above which extent of the block each thread exists and these hold."""
        found = ones(self.count)
        others: set[Expr] = set()
        above = self.along
        for c in conditions:
            for part in conjuncts(c):
                part = self._at(part, env)
                needed = self.threads.needed(part)
                if needed is not None:
                    found = found & (needed <= self.along.max())
                    above = np.maximum(above, needed)
                elif self.threads.says(part):
                    found = found & self.threads.values(part).astype(np.bool_)
                else:
                    others.add(part)
                    if not part.free.isdisjoint(self.threads.index):
                        self.assumed[part] = None
        return found, frozenset(others), above

    @staticmethod
    def _at(e: Expr, env: Mapping[str, int]) -> Expr:
        return substitute(e, {n: const(v) for n, v in env.items()}) if not e.free.isdisjoint(env) else e

    def _constant(self, e: Expr, env: Mapping[str, int]) -> int | None:
        e = simplify(self._at(e, env), self.constraints.facts)
        return e.value if isinstance(e, Const) else None

    def _stays(self, node: Node) -> None:
        """Cursors in the conditions around a step are at the reader what they were, for all threads and blocks. Raises :class:`Open`."""
        if node in self.staying:
            return
        if self.reader is not None and not is_said_alike(node, self.reader, (), MemoryType.Global):
            raise Open("partial results are joined under a condition on a cursor, which may move before they are read", node, self.reader)
        self.staying.add(node)

    # -- statements -----------------------------------------------------------------------------------------------------------------

    def _execute(self, node: Node, env: dict[str, int], mask: Bools) -> None:
        self.steps += 1
        if self.steps > STEPS:
            raise Open("joining partial results takes too many steps", node)
        stmt = node.stmt
        self._stays(node)
        match stmt:
            case Shuffle():
                value = self._read(node, stmt.source, env, mask)
                lanes = np.arange(self.count) ^ stmt.mask
                if not self.threads.is_whole_warps:
                    raise Open("a shuffle in a block that is not whole warps", node)
                moved = ThreadSets(value.sets[lanes], value.known[lanes], value.of[lanes], value.above[lanes], value.blocks, value.spans, value.under)
                self._write(node, stmt.out, env, mask, moved)
            case Compute(op=op, operands=(Immediate(),)) if op is COPY:
                start = set_to(stmt, self.rule.dtype)
                if start is None or not any(is_same_number(start, known) for known in (neutral_of(self.rule), partial_start(self.rule))):
                    raise Open(f"partial results start with {start}", node)
                sets, nobody = np.zeros((self.count, self.words), np.uint64), filled(self.count, -1)
                none = ThreadSets(sets, ones(self.count), nobody, self.along, {}, {})
                self._write(node, stmt.out, env, mask, none)
            case Compute(op=op, operands=(Access() as a,)) if op is COPY:
                self._write(node, stmt.out, env, mask, self._read(node, a, env, mask))
            case Compute(op=op, out=out, operands=(Access() as a, Access() as b)) if op is self.rule.combine.op:
                step = taken(stmt, self.rule.combine)
                if isinstance(step, Access) and self._is_shared_by_blocks(step):
                    self._of_blocks(node, out, step, env, mask, {})
                elif self._is_shared_by_blocks(b):
                    raise Open("it joins a partial result of another block with more than its own", node)
                else:
                    self._write(node, out, env, mask, self._sum(node, self._read(node, a, env, mask), self._read(node, b, env, mask), mask))
            case _:
                raise Open("it is not a step that joins partial results", node)
        if isinstance(stmt, Compute) and stmt.dtype is not self.rule.dtype:
            raise Open(f"it joins partial results in {stmt.dtype}", node)

    def _is_shared_by_blocks(self, access: Access) -> bool:
        return MEDIA[self.storages[access.buffer].memory].reach in (Reach.CLUSTER, Reach.GRID)

    def _sum(self, node: Node, a: ThreadSets, b: ThreadSets, mask: Bools) -> ThreadSets:
        full = a
        if not a.is_of_blocks(b.blocks, b.spans):
            full = a if any_of(a.sets[mask]) else b
            if full is a and any_of(b.sets[mask]):
                raise Open("it joins results of other blocks with its own", node)
        common = a.sets & b.sets
        if any_of(common) and (both := common.any(axis=1) & a.known & b.known & mask).any():
            t = int(numbers_of(both)[0])
            s = int(numbers_of(np.unpackbits((a.sets[t] & b.sets[t]).view(np.uint8), bitorder="little"))[0])
            raise Open(f"thread {t} joins the partial result of thread {s} twice", node)
        apart = a.of != b.of
        if any_of(apart) and (mask & (a.of >= 0) & (b.of >= 0) & apart).any():
            raise Open("it joins partial results of different elements", node)
        return ThreadSets(a.sets | b.sets, a.known & b.known, np.maximum(a.of, b.of), self.along, full.blocks, full.spans, a.under | b.under)

    def _index(self, access: Access, env: Mapping[str, int]) -> list[Ints] | None:
        """The index of an element, of each thread; ``None`` if it depends on more."""
        found: list[Ints] = []
        for e in access.index:
            e = self._at(e, env)
            if isinstance(e, Sym) and e.name in self.threads.fixed:  # a plane of the workspace, in which these threads are alone
                e = const(0)
            if not self.threads.says(e):
                return None
            found.append(self.threads.values(e))
        return found

    def _only_parts(self, node: Node, access: Access) -> None:
        """Starts and terms are not steps of joining: of all that they write, only the accumulator is known. Raises :class:`Open`."""
        if access.buffer in self.others:
            raise Open(f"partial results are joined in {access.buffer}, which takes terms of its own", node)

    def _read(self, node: Node, access: Access, env: Mapping[str, int], mask: Bools) -> ThreadSets:
        self._only_parts(node, access)
        index = self._index(access, env)
        if index is None:
            raise Open("the place where it reads partial results depends on more than threads", node)
        if MEDIA[self.storages[access.buffer].memory].is_private:
            if any(map(_varies, index)):
                raise Open("its registers depend on the thread", node)
            key = access.buffer, tuple(int(i[0]) for i in index)
            found = self._own(key[1]) if access.buffer == self.accumulator else self.registers.get(key)
            if found is None:
                raise Open("it reads registers that were never written", node)
        else:
            found = self._gathered(access, index, mask)
        if not all_of(found.known[mask]):
            t = int(numbers_of(mask & ~found.known)[0])
            raise Open(f"thread {t} reads a partial result that was never written", node)
        if self.threads.along and (late := mask & (found.above > self.above)).any():
            t = int(numbers_of(late)[0])
            raise Open(f"thread {t} reads a partial result that nobody has written in a smaller block", node)
        return found

    def _gathered(self, access: Access, index: list[Ints], mask: Bools) -> ThreadSets:
        cells = self.shared.get(access.buffer)
        of, above = filled(self.count, -1), np.zeros(self.count, np.int64)
        if cells is None:
            return ThreadSets(np.zeros((self.count, self.words), np.uint64), np.zeros(self.count, np.bool_), of, above, {}, {})
        if all(not any(i.strides) for i in index):  # one number, spread over the threads
            place = cells.place([int(i[0]) for i in index])
            if place is not None:
                of[:], above[:] = cells.of[place], cells.above[place]
                sets = np.broadcast_to(cells.sets[place], (self.count, self.words))
                return ThreadSets(sets, ones(self.count), of, above, *cells.states[int(cells.state[place])])
        sets, known = np.zeros((self.count, self.words), np.uint64), np.zeros(self.count, np.bool_)
        places, threads = cells.read(index, numbers_of(mask))
        sets[threads], known[threads], of[threads], above[threads] = cells.sets[places], True, cells.of[places], cells.above[places]
        states = cells.state[places]
        full = numbers_of(cells.of[places] >= 0)
        last = cells.states[int(states[full[-1]])] if full.size else None
        blocks, spans = ({}, {}) if last is None else last[:2]
        under: set[Expr] = set()
        for k in sorted(set(states.tolist())):
            state = cells.states[int(k)]
            under |= state[2]
            if state[:2] != (blocks, spans):  # of how many blocks they are is one for all threads
                known[threads[full[states[full] == k]]] = False
        return ThreadSets(sets, known, of, above, blocks, spans, frozenset(under))

    def _write(self, node: Node, access: Access, env: Mapping[str, int], mask: Bools, value: ThreadSets) -> None:
        self._only_parts(node, access)
        index = self._index(access, env)
        under = value.under | self.under
        if self._is_shared_by_blocks(access):
            if self.threads.along:
                raise Open("blocks of a symbolic extent store partial results of several threads for other blocks", node)
            place = tuple(self._at(e, env) for e in access.index)
            stored = ThreadSets(value.sets, value.known & mask, value.of, value.above, value.blocks, value.spans, under)
            self.workspace.setdefault(access.buffer, []).append((place, stored))
            return
        if index is None:
            raise Open("the place where it stores partial results depends on more than threads", node)
        if MEDIA[self.storages[access.buffer].memory].is_private:
            if any(map(_varies, index)):
                raise Open("its registers depend on the thread", node)
            key = access.buffer, tuple(int(i[0]) for i in index)
            old = self._own(key[1]) if access.buffer == self.accumulator else self.registers.get(key)
            above = self.above
            if old is not None and self.threads.along:
                before = np.where(old.known, old.above, self.above)
                late = numbers_of(mask & (before < self.above))
                self._same_below(node, late, old.sets[late], value, self.above[late])
                above = np.where(mask, np.minimum(before, self.above), old.above)
            if old is None or all_of(mask):
                self.registers[key] = ThreadSets(value.sets, value.known & mask, value.of, above, value.blocks, value.spans, under)
            else:
                sets = np.where(mask[:, None], value.sets, old.sets)
                known, of = np.where(mask, value.known, old.known), np.where(mask, value.of, old.of)
                full = value if any_of(value.sets[mask]) else old
                if not value.is_of_blocks(old.blocks, old.spans):  # these are one for all threads: what is of others is not known any more
                    known &= ~sets.any(axis=1) | (mask if full is value else ~mask)
                self.registers[key] = ThreadSets(sets, known, of, above, full.blocks, full.spans, under | old.under)
            return
        cells = self.shared.setdefault(access.buffer, SharedSets(len(index), self.words))
        writers = numbers_of(mask)
        try:
            places, first = cells.written(index, writers)
        except IndexError:
            raise Open("the place where it stores partial results is no place of its buffer", node) from None
        if any_of(again := first != writers):
            one, two = first[again], writers[again]
            clash = numbers_of((value.sets[one] != value.sets[two]).any(axis=1) | (value.of[one] != value.of[two]))
            if clash.size:
                raise Open(f"threads {one[clash[0]]} and {two[clash[0]]} put different partial results in one place", node)
        above = self.above[writers]
        if self.threads.along:
            least = np.full(len(cells.state), self.along.max() + 1)
            np.minimum.at(least, places, above)
            above = least[places]
            old = cells.state[places] >= 0
            late = old & (cells.above[places] < above) & (first == writers)
            self._same_below(node, writers[late], cells.sets[places[late]], value, above[late])
            above = np.where(old, np.minimum(above, cells.above[places]), above)
        cells.sets[places], cells.of[places], cells.above[places] = value.sets[writers], value.of[writers], above
        cells.state[places] = len(cells.states)
        cells.states.append((value.blocks, value.spans, under))

    def _same_below(self, node: Node, threads: Ints, old: Words, new: ThreadSets, below: Ints) -> None:
        """What a statement writes is what was there before, of the threads of blocks in which it is not executed. Raises :class:`Open`.

        Args:
            old: what was there, of each of the threads.
            below: the extents of these blocks, of each of the threads.
        """
        if not threads.size:
            return
        changed = np.unpackbits((old ^ new.sets[threads]).view(np.uint8), axis=1, bitorder="little")[:, : self.count].astype(np.bool_)
        lost: Bools = np.asarray((changed & (self.along[None, :] < below[:, None])).any(axis=1))
        if any_of(lost):
            t = int(threads[numbers_of(lost)[0]])
            raise Open(f"thread {t} joins partial results of threads that exist in a block in which it does not", node)

    # -- blocks ---------------------------------------------------------------------------------------------------------------------

    def _takes_blocks(self, node: Node, env: dict[str, int], mask: Bools) -> bool:
        """True for a loop that joins the partial results of the blocks along a digit; each thread takes those of its like in every one of them."""
        loop = node.stmt
        assert isinstance(loop, For)
        inner = [n for n in _leaves(node.blocks[0]) if self._is_mine(n)]
        steps = [(n.stmt.out, a) for n in inner if isinstance(n.stmt, Compute) for a in n.stmt.operands if isinstance(a, Access)]
        steps = [(out, a) for out, a in steps if self._is_shared_by_blocks(a)]
        if not any(_names(a, loop.var) and not _names(out, loop.var) for out, a in steps):  # a loop over elements of a thread, or of none of this
            return False
        if loop.step is not const(1):
            raise Open("a loop over the partial results of blocks has an unknown form", node)
        spans = {loop.var: (self._at(loop.start, env), self._at(loop.stop, env))}
        for leaf, at in self._elements(node.blocks[0], env):
            found = taken(leaf.stmt, self.rule.combine) if isinstance(leaf.stmt, Compute) else None
            if not (isinstance(leaf.stmt, Compute) and isinstance(found, Access) and self._is_shared_by_blocks(found) and _names(found, loop.var)):
                raise Open("a loop over the partial results of blocks has an unknown form", leaf)
            self._stays(leaf)
            own, under, _ = self._mask(leaf.context.conditions[len(node.block.context.conditions) :], at)
            around, self.under = self.under, self.under | under
            self._of_blocks(leaf, leaf.stmt.out, found, at, mask & own, spans)
            self.under = around
        return True

    def _elements(self, block: StatementBlock, env: dict[str, int]) -> Iterator[tuple[Node, dict[str, int]]]:
        """The steps inside a loop over blocks, once for each element that a thread joins in a trip of it, and what loops over elements are at."""
        for node in block.nodes:
            if self._is_mine(node):
                self.steps += 1
                if self.steps > STEPS:
                    raise Open("joining partial results takes too many steps", node)
                yield node, env
            elif isinstance(node.stmt, For) and any(self._is_mine(n) for n in _leaves(node.blocks[0])):
                start, stop, step = (self._constant(e, env) for e in (node.stmt.start, node.stmt.stop, node.stmt.step))
                if start is None or stop is None or not step:
                    raise Open("a loop that joins partial results has an unknown number of trips", node)
                for value in range(start, stop, step):
                    yield from self._elements(node.blocks[0], {**env, node.stmt.var: value})
            else:
                for arm in node.blocks:
                    yield from self._elements(arm, env)

    def _of_blocks(self, node: Node, out: Access, b: Access, env: dict[str, int], mask: Bools, spans: dict[str, tuple[Expr, Expr]]) -> None:
        """The partial results of some blocks, one of each value of ``spans``."""
        before = self._read(node, out, env, mask)
        if any_of(before.sets[mask]):
            raise Open("it joins the results of all blocks with its own", node)
        wanted = tuple(self._at(e, env) for e in b.index)
        unknown = {W + n: (const(0), const(1 << 30)) for n in (*BLOCKS, *THREAD_NAMES)}
        rename = {n: written_symbol(n) for n in (*BLOCKS, *THREAD_NAMES)}
        facts = self.constraints.about(const(0))[0].facts  # of any thread and block
        around = self.constraints.given(*(Trip(sym(n), start, stop, ()) for n, (start, stop) in spans.items()))
        for place, cells in reversed(self.workspace.get(b.buffer, [])):
            if any(x is not y and isinstance(x, Const) and isinstance(y, Const) for x, y in zip(place, wanted, strict=True)):
                continue  # as below, without asking each thread
            of_threads = [k for k, (x, y) in enumerate(zip(place, wanted, strict=True)) if self.threads.says(x) and self.threads.says(y)]
            here, there = ([self.threads.values(index[k]) for k in of_threads] for index in (place, wanted))
            writers, apart = writers_of(here, there, cells)
            if (writers[mask] < 0).all():  # all that this stores lies elsewhere
                continue
            pairs = [(x, y) for k, (x, y) in enumerate(zip(place, wanted, strict=True)) if k not in of_threads]
            if MEDIA[self.storages[b.buffer].memory].is_by_rank:  # they are of one cluster
                clusters = [sym(name) // extent for name, extent in zip(BLOCK_NAMES, node.context.kernel.cluster, strict=True)]
                pairs += [(e, e) for e in clusters]
            equations = [(substitute(x, rename), y) for x, y in pairs]
            found, left = solved(equations, unknown, lambda e: simplify(e, facts))
            fixed = [(x, y) for x, y in left if x.free.isdisjoint(unknown)]
            if any(proves(around, ne(x, y)) for x, y in fixed):
                continue
            for x, y in fixed:
                if not equal(around, x, y):
                    raise Open(f"whether the place that is read at {y} is the one that is written at {x} is not known", node)
            if left and any(not x.free.isdisjoint(unknown) for x, _ in left):
                raise Open("the threads whose partial results it takes are unknown", node)
            moved = {n.removeprefix(W): e for n, e in found.items() if e is not sym(n.removeprefix(W))}
            others = {n for n in THREAD_NAMES if W + n in found and (n in moved or n not in self.threads.fixed)}  # than the one unknown number
            if others or any(not e.free.isdisjoint(unknown) for e in moved.values()):
                raise Open("whose partial results it takes depends on blocks and threads together", node)
            if (writers[mask] < 0).any():
                raise Open("it reads partial results that were never written", node)
            if apart is not None:
                raise Open(f"threads {apart[0]} and {apart[1]} put different partial results in one place", node)
            self._exist(node, moved, spans)
            under = before.under.union(substitute(c, moved) for c in cells.under)
            if cells.blocks:
                moved = {**{n: substitute(e, moved) for n, e in cells.blocks.items()}, **moved}
            taken_there = ThreadSets(cells.sets[writers], writers >= 0, cells.of[writers], self.along, moved, {**cells.spans, **spans}, under)
            self._write(node, out, env, mask, taken_there)
            return
        raise Open("it reads partial results that were never written", node)

    def _exist(self, node: Node, moved: Mapping[str, Expr], spans: Mapping[str, tuple[Expr, Expr]]) -> None:
        """The blocks whose partial results are taken are blocks of the grid. Raises :class:`Open`."""
        there = self.constraints.given(*(Trip(sym(n), start, stop, ()) for n, (start, stop) in spans.items()))
        grid = dict(zip(BLOCK_NAMES, node.context.kernel.grid, strict=True))
        for name, e in moved.items():
            if not (proves(there, ge(e, 0)) and proves(there, lt(e, grid[name]))):
                raise Open(f"it takes partial results of blocks that may not exist: {name} = {e}", node)


def _varies(values: Ints) -> bool:
    """True if the values of threads differ; one number may be spread over them."""
    return any(values.strides) and any_of(values != values[0])


def _names(access: Access, name: str) -> bool:
    """True if a symbol is in the index of an access."""
    return any(name in e.free for e in access.index)


def _leaves(block: StatementBlock) -> Iterator[Node]:
    for node in block.nodes:
        if node.blocks:
            for inner in node.blocks:
                yield from _leaves(inner)
        else:
            yield node
