"""Collective instructions: whole warps or warpgroups execute them together, and agree on their operands.

``wgmma``, ``wgmma.fence``, ``wgmma.commit_group``, ``wgmma.wait_group`` and ``setmaxnreg`` are ``.sync.aligned``: a thread waits there for its warp, and all
threads of its warpgroup execute the same one. The same holds for a warp at ``ldmatrix``, ``stmatrix``, ``mma`` and ``shfl`` with a full mask (PTX ISA, the
section of each). "In conditionally executed code" they may be used only if all these threads "evaluate the condition identically". So each condition
and the trip count of each loop around them have one value for all threads of the unit, and no thread of it is excluded. If a part of a warp executes
one, it waits forever, or for whatever the others happen to execute.
"""

from __future__ import annotations

from taskfuse.check.barriers import apart, uneven
from taskfuse.check.known import together
from taskfuse.check.statement_tree import Node, StatementTree
from taskfuse.check.threads import Threads
from taskfuse.ir.scalar import Expr
from taskfuse.kir.operands import Descriptor
from taskfuse.kir.products import Wgmma
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
        reason = _torn(n, size, threads, alike[size]) or _operands(n, size, threads, alike[size])
        if reason:
            found.append(Obligation(Layer.STRUCTURE, "convergence", Verdict.OUTSIDE, reason, (n.text + (f" in {n.role}" if n.role else ""),)))
    if found:
        return found
    count = {size: sum(together(n.stmt) == size for n in nodes) for size in UNITS}
    text = " and ".join(f"{count[size]} by whole {name}s" for size, name in UNITS.items() if count[size])
    return [Obligation(Layer.STRUCTURE, "convergence", Verdict.PROVED, f"collective instructions are executed by converged threads: {text}")]


def _torn(n: Node, size: int, threads: Threads, alike: frozenset[str]) -> str:
    """Why a part of a unit may execute a statement, or execute it more often than the rest; empty if neither."""
    split = threads.split(n.conditions)

    def same(e: Expr) -> bool:
        return threads.one_value(e, size, alike)

    varying = apart(split.varying, alike, same)
    if varying:
        return f"threads of one {UNITS[size]} may disagree on whether to execute it: {' && '.join(map(str, varying))}"
    reason = uneven(n, alike=alike, same=same)
    if reason:
        return f"threads of one {UNITS[size]} may execute it different numbers of times: {reason}"
    whole = threads.whole_warps(split.threads) if size == WARP else threads.whole_groups(split.threads, size)
    return "" if whole else f"it is not executed by whole {UNITS[size]}s"


def _operands(n: Node, size: int, threads: Threads, alike: frozenset[str]) -> str:
    """Which operand of an instruction that takes one for all threads of a unit may differ between them; empty if none does."""
    match n.stmt:
        case Wgmma(a=a, b=b, accumulate=accumulate):
            tiles = [d for d in (a, b) if isinstance(d, Descriptor)]
            for e in (*(e for d in tiles for e in (*d.base.index, d.offset)), accumulate):
                if not threads.one_value(e, size, alike):
                    return f"threads of one {UNITS[size]} may give it different operands: {e}"
        case _:
            pass
    return ""
