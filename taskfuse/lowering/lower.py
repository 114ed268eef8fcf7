"""Lowering: a fusion with its schedule becomes a kernel. The pipeline is the body of :func:`lower`, in order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from taskfuse.errors import UnsupportedError
from taskfuse.ir.fusion import Fusion, as_fusion
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel
from taskfuse.location import caller
from taskfuse.lowering.channels import Channels
from taskfuse.lowering.copies import retire_copies
from taskfuse.lowering.emit import Emitter
from taskfuse.lowering.endpoints import Endpoints
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.instructions import BUILDERS
from taskfuse.lowering.nest import NestBuilder
from taskfuse.lowering.notes import Notes
from taskfuse.lowering.prepare import check_supported, prepare
from taskfuse.lowering.regions import Regions
from taskfuse.lowering.register_rings import unroll_rings
from taskfuse.lowering.registers import Registers
from taskfuse.lowering.rings import Rings
from taskfuse.lowering.semaphores import semaphores
from taskfuse.lowering.statements import Statements
from taskfuse.lowering.storage import buffers, lay_out, unroll_for_registers
from taskfuse.lowering.sync import Synchronizer
from taskfuse.lowering.witness import definitions
from taskfuse.passes import run_pipeline
from taskfuse.schedule.order import Sequencer


@dataclass(frozen=True, slots=True)
class LoweringOptions:
    """How to lower.

    Attributes:
        order_seed: picks one of the valid total orders; ``None``: the order in which tensors were made.
        shared_limit: bytes of Shared memory per block above which buffers with disjoint lifetimes share memory.
        verify: verify the kernel after each step.
    """

    order_seed: int | None = None
    shared_limit: int = 48 * 1024
    verify: bool = True


DEFAULT = LoweringOptions()


def lower(fusion: Fusion, options: LoweringOptions = DEFAULT) -> Kernel:
    """The kernel of a fusion: a pure function of the fusion and the options.

    Raises:
        TaskError: a law of tasks and groups is broken.
        ScheduleError: the inline positions admit no total order.
        LoweringError: the schedule cannot become a kernel.
        UnsupportedError: what is no fusion, or a construct that is not built yet.
    """
    check_supported(as_fusion(fusion, "tf.lower"))
    if not isinstance(cast("object", options), LoweringOptions):
        raise UnsupportedError(what=f"options {options!r}", reason="they are none", help="use tf.LoweringOptions(...)", location=caller())
    fusion = prepare(fusion)
    sequencer = Sequencer(fusion, options.order_seed)
    order = sequencer.sequence()
    regions = Regions(fusion, sequencer.tree)
    indexer = Indexer(fusion, sequencer.tree, sequencer.joins, regions)
    channels = Channels(fusion, sequencer.tree, regions, sequencer.joins.path, order, indexer.environments.work.trips)
    channels.check_memory(indexer.memory)
    rings = Rings(indexer, channels)
    indexer.slot, indexer.full = rings.slot, rings.full
    statements = Statements(indexer, BUILDERS)
    plan = NestBuilder(indexer, statements).build(order)
    rings.fill_ahead(plan, statements)
    endpoints = Endpoints(channels, statements)
    endpoints.insert(plan)
    rings.insert(plan)
    retire_copies(plan, indexer, channels, rings.ahead)
    unroll_rings(plan, rings.ahead, regions.facts)
    storage = buffers(indexer, statements, rings, plan)
    Registers(regions, storage).insert(plan)
    unroll_for_registers(plan, storage, indexer)
    storage = lay_out(plan, storage, options.shared_limit, {*statements.alignments, *channels.copied()})
    sync = Synchronizer(regions, sequencer.tree.root, [b for b in storage if b.memory is not MemoryType.Local], channels.names(), rings)
    sync.insert(plan, {tv.name for tv in fusion.outputs})
    endpoints.check_turns(plan)
    Notes(indexer, channels).write(plan)
    mbarriers = [*channels.barriers(), *rings.barriers(), *((name, 1, count) for name, count in sync.mbarriers)]
    cursors, maps = tuple(sync.cursor_inits()), tuple(statements.maps.values())
    kernel = Emitter(fusion, regions).kernel(plan, storage, mbarriers, sync.counters, semaphores(channels), cursors, maps)
    return run_pipeline(replace(kernel, definitions=definitions(fusion)), options.verify)
