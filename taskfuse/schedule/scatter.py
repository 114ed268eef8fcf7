"""scatter: computing a concatenation, or ragged rows of tiles, in gather form, and the elementwise functions of it, part by part.

In gather form the loops of the result find the part that holds an element. Here each part is computed by itself, through every function up to the
outputs, and stored at its place in them; the outputs are then assembled from their parts, which takes no code. Functions may have the axes of the
concatenation in another order: so do their parts. Tiles of ragged rows (:mod:`taskfuse.ir.row_tiles`) are one part, whose rows that belong to other tiles are
not stored. The parts of a sum are its terms (:mod:`taskfuse.schedule.send_terms`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from taskfuse.ir.axes import Axis, axis, iteration_point, iteration_position, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, FirstValid, IndexValue, MathExpr, Operand, Pointwise, Read, Reduction, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.offsets import offsets_name
from taskfuse.ir.row_tiles import RowTiles
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Const, Expr, UpperBound, and_, eq, le, lookups_of, lt, simplify, substitute, wrap
from taskfuse.ir.storage import resolve, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call
from taskfuse.schedule.send_terms import send_terms


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One operand of a concatenation, or the tiles of ragged rows.

    Attributes:
        read: its tensor, at the part's own iteration symbols.
        place: the index in the result, from the part's iteration symbols.
        root: the part's axes.
        axes: which axis of the result each of them is.
        valid: which elements of the part have a place, over its iteration symbols.
        tiles: of ragged rows: elements of others of the same tiles that readers take at their own place, too, are those of these tiles.
    """

    read: Read
    place: tuple[Expr, ...]
    root: tuple[Axis, ...]
    axes: tuple[int, ...]
    valid: Expr = TRUE
    tiles: RowTiles | None = None

    def ordered(self, order: Sequence[int]) -> _Part:
        """The part of a tensor whose axes are those of the result in another order; tiles have none."""
        if self.tiles is not None:
            return self
        own = [self.axes.index(d) for d in order if d in self.axes]
        at = {str(iteration_symbol(old)): iteration_symbol(new) for new, old in enumerate(own)}
        place = tuple(substitute(self.place[d], at) for d in order)
        read = replace(self.read, index=tuple(substitute(e, at) for e in self.read.index))
        return replace(
            self, read=read, place=place, root=tuple(self.root[k] for k in own), axes=tuple(self.axes[k] for k in own), valid=substitute(self.valid, at)
        )

    def read_of(self, other: _Part, tensor: TensorView) -> Read:
        """The element at a point of this part of a tensor that has the points of the same part in another order."""
        return Read(tensor, tuple(iteration_symbol(self.axes.index(d)) for d in other.axes))

    def of_its_tiles(self, fusion: Fusion, read: Read) -> Read | None:
        """The element of other tiles, which ragged rows take out of them; ``None`` if that is not what ``read`` does at the place of its reader."""
        expr = fusion.definition(read.tensor)
        source = expr.operands[0] if isinstance(expr, Pointwise) and expr.op is ELEMENTWISE["copy"] else None
        if isinstance(source, Read) and read.index == iteration_point(read.tensor.ndim):
            copied = resolve(fusion, source)
            read = replace(copied, valid=and_(copied.valid, read.valid))
        if self.tiles is None or read.valid is not TRUE or read.tensor.ndim != len(self.root):
            return None
        row, *others = iteration_point(len(self.root) - 1)
        taken = read.index == (self.tiles.tile(row), self.tiles.place(row), *others)
        return Read(read.tensor, iteration_point(len(self.root))) if taken and read.tensor.shape[:2] == (self.tiles.count, wrap(self.tiles.size)) else None

    def moved(self, e: Expr) -> Expr:
        """An expression over the symbols of the result, rewritten over those of the part."""
        return substitute(e, {f"i{k}": p for k, p in enumerate(self.place)})


def scatter(tv: TensorView) -> tuple[TensorView, ...]:
    """See :meth:`TensorView.scatter`.

    Raises:
        ScheduleError: ``tv`` is neither a concatenation of tensors nor ragged rows of tiles, a reader, or a reader of a tensor computed
            from it, is not elementwise, or one of these tensors is scheduled already; of a reduction, see :func:`send_terms`.
        TaskError: if a law of tasks and groups is broken.
    """
    call = Call("scatter", tv)
    fusion = tv.fusion
    if isinstance(tv.definition, Reduction):
        return send_terms(call)
    parts = _parts(call)
    readers = _readers(call)
    for x in readers:
        if x.schedule.transforms or x.schedule.ptypes or x.schedule.inline:
            raise call.error(f"{x.name} is scheduled already", "scatter first")
    fusion.check()
    location = caller()
    if isinstance(tv.definition, View):
        fusion.define(Pointwise(tv, ELEMENTWISE["copy"], tv.definition.operands, location))
    made: dict[TensorView, list[TensorView]] = {}
    ordered = {x: [part.ordered(order) for part in parts] for x, order in readers.items()}
    for x in readers:
        made[x] = []
        for k, part in enumerate(ordered[x]):
            new = fusion.new_tensor(_fresh(part), x.dtype, location=location, origin=x)
            if x is tv:
                fusion.define(Pointwise(new, ELEMENTWISE["copy"], (part.read,), location))
            else:
                expr = fusion.definition(x)
                assert isinstance(expr, Pointwise)
                others = {t: (made[t][k], ordered[t][k]) for t in made if t is not x}
                fusion.define(Pointwise(new, expr.op, tuple(_operand(o, part, others, x) for o in expr.operands), location))
            join_task(new, x)
            made[x].append(new)
    stored: list[TensorView] = []
    for x in readers:
        if x.is_output:
            for k, part in enumerate(ordered[x]):
                if part.valid is not TRUE and storage_uses(fusion, made[x][k]):  # who reads it reads what has no place, too
                    new = fusion.new_tensor(_fresh(part), x.dtype, location=location, origin=x)
                    fusion.define(Pointwise(new, ELEMENTWISE["copy"], (Read(made[x][k], iteration_point(new.ndim)),), location))
                    join_task(new, x)
                    made[x][k] = new
            reads = tuple(Read(p, iteration_point(p.ndim), part.valid) for p, part in zip(made[x], ordered[x], strict=True))
            fusion.define(Assemble(x, reads, tuple(part.place for part in ordered[x]), location))
            stored += made[x]
    fusion.remove_unread([x for x in readers if not x.is_output])
    return tuple(stored)


def ragged_rows(fusion: Fusion) -> tuple[TensorView, ...]:
    """The tensors that are ragged rows of tiles, in gather form."""
    return tuple(e.output for e in fusion.exprs() if rows_of(e) is not None)


def is_concatenation(tv: TensorView) -> bool:
    """True if :func:`scatter` would take ``tv`` and its readers."""
    call = Call("scatter", tv)
    return _find(tv) is not None and isinstance(_reached(call), dict)


def _parts(call: Call) -> tuple[_Part, ...]:
    found = _find(call.tv)
    if found is None:
        raise call.error(
            "it is not a concatenation of parts that fill it along one axis, nor ragged rows of tiles", "tf.cat, tf.stack and tf.grouped_matmul make one"
        )
    return found


def _find(tv: TensorView) -> tuple[_Part, ...] | None:
    """The parts, if the operands of ``tv`` fill one of its axes one after another."""
    expr = tv.definition
    if expr is not None and (tiles := rows_of(expr)) is not None:
        return _tiles(expr.operands[0], tiles)
    if not isinstance(expr, FirstValid) or len(expr.operands) < 2:
        return None
    for d, along in enumerate(tv.root):
        parts: list[_Part] = []
        start = ZERO
        for operand in expr.operands:
            part = _part(tv, operand, d, start) if isinstance(operand, Read) else None
            if part is None:
                break
            parts.append(part)
            start = start + (part.root[d].extent if len(part.root) == len(tv.root) else ONE)
        if len(parts) == len(expr.operands) and start is along.extent:
            return tuple(parts)
    return None


def _tiles(read: Operand, tiles: RowTiles) -> tuple[_Part]:
    """The tiles out of which each row is taken."""
    assert isinstance(read, Read)
    tile, row, *others = (iteration_symbol(k) for k in range(read.tensor.ndim))
    here = tiles.start(tile) + row
    root = tuple(axis(e) for e in read.tensor.shape)
    return (_Part(Read(read.tensor, (tile, row, *others)), (here, *others), root, tuple(range(len(root))), tiles.belongs(here, tile), tiles),)


def rows_of(expr: MathExpr) -> RowTiles | None:
    """The tiles of ragged rows that a view or a copy takes row by row, if that is what it does."""
    tv, read = expr.output, expr.operands[0] if expr.operands else None
    if not (isinstance(expr, View) or (isinstance(expr, Pointwise) and expr.op is ELEMENTWISE["copy"])) or not isinstance(read, Read):
        return None
    if tv.ndim == 0 or read.tensor.ndim != tv.ndim + 1 or read.valid is not TRUE or not isinstance(size := read.tensor.shape[1], Const) or size.value < 1:
        return None
    row, *others = iteration_point(tv.ndim)
    tables = tv.fusion.tables.items()
    promised = {offsets_name(x.name) if known.lengths else x.name: known for x, known in tables if (known.rises or known.lengths) and known.low is ZERO}
    for found in lookups_of(read.index[0]):
        if isinstance(found, UpperBound) and found.sought is row and found.tensor.name in promised and promised[found.tensor.name].high is found.high:
            tiles = RowTiles(found.tensor, found.size - 1, found.high, size.value)
            if read.index == (tiles.tile(row), tiles.place(row), *others) and read.tensor.shape[0] is tiles.count and tv.shape[0] is tiles.rows:
                return tiles
    return None


def held_by_tiles(expr: MathExpr) -> RowTiles | None:
    """The tiles of ragged rows that an expression reads rows of, tile by tile, if that is what it does."""
    root, facts = expr.output.root, expr.output.fusion.facts()
    for p, a in enumerate(root):
        facts = facts.with_range(str(iteration_symbol(p)), 0, a.extent - 1)
    for held in (o.index[0] for o in expr.operands if isinstance(o, Read) and o.index):
        for found in lookups_of(held):
            place = iteration_position(found.sought) if isinstance(found, UpperBound) else None
            if not isinstance(found, UpperBound) or place is None or place >= len(root):
                continue
            for p, size in ((p, a.extent) for p, a in enumerate(root) if p != place):
                if not isinstance(size, Const) or size.value < 1:
                    continue
                tiles = RowTiles(found.tensor, found.size - 1, found.high, size.value)
                index = tiles.start(iteration_symbol(place)) + iteration_symbol(p)
                if root[place].extent is tiles.count and held in (index, simplify(index, facts)):
                    return tiles
    return None


def _part(tv: TensorView, operand: Read, d: int, start: Expr) -> _Part | None:
    """The part that lies at ``start`` on axis ``d``, if ``operand`` is one."""
    here, total = iteration_symbol(d), tv.root[d].extent
    shape = operand.tensor.shape
    symbols = [iteration_symbol(k) for k in range(len(tv.root))]
    stacked = (*symbols[:d], *symbols[d + 1 :])
    if operand.index == stacked and operand.valid is eq(here, start):
        place = (*symbols[:d], start, *symbols[d : len(shape)])
        extents, axes = [a.extent for k, a in enumerate(tv.root) if k != d], tuple(k for k in range(len(tv.root)) if k != d)
    elif operand.index == (*symbols[:d], here - start, *symbols[d + 1 :]) and len(shape) == len(tv.root):
        end = start + shape[d]
        inside = and_(TRUE if start is ZERO else le(start, here), TRUE if end is total else lt(here, end))
        if operand.valid is not inside:
            return None
        place = (*symbols[:d], here + start, *symbols[d + 1 :])
        extents, axes = [shape[d] if k == d else a.extent for k, a in enumerate(tv.root)], tuple(range(len(tv.root)))
    else:
        return None
    if list(shape) != extents:
        return None
    found = resolve(tv.fusion, Read(operand.tensor, operand.index))
    part = _Part(found, tuple(wrap(p) for p in place), tuple(axis(e) for e in extents), axes)
    return replace(part, read=Read(found.tensor, tuple(part.moved(e) for e in found.index)))


def _readers(call: Call) -> dict[TensorView, tuple[int, ...]]:
    found = _reached(call)
    if isinstance(found, str):
        raise call.error(found, "leave it in gather form, or make its copy an output of its own")
    return found


def _reached(call: Call) -> dict[TensorView, tuple[int, ...]] | str:
    """The call's tensor and those computed from it, producers first, each with the axes of the call's tensor in its own order; or the obstacle, as text."""
    fusion, tv = call.tv.fusion, call.tv
    reached, stack = {tv: tuple(range(len(tv.root)))}, [tv]
    while stack:
        source = stack.pop()
        for use in storage_uses(fusion, source):
            reader = use.output
            if not isinstance(use, Pointwise):
                return f"{reader.name}, which is computed from it, is not elementwise of its shape"
            reads = [r for r in storage_reads(fusion, use) if r.tensor is source]
            for read in reads or [Read(source, iteration_point(source.ndim))]:  # of ragged rows, which are a view, the tiles are read
                order = _order(read, reader)
                if order is None:
                    same = [a.extent for a in reader.root] == [a.extent for a in source.root]
                    what = "reads it at another point than its own" if same else ", which is computed from it, is not elementwise of its shape"
                    return f"{reader.name}{' ' * same}{what}"
                axes = tuple(reached[source][d] for d in order)
                if reader not in reached:
                    stack.append(reader)
                if reached.setdefault(reader, axes) != axes or (axes != reached[tv] and tv.definition is not None and rows_of(tv.definition) is not None):
                    return f"{reader.name} reads it at another point than its own"
    return {tv: reached[tv]} | {e.output: reached[e.output] for e in fusion.exprs() if e.output in reached and e.output is not tv}


def _order(read: Read, reader: TensorView) -> tuple[int, ...] | None:
    """Which axis of what is read each axis of its reader is, if the reader has them all, each once."""
    places = [iteration_position(e) for e in read.index]
    if len(places) != len(reader.root) or sorted(p for p in places if p is not None) != list(range(len(reader.root))):
        return None
    order = tuple(places.index(k) for k in range(len(places)))
    return order if all(a.extent is read.tensor.root[d].extent for a, d in zip(reader.root, order, strict=True)) else None


def _operand(operand: Operand, part: _Part, made: Mapping[TensorView, tuple[TensorView, _Part]], reader: TensorView) -> Operand:
    match operand:
        case Read():
            read = resolve(reader.fusion, operand)
            if read.tensor in made:
                new, its = made[read.tensor]
                return part.read_of(its, new)
            return part.of_its_tiles(reader.fusion, read) or Read(read.tensor, tuple(part.moved(e) for e in read.index))
        case IndexValue():
            return IndexValue(part.moved(operand.index))
        case _:
            return operand


def _fresh(part: _Part) -> list[Axis]:
    return [axis(a.extent) for a in part.root]
