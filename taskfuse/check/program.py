"""The kernel as a tree of nodes that know what holds around them: conditions, loops, the statements before and after.

Loops without code vanish, and so do those that never have an iteration, or always one; unrolled loops that hold asynchronous operations are copied out, as they
will be; an arm of a chain also carries the negations of the arms before it, where its own condition does not imply them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from taskfuse.check.knowledge import Element, Knowledge, Trip
from taskfuse.check.ranges import Ranges
from taskfuse.ir.scalar import ONE, TRUE, And, Const, Expr, Facts, const, ge, lt, not_, simplify, substitute, sym
from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES, THREAD_TYPES
from taskfuse.kir import Kernel, barrier_slots, bodies, expressions, map_expressions, map_stmts, stmt_text, walk, with_bodies
from taskfuse.kir.limits import WARP, WARPGROUP
from taskfuse.kir.nodes import (
    Bind,
    Choose,
    Commit,
    CursorInit,
    For,
    HostParam,
    If,
    LdMatrix,
    Mma,
    Operand,
    Queue,
    Retire,
    SetMaxNReg,
    Shuffle,
    StMatrix,
    Stmt,
    TmaLoad,
    TmaStore,
    Wgmma,
    WgmmaFence,
)

THREAD_NAMES = tuple(p.index_name for p in THREAD_TYPES)
BLOCK_NAMES = tuple(p.index_name for p in BLOCK_TYPES)
THREADS = frozenset(THREAD_NAMES)
BLOCKS = frozenset(BLOCK_NAMES)
CLUSTER_NAMES = tuple(p.index_name for p in CLUSTER_TYPES)
CLUSTERS = frozenset(CLUSTER_NAMES)
UNROLL_LIMIT = 64
QUEUED = (Commit, Retire, LdMatrix, StMatrix, TmaLoad, TmaStore, Wgmma)


@dataclass(slots=True, eq=False)
class Context:
    """What holds in a block of statements.

    Attributes:
        conditions: conjuncts of the arms around it, outermost first.
        loops: the loops around it, outermost first.
        knowledge: what follows; ``ranges`` are its constant bounds.
        role: label of the innermost labelled arm.
        limits: symbolic bounds of indices and loop variables, as far as they were asked for.
    """

    conditions: tuple[Expr, ...]
    loops: tuple[Node, ...]
    knowledge: Knowledge
    role: str
    kernel: Kernel
    limits: dict[str, tuple[list[Expr], list[Expr]]] = field(default_factory=lambda: dict[str, tuple[list[Expr], list[Expr]]]())
    ranges: Ranges = field(init=False)

    def __post_init__(self) -> None:
        self.ranges = self.knowledge.ranges

    @property
    def facts(self) -> Facts:
        """All of it, for the prover."""
        return self.knowledge.facts

    def under(self, conditions: tuple[Expr, ...], label: str | None = None) -> Context:
        """The context of an arm."""
        return Context((*self.conditions, *conditions), self.loops, self.knowledge.given(*conditions), label or self.role, self.kernel)

    def with_span(self, symbol: Expr, span: tuple[int, int]) -> Context:
        """The context of one of the elements that an instruction touches, which ``symbol`` numbers."""
        return Context(self.conditions, self.loops, self.knowledge.given(Element(symbol, span)), self.role, self.kernel)

    def inside(self, loop: Node) -> Context:
        """The context of a loop's body."""
        assert isinstance(loop.stmt, For)
        return Context(self.conditions, (*self.loops, loop), self.knowledge.given(Trip.of(loop.stmt)), self.role, self.kernel)


@dataclass(slots=True, eq=False)
class Block:
    """A list of nodes: the kernel's body, a loop's, or an arm's."""

    owner: Node | None
    context: Context
    nodes: list[Node] = field(default_factory=lambda: list[Node]())


@dataclass(slots=True, eq=False)
class Node:
    """A statement in its place.

    Attributes:
        number: position in the order of the text.
        index: position in its block.
        blocks: of a loop its body, of a chain its arms.
    """

    stmt: Stmt
    block: Block
    number: int
    index: int
    blocks: list[Block] = field(default_factory=lambda: list[Block]())
    _path: tuple[Node, ...] | None = None
    _runs: bool | None = None

    @property
    def context(self) -> Context:
        """What holds where it is executed."""
        return self.block.context

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """The conjuncts of the arms around it."""
        return self.block.context.conditions

    @property
    def loops(self) -> tuple[Node, ...]:
        """The loops around it, outermost first."""
        return self.block.context.loops

    @property
    def role(self) -> str:
        """Label of the innermost labelled arm around it."""
        return self.block.context.role

    @property
    def text(self) -> str:
        """The statement as it is printed, without what is inside."""
        return stmt_text(self.stmt, self.block.context.kernel)

    @property
    def path(self) -> tuple[Node, ...]:
        """The nodes around it, outermost first, and itself."""
        if self._path is None:
            owner = self.block.owner
            self._path = (self,) if owner is None else (*owner.path, self)
        return self._path

    def runs(self) -> bool:
        """Of a loop: True only if it has an iteration whenever it is reached."""
        if self._runs is None:
            assert isinstance(self.stmt, For)
            size = self.stmt.stop - self.stmt.start
            lo, _ = self.context.ranges.of(size)
            self._runs = (lo is not None and lo > 0) or self.context.knowledge.proves(ge(size, 1))
        return self._runs


@dataclass(slots=True, eq=False)
class Program:
    """A kernel's tree.

    Attributes:
        nodes: every node, in the order of the text.
        evaluated: all statements, those that are no nodes too, and what holds where their expressions are evaluated.
    """

    kernel: Kernel
    root: Block
    nodes: list[Node]
    evaluated: list[tuple[Stmt, Context]] = field(default_factory=lambda: list[tuple[Stmt, Context]]())

    @staticmethod
    def of(kernel: Kernel) -> Program:
        """The tree of a verified kernel."""
        program = Program(kernel, Block(None, _outermost(kernel)), [])
        program._fill(program.root, _unrolled(_in_blocks(kernel)))
        return program

    def leaves(self) -> Iterator[Node]:
        """The statements that hold no others."""
        return (n for n in self.nodes if not n.blocks)

    def _fill(self, block: Block, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.evaluated.append((stmt, block.context))
            if isinstance(stmt, Bind):
                self._fill(block, stmt.body)
                continue
            if isinstance(stmt, For) and block.context.ranges.refutes(lt(stmt.start, stmt.stop)):
                continue
            if isinstance(stmt, For) and block.context.ranges.of(stmt.stop - stmt.start) == (1, 1):
                self._fill(block, _at(stmt, stmt.start))
                continue
            node = Node(stmt, block, len(self.nodes), len(block.nodes))
            self.nodes.append(node)
            block.nodes.append(node)
            match stmt:
                case For():
                    inner = Block(node, block.context.inside(node))
                    node.blocks.append(inner)
                    self._fill(inner, stmt.body)
                case If():
                    before: list[Expr] = []
                    for arm in stmt.branches:
                        # what holds of every block and iteration decides nothing
                        own = tuple(c for c in conjuncts(arm.cond) if not (c.free.isdisjoint(THREADS) and block.context.ranges.implies(c)))
                        context = block.context.under(own, arm.label)
                        if context.ranges.empty:  # nobody ever comes here
                            before.append(not_(arm.cond))
                            continue
                        left = tuple(n for n in before if not (context.ranges.implies(n) or context.knowledge.proves(n)))
                        if left:
                            context = block.context.under((*own, *left), arm.label)
                        inner = Block(node, context)
                        node.blocks.append(inner)
                        self._fill(inner, arm.body)
                        before.append(not_(arm.cond))
                case _:
                    pass


def together(stmt: Stmt) -> int:
    """How many consecutive threads execute a statement together, so that the threads of a warp wait for each other there; 0: each thread for itself."""
    match stmt:
        case Wgmma() | WgmmaFence() | SetMaxNReg() | Commit(queue=Queue.WGMMA) | Retire(queue=Queue.WGMMA):
            return WARPGROUP
        case Mma() | LdMatrix() | StMatrix() | Shuffle():
            return WARP
        case _:
            return 0


def linear_thread(kernel: Kernel) -> Expr:
    """The number of a thread in its block: 32 consecutive ones are a warp."""
    x, y, z = (sym(name) for name in THREAD_NAMES)
    return x + kernel.block[0] * (y + kernel.block[1] * z)


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """The conditions that a conjunction joins; none for ``true``."""
    if condition is TRUE:
        return ()
    return condition.args if isinstance(condition, And) else (condition,)


def chosen(stmt: Choose, context: Context) -> Iterator[tuple[Operand, Context]]:
    """The operand of each case of a choice, and what is known where it is read.

    The CUDA text does not ask for the last condition: that operand is read wherever all others fail, and its own condition is known only if it follows.
    """
    reached = context
    for case in stmt.cases:
        own = conjuncts(case.cond)
        if case is stmt.cases[-1]:
            own = tuple(c for c in own if reached.knowledge.proves(c))
        yield case.operand, reached.under(own)
        failed = [c for c in own if len(own) == 1 or not reached.knowledge.proves(c)]  # what may: the rest holds here
        reached = reached.under((not_(failed[0]) if len(failed) == 1 else not_(case.cond),))


def declared(kernel: Kernel, params: Iterable[HostParam]) -> Context:
    """What is known of the extents, and of some parameters that the host has computed from them."""
    facts, ranges = Facts(), Ranges({})
    for e in kernel.extents:
        facts = facts.with_range(e.name, e.min, e.max)
        if e.multiple_of > 1:
            facts = facts.with_multiple(e.name, e.multiple_of)
        ranges = ranges.with_span(sym(e.name), (e.min, e.max))
    for p in params:
        facts = facts.with_range(p.name, p.value, p.value)
        ranges = ranges.with_span(sym(p.name), ranges.of(p.value))
    return Context((), (), Knowledge(ranges, facts), "", kernel)


def _outermost(kernel: Kernel) -> Context:
    context = declared(kernel, (p for p in kernel.params if isinstance(p, HostParam)))
    facts, ranges = context.facts, context.ranges
    for extent in kernel.cluster:
        facts, ranges = facts.with_assumption(ge(extent, 1)), ranges.under(ge(extent, 1))
    for s in walk(kernel):
        if isinstance(s, CursorInit):
            for name, most in ((f"{s.name}.slot", s.slots - 1), (f"{s.name}.parity", 1), (f"{s.name}.phase", None)):
                facts = facts.with_range(name, 0, most)
                ranges = ranges.with_span(sym(name), (0, most))
    for names, shape in ((BLOCK_NAMES, kernel.grid), (THREAD_NAMES, kernel.block)):
        for name, extent in zip(names, shape, strict=True):
            facts = facts.with_range(name, 0, extent - 1).with_assumption(ge(extent, 1))
            ranges = ranges.under(ge(extent, 1))
            hi = ranges.of(extent)[1]
            ranges = ranges.with_span(sym(name), (0, None if hi is None else hi - 1))
    return Context((), (), Knowledge(ranges, facts), "", kernel)


def _in_blocks(kernel: Kernel) -> tuple[Stmt, ...]:
    """The body with a block's place in its cluster written as what it is: a remainder of its place in the grid, the place itself in one of one cluster."""
    if all(e is ONE for e in kernel.cluster):
        return kernel.body
    places = {name: sym(b) % c for name, b, c in zip(CLUSTER_NAMES, BLOCK_NAMES, kernel.cluster, strict=True)}
    facts = _outermost(kernel).facts

    def written(e: Expr) -> Expr:
        return e if e.free.isdisjoint(BLOCKS | CLUSTERS) else simplify(substitute(e, places), facts)

    return map_stmts(kernel.body, lambda s: map_expressions(s, written))


def _at(loop: For, value: Expr) -> tuple[Stmt, ...]:
    """A loop's body in one iteration."""
    return map_stmts(loop.body, lambda s: map_expressions(s, lambda e: substitute(e, {loop.var: value})))


def _unrolled(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Unrolled loops that hold asynchronous operations, copied out: how many batches are in flight depends on the copy. So are those that number slots.

    Unrolled loops around the other ends of the mbarriers in them are copied out alike. Copies of threads are no reason in a loop whose iterations
    leave none in flight: a ring that such a loop fills ahead stays in one piece.
    """
    pending = any(isinstance(s, Retire) and s.queue is Queue.COPY and s.pending for s in walk(body))

    def counts(loop: For) -> bool:
        left = pending and not _drains(loop.body)
        return any(isinstance(s, QUEUED) and (left or not _is_of_copies(s)) for s in walk(loop.body))

    loops = [s for s in walk(body) if isinstance(s, For) and _copies(s)]
    inside = {id(loop): {slot.name for s in walk(loop.body) for slot in barrier_slots(s)} for loop in loops}
    cursors = {f"{s.name}.slot" for s in walk(body) if isinstance(s, CursorInit)}
    chosen = {id(loop) for loop in loops if counts(loop) or _numbers_slots(loop, cursors)}
    while True:
        names = {name for loop in chosen for name in inside[loop]}
        more = {loop for loop, mine in inside.items() if mine & names} | chosen
        if more == chosen:
            break
        chosen = more

    def copied(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        found: list[Stmt] = []
        for stmt in body:
            inner = bodies(stmt)
            made = with_bodies(stmt, tuple(map(copied, inner))) if inner else stmt
            if id(stmt) in chosen and isinstance(made, For):
                found += [s for value in _copies(made) for s in _at(made, const(value))]
            else:
                found.append(made)
        return tuple(found)

    return copied(body) if chosen else body


def _is_of_copies(s: Stmt) -> bool:
    """True for what opens and closes batches of asynchronous copies of threads."""
    return isinstance(s, (Commit, Retire)) and s.queue is Queue.COPY


def _drains(body: tuple[Stmt, ...]) -> bool:
    """True if the last that a body does about asynchronous copies of threads is to wait for all of them: each run of it begins with none."""
    last = next((s for s in reversed(body) if any(map(_is_of_copies, walk(s)))), None)
    match last:
        case None:
            return True
        case Retire(pending=pending):
            return pending == 0
        case For() | Bind() | If():
            return all(map(_drains, bodies(last)))
        case _:
            return False


def _numbers_slots(loop: For, cursors: set[str]) -> bool:
    """True if a loop's variable says how much further than a cursor's a slot is."""
    return any(loop.var in e.free and not e.free.isdisjoint(cursors) for s in walk(loop.body) for e in expressions(s))


def _copies(loop: For) -> range:
    """The values of an unrolled loop's variable; none if it is another loop, or a long one."""
    match loop:
        case For(start=Const(value=start), stop=Const(value=stop), step=Const(value=step), unroll=True) if 0 < len(range(start, stop, step)) <= UNROLL_LIMIT:
            return range(start, stop, step)
        case _:
            return range(0)
