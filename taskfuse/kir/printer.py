"""The text of a kernel: the loop nest. docs/kernel-ir.md has the grammar; :func:`taskfuse.kir.parse_kernel` reads it back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from taskfuse.dtypes import DType, float32
from taskfuse.ir.dims import Dim
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import TRUE, Expr, const
from taskfuse.ir.tables import BY, LENGTHS, RISING
from taskfuse.ir.types import PlaceSearch
from taskfuse.kir.arguments import wanted
from taskfuse.kir.clusters import cluster_threads
from taskfuse.kir.declarations import Argument, Buffer, Dim3, IntegerParam, ScalarParam, Semaphore, TensorMapParam, TensorParam
from taskfuse.kir.forms import FROM, HOLDS, INTEGER, INTO, TF32, KernelKeyword, OptionalPart, Slot, Word, form_of
from taskfuse.kir.kernel import ONE, Kernel
from taskfuse.kir.nodes import Bind, Choose, Compute, For, If, Stmt
from taskfuse.kir.operand_printer import OperandPrinter, definition_text, holds_text, listed
from taskfuse.kir.operands import Access
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.kir.synchronization import Advance, Barrier, BarrierScope, WaitGroup
from taskfuse.kir.walk import Body, held
from taskfuse.location import Quote
from taskfuse.target import WARP

INDENT = "  "
WARP_SIZE = const(WARP)


def to_text(kernel: Kernel, *, witness: bool = False, path: Callable[[str], str] | None = None) -> str:
    """The text of a kernel, without a final newline. Kernels that the verifier rejects can be printed, too.

    Args:
        witness: include the definitions of its tensors, and after each statement its claim.
        path: prints a file's path; if given, each statement is followed by its user's line.
    """
    return "\n".join(layout(kernel, witness=witness, path=path).lines)


def stmt_text(stmt: Stmt, kernel: Kernel) -> Quote:
    """The first line of a statement, as it stands in the text of ``kernel`` (without indentation and comment)."""
    printer = _KernelPrinter(kernel)
    printer.stmt(stmt, 0)
    text = next(line for line in printer.lines if not line.startswith("# ")).split("  # ")[0]
    return Quote(text, stmt.location)


def body_lines(body: Body, kernel: Kernel) -> list[str]:
    """The lines of some statements, as they would stand in the body of ``kernel``."""
    printer = _KernelPrinter(kernel)
    printer.body(body, 0)
    return printer.lines


@dataclass(slots=True)
class LineMap:
    """The lines of a text, and the lines of statements and declarations.

    Attributes:
        statements: line (from 0) of each statement and each branch of an If, numbered in the order of the text; an If has its own number,
            before that of its first branch.
        declarations: line of each declared name, and of ``GRID``.
        definitions: line of each definition.
    """

    lines: list[str] = field(default_factory=lambda: [])
    statements: list[int] = field(default_factory=lambda: [])
    declarations: dict[str, int] = field(default_factory=lambda: {})
    definitions: list[int] = field(default_factory=lambda: [])


def layout(kernel: Kernel, *, witness: bool = False, path: Callable[[str], str] | None = None) -> LineMap:
    """Print a kernel and remember where each statement and declaration is."""
    printer = _KernelPrinter(kernel, witness=witness, path=path)
    printer.header()
    printer.body(kernel.body, 0)
    return LineMap(printer.lines, printer.statements, printer.declarations, printer.definitions)


def block_threads(block: Dim3) -> Expr:
    """The number of threads of a block: how many arrive at a block-wide barrier."""
    return block[0] * block[1] * block[2]


class _KernelPrinter(OperandPrinter):
    def __init__(self, kernel: Kernel, *, witness: bool = False, path: Callable[[str], str] | None = None) -> None:
        super().__init__(frozenset(b.name for b in kernel.buffers if not MEDIA[b.memory].has_addresses))
        self.kernel = kernel
        self.witness = witness
        self.path = path
        self.lines: list[str] = []
        self.statements: list[int] = []
        self.declarations: dict[str, int] = {}
        self.definitions: list[int] = []
        self.dtypes: Mapping[str, DType] = {
            **{p.name: p.dtype for p in kernel.params if isinstance(p, TensorParam)},
            **{b.name: b.dtype for b in kernel.buffers},
        }

    # -- declarations ---------------------------------------------------------------------------------------------------------------

    def declare(self, text: str, names: Iterable[str]) -> None:
        for name in names:
            self.declarations.setdefault(name, len(self.lines))
        self.lines.append(text)

    def header(self) -> None:
        kernel = self.kernel
        arguments, results = wanted(kernel), kernel.outputs
        signature = f"KERNEL {kernel.name}({', '.join(map(_argument, arguments))}) -> ({', '.join(map(_argument, results))})"
        self.declare(signature, (p.name for p in (*arguments, *results)))
        if kernel.extents:
            self.declare(f"{INDENT}DIM {', '.join(map(_extent, kernel.extents))}", (e.name for e in kernel.extents))
        for param in kernel.params:
            match param:
                case TensorMapParam():
                    self.declare(INDENT + tensor_map_text(param), (param.name,))
                case TensorParam() | ScalarParam() | IntegerParam():
                    pass
        launch = f"{INDENT}GRID {_dim3(kernel.grid)}  BLOCK {_dim3(kernel.block)}"
        launch += "" if kernel.cluster == ONE else f"  CLUSTER {_dim3(kernel.cluster)}"
        self.declare(launch if kernel.residents == 1 else f"{launch}  RESIDENT {kernel.residents}", ("GRID",))
        for buffer in kernel.buffers:
            self.declare(INDENT + _buffer(buffer), (buffer.name,))
        if kernel.mbarriers:
            self.declare(f"{INDENT}MBARRIER {', '.join(f'{m.name}[{m.slots}]' for m in kernel.mbarriers)}", (m.name for m in kernel.mbarriers))
        if kernel.counters:
            self.declare(f"{INDENT}COUNTER {', '.join(c.name for c in kernel.counters)}", (c.name for c in kernel.counters))
        if kernel.semaphores:
            self.declare(f"{INDENT}SEMAPHORE {', '.join(map(_semaphore, kernel.semaphores))}", (s.name for s in kernel.semaphores))
        if kernel.queues:
            self.declare(f"{INDENT}QUEUE {', '.join(f'{q.name}[{q.size}]' for q in kernel.queues)}", (q.name for q in kernel.queues))
        if self.witness:
            for d in kernel.definitions:
                self.definitions.append(len(self.lines))
                self.lines.append(f"{INDENT}{definition_text(d)}")
            for d in kernel.written:
                self.definitions.append(len(self.lines))
                self.lines.append(f"{INDENT}{definition_text(d, KernelKeyword.WRITTEN)}")
        if kernel.body:
            self.lines.append("")

    # -- statements -----------------------------------------------------------------------------------------------------------------

    def body(self, body: Body, depth: int) -> None:
        for stmt in body:
            self.stmt(stmt, depth)

    def nested(self, head: str, body: Body, depth: int) -> None:
        self.lines.append(INDENT * depth + head)
        if body:
            self.body(body, depth + 1)
        else:
            self.lines.append(f"{INDENT * (depth + 1)}PASS")

    def place(self, stmt: Stmt) -> str:
        """The location at the end of a statement's line. It contains no ``#``, which begins a comment."""
        if self.path is None or stmt.location is None:
            return ""
        file = json.dumps(self.path(stmt.location.file))
        return f"  {FROM} {file}:{stmt.location.place}"

    def stmt(self, stmt: Stmt, depth: int) -> None:
        self.statements.append(len(self.lines))
        place = self.place(stmt)
        match stmt:
            case For():
                step = "" if stmt.step is const(1) else f" step {stmt.step}"
                unroll = " UNROLL" if stmt.unroll else ""
                queue = "" if stmt.queue is None else f" of {stmt.queue}"
                self.nested(f"FOR {stmt.var} in {stmt.start}..{stmt.stop}{step}{queue}{unroll}:{place}", stmt.body, depth)
            case Bind():
                self.nested(f"FOR {stmt.index} in {stmt.ptype.value}{{{stmt.extent}}}:{place}", stmt.body, depth)
            case If():
                if stmt.note:
                    self.lines.append(f"{INDENT * depth}# {stmt.note}")
                for i, branch in enumerate(stmt.branches):
                    self.statements.append(len(self.lines))
                    otherwise = 0 < i == len(stmt.branches) - 1 and branch.cond is TRUE
                    head = "ELSE:" if otherwise else f"{'ELSE ' if i else ''}IF {branch.cond}:{'' if i else place}"
                    self.nested(head if branch.label is None else f"{head}  # {branch.label}", branch.body, depth)
            case Barrier():
                text = self.barrier(stmt) + place
                self.lines.append(INDENT * depth + (f"{text}  # {stmt.note}" if stmt.note else text))
            case _:
                holds = held(stmt) if self.witness else None
                self.lines.append(INDENT * depth + self.simple(stmt) + ("" if holds is None else f"  {HOLDS} {holds_text(holds)}") + place)

    def barrier(self, stmt: Barrier) -> str:
        match stmt.scope:
            case BarrierScope.BLOCK:
                return "SYNC block" if stmt.threads is block_threads(self.kernel.block) else f"SYNC block {stmt.threads}"
            case BarrierScope.WARP:
                return "SYNC warp" if stmt.threads is WARP_SIZE else f"SYNC warp {stmt.threads}"
            case BarrierScope.NAMED:
                return f"SYNC named {stmt.id}, {stmt.threads}"
            case BarrierScope.CLUSTER:
                return "SYNC cluster" if stmt.threads is cluster_threads(self.kernel.block, self.kernel.cluster) else f"SYNC cluster {stmt.threads}"
            case BarrierScope.GRID:
                return f"SYNC grid {stmt.counter}, {stmt.threads}"

    def simple(self, stmt: Stmt) -> str:
        """The one line of a statement that holds no others."""
        match stmt:
            case Compute():
                return f"{self.access(stmt.out)} = {self.computation(stmt.op, stmt.operands, stmt.dtype, self.dtypes.get(stmt.out.buffer))}"
            case Choose():
                return f"{self.access(stmt.out)} = {stmt.label}({self.cases(stmt.cases, self.dtypes.get(stmt.out.buffer))})"
            case Advance():
                return f"{stmt.cursor}.advance({stmt.count})"
            case WaitGroup():
                return f"WAIT_GROUP {stmt.queue.value}{'.read' if stmt.read_only else ''} <= {stmt.pending}"
            case Wgmma():
                a = self.access(stmt.a) if isinstance(stmt.a, Access) else self.descriptor(stmt.a)
                operands = f"{self.access(stmt.acc)}, {a}, {self.descriptor(stmt.b)}"
                return f"WGMMA.m64n{stmt.n}k{stmt.k}.{_multiplied(stmt)} {operands}, accumulate {stmt.accumulate}"
            case Mma():
                shape = ".".join((f"m{stmt.m}n8k{stmt.k}", *(layout.value for layout in stmt.layouts or ())))
                return f"MMA.{shape}.{_multiplied(stmt)} {self.access(stmt.acc)}, {self.access(stmt.a)}, {self.access(stmt.b)}"
            case LdMatrix():
                return f"LDMATRIX{_matrices(stmt)} {self.access(stmt.out)} <- {self.access(stmt.source)}"
            case StMatrix():
                return f"STMATRIX{_matrices(stmt)} {self.access(stmt.out)} <- {self.access(stmt.source)}"
            case _:
                return self.formed(stmt)

    def formed(self, stmt: Stmt) -> str:
        """A statement by the form of its class."""
        form = form_of(type(stmt))
        assert form is not None, f"{type(stmt).__name__} has no form and no printer"
        values, text = self.values, ""
        for piece in form.pieces:
            if type(piece) is Word:
                text += piece.text
            elif type(piece) is Slot:
                text += values[piece.type](getattr(stmt, piece.name))
            elif type(piece) is OptionalPart and (value := getattr(stmt, piece.slot.name)) != piece.default:
                text += piece.word.text + values[piece.slot.type](value)
        return text


def _multiplied(stmt: Wgmma | Mma) -> str:
    """The operand types of a matrix product, B's where it differs; all three where that of the sums is not the widest."""
    sums = stmt.sums if isinstance(stmt, Mma) else None
    types = (stmt.dtype, stmt.b_dtype) if sums is None else (*stmt.factors, sums)
    return ".".join(TF32 if d is float32 else d.name for d in types if d is not None)


def _matrices(stmt: LdMatrix | StMatrix) -> str:
    """What is left out means four matrices, by rows."""
    return ("" if stmt.matrices == 4 else f".x{stmt.matrices}") + (".trans" if stmt.transpose else "")


def tensor_map_text(param: TensorMapParam) -> str:
    """The declaration of a tensor map."""
    steps = f" step ({', '.join(map(str, param.steps))})" if param.steps else ""
    return f"TENSORMAP {param.name} = {param.tensor} box ({', '.join(map(str, param.box))}){steps} swizzle {param.swizzle}"


def _argument(param: Argument) -> str:
    match param:
        case TensorParam():
            into = "" if param.into is None else f" {INTO} {param.into}"
            rises = "" if param.rises is None else f" {RISING} {param.rises[0]}..{param.rises[1]}"
            lengths = "" if param.lengths is None else f" {LENGTHS} of {param.lengths}"
            search = "" if param.search is PlaceSearch.BISECTION else f" {BY} {param.search.value}"
            holds = "" if param.holds is None else f" = {param.holds}"
            return f"{param.name}: {param.dtype}[{listed(param.shape)}]{into}{rises}{lengths}{search}{holds}"
        case ScalarParam():
            return f"{param.name}: {param.dtype}"
        case IntegerParam():
            return f"{param.name}: {INTEGER}"


def _extent(extent: Dim) -> str:
    text = extent.name
    if extent.multiple_of != 1:
        text += f" multiple_of {extent.multiple_of}"
    if extent.min != 0:
        text += f" min {extent.min}"
    return text if extent.limit is None else f"{text} max {extent.limit}"


def _buffer(buffer: Buffer) -> str:
    text = f"{MEDIA[buffer.memory].keyword} {buffer.name}: {buffer.dtype}[{listed(buffer.shape)}]"
    if MEDIA[buffer.memory].is_placed or buffer.align != buffer.dtype.itemsize:
        text += f" align {buffer.align}"
    return text if buffer.offset is None else f"{text} @ {buffer.offset}"


def _semaphore(semaphore: Semaphore) -> str:
    return f"{semaphore.name}[{listed(semaphore.shape)}] count {semaphore.count}"


def _dim3(dim: Dim3) -> str:
    return f"({listed(dim)})"
