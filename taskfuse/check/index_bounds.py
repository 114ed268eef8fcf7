"""Indices in a box: the bounds that conditions imply for each, and the number of points that satisfy the conditions."""

from __future__ import annotations

from collections.abc import Callable
from math import lcm, prod

import numpy as np

from taskfuse.check.ranges import Ranges, terms_of
from taskfuse.check.statement_tree import Conditions, Context
from taskfuse.ir.scalar import (
    ZERO,
    Compare,
    CompareOp,
    Const,
    Expr,
    Max,
    Min,
    Mod,
    compare,
    const,
    eq,
    evaluate,
    is_multiple,
    le,
    maximum,
    minimum,
    private,
    prove,
    simplify,
    sym,
)

MAX_POINTS = 1 << 22
"""Limit of enumerated points; larger boxes, such as all blocks of a large grid, are counted by intervals."""
MAX_PERIOD = 1 << 12
"""Limit of the period of conditions on remainders."""


def effective_extents(conditions: Conditions, extents: dict[str, Expr], context: Context) -> dict[str, Expr]:
    """Extents of the part of a box that conditions allow: a symbolic extent becomes a constant if a condition bounds the index below it."""
    found = dict(extents)
    for n, extent in extents.items():
        if isinstance(extent, Const):
            continue
        said = [Ranges({}).stronger(c) for c in conditions if c.free == frozenset((n,))]
        bounds = [hi for ranges in said if ranges is not None and (hi := ranges.of(sym(n))[1]) is not None]
        least = context.ranges.of(extent)[0]
        if bounds and least is not None and least > min(bounds):
            found[n] = const(min(bounds) + 1)
    return found


def box_count(conditions: Conditions, extents: dict[str, Expr], names: tuple[str, ...], context: Context) -> Expr | None:
    """The number of points of a box that satisfy conditions on its indices; ``None`` if unknown.

    Axes of constant extents are enumerated together. Conditions on the others are bounds, or concern remainders.
    """
    axes = frozenset(names)
    conditions = tuple(c for c in conditions if not (c.free.isdisjoint(axes) and context.ranges.implies(c)))
    if any(c.free.isdisjoint(axes) for c in conditions):
        return None
    extents = effective_extents(conditions, extents, context)
    symbolic = {n for n in names if not isinstance(extents[n], Const)}
    for c in conditions:
        if not c.free <= axes:
            symbolic |= c.free & axes
    total: Expr = const(1)
    while prod(value_of(extents[n]) for n in names if n not in symbolic) > MAX_POINTS:
        symbolic.add(max((n for n in names if n not in symbolic), key=lambda n: value_of(extents[n])))
    constant = tuple(n for n in names if n not in symbolic)
    if constant:
        grid = np.meshgrid(*(np.arange(value_of(extents[n])) for n in constant), indexing="ij")
        env = {n: g.reshape(-1) for n, g in zip(constant, grid, strict=True)}
        mask = np.ones(grid[0].size, np.bool_)
        for c in conditions:
            if c.free.isdisjoint(symbolic):
                mask &= np.asarray(evaluate(c, env), np.bool_)
        total = const(int(mask.sum()))
    for n in sorted(symbolic):
        mine = tuple(c for c in conditions if n in c.free)
        size = _axis_count(n, extents[n], mine, context) if all(len(c.free & axes) == 1 for c in mine) else None
        if size is None:
            return None
        total = total * size
    return simplify(total, context.facts)


def _axis_count(name: str, extent: Expr, conditions: Conditions, context: Context) -> Expr | None:
    """How many values ``0 <= name < extent`` satisfy conditions; ``None`` if these are not all bounds or remainders, or their number is open."""
    lo: list[Expr] = [ZERO]
    hi: list[Expr] = [extent]
    others = [c for c in conditions if not _bound(c, name, lo, hi)]
    low, high = _strongest(lo, context, upper=False), _strongest(hi, context, upper=True)
    others = [c for c in others if not _cuts_an_end(c, name, low, lo, high, hi, context)]
    low, high = _strongest(lo, context, upper=False), _strongest(hi, context, upper=True)
    size = maximum(high - low, 0)
    place = private("place")  # how far from the first one
    tests: list[Expr] = []
    period = 1
    for c in others:
        match c:
            case Compare(op, Mod(a, Const(k)) as left, Const() as right) | Compare(op, Const() as left, Mod(a, Const(k)) as right) if k > 0:
                times = _coefficient(a, name)
                remainder = simplify((a + (place + low - sym(name)) * times) % k, context.facts)
                if name in (a - sym(name) * times).free or not remainder.free <= place.free:
                    return None  # it is another function of the index, or that of the first one is open
                tests.append(compare(op, *(e if isinstance(e, Const) else remainder for e in (left, right))))
                period = lcm(period, k)
            case _:
                return None
    if not tests:
        return size
    if period > MAX_PERIOD:
        return None
    held = sum(all(evaluate(t, {place.name: k}) for t in tests) for k in range(period))
    if held in (0, period):
        return size if held else ZERO
    return simplify(size // period * held, context.facts) if is_multiple(size, period, context.facts) else None


def _coefficient(e: Expr, name: str) -> int:
    """How often an index stands in a sum."""
    return next((k for t, k in terms_of(e)[0] if t is sym(name)), 0)


def _cuts_an_end(condition: Expr, name: str, low: Expr, lo: list[Expr], high: Expr, hi: list[Expr], context: Context) -> bool:
    """Add what ``name != value`` says to bounds, ``hi`` exclusive; False if the value is not known to be the first or the last one."""
    if not isinstance(condition, Compare) or condition.op is not CompareOp.NE:
        return False
    first: list[Expr] = []
    if not _bound(compare(CompareOp.EQ, condition.a, condition.b), name, first, []):
        return False
    if first[0] is low or prove(eq(first[0], low), context.facts):
        lo.append(low + 1)
        return True
    if high - 1 is first[0] or prove(eq(first[0], high - 1), context.facts):
        hi.append(high - 1)
        return True
    return False


def _strongest(bounds: list[Expr], context: Context, *, upper: bool) -> Expr:
    """The smallest of upper bounds, the largest of lower ones; those that others imply are left out."""
    kept: list[Expr] = []
    for e in bounds:
        if any(_at_most(f, e, context) if upper else _at_most(e, f, context) for f in kept):
            continue
        kept = [f for f in kept if not (_at_most(e, f, context) if upper else _at_most(f, e, context))]
        kept.append(e)
    return minimum(*kept) if upper else maximum(*kept)


def _at_most(a: Expr, b: Expr, context: Context) -> bool:
    if isinstance(b, Max) and set(a.args if isinstance(a, Max) else (a,)) <= set(b.args):
        return True
    return prove(le(a, b), context.facts)


def value_of(e: Expr) -> int:
    """The value of a constant."""
    assert isinstance(e, Const)
    return e.value


def _bound(condition: Expr, name: str, lo: list[Expr], hi: list[Expr]) -> bool:
    """Add what a condition says about one index to its bounds, ``hi`` exclusive; False if that is not a bound."""
    if not isinstance(condition, Compare) or condition.op is CompareOp.NE:
        return False
    form = condition.b - condition.a
    terms, _ = terms_of(form)
    k = next((k for t, k in terms if t is sym(name)), 0)
    if abs(k) != 1 or any(name in t.free for t, _ in terms if t is not sym(name)):
        return False
    rest = form - sym(name) * k
    strict = condition.op is CompareOp.LT
    if condition.op is CompareOp.EQ:
        value = rest * -k
        lo.append(value)
        hi.append(value + 1)
    elif k > 0:  # name >= -rest
        lo.append(-rest + (1 if strict else 0))
    else:  # name <= rest
        hi.append(rest if strict else rest + 1)
    return True


def bounds_of(
    name: str, context: Context, usable: Callable[[Expr], bool] = lambda _: True, *, conditions: Conditions | None = None
) -> tuple[Expr, Expr] | None:
    """Inclusive symbolic bounds of an index or loop variable in a context, made of usable expressions; only from the given conditions, if any."""
    lo, hi = _limits(name, context) if conditions is None else _limits_by(name, conditions, [], [])
    lo, hi = [e for e in lo if usable(e)], [e for e in hi if usable(e)]
    if not lo or not hi:
        return None
    low, high = maximum(*lo), minimum(*hi)
    # of [max(0, B), min(B + 2, G)) the width is seen only where the bounds that say nothing are left out
    return simplify(low, context.facts) if isinstance(low, Max) else low, (simplify(high, context.facts) if isinstance(high, Min) else high) - 1


def _limits(name: str, context: Context) -> tuple[list[Expr], list[Expr]]:
    """All symbolic bounds of an index in a context, the upper ones exclusive."""
    found = context.limits.get(name)
    if found is None:
        low, high = context.facts.ranges.get(name, (None, None))
        lo, hi = [] if low is None else [low], [] if high is None else [high + 1]
        found = context.limits[name] = _limits_by(name, context.conditions, lo, hi)
    return found


def _limits_by(name: str, conditions: Conditions, lo: list[Expr], hi: list[Expr]) -> tuple[list[Expr], list[Expr]]:
    for c in conditions:
        if name in c.free:
            _bound(c, name, lo, hi)
    return lo, hi
