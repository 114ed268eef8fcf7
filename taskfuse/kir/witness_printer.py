"""The text of the witness. :mod:`taskfuse.kir.witness_parser` reads it back."""

from __future__ import annotations

from taskfuse.ir.axes import iteration_point
from taskfuse.kir.operand_printer import OperandPrinter, immediate_text, listed
from taskfuse.kir.operands import Holds
from taskfuse.kir.witness import INDEXED, Accumulate, Apply, Definition, Find, Pick, Reduce, Whole
from taskfuse.kir.words import Keyword, RuleWord

_OPERANDS = OperandPrinter()  # a tensor has brackets, also without axes: scalar arguments have none


def definition_text(d: Definition) -> str:
    """One line: tensor, shape, iteration space and place unless these are those of the shape, and the rule."""
    space = "" if (d.space, d.place) == (d.shape, iteration_point(len(d.shape))) else f" over ({listed(d.space)}) at ({listed(d.place)})"
    return f"{Keyword.DEFINE.value} {d.tensor}: {d.dtype}[{listed(d.shape)}]{space} = {_rule(d)}"


def _rule(d: Definition) -> str:
    operand, element = _OPERANDS.operand, _OPERANDS.access
    match d.rule:
        case Apply(op=op, operands=operands, dtype=dtype):
            return _OPERANDS.computation(op, operands, dtype, d.dtype)
        case Pick(cases=cases):
            return f"{RuleWord.PICK.value}({_OPERANDS.cases(cases, d.dtype)})"
        case Reduce(combine=combine, body=body, operands=operands, init=init, dtype=dtype):
            term = _OPERANDS.computation(body, operands, dtype, d.dtype)
            return f"{RuleWord.REDUCE.value} {combine.name} of {term} from {immediate_text(init, dtype)}"
        case Accumulate(combine=combine, operand=term, axis=axis, dtype=dtype):
            suffix = "" if dtype is d.dtype else f".{dtype}"
            return f"{RuleWord.SCAN.value} {combine.name}{suffix} along {axis} of {operand(term, dtype)}"
        case Find(source=source, values=values, extents=extents):
            found = ", ".join(f"{element(v)} of {e}" for v, e in zip(values, extents, strict=False))
            return f"{RuleWord.FIND.value} {element(source)} at {found}"
        case Whole(parts=parts, places=places):
            return f"{RuleWord.WHOLE.value} {', '.join(f'{p} at ({listed(at)})' for p, at in zip(parts, places, strict=False))}"


def holds_text(h: Holds) -> str:
    """What a statement's results stand for: content, tensor, index where the content has one, tile where there is one."""
    index = f"[{listed(h.index)}]" if h.index or h.content in INDEXED else ""
    return f"{h.content.value} {h.tensor}{index}" + (f" tile ({', '.join(map(str, h.tile))})" if h.tile else "")
