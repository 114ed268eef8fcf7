"""The schedule of a fusion with reductions: rows over blocks and threads, the elements of a row over threads, loads, vectors.

    inner (the contiguous axis is reduced)    [rows: BIDx, TIDy, each | row: BIDy, trip, unroll, TIDx, vector]
    outer (it is kept)                        [rows: BIDx, TIDx, each | row: BIDy, trip, unroll, TIDy | vector]

Blocks that share a row of known length have a part of it each, and a result of each part, in memory; the threads of a row join these results. In a row of
unknown length their trips alternate, and each thread joins all results.

Each phase walks a row once. Loads of ``unroll`` vectors are issued together; a row that is kept in registers has one trip, so all of its loads
come before the first use. The schedule consists of public scheduling calls, which a :class:`~taskfuse.schedulers.script.Script` writes down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from taskfuse.ir import atoms
from taskfuse.ir.expr import FirstValid, Gather, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among, place_of
from taskfuse.ir.scalar import ONE, Const, ceildiv, simplify
from taskfuse.ir.storage import has_code, needed, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule import layouts
from taskfuse.schedule.keys import Keys
from taskfuse.schedulers.elementwise import ancestors, leaf_of, vector_fits
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.persistent_buffers import Keep, Phases
from taskfuse.schedulers.schedule import refuse
from taskfuse.schedulers.script import Script, Spelled
from taskfuse.schedulers.space import Space, is_in_place
from taskfuse.schedulers.stencils import fits_if_clamped
from taskfuse.target import ASYNC_BYTES, MAX_GRID, VECTOR_BYTES


@dataclass(frozen=True, slots=True)
class RowConfig(Parameters):
    """The parameters of a schedule of rows.

    Attributes:
        threads: threads per block that share a row.
        rows: rows of a block at a time; if the contiguous axis is kept, vectors of rows.
        unroll: vectors of a row that each thread loads at once; a row kept in registers has no others.
        blocks: blocks that share a row; several wait at a grid barrier, so all must be resident at once.
        keep: where a row is kept between phases.
        each: rows, or vectors of rows, of each thread: where one thread has whole rows, and these are short, it loads several at once.
    """

    threads: int = 256
    rows: int = 1
    unroll: int = 2
    blocks: int = 1
    keep: Keep = Keep.NOTHING
    each: int = 1

    def __post_init__(self) -> None:
        self.check_fields()
        self.check_threads(self.threads * self.rows, f"{self.threads} threads for each of {self.rows} rows")
        if self.each > 1 and self.threads * self.blocks > 1:
            raise self.error(f"{self.each} rows of each thread", "one thread has a row then: threads=1, blocks=1")
        if self.blocks > MAX_GRID[1]:
            raise self.error(f"{self.blocks} blocks of each row", f"a grid has at most {MAX_GRID[1]} along y")

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        blocks = f", {self.blocks} blocks per row" if self.blocks > 1 else ""
        each = f", {self.each} for each thread" if self.each > 1 else ""
        return f"{self.threads} threads per row, {self.rows} rows per block{each}{blocks}, {self.unroll} vectors at once, {self.keep.value} kept"


def check(fusion: Fusion, space: Space, config: RowConfig) -> None:
    """Check the parameters against the fusion.

    Raises:
        UnsupportedError: rows of unknown length are to be kept in registers, or longer ones than the threads hold.
    """
    if config.keep is not Keep.REGISTERS:
        return
    vectors = simplify(ceildiv(space.extent(space.reduced), space.width if space.is_inner else 1), fusion.facts())
    if not isinstance(vectors, Const):
        what = f"a row of {space.extent(space.reduced)} elements is kept in registers"
        raise refuse(fusion, "reduction", what, "give its extent as a constant, or keep=Keep.NOTHING")
    if vectors.value > config.threads * config.blocks * config.unroll:
        what = f"{config.blocks * config.threads} threads of a row hold {config.unroll} vectors each, and it has {vectors}"
        raise config.error(what, "use more threads, blocks or vectors")


class RowSchedule:
    """The schedule of one fusion.

    Args:
        script: takes the calls.
        residents: blocks of a multiprocessor at once.
    """

    def __init__(self, script: Script, fusion: Fusion, space: Space, config: RowConfig, residents: int = 1) -> None:
        self.script = script
        self.fusion = fusion
        self.space = space
        self.config = config
        self.residents = residents
        lengths = [space.axes[p].extent for p in space.reduced]
        self.has_parts = config.blocks > 1 and config.threads > 1 and all(isinstance(e, Const) for e in lengths)

    def apply(self) -> None:
        """Make the calls."""
        self._copies()
        self._phases()
        self.space = self.space.with_again(self.fusion)
        self._outputs()
        self._loops()
        self._vectors()
        self._inline()
        if self.residents > 1:
            self.script.comment("registers")
            self.script.resident_blocks(self.residents)

    # -- tensors --------------------------------------------------------------------------------------------------------------------

    def _copies(self) -> None:
        """Copy inputs to registers, and let no code read an output: results of a row are kept for readers, elements are recomputed."""
        self.script.comment("copies")
        self.loads = [copy for x in self.space.loads for copy in self._copies_of(x)]
        self._clamp()
        self.loads += [tv for tv in self.space.moved if not tv.is_output]
        wide, self.forked = self.space.having(self.fusion, self.space.reduced), set[TensorView]()
        for out in self.fusion.outputs:
            if out.uses and out in wide and not isinstance(out.definition, Reduction):
                self.script.duplicate(out, [use.output for use in out.uses])
            elif out.uses:
                self.script.new(out, "cache_fork")
                self.forked.add(out)

    def _clamp(self) -> None:
        """Load first what is chosen between whole vectors of an input and a constant."""
        if not self.space.is_inner:
            return
        clamped: dict[TensorView, TensorView] = {}
        for tv in [e.output for e in needed(self.fusion) if isinstance(e, FirstValid)]:
            width = min(self.space.width, VECTOR_BYTES // tv.dtype.itemsize)
            if width > 1 and self.space.ends_contiguous(tv) and fits_if_clamped(self.fusion, leaf_of(self.fusion, tv), width):
                clamped[tv] = self.script.new(tv, "clamp_read", width)
        self.space = replace(self.space, moved=tuple(dict.fromkeys([*(clamped.get(tv, tv) for tv in self.space.moved), *clamped.values()])))

    def _copies_of(self, x: TensorView) -> Sequence[TensorView]:
        """Copies of an input for what reads it in place: one, where nothing reads it elsewhere; else one for each iteration space."""
        readers = self.space.readers(self.fusion, x)
        if len(readers) == len(storage_uses(self.fusion, x)):
            return [self.script.new(x, "cache_after")]
        spaces: dict[tuple[object, ...], list[TensorView]] = {}
        for reader in readers:
            spaces.setdefault(tuple(a.extent for a in reader.root), []).append(reader)
        return [copy for same in spaces.values() for copy in self.script.recompute(x, same)]

    def _phases(self) -> None:
        """Keep tensors for later phases, or recompute them from kept ones."""
        script, keep = self.script, self.config.keep
        phases = Phases(self.fusion, self.space)
        self.kept = phases.kept(keep)
        self.shared = [tv for tv in self.loads if tv in self.kept and keep is Keep.SHARED]
        for tv in self.shared:
            self.loads[place_of(tv, self.loads)] = script.new(tv, "cache_after")
            script.on(tv).set_memory_type(MemoryType.Shared)
        script.comment(f"phases: everything{'' if keep is Keep.NOTHING else ' that is not kept'} is read and computed again")
        loads = set(self.loads)

        def duplicate(tv: TensorView, readers: list[TensorView]) -> TensorView:
            new = script.duplicate(tv, readers)
            if tv in loads:
                self.loads.append(new)
            return new

        Phases(self.fusion, self.space).separate(self.kept, duplicate)

    def _outputs(self) -> None:
        """Store vectors from registers."""
        contiguous = self.space.having(self.fusion, [self.space.contiguous]) if self.space.width > 1 else set[TensorView]()
        self.stores = [out for out in self.fusion.outputs if out in contiguous]
        for out in self.stores:
            if out not in self.forked:
                self.script.new(out, "cache_before")

    # -- loops ----------------------------------------------------------------------------------------------------------------------

    def _loops(self) -> None:
        """The loops of one tensor with all axes, or of several where they share some with none, and those of all others as far as they have its axes."""
        script, space, config = self.script, self.space, self.config
        refs = space.references(self.fusion)
        script.comment("loops: [rows | row: (block, trip,) unroll, thread | vector]")
        has_rows = bool(space.kept)
        types = [P.BIDx, P.TIDy if space.is_inner else P.TIDx][: has_rows * (1 + (config.rows > 1))]
        self.resident = len(types)
        types += [P.Unroll] * (config.each > 1)
        outer = len(types)
        for ref in refs:
            self._arrange(ref)
            self._split(ref, outer)
        types += [P.BIDy] * (config.blocks > 1)
        types += [P.Serial] * (1 if config.keep is Keep.REGISTERS else 2)
        self.together = self.resident if config.each > 1 else len(types) - 1
        types.append(P.TIDx if space.is_inner else P.TIDy)
        wide, rows = space.having(self.fusion, space.reduced), space.having(self.fusion, space.kept)
        self.code = [e.output for e in self.fusion.exprs() if has_code(self.fusion, e)]
        owned = self._owned(refs)
        self.wide = {tv for tv in self.code if tv in wide}
        vectors = set(self.code) if space.is_inner or space.width == 1 else space.having(self.fusion, [space.contiguous])
        for ref, own in owned.items():
            r = script.on(ref)
            r.propagate([tv for tv in own if tv in wide and tv in vectors], len(ref.loop))
            if once := [tv for tv in own if tv in wide and tv not in vectors]:  # of a whole vector, such as a factor of all elements of a row
                r.propagate(once, len(ref.loop) - 1)
            if narrow := [tv for tv in own if tv in rows - wide]:
                r.propagate(narrow)
            if alone := [tv for tv in own if tv not in rows | wide]:
                r.propagate(alone, outer)
        self.contiguous = space.having(self.fusion, [space.contiguous])  # before reductions are taken apart, which then have other axes
        parts = self._parts(outer) if self.has_parts else {}
        for ref, own in owned.items():
            others = [*own, *(part for tv, part in parts.items() if tv is ref or among(tv, own)), *([ref] if ref in parts else [])]
            head = parts.get(ref, ref)
            r = script.on(head)
            for axis, ptype in enumerate(types):
                if ptype is not P.Serial:
                    r.bind(axis, ptype)
            script.parallelize_like(head, [tv for tv in others if tv is not head])
        self.code = [e.output for e in self.fusion.exprs() if has_code(self.fusion, e)]
        self.vector = {tv: len(types) if tv in wide else outer for tv in self.code}

    def _split(self, ref: TensorView, outer: int) -> None:
        """[rows | row: (block, trip,) unroll, thread | vector] of [rows | row | vector]."""
        config, r = self.config, self.script.on(ref)
        r.split(outer, config.threads)
        if config.keep is not Keep.REGISTERS:
            r.split(outer, config.unroll)
        if config.blocks > 1:
            if self.has_parts:
                r.split(outer, config.blocks, False)
            else:
                r.split(outer, config.blocks).reorder({outer + 1: outer})

    def _owned(self, refs: Sequence[TensorView]) -> dict[TensorView, list[TensorView]]:
        """Each reference, with the other tensors whose axes are its; what has none of a row goes with the first.

        Raises:
            UnsupportedError: an axis is that of no reference: what is computed again in another phase may share none with it, and no loop of it would be
                bound.
        """
        keys = Keys(self.fusion)
        known = {ref: {keys.key(a) for a in ref.root} for ref in refs}
        owned: dict[TensorView, list[TensorView]] = {ref: [] for ref in refs}
        for tv in self.code:
            own = {keys.key(a) for a in tv.root if a.extent is not ONE}
            home = next((ref for ref in refs if own <= known[ref]), None)
            if home is None:
                raise refuse(self.fusion, "reduction", f"{tv.name} has an axis that {refs[0].name} lacks", "move it to a separate fusion")
            if tv is not home:
                owned[home].append(tv)
        return owned

    def _parts(self, outer: int) -> dict[TensorView, TensorView]:
        """Where blocks share a row, the parts of its reductions, one of each block, which the threads of a row join together in every block.

        Args:
            outer: the position of the blocks' axis.
        """
        config, threads = self.config, P.TIDx if self.space.is_inner else P.TIDy
        parts: dict[TensorView, TensorView] = {}
        for tv in self.code:
            if tv in self.wide and isinstance(self.fusion.definition(tv), Reduction):
                parts[tv] = self.script.new(tv, "rfactor", [k for k, a in enumerate(tv.loop) if a.is_reduction and k != outer])
        lanes = min(config.threads, config.blocks)
        for tv in parts:
            call = self.script.on(tv)
            if lanes < config.blocks:
                call.split(outer, lanes)
            call.bind(outer + (lanes < config.blocks), threads)
        return parts

    def _arrange(self, ref: TensorView) -> None:
        """[rows (by threads) | row | vector]."""
        space, kept, reduced = self.space, len(self.space.kept), len(self.space.reduced)
        r = self.script.on(ref)
        order = [*space.kept, *space.reduced]
        if order != sorted(order):
            r.reorder(order)
        if space.width > 1:
            r.split(kept + reduced - 1 if space.is_inner else kept - 1, space.width)
            if not space.is_inner:
                r.reorder({kept: -1})
        for _ in range(kept - 1):
            r.merge(0)
        for _ in range(reduced - 1):
            r.merge(min(kept, 1))
        rows, each = self.config.rows, self.config.each
        if kept and each > 1:
            r.split(0, rows * each).split(1, rows)
            r.reorder([0, 2, 1, *range(3, len(ref.loop))] if rows > 1 else {})
        elif kept and rows > 1:
            r.split(0, rows)

    # -- vectors and inlining -------------------------------------------------------------------------------------------------------

    def _vectors(self) -> None:
        """Vectors between memory and registers, and asynchronous copies into Shared memory."""
        if self.shared:
            self.script.comment("kept rows: neighboring threads in different banks")
            for tv in self.shared:
                self.script.on(tv).set_allocation_domain(Spelled(layouts.by_threads(), "tf.layouts.by_threads()"))
        self.script.comment("vectors")
        for tv in (*self.shared, *self.loads, *self.stores):
            chunk = 1
            if self.space.width > 1 and tv in self.contiguous and self.space.ends_contiguous(tv):
                most = min(self.space.width, VECTOR_BYTES // tv.dtype.itemsize)
                if self._fits(tv, most):
                    chunk = most
                    self._vectorize(tv, chunk)
            if among(tv, self.shared) and chunk * tv.dtype.itemsize in ASYNC_BYTES:
                self.script.on(tv).set_atom(atoms.CP_ASYNC, [len(tv.loop) - 1] if chunk > 1 else [])
            elif chunk > 1:
                self.script.on(tv).bind(len(tv.loop) - 1, P.Vectorize)

    def _fits(self, tv: TensorView, width: int) -> bool:
        """True if vectors of a load from other places lie side by side there; all others do."""
        leaf = leaf_of(self.fusion, tv)
        inputs = [r.tensor for r in leaf.reads if r.tensor.is_input]
        return all(is_in_place(r, tv) for r in leaf.reads) or not inputs or vector_fits(self.fusion, leaf, width)

    def _vectorize(self, tv: TensorView, chunk: int) -> None:
        """Let the last loop be over ``chunk`` elements of a vector."""
        own, position = self.script.on(tv), self.vector[tv]
        if position < len(tv.loop) - 1:  # axes of extent 1 that only this tensor has
            own.reorder({position: -1})
        if chunk < self.space.width:
            own.split(-1, chunk)

    def _inline(self) -> None:
        """What is loaded at once is loaded before it is used, and the indices of such loads are computed before them; all else shares as many loops with its
        readers as it can."""
        self.script.comment("inlining")
        partial = self.space.partial(self.fusion)
        loaded = [tv for tv in (*self.shared, *self.loads) if tv in self.wide and tv not in partial]
        gathers = [tv for tv in loaded if isinstance(self.fusion.definition(tv), Gather)]
        indices = [tv for tv in dict.fromkeys(i for tv in gathers for i in ancestors(self.fusion, tv)) if tv in self.wide and not among(tv, loaded)]
        self.script.inline_most([tv for tv in self.code if not among(tv, (*indices, *gathers))])
        self.script.inline_at([tv for tv in (*indices, *loaded) if tv not in self.kept], self.together)
        self.script.inline_at([tv for tv in loaded if tv in self.kept], self.resident)
