"""Numbers that the inputs of a graph tell, such as sizes of views: expressions of symbols in place of the ops that compute them.

torch has nodes that read the size of a tensor and calculate with it wherever an op takes such a number. As readers of the tensor they would have it leave its
fusion, and the host would run them in each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from taskfuse.torch.metadata import SYMBOLIC, parts
from taskfuse.torch.program import SIZES, symbol_sources

PRINTED: Final = frozenset(
    ["Symbol", "Add", "Mul", "Pow", "PowByNatural", "FloorDiv", "CleanDiv", "Mod", "PythonMod", "Max", "Min", "IntTrueDiv", "FloatTrueDiv", "ToFloat"]
)
"""The functions of expressions that are written into the source of a graph."""


def fold_numbers(graph: Graph) -> None:
    """Replace the nodes of a graph that compute numbers of symbols that placeholders have: a ``SymInt``, a ``SymFloat`` or an int is an argument in place of
    each."""
    known, _ = symbol_sources(graph)
    told: dict[Any, Any] = {}
    for node in graph.nodes:
        if _is_told(node, known):
            told[node] = node.meta["val"]
        elif told.keys() & set(node.all_input_nodes):
            node.args, node.kwargs = map_arg((node.args, node.kwargs), lambda n: told.get(n, n))
    for node in reversed(told):
        graph.erase_node(node)


def _is_told(node: Node, known: Mapping[str, str]) -> bool:
    """Whether a node computes an integer, or a number of known symbols, and has no other effect."""
    value: Any = node.meta.get("val")
    if node.op != "call_function" or (isinstance(node.target, torch._ops.OperatorBase) and node.target not in SIZES):
        return False
    if isinstance(value, SYMBOLIC):
        every = parts(value.node.expr)
        return all(type(e).__name__ in PRINTED or e.is_number for e in every) and {str(e) for e in every if e.is_Symbol} <= known.keys()
    return isinstance(value, int) and not isinstance(value, bool)
