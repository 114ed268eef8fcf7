"""Nodes of the symbolic integer expressions.

An expression is a polynomial over *atoms* with integer coefficients: a ``Sum`` of monomials (an atom, or a ``Product`` of atoms) plus a constant.
Everything that is not ``Const``, ``Sum`` or ``Product`` is an atom. Sums are flat and sorted and products are expanded, so equal polynomials are one form.

Nodes are hash-consed: two nodes with equal fields are the same object, so ``==`` and ``hash`` are those of the identity and cost nothing.
Make nodes with the operators and with the constructors of this package (:mod:`~taskfuse.ir.scalar.arithmetic`, :mod:`~taskfuse.ir.scalar.logic`), never by
calling the classes: the classes do not canonicalize.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from numbers import Integral
from operator import attrgetter
from sys import getrefcount
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, TypeVar

import numpy as np

from taskfuse.errors import shown
from taskfuse.ir.scalar.memory import forget_results, remembered

SYMBOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")


class NotAnIntegerError(TypeError):
    """A value other than an integer, in an expression of integers."""


class Expr:
    """A symbolic integer. Booleans are the integers 0 and 1.

    For Python a constant is an integer: it compares, counts and indexes as one. An expression with symbols raises on questions that their values decide.

    Attributes:
        free: names of the symbols that occur.
        known_key: :attr:`key`, if it has been computed.
        printer: ``to_text``, which is in a higher module and registers itself here.
    """

    __slots__ = ("free", "known_key")
    free: frozenset[str]
    known_key: tuple[object, ...]
    rank: ClassVar[int]
    printer: ClassVar[Callable[[Expr], str]]
    __match_args__: ClassVar[tuple[str, ...]] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """Total order of nodes that depends on their structure only; it fixes the order of terms, and so the text.

        Few nodes are ever sorted, so it is made when it is asked for; not by ``__getattr__``, for which Python would look in every access to a field.
        """
        try:
            return self.known_key
        except AttributeError:
            found = _sort_key(self)
            object.__setattr__(self, "known_key", found)
            return found

    # NumPy's integers leave their operators to the expression.
    __array_ufunc__: ClassVar[None] = None
    __hash__ = object.__hash__

    # Python's operators, the comparisons among them, are those of :mod:`taskfuse.ir.scalar.operators`: they make nodes, stand above them, and are put here.
    if TYPE_CHECKING:

        def __lt__(self, other: IntLike | float) -> bool: ...
        def __le__(self, other: IntLike | float) -> bool: ...
        def __gt__(self, other: IntLike | float) -> bool: ...
        def __ge__(self, other: IntLike | float) -> bool: ...
        def __add__(self, other: IntLike) -> Expr: ...
        def __radd__(self, other: IntLike) -> Expr: ...
        def __sub__(self, other: IntLike) -> Expr: ...
        def __rsub__(self, other: IntLike) -> Expr: ...
        def __mul__(self, other: IntLike) -> Expr: ...
        def __rmul__(self, other: IntLike) -> Expr: ...
        def __floordiv__(self, other: IntLike) -> Expr: ...
        def __rfloordiv__(self, other: IntLike) -> Expr: ...
        def __mod__(self, other: IntLike) -> Expr: ...
        def __rmod__(self, other: IntLike) -> Expr: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __rpow__(self, other: Any) -> Any: ...
        def __neg__(self) -> Expr: ...
        def __bool__(self) -> bool: ...
        def __index__(self) -> int: ...
        def ceildiv(self, other: IntLike) -> Expr:
            """The quotient rounded up, as ``(self + other - 1)//other`` (right for positive divisors)."""
            ...

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


LT, LE, EQ, NE = CompareOp
"""The members by name, for what asks often: Python 3.11 takes as long to look one up in its class as for a small function."""


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
class Element(Expr):
    """The element at ``index`` of a tensor of ``size`` integers that is never written, clamped to ``low..high``, ends included: data that determines the work.

    Whatever the tensor contains, the value is in its range, so no index that uses it depends on a caller's promise. An index outside the tensor has
    no value. The tensor's name counts as a symbol of the expression.
    """

    tensor: Sym
    index: Expr
    size: Expr
    low: Expr
    high: Expr
    rank: ClassVar[int] = 15


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UpperBound(Expr):
    """The number of elements k = 1, ..., size - 2 of a table with ``clamp(tensor[k], low, high)//divisor + step*k <= sought``.

    For a nondecreasing table it is the g <= size - 2 with ``t[g] <= sought < t[g + 1]``, if there is one. Whatever the tensor contains, it is one
    of 0, ..., size - 2; for a table that decreases somewhere, any of them.
    """

    tensor: Sym
    size: Expr
    low: Expr
    high: Expr
    divisor: int
    step: int
    sought: Expr
    rank: ClassVar[int] = 16

    @property
    def most(self) -> Expr:
        """The greatest value."""
        return wrap(self.size) - 2


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


NO_NAMES: frozenset[str] = frozenset()
MEMORY = 1 << 16
"""The most results of an operation that are cached: nodes are interned, so operands are compared by identity."""

INTERNED: dict[tuple[object, ...], Any] = {}
"""All nodes by class and fields: as long as the process lives, like the interpreter's interned strings, or until :func:`forget`."""


def intern(cls: type[E], *values: object) -> E:
    """The one node of class ``cls`` with these fields. Canonical form is up to the caller."""
    identity = (cls, *values)
    found = INTERNED.get(identity)
    if found is None:
        found = _NEW(cls)
        puts = _fields_of(cls)
        if len(puts) == 2:  # as most have: a loop over both takes longer than all else here
            puts[0](found, values[0])
            puts[1](found, values[1])
        else:
            for put, value in zip(puts, values, strict=True):
                put(found, value)
        _PUT_FREE(found, _free(found))
        found = INTERNED.setdefault(identity, found)
    return found


_NEW = object.__new__
_PUT_FREE: Callable[[Expr, frozenset[str]], None] = Expr.__dict__["free"].__set__


@cache
def _fields_of(cls: type[Expr]) -> tuple[Callable[[Expr, object], None], ...]:
    """What sets each field of a new node, without the check that nodes do not change."""
    return tuple(cls.__dict__[name].__set__ for name in cls.__match_args__)


def forget() -> None:
    """Forget what is remembered about expressions, and the expressions that nothing else has. No other thread may use expressions meanwhile."""
    forget_results()
    entries = list(INTERNED.items())
    while entries:  # the last first: a node was made after its operands
        identity, node = entries.pop()
        if getrefcount(node) == _OWN_REFERENCES:
            del INTERNED[identity]


def _own_references() -> int:
    """References to a node that nothing has beside the table of all and the loop of :func:`forget`."""
    node = Expr()
    table, entries = {0: node}, [(0, node)]
    del node
    _, node = entries.pop()
    assert table
    return getrefcount(node)


_OWN_REFERENCES = _own_references()


def _free(e: Expr) -> frozenset[str]:
    """The symbols of a node that has just been made; an operand's own set where that has all."""
    if isinstance(e, Sym):
        return frozenset((e.name,))
    found = NO_NAMES
    if isinstance(e, Sum):  # half of all nodes
        for term, _ in e.terms:
            free = term.free
            if free is not found and not free <= found:
                found = found | free if found else free
        return found
    for child in children(e):
        free = child.free
        if free is not found and not free <= found:
            found = found | free if found else free
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
        case Element(tensor, index, size, low, high):
            return (e.rank, tensor.key, index.key, size.key, low.key, high.key)
        case UpperBound(tensor, size, low, high, divisor, step, sought):
            return (e.rank, tensor.key, size.key, low.key, high.key, divisor, step, sought.key)
        case Not(a):
            return (e.rank, a.key)
        case Const(value):
            return (e.rank, value)
        case _:
            raise AssertionError(type(e))


def children(e: Expr) -> tuple[Expr, ...]:
    """The operands of a node, left to right."""
    return _CHILDREN[type(e)](e)


def _none(e: Expr) -> tuple[Expr, ...]:
    del e
    return ()


# By class: a pattern of a class takes as long as all of this, and this is asked for every node.
_CHILDREN: dict[type[Expr], Callable[[Any], tuple[Expr, ...]]] = {
    Sum: lambda e: tuple([term for term, _ in e.terms]),
    Const: _none,
    Sym: _none,
    Product: attrgetter("factors"),
    Table: lambda e: (e.index,),
    Not: lambda e: (e.a,),
    Select: attrgetter("cond", "a", "b"),
    Element: attrgetter("tensor", "index", "size", "low", "high"),
    UpperBound: attrgetter("tensor", "size", "low", "high", "sought"),
    **dict.fromkeys((FloorDiv, Mod, Compare, Xor), attrgetter("a", "b")),
    **dict.fromkeys((Min, Max, And, Or), attrgetter("args")),
}


def free_symbols(e: Expr) -> frozenset[str]:
    """Names of the symbols that occur in ``e``."""
    return e.free


@remembered(MEMORY)
def const(value: int) -> Const:
    """The constant ``value``."""
    return intern(Const, value)


@remembered(MEMORY)
def sym(name: str) -> Sym:
    """The symbol called ``name``: letters, digits and ``_``, in parts joined by dots, such as ``S``, ``threadIdx.x`` or ``tv0.stride.1``.

    Raises:
        ValueError: ``name`` is not of that form.
    """
    found: Sym | None = INTERNED.get((Sym, name))  # a private one, too
    if found is not None:
        return found
    if SYMBOL_NAME.fullmatch(name) is None:
        raise ValueError(f"'{name}' is not a symbol name: letters, digits and _, in parts joined by dots")
    return intern(Sym, name)


@remembered(MEMORY)
def private(name: str) -> Sym:
    """A symbol for the internal use of an analysis. Its name cannot occur in text, so it differs from all names of users."""
    return intern(Sym, f"'{name}")


def wrap(value: IntLike) -> Expr:
    """``value`` as an expression: an integer of Python or NumPy, or an expression. Raises :class:`NotAnIntegerError` for anything else."""
    if isinstance(value, Expr):
        return value
    if type(value) is int:
        return const(value)
    return const(index(value))


def index(value: object) -> int:
    """The integer that ``value`` represents in Python. Raises :class:`NotAnIntegerError` for other values."""
    if not isinstance(value, SupportsIndex):
        raise NotAnIntegerError(f"{shown(value)} is not an integer")
    return value.__index__()


ZERO: Const = const(0)
ONE: Const = const(1)
FALSE: Const = ZERO
TRUE: Const = ONE
