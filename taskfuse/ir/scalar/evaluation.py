"""Numbers from expressions: ``evaluate`` walks the tree, ``compile_expr`` makes a Python function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from taskfuse.ir.scalar.expr import (
    EQ,
    LE,
    LT,
    NE,
    And,
    Compare,
    CompareOp,
    Const,
    Element,
    Expr,
    FloorDiv,
    IntLike,
    Max,
    Min,
    Mod,
    Not,
    Or,
    Product,
    Select,
    Sum,
    Sym,
    Table,
    UpperBound,
    Xor,
    children,
    wrap,
)
from taskfuse.ir.scalar.logic import is_boolean
from taskfuse.ir.scalar.lookups import lookups_of
from taskfuse.ir.scalar.memory import forgotten_by

Value = int | npt.NDArray[Any]


class TableIndexError(IndexError):
    """An expression has no value: an index is outside its table."""


_INTEGERS = frozenset((Sum, Sym, Product, FloorDiv, Mod, Const))
"""Expressions whose form makes their values integers."""

_COMPARES: Mapping[CompareOp, Callable[[Any, Any], Any]] = {LT: operator.lt, LE: operator.le, EQ: operator.eq, NE: operator.ne}

KEPT = 1 << 12
"""The most elements of an array that is kept for the next expression."""
MOST = 1 << 10
"""The most arrays that are kept."""
FEW = 1 << 6
"""The most elements of an array that costs no more to add than one element."""


def evaluate(e: IntLike, env: Mapping[str, Value]) -> Value:
    """The value of ``e`` with every symbol's value taken from ``env``: integers of any size, or int64 arrays that broadcast together (and then wrap around).

    A tensor whose elements occur in it has a one-dimensional array of integers there, or a two-dimensional one: a row for each element of the other arrays.

    Conditions give ``bool`` or boolean arrays. On arrays both arms of a selection are computed, and a lane where an expression has no value (division by
    zero, a table index out of range) holds an unspecified number instead of raising.

    Raises:
        KeyError: a symbol without a value.
        ZeroDivisionError, IndexError: the expression has no value.
    """
    return Evaluation(env).of(e)


class Evaluation:
    """Values of several expressions at the same values of symbols: shared subexpressions are computed once.

    Attributes:
        env: the value of each symbol; it must not change.

    Args:
        under: values of some of these symbols in more rows, and which of these rows are here (``None``: all). What they give is computed there, once for all
            that have rows of them.
    """

    __slots__ = ("_done", "_kept", "_under", "env")

    def __init__(self, env: Mapping[str, Value], under: tuple[Evaluation, npt.NDArray[np.int64] | None] | None = None) -> None:
        self.env = env
        self._under = under
        self._kept: dict[Expr, Value] = {}
        self._done: dict[Expr, Value] = {}  # of one expression

    def of(self, e: IntLike) -> Value:
        """As :func:`evaluate`."""
        if len(self._kept) > MOST:
            self._kept.clear()
        found = self._of(e if isinstance(e, Expr) else wrap(e))
        if self._done:
            self._done.clear()
        return found

    def _of(self, e: Expr) -> Value:
        if isinstance(e, Const):
            return e.value
        if isinstance(e, Sym):
            return self.env[e.name]
        found = self._kept.get(e)
        if found is None:
            found = self._done.get(e)
        if found is None:
            found = self._of_more_rows(e)
            if found is None:
                found = self._compute(e)
            kept = self._kept if isinstance(found, int) or found.size <= KEPT else self._done
            kept[e] = found
        return found

    def _of_more_rows(self, e: Expr) -> Value | None:
        """The value of an expression in the rows that are here, if it is known where there are more."""
        if self._under is None:
            return None
        more, here = self._under
        if not e.free <= more.env.keys():
            return None
        found = more.of(e)
        return found if here is None or isinstance(found, int) or not found.ndim else found[here]

    def _number(self, e: Expr) -> Any:
        """The value of an operand that is wanted as an integer, so that booleans add up."""
        value = self._of(e)
        return value if type(e) in _INTEGERS or not is_boolean(e) else _as_int(value)

    def _compute(self, e: Expr) -> Value:
        number = self._number
        match e:
            case Sum(terms, constant):
                total: Any = constant
                large: list[npt.NDArray[Any]] = []  # added last, the least first: sums of arrays along few axes are small
                for term, k in terms:
                    value = number(term) if k == 1 else number(term) * k
                    if not isinstance(value, int) and value.size > FEW:
                        large.append(value)
                    else:
                        total = total + value
                for value in sorted(large, key=_size) if len(large) > 1 else large:
                    total = total + value
                return total
            case Product(factors):
                return reduce(lambda x, y: x * y, map(number, factors))
            case FloorDiv(a, Const(value=d)) if d:
                return number(a) >> d.bit_length() - 1 if _is_power(d) else number(a) // d
            case FloorDiv(a, b):
                with np.errstate(divide="ignore"):
                    return number(a) // number(b)
            case Mod(a, Const(value=d)) if d:
                return number(a) & d - 1 if _is_power(d) else number(a) % d
            case Mod(a, b):
                with np.errstate(divide="ignore"):
                    return number(a) % number(b)
            case Xor(a, b):
                return number(a) ^ number(b)
            case Min(args):
                return reduce(_minimum, map(number, args))
            case Max(args):
                return reduce(_maximum, map(number, args))
            case Compare(op, a, b):
                return _COMPARES[op](number(a), number(b))
            case And(args):
                return _short_circuit(args, self._of, stop=False)
            case Or(args):
                return _short_circuit(args, self._of, stop=True)
            case Not(a):
                return _not(self._of(a))
            case Select(cond, a, b):
                condition = self._of(cond)
                if isinstance(condition, (int, np.bool_)):
                    return self._of(a if condition else b)
                return np.where(condition, self._of(a), self._of(b))
            case Table(values, index):
                return _lookup(values, number(index))
            case Element(tensor, index, _, low, high):
                return _minimum(_maximum(_element(self.env[tensor.name], number(index)), number(low)), number(high))
            case UpperBound(tensor, _, low, high, divisor, step, sought):
                return _upper_bound(self.env[tensor.name], number(low), number(high), divisor, step, number(sought))
            case _:
                raise AssertionError(type(e))


NO_COLUMNS: Mapping[str, npt.NDArray[np.int64]] = {}


class Samples(dict[str, npt.NDArray[np.int64]]):
    """Symbols with known ranges, each with equally many values, and tables, with as many rows; empty if no sample is known.

    They do not change; :mod:`~taskfuse.ir.scalar.samples` makes them.

    Args:
        columns: the values of each symbol.
        under: the values of some of the symbols in these rows, and in others but for those in ``rows``.

    Attributes:
        more: the same with columns for symbols of which nothing is known, by what the columns say.
    """

    __slots__ = ("_at", "_rows", "_under", "more")
    _at: Evaluation

    def __init__(
        self, columns: Mapping[str, npt.NDArray[np.int64]] = NO_COLUMNS, under: Evaluation | None = None, rows: npt.NDArray[np.int64] | None = None
    ) -> None:
        super().__init__(columns)
        self._under = under  # not its samples, which may refer to these
        self._rows = rows
        self.more: dict[tuple[object, ...], Samples] = {}

    @property
    def at(self) -> Evaluation:
        """The values of expressions at the samples: what several questions have in common is computed once."""
        try:
            return self._at
        except AttributeError:
            self._at = found = Evaluation(dict(self), None if self._under is None else (self._under, self._rows))
            return found


def _size(values: npt.NDArray[Any]) -> int:
    return values.size


def _is_power(d: int) -> bool:
    """True for a power of two: arrays are shifted and masked in a tenth of the time that divisions and remainders take."""
    return d > 0 and not d & (d - 1)


def _as_int(value: Any) -> Any:
    return int(value) if isinstance(value, int) else value.astype(np.int64)


def _minimum(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def _maximum(a: Any, b: Any) -> Any:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)


def _not(value: Any) -> Any:
    return not value if isinstance(value, int) else np.logical_not(value)


def _short_circuit(args: tuple[Expr, ...], visit: Callable[[Expr], Value], *, stop: bool) -> Value:
    """Conjunction (``stop`` False) or disjunction of the arguments; stops early only on plain booleans."""
    result: Any = not stop
    for arg in args:
        value: Any = visit(arg)
        if isinstance(value, int) and bool(value) is stop:
            return stop
        result = (result | value) if stop else (result & value)
    return result


def _lookup(values: tuple[int, ...], index: Any) -> Any:
    if not isinstance(index, int):
        entries: Any = np.array(values, dtype=np.int64)
        return entries.take(index, mode="clip")
    if not 0 <= index < len(values):
        raise TableIndexError(f"table index {index} is outside [0, {len(values)})")
    return values[index]


def _element(tensor: Any, index: Any) -> Any:
    """The element of a one-dimensional array of integers, or in each row of a two-dimensional one."""
    if tensor.ndim > 1:
        return tensor[np.arange(len(tensor)), np.clip(index, 0, tensor.shape[1] - 1)]
    if not isinstance(index, int):
        return tensor.astype(np.int64).take(index, mode="clip")
    if not 0 <= index < len(tensor):
        raise TableIndexError(f"index {index} is outside the {len(tensor)} elements of a tensor")
    return int(tensor[index])


def _upper_bound(tensor: Any, low: Any, high: Any, divisor: int, step: int, sought: Any) -> Any:
    """How many elements between the first and the last of a one-dimensional array of integers are no greater than what is sought; or in each row of a
    two-dimensional one.
    """
    inner = np.arange(1, max(1, tensor.shape[-1] - 1), dtype=np.int64)
    if tensor.ndim == 1 and isinstance(sought, int) and isinstance(low, int) and isinstance(high, int):
        return int(np.count_nonzero(np.clip(tensor[inner].astype(np.int64), low, high) // divisor + step * inner <= sought))
    found = np.zeros(np.broadcast_shapes(tensor.shape[:-1], *(np.shape(x) for x in (low, high, sought))), np.int64)
    for k in inner:
        found += np.minimum(np.maximum(tensor[..., k].astype(np.int64), low), high) // divisor + step * k <= sought
    return found


_COMPILED: dict[tuple[Expr, tuple[str, ...]], Callable[..., Any]] = {}
forgotten_by(_COMPILED.clear)


def compile_expr(e: IntLike, args: Sequence[str]) -> Callable[..., Any]:
    """A Python function of the symbols ``args``, in that order, that computes what ``evaluate`` does. Compiled once per expression and order.

    Raises:
        ValueError: a symbol of ``e`` is not among ``args``.
    """
    node, names = wrap(e), tuple(args)
    found = _COMPILED.get((node, names))
    if found is None:
        missing = node.free.difference(names)
        if missing:
            raise ValueError(f"no argument for {', '.join(repr(name) for name in sorted(missing))}")
        found = _COMPILED[node, names] = _compile(node, names)
    return found


def _compile(e: Expr, names: tuple[str, ...]) -> Callable[..., Any]:
    on_ints = _Generator(names, arrays=False).function(e)
    on_arrays = _Generator(names, arrays=True).function(e)
    tensors = {found.tensor.name for found in lookups_of(e)}
    integers = [name not in tensors for name in names]

    def compiled(*values: Value) -> Any:
        for value, is_integer in zip(values, integers, strict=True):
            if is_integer and not isinstance(value, int):
                with np.errstate(divide="ignore"):
                    return on_arrays(*values)
        return on_ints(*values)

    return compiled


class _Generator:
    """Python source of one expression, for plain integers (conditions are lazy) or for arrays (every shared subexpression is a local).

    Among arrays, plain integers are divided and looked up as arrays are, which does not raise: a condition may be false in all lanes where the divisor is
    0, or where a table has no such entry.
    """

    def __init__(self, names: tuple[str, ...], *, arrays: bool) -> None:
        self.parameters = {name: f"a{i}" for i, name in enumerate(names)}
        self.arrays = arrays
        self.lines: list[str] = []
        self.locals: dict[Expr, str] = {}
        self.tables: dict[str, object] = {}

    def function(self, e: Expr) -> Callable[..., Any]:
        """The compiled function."""
        for shared in _shared(e, lazy=not self.arrays):
            text = self.text(shared)
            self.locals[shared] = name = f"t{len(self.locals)}"
            self.lines.append(f"    {name} = {text}\n")
        result = self.text(e)
        source = f"def compiled({', '.join(self.parameters.values())}):\n{''.join(self.lines)}    return {result}\n"
        scope: dict[str, Any] = {"np": np, "integer": _as_int, "lookup": _lookup, "element": _element, "upper_bound": _upper_bound, **self.tables}
        exec(source, scope)
        return scope["compiled"]

    def number(self, e: Expr) -> str:
        """The source of an operand that is used as an integer."""
        text = self.text(e)
        return f"integer({text})" if is_boolean(e) and not isinstance(e, Const) else text

    def place(self, index: Expr) -> str:
        """The source of an index of a table."""
        return f"np.asarray({self.number(index)})" if self.arrays else self.number(index)

    def text(self, e: Expr) -> str:
        """The source of a node, parenthesized where it is not a name or a call."""
        local = self.locals.get(e)
        if local is not None:
            return local
        match e:
            case Const(value):
                return f"({value})"
            case Sym(name):
                return self.parameters[name]
            case Sum(terms, constant):
                text = " + ".join(self.number(term) if k == 1 else f"{k}*{self.number(term)}" for term, k in terms)
                return f"({text} + {constant})" if constant else f"({text})"
            case Product(factors):
                return f"({'*'.join(map(self.number, factors))})"
            case FloorDiv(a, b):
                return f"np.floor_divide({self.number(a)}, {self.number(b)})" if self.arrays else f"({self.number(a)}//{self.number(b)})"
            case Mod(a, b):
                return f"np.remainder({self.number(a)}, {self.number(b)})" if self.arrays else f"({self.number(a)} % {self.number(b)})"
            case Xor(a, b):
                return f"({self.number(a)} ^ {self.number(b)})"
            case Min(args):
                return self.extremum("np.minimum" if self.arrays else "min", args)
            case Max(args):
                return self.extremum("np.maximum" if self.arrays else "max", args)
            case Compare(op, a, b):
                return f"({self.number(a)} {op.value} {self.number(b)})"
            case And(args):
                return f"({(' & ' if self.arrays else ' and ').join(map(self.text, args))})"
            case Or(args):
                return f"({(' | ' if self.arrays else ' or ').join(map(self.text, args))})"
            case Not(a):
                return f"np.logical_not({self.text(a)})" if self.arrays else f"(not {self.text(a)})"
            case Select(cond, a, b):
                if self.arrays:
                    return f"np.where({self.text(cond)}, {self.text(a)}, {self.text(b)})"
                return f"({self.text(a)} if {self.text(cond)} else {self.text(b)})"
            case Table(values, index):
                name = f"v{len(self.tables)}"
                self.tables[name] = values
                return f"lookup({name}, {self.place(index)})"
            case Element(tensor, index, _, low, high):
                found = f"element({self.parameters[tensor.name]}, {self.place(index)})"
                least, most = ("np.maximum", "np.minimum") if self.arrays else ("max", "min")
                return f"{most}({least}({found}, {self.number(low)}), {self.number(high)})"
            case UpperBound(tensor, _, low, high, divisor, step, sought):
                given = (self.parameters[tensor.name], self.number(low), self.number(high), str(divisor), str(step), self.number(sought))
                return f"upper_bound({', '.join(given)})"
            case _:
                raise AssertionError(type(e))

    def extremum(self, function: str, args: tuple[Expr, ...]) -> str:
        return reduce(lambda x, y: f"{function}({x}, {y})", map(self.number, args))


def _shared(e: Expr, *, lazy: bool) -> list[Expr]:
    """Operations that occur more than once, operands first. With ``lazy``, only those that are computed in any case: not under a condition."""
    uses: dict[Expr, int] = {}
    order: list[Expr] = []

    def visit(node: Expr) -> None:
        uses[node] = uses.get(node, 0) + 1
        if uses[node] > 1 or isinstance(node, (Const, Sym)):
            return
        operands = children(node)
        if lazy and isinstance(node, (Select, And, Or)):
            operands = operands[:1]
        for operand in operands:
            visit(operand)
        order.append(node)

    visit(e)
    return [node for node in order if uses[node] > 1]
