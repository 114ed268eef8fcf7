"""A proposal of tasks and groups: what it is made of. :mod:`taskfuse.schedulers.propose` finds one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from taskfuse.ir.types import ParallelType


@dataclass(frozen=True, slots=True)
class Body:
    """A task.

    Attributes:
        tensors: names of those that it claims.
        loads: names of inputs that it copies for others: it claims their ``cache_after``, too.
    """

    name: str
    tensors: tuple[str, ...]
    loads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cut:
    """A group.

    Attributes:
        ptype: what it is parallelized on; ``None``: its members run in turn.
        why: what the members are to each other.
        whole, parts: microseconds that are expected without the cut, in one body or in turn, and with it.
    """

    name: str
    members: tuple[Part, ...]
    ptype: ParallelType | None
    why: str
    whole: float
    parts: float


Part = Body | Cut


@dataclass(frozen=True, slots=True)
class Refused:
    """A cut that is expected to cost time: what it would have been, and the same figures."""

    why: str
    whole: float
    parts: float


class Partition(Protocol):
    """What :meth:`taskfuse.Fusion.partition` proposes."""

    @property
    def top(self) -> Part:
        """The task or group that hangs under the root."""
        ...

    @property
    def refused(self) -> tuple[Refused, ...]:
        """What else was considered."""
        ...

    @property
    def tasks(self) -> tuple[Body, ...]:
        """The tasks, producers first."""
        ...

    @property
    def groups(self) -> tuple[Cut, ...]:
        """The groups, those that hold others after them."""
        ...

    @property
    def code(self) -> str:
        """What :meth:`apply` does, as Python that takes the fusion as ``fusion``."""
        ...

    def apply(self) -> None:
        """Make the tasks and groups, and parallelize the groups. Raises :class:`TaskError` if the fusion has got tasks since."""
        ...

    def explain(self) -> str:
        """The tree, with what is expected of each cut; then what else was considered."""
        ...
