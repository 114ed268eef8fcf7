"""The arithmetic of integer expressions, which keeps them canonical: sums flat and sorted, products expanded, quotients and remainders without common factors.

``//`` and ``%`` are Python's (round to minus infinity; the remainder has the divisor's sign). Division by zero, like a table index out of range, has no
value: a rewrite may turn such an expression into anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd
from operator import attrgetter

from taskfuse.ir.scalar.expr import MEMORY, ONE, ZERO, Const, Expr, FloorDiv, Mod, Product, Sum, const, intern
from taskfuse.ir.scalar.memory import remembered

Terms = tuple[tuple[Expr, int], ...]


def linear_parts(e: Expr) -> tuple[Terms, int]:
    """``e`` as (terms with coefficients, constant)."""
    if isinstance(e, Sum):
        return e.terms, e.const
    if isinstance(e, Const):
        return (), e.value
    return ((e, 1),), 0


def linear(terms: Iterable[tuple[Expr, int]], constant: int) -> Expr:
    """``constant`` plus the sum of ``coefficient * term``; terms are atoms or products and may repeat."""
    merged: dict[Expr, int] = {}
    for term, coefficient in terms:
        merged[term] = merged.get(term, 0) + coefficient
    return _merged(merged, constant)


def _merged(terms: Mapping[Expr, int], constant: int) -> Expr:
    """``constant`` plus the sum of ``coefficient * term``, in any order; coefficients may be 0."""
    if 0 in terms.values():
        terms = {term: k for term, k in terms.items() if k}
    if len(terms) < 2:
        return _sum(tuple(terms.items()), constant)
    try:
        order = sorted(terms, key=_KNOWN_KEY)
    except AttributeError:
        order = sorted(terms, key=_key)
    return _sum(tuple([(term, terms[term]) for term in order]), constant)


def _sum(terms: Terms, constant: int) -> Expr:
    """``constant`` plus the sum of ``coefficient * term``; terms are sorted and distinct, coefficients not 0."""
    if not terms:
        return const(constant)
    if constant == 0 and len(terms) == 1 and terms[0][1] == 1:
        return terms[0][0]
    return intern(Sum, terms, constant)


_KNOWN_KEY: Callable[[Expr], tuple[object, ...]] = attrgetter("known_key")
"""The key of an expression that has been sorted before: most have."""


def _key(e: Expr) -> tuple[object, ...]:
    return e.key


def add(a: Expr, b: Expr) -> Expr:
    """``a + b``."""
    if a is ZERO:
        return b
    if isinstance(b, Const):  # a cache would hash constants, which Python does
        return const(a.value + b.value) if isinstance(a, Const) else shift(a, b.value)
    return shift(b, a.value) if isinstance(a, Const) else _combined(a, b, 1)


def sub(a: Expr, b: Expr) -> Expr:
    """``a - b``."""
    if a is b:
        return ZERO
    if isinstance(b, Const):
        return const(a.value - b.value) if isinstance(a, Const) else shift(a, -b.value)
    return _combined(a, b, -1)


@remembered(MEMORY)
def shift(a: Expr, k: int) -> Expr:
    """``a + k``."""
    terms, constant = linear_parts(a)
    return _sum(terms, constant + k) if k else a


@remembered(MEMORY)
def _combined(a: Expr, b: Expr, k: int) -> Expr:
    """``a + k*b``, for ``k`` other than 0."""
    terms_a, const_a = linear_parts(a)
    terms_b, const_b = linear_parts(b)
    constant = const_a + k * const_b
    if not terms_b:
        return _sum(terms_a, constant)
    if not terms_a:
        return _sum(terms_b if k == 1 else tuple([(t, k * m) for t, m in terms_b]), constant)
    merged = dict(terms_a)
    for t, m in terms_b:
        merged[t] = merged.get(t, 0) + k * m
    if len(merged) == len(terms_a):  # they have been sorted
        return _sum(tuple([term for term in merged.items() if term[1]]), constant)
    return _merged(merged, constant)


@remembered(MEMORY)
def scale(a: Expr, k: int) -> Expr:
    """``k * a``."""
    if k == 1:
        return a
    if k == 0:
        return ZERO
    terms, constant = linear_parts(a)
    return _sum(tuple([(term, coefficient * k) for term, coefficient in terms]), constant * k)


def factors(term: Expr) -> tuple[Expr, ...]:
    """The atoms of a monomial."""
    return term.factors if isinstance(term, Product) else (term,)


def monomial(atoms: Iterable[Expr]) -> Expr:
    """The product of one or more atoms."""
    ordered = sorted(atoms, key=_key)
    return ordered[0] if len(ordered) == 1 else intern(Product, tuple(ordered))


def mul(a: Expr, b: Expr) -> Expr:
    """``a * b``, expanded."""
    if isinstance(a, Const):
        return scale(b, a.value)
    return scale(a, b.value) if isinstance(b, Const) else _product(a, b)


@remembered(MEMORY)
def _product(a: Expr, b: Expr) -> Expr:
    """The same of two expressions with symbols."""
    terms_a, const_a = linear_parts(a)
    terms_b, const_b = linear_parts(b)
    terms = [(monomial(factors(s) + factors(t)), k * m) for s, k in terms_a for t, m in terms_b]
    terms += [(s, k * const_b) for s, k in terms_a]
    terms += [(t, const_a * m) for t, m in terms_b]
    return linear(terms, const_a * const_b)


def divide_monomial(term: Expr, divisor: Expr) -> Expr | None:
    """``term / divisor`` for monomials, ``None`` if a factor of the divisor is missing."""
    if term is divisor:
        return ONE
    if not isinstance(term, Product):
        return None
    left = list(term.factors)
    for factor in factors(divisor):
        if factor not in left:
            return None
        left.remove(factor)
    return monomial(left) if left else ONE


def divide_exact(e: Expr, divisor: Expr) -> Expr | None:
    """``e / divisor`` if every term of ``e`` is a multiple of the single-term ``divisor``, else ``None``."""
    terms, constant = linear_parts(e)
    match divisor:
        case Const(value):
            if value == 0 or constant % value or any(k % value for _, k in terms):
                return None
            return linear(((t, k // value) for t, k in terms), constant // value)
        case Sum(((base, value),), 0):
            pass
        case Sum():
            return None
        case _:
            base, value = divisor, 1
    if constant:
        return None
    result = ZERO
    for term, k in terms:
        quotient = divide_monomial(term, base)
        if quotient is None or k % value:
            return None
        result = add(result, scale(quotient, k // value))
    return result


@remembered(MEMORY)
def floordiv(a: Expr, b: Expr) -> Expr:
    """``a // b``, with whole multiples of ``b`` taken out of the quotient and common factors cancelled."""
    if isinstance(b, Const):
        return _floordiv_const(a, b.value)
    if a is b:
        return ONE
    if a is ZERO:
        return ZERO
    terms_b, const_b = linear_parts(b)
    terms, constant = linear_parts(a)
    common = _common_factor((*terms, *terms_b), gcd(constant, const_b), const_b == 0 and constant == 0)
    if common is not ONE:
        return floordiv(cancel(a, common), cancel(b, common))
    if const_b or len(terms_b) != 1:
        return intern(FloorDiv, a, b)
    if terms_b[0][1] < 0:
        return floordiv(scale(a, -1), scale(b, -1))
    quotient, rest = _split_multiples(terms, b)
    if quotient is not ZERO:
        return add(quotient, floordiv(linear(rest, constant), b))
    if constant == -1:  # x - 1 over b is written ceildiv(x, b) - 1
        return add(intern(FloorDiv, add(a, b), b), const(-1))
    return intern(FloorDiv, a, b)


def _floordiv_const(a: Expr, divisor: int) -> Expr:
    if divisor == 1:
        return a
    if divisor == 0:
        return intern(FloorDiv, a, ZERO)
    if divisor < 0:
        return _floordiv_const(scale(a, -1), -divisor)
    terms, constant = linear_parts(a)
    whole = [(t, k // divisor) for t, k in terms if k % divisor == 0]
    rest = [(t, k) for t, k in terms if k % divisor]
    quotient, constant = divmod(constant, divisor)
    if rest:
        common = gcd(divisor, *(k for _, k in rest))
        if common > 1:  # floor((g*x + r)/(g*d)) = floor(x/d) for 0 <= r < g
            rest = [(t, k // common) for t, k in rest]
            constant //= common
            divisor //= common
        whole.append((_reduced_floordiv(rest, constant, divisor), 1))
    return add_all(whole, quotient)


def _reduced_floordiv(terms: list[tuple[Expr, int]], constant: int, divisor: int) -> Expr:
    match terms:
        case [(FloorDiv(x, d), 1)] if d is not ZERO:  # floor((floor(x/d) + c)/n) = floor((x + c*d)/(d*n)) for n > 0
            return floordiv(add(x, scale(d, constant)), scale(d, divisor))
        case [(Mod(x, Const(m)), 1)] if constant == 0 and m > 0 and m % divisor == 0:  # (x % (m*d))//d = (x//d) % m
            return mod(_floordiv_const(x, divisor), const(m // divisor))
        case _:
            return intern(FloorDiv, linear(terms, constant), const(divisor))


def add_all(terms: Iterable[tuple[Expr, int]], constant: int) -> Expr:
    """``constant`` plus the sum of ``coefficient * expression``, where the expressions may be sums themselves."""
    merged: dict[Expr, int] = {}
    for e, k in terms:
        if isinstance(e, Sum):
            for t, m in e.terms:
                merged[t] = merged.get(t, 0) + k * m
            constant += k * e.const
        elif isinstance(e, Const):
            constant += k * e.value
        else:
            merged[e] = merged.get(e, 0) + k
    return _merged(merged, constant)


def _common_factor(terms: Terms, constant: int, symbolic: bool) -> Expr:
    """The largest monomial, with a positive coefficient, that divides all terms; ``constant`` takes part in the coefficient."""
    number = gcd(constant, *(k for _, k in terms))
    shared: list[Expr] = []
    if symbolic:
        shared = list(factors(terms[0][0]))
        for term, _ in terms[1:]:
            left, kept = list(factors(term)), list[Expr]()
            for factor in shared:
                if factor in left:
                    left.remove(factor)
                    kept.append(factor)
            shared = kept
            if not shared:
                break
    return scale(monomial(shared), number) if shared else const(number)


def cancel(e: Expr, common: Expr) -> Expr:
    """``e / common`` for a single-term ``common`` that is known to divide every term."""
    quotient = divide_exact(e, common)
    assert quotient is not None
    return quotient


def _split_multiples(terms: Terms, b: Expr) -> tuple[Expr, list[tuple[Expr, int]]]:
    """The quotient by the single-term ``b`` of the terms that are whole multiples of it, and the other terms."""
    base, k_base = linear_parts(b)[0][0]
    quotient: list[tuple[Expr, int]] = []
    constant = 0
    rest: list[tuple[Expr, int]] = []
    for term, k in terms:
        factor = divide_monomial(term, base)
        if factor is ONE:
            constant, k = k // k_base, k % k_base
            if k:
                rest.append((term, k))
        elif factor is not None and k % k_base == 0:
            quotient.append((factor, k // k_base))
        else:
            rest.append((term, k))
    return linear(quotient, constant), rest


@remembered(MEMORY)
def mod(a: Expr, b: Expr) -> Expr:
    """``a % b``, with multiples of ``b`` dropped and common factors taken out."""
    if isinstance(b, Const):
        return _mod_const(a, b.value)
    if a is b or a is ZERO:
        return ZERO
    terms_b, const_b = linear_parts(b)
    terms, constant = linear_parts(a)
    common = _common_factor((*terms, *terms_b), gcd(constant, const_b), const_b == 0 and constant == 0)
    if common is not ONE:
        return mul(common, mod(cancel(a, common), cancel(b, common)))
    if const_b or len(terms_b) != 1:
        return intern(Mod, a, b)
    if terms_b[0][1] < 0:
        return scale(mod(scale(a, -1), scale(b, -1)), -1)
    quotient, rest = _split_multiples(terms, b)
    for i, (term, k) in enumerate(rest):  # k*(x % m) = k*x - (k*m)*(x//m), and b divides k*m
        if isinstance(term, Mod) and divide_exact(scale(term.b, k), b) is not None:
            return mod(add_all([*rest[:i], *rest[i + 1 :], (term.a, k)], constant), b)
    if quotient is not ZERO:
        return mod(linear(rest, constant), b)
    return intern(Mod, a, b)


def _mod_const(a: Expr, divisor: int) -> Expr:
    if divisor == 0:
        return intern(Mod, a, ZERO)
    if divisor < 0:
        return scale(_mod_const(scale(a, -1), -divisor), -1)
    terms, constant = linear_parts(a)
    rest = [(t, k) for t, k in terms if k % divisor]
    constant %= divisor
    if not rest:
        return const(constant)
    for i, (term, k) in enumerate(rest):
        match term:
            case Mod(x, Const(m)) if m and k * m % divisor == 0:
                return _mod_const(add_all([*rest[:i], *rest[i + 1 :], (x, k)], constant), divisor)
            case _:
                pass
    match rest:
        case [(Mod(x, Const(m)) as inner, 1)] if m > 0 and m + constant <= divisor:
            return add(inner, const(constant))
        case _:
            pass
    common = gcd(divisor, *(k for _, k in rest))
    if common > 1:  # (g*x + r) % (g*d) = g*(x % d) + r for 0 <= r < g
        inner = _mod_const(linear(((t, k // common) for t, k in rest), constant // common), divisor // common)
        return add(scale(inner, common), const(constant % common))
    return intern(Mod, linear(rest, constant), const(divisor))
