"""Fences between code that accesses registers and the wgmmas that have them as accumulators or as their matrix A (PTX ISA, "wgmma.fence").

A batch opens with a fence, after its register operands have been written. Where several products of one iteration share a batch, or a slot of a ring,
the operands of the second are written after that fence, so another fence comes before it. So it does if threads compute anything in between: an
accumulator that a product overwrites may get registers that held other values, for which the compiler of CUDA 13.0 adds a fence, with a warning.
"""

from __future__ import annotations

from taskfuse.kir.operands import Access
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import WgmmaFence
from taskfuse.lowering.plan import PBind, PLoop, PNode, PScope, PStmt, PSync, children, statements

ANY = ""
"""Stands for the registers of all values that no wgmma has."""


def fence_registers(plan: list[PNode]) -> None:
    """Insert the missing fences.

    Requires: batches are opened. Ensures: a fence stands between an access to a register and a later wgmma with that register.
    """
    held = frozenset[str]().union(*(_held(s) for s in statements(plan)))
    _fenced(plan, set(), held)


def _held(stmt: PStmt) -> frozenset[str]:
    """The arrays in registers that a wgmma has."""
    multiply = stmt.stmt
    return frozenset(a.buffer for a in (multiply.acc, multiply.a) if isinstance(a, Access)) if isinstance(multiply, Wgmma) else frozenset()


def _fenced(nodes: list[PNode], open: set[str], held: frozenset[str]) -> None:
    """Insert the fences that some nodes in turn lack. ``open``: what has been accessed since the last fence, before them and then behind them."""
    at = 0
    while at < len(nodes):
        node = nodes[at]
        first = next(iter(statements([node])), None)
        if first is not None and not open.isdisjoint(_waiting([node])[0]):
            nodes.insert(at, PSync((WgmmaFence(),), first.tv))
            open.clear()
            at += 1
        blocks = children(node)
        if isinstance(node, PLoop):  # what the end of an iteration leaves
            open |= _left(node.body, set(open), held)
        if blocks:
            after = set[str]()
            for block in blocks:
                inside = set(open)
                _fenced(block, inside, held)
                after |= inside
            open.clear()
            open |= after
        else:
            _pass(node, open, held)
        at += 1


def _waiting(nodes: list[PNode]) -> tuple[set[str], bool]:
    """The registers of wgmmas that no fence stands before, and whether a fence stands among some nodes."""
    found: set[str] = set()
    for node in nodes:
        if _is_fence(node):
            return found, True
        if isinstance(node, PStmt) and isinstance(node.stmt, Wgmma):
            found |= {ANY, *_held(node)}
        for block in children(node):
            inside, is_fenced = _waiting(block)
            found |= inside
            if is_fenced and isinstance(node, PBind | PScope):
                return found, True
    return found, False


def _left(nodes: list[PNode], open: set[str], held: frozenset[str]) -> set[str]:
    """The registers that have been accessed since the last fence, after some nodes."""
    for node in nodes:
        blocks = children(node)
        if blocks:
            open = set[str]().union(*(_left(block, set(open), held) for block in blocks))
        else:
            _pass(node, open, held)
    return open


def _pass(node: PNode, open: set[str], held: frozenset[str]) -> None:
    """Update the accessed registers by those of a leaf."""
    if _is_fence(node):
        open.clear()
    elif isinstance(node, PStmt) and not isinstance(node.stmt, Wgmma):
        open |= {ANY, *({a.buffer for a in (*node.reads, *node.writes)} & held)}


def _is_fence(node: PNode) -> bool:
    return isinstance(node, PSync) and any(isinstance(s, WgmmaFence) for s in node.stmts)
