"""Functions of atomic updates, and the bytes of their operands."""

from __future__ import annotations

from collections.abc import Callable

from taskfuse.testing.ptx.arithmetic import meaning
from taskfuse.testing.ptx.floats import FORMATS
from taskfuse.testing.ptx.nodes import SIZES


def size_of(kind: str) -> int:
    """The bytes of one operand: of a pair, of both."""
    return SIZES[kind] if kind in SIZES else FORMATS[kind.removesuffix("x2")].bits // 8 * (2 if kind.endswith("x2") else 1)


def combination(function: str, kind: str) -> Callable[[int, int], int] | None:
    """The function of an update on the bits of values, by the words of its instruction; ``None``: it is not known. Of f32 in Global memory, ``add`` flushes
    subnormal numbers (PTX ISA, "red")."""
    if kind.removesuffix("x2") in FORMATS:
        return meaning((function, *(("ftz",) if kind == "f32" and function == "add" else ()), kind))
    return _on_integers(function, kind) if kind in SIZES else None


def _on_integers(function: str, kind: str) -> Callable[[int, int], int] | None:
    bits = 8 * SIZES[kind]
    mask, half = (1 << bits) - 1, 1 << bits - 1

    def order(x: int) -> int:
        return (x ^ half) - half if kind[0] == "s" else x

    match function:
        case "add":
            return lambda a, b: a + b & mask
        case "and":
            return lambda a, b: a & b
        case "or":
            return lambda a, b: a | b
        case "xor":
            return lambda a, b: a ^ b
        case "min":
            return lambda a, b: min(a, b, key=order)
        case "max":
            return lambda a, b: max(a, b, key=order)
        case _:
            return None
