"""The parser of kernel text: header and declarations here, definitions in :mod:`taskfuse.kir.witness_parser`, statements in
:mod:`taskfuse.kir.statement_parser`. Grammar: docs/kernel-ir.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from taskfuse.ir.dims import Dim
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, Expr, Token
from taskfuse.ir.signatures import checked_first
from taskfuse.ir.tables import BY, LENGTHS, RISING, SEARCHES
from taskfuse.ir.types import MemoryType, PlaceSearch
from taskfuse.kir.declarations import (
    Argument,
    Buffer,
    Counter,
    Dim3,
    IntegerParam,
    Mbarrier,
    Param,
    ScalarParam,
    Semaphore,
    TensorMapParam,
    TensorParam,
    WorkQueue,
)
from taskfuse.kir.forms import INTEGER, INTO, KernelKeyword
from taskfuse.kir.kernel import ONE, Kernel
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operand_parser import DeclaredNames, KernelReader, known
from taskfuse.kir.statement_parser import StatementParser
from taskfuse.kir.witness import Definition
from taskfuse.kir.witness_parser import WitnessParser

T = TypeVar("T")
MEMORIES = {medium.keyword: memory for memory, medium in MEDIA.items()}


@checked_first
def parse_kernel(text: str, file: str | None = None) -> Kernel:
    """The kernel that ``text`` denotes. Comments are dropped, except labels of branches, and notes of barriers and branches.

    Args:
        file: the file of the text; a statement without a location gets its line in this file.

    Raises:
        ParseError: the text is not in the grammar, or names an op, dtype, buffer, mbarrier, tensor map, scalar, counter, semaphore or defined tensor
            that does not exist.
    """
    reader = KernelReader(text)
    parser, (_, block, cluster, _) = _declared(reader)
    names = DeclaredNames.of(parser.params, parser.buffers, parser.mbarriers, parser.counters, parser.semaphores, block, cluster)
    inputs = [p for p in parser.params if isinstance(p, TensorParam) and not p.is_output]
    witness = WitnessParser(reader, names, inputs)
    while parser.declares(KernelKeyword.DEFINE):
        witness.definition()
        reader.end_line()
    written = WitnessParser(reader, names, inputs)
    while parser.declares(KernelKeyword.WRITTEN):
        written.definition()
        reader.end_line()
    body = StatementParser(reader, names, witness, file).block(parser.column)
    if reader.token.text:
        raise reader.token.error("the indentation matches no enclosing block")
    return parser.kernel(body, tuple(witness.definitions), tuple(written.definitions))


def parse_head(text: str) -> Kernel:
    """The signature, the extents, the tensor maps and the launch shape of a printed kernel, as a kernel without memory, barriers and a body: all that a launch
    needs, much faster than :func:`parse_kernel`.

    Raises:
        ParseError: as for :func:`parse_kernel`.
    """
    launch = text.find(f"\n  {KernelKeyword.GRID.value} ")  # what memory there is, and which barriers, comes after it
    end = text.find("\n", launch + 1) if launch >= 0 else -1
    return _declared(KernelReader(text[:end] if end >= 0 else text))[0].kernel((), ())


def _declared(reader: KernelReader) -> tuple[_Header, tuple[Dim3, Dim3, Dim3, int]]:
    """The header, read, and the launch shape."""
    parser = _Header(reader)
    parser.signature()
    parser.declarations()
    if parser.launch is None:
        raise reader.fail("GRID and BLOCK")
    return parser, parser.launch


class _Header:
    """The signature and the declarations, as read so far."""

    def __init__(self, reader: KernelReader) -> None:
        self.reader = reader
        self.column = reader.token.column
        self.name = ""
        self.extents: list[Dim] = []
        self.params: list[Param] = []
        self.buffers: list[Buffer] = []
        self.mbarriers: list[Mbarrier] = []
        self.counters: list[Counter] = []
        self.semaphores: list[Semaphore] = []
        self.queues: list[WorkQueue] = []
        self.launch: tuple[Dim3, Dim3, Dim3, int] | None = None

    def kernel(self, body: tuple[Stmt, ...], definitions: tuple[Definition, ...], written: tuple[Definition, ...] = ()) -> Kernel:
        """The kernel of this header."""
        assert self.launch is not None
        grid, block, cluster, residents = self.launch
        return Kernel(
            name=self.name,
            extents=tuple(self.extents),
            params=tuple(self.params),
            grid=grid,
            block=block,
            buffers=tuple(self.buffers),
            mbarriers=tuple(self.mbarriers),
            counters=tuple(self.counters),
            body=body,
            cluster=cluster,
            semaphores=tuple(self.semaphores),
            queues=tuple(self.queues),
            residents=residents,
            definitions=definitions,
            written=written,
        )

    def signature(self) -> None:
        reader = self.reader
        reader.expect(KernelKeyword.KERNEL.value)
        self.name = reader.name("the kernel's name")
        reader.expect("(")
        self.params += reader.sequence(self.argument, ")")
        reader.expect("->")
        reader.expect("(")
        self.params += reader.sequence(self.result, ")")
        reader.end_line()

    def argument(self) -> Argument:
        reader = self.reader
        name = reader.name("an argument")
        reader.expect(":")
        if reader.take(INTEGER):
            return IntegerParam(name)
        dtype = reader.dtype()
        if not reader.at("["):
            return ScalarParam(name, dtype)
        shape = reader.expressions("[", "]")
        rises = self.ends() if reader.take(RISING) else None
        lengths = self.total() if reader.take(LENGTHS) else None
        search = self.search() if reader.take(BY) else PlaceSearch.BISECTION
        holds = reader.expression() if reader.take("=") else None
        return TensorParam(name, dtype, shape, is_output=False, rises=rises, search=search, holds=holds, lengths=lengths)

    def total(self) -> Expr:
        self.reader.expect("of")
        return self.reader.expression()

    def search(self) -> PlaceSearch:
        token = self.reader.word("a kind of search")
        return known(token, token.text, SEARCHES, "kind of search")

    def ends(self) -> tuple[Expr, Expr]:
        low = self.reader.expression()
        self.reader.expect("..")
        return low, self.reader.expression()

    def result(self) -> TensorParam:
        reader = self.reader
        name = reader.name("a result")
        reader.expect(":")
        dtype = reader.dtype()
        shape = reader.expressions("[", "]")
        return TensorParam(name, dtype, shape, is_output=True, into=reader.name("an argument") if reader.take(INTO) else None)

    def declarations(self) -> None:
        reader = self.reader
        while True:
            start = reader.token
            match reader.keyword():
                case KernelKeyword.DIM:
                    reader.advance()
                    self.extents += self.line(self.extent)
                case KernelKeyword.TENSORMAP:
                    reader.advance()
                    self.params.append(self.tensor_map())
                case KernelKeyword.GRID:
                    if self.launch is not None:
                        raise start.error("the launch shape is given twice")
                    self.launch = self.launch_shape()
                case KernelKeyword.LOCAL | KernelKeyword.SHARED | KernelKeyword.CLUSTER | KernelKeyword.GLOBAL as keyword:
                    self.buffers.append(self.buffer(MEMORIES[keyword.value]))
                case KernelKeyword.MBARRIER:
                    reader.advance()
                    self.mbarriers += self.line(self.mbarrier)
                case KernelKeyword.COUNTER:
                    reader.advance()
                    self.counters += self.line(lambda: Counter(reader.name("a counter")))
                case KernelKeyword.SEMAPHORE:
                    reader.advance()
                    self.semaphores += self.line(self.semaphore)
                case KernelKeyword.QUEUE:
                    reader.advance()
                    self.queues += self.line(self.queue)
                case _:
                    return
            self.indented(start)
            reader.end_line()

    def indented(self, start: Token) -> None:
        """Raises :class:`ParseError` unless a declaration stands where one may."""
        if start.column <= self.column:
            raise start.error(f"a declaration is indented below {KernelKeyword.KERNEL.value}")

    def declares(self, keyword: KernelKeyword) -> bool:
        """True if a line of this kind follows."""
        if self.reader.keyword() is not keyword:
            return False
        self.indented(self.reader.token)
        return True

    def line(self, item: Callable[[], T]) -> list[T]:
        """Items between commas, up to the end of the line."""
        items = [item()]
        while self.reader.take(","):
            items.append(item())
        return items

    def extent(self) -> Dim:
        reader = self.reader
        name = reader.name("an extent")
        low, high, multiple = 0, None, 1
        bound: Expr | None = None
        while True:
            if reader.take("min"):
                low = reader.integer()
            elif reader.take("max"):
                limit = reader.expression()
                high, bound = (limit.value, None) if isinstance(limit, Const) else (None, limit)
            elif reader.take("multiple_of"):
                multiple = reader.integer()
            else:
                return Dim(name, low, high, multiple, bound)

    def tensor_map(self) -> TensorMapParam:
        reader = self.reader
        name = reader.name("a tensor map")
        reader.expect("=")
        tensor = reader.name("a tensor argument")
        reader.expect("box")
        reader.expect("(")
        box = reader.sequence(reader.integer, ")")
        steps: tuple[int, ...] = ()
        if reader.take("step"):
            reader.expect("(")
            steps = reader.sequence(reader.integer, ")")
        return TensorMapParam(name, tensor, box, reader.number("swizzle"), steps)

    def launch_shape(self) -> tuple[Dim3, Dim3, Dim3, int]:
        reader = self.reader
        reader.expect(KernelKeyword.GRID.value)
        grid = self.dim3()
        reader.expect(KernelKeyword.BLOCK.value)
        block = self.dim3()
        cluster = self.dim3() if reader.take(KernelKeyword.CLUSTER.value) else ONE
        return grid, block, cluster, reader.integer() if reader.take(KernelKeyword.RESIDENT.value) else 1

    def dim3(self) -> Dim3:
        start = self.reader.token
        found = self.reader.expressions("(", ")")
        if len(found) != 3:
            raise start.error(f"a launch shape has 3 extents, not {len(found)}")
        return found[0], found[1], found[2]

    def buffer(self, memory: MemoryType) -> Buffer:
        reader = self.reader
        reader.advance()
        name = reader.name("a buffer")
        reader.expect(":")
        dtype = reader.dtype()
        shape = reader.expressions("[", "]")
        align = reader.integer() if reader.take("align") else dtype.itemsize
        return Buffer(name, dtype, memory, shape, align, reader.expression() if reader.take("@") else None)

    def mbarrier(self) -> Mbarrier:
        reader = self.reader
        name = reader.name("an mbarrier")
        reader.expect("[")
        slots = reader.integer()
        reader.expect("]")
        return Mbarrier(name, slots)

    def queue(self) -> WorkQueue:
        reader = self.reader
        name = reader.name("a queue")
        reader.expect("[")
        size = reader.expression()
        reader.expect("]")
        return WorkQueue(name, size)

    def semaphore(self) -> Semaphore:
        reader = self.reader
        name = reader.name("a semaphore")
        shape = reader.expressions("[", "]")
        reader.expect("count")
        return Semaphore(name, shape, reader.expression())
