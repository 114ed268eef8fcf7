"""Calls that the kernels for all extents are not proved for: the fusion is scheduled again for their extents.

An extent of 0 is a case of its own: a remainder or a number of blocks would divide by 0, so no kernel with them is proved for all extents. With the constant 0
in place of the extent they vanish, since nothing is computed. So a fusion whose extents may be 0 has kernels for extents of at least 1, and separate
kernels, made on demand, in which the extents that are 0 in a call are constants.

A kernel may also be *open*: proved for the extents of each call, one by one (:mod:`taskfuse.runtime.proof`). Where that fails, all extents become constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

from taskfuse.errors import FusionError, InputError, ProofError
from taskfuse.ir.arguments import bind_shapes
from taskfuse.ir.dims import Dim
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import sym
from taskfuse.runtime.automatic import auto_scheduled
from taskfuse.runtime.executable import Executable, Facts, ResultAdapter, Specialization
from taskfuse.runtime.kernel import Maker
from taskfuse.schedule.copy import copy_fusion, narrowed
from taskfuse.schedulers.budget import SECONDS
from taskfuse.schedulers.candidates import result
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.target import Target

MOST: Final = 64
"""The most sets of constants whose kernels are cached; the oldest are compiled again."""


class Admitted(ResultAdapter):
    """An automatically scheduled fusion that compiles kernels for extents at which its first kernels are not proved.

    Args:
        fusion: unscheduled; kept, and not changed.
        make: makes executables.
        first: runs calls with extents that it assumes and is proved for.
        target: the GPU that schedules are chosen for.
    """

    __slots__ = ("_first", "_lock", "_make", "_others", "_target")

    def __init__(self, fusion: Fusion, make: Maker, first: Specialization, target: Target) -> None:
        super().__init__(fusion, first.run)
        self._make = make
        self._first = first
        self._target = target
        self._others: dict[Facts, Specialization] = {}
        self._lock = Lock()

    @property
    def specializations(self) -> tuple[Specialization, ...]:
        with self._lock:
            return tuple(self._others.values())

    def at(self, sizes: Mapping[str, int]) -> Executable:
        """See :meth:`Executable.at`.

        Raises:
            ProofError: no kernels are proved for these extents.
        """
        reason = "its kernels require extents of at least 1"
        if self._first.holds(sizes):
            try:
                self.inner.check_open(sizes)
            except ProofError as error:
                reason = error.message
            else:
                return self.inner
        facts = _constant(self._fusion, sizes)
        if facts == tuple(self._fusion.dims.values()):
            raise ProofError(kernel=self.name, verdict="outside the model", reason=f"{_named(facts)}: {reason}")
        with self._lock:
            found = self._others.get(facts)
            if found is None:
                found = self._made(facts, sizes)
                self._others = dict([*self._others.items(), (facts, found)][-MOST:])
        return found.run.at({name: sizes[name] for name in found.sizes})

    def _made(self, facts: Facts, sizes: Mapping[str, int]) -> Specialization:
        part, faults = narrowed(self._fusion, facts), list[str]()
        known = {name: sizes[name] for name in part.dims}
        run = result(lambda: admitted(part, self._make, sizes=known, target=self._target), None, _named(facts), faults)
        if run is None:
            raise ProofError(kernel=self.name, verdict="outside the model", reason=faults[-1])
        return Specialization(facts, known, run)

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, seed: int = 0, **named: Any) -> tuple[Any, ...]:
        """See :meth:`Executable.__call__`. Arguments that do not fit go to the first kernels, which raise the error."""
        if named:
            args = self.in_order(args, named)
        run, inputs, integers = self.inner, len(self._fusion.inputs), len(self._fusion.integers)
        try:
            shapes = [tuple(int(n) for n in array.shape) for array in args[:inputs]]
            extents = bind_shapes(self._fusion, shapes, args[len(args) - integers :] if integers else ())
        except (AttributeError, TypeError, ValueError, InputError, FusionError):
            pass
        else:
            run = self.at(extents)
        return run(*args, out=out, stream=stream, seed=seed)

    def __reduce__(self) -> tuple[Any, ...]:
        return Admitted, (self._fusion, self._make, self._first, self._target)

    def __repr__(self) -> str:
        return f"Admitted({self.name!r}, {len(self.specializations)} others, backend={self.backend!r})"


def admitted(
    fusion: Fusion,
    make: Maker,
    *,
    sizes: Mapping[str, int] | None,
    target: Target,
    budget: float = SECONDS,
    known: Segmentation | None = None,
) -> Executable:
    """:func:`taskfuse.runtime.automatic.auto_scheduled`, for all extents that the fusion allows."""
    extent = Sizes(fusion, sizes, target)
    facts = tuple(d if d.name in fusion.integers else d.positive for d in fusion.dims.values())
    part = fusion if facts == tuple(fusion.dims.values()) else narrowed(fusion, facts)
    typical = {name: d.near(extent(sym(name))) for name, d in part.dims.items()}
    run = auto_scheduled(part, make, sizes=sizes if part is fusion else typical, target=target, budget=budget, known=known)
    if part is fusion and not run.is_open:
        return run
    return Admitted(copy_fusion(fusion)[0], make, Specialization(facts, typical, run), target)


def _constant(fusion: Fusion, sizes: Mapping[str, int]) -> Facts:
    """The facts about extents of a call: extents of 0 become constants; if there are none, all extents do. An integer argument of 0 is no such extent."""
    dims = fusion.dims
    empty = [d.name for d in dims.values() if sizes[d.name] == 0 and d.min != d.max and d.name not in fusion.integers]

    def fact(d: Dim) -> Dim:
        if not empty or d.name in empty:
            return Dim(d.name, sizes[d.name], sizes[d.name])
        return d if d.name in fusion.integers else d.positive

    return tuple(map(fact, dims.values()))


def _named(facts: Facts) -> str:
    return ", ".join(map(str, facts))
