"""Facts about symbolic extents of fusions and kernels: the values that they allow, and the facts for the simplifier."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from taskfuse.errors import FusionError
from taskfuse.ir.scalar import Const, Expr, Facts, evaluate, forgotten_by, minimum, substitute
from taskfuse.location import caller

NO_OTHERS: Final[Mapping[str, int]] = MappingProxyType({})
MOST_RECENT, MOST_DERIVED = 32, 20_000
"""The most sets of extents whose facts a thread keeps, and the most facts derived from all of them together: 50 MB."""


@dataclass(frozen=True, slots=True)
class Dim:
    """Facts about a symbolic extent, made by ``tf.dim``, ``tf.define_integer`` or a kernel's ``DIM``; checked when arguments are bound.

    Attributes:
        name: the symbol.
        min: least value (1 by default; give 0 for an extent that may be 0).
        max: greatest value, or ``None``.
        multiple_of: a divisor of every value.
        bound: an expression of other extents that no value exceeds, or ``None``.
    """

    name: str
    min: int = 1
    max: int | None = None
    multiple_of: int = 1
    bound: Expr | None = None

    def __str__(self) -> str:
        default = Dim(self.name)
        limit = str(self.limit) if self.bound is not None else self.max
        facts = {"min": (self.min, default.min), "max": (limit, None), "multiple_of": (self.multiple_of, default.multiple_of)}
        return f"tf.dim({', '.join([repr(self.name), *(f'{name}={value!r}' for name, (value, usual) in facts.items() if value != usual)])})"

    @property
    def limit(self) -> int | Expr | None:
        """The upper bound as one expression; ``None`` without one."""
        if self.bound is None or self.max is None:
            return self.max if self.bound is None else self.bound
        return minimum(self.bound, self.max)

    @property
    def is_possible(self) -> bool:
        """True if some value has the facts, of which ``bound`` is left out: it depends on other extents."""
        return self.min >= 0 and self.multiple_of >= 1 and (self.max is None or self.near(self.min) >= self.min)

    @property
    def allowed(self) -> str:
        """The allowed values, as text."""
        words = [f"at least {self.min}"]
        if self.limit is not None:
            words.append(f"at most {self.limit}")
        if self.multiple_of != 1:
            words.append(f"a multiple of {self.multiple_of}")
        return ", ".join(words)

    def most(self, others: Mapping[str, int]) -> int | None:
        """The greatest value for these values of the extents in the bound; ``None``: unbounded. An unknown extent bounds nothing; where the bound has no value,
        no value is allowed."""
        if self.bound is None or not self.bound.free <= others.keys():
            return self.max
        try:
            found = int(evaluate(self.bound, others))
        except (ZeroDivisionError, IndexError):
            return -1
        return found if self.max is None else min(found, self.max)

    def admits(self, value: int, others: Mapping[str, int] = NO_OTHERS) -> bool:
        """True if the value is allowed, given the values of other extents."""
        most = self.most(others)
        return value >= self.min and (most is None or value <= most) and value % self.multiple_of == 0

    def near(self, value: int, others: Mapping[str, int] = NO_OTHERS) -> int:
        """The least allowed value that is at least ``value``, or the greatest allowed value if there is none; if no value is allowed, one that is not."""
        found, most = -(-max(value, self.min) // self.multiple_of) * self.multiple_of, self.most(others)
        return found if most is None else min(found, most // self.multiple_of * self.multiple_of)

    @property
    def positive(self) -> Dim:
        """The facts about the extent if it is not 0; unchanged if it cannot be 0."""
        return replace(self, min=1) if self.min == 0 and self.near(1) > 0 else self

    def with_symbols(self, symbols: Mapping[str, Expr]) -> Dim:
        """The same facts with symbols of the bound replaced."""
        bound = None if self.bound is None else substitute(self.bound, symbols)
        if isinstance(bound, Const):
            return replace(self, max=bound.value if self.max is None else min(bound.value, self.max), bound=None)
        return replace(self, bound=bound)


class _Recent(threading.local):
    """The facts of the last sets of extents, the latest at the end: each thread has its own, since a memory that is being filled is not a result."""

    def __init__(self) -> None:
        self.facts: dict[tuple[Dim, ...], Facts] = {}


_RECENT = _Recent()
forgotten_by(lambda: _RECENT.facts.clear())  # of the thread that forgets


def facts_of(dims: Iterable[Dim]) -> Facts:
    """The facts about the symbols, for the simplifier.

    A thread keeps those of the last few sets of extents, so that a later lowering with the same extents starts with the derived facts. Cached facts
    equal those that would be derived again: circular families, and families that have grown too large, are dropped.
    """
    recent, extents = _RECENT.facts, tuple(dims)
    found = recent.pop(extents, None)
    if found is None or found.family.is_circular or found.family.size > MOST_DERIVED:
        found = _first_facts(extents)
        while recent and (len(recent) >= MOST_RECENT or sum(facts.family.size for facts in recent.values()) > MOST_DERIVED):
            del recent[next(iter(recent))]
    recent[extents] = found
    return found


def _first_facts(dims: Iterable[Dim]) -> Facts:
    facts = Facts()
    for dim in dims:
        facts = facts.with_range(dim.name, dim.min, dim.limit)
        if dim.multiple_of > 1:
            facts = facts.with_multiple(dim.name, dim.multiple_of)
    return facts


def circular(dims: Iterable[Dim]) -> str | None:
    """The name of an extent whose bound depends on itself; ``None`` if no bound does."""
    bounds = {d.name: d.bound.free for d in dims if d.bound is not None}
    for name in bounds:
        seen: set[str] = set()
        waiting = set(bounds[name])
        while waiting - seen:
            seen |= waiting
            waiting = {other for one in waiting for other in bounds.get(one, ())}
        if name in seen:
            return name
    return None


def nearest(dims: Iterable[Dim], wanted: Mapping[str, int]) -> dict[str, int] | None:
    """Allowed values of all extents, each near the wanted one; ``None`` if the bounds leave an extent without a value."""
    waiting = list(dims)
    found: dict[str, int] = {}
    while waiting:
        dim = next((d for d in waiting if d.bound is None or d.bound.free <= found.keys()), waiting[0])
        waiting.remove(dim)
        found[dim.name] = dim.near(wanted[dim.name], found)
        if not dim.admits(found[dim.name], found):
            return None
    return found


def with_facts(fusion: str, dims: Mapping[str, Dim], dim: Dim) -> Dim:
    """The facts about a dimension of a fusion, when declared again. Raises :class:`FusionError` if they differ, or the bound depends on itself."""
    if dim.bound is not None:
        unknown = sorted(dim.bound.free - dims.keys() - {dim.name})
        if unknown:
            reason = f"dimension '{dim.name}' is at most {dim.bound}: '{unknown[0]}' is not one of its dimensions"
            raise FusionError(fusion=fusion, reason=reason, help="use a dimension in a shape before a bound refers to it", location=caller())
        if circular([*(d for d in dims.values() if d.name != dim.name), dim]) is not None:
            raise FusionError(fusion=fusion, reason=f"the bound {dim.bound} of dimension '{dim.name}' depends on itself", location=caller())
    known = dims.get(dim.name, dim)
    if dim in (known, Dim(dim.name)):
        return known
    if known != Dim(dim.name):
        raise FusionError(fusion=fusion, reason=f"dimension '{dim.name}' is given twice with different facts: {known} and {dim}", location=caller())
    return dim
