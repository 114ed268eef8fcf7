"""The statements of kernel text. A statement is a line; the body of a loop or a branch is indented below it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from taskfuse.dtypes import DTYPES, DType, float32
from taskfuse.ir.matrix_instructions import OperandLayout
from taskfuse.ir.scalar import TRUE, Sym, Token, TokenKind, const
from taskfuse.kir.forms import FORMS, FROM, HOLDS, STATEMENT_WORDS, TF32, KernelKeyword, OptionalPart, Slot, StatementForm, Word
from taskfuse.kir.nodes import Bind, Branch, Choose, Compute, For, If, Stmt, TmaLoad, TmaStore
from taskfuse.kir.operand_parser import INDEX_TYPES, QUEUES, DeclaredNames, KernelReader, OperandParser, known, operation
from taskfuse.kir.operand_printer import FENCED
from taskfuse.kir.operands import Access
from taskfuse.kir.printer import WARP_SIZE
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.kir.synchronization import Advance, Barrier, BarrierScope, CursorInit, FenceProxyAsync, WaitGroup
from taskfuse.kir.witness_parser import WitnessParser
from taskfuse.location import Location

SCOPES = {s.value: s for s in BarrierScope}
# A statement that has a form begins with a word of its own, but for fences, which the next word tells apart, and bulk copies.
FORMED = {word: tuple(form for form in FORMS if form.keyword == word) for word in STATEMENT_WORDS}
FENCES: dict[str, Stmt] = {
    **{" ".join(form.words[1:]): form.made({}) for form in FORMED[KernelKeyword.FENCE.value] if len(form.pieces) == 1},
    **{text: FenceProxyAsync(memory) for memory, text in FENCED.items()},
}
WGMMA_SHAPE = re.compile(r"WGMMA\.m64n(\d+)k(\d+)\.(\w+)(?:\.(\w+))?")
MMA_SHAPE = re.compile(r"MMA\.m(16|8)n8k(\d+)(?:\.(row|col)\.(row|col))?\.(\w+)(?:\.(\w+)(?:\.(\w+))?)?")
MATRICES = re.compile(r"(?:LD|ST)MATRIX(?:\.x([124]))?(\.trans)?")
OPERAND_TYPES = DTYPES | {TF32: float32}
READ_ONLY = ".read"
ADVANCE = ".advance"
TMA_LOAD, TMA_STORE, CURSOR = (next(form for form in FORMS if form.statement is kind) for kind in (TmaLoad, TmaStore, CursorInit))


class StatementParser(OperandParser):
    """Recursive descent over the lines; one method per statement."""

    def __init__(self, reader: KernelReader, names: DeclaredNames, witness: WitnessParser, file: str | None = None) -> None:
        super().__init__(reader, names)
        self.witness = witness
        self.file = file
        self.statements: dict[KernelKeyword, Callable[[], Stmt]] = {
            KernelKeyword.FENCE: self.fence,
            KernelKeyword.TMA: self.tma,
            KernelKeyword.WAIT_GROUP: self.wait_group,
            KernelKeyword.WGMMA: self.wgmma,
            KernelKeyword.MMA: self.mma,
            KernelKeyword.LDMATRIX: self.ld_matrix,
            KernelKeyword.STMATRIX: self.st_matrix,
        }

    # -- lines ----------------------------------------------------------------------------------------------------------------------

    def block(self, column: int) -> tuple[Stmt, ...]:
        """The statements that begin in ``column``, up to a line that begins before it."""
        reader = self.reader
        found: list[Stmt] = []
        while reader.token.kind is not TokenKind.END and reader.token.column >= column:
            if reader.token.column > column:
                raise reader.token.error("the indentation matches no enclosing block")
            if reader.take(KernelKeyword.PASS.value):
                reader.end_line()
            else:
                found.append(self.statement(column))
        return tuple(found)

    def nested(self, column: int) -> tuple[Stmt, ...]:
        """The block below a line that began in ``column``."""
        token = self.reader.token
        if token.kind is TokenKind.END or token.column <= column:
            raise token.error(f"expected an indented block, or {KernelKeyword.PASS.value}")
        return self.block(token.column)

    def statement(self, column: int) -> Stmt:
        reader = self.reader
        token = reader.token
        keyword = reader.keyword()
        match keyword:
            case KernelKeyword.FOR:
                return self.loop(column)
            case KernelKeyword.IF:
                return self.branches(column)
            case KernelKeyword.ELSE:
                raise token.error("ELSE without IF")
            case KernelKeyword.SYNC:
                return self.sync()
            case None:
                forms = FORMED.get(token.text.partition(".")[0])
                stmt = self.assignment() if forms is None else self.one_of(forms)
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
        """The location that a statement names; otherwise that of its own text, if known."""
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
        queue = reader.name("a queue") if reader.take("of") else None
        unroll = reader.take(KernelKeyword.UNROLL.value)
        location, _ = self.head(word)
        return For(index.name, first, stop, step, unroll, self.nested(column), queue, location=location)

    def head(self, start: Token) -> tuple[Location | None, str | None]:
        """The end of a line with a block below it; returns its location and comment."""
        self.reader.expect(":")
        return self.location(start), self.reader.end_line()

    def branches(self, column: int) -> If:
        reader = self.reader
        found: list[Branch] = []
        places: list[Location | None] = []
        note = reader.comment_above()
        while True:
            start, cond = reader.token, TRUE
            if reader.take(KernelKeyword.IF.value):
                cond, is_last = reader.expression(), False
            else:
                is_last = True
            place, label = self.head(start)
            places.append(place)
            found.append(Branch(cond, self.nested(column), label))
            if is_last or reader.token.column != column or not reader.take(KernelKeyword.ELSE.value):
                return If(tuple(found), note, location=places[0])

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
        if follows == "=" and reader.tokens[reader.position + 2].text == KernelKeyword.CURSOR.value:
            return self.formed(CURSOR)
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

    def one_of(self, forms: Sequence[StatementForm]) -> Stmt:
        """A statement of one of these forms, which begin with the same word."""
        token = self.reader.token
        found = next((form for form in forms if form.head == token.text), None)
        if found is None:
            raise token.error(f"expected {' or '.join(form.head for form in forms)}, found {token}")
        return self.formed(found)

    def formed(self, form: StatementForm) -> Stmt:
        """A statement of a form."""
        values: dict[str, object] = {}
        for piece in form.pieces:
            match piece:
                case Word(tokens=tokens):
                    self.take_all(tokens)
                case Slot(name=name, type=kind):
                    values[name] = self.values[kind]()
                case OptionalPart(word=word, slot=slot):
                    if self.reader.at(word.tokens[0]):
                        self.take_all(word.tokens)
                        values[slot.name] = self.values[slot.type]()
        return form.made(values)

    def take_all(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            if token == "<-":
                self.arrow()
            else:
                self.reader.expect(token)

    def fence(self) -> Stmt:
        self.reader.advance()
        token = self.reader.word("what is fenced")
        return known(token, token.text, FENCES, "fence")

    def tma(self) -> Stmt:
        """A store begins with a tensor map and coordinates, a load with an element."""
        tokens = self.reader.tokens
        is_store = tokens[min(self.reader.position + 2, len(tokens) - 1)].text == "("
        return self.formed(TMA_STORE if is_store else TMA_LOAD)

    def wait_group(self) -> WaitGroup:
        reader = self.reader
        reader.advance()
        token = reader.word("a queue")
        queue = known(token, token.text.removesuffix(READ_ONLY), QUEUES, "queue")
        reader.expect("<=")
        return WaitGroup(queue, reader.integer(), read_only=token.text.endswith(READ_ONLY))

    # -- matrices -------------------------------------------------------------------------------------------------------------------

    def wgmma(self) -> Wgmma:
        reader = self.reader
        token = reader.advance()
        shape = WGMMA_SHAPE.fullmatch(token.text)
        if shape is None:
            raise token.error(f"expected WGMMA.m64n<n>k<k>.<dtype>, found {token}")
        dtypes = self.operand_types(token, shape[3], shape[4])
        acc = self.access()
        reader.expect(",")
        a = self.descriptor() if reader.at("desc") else self.access()
        reader.expect(",")
        b = self.descriptor()
        reader.expect(",")
        reader.expect("accumulate")
        return Wgmma(int(shape[1]), int(shape[2]), acc, a, b, reader.expression(), *dtypes)

    def mma(self) -> Mma:
        reader = self.reader
        token = reader.advance()
        shape = MMA_SHAPE.fullmatch(token.text)
        if shape is None:
            raise token.error(f"expected MMA.m16n8k<k>.<dtype>, found {token}")
        m, k, *layouts, first, second, sums = shape.groups()
        dtypes = self.operand_types(token, first, second)
        held = None if layouts[0] is None else (OperandLayout(layouts[0]), OperandLayout(layouts[1]))
        summed = None if sums is None else known(token, sums, DTYPES, "type of sums")
        acc = self.access()
        reader.expect(",")
        a = self.access()
        reader.expect(",")
        return Mma(int(k), acc, a, self.access(), *dtypes, held, summed, int(m))

    def operand_types(self, token: Token, a: str, b: str | None) -> tuple[DType, DType | None]:
        """The element types of A and B in the name of a matrix product."""
        if float32.name in (a, b):
            raise token.error(f"products of {float32} operands are {TF32}: say so")
        return known(token, a, OPERAND_TYPES, "operand type"), None if b is None else known(token, b, OPERAND_TYPES, "operand type")

    def matrices(self) -> tuple[int, bool]:
        """The number of matrices that an instruction moves, and whether it transposes them: ``.x<n>`` and ``.trans`` after its name."""
        token = self.reader.token
        found = MATRICES.fullmatch(token.text)
        if found is None:
            raise token.error(f"expected {token.text.partition('.')[0]} with .x1, .x2 or .x4, and .trans, found {token}")
        return int(found[1] or 4), found[2] is not None

    def ld_matrix(self) -> LdMatrix:
        count, transpose = self.matrices()
        return LdMatrix(*self.transfer(), count, transpose)

    def st_matrix(self) -> StMatrix:
        count, transpose = self.matrices()
        return StMatrix(*self.transfer(), count, transpose)
