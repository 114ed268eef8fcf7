"""Constant bounds and constant divisors of expressions, by interval arithmetic over the facts.

The checker has its own interval arithmetic (:mod:`taskfuse.check.ranges`), so that a kernel is not judged with the arithmetic that made its indices.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from taskfuse.ir.scalar.expr import And, Compare, Const, Element, Expr, FloorDiv, Max, Min, Mod, Not, Or, Product, Select, Sum, Sym, Table, UpperBound, Xor
from taskfuse.ir.scalar.facts import UNBOUNDED, Facts, Interval

BOOLEAN: Interval = (0, 1)


def interval(e: Expr, facts: Facts) -> Interval:
    """Constants ``(lo, hi)`` with ``lo <= e <= hi`` wherever the facts hold; ``None``: unbounded. Never wrong, not always the tightest."""
    if isinstance(e, Const):
        return e.value, e.value
    found = facts.bounds_memo.get(e)
    if found is None:
        found = facts.bounds_memo[e] = _refine(e, _interval(e, facts), facts)
    return found


def _interval(e: Expr, facts: Facts) -> Interval:
    match e:
        case Sum(terms, constant):
            lo: int | None = constant
            hi: int | None = constant
            for term, k in terms:
                term_lo, term_hi = interval(term, facts)
                if k < 0:
                    term_lo, term_hi = term_hi, term_lo
                lo = None if lo is None or term_lo is None else lo + k * term_lo
                hi = None if hi is None or term_hi is None else hi + k * term_hi
                if lo is None and hi is None:
                    break
            return lo, hi
        case Sym(name):
            low, high = facts.ranges.get(name, (None, None))
            return None if low is None else interval(low, facts)[0], None if high is None else interval(high, facts)[1]
        case Product(factors):
            result = interval(factors[0], facts)
            for factor in factors[1:]:
                result = _multiply(result, interval(factor, facts))
            return result
        case FloorDiv(a, b):
            return _divide(interval(a, facts), interval(b, facts))
        case Mod(a, b):
            return _remainder(interval(a, facts), interval(b, facts))
        case Xor(a, b):
            return _exclusive_or(interval(a, facts), interval(b, facts))
        case Min(args):
            lows, highs = zip(*(interval(arg, facts) for arg in args), strict=True)
            return _all_known(lows, min), _any_known(highs, min)
        case Max(args):
            lows, highs = zip(*(interval(arg, facts) for arg in args), strict=True)
            return _any_known(lows, max), _all_known(highs, max)
        case Select(_, a, b):
            (lo_a, hi_a), (lo_b, hi_b) = interval(a, facts), interval(b, facts)
            return _all_known((lo_a, lo_b), min), _all_known((hi_a, hi_b), max)
        case Table(values, index):
            lo, hi = interval(index, facts)
            reachable = values[max(lo or 0, 0) : len(values) if hi is None else hi + 1] or values
            return min(reachable), max(reachable)
        case Element(low=low, high=high):
            return interval(low, facts)[0], interval(high, facts)[1]
        case UpperBound():
            most = interval(e.most, facts)[1]
            return 0, None if most is None else max(0, most)
        case Compare() | And() | Or() | Not():
            return BOOLEAN
        case _:
            raise AssertionError(type(e))


def _refine(e: Expr, found: Interval, facts: Facts) -> Interval:
    """Tightens by assumptions about ``e`` itself and by its known divisor."""
    lo, hi = found
    assumed = facts.intervals.get(e)
    if assumed is not None:
        assumed_lo, assumed_hi = assumed
        if assumed_lo is not None and (lo is None or assumed_lo > lo):
            lo = assumed_lo
        if assumed_hi is not None and (hi is None or assumed_hi < hi):
            hi = assumed_hi
    excluded = facts.excluded.get(e)
    step = facts.multiples.get(e, 1)
    if excluded is None and step == 1:
        return lo, hi
    if lo is not None:
        lo = -(-lo // step) * step
        while excluded is not None and lo in excluded:
            lo += step
    if hi is not None:
        hi = hi // step * step
        while excluded is not None and hi in excluded:
            hi -= step
    return lo, hi


def _multiply(a: Interval, b: Interval) -> Interval:
    (lo_a, hi_a), (lo_b, hi_b) = a, b
    if lo_a is not None and lo_b is not None and lo_a >= 0 and lo_b >= 0:
        if hi_a == 0 or hi_b == 0:
            return 0, 0
        return lo_a * lo_b, None if hi_a is None or hi_b is None else hi_a * hi_b
    corners: list[int] = []
    low_open = high_open = False
    for x, x_sign in ((lo_a, -1), (hi_a, 1)):
        for y, y_sign in ((lo_b, -1), (hi_b, 1)):
            if x is not None and y is not None:
                corners.append(x * y)
                continue
            sign_x = x_sign if x is None else (x > 0) - (x < 0)
            sign_y = y_sign if y is None else (y > 0) - (y < 0)
            if sign_x * sign_y > 0:
                high_open = True
            elif sign_x * sign_y < 0:
                low_open = True
            else:
                corners.append(0)
    return None if low_open else min(corners), None if high_open else max(corners)


def _by_sign(positive: Callable[[Interval, tuple[int, int | None]], Interval], turned: Callable[[Interval], Interval], a: Interval, b: Interval) -> Interval:
    """The interval by ``positive`` for divisors above 0, joined with that for divisors below 0, by ``turned``, with both signs changed; no divisor is 0."""
    small, large = b
    parts: list[Interval] = []
    if large is None or large > 0:
        parts.append(positive(a, (1 if small is None else max(small, 1), large)))
    if small is None or small < 0:
        parts.append(turned(positive(_negated(a), (1 if large is None else max(-large, 1), None if small is None else -small))))
    if not parts:
        return UNBOUNDED
    lows, highs = zip(*parts, strict=True)
    return _all_known(lows, min), _all_known(highs, max)


def _negated(a: Interval) -> Interval:
    lo, hi = a
    return None if hi is None else -hi, None if lo is None else -lo


def _divide(a: Interval, b: Interval) -> Interval:
    """Floor quotient."""
    return _by_sign(_positive_quotient, lambda quotient: quotient, a, b)


def _positive_quotient(a: Interval, b: tuple[int, int | None]) -> Interval:
    (lo, hi), (small, large) = a, b
    if lo is not None:
        lo = lo // small if lo < 0 else 0 if large is None else lo // large
    if hi is not None:
        hi = hi // small if hi >= 0 else -1 if large is None else hi // large
    return lo, hi


def _remainder(a: Interval, b: Interval) -> Interval:
    """Floor remainder, with the sign of the divisor."""
    return _by_sign(_positive_remainder, _negated, a, b)


def _positive_remainder(a: Interval, b: tuple[int, int | None]) -> Interval:
    (lo, hi), (small, large) = a, b
    most = None if large is None else large - 1
    if lo is None or lo < 0:
        return 0, most
    if hi is not None and hi < small:
        return lo, hi
    return 0, hi if most is None or (hi is not None and hi < most) else most


def _exclusive_or(a: Interval, b: Interval) -> Interval:
    """For integers that are not negative, up to the next power of two; otherwise the range of the smallest signed width of both."""
    (lo_a, hi_a), (lo_b, hi_b) = a, b
    if lo_a is None or lo_b is None or hi_a is None or hi_b is None:
        return (0, None) if lo_a is not None and lo_b is not None and lo_a >= 0 and lo_b >= 0 else UNBOUNDED
    bits = max(bound.bit_length() if bound >= 0 else (-bound - 1).bit_length() for bound in (lo_a, hi_a, lo_b, hi_b))
    return (0 if lo_a >= 0 and lo_b >= 0 else -(1 << bits)), (1 << bits) - 1


def _all_known(bounds: tuple[int | None, ...], pick: Callable[[list[int]], int]) -> int | None:
    known = [bound for bound in bounds if bound is not None]
    return pick(known) if len(known) == len(bounds) else None


def _any_known(bounds: tuple[int | None, ...], pick: Callable[[list[int]], int]) -> int | None:
    known = [bound for bound in bounds if bound is not None]
    return pick(known) if known else None


def divisor(e: Expr, facts: Facts) -> int:
    """A constant that ``e`` is a multiple of wherever the facts hold: 0 for 0 itself, 1 if nothing is known."""
    if isinstance(e, Const):
        return abs(e.value)
    found = facts.divisor_memo.get(e)
    if found is None:
        found = _divisor(e, facts)
        known = facts.multiples.get(e)
        if known is not None and found:
            found = found * known // gcd(found, known)
        facts.divisor_memo[e] = found
    return found


def _divisor(e: Expr, facts: Facts) -> int:
    match e:
        case Sum(terms, constant):
            return gcd(constant, *(k * divisor(term, facts) for term, k in terms))
        case Product(factors):
            result = 1
            for factor in factors:
                result *= divisor(factor, facts)
            return result
        case FloorDiv(a, Const(b)) if b > 0:
            whole = divisor(a, facts)
            return whole // b if whole % b == 0 else 1
        case Mod(a, b):
            return gcd(divisor(a, facts), divisor(b, facts))
        case Min(args) | Max(args):
            return gcd(*(divisor(arg, facts) for arg in args))
        case Select(_, a, b):
            return gcd(divisor(a, facts), divisor(b, facts))
        case Xor(a, b):
            common = gcd(divisor(a, facts), divisor(b, facts))
            return common & -common
        case Table(values, _):
            return gcd(*values)
        case _:
            return 1
