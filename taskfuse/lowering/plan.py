"""The plan: the nest with its dispatches and scopes, between the fusion and kernel IR.

A branch is a scope: sync, liveness, indexing and predicates are functions of (node path, loop path). Passes over the plan insert
channel operations and barriers; :mod:`taskfuse.lowering.emit` turns the result into kernel IR.

Statements speak of *local* indices: the symbol ``base_name(p, task)`` counts from 0 inside the task's thread range and becomes
``index_p - start`` at emission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from taskfuse.ir.scalar import Expr, Facts, Sym, substitute, sym
from taskfuse.ir.tasks import Group, Node, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.kir import map_expressions, map_stmts
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operands import Access
from taskfuse.schedule.shared_loops import Loop


@dataclass(frozen=True, slots=True)
class Walk:
    """The items of work that a loop visits: ``start``, ``start + step``, and so on, below ``stop``. One trip has one item, whose symbol is ``item``.

    ``claimed``: of these, those that the block claims; the number of a block among those that claim. ``None``: each block has its own.
    """

    item: Expr
    start: Expr
    stop: Expr
    step: Expr
    claimed: Expr | None = None


@dataclass(slots=True, eq=False)
class PLoop:
    """A loop with code, which counts its trips. ``loop`` is the loop of the nest that it copies, or ``None`` for one that lowering made.

    ``walk``: the kernel's loop is over these items.
    """

    var: str
    extent: Expr
    unroll: bool
    body: list[PNode]
    loop: Loop | None = None
    walk: Walk | None = None


@dataclass(slots=True, eq=False)
class PBind:
    """A loop without code: bound to an index type."""

    index: Expr
    ptype: ParallelType
    extent: Expr
    body: list[PNode]


@dataclass(slots=True, eq=False)
class PScope:
    """A piece of a node's code, executed by the node's thread range. ``conds``: the conditions that select the thread range inside the enclosing scope."""

    node: Node
    conds: tuple[Expr, ...]
    body: list[PNode]


@dataclass(slots=True, eq=False)
class PGuard:
    """Code under a condition on loop variables and arguments: all threads of the enclosing scope run it, or none."""

    cond: Expr
    body: list[PNode]


@dataclass(slots=True, eq=False)
class PDispatch:
    """The members of a parallelized group, which run concurrently."""

    group: Group
    members: list[PScope]
    note: str = ""


@dataclass(slots=True, eq=False)
class PStmt:
    """One statement of a tensor's code.

    Attributes:
        stmt: the kernel-IR statement, in local indices.
        guards: conditions under which it runs, in local indices.
        facts: facts where it runs, guards included.
        writes, reads: the accesses of ``stmt``.
    """

    tv: TensorView
    task: Task
    stmt: Stmt
    guards: tuple[Expr, ...]
    facts: Facts
    writes: tuple[Access, ...]
    reads: tuple[Access, ...]


@dataclass(slots=True, eq=False)
class PSync:
    """Statements of synchronization, executed by the whole enclosing scope.

    Attributes:
        of: the tensor whose data it orders or whose ring it advances, or its task or group: it has the location of this.
        node: a barrier of the threads of this node's thread range in one block, whose form the sync pass will choose.
        note: the reason for it.
        is_of_warps: it is a barrier of each warp separately.
    """

    stmts: tuple[Stmt, ...]
    of: Origin
    is_barrier: bool = False
    types: frozenset[ParallelType] = field(default_factory=frozenset["ParallelType"])
    node: Node | None = None
    note: str = ""
    is_of_warps: bool = False


Origin = TensorView | Node
PNode = PLoop | PBind | PScope | PGuard | PDispatch | PStmt | PSync


def children(node: PNode) -> list[list[PNode]]:
    """The blocks inside a plan node."""
    match node:
        case PStmt() | PSync():  # most nodes
            return []
        case PLoop() | PBind() | PScope() | PGuard():
            return [node.body]
        case PDispatch():
            return [m.body for m in node.members]


def statements(nodes: list[PNode]) -> Iterator[PStmt]:
    """The statements below some plan nodes, in order."""
    for node in nodes:
        if isinstance(node, PStmt):
            yield node
        else:
            for block in children(node):
                yield from statements(block)


def selected(nodes: list[PNode], keep: Callable[[PStmt | PSync], bool]) -> list[PNode]:
    """The projection of plan nodes on some of their leaves: the same loops, scopes and dispatches, as far as they contain one of them."""
    found: list[PNode] = []
    for n in nodes:
        match n:
            case PStmt() | PSync():
                if keep(n):
                    found.append(n)
            case PDispatch():
                members = [replace(m, body=body) for m in n.members if (body := selected(m.body, keep))]
                if members:
                    found.append(replace(n, members=members))
            case _:
                body = selected(n.body, keep)
                if body:
                    found.append(replace(n, body=body))
    return found


def moved(nodes: list[PNode], index_map: Mapping[str, Expr], within: Callable[[Facts], Facts]) -> list[PNode]:
    """A copy of plan nodes at other values of some symbols. ``within`` adds the facts about these values."""

    def value(e: Expr) -> Expr:
        return substitute(e, index_map)

    def access(a: Access) -> Access:
        return Access(a.buffer, tuple(map(value, a.index)))

    found: list[PNode] = []
    for n in nodes:
        match n:
            case PLoop():
                found.append(replace(n, extent=value(n.extent), body=moved(n.body, index_map, within)))
            case PBind():
                found.append(replace(n, index=value(n.index), extent=value(n.extent), body=moved(n.body, index_map, within)))
            case PGuard():
                found.append(PGuard(value(n.cond), moved(n.body, index_map, within)))
            case PScope():
                found.append(replace(n, conds=tuple(map(value, n.conds)), body=moved(n.body, index_map, within)))
            case PDispatch():
                members = [replace(m, conds=tuple(map(value, m.conds)), body=moved(m.body, index_map, within)) for m in n.members]
                found.append(replace(n, members=members))
            case PSync():
                found.append(replace(n, stmts=map_stmts(n.stmts, lambda s: map_expressions(s, value))))
            case PStmt():
                facts = within(_moved_facts(n.facts, index_map))
                guards = tuple(map(value, n.guards))
                stmt = map_expressions(n.stmt, value)
                found.append(PStmt(n.tv, n.task, stmt, guards, facts, tuple(map(access, n.writes)), tuple(map(access, n.reads))))
    return found


def _moved_facts(facts: Facts, index_map: Mapping[str, Expr]) -> Facts:
    """The same facts at other values of some symbols, without the ranges of these."""
    found = Facts()
    for name, bounds in facts.ranges.items():
        if name not in index_map:
            found = found.with_range(name, *(None if b is None else substitute(b, index_map) for b in bounds))
    for e, k in facts.multiples.items():
        if isinstance(e, Sym) and e.name not in index_map:
            found = found.with_multiple(e.name, k)
    for condition in sorted(facts.known, key=str):
        found = found.with_assumption(substitute(condition, index_map))
    return found


def base_name(ptype: ParallelType, task: Task) -> str:
    """The symbol of a task's local index."""
    return f"at.{ptype.value}.{task.name}"


def is_base(name: str) -> bool:
    """True for a symbol that :func:`base_name` made."""
    return name.startswith("at.")


def item_name(var: str) -> str:
    """The symbol of the item of work in a trip of a variable's loop."""
    return f"{var}.item"


class LoopVariables:
    """The variables of loops with code, numbered in the order of first use."""

    def __init__(self) -> None:
        self._names: dict[Loop, str] = {}

    def name(self, loop: Loop) -> str:
        """The variable of a loop."""
        return self._names.setdefault(loop, f"i{len(self._names)}")

    def is_in(self, loop: Loop, e: Expr) -> bool:
        """Whether an expression has the variable of a loop, or its item of work."""
        name = self._names.get(loop)
        return name is not None and not e.free.isdisjoint((name, item_name(name)))

    def symbol(self, loop: Loop) -> Expr:
        """The variable of a loop, as an expression."""
        return sym(self.name(loop))

    def item(self, loop: Loop) -> Expr:
        """The symbol of the item of work in a trip of a loop."""
        return sym(item_name(self.name(loop)))


@dataclass(slots=True)
class Needs:
    """Requirements of the statements of a plan, recorded when a statement is made and used by later steps.

    Attributes:
        maps: the tensor maps that they name.
        alignments: alignment in bytes of a tensor's storage for its atoms.
        transfers: bytes that one bulk copy writes to a block, summed over the blocks of a cluster that share it.
    """

    maps: dict[str, TensorMapParam] = field(default_factory=dict[str, TensorMapParam])
    alignments: dict[str, int] = field(default_factory=dict[str, int])
    transfers: dict[TensorView, int] = field(default_factory=dict[TensorView, int])

    def align(self, tv: TensorView, size: int) -> None:
        """Require storage of ``tv`` to be aligned to ``size`` bytes, too."""
        self.alignments[tv.name] = max(self.alignments.get(tv.name, 1), size)
