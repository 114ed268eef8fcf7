"""Coverage of points, each once: loops, threads, blocks and copies of a statement as the digits of a point.

The points of a reduction's domain, or the elements of an output, are boxes. Symbols with few values (unrolled loops, threads, points of an instruction) are
enumerated in one table; loops and blocks with any number of values are digits, each with a weight equal to the number of values of all lower digits together.
If an order of tiles makes several axes of one number, its tiles are tabulated, too, each for a box.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.constraints import Constraints
from taskfuse.check.flags import all_of, greatest, least
from taskfuse.check.ranges import terms_of
from taskfuse.check.statement_tree import Node
from taskfuse.check.tables import ValueTable, distinct, distinct_columns
from taskfuse.check.values.digits import without_digits
from taskfuse.check.values.equivalent_visits import apart, begun_at_zero, in_clusters, lengthened, named_once, settled, shortened
from taskfuse.check.values.orders import merged, named, reach_of
from taskfuse.check.values.questions import equal, proves
from taskfuse.check.values.runs import Span, Visits
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import Const, Expr, Product, Sym, children, const, ge, simplify, substitute, sym

Ints = NDArray[np.int64]
LIMIT = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class _Form:
    """A statement's visits: a table of points, one column per axis; the weights of symbols with many values; tiles that stand for boxes."""

    table: list[Ints]
    weights: list[dict[str, Expr]]
    tiles: list[Ints] | None


def covered(visits: list[Visits], extents: tuple[Expr, ...], constraints: Constraints, *, again: bool = False) -> bool:
    """All points of a box are visited once.

    Args:
        again: points may be visited more than once.

    Returns:
        True if points past the end of an axis, or before its first, may be visited, too.

    Raises:
        Open: no proof was found.
    """
    if not visits:
        raise Open("no statement is known to visit its points")
    if len(visits) == 1 and visits[0].walks(extents, again=again):
        return False
    try:
        return _covered_upwards([_ascending(v) for v in visits], extents, constraints, again)
    except Open as error:
        for others in _in_other_words(visits, extents, constraints):
            try:
                return _covered_upwards(others, extents, constraints, again)
            except Open:
                pass
        raise error


def _in_other_words(visits: list[Visits], extents: tuple[Expr, ...], constraints: Constraints) -> Iterator[list[Visits]]:
    """Equivalent questions: with conditions as ends of spans; with what has one value as that value, without ends that spare points past an axis' end; with
    points that name what has one value at most; with thread indices as symbols of their own; with symbols from 0 on; with digits for block indices of
    clusters; with axes reversed that all statements walk down.
    """
    ended = [shortened(v) for v in visits]
    if any(a is not b for a, b in zip(ended, visits, strict=True)):
        yield [_ascending(v) for v in ended]
    plain = [settled(lengthened(v, extents, constraints)) for v in ended]
    if any(a is not b for a, b in zip(plain, ended, strict=True)):
        yield [_ascending(v) for v in plain]
    once = [named_once(v, extents, constraints) for v in plain]
    if any(a is not b for a, b in zip(once, plain, strict=True)):
        yield [_ascending(v) for v in once]
    free = [apart(v) for v in visits]
    if any(a is not b for a, b in zip(free, visits, strict=True)):
        yield [_ascending(v) for v in free]
    begun = [begun_at_zero(v) for v in visits]
    if any(a is not b for a, b in zip(begun, visits, strict=True)):
        yield [_ascending(v) for v in begun]
    places = [in_clusters(v) for v in visits]
    if any(a is not b for a, b in zip(places, visits, strict=True)):
        yield [_ascending(v) for v in places]
    down = [k for k in range(len(extents)) if all(_signs(v, (v.point[k],)) == {False} for v in visits)]
    if down:
        yield [_turned(v, {k: extents[k] for k in down}) for v in visits]


def _covered_upwards(visits: list[Visits], extents: tuple[Expr, ...], constraints: Constraints, again: bool) -> bool:
    """The same for points that grow with their symbols."""
    visits, extents = merged(visits, extents, constraints)
    fewer, shorter = without_digits(visits, extents)
    if fewer is not visits:
        try:
            return _all_of(fewer, shorter, constraints, again)
        except Open:
            pass  # in the words of the points as they are
    return _all_of(visits, extents, constraints, again)


def _signs(v: Visits, point: Iterable[Expr], name: str | None = None) -> set[bool]:
    """Whether points grow with all their symbols, or with some."""
    running = v.spans.keys() if name is None else {name}
    return {k > 0 for e in point for term, k in terms_of(e)[0] if not term.free.isdisjoint(running)}


def _ascending(v: Visits) -> Visits:
    """The same visits, with loops that walk down an axis replaced by the mirror images of their spans, which have the same values."""
    bounds = {n for start, stop in v.spans.values() for e in (start, stop) if e is not None for n in e.free}
    if not bounds.isdisjoint(v.spans):  # a span would have to be written in the mirror images of others
        return v
    spans = {name: span for name, span in v.spans.items() if name not in (v.rows or {}) and _signs(v, v.point, name) == {False}}
    mirrored = {name: start + stop - 1 - sym(name) for name, (start, stop) in spans.items() if stop is not None}
    if not mirrored:
        return v
    conditions = tuple(substitute(c, mirrored) for c in v.conditions)
    return replace(v, point=tuple(substitute(e, mirrored) for e in v.point), conditions=conditions)


def _turned(v: Visits, axes: Mapping[int, Expr]) -> Visits:
    """The visits with some axes reversed: they visit all points once exactly if the others do."""
    return replace(v, point=tuple(axes[k] - 1 - e if k in axes else e for k, e in enumerate(v.point)))


def _all_of(visits: list[Visits], extents: tuple[Expr, ...], constraints: Constraints, again: bool) -> bool:
    """The same for all points: in several equivalent forms, those with the fewest digits first."""
    first: Open | None = None
    said: list[list[Visits]] = []
    for every in (False, True):
        named_visits = [named(v, constraints, every=every, again=again) for v in visits]
        if any(all(a is b for a, b in zip(named_visits, others, strict=True)) for others in said):
            continue
        said.append(named_visits)
        for above in (False, True):
            try:
                return _covered(named_visits, extents, constraints, again, above=above)
            except Open as error:
                first = first or error.again()
    assert first is not None
    raise first.again()


def _covered(visits: list[Visits], extents: tuple[Expr, ...], constraints: Constraints, again: bool, *, above: bool = False) -> bool:
    forms = [_form(v, constraints, above=above) for v in visits]
    first = forms[0]
    for v, f in zip(visits, forms, strict=True):
        same = [a.keys() for a in f.weights] == [a.keys() for a in first.weights]
        if not same or any(a[n] is not b[n] or not _alike(v, visits[0], n, constraints) for a, b in zip(f.weights, first.weights, strict=True) for n in a):
            raise Open("its copies run over different loops", v.node)
    node = visits[0].node
    if not extents:
        count = sum(f.table[0].size for f in forms)
        if not count or (count > 1 and not again):
            raise Open(f"the only point is visited {count} times", node)
        return False
    if first.tiles is not None:
        return _tiled(_moved(forms, visits), first, visits[0], extents, constraints, again)
    columns = [np.concatenate([f.table[k] for f in forms]) for k in range(len(extents))]
    widths: list[int] = []
    rest = False
    for k, extent in enumerate(extents):
        width, beyond = _axis(columns[k], first.weights[k], visits[0], extent, constraints)
        widths.append(width)
        rest = rest or beyond
    ends = [w if first.weights[k] or not isinstance(e, Const) else e.value for k, (w, e) in enumerate(zip(widths, extents, strict=True))]
    _filled(columns, widths, ends, node, again)
    return rest


def _alike(one: Visits, two: Visits, name: str, constraints: Constraints) -> bool:
    """True only if a symbol of this name runs over the same values in both."""
    pairs = zip(one.spans[name], two.spans[name], strict=True)
    return all(a is b or (a is not None and b is not None and equal(constraints, a, b)) for a, b in pairs)


def _filled(columns: list[Ints], widths: list[int], ends: list[int], node: Node, again: bool) -> None:
    """A table contains every point of a box: once, or more than once."""
    if columns[0].size and any(least(c) < 0 or greatest(c) >= w for c, w in zip(columns, widths, strict=True)):
        raise Open("it visits points outside", node)
    count = prod(widths)
    if count > 8 * LIMIT:
        raise Open("it visits too many points", node)
    flat = columns[0]
    for column, width in zip(columns[1:], widths[1:], strict=True):
        flat = flat * width + column
    seen = np.zeros(count, np.bool_)
    seen[flat] = True
    if not again and np.count_nonzero(seen) < flat.size:
        times = np.bincount(flat)
        raise Open(f"point {_text(np.unravel_index(int(np.argmax(times)), tuple(widths)))} is visited {int(times.max())} times", node)
    needed = seen.reshape(widths)[tuple(slice(0, e) for e in ends)]
    if not all_of(needed):
        raise Open(f"point {_text(np.unravel_index(int(np.argmin(needed)), needed.shape))} is not visited", node)


def _text(point: Iterable[np.intp]) -> str:
    return f"[{', '.join(str(int(p)) for p in point)}]"


def _moved(forms: list[_Form], visits: list[Visits]) -> list[Ints]:
    """The points of all copies in the tiles of the first one: the differences of copies are the same in all tiles."""
    first = forms[0].tiles
    assert first is not None
    columns: list[list[Ints]] = [[] for _ in first]
    for f, v in zip(forms, visits, strict=True):
        if f.tiles is None or any(a.size != b.size for a, b in zip(f.tiles, first, strict=True)):
            raise Open("its copies run over different tiles", v.node)
        for k, (mine, theirs) in enumerate(zip(f.tiles, first, strict=True)):
            apart = distinct(mine - theirs)
            if apart.size > 1:
                raise Open("its copies run over different tiles", v.node)
            columns[k].append(f.table[k] + apart.sum())
    return [np.concatenate(c) for c in columns]


def _tiled(columns: list[Ints], form: _Form, v: Visits, extents: tuple[Expr, ...], constraints: Constraints, again: bool) -> bool:
    """Boxes of points, and the tiles that give their positions."""
    assert form.tiles is not None
    starts = [int(c.min()) if c.size else 0 for c in columns]
    columns = [c - s for c, s in zip(columns, starts, strict=True)]
    widths: list[int] = []
    ends: list[int] = []
    for k, extent in enumerate(extents):
        width, reach = reach_of(columns[k], form.weights[k], v, constraints, extent)
        if not isinstance(reach, Const) or not isinstance(extent, Const):
            raise Open("the size of its tiles is not constant", v.node)
        if reach is const(0):
            raise Open("its tiles have no points", v.node)
        if not form.weights[k]:
            width = reach.value
        widths.append(width)
        ends.append(reach.value)
    _filled(columns, widths, widths, v.node, again)
    tiles: list[Ints] = []
    counts: list[int] = []
    for column, start, size, extent in zip(form.tiles, starts, ends, extents, strict=True):
        assert isinstance(extent, Const)
        column = column + start
        if (column % size).any():
            raise Open("its tiles overlap", v.node)
        tiles.append(column // size)
        counts.append(-(-extent.value // size))
    there = np.logical_and.reduce([t < n for t, n in zip(tiles, counts, strict=True)])  # others lie past the end
    _filled([t[there] for t in tiles], counts, counts, v.node, again)
    return not all_of(there) or any(isinstance(e, Const) and e.value % s for e, s in zip(extents, ends, strict=True))


def _axis(column: Ints, weights: dict[str, Expr], v: Visits, extent: Expr, constraints: Constraints) -> tuple[int, bool]:
    """How many points a table has along an axis, and whether those of its loops may lie past the end."""
    width, reach = reach_of(column, weights, v, constraints, extent)
    if reach is None:
        return width, True
    if not weights:
        if isinstance(extent, Const):
            return max(width, extent.value), width > extent.value
        if not proves(constraints, ge(const(width), extent)):
            raise Open(f"{width} points are visited along an axis of {extent}", v.node)
        return width, not proves(constraints, ge(extent, const(width)))
    if not proves(constraints, ge(reach, extent)):
        raise Open(f"only {reach} points along an axis of {extent} are visited", v.node)
    return width, not proves(constraints, ge(extent, reach))


# -- tables ------------------------------------------------------------------------------------------------------------------------------


def _form(v: Visits, constraints: Constraints, *, above: bool) -> _Form:
    """A statement's points by what its symbols are."""
    bound = set(v.rows or ())
    many: dict[str, Span] = {}
    moved: dict[str, Expr] = {}
    tied = _tied(v)
    few: dict[str, tuple[int, int]] = {}
    size = 1 if v.rows is None else max(1, next(iter(v.rows.values())).size)
    weighed = {n for e in v.point for term, _ in terms_of(e)[0] if not term.free <= v.spans.keys() for n in term.free}
    low = _weights(v) if above else {}
    for name in sorted(v.spans.keys() - bound, key=lambda n: (low.get(n, 0), _count(v, n), n)):
        count = _count(v, name)
        lo = _first(v, name)
        if name not in tied and name not in weighed and lo is not None and size * count <= LIMIT:
            few[name] = lo, lo + count
            size *= max(count, 1)
        elif name not in tied:
            many[name] = v.spans[name]
            if v.spans[name][0] is not const(0):
                moved[name] = sym(name) + v.spans[name][0]
    for name in _above(v, few, many) if above else ():  # digits above those with many values are digits, too
        many[name] = v.spans[name]
        if few.pop(name)[0]:
            moved[name] = sym(name) + v.spans[name][0]
    divided = None if v.rows is None or tied.isdisjoint(bound) else _divided_rows(v.rows, tied)
    mine, theirs = divided if divided is not None else (v.rows, None) if tied & bound else (None, v.rows)
    table = _table(v, few, theirs or None, [c for c in v.conditions if c.free.isdisjoint(tied)])
    spans = {n: (lo, lo + _count(v, n)) for n in tied - bound if (lo := _first(v, n)) is not None}
    rows_of_tiles = next(iter(mine.values())).size if mine else 1
    if len(spans) < len(tied - bound) or _product(b - a for a, b in spans.values()) * rows_of_tiles > LIMIT:
        raise Open(f"the order of tiles depends on {', '.join(sorted(tied))}", v.node)
    tiles = _table(v, spans, mine or None, [c for c in v.conditions if not c.free.isdisjoint(tied)]) if tied else None
    columns: list[Ints] = []
    weights: list[dict[str, Expr]] = []
    places: list[Ints] = []
    used: set[str] = set()
    for e in v.point:
        e = simplify(substitute(e, moved) if moved else e, constraints.facts)
        inside, upper, form = _parted(e, table.names, tiles.names if tiles is not None else (), many, v.node)
        columns.append(table.values(inside))
        weights.append(form)
        if tiles is not None:
            places.append(tiles.values(upper))
        if not used.isdisjoint(form):
            raise Open(f"{', '.join(sorted(used & form.keys()))} moves along several axes at once", v.node)
        used |= form.keys()
    for name, (start, stop) in many.items():
        if name not in used and (stop is None or not equal(constraints, stop - start, const(1))):
            raise Open(f"its points are visited again in each iteration of {name}", v.node)
    return _Form(columns or [np.zeros(table.count, np.int64)], weights, places if tiles is not None else None)


def _weights(v: Visits) -> dict[str, int]:
    """The weights along an axis of symbols that are terms of their own: the table takes the low ones first, as those above it may be digits."""
    found: dict[str, int] = {}
    for e in v.point:
        found |= {t.name: k for t, k in terms_of(e)[0] if isinstance(t, Sym)}
    return found


def _above(v: Visits, few: Mapping[str, tuple[int, int]], many: Mapping[str, Span]) -> list[str]:
    """Symbols with few values that weigh more along an axis than one with many, and are terms of their own wherever they occur."""
    found: dict[str, None] = {}
    terms = [terms_of(e)[0] for e in v.point]
    mixed = {n for axis in terms for t, _ in axis if not isinstance(t, Sym) for n in t.free}.union(*(c.free for c in v.conditions))
    for axis in terms:
        alone = [(t.name, k) for t, k in axis if isinstance(t, Sym)]
        least = min((k for name, k in alone if name in many), default=None)
        found |= {name: None for name, k in alone if least is not None and k >= least and name in few and name not in mixed}
    return list(found)


def _tied(v: Visits) -> set[str]:
    """Symbols that an order of tiles, which has no digits, makes one number of: those of quotients and remainders whose divisor is not one of their digits."""
    found: set[str] = set()
    rows = 1 if v.rows is None else next(iter(v.rows.values())).size
    if rows * _product(_count(v, n) for n in v.spans if v.rows is None or n not in v.rows) <= LIMIT:
        return found  # everything fits into one table
    for e in v.point:
        for term, _ in terms_of(e)[0]:
            if isinstance(term, (Sym, Const)) or term.free.isdisjoint(v.spans):
                continue
            mine = term.free & v.spans.keys()
            if _product(_count(v, n) for n in mine) > LIMIT or any(n.startswith("blockIdx") or v.spans[n][1] is None for n in mine):
                found |= mine
    if v.rows is not None and _divided_rows(v.rows, found) is None:
        found |= v.rows.keys()
    return found


def _divided_rows(rows: Mapping[str, Ints], tied: set[str]) -> tuple[dict[str, Ints], dict[str, Ints]] | None:
    """The values of some symbols, and those of the others, if they have all of these together; ``None`` if they do not."""
    parts: list[dict[str, Ints]] = []
    total = 1
    for names in (sorted(rows.keys() & tied), sorted(rows.keys() - tied)):
        values = distinct_columns(np.stack([rows[n] for n in names])) if names else np.zeros((0, 1), np.int64)
        parts.append({n: values[k] for k, n in enumerate(names)})
        total *= values.shape[1]
    count = next(iter(rows.values())).size
    return (parts[0], parts[1]) if total == count == distinct_columns(np.stack(list(rows.values()))).shape[1] else None


def _first(v: Visits, name: str) -> int | None:
    """The first value of a symbol; ``None`` if it is not one constant: a lower bound need not be one of its values."""
    start = v.spans[name][0]
    return start.value if isinstance(start, Const) else None


def _count(v: Visits, name: str) -> int:
    """How many values a symbol has at most: as many as the table of it has rows, but for those that conditions leave out."""
    _, stop = v.spans[name]
    lo = _first(v, name)
    hi = stop.value if isinstance(stop, Const) else None
    if stop is None:
        most = v.ranges.of(sym(name))[1]
        hi = None if most is None else most + 1
    return 1 << 60 if lo is None or hi is None else max(0, hi - lo)


def _product(counts: Iterable[int]) -> int:
    """The most rows of a table whose symbols have these numbers of values; a symbol without values does not make up for one with many."""
    total = 1
    for n in counts:
        total *= max(n, 1)
    return total


def _table(v: Visits, spans: Mapping[str, tuple[int, int]], rows: Mapping[str, Ints] | None, conditions: list[Expr]) -> ValueTable:
    """All values that symbols have together under conditions."""
    names = spans.keys() | (rows or {}).keys()
    for c in conditions:
        if not c.free <= names:
            raise Open(f"which points {c} leaves is not known", v.node)
    axes = [{name: np.arange(lo, hi)} for name, (lo, hi) in spans.items()]
    return ValueTable([*axes, *([] if rows is None else [rows])], conditions)


def _parted(e: Expr, few: Iterable[str], tied: Iterable[str], many: Mapping[str, Span], node: Node) -> tuple[Expr, Expr, dict[str, Expr]]:
    """The terms that a table has, those of tiles, and the weights of symbols with many values."""
    terms, constant = terms_of(e)
    here, above = set(few), set(tied)
    table: Expr = const(0 if above else constant)
    tiles: Expr = const(constant if above else 0)
    form: dict[str, Expr] = {}
    for term, k in terms:
        if term.free <= here and term.free:
            table = table + term * k
        elif term.free <= above and term.free:
            tiles = tiles + term * k
        else:
            name, weight = _weight(term, k, many, node)
            if name in form or not weight.free.isdisjoint(here | above | many.keys()):
                raise Open(f"{term} is not a digit of a point", node)
            form[name] = weight
    return table, tiles, form


def _weight(term: Expr, k: int, many: Mapping[str, Span], node: Node) -> tuple[str, Expr]:
    match term:
        case Sym(name=name) if name in many:
            return name, const(k)
        case Product():
            factors = children(term)
            mine = [a for a in factors if isinstance(a, Sym) and a.name in many]
            if len(mine) == 1:
                weight: Expr = const(k)
                for a in factors:
                    weight = weight if a is mine[0] else weight * a
                return str(mine[0]), weight
        case _:
            pass
    raise Open(f"{term} is not a digit of a point", node)
