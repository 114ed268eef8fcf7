"""What one instruction does: it computes integers, accesses memory, is an event that others see, or none of these (PTX ISA, the section of each).

Integers are kept without sign, in the width of their type. What is not computed (floating point, data) is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from taskfuse.testing.ptx.events import Kind
from taskfuse.testing.ptx.text import SIZES, Float, Instruction, Integer, Memory, Operand, PtxError, Register, Symbol, Vector


@dataclass(frozen=True, slots=True)
class Compute:
    """``out`` = a Python expression over registers; ``None``: unknown."""

    out: Register
    value: str | None
    reads: frozenset[str]


@dataclass(frozen=True, slots=True)
class Access:
    """A load or a store of ``size`` bytes; what a load gives is ``outs``."""

    store: bool
    space: str
    address: str
    size: int
    outs: tuple[Register, ...]
    reads: frozenset[str]


@dataclass(frozen=True, slots=True)
class Happening:
    """An event; ``operands`` are Python expressions."""

    kind: Kind
    operands: tuple[str, ...]
    out: Register | None
    lost: tuple[Register, ...]
    reads: frozenset[str]


Operation = Compute | Access | Happening

_DATA = frozenset({"rcp", "sqrt", "rsqrt", "sin", "cos", "ex2", "lg2", "tanh", "fma", "copysign", "testp", "dp4a", "dp2a", "brev", "bfind", "fns"})
"""Opcodes whose results are left unknown."""
_LEVELS = {"cta": "sc.cta", "gl": "sc.gpu", "sys": "sc.sys"}
"""``membar`` as a fence (PTX ISA, "membar")."""
_MEANINGS = {"order": ("release", "acquire", "relaxed"), "scope": ("cta", "cluster"), "space": ("shared::cta", "shared::cluster")}
_INTEGER = re.compile(r"[busf](8|16|32|64)$|pred$|b128$")
_FUNCTIONS = {"min": "least", "max": "greatest", "div": "quotient", "rem": "remainder", "abs": "absolute"}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}


def identifier(r: Register) -> str:
    """The name of a register in Python."""
    return "r_" + re.sub(r"\W", "_", r.name)


def registers(operand: Operand) -> Iterator[Register]:
    """The registers in an operand."""
    match operand:
        case Register():
            yield operand
        case Memory():
            yield from registers(operand.base)
            for c in operand.coordinates:
                yield from registers(c)
        case Vector():
            for part in operand.parts:
                yield from registers(part)
        case Integer() | Float() | Symbol():
            return


def _names(*operands: Operand) -> frozenset[str]:
    return frozenset(identifier(r) for o in operands for r in registers(o))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the operands of one instruction as Python."""

    i: Instruction

    def error(self, what: str) -> PtxError:
        return PtxError(self.i.line, f"{'.'.join(self.i.opcode)}: {what}")

    def value(self, operand: Operand, bits: int = 64) -> str:
        match operand:
            case Register():
                return identifier(operand)
            case Integer(value):
                return str(value & (1 << bits) - 1)
            case Symbol("_"):
                return "0"
            case Symbol(name):
                return f"at[{name!r}]"
            case Float():
                return "U"
            case Memory() | Vector():
                raise self.error("a plain operand is expected")

    def signed(self, operand: Operand, bits: int) -> str:
        if isinstance(operand, Integer):
            return f"({((operand.value + (1 << bits - 1)) & (1 << bits) - 1) - (1 << bits - 1)})"
        half = 1 << bits - 1
        return f"(({self.value(operand)} ^ {half}) - {half})"

    def address(self, operand: Operand) -> str:
        if not isinstance(operand, Memory):
            raise self.error("an address is expected")
        base = self.value(operand.base)
        return f"{base} + {operand.offset}" if operand.offset else base

    def register(self, operand: Operand) -> Register:
        if not isinstance(operand, Register):
            raise self.error("a register is expected")
        return operand

    def outs(self, operand: Operand) -> tuple[Register, ...]:
        return tuple(registers(operand))


def operations(i: Instruction) -> tuple[Operation, ...]:
    """What ``i`` does.

    Raises:
        PtxError: an instruction that this reader does not know.
    """
    happening = _happening(_Reader(i))
    if happening is not None:
        return (happening,)
    if i.opcode[0] in ("ld", "ldu", "st"):
        return (_access(_Reader(i)),)
    if i.opcode[0] == "call":
        return ()  # of functions that compute alone: machine.py sees to it
    return _computation(_Reader(i))


# -- arithmetic -------------------------------------------------------------------------------------------------------------------------


def _computation(r: _Reader) -> tuple[Operation, ...]:
    i = r.i
    name, *modifiers = i.opcode
    kind = next((m for m in reversed(modifiers) if _INTEGER.match(m)), "")
    out, *operands = i.operands
    if name == "mov" and isinstance(out, Vector):  # halves of a wider register
        whole, width = operands[0], 8 * SIZES[kind] // len(out.parts)
        mask = (1 << width) - 1
        return tuple(
            Compute(r.register(part), f"{r.value(whole)} >> {k * width} & {mask}", _names(whole))
            for k, part in enumerate(out.parts)
            if not isinstance(part, Symbol)
        )
    if name == "setp":
        return _comparison(r)
    target = r.register(out)
    if name == "mov" and isinstance(operands[0], Vector):
        width = 8 * SIZES[kind] // len(operands[0].parts)
        text = " | ".join(f"({r.value(part)} << {k * width})" for k, part in enumerate(operands[0].parts))
        return (Compute(target, text, _names(*operands)),)
    is_float = any(m.startswith(("f16", "f32", "f64", "bf16", "tf32", "e4m3", "e5m2", "ue8m0")) for m in modifiers)
    if is_float or name in _DATA or any(isinstance(o, Float) for o in operands):
        return (Compute(target, None, frozenset()),)
    return (Compute(target, _integer(r, name, modifiers, kind, operands), _names(*operands)),)


def _comparison(r: _Reader) -> tuple[Operation, ...]:
    _, compare, *rest = r.i.opcode
    kind = rest[-1]
    out, a, b, *others = r.i.operands
    if kind.startswith(("f", "bf")):
        return (Compute(r.register(out), None, frozenset()),)
    if compare not in ("eq", "ne", *_COMPARE):
        raise r.error("a comparison that is not known")
    bits = 8 * SIZES[kind]
    left, right = (r.signed(o, bits) if kind.startswith("s") and compare not in ("eq", "ne") else r.value(o, bits) for o in (a, b))
    text = f"{left} {_COMPARE[compare]} {right}" if compare in _COMPARE else f"equal({left}, {right}){' ^ 1' if compare == 'ne' else ''}"
    if len(rest) == 2 and len(others) == 1 and rest[0] in ("and", "or", "xor"):
        text = f"({text}) {dict(zip(('and', 'or', 'xor'), '&|^', strict=True))[rest[0]]} {r.value(others[0])}"
    elif len(rest) != 1 or others:
        raise r.error("a form of comparison that is not known")
    return (Compute(r.register(out), text, _names(a, b, *others)),)


def _integer(r: _Reader, name: str, modifiers: list[str], kind: str, operands: list[Operand]) -> str:
    """The integer that an instruction computes."""
    if kind == "pred":
        a = r.value(operands[0], 1)
        match name:
            case "mov":
                return a
            case "not":
                return f"{a} ^ 1"
            case "and" | "or" | "xor":
                return f"{a} {dict(zip(('and', 'or', 'xor'), '&|^', strict=True))[name]} {r.value(operands[1])}"
            case _:
                raise r.error("an operation on predicates that is not known")
    if name == "cvta":
        generic = "to" not in modifiers
        return f"{'generic' if generic else 'specific'}({r.value(operands[0])}, {modifiers[-2]!r})"
    if name == "mapa":
        return f"mapa({r.value(operands[0])}, {r.value(operands[1])})"
    if kind not in SIZES:
        raise r.error("an instruction that is not known")
    bits = 8 * SIZES[kind]
    mask = (1 << bits) - 1
    is_signed = kind.startswith("s")

    def of(k: int, width: int = bits) -> str:
        return r.signed(operands[k], width) if is_signed else r.value(operands[k], width)

    if name == "cvt":
        wide, narrow = (m for m in modifiers if m in SIZES)
        source = r.signed(operands[0], 8 * SIZES[narrow]) if narrow.startswith("s") else f"({r.value(operands[0])} & {(1 << 8 * SIZES[narrow]) - 1})"
        return f"{source} & {(1 << 8 * SIZES[wide]) - 1}"
    a = r.value(operands[0], bits) if operands else "0"
    b = r.value(operands[1], bits) if len(operands) > 1 else "0"
    match name:
        case "mov":
            return a
        case "add":
            return f"{a} + {b} & {mask}"
        case "sub":
            return f"{a} - {b} & {mask}"
        case "neg":
            return f"-{a} & {mask}"
        case "not":
            return f"~{a} & {mask}"
        case "and" | "or" | "xor":
            return f"{a} {dict(zip(('and', 'or', 'xor'), '&|^', strict=True))[name]} {b}"
        case "shl" | "shr":
            way = "<<" if name == "shl" else ">>"
            if isinstance(operands[1], Integer) and 0 <= operands[1].value < bits:
                return f"{of(0)} {way} {operands[1].value} & {mask}"
            return f"shifted({of(0)}, {'' if name == 'shl' else '-'}least({r.value(operands[1], 32)}, {bits})) & {mask}"
        case "min" | "max" | "div" | "rem" | "abs":
            return f"{_FUNCTIONS[name]}({', '.join(of(k) for k in range(len(operands)))}) & {mask}"
        case "selp":
            return f"choose({r.value(operands[2])}, {a}, {b})"
        case "mul" | "mad":
            more = f" + {r.value(operands[2], 2 * bits)}" if name == "mad" else ""
            if "wide" in modifiers:
                return f"{of(0)} * {of(1)}{more} & {(1 << 2 * bits) - 1}"
            if "hi" in modifiers:
                return f"({of(0)} * {of(1)} >> {bits}){more} & {mask}"
            return f"{a} * {b}{more} & {mask}"
        case "bfe":
            return f"bits({of(0)}, {r.value(operands[1], 32)}, {r.value(operands[2], 32)}, {is_signed}) & {mask}"
        case "bfi":
            return f"inserted({a}, {b}, {r.value(operands[2], 32)}, {r.value(operands[3], 32)}) & {mask}"
        case "lop3" | "prmt" if len(modifiers) == 1:
            c = r.value(operands[2], bits)
            return f"logic({a}, {b}, {c}, {r.value(operands[3])}) & {mask}" if name == "lop3" else f"permuted({a}, {b}, {c})"
        case "shf" if modifiers[0] in ("l", "r") and modifiers[1] in ("wrap", "clamp"):
            return f"funnel({a}, {b}, {r.value(operands[2], 32)}, {modifiers[0] == 'l'}, {modifiers[1] == 'wrap'}) & {mask}"
        case "popc" | "clz":
            return f"{'ones' if name == 'popc' else 'zeros'}({a}{'' if name == 'popc' else f', {bits}'})"
        case _:
            raise r.error("an instruction that is not known")


# -- memory -----------------------------------------------------------------------------------------------------------------------------

_SPACES = ("param", "shared", "shared::cta", "global", "local", "const")


def _access(r: _Reader) -> Operation:
    i = r.i
    name, *modifiers = i.opcode
    space = next((m for m in modifiers if m in _SPACES), "generic").removesuffix("::cta")
    count = next((int(m[1:]) for m in modifiers if re.fullmatch(r"v[248]", m)), 1)
    kind = modifiers[-1]
    if kind not in SIZES or any(m in ("relaxed", "release", "mmio") for m in modifiers):
        raise r.error("an access that is not known")
    memory, data = (i.operands[1], i.operands[0]) if name != "st" else (i.operands[0], i.operands[1])
    outs = r.outs(data) if name != "st" else ()
    return Access(name == "st", space, r.address(memory), count * SIZES[kind], outs, _names(memory))


# -- events -----------------------------------------------------------------------------------------------------------------------------


def _happening(r: _Reader) -> Happening | None:
    """The event that an instruction is, if it is one."""
    i = r.i
    o = i.operands
    lost: tuple[Register, ...] = ()

    def event(kind: Kind, *operands: str, out: Operand | None = None) -> Happening:
        result = out if isinstance(out, Register) else None
        reads = frozenset(name for text in operands for name in re.findall(r"\br_\w+", text))
        return Happening(kind, operands, result, lost, reads)

    def words(parts: tuple[str, ...]) -> str:
        return repr(".".join(parts))

    match i.opcode:
        case ("bar", "sync") | ("barrier", "sync") | ("barrier", "sync", "aligned"):
            return event(Kind.BARRIER, r.value(o[0]), r.value(o[1]) if len(o) > 1 else "threads")
        case ("bar", "warp", "sync"):
            return event(Kind.WARP_BARRIER, r.value(o[0], 32))
        case ("shfl", "sync", mode, "b32"):
            lost = r.outs(o[0])
            *_, distance, clamp, lanes = o
            return event(Kind.SHUFFLE, repr(mode), r.value(distance, 32), r.value(clamp, 32), r.value(lanes, 32))
        case ("barrier", "cluster", "arrive", *more):
            return event(Kind.CLUSTER_ARRIVE, words(tuple(more)))
        case ("barrier", "cluster", "wait", *more):
            return event(Kind.CLUSTER_WAIT, words(tuple(more)))
        case ("mbarrier", "init", "shared::cta" | "shared", "b64"):
            return event(Kind.INIT, r.address(o[0]), r.value(o[1], 32))
        case ("mbarrier", "arrive", "expect_tx", *more, "b64"):
            lost = r.outs(o[0])
            return event(Kind.EXPECT, _meaning(r, more, "release"), r.address(o[1]), r.value(o[2], 32))
        case ("mbarrier", "arrive", *more, "b64"):
            lost = r.outs(o[0])
            return event(Kind.ARRIVE, _meaning(r, more, "release"), r.address(o[1]), r.value(o[2], 32) if len(o) > 2 else "1")
        case ("mbarrier", "try_wait" | "test_wait", "parity", *more, "b64"):
            return event(Kind.WAIT, _meaning(r, more, "acquire"), r.address(o[1]), r.value(o[2], 32), out=o[0])
        case ("cp", "async", "mbarrier", "arrive", *more, "b64"):
            return event(Kind.COPY_ARRIVE, words(tuple(more)), r.address(o[0]))
        case ("cp", "async", "commit_group"):
            return event(Kind.COPY_COMMIT)
        case ("cp", "async", "wait_group"):
            return event(Kind.COPY_WAIT, r.value(o[0]))
        case ("cp", "async", "wait_all"):
            return event(Kind.COPY_WAIT, "0")
        case ("cp", "async", "ca" | "cg", "shared" | "shared::cta", "global"):
            size = r.value(o[2])
            return event(Kind.COPY, r.address(o[0]), r.address(o[1]), size, r.value(o[3], 32) if len(o) > 3 else size)
        case ("cp", "async", "bulk", "commit_group"):
            return event(Kind.BULK_COMMIT)
        case ("cp", "async", "bulk", "wait_group"):
            return event(Kind.BULK_WAIT, r.value(o[0]))
        case ("cp", "async", "bulk", "wait_group", "read"):
            return event(Kind.BULK_WAIT_READ, r.value(o[0]))
        case ("cp", "async", "bulk", "tensor", rank, "shared::cluster" | "shared::cta", "global", "mbarrier::complete_tx::bytes", *more):
            where, coordinates = _box(r, o[1], rank)
            if more not in ([], ["multicast::cluster"]):
                raise r.error("a bulk copy that is not known")
            mask = [r.value(o[3], 16)] if more else []
            return event(Kind.MULTICAST if more else Kind.BULK_LOAD, r.address(o[0]), where, r.address(o[2]), *mask, *coordinates)
        case ("cp", "async", "bulk", "tensor", rank, "global", "shared::cta", "bulk_group"):
            where, coordinates = _box(r, o[0], rank)
            return event(Kind.BULK_STORE, where, r.address(o[1]), *coordinates)
        case ("wgmma", "fence", "sync", "aligned"):
            return event(Kind.WGMMA_FENCE)
        case ("wgmma", "commit_group", "sync", "aligned"):
            return event(Kind.WGMMA_COMMIT)
        case ("wgmma", "wait_group", "sync", "aligned"):
            return event(Kind.WGMMA_WAIT, r.value(o[0]))
        case ("wgmma", "mma_async", "sync", "aligned", *more):
            lost = r.outs(o[0])
            a = "-1" if isinstance(o[1], Vector) else r.value(o[1])
            return event(Kind.WGMMA, words(tuple(more)), str(len(lost)), a, *(r.value(x) for x in o[2:]))
        case ("mma", "sync", "aligned", *more):
            lost = r.outs(o[0])
            return event(Kind.MMA, words(tuple(more)))
        case ("ldmatrix", "sync", "aligned", *more):
            lost = r.outs(o[0])
            return event(Kind.LOAD_MATRIX, words(tuple(more)), r.address(o[1]))
        case ("stmatrix", "sync", "aligned", *more):
            return event(Kind.STORE_MATRIX, words(tuple(more)), r.address(o[0]))
        case ("setmaxnreg", way, "sync", "aligned", "u32"):
            return event(Kind.REGISTERS, repr(way), r.value(o[0]))
        case ("fence", *more):
            return event(Kind.FENCE, words(tuple(more)))
        case ("membar", level):
            return event(Kind.FENCE, repr(_LEVELS[level]))
        case ("red", *more):
            return event(Kind.RELEASE, words(tuple(more)), r.address(o[0]), r.value(o[1]))
        case ("ld", "acquire", *more):
            return event(Kind.ACQUIRE, words(tuple(more)), r.address(o[1]), out=o[0])
        case ("atom", *more):
            return event(Kind.COUNT, words(tuple(more)), r.address(o[1]), r.value(o[2]), out=o[0])
        case ("bar" | "barrier" | "mbarrier" | "shfl" | "wgmma" | "tcgen05" | "elect" | "redux" | "vote" | "match" | "griddepcontrol" | "nanosleep", *_):
            raise r.error("an instruction that is not known")
        case ("cp", *_):
            raise r.error("a copy that is not known")
        case _:
            return None


def _meaning(r: _Reader, modifiers: list[str], order: str) -> str:
    """The order, scope and space of an instruction on an mbarrier, those that it does not name in full."""
    found = {"order": order, "scope": "cta", "space": ""}
    for m in modifiers:
        known = [name for name, words in _MEANINGS.items() if m in words]
        if not known:
            raise r.error("a modifier that is not known")
        found[known[0]] = m
    return repr(" ".join(found.values()))


def _box(r: _Reader, operand: Operand, rank: str) -> tuple[str, list[str]]:
    """The tensor map and the coordinates of a bulk copy."""
    if not isinstance(operand, Memory) or rank != f"{len(operand.coordinates)}d":
        raise r.error("coordinates that do not fit its rank")
    return r.value(operand.base), [r.value(c, 32) for c in operand.coordinates]
