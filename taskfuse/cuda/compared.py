"""Comparisons of the elements of a buffer of registers with maxima, or minima, and what is added to the code of maxima that are complete."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from taskfuse.dtypes import float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import substitute, sym
from taskfuse.kir import Kernel, accesses, bodies, map_stmts, walk, with_bodies
from taskfuse.kir.nodes import Choose, Compute, For, Stmt
from taskfuse.kir.operands import Access, Immediate, Operand
from taskfuse.kir.walk import Body

COPY, SUB = (ELEMENTWISE[name] for name in ("copy", "sub"))
EXTREMES = (ELEMENTWISE["maximum"], ELEMENTWISE["minimum"])
Accessing = defaultdict[str, list[Stmt]]


def registers(kernel: Kernel) -> list[str]:
    """The buffers of float32 that each thread has of its own."""
    return [b.name for b in kernel.buffers if b.dtype is float32 and MEDIA[b.memory].is_private]


def compared(kernel: Kernel) -> list[str]:
    """The registers whose elements are compared with a maximum, or a minimum."""
    found = {a.buffer for s in walk(kernel) if isinstance(s, Compute) and s.op in EXTREMES for a in accesses(s)[1] if a != s.out}
    return [name for name in registers(kernel) if name in found]


def is_infinite(operand: Operand) -> bool:
    """True for an infinite constant."""
    return isinstance(operand, Immediate) and math.isinf(float(operand.value))


def touches(s: Stmt, name: str) -> bool:
    """True if a statement itself reads or writes elements of a buffer."""
    return any(a.buffer == name for side in accesses(s) for a in side)


def chosen(s: Choose) -> list[Access]:
    """The elements that a statement chooses from."""
    return [c.operand for c in s.cases if isinstance(c.operand, Access)]


@dataclass(slots=True)
class ComparedElements:
    """Elements of a buffer of registers that are compared with maxima, and from which else only numbers are subtracted, or they from numbers.

    Attributes:
        registers: buffers of float32 that each thread has of its own.
        writers, readers: by buffer, the statements that write, and read, it.
    """

    kernel: Kernel
    name: str
    registers: frozenset[str] = frozenset()
    writers: Accessing = field(default_factory=lambda: Accessing(list))
    readers: Accessing = field(default_factory=lambda: Accessing(list))
    _pending: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self.registers = frozenset(registers(self.kernel))
        for s in walk(self.kernel):
            for found, names in zip((self.writers, self.readers), accesses(s), strict=True):
                for buffer in dict.fromkeys(a.buffer for a in names):
                    found[buffer].append(s)

    @property
    def is_shifted(self) -> bool:
        """True if the elements are compared, and elsewhere only part of a difference."""
        others = [s for s in self.readers[self.name] if not self._is_comparison(s)]
        return len(others) < len(self.readers[self.name]) and all(map(self.is_difference, others))

    def is_difference(self, s: Stmt) -> bool:
        """True for a difference of an element and something else."""
        if not isinstance(s, Compute) or s.op is not SUB or s.dtype is not float32:
            return False
        return sum(isinstance(o, Access) and o.buffer == self.name for o in s.operands) == 1

    def sources(self) -> list[Stmt] | None:
        """The statements that compute the elements, or what they are chosen from beside infinities, in several steps; ``None``: others read that, too."""
        found: list[Stmt] = []
        names = [self.name]
        for name in names:
            for s in self.writers[name]:
                if not isinstance(s, Choose):
                    found.append(s)
                    continue
                if not all(is_infinite(c.operand) or isinstance(c.operand, Access) for c in s.cases):
                    return None
                for o in chosen(s):
                    readers = self.readers[o.buffer]
                    if o.buffer not in self.registers or o.index or not all(isinstance(r, Choose) and r.out.buffer == name for r in readers):
                        return None
                    names += [] if o.buffer in names else [o.buffer]
        return found

    def with_completed(self, change: Callable[[Access], Stmt]) -> Body | None:
        """The kernel's statements, with a change of each maximum behind those that complete it; ``None``: it is not known where that is."""
        self._pending = {id(s) for s in self.readers[self.name] if self._is_comparison(s)}
        body = self._completed(self.kernel.body, change)
        return None if self._pending else body

    def _is_comparison(self, s: Stmt) -> bool:
        """True for a maximum, or a minimum, of an element and of those before it."""
        match s:
            case Compute(out=out, op=op, operands=(Access() as a, Access() as b), dtype=dtype) if op in EXTREMES and dtype is float32:
                before, element = (a, b) if b.buffer == self.name else (b, a)
                return before == out and element.buffer == self.name and out.buffer in self.registers
            case _:
                return False

    def _completed(self, body: Body, change: Callable[[Access], Stmt]) -> Body:
        found: list[Stmt] = []
        for k, s in enumerate(body):
            found.append(with_bodies(s, tuple(self._completed(b, change) for b in bodies(s))))
            mine = [c for c in walk(s) if id(c) in self._pending and isinstance(c, Compute)]
            results = [c.out.buffer for c in mine]
            if mine and len(set(results)) == len(results) and all(self._begins(body[:k], s, name) for name in results):
                found += [_at_each(s, c, change) for c in mine]
                self._pending.difference_update(map(id, mine))
        return tuple(found)

    def _begins(self, before: Body, s: Stmt, name: str) -> bool:
        """True if a maximum begins with infinity in front of a statement, which does nothing with it but comparisons."""
        if any(touches(x, name) and id(x) not in self._pending for x in walk(s)):
            return False
        last = next((x for x in reversed(before) if any(touches(y, name) for y in walk(x))), None)
        first = [] if last is None else [y for y in walk(last) if touches(y, name)]
        return bool(first) and all(isinstance(y, Compute) and y.op is COPY and is_infinite(y.operands[0]) for y in first)


def _at_each(nest: Stmt, comparison: Compute, change: Callable[[Access], Stmt]) -> Stmt:
    """The change of each result of a nest of loops."""
    loops = [s for s in walk(nest) if isinstance(s, For) and any(x is comparison for x in walk(s)) and any(s.var in e.free for e in comparison.out.index)]
    names = {s.var: sym(f"{s.var}.product") for s in loops}
    made = change(Access(comparison.out.buffer, tuple(substitute(e, names) for e in comparison.out.index)))
    for s in reversed(loops):
        made = replace(s, var=names[s.var].name, body=(made,))
    return made


def without_unread(kernel: Kernel, names: Collection[str]) -> Kernel:
    """The kernel without functions that write some registers of which nothing is read any more."""
    while True:
        read = {a.buffer for s in walk(kernel) for a in accesses(s)[1]}

        def one(s: Stmt, read: Collection[str] = read) -> Stmt | Body:
            return () if isinstance(s, Compute) and s.out.buffer in names and s.out.buffer not in read else s

        body = map_stmts(kernel.body, one)
        if body is kernel.body:
            return kernel
        kernel = replace(kernel, body=body)
