"""Specializations: a fusion of symbolic extents, scheduled again for facts about the extents of a call.

An automatic schedule for all extents cannot use vectors if a row may have any length, cannot keep such a row in registers, and assumes
sizes. The extents of a call say more. A specialization uses *facts* about them: each is a :class:`~taskfuse.ir.dims.Dim`, as a user could have
declared it. It is the fusion with these dimensions, scheduled and proved like any other. There are few specializations: facts are coarse, and facts
for which the schedulers make the same calls share a kernel.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import gcd, lcm
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from taskfuse.errors import FusionError, InputError, UnsupportedError
from taskfuse.ir.arguments import bind_shapes
from taskfuse.ir.dims import Dim
from taskfuse.ir.expr import Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import sym
from taskfuse.kir import Kernel
from taskfuse.location import caller
from taskfuse.runtime.admission import admitted
from taskfuse.runtime.decision_cache import DecisionCache, Outline
from taskfuse.runtime.executable import Executable, Facts, Specialization
from taskfuse.runtime.kernel import Maker
from taskfuse.schedule.copy import copy_fusion, narrowed
from taskfuse.schedulers.candidates import result
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import VECTOR_BYTES, Target

if TYPE_CHECKING:
    from taskfuse.check import Certificate

MOST: Final = 32
"""The most sets of facts for which a fusion is scheduled. Calls with other facts run an existing schedule."""
NEAR: Final = 4
"""How many times as great or as small as the size that a schedule was chosen for an extent may be that is no reason for another one."""
SHAPES: Final = 4096
"""The most shapes whose executables are cached."""
SMALL: Final = 1 / 64
"""Share of a launch's time: calls that move their bytes in less gain nothing."""
GAIN: Final = 0.9
"""The greatest time of a kernel for one length of reduced rows, relative to one for many lengths, by the cost models, at which it is used."""


class Specialized(Executable):
    """An automatically scheduled fusion of symbolic extents, as one function.

    ``schedule``, ``kernels`` and ``certificates`` are those for all extents that the fusion allows; :attr:`specializations` has the others.

    Args:
        fusion: unscheduled; kept, and not changed.
        make: makes executables.
        base: the specialization for all extents, with the dimensions of ``fusion`` as facts.
        target: the GPU that schedules are chosen for.
        scheduled: the specialization for each set of facts; ``None``: one for each length of its reduced rows.
        given: the dimensions whose sizes the caller expects: extents near them, but for those of reduced rows, have no bounds as facts.
    """

    __slots__ = (
        "_aligned",
        "_base",
        "_faults",
        "_fusion",
        "_given",
        "_inputs",
        "_integers",
        "_lock",
        "_make",
        "_reduced",
        "_runs",
        "_scheduled",
        "_target",
        "_varying",
        "_width",
    )

    def __init__(
        self,
        fusion: Fusion,
        make: Maker,
        base: Specialization,
        target: Target,
        scheduled: Mapping[Facts, Specialization | None] | None = None,
        given: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(base.run.backend, base.run.schedule)
        self._fusion = fusion
        self._make = make
        self._base = base
        self._target = target
        self._scheduled = dict(scheduled or {})
        self._given = given
        self._faults: list[str] = []
        self._inputs = len(fusion.inputs)
        self._integers = len(fusion.integers)
        integers = frozenset(fusion.integers)
        told = [e.free for tv in fusion.inputs for e in tv.shape]
        self._varying = integers.union(*(names for names in told if names & integers))
        if given or self._varying.issuperset(fusion.dims):  # calls of which no more is said
            self._scheduled[base.facts] = base
        self._runs: dict[Hashable, Executable] = {}  # by shapes; replaced, not emptied: others may read it
        self._lock = Lock()
        # neighbors in memory lie along last axes: vectors need a divisor of their extents
        memory = (*fusion.inputs, *fusion.outputs)
        self._aligned = frozenset[str]().union(*(tv.shape[-1].free for tv in memory if tv.ndim))
        self._width = VECTOR_BYTES // min(tv.dtype.itemsize for tv in memory)
        reductions = [e.output for e in fusion.exprs() if isinstance(e, Reduction)]
        self._reduced = frozenset[str]().union(*(a.extent.free for tv in reductions for a in tv.root if a.is_reduction))

    @property
    def kernel(self) -> Kernel:
        return self._base.run.kernel

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels for all extents, in the order in which they run."""
        return self._base.run.kernels

    @property
    def certificate(self) -> Certificate:
        return self._base.run.certificate

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        return self._base.run.certificates

    @property
    def is_open(self) -> bool:
        return self._base.run.is_open

    def check_open(self, extents: Mapping[str, int]) -> None:
        self._base.run.check_open(extents)

    @property
    def specializations(self) -> tuple[Specialization, ...]:
        """The specializations made so far, in the order in which they were made."""
        with self._lock:
            return tuple(s for s in dict.fromkeys(self._known()) if s is not self._base)

    def at(self, sizes: Mapping[str, int]) -> Executable:
        """See :meth:`Executable.at`."""
        dims = self._fusion.dims
        strange = next(iter(sorted(sizes.keys() ^ dims.keys())), None)
        if strange is not None:
            raise self._refuse(f"'{strange}' is {'not given' if strange in dims else 'not a dimension of it'}")
        for name, d in dims.items():
            if not d.admits(sizes[name], sizes):
                raise self._refuse(f"{name} is {sizes[name]}, but the fusion declares {d}")
        return self._at(sizes)

    def _refuse(self, reason: str) -> UnsupportedError:
        help = f"give all of its dimensions: {', '.join(self._fusion.dims)}"
        return UnsupportedError(what=f"a specialization of fusion '{self._fusion.name}'", reason=reason, help=help, location=caller())

    @property
    def name(self) -> str:
        return self._fusion.name

    @property
    def arguments(self) -> tuple[str, ...]:
        return self._base.run.arguments

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, seed: int = 0, **named: Any) -> tuple[Any, ...]:
        """Run the specialization for the shapes. See :meth:`Executable.__call__`. For new facts, a schedule is first made, proved and compiled."""
        if named:
            args = self.in_order(args, named)
        shapes: Hashable = args[len(args) - self._integers :] if self._integers else ()
        try:
            for array in args[: self._inputs]:
                shapes = shapes, array.shape
            run = self._runs.get(shapes)
        except (AttributeError, TypeError):  # no shape; a shape of a type of its own
            run = None
        if run is None:  # not where an error is handled: those of a search would keep it, and by its frames the arguments of this call
            run = self._run_of(args, shapes)
        return run(*args, out=out, stream=stream, seed=seed)

    def _run_of(self, args: Sequence[Any], key: Hashable) -> Executable:
        """The executable for arrays of new shapes, cached by ``key``. Arrays that do not fit go to the base, which raises the error."""
        try:
            shapes = [tuple(int(n) for n in array.shape) for array in args[: self._inputs]]
            extents = bind_shapes(self._fusion, shapes, args[len(args) - self._integers :] if self._integers else ())
        except (AttributeError, TypeError, ValueError, InputError, FusionError):
            return self._base.run
        run = self._at(extents)
        with self._lock:
            if len(self._runs) >= SHAPES:
                self._runs = {}
            self._runs[key] = run
        return run

    def _at(self, extents: Mapping[str, int]) -> Executable:
        extent = Sizes(self._fusion, extents, self._target)
        moved = sum(extent.elements(tv) * tv.dtype.itemsize for tv in (*self._fusion.inputs, *self._fusion.outputs))
        if moved < SMALL * self._target.launch_us * self._target.dram_bytes_per_us:
            return self._base.run.at(extents)
        facts = self._facts(extents)
        lengths = self._reduced - self._varying
        exact = tuple(replace(d, min=extents[d.name], max=extents[d.name], multiple_of=1, bound=None) if d.name in lengths else d for d in facts)
        with self._lock:
            found = self._scheduled.get(exact) or self._scheduled.get(facts)
            if found is None:
                found = self._tried(facts, exact, extents) if len(self._scheduled) < MOST else self._closest(extents)
            return found.run.at(extents)

    def _facts(self, extents: Mapping[str, int]) -> Facts:
        """The divisors that vectors may use, and bounds that are powers of two."""

        def fact(d: Dim) -> Dim:
            size = extents[d.name]
            if d.name in self._varying:
                return d
            if size == 0:
                return Dim(d.name, 0, 0)
            bound = 1 << max(size - 1, 0).bit_length()
            multiple = lcm(d.multiple_of, gcd(size, self._width)) if d.name in self._aligned else d.multiple_of
            chosen = self._base.sizes[d.name]
            if d.name in self._given and d.name not in self._reduced and chosen <= NEAR * size <= NEAR * NEAR * chosen:
                return Dim(d.name, d.positive.min, d.max, multiple, d.bound)
            return Dim(d.name, d.positive.min, bound if d.max is None else min(bound, d.max), multiple, d.bound)

        return tuple(fact(d) for d in self._fusion.dims.values())

    def _tried(self, facts: Facts, exact: Facts, extents: Mapping[str, int]) -> Specialization:
        """The specialization for new facts; the kernels for all extents, if it fails."""
        found = result(lambda: self._schedule(facts, exact, extents), None, f"no kernels for {', '.join(map(str, facts))}", self._faults)
        if found is None:
            found = self._scheduled[facts] = self._base
        return found

    @property
    def faults(self) -> tuple[str, ...]:
        """The facts for which specialization failed, and why: calls with these facts run the kernels for all extents."""
        with self._lock:
            return tuple(self._faults)

    def _schedule(self, facts: Facts, exact: Facts, extents: Mapping[str, int]) -> Specialization:
        """The specialization for new facts. The cost models get the length of reduced rows, the greatest value of other extents, and of
        integers what the kernels for all extents were chosen for."""
        sizes = {d.name: extents[d.name] if d.name in self._reduced or d.max is None else d.max for d in facts}
        sizes |= {name: max(d.min, d.near(self._base.sizes[name], extents)) for name, d in self._fusion.dims.items() if name in self._varying}
        key, chosen = facts, None
        if facts not in self._scheduled:  # else it is known that rows of one length gain
            chosen = self._plan(facts, sizes)
        if exact != facts:
            constant = self._plan(exact, sizes)
            if chosen is None or constant.us <= GAIN * chosen.us:
                self._scheduled[facts] = None
                key, chosen = exact, constant
        assert chosen is not None
        self._scheduled[key] = found = self._same(chosen, extents) or self._made(key, chosen, sizes)
        return found

    def _plan(self, facts: Facts, sizes: Mapping[str, int]) -> Segmentation | Outline:
        part = narrowed(self._fusion, facts)
        known = {name: size for name, size in sizes.items() if name in part.dims}
        memory = DecisionCache(part, self._make, "outline", sorted(known.items()), self._target)
        found = memory.outline()
        if found is None:
            found = choose_segments(part, sizes=known, target=self._target)
            memory.keep_outline(found)
        return found

    def _planned(self, facts: Facts, chosen: Segmentation | Outline, sizes: Mapping[str, int]) -> Executable:
        part = narrowed(self._fusion, facts)
        known = {name: size for name, size in sizes.items() if name in part.dims}
        return admitted(part, self._make, sizes=known, target=self._target, known=chosen if isinstance(chosen, Segmentation) else None)

    def _same(self, chosen: Segmentation | Outline, extents: Mapping[str, int]) -> Specialization | None:
        """A specialization with the same schedule whose facts hold."""
        return next((s for s in self._known() if s.run.schedule is not None and s.run.schedule.code == chosen.code and s.holds(extents)), None)

    def _made(self, facts: Facts, chosen: Segmentation | Outline, sizes: Mapping[str, int]) -> Specialization:
        """A new specialization with the fewest facts that give the same schedule, so that more calls run it."""
        declared = self._fusion.dims

        def unbounded(d: Dim) -> Dim:
            return d if d.min == d.max else replace(d, max=declared[d.name].max)

        fewer = tuple(map(unbounded, facts))
        found = self._plan(fewer, sizes)
        if found.code == chosen.code:
            facts, chosen = fewer, found
        for k, d in enumerate(facts):
            for weaker in (replace(declared[d.name], min=d.min), unbounded(d)):
                if d.min == d.max or weaker == d:
                    break
                fewer = (*facts[:k], weaker, *facts[k + 1 :])
                found = self._plan(fewer, sizes)
                if found.code == chosen.code:
                    facts, chosen = fewer, found
                    break
        return Specialization(facts, sizes, self._planned(facts, chosen, sizes))

    def _closest(self, extents: Mapping[str, int]) -> Specialization:
        """The specialization with the strongest facts, of those whose facts hold."""
        return max((s for s in self._known() if s.holds(extents)), key=lambda s: s.suits(extents))

    def _known(self) -> tuple[Specialization, ...]:
        return (self._base, *(s for s in self._scheduled.values() if s is not None))

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            return Specialized, (self._fusion, self._make, self._base, self._target, dict(self._scheduled), self._given)

    def __repr__(self) -> str:
        return f"Specialized({self._fusion.name!r}, {len(self.specializations)} specializations, backend={self.backend!r})"


def specialized(fusion: Fusion, make: Maker, run: Executable, sizes: Mapping[str, int] | None, target: Target) -> Specialized:
    """An executable that specializes ``fusion``; ``run`` is the one for all extents, scheduled for ``sizes``."""
    extent = Sizes(fusion, sizes, target)
    base = Specialization(tuple(fusion.dims.values()), {name: extent(sym(name)) for name in fusion.dims}, run)
    return Specialized(copy_fusion(fusion)[0], make, base, target, given=frozenset(sizes or ()))
