"""Products with what follows them, as a fusion and by torch, measured on the GPU: what decides in ``mode="max-autotune"``, where expected times are near.

Both are run on tensors of random numbers, of the shapes and strides that the graph has; torch's side is its op and a fusion of the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from operator import getitem
from typing import Any, Final

import torch
from torch.fx import Node

from taskfuse.errors import TaskfuseError
from taskfuse.runtime.compile import compile
from taskfuse.torch.fates import GraphPartition, NodeKind, op_name
from taskfuse.torch.importer import ImportedRegion, imported
from taskfuse.torch.metadata import Refused
from taskfuse.torch.random_states import is_state
from taskfuse.torch.worth import passed_us

CALLS: Final = 10
"""Calls that are timed together."""
AHEAD: Final = 2_000_000
"""Cycles that a GPU waits before them, about a millisecond, in which the host launches them: what is measured are kernels one after another."""

Times = tuple[float, float]


def microseconds(call: Callable[[], Any], device: torch.device) -> float:
    """The time of a call on a device, after the first calls."""
    start: Any
    if device.type != "cuda":
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6
    with torch.cuda.device(device):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(AHEAD)
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
    return start.elapsed_time(end) * 1e3 / CALLS


class Measurement:
    """Measures groups of nodes, equal ones once.

    Args:
        arguments: of :func:`taskfuse.compile`.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._known: dict[tuple[str, ...], Times | None] = {}

    def __call__(self, group: Sequence[Node], products: Sequence[Node], plan: GraphPartition, joins: bool) -> Times | None:
        """Microseconds of a group as a fusion, and of torch's ops and a fusion of the rest; ``None`` if one of the two cannot be run here.

        Args:
            group: nodes, in the order of the graph; one tensor leaves them, or the results of their only op.
            products: those of them that torch would compute.
            joins: readers of the result would be in the kernel of the rest: it is then counted what passes through memory.
        """
        try:
            whole = _region(group, plan)
            others = [node for node in group if node not in products and node.target is not getitem]
            rest = _region(others, plan) if others else None
            key = (whole.text, "" if rest is None else rest.text, str(joins), *map(op_name, products))
            if key not in self._known:
                dispatch: Any = torch.utils._python_dispatch
                with dispatch._disable_current_modes():  # those under which torch traces
                    self._known[key] = self._times(whole, rest, products, joins)
            return self._known[key]
        except (Refused, TaskfuseError, RuntimeError):  # torch's, too: of an op that this GPU or its memory refuses
            return None

    def _times(self, whole: ImportedRegion, rest: ImportedRegion | None, products: Sequence[Node], joins: bool) -> Times | None:
        if whole.numbers or whole.integers or any(_has_symbols(node) for node in whole.tensors):
            return None
        values: dict[Node, Any] = {node: random_like(node.meta["val"]) for node in whole.tensors}

        def value(node: Node) -> Any:
            if node not in values:
                values[node] = called(node)()
            return values[node]

        def called(node: Node) -> Callable[[], Any]:
            mapped: Any = torch.fx.node.map_arg
            args, kwargs = (mapped(given, value) for given in (node.args, node.kwargs))
            target: Any = node.target
            return lambda: target(*args, **kwargs)

        device = next(iter(values.values())).device
        ours = self._fusion_us(whole, values, device)
        theirs = 0.0
        for node in products:
            call = called(node)
            values[node] = call()
            theirs += microseconds(call, device)
        if rest is not None and joins:
            ours += passed_us(whole.fusion, whole.fusion.outputs)
            theirs += passed_us(rest.fusion, rest.fusion.inputs)
        elif rest is not None:
            theirs += self._fusion_us(rest, {node: value(node) for node in rest.tensors}, device)
        return ours, theirs

    def _fusion_us(self, region: ImportedRegion, values: Mapping[Node, Any], device: torch.device) -> float:
        run, args = compile(region.fusion, **self._arguments), [values[node] for node in region.tensors]
        run(*args)
        return microseconds(lambda: run(*args), device)


def _region(nodes: Sequence[Node], plan: GraphPartition) -> ImportedRegion:
    outputs = [n for n in nodes if n.target is getitem and n.users and not is_state(n)] or [nodes[-1]]
    return imported(nodes, outputs, lambda n: plan.kinds[n] is NodeKind.GLUE)


def _has_symbols(node: Node) -> bool:
    value = node.meta["val"]
    return any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride()))


def random_like(value: Any) -> Any:
    """A tensor with the shape, strides, dtype and device of another one: of random numbers, or of zeros, which are indices of everything."""
    size = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) if value.numel() else 0
    if value.dtype.is_floating_point:
        own = torch.Generator(value.device).manual_seed(0)  # the caller's random numbers stay as they are
        flat = torch.randn(size, device=value.device, generator=own).to(value.dtype)
    else:
        flat = torch.zeros(size, dtype=value.dtype, device=value.device)
    return flat.as_strided(value.shape, value.stride())
