"""Registers that wgmmas in flight write, and register budgets.

A thread may touch an accumulator only after it has retired the wgmma, and a wgmma may start only after a ``wgmma.fence`` behind the last
access of the thread to its registers (PTX ISA, "wgmma.fence"). ``setmaxnreg`` is executed by whole warpgroups, once, and the budgets of all
warpgroups fit into the register file.
"""

from __future__ import annotations

from taskfuse.check.certificate import Layer, Obligation, Verdict
from taskfuse.check.meetings import uneven
from taskfuse.check.paths import Paths, Step, common_loops
from taskfuse.check.program import Node, Program
from taskfuse.check.threads import Threads
from taskfuse.kir import accesses
from taskfuse.kir.limits import REGISTERS, WARPGROUP
from taskfuse.kir.nodes import Commit, Queue, Retire, SetMaxNReg, Stmt, Wgmma, WgmmaFence


def accumulators(program: Program, paths: Paths, threads: Threads) -> list[Obligation]:
    """Every access to an accumulator comes after the retire of the wgmmas that write it, and before a fence in front of the next one."""
    multiplies = [n for n in program.leaves() if isinstance(n.stmt, Wgmma)]
    if not multiplies:
        return []
    found: list[Obligation] = []
    for w in multiplies:
        assert isinstance(w.stmt, Wgmma)
        if not any(isinstance(s.node.stmt, WgmmaFence) and _same(s.node, w, threads) for s in _entry(paths, w)):
            found.append(_open(w, "no FENCE wgmma stands before it"))
        reason = _whole(w, threads)
        if reason:
            found.append(_open(w, reason))
        for n in program.leaves():
            if isinstance(n.stmt, (Wgmma, Commit, Retire)) or not _touches(n.stmt, w.stmt.acc.buffer):
                continue
            for steps in _ways(paths, w, n):
                if not _retired(steps, w, threads):
                    found.append(_open(w, "its accumulators are touched while it may be in flight", n))
            for steps in _ways(paths, n, w):
                if not any(isinstance(s.node.stmt, WgmmaFence) and _same(s.node, w, threads) for s in steps):
                    found.append(_open(w, "no FENCE wgmma stands between an access to its accumulators and it", n))
    return found or [Obligation(Layer.ORDER, "accumulators", Verdict.PROVED, f"touched only while none of {len(multiplies)} wgmmas is in flight")]


def _entry(paths: Paths, w: Node) -> list[Step]:
    return paths.from_start(w)


def _ways(paths: Paths, a: Node, b: Node) -> list[list[Step]]:
    """What is passed on each way from ``a`` to a later ``b``."""
    found: list[list[Step]] = []
    direct = paths.forward(a, b)
    if direct is not None:
        found.append(direct)
    return found + [paths.around(a, b, loop) for loop in common_loops(a, b)]


def _retired(steps: list[Step], w: Node, threads: Threads) -> bool:
    after = -1
    for s in steps:
        match s.node.stmt:
            case Commit(queue=Queue.WGMMA) if _same(s.node, w, threads):
                after += 1
            case Retire(queue=Queue.WGMMA, pending=n) if _same(s.node, w, threads) and after >= n:
                return True
            case _:
                pass
    return False


def _same(node: Node, w: Node, threads: Threads) -> bool:
    split = threads.split(node.conditions)
    return not split.varying and threads.implies(w.conditions, split.threads, w.context) and set(split.uniform) <= set(w.conditions)


def _touches(stmt: Stmt, buffer: str) -> bool:
    writes, reads = accesses(stmt)
    return any(a.buffer == buffer for a in (*writes, *reads))


def _whole(w: Node, threads: Threads) -> str:
    split = threads.split(w.conditions)
    if split.varying or uneven(w):
        return "whole warpgroups must execute it together, and who does changes"
    if not threads.whole_groups(split.threads, WARPGROUP):
        return "it is not executed by whole warpgroups"
    return ""


def _open(node: Node, reason: str, other: Node | None = None) -> Obligation:
    notes = () if other is None else (other.text + (f" in {other.role}" if other.role else ""),)
    return Obligation(Layer.ORDER, node.text, Verdict.OUTSIDE, reason, notes)


def budgets(program: Program, threads: Threads) -> list[Obligation]:
    """Every warpgroup sets its budget at most once, and all fit."""
    nodes = [n for n in program.leaves() if isinstance(n.stmt, SetMaxNReg)]
    if not nodes:
        return []
    total = 0
    for n in nodes:
        assert isinstance(n.stmt, SetMaxNReg)
        split = threads.split(n.conditions)
        mask = threads.mask(split.threads)
        if n.loops or split.varying or split.uniform or mask is None or not threads.whole_groups(split.threads, WARPGROUP):
            return [_open(n, "it is not executed once by whole warpgroups")]
        total += n.stmt.registers * int(mask.sum())
        for m in nodes:
            if m is not n and not threads.disjoint(split.threads, threads.split(m.conditions).threads):
                return [_open(n, "a warpgroup sets its budget twice", m)]
    if total > REGISTERS:
        return [Obligation(Layer.ORDER, "register budgets", Verdict.REFUTED, f"they sum to {total} registers of {REGISTERS}: a warpgroup waits for ever")]
    return [Obligation(Layer.ORDER, "register budgets", Verdict.PROVED, f"they sum to {total} registers of {REGISTERS}")]
