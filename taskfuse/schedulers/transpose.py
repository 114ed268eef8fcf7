"""``tf.schedulers.transpose``: elementwise functions with inputs that are contiguous along an axis other than the outputs'.

    outputs  [blocks: other axes, row tiles, column tiles | row of threads, thread, row unrolled, vector along the columns]
    tiles    [blocks: the same                            | row of threads, thread, row unrolled, vector along the rows]

Each such input passes through a tile in Shared memory: read along its own contiguous axis, in vectors, and taken out of it element by element along
that of the outputs. What several outputs take of an input at the same places passes through one tile. The chunks of a tile's rows are permuted by XOR, so that
neighbors along either axis lie in different banks.

What the sides of a tile are is said in :mod:`taskfuse.schedulers.tile_sides`: one axis of the outputs, several that follow one another in memory, as rows and
columns of an image do in NCHW and NHWC, or digits of axes, as where patches become an image.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import ClassVar

from taskfuse.ir import atoms
from taskfuse.ir.expr import FirstValid, Pointwise, padded_read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.allocation import allocation
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.elementwise import (
    Leaf,
    OutputWork,
    align,
    ancestors,
    at_readers,
    bind_vectors,
    divides,
    follow,
    recompute_all,
    registers,
    vector_fits,
    widest,
    work,
)
from taskfuse.schedulers.instructions import cost, issued
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.pointwise import MAX_CODE, check
from taskfuse.schedulers.schedule import Chosen, Option, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Script, Spelled
from taskfuse.schedulers.tile_sides import AxisDigit, Sides, tile_sides, turned_along
from taskfuse.target import ASYNC_BYTES, BANK_BYTES, BANKS, DEFAULT, MAX_THREADS, SECTOR_BYTES, VECTOR_BYTES, WARP, Target

THREADS = 256
"""Of a block; twice as many where a thread would have more code than :data:`MAX_CODE`, and thus registers for the results of few warps."""
FLAT_CODE, TILE_CODE, TURNED_CODE = 6, 3, 4
"""Instructions beside those that compute: of an access of a vector along the outputs; of an element of a tile; of an access of a vector along its rows. From
the machine code of transposes of one to five tensors with odd extents."""


@dataclass(frozen=True, slots=True)
class TransposeConfig(Parameters):
    """The parameters of a transpose schedule.

    Attributes:
        tile: columns of a tile, a power of two.
        threads: threads of a block: those of one row of a tile, or a multiple.
        vector: elements of the outputs, along their last axis, that a thread stores together.
        turned: elements of the inputs that it loads together along the other axis.
        rows: of a tile, a power of two; 0: as many as columns.
    """

    tile: int
    threads: int
    vector: int
    turned: int
    rows: int = 0

    POWERS = frozenset(("tile", "vector", "turned", "rows"))
    LEAST: ClassVar[Mapping[str, int]] = {"rows": 0}

    def __post_init__(self) -> None:
        self.check_fields()
        least = max(self.tile // self.vector, self.height // self.turned)
        if self.vector > self.tile or self.turned > self.height:
            raise self.error(f"vectors of {max(self.vector, self.turned)} in a tile of {self.height} x {self.tile}", "use a larger tile or smaller vectors")
        if not least <= self.threads <= MAX_THREADS:
            raise self.error(f"{self.threads} threads", f"a row of a tile takes {least}, and a block has at most {MAX_THREADS}")

    @property
    def height(self) -> int:
        """Rows of a tile."""
        return self.rows or self.tile

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        return f"tiles of {self.height} x {self.tile} in Shared memory, {self.threads} threads, vectors of {self.turned} in and {self.vector} out"


@tries_parameters
def transpose(
    fusion: Fusion, config: TransposeConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT
) -> Chosen[TransposeConfig]:
    """Schedule elementwise functions with an input that is contiguous along an axis other than the outputs'.

    Args:
        fusion: it is changed.
        config: the parameters; ``None``: by dtypes and extents.
        sizes: values of the fusion's dimensions for the cost model.

    Raises:
        UnsupportedError: the fusion is not elementwise with outputs of one shape, or every input is contiguous along the same axis.
    """
    check_call(fusion, "transpose", config, TransposeConfig)
    extent = Sizes(fusion, sizes, target)
    check(fusion, "transpose")
    along = turned_digit(fusion)
    if along is None:
        raise refuse(fusion, "transpose", "its inputs are contiguous along the last axis of the outputs, or along none", "tf.schedulers.pointwise")
    total = work(fusion, extent, turned=True)
    script = Script(fusion)
    script.comment("each tensor at its readers' points")
    _share(script)
    leaves = align(script, fusion)
    tiles = [leaf for leaf in leaves if turned_along(fusion, leaf) == along]
    given = [] if config is None else [(config.tile, config.height)]
    ways: list[tuple[float, TransposeConfig, Sides]] = []
    for tile, height in given or [(n, n) for n in _columns(tiles)]:
        if (sides := tile_sides(fusion, tiles, height, tile)) is not None:
            way = config or _choose(fusion, leaves, tiles, sides, tile, extent)
            ways.append((_us(fusion, leaves, tiles, sides, way, total, extent), way, sides))
    if not ways:
        raise refuse(fusion, "transpose", "its inputs are contiguous along one axis, and differ in others", "tf.schedulers.pointwise")
    us, chosen, sides = ways[0]
    if not chosen.rows:  # else it has as many as there are
        us, chosen, sides = next((way for way in ways[1:] if way[0] < extent.target.assumed.half_tiles_gain * us), ways[0])
    needed_bytes = chosen.tile * chosen.height * sum(leaf.tensor.dtype.itemsize for leaf in tiles)
    if needed_bytes > extent.room:
        raise refuse(fusion, "transpose", f"its tiles take {needed_bytes} bytes of Shared memory, of {extent.room}", "tf.schedulers.pointwise")
    _schedule(script, leaves, tiles, sides, chosen)
    shape = " x ".join(str(extent(e)) for e in fusion.outputs[0].shape)
    turned = ", ".join(leaf.reads[0].tensor.name for leaf in tiles)
    others = (chosen, *(replace(chosen, threads=t) for t in (128, 256, 512)))
    options = tuple(Option(c, us, block=(c.threads, 1, 1)) for c in dict.fromkeys(others))
    problem = f"{shape}, axis {along.axis} of the outputs is the last of {turned}"
    return Chosen("transpose", problem, options[0], options, config is not None, script.text)


def _share(script: Script) -> None:
    """Let tensors that read the same elements of an input, each alone, read one copy of them; and those that choose another number than 0 where there is no
    element, a copy that has 0 there, as asynchronous copies write it."""
    recompute_all(script, script.fusion)
    alike: dict[Hashable, list[tuple[TensorView, TensorView]]] = {}
    for expr in needed(script.fusion):
        reads = storage_reads(script.fusion, expr)
        if isinstance(expr, FirstValid | Pointwise) and len(reads) == 1 and reads[0].tensor.is_input:
            (read,) = reads
            key = read.tensor, read.index, read.valid, tuple(a.extent for a in expr.output.root)
            alike.setdefault(key, []).append((read.tensor, expr.output))
    for found in alike.values():
        source, reader = found[0]
        expr = script.fusion.definition(reader)
        if len(found) > 1 or (isinstance(expr, FirstValid) and padded_read(expr) is None):
            script.recompute(source, [reader for _, reader in found])


def _us(fusion: Fusion, leaves: Sequence[Leaf], tiles: Sequence[Leaf], sides: Sides, config: TransposeConfig, total: OutputWork, extent: Sizes) -> float:
    """Microseconds by the bytes, the instructions, and the passes through caches and Shared memory; tiles at an end have all of these of a whole tile."""
    target, power = extent.target, extent.target.assumed.resources_norm
    elements = extent.elements(fusion.outputs[0]) * _padding(sides, config, extent)
    flat = [out.dtype.itemsize for out in fusion.outputs]
    flat += [r.tensor.dtype.itemsize for leaf in leaves if leaf not in tiles for r in leaf.reads]
    turned = [leaf.tensor.dtype.itemsize for leaf in tiles]
    lanes = min(WARP, config.tile // config.vector)
    passes = sum(max(size / BANK_BYTES, 1 / config.vector) for size in flat)
    passes += sum(2 * max(size / BANK_BYTES, 1 / config.turned) + max(1, lanes / _permuted(size, config)[2]) for size in turned)
    code = FLAT_CODE * len(flat) / config.vector + len(turned) * (TILE_CODE + TURNED_CODE / config.turned)
    code = code * elements + issued(fusion, config.vector, extent, is_sunk=False) * elements / max(1, extent.elements(fusion.outputs[0]))
    together = min(VECTOR_BYTES, min(config.vector, config.turned) * widest(fusion, leaves))
    memory = target.dram_us(total.loaded + total.stored, target.assumed.load_share(together))
    times = memory, passes * elements / WARP / target.cycles_per_us, target.issue_us(code)
    return max(target.kernel_us(sum(t**power for t in times) ** (1 / power)), total.us(together))


def _padding(sides: Sides, config: TransposeConfig, extent: Sizes) -> float:
    """How many elements tiles have for each of the outputs."""
    found = ((extent(sides.extent(own)), tile) for own, tile in ((sides.rows, config.height), (sides.columns, config.tile)))
    return prod(ceil(n / tile) * tile / max(n, 1) for n, tile in found)


def turned_digit(fusion: Fusion) -> AxisDigit | None:
    """The digit of the outputs along which most bytes of those inputs are contiguous that are not along the last one, or ``None``."""
    trial, _ = copy_fusion(at_readers(fusion))
    bytes_of: dict[AxisDigit, int] = {}
    for leaf in align(Script(trial), trial):
        if (digit := turned_along(trial, leaf)) is not None:
            bytes_of[digit] = bytes_of.get(digit, 0) + leaf.reads[0].tensor.dtype.itemsize
    return max(bytes_of, key=lambda digit: (bytes_of[digit], digit.axis), default=None)


def _columns(tiles: Sequence[Leaf]) -> tuple[int, int]:
    """Columns of a tile: as many as fill all banks; and half of them, of which fewer are past an end."""
    most = max(64, BANKS * BANK_BYTES // min(leaf.tensor.dtype.itemsize for leaf in tiles))
    return most, most // 2


def _choose(fusion: Fusion, leaves: Sequence[Leaf], tiles: Sequence[Leaf], sides: Sides, tile: int, extent: Sizes) -> TransposeConfig:
    chunk = VECTOR_BYTES // widest(fusion, leaves)
    facts, shape = fusion.facts(), fusion.outputs[0].shape
    vector = turned = chunk
    while vector > 1 and not divides(vector, shape[-1], facts):
        vector //= 2
    while turned > 1 and not all(vector_fits(fusion, leaf, turned, sides.digits[sides.rows[-1]].axis) for leaf in tiles):
        turned //= 2
    narrowest = min(leaf.tensor.dtype.itemsize for leaf in tiles)
    rows = sides.extent(sides.rows)
    height = 1 << (extent(rows).bit_length() - 1)  # no more rows than there are, where they fill vectors
    if not isinstance(rows, Const) or height >= tile or height < turned or height * narrowest < SECTOR_BYTES:
        is_long = tile * tile // THREADS * sum(cost(e) for e in needed(fusion)) > MAX_CODE
        return TransposeConfig(tile, min(2 * THREADS if is_long else THREADS, tile * tile // max(vector, turned)), vector, turned)
    return TransposeConfig(tile, min(THREADS, height * tile // max(vector, turned)), vector, turned, height)


def _schedule(script: Script, leaves: Sequence[Leaf], tiles: Sequence[Leaf], sides: Sides, config: TransposeConfig) -> None:
    fusion = script.fusion
    outputs = fusion.outputs
    shared = [leaf.tensor for leaf in tiles]
    others = [leaf for leaf in leaves if leaf not in tiles]
    registers(script, outputs, [leaf.tensor for leaf in others], config.vector)
    script.comment("tiles in Shared memory; neighbors along the rows of one are neighbors in its input")
    is_async = [_is_async(fusion, leaf, config) for leaf in tiles]
    loads = {tv: script.new(tv, "cache_before") for tv, goes in zip(shared, is_async, strict=True) if not goes}
    for tv in shared:
        script.on(tv).set_memory_type(MemoryType.Shared)
    left = [e.output for e in needed(fusion) if not among(e.output, (*outputs, *shared, *loads.values()))]
    blocks = len(sides.digits) - len(sides.rows) - len(sides.columns) + 2
    for out in outputs:
        _tiles(script, out, sides, config)
        _threads(script, out, blocks, config.threads, config.tile // config.vector, config.vector)
        mine = [tv for tv in ancestors(fusion, out) if among(tv, left)]
        follow(script, out, mine)
        left = [tv for tv in left if not among(tv, mine)]
    for tv in shared:
        _tiles(script, tv, sides, config)
        script.on(tv).reorder({blocks + 1: blocks})
        _permute(script, tv, config)
        _threads(script, tv, blocks, config.threads, config.height // config.turned, config.turned)
        if tv in loads:
            follow(script, tv, [loads[tv]])
    script.comment("vectors; everything else inlined as deep as possible")
    for tv, goes in zip(shared, is_async, strict=True):
        if goes:
            script.on(tv).set_atom(atoms.CP_ASYNC, [len(tv.loop) - 1] if config.turned > 1 else [])
        elif config.turned > 1:
            script.on(tv).bind(-1, P.Vectorize)
            script.on(loads[tv]).bind(-1, P.Vectorize)
    bind_vectors(script, others, outputs, config.vector)
    if inner := [e.output for e in needed(fusion) if not among(e.output, (*outputs, *shared, *loads.values(), *(o.tensor for o in others)))]:
        script.inline_most(inner)
    script.inline_at([*(leaf.tensor for leaf in others), *loads.values()], blocks + 2)
    script.inline_at(shared, blocks)


def _is_async(fusion: Fusion, leaf: Leaf, config: TransposeConfig) -> bool:
    """Whether asynchronous copies fill a tile: all that a thread loads is under way at once, though each of its elements has a guard."""
    is_copied = leaf.is_copy or padded_read(fusion.definition(leaf.tensor)) is not None
    return is_copied and config.turned * leaf.tensor.dtype.itemsize in ASYNC_BYTES


def _tiles(script: Script, out: TensorView, sides: Sides, config: TransposeConfig) -> None:
    """[other digits, row tiles, column tiles: all on blocks | rows, columns]."""
    call = script.on(out)
    for axis in reversed(range(out.ndim)):
        weights = [d.weight for d in sides.digits if d.axis == axis]
        for k, weight in enumerate(weights[:-1]):
            call.split(axis + k, weight)
    others = [p for p in range(len(sides.digits)) if p not in (*sides.rows, *sides.columns)]
    order = [*others, *sides.rows, *sides.columns]
    if order != sorted(order):
        call.reorder(order)
    last = len(others) + 1
    for axis, side in ((last - 1, sides.rows), (last, sides.columns)):
        for _ in side[1:]:
            call.merge(axis)
    call.split(last, config.tile).split(last - 1, config.height).reorder({last: last + 1})
    for axis in range(last + 1):
        call.bind(axis, P.BIDx)


def _threads(script: Script, tv: TensorView, blocks: int, threads: int, lanes: int, vector: int) -> None:
    """[rows, columns] of a tile as [row of threads, thread, row unrolled, vector]; the threads are digits of one index."""
    call = script.on(tv)
    call.split(blocks + 1, vector).split(blocks, max(1, threads // lanes)).reorder([*range(blocks), blocks + 1, blocks + 2, blocks, blocks + 3])
    call.bind(blocks, P.TIDx).bind(blocks + 1, P.TIDx).bind(blocks + 2, P.Unroll)


def _permuted(size: int, config: TransposeConfig) -> tuple[int, int, int]:
    """Rows of a chunk, columns of a step, and chunks that are permuted with one another, of a tile with elements of ``size`` bytes."""
    line = BANKS * BANK_BYTES
    chunk = max(config.turned, WARP * config.vector // config.tile, BANK_BYTES // size)
    step = max(config.vector, line // (config.height * size))
    return chunk, step, max(1, min(min(line // size, config.height) // chunk, config.tile // step))


def _permute(script: Script, tv: TensorView, config: TransposeConfig) -> None:
    """A tile's axes [columns, rows], the last one contiguous in its input, as [columns/step/n, n, step, rows/chunk/n, n, chunk], the second n permuted by the
    first. Lanes of a warp that take elements out of the tile are ``vector`` columns apart, and where these lanes are few, the others are neighbors along the
    rows: a chunk has these, and what a thread writes together. Its n chunks are all banks, or all of a column, of which several then share the banks."""
    chunk, step, n = _permuted(tv.dtype.itemsize, config)
    if n < 2:
        return
    call = script.on(tv)
    steps = (("split", -1, chunk), ("split", -2, n), ("split", -4, step), ("split", -5, n), ("swizzle", -5, -2))
    builder, text = allocation(tv), f"tf.allocation({call.name})"
    for method, *given in steps:
        getattr(builder, method)(*given)
        text += f".{method}({', '.join(map(str, given))})"
    call.set_allocation_domain(Spelled(builder, text))
