"""Constructors of comparisons, booleans, selections, minima, maxima, exclusive or and tables.

They fold constants and simplify only by the difference of the operands; rules that need facts about symbols are in ``simplify``.
A boolean is 0 or 1; an integer used as a condition means "is not 0".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

from taskfuse.ir.scalar.arithmetic import linear_parts, sub
from taskfuse.ir.scalar.expr import (
    EQ,
    FALSE,
    LE,
    LT,
    MEMORY,
    NE,
    ONE,
    TRUE,
    ZERO,
    And,
    Compare,
    CompareOp,
    Const,
    Element,
    Expr,
    IntLike,
    Max,
    Min,
    Not,
    Or,
    Select,
    Sym,
    Table,
    UpperBound,
    Xor,
    const,
    intern,
    wrap,
)
from taskfuse.ir.scalar.memory import remembered


def is_boolean(e: Expr) -> bool:
    """Whether the form of ``e`` makes it 0 or 1."""
    match e:
        case Compare() | And() | Or() | Not():
            return True
        case Const(value):
            return value in (0, 1)
        case Select(_, a, b):
            return is_boolean(a) and is_boolean(b)
        case _:
            return False


def as_boolean(value: IntLike) -> Expr:
    """``value`` if it is a boolean, else ``value != 0``."""
    e = value if isinstance(value, Expr) else wrap(value)
    return e if isinstance(e, Compare) or is_boolean(e) else ne(e, ZERO)


def lt(a: IntLike, b: IntLike) -> Expr:
    """``a < b``."""
    return compare(LT, a if isinstance(a, Expr) else wrap(a), b if isinstance(b, Expr) else wrap(b))


def le(a: IntLike, b: IntLike) -> Expr:
    """``a <= b``."""
    return compare(LE, a if isinstance(a, Expr) else wrap(a), b if isinstance(b, Expr) else wrap(b))


def gt(a: IntLike, b: IntLike) -> Expr:
    """``a > b``, stored as ``b < a``."""
    return compare(LT, b if isinstance(b, Expr) else wrap(b), a if isinstance(a, Expr) else wrap(a))


def ge(a: IntLike, b: IntLike) -> Expr:
    """``a >= b``, stored as ``b <= a``."""
    return compare(LE, b if isinstance(b, Expr) else wrap(b), a if isinstance(a, Expr) else wrap(a))


def eq(a: IntLike, b: IntLike) -> Expr:
    """``a == b`` as an expression."""
    return compare(EQ, wrap(a), wrap(b))


def ne(a: IntLike, b: IntLike) -> Expr:
    """``a != b`` as an expression."""
    return compare(NE, wrap(a), wrap(b))


@remembered(MEMORY)
def compare(op: CompareOp, a: Expr, b: Expr) -> Expr:
    """``a op b``. The sides stay as written, so that a guard reads as its author wrote it; equalities are ordered, constant last."""
    terms, constant = linear_parts(sub(b, a))
    if not terms:
        return TRUE if _holds(op, constant) else FALSE
    if op is LT or op is LE:
        return intern(Compare, op, a, b)
    if constant % gcd(*(k for _, k in terms)):
        return TRUE if op is NE else FALSE
    if isinstance(a, Const) or (not isinstance(b, Const) and b.key < a.key):
        a, b = b, a
    if isinstance(b, Const) and b.value in (0, 1) and is_boolean(a):
        return a if (op is EQ) == (b is ONE) else not_(a)
    return intern(Compare, op, a, b)


def _holds(op: CompareOp, difference: int) -> bool:
    if op is LT:
        return difference > 0
    if op is LE:
        return difference >= 0
    return (difference == 0) is (op is EQ)


@remembered(MEMORY)
def not_(a: IntLike) -> Expr:
    """The negation of a condition."""
    match as_boolean(a):
        case Const(value):
            return FALSE if value else TRUE
        case Compare(op, left, right):
            if op is LT:
                return compare(LE, right, left)
            return compare(LT, right, left) if op is LE else compare(NE if op is EQ else EQ, left, right)
        case Not(inner):
            return inner
        case e:
            return intern(Not, e)


def and_(*conditions: IntLike) -> Expr:
    """The conjunction, in the order given, without repetitions."""
    args: dict[Expr, None] = {}
    for condition in conditions:
        e = as_boolean(condition)
        args.update(dict.fromkeys(e.args if isinstance(e, And) else (e,)))
    args.pop(TRUE, None)
    if FALSE in args or any(not_(e) in args for e in args):
        return FALSE
    return _junction(And, TRUE, args)


def or_(*conditions: IntLike) -> Expr:
    """The disjunction, in the order given, without repetitions."""
    args: dict[Expr, None] = {}
    for condition in conditions:
        e = as_boolean(condition)
        args.update(dict.fromkeys(e.args if isinstance(e, Or) else (e,)))
    args.pop(FALSE, None)
    if TRUE in args or any(not_(e) in args for e in args):
        return TRUE
    return _junction(Or, FALSE, args)


def _junction(cls: type[And | Or], empty: Expr, args: Iterable[Expr]) -> Expr:
    match tuple(args):
        case ():
            return empty
        case (one,):
            return one
        case several:
            return intern(cls, several)


def select(cond: IntLike, a: IntLike, b: IntLike) -> Expr:
    """``a`` where ``cond`` holds, else ``b``."""
    condition, yes, no = as_boolean(cond), wrap(a), wrap(b)
    if isinstance(condition, Const):
        return yes if condition is TRUE else no
    if yes is no:
        return yes
    if isinstance(condition, Not):
        condition, yes, no = condition.a, no, yes
    if is_boolean(yes) and is_boolean(no):
        if isinstance(yes, Const):
            return or_(condition, no) if yes is TRUE else and_(not_(condition), no)
        if isinstance(no, Const):
            return or_(not_(condition), yes) if no is TRUE else and_(condition, yes)
    return intern(Select, condition, yes, no)


def minimum(*args: IntLike) -> Expr:
    """The smallest argument.

    Raises:
        ValueError: no arguments.
    """
    return _extremum(Min, args, 1)


def maximum(*args: IntLike) -> Expr:
    """The largest argument.

    Raises:
        ValueError: no arguments.
    """
    return _extremum(Max, args, -1)


def _extremum(cls: type[Min | Max], args: Sequence[IntLike], sign: int) -> Expr:
    """Drops each argument that differs from another by a constant of the losing sign."""
    flat: list[Expr] = []
    for arg in args:
        e = wrap(arg)
        flat += e.args if isinstance(e, (Min, Max)) and type(e) is cls else (e,)
    best: dict[tuple[tuple[Expr, int], ...], tuple[int, Expr]] = {}
    for e in flat:
        terms, constant = linear_parts(e)
        known = best.get(terms)
        if known is None or sign * constant < sign * known[0]:
            best[terms] = (constant, e)
    if not best:
        raise ValueError("minimum and maximum need at least one argument")
    kept = sorted((e for _, e in best.values()), key=lambda e: e.key)
    return kept[0] if len(kept) == 1 else intern(cls, tuple(kept))


def xor(a: IntLike, b: IntLike) -> Expr:
    """Bitwise exclusive or; equal operands cancel at any depth."""
    constant = 0
    odd: dict[Expr, None] = {}
    stack = [wrap(a), wrap(b)]
    while stack:
        match stack.pop():
            case Xor(left, right):
                stack += (left, right)
            case Const(value):
                constant ^= value
            case e:
                if e in odd:
                    del odd[e]
                else:
                    odd[e] = None
    operands: list[Expr] = sorted(odd, key=lambda e: e.key)
    if constant or not operands:
        operands.append(const(constant))
    result = operands[0]
    for operand in operands[1:]:
        result = intern(Xor, result, operand)
    return result


def table(values: Iterable[int], index: IntLike) -> Expr:
    """``values[index]``, a lookup in constants.

    Raises:
        ValueError: no values.
    """
    entries, position = tuple(int(value) for value in values), wrap(index)
    if not entries:
        raise ValueError("a table needs at least one value")
    if isinstance(position, Const) and 0 <= position.value < len(entries):
        return const(entries[position.value])
    return const(entries[0]) if min(entries) == max(entries) else intern(Table, entries, position)


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """The conjuncts of a condition; empty for ``true``."""
    if condition is TRUE:
        return ()
    return condition.args if isinstance(condition, And) else (condition,)


def upper_bound(tensor: IntLike, size: IntLike, low: IntLike, high: IntLike, sought: IntLike, *, divisor: int = 1, step: int = 0) -> Expr:
    """The number of elements k = 1, ..., ``size`` - 2 of a table with ``clamp(tensor[k], low, high)//divisor + step*k <= sought``.

    Raises:
        ValueError: ``tensor`` is not a symbol, ``divisor`` is less than 1 or ``step`` less than 0.
    """
    name = wrap(tensor)
    if not isinstance(name, Sym):
        raise ValueError(f"'{name}' is not the name of a tensor")
    if divisor < 1 or step < 0:
        raise ValueError(f"elements of '{name}' have the divisor {divisor} and the step {step}: a divisor is positive, a step is not negative")
    count = wrap(size)
    return ZERO if isinstance(count, Const) and count.value <= 2 else intern(UpperBound, name, count, wrap(low), wrap(high), divisor, step, wrap(sought))


def element(tensor: IntLike, index: IntLike, size: IntLike, low: IntLike, high: IntLike) -> Expr:
    """The element at ``index`` of the ``size`` integers of the tensor named by the symbol ``tensor``, clamped to ``low..high``.

    Raises:
        ValueError: ``tensor`` is not a symbol.
    """
    name = wrap(tensor)
    if not isinstance(name, Sym):
        raise ValueError(f"'{name}' is not the name of a tensor")
    least, greatest = wrap(low), wrap(high)
    return least if least is greatest else intern(Element, name, wrap(index), wrap(size), least, greatest)
