"""Loops over neighbors in registers of 16-bit floats that compute two of them at a time behind what each computes alone.

The body of such a loop, copied for each of its values, is a chain of computations whose last one writes an element of an array. Its *words* are those at the
end that have a form for two 16-bit floats (:attr:`~taskfuse.ir.spelling.Spelling.pair`), and conversions between them. What they read is *alone*, computed for
one element after the other, or *common*, computed once, as the scale of a group of weights is.

A number that is an integer of few bits needs no conversion: 128 + n has the bits of 128 with n in their place in bfloat16 for n from 0 to 127, and so has
1024 + n in float16 for n below 1024. Two of them are put together by their bits, and one exact sum for both takes the 128 off, together with constants that
the chain adds. A byte with a sign is 128 and its lower 7 bits, less 128 and its highest bit, which are put in their place likewise. Whether a register holds
such integers is a fact of all that is written to it (:mod:`taskfuse.cuda.whole_numbers`). Computed in words, numbers that are exact in 16 bits stay so: a sum
of two integers that float32 has, and the 16-bit float as well, is rounded by neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import isnan

from taskfuse.cuda import matrices
from taskfuse.cuda.byte_halves import ByteHalves
from taskfuse.cuda.c_types import bits, c_type, convert
from taskfuse.cuda.functions import call_of_pair
from taskfuse.cuda.pairs import is_adjacent, word_of
from taskfuse.cuda.text import Helper
from taskfuse.cuda.whole_numbers import WholeNumbers
from taskfuse.cuda.writer import TextScope, Writer
from taskfuse.dtypes import DType, bfloat16, float16, float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Literal
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, Facts, substitute, sym
from taskfuse.ir.values import NATIVE
from taskfuse.kir.nodes import Choose, Compute, For, Stmt
from taskfuse.kir.operands import Access, Immediate, Operand, ScalarValue
from taskfuse.kir.walk import accesses, expressions, map_expressions, walk

HALVES = Helper(
    "halves",
    """\
// two elements of 16 bits in one word
__device__ __forceinline__ unsigned halves(unsigned short low, unsigned short high) { return low | (unsigned)high << 16; }""",
)
BOTH_HALVES = Helper(
    "both_halves",
    """\
// one element of 16 bits twice in one word
__device__ __forceinline__ unsigned both_halves(unsigned short x) { return x | (unsigned)x << 16; }""",
)
WHOLE_HALVES = Helper(
    "whole_halves",
    """\
// two integers of 8 bits on top of a 16-bit float whose last place is 1, in one word
template <unsigned base>
__device__ __forceinline__ unsigned whole_halves(unsigned low, unsigned high) { return __byte_perm(low, high + base, 0x5450); }""",
)
SIGNED_HALVES = Helper(
    "signed_halves",
    """\
// two integers of 8 bits with their signs in one word of bfloat16: 128 + n % 128, less 128, or 256 where n is negative
__device__ __forceinline__ unsigned signed_halves(unsigned char low, unsigned char high) {
  const unsigned bits = __byte_perm(low | (unsigned)high << 8, 0x43, 0x4140);
  unsigned difference;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(difference) : "r"(bits & 0xff80ff80u), "r"(0xbf80bf80u), "r"(bits & 0xff7fff7fu));
  return difference;
}""",
)
SIGNED_APART = Helper(
    "signed_apart",
    """\
// the same of bytes that do not lie side by side in registers: the compiler takes them out of a word together
__device__ __forceinline__ unsigned signed_apart(unsigned char low, unsigned char high) {
  const unsigned both = low | (unsigned)high << 16;
  unsigned difference;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(difference) : "r"(both & 0x00800080u | 0x43004300u), "r"(0xbf80bf80u), "r"(both & 0x007f007fu | 0x43004300u));
  return difference;
}""",
)
BASES = {bfloat16: (0x4300, 2**7, 2**7 - 1), float16: (0x6400, 2**10, 2**8 - 1)}
"""The bits and the value of a 16-bit float whose last place is 1 and whose lower byte is 0, and the most of 8 bits that may be put in place of that byte."""
SIGN = 2**7
"""The highest bit of a byte."""
SIGNS = {ELEMENTWISE["add"]: 1, ELEMENTWISE["sub"]: -1}
"""Functions that add a multiple of their last operand."""


class ChainRole(Enum):
    """How a register of a chain is computed."""

    COMMON = "common"
    ALONE = "alone"
    WORD = "word"


@dataclass(frozen=True, slots=True)
class WordChain:
    """A body in three parts: statements computed once, for each of two elements, and for both at a time.

    Attributes:
        packed: the registers of elements that words are made of.
    """

    dtype: DType
    var: str
    common: tuple[Stmt, ...]
    alone: tuple[Stmt, ...]
    words: tuple[Compute, ...]
    packed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WordValue:
    """Two elements in a word: those of a text, and an integer that is still to be added to each."""

    text: str
    more: int = 0


class WordChains:
    """The chains of a kernel."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._whole = WholeNumbers(writer.kernel)
        self._uses = Counter(a.buffer for stmt in walk(writer.kernel) for accessed in accesses(stmt) for a in accessed)

    # -- which loops are chains -----------------------------------------------------------------------------------------------------

    def find(self, loop: For, facts: Callable[[], Facts]) -> WordChain | None:
        """The chain of a loop; ``None``: it has none, or no function of words.

        Args:
            facts: what is known around the loop.
        """
        match loop:
            case For(unroll=True, start=Const(0), stop=Const(stop), step=Const(1)) if stop % 2 == 0:
                body = [s for s in loop.body if isinstance(s, Compute | Choose)]
            case _:
                return None
        if not body or len(body) < len(loop.body):
            return None
        if len(body) == 1 and not (isinstance(body[0], Compute) and body[0].op.cpp.moves):  # such a loop is no chain: taskfuse.cuda.pairs
            return None
        last = body[-1].out
        dtype = self._writer.places[last.buffer].dtype
        written, read = (Counter(a.buffer for s in body for a in accesses(s)[side]) for side in (0, 1))
        if dtype not in BASES or max(written.values()) > 1 or last.buffer in read or not is_adjacent(last, loop.var, dtype, self._writer.places, facts):
            return None
        # registers that are read elsewhere, or where no word is: found one after another, as early words are tried first
        kept = {name for name in written if name != last.buffer and self._uses[name] != written[name] + read[name]}
        roles, before = None, -1
        while roles is None and len(kept) > before:
            before, roles = len(kept), self._roles(body, loop.var, dtype, written, kept)
        if roles is None:
            return None
        common, alone, words = ([s for s in body if roles[s.out.buffer] is role] for role in ChainRole)
        made = tuple(s for s in words if isinstance(s, Compute))
        if all(s.op.cpp.moves for s in made) and not any(self._is_of_bytes(o) for s in made for o in s.operands):
            return None
        packed = dict.fromkeys(o.buffer for s in made for o in s.operands if isinstance(o, Access) and roles.get(o.buffer) is ChainRole.ALONE)
        return WordChain(dtype, loop.var, tuple(common), tuple(alone), made, tuple(packed))

    def _roles(self, body: Sequence[Compute | Choose], var: str, dtype: DType, written: Mapping[str, int], kept: set[str]) -> dict[str, ChainRole] | None:
        """How each register of a body is to be computed; ``None``: some statement cannot be.

        Args:
            kept: registers that are not words; those that such a statement reads as words are added.
        """
        roles: dict[str, ChainRole] = {}
        for stmt in body:
            is_last = stmt is body[-1]
            role = self._role(stmt, var, dtype, roles, written, kept, is_last=is_last)
            if role is None or not (is_last or self._writer.places[stmt.out.buffer].is_register):
                kept.update(a.buffer for a in accesses(stmt)[1] if roles.get(a.buffer) is ChainRole.WORD)
                return None
            roles[stmt.out.buffer] = role
        return roles

    def _role(
        self,
        stmt: Compute | Choose,
        var: str,
        dtype: DType,
        roles: Mapping[str, ChainRole],
        written: Mapping[str, int],
        kept: set[str],
        *,
        is_last: bool,
    ) -> ChainRole | None:
        """How a statement is to be computed, as early in words as possible; ``None``: it cannot be."""
        operands = stmt.operands if isinstance(stmt, Compute) else tuple(case.operand for case in stmt.cases)
        found = [self._role_of(o, var, roles, written) for o in operands]
        if None in found:
            return None
        may_be = stmt.out.buffer not in kept and any(r is not ChainRole.COMMON for r in found)
        if may_be and isinstance(stmt, Compute) and self._is_word(stmt, dtype, roles):
            return ChainRole.WORD
        if ChainRole.WORD in found or is_last:
            return None
        varies = any(var in e.free for e in expressions(stmt))
        return ChainRole.ALONE if varies or ChainRole.ALONE in found else ChainRole.COMMON

    def _role_of(self, operand: Operand, var: str, roles: Mapping[str, ChainRole], written: Mapping[str, int]) -> ChainRole | None:
        match operand:
            case Access(buffer=name, index=index):
                if name in written:
                    return roles.get(name)  # a register of the trip before has none
                return ChainRole.ALONE if any(var in e.free for e in index) else ChainRole.COMMON
            case Immediate() | ScalarValue():
                return ChainRole.COMMON
            case _:
                return ChainRole.ALONE

    def _is_word(self, stmt: Compute, dtype: DType, roles: Mapping[str, ChainRole]) -> bool:
        """Whether words are the numbers that a statement makes."""
        out = self._writer.places[stmt.out.buffer].dtype
        match stmt.operands:
            case (Access(buffer=name) as source,) if stmt.op.cpp.moves:
                place = self._writer.places[name]
                is_kept = stmt.dtype in (place.dtype, dtype, dtype.compute) and (out in (dtype, dtype.compute) or self._whole.is_of(stmt.out, dtype))
                is_rounded = out is dtype and place.dtype is float32 and not MEDIA[place.memory].has_addresses
                return is_kept and (is_rounded or self._has_word(source, dtype, roles))
            case _ if stmt.op.cpp.moves or not all(self._has_word(o, dtype, roles) for o in stmt.operands):
                return False
            case _:
                pass
        if stmt.op.cpp.pair is None or stmt.dtype not in (dtype, dtype.compute) or stmt.op.result_dtype(stmt.dtype) is not stmt.dtype:
            return False
        return out is dtype or (out is float32 and self._whole.is_of(stmt.out, dtype))

    def _has_word(self, operand: Operand, dtype: DType, roles: Mapping[str, ChainRole]) -> bool:
        """Whether the dtype has all numbers of an operand, which is in registers or a constant."""
        match operand:
            case Access(buffer=name):
                if roles.get(name) is ChainRole.WORD:
                    return True
                place = self._writer.places[name]
                return not MEDIA[place.memory].has_addresses and (place.dtype is dtype or self._whole.is_of(operand, dtype))
            case Immediate(value=value):
                number = float(value)
                return isnan(number) or float(NATIVE.literal(number, dtype)) == number
            case _:
                return False

    def _is_of_bytes(self, operand: Operand) -> bool:
        """Whether an operand is an integer of 8 bits, with a sign or without."""
        found = self._whole.of(operand) if isinstance(operand, Access) and not self._writer.places[operand.buffer].dtype.is_float else None
        return found is not None and ((found[0] >= -SIGN and found[1] < SIGN) or (found[0] >= 0 and found[1] < 2 * SIGN))

    # -- their text -----------------------------------------------------------------------------------------------------------------

    def print(self, chain: WordChain, scope: TextScope, each: Callable[[Stmt, TextScope], None]) -> None:
        """Two trips of the loop of a chain.

        Args:
            each: prints a statement.
        """
        w = self._writer
        for stmt in chain.common:
            each(stmt, scope)
        known = self._in_halves(chain, scope)
        first = {} if known else self._print_alone(chain, scope, each)
        sums: dict[WordValue, str] = {}
        for stmt in chain.words:
            operands = [self._word(o, chain, first, known, scope) for o in stmt.operands]
            made = known[stmt.out.buffer] = self._made(stmt, operands, chain.dtype, sums, scope)
            if stmt is chain.words[-1]:
                w.helpers.add(matrices.WORD)
                w.call(scope, matrices.SET_WORD, w.address(stmt.out, scope), self._text(made, chain.dtype, sums, scope))

    def _in_halves(self, chain: WordChain, scope: TextScope) -> dict[str, WordValue]:
        """Print what is computed alone for both elements at once, where it is of bytes that end as small integers. Returns their word, if so."""
        halves, (base, value, most) = ByteHalves(self._writer, chain.var), BASES[chain.dtype]
        if not halves.is_possible(chain.alone, chain.packed):
            return {}
        (name,) = chain.packed
        low, high = self._whole.of(Access(name, ())) or (0, most + 1)
        if low < 0 or high > most:
            return {}
        return {name: WordValue(f"({halves.print(chain.alone, scope)[name]} | {base << 16 | base:#x}u)", -value)}

    def _print_alone(self, chain: WordChain, scope: TextScope, each: Callable[[Stmt, TextScope], None]) -> dict[str, str]:
        """Print what is computed for one element, and then for the other. Returns the names of the first ones."""
        w = self._writer
        for stmt in chain.alone:
            each(stmt, scope)
        first = {name: w.names.reserve(f"{w.places[name].identifier}_first") for name in chain.packed}
        for name, copy in first.items():
            place = w.places[name]
            w.line(scope, f"const {c_type(float32 if place.holds_floats else place.dtype)} {copy} = {place.identifier};")
        second = {chain.var: sym(chain.var) + 1}
        behind = scope if scope.turn is None else replace(scope, turn=f"({scope.turn} + 1)")
        for stmt in chain.alone:
            each(map_expressions(stmt, lambda e: substitute(e, second)), behind)
        return first

    def _made(self, stmt: Compute, operands: Sequence[WordValue], dtype: DType, sums: dict[WordValue, str], scope: TextScope) -> WordValue:
        """A function of words; sums with integers are put together."""
        if stmt.op.cpp.moves:
            return operands[0]
        sign = SIGNS.get(stmt.op)
        constant = stmt.operands[-1]
        if sign and isinstance(constant, Immediate) and operands[0].more and self._whole.is_of(stmt.out, dtype):
            more = operands[0].more + sign * int(constant.value)
            if abs(more) <= 2**dtype.precision:
                return WordValue(operands[0].text, more)
        texts = [self._text(word, dtype, sums, scope) for word in operands]
        return self._named(self._writer.use(call_of_pair(stmt.op, texts, dtype)), scope)

    def _text(self, word: WordValue, dtype: DType, sums: dict[WordValue, str], scope: TextScope) -> str:
        """The text of a word to which nothing is to be added.

        Args:
            sums: the texts of those to which something was.
        """
        if not word.more:
            return word.text
        if word not in sums:
            more = word_of(Immediate(float(word.more), float32), dtype)
            sums[word] = self._named(self._writer.use(call_of_pair(ELEMENTWISE["add"], [word.text, more], dtype)), scope).text
        return sums[word]

    def _named(self, text: str, scope: TextScope) -> WordValue:
        name = self._writer.names.reserve("two")
        self._writer.line(scope, f"const unsigned {name} = {text};")
        return WordValue(name)

    def _word(self, operand: Operand, chain: WordChain, first: Mapping[str, str], known: Mapping[str, WordValue], scope: TextScope) -> WordValue:
        """An operand as a word."""
        w, dtype = self._writer, chain.dtype
        if isinstance(operand, Literal):
            return WordValue(word_of(operand, dtype))
        assert isinstance(operand, Access)
        if operand.buffer in known:
            return known[operand.buffer]
        element = w.element(operand, scope)
        if operand.buffer in first:
            texts = first[operand.buffer], element
        elif any(chain.var in e.free for e in operand.index):
            if is_adjacent(operand, chain.var, dtype, w.places, scope.indices.facts):
                w.helpers.add(matrices.WORD)
                return WordValue(f"{matrices.WORD.name}({w.address(operand, scope)})")
            behind = {chain.var: sym(chain.var) + 1}
            texts = element, w.element(replace(operand, index=tuple(substitute(e, behind) for e in operand.index)), scope)
        else:
            w.helpers.add(BOTH_HALVES)
            return WordValue(f"{BOTH_HALVES.name}({self._half(operand, element, dtype)})")
        if self._is_of_bytes(operand):
            helper = SIGNED_APART if operand.buffer not in first and self._is_apart(operand, chain.var, scope) else SIGNED_HALVES
            return self._bytes(operand, texts, dtype, helper)
        w.helpers.add(HALVES)
        return WordValue(f"{HALVES.name}({', '.join(self._half(operand, text, dtype) for text in texts)})")

    def _is_apart(self, operand: Access, var: str, scope: TextScope) -> bool:
        """Whether the elements of two consecutive trips are registers that do not lie side by side."""
        place = self._writer.places[operand.buffer]
        return not (MEDIA[place.memory].has_addresses or is_adjacent(operand, var, place.dtype, self._writer.places, scope.indices.facts))

    def _bytes(self, operand: Access, texts: tuple[str, str], dtype: DType, signed: Helper) -> WordValue:
        """Two integers of 8 bits as a word; ``signed``: what makes it of numbers from -128 to 127."""
        (low, high), (base, value, most) = self._whole.of(operand) or (0, 0), BASES[dtype]
        if low >= 0 and high <= most:
            self._writer.helpers.add(WHOLE_HALVES)
            return WordValue(f"{WHOLE_HALVES.name}<{base:#x}u>({', '.join(texts)})", -value)
        if dtype is bfloat16:
            self._writer.helpers.add(signed)
            turned = "" if low < 0 else f" ^ {SIGN}"
            return WordValue(f"{signed.name}({', '.join(text + turned for text in texts)})", 0 if low < 0 else SIGN)
        self._writer.helpers.add(WHOLE_HALVES)
        return WordValue(f"{WHOLE_HALVES.name}<{base:#x}u>({', '.join(f'(unsigned char)({text} ^ {SIGN})' for text in texts)})", -value - SIGN)

    def _half(self, operand: Access, text: str, dtype: DType) -> str:
        """The bits of a register, rounded to the dtype if that has not its number."""
        w, place = self._writer, self._writer.places[operand.buffer]
        is_exact = self._whole.is_of(operand, dtype)
        if dtype is bfloat16 and place.dtype is not bfloat16 and is_exact:
            return w.use(bits(w.converted(place, text, float32)))
        return w.use(convert(text, place.dtype, dtype, packed=True)) if place.dtype is float32 else w.converted(place, text, dtype)
