"""``tf.schedulers.fallback``: nearly any math in one simple kernel: a thread per element of an output, with serial reductions and scans.

It is slow where threads should cooperate, and takes what the other schedulers refuse. Each output has its own loop nest; tensors that several
outputs need are computed for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, prod
from typing import NamedTuple

from taskfuse.count import IN_FLIGHT
from taskfuse.errors import UnsupportedError
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Assemble, Fold, Gather, MathExpr, Read, Reduction, Scan, Update
from taskfuse.ir.fusion import MAX_RESIDENT, Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE
from taskfuse.ir.storage import needed, reads_of, storage_reads, table
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.elementwise import OutputWork, ancestors, at_readers, check_new, follow, is_aligned, recompute_all, stored, work
from taskfuse.schedulers.instructions import slots
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.schedule import Chosen, Offer, Option, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.target import DEFAULT, LINE_BYTES, REGISTERS, SECTOR_BYTES, WARP, Target

AGAIN_US = 100.0
"""Added for each reduction and scan that is done again where it is read: two kernels are better, however small the extents that are assumed."""
THREADS_BESIDE_LOOPS = 1024
"""Threads of a multiprocessor that have registers where nests with loops stand beside others, since a compiler has as many loads of a loop in flight as it can.
A sum of 64 products beside 27648 blocks of copies left registers to 8 warps, and took twice as long."""
MOST_THREADS, FEWEST_THREADS = 256, WARP
"""Threads of a block: fewer where a GPU has more multiprocessors than there are blocks."""
WITH_BRANCHES = 12
"""Issue slots from which on a function is taken to have branches for special numbers, as quotients and roots of float32 have."""
SCALAR_BYTES = 4
OTHER_REGISTERS, ADDRESS_REGISTERS = 24, 2
"""Of a thread, beside those that loads fill; and of each tensor that it reads."""


@dataclass(frozen=True, slots=True)
class FallbackConfig(Parameters):
    """The parameter of a fallback schedule.

    Attributes:
        threads: of a block.
    """

    threads: int = MOST_THREADS

    def __post_init__(self) -> None:
        self.check_fields()
        self.check_threads(self.threads, f"{self.threads} threads")

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        return f"a thread for each element, {self.threads} in a block"


@tries_parameters
def fallback(
    fusion: Fusion, config: FallbackConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT
) -> Chosen[FallbackConfig]:
    """Schedule nearly any fusion as one kernel. Reductions are recomputed for each reader at points other than their own, scans for each output.

    Args:
        fusion: it is changed.
        config: the parameters.
        sizes: values of the fusion's dimensions for the cost model.

    Raises:
        UnsupportedError: the fusion has a schedule; or it reads a concatenation in scatter form, a computed table at computed indices, or a
            scan in a reduction, in a scan of another axis, or at other points.
    """
    check_call(fusion, "fallback", config, FallbackConfig)
    extent = Sizes(fusion, sizes, target)
    trial, _ = copy_fusion(at_readers(fusion))
    along = _check(trial)
    separate(Script(trial))
    script = Script(fusion)
    script.comment("a separate nest for each output and its inputs")
    recompute_all(script, fusion)
    price = _priced(script, extent)
    owner, options = price.owner, price.options
    option = options[0] if config is None else price.option(config)
    chosen = option.config
    is_walked = any(isinstance(_definition(fusion, tv), Reduction | Scan | Fold) for tv in owner)
    residents = min(_held(fusion, owner, extent.target), THREADS_BESIDE_LOOPS) // chosen.threads
    if 1 < residents <= MAX_RESIDENT and len(stored(fusion)) > 1 and is_walked:
        script.comment("the nest with the longest loop does not decide how many threads the others have")
        script.resident_blocks(residents)
    script.comment("a thread for each element")
    for root in stored(fusion):
        _loops(script, root, along.get(root.name), chosen.threads)
        follow(script, root, [tv for tv, r in owner.items() if r is root and tv is not root])
    if inner := [e.output for e in needed(fusion) if not among(e.output, stored(fusion))]:
        script.inline_most(inner)
    problem = f"of {', '.join(tv.name for tv in fusion.outputs)}"
    expected = f"{price.steps:.0f} serial step{'s' * (price.steps > 1)} in each thread"
    return Chosen("fallback", problem, option, options, config is not None, script.text, expected)


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Offer:
    """The offer of :func:`fallback`.

    Raises:
        UnsupportedError: see :func:`fallback`; not all that it raises.
    """
    script = Script(copy_fusion(at_readers(fusion))[0])
    return Offer(_priced(script, Sizes(fusion, sizes, target)).options[0].us, partial(fallback, sizes=sizes, target=target))


class _Price(NamedTuple):
    """What the kernel of a fusion takes, all of which is read at the readers' own points.

    Attributes:
        owner: the output that each tensor serves.
        steps: serial steps of a thread.
        threads: of the output that has most.
        total: bytes and instructions of all threads.
        again, lines: bytes that loops read again, and the cache lines that these look up.
        waited: microseconds of the loads that are waited for, one after another.
        repeated: reductions and scans that are done again where they are read.
        target: the GPU.
    """

    owner: Mapping[TensorView, TensorView]
    steps: float
    threads: int
    total: OutputWork
    again: float
    lines: float
    waited: float
    repeated: int
    target: Target

    def option(self, config: FallbackConfig) -> Option[FallbackConfig]:
        """Parameters with their time: a multiprocessor does what its blocks do, and some do nothing."""
        target, total = self.target, self.total
        blocks = max(1, ceil(self.threads / config.threads))
        most = ceil(blocks / target.sms) * target.sms / blocks  # of what all do, on the multiprocessor with most blocks, relative to an even part
        alone = most * (total.loaded + total.stored + self.again) / (target.l2_bytes_per_cycle * target.cycles_per_us)
        us = replace(total, instructions=most * total.instructions).us(SCALAR_BYTES)
        us = max(us, target.kernel_us(self.again / target.l2_bytes_per_us, most * self.lines / target.cycles_per_us, alone))
        us = max(us + (self.steps - 1) * target.assumed.serial_us, target.kernel_us(self.waited)) + self.repeated * AGAIN_US
        return Option(config, us, block=(config.threads, 1, 1))

    @property
    def options(self) -> tuple[Option[FallbackConfig], ...]:
        """The first with as many threads of a block as leave each multiprocessor one, then the others."""
        found = [FallbackConfig(MOST_THREADS >> k) for k in range((MOST_THREADS // FEWEST_THREADS).bit_length())]
        first = next((c for c in found if ceil(self.threads / c.threads) >= self.target.sms), found[-1])
        return tuple(map(self.option, dict.fromkeys((first, *found))))


def _priced(script: Script, extent: Sizes) -> _Price:
    """The price of a fusion all of which is read at the readers' own points."""
    fusion = script.fusion
    known = set(fusion.tensors())
    owner = separate(script)
    trips = {root: _steps(fusion, root, [tv for tv, r in owner.items() if r is root], extent) for root in stored(fusion)}
    repeated = sum(isinstance(fusion.definition(tv), Reduction | Scan | Fold) and tv not in known for tv in owner)
    total = work(fusion, extent)
    total = replace(total, instructions=total.instructions + _serial_instructions(fusion, extent) + _place_instructions(fusion, extent))
    threads = _threads(fusion, owner, extent)
    held = extent.target.sms * _held(fusion, owner, extent.target)
    waited = _waited(threads, trips, _loads_apart(fusion, owner), held) * extent.target.assumed.load_cycles / extent.target.clock_mhz
    return _Price(owner, max(1.0, *trips.values()), max(threads.values()), total, *_reread(fusion, extent), waited, repeated, extent.target)


def _threads(fusion: Fusion, owner: Mapping[TensorView, TensorView], extent: Sizes) -> dict[TensorView, int]:
    """The threads of each output."""
    walked: dict[TensorView, set[int]] = {root: set() for root in stored(fusion)}
    for tv, root in owner.items():
        if isinstance(expr := _definition(fusion, tv), Scan):
            walked[root].add(expr.axis)
    return {root: prod(extent(a.extent) for k, a in enumerate(root.root) if not a.is_reduction and k not in along) for root, along in walked.items()}


def _loads_apart(fusion: Fusion, owner: Mapping[TensorView, TensorView]) -> dict[TensorView, int]:
    """How many groups the loads of a thread of each output without loops stand in: those behind a function with branches, such as a quotient, are issued after
    it. 16.8 million threads with four loads, three quotients and a root between them took 147 us, 102 with all loads before these (H200)."""
    found, is_behind = dict.fromkeys(stored(fusion), 0), dict.fromkeys(stored(fusion), True)
    for e in needed(fusion):
        root = owner.get(e.output)
        if root is None:
            continue
        if any(read.tensor.is_input and read.index for read in storage_reads(fusion, e)):
            found[root] += is_behind[root]
            is_behind[root] = False
        is_behind[root] |= slots(e) >= WITH_BRANCHES
    looped = {owner.get(e.output) for e in needed(fusion) if isinstance(e, Reduction | Scan | Fold)}
    return {root: 1 if root in looped else max(1, groups) for root, groups in found.items()}


def _waited(threads: Mapping[TensorView, int], trips: Mapping[TensorView, float], groups: Mapping[TensorView, int], held: int) -> float:
    """How many loads are waited for, one after another: the nests of outputs follow one another in each block, and each has as many waves of threads as a GPU
    holds, whose registers are those of the nest that needs most. A thread of a wave waits for each group of loads, for its store, and for those of its loop.

    Nests of 1.6 million threads that copy an element each took 6.3 us alone, one that sums gathered elements 7.5, and all in one kernel 22.2 (H200).

    Args:
        threads: of each output.
        trips: of its loops.
        groups: of its loads.
        held: threads that the GPU holds.
    """
    return sum(max(1.0, threads[root] / held) * (1 + groups[root] + each / IN_FLIGHT) for root, each in trips.items())


def _held(fusion: Fusion, owner: Mapping[TensorView, TensorView], target: Target) -> int:
    """The threads of a multiprocessor, if the loads of a loop in flight have registers, in the nest that needs most."""
    reads = dict.fromkeys(owner.values(), 0)
    loops = set[TensorView]()
    for tv, root in owner.items():
        definition = _definition(fusion, tv)
        reads[root] += sum(r.tensor.is_input for r in storage_reads(fusion, definition))
        if isinstance(definition, Reduction | Scan | Fold):
            loops.add(root)
    registers = max(OTHER_REGISTERS + n * (ADDRESS_REGISTERS + (IN_FLIGHT if root in loops else 1)) for root, n in reads.items())
    return min(target.limits.warps * WARP, REGISTERS // registers // WARP * WARP)


def _reread(fusion: Fusion, extent: Sizes) -> tuple[float, float]:
    """Bytes that the loops of reductions read, and the cache lines that their warps look up: no thread holds what another trip, or another thread, needs
    again. Of what all threads share a warp reads one sector of one line; what is the same in all trips is read before them. All tensors have the axes of the
    reductions that read them, at the same positions."""
    found: dict[tuple[object, ...], tuple[float, float]] = {}
    serial: dict[TensorView, set[int]] = {}
    for e in needed(fusion):
        if isinstance(e, Reduction):
            for tv in (e.output, *ancestors(fusion, e.output)):
                serial.setdefault(tv, set()).update(k for k, a in enumerate(e.output.root) if a.is_reduction)
    for e in needed(fusion):
        trips = serial.get(e.output)
        if trips is None:
            continue
        axes = e.output.root
        lanes = [k for k, a in enumerate(axes) if k not in trips and a.extent is not ONE]
        for read in storage_reads(fusion, e):
            if read.tensor.is_input:
                names = frozenset[str]().union(*(i.free for i in read.index))
                points = prod(extent(a.extent) for k, a in enumerate(axes) if k not in trips or iteration_symbol(k).free & names)
                lane = iteration_symbol(lanes[-1]).free if lanes else frozenset[str]()
                size = read.tensor.dtype.itemsize
                if any(i.free & lane for i in read.index[:-1]):  # each thread reads another row
                    each = size, min(1.0, extent(read.tensor.shape[-1]) * size / LINE_BYTES)
                elif lane & names:
                    each = size, size / LINE_BYTES
                else:
                    each = SECTOR_BYTES / WARP, 1 / WARP
                found[read.tensor, read.index, tuple(a.extent for a in axes)] = points * each[0], points * each[1]
    return sum(moved for moved, _ in found.values()), sum(lines for _, lines in found.values())


def _serial_instructions(fusion: Fusion, extent: Sizes) -> float:
    """Instructions of all threads for trips of their loops, and for the places of what they read in each: nothing is unrolled, and nothing a vector."""
    loops = {e.output for e in needed(fusion) if isinstance(e, Reduction | Scan | Fold)}
    inside = loops.union(*(ancestors(fusion, tv) for tv in loops))
    found = 0.0
    for e in needed(fusion):
        if e.output in inside:
            each = extent.target.assumed.trip_instructions * (e.output in loops) + len(storage_reads(fusion, e))
            found += each * prod(extent(a.extent) for a in e.output.root)
    return found


def _place_instructions(fusion: Fusion, extent: Sizes) -> float:
    """Instructions of all threads to find the place of their element, a division and a remainder for each further axis, and to load what that needs, element by
    element: nothing of it is the same for the next elements, as it is for those of a vector."""
    assumed, found = extent.target.assumed, 0.0
    for root in stored(fusion):
        axes = sum(a.extent is not ONE for a in root.root if not a.is_reduction)
        found += 2 * assumed.division_instructions * max(0, axes - 1) * prod(extent(a.extent) for a in root.root if not a.is_reduction)
    for e in needed(fusion):
        loads = sum(read.tensor.is_input for read in storage_reads(fusion, e))
        found += assumed.place_instructions * loads * prod(extent(a.extent) for a in e.output.root)
    return found


def _check(fusion: Fusion) -> dict[str, int]:
    """By the names of the outputs: the axis that a thread runs along, because it is that of a scan. Raises :class:`UnsupportedError`."""
    roots = stored(fusion)
    along: dict[str, int] = {}
    for root in roots:
        every = (root, *ancestors(fusion, root))
        folded = {tv for reader in every if isinstance(fusion.definition(reader), Fold) for tv in ancestors(fusion, reader)}
        for reader in every:
            expr = _definition(fusion, reader)
            if isinstance(expr, Scan) and reader not in folded and along.setdefault(root.name, expr.axis) != expr.axis:
                raise _refused(fusion, f"{root.name} needs scans of different axes")
            if isinstance(expr, Reduction | Fold):
                for tv in ancestors(fusion, reader):
                    inner = fusion.definition(tv)
                    if isinstance(inner, Scan) and not _takes_each_total(reader, expr, inner, reader in folded):
                        raise _refused(fusion, f"{reader.name} reduces {tv.name}, whose elements a thread computes one after another")
            for read in storage_reads(fusion, expr):
                _check_read(fusion, reader, read)
    return along


def _takes_each_total(reader: TensorView, expr: Reduction | Fold, scan: Scan, is_folded: bool) -> bool:
    """True if a fold, or a reduction of the terms of one, takes each total of a scan as it is made: in the loop along the axis of both."""
    return expr.axis == scan.axis if isinstance(expr, Fold) else is_folded and scan.axis < len(reader.root) and not reader.root[scan.axis].is_reduction


def _check_read(fusion: Fusion, reader: TensorView, read: Read) -> None:
    tv, expr = read.tensor, fusion.definition(read.tensor)
    if isinstance(expr, Assemble):
        raise _refused(fusion, f"{reader.name} reads {tv.name}, which is assembled from parts (a cat in scatter form)")
    if expr is not None and table(fusion, _definition(fusion, reader)) is tv:
        raise _refused(fusion, f"{reader.name} reads {tv.name} at computed indices")
    if isinstance(expr, Gather | Scan) and not is_aligned(read, reader):
        raise _refused(fusion, f"{reader.name} reads {tv.name}, which cannot be computed again where it is read")


def _refused(fusion: Fusion, reason: str) -> UnsupportedError:
    return refuse(fusion, "fallback", reason, "tf.compile makes several kernels")


def separate(script: Script, is_in_place: Callable[[Read, TensorView], bool] = is_aligned) -> dict[TensorView, TensorView]:
    """Duplicate tensors that several outputs need. Returns the output that each tensor serves; outputs serve themselves.

    Args:
        is_in_place: whether a read is at the reader's own point.

    Raises:
        UnsupportedError: see :func:`~taskfuse.schedulers.elementwise.recompute_all`.
    """
    fusion = script.fusion
    roots, before = stored(fusion), len(fusion.tensors())
    owner: dict[TensorView, TensorView] = {}
    for root in roots:
        owner[root] = root
        _separate(script, root, roots, owner, before, is_in_place)
    return owner


def _separate(
    script: Script,
    root: TensorView,
    roots: tuple[TensorView, ...],
    owner: dict[TensorView, TensorView],
    before: int,
    is_in_place: Callable[[Read, TensorView], bool],
) -> None:
    fusion = script.fusion
    stack = [root]
    while stack:
        reader = stack.pop()
        reads = reads_of(fusion, reader)
        for tv in dict.fromkeys(r.tensor for r in reads):
            here = all(is_in_place(r, reader) for r in reads if r.tensor is tv)
            changed = isinstance(expr := _definition(fusion, reader), Update) and tv is table(fusion, expr)
            if tv.is_input or changed or (owner.get(tv) is root and tv is not root and here):
                continue
            made = (tv,) if here and tv not in owner and not among(tv, roots) else script.recompute(tv, [reader])
            for new in made:
                owner[new] = root
                stack.append(new)
            check_new(fusion, before, reader)


def _steps(fusion: Fusion, root: TensorView, served: Sequence[TensorView], extent: Sizes) -> float:
    """Serial iterations of a thread for an output and what it needs; a reduction in the loop of a scan runs for each of its elements."""
    exprs = [fusion.definition(tv) for tv in served]
    scanned = {e.axis for e in exprs if isinstance(e, Scan)}
    threads = prod(extent(a.extent) for k, a in enumerate(root.root) if not a.is_reduction and k not in scanned)
    found = 0.0
    for e in exprs:
        if isinstance(e, Reduction | Scan | Fold):
            axes = e.output.root
            along = [a for a in axes if a.is_reduction] if isinstance(e, Reduction) else [axes[e.axis]]
            found += max(prod(extent(a.extent) for a in along), prod(extent(a.extent) for a in axes) // max(threads, 1))
    return found


def _loops(script: Script, root: TensorView, along: int | None, threads: int) -> None:
    """[threads | the axis of a scan, reduced axes]."""
    serial = [k for k, a in enumerate(root.root) if k == along or a.is_reduction]
    kept = [k for k in range(len(root.root)) if k not in serial]
    if not kept:
        return
    call = script.on(root)
    order = [*kept, *serial]
    if order != sorted(order):
        call.reorder(order)
    for _ in kept[1:]:
        call.merge(0)
    call.split(0, threads)
    call.bind(0, P.BIDx).bind(1, P.TIDx)


def _definition(fusion: Fusion, tv: TensorView) -> MathExpr:
    expr = fusion.definition(tv)
    assert expr is not None
    return expr
