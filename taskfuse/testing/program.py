"""Programs: a fusion together with the public calls that made it, so that it can be printed, and made again.

A :class:`Recorder` makes calls and writes each down as a line of Python. Tensors, tasks, groups and scalars appear under their own names,
so that the program, the fusion's text and the kernel's text speak of the same things.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import taskfuse as tf
from taskfuse.dtypes import DType
from taskfuse.errors import DTypeError, LoweringError, ScheduleError, ShapeError, TaskError, UnsupportedError
from taskfuse.ir.atoms import Atom
from taskfuse.ir.dims import Dim
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tasks import Group, Task
from taskfuse.ir.tensor import AxisRef, Scalar, TensorView
from taskfuse.ir.types import MemoryType, ParallelType, PlaceSearch

HEADER = ("import taskfuse as tf", "from taskfuse import MemoryType as M", "from taskfuse import ParallelType as P")
# Errors that taskfuse may raise for an impossible call. FusionError is not one of them: the generators make no such call.
REFUSALS = (DTypeError, LoweringError, ScheduleError, ShapeError, TaskError, UnsupportedError)


@dataclass(frozen=True, slots=True)
class SpelledArgument:
    """An argument that is written otherwise than its value would be.

    Attributes:
        text: a Python expression.
        value: its value.
    """

    text: str
    value: Any


@dataclass(frozen=True, slots=True)
class Program:
    """The lines of Python that make a fusion, each one public call.

    Attributes:
        name: the fusion's name.
        lines: what is inside ``with fusion:``.
        text: the text of the fusion that the lines go on from; ``None``: an empty one.
    """

    name: str
    lines: tuple[str, ...]
    text: str | None = None

    def source(self) -> str:
        """A complete program that makes ``fusion``."""
        start = [f"fusion = tf.Fusion({self.name!r})"] if self.text is None else [f"fusion = tf.parse_fusion({_quoted(self.text)})"]
        body = ["with fusion:", *(f"    {line}" for line in self.lines)] if self.lines else []
        return "\n".join((*HEADER, "", *start, *body)) + "\n"

    @property
    def filename(self) -> str:
        """The name of the program's file in tracebacks and locations."""
        return f"<program {self.name}>"

    def run(self) -> Fusion:
        """The fusion, made anew by executing the source. Raises what its calls raise."""
        names: dict[str, Any] = {}
        exec(compile(self.source(), self.filename, "exec"), names)
        found = names["fusion"]
        assert isinstance(found, Fusion)
        return found


def _quoted(text: str) -> str:
    return f'"""\n{text.rstrip()}\n"""' if '"""' not in text and "\\" not in text else repr(text)


class Recorder:
    """Makes public calls and records them, in a new fusion or in that of a program.

    Attributes:
        fusion: the fusion so far.
        lines: the calls so far, as Python.
        refused: how often each call was refused, by its name.
        made: how often each call was made, by its name.
    """

    def __init__(self, start: Program | None = None) -> None:
        self._start = start or Program("case", ())
        self.fusion = self._start.run()
        self.lines = list(self._start.lines)
        self.made: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._known = {name for line in self.lines if (name := line.partition(" = ")[0]).isidentifier()}

    def program(self) -> Program:
        """The recorded program."""
        return Program(self._start.name, tuple(self.lines), self._start.text)

    def call(self, receiver: Any, method: str, *args: Any, **keywords: Any) -> Any:
        """Call ``receiver.method(*args, **keywords)``, record it, and return its result.

        Args:
            receiver: the module ``taskfuse`` or ``taskfuse.schedulers``, the fusion, or a tensor, axis, task or group of it.
        """
        head = self.text(receiver)
        given = ", ".join([self.text(a) for a in args] + [f"{k}={self.text(v)}" for k, v in keywords.items()])
        line = f"{head}.{method}({given})"
        try:
            with self.fusion:
                result = getattr(receiver, method)(*map(_value, args), **{k: _value(v) for k, v in keywords.items()})
        except REFUSALS:
            raise
        except Exception:
            self.lines.append(line)
            raise
        self.made[method] += 1
        if isinstance(result, TensorView | Scalar | Task | Group) and result is not receiver and result.name not in self._known:
            self._known.add(result.name)
            line = f"{result.name} = {line}"
        self.lines.append(line)
        return result

    def attempt(self, receiver: Any, method: str, *args: Any, **keywords: Any) -> Any:
        """As :meth:`call`; ``None`` if taskfuse refuses the call, which then leaves no trace."""
        try:
            return self.call(receiver, method, *args, **keywords)
        except REFUSALS:
            self.refused[method] += 1
            return None

    def text(self, value: Any) -> str:
        """An argument or receiver as Python."""
        match value:
            case SpelledArgument():
                return value.text
            case Fusion():
                return "fusion"
            case TensorView():
                return value.name if value.name in self._known else f"fusion.tensor({value.name!r})"
            case Scalar() | Task() | Group():
                return value.name
            case AxisRef():
                return f"{self.text(value.tensor)}.axis({value.tensor.loop.index(value.axis)})"
            case ParallelType():
                return f"P.{value.name}"
            case MemoryType():
                return f"M.{value.name}"
            case PlaceSearch():
                return f"tf.PlaceSearch.{value.name}"
            case DType():
                return f"tf.{value.name}_" if value.is_bool else f"tf.{value.name}"
            case Atom():
                return f"tf.atoms.{value.name.upper()}" if value.tile is None or value.contraction is None else f"tf.atoms.find({value.name!r})"
            case Dim():
                return f"tf.dim({value.name!r}, multiple_of={value.multiple_of}, min={value.min}, max={value.max})"
            case Enum():
                return repr(value.value)
            case _ if value is tf:
                return "tf"
            case _ if value is tf.schedulers:
                return "tf.schedulers"
            case _ if isinstance(value, list | tuple):
                items = ", ".join(map(self.text, cast("Sequence[Any]", value)))
                return f"[{items}]" if isinstance(value, list) else f"({items},)"
            case _:
                return repr(value)


def _value(argument: Any) -> Any:
    """The value of an argument."""
    if isinstance(argument, SpelledArgument):
        return argument.value
    if isinstance(argument, list):
        return [_value(x) for x in cast("list[Any]", argument)]
    if isinstance(argument, tuple):
        return tuple(_value(x) for x in cast("tuple[Any, ...]", argument))
    return argument
