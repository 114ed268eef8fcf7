"""Magnitudes: what the proof computes at points of loops, threads and tensors fits 64 bits.

The prover computes with integers of any size; tables and runs compute with arrays of 64-bit integers, which wrap. A launch checks that what it computes
itself fits (docs/memory-model.md, "Assumptions"), but not what only definitions and claims say. An expression is *weighed* as its size where each symbol is
1. Tables have some millions of points, so a weight that is not huge keeps each value far below 2**63.
"""

from __future__ import annotations

from math import prod

from taskfuse.ir.scalar import And, Compare, Const, Expr, FloorDiv, Not, Or, Product, Sum, Sym, Table, Xor, children, remembered
from taskfuse.kir import Kernel, held, walk
from taskfuse.kir.walk import definition_expressions
from taskfuse.reports.certificate import Layer, Obligation, Verdict

MOST = 1 << 40
"""The weight of an expression is less: a coefficient is at most the number of elements of a tensor, or of its bytes."""
MEMORY = 1 << 14
"""The most expressions whose weights are kept."""
INTEGERS = "integers"
"""The subject of obligations that numbers fit 64 bits."""
WIDE = Obligation(Layer.ADDRESS, INTEGERS, Verdict.OUTSIDE, "a number that the proof computes with does not fit 64 bits")


def too_large(kernel: Kernel) -> Obligation | None:
    """The obligation for an expression of a definition or a claim with a huge weight, or with one inside; ``None``: there is none."""
    claims = (claim.index for s in walk(kernel) if (claim := held(s)) is not None)
    found = next((e for some in (*claims, *map(definition_expressions, kernel.definitions)) for e in some if heaviest(e) >= MOST), None)
    if found is None:
        return None
    return Obligation(Layer.ADDRESS, INTEGERS, Verdict.OUTSIDE, f"{found} may not fit 64 bits: its constants and coefficients make {MOST} or more")


@remembered(MEMORY)
def heaviest(e: Expr) -> int:
    """The greatest weight of an expression and of those inside it."""
    return max(_weight(e), max(map(heaviest, children(e)), default=0))


@remembered(MEMORY)
def _weight(e: Expr) -> int:
    """A bound of the size of an expression where no symbol is greater than 1, at most ``MOST``."""
    match e:
        case Const(value=value):
            found = abs(value)
        case Sym():
            return 1
        case Sum(terms, constant):
            found = sum(abs(k) * _weight(term) for term, k in terms) + abs(constant)
        case Product(factors):
            found = prod(map(_weight, factors))
        case FloorDiv(a, _):
            found = _weight(a)
        case Xor(a, b):
            found = 2 * max(_weight(a), _weight(b))
        case Table(values, _):
            found = max(map(abs, values))
        case Compare() | And() | Or() | Not():
            return 1
        case _:
            found = max(map(_weight, children(e)), default=1)
    return min(found, MOST)
