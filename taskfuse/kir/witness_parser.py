"""The witness in kernel text: definitions in the header, and claims after statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskfuse.dtypes import DTYPES, DType
from taskfuse.ir.axes import iteration_point
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.scalar import TRUE, ZERO, Expr
from taskfuse.ir.syntax import EXCLUSIVE, RESCALED, SINCE, UNTIL
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.forms import RULE_WORDS, RuleWord
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operand_parser import DeclaredNames, KernelReader, OperandParser, known, operation
from taskfuse.kir.operands import Access, Content, Holds, WritingStmt
from taskfuse.kir.witness import INDEXED, Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Rule, Send, Whole, wrong_index

CONTENTS = {c.value: c for c in Content}


class WitnessParser(OperandParser):
    """The definitions parsed so far, and the claims that refer to them. An access names a tensor: an input, or one defined above."""

    def __init__(self, reader: KernelReader, names: DeclaredNames, inputs: Sequence[TensorParam]) -> None:
        super().__init__(reader, names)
        self.definitions: list[Definition] = []
        self.defined: dict[str, Definition] = {}
        self.tensors: dict[str, TensorParam | Definition] = {p.name: p for p in inputs}

    # -- definitions ----------------------------------------------------------------------------------------------------------------

    def definition(self) -> None:
        """One line, up to its end."""
        reader = self.reader
        reader.advance()
        name = reader.name("a tensor")
        reader.expect(":")
        dtype = reader.dtype()
        shape = space = reader.expressions("[", "]")
        place = iteration_point(len(shape))
        if reader.take("over"):
            space = reader.expressions("(", ")")
            reader.expect("at")
            place = reader.expressions("(", ")")
        reader.expect("=")
        found = Definition(name, dtype, shape, space, place, self.rule(dtype))
        self.definitions.append(found)
        self.defined[name] = self.tensors[name] = found

    def rule(self, dtype: DType) -> Rule:
        """The rule of a tensor of ``dtype``."""
        reader = self.reader
        token = reader.word("an operation or a rule")
        match RULE_WORDS.get(token.text):
            case RuleWord.PICK:
                reader.expect("(")
                return Pick(self.cases(dtype))
            case RuleWord.REDUCE:
                return self.reduction(dtype)
            case RuleWord.SCAN:
                return self.scan(dtype)
            case RuleWord.FOLD:
                return self.fold(dtype)
            case RuleWord.FIND:
                return self.find()
            case RuleWord.SEND:
                return self.send(dtype)
            case RuleWord.WHOLE:
                return self.whole()
            case None:
                op, wide = operation(token, dtype)
                reader.expect("(")
                return Apply(op, self.operands(wide), wide)

    def reduction(self, dtype: DType) -> Reduce:
        reader = self.reader
        combine = self.combine()
        reader.expect("of")
        body, wide = operation(reader.word("an operation"), dtype)
        reader.expect("(")
        operands = self.operands(wide)
        reader.expect("from")
        init, axis = self.immediate(wide), None
        if reader.at(RESCALED):
            axis = reader.number(RESCALED)
            reader.expect("by")
            operands += (self.operand(wide),)
        starts, ends = self.bounds(SINCE, ">="), self.bounds(UNTIL, "<")
        return Reduce(combine, body, operands, init, wide, axis, ends, starts)

    def bounds(self, word: str, comparison: str) -> tuple[tuple[int, Expr], ...]:
        """Where terms start, or end, along some axes, after a word; none without it."""
        found: list[tuple[int, Expr]] = []
        while self.reader.at("," if found else word):
            k = self.reader.number("," if found else word)
            self.reader.expect(comparison)
            found.append((k, self.reader.expression()))
        return tuple(found)

    def scan(self, dtype: DType) -> Accumulate:
        reader = self.reader
        token = reader.word("a function that combines")
        name, _, suffix = token.text.partition(".")
        combine = known(token, name, COMBINES, "function that combines")
        wide = known(token, suffix, DTYPES, "dtype") if suffix else dtype
        axis = reader.number("along")
        is_exclusive = reader.take(EXCLUSIVE)
        start = reader.expression() if reader.take(SINCE) else ZERO
        reader.expect("of")
        return Accumulate(combine, self.operand(wide), axis, wide, is_exclusive, start)

    def fold(self, dtype: DType) -> Iterate:
        reader = self.reader
        axis = reader.number("along")
        reader.expect("of")
        op, wide = operation(reader.word("an operation"), dtype)
        reader.expect("(")
        operands = self.operands(wide)
        reader.expect("from")
        return Iterate(op, operands, axis, self.immediate(wide), wide)

    def find(self) -> Find:
        source = self.access()
        return Find(source, *self.counted())

    def send(self, dtype: DType) -> Send:
        combine = self.combine()
        self.reader.expect("of")
        operand = self.operand(dtype)
        return Send(combine, operand, *(self.counted() if self.reader.at("at") else ((), ())))

    def counted(self) -> tuple[tuple[Access, ...], tuple[Expr, ...]]:
        """``at`` some integers, and the extents from which negative ones are counted."""
        self.reader.expect("at")
        found = [self.value()]
        while self.reader.take(","):
            found.append(self.value())
        return tuple(v for v, _ in found), tuple(e for _, e in found)

    def value(self) -> tuple[Access, Expr]:
        """An integer, and the extent from which it is counted if negative."""
        access = self.access()
        self.reader.expect("of")
        return access, self.reader.expression()

    def whole(self) -> Whole:
        parts = [self.part()]
        while self.reader.take(","):
            parts.append(self.part())
        return Whole(tuple(name for name, _, _ in parts), tuple(place for _, place, _ in parts), tuple(condition for _, _, condition in parts))

    def part(self) -> tuple[str, tuple[Expr, ...], Expr]:
        """A tensor, where its elements are, and under which condition."""
        name = self.tensor()
        self.reader.expect("at")
        place = self.reader.expressions("(", ")")
        return name, place, self.reader.expression() if self.reader.take("if") else TRUE

    def tensor(self) -> str:
        token = self.reader.word("a tensor")
        known(token, token.text, self.tensors, "input, or tensor that is defined above,")
        return token.text

    def access(self) -> Access:
        return Access(self.tensor(), self.reader.expressions("[", "]"))

    # -- statements -----------------------------------------------------------------------------------------------------------------

    def held(self, stmt: Stmt) -> Stmt:
        """A statement with the claim that follows."""
        token = self.reader.advance()
        if not isinstance(stmt, WritingStmt):
            raise token.error("a claim follows a statement that writes elements, and this one writes no element")
        return replace(stmt, holds=self.holds())

    def holds(self) -> Holds:
        reader = self.reader
        token = reader.word("what is held")
        content = known(token, token.text, CONTENTS, "content")
        token = reader.word("a tensor")
        definition = known(token, token.text, self.defined, "definition of")
        index = reader.expressions("[", "]") if content in INDEXED or reader.at("[") else ()
        tile: tuple[int, ...] = ()
        if reader.take("tile"):
            reader.expect("(")
            tile = reader.sequence(reader.integer, ")")
        found = Holds(token.text, index, content, tile)
        problem = wrong_index(found, definition)
        if problem is not None:
            raise token.error(problem)
        return found
