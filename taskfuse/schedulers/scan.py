"""``tf.schedulers.scan``: scans along one axis, with elementwise functions around them, the elements of a row across the threads of a block.

    inner (the last axis is scanned)    [rows: BIDx, TIDy | chunk: TIDx, element of the chunk (, vector)]
    outer (another one is)              [rows: BIDx | chunk: TIDy | row: TIDx | element of the chunk (, vector of rows)]

A thread scans a chunk of its row in registers. The totals of the chunks are scanned in Shared memory, themselves in chunks if they are
many (:meth:`~taskfuse.ir.tensor.TensorView.chunk_scan`); then each thread adds the sum before its chunk. Every element is loaded and stored once.
Where rows lie side by side in memory, neighboring threads have neighboring rows, and each has whole rows if these are short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, prod
from typing import NamedTuple

from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import FirstValid, Pointwise, Scan, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const, Expr, Sym
from taskfuse.ir.storage import needed, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.elementwise import (
    Leaf,
    align,
    ancestors,
    at_readers,
    bind_vectors,
    divides,
    fetched,
    is_aligned,
    is_coalesced,
    registers,
    widest,
    work,
)
from taskfuse.schedulers.instructions import holds
from taskfuse.schedulers.scan_cost import ScanConfig, ScanProblem, estimate, levels, rank, totals_of
from taskfuse.schedulers.schedule import Chosen, Option, Sizes, check_call, refuse
from taskfuse.schedulers.script import Recorded, Script
from taskfuse.target import DEFAULT, MAX_THREADS, VECTOR_BYTES, Target

CHUNK_BYTES = 64
"""Of a chunk of a contiguous row at most, as it is accumulated: a thread has it in registers, twice for a while, and a block of 1024 leaves each thread 64 of
these. So many totals one thread scans; more are scanned in chunks of their own."""
THREADS = 256
"""The preferred threads of a contiguous row; longer rows have longer chunks."""
FEWEST_THREADS = 128
"""The fewest threads of a block, if there are enough of such rows."""


def scan(fusion: Fusion, config: ScanConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[ScanConfig]:
    """Schedule scans along one axis of outputs of one shape: each row along it in the registers of one block.

    Args:
        fusion: it is changed.
        config: the parameters; ``None``: by the extents and dtypes.
        sizes: values of the fusion's dimensions for the choice.

    Raises:
        UnsupportedError: the fusion has a schedule, no scan, scans along several axes, code that is neither scan nor elementwise, outputs of several
            shapes; or rows that may be longer than the threads of a block hold.
    """
    check_call(fusion, "scan", config, ScanConfig)
    extent = Sizes(fusion, sizes, target)
    axis = _check(fusion)
    row_shape = fusion.outputs[0].shape
    longest = _longest(fusion, row_shape[axis])
    plan = (_plan_inner if axis == len(row_shape) - 1 else _plan_outer)(fusion, config, axis, longest, extent)
    script = Script(fusion)
    script.comment("each tensor at its readers' points, inputs in registers")
    levels = _Schedule(script, axis, plan, longest).apply(align(script, fusion))
    threads = ceil(longest / plan.config.chunk)
    rows = prod(extent(e) for k, e in enumerate(row_shape) if k != axis)
    problem = f"of {rows} rows of {extent(row_shape[axis])} elements"
    bound = "" if isinstance(row_shape[axis], Const) else " at most"
    shape = f"{threads} thread{'s' * (threads > 1)}{bound} per row, vectors of {plan.vector}, {levels} level{'s' * (levels != 1)} of totals{plan.waits}"
    return Chosen("scan", problem, plan.option, plan.options, config is not None, script.text, shape)


class _Plan(NamedTuple):
    """What a schedule is made of.

    Attributes:
        config: the parameters.
        vector: elements of a vector: of a row, or of neighboring rows.
        held: the most totals that one thread scans.
        totals: how many it has of more.
        option: the parameters, with their time.
        options: all candidates.
        waits: for what a block waits, as text.
    """

    config: ScanConfig
    vector: int
    held: int
    totals: int
    option: Option[ScanConfig]
    options: tuple[Option[ScanConfig], ...]
    waits: str = ""


def _plan_inner(fusion: Fusion, config: ScanConfig | None, axis: int, longest: int, extent: Sizes) -> _Plan:
    """Parameters for rows whose elements lie side by side. Raises :class:`UnsupportedError`."""
    bytes_of_total = max(_bytes_of_totals(fusion))
    most = max(CHUNK_BYTES // bytes_of_total, 1)
    if config is None:
        _check_threads(fusion, ScanConfig(most), longest, _most_threads(bytes_of_total), "has registers for", "tf.compile makes several kernels")
    elif config.width > 1:
        raise refuse(fusion, "scan", f"width is {config.width}, and its rows do not lie side by side", "use width=1")
    else:
        _check_threads(fusion, config, longest, MAX_THREADS, "has at most", "use longer chunks, or fewer rows")
    trial, leaves = _aligned(fusion)
    size, row_shape = widest(trial, leaves), fusion.outputs[0].shape
    width = VECTOR_BYTES // size
    while width > 1 and not divides(width, row_shape[axis], fusion.facts()):
        width //= 2
    chosen = config or _choose(longest, prod(extent(e) for e in row_shape[:-1]), width, most)
    vector = width if chosen.chunk % width == 0 else 1
    us = work(trial, extent).us(min(VECTOR_BYTES, vector * size)) + len(levels(ceil(longest / chosen.chunk), most, most)) * extent.target.assumed.level_us
    others = [replace(chosen, chunk=chosen.chunk * 2), replace(chosen, chunk=max(chosen.chunk // 2, 1)), replace(chosen, rows=1)]
    configs = [c for c in dict.fromkeys((chosen, *others)) if c.chunk <= most and ceil(longest / c.chunk) * c.rows <= MAX_THREADS]
    options = tuple(Option(c, us, block=(ceil(longest / c.chunk), c.rows, 1)) for c in configs)
    return _Plan(chosen, vector, most, most, Option(chosen, us, block=(ceil(longest / chosen.chunk), chosen.rows, 1)), options)


def _plan_outer(fusion: Fusion, config: ScanConfig | None, axis: int, longest: int, extent: Sizes) -> _Plan:
    """Parameters for rows that lie side by side. Raises :class:`UnsupportedError`."""
    problem = _problem(fusion, axis, longest, extent)
    ranked = rank(problem)
    if config is not None:
        _check_threads(fusion, config, longest, MAX_THREADS, "has at most", "use longer chunks, or fewer rows")
        if config.width > 1 and not divides(config.width, fusion.outputs[0].shape[-1], fusion.facts()):
            reason = f"{config.width} rows of a thread do not divide {fusion.outputs[0].shape[-1]} rows side by side"
            raise refuse(fusion, "scan", reason, "use a width that divides these")
        if config.width > problem.width:
            raise refuse(fusion, "scan", f"{config.width} elements are no vector of {VECTOR_BYTES} bytes", f"use width={problem.width} or less")
    elif not ranked:
        reason = f"no block has registers for rows of up to {longest} elements"
        raise refuse(fusion, "scan", reason, "tf.compile makes several kernels")
    chosen = ranked[0] if config is None else estimate(problem, config)
    waits = f"; {chosen.residents} resident blocks; waits for: {chosen.bound}; expected: {chosen.us:.1f} us"
    return _Plan(chosen.config, chosen.config.width, *totals_of(max(problem.totals), chosen.config.width), chosen, ranked or (chosen,), waits)


def _aligned(fusion: Fusion) -> tuple[Fusion, tuple[Leaf, ...]]:
    """A copy in which each tensor is computed at its readers' points, and what it loads."""
    trial, _ = copy_fusion(fusion)
    return trial, align(Script(trial), trial)


def _problem(fusion: Fusion, axis: int, longest: int, extent: Sizes) -> ScanProblem:
    """The problem of rows that lie side by side."""
    trial, leaves = _aligned(fusion)
    shape = fusion.outputs[0].shape
    width = VECTOR_BYTES // widest(trial, leaves)
    while width > 1 and not divides(width, shape[-1], fusion.facts()):
        width //= 2
    wide = [leaf for leaf in leaves if any(_moves(leaf, k) for k in (axis, len(shape) - 1))]
    scans = [e.output for e in needed(trial) if isinstance(e, Scan)]
    early = {*scans}.union(*(ancestors(trial, tv) for tv in scans))
    total = work(trial, extent)
    return ScanProblem(
        rows=prod(extent(e) for k, e in enumerate(shape) if k != axis),
        columns=longest,
        run=prod(extent(e) for e in shape[axis + 1 :]),
        width=width,
        loads=tuple(max(r.tensor.dtype.itemsize for r in leaf.reads) for leaf in wide),
        stores=tuple(tv.dtype.itemsize for tv in fusion.outputs),
        totals=_bytes_of_totals(fusion),
        late=tuple(leaf.tensor.dtype.itemsize for leaf in wide if not early.issuperset(use.output for use in storage_uses(trial, leaf.tensor))),
        loaded=_loaded(trial, extent),
        stored=total.stored,
        slots=total.instructions,
        target=extent.target,
    )


def is_long(fusion: Fusion, expr: Scan) -> bool:
    """True if a row may be too long for a block."""
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


def _check(fusion: Fusion) -> int:
    """The axis that is scanned. Raises :class:`UnsupportedError` for a fusion of another kind."""
    if not any(isinstance(e, Scan) for e in needed(fusion)):
        raise refuse(fusion, "scan", "it scans nothing")
    first = fusion.outputs[0]
    for tv in fusion.outputs:
        if tv.ndim != first.ndim or any(a is not b for a, b in zip(tv.shape, first.shape, strict=True)):
            raise refuse(fusion, "scan", f"the outputs {first!r} and {tv!r} differ in shape", "tf.compile makes a kernel for each shape")
    trial = at_readers(fusion)
    found: Scan | None = None
    for expr in needed(trial):
        tv = expr.output
        if not isinstance(expr, Pointwise | FirstValid | View | Scan):
            raise refuse(fusion, "scan", f"{tv.name} is neither a scan nor elementwise", "tf.schedulers.auto asks other schedulers")
        if isinstance(expr, Scan):
            found = found or expr
            if expr.axis != found.axis:
                reason = f"{tv.name} scans along axis {expr.axis}, and {found.output.name} along axis {found.axis}"
                raise refuse(fusion, "scan", reason, "tf.compile makes several kernels")
        for read in storage_reads(trial, expr):
            if isinstance(trial.definition(read.tensor), Scan) and not is_aligned(read, tv):
                raise refuse(fusion, "scan", f"{tv.name} reads {read.tensor.name}, a scan, at points other than its own", "tf.compile makes several kernels")
    assert found is not None
    return found.axis


def _loaded(fusion: Fusion, extent: Sizes) -> float:
    """Bytes that come from memory: of an input that has several parts of a concatenation, what these parts have."""
    found: dict[tuple[TensorView, tuple[Expr, ...], Expr], float] = {}
    for expr in needed(fusion):
        tv = expr.output
        points = prod(extent(a.extent) for a in tv.root)
        for read in storage_reads(fusion, expr):
            if read.tensor.is_input:
                size = read.tensor.dtype.itemsize if is_coalesced(fusion, read, tv) else fetched(read, tv, extent)
                found[read.tensor, read.index, read.valid] = min(extent.elements(read.tensor), points * holds(read.valid, tv, extent)) * size
    return sum(found.values())


def _bytes_of_totals(fusion: Fusion) -> tuple[int, ...]:
    """Bytes of an element as it is accumulated, of each scan."""
    return tuple(e.output.dtype.compute.itemsize for e in needed(fusion) if isinstance(e, Scan))


def _moves(leaf: Leaf, axis: int) -> bool:
    """True if what a tensor loads depends on an axis."""
    return any(iteration_symbol(axis).free & e.free for r in leaf.reads for e in r.index)


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


class _Schedule:
    """The calls."""

    def __init__(self, script: Script, axis: int, plan: _Plan, longest: int) -> None:
        self.script = script
        self.fusion = script.fusion
        self.axis = axis
        self.plan = plan
        self.config = plan.config
        shape = self.fusion.outputs[0].shape
        self.longest = longest
        self.is_inner = axis == len(shape) - 1
        self.is_whole = not self.is_inner and longest <= plan.config.chunk and isinstance(shape[axis], Const)  # a thread has all of a row

    def apply(self, leaves: Sequence[Leaf]) -> int:
        """Make the calls. Returns the number of levels of totals."""
        script, fusion, vector = self.script, self.fusion, self.plan.vector
        outputs = fusion.outputs
        loads = [leaf.tensor for leaf in leaves]
        registers(script, outputs, loads, vector)
        levels, chunked = 0, set[TensorView]()
        if not self.is_whole:
            script.comment("rows in chunks; the totals of chunks in chunks, too")
            for tv in [e.output for e in needed(fusion) if isinstance(e, Scan)]:
                levels = max(levels, self._chunk(tv, chunked))
        rowwise = [e.output for e in needed(fusion) if e.output not in chunked]
        if self.is_inner:
            script.comment("[row block, row, chunk: thread, element, vector]")
        else:
            script.comment("[row block, row, element, vector of rows]" if self.is_whole else "[row block, chunk: thread, row, element, vector of rows]")
        for tv in rowwise:
            loops = self._loops(tv, 1, 0 if self.is_whole else self.config.chunk)
            if self.is_inner:
                loops.split(-1, vector)
        script.comment("vectors; everything inlined as deep as possible")
        bind_vectors(script, leaves, outputs, vector)
        inner = [e.output for e in needed(fusion) if not among(e.output, outputs)]
        if self.is_whole:  # all elements of a thread are loaded before it adds the first
            script.inline_most([tv for tv in inner if not among(tv, loads)])
            script.inline_at([tv for tv in inner if among(tv, loads)], 1 + (self.config.rows > 1))
        else:
            script.inline_most(inner)
        return levels

    def _chunk(self, tv: TensorView, chunked: set[TensorView]) -> int:
        """Chunks, and chunks of the totals, added to ``chunked``. Returns how many levels there are."""
        script, elements, extent, levels = self.script, self.longest, self.config.chunk, 0
        while True:
            terms, local, totals, sums, before = made = script.chunk_scan(tv, extent)
            chunked.update(made)
            for new, tail in ((terms, 2), (local, 2), (totals, 1), (before, 1)):
                self._loops(new, tail)
            if levels:
                self._loops(tv, 1, extent)
            elements, extent, tv, levels = ceil(elements / extent), self.plan.totals, sums, levels + 1
            if elements <= self.plan.held:
                self._loops(sums, 1, is_bound=False)
                script.on(sums).set_memory_type(MemoryType.Shared)
                return levels

    def _loops(self, tv: TensorView, tail: int, split: int = 0, *, is_bound: bool = True) -> Recorded:
        """All axes but the ``tail`` of a row over blocks and threads; the first of these, or chunks of it, over other threads, if ``is_bound``. Neighboring
        threads have neighbors in memory."""
        call, kept = self.script.on(tv), tv.ndim - tail
        if not self.is_inner:
            call.reorder({self.axis + k: kept + k for k in range(tail)})
            if self.plan.vector > 1:
                call.split(kept - 1, self.plan.vector).reorder({kept: -1})
        for _ in range(kept - 1):
            call.merge(0)
        types = [P.BIDx] * (kept > 0)
        if kept and self.config.rows > 1:
            call.split(0, self.config.rows)
            types.append(P.TIDy if self.is_inner else P.TIDx)
        position = len(types)
        if split:
            call.split(position, split)
        if self.is_inner:
            types += [P.TIDx] * is_bound
        elif not self.is_whole:
            call.reorder({1: 2} if position > 1 else {})
            types.insert(1, P.TIDy if is_bound else P.Serial)
        for axis, p in enumerate(types):
            if p is not P.Serial:
                call.bind(axis, p)
        return call
