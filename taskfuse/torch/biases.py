"""Biases of matrix products that torch computes: added where the product is read.

torch has a kernel for ``x @ w + bias`` with the bias in the epilogue of the product, from a library that knows fewer kernels than the one for ``x @ w``: in
float32 the choice is often a slower one. A fusion that reads the product adds the bias for nothing.

Products of 16-bit floats keep their biases: torch rounds the sum of both once, two ops would round twice.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Graph, Node

from taskfuse.torch.fates import GraphPartition, NodeKind, argument
from taskfuse.torch.padding import readers

WIDE: Final = 4
"""The fewest bytes of a dtype in which a product is rounded as its sum is."""
aten: Any = torch.ops.aten


def separate_biases(graph: Graph, plan: GraphPartition) -> bool:
    """Have fusions add the biases of products that torch computes and they alone read, with torch's metadata for new nodes. True if there are any."""
    found = False
    for node in list(graph.nodes):
        if node.target is not aten.addmm.default or plan.kinds[node] is not NodeKind.TORCH or not _is_read_by_one(node, plan):
            continue
        value = node.meta["val"]
        if value.element_size() < WIDE or (argument(node, "alpha"), argument(node, "beta")) != (1, 1):
            continue
        bias, a, b = node.args
        with graph.inserting_before(node):
            product = graph.call_function(aten.mm.default, (a, b))
            added = graph.call_function(aten.add.Tensor, (product, bias))
        with value.fake_mode, torch.no_grad():
            product.meta["val"] = torch.empty_like(value)
        added.meta["val"] = value
        node.replace_all_uses_with(added)
        graph.erase_node(node)
        found = True
    return found


def _is_read_by_one(node: Node, plan: GraphPartition) -> bool:
    """Whether all that reads a tensor is one fusion, and not one around another product."""
    regions = {plan.region_of.get(reader, -1) if reader not in plan.group_of else -1 for reader in readers(node, plan)}
    return len(regions) == 1 and -1 not in regions
