"""Python's operators for integer expressions, added to :class:`~taskfuse.ir.scalar.expr.Expr` when the package is imported: a node's operators make nodes.

Operands other than integers are left to Python, or rejected, as are questions that only the values of symbols decide.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import gcd
from numbers import Real
from typing import Any, SupportsIndex

from taskfuse.errors import SymbolError
from taskfuse.ir.scalar.arithmetic import add, floordiv, linear_parts, mod, mul, scale, shift, sub
from taskfuse.ir.scalar.expr import ONE, Const, Expr, IntLike, NotAnIntegerError, const, index, wrap
from taskfuse.location import caller


def ceildiv(a: IntLike, b: IntLike) -> Expr:
    """``a/b`` rounded up, as ``(a + b - 1)//b`` (right for positive ``b``)."""
    divisor = wrap(b)
    return floordiv(wrap(a) + divisor - 1, divisor)


SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "truediv": "/", "pow": "**"}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {name: getattr(operator, name) for name in SIGNS}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def _decided(a: Expr, op: str, b: object) -> bool:
    """``a op b`` of a number or an expression ``b``. Raises :class:`SymbolError` where the values of symbols decide it."""
    if isinstance(b, int | Expr | SupportsIndex):  # the last alone looks at methods by name
        terms, constant = linear_parts(sub(a, b if isinstance(b, Expr) else const(index(b))))
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
    """``a op b`` where the result is not an expression: that of Python's integers, if the expressions are constants."""
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


def _eq(self: Expr, other: object) -> bool:
    """With an expression: whether they are one. With a number: whether it is that, which must not depend on a symbol."""
    if isinstance(other, Expr):
        return self is other
    return _decided(self, "==", other)


def _lt(self: Expr, other: IntLike | float) -> bool:
    return _decided(self, "<", other)


def _le(self: Expr, other: IntLike | float) -> bool:
    return _decided(self, "<=", other)


def _gt(self: Expr, other: IntLike | float) -> bool:
    return _decided(self, ">", other)


def _ge(self: Expr, other: IntLike | float) -> bool:
    return _decided(self, ">=", other)


def _add(self: Expr, other: IntLike) -> Expr:
    if type(other) is int:
        return const(self.value + other) if isinstance(self, Const) else shift(self, other)
    try:
        return add(self, other if isinstance(other, Expr) else wrap(other))
    except NotAnIntegerError:
        return _applied("add", self, other)


def _radd(self: Expr, other: IntLike) -> Expr:
    try:
        return add(wrap(other), self)
    except NotAnIntegerError:
        return _applied("add", other, self)


def _sub(self: Expr, other: IntLike) -> Expr:
    if type(other) is int:
        return const(self.value - other) if isinstance(self, Const) else shift(self, -other)
    try:
        return sub(self, other if isinstance(other, Expr) else wrap(other))
    except NotAnIntegerError:
        return _applied("sub", self, other)


def _rsub(self: Expr, other: IntLike) -> Expr:
    try:
        return sub(wrap(other), self)
    except NotAnIntegerError:
        return _applied("sub", other, self)


def _mul(self: Expr, other: IntLike) -> Expr:
    if type(other) is int:  # by far the most
        return const(self.value * other) if isinstance(self, Const) else scale(self, other)
    try:
        return mul(self, other if isinstance(other, Expr) else wrap(other))
    except NotAnIntegerError:
        return _applied("mul", self, other)


def _rmul(self: Expr, other: IntLike) -> Expr:
    try:
        return mul(wrap(other), self)
    except NotAnIntegerError:
        return _applied("mul", other, self)


def _floordiv(self: Expr, other: IntLike) -> Expr:
    try:
        return floordiv(self, other if isinstance(other, Expr) else wrap(other))
    except NotAnIntegerError:
        return _applied("floordiv", self, other)


def _rfloordiv(self: Expr, other: IntLike) -> Expr:
    try:
        return floordiv(wrap(other), self)
    except NotAnIntegerError:
        return _applied("floordiv", other, self)


def _mod(self: Expr, other: IntLike) -> Expr:
    try:
        return mod(self, other if isinstance(other, Expr) else wrap(other))
    except NotAnIntegerError:
        return _applied("mod", self, other)


def _rmod(self: Expr, other: IntLike) -> Expr:
    try:
        return mod(wrap(other), self)
    except NotAnIntegerError:
        return _applied("mod", other, self)


def _truediv(self: Expr, other: Any) -> Any:
    return _applied("truediv", self, other)


def _rtruediv(self: Expr, other: Any) -> Any:
    return _applied("truediv", other, self)


def _pow(self: Expr, other: Any) -> Any:
    return _applied("pow", self, other)


def _rpow(self: Expr, other: Any) -> Any:
    return _applied("pow", other, self)


def _neg(self: Expr) -> Expr:
    return scale(self, -1)


def _ceildiv(self: Expr, other: IntLike) -> Expr:
    return ceildiv(self, other)


def _truth(self: Expr) -> bool:
    raise _undecided(f"whether {self} holds")


def _integer(self: Expr) -> int:
    raise _undecided(f"the value of {self}")


Expr.__eq__ = _eq
Expr.__lt__ = _lt
Expr.__le__ = _le
Expr.__gt__ = _gt
Expr.__ge__ = _ge
Expr.__add__ = _add
Expr.__radd__ = _radd
Expr.__sub__ = _sub
Expr.__rsub__ = _rsub
Expr.__mul__ = _mul
Expr.__rmul__ = _rmul
Expr.__floordiv__ = _floordiv
Expr.__rfloordiv__ = _rfloordiv
Expr.__mod__ = _mod
Expr.__rmod__ = _rmod
Expr.__truediv__ = _truediv
Expr.__rtruediv__ = _rtruediv
Expr.__pow__ = _pow
Expr.__rpow__ = _rpow
Expr.__neg__ = _neg
Expr.__bool__ = _truth
Expr.__index__ = _integer
Expr.ceildiv = _ceildiv
