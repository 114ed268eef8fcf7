"""Collective instructions: whole warps or warpgroups execute them together, and agree on their operands.

``wgmma``, ``wgmma.fence``, ``wgmma.commit_group``, ``wgmma.wait_group`` and ``setmaxnreg`` are ``.sync.aligned``: a thread waits there for its warp, and all
threads of its warpgroup execute the same one. The same holds for a warp at ``ldmatrix``, ``stmatrix``, ``mma`` and ``shfl`` with a full mask (PTX ISA, the
section of each). "In conditionally executed code" they may be used only if all these threads "evaluate the condition identically". So each condition
and the trip count of each loop around them have one value for all threads of the unit, and no thread of it is excluded. If a part of a warp executes
one, it waits forever, or for whatever the others happen to execute.

Each thread has cursors of its own: an operand that depends on one has one value only if all threads of the unit start and advance it together.
"""

from __future__ import annotations

from taskfuse.check.barriers import apart, uneven
from taskfuse.check.known import together
from taskfuse.check.statement_tree import Node, StatementTree, cursor_of
from taskfuse.check.threads import Threads
from taskfuse.ir.scalar import Expr
from taskfuse.kir.operands import Descriptor
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Advance, CursorInit
from taskfuse.reports.certificate import Layer, Obligation, Verdict
from taskfuse.target import WARP, WARPGROUP

UNITS = {WARP: "warp", WARPGROUP: "warpgroup"}


def convergence(tree: StatementTree, threads: Threads) -> list[Obligation]:
    """Whether whole, converged warps (warpgroups) execute every such instruction: those that they may not, one by one; or one obligation for all."""
    nodes = [n for n in tree.leaves() if together(n.stmt)]
    if not nodes:
        return []
    alike = {size: threads.alike(size) for size in UNITS}
    found: list[Obligation] = []
    for n in nodes:
        size = together(n.stmt)
        reason = _torn(n, size, threads, alike[size]) or _operands(n, size, threads, alike[size], tree)
        if reason:
            found.append(Obligation(Layer.STRUCTURE, "convergence", Verdict.OUTSIDE, reason, (n.text + (f" in {n.role}" if n.role else ""),)))
    if found:
        return found
    count = {size: sum(together(n.stmt) == size for n in nodes) for size in UNITS}
    text = " and ".join(f"{count[size]} by whole {name}s" for size, name in UNITS.items() if count[size])
    return [Obligation(Layer.STRUCTURE, "convergence", Verdict.PROVED, f"collective instructions are executed by converged threads: {text}")]


def _torn(n: Node, size: int, threads: Threads, alike: frozenset[str]) -> str:
    """Why a part of a unit may execute a statement, or execute it more often than the rest; empty if neither."""
    reason = _disagree(n, size, threads, alike)
    if reason:
        return reason
    split = threads.split(n.conditions)
    whole = threads.whole_warps(split.threads) if size == WARP else threads.whole_groups(split.threads, size)
    return "" if whole else f"it is not executed by whole {UNITS[size]}s"


def _disagree(n: Node, size: int, threads: Threads, alike: frozenset[str]) -> str:
    """Why conditions that depend on more than threads, or loops, may differ between threads of a unit; empty if they do not."""

    def same(e: Expr) -> bool:
        return threads.one_value(e, size, alike)

    varying = apart(threads.split(n.conditions).varying, alike, same)
    if varying:
        return f"threads of one {UNITS[size]} may disagree on whether to execute it: {' && '.join(map(str, varying))}"
    reason = uneven(n, alike=alike, same=same)
    return f"threads of one {UNITS[size]} may execute it different numbers of times: {reason}" if reason else ""


def _moved_apart(cursor: str, n: Node, size: int, threads: Threads, alike: frozenset[str], tree: StatementTree) -> bool:
    """True unless all threads of each unit that executes a statement start and advance a cursor together."""
    units = threads.split(n.conditions).threads
    for move in tree.leaves():
        match move.stmt:
            case CursorInit(name=name) if name == cursor:
                count = None
            case Advance(cursor=name, count=count) if name == cursor:
                pass
            case _:
                continue
        if _disagree(move, size, threads, alike) or not threads.by_groups(threads.split(move.conditions).threads, size, units):
            return True
        if count is not None and (not threads.one_value(count, size, alike) or any(cursor_of(name) for name in count.free)):
            return True
    return False


def _operands(n: Node, size: int, threads: Threads, alike: frozenset[str], tree: StatementTree) -> str:
    """Which operand of an instruction that takes one for all threads of a unit may differ between them; empty if none does."""
    match n.stmt:
        case Wgmma(a=a, b=b, accumulate=accumulate):
            tiles = [d for d in (a, b) if isinstance(d, Descriptor)]
            for e in (*(e for d in tiles for e in (*d.base.index, d.offset)), accumulate):
                cursors = sorted({cursor for name in e.free if (cursor := cursor_of(name)) is not None})
                if not threads.one_value(e, size, alike) or any(_moved_apart(cursor, n, size, threads, alike, tree) for cursor in cursors):
                    return f"threads of one {UNITS[size]} may give it different operands: {e}"
        case _:
            pass
    return ""
