"""Axes of an element as one number: where an index is a split of merged axes, the number that they have together says it, and its digits do not.

Tiles over the rows and columns of an image as one axis name an element by ``m//W`` and ``m % W``, with a number m of the writer's thread and its block. A
table of these digits would list all blocks, as m stands inside of a quotient; in the number itself, ``W*(m//W) + m % W``, the block is a term that cancels.

Lemma: for ``0 <= b, d < W``, ``a == c`` and ``b == d`` if and only if ``W*a + b == W*c + d``. If the numbers are equal, ``W*(a - c)`` is ``d - b``, which lies
between ``-W`` and ``W``, and so is 0.
"""

from __future__ import annotations

from taskfuse.check.ranges import terms_of
from taskfuse.check.values.write_and_read import WriteAndRead
from taskfuse.ir.scalar import Expr, FloorDiv, Mod, Product, children, le, lt, prove, simplify

_Side = tuple[Expr, Expr]
"""What a write leaves on an axis, and what is wanted there."""


def with_merged_axes(pair: WriteAndRead) -> WriteAndRead | None:
    """The same question with neighboring axes of the element as one, where that leaves fewer quotients; ``None``: nowhere. An answer answers the original."""
    if len(pair.shape) != len(pair.elements):
        return None
    merged: list[tuple[_Side, Expr]] = []
    for side, extent in zip(reversed(pair.elements), reversed(pair.shape), strict=True):
        one = _as_one(pair, side, *merged[-1]) if merged else None
        if one is None:
            merged.append((side, extent))
        else:
            merged[-1] = one, extent * merged[-1][1]
    if len(merged) == len(pair.elements):
        return None
    wider = WriteAndRead(pair.writing, pair.want, pair.storage, pair.shape, pair.skip, pair.constraints, pair.among, past=pair.past, bare=pair.bare)
    wider.plain = False
    wider.elements = [side for side, _ in reversed(merged)]
    return wider


def _as_one(pair: WriteAndRead, above: _Side, below: _Side, extent: Expr) -> _Side | None:
    """Two axes, the second of some extent, as one; ``None`` if that does not cancel quotients, or a place on the second is not known to be inside of it."""
    left, wanted = (simplify(a * extent + b, pair.facts) for a, b in zip(above, below, strict=True))
    before = sum(_quotients(simplify(a - b, pair.facts)) for a, b in (above, below))
    if _quotients(simplify(left - wanted, pair.facts)) >= before:
        return None
    inside = all(prove(le(0, e), pair.facts) and prove(lt(e, extent), pair.facts) for e in below)
    return (left, wanted) if inside else None


def _quotients(difference: Expr) -> int:
    """The number of terms of a sum with a quotient or a remainder."""
    return sum(any(isinstance(e, FloorDiv | Mod) for e in (factor, *children(factor))) for term, _ in terms_of(difference)[0] for factor in _factors(term))


def _factors(term: Expr) -> tuple[Expr, ...]:
    return term.factors if isinstance(term, Product) else (term,)
