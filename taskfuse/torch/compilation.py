"""A graph of ATen ops to a program: planned, imported, its fusions compiled, written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule, Node

from taskfuse.errors import TaskfuseError
from taskfuse.ir.fusion import Fusion
from taskfuse.runtime.compile import compile
from taskfuse.runtime.workers import compiled_elsewhere
from taskfuse.torch.aliases import aliases
from taskfuse.torch.fates import GraphPartition, NodeKind
from taskfuse.torch.importer import ImportedRegion, imported
from taskfuse.torch.kernels import Compiled
from taskfuse.torch.metadata import Refused
from taskfuse.torch.padding import pad_products
from taskfuse.torch.partition import PartitionLimits, emitted, outputs_of, planned
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
    """

    kind: str
    ops: list[tuple[str, str, str, str]]
    able: frozenset[str]
    fusions: dict[int, tuple[ImportedRegion, Compiled]]
    seconds: float
    program: GraphProgram


Listener = Callable[[GraphReport], None]
listeners: list[Listener] = []
"""Called with the report of every compiled graph; see :func:`taskfuse.torch.explain`."""

_known: dict[tuple[str, str], Compiled] = {}
_lock = threading.Lock()


def program_of(gm: GraphModule, kind: str, settings: Settings) -> GraphProgram:
    """Compile a functional graph whose nodes carry torch's metadata.

    Raises:
        TaskfuseError: in strict mode, a fusion that cannot be compiled; otherwise its ops are left to torch.
    """
    start = time.perf_counter()
    graph = gm.graph
    limits = PartitionLimits(settings.device, settings.products, settings.least, settings.most)
    plan = planned(graph, limits)
    if pad_products(graph, plan, settings.device) | separate_states(graph, plan):
        plan = planned(graph, limits)
    regions = _regions(gm, plan)
    compiled = _compiled(plan, regions, settings)
    if any(number not in compiled for number in regions):  # what was dissolved may read, or be read by, others
        regions = {number: region for number, region in _regions(gm, plan).items()}
        compiled |= _compiled(plan, {n: r for n, r in regions.items() if n not in compiled or str(r.fusion) != compiled[n].text}, settings)
    known, later = symbol_sources(graph)
    views = aliases(graph, known)
    more = {number: [later[name] for name in region.integers if name in later] for number, region in regions.items()}
    order = emitted(graph, plan, more, views)
    program = written(gm, order, regions, compiled, views)
    able = frozenset(node.name for node in plan.able)
    fusions = {number: (region, compiled[number]) for number, region in regions.items()}
    report = GraphReport(kind, ops_of(gm, plan), able, fusions, time.perf_counter() - start, program)
    for listener in list(listeners):
        listener(report)
    return program


def _regions(gm: GraphModule, plan: GraphPartition) -> dict[int, ImportedRegion]:
    """The fusion of each region; those of which none can be made are left to torch."""
    known, later = symbol_sources(gm.graph)
    while True:
        found: dict[int, ImportedRegion] = {}
        refused: dict[int, str] = {}
        for number, outputs in enumerate(outputs_of(gm.graph, plan)):
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
            return found
        for number, reason in refused.items():
            plan.dissolve(number, reason)


def _compiled(plan: GraphPartition, regions: dict[int, ImportedRegion], settings: Settings) -> dict[int, Compiled]:
    """The executables of regions, equal fusions once; regions without one are left to torch, unless that is an error."""
    key = {number: (str(region.fusion), settings.tag) for number, region in regions.items()}
    new = {key[number]: region for number, region in regions.items() if key[number] not in _known}
    made: dict[tuple[str, str], Compiled | TaskfuseError] = {}
    for own, result in zip(new, _made([r.fusion for r in new.values()], settings), strict=True):
        region = new[own]
        if isinstance(result, TaskfuseError):
            made[own] = result
        else:
            made[own] = Compiled(own[0], settings.run, len(region.tensors), len(region.numbers), result)
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


def _made(fusions: list[Fusion], settings: Settings) -> Iterable[Any]:
    """The executable of each fusion, ``None`` for the reference, or the error."""
    if settings.run == "reference":
        return [None] * len(fusions)
    arguments: dict[str, Any] = {"backend": "cuda" if settings.run == "kernels" else "sim", "numerics": settings.numerics}
    arguments |= {"budget": settings.budget, "cache": settings.cache}
    elsewhere = compiled_elsewhere(fusions, arguments, settings.processes) if settings.run == "kernels" else [None] * len(fusions)
    return [_one(fusion, arguments) if made is None else made for fusion, made in zip(fusions, elsewhere, strict=True)]


def _one(fusion: Fusion, arguments: dict[str, Any]) -> Any:
    try:
        return compile(fusion, **arguments)
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
