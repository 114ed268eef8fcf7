"""The axes of all tensors of a text, made when they are first named."""

from __future__ import annotations

import re
from dataclasses import dataclass

from taskfuse.ir.axes import Axis, AxisKind, Transform, axis
from taskfuse.ir.scalar import Const
from taskfuse.ir.syntax import (
    AxisName,
    AxisText,
    FoldText,
    FusionText,
    Name,
    ReductionText,
    ScheduleText,
    TensorText,
    TransformText,
    TransformWord,
    default_outputs,
    make_transform,
)

_LOST = re.compile(r"x\d+")


@dataclass(frozen=True, slots=True)
class _Made:
    """The axis at ``place`` among the outputs of a transform."""

    by: TransformText
    place: int


class TextAxes:
    """The axes of all tensors, made on demand, since a foreign axis may name an axis of any other tensor.

    Methods raise :class:`ParseError` for a name without an axis.
    """

    def __init__(self, text: FusionText) -> None:
        self._tensors = {t.name.text: t for t in text.tensors}
        self._origins: dict[str, dict[str, AxisText | _Made]] = {}
        self._axes: dict[tuple[str, str], Axis] = {}
        self._transforms: dict[int, Transform] = {}
        self._lost: dict[str, Axis] = {}
        self._open: set[tuple[str, str]] = set()
        schedules = {s.tensor.text: s for s in text.schedules}
        for t in text.tensors:
            known: dict[str, AxisText | _Made] = {f"a{k}": a for k, a in enumerate(_root(t))}
            self._origins[t.name.text] = known
            schedule = schedules.get(t.name.text)
            if schedule is not None:
                self._declare(t.name.text, schedule, known)

    def _declare(self, tensor: str, schedule: ScheduleText, known: dict[str, AxisText | _Made]) -> None:
        def declare(name: Name, origin: AxisText | _Made) -> None:
            if name.text in known:
                raise name.token.error(f"{tensor} has an axis '{name.text}' already")
            known[name.text] = origin

        for name, origin in schedule.foreign:
            declare(name, origin)
        for t in schedule.transforms:
            for a in t.inputs:
                if a.text not in known:
                    raise a.token.error(f"{tensor} has no axis '{a.text}' here")
            for k, out in enumerate(t.outputs):
                declare(out.name, _Made(t, k))

    def named(self, name: AxisName) -> Axis:
        """The axis of any tensor, or one that belongs to no tensor any more: for those only the equality of names matters."""
        if name.tensor is None:
            if not _LOST.fullmatch(name.axis.text):
                raise name.axis.token.error(f"'{name.axis.text}' names no tensor: write an axis as tv0.a0")
            return self._lost.setdefault(name.axis.text, axis(1))
        if name.tensor.text not in self._tensors:
            raise name.tensor.token.error(f"there is no tensor '{name.tensor.text}'")
        return self.of(name.tensor.text, name.axis)

    def of(self, tensor: str, name: Name) -> Axis:
        """The axis of a tensor."""
        origin = self._origins[tensor].get(name.text)
        if origin is None:
            raise name.token.error(f"{tensor} has no axis '{name.text}'")
        key = (tensor, name.text)
        if key in self._axes:
            return self._axes[key]
        if key in self._open:
            raise name.token.error(f"axis '{name.text}' of {tensor} comes from itself")
        self._open.add(key)
        match origin:
            case AxisText():
                self._axes[key] = axis(origin.extent, origin.kind, None if origin.source is None else self.named(origin.source))
            case _Made():
                made = self.transform(tensor, origin.by)
                for out, a in zip(origin.by.outputs, made.outputs, strict=True):
                    self._axes[(tensor, out.name.text)] = a
        self._open.discard(key)
        return self._axes[key]

    def transform(self, tensor: str, t: TransformText) -> Transform:
        """The transform in ``t``."""
        found = self._transforms.get(id(t))
        if found is None:
            inputs = tuple(self.of(tensor, a) for a in t.inputs)
            if t.word is TransformWord.SPLIT and isinstance(factor := t.arguments[0], Const) and factor.value < 1:
                raise t.inputs[0].token.error(f"axis '{t.inputs[0].text}' of {tensor} is split by {factor}: a factor is at least 1")
            default = default_outputs(t.word, inputs, t.arguments, t.inner)
            outputs = tuple(axis(*(made if out.made is None else out.made)) for out, made in zip(t.outputs, default, strict=True))
            found = self._transforms[id(t)] = make_transform(t.word, inputs, t.arguments, outputs)
        return found

    def root(self, t: TensorText) -> tuple[Axis, ...]:
        """The root domain of a tensor."""
        return tuple(self.of(t.name.text, Name(f"a{k}", t.name.token)) for k in range(len(_root(t))))


def _root(t: TensorText) -> tuple[AxisText, ...]:
    """The root axes of a tensor: as given, else its shape with the reduction axes at their positions."""
    over = t.value.over if isinstance(t.value, ReductionText | FoldText) else ()
    if t.root is not None:
        if over:
            raise over[0][2].error(f"{t.name.text} has a root domain of its own, which tells the reduction axes")
        return t.root
    axes = [AxisText(e, AxisKind.ITERATION, None) for e in t.shape]
    size = len(axes) + len(over)
    taken: set[int] = set()
    for position, extent, token in sorted(over, key=lambda r: r[0]):
        if position >= size or position in taken:
            raise token.error(f"i{position} is given twice" if position in taken else f"{t.name.text} has {counted_axes(size)}, the last is i{size - 1}")
        taken.add(position)
        axes.insert(position, AxisText(extent, AxisKind.REDUCTION, None))
    return tuple(axes)


def counted_axes(count: int) -> str:
    """A number of axes, in words."""
    return f"{count} {'axis' if count == 1 else 'axes'}"
