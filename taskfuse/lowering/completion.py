"""Completion of asynchronous atoms, and the batches of those that complete in order: where batches open and close, and the waits for them.

An atom with FIFO completion reads its operands, and writes its result, at any time until its batch is complete (PTX ISA, "Asynchronous
operations"). So each batch is committed after its last instruction, and must be complete before a slot that it reads is released, or written again by the
same role, and before its result is read. If ``n`` younger batches are issued, a wait for at most ``n`` unfinished ones
covers it: younger batches that other atoms commit to the same queue only prolong that wait.
"""

from __future__ import annotations

from taskfuse.ir.atoms import Completion, Instruction
from taskfuse.ir.tensor import TensorView
from taskfuse.kir.nodes import Stmt, TmaStore
from taskfuse.kir.operands import Queue
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Commit, WaitGroup, WgmmaFence
from taskfuse.lowering.plan import PDispatch, PLoop, PNode, PStmt, PSync, children, statements

QUEUES = {Instruction.WGMMA: Queue.WGMMA, Instruction.TMA_STORE: Queue.BULK}
"""The queue that an instruction is committed to."""
_BEFORE: dict[Queue, tuple[Stmt, ...]] = {Queue.WGMMA: (WgmmaFence(),), Queue.BULK: ()}
"""The statement that opens a batch: it orders register accesses before wgmma instructions (PTX ISA, "wgmma.fence")."""
_FINISH_READING = frozenset({Queue.BULK})
"""The queues that distinguish reading from finishing."""


WAIT_FOR_COPIES = (Commit(Queue.COPY), WaitGroup(Queue.COPY, 0))
"""Waits for all asynchronous copies that the thread has issued."""


def has_copies_of_threads(tv: TensorView) -> bool:
    """True if asynchronous copies of each thread write ``tv``; they are complete when the thread has waited for them, or at one of its arrivals."""
    return tv.schedule.atom is not None and tv.schedule.atom.completion is Completion.ARRIVAL


def is_transfer(tv: TensorView) -> bool:
    """True if bulk copies write ``tv`` and complete its bytes at a barrier."""
    return tv.schedule.atom is not None and tv.schedule.atom.completion is Completion.BYTES


def queue_of(tv: TensorView) -> Queue | None:
    """The queue of ``tv``'s atom; ``None`` if its effect needs no wait_group."""
    atom = tv.schedule.atom
    return QUEUES[atom.instruction] if atom is not None and atom.completion is Completion.FIFO else None


def issues_to(stmt: PStmt) -> Queue | None:
    """The queue of a statement; ``None`` for statements of the same tensor that are not an instruction of its atom, such as joins of partial results."""
    match stmt.stmt:
        case Wgmma():
            return Queue.WGMMA
        case TmaStore():
            return Queue.BULK
        case _:
            return None


def queues(issued: list[PStmt]) -> dict[Queue, int]:
    """The queues of statements, and for each the least number of batches that may be in flight."""
    found: dict[Queue, int] = {}
    for s in issued:
        queue = issues_to(s)
        if queue is not None:
            found[queue] = min(found.get(queue, s.tv.schedule.in_flight), s.tv.schedule.in_flight)
    return found


def wait_for_reads(queue: Queue, pending: int) -> WaitGroup:
    """Wait until all but ``pending`` batches have read their sources."""
    return WaitGroup(queue, pending, read_only=queue in _FINISH_READING)


def open_batch(nodes: list[PNode], at: int, queue: Queue, of: TensorView) -> int:
    """Open a batch of ``of`` before the node at ``at``. Returns the new place of that node."""
    before = _BEFORE[queue]
    waits = at
    while waits > 0 and isinstance(node := nodes[waits - 1], PSync):
        waits -= 1
        if node.stmts == before:
            return at
    if not before:
        return at
    nodes.insert(at, PSync(before, of))
    return at + 1


def close_batch(nodes: list[PNode], at: int, queue: Queue, of: TensorView) -> int:
    """Close the batch of ``of`` after the node at ``at``, unless it is closed. Returns the place after the commit."""
    follow = nodes[at + 1] if at + 1 < len(nodes) else None
    if not (isinstance(follow, PSync) and follow.stmts == (Commit(queue),)):
        nodes.insert(at + 1, PSync((Commit(queue),), of))
    return at + 2


def frame_of(plan: list[PNode], stmt: PStmt) -> list[PNode]:
    """The code of the innermost arm that contains a statement and is under no loop; the whole plan if there is none."""
    for n in plan:
        if not any(s is stmt for s in statements([n])):
            continue
        if isinstance(n, PLoop | PStmt | PSync):
            return plan
        for block in children(n):
            if any(s is stmt for s in statements(block)):
                inner = frame_of(block, stmt)
                return plan if inner is block and not isinstance(n, PDispatch) else inner
    return plan


def drain_at_exit(plan: list[PNode], stmt: PStmt, queue: Queue) -> None:
    """Wait for all batches of bulk stores at the end of the role: threads must not exit while these read Shared memory or write results.

    Batches of other queues are waited for earlier, by the threads that issue them.
    """
    if queue is not Queue.BULK:
        return
    frame = frame_of(plan, stmt)
    drain = PSync((WaitGroup(queue, 0),), stmt.tv)
    if not (frame and isinstance(last := frame[-1], PSync) and last.stmts == drain.stmts):
        frame.append(drain)


def commit_once(plan: list[PNode]) -> None:
    """Commit each batch once: before a wait, if instructions were issued since the last commit, and nowhere else.

    Several rings may have put commits around the same instructions, one inside the loop of another.
    """
    _commit_once(plan, dict.fromkeys(QUEUES.values(), False))


def _commit_once(nodes: list[PNode], pending: dict[Queue, bool]) -> None:
    """Commit once in a block; ``pending``: whether a queue may have instructions that are not committed, before the block and then after it."""
    at = 0
    while at < len(nodes):
        match node := nodes[at]:
            case PStmt():
                queue = issues_to(node)
                if queue is not None:
                    pending[queue] = True
            case PSync(stmts=(Commit(queue=queue),)) if not pending.get(queue, True):
                del nodes[at]
                continue
            case PSync(stmts=stmts):
                for s in stmts:
                    match s:
                        case Commit(queue=queue):
                            pending[queue] = False
                        case WaitGroup(queue=queue) if pending.get(queue):
                            nodes.insert(at, PSync((Commit(queue),), node.of))
                            pending[queue] = False
                            at += 1
                        case _:
                            pass
            case _:
                before = dict(pending)
                for block in children(node):
                    inside = dict(before)
                    if isinstance(node, PLoop):  # what the end of an iteration leaves
                        trial = dict(before)
                        _flow(block, trial)
                        inside = {q: inside[q] or trial[q] for q in inside}
                    _commit_once(block, inside)
                    pending.update({q: pending[q] or inside[q] for q in pending})
        at += 1


def _flow(nodes: list[PNode], pending: dict[Queue, bool]) -> None:
    """Update the queues with pending operations by those of some nodes."""
    for node in nodes:
        match node:
            case PStmt():
                queue = issues_to(node)
                if queue is not None:
                    pending[queue] = True
            case PSync(stmts=stmts):
                pending.update({s.queue: False for s in stmts if isinstance(s, Commit) and s.queue in pending})
            case _:
                before = dict(pending)
                for block in children(node):
                    inside = dict(before)
                    _flow(block, inside)
                    pending.update({q: pending[q] or inside[q] for q in pending})
