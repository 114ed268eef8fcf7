"""The accesses of statements to memory that threads share.

An access is a set of elements: one expression per axis, over loop variables, thread and block indices, cursors, and *element* symbols, which range
over what one instruction accesses. An axis without an expression is accessed as a whole. Element symbols have the same names in all statements, so
equal accesses of two statements are equal expressions; a pair of accesses treats them like loop variables and thread indices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from taskfuse.check.row_tiles import tile_and_row
from taskfuse.check.statement_tree import THREAD_NAMES, Context, Node, StatementTree, chosen, linear_thread
from taskfuse.check.tiles import tile_bytes
from taskfuse.ir.fragments import MATRIX_ROW_BYTES, MATRIX_ROWS
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.row_tiles import RowTiles
from taskfuse.ir.scalar import Const, Expr, conjuncts, const, le, lt, private, prove, simplify, substitute, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir.declarations import Buffer, TensorMapParam, TensorParam
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Choose, GatherCopy, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, Descriptor, Operand, Queue
from taskfuse.kir.products import LdMatrix, StMatrix, Wgmma
from taskfuse.kir.walk import own_symbols
from taskfuse.target import WARP


class Engine(Enum):
    """The executor of an access: the thread itself, or an engine at a later time."""

    THREAD = "the thread"
    COPY = "an asynchronous copy"
    LOAD = "the copy engine"
    STORE = "the copy engine (store)"
    TENSOR = "the tensor core"

    @property
    def is_async(self) -> bool:
        """True if the access may happen at any time after the statement, until a wait_group or the completion of a barrier."""
        return self is not THREAD

    @property
    def is_async_proxy(self) -> bool:
        """True if the asynchronous proxy makes the access."""
        return self in (Engine.LOAD, Engine.STORE, Engine.TENSOR)

    @property
    def queue(self) -> Queue | None:
        """The queue whose waits cover the access."""
        return _QUEUES.get(self)


THREAD = Engine.THREAD
_QUEUES = {Engine.COPY: Queue.COPY, Engine.STORE: Queue.BULK, Engine.TENSOR: Queue.WGMMA}


class Partners(Enum):
    """The accesses with which an access is compared. Rows of a ``stmatrix`` are described in one way for another ``stmatrix`` and in another way for all other
    accesses.
    """

    ALL = "all"
    STORES = "rows that lanes of a stmatrix address"
    OTHERS = "all but the rows of a stmatrix"


ALL, STORES = Partners.ALL, Partners.STORES  # looked up once: Python 3.11 takes long to find a member in its class


@dataclass(slots=True, eq=False)  # frozen ones take four times as long to make, and a proof makes many
class Use:
    """An access of a statement to memory that threads share.

    Attributes:
        index: per axis; ``None``: the whole axis.
        context: the assumptions at the statement.
        span: symbols of ``index`` that range over the elements of the instruction.
        number: position among all accesses of the kernel.
        place: number of its index, its assumptions and the loops around it, which determine the relation of two accesses.
        atomic: the function that updates the element atomically: two updates by the same function and the same engine commute.
        partners: the accesses with which it is compared.
    """

    node: Node
    buffer: str
    memory: MemoryType
    index: tuple[Expr | None, ...]
    is_write: bool
    engine: Engine
    context: Context
    number: int
    place: int
    span: tuple[str, ...] = ()
    atomic: str = ""
    partners: Partners = Partners.ALL

    def conflicts_with(self, other: Use) -> bool:
        """True if the two must be compared: one of them writes, and neither excludes the other."""
        mine, theirs = self.partners, other.partners
        if mine is STORES or theirs is STORES:
            return mine is theirs
        if self.atomic and self.atomic == other.atomic and self.engine is other.engine:
            return False
        return (self.is_write or other.is_write) and (mine is ALL or theirs is ALL)

    @property
    def is_remote(self) -> bool:
        """True if it also accesses Shared memory of other blocks of the cluster."""
        return self.memory is MemoryType.Shared and isinstance(self.node.stmt, TmaLoad) and bool(self.node.stmt.across)

    @property
    def text(self) -> str:
        """The accessed element, as text."""
        return f"{self.buffer}[{', '.join('..' if e is None else str(e) for e in self.index)}]"


class Uses:
    """All accesses of a kernel to Shared memory and to Global memory that the kernel writes."""

    def __init__(self, tree: StatementTree) -> None:
        kernel = tree.kernel
        self.tree = tree
        self.in_place = kernel.in_place
        self.shapes: dict[str, tuple[Expr, ...]] = {}
        self.memory: dict[str, MemoryType] = {}
        self.sizes: dict[str, int] = {}
        self.maps = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}
        for p in kernel.params:
            if isinstance(p, TensorParam):
                self.shapes[p.name] = p.shape
                self.sizes[p.name] = p.dtype.itemsize
                if p.is_output or p.name in self.in_place.values():
                    self.memory[p.name] = MemoryType.Global
        for b in kernel.buffers:
            self.shapes[b.name] = b.shape
            self.sizes[b.name] = b.dtype.itemsize
            if not MEDIA[b.memory].is_private:
                self.memory[b.name] = b.memory
        self._placed = {b.name: b for b in kernel.buffers if MEDIA[b.memory].reach is Reach.BLOCK}
        self.all: list[Use] = []
        self._places: dict[tuple[object, ...], int] = {}
        for node in tree.leaves():
            self._collect(node)
        self.by_buffer: dict[str, list[Use]] = {}
        for use in self.all:
            self.by_buffer.setdefault(use.buffer, []).append(use)
        if any(p.rises is not None for p in kernel.tables):
            self.by_buffer = {buffer: self._in_tiles(uses) for buffer, uses in self.by_buffer.items()}
            self.all = sorted((use for uses in self.by_buffer.values() for use in uses), key=lambda u: u.number)

    def _in_tiles(self, uses: list[Use]) -> list[Use]:
        """Accesses to an array all of whose rows are said by the same tiles of ragged rows, with tiles and places in them for rows."""
        made: list[Use] = []
        ways: set[RowTiles] = set()
        for use in uses:
            row = use.index[0] if use.index else None
            found = None if row is None else tile_and_row(self.tree.kernel, row, use.context)
            if found is None:
                return uses
            tiles, *at = found
            ways.add(tiles)
            made.append(replace(use, index=(*at, *use.index[1:])))
        return made if len(ways) == 1 else uses

    def rows(self, buffer: str) -> tuple[Expr, Expr] | None:
        """Where the first of a Shared buffer's rows along axis 0 begins, and how many bytes each has; ``None`` where that is not said."""
        b = self._placed.get(buffer)
        if b is None or b.offset is None or not b.shape:
            return None
        size: Expr = const(b.dtype.itemsize)
        for e in b.shape[1:]:
            size = size * e
        return b.offset, size

    def _add(
        self,
        node: Node,
        buffer: str,
        index: tuple[Expr | None, ...],
        write: bool,
        engine: Engine,
        context: Context,
        span: tuple[str, ...] = (),
        partners: Partners = ALL,
        *,
        atomic: str = "",
    ) -> None:
        memory = self.memory.get(buffer)
        if memory is not None and not context.ranges.empty:
            buffer = self.in_place.get(buffer, buffer)  # each array has one name
            where = buffer, index, context.conditions, context.constraints, context.loops
            place = self._places.setdefault(where, len(self._places))
            self.all.append(Use(node, buffer, memory, index, write, engine, context, len(self.all), place, span, atomic, partners))

    def _operand(self, node: Node, operand: Operand, context: Context) -> None:
        if isinstance(operand, Access):
            self._add(node, operand.buffer, operand.index, False, THREAD, context)

    def _warp_rows(self, node: Node, access: Access, matrices: int, write: bool, partners: Partners) -> None:
        """Every lane reads or writes some of every row whose address a lane of its warp gives: its elements are of rows that others address."""
        across = self.tree.kernel.block[0]
        if not isinstance(across, Const) or across.value % WARP:  # a warp has more than one row of the block
            self._add(node, access.buffer, (None,) * len(access.index), write, THREAD, node.context, (), partners)
            return
        x, lane = sym(THREAD_NAMES[0]), private("element.lane")
        context = node.context.with_span(lane, (0, MATRIX_ROWS * matrices - 1))
        facts = context.facts.with_range(str(lane), 0, MATRIX_ROWS * matrices - 1)
        index = tuple(simplify(substitute(e, {THREAD_NAMES[0]: x // WARP * WARP + lane}), facts) for e in access.index)
        self._vector(
            node, Access(access.buffer, index), MATRIX_ROW_BYTES // self.sizes[access.buffer], write, context=context, span=(str(lane),), partners=partners
        )

    def _addressed_rows(self, node: Node, access: Access, matrices: int) -> None:
        """The rows of a store, each by the lane that addresses it, the first eight of a warp for each matrix."""
        used = MATRIX_ROWS * matrices
        context = node.context
        if used < WARP:
            context = context.under((lt(linear_thread(self.tree.kernel) % WARP, used),))
        self._vector(node, access, MATRIX_ROW_BYTES // self.sizes[access.buffer], True, context=context, partners=Partners.STORES)

    def _vector(
        self,
        node: Node,
        access: Access,
        width: int,
        write: bool,
        engine: Engine = THREAD,
        context: Context | None = None,
        span: tuple[str, ...] = (),
        partners: Partners = ALL,
    ) -> None:
        context = context or node.context
        if access.buffer not in self.memory:
            return
        if width == 1:
            self._add(node, access.buffer, access.index, write, engine, context, span, partners)
            return
        element = private("element.0")
        spread = context.with_span(element, (0, width - 1))
        self._add(node, access.buffer, (*access.index[:-1], access.index[-1] + element), write, engine, spread, (*span, str(element)), partners)

    def _collect(self, node: Node) -> None:
        context = node.context
        match node.stmt:
            case Choose(out=out):
                for operand, there in chosen(node.stmt, context):
                    self._operand(node, operand, there)
                self._add(node, out.buffer, out.index, True, THREAD, context)
            case GatherCopy(out=out, source=source, values=values, width=width):
                for v in values:
                    self._operand(node, v.source, context)
                # where values say the index, it may be any
                index = tuple(None if e.free & own_symbols(node.stmt).keys() else e for e in source.index)
                index = index if width == 1 else (*index[:-1], None)
                self._add(node, source.buffer, index, False, THREAD, context)
                self._vector(node, out, width, True)
            case AtomicUpdate(out=out, combine=combine, source=source, values=values, width=width):
                for v in values:
                    self._operand(node, v.source, context)
                self._vector(node, source, width, False)
                index = tuple(None if e.free & own_symbols(node.stmt).keys() else e for e in out.index)
                index = index if width == 1 else (*index[:-1], None)
                self._add(node, out.buffer, index, True, THREAD, context, atomic=combine.name)
            case VectorCopy(out=out, source=source, width=width):
                self._vector(node, source, width, False)
                self._vector(node, out, width, True)
            case AsyncCopy(out=out, source=source, width=width, valid=valid):
                self._vector(node, source, width, False, Engine.COPY, context.under(conjuncts(valid)))
                self._vector(node, out, width, True, Engine.COPY)
            case LdMatrix(source=source, matrices=matrices):
                self._warp_rows(node, source, matrices, False, ALL)
            case StMatrix(out=out, matrices=matrices):
                self._addressed_rows(node, out, matrices)
                self._warp_rows(node, out, matrices, True, Partners.OTHERS)
            case TmaLoad(out=out, map=name, coords=coords):
                self._tensor_box(node, self.maps[name], coords, Engine.LOAD, write=False)
                self._add(node, out.buffer, self._box(out, self.maps[name], context), True, Engine.LOAD, context)
            case TmaStore(map=name, coords=coords, source=source, combine=combine):
                self._add(node, source.buffer, self._box(source, self.maps[name], context), False, Engine.STORE, context)
                self._tensor_box(node, self.maps[name], coords, Engine.STORE, write=True, atomic="" if combine is None else combine.name)
            case Wgmma(a=a, b=b, n=n, k=k, row=row):
                for descriptor, rows in ((a, row.m), (b, n)):
                    if isinstance(descriptor, Access):  # registers: taskfuse.check.registers
                        continue
                    self._add(node, descriptor.base.buffer, self._tile(node, descriptor, rows, k), False, Engine.TENSOR, context)
            case _:  # the thread touches the very elements that its fields name
                written, read = node.accesses
                for a in read:
                    self._add(node, a.buffer, a.index, False, THREAD, context)
                for a in written:
                    self._add(node, a.buffer, a.index, True, THREAD, context)

    def _box(self, access: Access, box: TensorMapParam, context: Context) -> tuple[Expr | None, ...]:
        """The axes in front of those that a box fills, the first of them maybe in part; nothing is known of a box that reaches further."""
        shape = self.shapes[access.buffer]
        left = 1
        for e in box.box:
            left *= e
        for axis in range(len(shape) - 1, -1, -1):
            if left == 1:
                return (*access.index[: axis + 1], *(None for _ in shape[axis + 1 :]))
            extent, at = shape[axis], access.index[axis]
            lo, hi = context.ranges.of(at)
            if isinstance(extent, Const) and left < extent.value and lo is not None and lo >= 0 and hi is not None and hi + left <= extent.value:
                return (*access.index[:axis], *(None for _ in shape[axis:]))
            if not isinstance(extent, Const) or not extent.value or left % extent.value or not (isinstance(at, Const) and at.value == 0):
                return (None,) * len(shape)
            left //= extent.value
        return (None,) * len(shape)

    def _tensor_box(self, node: Node, box: TensorMapParam, coords: tuple[Expr, ...], engine: Engine, *, write: bool, atomic: str = "") -> None:
        if box.tensor not in self.memory:
            return
        spread = node.context
        elements = {k: private(f"element.{k}") for k, extent in enumerate(box.box) if extent > 1}
        for k, element in elements.items():
            spread = spread.with_span(element, (0, box.box[k] - 1))
        index = tuple(c + elements[k] * box.step[k] if k in elements else c for k, c in enumerate(coords))
        self._add(node, box.tensor, index, write, engine, spread, tuple(e.name for e in elements.values()), atomic=atomic)

    def _tile(self, node: Node, d: Descriptor, rows: int, k: int) -> tuple[Expr | None, ...]:
        """The first index of a tile that stays within one value of it."""
        shape = self.shapes[d.base.buffer]
        nothing = (None,) * len(shape)
        if len(shape) < 2:
            return nothing
        span = max(d.swizzle, 1)
        inner = 1
        place: Expr = d.offset
        scale = self.sizes[d.base.buffer]
        for axis in range(len(shape) - 1, 0, -1):
            extent = shape[axis]
            if not isinstance(extent, Const):
                return nothing
            place = place + d.base.index[axis] * (scale * inner)
            inner *= extent.value
        lo, hi = node.context.ranges.of(place)
        # a swizzle moves bytes within aligned spans
        if lo is None or hi is None or lo < 0 or inner * scale % span or hi + tile_bytes(d, rows, k, scale) > inner * scale:
            return nothing
        return (d.base.index[0], *(None for _ in shape[1:]))


def overlapping(tree: StatementTree) -> list[tuple[str, str]]:
    """Pairs of Shared buffers that may have bytes in common; those of clusters never do. A buffer without an offset follows those before it."""
    buffers = [b for b in tree.kernel.buffers if MEDIA[b.memory].is_placed and not MEDIA[b.memory].is_by_rank]
    placed = [b for b in buffers if b.offset is not None]
    if not placed:
        return []
    unknown = [(a.name, b.name) for i, b in enumerate(buffers) if b.offset is not None for a in buffers[:i] if a.offset is None]
    return unknown + _overlapping(tree, placed)


def _overlapping(tree: StatementTree, placed: list[Buffer]) -> list[tuple[str, str]]:
    facts = tree.root.context.facts
    ends: list[Expr] = []
    for b in placed:
        assert b.offset is not None
        ends.append(b.offset + b.bytes_of_block)
    found: list[tuple[str, str]] = []
    offsets = [b.offset for b in placed if b.offset is not None]
    if all(isinstance(e, Const) for e in (*offsets, *ends)):
        rows = [(o.value, e.value, b.name) for o, e, b in zip(offsets, ends, placed, strict=True) if isinstance(o, Const) and isinstance(e, Const)]
        rows.sort()
        for i, (_, end, name) in enumerate(rows):
            for start, _, other in rows[i + 1 :]:
                if start >= end:
                    break
                found.append((name, other))
        return found
    behind = [prove(le(end, offset), facts) for end, offset in zip(ends, offsets[1:], strict=False)]  # each where the one before it ends
    starts = [0, *(k + 1 for k, is_behind in enumerate(behind) if not is_behind)]
    rows = [range(a, b) for a, b in zip(starts, (*starts[1:], len(placed)), strict=True)]
    for k, row in enumerate(rows):
        for other in rows[k + 1 :]:
            low = high = other.start  # of those with bytes of buffer i: both only grow with it
            for i in row:
                while low < other.stop and prove(le(ends[low], offsets[i]), facts):
                    low += 1
                high = max(high, low)
                while high < other.stop and not prove(le(ends[i], offsets[high]), facts):
                    high += 1
                found += [(placed[i].name, placed[j].name) for j in range(low, high)]
    return found
