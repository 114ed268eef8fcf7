"""Integer expressions in CUDA C++.

``//`` and ``%`` of the scalar IR round to minus infinity; C's round to zero. They are equal for a dividend that is proved not negative. Division by
a power of two is a shift or a mask; a divisor that is uniform over the launch is replaced by its precomputed reciprocal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from hashlib import sha256
from typing import Protocol

from taskfuse.cuda.ranges import INT32, IntegerRanges
from taskfuse.cuda.text import Helper
from taskfuse.dtypes import DType, uint32
from taskfuse.ir.scalar import (
    And,
    Compare,
    Const,
    Element,
    Expr,
    Facts,
    FloorDiv,
    Max,
    Min,
    Mod,
    Not,
    Or,
    Product,
    Select,
    Sum,
    Sym,
    Table,
    UpperBound,
    Xor,
    element,
    ge,
    maximum,
    minimum,
    prove,
    sym,
)


def _floored(name: str, body: str) -> Helper:
    """A function of two integers, for ``int`` and for ``long long``."""
    return Helper(name, "\n".join(f"__device__ __forceinline__ {t} {name}({t} a, {t} b) {{\n{body.replace('Int', t)}\n}}" for t in ("int", "long long")))


FLOOR_DIVIDE = _floored("floor_divide", "  const Int q = a / b;\n  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;")
FLOOR_MODULO = _floored("floor_modulo", "  const Int r = a % b;\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;")
DIVISOR = Helper(
    "Divisor",
    """\
// a divisor d of the whole launch: n / d == (umulhi(n, multiplier) + n) >> shift for 0 <= n < 2^31
struct Divisor {
  unsigned value, multiplier, shift;
};
__device__ __forceinline__ int operator/(int n, Divisor d) { return (__umulhi(n, d.multiplier) + n) >> d.shift; }
__device__ __forceinline__ int operator%(int n, Divisor d) { return n - n / d * (int)d.value; }""",
)


RUNNING = "_k"
"""The element that a search in a table reads, or a sum."""
UPPER_BOUND = Helper(
    "upper_bound",
    """\
// of the elements 1 to size - 2 of a nondecreasing table: how many are no greater than a key
template <class At, class Key>
__device__ __forceinline__ int upper_bound(int size, At at, Key key) {
  int low = 1, high = size - 1;
  while (low < high) {
    const int middle = (int)(((unsigned)low + (unsigned)high) / 2);
    if (at(middle) <= key) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}""",
)


BALLOT = Helper(
    "upper_bound_by_ballot",
    """\
// the same, in any table: by all lanes of a warp together if they look for one key. They compare the 32 elements that are left at once, and bisect their votes
template <class At, class Key>
__device__ __forceinline__ int upper_bound_by_ballot(int size, At at, Key key) {
  constexpr unsigned all = 0xffffffffu;
  int one_key = 0;
  if (__activemask() == all) __match_all_sync(all, key, &one_key);
  if (!one_key) return upper_bound(size, at, key);
  int low = 1, high = size - 1;
  while (high - low > 32) {
    const int middle = (int)(((unsigned)low + (unsigned)high) / 2);
    if (at(middle) <= key) low = middle + 1;
    else high = middle;
  }
  const int first = low, k = low + (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
  const unsigned passed = __ballot_sync(all, k < high && at(k) <= key);
  if ((passed & (passed + 1)) == 0) return first - 1 + __popc(passed);
  while (low < high) {
    const int middle = first + (low - first + high - first) / 2;
    if (passed >> (middle - first) & 1) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}""",
    (UPPER_BOUND,),
)
"""All lanes search together if one of them sees all lanes active, and a whole warp either sees the same key or not: no lane waits for one that is elsewhere.

Warps and single lanes find the same place, also in a table that decreases somewhere: trips and waits of roles depend on it."""


LENGTHS = Helper(
    "offsets_of_lengths",
    """\
// where each of so many groups begins, and where the last one ends: the first warp of a block adds up 32 lengths at a time
template <class At>
__device__ __forceinline__ void offsets_of_lengths(long long* offsets, int groups, At length, long long total) {
  constexpr unsigned all = 0xffffffffu;
  const int thread = (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
  const bool alone = blockDim.x * blockDim.y * blockDim.z < 32;
  if (thread >= (alone ? 1 : 32)) return;
  long long before = 0;
  if (thread == 0) offsets[0] = 0;
  for (int first = 0; first < groups; first += alone ? 1 : 32) {
    const int group = first + thread;
    long long end = group < groups ? (long long)length(group) : 0;
    if (!alone) {
#pragma unroll
      for (int lanes = 1; lanes < 32; lanes *= 2) {
        const long long lower = __shfl_up_sync(all, end, lanes);
        if (thread >= lanes) end += lower;
      }
    }
    end = min(before + end, total);
    if (group < groups) offsets[group + 1] = group + 1 < groups ? end : total;
    before = alone ? end : __shfl_sync(all, end, 31);
  }
}""",
)
"""A length is at most the total, so a sum of 33 of them fits 64 bits."""


class Level(IntEnum):
    """Binding strength of the outermost operator, in C's order."""

    TERNARY = 0
    OR = 1
    AND = 2
    XOR = 3
    BIT_AND = 4
    EQUAL = 5
    LESS = 6
    SHIFT = 7
    SUM = 8
    PRODUCT = 9
    UNARY = 10
    ATOM = 11


@dataclass(frozen=True, slots=True)
class PrintedExpr:
    """A printed expression; ``wide``: its C++ type is ``long long``, otherwise ``int``."""

    text: str
    level: Level
    wide: bool

    def at(self, level: Level) -> str:
        """The text, in parentheses if the outermost operator binds weaker than ``level``."""
        return self.text if self.level >= level else f"({self.text})"


@dataclass(slots=True)
class Divisors:
    """The launch's prepared divisors: parameter names in the order of their first use.

    Attributes:
        uniform: symbols whose values the host knows.
        name: makes an identifier.
    """

    uniform: frozenset[str]
    name: Callable[[str], str]
    names: dict[Expr, str] = field(default_factory=dict[Expr, str])

    def get(self, e: Expr) -> str:
        """The parameter of divisor ``e``."""
        found = self.names.get(e)
        if found is None:
            plain = e.name if isinstance(e, Sym) else str(len(self.names))
            found = self.names[e] = self.name(f"by_{plain}")
        return found


class TensorInMemory(Protocol):
    """A tensor in memory, as seen by expressions."""

    @property
    def dtype(self) -> DType:
        """Dtype of its elements."""
        ...

    def element(self, index: Sequence[Expr], indices: Indices) -> str:
        """The text of an element."""
        ...


class _Inner(Mapping[str, str]):
    """Identifiers of an inner scope; others are asked for outside, which may note that they are used."""

    def __init__(self, outer: Mapping[str, str], own: Mapping[str, str]) -> None:
        self._outer, self._own = outer, own

    def __getitem__(self, name: str) -> str:
        return self._own[name] if name in self._own else self._outer[name]

    def __iter__(self) -> Iterator[str]:
        return iter({*self._outer, *self._own})

    def __len__(self) -> int:
        return len({*self._outer, *self._own})


@dataclass(slots=True)
class Indices:
    """Prints the integer expressions of one scope.

    Attributes:
        names: identifiers of symbols.
        ranges: constant ranges of the symbols in scope.
        facts: the facts of this scope, evaluated only where ranges do not decide, since they may be expensive.
        wide: false: everything fits 32 bits.
        wide_symbols: symbols whose identifiers are ``long long``.
        helpers: collects the helpers that the text calls.
        tables: tensors whose elements occur in expressions, by name.
        ballots: the tables in which whole warps search together.
        named: expressions that have a variable in this scope, with its text.
        speculated: whether what is printed is computed where no guard may ask for it: there must be no division by zero, of which C++ may assume anything, and
            no read behind a table.
    """

    names: Mapping[str, str]
    ranges: IntegerRanges
    facts: Callable[[], Facts]
    wide: bool
    wide_symbols: frozenset[str]
    divisors: Divisors
    helpers: set[Helper]
    tables: Mapping[str, TensorInMemory] = field(default_factory=dict[str, "TensorInMemory"])
    ballots: frozenset[str] = frozenset()
    named: Mapping[Expr, PrintedExpr] = field(default_factory=dict[Expr, PrintedExpr])
    speculated: bool = False

    def text(self, e: Expr, level: Level = Level.TERNARY) -> str:
        """The text of ``e``, in parentheses if its operator binds weaker than ``level``."""
        return self.print(e).at(level)

    def wide_text(self, e: Expr, level: Level = Level.TERNARY) -> str:
        """The text of ``e`` as a ``long long``."""
        return self._as(self.print(e), True).at(level)

    def is_wide(self, e: Expr) -> bool:
        """True if the value of ``e``, or an intermediate one, may need 64 bits."""
        return self.wide and not self.ranges.fits(e)

    def is_nonnegative(self, e: Expr) -> bool:
        """True if ``e`` is proved not negative."""
        return self.ranges.of(e)[0] >= 0 or prove(ge(e, 0), self.facts())

    def _is_positive(self, e: Expr) -> bool:
        return self.ranges.of(e)[0] >= 1 or prove(ge(e, 1), self.facts())

    def _as(self, t: PrintedExpr, wide: bool) -> PrintedExpr:
        if t.wide == wide:
            return t
        return PrintedExpr(f"({'long long' if wide else 'int'}){t.at(Level.UNARY)}", Level.UNARY, wide)

    def print(self, e: Expr) -> PrintedExpr:
        """``e`` in C++."""
        if (name := self.named.get(e)) is not None:
            return name
        match e:
            case Const(value):
                big = not INT32[0] <= value <= INT32[1]
                return PrintedExpr(f"{value}ll" if big else str(value), Level.ATOM if value >= 0 else Level.UNARY, big)
            case Sym(name):
                return PrintedExpr(self.names[name], Level.ATOM, name in self.wide_symbols)
            case Sum():
                return self._sum(e)
            case Product(factors):
                wide = self.is_wide(e)
                texts = [self.print(f) for f in factors]
                if wide and not texts[0].wide:
                    texts[0] = self._as(texts[0], True)
                return PrintedExpr(" * ".join(t.at(Level.UNARY) for t in texts), Level.PRODUCT, any(t.wide for t in texts))
            case FloorDiv(a, b):
                return self._divide(a, b, "/")
            case Mod(a, b):
                return self._divide(a, b, "%")
            case Min(args):
                return self._fold("min", [self.print(a) for a in args])
            case Max(args):
                return self._fold("max", [self.print(a) for a in args])
            case Xor(a, b):
                left, right = self.print(a), self.print(b)
                wide = left.wide or right.wide
                return PrintedExpr(f"{self._as(left, wide).at(Level.SHIFT)} ^ {self._as(right, wide).at(Level.SHIFT)}", Level.XOR, wide)
            case Select(cond, a, b):
                yes, no = self.print(a), self.print(b)
                wide = yes.wide or no.wide
                return PrintedExpr(f"{self.text(cond, Level.OR)} ? {self._as(yes, wide).at(Level.OR)} : {self._as(no, wide).at(Level.OR)}", Level.TERNARY, wide)
            case Table(values, index):
                return self._table(values, index)
            case Element():
                return self._element(e)
            case UpperBound():
                return self._upper_bound(e)
            case Compare(op, a, b):
                level = Level.EQUAL if op.value in ("==", "!=") else Level.LESS
                if isinstance(a, Const) and op.value in ("<", "<="):  # as a person would write it
                    return PrintedExpr(f"{self.text(b, Level.SHIFT)} {'>' if op.value == '<' else '>='} {self.text(a, Level.SHIFT)}", level, False)
                return PrintedExpr(f"{self.text(a, Level.SHIFT)} {op.value} {self.text(b, Level.SHIFT)}", level, False)
            case And(args):
                return PrintedExpr(" && ".join(self.text(a, Level.XOR) for a in args), Level.AND, False)
            case Or(args):
                return PrintedExpr(" || ".join(self.print(a).at(Level.XOR) for a in args), Level.OR, False)
            case Not(a):
                return PrintedExpr(f"!{self.text(a, Level.ATOM)}", Level.UNARY, False)
            case _:
                raise AssertionError(type(e))

    def _sum(self, e: Sum) -> PrintedExpr:
        wide = self.is_wide(e)
        terms = sorted(e.terms, key=lambda t: t[1] < 0)  # a positive term first, if there is one
        parts: list[tuple[str, PrintedExpr]] = []
        for term, k in terms:
            t = self.print(term)
            if abs(k) != 1:
                if wide and not t.wide:
                    t = self._as(t, True)
                factor = str(abs(k)) if abs(k) <= INT32[1] else f"{abs(k)}ll"
                t = PrintedExpr(f"{factor} * {t.at(Level.UNARY)}", Level.PRODUCT, t.wide or abs(k) > INT32[1])
            elif wide and not t.wide and not parts:
                t = self._as(t, True)
            parts.append(("-" if k < 0 else "+", t))
        first_sign, first = parts[0]
        text = first.at(Level.PRODUCT)
        if first_sign == "-":
            if e.const:
                text = f"{e.const} - {text}" if not wide else f"{e.const}ll - {text}"
            else:
                text = f"-{first.at(Level.UNARY)}"
        for sign, t in parts[1:]:
            text += f" {sign} {t.at(Level.PRODUCT)}"
        if e.const and first_sign != "-":
            text += f" {'-' if e.const < 0 else '+'} {abs(e.const)}{'ll' if abs(e.const) > INT32[1] else ''}"
        return PrintedExpr(text, Level.SUM, wide or any(t.wide for _, t in parts))

    def _divide(self, a: Expr, b: Expr, op: str) -> PrintedExpr:
        if self.speculated and not self._is_positive(b):
            b = maximum(b, 1)  # the same where the quotient has a value
        left, right = self.print(a), self.print(b)
        wide = left.wide or right.wide
        positive = self.ranges.of(b)[0] >= 0  # a divisor of zero has no value
        if positive and self.is_nonnegative(a):
            if not wide and not isinstance(b, Const) and b.free <= self.divisors.uniform:
                self.helpers.add(DIVISOR)
                return PrintedExpr(f"{left.at(Level.PRODUCT)} {op} {self.divisors.get(b)}", Level.PRODUCT, False)
            return PrintedExpr(f"{left.at(Level.PRODUCT)} {op} {right.at(Level.UNARY)}", Level.PRODUCT, wide)
        if isinstance(b, Const) and b.value > 0 and b.value & (b.value - 1) == 0:
            if op == "/":
                return PrintedExpr(f"{self._as(left, wide).at(Level.SUM)} >> {b.value.bit_length() - 1}", Level.SHIFT, wide)
            return PrintedExpr(f"{left.at(Level.EQUAL)} & {b.value - 1}", Level.BIT_AND, wide)
        helper = FLOOR_DIVIDE if op == "/" else FLOOR_MODULO
        self.helpers.add(helper)
        return PrintedExpr(f"{helper.name}({self._as(left, wide).text}, {self._as(right, wide).text})", Level.ATOM, wide)

    def _fold(self, function: str, texts: list[PrintedExpr]) -> PrintedExpr:
        wide = any(t.wide for t in texts)
        text = self._as(texts[0], wide).text
        for t in texts[1:]:
            text = f"{function}({text}, {self._as(t, wide).text})"
        return PrintedExpr(text, Level.ATOM, wide)

    def _element(self, e: Element) -> PrintedExpr:
        """An element of a table between its bounds; one of a type that 32 bits with a sign do not hold is compared as a ``long long``."""
        if self.speculated and not self._is_positive(e.size - 1):  # without places, the next one is none, either
            e = Element(e.tensor, maximum(minimum(e.index, e.size - 1), 0), e.size, e.low, e.high)
        table = self.tables[e.tensor.name]
        wide = table.dtype.itemsize == 8 or table.dtype is uint32
        found = PrintedExpr(table.element((e.index,), self), Level.ATOM, table.dtype.itemsize == 8)
        clamped = self._fold("min", [self._fold("max", [self._as(found, wide), self.print(e.low)]), self.print(e.high)])
        return self._as(clamped, False) if clamped.wide and not self.is_wide(e) else clamped

    def _upper_bound(self, e: UpperBound) -> PrintedExpr:
        """The place of a key in a table. What all lanes of a warp have in common beside the key is the launch's."""
        by_ballot = e.tensor.name in self.ballots and all(x.free <= self.divisors.uniform for x in (e.size, e.low, e.high))
        helper = BALLOT if by_ballot else UPPER_BOUND
        self.helpers.add(helper)
        at = self.function(e.size, lambda k: element(e.tensor, k, e.size, e.low, e.high) // e.divisor + k * e.step)
        size = self._as(self.print(e.size), False)
        return PrintedExpr(f"{helper.name}({size.text}, {at}, {self.text(e.sought)})", Level.ATOM, False)

    def function(self, size: Expr, value: Callable[[Expr], Expr]) -> str:
        """The text of a function of an index below ``size``, as an expression of C++."""
        most = max(self.ranges.of(size)[1] - 1, 1)
        inside = replace(self, names=_Inner(self.names, {RUNNING: RUNNING}), ranges=self.ranges.child({RUNNING: (0, most)}), named={})
        return f"[&](int {RUNNING}) {{ return {inside.text(value(sym(RUNNING)))}; }}"

    def _table(self, values: tuple[int, ...], index: Expr) -> PrintedExpr:
        wide = not all(INT32[0] <= v <= INT32[1] for v in values)
        ctype = "long long" if wide else "int"
        name = f"table_{digest(values)}"
        helper = Helper(
            name,
            f"__device__ __forceinline__ {ctype} {name}(int i) {{\n"
            f"  static const {ctype} values[] = {{{', '.join(f'{v}ll' if wide else str(v) for v in values)}}};\n"
            "  return values[i];\n}",
        )
        self.helpers.add(helper)
        return PrintedExpr(f"{helper.name}({self.text(index)})", Level.ATOM, wide)


def digest(values: tuple[int, ...]) -> str:
    """What names a table, the same in every process."""
    return sha256(repr(values).encode()).hexdigest()[:16]


def once(make: Callable[[], Facts]) -> Callable[[], Facts]:
    """A function that calls ``make`` at most once, when its result is first needed."""
    known: list[Facts] = []

    def get() -> Facts:
        if not known:
            known.append(make())
        return known[0]

    return get
