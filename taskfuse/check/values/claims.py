"""The elements that statements claim to write, and the elements that they must read for that: the semantics of each instruction, element by element.

A :class:`Place` is a set of elements: a buffer, and an index over the symbols around a statement and over *points*, symbols that number what one
instruction accesses. It also names the tensor and the element that each of them holds. Fragments, boxes and matrix descriptors are written as
expressions over the points, from the tables of the PTX ISA; only the index in :class:`Holds` comes from lowering.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import partial

from taskfuse.check.constraints import Constraints
from taskfuse.check.ranges import terms_of
from taskfuse.check.statement_tree import THREAD_NAMES, Node, linear_thread
from taskfuse.check.values.solve import Open, solved
from taskfuse.ir.combine import Combine
from taskfuse.ir.fragments import MATRIX_ROW_BYTES, MATRIX_ROWS, Fragment, matrices
from taskfuse.ir.scalar import NO_FACTS, Const, Expr, Facts, Sym, const, evaluate, private, simplify, substitute, sym
from taskfuse.ir.shared_layouts import operand_offset
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorMapParam, TensorParam
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Choose, Compute, GatherCopy, Stmt, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, ChoiceCase, Content, Descriptor, Holds, Operand
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma
from taskfuse.kir.witness import Apply, Pick, Whole
from taskfuse.target import WARP, WARPGROUP

Points = tuple[tuple[str, int], ...]


@dataclass(slots=True, eq=False)  # frozen ones take four times as long to make, and a proof makes many
class Place:
    """Elements of a buffer, and the elements of a tensor that they contain or must contain.

    Attributes:
        index: one expression per axis; or those of the first axes, if ``offset`` gives the rest.
        offset: bytes from the first element with this index, over the points; the address before the swizzle.
        swizzle: bytes of the span in which addresses are permuted.
        element: index in the tensor's shape; in its iteration space for a body.
        points: symbols, with their numbers of values.
        given: conditions besides those around the statement.
        known: what holds at the statement, if it has other symbols here; ``None``: in the statement's own.
    """

    node: Node
    buffer: str
    index: tuple[Expr, ...]
    tensor: str
    element: tuple[Expr, ...]
    points: Points = ()
    offset: Expr | None = None
    swizzle: int = 0
    content: Content = Content.VALUE
    given: tuple[Expr, ...] = ()
    known: Constraints | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ClaimedWrite:
    """A statement and its claim.

    Attributes:
        holds: the elements, in terms of its tensor.
        place: the place of the write.
    """

    node: Node
    holds: Holds
    place: Place


class Instructions:
    """The elements that the statements of a kernel access.

    Raises of all methods: :class:`Open` for an unsupported use of an instruction.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.maps = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}
        self.sizes = {b.name: b.dtype.itemsize for b in kernel.buffers} | {p.name: p.dtype.itemsize for p in kernel.params if isinstance(p, TensorParam)}
        self.shapes = {b.name: b.shape for b in kernel.buffers} | {p.name: p.shape for p in kernel.params if isinstance(p, TensorParam)}
        self.definitions = {d.tensor: d for d in kernel.definitions}
        self._written: dict[tuple[Node, Holds], Place] = {}
        self._points: dict[str, Facts] = {}  # what is known of the points of boxes

    # -- what is written ------------------------------------------------------------------------------------------------------------

    def written(self, node: Node, holds: Holds) -> Place:
        """The place of a write, and its claim."""
        found = self._written.get((node, holds))
        if found is None:
            found = self._written[node, holds] = self._made(node, holds)
        return found

    def _made(self, node: Node, holds: Holds) -> Place:
        stmt = node.stmt
        match stmt:
            case Compute() | Choose() | Shuffle():
                return Place(node, stmt.out.buffer, stmt.out.index, holds.tensor, holds.index, content=holds.content)
            case GatherCopy() | AtomicUpdate() | VectorCopy() | AsyncCopy():
                return self._vector(node, stmt.out, stmt.width, holds.tensor, holds.index)
            case Wgmma() | Mma():
                return self._registers(node, stmt.acc, stmt.accumulators, holds, ("tile.0", "tile.1"))
            case LdMatrix():
                return self._registers(node, stmt.out, self._matrices(stmt), holds, ("tile.0", "tile.1"))
            case StMatrix():
                return self._rows(node, stmt, stmt.out, holds.tensor, holds.index)
            case TmaLoad(out=out, map=name, coords=coords):
                source = self._source(node, holds)
                return self._box(node, out, self.maps[name], holds.tensor, self._of_box(node, holds, self.maps[name], coords, holds.index, source))
            case TmaStore(map=name, coords=coords):
                box = self.maps[name]
                points = tuple((_box_point(k).name, n) for k, n in enumerate(box.box))
                index = tuple(c + sym(p) for c, (p, _) in zip(coords, points, strict=True))
                element = self._of_box(node, holds, box, coords, holds.index, self._in_whole(box.tensor, holds))
                return Place(node, box.tensor, index, holds.tensor, element, points)
            case _:
                raise Open("the proof has no rule for this kind of write", node)

    def _source(self, node: Node, holds: Holds) -> tuple[Expr, ...]:
        """The element of its argument that a copy takes, by the symbols of the tile."""
        match self.definitions[holds.tensor].rule:
            case Apply(operands=(Access(index=index),)) | Pick(cases=(ChoiceCase(operand=Access(index=index)), *_)):
                point = {f"i{k}": e for k, e in enumerate(holds.index)}
                return tuple(substitute(e, point) for e in index)
            case _:
                raise Open(f"it is a copy, but {holds.tensor} is not", node)

    def _in_whole(self, whole: str, holds: Holds) -> tuple[Expr, ...]:
        """The element of an argument that a store of ``holds`` is for: of a part of a tensor, where that lies in the whole."""
        definition = self.definitions.get(whole)
        match None if definition is None else definition.rule:
            case Whole(parts=parts, places=places) if holds.tensor in parts:
                point = {f"i{k}": e for k, e in enumerate(holds.index)}
                return tuple(substitute(e, point) for e in places[parts.index(holds.tensor)])
            case _:
                return holds.index

    # -- what is read ---------------------------------------------------------------------------------------------------------------

    def read(self, node: Node, access: Access, tensor: str, element: tuple[Expr, ...], given: tuple[Expr, ...] = ()) -> Place:
        """One element, read unchanged."""
        return Place(node, access.buffer, access.index, tensor, element, given=given)

    def vector(self, node: Node, access: Access, width: int, tensor: str, element: tuple[Expr, ...]) -> Place:
        """Elements that are consecutive along the last axis; ``element`` is over ``tile.0``."""
        return self._vector(node, access, width, tensor, element)

    def fragment(self, node: Node, stmt: Wgmma | Mma, side: int, tensor: str, element: tuple[Expr, ...]) -> Place:
        """A factor of a product: 0 is A, at rows ``tile.0`` and terms ``tile.2``; 1 is B, at columns ``tile.1`` and terms ``tile.2``."""
        operand = (stmt.a, stmt.b)[side]
        rows = "tile.0" if side == 0 else "tile.1"
        if any(f"tile.{1 - side}" in e.free for e in element):
            raise Open(f"factor {'AB'[side]} depends on the other one's axis", node)
        match operand:
            case Descriptor():
                assert isinstance(stmt, Wgmma)
                return self._described(node, operand, stmt.row.m if side == 0 else stmt.n, stmt.k, rows, tensor, element)
            case Access():
                fragment = (stmt.row.a_registers, stmt.row.b_registers)[side]
                assert fragment is not None
                names = (rows, "tile.2") if side == 0 else ("tile.2", rows)
                return self._registers(node, operand, fragment, Holds(tensor, element), names)

    def matrix_rows(self, node: Node, stmt: LdMatrix, tensor: str, element: tuple[Expr, ...]) -> Place:
        """The elements read by an ldmatrix, by the rows of its matrices (``tile.0``) and the elements of a row (``tile.1``)."""
        return self._rows(node, stmt, stmt.source, tensor, element)

    def matrix_registers(self, node: Node, stmt: StMatrix, tensor: str, element: tuple[Expr, ...]) -> Place:
        """The registers that a stmatrix stores."""
        return self._registers(node, stmt.source, self._matrices(stmt), Holds(tensor, element), ("tile.0", "tile.1"))

    def stored_box(self, node: Node, stmt: TmaStore, holds: Holds, tensor: str, element: tuple[Expr, ...]) -> Place:
        """The elements of ``tensor`` read by a bulk store; ``element`` is over the symbols of the tile."""
        box = self.maps[stmt.map]
        points = self._of_box(node, holds, box, stmt.coords, element, self._in_whole(box.tensor, holds))
        return self._box(node, stmt.source, box, tensor, points)

    def loaded_box(self, node: Node, stmt: TmaLoad, holds: Holds, source: tuple[Expr, ...], tensor: str) -> Place:
        """The elements of its argument read by a bulk load: ``source``, over the symbols of the tile, is the operand of its tensor's definition."""
        box = self.maps[stmt.map]
        points = tuple((_box_point(k).name, n) for k, n in enumerate(box.box))
        index = tuple(c + sym(p) * step for c, (p, _), step in zip(stmt.coords, points, box.step, strict=True))
        return Place(node, box.tensor, index, tensor, self._of_box(node, holds, box, stmt.coords, source, source), points)

    # -- shapes of instructions -----------------------------------------------------------------------------------------------------

    def _vector(self, node: Node, access: Access, width: int, tensor: str, element: tuple[Expr, ...]) -> Place:
        point = sym("tile.0")
        index = access.index if width == 1 else (*access.index[:-1], access.index[-1] + point)
        if width == 1:
            return Place(node, access.buffer, index, tensor, tuple(substitute(e, {"tile.0": const(0)}) for e in element))
        return Place(node, access.buffer, index, tensor, element, (("tile.0", width),))

    def _registers(self, node: Node, access: Access, fragment: Fragment, holds: Holds, names: tuple[str, str]) -> Place:
        """Registers of a thread, from one on, that hold a fragment."""
        if len(access.index) != 1:
            raise Open("registers of a fragment are not numbered consecutively", node)
        lane, register = linear_thread(self.kernel) % (WARPGROUP if fragment.threads == WARPGROUP else WARP), private("fragment.register")
        row, column = fragment.position(lane, register)
        at = dict(zip(names, (row, column), strict=True))
        return Place(
            node,
            access.buffer,
            (access.index[0] + register,),
            holds.tensor,
            tuple(substitute(e, at) for e in holds.index),
            ((register.name, fragment.count),),
            content=holds.content,
        )

    def _matrices(self, stmt: LdMatrix | StMatrix) -> Fragment:
        return matrices(stmt.matrices, self._itemsize(stmt), transpose=stmt.transpose)

    def _itemsize(self, stmt: LdMatrix | StMatrix) -> int:
        return self.sizes[stmt.source.buffer]

    def _rows(self, node: Node, stmt: LdMatrix | StMatrix, access: Access, tensor: str, element: tuple[Expr, ...]) -> Place:
        """Rows of matrices in Shared memory: row r of all of them at the address that lane r of the warp gives."""
        across = self.kernel.block[0]
        if not isinstance(across, Const) or across.value % WARP:
            raise Open("a warp has more than one row of the block, and its lanes address rows", node)
        x, row, column = sym(THREAD_NAMES[0]), sym("tile.0"), sym("tile.1")
        index = [substitute(e, {THREAD_NAMES[0]: x // WARP * WARP + row}) for e in access.index]
        index[-1] = index[-1] + column
        points = (("tile.0", MATRIX_ROWS * stmt.matrices), ("tile.1", MATRIX_ROW_BYTES // self._itemsize(stmt)))
        return Place(node, access.buffer, tuple(index), tensor, element, points)

    def _box(self, node: Node, access: Access, box: TensorMapParam, tensor: str, element: tuple[Expr, ...]) -> Place:
        """A box in Shared memory: row-major, under the map's swizzle."""
        points = tuple((_box_point(k).name, n) for k, n in enumerate(box.box))
        offset: Expr = const(0)
        for name, n in points:
            offset = offset * n + sym(name)
        size = self.sizes[access.buffer]
        index, start = self._start(node, access, math.prod(box.box) * size)
        return Place(node, access.buffer, index, tensor, element, points, start + offset * size, box.swizzle)

    def _of_box(
        self, node: Node, holds: Holds, box: TensorMapParam, coords: tuple[Expr, ...], element: tuple[Expr, ...], source: tuple[Expr, ...] | None = None
    ) -> tuple[Expr, ...]:
        """``element``, over the symbols of the tile, by the points of the box. ``source``: the place in the argument by the symbols of the tile."""
        if source is None:
            source = holds.index
        if any(f"tile.{k}" in c.free for k in range(len(holds.tile)) for c in coords):
            raise Open("coordinates of a box depend on its points", node)
        tiles = {f"tile.{k}": (const(0), const(n)) for k, n in enumerate(holds.tile)}
        wanted = tuple(c + _box_point(k) * step for k, (c, step) in enumerate(zip(coords, box.step, strict=True)))
        wide = facts = node.context.constraints.facts
        for k, n in enumerate(holds.tile):
            wide = wide.with_range(f"tile.{k}", 0, n - 1)
        needed = {name for name in tiles if any(name in e.free for e in element)}
        found: Mapping[str, Expr] = {}
        # the extents of the tile are used only where the index is not solved as it is: simplified by them it may divide, and have no short terms
        for known in (facts, wide):
            index = source if known is facts else tuple(simplify(e, wide) for e in source)
            found, _ = solved(list(zip(index, wanted, strict=True)), tiles, partial(simplify, facts=known))
            found = {f"tile.{k}": const(0) for k, n in enumerate(holds.tile) if n == 1} | dict(found)  # the only value, which simplifies away
            if needed <= found.keys():
                break
        else:
            raise Open("the element of the tile at a point of the box is unknown", node)
        points = self._points.get(box.name)
        if points is None:
            points = self._points[box.name] = NO_FACTS.with_ranges({_box_point(k).name: (0, n - 1) for k, n in enumerate(box.box)})
        made = (substitute(e, found) for e in element)
        return tuple(simplify(e, points) if _has_digits(e, points.ranges) else e for e in made)  # which the index was taken apart into

    def _described(self, node: Node, d: Descriptor, rows: int, k: int, name: str, tensor: str, element: tuple[Expr, ...]) -> Place:
        """A tile of a matrix descriptor (PTX ISA, "Strides"): byte offsets of its elements before the swizzle."""
        size = self.sizes[d.base.buffer]
        row, term = sym(name), sym("tile.2")
        offset = operand_offset(row, term, size, d.swizzle, d.lbo, d.sbo, d.major)
        last = evaluate(d.offset + offset, {name: rows - 1, "tile.2": k - 1}) if isinstance(d.offset, Const) else None
        if last is None:
            raise Open("the offset of a matrix descriptor is not a constant", node)
        index, start = self._start(node, d.base, int(last) + size)
        return Place(node, d.base.buffer, index, tensor, element, ((name, rows), ("tile.2", k)), start + d.offset + offset, d.swizzle)

    def _start(self, node: Node, access: Access, most: int) -> tuple[tuple[Expr, ...], Expr]:
        """The index on the first axes, and the bytes from there to an element of the last ones, which have room for ``most`` bytes from it."""
        shape, size = self.shapes[access.buffer], self.sizes[access.buffer]
        first, room = len(shape), size
        while first and isinstance(extent := shape[first - 1], Const):
            first -= 1
            room *= extent.value
            start = flattened(shape, access.index, first) * size
            last = node.context.ranges.of(start)[1]
            if last is not None and last + most <= room:
                return access.index[:first], start
        raise Open(f"the elements of {access.buffer} that one instruction moves are unknown", node)


def _box_point(axis: int) -> Sym:
    """The symbol of the points of a box along an axis: no text has its name."""
    return private(f"box.{axis}")


def _has_digits(e: Expr, points: Container[str]) -> bool:
    """True if a sum has more of some points than multiples of them."""
    return any(not isinstance(term, Sym) and any(name in points for name in term.free) for term, _ in terms_of(e)[0])


def flattened(shape: tuple[Expr, ...], index: tuple[Expr, ...], first: int) -> Expr:
    """The place of an element among those of the axes from ``first`` on, row-major."""
    place: Expr = const(0)
    for e, extent in list(zip(index, shape, strict=True))[first:]:
        place = place * extent + e
    return place


def taken(stmt: Stmt, combine: Combine) -> Operand | None:
    """The operand that a statement combines with its own result; ``None`` if it does not. Combining functions of reductions are commutative."""
    match stmt:
        case Compute(op=op, out=out, operands=(a, b)) if op is combine.op:
            return b if a == out else a if b == out else None
        case _:
            return None
