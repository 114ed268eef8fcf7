"""Integer expressions as Python text, with the values that the CUDA text gives them.

The CUDA text rounds quotients down, whatever their signs, and has no value where a divisor is 0 or an index of a table is outside of it. Python's operators do
the same; it raises in the latter two cases.
"""

from __future__ import annotations

from collections.abc import Callable

from taskfuse.ir.scalar import And, Compare, Const, Expr, FloorDiv, Max, Min, Mod, Not, Or, Product, Select, Sum, Sym, Table, Xor


def python_text(e: Expr, name: Callable[[str], str]) -> str:
    """The text of an expression; ``name`` gives the identifier of a symbol."""

    def text(e: Expr) -> str:
        match e:
            case Const(value):
                return str(value) if value >= 0 else f"({value})"
            case Sym(symbol):
                return name(symbol)
            case Sum(terms, constant):
                parts = [text(t) if k == 1 else f"{k}*{text(t)}" for t, k in terms] + ([str(constant)] if constant else [])
                return f"({' + '.join(parts)})"
            case Product(factors):
                return f"({'*'.join(map(text, factors))})"
            case FloorDiv(a, b):
                return f"({text(a)} // {text(b)})"
            case Mod(a, b):
                return f"({text(a)} % {text(b)})"
            case Xor(a, b):
                return f"({text(a)} ^ {text(b)})"
            case Min(args):
                return f"min({', '.join(map(text, args))})"
            case Max(args):
                return f"max({', '.join(map(text, args))})"
            case Select(cond, a, b):
                return f"({text(a)} if {text(cond)} else {text(b)})"
            case Compare(op, a, b):
                return f"({text(a)} {op.value} {text(b)})"
            case And(args):
                return f"({' and '.join(map(text, args))})"
            case Or(args):
                return f"({' or '.join(map(text, args))})"
            case Not(a):
                return f"(not {text(a)})"
            case Table(values, index):
                return f"entry({values!r}, {text(index)})"
            case _:
                raise AssertionError(type(e))

    return text(e)


def entry(values: tuple[int, ...], index: int) -> int:
    """An entry of a table."""
    if not 0 <= index < len(values):
        raise LookupError(f"entry {index} of a table of {len(values)}")
    return values[index]
