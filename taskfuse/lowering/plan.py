"""The plan: the nest with its dispatch and scopes, on its way to kernel IR.

A branch is a scope: sync, liveness, indexing and predicates are functions of (node path, loop path). Passes over the plan insert
channel operations and barriers; :mod:`taskfuse.lowering.emit` turns the result into kernel IR.

Statements speak of *local* indices: the symbol ``base_name(p, task)`` counts from 0 inside the task's region and becomes
``index_p - start`` at emission.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from taskfuse.ir.axes import Axis
from taskfuse.ir.scalar import Expr, Facts
from taskfuse.ir.tasks import Group, Node, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.kir.nodes import Access, Stmt
from taskfuse.schedule.joins import Loop


@dataclass(slots=True, eq=False)
class PLoop:
    """A loop with code. ``loop`` is the loop of the nest that it copies, or ``None`` for one that lowering made."""

    var: str
    extent: Expr
    unroll: bool
    body: list[PNode]
    loop: Loop | None = None


@dataclass(slots=True, eq=False)
class PBind:
    """A loop without code: bound to an index type."""

    index: Expr
    ptype: ParallelType
    extent: Expr
    body: list[PNode]


@dataclass(slots=True, eq=False)
class PScope:
    """A piece of a node's code, executed by the node's region. ``conds``: what selects the region inside the enclosing scope."""

    node: Node
    conds: tuple[Expr, ...]
    body: list[PNode]


@dataclass(slots=True, eq=False)
class PDispatch:
    """Members of a parallelized group side by side."""

    group: Group
    members: list[PScope]
    note: str = ""


@dataclass(slots=True, eq=False)
class PStmt:
    """One statement of a tensor's code.

    Attributes:
        stmt: the kernel-IR statement, in local indices.
        guards: conditions under which it runs, in local indices.
        facts: what is known where it runs, guards included.
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
        node: a barrier of the threads of this node's region in one block, whose form the sync pass has yet to choose.
        note: why it is there.
    """

    stmts: tuple[Stmt, ...]
    is_barrier: bool = False
    types: frozenset[ParallelType] = field(default_factory=frozenset["ParallelType"])
    node: Node | None = None
    note: str = ""


PNode = PLoop | PBind | PScope | PDispatch | PStmt | PSync


def children(node: PNode) -> list[list[PNode]]:
    """The blocks inside a plan node."""
    match node:
        case PLoop() | PBind() | PScope():
            return [node.body]
        case PDispatch():
            return [m.body for m in node.members]
        case PStmt() | PSync():
            return []


def statements(nodes: list[PNode]) -> Iterator[PStmt]:
    """The statements below some plan nodes, in order."""
    for node in nodes:
        if isinstance(node, PStmt):
            yield node
        else:
            for block in children(node):
                yield from statements(block)


def base_name(ptype: ParallelType, task: Task) -> str:
    """The symbol of a task's local index."""
    return f"at.{ptype.value}.{task.name}"


def is_base(name: str) -> bool:
    """True for a symbol that :func:`base_name` made."""
    return name.startswith("at.")


@dataclass(frozen=True, slots=True)
class Environment:
    """The indices around one tensor's code, in local form.

    Attributes:
        values: axis -> index, for loop axes and all axes that follow from them.
        facts: ranges of the symbols in ``values``, guards included.
        guards: conditions under which the code runs.
        work: those of ``guards`` that say that there is a piece of work at all.
        tails: those of ``guards`` that cut off the remainder of a split, if the tensor's code writes zeros there (:mod:`taskfuse.lowering.padding`).
        beyond: what is known without them (``None`` where it does not).
    """

    values: dict[Axis, Expr]
    facts: Facts
    guards: tuple[Expr, ...]
    work: tuple[Expr, ...] = ()
    tails: tuple[Expr, ...] = ()
    beyond: Facts | None = None
