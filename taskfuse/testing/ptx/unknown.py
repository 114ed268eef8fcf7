"""Integers that may be unknown: the values of the programs of :mod:`taskfuse.testing.ptx.machine`."""

from __future__ import annotations

from typing import Final, NoReturn

from taskfuse.testing.ptx.events import RANK


class Unknown:
    """A value that comes from data. Values computed from it are unknown, and it decides nothing."""

    __slots__ = ()

    def _same(self, _: object = None) -> Unknown:
        return self

    def __and__(self, other: object) -> Unknown | int:
        return 0 if isinstance(other, int) and not other else self

    def __bool__(self) -> NoReturn:
        raise AssertionError("a decision on data")

    __rand__ = __and__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _same
    __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __invert__ = _same


UNKNOWN: Final = Unknown()
Value = int | Unknown
SHARED: Final = 1 << 60
"""Offset of generic addresses of Shared memory."""
LOCAL: Final = 1 << 61


def equal(a: Value, b: Value) -> Value:
    """Whether two values are equal."""
    return UNKNOWN if isinstance(a, Unknown) or isinstance(b, Unknown) else a == b


def least(a: Value, b: Value) -> Value:
    """The minimum."""
    return UNKNOWN if isinstance(a, Unknown) or isinstance(b, Unknown) else min(a, b)


def greatest(a: Value, b: Value) -> Value:
    """The maximum."""
    return UNKNOWN if isinstance(a, Unknown) or isinstance(b, Unknown) else max(a, b)


def quotient(a: Value, b: Value) -> Value:
    """``div``: rounded to zero; unspecified by zero."""
    if isinstance(a, Unknown) or isinstance(b, Unknown) or not b:
        return UNKNOWN
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def remainder(a: Value, b: Value) -> Value:
    """``rem``: of the sign of ``a``; unspecified by zero."""
    found = quotient(a, b)
    return found if isinstance(found, Unknown) or isinstance(b, Unknown) else a - b * found


def absolute(a: Value) -> Value:
    """``abs``."""
    return a if isinstance(a, Unknown) else abs(a)


def choose(condition: Value, a: Value, b: Value) -> Value:
    """``selp``."""
    return UNKNOWN if isinstance(condition, Unknown) else a if condition else b


def shifted(a: Value, count: Value) -> Value:
    """``a`` to the left, by a negative ``count`` to the right."""
    if isinstance(a, Unknown) or isinstance(count, Unknown):
        return UNKNOWN
    return a << count if count >= 0 else a >> -count


def bits(a: Value, first: Value, count: Value, signed: bool) -> Value:
    """``bfe``: a field of bits inside the register."""
    if isinstance(a, Unknown) or isinstance(first, Unknown) or isinstance(count, Unknown):
        return UNKNOWN
    found = a >> first & (1 << count) - 1
    return found - (1 << count) if signed and count and found >> count - 1 else found


def inserted(a: Value, b: Value, first: Value, count: Value) -> Value:
    """``bfi``: ``b`` with a field of bits from ``a``."""
    if isinstance(first, Unknown) or isinstance(count, Unknown):
        return UNKNOWN
    field = (1 << count) - 1 << first
    return b & ~field | a << first & field


def logic(a: Value, b: Value, c: Value, table: Value) -> Value:
    """``lop3``: a bit of ``table`` for each combination of bits."""
    if isinstance(table, Unknown):
        return UNKNOWN
    found: Value = 0
    for k in range(8):
        if table >> k & 1:
            found = found | (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
    return found


def permuted(a: Value, b: Value, select: Value) -> Value:
    """``prmt``: four bytes of ``b:a``; the fourth bit of a selector repeats a sign."""
    if isinstance(a, Unknown) or isinstance(b, Unknown) or isinstance(select, Unknown):
        return UNKNOWN
    found = 0
    for k in range(4):
        chosen = select >> 4 * k & 15
        byte = (b << 32 | a) >> 8 * (chosen & 7) & 255
        found |= (255 * (byte >> 7) if chosen & 8 else byte) << 8 * k
    return found


def funnel(a: Value, b: Value, count: Value, left: bool, wrap: bool) -> Value:
    """``shf``: a word of ``b:a`` shifted."""
    if isinstance(count, Unknown):
        return UNKNOWN
    n = count & 31 if wrap else min(count, 32)
    both = b << 32 | a
    return both >> 32 - n if left else both >> n


def ones(a: Value) -> Value:
    """``popc``."""
    return a if isinstance(a, Unknown) else a.bit_count()


def zeros(a: Value, width: int) -> Value:
    """``clz``."""
    return a if isinstance(a, Unknown) else width - a.bit_length()


def mirrored(a: Value, width: int) -> Value:
    """``brev``."""
    return a if isinstance(a, Unknown) else int(f"{a:0{width}b}"[::-1], 2)


def highest(a: Value, width: int, distance: bool) -> Value:
    """``bfind``: the place of the first 1, or its distance from the end; all bits are 1 if there is none."""
    if isinstance(a, Unknown):
        return a
    if not a:
        return 0xFFFFFFFF
    return width - a.bit_length() if distance else a.bit_length() - 1


def dots(a: Value, b: Value, c: Value, a_signed: bool, b_signed: bool) -> Value:
    """``dp4a``: the products of the bytes of two words, and a number, added."""
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return UNKNOWN
    for k in range(0, 32, 8):
        x, y = a >> k & 255, b >> k & 255
        c = c + (x - 256 * (a_signed and x > 127)) * (y - 256 * (b_signed and y > 127))
    return c


def half_dots(a: Value, b: Value, c: Value, a_signed: bool, b_signed: bool, first: int) -> Value:
    """``dp2a``: the products of the halves of a word and two bytes of another, from bit ``first`` on, and a number, added."""
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return UNKNOWN
    for k in range(2):
        x, y = a >> 16 * k & 0xFFFF, b >> first + 8 * k & 255
        c = c + (x - 65536 * (a_signed and x > 32767)) * (y - 256 * (b_signed and y > 127))
    return c


def generic(address: Value, space: str) -> Value:
    """``cvta``: the generic address of one in a space."""
    return address + {"shared": SHARED, "local": LOCAL}.get(space, 0)


def specific(address: Value, space: str) -> Value:
    """``cvta.to``: the address in a space of a generic one."""
    return address - {"shared": SHARED, "local": LOCAL}.get(space, 0)


def mapa(address: Value, rank: Value) -> Value:
    """The same offset in the Shared memory of another block of the cluster."""
    return address + (rank + 1) * RANK
