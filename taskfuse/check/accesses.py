"""What statements touch in memory that threads share.

An access is a set of elements: one expression per axis, over loop variables, thread and block indices, cursors, and *element* symbols that run
over what one instruction moves. An axis without an expression is touched as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from taskfuse.check.program import Context, Node, Program
from taskfuse.ir.scalar import Const, Expr, const, le, not_, prove, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import (
    Access,
    Buffer,
    Choose,
    Compute,
    Descriptor,
    Major,
    Operand,
    StMatrix,
    TensorMapParam,
    TensorParam,
    TmaLoad,
    TmaStore,
    VectorCopy,
    Wgmma,
)

STMATRIX_ROW = 8  # consecutive elements per address
WGMMA_ROWS = 64


class Engine(Enum):
    """Who makes an access: the thread itself, or an engine at a later time."""

    THREAD = "the thread"
    LOAD = "the copy engine"
    STORE = "the copy engine (store)"
    TENSOR = "the tensor core"

    @property
    def is_async(self) -> bool:
        """Made by the asynchronous proxy."""
        return self is not Engine.THREAD


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """An access of a statement to memory that threads share.

    Attributes:
        index: per axis; ``None``: the whole axis.
        context: what holds where it happens.
        span: symbols of ``index`` that run over the elements of the instruction.
        number: position among all accesses of the kernel.
    """

    node: Node
    buffer: str
    memory: MemoryType
    index: tuple[Expr | None, ...]
    is_write: bool
    engine: Engine
    context: Context
    number: int
    span: tuple[str, ...] = ()

    @property
    def is_remote(self) -> bool:
        """True if it also touches Shared memory of other blocks of the cluster."""
        return self.memory is MemoryType.Shared and isinstance(self.node.stmt, TmaLoad) and bool(self.node.stmt.across)

    @property
    def text(self) -> str:
        """The element as text."""
        return f"{self.buffer}[{', '.join('..' if e is None else str(e) for e in self.index)}]"


class Uses:
    """All accesses of a program to Shared memory and to Global memory that the kernel writes."""

    def __init__(self, program: Program) -> None:
        kernel = program.kernel
        self.program = program
        self.shapes: dict[str, tuple[Expr, ...]] = {}
        self.memory: dict[str, MemoryType] = {}
        self.sizes: dict[str, int] = {}
        self.maps = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}
        for p in kernel.params:
            if isinstance(p, TensorParam):
                self.shapes[p.name] = p.shape
                self.sizes[p.name] = p.dtype.itemsize
                if p.is_output:
                    self.memory[p.name] = MemoryType.Global
        for b in kernel.buffers:
            self.shapes[b.name] = b.shape
            self.sizes[b.name] = b.dtype.itemsize
            if b.memory is not MemoryType.Local:
                self.memory[b.name] = b.memory
        self.all: list[Use] = []
        for node in program.leaves():
            self._collect(node)
        self.by_buffer: dict[str, list[Use]] = {}
        for use in self.all:
            self.by_buffer.setdefault(use.buffer, []).append(use)

    def _add(self, node: Node, buffer: str, index: tuple[Expr | None, ...], write: bool, engine: Engine, context: Context, span: tuple[str, ...] = ()) -> None:
        memory = self.memory.get(buffer)
        if memory is not None:
            self.all.append(Use(node, buffer, memory, index, write, engine, context, len(self.all), span))

    def _operand(self, node: Node, operand: Operand, context: Context) -> None:
        if isinstance(operand, Access):
            self._add(node, operand.buffer, operand.index, False, Engine.THREAD, context)

    def _vector(self, node: Node, access: Access, width: int, write: bool) -> None:
        if access.buffer not in self.memory:
            return
        name = f"element.n{node.number}"
        context = node.context
        spread = Context(context.conditions, context.loops, context.ranges.with_span(sym(name), (0, width - 1)), context.role, context.kernel, context, None)
        self._add(node, access.buffer, (*access.index[:-1], access.index[-1] + sym(name)), write, Engine.THREAD, spread, (name,))

    def _collect(self, node: Node) -> None:
        context = node.context
        match node.stmt:
            case Compute(out=out, operands=operands):
                for o in operands:
                    self._operand(node, o, context)
                self._add(node, out.buffer, out.index, True, Engine.THREAD, context)
            case Choose(out=out, cases=cases):
                for k, case in enumerate(cases):
                    if isinstance(case.operand, Access) and case.operand.buffer in self.memory:
                        self._operand(node, case.operand, context.under((*(not_(c.cond) for c in cases[:k]), case.cond)))
                self._add(node, out.buffer, out.index, True, Engine.THREAD, context)
            case VectorCopy(out=out, source=source, width=width):
                self._vector(node, source, width, False)
                self._vector(node, out, width, True)
            case StMatrix(out=out):
                self._vector(node, out, STMATRIX_ROW, True)
            case TmaLoad(out=out, map=name, coords=coords):
                self._tensor_box(node, self.maps[name], coords, Engine.LOAD, write=False)
                self._add(node, out.buffer, self._box(out, self.maps[name], context), True, Engine.LOAD, context)
            case TmaStore(map=name, coords=coords, source=source):
                self._add(node, source.buffer, self._box(source, self.maps[name], context), False, Engine.STORE, context)
                self._tensor_box(node, self.maps[name], coords, Engine.STORE, write=True)
            case Wgmma(a=a, b=b, n=n):
                for descriptor, rows in ((a, WGMMA_ROWS), (b, n)):
                    self._add(node, descriptor.base.buffer, self._tile(node, descriptor, rows), False, Engine.TENSOR, context)
            case _:
                pass

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
            if not isinstance(extent, Const) or left % extent.value or not (isinstance(at, Const) and at.value == 0):
                return (None,) * len(shape)
            left //= extent.value
        return (None,) * len(shape)

    def _tensor_box(self, node: Node, box: TensorMapParam, coords: tuple[Expr, ...], engine: Engine, *, write: bool) -> None:
        if box.tensor not in self.memory:
            return
        context = node.context
        ranges = context.ranges
        names = tuple(f"element.n{node.number}.{k}" for k in range(len(coords)))
        for name, extent in zip(names, box.box, strict=True):
            ranges = ranges.with_span(sym(name), (0, extent - 1))
        spread = Context(context.conditions, context.loops, ranges, context.role, context.kernel, context, None)
        self._add(node, box.tensor, tuple(c + sym(n) for c, n in zip(coords, names, strict=True)), write, engine, spread, names)

    def _tile(self, node: Node, d: Descriptor, rows: int) -> tuple[Expr | None, ...]:
        """The first index of a tile that stays within one value of it."""
        shape = self.shapes[d.base.buffer]
        nothing = (None,) * len(shape)
        if d.major is not Major.K or len(shape) < 2:
            return nothing
        size = (rows // 8 - 1) * d.sbo + (8 * d.swizzle if d.swizzle else d.lbo + 128)
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
        # under a swizzle the lowest bits of the address only move within aligned groups of 8 rows
        if lo is None or hi is None or lo < 0 or hi + size - (d.swizzle - 1 if d.swizzle else 0) > inner * scale:
            return nothing
        return (d.base.index[0], *(None for _ in shape[1:]))


def overlapping(program: Program) -> list[tuple[str, str]]:
    """Pairs of Shared buffers that may have bytes in common. One without an offset lies behind those before it."""
    buffers = [b for b in program.kernel.buffers if b.memory is MemoryType.Shared]
    placed = [b for b in buffers if b.offset is not None]
    if not placed:
        return []
    unknown = [(a.name, b.name) for i, b in enumerate(buffers) if b.offset is not None for a in buffers[:i] if a.offset is None]
    return unknown + _overlapping(program, placed)


def _overlapping(program: Program, placed: list[Buffer]) -> list[tuple[str, str]]:
    facts = program.root.context.facts
    ends: list[Expr] = []
    for b in placed:
        assert b.offset is not None
        ends.append(b.offset + _bytes(b))
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
    chained = all(prove(le(end, offset), facts) for end, offset in zip(ends, offsets[1:], strict=False))
    if chained:
        return []
    for i, one in enumerate(placed):
        for j in range(i + 1, len(placed)):
            if not (prove(le(ends[i], offsets[j]), facts) or prove(le(ends[j], offsets[i]), facts)):
                found.append((one.name, placed[j].name))
    return found


def _bytes(b: Buffer) -> Expr:
    total: Expr = const(b.dtype.itemsize)
    for e in b.shape:
        total = total * e
    return total
