"""Does a write leave the element that a read must find? One claim against one read, for all threads and iterations at once.

The read's index equals the write's index. The symbols of the write that have no value at the read (its thread, its own loops, its points) are
solved for; then its element must be the wanted one, and its conditions must hold. Where indices are not sums of single symbols (fragments,
swizzles, digits of thread indices), all values of their symbols are tabulated, for the write and for the read, and the two tables are joined:
everything else that an index and an element depend on must cancel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from taskfuse.check.bounded_variables import Element
from taskfuse.check.constraints import Constraints
from taskfuse.check.ranges import terms_of
from taskfuse.check.statement_tree import BLOCK_NAMES, BLOCKS, THREAD_NAMES, THREADS, Node
from taskfuse.check.tables import KEPT, Ints, Join, Table
from taskfuse.check.values.claims import Place, flattened
from taskfuse.check.values.questions import equal, inside, proves
from taskfuse.check.values.solve import Equation, Open, solved
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.scalar import Compare, CompareOp, Const, Expr, Facts, Substitution, conjuncts, const, eq, le, lt, ne, simplify, substitute, sym
from taskfuse.ir.shared_layouts import swizzled_place
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import For
from taskfuse.kir.operands import Content
from taskfuse.kir.walk import own_symbols

LIMIT = 1 << 18
"""Rows of a table."""

Sides = tuple[Ints, Ints]
"""What must be equal, along the axes of a table of the write and along those of one of the read."""

W = "written."
"""Before the name of a symbol of the write."""


@dataclass(frozen=True, slots=True)
class Storage:
    """How a buffer lies. ``size``: bytes of an element."""

    memory: MemoryType
    shape: tuple[Expr, ...]
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The write leaves the element.

    Attributes:
        under: where these hold; empty: everywhere.
        rest: the points of the read at which it does not; ``None``: empty.
    """

    under: tuple[Expr, ...] = ()
    rest: Table | None = None


class Writing:
    """A claim in symbols of its own: those of its threads, loops and points have other names than those of a read, but for what is the same there.

    Attributes:
        element, index, offset: as those of the claim.
        named: puts an expression of the claim in these symbols.
        conditions: those around it as they stand, ``None`` for steps of loops, and in these symbols.
        spans: first values of the symbols, and behind the last ones.

    Args:
        memory: of the buffer that is written.
        same: what symbols of the write are at the read: loops that both share, threads and blocks with memory of their own.
    """

    def __init__(self, claim: Place, memory: MemoryType, same: Mapping[str, Expr]) -> None:
        self.claim = claim
        kernel = claim.node.context.kernel
        loops = [n.stmt for n in claim.node.loops if isinstance(n.stmt, For) and n.stmt.var not in same]
        names = [*(loop.var for loop in loops), *(name for name, _ in claim.points)]
        hardware: dict[str, Expr] = {}
        if not MEDIA[memory].is_private:
            hardware |= dict(zip(THREAD_NAMES, kernel.block, strict=True))
        if MEDIA[memory].reach is Reach.GRID:
            hardware |= dict(zip(BLOCK_NAMES, kernel.grid, strict=True))
        hardware = {name: extent for name, extent in hardware.items() if name not in same}
        self.named = Substitution({**same, **{n: sym(W + n) for n in (*names, *hardware)}})
        self.element = tuple(map(self.named, claim.element))
        self.index = tuple(map(self.named, claim.index))
        self.conditions: list[tuple[Expr | None, Expr]] = [(part, self.named(part)) for c in (*claim.node.conditions, *claim.given) for part in conjuncts(c)]
        self.spans: dict[str, tuple[Expr, Expr]] = {W + name: (const(0), extent) for name, extent in hardware.items()}
        for loop in loops:
            start, stop = self.named(loop.start), self.named(loop.stop)
            self.spans[W + loop.var] = start, stop
            if loop.step is not const(1):
                step = eq((sym(W + loop.var) - start) % self.named(loop.step), 0)
                self.conditions.append((None, step))
        for name, n in claim.points:
            self.spans[W + name] = const(0), const(n)

    def who(self) -> Iterator[Equation]:
        """What conditions say of its symbols alone."""
        for _, c in self.conditions:
            match c:
                case Compare(op=CompareOp.EQ, a=a, b=b) if not (a - b).free.isdisjoint(self.spans) and (a - b).free <= self.spans.keys():
                    yield a - b, const(0)
                case _:
                    pass


class Match:
    """One claim and one read of a buffer. For a write that leaves another tensor's element, or a zero, only the place matters.

    Args:
        shape: of the tensor that is written.
        skip: the axis that says a slot: it is known to be the same.
        constraints: what holds at the read.
        among: the points of the read that are left; ``None``: all.
        past: also where the element does not exist, in whose place a zero must be found.
        bare: whatever the conditions around the write are, and however often those of its loops run whose variables its place does not say.
    """

    def __init__(
        self,
        writing: Writing,
        want: Place,
        storage: Storage,
        shape: tuple[Expr, ...],
        skip: int | None,
        constraints: Constraints,
        among: Table | None,
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
        self.among = among
        self.past = past
        self.bare = bare
        self.plain = True
        self.conditions, self.spans = writing.conditions, writing.spans
        self.alike = claim.tensor == want.tensor and claim.content is not Content.ZERO and (claim.content is Content.BODY) is (want.content is Content.BODY)
        self.elements = list(zip(writing.element, want.element, strict=True)) if self.alike else []  # elements of others are never the same
        self.equations = [*self._equations(skip), *writing.who()]

    @cached_property
    def facts(self) -> Facts:
        """What holds at the read and of the symbols of the write."""
        facts = self.constraints.facts
        for n, (a, b) in self.spans.items():
            if isinstance(a, Const) and isinstance(b, Const):
                facts = facts.with_range(n, a, b - 1)
        for n, count in self.want.points:
            facts = facts.with_range(n, 0, count - 1)
        return facts

    def _equations(self, skip: int | None) -> list[Equation]:
        """Index by index; behind the axes that both name, address by address."""
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
        return swizzled_place(flattened(self.storage.shape[: len(p.index)], p.index, first) * _bytes(self.storage, len(p.index)) + p.offset, p.swizzle)

    # -- the answer -----------------------------------------------------------------------------------------------------------------

    def found(self) -> Found | None:
        """Where the write leaves the element; ``None``: nowhere.

        Raises:
            Open: it is not known, or it may leave another one.
        """
        for self.plain in (True, False):  # what is the same in text needs no prover
            outcome = self._tried()
            if not isinstance(outcome, Open) and (outcome is None or not outcome.under):
                return outcome
            if self.plain and isinstance(outcome, Found) and all(proves(self.constraints, c) for c in outcome.under):
                return Found()
        if isinstance(outcome, Open):
            raise outcome
        return outcome

    def _tried(self) -> Found | Open | None:
        """The answer by equations, or by tables where that leaves questions."""
        found: Found | Open | None
        try:
            found = self._solved()
        except Open as error:
            found = error
        if found is None or (isinstance(found, Found) and not found.under) or not self._has_table():
            return found
        if self.plain and isinstance(found, Found) and any(c in found.under for _, c in self.conditions if c.free.isdisjoint(self.spans)):
            return found  # a table does not decide it either, the prover may
        try:
            return self._joined({}, self.equations, [])
        except Open as error:
            return error if isinstance(found, Open) else found

    def _has_table(self) -> bool:
        """True if a table may say more than what is solved for."""
        return bool(self.equations) and self._countable({n for a, b in self.equations for n in (a - b).free if n in self.spans})

    def _solved(self) -> Found | None:
        at, left = solved(self.equations, self.spans, self._simplified, digits=False)
        open_equations: list[Equation] = []
        under: list[Expr] = []
        for a, b in left:
            difference = self._simplified(a - b)
            if difference is const(0):
                continue
            if difference.free.isdisjoint(self.spans):
                if self.constraints.ranges.refutes(eq(difference, 0)) or self._proves(self.constraints, ne(a, b)):
                    return None
                if self._equal(self.constraints, a, b):
                    continue
                if not self._countable(difference.free):
                    under.append(eq(a, b))
                    continue
            open_equations.append((a, b))
        if open_equations and not self._enumerable(open_equations):
            more, rest = solved(open_equations, self.spans, self._simplified)
            at = {name: substitute(e, more) for name, e in at.items()} | more
            open_equations = [(a, b) for a, b in rest if not self._equal(self.constraints, a, b)]
        if open_equations:
            return self._joined(at, open_equations, under)
        return self._direct(at, under)

    def _simplified(self, e: Expr) -> Expr:
        return e if self.plain else simplify(e, self.facts)

    def _proves(self, constraints: Constraints, condition: Expr) -> bool:
        return constraints.ranges.implies(condition) if self.plain else proves(constraints, condition)

    def _equal(self, constraints: Constraints, a: Expr, b: Expr) -> bool:
        return a is b or (a - b is const(0)) or (not self.plain and equal(constraints, a, b))

    def _direct(self, at: dict[str, Expr], under: list[Expr]) -> Found | None:
        """Everything that matters is solved for."""
        elements = [(substitute(e, at), wanted) for e, wanted in self.elements]
        free = {n for e, _ in elements for n in e.free if n in self.spans}
        if free:
            return self._joined(at, [], under)
        conditions = self._conditions(at)
        if conditions is None:
            return None
        left, certain = conditions
        residual = under + left
        constraints = self.constraints.given(*residual) if residual else self.constraints
        if constraints.empty:
            return None
        for k, (e, wanted) in enumerate(elements):
            if not self._equal(constraints, e, wanted):
                raise Open(f"it may find index {self._simplified(e)} where {wanted} is wanted on axis {k} of {self.want.tensor}", self.claim.node)
        if not certain:
            self._may_be_there()
            return None
        return Found(tuple(residual))

    def _may_be_there(self) -> None:
        """A write that may happen, of the element that is wanted: what was there before may be found as well. Raises :class:`Open` where that does not do."""
        if self.plain or self.past or self.bare or not self.alike:
            raise Open("it is not known to be written there: some conditions depend on more than its place", self.claim.node)

    def _conditions(self, at: Mapping[str, Expr]) -> tuple[list[Expr], bool] | None:
        """What decides besides whether the write happens, and whether nothing else does; ``None`` if it never happens.

        Index and element do not depend on some symbols. That the write happens for one value of them is enough, so one is tried; that it does not says nothing.
        """
        residual: list[Expr] = []
        certain = True
        free = self.spans.keys() - at.keys()
        every = self._all(at, self.spans.keys() - at.keys())
        if self.bare:  # but for the values that loops have
            every = [pair for pair in every if pair[0] is None]
        some = self._some(every, at, set())
        if some is None:
            return None
        for original, part in every:
            if self._never(part, free):
                return None
            if self._proves(self.constraints, substitute(part, some)) or self._cuts_outside(original):
                continue
            if part.free.isdisjoint(free):
                residual.append(part)
            else:
                certain = False
        return residual, certain

    def _never(self, part: Expr, free: Iterable[str]) -> bool:
        """True only if a condition holds for no values of some symbols."""
        ranges = self.constraints.ranges
        for name in part.free.intersection(free):
            span = self._span(name)
            if span is not None:
                ranges = ranges.with_span(sym(name), span)
        return ranges.refutes(part)

    def _all(self, at: Mapping[str, Expr], free: Iterable[str]) -> list[tuple[Expr | None, Expr]]:
        """All that must hold: symbols within their spans (``free``: that these have values at all), and the conditions around, before and after."""
        found: list[tuple[Expr | None, Expr]] = []
        for name, (start, stop) in self.spans.items():
            if name in at:
                found += [(None, le(substitute(start, at), at[name])), (None, lt(at[name], substitute(stop, at)))]
            elif name in free:
                if not self.bare:
                    first, end = substitute(start, at), substitute(stop, at)
                    found.append((None, lt(first, end)))
                    found += [(None, c) for c in (le(first, sym(name)), lt(sym(name), end)) if not (isinstance(first, Const) and isinstance(end, Const))]
            else:
                found += [(None, le(start, sym(name))), (None, lt(sym(name), stop))]
        return found + [(original, part) for original, c in self.conditions for part in conjuncts(substitute(c, at))]

    def _some(self, every: list[tuple[Expr | None, Expr]], at: Mapping[str, Expr], mine: set[str]) -> dict[str, Expr] | None:
        """Values of the symbols that neither index nor element depends on, that satisfy the conditions on them alone, or ``None``."""
        free = {n: span for n, span in self.spans.items() if n not in at and n not in mine}
        parts = [p for _, p in every if not p.free.isdisjoint(free) and p.free <= free.keys()]
        names = {n for p in parts for n in p.free}
        found = {n: substitute(start, at) for n, (start, _) in free.items()}
        if not names or not self._countable(names):
            return found
        table = self._table(names, parts)
        if not table.count:
            return None
        return found | {n: const(value) for n, value in table.at(0).items()}

    # -- tables ---------------------------------------------------------------------------------------------------------------------

    def _span(self, name: str) -> tuple[int, int] | None:
        """First and last value."""
        if name in self.spans:
            start, stop = self.spans[name]
            lo, hi = self.constraints.ranges.of(start)[0], self.constraints.ranges.of(stop)[1]
            return None if lo is None or hi is None else (lo, hi - 1)
        lo, hi = self.constraints.ranges.of(sym(name))
        return None if lo is None or hi is None else (lo, hi)

    def _countable(self, names: Iterable[str]) -> bool:
        size = 1
        for name in names:
            span = self._span(name)
            if span is None:
                return False
            size *= max(0, span[1] - span[0] + 1)
        return size <= LIMIT

    def _enumerable(self, equations: list[Equation]) -> bool:
        return self._countable({n for a, b in equations for n in (a - b).free if n in self.spans})

    def _joined(self, at: dict[str, Expr], equations: list[Equation], under: list[Expr]) -> Found | None:
        """The table of the write and that of the read, joined on what the equations say."""
        differences = [self._simplified(a - b) for a, b in equations]
        elements = [self._simplified(substitute(e, at) - wanted) for e, wanted in self.elements]
        mine = {n for d in (*differences, *elements) for n in d.free if n in self.spans}
        theirs = self._near(differences, elements, mine)
        shared = self._mixed(differences, elements, mine, theirs)
        if not self._countable(mine | shared) or not self._countable(theirs | shared):
            raise Open("the symbols of its index have too many values, or unknown ones", self.claim.node)
        conditions = self._filters(at, mine, shared)
        if conditions is None:
            return None
        filters, some, residual, certain = conditions
        write, read = self._table(mine | shared, filters), self._table(theirs | shared, self._reader_filters(theirs | shared))
        if self.among is not None:
            read = read.within(self.among)
        if not read.count:
            return None
        outcome = self._compare(write, read, sorted(shared), differences, elements, [*under, *residual])
        if outcome is None or (certain and not some):
            return outcome
        if not certain:
            self._may_be_there()
            return None
        write = self._table(mine | shared, [*filters, *some])
        surely = self._compare(write, read, sorted(shared), differences, elements, [*under, *residual])
        if surely is None or surely.rest is not None:
            self._may_be_there()
        return surely

    def _near(self, differences: list[Expr], elements: list[Expr], mine: set[str]) -> set[str]:
        """The symbols of the read that a table needs: those that stand in no term with others that have no such table."""
        found: set[str] = set()
        for d in (*differences, *elements):
            terms, _ = terms_of(d)
            for term, _ in terms:
                if term.free.isdisjoint(mine) and self._countable(term.free) and not term.free.isdisjoint(_own_names(self.want.node, self.want)):
                    found |= term.free
        return found

    def _mixed(self, differences: list[Expr], elements: list[Expr], mine: set[str], theirs: set[str]) -> set[str]:
        """Symbols of the read that stand in one term with symbols of the write."""
        found: set[str] = set()
        for d in (*differences, *elements):
            terms, _ = terms_of(d)
            for term, _ in terms:
                if not term.free.isdisjoint(mine):
                    found |= term.free - mine
        return found

    def _sides(self, d: Expr, write: Table, read: Table) -> Sides:
        """What must be equal for a difference to be 0: the part that the write's table has, and the opposite of that of the read's."""
        terms, constant = terms_of(d)
        left: Expr = const(0)
        right: Expr = const(constant)
        for term, k in terms:
            if term.free <= write.names:
                left = left + term * k
            elif term.free <= read.names:
                right = right + term * k
            else:
                raise Open(f"{term} does not cancel", self.claim.node)
        return write.grid(left), read.grid(-right)

    def _filters(self, at: Mapping[str, Expr], mine: set[str], shared: set[str]) -> tuple[list[Expr], list[Expr], list[Expr], bool] | None:
        """The conditions of the write that its table decides; those by which it surely happens, for one value of what neither index nor element depends on;
        those that are left; and whether nothing else decides. ``None`` if one never holds.
        """
        filters: list[Expr] = []
        enough: list[Expr] = []
        residual: list[Expr] = []
        certain = True
        free = self.spans.keys() - at.keys() - mine
        every = self._all(at, free)
        some = self._some(every, at, mine)
        if some is None:
            return None
        for original, general in every:
            part = substitute(general, some)
            if self.constraints.ranges.implies(part):
                continue
            if not self.bare and self._never(general, free):
                return None
            if part.free <= mine | shared:
                (filters if general.free.isdisjoint(free) else enough).append(part)
            elif (self.bare and original is not None) or self._cuts_outside(original):
                continue
            elif not part.free.isdisjoint(mine):
                raise Open(f"whether {part} holds where it was written is not known", self.claim.node)
            elif not self._proves(self.constraints, part):
                if general.free.isdisjoint(free):
                    residual.append(part)
                else:
                    certain = False
        return filters, enough, residual, certain

    def _cuts_outside(self, condition: Expr | None) -> bool:
        """True if a condition of the write holds wherever its element exists, for what its loops and threads are: it keeps nothing from being written.

        Conditions on threads alone are proved one by one, so the others may assume them; they themselves may not.
        """
        if self.past or condition is None:
            return False
        taken = not condition.free <= THREADS
        assumptions = (i for i in self.claim.node.context.constraints.assumptions if not isinstance(i, Expr) or (taken and i.free <= THREADS))
        spans = (Element(sym(name), (0, n - 1)) for name, n in self.claim.points)
        around = self.claim.node.context.constraints.about(const(0))[0].given(*assumptions, *spans, *inside(self.claim.element, self.shape))
        return self._proves(around, condition)

    def _reader_filters(self, names: set[str]) -> list[Expr]:
        """What holds at the read, as far as its table decides it."""
        found = [p for c in (*self.want.node.conditions, *self.want.given) for p in conjuncts(c)]
        for n in self.want.node.loops:
            s = n.stmt
            if isinstance(s, For) and s.var in names:
                found += [le(s.start, sym(s.var)), lt(sym(s.var), s.stop)]
                found += [] if s.step is const(1) else [eq((sym(s.var) - s.start) % s.step, 0)]
        return [c for c in found if c.free <= names]

    def _table(self, names: set[str], filters: list[Expr]) -> Table:
        spans = {n: span for n in sorted(names) if (span := self._span(n)) is not None}
        return self.constraints.tables.of(spans, filters if spans else ())

    def _compare(self, write: Table, read: Table, shared: list[str], differences: list[Expr], elements: list[Expr], residual: list[Expr]) -> Found | None:
        """Where differences are 0, those of elements must be. Copies of a statement ask this of the same tables again and again."""
        key = write, read, *shared, *differences, None, *elements
        left = self.constraints.tables.left.get(key)
        if left is None:
            left = self._left(write, read, shared, differences, elements)
            if self.among is None and write.count + read.count <= KEPT:
                self.constraints.tables.left[key] = left
        if left is read:
            return None
        if not left.count:
            return Found(tuple(residual))
        if residual:
            raise Open("only some of the elements are written there", self.claim.node)
        return Found((), left)

    def _left(self, write: Table, read: Table, shared: list[str], differences: list[Expr], elements: list[Expr]) -> Table:
        """The points of the read that the write does not leave; its table if these are all. Raises :class:`Open`."""
        keys = [(write.grid(sym(n)), read.grid(sym(n))) for n in shared]
        keys += [self._sides(d, write, read) for d in differences]
        wrong = [self._sides(d, write, read) for d in elements]
        if not write.count:
            return read
        join = Join(write, read, keys)
        if not join.hit.any():
            return read
        if not join.is_one(wrong):
            for k, sides in enumerate(wrong):
                self._fault(join.fault([sides]), k, read)
        return read.some(~join.hit)

    def _fault(self, fault: int | None, axis: int, read: Table) -> None:
        """An element is another on an axis. Raises :class:`Open`."""
        if fault == -1:
            raise Open(f"one place is written with different indices on axis {axis} of {self.want.tensor}", self.claim.node)
        if fault is not None:
            where = ", ".join(f"{n} = {v}" for n, v in read.at(fault).items())
            raise Open(f"it finds another element of {self.want.tensor} on axis {axis}" + (f" ({where})" if where else ""), self.claim.node)


def _own_names(node: Node, place: Place) -> set[str]:
    loops = {n.stmt.var for n in node.loops if isinstance(n.stmt, For)}
    return loops | THREADS | BLOCKS | {name for name, _ in place.points} | own_symbols(node.stmt).keys()


def _bytes(storage: Storage, axes: int) -> int:
    """Bytes from one index on the first so many axes to the next."""
    total = storage.size
    for e in storage.shape[axes:]:
        assert isinstance(e, Const)
        total *= e.value
    return total
