"""Registers that wgmmas in flight write or read, and register budgets.

A thread may access an accumulator, or a register that holds a wgmma's matrix A, only after it has waited for the wgmma (PTX ISA,
"wgmma.wait_group"), and a wgmma may start only after a ``wgmma.fence`` that follows the thread's last access to its registers (PTX ISA,
"wgmma.fence"). A warpgroup executes ``setmaxnreg`` once. An increase waits until others have released enough registers of the block (PTX ISA,
"setmaxnreg"): all budgets together must fit into what the block was launched with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from taskfuse.check.bounds import touched
from taskfuse.check.paths import Paths, PathStep, common_loops
from taskfuse.check.ranges import terms_of
from taskfuse.check.statement_tree import BLOCKS, Node, StatementTree
from taskfuse.check.threads import Threads
from taskfuse.ir.scalar import Expr
from taskfuse.kir.operands import Access, Queue
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Commit, SetMaxNReg, WaitGroup, WgmmaFence
from taskfuse.reports.certificate import Layer, Obligation, Verdict

ACCUMULATORS, OPERANDS = "accumulators", "operand registers"


@dataclass(frozen=True, slots=True)
class Held:
    """Registers of a Local array, from ``first`` to ``last`` (inclusive), constant bounds; ``what``: their role in a wgmma."""

    buffer: str
    first: int
    last: float
    what: str = ""

    def overlaps(self, other: Held) -> bool:
        """True unless they have no register in common."""
        return self.buffer == other.buffer and self.first <= other.last and other.first <= self.last


def in_flight(tree: StatementTree, paths: Paths, threads: Threads) -> list[Obligation]:
    """Every access to an accumulator or an operand register comes after the wait_group of the wgmmas that use it, and before a fence in front of
    the next one."""
    multiplies = [n for n in tree.leaves() if isinstance(n.stmt, Wgmma)]
    if not multiplies:
        return []
    used = {w: tuple(_registers(w)) for w in multiplies}
    names = {h.buffer for held in used.values() for h in held}
    others = [(n, held) for n in tree.leaves() if n not in used and (held := [h for h in _registers(n) if h.buffer in names])]
    found: list[Obligation] = []
    for w in multiplies:
        if not any(isinstance(s.node.stmt, WgmmaFence) and _same(s.node, w, threads) for s in _entry(paths, w)):
            found.append(_open(w, "no FENCE wgmma stands before it"))
        for n, held in others:
            for what in dict.fromkeys(mine.what for mine in used[w] for h in held if mine.overlaps(h)):
                for steps in _ways(paths, w, n):
                    if _waited_for(steps, w, threads) is None:
                        found.append(_open(w, f"its {what} are accessed while it may be in flight", n))
                for steps in _ways(paths, n, w):
                    if not any(isinstance(s.node.stmt, WgmmaFence) and _same(s.node, w, threads) for s in steps):
                        found.append(_open(w, f"no FENCE wgmma stands between an access to its {what} and it", n))
        for other in multiplies:
            found += _between(w, other, used, paths, threads)
    return found or [Obligation(Layer.ORDER, "accumulators", Verdict.PROVED, f"not accessed while any of {len(multiplies)} wgmmas is in flight")]


def _between(w: Node, later: Node, used: Mapping[Node, tuple[Held, ...]], paths: Paths, threads: Threads) -> Iterator[Obligation]:
    """Registers that two wgmmas share: both may read them, and one may add to what the other one of its shape leaves in the same accumulators. For all
    else the first one is waited for, and then there is a fence (PTX ISA, "wgmma.fence")."""
    if _accumulate_alike(w, later):
        return
    shared = [(x, y) for x in used[w] for y in used[later] if x.overlaps(y) and not (x.what == y.what == OPERANDS)]
    if not shared:
        return
    x, y = shared[0]
    for steps in _ways(paths, w, later):
        waited = _waited_for(steps, w, threads)
        if waited is None:
            yield _open(later, f"its {y.what} are {x.what} of a wgmma of another shape, or at other registers, that may be in flight", w)
        elif not any(isinstance(s.node.stmt, WgmmaFence) and _same(s.node, later, threads) for s in steps[waited + 1 :]):
            yield _open(later, f"no FENCE wgmma stands between the wait_group of another wgmma that has its {y.what} and it", w)


def _accumulate_alike(a: Node, b: Node) -> bool:
    """True only if two wgmmas of one shape have the same accumulators or none in common, in whichever iterations, and neither has them in its matrix A."""
    one, two = a.stmt, b.stmt
    assert isinstance(one, Wgmma)
    assert isinstance(two, Wgmma)
    if (one.n, one.k) != (two.n, two.k) or one.acc.buffer != two.acc.buffer or len(one.acc.index) != 1:
        return False
    if any(isinstance(m, Access) and m.buffer == one.acc.buffer for m in (one.a, two.a)):
        return False
    count = one.accumulators.count  # places that are apart by whole multiples of it are the same or have nothing in common
    return all(_begins_alike(x, y, count) for x, y in zip(one.acc.index, two.acc.index, strict=True))


def _begins_alike(x: Expr, y: Expr, count: int) -> bool:
    """True only if two indices differ by a multiple of a number, whatever the symbols in each of them are."""
    (one, first), (two, second) = terms_of(x), terms_of(y)
    return (first - second) % count == 0 and all(k % count == 0 for _, k in (*one, *two))


def _registers(node: Node) -> Iterator[Held]:
    """The registers that a statement touches, of arrays of one axis: wgmma has no others."""
    for access, width, context in touched(node):
        if len(access.index) == 1:
            first, last = context.ranges.of(access.index[0])
            what = "" if not isinstance(node.stmt, Wgmma) else ACCUMULATORS if access is node.stmt.acc else OPERANDS
            yield Held(access.buffer, max(first or 0, 0), math.inf if last is None else last + width - 1, what)


def _entry(paths: Paths, w: Node) -> list[PathStep]:
    return paths.from_start(w)


def _ways(paths: Paths, a: Node, b: Node) -> list[list[PathStep]]:
    """The steps of each path from ``a`` to a later ``b``."""
    found: list[list[PathStep]] = []
    direct = paths.forward(a, b)
    if direct is not None:
        found.append(direct)
    return found + [paths.around(a, b, loop) for loop in common_loops(a, b)]


def _waited_for(steps: list[PathStep], w: Node, threads: Threads) -> int | None:
    """The step that waits for a wgmma, or ``None``."""
    after = -1
    for k, s in enumerate(steps):
        match s.node.stmt:
            case Commit(queue=Queue.WGMMA) if _same(s.node, w, threads):
                after += 1
            case WaitGroup(queue=Queue.WGMMA, pending=n) if _same(s.node, w, threads) and after >= n:
                return k
            case _:
                pass
    return None


def _same(node: Node, w: Node, threads: Threads) -> bool:
    split = threads.split(node.conditions)
    return not split.varying and threads.implies(w.conditions, split.threads, w.context) and set(split.uniform) <= set(w.conditions)


def _open(node: Node, reason: str, other: Node | None = None) -> Obligation:
    notes = () if other is None else (other.text + (f" in {other.role}" if other.role else ""),)
    return Obligation(Layer.ORDER, node.text, Verdict.OUTSIDE, reason, notes)


def budgets(tree: StatementTree, threads: Threads, launched: int | None) -> list[Obligation]:
    """Every warpgroup sets its budget at most once, and all budgets fit into the registers of the launch; warpgroups without one keep the launch size.

    Some may be set only in blocks at whose indices a condition holds: then they fit whichever of these conditions hold together.

    Args:
        launched: registers of each thread at launch; ``None``: unknown.
    """
    nodes = _budgets(tree)
    if not nodes:
        return []
    if launched is None or threads.shape is None:
        return [_open(nodes[0], "the registers of a thread at launch are unknown, because the shape of the block is not constant")]
    given = math.prod(threads.shape)
    more: dict[tuple[Expr, ...], int] = {}  # than at launch, by the conditions on the block
    for n in nodes:
        assert isinstance(n.stmt, SetMaxNReg)
        split = threads.split(n.conditions)
        mask = threads.mask(split.threads)
        if n.loops or split.varying or mask is None or any(not c.free <= BLOCKS | threads.launch for c in split.uniform):
            return [_open(n, "it is not executed once by a fixed set of warpgroups")]
        more[split.uniform] = more.get(split.uniform, 0) + (n.stmt.registers - launched) * int(mask.sum())
        for m in nodes:
            if m is not n and not threads.disjoint(split.threads, threads.split(m.conditions).threads):
                return [_open(n, "a warpgroup sets its budget twice", m)]
    total = launched * given + more.pop((), 0) + sum(max(0, change) for change in more.values())
    text = f"they sum to {total} registers of the {launched * given} that {given} threads are launched with"
    if total <= launched * given:
        return [Obligation(Layer.ORDER, "register budgets", Verdict.PROVED, text)]
    if more:
        return [Obligation(Layer.ORDER, "register budgets", Verdict.OUTSIDE, f"{text} in a block that sets these and no others, if there is one")]
    return [Obligation(Layer.ORDER, "register budgets", Verdict.REFUTED, f"{text}: a warpgroup waits forever")]


def released(tree: StatementTree, launched: int | None) -> list[tuple[Node, Node]]:
    """Order edges from the budgets below the launch size to those above it: an increase waits until its registers have been released."""
    nodes = [(n, n.stmt.registers) for n in _budgets(tree) if isinstance(n.stmt, SetMaxNReg)]
    return [] if launched is None else [(a, b) for a, one in nodes for b, two in nodes if one < launched < two]


def _budgets(tree: StatementTree) -> list[Node]:
    return [n for n in tree.leaves() if isinstance(n.stmt, SetMaxNReg)]
