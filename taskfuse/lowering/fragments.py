"""Where tensor cores hold the elements of a matrix in registers, as index expressions."""

from __future__ import annotations

from taskfuse.ir.scalar import Expr
from taskfuse.kir.limits import WARP

_ROWS, _COLUMNS = 16, 8


def fragment_thread(m: Expr, n: Expr) -> Expr:
    """The lane that holds element (m, n) of a matrix in registers (PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16")."""
    return m // _ROWS * WARP + m % 8 * 4 + n % _COLUMNS // 2


def fragment_register(m: Expr, n: Expr) -> Expr:
    """The register of that lane in which it lies."""
    return n // _COLUMNS * 4 + m % _ROWS // 8 * 2 + n % 2
