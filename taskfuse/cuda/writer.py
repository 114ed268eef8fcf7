"""The writer of a kernel's body, and the printers that all statements share: identifiers, lines, calls, elements, operands."""

from __future__ import annotations

import re
from dataclasses import dataclass

from taskfuse.cuda.c_types import bits, convert, literal, rounded
from taskfuse.cuda.expressions import Indices, Level
from taskfuse.cuda.functions import IDENTIFIERS
from taskfuse.cuda.storage import NamedStorage, packed_in
from taskfuse.cuda.text import Helper, HelperCall, Snippet, bare
from taskfuse.dtypes import DType, bfloat16, float32, int32, int64
from taskfuse.ir.scalar import ZERO, Expr, Sum, const
from taskfuse.kir import Kernel, walk
from taskfuse.kir.declarations import ScalarParam
from taskfuse.kir.nodes import Compute, For, Stmt
from taskfuse.kir.operands import Access, BarrierSlot, Immediate, IndexOf, Operand, ScalarValue, dtype_of

_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl concept const consteval
constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double dynamic_cast else enum explicit
export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
protected public register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq blockDim blockIdx
gridDim threadIdx warpSize Divisor Report TensorMap min max report shared counters main size_t uint2 uint4 dim3
""",
    )
)
# functions that CUDA C++ declares with C linkage, which a kernel cannot overload (CUDA Math API, "Double Precision Mathematical Functions"; CUDA C++
# Programming Guide, "C++ language extensions"); those of float end with f
_LIBRARY = re.compile(
    r"(a?(cos|sin|tan)h?|atan2|(cos|sin)pi|sincos(pi)?|r?cbrt|ceil|copysign|cyl_bessel_i[01]|erf(c|inv|cinv|cx)?|exp(10|2|m1)?|fabs|fdim|floor|fma|fmax|fmin|fmod|frexp|r?hypot"
    r"|ilogb|j[01n]|y[01n]|ldexp|lgamma|l?l?r(in|oun)t|l?l?round|log(10|1p|2|b)?|modf|nan|nearbyint|nextafter|r?norm([34]d)?|normcdf(inv)?|pow|remainder|remquo|rint|scalbl?n"
    r"|r?sqrt|tgamma|trunc)f?"
    r"|abs|labs|llabs|isfinite|isinf|isnan|signbit|v?printf|assert|malloc|free|alloca|mem(cpy|set|cmp|move)|clock(64)?|abort|exit"
)
# helpers of integer expressions and of statements (taskfuse/cuda/expressions.py, taskfuse/cuda/instructions.py)
_HELPERS = re.compile(
    r"shared_address|store\d+_if|copy(\d+|_commit|_wait)|async_copy\d+(_or_zero)?|fence_\w+|mbarrier_\w+|bulk_\w+|tma_\w+|wgmma_\w+|mma_\w+|matrix|(ld|st)matrix_\w+|word|set_word|(\w+_)?halves"
    r"|set_registers_\d+|counter_(arrive|value)|semaphore_\w+|queue_\w+|grid_barrier_\w+"
    r"|named_barrier|wait_for_stream|cluster_(barrier|address|index_[xyz])|report_timeout|nanoseconds|delay_at_random|floor_(divide|modulo)|table_[0-9a-f]+"
)


class Identifiers:
    """Gives every name of kernel IR a unique identifier, as close to it as C++ allows."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._taken: set[str] = set()

    def reserve(self, identifier: str) -> str:
        """A unique identifier: ``identifier``, with a number appended if it is taken."""
        plain = re.sub(r"\W", "_", identifier)
        if plain in _KEYWORDS or plain in IDENTIFIERS or _HELPERS.fullmatch(plain) or plain.startswith("__") or re.match(r"_[A-Z]|\d", plain):
            plain = f"v_{plain.lstrip('_')}"
        found, n = plain, 1
        while found in self._taken:
            found, n = f"{plain}_{n}", n + 1
        self._taken.add(found)
        return found

    def function(self, name: str) -> str:
        """The identifier of a kernel, different from all functions of CUDA."""
        return self.reserve(f"kernel_{name}" if _LIBRARY.fullmatch(name) else name)

    def __getitem__(self, name: str) -> str:
        """The identifier of ``name``."""
        found = self._given.get(name)
        if found is None:
            found = self._given[name] = self.reserve(name)
        return found

    def alias(self, name: str, identifier: str) -> str:
        """The identifier of ``name``: ``identifier``, or a similar free one."""
        if name not in self._given:
            self._given[name] = self.reserve(identifier)
        return self._given[name]


INDENT = "  "
EXACT = 2**24
"""The greatest magnitude up to which float32 has all integers."""


@dataclass(frozen=True, slots=True)
class TextScope:
    """The state at a statement.

    Attributes:
        indices: prints the integers of this scope.
        path: labels of the branches around it.
        depth: nesting of the text.
        cursors: declared cursors.
        turn: variable of the innermost loop around it that is copied for each of an even number of values.
        copied: the innermost loop around it that is copied for each of its values.
        asks: variable that becomes false if an operand of the loop around it is not usual; nothing else is printed of the loop.
        is_usual: of a loop with two versions, whether it is the one for usual operands.
    """

    indices: Indices
    path: tuple[str, ...]
    depth: int
    cursors: set[str]
    turn: str | None = None
    copied: For | None = None
    asks: str | None = None
    is_usual: bool | None = None


class Writer:
    """Writes the body of one kernel, line by line.

    Args:
        places: every buffer and tensor argument.
        mbarriers: identifiers of the mbarrier arrays.
        queues: for each queue, the identifiers of the block's claims and of the counter.

    Attributes:
        lines: the text.
        helpers: the helpers that it calls.
    """

    def __init__(
        self,
        kernel: Kernel,
        names: Identifiers,
        places: dict[str, NamedStorage],
        mbarriers: dict[str, str],
        helpers: set[Helper],
        queues: dict[str, tuple[str, str]],
    ) -> None:
        self.queues = queues
        self.kernel = kernel
        self.names = names
        self.places = places
        self.mbarriers = mbarriers
        self.helpers = helpers
        self._packed = packed_in(kernel)
        self.unrolled = frozenset(s.var for s in walk(kernel) if isinstance(s, For) and s.unroll)
        self.lines: list[str] = []
        self._scalars: dict[str, DType] = {p.name: p.dtype for p in kernel.params if isinstance(p, ScalarParam)}

    # -- lines ----------------------------------------------------------------------------------------------------------------------

    def line(self, scope: TextScope, text: str) -> None:
        """One line at the depth of ``scope``."""
        self.lines.append(INDENT * scope.depth + text)

    def unroll(self) -> None:
        """Unroll the loop whose head comes next."""
        self.lines.append("#pragma unroll")

    def keep(self) -> None:
        """Do not unroll the loop whose head comes next."""
        self.lines.append("#pragma unroll 1")

    def call(self, scope: TextScope, helper: Helper, *arguments: str, template: str = "") -> None:
        """A line that calls a helper."""
        self.helpers.add(helper)
        self.line(scope, f"{helper.name}{template}({', '.join(arguments)});")

    def use(self, fragment: Snippet) -> str:
        """The text of a snippet, whose helpers are added to the kernel."""
        self.helpers |= fragment.helpers
        return fragment.text

    # -- operands -------------------------------------------------------------------------------------------------------------------

    def element(self, access: Access, scope: TextScope) -> str:
        """The text of an element."""
        return self.places[access.buffer].element(access.index, scope.indices)

    def address(self, access: Access, scope: TextScope) -> str:
        """The text of its address, for what takes elements as they are stored."""
        assert not self.places[access.buffer].holds_floats, f"{access.buffer} has registers of floats"
        return f"&{self.element(access, scope)}"

    def slot(self, slot: BarrierSlot, scope: TextScope) -> str:
        """The text of the address of an mbarrier."""
        return f"&{self.mbarriers[slot.name]}[{scope.indices.text(slot.slot)}]"

    def statement(self, stmt: Stmt, call: HelperCall, scope: TextScope) -> None:
        """A line for a statement that is one call."""
        self.call(scope, call.helper, *(self._argument(getattr(stmt, field), scope) for field in call.fields))

    def _argument(self, value: Expr | BarrierSlot | Access | int, scope: TextScope) -> str:
        match value:
            case int():
                return str(value)
            case BarrierSlot():
                return self.slot(value, scope)
            case Access():
                return self.address(value, scope)
            case _:
                return scope.indices.text(value)

    def dtype(self, operand: Operand) -> DType:
        """See :func:`~taskfuse.kir.operands.dtype_of`."""
        return dtype_of(operand, lambda name: self.places[name].dtype if isinstance(operand, Access) else self._scalars[name])

    def operand(self, operand: Operand, dtype: DType, scope: TextScope) -> str:
        """The text of an operand converted to ``dtype``."""
        match operand:
            case Access():
                return self.converted(self.places[operand.buffer], self.element(operand, scope), dtype)
            case Immediate():
                if operand.dtype is dtype:
                    return literal(operand.value, dtype)
                return self.use(convert(literal(operand.value, operand.dtype), operand.dtype, dtype))
            case ScalarValue(name=name):
                return self.use(convert(self.names[name], self._scalars[name], dtype))
            case IndexOf(value=value):
                return self.use(convert(scope.indices.wide_text(value, Level.UNARY), int64, dtype))

    def converted(self, place: NamedStorage, text: str, dtype: DType) -> str:
        """The text of an element of some storage converted to ``dtype``."""
        if place.holds_floats and dtype is bfloat16:
            return self.use(bits(text))
        return self.use(convert(text, float32 if place.holds_floats else place.dtype, dtype))

    def float_of_index(self, stmt: Compute, scope: TextScope) -> str | None:
        """The text of an index that becomes a float32: what iterations of unrolled loops have in common, which is converted once, plus a constant of each.
        ``None``: the statement does something else, the index is no such sum, or float32 lacks some of these numbers."""
        match stmt.operands:
            case (IndexOf(value=Sum() as value),) if stmt.op.cpp.moves and stmt.dtype in (int32, int64) and self.dtype(stmt.out) is float32:
                constant = sum((term * k for term, k in value.terms if term.free <= self.unrolled), start=const(0))
            case _:
                return None
        common = value - constant
        if constant is ZERO or not common.free:
            return None
        if not all(-EXACT <= bound <= EXACT for e in (common, constant, value) for bound in scope.indices.ranges.of(e)):
            return None
        return " + ".join(f"(float){scope.indices.text(e, Level.UNARY)}" for e in (common, constant))

    def store(self, out: Access, text: str, dtype: DType, scope: TextScope) -> None:
        """A line that stores a value of ``dtype`` in an element, converted to its dtype."""
        place = self.places[out.buffer]
        converted = rounded(text, dtype) if place.holds_floats else convert(text, dtype, place.dtype, packed=out.buffer in self._packed)
        self.line(scope, f"{self.element(out, scope)} = {bare(self.use(converted))};")

    def move(self, out: Access, source: Access, scope: TextScope) -> None:
        """A line that copies an element to one of the same dtype."""
        place, dtype = self.places[out.buffer], self.places[source.buffer].dtype
        if place.holds_floats and self.places[source.buffer].holds_floats:
            self.line(scope, f"{self.element(out, scope)} = {self.element(source, scope)};")
        else:
            self.store(out, self.operand(source, dtype, scope), dtype, scope)
