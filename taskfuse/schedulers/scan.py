"""``tf.schedulers.scan``: scans along one axis, with elementwise functions around them, the elements of a row across the threads of a block.

A thread scans a chunk of its row in registers. The totals of the chunks are scanned in Shared memory, then each thread adds the sum before its chunk. Every
element is loaded and stored once. Where rows lie side by side in memory, neighboring threads have neighboring rows, and each has whole rows if these are
short. What reads a scan at other points along its axis, as moving averages do, finds it in Shared memory (:mod:`taskfuse.schedulers.scan_loops`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, prod
from typing import NamedTuple

from taskfuse.errors import UnsupportedError
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Read, Scan
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const, Expr, Sym
from taskfuse.ir.storage import has_code, needed, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.elementwise import (
    Leaf,
    align,
    ancestors,
    at_readers,
    divides,
    fetched,
    is_coalesced,
    work,
)
from taskfuse.schedulers.instructions import holds
from taskfuse.schedulers.scan_cost import ScanConfig, ScanProblem, estimate, levels, rank, shared_bytes, totals_of
from taskfuse.schedulers.scan_loops import ScanLoops, ScanSchedule, is_turned
from taskfuse.schedulers.scan_spaces import ScanSpaces, find_spaces
from taskfuse.schedulers.schedule import Chosen, Option, Sizes, check_call, refuse
from taskfuse.schedulers.script import Script
from taskfuse.target import DEFAULT, MAX_THREADS, VECTOR_BYTES, Target

CHUNK_BYTES = 64
"""Of a chunk of a contiguous row at most, as it is accumulated: a thread has it in registers, twice for a while, and a block of 1024 leaves each thread 64 of
these. So many totals one thread scans; more are scanned in chunks of their own."""
THREADS = 256
"""The preferred threads of a contiguous row; longer rows have longer chunks."""
FEWEST_THREADS = 128
"""The fewest threads of a block, if there are enough of such rows."""


def scan(fusion: Fusion, config: ScanConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[ScanConfig]:
    """Schedule scans along one axis: each row along it in the registers of one block.

    Elementwise functions may precede and follow them. Outputs have the rows of the scans, in any order of axes, and any elements along these.

    Args:
        fusion: it is changed.
        config: the parameters; ``None``: by the extents and dtypes.
        sizes: values of the fusion's dimensions for the choice.

    Raises:
        UnsupportedError: the fusion has a schedule, no scan, scans along several axes or of several shapes, code that is neither scan nor elementwise, outputs
            with other rows; or rows that may be longer than the threads of a block hold.
    """
    check_call(fusion, "scan", config, ScanConfig)
    extent = Sizes(fusion, sizes, target)
    spaces = find_spaces(at_readers(fusion))
    shape = [a.extent for a in spaces.axes]
    longest = _longest(fusion, shape[spaces.axis])
    rows = _ScanRows(fusion, *_aligned(Script(copy_fusion(fusion)[0]), None), longest, extent)
    beside = _beside(rows)
    if beside is not None:
        try:
            rows = _ScanRows(fusion, *_aligned(Script(copy_fusion(fusion)[0]), beside), longest, extent)
        except UnsupportedError:
            beside = None
    plan = (_plan_inner if rows.spaces.is_inner else _plan_outer)(rows, config)
    script = Script(fusion)
    script.comment("each tensor at its readers' points, inputs in registers")
    _, leaves, _ = _aligned(script, beside)
    levels = ScanSchedule(script, plan.loops, leaves, beside).apply()
    threads = plan.loops.threads
    problem = f"of {rows.number} rows of {extent(shape[spaces.axis])} elements"
    bound = "" if isinstance(shape[spaces.axis], Const) else " at most"
    text = f"{threads} thread{'s' * (threads > 1)}{bound} per row, vectors of {plan.loops.vector}, {levels} level{'s' * (levels != 1)} of totals{plan.waits}"
    return Chosen("scan", problem, plan.option, plan.options, config is not None, script.text, text)


class _ScanRows(NamedTuple):
    """The rows of a fusion.

    Attributes:
        fusion: as it was given.
        trial: a copy in which each tensor is computed at its readers' points.
        leaves: what that loads.
        spaces: of its tensors.
        longest: the most elements of a row.
        extent: numbers for extents.
    """

    fusion: Fusion
    trial: Fusion
    leaves: Sequence[Leaf]
    spaces: ScanSpaces
    longest: int
    extent: Sizes

    @property
    def totals(self) -> tuple[int, ...]:
        """Bytes of an element as it is accumulated, of each scan."""
        return tuple(e.output.dtype.compute.itemsize for e in needed(self.trial) if isinstance(e, Scan))

    @property
    def number(self) -> int:
        """How many there are."""
        return prod(self.extent(self.spaces.axes[k].extent) for k in self.spaces.own.kept)

    @property
    def vector(self) -> int:
        """The most elements along the last axis of the scans that are vectors of what all of their code loads and stores."""
        own = [leaf for leaf in self.leaves if leaf.tensor not in self.spaces.others]
        sizes = [r.tensor.dtype.itemsize for leaf in own for r in leaf.reads if any(iteration_symbol(len(self.spaces.axes) - 1).free & e.free for e in r.index)]
        sizes += [tv.dtype.itemsize for tv in self.fusion.outputs]
        width = VECTOR_BYTES // max(sizes)
        while width > 1 and not divides(width, self.spaces.axes[-1].extent, self.fusion.facts()):
            width //= 2
        return width

    @property
    def kept(self) -> tuple[int, ...]:
        """Bytes of an element, of each tensor that is in Shared memory for readers at other points."""
        turned = [leaf.tensor for leaf in self.leaves if is_turned(self.trial, leaf, self.spaces)]
        return tuple(tv.dtype.itemsize for tv in (*self.spaces.shared, *turned))


class _ScanPlan(NamedTuple):
    """What a schedule is made of.

    Attributes:
        loops: its parameters, and what follows from them.
        option: the parameters, with their time.
        options: all candidates.
        waits: for what a block waits, as text.
    """

    loops: ScanLoops
    option: Option[ScanConfig]
    options: tuple[Option[ScanConfig], ...]
    waits: str = ""


def _plan_inner(rows: _ScanRows, config: ScanConfig | None) -> _ScanPlan:
    """Parameters for rows whose elements lie side by side. Raises :class:`UnsupportedError`."""
    fusion, longest, extent = rows.fusion, rows.longest, rows.extent
    bytes_of_total = max(rows.totals)
    most = max(CHUNK_BYTES // bytes_of_total, 1)
    if config is None:
        _check_threads(fusion, ScanConfig(most), longest, _most_threads(bytes_of_total), "has registers for", "tf.compile makes several kernels")
    elif config.width > 1:
        raise refuse(fusion, "scan", f"width is {config.width}, and its rows do not lie side by side", "use width=1")
    else:
        _check_threads(fusion, config, longest, MAX_THREADS, "has at most", "use longer chunks, or fewer rows")
    turned = next((tv for tv, space in rows.spaces.others.items() if tv.is_output and space.walk is not None and not space.is_along), None)
    if turned is not None:
        raise refuse(fusion, "scan", f"rows lie side by side in {turned.name}, and not in what is scanned", "tf.compile makes several kernels")
    width = rows.vector
    chosen = config or _choose(longest, rows.number, width, most)
    if rows.kept:
        _check_shared(fusion, sum(rows.kept) * chosen.rows * (longest + width * ceil(longest / chosen.chunk)), extent)
    vector = width if chosen.chunk % width == 0 else 1
    size = VECTOR_BYTES // width
    total = work(rows.trial, extent)
    us = total.us(min(VECTOR_BYTES, vector * size)) + len(levels(ceil(longest / chosen.chunk), most, most)) * extent.target.assumed.level_us
    others = [replace(chosen, chunk=chosen.chunk * 2), replace(chosen, chunk=max(chosen.chunk // 2, 1)), replace(chosen, rows=1)]
    configs = [c for c in dict.fromkeys((chosen, *others)) if c.chunk <= most and ceil(longest / c.chunk) * c.rows <= MAX_THREADS]
    options = tuple(Option(c, us, block=(ceil(longest / c.chunk), c.rows, 1)) for c in configs)
    loops = ScanLoops(chosen, longest, vector, most, most)
    return _ScanPlan(loops, Option(chosen, us, block=(loops.threads, chosen.rows, 1)), options)


def _plan_outer(rows: _ScanRows, config: ScanConfig | None) -> _ScanPlan:
    """Parameters for rows that lie side by side. Raises :class:`UnsupportedError`."""
    fusion, longest, problem = rows.fusion, rows.longest, _problem(rows)
    ranked = rank(problem)
    if config is not None:
        _check_threads(fusion, config, longest, MAX_THREADS, "has at most", "use longer chunks, or fewer rows")
        beside = rows.spaces.axes[-1].extent
        if config.width > 1 and not divides(config.width, beside, fusion.facts()):
            raise refuse(fusion, "scan", f"{config.width} rows of a thread do not divide {beside} rows side by side", "use a width that divides these")
        if config.width > problem.width:
            raise refuse(fusion, "scan", f"vectors of {config.width} elements do not suit what it loads and stores", f"use width={problem.width} or less")
        _check_shared(fusion, shared_bytes(problem, config), rows.extent)
    elif not ranked:
        raise refuse(fusion, "scan", f"no block has registers for rows of up to {longest} elements", "tf.compile makes several kernels")
    chosen = ranked[0] if config is None else estimate(problem, config)
    waits = f"; {chosen.residents} resident blocks; waits for: {chosen.bound}; expected: {chosen.us:.1f} us"
    loops = ScanLoops(chosen.config, longest, chosen.config.width, *totals_of(max(problem.totals), chosen.config.width))
    return _ScanPlan(loops, chosen, ranked or (chosen,), waits)


def _aligned(script: Script, beside: int | None) -> tuple[Fusion, tuple[Leaf, ...], ScanSpaces]:
    """Compute each tensor at its readers' points. Returns the fusion, what it loads, and the spaces of its tensors.

    Args:
        beside: see :func:`~taskfuse.schedulers.scan_spaces.find_spaces`; scans are then no outputs, which have neighbors along another axis.
    """
    fusion = script.fusion
    if beside is not None:
        for out in [out for out in fusion.outputs if isinstance(fusion.definition(out), Scan)]:
            script.new(out, "cache_fork" if out.uses else "cache_before")
    leaves = align(script, fusion)
    return fusion, leaves, find_spaces(fusion, beside)


def _beside(rows: _ScanRows) -> int | None:
    """The axis along which most of what scans of contiguous rows load lies side by side; ``None``: along the rows, or these are not contiguous."""
    found: dict[int | None, int] = {None: 0}
    for leaf in rows.leaves:
        if not rows.spaces.is_inner or leaf.tensor in rows.spaces.others:
            continue
        last = len(leaf.tensor.root) - 1
        if all(is_coalesced(rows.trial, r, leaf.tensor) for r in leaf.reads):
            axis = None
        else:
            axis = next((k for k in range(last) if all(_is_last(r, k) for r in leaf.reads)), None)
        found[axis] = found.get(axis, 0) + leaf.tensor.dtype.itemsize
    return max(found, key=lambda k: found[k])


def _is_last(read: Read, axis: int) -> bool:
    """True if neighbors along an axis of the reader are neighbors in memory."""
    own = iteration_symbol(axis).free
    return bool(read.index) and bool(own & read.index[-1].free) and not any(own & e.free for e in read.index[:-1])


def _problem(rows: _ScanRows) -> ScanProblem:
    """The problem of rows that lie side by side."""
    trial, extent, axes, axis = rows.trial, rows.extent, rows.spaces.axes, rows.spaces.axis
    scans = [e.output for e in needed(trial) if isinstance(e, Scan)]
    early = {*scans}.union(*(ancestors(trial, tv) for tv in scans))
    wide = [leaf for leaf in rows.leaves if any(iteration_symbol(k).free & e.free for k in range(len(axes)) for r in leaf.reads for e in r.index)]
    own = [leaf for leaf in wide if leaf.tensor not in rows.spaces.others]
    total = work(trial, extent)
    reads = sum(r.tensor in rows.spaces.shared for e in needed(trial) if has_code(trial, e) for r in storage_reads(trial, e))
    return ScanProblem(
        rows=rows.number,
        columns=rows.longest,
        run=prod(extent(axes[k].extent) for k in rows.spaces.own.kept if k > axis or k == rows.spaces.beside),
        width=1 if rows.kept else rows.vector,
        loads=tuple(max(r.tensor.dtype.itemsize for r in leaf.reads) for leaf in own),
        elsewhere=tuple(max(r.tensor.dtype.itemsize for r in leaf.reads) for leaf in wide if leaf not in own),
        stores=tuple(tv.dtype.itemsize for tv in trial.outputs if not rows.spaces.of(tv).is_along),
        totals=rows.totals,
        late=tuple(leaf.tensor.dtype.itemsize for leaf in own if not early.issuperset(use.output for use in storage_uses(trial, leaf.tensor))),
        kept=rows.kept,
        exchanged=reads + len(rows.kept) if rows.kept else 0,
        along=tuple((tv.dtype.itemsize, extent(tv.shape[-1])) for tv in trial.outputs if rows.spaces.of(tv).is_along),
        loaded=_loaded(rows),
        stored=total.stored,
        slots=total.instructions,
        target=extent.target,
    )


def is_long(fusion: Fusion, expr: Scan) -> bool:
    """True if a contiguous row may be too long for a block."""
    longest = _bound(fusion, expr.output.shape[-1])
    itemsize = expr.output.dtype.compute.itemsize
    return longest is None or longest > _most_threads(itemsize) * (CHUNK_BYTES // itemsize)


def _bound(fusion: Fusion, extent: Expr) -> int | None:
    """The greatest value of an extent, if one is known."""
    match extent:
        case Const(value=value):
            return max(value, 1)
        case Sym(name=name) if (most := fusion.dims[name].max) is not None:
            return max(most, 1)
        case _:
            return None


def _check_shared(fusion: Fusion, size: int, extent: Sizes) -> None:
    """Raises :class:`UnsupportedError` if a block has not as much Shared memory."""
    if size > extent.room:
        raise refuse(fusion, "scan", f"its rows take {size} bytes of Shared memory, of {extent.room}", "use fewer rows, or let tf.compile make several kernels")


def _loaded(rows: _ScanRows) -> float:
    """Bytes that come from memory: of an input that has several parts of a concatenation, what these parts have; what a block reads twice, once."""
    fusion, extent = rows.trial, rows.extent
    turned = {leaf.tensor for leaf in rows.leaves if is_turned(fusion, leaf, rows.spaces)}
    found: dict[tuple[TensorView, tuple[Expr, ...], Expr], tuple[float, float]] = {}
    for expr in needed(fusion):
        tv = expr.output
        points = prod(extent(a.extent) for a in tv.root)
        for read in storage_reads(fusion, expr):
            if read.tensor.is_input:
                own = -1 if tv in rows.spaces.others or rows.spaces.beside is None else rows.spaces.beside
                size = read.tensor.dtype.itemsize if tv in turned or is_coalesced(fusion, read, tv, own) else fetched(read, tv, extent)
                found[read.tensor, read.index, read.valid] = points * holds(read.valid, tv, extent), size
    return sum(
        min(extent.elements(x), sum(n for (of, *_), (n, _) in found.items() if of is x)) * max(size for (of, *_), (_, size) in found.items() if of is x)
        for x in {x for x, *_ in found}
    )


def _longest(fusion: Fusion, extent: Expr) -> int:
    """The greatest number of elements of a row. Raises :class:`UnsupportedError` if none exists."""
    found = _bound(fusion, extent)
    if found is None:
        raise refuse(fusion, "scan", f"a row has {extent} elements: a block may be too small for it", 'say how many at most: tf.dim("N", max=4096)')
    return found


def _choose(longest: int, rows: int, width: int, most: int) -> ScanConfig:
    """Two vectors of a thread; more where a row would have more than :data:`THREADS`."""
    chunk = 2 * width
    while chunk < most and ceil(longest / chunk) > THREADS:
        chunk *= 2
    threads = ceil(longest / min(chunk, most))
    beside = min(max(FEWEST_THREADS // threads, 1), 1 << max(rows - 1, 0).bit_length())
    return ScanConfig(min(chunk, most), beside)


def _check_threads(fusion: Fusion, config: ScanConfig, longest: int, most: int, has: str, help: str) -> None:
    threads = ceil(longest / config.chunk) * config.rows
    if threads > most:
        reason = f"{config.rows} rows of up to {longest} elements, {config.chunk} of a thread, take {threads} threads; a block {has} {most}"
        raise refuse(fusion, "scan", reason, help)


def _most_threads(itemsize: int) -> int:
    """Of a block whose threads have chunks of :data:`CHUNK_BYTES`: wider totals take more registers beside these, so that 1024 threads would spill."""
    return MAX_THREADS * 4 // max(itemsize, 4)
