"""The mechanisms that a schedule uses: the rows of the table in ``make fuzz``."""

from __future__ import annotations

from collections.abc import Iterator

from taskfuse.ir.atoms import Instruction
from taskfuse.ir.axes import Rasterize, Swizzle
from taskfuse.ir.expr import Assemble, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tasks import Group
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType, ParallelType

CALLS = (
    *("split", "merge", "reorder", "swizzle", "rasterize", "propagate", "parallelize_like", "parallelize", "fragment", "set_atom"),
    *("duplicate", "recompute", "chunk_scan", "rfactor", "cache_before", "cache_after", "cache_fork", "scatter"),
    *("inline_at", "inline_most", "set_memory_type", "set_allocation_domain", "circular_buffer", "in_flight", "pipeline_stage", "take_turns"),
    *("tile_shifts", "tile_windows", "clamp_read", "drop_axes", "pack_factors", "chunk_product", "split_fold", "split_reduction"),
    *("task", "group", "pingpong", "registers", "order", "resident_blocks"),
)
"""Scheduling calls that count as mechanisms."""


def mechanisms(fusion: Fusion) -> frozenset[str]:
    """The mechanisms of a fusion's present schedule, as the table names them."""
    found = {name for tv in fusion.tensors() for name in _of_tensor(fusion, tv)}
    for group in fusion.tasks.groups():
        found |= set(_of_group(group))
    if any(isinstance(node.budget, int) for node in fusion.tasks.nodes):
        found.add("register budgets")
    return frozenset(found)


def _of_tensor(fusion: Fusion, tv: TensorView) -> Iterator[str]:
    schedule, types = tv.schedule, [tv.schedule.ptype(a) for a in tv.loop]
    atom = schedule.atom
    if atom is not None:
        name = atom.instruction.value
        match atom.instruction:
            case Instruction.WGMMA | Instruction.MMA:
                yield name
                operands = _factors(fusion, tv)
                yield from (f"{name} of {x.dtype.name}" for x in operands)
                if atom.instruction is Instruction.WGMMA:
                    yield "wgmma from " + ("registers" if any(x.schedule.memory is not MemoryType.Shared for x in operands) else "Shared memory")
                if any(p.is_bound for p in (schedule.ptype(a) for a in tv.loop if a.is_reduction)):
                    yield "parts of an atom's sum on threads or blocks"
            case _:
                yield atom.name
    elif any(a.is_reduction and schedule.ptype(a).is_bound for a in tv.loop):
        yield "reduction on threads or blocks"
    if schedule.in_flight:
        yield "in_flight"
    if schedule.stages > 1:
        yield f"circular buffer in {'registers or Global' if schedule.memory is not MemoryType.Shared else 'Shared'} memory"
    if schedule.allocation is not None and not (atom is not None and atom.spreads):
        yield "allocation domain"
    if any(isinstance(t, Rasterize) for t in schedule.transforms):
        yield "tile order"
    if any(isinstance(t, Swizzle) for t in schedule.transforms):
        yield "swizzle"
    if any(p.is_cluster for p in types):
        yield "cluster"
    if ParallelType.Unroll in types:
        yield "Unroll"
    if isinstance(tv.definition, Assemble):
        yield "scatter form"


def _of_group(group: Group) -> Iterator[str]:
    if group.pingpong_axis is not None:
        yield "pingpong"
    if group.ptype is not None:
        yield f"group on {'blocks' if group.ptype.is_block else 'threads'}"


def _factors(fusion: Fusion, tv: TensorView) -> list[TensorView]:
    expr = tv.definition
    return [] if expr is None else [o.tensor for o in storage_operands(fusion, expr) if isinstance(o, Read)]
