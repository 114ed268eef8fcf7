"""One write and one read of a buffer: the equations of their indices, and the further conditions under which the read finds the write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from taskfuse.check.bounded_variables import BoundedElement
from taskfuse.check.constraints import Constraints
from taskfuse.check.statement_tree import THREADS
from taskfuse.check.tables import NO_STEPS, ValueTable
from taskfuse.check.values.claims import Place, flattened
from taskfuse.check.values.questions import equal, inside, proves
from taskfuse.check.values.solve import Equation, Open
from taskfuse.check.values.written import BufferStorage, Writing, bytes_behind
from taskfuse.ir.scalar import Const, Expr, Facts, conjuncts, const, le, lt, simplify, substitute, sym
from taskfuse.ir.shared_layouts import swizzled_place
from taskfuse.kir.operands import Content

ZEROS, BODY = Content.ZERO, Content.BODY
LIMIT = 1 << 18
"""The most rows of a table."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The write leaves the element.

    Attributes:
        under: the conditions; empty: everywhere.
        rest: the points of the read at which it does not; ``None``: empty.
    """

    under: tuple[Expr, ...] = ()
    rest: ValueTable | None = None


class WriteAndRead:
    """One claim and one read of a buffer. For a write that leaves another tensor's element, or a zero, only the place matters.

    Args:
        shape: of the tensor that is written.
        skip: the axis of the slot, which is known to be the same.
        constraints: what holds at the read.
        among: the points of the read that are left; ``None``: all.
        past: also where the element does not exist, in whose place a zero must be found.
        bare: whatever the conditions around the write are, and however often those of its loops run whose variables its place does not say.

    Raises:
        Open: a cursor says where the write is, and may be elsewhere at the read.
    """

    def __init__(
        self,
        writing: Writing,
        want: Place,
        storage: BufferStorage,
        shape: tuple[Expr, ...],
        skip: int | None,
        constraints: Constraints,
        among: ValueTable | None,
        *,
        past: bool,
        bare: bool = False,
    ) -> None:
        self.writing = writing
        self.claim = claim = writing.claim
        self.want = want
        self.constraints = constraints
        self.storage = storage
        self.shape = shape
        self.skip = skip
        self.among = among
        self.past = past
        self.bare = bare
        self.plain = True
        self.places: dict[str, tuple[int, int]] = {}  # of the reader's block in its cluster: symbols that stand for its index, with their first and last values
        self.conditions, self.spans = writing.conditions, writing.spans
        self.alike = claim.tensor == want.tensor and claim.content is not ZEROS and (claim.content is BODY) is (want.content is BODY)
        self.elements = list(zip(writing.element, want.element, strict=True)) if self.alike else []  # elements of others are never the same
        if not writing.is_at(want.node, skip):
            raise Open("where it writes is said by a cursor, which may move before the read", claim.node)
        self.equations = [*self._equations(skip), *writing.who]

    @cached_property
    def facts(self) -> Facts:
        """The facts at the read, and those on symbols of the write."""
        facts = self.constraints.facts
        for n, (a, b) in self.spans.items():
            if isinstance(a, Const) and isinstance(b, Const):
                facts = facts.with_range(n, a, b - 1)
        for n, count in self.want.points:
            facts = facts.with_range(n, 0, count - 1)
        return facts

    def _equations(self, skip: int | None) -> list[Equation]:
        """Index by index; after the axes that both name, address by address."""
        one, two = self.claim, self.want
        if one.offset is None and two.offset is None:
            pairs = list(zip(self.writing.index, two.index, strict=True))
        else:
            first = min(len(p.index) for p in (one, two) if p.offset is not None)
            pairs = list(zip(self.writing.index[:first], two.index[:first], strict=True))
            pairs.append((self.writing.named(self._address(one, first)), self._address(two, first)))
        return [(a, b) for k, (a, b) in enumerate(pairs) if k != skip]

    def _address(self, p: Place, first: int) -> Expr:
        if p.offset is None:
            return flattened(self.storage.shape, p.index, first) * self.storage.size
        return swizzled_place(flattened(self.storage.shape[: len(p.index)], p.index, first) * bytes_behind(self.storage, len(p.index)) + p.offset, p.swizzle)

    # -- what is known ----------------------------------------------------------------------------------------------------------------

    def simplified(self, e: Expr) -> Expr:
        return e if self.plain else simplify(e, self.facts)

    def proves(self, constraints: Constraints, condition: Expr) -> bool:
        return constraints.ranges.implies(condition) if self.plain else proves(constraints, condition)

    def equal(self, constraints: Constraints, a: Expr, b: Expr) -> bool:
        return a is b or (a - b is const(0)) or (not self.plain and equal(constraints, a, b))

    def span(self, name: str) -> tuple[int, int] | None:
        """First and last value."""
        if name in self.places:
            return self.places[name]
        if name in self.spans:
            start, stop = self.spans[name]
            lo, hi = self.constraints.ranges.of(start)[0], self.constraints.ranges.of(stop)[1]
            return None if lo is None or hi is None else (lo, hi - 1)
        lo, hi = self.constraints.ranges.of(sym(name))
        return None if lo is None or hi is None else (lo, hi)

    def countable(self, names: Iterable[str]) -> bool:
        size = 1
        for name in names:
            span = self.span(name)
            if span is None:
                return False
            size *= max(0, span[1] - span[0] + 1)
        return size <= LIMIT

    def table(self, names: set[str], filters: list[Expr], steps: Mapping[str, int] = NO_STEPS) -> ValueTable:
        spans = {n: span for n in sorted(names) if (span := self.span(n)) is not None}
        return self.constraints.tables.of(spans, filters if spans else (), steps)

    # -- whether the write happens ----------------------------------------------------------------------------------------------------

    def required(self, at: Mapping[str, Expr], free: Iterable[str]) -> list[tuple[Expr | None, Expr]]:
        """All conditions: symbols within their spans (``free``: that these have values at all), and the conditions around, before and after."""
        found: list[tuple[Expr | None, Expr]] = []
        for name, (start, stop) in self.spans.items():
            if name in at:
                found += [(None, le(substitute(start, at), at[name])), (None, lt(at[name], substitute(stop, at)))]
            elif name in free:
                if not self.bare:
                    first, end = substitute(start, at), substitute(stop, at)
                    found.append((None, lt(first, end)))
                    found += [(None, c) for c in (le(first, sym(name)), lt(sym(name), end)) if not (isinstance(first, Const) and isinstance(end, Const))]
            elif not (isinstance(start, Const) and isinstance(stop, Const)):  # else a table has these values, and no others
                found += [(None, le(start, sym(name))), (None, lt(sym(name), stop))]
        return found + [(original, part) for original, c in self.conditions for part in conjuncts(substitute(c, at))]

    def some(self, every: list[tuple[Expr | None, Expr]], at: Mapping[str, Expr], mine: set[str]) -> dict[str, Expr] | None:
        """Values of the symbols that neither index nor element depends on, that satisfy the conditions on them alone, or ``None``."""
        free = {n: span for n, span in self.spans.items() if n not in at and n not in mine}
        parts = [p for _, p in every if not p.free.isdisjoint(free) and p.free <= free.keys()]
        names = {n for p in parts for n in p.free}
        found = {n: substitute(start, at) for n, (start, _) in free.items()}
        if not names or not self.countable(names):
            return found
        table = self.table(names, parts)
        if not table.count:
            return None
        return found | {n: const(value) for n, value in table.at(0).items()}

    def never(self, part: Expr, free: Iterable[str]) -> bool:
        """True only if a condition holds for no values of some symbols."""
        ranges = self.constraints.ranges
        for name in part.free.intersection(free):
            span = self.span(name)
            if span is not None:
                ranges = ranges.with_span(sym(name), span)
        return ranges.refutes(part)

    def cuts_outside(self, condition: Expr | None) -> bool:
        """True if a condition of the write holds wherever its element exists, as its loops and threads imply, so that it excludes no element.

        Conditions only on threads are proved one by one, so the others may assume them; they themselves may not.
        """
        if self.past or condition is None:
            return False
        taken = not condition.free <= THREADS
        assumptions = (i for i in self.claim.node.context.constraints.assumptions if not isinstance(i, Expr) or (taken and i.free <= THREADS))
        spans = (BoundedElement(sym(name), (0, n - 1)) for name, n in self.claim.points)
        around = self.claim.node.context.constraints.about(const(0))[0].given(*assumptions, *spans, *inside(self.claim.element, self.shape))
        return self.proves(around, condition)

    def may_be_there(self) -> None:
        """The write of the wanted element may not happen, so that the read finds an earlier one. Raises :class:`Open` if that is not allowed."""
        if self.plain or self.past or self.bare or not self.alike:
            raise Open("it is not known to be written there: some conditions depend on more than its place", self.claim.node)
