"""Axes of an element as one number: where an index has digits of a number, as tiles over merged axes have, the number says the element, and its digits do not.

Tiles over the rows and columns of an image as one axis name an element by ``m//W`` and ``m % W``, with a number m of the writer's thread and its block. A
table of these digits would list all blocks, as m stands inside of a quotient; in the number itself, ``W*(m//W) + m % W``, the block is a term that cancels.

Lemma: for ``-W < b - d < W``, ``a == c`` and ``b == d`` if and only if ``W*a + b == W*c + d``. If the numbers are equal, ``W*(a - c)`` is ``d - b``, a multiple
of W that lies between ``-W`` and ``W``, and so is 0.
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

from taskfuse.check.ranges import terms_of
from taskfuse.check.values.write_and_read import WriteAndRead
from taskfuse.ir.scalar import Expr, FloorDiv, Mod, Product, const, le, lt, prove, simplify


class _Axis(NamedTuple):
    """What a write leaves on an axis, what is wanted there, and the extent of the axis."""

    left: Expr
    wanted: Expr
    extent: Expr


def with_merged_axes(pair: WriteAndRead) -> WriteAndRead | None:
    """The same question with axes of the element as one, where that leaves fewer digits that no table lists; ``None``: nowhere. An answer is one to the
    original, too."""
    if len(pair.shape) != len(pair.elements):
        return None
    axes = [_Axis(left, wanted, extent) for (left, wanted), extent in zip(pair.elements, pair.shape, strict=True)]
    found = _all_merged(pair, axes) or _all_merged(pair, [digit for axis in axes for digit in _split(pair, axis)])
    if found is None:
        return None
    wider = WriteAndRead(pair.writing, pair.want, pair.storage, pair.shape, pair.skip, pair.constraints, pair.among, past=pair.past, bare=pair.bare)
    wider.plain = False
    wider.elements = [(axis.left, axis.wanted) for axis in found]
    return wider


def _split(pair: WriteAndRead, axis: _Axis) -> list[_Axis]:
    """The quotient and the remainder of an axis, instead of it, for each digit in its place that has a weight: both are equal if and only if the axis is."""
    weights = {k for term, k in terms_of(simplify(axis.left, pair.facts))[0] if k > 1 and _digits(pair, term)}
    if not weights:
        return [axis]
    weight = const(max(weights))
    high = _Axis(simplify(axis.left // weight, pair.facts), simplify(axis.wanted // weight, pair.facts), axis.extent // weight)
    low = _Axis(simplify(axis.left % weight, pair.facts), simplify(axis.wanted % weight, pair.facts), weight)
    return [high, *_split(pair, low)]


def _all_merged(pair: WriteAndRead, axes: list[_Axis]) -> list[_Axis] | None:
    """The axes with as many as possible as one; ``None`` if no two are."""
    found = None
    while (merged := _merged(pair, axes)) is not None:
        found = axes = merged
    return found


def _merged(pair: WriteAndRead, axes: list[_Axis]) -> list[_Axis] | None:
    """The axes with two of them as one, in the place of the first."""
    digits = [_digits(pair, simplify(axis.left - axis.wanted, pair.facts)) for axis in axes]
    for high, low in permutations((k for k, found in enumerate(digits) if found), 2):
        for width in dict.fromkeys((axes[low].extent, *(e.b for e in digits[high] if isinstance(e, FloorDiv)))):
            left, wanted = (simplify(axes[high][k] * width + axes[low][k], pair.facts) for k in (0, 1))
            fewer = len(_digits(pair, simplify(left - wanted, pair.facts))) < len(digits[high]) + len(digits[low])
            if fewer and _is_below(pair, axes[low], width):
                one = _Axis(left, wanted, axes[high].extent * width)
                return [one if k == high else axis for k, axis in enumerate(axes) if k != low]
    return None


def _is_below(pair: WriteAndRead, axis: _Axis, width: Expr) -> bool:
    """True only if two places are less than a width apart: both lie in the first places of that width, or their difference is known to be less."""
    if all(prove(le(0, e), pair.facts) and prove(lt(e, width), pair.facts) for e in (axis.left, axis.wanted)):
        return True
    apart = simplify(axis.left - axis.wanted, pair.facts)
    return prove(lt(apart, width), pair.facts) and prove(lt(-width, apart), pair.facts)


def _digits(pair: WriteAndRead, difference: Expr) -> list[FloorDiv | Mod]:
    """The quotients and remainders in the terms of a sum that no table lists: of symbols of the write and others, or of too many values."""
    terms, _ = terms_of(difference)
    found = [e for term, _ in terms for e in (term.factors if isinstance(term, Product) else (term,)) if isinstance(e, FloorDiv | Mod)]
    own = pair.spans.keys()
    return [e for e in found if not e.free <= own and not (e.free.isdisjoint(own) and pair.countable(e.free))]
