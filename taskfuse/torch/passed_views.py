"""Views that a graph passes to fusions which could make them: so that fusions which differ only in where their views begin are one.

A loop over time steps becomes a graph with the same ops again and again, each time on other slices of the same tensors. As part of a fusion, a slice is an
index with the number of the step in it, so that every step has a fusion of its own. As an argument it is an address, which costs the host part of a
microsecond for each call: worth it where it saves several compilations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import torch
from torch.fx import Node

from taskfuse.errors import TaskfuseError
from taskfuse.torch.aliases import Alias
from taskfuse.torch.copies import COPY
from taskfuse.torch.fates import GraphPartition, NodeKind
from taskfuse.torch.importer import ImportedRegion, imported
from taskfuse.torch.metadata import Refused

FEWEST: Final = 4
"""The fewest different fusions of one form for which views are passed."""
_NUMBER: Final = re.compile(r"\d+")


def with_passed_views(
    plan: GraphPartition, regions: Mapping[int, ImportedRegion], outputs: Sequence[Sequence[Node]], aliases: Callable[[], Mapping[Node, Alias]]
) -> dict[int, ImportedRegion]:
    """The regions of a graph, with views as inputs where at most half as many different fusions remain.

    Args:
        outputs: by number of the region, the nodes that leave it.
        aliases: finds the views of the graph.
    """
    found = dict(regions)
    forms: dict[str, list[int]] = {}
    for number, region in regions.items():
        forms.setdefault(_NUMBER.sub("", region.text), []).append(number)
    for numbers in forms.values():
        before = {regions[number].text for number in numbers}
        if len(before) < FEWEST:
            continue
        passed = {number: _passing(plan, number, outputs[number], aliases()) or regions[number] for number in numbers}
        if 2 * len({region.text for region in passed.values()}) <= len(before):
            found |= passed
    return found


def _passing(plan: GraphPartition, number: int, outputs: Sequence[Node], aliases: Mapping[Node, Alias]) -> ImportedRegion | None:
    """A region with the views as inputs that are parts of tensors from outside it; ``None`` if there are none, or they cannot be inputs."""
    nodes = plan.regions[number]
    parts = _parts(plan, number, aliases)
    if not parts:
        return None
    first: dict[Alias, Node] = {}
    equal = {node: first.setdefault(aliases[node], node) for node in parts}
    try:
        return imported(nodes, outputs, lambda node: plan.kinds[node] is NodeKind.GLUE and node not in parts, equal)
    except (Refused, TaskfuseError):
        return None


def _parts(plan: GraphPartition, number: int, aliases: Mapping[Node, Alias]) -> dict[Node, None]:
    """The views that are read in a region, the nearest to what reads them, which have some elements of a tensor from outside it, each once."""
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    written = {node.args[0] for node in plan.regions[number] if node.target is COPY}
    stack = [node for reader in plan.regions[number] for node in reader.all_input_nodes]
    while stack:
        node = stack.pop()
        if node in seen or plan.kinds[node] is not NodeKind.GLUE:
            continue
        seen.add(node)
        view = aliases.get(node)
        if (
            view is not None
            and view.base not in written
            and plan.kinds[view.base] is not NodeKind.GLUE
            and plan.region_of.get(view.base) != number
            and _is_part(view)
        ):
            found[node] = None
        else:
            stack += node.all_input_nodes
    return found


def _is_part(view: Alias) -> bool:
    """Whether a view has fewer elements than its tensor, and no element twice, all of it known."""
    whole = view.base.meta["val"]
    numbers: Iterable[object] = (*view.shape, *view.strides, view.offset, *whole.shape)
    if any(isinstance(n, torch.SymInt) for n in numbers):
        return False
    return 0 < torch.Size(view.shape).numel() < whole.numel() and all(n == 1 or s > 0 for n, s in zip(view.shape, view.strides, strict=True))
