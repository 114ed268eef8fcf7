"""A graph of ATen ops to a program: planned, imported, its fusions compiled, written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from taskfuse.collector import SEARCH
from taskfuse.errors import TaskfuseError
from taskfuse.runtime.progress import AGAIN, Progress
from taskfuse.runtime.workers import FEWEST, compiled_elsewhere, compiled_for
from taskfuse.torch.aliases import aliases
from taskfuse.torch.biases import separate_biases
from taskfuse.torch.fates import GraphPartition, NodeKind
from taskfuse.torch.importer import ImportedRegion, imported
from taskfuse.torch.in_place import leave_copies, take_copies, without_overwriting
from taskfuse.torch.kernels import Compiled
from taskfuse.torch.measuring import Measurement
from taskfuse.torch.metadata import Refused, members
from taskfuse.torch.numbers import fold_numbers
from taskfuse.torch.padding import has_odd_rows, pad_products
from taskfuse.torch.partition import PartitionLimits, emitted, outputs_of, planned
from taskfuse.torch.passed_views import with_passed_views
from taskfuse.torch.program import GraphProgram, symbol_sources, written
from taskfuse.torch.random_states import separate_states
from taskfuse.torch.settings import Settings


@dataclass(slots=True)
class GraphReport:
    """What became of one graph.

    Attributes:
        kind: ``"forward"``, ``"backward"`` or ``"inference"``.
        ops: one line per node that computes: its op, where it went, and why.
        able: the names of nodes that could be in fusions, whether they are or not.
        fusions: by number, the nodes and the executable (``None`` for the reference).
        seconds: of compilation.
        program: the graph as it runs.
        measured: microseconds of fusions, by their texts: where :func:`taskfuse.torch.explain` has run the graph.
    """

    kind: str
    ops: list[tuple[str, str, str, str]]
    able: frozenset[str]
    fusions: dict[int, tuple[ImportedRegion, Compiled]]
    seconds: float
    program: GraphProgram
    measured: dict[str, float] = field(default_factory=dict[str, float])


Listener = Callable[[GraphReport], None]
listeners: list[Listener] = []
"""Called with the report of every compiled graph; see :func:`taskfuse.torch.explain`."""

Key = tuple[str, str, tuple[tuple[str, int], ...]]
"""A fusion as text, the settings, and the extents that it is expected to be called with."""
_known: dict[Key, Compiled] = {}
_asked: dict[Key, Future[Any]] = {}
"""Fusions that other processes compile."""
_lock = threading.Lock()


@dataclass(slots=True)
class _PlannedAhead:
    """A copy of a graph with its plan, and what the graph was like then."""

    gm: GraphModule
    plan: GraphPartition
    regions: dict[int, ImportedRegion]
    settings: Settings
    was: list[tuple[object, ...]]

    def holds(self, gm: GraphModule, settings: Settings) -> bool:
        """Whether a graph is as that one was: AOTAutograd compiles a deep copy."""
        return settings == self.settings and _contents(gm) == self.was


_ahead: list[_PlannedAhead] = []
"""The graph that was planned last before another one was compiled."""


def program_of(gm: GraphModule, kind: str, settings: Settings, following: GraphModule | None = None) -> GraphProgram:
    """Compile a functional graph whose nodes carry torch's metadata.

    Args:
        following: a graph that will be compiled next, such as the backward graph: its fusions are compiled side by side with those of this one. It is not
            changed.

    Raises:
        TaskfuseError: in strict mode, a fusion that cannot be compiled; otherwise its ops are left to torch.
    """
    start = time.perf_counter()
    found = _ahead.pop() if _ahead else None
    if following is not None and settings.run == "kernels":  # first: fusions of backward graphs take longest
        with suppress(Exception):  # whatever is wrong with it is said when it is compiled
            _plan_ahead(following, settings)
    if found is not None and found.holds(gm, settings):
        gm, plan, regions = found.gm, found.plan, found.regions
    else:
        plan, regions = planned_regions(gm, settings)
    graph = gm.graph
    _ask(regions, settings, is_last=following is None)
    compiled = _compiled(plan, regions, settings)
    if any(number not in compiled for number in regions):  # what was dissolved may read, or be read by, others
        regions = {number: region for number, region in _regions(gm, plan).items()}
        _ask({n: r for n, r in regions.items() if n not in compiled}, settings, is_last=True)
        compiled |= _compiled(plan, {n: r for n, r in regions.items() if n not in compiled or r.text != compiled[n].text}, settings)
    regions = without_overwriting(plan, regions, compiled)
    known, later = symbol_sources(graph)
    views = aliases(graph, known)
    more = {
        number: [later[name] for name in region.integers if name in later] + [n for n in region.tensors if n in views] for number, region in regions.items()
    }
    order = emitted(graph, plan, more, views)
    program = written(gm, order, regions, compiled, views)
    able = frozenset(node.name for node in plan.able)
    fusions = {number: (region, compiled[number]) for number, region in regions.items()}
    report = GraphReport(kind, ops_of(gm, plan), able, fusions, time.perf_counter() - start, program)
    for listener in list(listeners):
        listener(report)
    return program


def _plan_ahead(gm: GraphModule, settings: Settings) -> None:
    """Plan a copy of a graph, and have other processes compile its fusions."""
    copy = copied(gm)
    ahead = _PlannedAhead(copy, *planned_regions(copy, settings), settings, _contents(gm))
    _ask(ahead.regions, settings, is_last=False)
    _ahead[:] = [ahead]


def copied(gm: GraphModule) -> GraphModule:
    """A copy whose graph may be changed; constants are shared."""
    graph = Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    return GraphModule(gm, graph)


def _contents(gm: GraphModule) -> list[tuple[object, ...]]:
    """The nodes of a graph with what they read, and torch's metadata, as texts: comparing symbolic extents could add guards."""
    return [(node.name, node.op, node.target, str(node.args), str(node.kwargs), *_laid(node.meta.get("val"))) for node in gm.graph.nodes]


def _laid(value: Any) -> tuple[str, ...]:
    match value:
        case torch.Tensor():
            strides = value.stride() if value.layout is torch.strided else None
            return str(value.dtype), str(value.device), str(tuple(value.shape)), str(strides), str(value.storage_offset() if strides is not None else None)
        case tuple() | list():
            return tuple(text for v in members(value) for text in _laid(v))
        case _:
            return (str(value),)


def pad_joint(graph: Graph, settings: Settings) -> None:
    """Pad the products of the graph that AOTAutograd will divide into a forward and a backward one."""
    if any(map(has_odd_rows, graph.nodes)):
        with SEARCH:
            pad_products(graph, planned(graph, _limits(settings)), settings.device)


def _limits(settings: Settings) -> PartitionLimits:
    measure = _measurement(settings) if settings.measure and settings.run == "kernels" else None
    return PartitionLimits(settings.device, settings.products, settings.least, settings.most, measure)


@cache
def _measurement(settings: Settings) -> Measurement:
    return Measurement(_arguments(settings))


def planned_regions(gm: GraphModule, settings: Settings) -> tuple[GraphPartition, dict[int, ImportedRegion]]:
    """The partition of a graph, in which products may be padded and lose their biases for it, and the fusion of each region."""
    limits = _limits(settings)
    known: dict[Any, str | None] = {}
    with SEARCH:
        fold_numbers(gm.graph)
        plan = planned(gm.graph, limits, known)
        if pad_products(gm.graph, plan, settings.device) | separate_states(gm.graph, plan) | separate_biases(gm.graph, plan):
            plan = planned(gm.graph, limits, known)
        take_copies(gm.graph, plan)
        return plan, _regions(gm, plan)


def _regions(gm: GraphModule, plan: GraphPartition) -> dict[int, ImportedRegion]:
    """The fusion of each region; those of which none can be made are left to torch. Those that differ only in where their views begin become equal."""
    known, later = symbol_sources(gm.graph)
    while True:
        found: dict[int, ImportedRegion] = {}
        refused: dict[int, str] = {}
        every = outputs_of(gm.graph, plan)
        for number, outputs in enumerate(every):
            nodes = plan.regions[number]
            if not nodes:
                continue
            if not outputs:
                refused[number] = "nothing reads it"
                continue
            try:
                region = imported(nodes, outputs, lambda node: plan.kinds[node] is NodeKind.GLUE)
                missing = [name for name in region.integers if name not in known and name not in later]
                if missing:
                    refused[number] = f"no input says what {missing[0]} is"
                found[number] = region
            except Refused as error:
                refused[number] = str(error)
            except TaskfuseError as error:
                refused[number] = error.message
        if not refused:
            return with_passed_views(plan, found, every, cache(lambda: aliases(gm.graph, known)))
        for number, reason in refused.items():
            if not leave_copies(plan, number, reason):
                plan.dissolve(number, reason)


def _keys(regions: dict[int, ImportedRegion], settings: Settings) -> dict[int, Key]:
    return {number: (region.text, settings.tag, tuple(sorted(region.sizes.items()))) for number, region in regions.items()}


def _ask(regions: dict[int, ImportedRegion], settings: Settings, *, is_last: bool) -> None:
    """Have other processes compile the fusions of regions that are new, if that pays: where all that is to compile is few fusions, the caller does it."""
    if settings.run != "kernels":
        return
    keys = _keys(regions, settings)
    new = {own: regions[number] for number, own in keys.items() if own not in _known and own not in _asked}
    fusions, sizes = [region.fusion for region in new.values()], [region.sizes for region in new.values()]
    answers = compiled_elsewhere(fusions, _arguments(settings), settings.processes, fewest=FEWEST if is_last else 1, sizes=sizes)
    _asked.update(zip(new, answers, strict=True))


def _compiled(plan: GraphPartition, regions: dict[int, ImportedRegion], settings: Settings) -> dict[int, Compiled]:
    """The executables of regions, equal fusions once; regions without one are left to torch, unless that is an error."""
    key = _keys(regions, settings)
    new = {key[number]: region for number, region in regions.items() if key[number] not in _known}
    made: dict[Key, Compiled | TaskfuseError] = {}
    with Progress("torch.compile") as progress:

        def report() -> None:
            done = len(made) + sum(answer.done() for own in new if (answer := _asked.get(own)) is not None)
            progress(f"{done} of {len(new)} fusions of a graph compiled")

        for own, region in new.items():
            result = _made(region, own, settings, report)
            if isinstance(result, TaskfuseError):
                made[own] = result
            else:
                made[own] = Compiled.of(region.fusion, own[0], settings.run, len(region.numbers), result)
    found: dict[int, Compiled] = {}
    with _lock:
        _known.update({own: result for own, result in made.items() if isinstance(result, Compiled)})
        for number, own in key.items():
            if own in _known:
                found[number] = _known[own]
    for number, own in key.items():
        error = made.get(own)
        if isinstance(error, TaskfuseError):
            if settings.strict:
                raise error
            plan.dissolve(number, f"it does not compile: {error.message}")
    return found


def _made(region: ImportedRegion, own: Key, settings: Settings, report: Callable[[], None]) -> Any:
    """The executable of a region, ``None`` for the reference, or the error. ``report`` is called now and then while another process compiles."""
    if settings.run == "reference":
        return None
    asked = _asked.pop(own, None)
    result = None if asked is None else _waited(asked, report)
    return _one(region, _arguments(settings)) if result is None else result


def _waited(answer: Future[Any], report: Callable[[], None]) -> Any:
    """The result of another process."""
    while True:
        report()
        try:
            return answer.result(AGAIN)
        except TimeoutError:
            continue


def _arguments(settings: Settings) -> dict[str, Any]:
    """The arguments of :func:`taskfuse.compile`."""
    backend = "cuda" if settings.run == "kernels" else "sim"
    return {"backend": backend, "numerics": settings.numerics, "budget": settings.budget, "cache": settings.cache}


def _one(region: ImportedRegion, arguments: dict[str, Any]) -> Any:
    try:
        return compiled_for(region.fusion, arguments, region.sizes)
    except TaskfuseError as error:
        return error


def ops_of(gm: GraphModule, plan: GraphPartition) -> list[tuple[str, str, str, str]]:
    """For each node that computes: its name, its op, where it went, and why if that is torch."""
    found: list[tuple[str, str, str, str]] = []
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        kind = plan.kinds[node]
        where = f"fusion {plan.region_of[node]}" if node in plan.region_of else kind.value
        found.append((node.name, _op(node), where, plan.reasons.get(node, "") if kind is NodeKind.TORCH else ""))
    return found


def _op(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target)) if not hasattr(node.target, "_schema") else str(node.target)
