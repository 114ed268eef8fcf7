"""Rows of products, padded: matrices that only fusions and products see begin their rows at multiples of 16 bytes.

torch's kernels for products of matrices load and store 16 bytes at once where every row begins at a multiple of 16 bytes; where rows have 50257 elements of
16 bits, those that take any address run, at an eighth of the speed. What a graph makes and nobody else sees may lie in memory as is best: such a matrix has a
few elements between its rows that nobody reads. It costs no time, so that none is estimated. A product writes there by ``out=``, a fusion by its strides.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import getitem
from typing import Any, Final

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from taskfuse.torch.partition import GraphPartition, NodeKind

ROW: Final = 16
"""Bytes."""
SHARE: Final = 8
"""A row is at least so many times as long as its padding."""
MATMULS: Final = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
"""Products that read and write rows at any distance, without a copy."""


def padded(graph: Graph, plan: GraphPartition) -> set[Node]:
    """Give tensors padded rows, in torch's metadata of them and of their views. Returns the products among them."""
    found: set[Node] = set()
    for node in graph.nodes:
        value = node.meta.get("val")
        made_by_torch = plan.kinds[node] is NodeKind.TORCH and node.target in MATMULS
        if not isinstance(value, torch.Tensor) or not (made_by_torch or plan.kinds[node] is NodeKind.MATH):
            continue
        strides = _strides(value)
        readers = list(_readers(node, plan))
        if strides is None or not all(plan.kinds[r] is NodeKind.MATH or r.target in MATMULS for r in readers):
            continue
        if (made_by_torch or any(plan.kinds[r] is NodeKind.TORCH for r in readers)) and _moved(node, strides, plan) and made_by_torch:
            found.add(node)
    return found


def _strides(value: Any) -> tuple[int, ...] | None:
    """The strides of a row-major tensor of two or three known extents with padded rows; ``None``: of another, or rows that need none."""
    shape = value.shape
    if value.dim() not in (2, 3) or not all(isinstance(n, int) for n in (*shape, *value.stride())) or not value.is_contiguous() or not value.numel():
        return None
    unit = max(ROW // value.element_size(), 1)
    row = -(-shape[-1] // unit) * unit
    if row == shape[-1] or (row - shape[-1]) * SHARE > shape[-1]:
        return None
    return (row, 1) if value.dim() == 2 else (shape[1] * row, row, 1)


def _readers(node: Node, plan: GraphPartition) -> Iterator[Node]:
    """Who reads a tensor, also through views."""
    stack, seen = list(node.users), set[Node]()
    while stack:
        user = stack.pop()
        if user in seen:
            continue
        seen.add(user)
        if plan.kinds[user] is NodeKind.GLUE:
            stack += list(user.users)
        else:
            yield user


def _moved(node: Node, strides: tuple[int, ...], plan: GraphPartition) -> bool:
    """Set the strides of a tensor and of its views. False, and nothing is set, if one of these would be no view then."""
    value = node.meta["val"]
    new: dict[Node, Any] = {}

    def value_of(n: Any) -> Any:
        return new[n] if n in new else n.meta.get("val")

    try:
        with value.fake_mode, torch.no_grad():
            new[node] = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
            stack = [node]
            while stack:
                for user in stack.pop().users:
                    if plan.kinds[user] is NodeKind.GLUE and user not in new:
                        args, kwargs = map_arg((user.args, user.kwargs), value_of)
                        new[user] = args[0][args[1]] if user.target is getitem else user.target(*args, **kwargs)
                        stack.append(user)
    except Exception:  # torch's, whatever it is: a view that there is not
        return False
    memory = new[node].untyped_storage()._cdata
    tensors = [(n, v) for n, v in new.items() if isinstance(v, torch.Tensor)]
    if any(v.untyped_storage()._cdata != memory or v.shape != n.meta["val"].shape for n, v in tensors):
        return False
    for n, v in new.items():
        n.meta["val"] = v
    return True
