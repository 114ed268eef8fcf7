"""The steps of lowering, in order: each is a function that changes the state.

The docstring of a step says what the state has when it begins (requires) and when it ends (ensures). After each step the plan is verified
(:mod:`taskfuse.lowering.plan_rules`), and ``python -m taskfuse show FILE --step NAME`` prints the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from taskfuse.collector import PAUSE
from taskfuse.deadline import checkpoint
from taskfuse.errors import LoweringError, UnsupportedError, shown
from taskfuse.ir.atoms import Instruction
from taskfuse.ir.fusion import Fusion, as_fusion
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.written import as_written
from taskfuse.kir import Kernel, verify_kernel
from taskfuse.kir.faithful import check_faithful
from taskfuse.location import caller
from taskfuse.lowering import bulk, tensor_cores, vectors
from taskfuse.lowering.channels import Channels
from taskfuse.lowering.circular_waits import check_circular_waits
from taskfuse.lowering.completion import commit_once
from taskfuse.lowering.copies import wait_for_copies
from taskfuse.lowering.emit import Emitter, Notes
from taskfuse.lowering.endpoints import Endpoints
from taskfuse.lowering.held_rings import unroll_held
from taskfuse.lowering.index_maps import IndexMaps
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.memory import assign_memory
from taskfuse.lowering.names import legible
from taskfuse.lowering.nest import NestBuilder
from taskfuse.lowering.neutral_tails import find_bounds, find_read_parts
from taskfuse.lowering.plan import PStmt
from taskfuse.lowering.plan_rules import verify_plan
from taskfuse.lowering.prepare import check_supported, prepare
from taskfuse.lowering.register_budgets import RegisterBudgets
from taskfuse.lowering.register_fences import fence_registers
from taskfuse.lowering.rings import RoleRings, unroll_rings
from taskfuse.lowering.semaphores import semaphores
from taskfuse.lowering.software_pipeline import check_pipelines, pipeline
from taskfuse.lowering.state import LoweringOptions, State
from taskfuse.lowering.statements import Statements
from taskfuse.lowering.storage import buffers, check_room, lay_out, share, unroll_for_registers
from taskfuse.lowering.sync import Synchronizer
from taskfuse.lowering.thread_ranges import ThreadRanges
from taskfuse.lowering.turns import check_turns, insert_turns
from taskfuse.lowering.witness import definitions
from taskfuse.passes import PIPELINE, KernelPass
from taskfuse.schedule.order import complete, positions, sequence
from taskfuse.schedule.shared_loops import SharedLoops

BUILDERS: dict[Instruction, Callable[[Statements, TensorView], list[PStmt]]] = {
    Instruction.VECTOR: vectors.vector_copy,
    Instruction.CP_ASYNC: vectors.async_copy,
    Instruction.TMA_LOAD: bulk.bulk_copy,
    Instruction.TMA_STORE: bulk.bulk_copy,
    Instruction.WGMMA: tensor_cores.wgmma,
    Instruction.MMA: tensor_cores.mma,
    Instruction.LDMATRIX: tensor_cores.ldmatrix,
    Instruction.STMATRIX: tensor_cores.stmatrix,
}


@dataclass(frozen=True, slots=True)
class Step:
    """A step of lowering.

    Attributes:
        name: its name on the command line and in ``TASKFUSE_DUMP``.
        change: the function; its docstring says what it requires and ensures.
    """

    name: str
    change: Callable[[State], None]

    @property
    def summary(self) -> str:
        """The first sentence of its docstring."""
        text = " ".join((self.change.__doc__ or "").split())
        return text.split(". ")[0].split(" Requires:")[0].rstrip(".")

    def run(self, state: State) -> None:
        """Run the step, and verify the plan if the options say so. Raises the errors of the step, and :class:`VerifyError`."""
        checkpoint()
        self.change(state)
        if not state.options.verify:
            return
        if state.has("kernel"):
            verify_kernel(state.kernel)
        else:
            verify_plan(state.plan, self.name)


def _prepare(state: State) -> None:
    """Check the laws of tasks and names; copy the fusion, so that every boundary tensor is only a boundary.

    Requires: ``fusion``, which is not changed. Ensures: ``fusion`` is a copy that later steps may change; every tensor in it is read, an output, or claimed by
    a task. ``written``.
    """
    check_supported(state.fusion)
    state.written = as_written(state.fusion)
    state.fusion = prepare(state.fusion)


def _order(state: State) -> None:
    """Find the total order of all code, and the loops that tensors share.

    Requires: ``fusion`` prepared. Ensures: ``tree``, ``shared_loops``, ``order``.
    """
    state.tree, state.shared_loops = complete(state.fusion), SharedLoops.of(state.fusion)
    state.order = sequence(state.fusion, state.tree, state.shared_loops, state.options.order_seed)


def _ranges(state: State) -> None:
    """Assign thread and block indices to every node; choose the launch shape.

    Requires: ``tree``. Ensures: ``ranges``.
    """
    state.ranges = ThreadRanges.of(state.fusion, state.tree)


def _memory(state: State) -> None:
    """Choose the memory type of every tensor: the nearest that all its readers can access.

    Requires: ``shared_loops``, ``ranges``. Ensures: ``index_maps`` with the memory types.
    """
    state.index_maps = IndexMaps(state.fusion, state.tree, state.shared_loops, state.ranges)
    assign_memory(state.index_maps)


def _grid_stride(state: State) -> None:
    """Find the grid-stride loops, whose trips depend on the block index; the remainder of their splits is a bound of the loop, not a guard.

    Requires: memory types. Ensures: ``index_maps`` with grid-stride loops, and without the guards that these replace.
    """
    state.index_maps.grid_stride.find(state.index_maps.memory, Indexer(state.index_maps).indexes_registers)
    state.index_maps.forget()


def _neutral_tails(state: State) -> None:
    """Find the loops over reduced axes that begin with their first term, or end with the last one, before the extent of the axis; and parts of tiles that
    nobody reads.

    Requires: grid-stride loops. Ensures: ``index_maps`` with the bounds of these loops, indices that count from there, and guards of such parts.
    """
    found = find_bounds(state.index_maps, Indexer(state.index_maps).indexes_registers)
    state.index_maps.starts, state.index_maps.ends = found.starts, found.ends
    state.index_maps.read_parts = find_read_parts(state.index_maps)
    if found.starts or state.index_maps.read_parts:
        state.index_maps.forget()


def _channels(state: State) -> None:
    """Find the rings between members of vertical groups, and their endpoints.

    Requires: ``order``, memory types, grid-stride loops. Ensures: ``channels``; every boundary is in the memory that its ring needs.
    """
    maps = state.index_maps
    state.channels = Channels.of(state.fusion, state.tree, state.ranges, state.shared_loops.path, state.order, maps.trips, maps.variables)
    state.channels.check_memory(state.index_maps.memory)
    check_circular_waits(state.channels.channels, state.fusion, state.tree, state.shared_loops.path, positions(state.order))


def _rings(state: State) -> None:
    """Find the rings inside roles; from here on every access knows its slot.

    Requires: ``channels``. Ensures: ``rings``, ``indexer``, ``statements``.
    """
    state.rings = RoleRings.of(state.channels, state.shared_loops.path)
    state.indexer = Indexer(state.index_maps, state.rings)
    state.statements = Statements(state.indexer, BUILDERS, state.needs)


def _nest(state: State) -> None:
    """Project the total order on every role, with the stages of reductions and scans, dispatches, guards and statements.

    Requires: ``order``, ``statements``. Ensures: ``plan``, without any synchronization; ``needs``.
    """
    state.plan = NestBuilder(state.indexer, state.statements).build(state.order)


def _prefetch(state: State) -> None:
    """Skew the loops whose rings their own role can fill some trips ahead; wait for the reads that hold slots of others.

    Requires: ``plan``, without waits or arrivals. Ensures: fills of these rings run ahead of their uses, or after the asynchronous reads of their slots.
    """
    state.rings.prefetch(state.plan, state.statements)


def _endpoints(state: State) -> None:
    """Insert the waits, arrivals, ping-pong turns and cursors of every channel into the plan.

    Requires: ``plan``. Ensures: ``endpoints``; every use of a channel's slot stands between a wait and an arrival.
    """
    state.endpoints = Endpoints(state.channels, state.statements, state.rings.held)
    state.endpoints.insert(state.plan)
    commit_once(state.plan)


def _cursors(state: State) -> None:
    """Insert the cursors of the rings inside roles into the plan.

    Requires: ``prefetch``. Ensures: every cursor that code uses is initialized and advances once in each trip.
    """
    state.rings.insert(state.plan)


def _copies(state: State) -> None:
    """Wait for the asynchronous copies of each thread that no arrival waits for.

    Requires: ``endpoints``. Ensures: such a copy is done before its result is read, or written again.
    """
    wait_for_copies(state.plan, state.indexer, state.channels, state.rings.prefetches)


def _register_rings(state: State) -> None:
    """Unroll the loops with rings in registers by the number of slots.

    Requires: ``cursors``. Ensures: the slot of a ring in registers is a constant in each copy of its loop's body.
    """
    unroll_held(state.rings.held)
    unroll_rings(state.plan, state.rings.prefetches, state.ranges.facts)


def _pipeline(state: State) -> None:
    """Run code of stage 1 of a software pipeline one trip behind the other code of its loop.

    Requires: ``endpoints``, ``copies``: what waits for slots and products is there. Ensures: each loop around tensors of stage 1 has one trip more.
    """
    state.pipelined = pipeline(state.plan, state.channels)


def _turns(state: State) -> None:
    """Let instances of a role issue products one instance after another.

    Requires: ``pipeline``: the order of each loop's body. Ensures: ``turns``; each is taken and passed once in each trip.
    """
    state.turns = insert_turns(state.plan, state.tree, state.ranges)


def _buffers(state: State) -> None:
    """Declare the storage that statements use: one buffer for all tensors of a named ring.

    Requires: all statements are in the plan. Ensures: ``buffers``, those in Shared memory without a place.
    """
    made = buffers(state.indexer, state.statements, state.rings, state.plan, state.needs)
    state.buffers = share(state.plan, made, state.rings.shared)


def _budgets(state: State) -> None:
    """Give each role its register budget.

    Requires: ``buffers``. Ensures: budgets of the roles of a dispatch are in its arms, and fit what the launch gives.
    """
    RegisterBudgets(state.ranges, state.buffers).insert(state.plan)


def _unroll(state: State) -> None:
    """Unroll every loop whose variable indexes registers.

    Requires: ``buffers``. Ensures: every index of a Local buffer is a constant after unrolling.
    """
    unroll_for_registers(state.plan, state.buffers, state.indexer)


def _layout(state: State) -> None:
    """Give every buffer in Shared memory its offset; buffers with disjoint lifetimes may share bytes.

    Requires: ``buffers``. Ensures: each has an offset.
    """
    kept = {*state.needs.alignments, *state.channels.copied()}
    state.buffers = lay_out(state.plan, state.buffers, state.options.shared_limit, kept, state.options.target)


def _barriers(state: State) -> None:
    """Insert a barrier wherever two accesses conflict and no channel orders them.

    Requires: ``layout``, since buffers that share bytes conflict. Ensures: ``mbarriers``, ``counters``, ``cursors``; no instance of a distributed
    channel waits for another where it holds the turn.
    """
    stored = [b for b in state.buffers if not MEDIA[b.memory].is_private]
    in_place = {r.tensor.name: r.into.name for r in state.fusion.results if r.into is not None and r.into.is_input}
    outputs = {tv.name: tv.shape for tv in (*state.fusion.outputs, *(whole for whole, _ in state.indexer.placed.values()))}
    sync = Synchronizer(state.ranges, state.tree.root, stored, state.channels.names(), state.rings, in_place, outputs)
    sync.insert(state.plan)
    fence_registers(state.plan)
    state.endpoints.check_pingpong(state.plan)
    check_turns(state.plan, state.turns, state.channels)
    check_pipelines(state.pipelined)
    turns = [(t.name, t.count, t.arrivals) for t in state.turns]
    state.mbarriers = [*state.channels.barriers(), *state.rings.barriers(), *turns, *sync.barriers.mbarriers]
    state.counters = sync.barriers.counters
    state.cursors = sync.barriers.cursor_inits()


def _notes(state: State) -> None:
    """Note at every dispatch what orders the data that enters and leaves.

    Requires: ``barriers``. Ensures: notes only.
    """
    Notes(state.indexer, state.channels).write(state.plan)


def _emit(state: State) -> None:
    """Emit the plan as kernel IR in hardware indices, with the definitions of its tensors.

    Requires: all else. Ensures: ``kernel``, whose Shared memory fits a block, if its size is known.
    """
    emitter = Emitter(state.fusion, state.ranges, state.options.target)
    maps = tuple(state.needs.maps.values())
    kernel = emitter.kernel(state.plan, state.buffers, state.mbarriers, state.counters, semaphores(state.channels), tuple(state.cursors), maps)
    written = () if state.written is None else definitions(state.written)
    state.kernel = replace(kernel, definitions=definitions(state.fusion), written=written)
    check_room(state.kernel, state.options.target)


def _on_kernel(one: KernelPass) -> Callable[[State], None]:
    """A kernel pass as a step, with the pass's docstring."""

    def change(state: State) -> None:
        state.kernel = one.run(state.kernel)

    change.__doc__ = one.__doc__
    return change


STEPS: tuple[Step, ...] = (
    Step("prepare", _prepare),
    Step("order", _order),
    Step("ranges", _ranges),
    Step("memory", _memory),
    Step("grid-stride", _grid_stride),
    Step("neutral-tails", _neutral_tails),
    Step("channels", _channels),
    Step("rings", _rings),
    Step("nest", _nest),
    Step("prefetch", _prefetch),
    Step("endpoints", _endpoints),
    Step("cursors", _cursors),
    Step("copies", _copies),
    Step("register-rings", _register_rings),
    Step("pipeline", _pipeline),
    Step("turns", _turns),
    Step("buffers", _buffers),
    Step("budgets", _budgets),
    Step("unroll", _unroll),
    Step("layout", _layout),
    Step("barriers", _barriers),
    Step("notes", _notes),
    Step("emit", _emit),
    *(Step(one.name, _on_kernel(one)) for one in PIPELINE),
)


DEFAULT = LoweringOptions()


def check_options(options: LoweringOptions) -> None:
    """Raises :class:`UnsupportedError` if the argument is something else."""
    if not isinstance(cast("object", options), LoweringOptions):
        raise UnsupportedError(what=f"options {shown(options)}", reason="it is not a tf.LoweringOptions", help="use tf.LoweringOptions(...)", location=caller())


def lower(fusion: Fusion, options: LoweringOptions = DEFAULT, after: Callable[[Step, State], None] | None = None) -> Kernel:
    """The kernel of a fusion: a pure function of the fusion and the options.

    Args:
        after: called after each step with the state that it leaves, which must not be changed.

    Raises:
        TaskError: a law of tasks and groups is broken.
        ScheduleError: the inline positions admit no total order.
        LoweringError: the schedule cannot become a kernel.
        UnsupportedError: the argument is not a fusion, or uses a construct that is not supported yet.
        VerifyError: a fault of lowering itself: an invalid plan or kernel, or definitions that differ from the fusion's.
    """
    fusion = as_fusion(fusion, "tf.lower")
    check_options(options)
    if not fusion.outputs:
        reason, help = "it has no outputs, so that there is nothing to compute", "fusion.add_output(tensor)"
        raise LoweringError(what=f"fusion '{fusion.name}'", reason=reason, help=help, location=caller())
    with PAUSE:
        fusion = legible(fusion)
        state = State(fusion, options)
        for step in STEPS:
            step.run(state)
            if after is not None:
                after(step, state)
        check_faithful(state.kernel, fusion)
    return state.kernel
