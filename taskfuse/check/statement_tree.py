"""The kernel as a tree of nodes with their contexts: conditions, loops, the statements before and after.

Loops without code vanish, and so do those that never have an iteration, or always one. Unrolled loops that number slots of a ring are copied out, and if
necessary those that hold asynchronous operations. An arm of a chain also carries the negations of the arms before it, unless its own condition
implies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from taskfuse.check.bounded_variables import BoundedElement, Trip
from taskfuse.check.constraints import Constraints
from taskfuse.check.masks import THREAD_NAMES, THREADS, Masks
from taskfuse.check.normalize import BLOCK_NAMES, CLUSTER_NAMES, copied_out, in_blocks, in_iteration, unrolled
from taskfuse.check.ranges import Ranges, Span
from taskfuse.ir.dims import facts_of
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Expr, Facts, IntLike, Sym, conjuncts, ge, le, lt, not_, private, remembered, substitute, sym
from taskfuse.kir import Kernel, stmt_text, walk
from taskfuse.kir.nodes import Bind, Branch, Choose, For, If, Stmt
from taskfuse.kir.operands import Operand
from taskfuse.kir.synchronization import Advance, Cursor, CursorInit
from taskfuse.kir.walk import Accesses, accesses

BLOCKS = frozenset(BLOCK_NAMES)
CLUSTERS = frozenset(CLUSTER_NAMES)
MEMORY = 1 << 12
"""The most symbols of which it is remembered whether they are parts of cursors."""
SAME_CLUSTER = str(private("cluster"))
"""A name among those with one value in two threads: the cluster of their blocks."""
SAME_WARP = str(private("warp"))
"""Likewise: the number of the warp in its block."""


# Every statement has some of these: a generic alias that is called takes ten times as long.
def _no_limits() -> dict[str, tuple[list[Expr], list[Expr]]]:
    return {}


def _no_nodes() -> list[Node]:
    return []


def _no_blocks() -> list[StatementBlock]:
    return []


Conditions = tuple[Expr, ...]
ARM = "'"
"""Separates a cursor and the number of an arm in a symbol for the cursor's value at the beginning of the arm."""


@dataclass(slots=True, eq=False)
class Context:
    """The assumptions in a block of statements.

    Attributes:
        conditions: conjuncts of the arms around it, outermost first.
        loops: the loops around it, outermost first.
        constraints: the consequences; ``ranges`` are its constant bounds.
        role: label of the innermost labelled arm.
        limits: symbolic bounds of indices and loop variables, computed on demand.
    """

    conditions: tuple[Expr, ...]
    loops: tuple[Node, ...]
    constraints: Constraints
    role: str
    kernel: Kernel
    limits: dict[str, tuple[list[Expr], list[Expr]]] = field(default_factory=_no_limits)
    ranges: Ranges = field(init=False)

    def __post_init__(self) -> None:
        self.ranges = self.constraints.ranges

    @property
    def facts(self) -> Facts:
        """All of it, for the prover."""
        return self.constraints.facts

    def under(self, conditions: tuple[Expr, ...], label: str | None = None) -> Context:
        """The context of an arm."""
        return Context((*self.conditions, *conditions), self.loops, self.constraints.given(*conditions), label or self.role, self.kernel)

    def with_span(self, symbol: Expr, span: tuple[int, int]) -> Context:
        """The context of one of the elements that an instruction accesses, numbered by ``symbol``."""
        return Context(self.conditions, self.loops, self.constraints.given(BoundedElement(symbol, span)), self.role, self.kernel)

    def inside(self, loop: Node) -> Context:
        """The context of a loop's body."""
        assert isinstance(loop.stmt, For)
        return Context(self.conditions, (*self.loops, loop), self.constraints.given(Trip.of(loop.stmt)), self.role, self.kernel)


@dataclass(slots=True, eq=False)
class StatementBlock:
    """A list of nodes: the kernel's body, a loop's, or an arm's."""

    owner: Node | None
    context: Context
    nodes: list[Node] = field(default_factory=_no_nodes)


@dataclass(slots=True, eq=False)
class Node:
    """A statement with its position in the tree.

    Attributes:
        number: position in the order of the text.
        index: position in its block.
        blocks: of a loop its body, of a chain its arms.
        context: the context in which it is executed.
        conditions: the conjuncts of the arms around it.
        loops: the loops around it, outermost first.
    """

    stmt: Stmt
    block: StatementBlock
    number: int
    index: int
    blocks: list[StatementBlock] = field(default_factory=_no_blocks)
    context: Context = field(init=False)
    conditions: tuple[Expr, ...] = field(init=False)
    loops: tuple[Node, ...] = field(init=False)
    _path: tuple[Node, ...] | None = None
    _runs: bool | None = None
    _accesses: tuple[Accesses, Accesses] | None = None

    def __post_init__(self) -> None:  # fields, as they are asked for some hundred times
        self.context = self.block.context
        self.conditions, self.loops = self.context.conditions, self.context.loops

    @property
    def role(self) -> str:
        """Label of the innermost labelled arm around it."""
        return self.block.context.role

    @property
    def text(self) -> str:
        """The statement as printed, without its body."""
        return stmt_text(self.stmt, self.block.context.kernel)

    @property
    def path(self) -> tuple[Node, ...]:
        """The nodes around it, outermost first, and itself."""
        if self._path is None:
            owner = self.block.owner
            self._path = (self,) if owner is None else (*owner.path, self)
        return self._path

    @property
    def accesses(self) -> tuple[Accesses, Accesses]:
        """As :func:`taskfuse.kir.walk.accesses` of the statement, which several layers ask for."""
        if self._accesses is None:
            self._accesses = accesses(self.stmt)
        return self._accesses

    def release(self) -> None:
        """Drop the references to the nodes around it and inside it, when they are no longer needed."""
        self.block.nodes.clear()
        self.blocks.clear()
        self._path = None

    def runs(self) -> bool:
        """For a loop: true only if it has an iteration whenever it is reached."""
        if self._runs is None:
            assert isinstance(self.stmt, For)
            size = self.stmt.stop - self.stmt.start
            lo, _ = self.context.ranges.of(size)
            self._runs = (lo is not None and lo > 0) or self.context.constraints.proves(ge(size, 1))
        return self._runs


@dataclass(slots=True, eq=False)
class StatementTree:
    """A kernel's tree.

    Attributes:
        nodes: every node, in the order of the text.
        masks: the threads of a block.
        declared: the facts about extents and parameters, before the launch.
        evaluated: all statements, including those that are not nodes, with the context in which their expressions are evaluated.
    """

    kernel: Kernel
    root: StatementBlock
    nodes: list[Node]
    masks: Masks
    declared: Context
    evaluated: list[tuple[Stmt, Context]] = field(default_factory=lambda: list[tuple[Stmt, Context]]())
    _leaves: tuple[Node, ...] | None = None
    _rest: tuple[tuple[Stmt, ...], frozenset[int]] | None = None
    """The body, and its loops that are copied out besides."""
    _arm_count: int = 0
    _copied: StatementTree | None = None

    @staticmethod
    def of(kernel: Kernel) -> StatementTree:
        """The tree of a verified kernel."""
        before = declared(kernel)
        known = _outermost(before)
        tree = StatementTree(kernel, StatementBlock(None, known), [], Masks(kernel.block), before)
        body = in_blocks(kernel, known.facts, known.ranges)
        loops = unrolled(kernel if body is kernel.body else body)  # of a kernel it is known which statements it has
        if loops.slots != loops.queues:
            tree._rest = body, loops.queues
        tree._fill(tree.root, copied_out(body, loops.slots, known.ranges))
        return tree

    @property
    def has_copies(self) -> bool:
        """True if there is another tree of the same kernel, in which loops with asynchronous operations are copied out."""
        return self._rest is not None

    def copied_out(self) -> StatementTree:
        """That tree."""
        if self._rest is None:
            return self
        if self._copied is None:
            self._copied = StatementTree(self.kernel, StatementBlock(None, self.root.context), [], self.masks, self.declared)
            self._copied._fill(self._copied.root, copied_out(*self._rest, self.root.context.ranges))
        return self._copied

    def release(self) -> None:
        """Take the tree apart when it is no longer needed: its nodes refer to each other, and reference counts then free them."""
        if self._copied is not None:
            self._copied.release()
        for context in (self.declared, self.root.context):
            context.constraints.release()
        for node in self.nodes:
            node.release()

    def leaves(self) -> tuple[Node, ...]:
        """The statements without bodies, in the order of the text."""
        if self._leaves is None:
            self._leaves = tuple([n for n in self.nodes if not n.blocks])
        return self._leaves

    def _fill(self, block: StatementBlock, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.evaluated.append((stmt, block.context))
            if isinstance(stmt, Bind):
                self._fill(block, stmt.body)
                continue
            if isinstance(stmt, For) and block.context.ranges.refutes(lt(stmt.start, stmt.stop)):
                continue
            if isinstance(stmt, For) and block.context.ranges.of(stmt.stop - stmt.start) == (1, 1):
                once = in_iteration(stmt, stmt.start, self.root.context.ranges)
                if once is not None:
                    self._fill(block, once)
                    continue
            arms = list(self._arms(stmt, block.context)) if isinstance(stmt, If) else []
            if isinstance(stmt, If) and not arms:
                continue
            if arms and arms[0][1] is block.context:  # everybody takes the first arm that anybody takes
                self._fill(block, arms[0][0].body)
                continue
            node = Node(stmt, block, len(self.nodes), len(block.nodes))
            self.nodes.append(node)
            block.nodes.append(node)
            if isinstance(stmt, For):
                arms = [(stmt, block.context.inside(node))]
            for arm, context in arms:
                inner = StatementBlock(node, context)
                node.blocks.append(inner)
                self._fill(inner, arm.body)

    def _arms(self, stmt: If, around: Context) -> Iterator[tuple[Branch, Context]]:
        """The arms of a chain that some thread takes, with their contexts: that of the chain, for an arm without a label that every thread takes."""
        before: list[Expr] = []
        for arm in stmt.branches:
            own = tuple(c for c in conjuncts(arm.cond) if not self._decides_nothing(c, around))
            context = around.under(own, arm.label)
            moving = self._moving(arm, (*own, *before))
            if not (context.ranges.empty or self.masks.is_empty(context.conditions)):
                left = tuple(n for n in before if not (context.ranges.implies(n) or context.constraints.proves(n)))
                if moving:
                    own, left = (tuple(substitute(c, moving) for c in part) for part in (own, left))
                if left or moving:
                    context = around.under((*own, *left), arm.label)
                if not self.masks.is_empty(context.conditions):
                    yield arm, context if own or left or arm.label else around
                if not own:
                    return
            before.append(not_(arm.cond))

    def _moving(self, arm: Branch, conditions: Iterable[Expr]) -> dict[str, Expr]:
        """Names for what those cursors were when an arm began that move in it: the conditions under which it is taken say nothing of what they are then."""
        asked = {found[0].name for c in conditions for n in c.free if (found := Cursor.of(n)) is not None}
        moved = sorted({name for s in walk(arm.body) if (name := _moved(s)) in asked}) if asked else []
        self._arm_count += 1
        return {n: at_beginning(n, self._arm_count) for name in moved for n in Cursor(name).symbols}

    def _decides_nothing(self, condition: Expr, around: Context) -> bool:
        """True only of a condition that holds for every thread of every block in every iteration, or for every thread of a block."""
        if condition.free.isdisjoint(THREADS):
            return around.ranges.implies(condition)
        return self.root.context.ranges.implies(condition) or (condition.free <= THREADS and self.masks.everybody(condition))


def at_beginning(symbol: str, number: int) -> Sym:
    """The value of a part of a cursor when an arm began: also a symbol of a cursor."""
    name, _, part = symbol.rpartition(".")
    return private(f"{name}{ARM}{number}.{part}")


@remembered(MEMORY)
def cursor_of(symbol: str) -> str | None:
    """The cursor of which a symbol is a part, now or when an arm began."""
    found = Cursor.of(symbol)
    return None if found is None else found[0].name.removeprefix("'").partition(ARM)[0]


def _moved(s: Stmt) -> str:
    match s:
        case Advance(cursor=name) | CursorInit(name=name):
            return name
        case _:
            return ""


def linear_thread(kernel: Kernel) -> Expr:
    """The number of a thread in its block: 32 consecutive ones are a warp. An index of extent 1 is 0."""
    x, y, z = (ZERO if extent is ONE else sym(name) for name, extent in zip(THREAD_NAMES, kernel.block, strict=True))
    return x + kernel.block[0] * (y + kernel.block[1] * z)


def chosen(stmt: Choose, context: Context) -> Iterator[tuple[Operand, Context]]:
    """The operand of each case of a choice, with the assumptions where it is read.

    The CUDA text does not test the last condition: that operand is read wherever all others fail, and its own condition holds only if it follows.
    """
    reached = context
    for case in stmt.cases:
        own = conjuncts(case.cond)
        if case is stmt.cases[-1]:
            own = tuple(c for c in own if reached.constraints.proves(c))
        yield case.operand, reached.under(own)
        failed = [c for c in own if len(own) == 1 or not reached.constraints.proves(c)]  # what may: the rest holds here
        reached = reached.under((not_(failed[0]) if len(failed) == 1 else not_(case.cond),))


def declared(kernel: Kernel) -> Context:
    """The facts about the extents."""
    facts, ranges = facts_of(kernel.extents), Ranges({})
    for e in kernel.extents:
        ranges = ranges.with_span(sym(e.name), (e.min, e.max))
    for e in kernel.extents:
        if e.bound is not None:
            facts, ranges = facts.with_assumption(le(sym(e.name), e.bound)), ranges.under(le(sym(e.name), e.bound))
    return Context((), (), Constraints(ranges, facts), "", kernel)


def _outermost(context: Context) -> Context:
    """The context of a launch: that of extents and parameters, with the ranges of hardware indices and cursors."""
    kernel = context.kernel
    facts, ranges = context.facts, context.ranges
    for exists in (c for extent in kernel.cluster if (c := ge(extent, 1)) is not TRUE):
        facts, ranges = facts.with_assumption(exists), ranges.under(exists)
    bounds: dict[str, tuple[int, IntLike | None]] = {}
    spans: dict[Expr, Span] = {}
    for s in walk(kernel):
        if isinstance(s, CursorInit):
            for name, most in zip(Cursor(s.name).symbols, (s.slots - 1, 1, None), strict=True):
                bounds[name] = 0, most
                spans[sym(name)] = 0, most
    indices = dict(zip((*BLOCK_NAMES, *THREAD_NAMES), (*kernel.grid, *kernel.block), strict=True))
    for exists in (c for extent in indices.values() if (c := ge(extent, 1)) is not TRUE):
        facts, ranges = facts.with_assumption(exists), ranges.under(exists)
    for name, extent in indices.items():
        hi = ranges.of(extent)[1]
        bounds[name] = 0, extent - 1
        spans[sym(name)] = 0, None if hi is None else hi - 1
    return Context((), (), Constraints(ranges.with_spans(spans), facts.with_ranges(bounds)), "", kernel)
