"""The text of a kernel's Python code: integer expressions, names, checks of indices, addresses, accesses.

Expressions have the values of the CUDA text, which rounds quotients down, whatever their signs, and is undefined for a divisor of 0 or an index outside
its table. Python's operators agree; they raise in the latter two cases.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import gcd

from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import And, Compare, Const, Element, Expr, FloorDiv, Max, Min, Mod, Not, Or, Product, Select, Sum, Sym, Table, UpperBound, Xor
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel, walk
from taskfuse.kir.declarations import Buffer, TensorParam
from taskfuse.kir.nodes import Stmt, TmaLoad, TmaStore
from taskfuse.kir.operands import Access, BarrierSlot, IndexOf, Operand, SemaphoreSlot
from taskfuse.kir.products import LdMatrix, StMatrix, Wgmma
from taskfuse.kir.walk import accesses


def python_text(e: Expr, name: Callable[[str], str]) -> str:
    """The text of an expression; ``name`` gives the identifier of a symbol."""

    def text(e: Expr) -> str:
        match e:
            case Const(value):
                return str(value) if value >= 0 else f"({value})"
            case Sym(symbol):
                return name(symbol)
            case Sum(terms, constant):
                parts = [text(t) if k == 1 else f"{k}*{text(t)}" for t, k in terms] + ([str(constant)] if constant else [])
                return f"({' + '.join(parts)})"
            case Product(factors):
                return f"({'*'.join(map(text, factors))})"
            case FloorDiv(a, b):
                return f"({text(a)} // {text(b)})"
            case Mod(a, b):
                return f"({text(a)} % {text(b)})"
            case Xor(a, b):
                return f"({text(a)} ^ {text(b)})"
            case Min(args):
                return f"min({', '.join(map(text, args))})"
            case Max(args):
                return f"max({', '.join(map(text, args))})"
            case Select(cond, a, b):
                return f"({text(a)} if {text(cond)} else {text(b)})"
            case Compare(op, a, b):
                return f"({text(a)} {op.value} {text(b)})"
            case And(args):
                return f"({' and '.join(map(text, args))})"
            case Or(args):
                return f"({' or '.join(map(text, args))})"
            case Not(a):
                return f"(not {text(a)})"
            case Table(values, index):
                return f"entry({values!r}, {text(index)})"
            case Element(tensor, index, _, low, high):
                return f"min(max(entry({name(tensor.name)}, {text(index)}), {text(low)}), {text(high)})"
            case UpperBound(tensor, size, low, high, divisor, step, sought):
                element = f"min(max(entry({name(tensor.name)}, k), {text(low)}), {text(high)})"
                return f"sum({element} // {divisor} + {step} * k <= {text(sought)} for k in range(1, {text(size)} - 1))"
            case _:
                raise AssertionError(type(e))

    return text(e)


def entry(values: tuple[int, ...], index: int) -> int:
    """An entry of a table."""
    if not 0 <= index < len(values):
        raise LookupError(f"entry {index} of a table of {len(values)}")
    return values[index]


WORD = 4
"""Bytes of an element that a lane receives from, or passes to, a matrix of 8 rows."""


def cells(kernel: Kernel, memory: MemoryType) -> int:
    """Bytes of a cell of Shared or Global memory: no element that a statement accesses is smaller, or lies across cells."""
    named = {access.buffer for s in walk(kernel) if not isinstance(s, TmaLoad | TmaStore | Wgmma) for side in accesses(s) for access in side}
    mapped = any(isinstance(s, TmaLoad | TmaStore) for s in walk(kernel))
    size = 16
    for b in kernel.buffers:
        if MEDIA[b.memory].is_placed if memory is MemoryType.Shared else b.memory is memory:
            if b.name in named:
                size = gcd(size, WORD if any(isinstance(s, LdMatrix | StMatrix) for s in walk(kernel)) else 16, b.dtype.itemsize)
            size = gcd(size, b.align if b.offset is None or not isinstance(b.offset, Const) else b.offset.value or 16)
    if memory is MemoryType.Global:
        overwritten = kernel.in_place.values()
        for p in (*kernel.outputs, *(p for p in kernel.inputs if p.name in overwritten)):
            size = gcd(size, p.dtype.itemsize) if p.name in named or mapped else size
    return size


@dataclass(slots=True)
class PythonWriter:
    """Writes Python, with the number of the statement of each line."""

    kernel: Kernel
    names: dict[str, str] = field(default_factory=dict[str, str])
    text: list[str] = field(default_factory=list[str])
    lines: list[int] = field(default_factory=list[int])
    sites: list[Stmt] = field(default_factory=list[Stmt])
    depth: int = 1
    site: int = -1
    temporaries: int = 0
    cursors: dict[str, int] = field(default_factory=dict[str, int])
    storage: dict[str, TensorParam | Buffer] = field(default_factory=dict[str, TensorParam | Buffer])
    slots: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    shared_cell: int = 4
    global_cell: int = 4
    registers: bool = False

    # -- text ---------------------------------------------------------------------------------------------------------------------------

    def name(self, symbol: str) -> str:
        return self.names.setdefault(symbol, f"v{len(self.names)}")

    def add(self, *lines: str) -> None:
        for line in lines:
            self.text.append(" " * self.depth + line)
            self.lines.append(self.site)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        self.add(head)
        self.depth += 1
        self.add("pass")
        yield
        self.depth -= 1

    def fresh(self) -> str:
        self.temporaries += 1
        return f"i{self.temporaries}"

    def value(self, e: Expr) -> str:
        return python_text(e, self.name)

    def held(self, e: Expr) -> str:
        """A name, or a literal, for the value of an expression."""
        if isinstance(e, Const):
            return self.value(e)
        made = self.fresh()
        self.add(f"{made} = {self.value(e)}")
        return made

    def tuple_of(self, parts: Iterable[str]) -> str:
        return "(" + "".join(f"{p}, " for p in parts) + ")"

    # -- addresses ----------------------------------------------------------------------------------------------------------------------

    def index(self, access: Access, width: int = 1, first: int = 0) -> str:
        """Check an access's indices; the number of its element, along the axes from ``first`` on."""
        number = self.storage_number(access.buffer)
        found = "0"
        for axis, e in enumerate(access.index):
            i, extent = self.held(e), f"E{number}_{axis}"
            last = width - 1 if axis == len(access.index) - 1 else 0
            self.add(f"if not 0 <= {i} < {extent}{f' - {last}' if last else ''}: m.outside(t, {self.site}, {access.buffer!r}, {axis}, {i}, {extent})")
            found = i if axis <= first else f"({found}*{extent} + {i})"
        return found if len(access.index) > first else "0"

    def storage_number(self, name: str) -> int:
        return [*self.storage].index(name)

    def memory(self, name: str) -> MemoryType:
        place = self.storage[name]
        return place.memory if isinstance(place, Buffer) else MemoryType.Global

    def address(self, access: Access, width: int = 1) -> str:
        """A name for the byte address of an element."""
        medium = MEDIA[self.memory(access.buffer)]
        element = self.index(access, width, 1 if medium.is_by_rank else 0)
        size = self.storage[access.buffer].dtype.itemsize
        block = "sb + " if medium.is_placed else ""
        if medium.is_by_rank:
            block = f"m.of_rank(t, {self.site}, b, {self.held(access.index[0])}) + "
        made = self.fresh()
        self.add(f"{made} = {block}B{self.storage_number(access.buffer)} + {element}*{size}")
        return made

    def cells_of(self, access: Access, address: str, size: int) -> str:
        cell = self.shared_cell if MEDIA[self.memory(access.buffer)].is_placed else self.global_cell
        return f"range({address}//{cell}, ({address} + {size - 1})//{cell} + 1)"

    def is_input(self, name: str) -> bool:
        place = self.storage[name]
        return isinstance(place, TensorParam) and not place.is_output and name not in self.kernel.in_place.values()

    def touch(self, access: Access, what: str, width: int = 1, align: int = 0) -> None:
        """An access of a thread: its bounds, its alignment, its order; registers only where a wgmma may hold them."""
        memory = self.memory(access.buffer)
        size = self.storage[access.buffer].dtype.itemsize
        if memory is MemoryType.Local:
            element = self.index(access, width)
            if self.registers:
                for k in range(width):
                    self.add(f"m.engines.register(t, {self.site}, {access.buffer!r}, {element} + {k})")
            return
        if self.is_input(access.buffer) and not align:
            self.index(access, width)
            return
        address = self.address(access, width)
        if align > 1:
            self.add(f"if {address} % {align}: m.misaligned(t, {self.site}, {address}, {align})")
        if self.is_input(access.buffer):
            return
        cell = self.shared_cell if MEDIA[memory].is_placed else self.global_cell
        if size * width == cell:
            self.add(f"{what}(t, {address}//{cell}, {self.site})")
        else:
            self.add(f"m.memory.{what}_all(t, {self.cells_of(access, address, size * width)}, {self.site})")

    def operand(self, operand: Operand) -> None:
        match operand:
            case Access():
                self.touch(operand, "read")
            case IndexOf(value=value):
                if not isinstance(value, Const):
                    self.add(self.value(value))
            case _:
                pass

    def slot(self, slot: BarrierSlot) -> str:
        first, count = self.slots[slot.name]
        s = self.held(slot.slot)
        self.add(f"if not 0 <= {s} < {count}: m.outside(t, {self.site}, {slot.name!r}, 0, {s}, {count})")
        return f"mb + {first} + {s}"

    def counter(self, slot: SemaphoreSlot) -> str:
        parts = [self.held(e) for e in slot.index]
        for axis, i in enumerate(parts):
            self.add(f"if not 0 <= {i} < m.launch.semaphores[{slot.name!r}][0][{axis}]: m.outside(t, {self.site}, {slot.name!r}, {axis}, {i}, -1)")
        return self.tuple_of((repr(slot.name), *parts))
