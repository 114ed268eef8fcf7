"""Random cases: a fusion with tasks, groups and a schedule, and arguments for it."""

from __future__ import annotations

import math
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import taskfuse as tf
from taskfuse.errors import LoweringError, TaskfuseError
from taskfuse.ir.atoms import SCALAR
from taskfuse.ir.axes import CLAIMED, Rasterize
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import evaluate
from taskfuse.ir.signatures import checked_first
from taskfuse.ir.storage import producers
from taskfuse.ir.tables import TableRange, places
from taskfuse.ir.tensor import AxisRef, TensorView
from taskfuse.ir.types import BLOCK_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.kir import Kernel
from taskfuse.lowering import LoweringOptions, lower
from taskfuse.schedule.copy import copy_fusion
from taskfuse.target import MAX_BLOCK, SHARED_BYTES
from taskfuse.testing import partitions, pipelines
from taskfuse.testing.cascades import CascadeGraph
from taskfuse.testing.chooser import Chooser, RandomChooser
from taskfuse.testing.forms import reform
from taskfuse.testing.graphs import Graph
from taskfuse.testing.grouped import GroupedGraph, hostile, rising
from taskfuse.testing.mechanisms import mechanisms
from taskfuse.testing.options import CaseOptions, Mix
from taskfuse.testing.parameters import DRAWN
from taskfuse.testing.problems import ProblemGraph
from taskfuse.testing.products import ProductGraph
from taskfuse.testing.program import REFUSALS, Program, Recorder
from taskfuse.testing.rewrites import rewrite
from taskfuse.testing.schedules import CaseScheduler
from taskfuse.testing.shared_tiles import SharedTileGraph, share_tiles
from taskfuse.testing.stencils import StencilGraph
from taskfuse.testing.streams import stream
from taskfuse.testing.tensor_cores import TensorCores
from taskfuse.testing.uneven import UnevenGraph

Array = NDArray[Any]
REPAIRS = 12


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of lowering: exactly one attribute is set.

    Attributes:
        kernel: the kernel.
        refusal: why taskfuse refuses the schedule, or why the generator rejects the kernel's size.
        crash: any other exception, which is a bug.
    """

    kernel: Kernel | None
    refusal: TaskfuseError | None
    crash: Exception | None


@dataclass(frozen=True, slots=True)
class Case:
    """A fusion and arguments for it.

    Attributes:
        program: the calls that build the fusion.
        math: the first calls of the program, which build the unscheduled fusion.
        sizes: the value of each symbolic dimension.
        seed: picks the arguments, statement orders and interleavings of the checks.
        fusion: the fusion.
        plain: the unscheduled fusion.
        outcome: its kernel, or why lowering refuses it.
        made, refused: per call, how often the generator made it, and how often taskfuse refused it.
        options: the options of the generator.
        drawn: the mechanisms of the schedule before it was repaired for lowering.
    """

    program: Program
    math: Program
    sizes: dict[str, int]
    seed: int
    fusion: Fusion
    plain: Fusion
    outcome: Outcome
    options: CaseOptions
    made: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    drawn: frozenset[str] = frozenset()

    @property
    def kernel(self) -> Kernel | None:
        """The kernel; ``None`` if the schedule is refused."""
        return self.outcome.kernel if self.outcome.refusal is None else None

    def arguments(self) -> list[Array | int | float]:
        """Inputs and run-time scalars: small integers and, unless the case is exact, fractions; in modular values, random words replace them."""
        rng = np.random.default_rng(self.seed)
        found: list[Array | int | float] = []
        for tv in self.fusion.inputs:
            shape = tuple(int(evaluate(e, self.sizes)) for e in tv.shape)
            known = self.fusion.tables.get(tv)
            if known is not None and known.holds is not None:
                made = {t.name: a for t, a in zip(self.fusion.inputs, found, strict=False) if t in self.fusion.tables}
                array: Array = places(known.holds, shape[0], {**self.sizes, **made})
            elif known is not None and known.rises:
                array = rising(rng, shape[0], *self._range(known))
            elif known is not None and known.lengths:
                array = np.diff(rising(rng, shape[0] + 1, *self._range(known)))
            elif known is not None:
                rows = rng.integers(0 if tv.dtype.min_value == 0 else -1, max(10, self._range(known)[1] + 1), shape)
                array = np.sort(rows) if rng.integers(3) or self.options.grouped else rows  # searches in tables that fall find anything
            elif tv.dtype.is_bool:
                array = rng.integers(0, 2, shape).astype(np.bool_)
            elif tv.dtype.is_float and not self.options.exact:
                array = rng.integers(-32, 33, shape) / 16
            else:
                array = rng.integers(0 if tv.dtype.min_value == 0 else -3, 4, shape)
            found.append(_restrided(rng, np.asarray(array).astype(tv.dtype.numpy)))
        found += [2.5 if s.dtype.is_float and not self.options.exact else 3 for s in self.fusion.scalars]
        return found + [self.sizes[name] for name in self.fusion.integers]

    def hostile_arguments(self) -> list[Array | int | float] | None:
        """The arguments with other tables, which break what is promised of them; ``None`` if nothing is."""
        rng = np.random.default_rng(self.seed + 1)
        found = self.arguments()
        tables = [(k, tv, self.fusion.tables[tv]) for k, tv in enumerate(self.fusion.inputs) if tv in self.fusion.tables]
        broken = [(k, tv, known) for k, tv, known in tables if known.rises or known.lengths or known.holds is not None]
        for k, tv, known in broken:
            array = found[k]
            assert isinstance(array, np.ndarray)
            found[k] = hostile(rng, len(array), *self._range(known)).astype(tv.dtype.numpy)
        return found if broken else None

    def _range(self, known: TableRange) -> tuple[int, int]:
        return int(evaluate(known.low, self.sizes)), int(evaluate(known.high, self.sizes))

    def report(self) -> str:
        """The case as a short program, with a description of its arguments."""
        shapes = ", ".join(f"{k} = {v}" for k, v in self.sizes.items())
        return f"{self.program.source()}# sizes: {shapes or 'static'}; arguments: case seed {self.seed}\n"


def _restrided(rng: np.random.Generator, array: Array) -> Array:
    """The same elements, sometimes with negative or permuted strides."""
    kind = int(rng.integers(0, 6))
    if kind == 0 and array.ndim:
        return array[::-1].copy()[::-1]
    return array.T.copy().T if kind == 1 else array


def random_case(chooser: Chooser, options: CaseOptions | None = None) -> Case:
    """A random case; the same answers of ``chooser`` give the same case.

    Most cases lower. The program omits calls that taskfuse refuses. If lowering refuses the schedule, the generator changes memory types
    and inline positions of the named tensors and tries again, a few times. If the case still does not lower, ``outcome`` says why.
    """
    options = options or CaseOptions()
    recorder = Recorder()
    graph = _kind(chooser, options)(chooser, options, recorder)
    graph.grow()
    return _scheduled(chooser, options, recorder, graph.sizes)


def _kind(chooser: Chooser, options: CaseOptions) -> type[Graph]:
    """The generator of the math."""
    shares = (options.grouped, GroupedGraph), (options.uneven, UnevenGraph), (options.stencils, StencilGraph), (options.products, ProductGraph)
    shares += (options.cascades, CascadeGraph), (options.problems, ProblemGraph), (options.shared_tiles, SharedTileGraph)
    for share, kind in shares:
        if chooser.chance(share):
            return kind
    return Graph


def seeded_case(seed: int, mix: Mix = Mix.MIXED) -> Case:
    """The case of a seed, as ``python -m taskfuse.testing.fuzz --seed K --cases 1`` checks."""
    return random_case(RandomChooser(seed), mix.options(seed))


@checked_first
def fusion_case(fusion: Fusion, sizes: Mapping[str, int] | None = None, seed: int = 0) -> Case:
    """The case of a user's fusion and schedule.

    Args:
        fusion: stays unchanged.
        sizes: the value of each of its symbolic dimensions.
        seed: picks the arguments, the orders and the interleavings that checks use.

    Raises:
        CallError: an argument of another type.
        LoweringError: lowering refuses the schedule; :func:`taskfuse.lower` lists other errors.
    """
    own, _ = copy_fusion(fusion)
    program = Program(fusion.name, (), str(fusion))
    return Case(program, program, dict(sizes or {}), seed, own, own, Outcome(lower(own), None, None), CaseOptions())


def reschedule(case: Case, chooser: Chooser, options: CaseOptions | None = None) -> Case:
    """A case with the math of ``case`` and other tasks, groups and schedule; its results must be equal."""
    return _scheduled(chooser, options or case.options, Recorder(case.math), case.sizes, case.seed)


def random_schedule(chooser: Chooser, fusion: Fusion, sizes: Mapping[str, int] | None = None, seed: int = 0, options: CaseOptions | None = None) -> Case:
    """The math of a user's fusion with random tasks, groups and schedule; arguments as for :func:`fusion_case`.

    The existing schedule of ``fusion`` is kept where possible. Most cases lower; see :func:`random_case`.
    """
    return _scheduled(chooser, options or CaseOptions(), Recorder(Program(fusion.name, (), str(fusion))), dict(sizes or {}), seed)


def program_case(case: Case, lines: Sequence[str], calls: int) -> Case:
    """``case`` with another program, whose first ``calls`` lines make the math. Exceptions of the math, and of unknown names in it, propagate."""
    program = replace(case.program, lines=tuple(lines))
    math = replace(program, lines=program.lines[:calls])
    plain = math.run()
    fusion = plain
    try:
        fusion = program.run()
        kernel = lower(fusion, LoweringOptions(verify=False))
        outcome = Outcome(kernel, _too_large(kernel, case.options, case.sizes), None)
    except REFUSALS as error:
        outcome = Outcome(None, error, None)
    except Exception as error:
        if isinstance(error, NameError) and traceback.extract_tb(error.__traceback__)[-1].filename == program.filename:
            raise
        outcome = Outcome(None, None, error)
    return replace(case, program=program, math=math, fusion=fusion, plain=plain, outcome=outcome)


def _scheduled(chooser: Chooser, options: CaseOptions, recorder: Recorder, sizes: dict[str, int], seed: int | None = None) -> Case:
    math = recorder.program()
    plain, _ = copy_fusion(recorder.fusion)
    drawn = frozenset[str]()
    try:
        _schedule(chooser, options, recorder, sizes)
        drawn = mechanisms(recorder.fusion)
        outcome = _lowered(recorder, options, sizes)
        if outcome.kernel is not None and outcome.refusal is None:
            outcome = _in_stages(chooser, options, recorder, outcome, sizes)
    except Exception as error:
        outcome = Outcome(None, None, error)
    chosen = zlib.crc32(math.source().encode()) if seed is None else seed
    return Case(recorder.program(), math, sizes, chosen, recorder.fusion, plain, outcome, options, recorder.made, recorder.refused, drawn)


def _schedule(chooser: Chooser, options: CaseOptions, recorder: Recorder, sizes: dict[str, int]) -> None:
    """Tasks, groups and schedule, in one of the orders in which calls can be made."""
    scheduler = CaseScheduler(chooser, options, recorder, lambda e: int(evaluate(e, sizes)))
    if options.forms:
        reform(chooser, recorder, options.forms)
    if chooser.chance(options.schedulers) and automatic(chooser, recorder, options.drawn):
        return
    if chooser.chance(options.streams):
        stream(chooser, recorder, scheduler.size, options.clusters)
        return
    if chooser.chance(options.shared_tiles) and share_tiles(chooser, recorder):
        return
    if chooser.chance(options.tensor_cores) and TensorCores(chooser, options, recorder, scheduler.size).run():
        return
    if options.rewrites:
        rewrite(chooser, recorder, options.rewrites)
    scheduler.rows()
    early = chooser.chance(50)
    if early:
        scheduler.cache()
        scheduler.rfactor()
    found = partitions.partition(chooser, options, recorder)
    if not early:
        scheduler.cache()
        scheduler.rfactor()
    scheduler.loops()
    scheduler.vectorize()
    first = chooser.chance(50)
    if first:
        partitions.parallelize(chooser, options, recorder, found, scheduler.size)
    scheduler.inline()
    scheduler.distribute()
    if not first:
        partitions.parallelize(chooser, options, recorder, found, scheduler.size)
    scheduler.rings()
    scheduler.memory()


def _lowered(recorder: Recorder, options: CaseOptions, sizes: dict[str, int]) -> Outcome:
    """The kernel, after repairs of the tensor that lowering names and of its neighbors, and of launches that are too large."""
    fusion = recorder.fusion
    repairs: dict[str, Iterator[None]] = {}
    attempts = 0
    while True:
        attempts += 1
        kernel: Kernel | None = None
        try:
            kernel = lower(fusion, LoweringOptions(verify=False))
            refusal: TaskfuseError | None = _too_large(kernel, options, sizes)
        except LoweringError as error:
            refusal = error
        except REFUSALS as error:
            return Outcome(None, error, None)
        if refusal is None or attempts == REPAIRS:
            return Outcome(kernel, refusal, None)
        name = str(refusal.fields["what"]).split(".")[0]
        at_fault = next((tv for tv in fusion.tensors() if tv.name == name), None)
        if name not in repairs:
            repairs[name] = _smaller_launches(recorder) if at_fault is None else _repairs(recorder, at_fault)
        if next(repairs[name], False) is False:
            return Outcome(kernel, refusal, None)


def _in_stages(chooser: Chooser, options: CaseOptions, recorder: Recorder, outcome: Outcome, sizes: dict[str, int]) -> Outcome:
    """What a kernel becomes where code of its loops runs a trip behind, or takes turns."""
    for share, change in ((options.behind, pipelines.run_behind), (options.turns, pipelines.take_turns)):
        kernel = change(chooser, recorder) if chooser.chance(share) else None
        if kernel is not None:
            outcome = Outcome(kernel, _too_large(kernel, options, sizes), None)
    return outcome


def _smaller_launches(recorder: Recorder) -> Iterator[None]:
    """One step after another that leaves only groups on a thread type, the type with most axes first."""
    axes = [AxisRef(tv, a) for tv in recorder.fusion.tensors() for a in tv.loop]
    for ptype in sorted(THREAD_TYPES, key=lambda p: -sum(a.ptype is p for a in axes)):
        bound = [a for a in axes if a.ptype is ptype]
        for a in bound:
            recorder.call(a, "parallelize", ParallelType.Serial)
        if bound:
            yield


def _repairs(recorder: Recorder, tv: TensorView) -> Iterator[None]:
    """One step after another that makes ``tv`` easier to lower: memory that more threads share, fewer types, fewer shared loops."""
    fusion = recorder.fusion
    made = [p for p in producers(fusion, tv) if not p.is_input]
    if tv.schedule.atom is not None:
        recorder.call(tv, "set_atom", SCALAR, [])
        yield
    if tv.schedule.memory is not MemoryType.Shared and recorder.attempt(tv, "set_memory_type", MemoryType.Shared) is not None:
        yield
    claims = any(CLAIMED in m.free for x in fusion.tensors() for t in x.schedule.transforms if isinstance(t, Rasterize) for m in t.maps)
    if (
        tv.schedule.memory is MemoryType.Shared
        and (claims or _has_block_roles(fusion))
        and recorder.attempt(tv, "set_memory_type", MemoryType.Global) is not None
    ):
        yield
    moved = [p for p in made if p.schedule.memory is None and recorder.attempt(p, "set_memory_type", MemoryType.Shared) is not None]
    if moved:
        yield
    threads = [a for a in tv.loop if tv.schedule.ptype(a) in THREAD_TYPES]
    for a in threads:
        recorder.attempt(AxisRef(tv, a), "parallelize", ParallelType.Serial)
    if threads:
        yield
    blocks = [(x, a) for x in fusion.tensors() for a in x.loop if x.schedule.ptype(a) in BLOCK_TYPES and not claims]
    for x, a in blocks:
        recorder.attempt(AxisRef(x, a), "parallelize", ParallelType.Serial)
    if blocks:
        yield
    for x in (tv, *made):
        if x.schedule.inline:
            recorder.attempt(x, "inline_at", 0)
    yield


def _has_block_roles(fusion: Fusion) -> bool:
    """True if members of a vertical group run on blocks of their own, which share no Shared memory."""
    return any(g.ptype is not None and g.ptype.is_block and partitions.is_vertical(g) for g in fusion.tasks.groups())


def _too_large(kernel: Kernel, options: CaseOptions, sizes: dict[str, int]) -> TaskfuseError | None:
    counts: list[int] = []
    for shape in (kernel.block, kernel.grid):
        total = 1
        for e in shape:
            total *= int(evaluate(e, sizes))
        counts.append(total)
    if counts[0] > options.threads or counts[1] > options.blocks:
        return LoweringError(what=kernel.name, reason=f"{counts[0]} threads and {counts[1]} blocks are more than the options allow")
    for axis, e, limit in zip("xyz", kernel.block, MAX_BLOCK, strict=True):
        if int(evaluate(e, sizes)) > limit:
            return LoweringError(what=kernel.name, reason=f"{evaluate(e, sizes)} threads along {axis} are more than a block has")
    shared = sum(math.prod(int(evaluate(e, sizes)) for e in b.shape) * b.dtype.itemsize + b.align for b in kernel.buffers if MEDIA[b.memory].is_placed)
    if shared > SHARED_BYTES:
        return LoweringError(what=kernel.name, reason=f"{shared} bytes of Shared memory, where buffers share none, are more than a block has")
    return None


def automatic(chooser: Chooser, recorder: Recorder, drawn: int = 0) -> bool:
    """Let a scheduler schedule the fusion as one kernel; False if all refuse.

    Args:
        drawn: share of calls of those that have parameters to draw, in percent.
    """
    anything = [s.__name__ for s in (tf.schedulers.auto, tf.schedulers.fallback)]
    special = [s.__name__ for s in tf.schedulers.SCHEDULERS if s.__name__ not in anything]
    order = [*(chooser.order(special) if chooser.chance(30) else special), *chooser.order(anything)]
    if chooser.chance(15):
        order.reverse()
    before = str(recorder.fusion)
    for name in order:
        given = DRAWN[name](chooser) if name in DRAWN and chooser.chance(drawn) else None
        for arguments in ((recorder.fusion, given), (recorder.fusion,)) if given is not None else ((recorder.fusion,),):
            if recorder.attempt(tf.schedulers, name, *arguments) is not None:
                return True
            if str(recorder.fusion) != before:
                raise AssertionError(f"tf.schedulers.{name} refuses the fusion, and leaves it changed")
    return False
