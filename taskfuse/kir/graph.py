"""A kernel as a networkx graph, for analyses by users. Attributes are plain data: text, integers, tuples of them, ``None``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from taskfuse.ir.scalar import Const, Expr
from taskfuse.kir.channels import channels
from taskfuse.kir.declarations import IntegerParam, ScalarParam, TensorMapParam, TensorParam
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import Choose, Compute, If, Stmt, TmaLoad, TmaStore
from taskfuse.kir.operands import Operand, ScalarValue
from taskfuse.kir.printer import stmt_text
from taskfuse.kir.synchronization import Acquire, Barrier, InitBarrier, Release, Wait
from taskfuse.kir.walk import accesses, barrier_slots, bodies, held, with_bodies

if TYPE_CHECKING:
    import networkx as nx


def kernel_graph(kernel: Kernel) -> nx.DiGraph[str | int]:
    """Storage and barriers by name, and statements by their place in the text (0, 1, ...); edges are the accesses and synchronizations of statements.

    - The graph: ``name``.
    - A node by name: ``kind`` (``"input"``, ``"output"``, ``"scalar"``, ``"buffer"``, ``"mbarrier"``, ``"semaphore"``, ``"counter"``), ``shape`` (an ``int``
      for a constant extent, else text); for arguments and buffers ``dtype`` and ``memory``; ``channel``: its channel, or ``None``.
    - A node by place: ``kind`` ``"statement"``, ``type`` (the class in :mod:`taskfuse.kir.nodes`), ``text`` (its first line), ``role`` (the label of the
      innermost dispatch around it), ``parent`` (the enclosing statement, or ``None``), ``tensor`` (the tensor in its claim, or ``None``), ``location``.
    - An edge: ``action``, and ``places``, the indices of the access as text. ``"reads"`` and ``"waits"`` lead to the statement; ``"writes"``, ``"signals"``
      and ``"initializes"`` lead from it. A barrier of the grid signals its counter and waits for it; other barriers have no name and no edges.
    """
    import networkx as nx

    graph: nx.DiGraph[str | int] = nx.DiGraph(name=kernel.name)
    _add_names(graph, kernel)
    maps = {p.name: p.tensor for p in kernel.params if isinstance(p, TensorMapParam)}
    for place, (stmt, parent, role) in enumerate(_nested(kernel)):
        said = held(stmt)
        graph.add_node(
            place,
            kind="statement",
            type=type(stmt).__name__,
            text=str(stmt_text(with_bodies(stmt, tuple(() for _ in bodies(stmt))), kernel)),
            role=role,
            parent=parent,
            tensor=None if said is None else said.tensor,
            location=None if stmt.location is None else str(stmt.location),
        )
        found: dict[tuple[str | int, str | int, str], dict[str, None]] = {}
        for source, target, action, index in _edges(stmt, place, maps):
            found.setdefault((source, target, action), {})[index] = None
        for (source, target, action), indices in found.items():
            graph.add_edge(source, target, action=action, places=tuple(indices))
    return graph


def _add_names(graph: nx.DiGraph[str | int], kernel: Kernel) -> None:
    member = {name: ch.name for ch in channels(kernel).channels for name in (*ch.buffers, ch.full, ch.empty)}
    for p in kernel.params:
        match p:
            case TensorParam():
                kind = "output" if p.is_output else "input"
                graph.add_node(p.name, kind=kind, shape=_shape(p.shape), dtype=p.dtype.name, memory="Global", channel=None)
            case ScalarParam():
                graph.add_node(p.name, kind="scalar", shape=(), dtype=p.dtype.name, memory=None, channel=None)
            case TensorMapParam() | IntegerParam():
                pass
    for b in kernel.buffers:
        graph.add_node(b.name, kind="buffer", shape=_shape(b.shape), dtype=b.dtype.name, memory=b.memory.value, channel=member.get(b.name))
    for m in kernel.mbarriers:
        graph.add_node(m.name, kind="mbarrier", shape=(m.slots,), channel=member.get(m.name))
    for s in kernel.semaphores:
        graph.add_node(s.name, kind="semaphore", shape=_shape(s.shape), channel=member.get(s.name))
    for c in kernel.counters:
        graph.add_node(c.name, kind="counter", shape=(), channel=None)


def _nested(kernel: Kernel) -> Iterator[tuple[Stmt, int | None, str | None]]:
    """The statements in the order of the text, each with the place of the one that it is in, and the label of the innermost labelled branch around it."""
    stack: list[tuple[Stmt, int | None, str | None]] = [(s, None, None) for s in reversed(kernel.body)]
    place = 0
    while stack:
        stmt, parent, role = stack.pop()
        yield stmt, parent, role
        labels = [b.label or role for b in stmt.branches] if isinstance(stmt, If) else [role] * len(bodies(stmt))
        for body, label in reversed(list(zip(bodies(stmt), labels, strict=True))):
            stack += [(s, place, label) for s in reversed(body)]
        place += 1


def _edges(stmt: Stmt, place: int, maps: dict[str, str]) -> Iterator[tuple[str | int, str | int, str, str]]:
    """The edges of a statement, without its body: from where, to where, the action, the index as text."""
    written, read = accesses(stmt)
    for access in read:
        yield access.buffer, place, "reads", _index(access.index)
    for access in written:
        yield place, access.buffer, "writes", _index(access.index)
    for name in _scalars(stmt):
        yield name, place, "reads", "[]"
    for barrier in barrier_slots(stmt):
        index = _index((barrier.slot,))
        match stmt:
            case Wait():
                yield barrier.name, place, "waits", index
            case InitBarrier():
                yield place, barrier.name, "initializes", index
            case _:
                yield place, barrier.name, "signals", index
    match stmt:
        case TmaLoad():
            yield maps[stmt.map], place, "reads", _index(stmt.coords)
        case TmaStore():
            yield place, maps[stmt.map], "writes", _index(stmt.coords)
        case Release():
            yield place, stmt.semaphore.name, "signals", _index(stmt.semaphore.index)
        case Acquire():
            yield stmt.semaphore.name, place, "waits", _index(stmt.semaphore.index)
        case Barrier(counter=str(counter)):
            yield place, counter, "signals", "[]"
            yield counter, place, "waits", "[]"
        case _:
            pass


def _scalars(stmt: Stmt) -> Iterator[str]:
    """The scalar arguments whose values a statement uses."""
    operands: tuple[Operand, ...] = ()
    match stmt:
        case Compute():
            operands = stmt.operands
        case Choose():
            operands = tuple(case.operand for case in stmt.cases)
        case _:
            pass
    yield from (o.name for o in operands if isinstance(o, ScalarValue))


def _shape(shape: tuple[Expr, ...]) -> tuple[int | str, ...]:
    return tuple(e.value if isinstance(e, Const) else str(e) for e in shape)


def _index(index: tuple[Expr, ...]) -> str:
    return f"[{', '.join(map(str, index))}]"
