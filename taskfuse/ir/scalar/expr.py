"""Nodes of the symbolic integer expressions, and the arithmetic that keeps them canonical.

An expression is a polynomial over *atoms* with integer coefficients: a ``Sum`` of monomials (an atom, or a ``Product`` of atoms) plus a constant.
Everything that is not ``Const``, ``Sum`` or ``Product`` is an atom. Sums are flat and sorted and products are expanded, so equal polynomials are one form.

Nodes are hash-consed: two nodes with equal fields are the same object, so ``==`` and ``hash`` are those of the identity and cost nothing.
Make nodes with the operators and with the constructors of this package, never by calling the classes: the classes do not canonicalize.

``//`` and ``%`` are Python's (round to minus infinity; the remainder has the divisor's sign). Division by zero, like a table index out of range, has no
value: a rewrite may turn such an expression into anything.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import gcd
from numbers import Integral, Real
from typing import Any, ClassVar, SupportsIndex, TypeVar

import numpy as np

from taskfuse.errors import SymbolError
from taskfuse.location import caller

SYMBOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")


class NotAnIntegerError(TypeError):
    """A value that is no integer, where expressions are made of integers alone."""


class Expr:
    """A symbolic integer. Booleans are the integers 0 and 1.

    A constant is an integer to Python: it compares, counts and indexes as one. What depends on symbols refuses every question that their values decide.

    Attributes:
        key: total order of nodes that depends on their structure only; it fixes the order of terms, and so the text.
        free: names of the symbols that occur.
        printer: ``to_text``, which stands above this module and registers itself here.
    """

    __slots__ = ("free", "key")
    key: tuple[object, ...]
    free: frozenset[str]
    rank: ClassVar[int]
    printer: ClassVar[Callable[[Expr], str]]
    __match_args__: ClassVar[tuple[str, ...]] = ()

    # NumPy's integers leave their operators to the expression.
    __array_ufunc__: ClassVar[None] = None
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        """With an expression: whether they are one. With a number: whether it is that, which must not depend on a symbol."""
        if isinstance(other, Expr):
            return self is other
        return _decided(self, "==", other)

    def __lt__(self, other: IntLike | float) -> bool:
        return _decided(self, "<", other)

    def __le__(self, other: IntLike | float) -> bool:
        return _decided(self, "<=", other)

    def __gt__(self, other: IntLike | float) -> bool:
        return _decided(self, ">", other)

    def __ge__(self, other: IntLike | float) -> bool:
        return _decided(self, ">=", other)

    def __add__(self, other: IntLike) -> Expr:
        try:
            return add(self, other if isinstance(other, Expr) else wrap(other))
        except NotAnIntegerError:
            return _applied("add", self, other)

    def __radd__(self, other: IntLike) -> Expr:
        try:
            return add(wrap(other), self)
        except NotAnIntegerError:
            return _applied("add", other, self)

    def __sub__(self, other: IntLike) -> Expr:
        try:
            return sub(self, other if isinstance(other, Expr) else wrap(other))
        except NotAnIntegerError:
            return _applied("sub", self, other)

    def __rsub__(self, other: IntLike) -> Expr:
        try:
            return sub(wrap(other), self)
        except NotAnIntegerError:
            return _applied("sub", other, self)

    def __mul__(self, other: IntLike) -> Expr:
        try:
            return mul(self, other if isinstance(other, Expr) else wrap(other))
        except NotAnIntegerError:
            return _applied("mul", self, other)

    def __rmul__(self, other: IntLike) -> Expr:
        try:
            return mul(wrap(other), self)
        except NotAnIntegerError:
            return _applied("mul", other, self)

    def __floordiv__(self, other: IntLike) -> Expr:
        try:
            return floordiv(self, other if isinstance(other, Expr) else wrap(other))
        except NotAnIntegerError:
            return _applied("floordiv", self, other)

    def __rfloordiv__(self, other: IntLike) -> Expr:
        try:
            return floordiv(wrap(other), self)
        except NotAnIntegerError:
            return _applied("floordiv", other, self)

    def __mod__(self, other: IntLike) -> Expr:
        try:
            return mod(self, other if isinstance(other, Expr) else wrap(other))
        except NotAnIntegerError:
            return _applied("mod", self, other)

    def __rmod__(self, other: IntLike) -> Expr:
        try:
            return mod(wrap(other), self)
        except NotAnIntegerError:
            return _applied("mod", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _applied("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _applied("truediv", other, self)

    def __pow__(self, other: Any) -> Any:
        return _applied("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return _applied("pow", other, self)

    def __neg__(self) -> Expr:
        return scale(self, -1)

    def ceildiv(self, other: IntLike) -> Expr:
        """The quotient rounded up, as ``(self + other - 1)//other`` (right for positive divisors)."""
        return ceildiv(self, other)

    def __bool__(self) -> bool:
        raise _undecided(f"whether {self} holds")

    def __index__(self) -> int:
        raise _undecided(f"the value of {self}")

    def __int__(self) -> int:
        return self.__index__()

    def __float__(self) -> float:
        return float(self.__index__())

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __reduce__(self) -> tuple[object, ...]:
        return intern, (type(self), *(getattr(self, name) for name in self.__match_args__))

    def __str__(self) -> str:
        return Expr.printer(self)

    def __repr__(self) -> str:
        return str(self)


IntLike = int | Expr
E = TypeVar("E", bound=Expr)


class CompareOp(Enum):
    """Comparison of two integers; ``>`` and ``>=`` are stored with their sides exchanged."""

    LT = "<"
    LE = "<="
    EQ = "=="
    NE = "!="
    __hash__ = object.__hash__  # of the identity, as for nodes


# The ranks decide how terms are ordered in a sum: `i0*N + i1`, `4*(x//4) + i`.
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Product(Expr):
    """Product of two or more atoms (sorted, repeated for powers); a coefficient lives in the ``Sum`` around it."""

    factors: tuple[Expr, ...]
    rank: ClassVar[int] = 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FloorDiv(Expr):
    """``a//b``, rounded to minus infinity."""

    a: Expr
    b: Expr
    rank: ClassVar[int] = 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sym(Expr):
    """A named integer: a dimension, a loop index, ``threadIdx.x``, a cursor's slot, a run-time argument."""

    name: str
    rank: ClassVar[int] = 2


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Mod(Expr):
    """``a % b``, with the sign of ``b``."""

    a: Expr
    b: Expr
    rank: ClassVar[int] = 3


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Xor(Expr):
    """Bitwise exclusive or (two's complement)."""

    a: Expr
    b: Expr
    rank: ClassVar[int] = 4


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Table(Expr):
    """``values[index]``; an index outside ``0 <= index < len(values)`` has no value."""

    values: tuple[int, ...]
    index: Expr
    rank: ClassVar[int] = 5


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Min(Expr):
    """The smallest of two or more (sorted, distinct) arguments."""

    args: tuple[Expr, ...]
    rank: ClassVar[int] = 6


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Max(Expr):
    """The largest of two or more (sorted, distinct) arguments."""

    args: tuple[Expr, ...]
    rank: ClassVar[int] = 7


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(Expr):
    """``a`` where the boolean ``cond`` holds, else ``b``; the other arm need not have a value."""

    cond: Expr
    a: Expr
    b: Expr
    rank: ClassVar[int] = 8


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Compare(Expr):
    """1 if ``a op b``, else 0."""

    op: CompareOp
    a: Expr
    b: Expr
    rank: ClassVar[int] = 9


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class And(Expr):
    """Conjunction of two or more booleans, in the order written: a conjunct needs a value only where those before it hold."""

    args: tuple[Expr, ...]
    rank: ClassVar[int] = 10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Or(Expr):
    """Disjunction of two or more booleans, in the order written: a disjunct needs a value only where those before it fail."""

    args: tuple[Expr, ...]
    rank: ClassVar[int] = 11


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Expr):
    """Negation of a conjunction, a disjunction or a boolean selection (a comparison is negated in place)."""

    a: Expr
    rank: ClassVar[int] = 12


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sum(Expr):
    """``const`` plus the sum of ``coefficient * term``; terms are atoms or products, sorted, with coefficients other than 0."""

    terms: tuple[tuple[Expr, int], ...]
    const: int
    rank: ClassVar[int] = 13


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
    """An integer, equal to Python's and with its hash."""

    value: int
    rank: ClassVar[int] = 14

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, Expr) else self.value == other

    def __bool__(self) -> bool:
        return self.value != 0

    def __index__(self) -> int:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.value, dtype)


Integral.register(Const)


SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "truediv": "/", "pow": "**"}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {name: getattr(operator, name) for name in SIGNS}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

MEMORY = 1 << 16
"""How many results of an operation are remembered: nodes are interned, so that operands are compared by identity."""

_INTERNED: dict[tuple[object, ...], Any] = {}  # lives as long as the process, like the interpreter's interned strings


def intern(cls: type[E], *values: object) -> E:
    """The one node of class ``cls`` with these fields. Canonical form is up to the caller."""
    identity = (cls, *values)
    found = _INTERNED.get(identity)
    if found is None:
        make: Callable[..., Expr] = cls
        found = make(*values)
        free = frozenset((found.name,)) if isinstance(found, Sym) else frozenset[str]().union(*(child.free for child in children(found)))
        object.__setattr__(found, "key", _sort_key(found))
        object.__setattr__(found, "free", free)
        found = _INTERNED.setdefault(identity, found)
    return found


def _sort_key(e: Expr) -> tuple[object, ...]:
    """Depends on the structure only. Nodes of one class have keys of one shape, so that any two keys compare."""
    match e:
        case Sum(terms, constant):
            return (e.rank, tuple([(term.key, k) for term, k in terms]), constant)
        case Product(args) | Min(args) | Max(args) | And(args) | Or(args):
            return (e.rank, tuple([arg.key for arg in args]))
        case FloorDiv(a, b) | Mod(a, b) | Xor(a, b):
            return (e.rank, a.key, b.key)
        case Sym(name):  # indices (lower case) before dimensions (upper case), and i2 before i10
            return (e.rank, name[0].isupper(), *(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)))
        case Compare(op, a, b):
            return (e.rank, op.value, a.key, b.key)
        case Select(cond, a, b):
            return (e.rank, cond.key, a.key, b.key)
        case Table(values, index):
            return (e.rank, values, index.key)
        case Not(a):
            return (e.rank, a.key)
        case Const(value):
            return (e.rank, value)
        case _:
            raise AssertionError(type(e))


def children(e: Expr) -> tuple[Expr, ...]:
    """The operands of a node, left to right."""
    match e:
        case Const() | Sym():
            return ()
        case Sum(terms):
            return tuple(term for term, _ in terms)
        case Product(args) | Min(args) | Max(args) | And(args) | Or(args):
            return args
        case FloorDiv(a, b) | Mod(a, b) | Xor(a, b) | Compare(_, a, b):
            return (a, b)
        case Select(cond, a, b):
            return (cond, a, b)
        case Table(_, a) | Not(a):
            return (a,)
        case _:
            raise AssertionError(type(e))


def free_symbols(e: Expr) -> frozenset[str]:
    """Names of the symbols that occur in ``e``."""
    return e.free


@lru_cache(MEMORY)
def const(value: int) -> Const:
    """The constant ``value``."""
    return intern(Const, value)


def sym(name: str) -> Sym:
    """The symbol called ``name``: letters, digits and ``_``, in parts joined by dots, such as ``S``, ``threadIdx.x`` or ``tv0.stride.1``.

    Raises:
        ValueError: ``name`` is not of that form.
    """
    found: Sym | None = _INTERNED.get((Sym, name))
    if found is not None:
        return found
    if SYMBOL_NAME.fullmatch(name) is None:
        raise ValueError(f"'{name}' is not a symbol name: letters, digits and _, in parts joined by dots")
    return intern(Sym, name)


def private(name: str) -> Sym:
    """A symbol for the internal use of an analysis. Its printed name has a form that cannot occur in text, so it differs from all names of users."""
    return intern(Sym, f"'{name}")


def wrap(value: IntLike) -> Expr:
    """``value`` as an expression: an integer of Python or NumPy, or an expression. Raises :class:`NotAnIntegerError` for anything else."""
    if isinstance(value, Expr):
        return value
    if type(value) is int:
        return const(value)
    return const(_index(value))


def _index(value: object) -> int:
    if not isinstance(value, SupportsIndex):
        raise NotAnIntegerError(f"{value!r} is not an integer")
    return value.__index__()


def _decided(a: Expr, op: str, b: object) -> bool:
    """``a op b`` of a number or an expression ``b``. Raises :class:`SymbolError` where the values of symbols decide it."""
    if isinstance(b, SupportsIndex):  # an expression is one, too
        terms, constant = linear_parts(sub(a, b if isinstance(b, Expr) else const(_index(b))))
        if not terms:
            return COMPARISONS[op](constant, 0)
        if op == "==" and constant % gcd(*(k for _, k in terms)):
            return False
    elif not isinstance(b, float) or (op == "==" and not b.is_integer()):
        return NotImplemented
    elif isinstance(a, Const):
        return COMPARISONS[op](a.value, b)
    raise _undecided(f"whether {a} {op} {b} holds")


def _applied(op: str, a: Any, b: Any) -> Any:
    """``a op b`` where the result is no expression: that of integers, if what is an expression is a constant."""
    values = [e.value if isinstance(e, Const) else e for e in (a, b)]
    if not any(isinstance(e, Expr) for e in values):
        return ARITHMETIC[op](*values)
    if op == "pow" and isinstance(a, Expr) and isinstance(values[1], SupportsIndex) and values[1].__index__() >= 0:
        power: Expr = ONE
        for _ in range(values[1].__index__()):
            power = mul(power, a)
        return power
    if all(isinstance(e, Expr | Real) for e in values):
        raise _undecided(f"the value of {a} {SIGNS[op]} {b}", "symbols make integers only: use //, .ceildiv() and integers, or a run-time scalar")
    return NotImplemented


def _undecided(what: str, help: str | None = None) -> SymbolError:
    usual = "a constant extent answers; for what holds for all values ask tf.scalar.prove(tf.scalar.le(a, b), fusion.facts())"
    return SymbolError(what=what, help=help or usual, location=caller())


ZERO: Const = const(0)
ONE: Const = const(1)
FALSE: Const = ZERO
TRUE: Const = ONE

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
    kept = [item for item in merged.items() if item[1]]
    if len(kept) > 1:
        kept.sort(key=_term_key)
    return _sum(tuple(kept), constant)


def _sum(terms: Terms, constant: int) -> Expr:
    """``constant`` plus the sum of ``coefficient * term``; terms are sorted and distinct, coefficients not 0."""
    if not terms:
        return const(constant)
    if constant == 0 and len(terms) == 1 and terms[0][1] == 1:
        return terms[0][0]
    return intern(Sum, terms, constant)


def _term_key(item: tuple[Expr, int]) -> tuple[object, ...]:
    return item[0].key


def _key(e: Expr) -> tuple[object, ...]:
    return e.key


def add(a: Expr, b: Expr) -> Expr:
    """``a + b``."""
    if a is ZERO:
        return b
    if b is ZERO:
        return a
    return _combined(a, b, 1)


def sub(a: Expr, b: Expr) -> Expr:
    """``a - b``."""
    return ZERO if a is b else a if b is ZERO else _combined(a, b, -1)


@lru_cache(MEMORY)
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
        value = merged.get(t, 0) + k * m
        if value:
            merged[t] = value
        else:
            del merged[t]
    return _sum(tuple(sorted(merged.items(), key=_term_key) if len(merged) > 1 else merged.items()), constant)


@lru_cache(MEMORY)
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


@lru_cache(MEMORY)
def mul(a: Expr, b: Expr) -> Expr:
    """``a * b``, expanded."""
    if isinstance(a, Const):
        return scale(b, a.value)
    if isinstance(b, Const):
        return scale(a, b.value)
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


def ceildiv(a: IntLike, b: IntLike) -> Expr:
    """``a/b`` rounded up, as ``(a + b - 1)//b`` (right for positive ``b``)."""
    divisor = wrap(b)
    return floordiv(wrap(a) + divisor - 1, divisor)


@lru_cache(MEMORY)
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
    flat: list[tuple[Expr, int]] = []
    for e, k in terms:
        match e:
            case Sum(inner, inner_constant):
                flat += ((t, k * m) for t, m in inner)
                constant += k * inner_constant
            case Const(value):
                constant += k * value
            case _:
                flat.append((e, k))
    return linear(flat, constant)


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


@lru_cache(MEMORY)
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
