"""The parts of a proposal of tasks and groups. :mod:`taskfuse.schedulers.propose` finds one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from taskfuse.ir.types import ParallelType


@dataclass(frozen=True, slots=True)
class ProposedTask:
    """A task to make.

    Attributes:
        tensors: names of the tensors that it claims.
        loads: names of inputs that it copies for others: it claims their ``cache_after``, too.
    """

    name: str
    tensors: tuple[str, ...]
    loads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProposedGroup:
    """A group to make.

    Attributes:
        ptype: its parallel type; ``None``: its members run in turn.
        why: the relation of the members.
        whole, parts: expected microseconds without the group (as one task, or in turn) and with it.
    """

    name: str
    members: tuple[Part, ...]
    ptype: ParallelType | None
    why: str
    whole: float
    parts: float


Part = ProposedTask | ProposedGroup


@dataclass(frozen=True, slots=True)
class RejectedGroup:
    """A group that is expected to cost time, with the same figures."""

    why: str
    whole: float
    parts: float


class Partition(Protocol):
    """A proposal of tasks and groups, by :meth:`taskfuse.Fusion.partition`."""

    @property
    def top(self) -> Part:
        """The task or group below the root."""
        ...

    @property
    def rejected(self) -> tuple[RejectedGroup, ...]:
        """Groups that are expected to cost time."""
        ...

    @property
    def tasks(self) -> tuple[ProposedTask, ...]:
        """The tasks, producers first."""
        ...

    @property
    def groups(self) -> tuple[ProposedGroup, ...]:
        """The groups, inner ones first."""
        ...

    @property
    def code(self) -> str:
        """Python code with the effect of :meth:`apply` on the fusion ``fusion``."""
        ...

    def apply(self) -> None:
        """Make the tasks and groups, and parallelize the groups. Raises :class:`TaskError` if the fusion has tasks by now."""
        ...

    def explain(self) -> str:
        """The tree, with the estimate of each group; then the rejected groups."""
        ...
