"""The effect of one instruction: it computes integers, accesses memory, is an event that others observe, or none of these (PTX ISA, the section of each).

Integers are unsigned, in the width of their type; floating-point numbers are their bits.
"""

from __future__ import annotations

import re

from taskfuse.testing.ptx.arithmetic import meaning
from taskfuse.testing.ptx.happenings import happening
from taskfuse.testing.ptx.nodes import SIZES, Float, Integer, Operand, PtxInstruction, Register, Symbol, Vector
from taskfuse.testing.ptx.operands import FloatMeaning, OperandReader, Operation, PtxAccess, PtxComputation, identifier, names

_OTHER = frozenset({"fns"})
"""Opcodes whose results are not known."""
_MOVES = frozenset({"mov", "selp"})
"""Opcodes that do not look at what they move."""
_CARRIES = {"addc": "add", "subc": "sub", "madc": "mad"}
_CARRY, _SUM = Register("%cc"), Register("%sum")
"""The flag of the carry, and a sum with it."""
_INTEGER = re.compile(r"[busf](8|16|32|64)$|pred$|b128$")
_FUNCTIONS = {"min": "least", "max": "greatest", "div": "quotient", "rem": "remainder", "abs": "absolute"}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}


def operations(i: PtxInstruction) -> tuple[Operation, ...]:
    """The effects of ``i``.

    Raises:
        PtxError: an instruction that this reader does not support.
    """
    event = happening(OperandReader(i))
    if event is not None:
        return (event,)
    if i.opcode[0] in ("ld", "ldu", "st"):
        return (_access(OperandReader(i)),)
    if i.opcode[0] == "call":
        return ()  # of functions that compute alone: machine.py sees to it
    return _computation(OperandReader(i))


# -- arithmetic -------------------------------------------------------------------------------------------------------------------------


def _computation(r: OperandReader) -> tuple[Operation, ...]:
    i = r.i
    name, *modifiers = i.opcode
    kind = next((m for m in reversed(modifiers) if _INTEGER.match(m)), "")
    out, *operands = i.operands
    if name == "mov" and isinstance(out, Vector):  # halves of a wider register
        whole, width = operands[0], 8 * SIZES[kind] // len(out.parts)
        mask = (1 << width) - 1
        return tuple(
            PtxComputation(r.register(part), f"{r.value(whole)} >> {k * width} & {mask}", names(whole))
            for k, part in enumerate(out.parts)
            if not isinstance(part, Symbol)
        )
    if name == "setp":
        return _comparison(r)
    target = r.register(out)
    if name == "mov" and isinstance(operands[0], Vector):
        width = 8 * SIZES[kind] // len(operands[0].parts)
        text = " | ".join(f"({r.value(part)} << {k * width})" for k, part in enumerate(operands[0].parts))
        return (PtxComputation(target, text, names(*operands)),)
    is_float = any(m.startswith(("f16", "f32", "f64", "bf16", "tf32", "e4m3", "e5m2", "ue8m0")) for m in modifiers)
    if name in _OTHER:
        return (PtxComputation(target, None, frozenset()),)
    if name not in _MOVES and (is_float or any(isinstance(o, Float) for o in operands)):
        return (_by_meaning(r, target, operands),)
    if name in _CARRIES or "cc" in modifiers:
        return _carried(r, target, name, modifiers, kind, operands)
    return (PtxComputation(target, _integer(r, name, modifiers, kind, operands), names(*operands)),)


def _carried(r: OperandReader, target: Register, name: str, modifiers: list[str], kind: str, operands: list[Operand]) -> tuple[Operation, ...]:
    """Arithmetic of extended precision (PTX ISA, "Extended-Precision Arithmetic Instructions"): it adds the carry, or sets it, or both."""
    bits = 8 * SIZES[kind]
    a, b = (r.value(o, bits) for o in operands[:2])
    plain = _CARRIES.get(name, name)
    more = f" + {identifier(_CARRY)}" if name in _CARRIES else ""
    match plain, modifiers[0]:
        case "add", _:
            text = f"{a} + {b}{more}"
        case "sub", _:
            text = f"{a} - {b}{more.replace('+', '-')}"
        case "mad", "lo":
            text = f"({a} * {b} & {(1 << bits) - 1}) + {r.value(operands[2], bits)}{more}"
        case "mad", "hi" if kind.startswith("u"):
            text = f"({a} * {b} >> {bits}) + {r.value(operands[2], bits)}{more}"
        case _:
            raise r.error("an instruction that is not known")
    reads = names(*operands, *((_CARRY,) if more else ()))
    found = [PtxComputation(_SUM, text, reads), PtxComputation(target, f"{identifier(_SUM)} & {(1 << bits) - 1}", names(_SUM))]
    if "cc" in modifiers:
        found.append(PtxComputation(_CARRY, f"{identifier(_SUM)} >> {bits} & 1", names(_SUM)))
    return tuple(found)


def _by_meaning(r: OperandReader, target: Register, operands: list[Operand]) -> PtxComputation:
    """Floating-point arithmetic."""
    function = meaning(r.i.opcode)
    found = None if function is None else FloatMeaning(function, tuple(r.value(o) for o in operands))
    return PtxComputation(target, None, names(*operands), found)


def _comparison(r: OperandReader) -> tuple[Operation, ...]:
    _, compare, *rest = r.i.opcode
    kind = rest[-1]
    out, a, b, *others = r.i.operands
    if kind.startswith(("f", "bf")):
        return (_by_meaning(r, r.register(out), [a, b, *others]),)
    if compare not in ("eq", "ne", *_COMPARE):
        raise r.error("a comparison that is not known")
    bits = 8 * SIZES[kind]
    left, right = (r.signed(o, bits) if kind.startswith("s") and compare not in ("eq", "ne") else r.value(o, bits) for o in (a, b))
    text = f"{left} {_COMPARE[compare]} {right}" if compare in _COMPARE else f"equal({left}, {right}){' ^ 1' if compare == 'ne' else ''}"
    if len(rest) == 2 and len(others) == 1 and rest[0] in ("and", "or", "xor"):
        text = f"({text}) {dict(zip(('and', 'or', 'xor'), '&|^', strict=True))[rest[0]]} {r.value(others[0], 1)}"
    elif len(rest) != 1 or others:
        raise r.error("a form of comparison that is not known")
    return (PtxComputation(r.register(out), text, names(a, b, *others)),)


def _integer(r: OperandReader, name: str, modifiers: list[str], kind: str, operands: list[Operand]) -> str:
    """The integer that an instruction computes."""
    if kind == "pred":
        a = r.value(operands[0], 1)
        match name:
            case "mov":
                return a
            case "not":
                return f"{a} ^ 1"
            case "and" | "or" | "xor":
                return f"{a} {dict(zip(('and', 'or', 'xor'), '&|^', strict=True))[name]} {r.value(operands[1], 1)}"
            case _:
                raise r.error("an operation on predicates that is not known")
    if name == "cvta":
        generic = "to" not in modifiers
        return f"{'generic' if generic else 'specific'}({r.value(operands[0])}, {modifiers[-2]!r})"
    if name == "mapa":
        return f"mapa({r.value(operands[0])}, {r.value(operands[1])})"
    if kind not in SIZES:
        raise r.error("an instruction that is not known")
    if name == "dp4a":
        a, b, c = (r.value(o, 32) for o in operands)
        return f"dots({a}, {b}, {c}, {modifiers[0] == 's32'}, {modifiers[1] == 's32'}) & {0xFFFFFFFF}"
    if name == "dp2a":
        a, b, c = (r.value(o, 32) for o in operands)
        half, *kinds = modifiers
        return f"half_dots({a}, {b}, {c}, {kinds[0] == 's32'}, {kinds[1] == 's32'}, {16 if half == 'hi' else 0}) & {0xFFFFFFFF}"
    bits = 8 * SIZES[kind]
    mask = (1 << bits) - 1
    is_signed = kind.startswith("s")

    def of(k: int, width: int = bits) -> str:
        return r.signed(operands[k], width) if is_signed else r.value(operands[k], width)

    if name == "cvt":
        wide, narrow = (m for m in modifiers if m in SIZES)
        if set(modifiers) != {wide, narrow}:
            raise r.error("a conversion that is not known")
        source = f"({r.value(operands[0])} & {(1 << 8 * SIZES[narrow]) - 1})"
        if narrow.startswith("s"):
            half = 1 << 8 * SIZES[narrow] - 1
            source = f"(({source} ^ {half}) - {half})"
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
        case "brev":
            return f"mirrored({a}, {bits})"
        case "bfind" if kind.startswith("u"):
            return f"highest({a}, {bits}, {'shiftamt' in modifiers})"
        case "popc" | "clz":
            return f"{'ones' if name == 'popc' else 'zeros'}({a}{'' if name == 'popc' else f', {bits}'})"
        case _:
            raise r.error("an instruction that is not known")


# -- memory -----------------------------------------------------------------------------------------------------------------------------

_SPACES = ("param", "shared", "shared::cta", "shared::cluster", "global", "local", "const")


def _access(r: OperandReader) -> Operation:
    i = r.i
    name, *modifiers = i.opcode
    space = next((m for m in modifiers if m in _SPACES), "generic").partition("::")[0]
    count = next((int(m[1:]) for m in modifiers if re.fullmatch(r"v[248]", m)), 1)
    kind = modifiers[-1]
    if kind not in SIZES or any(m in ("relaxed", "release", "mmio") for m in modifiers):
        raise r.error("an access that is not known")
    memory, data = (i.operands[1], i.operands[0]) if name != "st" else (i.operands[0], i.operands[1])
    outs = r.outs(data) if name != "st" else ()
    parts = data.parts if isinstance(data, Vector) else (data,)
    if len(parts) != count:
        raise r.error("as many elements as its type says are expected")
    values = r.values(data, 8 * SIZES[kind]) if name == "st" else ()
    places = tuple(k for k, part in enumerate(parts) if isinstance(part, Register)) if name != "st" else ()
    element = SIZES[kind]
    return PtxAccess(
        name == "st", space, r.address(memory), count * element, outs, names(memory), "nc" in modifiers, values, places, element, kind.startswith("s")
    )
