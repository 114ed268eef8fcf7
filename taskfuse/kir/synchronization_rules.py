"""Rules of synchronization: barriers, mbarriers, cursors, semaphores, queues; and of register budgets.

Limits are those of the PTX ISA for sm_90a.
"""

from __future__ import annotations

from taskfuse.ir.scalar import Const
from taskfuse.ir.types import CLUSTER_TYPES
from taskfuse.kir.clusters import cluster_threads, constant_shape, needs_cluster
from taskfuse.kir.declaration_rules import NO_NAME
from taskfuse.kir.nodes import TmaLoad
from taskfuse.kir.operands import Queue
from taskfuse.kir.printer import block_threads
from taskfuse.kir.scope import Scope
from taskfuse.kir.statement_rules import StatementRule
from taskfuse.kir.synchronization import Acquire, Arrive, Barrier, BarrierScope, CursorInit, Expect, InitBarrier, MbarrierScope, Release, SetMaxNReg, WaitGroup
from taskfuse.target import MAX_CLUSTER, MAX_NAMED, MAX_PENDING, MBARRIER_COUNT, REGISTER_BUDGETS, WARP

NAMED_BARRIERS = range(1, MAX_NAMED + 1)


def barriers_have_participants(subject: Barrier, scope: Scope) -> str | None:
    """The number of participants is possible, and the hardware barrier exists."""
    match subject.scope:
        case BarrierScope.BLOCK:
            block = block_threads(scope.declarations.kernel.block)
            return None if subject.threads is block else f"a block barrier of {subject.threads} threads in blocks of {block}"
        case BarrierScope.WARP:
            block, count = block_threads(scope.declarations.kernel.block), subject.threads
            whole = count.value == WARP or (count is block and count.value < WARP) if isinstance(count, Const) else count is block
            return None if whole else f"a warp barrier of {count} threads: all {WARP} of a warp arrive, or all of a block that has fewer"
        case BarrierScope.NAMED:
            if subject.id is None:
                return "a named barrier without an id"
            if isinstance(subject.id, Const) and subject.id.value not in NAMED_BARRIERS:
                return f"named barrier {subject.id}: ids are 1 to 15"
            if isinstance(subject.threads, Const) and (subject.threads.value < 1 or subject.threads.value % WARP):
                return f"a named barrier of {subject.threads} threads: not a multiple of {WARP}"
            return None
        case BarrierScope.CLUSTER:
            kernel = scope.declarations.kernel
            everyone = cluster_threads(kernel.block, kernel.cluster)
            return None if subject.threads is everyone else f"a cluster barrier of {subject.threads} threads in clusters of {everyone}"
        case BarrierScope.GRID:
            return "a grid barrier without a counter" if subject.counter is None else None


def barriers_name_what_they_use(subject: Barrier, scope: Scope) -> str | None:
    """Only a named barrier has an id, only a grid barrier a counter."""
    match subject:
        case Barrier(scope=kind, id=number) if number is not None and kind is not BarrierScope.NAMED:
            return f"a {kind.value} barrier has no id"
        case Barrier(scope=kind, counter=counter) if counter is not None and kind is not BarrierScope.GRID:
            return f"a {kind.value} barrier has no counter"
        case _:
            return None


def clusters_are_constant(subject: Arrive | TmaLoad | Barrier, scope: Scope) -> str | None:
    """A statement that reaches other blocks names cluster types, each once, in their order; the shape of the cluster is then constant."""
    if not needs_cluster(subject):
        return None
    if isinstance(subject, (Arrive, TmaLoad)):
        wrong = next((p for p in subject.across if p not in CLUSTER_TYPES), None)
        if wrong is not None:
            return f"{wrong.value} is not a cluster type"
        if list(subject.across) != [p for p in CLUSTER_TYPES if p in subject.across]:
            return "cluster types stand in the order CIDx, CIDy, CIDz, each once"
    shape = constant_shape(scope.declarations.kernel.cluster)
    if shape is None:
        return "the shape of the cluster is not constant"
    blocks = shape[0] * shape[1] * shape[2]
    return None if 1 <= blocks <= MAX_CLUSTER else f"a cluster of {blocks} blocks; at most {MAX_CLUSTER} are possible"


def arrivals_publish_where_they_reach(subject: Arrive, scope: Scope) -> str | None:
    """An arrival at cluster scope reaches several blocks of the cluster."""
    return "an arrival at the scope of the cluster reaches other blocks: across" if subject.scope is MbarrierScope.CLUSTER and not subject.across else None


def mbarrier_counts_are_possible(subject: InitBarrier | Expect, scope: Scope) -> str | None:
    """PTX ISA, "mbarrier": counts and pending bytes are at most 2**20 - 1."""
    match subject:
        case InitBarrier(count=Const(value=count)) if not 1 <= count <= MBARRIER_COUNT:
            return f"an mbarrier counts 1 to {MBARRIER_COUNT} arrivals, not {count}"
        case Expect(bytes=Const(value=count)) if not 0 <= count <= MBARRIER_COUNT:
            return f"an mbarrier expects at most {MBARRIER_COUNT} bytes, not {count}"
        case _:
            return None


def cursors_are_possible(subject: CursorInit, scope: Scope) -> str | None:
    """A cursor is at a slot of its ring, and its name is unique."""
    match subject:
        case CursorInit(name=name) if not scope.declarations.is_name(name):
            return NO_NAME.format(name)
        case CursorInit(name=name) if scope.declarations.is_declared(name) or name in scope.symbols:
            return f"the cursor '{name}' is already defined here"
        case CursorInit(name=name, slots=slots) if slots != scope.declarations.cursors[name]:
            return f"the cursor '{name}' runs over {slots} slots here and over {scope.declarations.cursors[name]} elsewhere"
        case CursorInit(slots=slots) if slots < 1:
            return f"a cursor over {slots} slots; it needs at least 1"
        case CursorInit(slots=slots, slot=slot, parity=parity) if not 0 <= slot < slots or parity not in (0, 1):
            return f"a cursor at slot {slot} with parity {parity}: slots are 0 to {slots - 1}, parities 0 and 1"
        case _:
            return None


def semaphore_slots_exist(subject: Release | Acquire, scope: Scope) -> str | None:
    """A semaphore has one index per axis, and a constant index is inside."""
    slot = subject.semaphore
    shape = scope.declarations.semaphores[slot.name].shape
    if len(slot.index) != len(shape):
        return f"semaphore '{slot.name}' has {len(shape)} axes, the slot {len(slot.index)} indices"
    for axis, (i, extent) in enumerate(zip(slot.index, shape, strict=True)):
        if isinstance(i, Const) and (i.value < 0 or (isinstance(extent, Const) and i.value >= extent.value)):
            return f"index {i} is outside axis {axis} of semaphore '{slot.name}', whose extent is {extent}"
    return None


def semaphore_phases_are_possible(subject: Acquire, scope: Scope) -> str | None:
    """The number of phases to wait for is not negative."""
    match subject:
        case Acquire(phases=Const(value=n)) if n < 0:
            return f"a wait for {n} phases: their number is not negative"
        case _:
            return None


def wait_groups_are_possible(subject: WaitGroup, scope: Scope) -> str | None:
    """A queue holds a few batches; only bulk copies can be waited for until their sources are read."""
    match subject:
        case WaitGroup(queue=Queue.WGMMA | Queue.COPY as queue, read_only=True):
            return f"{queue.value} has no wait_group of reads only"
        case WaitGroup(pending=pending) if not 0 <= pending <= MAX_PENDING:
            return f"a wait_group to {pending} unfinished batches: 0 to {MAX_PENDING} are possible"
        case _:
            return None


def register_budgets_are_possible(subject: SetMaxNReg, scope: Scope) -> str | None:
    """PTX ISA, "setmaxnreg": 24 to 256 in steps of 8; different from what the launch gives."""
    match subject:
        case SetMaxNReg(registers=registers) if registers not in REGISTER_BUDGETS:
            return f"setmaxnreg {registers}: multiples of 8 from 24 to 256 are possible"
        case SetMaxNReg() if scope.declarations.kernel.launch_registers is None:
            shape = ", ".join(map(str, scope.declarations.kernel.block))
            return f"setmaxnreg in blocks of ({shape}) threads: what a launch gives each thread is unknown, let the shape be constant"
        case _:
            return None


SYNCHRONIZATION_RULES: tuple[StatementRule, ...] = (
    barriers_have_participants,
    barriers_name_what_they_use,
    clusters_are_constant,
    arrivals_publish_where_they_reach,
    mbarrier_counts_are_possible,
    cursors_are_possible,
    semaphore_slots_exist,
    semaphore_phases_are_possible,
    wait_groups_are_possible,
    register_budgets_are_possible,
)
