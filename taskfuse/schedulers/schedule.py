"""What all schedulers share: what they are told of the sizes, what they give back, and how one says that a fusion is not of its kind.

A scheduler is a function ``scheduler(fusion, config=None, *, sizes=None)``. It changes ``fusion`` by public scheduling calls, written down by a
:class:`~taskfuse.schedulers.script.Script`, and returns a :class:`Schedule`. A fusion that it does not take it leaves as it was, and raises
:class:`~taskfuse.errors.UnsupportedError`; ``taskfuse/schedulers/auto.py`` then asks the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from math import prod
from numbers import Integral
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

from taskfuse.errors import ScheduleError, UnsupportedError
from taskfuse.ir.fusion import Fusion, as_fusion
from taskfuse.ir.scalar import Expr, evaluate, free_symbols
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.schedule.copy import copy_fusion

ASSUMED = 4096
"""The extent that cost models assume where nothing is known."""
MAX_EXTENT = 2**63 - 1
"""The largest extent: that of an index."""
Block = tuple[int, int, int]
"""Threads of a block along x, y and z."""


class Candidate(Protocol):
    """Parameters that a scheduler could take."""

    @property
    def config(self) -> object:
        """They: a frozen dataclass, whose ``repr`` tells it from all others."""
        ...

    @property
    def us(self) -> float:
        """Microseconds that the cost model expects."""
        ...


@runtime_checkable
class Shaped(Candidate, Protocol):
    """A candidate that says before it is scheduled what the blocks of its kernel are."""

    @property
    def block(self) -> Block:
        """Their threads."""
        ...

    @property
    def meets_blocks(self) -> bool:
        """They wait for one another."""
        ...


class Schedule(Protocol):
    """What a scheduler did."""

    @property
    def config(self) -> object:
        """Its parameters."""
        ...

    @property
    def alternatives(self) -> Sequence[Candidate]:
        """All parameters that it chose from, the fastest by the cost model first."""
        ...

    @property
    def scheduler(self) -> str:
        """Name of the scheduler in ``tf.schedulers``."""
        ...

    @property
    def us(self) -> float:
        """Microseconds that its cost model expects."""
        ...

    @property
    def code(self) -> str:
        """The scheduling calls, as Python that takes the unscheduled fusion as ``fusion``."""
        ...

    def explain(self) -> str:
        """Why this schedule: the problem, the choice, what else was considered."""
        ...


ConfigT = TypeVar("ConfigT", covariant=True)


@dataclass(frozen=True, slots=True)
class Option(Generic[ConfigT]):
    """A :class:`Candidate`: parameters, and how long the cost model expects them to take."""

    config: ConfigT
    us: float


@dataclass(frozen=True, slots=True)
class ShapedOption(Option[ConfigT]):
    """A :class:`Shaped` one, whose blocks run by themselves."""

    block: Block

    @property
    def meets_blocks(self) -> bool:
        """False."""
        return False


@dataclass(frozen=True, slots=True)
class Chosen:
    """A :class:`Schedule` that says itself in words why it was chosen.

    Attributes:
        scheduler, us, code, config, alternatives: see :class:`Schedule`.
        why: what :meth:`explain` returns.
    """

    scheduler: str
    us: float
    code: str
    config: object
    alternatives: tuple[Option[object], ...]
    why: str

    def explain(self) -> str:
        """Why this schedule."""
        return self.why


class Scheduler(Protocol):
    """A function of ``tf.schedulers`` that has parameters; see the module."""

    __name__: str

    def __call__(self, fusion: Fusion, config: Any = None, *, sizes: Mapping[str, int] | None = None) -> Schedule: ...


def refuse(fusion: Fusion, kind: str, reason: str, help: str | None = None) -> UnsupportedError:
    """The error of a fusion that a scheduler cannot take."""
    return UnsupportedError(what=f"a {kind} schedule of fusion '{fusion.name}'", reason=reason, help=help, location=caller())


def check_call(fusion: object, kind: str, config: object, wanted: type[object]) -> None:
    """Raises :class:`UnsupportedError` for what is no fusion, and for parameters that are another scheduler's, or none at all."""
    fusion = as_fusion(fusion, f"tf.schedulers.{kind}")
    if config is not None and not isinstance(config, wanted):
        raise refuse(fusion, kind, f"config is {config!r}, no {wanted.__name__}", f"give a tf.schedulers.{wanted.__name__}, or None")


SchedulerT = TypeVar("SchedulerT", bound=Callable[..., object])


def tries_parameters(scheduler: SchedulerT) -> SchedulerT:
    """A scheduler that takes given parameters on a copy first: those that do not suit the fusion are refused before it has changed."""

    @wraps(scheduler)
    def tried(fusion: Fusion, config: object = None, **more: object) -> object:
        if config is not None and isinstance(cast("object", fusion), Fusion):
            try:
                scheduler(copy_fusion(fusion)[0], config, **more)
            except ScheduleError as error:
                raise refuse(fusion, scheduler.__name__, f"with {config}, {error.message.splitlines()[0]}", error.help) from error
        return scheduler(fusion, config, **more)

    return cast("SchedulerT", tried)


class Sizes:
    """Numbers for the extents of a fusion: those given, else what is known of a dimension, nearest to :data:`ASSUMED`.

    Args:
        given: values of dimensions.

    Raises:
        UnsupportedError: ``given`` names what is no dimension of ``fusion``, or an extent that it cannot have.
    """

    def __init__(self, fusion: Fusion, given: Mapping[str, int] | None) -> None:
        given = {} if given is None else given
        if not isinstance(cast("object", given), Mapping):
            raise _strange(fusion, f"sizes is {given!r}", "give a mapping from names of dimensions to extents, such as {'N': 1024}")
        for name, size in given.items():
            if name not in fusion.dims:
                raise _strange(fusion, f"sizes has '{name}', which is no dimension of it", f"its dimensions are: {', '.join(fusion.dims) or 'none'}")
            if isinstance(size, bool) or not isinstance(cast("object", size), Integral) or not 0 <= size <= MAX_EXTENT:
                raise _strange(fusion, f"sizes has {size!r} for '{name}'", f"give an integer from 0 to {MAX_EXTENT}")
        self._values = {name: given.get(name, min(max(ASSUMED, d.min), d.max or ASSUMED)) for name, d in fusion.dims.items()}

    def __call__(self, extent: Expr) -> int:
        """The number of an extent, 1 or more."""
        return max(1, int(evaluate(extent, {name: self._values[name] for name in free_symbols(extent)})))

    def elements(self, tv: TensorView) -> int:
        """The number of elements of a tensor."""
        return prod(self(e) for e in tv.shape)


def _strange(fusion: Fusion, reason: str, help: str) -> UnsupportedError:
    return UnsupportedError(what=f"a schedule of fusion '{fusion.name}'", reason=reason, help=help, location=caller())
