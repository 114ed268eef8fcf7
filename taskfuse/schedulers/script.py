"""Scheduling calls that are executed and written down at once: a schedule that can be read, pasted and edited."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, cast

from taskfuse.ir.atoms import ATOMS, Atom
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tasks import Group, Node, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.schedule.cascade import cascade
from taskfuse.schedule.chunk_cascade import chunk_cascade
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.propagate import parallelize_like, propagate_with

HEADER = ("import taskfuse as tf", "from taskfuse import MemoryType, atoms", "from taskfuse import ParallelType as P")
MAX_LINE = 120
RESERVED = frozenset((*keyword.kwlist, "tf", "MemoryType", "atoms", "P", "fusion", "segmented"))
"""Names that no variable may have."""


def variable(name: str, taken: AbstractSet[str]) -> str:
    """A variable for an object with this name: the name itself, if it is a Python identifier and not taken."""
    text = re.sub(r"\W|^(?=\d)", "_", name)
    while text in taken:
        text += "_"
    return text


@dataclass(frozen=True, slots=True)
class Spelled:
    """An argument, with its Python code."""

    value: Any
    text: str


class Script:
    """The calls on one fusion so far.

    Attributes:
        lines: of Python; they take the fusion as ``fusion``, and find its tensors by their names.
    """

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.lines: list[str] = []
        self._known: dict[str, TensorView] = {}
        self._variables: dict[tuple[bool, str], str] = {}
        self._open: str | None = None

    @property
    def text(self) -> str:
        """The lines after the imports that they need."""
        return "\n".join((*HEADER, "", *self.lines)) + "\n"

    def comment(self, text: str) -> None:
        """Start a section."""
        self.lines += [*([""] if self.lines else []), f"# {text}"]
        self._open = None

    def on(self, tv: TensorView) -> Recorded:
        """The calls of a tensor."""
        if self._known.get(tv.name) is not tv:
            self._known[tv.name] = tv
            self._write(f"{self._variable(tv)} = fusion.tensor({tv.name!r})")
        return Recorded(self, self._variable(tv), tv)

    def _variable(self, of: TensorView | Node | str) -> str:
        """The variable of a tensor, or of a task or group: its name, if nothing else is called so."""
        key = isinstance(of, TensorView), of if isinstance(of, str) else of.name
        if key not in self._variables:
            self._variables[key] = variable(key[1], RESERVED.union(self._variables.values()))
        return self._variables[key]

    def new(self, tv: TensorView, method: str, *args: object) -> TensorView:
        """A call that makes a tensor: ``cache_after``, ``cache_before``, ``cache_fork`` or ``rfactor``."""
        receiver = self.on(tv).name
        made = cast("TensorView", getattr(tv, method)(*args))
        self._known[made.name] = made
        self._write(f"{self._variable(made)} = {receiver}.{method}({', '.join(map(self.spell, args))})")
        return made

    def recompute(self, tv: TensorView, readers: Sequence[TensorView], stored: Sequence[TensorView] = ()) -> tuple[TensorView, ...]:
        """:meth:`TensorView.recompute`."""
        receiver = self.on(tv).name
        given = [self.spell(list(readers)), *([self.spell(list(stored))] if stored else [])]
        return self._made(tv.recompute(readers, stored), f"{receiver}.recompute({', '.join(given)})")

    def unroll_reduction(self, tv: TensorView) -> tuple[TensorView, ...]:
        """:meth:`TensorView.unroll_reduction`."""
        call = f"{self.on(tv).name}.unroll_reduction()"
        return self._made(tv.unroll_reduction(), call)

    def cut_reduction(self, tv: TensorView, axis: int, at: int) -> tuple[TensorView, ...]:
        """:meth:`TensorView.cut_reduction`."""
        call = f"{self.on(tv).name}.cut_reduction({axis}, {at})"
        return self._made(tv.cut_reduction(axis, at), call)

    def chunk_scan(self, tv: TensorView, extent: int) -> tuple[TensorView, ...]:
        """:meth:`TensorView.chunk_scan`."""
        call = f"{self.on(tv).name}.chunk_scan({extent})"
        return self._made(tv.chunk_scan(extent), call)

    def cascade(
        self,
        reductions: Sequence[TensorView],
        chunk: int,
        parts: int | None = None,
        adjacent: int | None = None,
        rows: int | None = None,
        along: int | None = None,
        beside: Sequence[TensorView] = (),
    ) -> tuple[TensorView, ...]:
        """:func:`taskfuse.cascade`; what it makes is found by name."""
        more = [x for x in (parts, adjacent) if x is not None]
        by = "".join(f", {name}={value}" for name, value in (("rows", rows), ("along", along)) if value is not None)
        by += f", beside={self.spell(list(beside))}" if beside else ""
        self._write(f"tf.cascade({', '.join(map(self.spell, [list(reductions), chunk, *more]))}{by})")
        return cascade(reductions, chunk, *more, rows=rows, along=along, beside=beside)

    def chunk_cascade(self, reductions: Sequence[TensorView], n: int, multiple: int) -> tuple[TensorView, ...]:
        """:func:`taskfuse.chunk_cascade`."""
        call = f"tf.chunk_cascade({self.spell(list(reductions))}, {n}, {multiple})"
        return self._made(chunk_cascade(reductions, n, multiple), call)

    def through_view(
        self, tv: TensorView, operand: int, view: TensorView | None = None, also: Sequence[tuple[TensorView, int]] = (), *, packed: bool = False
    ) -> TensorView:
        """:meth:`TensorView.through_view`."""
        given = "" if view is None else f", {self.spell(view)}"
        others = ", ".join(f"({self.spell(reader)}, {k})" for reader, k in also)
        call = f"{self.on(tv).name}.through_view({operand}{given}{f', also=[{others}]' if also else ''}{', packed=True' * packed})"
        made = tv.through_view(operand, view, also, packed=packed)
        if made is view:
            self._write(call)
            return made
        self._known[made.name] = made
        self._write(f"{self._variable(made)} = {call}")
        return made

    def pack_factors(
        self, tv: TensorView, axis: int, multiple: int, operands: Sequence[int], *, turned: bool = False, as_columns: bool = False
    ) -> tuple[TensorView, ...]:
        """:meth:`TensorView.pack_factors`."""
        how = f"{', turned=True' if turned else ''}{', as_columns=True' if as_columns else ''}"
        call = f"{self.on(tv).name}.pack_factors({axis}, {multiple}, {list(operands)}{how})"
        return self._made(tv.pack_factors(axis, multiple, operands, turned=turned, as_columns=as_columns), call)

    def scatter(self, tv: TensorView) -> tuple[TensorView, ...]:
        """:meth:`TensorView.scatter`."""
        return self._made(tv.scatter(), f"{self.on(tv).name}.scatter()")

    def unscatter(self, tv: TensorView) -> None:
        """:meth:`TensorView.unscatter`."""
        self._write(f"{self.on(tv).name}.unscatter()")
        tv.unscatter()

    def _made(self, tensors: tuple[TensorView, ...], call: str) -> tuple[TensorView, ...]:
        self._known.update((new.name, new) for new in tensors)
        names = ", ".join(self._variable(new) for new in tensors)
        self._write(f"{names}{',' * (len(tensors) == 1)} = {call}")
        return tensors

    def duplicate(self, tv: TensorView, readers: Sequence[TensorView]) -> TensorView:
        """:meth:`TensorView.duplicate`."""
        call = f"{self.on(tv).name}.duplicate({self.spell(list(readers))})"
        made = tv.duplicate(readers)
        self._known[made.name] = made
        self._write(f"{self._variable(made)} = {call}")
        return made

    def inline_most(self, tensors: Sequence[TensorView]) -> None:
        """:meth:`Fusion.inline_most`."""
        text = f"fusion.inline_most({self.spell(list(tensors))})"
        self.fusion.inline_most(tensors)
        self._write(text)

    def inline_at(self, tensors: Sequence[TensorView], position: int) -> None:
        """:meth:`Fusion.inline_at`; :meth:`TensorView.inline_at` of one tensor."""
        match tensors:
            case []:
                pass
            case [tv]:
                self.on(tv).inline_at(position)
            case _:
                text = f"fusion.inline_at({self.spell(list(tensors))}, {position})"
                self.fusion.inline_at(tensors, position)
                self._write(text)

    def order(self, tensors: Sequence[TensorView]) -> None:
        """:meth:`Fusion.order`."""
        self._write(f"fusion.order({self.spell(list(tensors))})")
        self.fusion.order(tensors)

    def resident_blocks(self, count: int) -> None:
        """:meth:`Fusion.resident_blocks`."""
        self.fusion.resident_blocks(count)
        self._write(f"fusion.resident_blocks({count})")

    def propagate(self, ref: TensorView, targets: Sequence[TensorView], keys: Keys) -> None:
        """:meth:`TensorView.propagate` of all axes.

        Args:
            keys: those of the fusion, which several calls have in common.
        """
        own, given = self.on(ref), self.spell(list(targets))
        propagate_with(keys, ref, targets)
        self.record(own.name, f"propagate({given})", True)

    def parallelize_like(self, ref: TensorView, targets: Sequence[TensorView], keys: Keys | None = None) -> None:
        """:func:`taskfuse.parallelize_like`.

        Args:
            keys: those of the fusion, where several calls have them in common.
        """
        text = f"tf.parallelize_like({self.spell(ref)}, {self.spell(list(targets))})"
        parallelize_like(ref, targets, keys)
        self._write(text)

    def task(self, tensors: Sequence[TensorView], name: str) -> Task:
        """:meth:`Fusion.task`."""
        self._write(f"{self._variable(name)} = fusion.task({self.spell(list(tensors))}, name={name!r})")
        return self.fusion.task(tensors, name=name)

    def group(self, members: Sequence[Node], name: str) -> Recorded:
        """:meth:`Fusion.group`."""
        self._write(f"{self._variable(name)} = fusion.group([{', '.join(map(self._variable, members))}], name={name!r})")
        return Recorded(self, self._variable(name), self.fusion.group(members, name=name))

    def grouped(self, members: Sequence[Node], name: str) -> Group:
        """:meth:`Fusion.group`; returns the group."""
        group = self.group(members, name).target
        assert isinstance(group, Group)
        return group

    def make_roles(self, load: Node, consumer: Node) -> None:
        """Let what loads and what computes run side by side, each with registers of its own."""
        self.group([load, consumer], "roles").parallelize(ParallelType.TIDy)
        for node in (load, consumer):
            self.node(node).registers()

    def node(self, node: Node) -> Recorded:
        """The calls of a task or group."""
        return Recorded(self, self._variable(node), node)

    def spell(self, value: object) -> str:
        """An argument as Python."""
        match value:
            case Spelled():
                return value.text
            case TensorView():
                return self.on(value).name
            case ParallelType():
                return f"P.{value.name}"
            case MemoryType():
                return f"MemoryType.{value.name}"
            case Atom():
                return f"atoms.{value.name.upper()}" if value.name in ATOMS else f"atoms.{value.instruction.value}{value.tile}"
            case list():
                return f"[{', '.join(self.spell(x) for x in cast('list[object]', value))}]"
            case _:
                return repr(value)

    def record(self, receiver: str, call: str, chains: bool) -> None:
        """Write a call on ``receiver``, chained to the previous call if that was on the same receiver and returned it."""
        if chains and self._open == receiver and len(self.lines[-1]) + len(call) < MAX_LINE:
            self.lines[-1] += f".{call}"
            return
        self._write(f"{receiver}.{call}")
        self._open = receiver if chains else None

    def _write(self, line: str) -> None:
        self.lines.append(line)
        self._open = None


class Recorded:
    """A tensor, task or group whose calls are recorded: ``script.on(tv).split(0, 128)``."""

    def __init__(self, script: Script, name: str, target: TensorView | Node) -> None:
        self.script = script
        self.name = name
        self.target = target

    def __getattr__(self, method: str) -> Callable[..., Recorded]:
        def call(*args: Any) -> Recorded:
            given = ", ".join(self.script.spell(a) for a in args)
            result = getattr(self.target, method)(*(a.value if isinstance(a, Spelled) else a for a in args))
            self.script.record(self.name, f"{method}({given})", result is self.target and isinstance(result, TensorView))
            return self

        return call

    @property
    def tensor(self) -> TensorView:
        """The tensor whose calls these are."""
        assert isinstance(self.target, TensorView)
        return self.target

    def bind(self, axis: int, ptype: ParallelType) -> Recorded:
        """``axis(k).parallelize(p)``."""
        self.tensor.axis(axis).parallelize(ptype)
        self.script.record(self.name, f"axis({axis}).parallelize({self.script.spell(ptype)})", False)
        return self
