"""``tf.schedulers.scan``: scans along the last axis, with elementwise functions around them, a row across the threads of a block.

    rows x elements: [row block, row, chunk: thread, element of the chunk (, vector)]

A thread scans a chunk of its row in registers. The totals of the chunks are scanned in Shared memory, themselves in chunks if they are
many (:meth:`~taskfuse.ir.tensor.TensorView.chunk_scan`); then each thread adds the sum before its chunk. Every element is loaded and stored once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from taskfuse.errors import UnsupportedError
from taskfuse.ir.expr import FirstValid, Pointwise, Scan, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const, Expr, Sym
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.location import caller
from taskfuse.schedulers.elementwise import Leaf, align, at_readers, bind_vectors, divides, is_aligned, registers, widest, work
from taskfuse.schedulers.schedule import Chosen, Option, Sizes, check_call, refuse
from taskfuse.schedulers.script import Recorded, Script
from taskfuse.target import DEFAULT, MAX_THREADS, VECTOR_BYTES, Target

CHUNK_BYTES = 64
"""Of a chunk at most, as it is accumulated: a thread has it in registers, twice for a while, and a block of 1024 leaves each thread 64 of these. So
many totals one thread scans; more are scanned in chunks of their own."""
THREADS = 256
"""The preferred threads of a row; longer rows have longer chunks."""
FEWEST_THREADS = 128
"""The fewest threads of a block, if there are enough rows."""


@dataclass(frozen=True, slots=True)
class ScanConfig:
    """The parameters of a scan schedule.

    Attributes:
        chunk: elements of a row per thread.
        rows: rows per block.
    """

    chunk: int
    rows: int = 1

    def __post_init__(self) -> None:
        for name in ("chunk", "rows"):
            if getattr(self, name) < 1:
                reason = f"{name} is {getattr(self, name)}"
                raise UnsupportedError(what="this ScanConfig", reason=reason, help="use a positive number", location=caller())

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        return f"{self.chunk} elements of a thread, {self.rows} rows per block"


def scan(fusion: Fusion, config: ScanConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[ScanConfig]:
    """Schedule scans along the last axis of outputs of one shape: each row in the registers of one block.

    Args:
        fusion: it is changed.
        config: the parameters; ``None``: by the extents and dtypes.
        sizes: values of the fusion's dimensions for the choice.

    Raises:
        UnsupportedError: the fusion has a schedule, no scan, scans along other axes, code that is neither scan nor elementwise, outputs of several
            shapes; or rows that may be longer than the threads of a block hold.
    """
    check_call(fusion, "scan", config, ScanConfig)
    extent = Sizes(fusion, sizes, target)
    _check(fusion)
    longest = _longest(fusion, fusion.outputs[0].shape[-1])
    bytes_of_total = max(e.output.dtype.compute.itemsize for e in needed(fusion) if isinstance(e, Scan))
    most = max(CHUNK_BYTES // bytes_of_total, 1)
    if config is None:
        _check_threads(fusion, ScanConfig(most), longest, _most_threads(bytes_of_total), "has registers for", "tf.compile makes several kernels")
    else:
        _check_threads(fusion, config, longest, MAX_THREADS, "has at most", "use longer chunks, or fewer rows")
    total = work(fusion, extent)
    script = Script(fusion)
    script.comment("each tensor at its readers' points, inputs in registers")
    leaves = align(script, fusion)
    row_shape = fusion.outputs[0].shape
    width = VECTOR_BYTES // widest(fusion, leaves)
    while width > 1 and not divides(width, row_shape[-1], fusion.facts()):
        width //= 2
    rows = prod(extent(e) for e in row_shape[:-1])
    chosen = config or _choose(longest, rows, width, most)
    vector = width if chosen.chunk % width == 0 else 1
    levels = _Schedule(script, chosen, vector, most).apply(leaves, longest)
    threads = ceil(longest / chosen.chunk)
    us = total.us(min(VECTOR_BYTES, vector * widest(fusion, leaves))) + levels * target.assumed.level_us
    others = [replace(chosen, chunk=chosen.chunk * 2), replace(chosen, chunk=max(chosen.chunk // 2, 1)), replace(chosen, rows=1)]
    configs = [c for c in dict.fromkeys((chosen, *others)) if c.chunk <= most and ceil(longest / c.chunk) * c.rows <= MAX_THREADS]
    options = tuple(Option(c, us, block=(ceil(longest / c.chunk), c.rows, 1)) for c in configs)
    problem = f"of {rows} rows of {extent(row_shape[-1])} elements"
    shape = f"{threads} threads{'' if isinstance(row_shape[-1], Const) else ' at most'} per row, vectors of {vector}, {levels} levels of totals"
    option = Option(chosen, us, block=(threads, chosen.rows, 1))
    return Chosen("scan", problem, option, options, config is not None, script.text, shape)


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


def _check(fusion: Fusion) -> None:
    """Raises :class:`UnsupportedError` for a fusion of another kind."""
    if not any(isinstance(e, Scan) for e in needed(fusion)):
        raise refuse(fusion, "scan", "it scans nothing")
    first = fusion.outputs[0]
    for tv in fusion.outputs:
        if tv.ndim != first.ndim or any(a is not b for a, b in zip(tv.shape, first.shape, strict=True)):
            raise refuse(fusion, "scan", f"the outputs {first!r} and {tv!r} differ in shape", "tf.compile makes a kernel for each shape")
    trial = at_readers(fusion)
    for expr in needed(trial):
        tv = expr.output
        if not isinstance(expr, Pointwise | FirstValid | View | Scan):
            raise refuse(fusion, "scan", f"{tv.name} is neither a scan nor elementwise", "tf.schedulers.auto asks other schedulers")
        if isinstance(expr, Scan) and expr.axis != len(tv.root) - 1:
            raise refuse(
                fusion, "scan", f"{tv.name} scans along axis {expr.axis}, which is not the last one", "a thread for each row takes it: tf.schedulers.fallback"
            )
        for read in storage_reads(trial, expr):
            if isinstance(trial.definition(read.tensor), Scan) and not is_aligned(read, tv):
                raise refuse(fusion, "scan", f"{tv.name} reads {read.tensor.name}, a scan, at points other than its own", "tf.compile makes several kernels")


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
    """The calls. ``totals``: how many of them one thread scans."""

    def __init__(self, script: Script, config: ScanConfig, vector: int, totals: int) -> None:
        self.totals = totals
        self.script = script
        self.fusion = script.fusion
        self.config = config
        self.vector = vector

    def apply(self, leaves: Sequence[Leaf], longest: int) -> int:
        """Make the calls. Returns the number of levels of totals."""
        script, fusion = self.script, self.fusion
        outputs = fusion.outputs
        registers(script, outputs, [leaf.tensor for leaf in leaves], self.vector)
        rowwise = [e.output for e in needed(fusion)]
        script.comment("rows in chunks; the totals of chunks in chunks, too")
        chunked = set[TensorView]()
        levels = 0
        for tv in [tv for tv in rowwise if isinstance(fusion.definition(tv), Scan)]:
            levels = max(levels, self._chunk(tv, longest, chunked))
        rowwise = [e.output for e in needed(fusion) if e.output not in chunked]
        script.comment("[row block, row, chunk: thread, element, vector]")
        for tv in rowwise:
            self._loops(tv, 1, self.config.chunk).split(-1, self.vector)
        script.comment("vectors; everything inlined as deep as possible")
        bind_vectors(script, leaves, outputs, self.vector)
        script.inline_most([e.output for e in needed(fusion) if not among(e.output, outputs)])
        return levels

    def _chunk(self, tv: TensorView, longest: int, chunked: set[TensorView]) -> int:
        """Chunks, and chunks of the totals, added to ``chunked``. Returns how many levels there are."""
        script, elements, extent, levels = self.script, longest, self.config.chunk, 0
        while True:
            terms, local, totals, sums, before = made = script.chunk_scan(tv, extent)
            chunked.update(made)
            for new, tail in ((terms, 2), (local, 2), (totals, 1), (before, 1)):
                self._loops(new, tail)
            if levels:
                self._loops(tv, 1, extent)
            elements, extent, tv, levels = ceil(elements / extent), self.totals, sums, levels + 1
            if elements <= self.totals:
                self._rows(sums, 1)
                script.on(sums).set_memory_type(MemoryType.Shared)
                return levels

    def _loops(self, tv: TensorView, tail: int, split: int = 0) -> Recorded:
        """Rows, then the first of ``tail`` axes, or of chunks of it, over threads."""
        position = self._rows(tv, tail)
        call = self.script.on(tv)
        if split:
            call.split(position, split)
        return call.bind(position, P.TIDx)

    def _rows(self, tv: TensorView, tail: int) -> int:
        """All axes but the last ``tail`` over blocks. Returns how many loops these are."""
        call, rows = self.script.on(tv), tv.ndim - tail
        for _ in range(rows - 1):
            call.merge(0)
        if rows == 0:
            return 0
        types = (P.BIDx, P.TIDy) if self.config.rows > 1 else (P.BIDx,)
        if self.config.rows > 1:
            call.split(0, self.config.rows)
        for axis, p in enumerate(types):
            call.bind(axis, p)
        return len(types)
