"""Reading a SCHEDULE line of the fusion text: its clauses and transforms. docs/fusion-text.md has the grammar; each function is a rule of it."""

from __future__ import annotations

from taskfuse.ir.atoms import Atom, find
from taskfuse.ir.axes import AxisKind
from taskfuse.ir.reader import FusionReader, by_value
from taskfuse.ir.scalar import Expr, TokenKind
from taskfuse.ir.syntax import (
    AXIS_KINDS,
    AxisText,
    BoundAxis,
    ClauseWord,
    OutputText,
    ScheduleText,
    TransformText,
    TransformWord,
)
from taskfuse.ir.types import THREAD_TYPES, MemoryType

_INPUTS = {TransformWord.SPLIT: 1, TransformWord.MERGE: 2, TransformWord.SWIZZLE: 2, TransformWord.RESIZE: 1}
_ARGUMENTS = {TransformWord.SPLIT: 1, TransformWord.MERGE: 0, TransformWord.SWIZZLE: 0, TransformWord.RESIZE: 2}
_OUTPUTS = {TransformWord.SPLIT: 2, TransformWord.MERGE: 1, TransformWord.SWIZZLE: 2, TransformWord.RESIZE: 1, TransformWord.RASTERIZE: 1}
_CLAUSES = by_value(ClauseWord)
_TRANSFORMS = by_value(TransformWord)
_MEMORY_TYPES = by_value(MemoryType)
_THREAD_TYPES = {p.value: p for p in THREAD_TYPES}


def read_schedule(r: FusionReader) -> ScheduleText:
    """A SCHEDULE line after its keyword. Raises :class:`ParseError` where it leaves the grammar."""
    schedule = ScheduleText(r.tensor_name(), [], [])
    r.expect(":")
    given: set[ClauseWord] = set()
    while True:
        token = r.token
        transform = _TRANSFORMS.get(token.text)
        if transform is not None:
            schedule.transforms.append(_transform(r, transform))
        else:
            clause = r.word("clause of SCHEDULE", _CLAUSES)
            if clause in given and clause is not ClauseWord.FOREIGN:
                raise token.error(f"'{clause.value}' is given twice")
            given.add(clause)
            _clause(r, schedule, clause)
        if not r.take(";"):
            return schedule


def _clause(r: FusionReader, schedule: ScheduleText, clause: ClauseWord) -> None:
    match clause:
        case ClauseWord.FOREIGN:
            name = r.axis()
            r.expect(":")
            extent = r.expression()
            schedule.foreign.append((name, AxisText(extent, AxisKind.FOREIGN, r.source())))
        case ClauseWord.LOGICAL:
            schedule.logical = r.bracketed(r.axis)
        case ClauseWord.LOOP:
            schedule.loop, schedule.inline = _loop(r)
        case ClauseWord.BIND:
            schedule.bind = r.bracketed(r.bound_axis)
        case ClauseWord.MEMORY:
            schedule.memory = r.word("memory type", _MEMORY_TYPES)
        case ClauseWord.ALLOCATION:
            schedule.allocation = r.bracketed(r.bound_axis)
        case ClauseWord.STAGES:
            schedule.stages = r.integer()
        case ClauseWord.RING:
            schedule.ring = r.name("ring").text
        case ClauseWord.ATOM:
            schedule.atom = _atom(r)
            schedule.atom_axes = r.bracketed(r.axis, "(", ")")
        case ClauseWord.IN_FLIGHT:
            schedule.in_flight = r.integer()
        case ClauseWord.PIPELINE_STAGE:
            schedule.pipeline_stage = r.integer()
        case ClauseWord.TURNS:
            schedule.turns = r.word("thread index type", _THREAD_TYPES)


def _loop(r: FusionReader) -> tuple[tuple[BoundAxis, ...], int]:
    """The loop axes, and how many of them stand left of the bar."""
    r.expect("[")
    head = () if r.at("|", "]") else r.some(r.bound_axis)
    if not r.take("|"):
        r.expect("]")
        return head, 0
    tail = () if r.at("]") else r.some(r.bound_axis)
    r.expect("]")
    return head + tail, len(head)


def _transform(r: FusionReader, word: TransformWord) -> TransformText:
    token = r.advance()
    r.expect("(")
    arguments: list[Expr] = []
    if word is TransformWord.RASTERIZE:
        inputs = r.some(r.axis)
        r.expect("by")
        arguments += r.some(r.expression)
        if len(arguments) != len(inputs):
            raise token.error(f"'rasterize' of {len(inputs)} axes takes as many maps, not {len(arguments)}")
    else:
        inputs = (r.axis(),)
        for _ in range(_INPUTS[word] - 1):
            r.expect(",")
            inputs = (*inputs, r.axis())
        for _ in range(_ARGUMENTS[word]):
            r.expect(",")
            arguments.append(r.expression())
    inner = not (word is TransformWord.SPLIT and r.take("outer"))
    r.expect(")")
    arrow = r.expect("->")
    outputs = r.some(lambda: _transform_output(r))
    if len(outputs) != _OUTPUTS[word]:
        count = _OUTPUTS[word]
        raise arrow.error(f"'{word.value}' makes {count} {'axis' if count == 1 else 'axes'}, not {len(outputs)}")
    return TransformText(word, token, inputs, tuple(arguments), inner, outputs)


def _transform_output(r: FusionReader) -> OutputText:
    name = r.axis()
    if not r.take("as"):
        return OutputText(name, None)
    kind = r.word("kind of axis", AXIS_KINDS)
    r.expect(":")
    return OutputText(name, (r.expression(), kind))


def _atom(r: FusionReader) -> Atom:
    """The row of the atom that the next token names."""
    token = r.token
    atom = find(token.text) if token.kind is TokenKind.NAME else None
    if atom is None:
        raise token.error(f"there is no atom '{token.text}'" if token.kind is TokenKind.NAME else f"expected an atom, found {token}")
    r.position += 1
    return atom
