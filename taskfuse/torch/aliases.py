"""Views in a graph: nodes whose tensor lies in the memory of another node's, at strides and an offset that are known.

A chain of views (a split, a reshape, a permutation) is then one view of the first tensor, and the views between need not be made. Torch's own fake tensors
share memory as the real ones will, which tells the views without a list of ops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from taskfuse.torch.metadata import parts


@dataclass(frozen=True, slots=True)
class Alias:
    """A view.

    Attributes:
        base: the node whose memory it lies in, which is not a view.
        shape, strides: integers or ``SymInt``, in elements.
        offset: its first element, counted from that of ``base``.
    """

    base: Node
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any


def aliases(graph: Graph, symbols: Collection[str]) -> dict[Node, Alias]:
    """The views of a graph.

    Args:
        symbols: those whose values are known when the graph begins; a view at others is not replaced.
    """
    found: dict[Node, Alias] = {}
    for node in graph.nodes:
        source = _source(node)
        if source is None:
            continue
        base = found[source].base if source in found else source
        value, own = node.meta["val"], base.meta["val"]
        offset = value.storage_offset() - own.storage_offset()
        if all(_is_simple(n, symbols) for n in (*value.shape, *value.stride(), offset)):
            found[node] = Alias(base, tuple(value.shape), tuple(value.stride()), offset)
    return found


def _source(node: Node) -> Node | None:
    """The tensor read by a node, if what it makes is a view of that."""
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return None
    reads: Iterable[Node] = node.all_input_nodes
    maker: Any = node
    if node.target is getitem and isinstance(node.args[0], Node):
        maker = node.args[0]
        reads = maker.all_input_nodes
    schema = getattr(maker.target, "_schema", None)
    if not isinstance(maker.target, torch._ops.OpOverload) or schema is None or schema.is_mutable:
        return None
    return next((arg for arg in reads if _shares_memory(value, arg.meta.get("val"))), None)


def _shares_memory(value: Any, other: Any) -> bool:
    """Whether two fake tensors are views of one memory, of elements that mean the same."""
    if not isinstance(other, torch.Tensor) or value.dtype != other.dtype or value.device != other.device:
        return False
    if any(t.layout is not torch.strided or t.is_quantized or t.is_nested for t in (value, other)):
        return False
    if value.is_conj() != other.is_conj() or value.is_neg() != other.is_neg():
        return False
    return value.untyped_storage()._cdata == other.untyped_storage()._cdata


def _is_simple(number: Any, symbols: Collection[str]) -> bool:
    """Whether a number is an integer, or sums and products of known symbols."""
    if not isinstance(number, torch.SymInt):
        return True
    return all(type(e).__name__ in ("Symbol", "Add", "Mul") or e.is_Integer for e in parts(number.node.expr)) and {
        str(s) for s in number.node.expr.free_symbols
    } <= set(symbols)
