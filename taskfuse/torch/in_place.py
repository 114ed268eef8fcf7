"""Copies into arguments of a graph by the fusions that make what is copied: they write there, where torch would copy after them.

AOTAutograd makes an update of an argument (a parameter in a step of an optimizer, a running mean, a cache of keys) a new tensor, and a copy into the argument
at the end of the graph. The region that makes the tensor takes the copy if everything else that reads the argument can run before it. The fusion's result is
then written into its input; what the fusion itself reads there is what was there before. A kernel that cannot be proved to read each element before it is
overwritten leaves the copy to torch after all (:attr:`taskfuse.torch.kernels.Compiled.stored`). AOTAutograd counts the versions of arguments that a graph
writes to, however it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, Node

from taskfuse.torch.copies import COPY
from taskfuse.torch.fates import GraphPartition, NodeKind, is_ordered, mutates
from taskfuse.torch.importer import ImportedRegion
from taskfuse.torch.kernels import Compiled
from taskfuse.torch.metadata import Refused, meta_of, results
from taskfuse.torch.partition import read_by_region

OVERWRITES = "its kernel would overwrite what it reads"
"""Why a copy is left to torch after its fusion was compiled."""

Step = Node | int
"""What the graph runs: a node of torch, or a region by its number."""


def take_copies(graph: Graph, plan: GraphPartition) -> None:
    """Move copies into regions. In a backward graph there are none to move: its arguments may be passed as copies."""
    copies = [node for node in graph.nodes if node.target is COPY]
    if not copies or any(node.op == "placeholder" and str(node.target).startswith("tangents") for node in graph.nodes):
        return
    place = {node: k for k, node in enumerate(graph.nodes)}
    sharing: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for memory in {v.untyped_storage()._cdata for v in results(node) if _has_memory(v)}:
            sharing.setdefault(memory, []).append(node)
    for copy in copies:
        if not _is_plain(copy, plan):
            continue
        target, made = copy.args
        number = plan.region_of[made]
        before = _readers(copy, number, sharing[target.meta["val"].untyped_storage()._cdata], place, plan)
        if before is not None and not _follow(before, number, plan):
            plan.take(copy, number, before)


def leave_copies(plan: GraphPartition, number: int, reason: str) -> bool:
    """Leave the copies of a region to torch, for instance as no fusion of it with them can be made. False if it has none."""
    copies = [node for node in plan.regions[number] if node.target is COPY]
    for copy in copies:
        plan.leave(copy, reason)
    return bool(copies)


def without_overwriting(plan: GraphPartition, regions: Mapping[int, ImportedRegion], compiled: Mapping[int, Compiled]) -> dict[int, ImportedRegion]:
    """The regions, with new tensors in place of results that their kernels do not write into arguments: torch copies these."""
    found = dict(regions)
    for number, region in regions.items():
        outputs = list(region.outputs)
        for k, node in enumerate(region.outputs):
            if node.target is COPY and k not in compiled[number].stored:
                made: Any = node.args[1]
                plan.leave(node, OVERWRITES)
                if made not in region.outputs:
                    outputs[k] = made
        found[number] = replace(region, outputs=tuple(outputs))
    return found


def _has_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _is_plain(copy: Node, plan: GraphPartition) -> bool:
    """Whether a copy stores a tensor that a region makes, all of it, into an argument of the same form, each element at a place of its own."""
    if copy.users or copy.kwargs or len(copy.args) != 2 or "val" not in copy.meta:
        return False
    target, made = copy.args
    if not isinstance(target, Node) or not isinstance(made, Node) or target.op != "placeholder":
        return False
    if plan.kinds[made] is not NodeKind.MATH or made in plan.group_of or made not in plan.region_of:
        return False
    into, value = target.meta["val"], made.meta["val"]
    if not _has_memory(into) or not isinstance(value, torch.Tensor) or not all(isinstance(n, int) for n in (*into.shape, *into.stride(), *value.shape)):
        return False
    try:
        is_number = meta_of(into).is_host_number
    except Refused:
        return False
    alike = into.shape == value.shape and into.dtype is value.dtype and into.device == value.device
    return alike and not is_number and into.numel() > 0 and _has_own_places(into)


def _has_own_places(value: torch.Tensor) -> bool:
    """Whether no two elements of a tensor lie at one place."""
    last = 0  # the distance between the first element and the last one so far
    for stride, extent in sorted(zip(value.stride(), value.shape, strict=True)):
        if extent > 1 and stride <= last:
            return False
        last += (extent - 1) * stride
    return True


def _readers(copy: Node, number: int, members: Sequence[Node], place: dict[Node, int], plan: GraphPartition) -> set[Step] | None:
    """What reads the argument of a copy, or a view of it, besides the region of that number; ``None``: it would have to run later, or the region has such a
    view as an argument, too."""
    target = copy.args[0]
    found: set[Step] = set()
    seen, stack = set(members), list(members)
    while stack:
        member = stack.pop()
        for user in member.users:
            if user is copy or user.op == "output":
                continue
            if place[user] > place[copy] or mutates(user):
                return None
            match plan.kinds[user]:
                case NodeKind.MATH if plan.region_of[user] == number:
                    if member is not target and plan.kinds[member] is NodeKind.TORCH:
                        return None
                case NodeKind.MATH:
                    found.add(plan.region_of[user])
                case NodeKind.GLUE if user not in seen:  # its readers compute it
                    seen.add(user)
                    stack.append(user)
                case NodeKind.TORCH:
                    found.add(user)
                case _:
                    pass
    return found


def _follow(steps: set[Step], number: int, plan: GraphPartition) -> bool:
    """Whether one of some steps cannot run before a region: it needs what the region makes, or a node that keeps its order, so that others may have to come
    first."""
    stack, seen = list(steps), set[Step]()
    while stack:
        at = stack.pop()
        if at == number or (not isinstance(at, int) and is_ordered(at)):
            return True
        if at not in seen:
            seen.add(at)
            stack += _needed(at, plan)
    return False


def _needed(step: Step, plan: GraphPartition) -> Iterator[Step]:
    """What runs before a step."""
    if isinstance(step, int):
        yield from plan.earlier.get(step, ())
    for node in read_by_region(plan.regions[step] if isinstance(step, int) else [step], plan):
        yield plan.region_of.get(node, node)
