"""A proposal of tasks and groups: its parts, their explanation, its Python code, and its application."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taskfuse.errors import TaskError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.partition import Part, ProposedGroup, ProposedTask, RejectedGroup
from taskfuse.location import caller
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.script import Script


@dataclass(frozen=True, slots=True)
class Proposal:
    """What :meth:`Fusion.partition` proposes.

    Attributes:
        fusion: what it is of.
        before: a copy of the fusion, as it was when this was proposed.
        top: the task or group that hangs under the root.
        rejected: groups that are expected to cost time.
    """

    fusion: Fusion
    before: Fusion
    top: Part
    rejected: tuple[RejectedGroup, ...]

    @property
    def tasks(self) -> tuple[ProposedTask, ...]:
        """The tasks, producers first."""
        return tuple(p for p in _parts(self.top) if isinstance(p, ProposedTask))

    @property
    def groups(self) -> tuple[ProposedGroup, ...]:
        """The groups, those that hold others after them."""
        return tuple(p for p in _parts(self.top) if isinstance(p, ProposedGroup))

    def apply(self) -> None:
        """Make the tasks and groups, and parallelize the groups. Raises :class:`TaskError` if the fusion has got tasks since."""
        if self.fusion.tasks.nodes:
            reason, help = "it has got tasks since it was partitioned", "apply a proposal once, before its first task is made"
            raise TaskError(node=f"fusion '{self.fusion.name}'", reason=reason, help=help, location=caller())
        self._write(Script(self.fusion))

    @property
    def code(self) -> str:
        """What :meth:`apply` does, as Python that takes the fusion as ``fusion``."""
        script = Script(copy_fusion(self.before)[0])
        self._write(script)
        return script.text

    def explain(self) -> str:
        """The tree, with the estimate of each group; then the rejected groups."""
        lines = [f"fusion {self.fusion.name}: {len(self.tasks)} task{'s' * (len(self.tasks) != 1)}, {len(self.groups)} group{'s' * (len(self.groups) != 1)}"]
        lines += _described(self.top, "  ")
        lines += [f"rejected: {r.why}; {_figures(r)}" for r in self.rejected]
        return "\n".join(lines)

    def _write(self, script: Script) -> None:
        fusion = script.fusion
        caches = {x: script.new(fusion.tensor(x), "cache_after") for body in self.tasks for x in body.loads}
        for body in self.tasks:
            script.task([*(caches[x] for x in body.loads), *map(fusion.tensor, body.tensors)], body.name)
        for group in self.groups:
            nodes = {n.name: n for n in fusion.tasks.nodes}
            made = script.group([nodes[m.name] for m in group.members], group.name)
            if group.ptype is not None:
                made.parallelize(group.ptype)


def _parts(part: Part) -> Iterator[Part]:
    if isinstance(part, ProposedGroup):
        for member in part.members:
            yield from _parts(member)
    yield part


def _figures(group: ProposedGroup | RejectedGroup) -> str:
    return f"{group.parts:.2f} us with it, {group.whole:.2f} us without"


def _described(part: Part, indent: str) -> Iterator[str]:
    match part:
        case ProposedTask():
            loads = f"copies of {', '.join(part.loads)}" if part.loads else ""
            yield f"{indent}{part.name}: {', '.join(filter(None, (loads, *part.tensors)))}"
        case ProposedGroup():
            how = "in turn" if part.ptype is None else f"on {part.ptype.value}"
            yield f"{indent}{part.name} {how}: {part.why}; {_figures(part)}"
            for member in part.members:
                yield from _described(member, indent + "  ")
