"""The interface of schedulers: the sizes that they take, the result that they return, and the error by which they refuse a fusion.

A scheduler is a function ``scheduler(fusion, config=None, *, sizes=None, target=DEFAULT)``. It changes ``fusion`` by public scheduling calls, recorded by a
:class:`~taskfuse.schedulers.script.Script`, and returns a :class:`Chosen`. A fusion that it refuses is left unchanged: it raises
:class:`~taskfuse.errors.UnsupportedError`, and ``taskfuse/schedulers/auto.py`` tries the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from math import prod
from numbers import Integral
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast, runtime_checkable

from taskfuse.count import Count
from taskfuse.errors import ScheduleError, UnsupportedError, shown
from taskfuse.ir.atoms import WGMMA_ARCH
from taskfuse.ir.fusion import Fusion, as_fusion
from taskfuse.ir.scalar import Expr, evaluate, free_symbols
from taskfuse.ir.tensor import TensorView
from taskfuse.kir.declarations import OFFSET_BYTES
from taskfuse.location import caller
from taskfuse.schedule.copy import copy_fusion
from taskfuse.target import DEFAULT, Target, as_target

ASSUMED = 4096
"""The extent that cost models assume by default."""
MAX_EXTENT = 2**63 - 1
"""The largest extent: that of an index."""
SANE = 3.0
"""If a kernel takes this many times its roofline, the search continues."""
Block = tuple[int, int, int]
"""Threads of a block along x, y and z."""


class Schedule(Protocol):
    """The automatic schedule of a fusion: one kernel (:class:`Chosen`) or as several (:class:`taskfuse.schedulers.segmenter.Segmentation`)."""

    @property
    def scheduler(self) -> str:
        """Name of the scheduler in ``tf.schedulers``; ``"segmented"`` of several kernels."""
        ...

    @property
    def us(self) -> float:
        """Microseconds that the cost model expects."""
        ...

    @property
    def code(self) -> str:
        """The scheduling calls, as Python that takes the unscheduled fusion as ``fusion``."""
        ...

    def explain(self) -> str:
        """The reasons for this schedule: the problem, the choice, the alternatives."""
        ...


class Config(Protocol):
    """Parameters of a scheduler: a frozen dataclass, whose ``repr`` tells it from all others."""

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        ...


ConfigT = TypeVar("ConfigT", bound=Config, covariant=True)
T = TypeVar("T")


@runtime_checkable
class Arrangeable(Protocol):
    """Parameters that say nothing of where in a block a thread stands: kernels of other blocks can have blocks of one shape."""

    @property
    def block(self) -> Block:
        """Threads of a block along x, y and z."""
        ...

    @property
    def words(self) -> str:
        """See :class:`Config`."""
        ...

    def in_lines(self, lanes: int) -> Arrangeable | None:
        """The same parameters, with as many threads of a block along x; ``None`` if they do not fill such lines."""
        ...


@dataclass(frozen=True, slots=True)
class Option(Generic[ConfigT]):
    """Candidate parameters, with their cost.

    Attributes:
        config: the parameters.
        us: microseconds.
        block: threads of a block along x, y and z, if that is known before the fusion is scheduled.
        is_cooperative: the blocks wait for one another.
    """

    HEADING: ClassVar[str] = "parameters"
    """The line above rows of a table."""

    config: ConfigT
    us: float
    block: Block | None = field(default=None, kw_only=True)
    is_cooperative: bool = field(default=False, kw_only=True)

    @property
    def row(self) -> str:
        """It, in a table."""
        return self.config.words


@dataclass(frozen=True, slots=True)
class Chosen(Generic[ConfigT]):
    """The result of a scheduler.

    Attributes:
        scheduler: its name in ``tf.schedulers``.
        problem: the problem, with numbers for extents.
        option: the parameters.
        alternatives: all candidates, the fastest by the cost model first.
        given: true if the caller gave the parameters.
        code: the scheduling calls, as Python that takes the unscheduled fusion as ``fusion``.
        expected: the estimate of the cost model.
        notes: properties of this schedule, and what would make it faster.
        refused: schedulers tried before, and why they rejected the fusion.
        count: the work of its kernel, if one was made.
        bound: the roofline of the fusion, in microseconds; 0: not computed.
    """

    scheduler: str
    problem: str
    option: Option[ConfigT]
    alternatives: tuple[Option[ConfigT], ...]
    given: bool
    code: str
    expected: str = ""
    notes: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    count: Count | None = None
    bound: float = 0.0

    @property
    def config(self) -> ConfigT:
        """The parameters."""
        return self.option.config

    @property
    def us(self) -> float:
        """Expected microseconds: by the counted work of its kernel if that is far from the roofline; else by the cost model, or by the counted work if that is
        more. Of products on tensor cores the cost models know more: what their steps wait for."""
        if self.count is None or (self.count.products and not self.is_far):
            return self.option.us
        return self.count.us if self.is_far else max(self.option.us, self.count.us)

    @property
    def is_far(self) -> bool:
        """Whether its kernel takes at least :data:`SANE` times its roofline, by its counted work."""
        return self.count is not None and self.count.us > SANE * self.bound

    def counted(self, count: Count | None, bound: float) -> Chosen[ConfigT]:
        """The same, with the count of its kernel."""
        return replace(self, count=count, bound=bound)

    def expected_by_count(self, least: float = 0.0) -> Chosen[ConfigT]:
        """The same, with the counted time as the expected time, which is ``least`` microseconds or more."""
        us = self.option.us if self.count is None else max(self.count.us, least)
        option = replace(self.option, us=us)
        return replace(self, option=option, alternatives=tuple(option if o is self.option else o for o in self.alternatives))

    def after(self, refused: Iterable[tuple[str, str]]) -> Chosen[ConfigT]:
        """The same, with the refusals before it."""
        return replace(self, refused=tuple(refused))

    def explain(self, shown: int = 5) -> str:
        """The reasons for this schedule: the problem, the choice, the ``shown`` fastest candidates if the model distinguishes them, schedulers tried before."""
        lines = [f"{self.scheduler} {self.problem}: {'given' if self.given else 'chosen'}: {self.config.words}"]
        lines += [line for line in (self.expected, *self.notes) if line]
        if self.count is not None:
            lines.append(f"counted: {self.count}: {self.count.us / self.bound:.1f} times its roofline of {self.bound:.1f} us")
        if len({option.us for option in self.alternatives}) > 1:
            lines += ["", f"     us  {self.option.HEADING}", *(f"{option.us:7.1f}  {option.row}" for option in self.alternatives[:shown])]
        return "\n".join([*lines, *(f"not {name}: {reason}" for name, reason in self.refused)])


@dataclass(frozen=True, slots=True)
class Offer:
    """An estimate of a scheduler for a fusion, made without the schedule.

    Attributes:
        us: expected microseconds.
        make: makes the schedule of a copy of that fusion, or raises :class:`UnsupportedError`; then the copy is of no further use.
        given: the same for given parameters; ``None``: the scheduler itself has to be called, which tries them on a copy first.
        is_exact: the schedule has the same time, and only a fault of taskfuse refuses it.
        is_contested: a scheduler of another kind may be faster, although this one is not far from the roofline.
    """

    us: float
    make: Callable[[Fusion], Chosen[Any]]
    given: Callable[[Any], Callable[[Fusion], Chosen[Any]]] | None = None
    is_exact: bool = field(default=False, kw_only=True)
    is_contested: bool = field(default=False, kw_only=True)


class Memo:
    """Results that the offers for one fusion share, computed once; a refusal is cached as well."""

    def __init__(self) -> None:
        self._found: dict[str, object] = {}

    def __call__(self, name: str, find: Callable[[], T]) -> T:
        """The result of ``find``, whose name stands for it. Raises :class:`UnsupportedError` if it did."""
        if name not in self._found:
            try:
                self._found[name] = find()
            except UnsupportedError as error:
                self._found[name] = error
        found = self._found[name]
        if isinstance(found, UnsupportedError):
            raise found
        return cast("T", found)


class Scheduler(Protocol):
    """A function of ``tf.schedulers`` that has parameters; see the module."""

    __name__: str

    def __call__(self, fusion: Fusion, config: Any = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[Any]: ...


def refuse(fusion: Fusion, kind: str, reason: str, help: str | None = None) -> UnsupportedError:
    """The error by which a scheduler refuses a fusion."""
    article = "an" if kind.startswith((*"aeiou", "mma")) else "a"
    return UnsupportedError(what=f"{article} {kind} schedule of fusion '{fusion.name}'", reason=reason, help=help, location=caller())


def rehearse(fusion: Fusion, kind: str, calls: Callable[[], object]) -> None:
    """Make the scheduling calls of a scheduler for a copy of a fusion, so that what one of them refuses leaves the fusion as it is.

    Raises :class:`UnsupportedError` with the reason of the call.
    """
    try:
        calls()
    except ScheduleError as error:
        raise refuse(fusion, kind, error.message.splitlines()[0], error.help) from error


def check_wgmma(fusion: Fusion, kind: str, target: Target, help: str | None = None) -> None:
    """Raises :class:`UnsupportedError` if the target has no ``wgmma``."""
    if not target.has(WGMMA_ARCH, feature=True):
        raise refuse(fusion, kind, f"it uses wgmma, which only sm_{WGMMA_ARCH}a has; {target.name} is {target.arch}", help)


def check_call(fusion: object, kind: str, config: object, wanted: type[object]) -> None:
    """Check what all schedulers require.

    Raises:
        UnsupportedError: not a fusion, or one without outputs or with a schedule; ``config`` has parameters of another scheduler, or is something else.
    """
    fusion = as_fusion(fusion, f"tf.schedulers.{kind}")
    if config is not None and not isinstance(config, wanted):
        raise refuse(fusion, kind, f"config is {shown(config)}, not a {wanted.__name__}", f"give a tf.schedulers.{wanted.__name__}, or None")
    if fusion.has_schedule:
        raise refuse(fusion, kind, "it has a schedule already", "give it a fusion without scheduling calls")
    if not fusion.outputs:
        raise refuse(fusion, kind, "it has no outputs", "fusion.add_output(tensor)")


def check_flag(fusion: Fusion, kind: str, name: str, value: object) -> None:
    """Raise :class:`UnsupportedError` if an argument of a scheduler is not a bool."""
    if not isinstance(value, bool):
        raise refuse(fusion, kind, f"{name} is {shown(value)}", "use True or False")


SchedulerT = TypeVar("SchedulerT", bound=Callable[..., object])


def tries_parameters(scheduler: SchedulerT) -> SchedulerT:
    """A scheduler that takes given parameters, and fusions with tables, on a copy first, so that what scheduling calls refuse leaves the fusion as it is.

    A scheduler's own choice for a fusion without tables is taken at once: no random case has found one that a call refuses, and the copy takes as long again.
    """

    @wraps(scheduler)
    def tried(fusion: Fusion, config: object = None, **more: object) -> object:
        if isinstance(cast("object", fusion), Fusion) and (config is not None or fusion.tables):
            try:
                scheduler(copy_fusion(fusion)[0], config, **more)
            except ScheduleError as error:
                given = "" if config is None else f"with {config}, "
                raise refuse(fusion, scheduler.__name__, f"{given}{error.message.splitlines()[0]}", error.help) from error
        return scheduler(fusion, config, **more)

    return cast("SchedulerT", tried)


def expendable(scheduler: Scheduler) -> Scheduler:
    """A scheduler for throw-away fusions: if it refuses given parameters, it leaves them changed, or raises :class:`ScheduleError`."""
    return cast("Scheduler", getattr(scheduler, "__wrapped__", scheduler))


class Sizes:
    """The further inputs of cost models: the GPU, and numbers for extents: those given, else the allowed value nearest to
    :data:`ASSUMED`.

    Args:
        given: values of dimensions.
        target: the machine.

    Raises:
        UnsupportedError: ``given`` has a name that is not a dimension of ``fusion``, or an extent that it cannot have.
    """

    def __init__(self, fusion: Fusion, given: Mapping[str, int] | None, target: Target) -> None:
        self.target = as_target(target)
        given = {} if given is None else given
        if not isinstance(cast("object", given), Mapping):
            raise _strange(fusion, f"sizes is {shown(given)}", "give a mapping from names of dimensions to extents, such as {'N': 1024}")
        for name, size in given.items():
            if name not in fusion.dims:
                raise _strange(fusion, f"sizes has '{name}', which is not a dimension of it", f"its dimensions are: {', '.join(fusion.dims) or 'none'}")
            if isinstance(size, bool) or not isinstance(cast("object", size), Integral) or not 0 <= size <= MAX_EXTENT:
                raise _strange(fusion, f"sizes has {shown(size)} for '{name}'", f"give an integer from 0 to {MAX_EXTENT}")
        self._lengths = [tv for tv, known in fusion.tables.items() if known.lengths]
        self._values = {name: given.get(name, d.near(ASSUMED)) for name, d in fusion.dims.items()}
        for name, d in fusion.dims.items():
            if name not in given and d.bound is not None:
                self._values[name] = max(d.min, d.near(self._values[name], self._values))

    @property
    def values(self) -> Mapping[str, int]:
        """The values of all dimensions."""
        return self._values

    def __call__(self, extent: Expr) -> int:
        """The number for an extent, 1 or more."""
        return max(1, int(evaluate(extent, {name: self._values[name] for name in free_symbols(extent)})))

    @property
    def offsets(self) -> int:
        """Offsets of groups that each block makes of lengths, in Shared memory."""
        return sum(self(tv.shape[0]) + 1 for tv in self._lengths)

    @property
    def room(self) -> int:
        """Bytes of Shared memory of a block, beside these offsets."""
        return max(0, self.target.limits.block_shared - OFFSET_BYTES * self.offsets)

    def elements(self, tv: TensorView) -> int:
        """The number of elements of a tensor."""
        return prod(self(e) for e in tv.shape)


def _strange(fusion: Fusion, reason: str, help: str) -> UnsupportedError:
    return UnsupportedError(what=f"a schedule of fusion '{fusion.name}'", reason=reason, help=help, location=caller())
