"""The text of a kernel's body as it grows, and what statements of all kinds are printed with: lines, calls, elements, operands."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.cuda.c_types import literal
from taskfuse.cuda.conversions import convert
from taskfuse.cuda.expressions import Indices, Level
from taskfuse.cuda.names import Names
from taskfuse.cuda.storage import Place
from taskfuse.cuda.text import Fragment, Helper, bare
from taskfuse.dtypes import DType, int64
from taskfuse.kir import Kernel
from taskfuse.kir.nodes import Access, BarrierSlot, Immediate, IndexOf, Operand, ScalarParam, ScalarValue

INDENT = "  "


@dataclass(frozen=True, slots=True)
class Scope:
    """What holds where a statement stands.

    Attributes:
        indices: prints the integers of this scope.
        path: labels of the branches around it.
        depth: nesting of the text.
        cursors: cursors that are declared here.
    """

    indices: Indices
    path: tuple[str, ...]
    depth: int
    cursors: set[str]


class Writer:
    """Writes the body of one kernel, line by line.

    Args:
        places: every buffer and tensor argument.
        mbarriers: identifiers of the mbarrier arrays.

    Attributes:
        lines: the text.
        helpers: what it calls.
    """

    def __init__(self, kernel: Kernel, names: Names, places: dict[str, Place], mbarriers: dict[str, str], helpers: set[Helper]) -> None:
        self.kernel = kernel
        self.names = names
        self.places = places
        self.mbarriers = mbarriers
        self.helpers = helpers
        self.lines: list[str] = []
        self._scalars: dict[str, DType] = {p.name: p.dtype for p in kernel.params if isinstance(p, ScalarParam)}

    # -- lines ----------------------------------------------------------------------------------------------------------------------

    def line(self, scope: Scope, text: str) -> None:
        """One line at the depth of ``scope``."""
        self.lines.append(INDENT * scope.depth + text)

    def unroll(self) -> None:
        """The loop whose head comes next is unrolled."""
        self.lines.append("#pragma unroll")

    def call(self, scope: Scope, helper: Helper, *arguments: str, template: str = "") -> None:
        """A line that calls a helper."""
        self.helpers.add(helper)
        self.line(scope, f"{helper.name}{template}({', '.join(arguments)});")

    def use(self, fragment: Fragment) -> str:
        """The text of a fragment, whose helpers the kernel then has."""
        self.helpers |= fragment.helpers
        return fragment.text

    # -- operands -------------------------------------------------------------------------------------------------------------------

    def element(self, access: Access, scope: Scope) -> str:
        """The text of an element."""
        return self.places[access.buffer].element(access.index, scope.indices)

    def address(self, access: Access, scope: Scope) -> str:
        """The text of its address."""
        return f"&{self.element(access, scope)}"

    def slot(self, slot: BarrierSlot, scope: Scope) -> str:
        """The text of the address of an mbarrier."""
        return f"&{self.mbarriers[slot.name]}[{scope.indices.text(slot.slot)}]"

    def operand(self, operand: Operand, dtype: DType, scope: Scope) -> str:
        """The text of an operand converted to ``dtype``."""
        match operand:
            case Access():
                return self.use(convert(self.element(operand, scope), self.places[operand.buffer].dtype, dtype))
            case Immediate():
                if operand.dtype is dtype:
                    return literal(operand.value, dtype)
                return self.use(convert(literal(operand.value, operand.dtype), operand.dtype, dtype))
            case ScalarValue(name=name):
                return self.use(convert(self.names[name], self._scalars[name], dtype))
            case IndexOf(value=value):
                return self.use(convert(scope.indices.wide_text(value, Level.UNARY), int64, dtype))

    def store(self, out: Access, text: str, dtype: DType, scope: Scope) -> None:
        """A line that stores a value of ``dtype`` in an element, converted to the element's."""
        place = self.places[out.buffer]
        self.line(scope, f"{self.element(out, scope)} = {bare(self.use(convert(text, dtype, place.dtype)))};")
