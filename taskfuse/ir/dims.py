"""Facts about symbolic extents, of fusions and of kernels: which values they allow, and what the simplifier is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from taskfuse.ir.scalar import Facts


@dataclass(frozen=True, slots=True)
class Dim:
    """Facts about a symbolic extent, made by ``tf.dim`` or a kernel's ``DIM``; checked when arguments are bound.

    Attributes:
        name: the symbol.
        min: least value (1 by default; give 0 for an extent that may be 0).
        max: greatest value, or ``None``.
        multiple_of: a divisor of every value.
    """

    name: str
    min: int = 1
    max: int | None = None
    multiple_of: int = 1

    def __str__(self) -> str:
        default = Dim(self.name)
        facts = {"min": (self.min, default.min), "max": (self.max, default.max), "multiple_of": (self.multiple_of, default.multiple_of)}
        return f"tf.dim({', '.join([repr(self.name), *(f'{name}={value}' for name, (value, usual) in facts.items() if value != usual)])})"

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        words = [f"at least {self.min}"]
        if self.max is not None:
            words.append(f"at most {self.max}")
        if self.multiple_of > 1:
            words.append(f"a multiple of {self.multiple_of}")
        return ", ".join(words)

    def admits(self, value: int) -> bool:
        """True if it may have this value."""
        return value >= self.min and (self.max is None or value <= self.max) and value % self.multiple_of == 0

    def near(self, value: int) -> int:
        """The least allowed value that is at least ``value``, or the greatest allowed value if there is none."""
        found = -(-max(value, self.min) // self.multiple_of) * self.multiple_of
        return found if self.max is None else min(found, self.max // self.multiple_of * self.multiple_of)


def facts_of(dims: Iterable[Dim]) -> Facts:
    """What is known of the symbols, for the simplifier."""
    facts = Facts()
    for dim in dims:
        facts = facts.with_range(dim.name, dim.min, dim.max)
        if dim.multiple_of > 1:
            facts = facts.with_multiple(dim.name, dim.multiple_of)
    return facts
