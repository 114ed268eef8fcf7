"""The text of operands and of the witness: accesses, constants, indices, choices, matrix descriptors; definitions and claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from taskfuse.dtypes import DType
from taskfuse.ir.axes import iteration_point
from taskfuse.ir.combine import Combine
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import TRUE, ZERO, Expr, const
from taskfuse.ir.syntax import EXCLUSIVE, RESCALED, SINCE, UNTIL
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.kir.forms import KernelKeyword, RuleWord
from taskfuse.kir.operands import (
    Access,
    BarrierSlot,
    ChoiceCase,
    Descriptor,
    GatherValue,
    Holds,
    Immediate,
    IndexOf,
    Operand,
    Queue,
    ScalarValue,
    SemaphoreSlot,
)
from taskfuse.kir.synchronization import MbarrierScope
from taskfuse.kir.witness import INDEXED, Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Send, Whole

FENCED = {memory: medium.fence for memory, medium in MEDIA.items() if medium.fence is not None}
"""The memory that a fence between proxies covers."""


def _slot(barrier: BarrierSlot) -> str:
    return f"{barrier.name}[{barrier.slot}]"


def _counter(slot: SemaphoreSlot) -> str:
    return f"{slot.name}[{listed(slot.index)}]"


def _types(types: tuple[ParallelType, ...]) -> str:
    return ", ".join(p.value for p in types)


def _box(coordinates: tuple[Expr, ...]) -> str:
    return f"({listed(coordinates)})"


VALUES: dict[object, Callable[[Any], str]] = {
    int: str,
    Expr: str,
    "map": str,
    "cursor": str,
    tuple[Expr, ...]: _box,
    tuple[ParallelType, ...]: _types,
    BarrierSlot: _slot,
    SemaphoreSlot: _counter,
    Queue: lambda queue: queue.value,
    MbarrierScope: lambda scope: scope.value,
    Combine: lambda combine: combine.name,
    Combine | None: lambda combine: combine.name,
    MemoryType: FENCED.__getitem__,
}


class OperandPrinter:
    """One method per kind of operand.

    Attributes:
        locals: names printed without brackets if they have no axes.
    """

    def __init__(self, locals: frozenset[str] = frozenset()) -> None:
        self.locals = locals

    @property
    def values(self) -> dict[object, Callable[[Any], str]]:
        """How to print the values of a field, by its content. Made when asked for: a printer that kept its own methods would be a reference cycle."""
        return VALUES | {Access: self.access, tuple[GatherValue, ...]: self.found}

    def access(self, access: Access) -> str:
        if not access.index and access.buffer in self.locals:
            return access.buffer
        return f"{access.buffer}[{listed(access.index)}]"

    def operand(self, operand: Operand, dtype: DType | None) -> str:
        """An operand; a constant of ``dtype`` is printed without its dtype."""
        match operand:
            case Access():
                return self.access(operand)
            case Immediate():
                return immediate_text(operand, dtype)
            case ScalarValue():
                return operand.name
            case IndexOf():
                return f"index({operand.value})"

    def cases(self, cases: tuple[ChoiceCase, ...], dtype: DType | None) -> str:
        """Operands with their conditions; the last one may be the default."""
        last = len(cases) - 1
        return ", ".join(
            f"otherwise {self.operand(c.operand, dtype)}" if i == last and c.cond is TRUE else f"{self.operand(c.operand, dtype)} if {c.cond}"
            for i, c in enumerate(cases)
        )

    def computation(self, op: Elementwise, operands: tuple[Operand, ...], dtype: DType, stored: DType | None) -> str:
        """``op(operands)``; its compute dtype is omitted if it is that of the result."""
        suffix = "" if dtype is stored else f".{dtype}"
        return f"{op.name}{suffix}({', '.join(self.operand(o, dtype) for o in operands)})"

    def found(self, values: tuple[GatherValue, ...]) -> str:
        """The values of a gather."""
        return ", ".join(f"{v.symbol} = {self.access(v.source)} of {v.extent}" for v in values)

    def descriptor(self, d: Descriptor) -> str:
        offset = "" if d.offset is const(0) else f" + {d.offset}"
        return f"desc({self.access(d.base)}{offset}, swizzle {d.swizzle}, lbo {d.lbo}, sbo {d.sbo}, major {d.major.value})"


def immediate_text(x: Immediate, dtype: DType | None) -> str:
    """A constant; its dtype is omitted if it equals ``dtype``."""
    value = x.value
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, float) and math.isnan(value):
        text = "nan"
    else:
        text = repr(value)
    return text if x.dtype is dtype else f"{text}:{x.dtype}"


def listed(expressions: Iterable[Expr]) -> str:
    """Expressions with commas between them."""
    return ", ".join(map(str, expressions))


_OPERANDS = OperandPrinter()  # a tensor has brackets, also without axes: scalar arguments have none


def definition_text(d: Definition, word: KernelKeyword = KernelKeyword.DEFINE) -> str:
    """One line: the word, tensor, shape, iteration space and place unless these are those of the shape, and the rule."""
    space = "" if (d.space, d.place) == (d.shape, iteration_point(len(d.shape))) else f" over ({listed(d.space)}) at ({listed(d.place)})"
    return f"{word.value} {d.tensor}: {d.dtype}[{listed(d.shape)}]{space} = {_rule(d)}"


def _rule(d: Definition) -> str:
    operand, element = _OPERANDS.operand, _OPERANDS.access
    match d.rule:
        case Apply(op=op, operands=operands, dtype=dtype):
            return _OPERANDS.computation(op, operands, dtype, d.dtype)
        case Pick(cases=cases):
            return f"{RuleWord.PICK.value}({_OPERANDS.cases(cases, d.dtype)})"
        case Reduce(combine=combine, body=body, operands=operands, init=init, dtype=dtype):
            term = _OPERANDS.computation(body, d.rule.terms, dtype, d.dtype)
            text = f"{RuleWord.REDUCE.value} {combine.name} of {term} from {immediate_text(init, dtype)}"
            if d.rule.rescaled is not None:
                text += f" {RESCALED} {d.rule.rescaled} by {operand(operands[-1], dtype)}"
            if d.rule.starts:
                text += f" {SINCE} {', '.join(f'{k} >= {e}' for k, e in d.rule.starts)}"
            return text if not d.rule.ends else f"{text} {UNTIL} {', '.join(f'{k} < {e}' for k, e in d.rule.ends)}"
        case Accumulate(combine=combine, operand=term, axis=axis, dtype=dtype):
            suffix = "" if dtype is d.dtype else f".{dtype}"
            before = f" {EXCLUSIVE}" if d.rule.is_exclusive else ""
            before += "" if d.rule.start is ZERO else f" {SINCE} {d.rule.start}"
            return f"{RuleWord.SCAN.value} {combine.name}{suffix} along {axis}{before} of {operand(term, dtype)}"
        case Iterate(op=op, operands=operands, axis=axis, init=init, dtype=dtype):
            step = _OPERANDS.computation(op, operands, dtype, d.dtype)
            return f"{RuleWord.FOLD.value} along {axis} of {step} from {immediate_text(init, dtype)}"
        case Find(source=source, values=values, extents=extents):
            return f"{RuleWord.FIND.value} {element(source)}{_counted(values, extents)}"
        case Send(combine=combine, operand=sent, values=values, extents=extents):
            return f"{RuleWord.SEND.value} {combine.name} of {operand(sent, d.dtype)}{_counted(values, extents)}"
        case Whole(parts=parts, places=places, conditions=conditions):
            made = (f"{p} at ({listed(at)}){'' if c is TRUE else f' if {c}'}" for p, at, c in zip(parts, places, conditions, strict=False))
            return f"{RuleWord.WHOLE.value} {', '.join(made)}"


def _counted(values: tuple[Access, ...], extents: tuple[Expr, ...]) -> str:
    found = ", ".join(f"{_OPERANDS.access(v)} of {e}" for v, e in zip(values, extents, strict=False))
    return f" at {found}" if found else ""


def holds_text(h: Holds) -> str:
    """A claim: content, tensor, index if the content has one, tile if there is one."""
    index = f"[{listed(h.index)}]" if h.index or h.content in INDEXED else ""
    return f"{h.content.value} {h.tensor}{index}" + (f" tile ({', '.join(map(str, h.tile))})" if h.tile else "")
