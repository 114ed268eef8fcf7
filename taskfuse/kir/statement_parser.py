"""The statements of kernel text. A statement is a line; what belongs to a loop or a branch is indented below it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from taskfuse.ir.scalar import TRUE, Expr, Sym, Token, TokenKind, const
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.kir.matrix_parser import MatrixParser
from taskfuse.kir.nodes import (
    Access,
    Acquire,
    Advance,
    Arrive,
    ArriveAsync,
    AsyncCopy,
    Barrier,
    BarrierScope,
    Bind,
    Branch,
    Choose,
    Commit,
    Compute,
    CursorInit,
    Expect,
    FenceInit,
    FenceProxyAsync,
    For,
    Found,
    Gather,
    If,
    InitBarrier,
    Queue,
    Release,
    Retire,
    SetMaxNReg,
    Shuffle,
    Stmt,
    TmaLoad,
    TmaStore,
    VectorCopy,
    Wait,
    WgmmaFence,
)
from taskfuse.kir.operand_parser import Names, operation
from taskfuse.kir.printer import WARP_SIZE
from taskfuse.kir.reader import Reader, known
from taskfuse.kir.witness_parser import WitnessParser
from taskfuse.kir.words import ACROSS, FROM, HOLDS, Keyword
from taskfuse.location import Location

INDEX_TYPES = {p.value: p for p in ParallelType}
SCOPES = {s.value: s for s in BarrierScope}
QUEUES = {q.value: q for q in Queue}
FENCES = {
    "mbarrier_init": FenceInit(),
    "wgmma": WgmmaFence(),
    "proxy.async": FenceProxyAsync(),
    "proxy.async.global": FenceProxyAsync(MemoryType.Global),
}
READ_ONLY = ".read"
ASYNC = ".async"
ADVANCE = ".advance"


class StatementParser(MatrixParser):
    """Recursive descent over the lines; one method per statement."""

    def __init__(self, reader: Reader, names: Names, witness: WitnessParser, file: str | None = None) -> None:
        super().__init__(reader, names)
        self.witness = witness
        self.file = file
        self.statements: dict[Keyword, Callable[[], Stmt]] = {
            Keyword.COPY: self.copy,
            Keyword.GATHER: self.gather,
            Keyword.INIT: self.init_barrier,
            Keyword.FENCE: self.fence,
            Keyword.ARRIVE: self.arrive,
            Keyword.EXPECT: self.expect_bytes,
            Keyword.WAIT: self.wait,
            Keyword.RELEASE: self.release,
            Keyword.ACQUIRE: self.acquire,
            Keyword.TMA: self.tma,
            Keyword.COMMIT: self.commit,
            Keyword.RETIRE: self.retire,
            Keyword.WGMMA: self.wgmma,
            Keyword.MMA: self.mma,
            Keyword.LDMATRIX: self.ld_matrix,
            Keyword.STMATRIX: self.st_matrix,
            Keyword.SHUFFLE: self.shuffle,
            Keyword.SETMAXNREG: self.set_max_n_reg,
        }

    # -- lines ----------------------------------------------------------------------------------------------------------------------

    def block(self, column: int) -> tuple[Stmt, ...]:
        """The statements that begin in ``column``, up to a line that begins before it."""
        reader = self.reader
        found: list[Stmt] = []
        while reader.token.kind is not TokenKind.END and reader.token.column >= column:
            if reader.token.column > column:
                raise reader.token.error("the indentation matches no enclosing block")
            if reader.take(Keyword.PASS.value):
                reader.end_line()
            else:
                found.append(self.statement(column))
        return tuple(found)

    def nested(self, column: int) -> tuple[Stmt, ...]:
        """The block below a line that began in ``column``."""
        token = self.reader.token
        if token.kind is TokenKind.END or token.column <= column:
            raise token.error(f"expected an indented block, or {Keyword.PASS.value}")
        return self.block(token.column)

    def statement(self, column: int) -> Stmt:
        reader = self.reader
        token = reader.token
        keyword = reader.keyword()
        match keyword:
            case Keyword.FOR:
                return self.loop(column)
            case Keyword.IF:
                return self.branches(column)
            case Keyword.ELSE:
                raise token.error("ELSE without IF")
            case Keyword.SYNC:
                return self.sync()
            case None:
                stmt = self.assignment()
            case _ if keyword in self.statements:
                stmt = self.statements[keyword]()
            case _:
                raise token.error(f"{keyword.value} begins no statement")
        if reader.at(HOLDS):
            stmt = self.witness.held(stmt)
        location = self.location(token)
        reader.end_line()
        return stmt if location is None else replace(stmt, location=location)

    def location(self, start: Token) -> Location | None:
        """Where a statement says that it comes from; else where its own text begins, if that is known."""
        reader = self.reader
        if not reader.take(FROM):
            return None if self.file is None else Location(self.file, start.line, start.column - 1)
        file = reader.string("a file")
        reader.expect(":")
        line = reader.integer()
        return Location(file, line, reader.integer() - 1 if reader.take(":") else None)

    def loop(self, column: int) -> For | Bind:
        reader = self.reader
        word = reader.advance()
        start = reader.token
        index = reader.expression()
        reader.expect("in")
        ptype = INDEX_TYPES.get(reader.token.text)
        if ptype is not None and reader.tokens[reader.position + 1].text == "{":
            reader.advance()
            reader.advance()
            extent = reader.expression()
            reader.expect("}")
            location, _ = self.head(word)
            return Bind(index, ptype, extent, self.nested(column), location=location)
        if not isinstance(index, Sym):
            raise start.error(f"the loop variable {index} is not a name")
        first = reader.expression()
        reader.expect("..")
        stop = reader.expression()
        step = reader.expression() if reader.take("step") else const(1)
        unroll = reader.take(Keyword.UNROLL.value)
        location, _ = self.head(word)
        return For(index.name, first, stop, step, unroll, self.nested(column), location=location)

    def head(self, start: Token) -> tuple[Location | None, str | None]:
        """The end of a line that has a block below it; gives where it comes from, and its comment."""
        self.reader.expect(":")
        return self.location(start), self.reader.end_line()

    def branches(self, column: int) -> If:
        reader = self.reader
        found: list[Branch] = []
        places: list[Location | None] = []
        while True:
            start, cond = reader.token, TRUE
            if reader.take(Keyword.IF.value):
                cond, is_last = reader.expression(), False
            else:
                is_last = True
            place, label = self.head(start)
            places.append(place)
            found.append(Branch(cond, self.nested(column), label))
            if is_last or reader.token.column != column or not reader.take(Keyword.ELSE.value):
                return If(tuple(found), location=places[0])

    def sync(self) -> Barrier:
        reader = self.reader
        start = reader.advance()
        token = reader.word("the scope of a barrier")
        scope = known(token, token.text, SCOPES, "barrier scope")
        number, counter = None, None
        match scope:
            case BarrierScope.BLOCK:
                threads = self.names.threads if reader.at_line_end() or reader.at(FROM) else reader.expression()
            case BarrierScope.WARP:
                threads = WARP_SIZE if reader.at_line_end() or reader.at(FROM) else reader.expression()
            case BarrierScope.NAMED:
                number = reader.expression()
                reader.expect(",")
                threads = reader.expression()
            case BarrierScope.CLUSTER:
                threads = self.names.cluster_threads if reader.at_line_end() or reader.at(FROM) else reader.expression()
            case BarrierScope.GRID:
                token = reader.word("a counter")
                counter = known(token, token.text, self.names.counters, "counter").name
                reader.expect(",")
                threads = reader.expression()
        location = self.location(start)
        return Barrier(scope, threads, number, counter, reader.end_line() or "", location=location)

    # -- assignments ----------------------------------------------------------------------------------------------------------------

    def assignment(self) -> Stmt:
        """``buffer[...] = op(...)``, ``cursor = CURSOR(...)``, ``cursor.advance(n)``."""
        reader = self.reader
        token = reader.token
        follows = reader.tokens[min(reader.position + 1, len(reader.tokens) - 1)].text
        if token.kind is TokenKind.NAME and follows == "(" and token.text.endswith(ADVANCE):
            return self.advance_cursor()
        if token.kind is TokenKind.NAME and follows not in ("=", "["):
            raise token.error(f"'{token.text}' begins no statement")
        if follows == "=" and reader.tokens[reader.position + 2].text == Keyword.CURSOR.value:
            return self.cursor()
        out = self.access()
        reader.expect("=")
        return self.computation(out)

    def advance_cursor(self) -> Advance:
        reader = self.reader
        name = reader.advance().text.removesuffix(ADVANCE)
        reader.expect("(")
        count = reader.expression()
        reader.expect(")")
        return Advance(name, count)

    def cursor(self) -> CursorInit:
        reader = self.reader
        name = reader.name("a cursor")
        reader.expect("=")
        reader.advance()
        reader.expect("(")
        slots = reader.number("slots")
        reader.expect(",")
        slot = reader.number("slot")
        reader.expect(",")
        parity = reader.number("parity")
        reader.expect(")")
        return CursorInit(name, slots, slot, parity)

    def computation(self, out: Access) -> Compute | Choose:
        reader = self.reader
        stored = self.names.storage[out.buffer].dtype
        token = reader.word("an operation")
        reader.expect("(")
        if self.is_choice():
            return Choose(out, token.text, self.cases(stored))
        op, dtype = operation(token, stored)
        return Compute(out, op, self.operands(dtype), dtype)

    def is_choice(self) -> bool:
        """True if the operands up to the closing parenthesis have conditions."""
        depth = 1
        for token in self.reader.tokens[self.reader.position :]:
            match token.text:
                case "(" | "[":
                    depth += 1
                case ")" | "]":
                    depth -= 1
                    if depth == 0:
                        return False
                case "if" | "otherwise" if depth == 1:
                    return True
                case _:
                    pass
        return False

    # -- instructions ---------------------------------------------------------------------------------------------------------------

    def copy(self) -> VectorCopy | AsyncCopy:
        is_async = self.is_async(Keyword.COPY)
        out, source = self.transfer()
        width = self.reader.number("width")
        if not is_async:
            return VectorCopy(out, source, width)
        return AsyncCopy(out, source, width, self.reader.expression() if self.reader.take("if") else TRUE)

    def gather(self) -> Gather:
        out, source = self.transfer()
        width = self.reader.number("width") if self.reader.at("width") else 1
        self.reader.expect("at")
        values = [self.found()]
        while self.reader.take(","):
            values.append(self.found())
        return Gather(out, source, tuple(values), width)

    def found(self) -> Found:
        """A symbol and the value that it is."""
        symbol = self.reader.name("a symbol")
        self.reader.expect("=")
        source = self.access()
        self.reader.expect("of")
        return Found(symbol, source, self.reader.expression())

    def is_async(self, keyword: Keyword) -> bool:
        """True if the next token is ``keyword`` with ``.async``."""
        token = self.reader.token
        suffix = token.text.removeprefix(keyword.value)
        if suffix not in ("", ASYNC):
            raise token.error(f"expected {keyword.value} or {keyword.value}{ASYNC}, found {token}")
        return suffix == ASYNC

    def init_barrier(self) -> InitBarrier:
        self.reader.advance()
        slot = self.slot()
        self.reader.expect("count")
        return InitBarrier(slot, self.reader.expression())

    def fence(self) -> FenceInit | WgmmaFence | FenceProxyAsync:
        self.reader.advance()
        token = self.reader.word("what is fenced")
        return known(token, token.text, FENCES, "fence")

    def arrive(self) -> Arrive | ArriveAsync:
        is_async = self.is_async(Keyword.ARRIVE)
        self.reader.advance()
        return ArriveAsync(self.slot()) if is_async else Arrive(self.slot(), self.across())

    def across(self) -> tuple[ParallelType, ...]:
        """``across CIDx, CIDy``: index types, or nothing."""
        reader = self.reader
        found: list[ParallelType] = []
        while reader.take("," if found else ACROSS):
            token = reader.word("a cluster type")
            found.append(known(token, token.text, INDEX_TYPES, "cluster type"))
        return tuple(found)

    def expect_bytes(self) -> Expect:
        self.reader.advance()
        slot = self.slot()
        self.reader.expect("bytes")
        return Expect(slot, self.reader.expression())

    def wait(self) -> Wait:
        self.reader.advance()
        slot = self.slot()
        self.reader.expect("parity")
        return Wait(slot, self.reader.expression())

    def release(self) -> Release:
        self.reader.advance()
        return Release(self.semaphore())

    def acquire(self) -> Acquire:
        self.reader.advance()
        slot = self.semaphore()
        self.reader.expect("phases")
        return Acquire(slot, self.reader.expression())

    def tma(self) -> TmaLoad | TmaStore:
        reader = self.reader
        reader.advance()
        if reader.tokens[reader.position + 1].text == "(":
            name, coords = self.box()
            self.arrow()
            return TmaStore(name, coords, self.access())
        out = self.access()
        self.arrow()
        name, coords = self.box()
        reader.expect("on")
        return TmaLoad(out, name, coords, self.slot(), self.across())

    def box(self) -> tuple[str, tuple[Expr, ...]]:
        """``map(coordinates)``."""
        token = self.reader.word("a tensor map")
        name = known(token, token.text, self.names.maps, "tensor map").name
        return name, self.reader.expressions("(", ")")

    def commit(self) -> Commit:
        self.reader.advance()
        token = self.reader.word("a queue")
        return Commit(known(token, token.text, QUEUES, "queue"))

    def retire(self) -> Retire:
        reader = self.reader
        reader.advance()
        token = reader.word("a queue")
        queue = known(token, token.text.removesuffix(READ_ONLY), QUEUES, "queue")
        reader.expect("<=")
        return Retire(queue, reader.integer(), read_only=token.text.endswith(READ_ONLY))

    def shuffle(self) -> Shuffle:
        out, source = self.transfer()
        return Shuffle(out, source, self.reader.number("xor"))

    def set_max_n_reg(self) -> SetMaxNReg:
        self.reader.advance()
        return SetMaxNReg(self.reader.integer())
