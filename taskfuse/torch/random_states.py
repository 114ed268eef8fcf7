"""States of random numbers that attention without dropout passes to its gradients: no number is drawn, so the graph makes zeros.

The rest of the op is one kernel.
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from taskfuse.torch.fates import GraphPartition, NodeKind, op_name
from taskfuse.torch.rules.attention import ATTENTION

aten: Any = torch.ops.aten


def is_state(node: Node) -> bool:
    """Whether a result of attention is a state of random numbers."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.dtype.is_floating_point


def separate_states(graph: Graph, plan: GraphPartition) -> bool:
    """Give the readers of the states of fused attention zeros instead. True if there are any."""
    found = False
    for node in list(graph.nodes):
        if node.target is not getitem or not node.users or op_name(node.args[0]) not in ATTENTION or plan.kinds[node.args[0]] is not NodeKind.MATH:
            continue
        if is_state(node):
            value = node.meta["val"]
            more = {"dtype": value.dtype, "device": value.device}
            with graph.inserting_before(node.args[0]):
                zeros = graph.call_function(aten.full.default, (list(value.shape), 0), more)
            with value.fake_mode, torch.no_grad():
                zeros.meta["val"] = aten.full.default(list(value.shape), 0, **more)
            node.replace_all_uses_with(zeros)
            graph.erase_node(node)
            found = True
    return found
