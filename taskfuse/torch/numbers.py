"""Numbers that the inputs of a graph tell, such as sizes of views: expressions of symbols in place of the ops that compute them.

torch has nodes that read the size of a tensor and calculate with it wherever an op takes such a number. As readers of the tensor they would have it leave its
fusion, and the host would run them in each call.
"""

from __future__ import annotations

from typing import Any

from torch.fx import Graph
from torch.fx.node import map_arg

from taskfuse.torch.metadata import SYMBOLIC
from taskfuse.torch.program import symbol_sources


def fold_numbers(graph: Graph) -> None:
    """Replace the nodes of a graph that compute numbers of symbols that placeholders have: a ``SymInt``, a ``SymFloat`` or an int is an argument in place of
    each."""
    known, _ = symbol_sources(graph)
    told: dict[Any, Any] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and _is_told(value, known):
            told[node] = value
        elif told.keys() & set(node.all_input_nodes):
            node.args, node.kwargs = map_arg((node.args, node.kwargs), lambda n: told.get(n, n))
    for node in reversed(told):
        graph.erase_node(node)


def _is_told(value: Any, known: dict[str, str]) -> bool:
    """Whether a value is an integer, or a number made of symbols that are known."""
    if isinstance(value, SYMBOLIC):
        return {str(symbol) for symbol in value.node.expr.free_symbols} <= known.keys()
    return isinstance(value, int) and not isinstance(value, bool)
