"""Registers that wgmmas in flight write or read, and register budgets.

A thread may touch an accumulator, or a register that holds a wgmma's matrix A, only after it has retired the wgmma (PTX ISA,
"wgmma.wait_group"), and a wgmma may start only after a ``wgmma.fence`` behind the last access of the thread to its registers (PTX ISA,
"wgmma.fence"). ``setmaxnreg`` is executed by whole warpgroups, once, and the budgets of all warpgroups fit into the register file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from taskfuse.check.bounds import touched
from taskfuse.check.certificate import Layer, Obligation, Verdict
from taskfuse.check.meetings import apart, uneven
from taskfuse.check.paths import Paths, Step, common_loops
from taskfuse.check.program import Node, Program
from taskfuse.check.threads import Threads
from taskfuse.kir.limits import REGISTERS, WARPGROUP
from taskfuse.kir.nodes import Commit, Queue, Retire, SetMaxNReg, Wgmma, WgmmaFence


@dataclass(frozen=True, slots=True)
class Held:
    """Registers of a Local array, from ``first`` to ``last`` (inclusive), constant bounds; ``what``: what they are to a wgmma."""

    buffer: str
    first: int
    last: float
    what: str = ""

    def meets(self, other: Held) -> bool:
        """True unless they have no register in common."""
        return self.buffer == other.buffer and self.first <= other.last and other.first <= self.last


def in_flight(program: Program, paths: Paths, threads: Threads) -> list[Obligation]:
    """Every access to an accumulator or an operand register comes after the retire of the wgmmas that use it, and before a fence in front of
    the next one."""
    multiplies = [n for n in program.leaves() if isinstance(n.stmt, Wgmma)]
    if not multiplies:
        return []
    used = {w: tuple(_registers(w)) for w in multiplies}
    names = {h.buffer for held in used.values() for h in held}
    others = [(n, held) for n in program.leaves() if n not in used and (held := [h for h in _registers(n) if h.buffer in names])]
    found: list[Obligation] = []
    for w in multiplies:
        if not any(isinstance(s.node.stmt, WgmmaFence) and _same(s.node, w, threads) for s in _entry(paths, w)):
            found.append(_open(w, "no FENCE wgmma stands before it"))
        reason = _whole(w, threads)
        if reason:
            found.append(_open(w, reason))
        for n, held in others:
            for what in dict.fromkeys(mine.what for mine in used[w] for h in held if mine.meets(h)):
                for steps in _ways(paths, w, n):
                    if not _retired(steps, w, threads):
                        found.append(_open(w, f"its {what} are touched while it may be in flight", n))
                for steps in _ways(paths, n, w):
                    if not any(isinstance(s.node.stmt, WgmmaFence) and _same(s.node, w, threads) for s in steps):
                        found.append(_open(w, f"no FENCE wgmma stands between an access to its {what} and it", n))
    return found or [Obligation(Layer.ORDER, "accumulators", Verdict.PROVED, f"touched only while none of {len(multiplies)} wgmmas is in flight")]


def _registers(node: Node) -> Iterator[Held]:
    """The registers that a statement touches, of arrays of one axis: wgmma has no others."""
    for access, width, context in touched(node):
        if len(access.index) == 1:
            first, last = context.ranges.of(access.index[0])
            what = "" if not isinstance(node.stmt, Wgmma) else "accumulators" if access is node.stmt.acc else "operand registers"
            yield Held(access.buffer, max(first or 0, 0), math.inf if last is None else last + width - 1, what)


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


def _whole(w: Node, threads: Threads) -> str:
    split = threads.split(w.conditions)
    alike = threads.alike(WARPGROUP)
    if apart(split.varying, alike) or uneven(w, alike=alike):
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
