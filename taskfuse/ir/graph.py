"""A fusion, and its task tree, as networkx graphs for analyses by users. Attributes are plain data: text, integers, tuples of them, ``None``."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from taskfuse.ir.assignment import places
from taskfuse.ir.expr import Assemble, Read, ScalarRead, op_text
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, Const, Expr
from taskfuse.ir.storage import producers
from taskfuse.ir.tasks import CHOSEN, Node, Task, are_roles, joint
from taskfuse.ir.tensor import TensorView

if TYPE_CHECKING:
    import networkx as nx


def tensor_graph(fusion: Fusion) -> nx.DiGraph[str]:
    """The tensors and run-time scalars, by name, producers first; an edge from each to every tensor whose definition reads it.

    - The graph: ``name``.
    - A node: ``kind`` (``"input"``, ``"scalar"``, ``"output"``, ``"intermediate"``), ``dtype``, ``shape`` (an ``int`` for a constant extent, else
      text), ``bytes`` (``None`` unless all extents are constant), ``op`` (``None`` for arguments), ``is_view`` (it is a map without storage and code),
      ``task`` (the name of the task that claims it), ``location`` (the user's line).
    - An edge: ``positions`` among the operands, and for each ``maps``, the index that is read as text over the reader's iteration ``i0, i1, ...`` and, for a
      part of an assembly, its place in the result; and ``valid``, the condition under which that element exists (``None``: always).
    """
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph(name=fusion.name)
    for scalar in fusion.scalars:
        graph.add_node(
            scalar.name,
            kind="scalar",
            dtype=scalar.dtype.name,
            shape=(),
            bytes=scalar.dtype.itemsize,
            op=None,
            is_view=False,
            task=None,
            location=None if scalar.location is None else str(scalar.location),
        )
    exprs = fusion.exprs()
    defined = {expr.output for expr in exprs}
    for tv in fusion.tensors():
        if tv not in defined:
            _add_tensor(graph, fusion, tv)
    for expr in exprs:
        _add_tensor(graph, fusion, expr.output)
        found: dict[str, list[tuple[int, str, str | None]]] = {}
        for position, operand in enumerate(expr.operands):
            match operand:
                case Read():
                    place = f" at {_list(expr.places[position])}" if isinstance(expr, Assemble) else ""
                    valid = None if operand.valid is TRUE else str(operand.valid)
                    found.setdefault(operand.tensor.name, []).append((position, _list(operand.index) + place, valid))
                case ScalarRead():
                    found.setdefault(operand.scalar.name, []).append((position, "[]", None))
                case _:
                    pass
        for name, uses in found.items():
            positions, maps, conditions = zip(*uses, strict=True)
            graph.add_edge(name, expr.output.name, positions=positions, maps=maps, valid=conditions)
    return graph


def task_graph(fusion: Fusion) -> nx.DiGraph[str]:
    """The tasks and groups, by name, outer ones first, the root included; an edge from each task to those that read its results.

    Tensors that no task claims are in the tasks ``t0``, ``t0_1``, ... that lowering makes for them. Groups have no edges; ``parent`` gives the nesting.

    - The graph: ``name`` of the fusion.
    - A node: ``type`` (``"task"``, ``"group"``), ``parent`` (``None`` for the root), ``registers`` (its budget; ``"chosen"``, ``None``), ``location``. A task
      has ``tensors``. A group has ``members``, ``kind`` (``"horizontal"``, ``"vertical"``, ...), ``parallel_type`` (``None``: in turn).
    - An edge: ``tensors`` that are passed; ``group``, the innermost around both tasks; ``is_channel``: both are in roles of that group.
    """
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph(name=fusion.name)
    place = places(fusion)
    held: dict[Task, list[TensorView]] = {}
    for expr in fusion.exprs():
        if expr.output in place:
            held.setdefault(place[expr.output], []).append(expr.output)
    for group in fusion.tasks.groups():
        _add_node(graph, group)
        graph.nodes[group.name].update(
            type="group",
            members=tuple(m.name for m in group.members),
            kind=group.kind.value,
            parallel_type=None if group.ptype is None else group.ptype.value,
        )
    for task, tensors in held.items():
        _add_node(graph, task)
        graph.nodes[task.name].update(type="task", tensors=tuple(tv.name for tv in tensors))
    edges: dict[tuple[Task, Task], dict[str, None]] = {}
    for tensors in held.values():
        for tv in tensors:
            for read in producers(fusion, tv):
                if read in place and place[read] is not place[tv]:
                    edges.setdefault((place[read], place[tv]), {})[read.name] = None
    for (a, b), names in edges.items():
        group = joint(a, b)
        graph.add_edge(a.name, b.name, tensors=tuple(names), group=group.name, is_channel=are_roles(group))
    return graph


def _add_tensor(graph: nx.DiGraph[str], fusion: Fusion, tv: TensorView) -> None:
    expr, task = fusion.definition(tv), fusion.tasks.home(tv)
    shape = tuple(e.value if isinstance(e, Const) else str(e) for e in tv.shape)
    extents = [e for e in shape if isinstance(e, int)]
    graph.add_node(
        tv.name,
        kind="input" if tv.is_input else "output" if tv.is_output else "intermediate",
        dtype=tv.dtype.name,
        shape=shape,
        bytes=tv.dtype.itemsize * prod(extents) if len(extents) == len(shape) else None,
        op=None if expr is None else op_text(expr),
        is_view=fusion.is_view(tv),
        task=None if task is None else task.name,
        location=None if tv.location is None else str(tv.location),
    )


def _add_node(graph: nx.DiGraph[str], node: Node) -> None:
    root = node.tree.root
    parent = None if node is root else (node.parent or root).name
    registers = "chosen" if node.budget == CHOSEN else node.budget
    graph.add_node(node.name, parent=parent, registers=registers, location=None if node.location is None else str(node.location))


def _list(index: tuple[Expr, ...]) -> str:
    return f"[{', '.join(map(str, index))}]"
