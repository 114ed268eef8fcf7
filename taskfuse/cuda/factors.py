"""Which registers of A a ``wgmma.fence`` covers.

The PTX ISA ("wgmma.fence") asks for a fence between a write of a register and the wgmma that uses it. A fragment of 8- or 16-bit elements is packed into
32-bit registers, and a compiler does that where they are used, behind the fence. It then has to add one of its own, and where it cannot, all
wgmmas run one after the other. So the emitted text packs the fragments in front of the fence that covers them.
"""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.ir.scalar import Const, Expr, const, simplify, substitute
from taskfuse.kir.nodes import Access, CursorInit, For, Stmt, Wgmma, WgmmaFence
from taskfuse.kir.walk import bodies


def covered(behind: tuple[Stmt, ...]) -> tuple[Access, ...]:
    """The fragments of A that the wgmmas of ``behind``, the statements behind a fence, read up to the next fence, each once, in their order.

    Unrolled loops are taken apart, so that the indices have a value in front of the fence. Fragments whose index has none there are left out.
    """
    found: dict[Access, None] = {}
    _collect(behind, {}, set(), found)
    return tuple(found)


def _collect(body: tuple[Stmt, ...], values: Mapping[str, Expr], unset: set[str], found: dict[Access, None]) -> bool:
    """Collect the fragments of one body; true if the next fence is in it.

    Args:
        values: loop variables.
        unset: symbols without a value in front of the first fence.
    """
    for stmt in body:
        match stmt:
            case WgmmaFence():
                return True
            case Wgmma(a=Access(buffer=buffer, index=index)):
                index = tuple(simplify(substitute(e, values)) for e in index)
                if not any(e.free & unset for e in index):
                    found[Access(buffer, index)] = None
            case CursorInit(name=name):
                unset |= {f"{name}.slot", f"{name}.parity"}
            case For(var=var, start=Const(start), stop=Const(stop), step=Const(step), unroll=True):
                if any(_collect(stmt.body, {**values, var: const(i)}, unset, found) for i in range(start, stop, step)):
                    return True
            case _:
                if isinstance(stmt, For):
                    unset.add(stmt.var)
                if any([_collect(inner, values, unset, found) for inner in bodies(stmt)]):
                    return True
    return False
