"""The text of PTX: one function as instructions over registers, with the data declared by its module.

It reads NVRTC's output and rejects everything else. Registers of inner scopes are renamed, so that each name is one register.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from taskfuse.testing.ptx.nodes import SIZES, Data, Float, Integer, Operand, Param, PtxAddress, PtxError, PtxFunction, PtxInstruction, Register, Symbol, Vector

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<float>0[fFdD][0-9a-fA-F]{8,16})
    | (?P<integer>-?(?:0[xX][0-9a-fA-F]+|\d+)U?)
    | (?P<name>[.%$_A-Za-z](?:[\w$.]|::)*)
    | (?P<mark>"[^"]*"|[][{}();:,@!+|<>=-])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class _Tokens:
    """The tokens of a text, each with its line."""

    items: list[tuple[str, int]]
    at: int = 0

    @staticmethod
    def of(text: str) -> _Tokens:
        items: list[tuple[str, int]] = []
        place, line = 0, 1
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise PtxError(line, f"no token: {text[place : place + 20]!r}")
            if found.lastgroup is not None:
                items.append((found[0], line))
            line += found[0].count("\n")
            place = found.end()
        return _Tokens(items)

    @property
    def line(self) -> int:
        return self.items[self.at if self.at < len(self.items) else -1][1]

    def peek(self, ahead: int = 0) -> str:
        return self.items[self.at + ahead][0] if self.at + ahead < len(self.items) else ""

    def next(self) -> str:
        token = self.peek()
        if not token:
            raise PtxError(self.line, "the text ends too early")
        self.at += 1
        return token

    def take(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        line = self.line
        if not self.take(token):
            raise PtxError(line, f"{token!r} is expected, not {self.peek()!r}")

    def until(self, token: str) -> list[str]:
        found: list[str] = []
        while (item := self.next()) != token:
            found.append(item)
        return found

    def rest(self) -> list[str]:
        """The tokens of this line."""
        line, found = self.line, [self.next()]
        while self.peek() and self.line == line:
            found.append(self.next())
        return found


@dataclass(slots=True)
class _Body:
    """The body of a function while it is read."""

    tokens: _Tokens
    code: list[PtxInstruction] = field(default_factory=list[PtxInstruction])
    labels: dict[str, int] = field(default_factory=dict[str, int])
    data: dict[str, Data] = field(default_factory=dict[str, Data])
    scopes: list[dict[str, Register]] = field(default_factory=lambda: [{}])
    widths: dict[str, int] = field(default_factory=dict[str, int])
    count: int = 0
    used: int | None = None

    def read(self) -> None:
        """All statements up to the brace that closes the function."""
        t = self.tokens
        while self.scopes:
            token = t.peek()
            if token == "{":
                t.next()
                self.scopes.append({})
            elif token == "}":
                t.next()
                self.scopes.pop()
            elif token == ".reg":
                self._registers()
            elif token in (".pragma", ".loc"):
                self._directive(token)
            elif token.startswith("."):
                _declaration(t, self.data)
            elif t.peek(1) == ":":
                self.labels[token] = len(self.code)
                t.next()
                t.next()
            else:
                self._instruction()

    def _directive(self, token: str) -> None:
        if token == ".pragma":
            said = " ".join(self.tokens.until(";")).replace('"', "").split()
            if "used_bytes_mask" in said:
                self.used = int(said[-1], 0)
        else:
            self.tokens.rest()

    def _registers(self) -> None:
        t = self.tokens
        _, kind, *names = t.until(";")
        bits = 1 if kind == ".pred" else 8 * SIZES[kind[1:]]
        for k, name in enumerate(names):
            if k + 1 < len(names) and names[k + 1] == "<":  # %r<9>: all of %r0 to %r8
                self.widths[name] = bits
            elif re.match(r"[%$_A-Za-z]", name):
                self.scopes[-1][name] = Register(f"{name}'{self.count}", bits)
                self.count += 1

    def _instruction(self) -> None:
        t = self.tokens
        line = t.line
        guard, negated = None, False
        if t.take("@"):
            negated = t.take("!")
            guard = self._register(t.next(), line)
        opcode = tuple(t.next().split("."))
        operands: list[Operand] = []
        while not t.take(";"):
            if t.take("("):  # of a call: all its operands in a row
                continue
            if t.take(")"):
                t.take(",")
                continue
            operands.append(self._operand())
            if t.take("|"):  # a second result: of shfl
                operands.append(self._operand())
            t.take(",")
        self.code.append(PtxInstruction(line, opcode, tuple(operands), guard, negated, self.used))
        self.used = None

    def _register(self, name: str, line: int) -> Register:
        found = self._name(name)
        if not isinstance(found, Register):
            raise PtxError(line, f"{name!r} is not a register")
        return found

    def _name(self, name: str) -> Register | Symbol:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return Register(name, self.widths.get(name.rstrip("0123456789"), 64)) if name.startswith("%") else Symbol(name)

    def _operand(self) -> Operand:
        t = self.tokens
        line, token = t.line, t.next()
        if token == "{":
            parts: list[Operand] = []
            while not t.take("}"):
                parts.append(self._operand())
                t.take(",")
            return Vector(tuple(parts))
        if token == "[":
            base, offset, coordinates = self._operand(), 0, ()
            if t.take("+") or re.match(r"-\d", t.peek()):
                offset = _integer(t.next(), line)
            if t.take(","):
                inner = self._operand()
                coordinates = inner.parts if isinstance(inner, Vector) else (inner,)
            t.expect("]")
            return PtxAddress(base, offset, coordinates)
        if re.match(r"0[fFdD]", token):
            return Float(token)
        if re.match(r"-?\d", token):
            return Integer(_integer(token, line))
        if token == "!":
            raise PtxError(line, "a negated operand")
        return self._name(token)


def _integer(token: str, line: int) -> int:
    try:
        return int(token.rstrip("U"), 0)
    except ValueError as error:
        raise PtxError(line, f"{token!r} is not an integer") from error


def _declaration(t: _Tokens, data: dict[str, Data]) -> None:
    """An array: ``.global .align 4 .b8 name[24] = {1, 2, ...};``, or the parameter of a call."""
    line = t.line
    words = t.until(";")
    space = next((w[1:] for w in words if w in (".shared", ".global", ".const", ".local", ".param")), None)
    size = next((SIZES[w[1:]] for w in words if w[1:] in SIZES and w.startswith(".")), None)
    name = next((w for w in words if re.match(r"[_$A-Za-z]", w)), None)
    if space is None or size is None or name is None:
        raise PtxError(line, f"a declaration: {' '.join(words)}")
    values = None
    if "=" in words:
        listed = [w for w in words[words.index("=") + 1 :] if w not in "{},"]
        values = tuple(int(w[2:], 16) if re.match(r"0[fFdD]", w) else _integer(w, line) for w in listed)
    count = 1
    if "[" in words:
        number = words[words.index("[") + 1]
        count = 0 if number == "]" else _integer(number, line)
    data[name] = Data(space, size, values, count)


def _parameters(t: _Tokens) -> tuple[Param, ...]:
    found: list[Param] = []
    words: list[str] = []
    while True:
        line, token = t.line, t.next()
        if token not in (",", ")"):
            words.append(token)
            continue
        if words:
            sizes = [SIZES[w[1:]] for w in words if w.startswith(".") and w[1:] in SIZES]
            if len(sizes) != 1:
                raise PtxError(line, f"a parameter: {' '.join(words)}")
            align = int(words[words.index(".align") + 1]) if ".align" in words else sizes[0]
            name = next(w for w in words if re.match(r"[_$A-Za-z]", w))
            count = int(words[words.index("[") + 1]) if "[" in words else 1
            found.append(Param(name, sizes[0] * count, align))
            words = []
        if token == ")":
            return tuple(found)


def _kernels(t: _Tokens) -> Iterator[PtxFunction]:
    target = ""
    data: dict[str, Data] = {}
    callees: dict[str, PtxFunction] = {}
    while token := t.peek():
        line = t.line
        match token:
            case ".version" | ".address_size":
                t.rest()
            case ".target":
                target = t.rest()[1]
            case ".visible" | ".weak" | ".entry":
                if t.next() != ".entry":
                    t.expect(".entry")
                name = t.next()
                t.expect("(")
                params = _parameters(t)
                limits: dict[str, tuple[int, ...]] = {}
                while not t.take("{"):
                    directive = t.next()
                    numbers: list[int] = []
                    while re.fullmatch(r"\d+", t.peek()):
                        numbers.append(int(t.next()))
                        t.take(",")
                    limits[directive[1:]] = tuple(numbers)
                body = _Body(t)
                body.read()
                yield PtxFunction(name, params, tuple(body.code), body.labels, limits, data | body.data, target, callees)
            case ".func":
                t.next()
                results = _parameters(t) if t.take("(") else ()
                name = t.next()
                t.expect("(")
                params = _parameters(t)
                while not t.take("{") and not t.take(";"):
                    t.next()
                if t.items[t.at - 1][0] == "{":
                    body = _Body(t)
                    body.read()
                    callees[name] = PtxFunction(name, (*results, *params), tuple(body.code), body.labels, {}, body.data, target, callees)
            case _ if token.startswith("."):
                _declaration(t, data)
            case _:
                raise PtxError(line, f"{token!r} where a declaration is expected")


def read(text: str) -> PtxFunction:
    """The one kernel of a text.

    Raises:
        PtxError: an unsupported construct; no kernel, or several.
    """
    tokens = _Tokens.of(text)
    found = list(_kernels(tokens))
    if len(found) != 1:
        raise PtxError(tokens.line, f"one kernel is expected, not {len(found)}")
    return found[0]
