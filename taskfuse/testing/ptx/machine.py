"""Runs one thread of a function; actions that others observe are passed on as events.

The function becomes a Python program with only the instructions that its observable actions need. There are two kinds of programs:

- :func:`machine`: events, addresses and branches alone. What is loaded, and floating-point results, are unknown. Control flow of a kernel does not depend
  on data, but the computation of an element may: if data decides a branch, both paths must be free of events up to where they rejoin. The program continues
  there, with their results unknown.
- :func:`data_machine`: values, too. A thread is a coroutine: it yields each event and is sent its results, so that threads can wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from taskfuse.testing.ptx import unknown
from taskfuse.testing.ptx.blocks import ENDS, BasicBlock, between, blocks, joins
from taskfuse.testing.ptx.events import WHOLE_WARP, Kind, Observed
from taskfuse.testing.ptx.nodes import PtxError, PtxFunction, PtxInstruction, Register, Symbol
from taskfuse.testing.ptx.operands import Happening, Operation, PtxAccess, PtxComputation, identifier, read_by
from taskfuse.testing.ptx.operations import operations
from taskfuse.testing.ptx.unknown import Value

SPECIAL = ("tid", "ntid", "ctaid", "nctaid", "cluster_ctaid", "cluster_nctaid")
UNDEFINED = 0xFBFBFBFBFBFBFBFB
"""The bits of a register that nothing has written, in a thread that computes values."""
STEPS, DATA_STEPS = 100_000, 10_000_000
"""The most basic blocks that a thread runs, and one that computes values."""


class TooLong(Exception):
    """A thread that exceeds the limit."""


class Watcher(Protocol):
    """The observer of a thread. ``line`` is that of the instruction in the text."""

    def event(self, line: int, kind: Kind, operands: tuple[Observed | unknown.Unknown, ...]) -> Value:
        """An action that others observe; returns its result."""
        ...

    def access(self, line: int, store: bool, address: Value, size: int) -> None:
        """An access of Shared or Global memory."""
        ...

    def uncertain(self) -> None:
        """Memory may have been accessed under a condition on data."""
        ...


@dataclass(frozen=True, slots=True)
class PtxMachine:
    """A function that can be run.

    Attributes:
        sites: the lines of all events and of all accesses of Shared and Global memory.
        events: those of events.
        constant: those of loads of what nothing writes during the launch (``.nc``).
    """

    function: PtxFunction
    entry: Callable[..., int]
    sites: Mapping[int, str]
    events: frozenset[int]
    constant: frozenset[int]

    def run(self, special: Mapping[str, int], at: Mapping[str, int], memory: Callable[[Value, int], Value], watcher: Watcher) -> int:
        """Run one thread; returns the number of basic blocks that it ran.

        Args:
            special: values of special registers.
            at: addresses of parameters and data.
            memory: reads parameters and constant data: an address and a size.

        Raises:
            TooLong: it does not end within the limit.
            PtxError: whether an event happens depends on data.
        """
        return self.entry(special, at, memory, watcher)


class ThreadMemory(Protocol):
    """All memory that a thread sees. Addresses are those of the state space that an instruction names."""

    def load(self, line: int, space: str, address: int, size: int, used: int | None = None) -> int:
        """The bytes at an address, as an integer; with ``used``, those of its bits, the others are arbitrary."""
        ...

    def store(self, line: int, space: str, address: int, size: int, value: int) -> None:
        """Write the bytes of an integer."""
        ...


ThreadEvent = tuple[int, Kind, tuple[Any, ...], tuple[int, ...]]
"""Line, kind, operands and data of an event."""
Thread = Generator[ThreadEvent, Sequence[int], int]
"""A running thread: it is sent the results of each event, and returns the number of basic blocks that it ran."""


@dataclass(frozen=True, slots=True)
class DataMachine:
    """A function whose threads compute values.

    Attributes:
        code: the instruction of each line with one.
        private: place of each array that every thread has of its own, in the thread's ``private_bytes`` bytes.
    """

    function: PtxFunction
    code: Mapping[int, PtxInstruction]
    entry: Callable[..., Thread]
    private: Mapping[str, int]
    private_bytes: int

    def thread(self, special: Mapping[str, int], at: Mapping[str, int], memory: ThreadMemory) -> Thread:
        """A thread at its beginning.

        Args:
            special: values of special registers.
            at: addresses of parameters and data.
        """
        return self.entry(special, at, memory)


_HELPERS = (
    *("equal", "least", "greatest", "quotient", "remainder", "absolute", "choose", "shifted", "bits", "inserted", "logic", "permuted", "funnel"),
    *("ones", "zeros", "mirrored", "highest", "dots", "half_dots", "generic", "specific", "mapa"),
)


def machine(function: PtxFunction) -> PtxMachine:
    """``function`` as a program.

    Raises:
        PtxError: an unknown instruction.
    """
    return _MachineBuilder(function).build()


def data_machine(function: PtxFunction) -> DataMachine:
    """``function`` as a program that computes values.

    Raises:
        PtxError: an unknown instruction.
    """
    return _DataBuilder(function).build_data()


@dataclass(slots=True)
class _MachineBuilder:
    function: PtxFunction
    decoded: list[tuple[Operation, ...]] = field(default_factory=list[tuple[Operation, ...]])
    needed: set[str] = field(default_factory=set[str])
    lines: list[str] = field(default_factory=list[str])
    sites: dict[int, str] = field(default_factory=dict[int, str])

    def build(self) -> PtxMachine:
        self._decode()
        self._slice()
        found = blocks(self.function)
        meets = joins(found)
        start = ", ".join(["r__none"]) if not self.needed else " = ".join(sorted(self.needed))
        self.lines = ["def run(special, at, memory, watcher):", f"  {start} = U", "  event, access = watcher.event, watcher.access"]
        for name in sorted(self.needed):
            value = self._special(name)
            if value is not None:
                self.lines.append(f"  {name} = {value}")
        self.lines += ["  threads = special['ntid.x'] * special['ntid.y'] * special['ntid.z']", f"  pc, left = 0, {STEPS}", f"  while pc != {len(found)}:"]
        self.lines += ["    left -= 1", "    if not left: raise TooLong()"]
        self._choose(found, meets, 0, len(found), 4)
        self.lines.append(f"  return {STEPS} - left")
        scope: dict[str, Any] = {name: getattr(unknown, name) for name in _HELPERS}
        scope |= {"U": unknown.UNKNOWN, "Kind": Kind, "PtxError": PtxError, "TooLong": TooLong}
        exec(compile("\n".join(self.lines), f"<{self.function.name}>", "exec"), scope)
        every = [(i.line, o) for i, done in zip(self.function.code, self.decoded, strict=True) for o in done]
        events = frozenset(line for line, o in every if isinstance(o, Happening) and o.kind not in WHOLE_WARP)
        constant = frozenset(line for line, o in every if isinstance(o, PtxAccess) and o.constant)
        return PtxMachine(self.function, scope["run"], self.sites, events, constant)

    def _decode(self) -> None:
        for i in self.function.code:
            control = i.opcode[0] == "bra" or i.opcode[0] in ENDS
            self.decoded.append(() if control else operations(i))
            if i.opcode[0] == "call":
                self._check_call(i, frozenset())

    def _check_call(self, call: PtxInstruction, callers: frozenset[str]) -> None:
        """Check that the called function only computes."""
        name = callee(self.function, call).name
        if name in callers:
            raise PtxError(call.line, "a function that calls itself")
        for i in self.function.callees[name].code:
            if i.opcode[0] == "call":
                self._check_call(i, callers | {name})
            elif i.opcode[0] != "bra" and i.opcode[0] not in ENDS:
                for operation in operations(i):
                    is_own = isinstance(operation, PtxAccess) and (operation.space in ("param", "local", "const") or operation.constant)
                    if isinstance(operation, Happening) or (isinstance(operation, PtxAccess) and not is_own):
                        raise PtxError(i.line, f"a called function does more than compute: {i}")

    def _special(self, name: str) -> str | None:
        plain = name.removeprefix("r__")
        for s in SPECIAL:
            if plain in (f"{s}_{d}" for d in "xyz"):
                return f"special['{s}.{plain[-1]}']"
        if plain == "laneid":
            return "(special['tid.x'] + special['ntid.x'] * (special['tid.y'] + special['ntid.y'] * special['tid.z'])) % 32"
        return None

    def _reads(self, operation: Operation) -> frozenset[str]:
        """The registers that an operation needs: of an access, those of its address, of an event, those of its operands."""
        return operation.reads

    def _slice(self) -> None:
        """The registers that events, addresses and branches need."""
        writes: dict[str, set[str]] = {}
        roots: set[str] = set()
        for i, done in zip(self.function.code, self.decoded, strict=True):
            guard = {identifier(i.guard)} if i.guard else set[str]()
            if not done:
                roots |= guard
            for operation in done:
                match operation:
                    case PtxComputation(out=out):
                        writes.setdefault(identifier(out), set()).update(self._reads(operation) | guard)
                    case PtxAccess() | Happening():
                        roots |= self._reads(operation) | guard
        stack = list(roots)
        while stack:
            name = stack.pop()
            if name not in self.needed:
                self.needed.add(name)
                stack += writes.get(name, ())

    # -- program text -------------------------------------------------------------------------------------------------------------------

    def _choose(self, found: tuple[BasicBlock, ...], meets: tuple[int, ...], low: int, high: int, depth: int) -> None:
        """The blocks ``low`` up to ``high`` under a search for the one that is next."""
        if high - low == 1:
            self._block(found, meets, low, " " * depth)
            return
        middle = (low + high) // 2
        self.lines.append(f"{' ' * depth}if pc < {middle}:")
        self._choose(found, meets, low, middle, depth + 1)
        self.lines.append(f"{' ' * depth}else:")
        self._choose(found, meets, middle, high, depth + 1)

    def _block(self, found: tuple[BasicBlock, ...], meets: tuple[int, ...], k: int, pad: str) -> None:
        block = found[k]
        for i, done in zip(self.function.code[block.first : block.last], self.decoded[block.first : block.last], strict=True):
            for operation in done:
                self._operation(i, operation, pad)
        last = self.function.code[block.last - 1]
        if len(block.after) == 1:
            self.lines.append(f"{pad}pc = {block.after[0]}")
            return
        assert last.guard is not None
        guard = identifier(last.guard)
        yes, no = block.after if not last.negated else block.after[::-1]
        self.lines.append(f"{pad}if {guard} is U:")
        self._by_data(found, k, meets[k], last, pad + " ")
        self.lines.append(f"{pad}else: pc = {yes} if {guard} else {no}")

    def _by_data(self, found: tuple[BasicBlock, ...], k: int, join: int, last: PtxInstruction, pad: str) -> None:
        """A branch that depends on data: the registers that either side writes become unknown."""
        written: set[str] = set()
        touches = False
        for n in between(found, k, join):
            for i, done in zip(self.function.code[found[n].first : found[n].last], self.decoded[found[n].first : found[n].last], strict=True):
                for operation in done:
                    match operation:
                        case PtxComputation(out=out):
                            written.add(identifier(out))
                        case PtxAccess(outs=outs, space=space):
                            written |= {identifier(out) for out in outs}
                            touches = touches or space in ("shared", "global", "generic")
                        case Happening(kind=kind) if kind in WHOLE_WARP:
                            written |= {identifier(out) for out in operation.results}
                        case Happening(kind=Kind.UPDATE):  # of an element that data names, or of none
                            touches = True
                        case Happening():
                            self.lines.append(f"{pad}raise PtxError({last.line}, 'data decides whether line {i.line} is executed: {'.'.join(i.opcode)}')")
                            return
        for name in sorted(written & self.needed):
            self.lines.append(f"{pad}{name} = U")
        if touches:
            self.lines.append(f"{pad}watcher.uncertain()")
        self.lines.append(f"{pad}pc = {join}")

    def _operation(self, i: PtxInstruction, operation: Operation, pad: str) -> None:
        text = self._text(i, operation)
        if not text:
            return
        if i.guard is None:
            self.lines += [pad + line for line in text]
            return
        guard = identifier(i.guard)
        self.lines.append(f"{pad}if {guard} is U:")
        self.lines += [f"{pad} {line}" for line in self._guarded_by_data(i, operation)]
        self.lines.append(f"{pad}elif {'not ' if i.negated else ''}{guard}:")
        self.lines += [f"{pad} {line}" for line in text]

    def _guarded_by_data(self, i: PtxInstruction, operation: Operation) -> list[str]:
        match operation:
            case PtxComputation(out=out):
                return [f"{identifier(out)} = U"]
            case PtxAccess(outs=outs):
                return [f"{identifier(out)} = U" for out in outs if identifier(out) in self.needed] + ["watcher.uncertain()"]
            case Happening(kind=kind) if kind in WHOLE_WARP:
                return self._read(operation.results, "U")
            case Happening(kind=Kind.UPDATE):
                return ["watcher.uncertain()"]
            case Happening():
                return [f"raise PtxError({i.line}, 'data decides whether this is executed: {'.'.join(i.opcode)}')"]

    def _text(self, i: PtxInstruction, operation: Operation) -> list[str]:
        match operation:
            case PtxComputation(out=out, value=value):
                return [f"{identifier(out)} = {'U' if value is None else value}"] if identifier(out) in self.needed else []
            case PtxAccess(space="param" | "const", outs=outs):
                return self._read(outs, f"memory({operation.address}, {operation.size // max(len(outs), 1)})")
            case PtxAccess(space="local", outs=outs):
                return self._read(outs, "U")
            case PtxAccess(outs=outs):
                self.sites[i.line] = str(i)
                parts = _used(operation.size, i.used)
                lines = [f"access({i.line}, {operation.store}, {operation.address}{f' + {at}' if at else ''}, {size})" for at, size in parts]
                return lines + self._read(outs, f"memory({operation.address}, {operation.size // max(len(outs), 1)})")
            case Happening(kind=kind, operands=operands, out=out, lost=lost):
                if kind not in WHOLE_WARP:
                    self.sites[i.line] = str(i)
                call = f"event({i.line}, Kind.{kind.name}, ({''.join(text + ', ' for text in operands)}))"
                result = f"{identifier(out)} = {call}" if out is not None and identifier(out) in self.needed else call
                return [result, *self._read(lost, "U")]

    def _read(self, outs: tuple[Register, ...], value: str) -> list[str]:
        kept = [identifier(out) for out in outs if identifier(out) in self.needed]
        if len(outs) > 1:
            value = "U"
        return [f"{name} = {value}" for name in kept]


@dataclass(slots=True)
class _DataBuilder(_MachineBuilder):
    """Writes a program in which nothing is unknown. A device function that is called becomes a Python function that is given addresses and memory."""

    scope: dict[str, Any] = field(default_factory=dict[str, Any])

    def build_data(self) -> DataMachine:
        functions = (self.function, *self.function.callees.values())
        sizes: dict[str, int] = {}
        for function in functions:
            arrays = [(name, d.bytes) for name, d in function.data.items() if d.space in ("local", "param")]
            for name, size in arrays if function is self.function else (*arrays, *((p.name, p.size) for p in function.params)):
                sizes[name] = max(size, sizes.get(name, 0))
        private: dict[str, int] = {}
        end = 0
        for name, size in sizes.items():
            private[name] = end
            end += -(-size // 16) * 16
        self.scope |= {name: getattr(unknown, name) for name in _HELPERS} | {"U": unknown.UNKNOWN, "Kind": Kind, "TooLong": TooLong}
        called = [_DataBuilder(f, scope=self.scope) for f in functions[1:]]
        for builder in called:
            builder._write(f"def {_function(builder.function.name)}(at, memory):", is_kernel=False)
        self._write("def run(special, at, memory):", is_kernel=True)
        lines = [line for builder in (*called, self) for line in builder.lines]
        exec(compile("\n".join(lines), f"<{self.function.name}>", "exec"), self.scope)
        code = {i.line: i for f in functions for i in f.code}
        return DataMachine(self.function, code, self.scope["run"], private, end)

    def _write(self, head: str, *, is_kernel: bool) -> None:
        """The function, as Python."""
        self._decode()
        self._slice()
        found = blocks(self.function)
        self.lines = [head, "  load, store = memory.load, memory.store"]
        self._undefined()
        if is_kernel:
            self.lines += [f"  {name} = {value}" for name in sorted(self.needed) if (value := self._special(name)) is not None]
            self.lines.append("  threads = special['ntid.x'] * special['ntid.y'] * special['ntid.z']")
        self.lines += [f"  pc, left = 0, {DATA_STEPS}", f"  while pc != {len(found)}:", "    left -= 1", "    if not left: raise TooLong()"]
        self._choose(found, joins(found), 0, len(found), 4)
        self.lines.append(f"  return {DATA_STEPS} - left")
        if is_kernel and not any("yield" in line for line in self.lines):
            self.lines.append("  yield")  # a thread without events is a coroutine, too

    def _undefined(self) -> None:
        """What registers hold that nothing has written: code in front of a select may compute with them."""
        widths = dict.fromkeys(self.needed, 1)
        for done in self.decoded:
            for operation in done:
                outs = (operation.out,) if isinstance(operation, PtxComputation) else operation.results if isinstance(operation, Happening) else operation.outs
                widths |= {identifier(out): out.bits for out in outs if identifier(out) in widths}
        for bits in sorted(set(widths.values())):
            names = [name for name in sorted(widths) if widths[name] == bits]
            self.lines.append(f"  {' = '.join(names)} = {UNDEFINED & (1 << bits) - 1}")

    def _reads(self, operation: Operation) -> frozenset[str]:
        match operation:
            case PtxAccess(values=values):
                return operation.reads | read_by(*values)
            case Happening(data=data):
                return operation.reads | read_by(*data)
            case PtxComputation():
                return operation.reads

    def _block(self, found: tuple[BasicBlock, ...], meets: tuple[int, ...], k: int, pad: str) -> None:
        block = found[k]
        for i, done in zip(self.function.code[block.first : block.last], self.decoded[block.first : block.last], strict=True):
            if i.opcode[0] == "call":
                self._guarded(i, self._call(i), pad)
            for operation in done:
                self._guarded(i, self._text(i, operation), pad)
        last = self.function.code[block.last - 1]
        if len(block.after) == 1:
            self.lines.append(f"{pad}pc = {block.after[0]}")
            return
        assert last.guard is not None
        yes, no = block.after if not last.negated else block.after[::-1]
        self.lines.append(f"{pad}pc = {yes} if {identifier(last.guard)} else {no}")

    def _guarded(self, i: PtxInstruction, text: list[str], pad: str) -> None:
        if i.guard is not None and text:
            self.lines.append(f"{pad}if {'not ' if i.negated else ''}{identifier(i.guard)}:")
            pad += " "
        self.lines += [pad + line for line in text]

    def _text(self, i: PtxInstruction, operation: Operation) -> list[str]:
        match operation:
            case PtxComputation(out=out, value=value, meaning=meaning):
                if identifier(out) not in self.needed:
                    return []
                if value is None and meaning is None:
                    raise PtxError(i.line, f"{'.'.join(i.opcode)}: what it computes is not known")
                if meaning is not None:
                    name = self._named(meaning.function)
                    value = f"{name}({', '.join(meaning.operands)})"
                return [f"{identifier(out)} = {value}"]
            case PtxAccess(store=True, element=element, values=values):
                mask = (1 << 8 * element) - 1
                whole = " | ".join(f"({v} & {mask}) << {8 * element * k}" if k else f"{v} & {mask}" for k, v in enumerate(values))
                return [f"store({i.line}, {operation.space!r}, {operation.address}, {operation.size}, {whole})"]
            case PtxAccess():
                return self._load(i, operation)
            case Happening(kind=kind, operands=operands, data=data):
                event = f"yield {i.line}, Kind.{kind.name}, ({''.join(text + ', ' for text in operands)}), ({''.join(text + ', ' for text in data)})"
                kept = [(k, out) for k, out in enumerate(operation.results) if identifier(out) in self.needed]
                return [f"reply = {event}", *(f"{identifier(out)} = reply[{k}]" for k, out in kept)] if kept else [event]

    def _load(self, i: PtxInstruction, access: PtxAccess) -> list[str]:
        used = "" if i.used is None else f", {i.used}"
        lines = [f"v = load({i.line}, {access.space!r}, {access.address}, {access.size}{used})"]
        bits = 8 * access.element
        for k, out in zip(access.places, access.outs, strict=True):
            if identifier(out) in self.needed:
                value = "v" if len(access.places) == 1 and access.size == access.element else f"v >> {bits * k} & {(1 << bits) - 1}"
                if access.signed and bits < out.bits:
                    value = f"(({value}) ^ {1 << bits - 1}) - {1 << bits - 1} & {(1 << out.bits) - 1}"
                lines.append(f"{identifier(out)} = {value}")
        return lines

    def _call(self, i: PtxInstruction) -> list[str]:
        """A call: its operands are the results, the function, the arguments."""
        function = callee(self.function, i)
        actual = [o.name for o in i.operands if isinstance(o, Symbol)]
        results = actual.index(function.name)
        del actual[results]
        if len(actual) != len(function.params):
            raise PtxError(i.line, "as many operands as its function has are expected")
        pairs = list(zip(actual, function.params, strict=True))

        def copy(to: str, source: str, size: int) -> str:
            return f"store({i.line}, 'param', at[{to!r}], {size}, load({i.line}, 'param', at[{source!r}], {size}))"

        return [
            *(copy(p.name, name, p.size) for name, p in pairs[results:]),
            f"{_function(function.name)}(at, memory)",
            *(copy(name, p.name, p.size) for name, p in pairs[:results]),
        ]

    def _named(self, function: Callable[..., int]) -> str:
        """The name of a function in the program."""
        name = f"f{id(function)}"
        self.scope[name] = function
        return name


def callee(function: PtxFunction, call: PtxInstruction) -> PtxFunction:
    """The function that is called.

    Raises:
        PtxError: there is none.
    """
    for o in call.operands:
        if isinstance(o, Symbol) and o.name in function.callees:
            return function.callees[o.name]
    raise PtxError(call.line, "a call of a function that does not exist")


def _function(name: str) -> str:
    return "c_" + "".join(c if c.isalnum() else "_" for c in name)


def _used(size: int, mask: int | None) -> list[tuple[int, int]]:
    """The parts of an access that are used: offset and size of each."""
    if mask is None:
        return [(0, size)]
    return [(k, 1) for k in range(size) if mask >> k & 1]
