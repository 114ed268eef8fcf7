"""Integer functions of two bytes at a time, each in its half of a word: what elements that share bytes are taken out by.

Where the bytes lie two apart in registers, the compiler finds that they are one word, shifted and masked: two numbers of 4 bits are then one shift and one
operation of three operands, on top of the bits of 16-bit floats (:mod:`taskfuse.cuda.word_chains`), where each alone took two.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.cuda.ranges import steady
from taskfuse.cuda.writer import TextScope, Writer
from taskfuse.dtypes import uint8
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import substitute, sym
from taskfuse.kir.nodes import Choose, Compute, Stmt
from taskfuse.kir.operands import Access, Immediate, Operand

BYTE = 2**8 - 1
MASKS = {ELEMENTWISE["bitwise_and"]: "&", ELEMENTWISE["bitwise_or"]: "|", ELEMENTWISE["bitwise_xor"]: "^"}
"""Functions of single bits: halves do not meet."""


class ByteHalves:
    """The statements of a chain that are computed for each of two elements, on both at once.

    Args:
        var: the variable of the loop, whose next value belongs to the upper half.
    """

    def __init__(self, writer: Writer, var: str) -> None:
        self._writer = writer
        self._var = var

    def is_possible(self, stmts: Sequence[Stmt], wanted: Sequence[str]) -> bool:
        """Whether all statements are such functions of bytes in registers, of which others read one.

        Args:
            wanted: what others read.
        """
        made = set[str]()
        for stmt in stmts:
            match stmt:
                case Compute(out=Access(buffer=name), operands=(first, *rest)) if self._is_byte(name) and stmt.dtype is uint8:
                    is_made = self._is_made(first, made) and (stmt.op.cpp.moves or self._is_function(stmt, rest))
                case Choose(out=Access(buffer=name), cases=cases) if self._is_byte(name):
                    is_made = all(self._var not in c.cond.free and (isinstance(c.operand, Immediate) or self._is_made(c.operand, made)) for c in cases)
                case _:
                    return False
            if not is_made:
                return False
            made.add(name)
        return len(wanted) == 1 and wanted[0] in made

    def print(self, stmts: Sequence[Stmt], scope: TextScope) -> dict[str, str]:
        """Print the statements. Returns the words of registers."""
        w, words = self._writer, dict[str, str]()
        for stmt in stmts:
            match stmt:
                case Compute(out=Access(buffer=name), operands=(first, *rest)):
                    text = self._function(stmt, self._word(first, words, scope), rest)
                case Choose(out=Access(buffer=name), cases=cases):
                    *before, last = ((c.cond, self._word(c.operand, words, scope)) for c in cases)
                    conditions = (f"{scope.indices.text(steady(cond, w.unrolled, scope.indices.ranges))} ? {word} : " for cond, word in before)
                    text = "".join((*conditions, last[1]))  # one case holds
                case _:
                    raise AssertionError(stmt)
            words[name] = w.names.reserve(f"{w.places[name].identifier}_halves")
            w.line(scope, f"const unsigned {words[name]} = {text};")
        return words

    def _is_byte(self, name: str) -> bool:
        place = self._writer.places[name]
        return place.dtype is uint8 and not MEDIA[place.memory].has_addresses

    def _is_made(self, operand: Operand, made: set[str]) -> bool:
        """Whether an operand is one of the registers ``made``, or an element of an array of bytes that is another for the second element."""
        match operand:
            case Access(buffer=name, index=index):
                return name in made or (self._is_byte(name) and any(self._var in e.free for e in index))
            case _:
                return False

    def _is_function(self, stmt: Compute, rest: Sequence[Operand]) -> bool:
        match rest:
            case [Immediate(value=value)] if stmt.op in MASKS:
                return 0 <= int(value) <= BYTE
            case [Immediate(value=value)] if stmt.op is ELEMENTWISE["right_shift"]:
                return 0 <= int(value) < BYTE.bit_length()
            case _:
                return False

    def _function(self, stmt: Compute, word: str, rest: Sequence[Operand]) -> str:
        if stmt.op.cpp.moves:
            return word
        assert isinstance(rest[0], Immediate)
        value = int(rest[0].value)
        if stmt.op in MASKS:
            return f"{word} {MASKS[stmt.op]} {_twice(value)}"
        return f"{word} >> {value} & {_twice(BYTE >> value)}"

    def _word(self, operand: Operand, words: dict[str, str], scope: TextScope) -> str:
        if isinstance(operand, Immediate):
            return _twice(int(operand.value))
        assert isinstance(operand, Access)
        if operand.buffer in words:
            return words[operand.buffer]
        second = Access(operand.buffer, tuple(substitute(e, {self._var: sym(self._var) + 1}) for e in operand.index))
        return f"({self._writer.element(operand, scope)} | (unsigned){self._writer.element(second, scope)} << 16)"


def _twice(byte: int) -> str:
    """The text of a word with a byte in both halves."""
    return f"0x{byte:04x}{byte:04x}u"
