"""The table of a write and that of a read, joined on their indices.

Where indices are not sums of single symbols (fragments, swizzles, digits of thread indices), all values of their symbols are tabulated, for the write and
for the read: everything else that an index and an element depend on must cancel.
"""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.check.flags import all_of, any_of
from taskfuse.check.ranges import nonnegative_form, terms_of
from taskfuse.check.statement_tree import BLOCK_NAMES, BLOCKS, CLUSTER_NAMES, THREADS, Node
from taskfuse.check.tables import KEPT, Ints, TableJoin, ValueTable, steps_of
from taskfuse.check.values.claims import Place
from taskfuse.check.values.solve import Equation, Open
from taskfuse.check.values.write_and_read import Found, WriteAndRead
from taskfuse.ir.scalar import Const, Expr, conjuncts, const, eq, ge, le, linear, lt, private, simplify, substitute, sym
from taskfuse.kir.nodes import For
from taskfuse.kir.walk import own_symbols

_Sides = tuple[Ints, Ints]
"""The values that must be equal, along the axes of a table of the write and along those of one of the read."""


def joined(pair: WriteAndRead, at: dict[str, Expr], equations: list[Equation], under: list[Expr]) -> Found | None:
    """The table of the write and that of the read, joined on the equations."""
    differences = [pair.simplified(a - b) for a, b in equations]
    elements = [pair.simplified(substitute(e, at) - wanted) for e, wanted in pair.elements]
    differences, elements = _by_places(pair, differences, elements)
    mine = {n for d in (*differences, *elements) for n in d.free if n in pair.spans}
    theirs = _near(pair, differences, elements, mine)
    shared = _mixed(pair, differences, elements, mine, theirs)
    if not pair.countable(mine | shared) or not pair.countable(theirs | shared):
        raise Open("the symbols of its index have too many values, or unknown ones", pair.claim.node)
    conditions = _filters(pair, at, mine, shared)
    if conditions is None:
        return None
    filters, some, residual, certain = conditions
    steps = steps_of(mine - shared, (*differences, *elements, *filters, *some))  # points that differ in nothing else are one
    write, read = pair.table(mine | shared, filters, steps), pair.table(theirs | shared, _reader_filters(pair, theirs | shared))
    if pair.among is not None:
        read = read.within(pair.among)
    if not read.count:
        return None
    outcome = _compare(pair, write, read, sorted(shared), differences, elements, [*under, *residual])
    if outcome is None or (certain and not some):
        return outcome
    if not certain:
        pair.may_be_there()
        return None
    write = pair.table(mine | shared, [*filters, *some], steps)
    surely = _compare(pair, write, read, sorted(shared), differences, elements, [*under, *residual])
    if surely is None or surely.rest is not None:
        pair.may_be_there()
    return surely


def never_meet(pair: WriteAndRead) -> bool:
    """True only if the write never accesses the elements that are read, in any iteration and whether or not its element exists.

    Raises:
        Open: no proof was found.
    """
    differences = [pair.simplified(a - b) for a, b in pair.equations]
    mine = {n for d in differences for n in d.free if n in pair.spans}
    theirs = {n for d in differences for n in d.free if n not in pair.spans}
    if not pair.countable(mine) or not pair.countable(theirs):
        raise Open("the symbols of its index have too many values, or unknown ones", pair.claim.node)
    filters = [c for _, c in pair.conditions if c.free <= mine]
    write = pair.table(mine, filters, steps_of(mine, (*differences, *filters)))
    read = pair.table(theirs, _reader_filters(pair, theirs))
    if pair.among is not None:
        read = read.within(pair.among)
    if not write.count or not read.count:
        return True
    return not any_of(TableJoin(write, read, [_sides(pair, d, write, read) for d in differences]).hit)


def _by_places(pair: WriteAndRead, differences: list[Expr], elements: list[Expr]) -> tuple[list[Expr], list[Expr]]:
    """The same with a block's place in its cluster as a symbol, for each block index of the read that says nothing else: it has fewer values."""
    for name, place, extent in zip(BLOCK_NAMES, CLUSTER_NAMES, pair.want.node.context.kernel.cluster, strict=True):
        if not isinstance(extent, Const) or extent.value == 1 or not any(name in d.free for d in (*differences, *elements)):
            continue
        cluster, here = private(f"{name}.cluster"), private(f"{place}.here")
        facts = pair.facts.with_range(cluster.name, 0, None).with_range(here.name, 0, extent - 1)
        found = [[simplify(substitute(d, {name: cluster * extent + here}), facts) for d in some] for some in (differences, elements)]
        if not any(cluster.name in d.free for some in found for d in some):
            pair.places[here.name] = 0, extent.value - 1
            differences, elements = found
    return differences, elements


def _near(pair: WriteAndRead, differences: list[Expr], elements: list[Expr], mine: set[str]) -> set[str]:
    """The symbols of the read that a table needs: those that share no term with symbols without a table."""
    found: set[str] = set()
    for d in (*differences, *elements):
        terms, _ = terms_of(d)
        for term, _ in terms:
            if (
                term.free.isdisjoint(mine)
                and pair.countable(term.free)
                and not term.free.isdisjoint(_own_names(pair.want.node, pair.want) | pair.places.keys())
            ):
                found |= term.free
    return found


def _mixed(pair: WriteAndRead, differences: list[Expr], elements: list[Expr], mine: set[str], theirs: set[str]) -> set[str]:
    """Symbols of the read that share a term with symbols of the write."""
    found: set[str] = set()
    for d in (*differences, *elements):
        terms, _ = terms_of(d)
        for term, _ in terms:
            if not term.free.isdisjoint(mine):
                found |= term.free - mine
    return found


def _sides(pair: WriteAndRead, d: Expr, write: ValueTable, read: ValueTable) -> _Sides:
    """The two sides of a difference that is 0: the part in the write's table, and the negated part in the read's."""
    terms, constant = terms_of(d)
    left: list[tuple[Expr, int]] = []
    right: list[tuple[Expr, int]] = []
    for term, k in terms:
        if term.free <= write.names:
            left.append((term, k))
        elif term.free <= read.names:
            right.append((term, -k))
        else:
            raise Open(f"{term} does not cancel", pair.claim.node)
    return write.grid(linear(left, 0)), read.grid(linear(right, -constant))


def _filters(pair: WriteAndRead, at: Mapping[str, Expr], mine: set[str], shared: set[str]) -> tuple[list[Expr], list[Expr], list[Expr], bool] | None:
    """The conditions of the write that its table decides; those by which it surely happens, for one value of what neither index nor element depends on;
    those that are left; and whether nothing else decides. ``None`` if one never holds.
    """
    filters: list[Expr] = []
    enough: list[Expr] = []
    residual: list[Expr] = []
    certain = True
    free = pair.spans.keys() - at.keys() - mine
    every = pair.required(at, free)
    some = pair.some(every, at, mine)
    if some is None:
        return None
    for original, general in every:
        part = substitute(general, some)
        if pair.constraints.ranges.implies(part):
            continue
        if not pair.bare and pair.never(general, free):
            return None
        if part.free <= mine | shared:
            (filters if general.free.isdisjoint(free) else enough).append(part)
        elif (pair.bare and original is not None) or pair.cuts_outside(original):
            continue
        elif not part.free.isdisjoint(mine):
            raise Open(f"whether {part} holds where it was written is not known", pair.claim.node)
        elif not pair.proves(pair.constraints, part):
            if general.free.isdisjoint(free):
                residual.append(part)
            else:
                certain = False
    return filters, enough, residual, certain


def _reader_filters(pair: WriteAndRead, names: set[str]) -> list[Expr]:
    """The conditions at the read that its table decides."""
    found = [p for c in (*pair.want.node.conditions, *pair.want.given) for p in conjuncts(c)]
    for n in pair.want.node.loops:
        s = n.stmt
        if isinstance(s, For) and s.var in names:
            bounds = [le(s.start, sym(s.var)), lt(sym(s.var), s.stop)]
            found += [] if isinstance(s.start, Const) and isinstance(s.stop, Const) and _is_within(pair.span(s.var), s.start, s.stop) else bounds
            found += [] if s.step is const(1) else [eq((sym(s.var) - s.start) % s.step, 0)]
    return [c for c in found if c.free <= names]


def _is_within(span: tuple[int, int] | None, start: Const, stop: Const) -> bool:
    """True if all values of a symbol lie between two bounds."""
    return span is not None and start.value <= span[0] and span[1] < stop.value


def _compare(
    pair: WriteAndRead, write: ValueTable, read: ValueTable, shared: list[str], differences: list[Expr], elements: list[Expr], residual: list[Expr]
) -> Found | None:
    """Differences of elements are 0 wherever those of indices are. Cached, since copies of a statement compare the same tables."""
    key = write, read, *shared, *differences, None, *elements
    left = pair.constraints.tables.left.get(key)
    if left is None:
        left = _left(pair, write, read, shared, differences, elements)
        if pair.among is None and write.count + read.count <= KEPT:
            pair.constraints.tables.left[key] = left
    if left is read:
        return None
    left = _possible(pair, left)
    if not left.count:
        return Found(tuple(residual))
    if residual:
        raise Open("only some of the elements are written there", pair.claim.node)
    return Found((), left)


def _possible(pair: WriteAndRead, left: ValueTable) -> ValueTable:
    """The points of a table of the read that all conditions around it admit for some values of what the table does not list."""
    for assumption in pair.constraints.assumptions:
        for part in conjuncts(assumption) if isinstance(assumption, Expr) else ():
            needed = part if part.free <= left.names else None if part.free.isdisjoint(left.names) else _needed(pair, part, left.names)
            if needed is not None and left.count:
                holds = left.values(needed) != 0
                left = left if all_of(holds) else left.some(holds)
    return left


def _needed(pair: WriteAndRead, condition: Expr, names: frozenset[str]) -> Expr | None:
    """A condition on some symbols that a comparison implies: ``2*i + t < 7`` implies ``2*i < 7`` if ``t >= 0``; ``None``: no condition."""
    form = nonnegative_form(condition)
    if form is None:
        return None
    most: Expr = const(0)
    terms, constant = terms_of(form)
    for term, k in terms:
        if term.free <= names:
            most = most + term * k
            continue
        lo, hi = pair.constraints.ranges.of(term)
        bound = hi if k > 0 else lo
        if bound is None:
            return None
        constant += k * bound
    return ge(most + constant, 0)


def _left(pair: WriteAndRead, write: ValueTable, read: ValueTable, shared: list[str], differences: list[Expr], elements: list[Expr]) -> ValueTable:
    """The points of the read that the write does not leave; its table if these are all. Raises :class:`Open`."""
    keys = [(write.grid(sym(n)), read.grid(sym(n))) for n in shared]
    keys += [_sides(pair, d, write, read) for d in differences]
    wrong = [_sides(pair, d, write, read) for d in elements]
    if not write.count:
        return read
    join = TableJoin(write, read, keys)
    if not any_of(join.hit):
        return read
    if not join.is_one(wrong):
        for k, sides in enumerate(wrong):
            _fault(pair, join.fault([sides]), k, read)
    return read.some(~join.hit)


def _fault(pair: WriteAndRead, fault: int | None, axis: int, read: ValueTable) -> None:
    """Raises :class:`Open`: the element differs on an axis."""
    if fault == -1:
        raise Open(f"one place is written with different indices on axis {axis} of {pair.want.tensor}", pair.claim.node)
    if fault is not None:
        where = ", ".join(f"{n} = {v}" for n, v in read.at(fault).items())
        raise Open(f"it finds another element of {pair.want.tensor} on axis {axis}" + (f" ({where})" if where else ""), pair.claim.node)


def _own_names(node: Node, place: Place) -> set[str]:
    loops = {n.stmt.var for n in node.loops if isinstance(n.stmt, For)}
    return loops | THREADS | BLOCKS | {name for name, _ in place.points} | own_symbols(node.stmt).keys()
