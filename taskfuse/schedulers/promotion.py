"""The outer level of a product with two levels of sums, in registers.

The products of a block lie in the accumulators of the tensor cores, which every block starts anew. Its terms are added to sums of the same layout, on the
threads that hold them: a promotion, like that of products of 8-bit floats to sums of float32. The other operands of the terms are loaded before the
wait for the product of the block.
"""

from __future__ import annotations

from taskfuse.ir import atoms
from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.ir.tasks import Node, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.layouts import FRAGMENT_COLUMNS
from taskfuse.schedulers.block_sums import BlockInput, BlockSums
from taskfuse.schedulers.config import MatmulConfig
from taskfuse.schedulers.script import Script

LANE_AXES = 3
"""Axes that ``fragment`` binds to threads, before those of registers."""


class Promotion:
    """The schedule of the outer sum of one product.

    Args:
        head: the number of loops over tiles; the loop over blocks of k is the next.
    """

    def __init__(self, script: Script, config: MatmulConfig, blocks: BlockSums, head: int) -> None:
        self.script = script
        self.config = config
        self.blocks = blocks
        self.head = head
        self.inputs: list[tuple[TensorView, BlockInput]] = []
        self.staged: list[TensorView] = []

    def copies(self) -> None:
        """Let the terms read copies in registers: of a copy in Shared memory where the copy engine brings it with the factors."""
        for given in self.blocks.inputs:
            copy = self.script.through_view(given.reader, given.position)
            if given.is_bulk:
                self.script.on(copy).set_memory_type(MemoryType.Shared)
                self.staged.append(copy)
                copy = self.script.new(copy, "cache_after")
            else:
                self.script.on(copy).set_memory_type(MemoryType.Local)
            self.inputs.append((copy, given))

    def load(self) -> None:
        """Bulk copies of operands along the rows or columns of a tile, [head, block, 128], in the ring of the factors."""
        for tv in self.staged:
            self.script.on(tv).circular_buffer(self.config.stages).set_atom(atoms.TMA_LOAD, (-1,))

    def spread(self, total: TensorView) -> None:
        """Distribute the sums, [head, block of k, m, n], over threads as the accumulators are; and with them terms and inputs."""
        script, at = self.script, self.head + 1
        script.comment("sums of blocks in registers, in the layout of the accumulators; inputs of the terms on the threads that use them")
        call = script.on(total)
        call.split(at, self.config.rows)
        call.bind(at, P.TIDy)
        rows = at + 1
        if self.config.rows > WGMMA_ROWS:
            call.split(rows, WGMMA_ROWS)
            rows += 1
        call.fragment((rows, rows + 1))
        place = rows + LANE_AXES
        call.split(place, self.config.columns // FRAGMENT_COLUMNS).reorder({place + 2: place})  # [..., half, piece, column / 8, element]
        self._copy_loops(total, rows=False, columns=False, upto=at)
        self._copy_loops(total, rows=True, columns=False, upto=place + 1)
        call.reorder({place: place + 3})  # halves last
        self._copy_loops(total, rows=False, columns=True, upto=place + 3)
        self._copy_loops(total, rows=True, columns=True, upto=None)
        if self.blocks.terms:
            call.propagate(list(self.blocks.terms))
        script.parallelize_like(total, [*(tv for tv, _ in self.inputs), *self.blocks.terms])

    def _copy_loops(self, total: TensorView, *, rows: bool, columns: bool, upto: int | None) -> None:
        """Give the loops of the sums up to a place to the inputs that have rows, columns."""
        chosen = [tv for tv, given in self.inputs if (given.has_rows, given.has_columns) == (rows, columns)]
        if chosen:
            self.script.on(total).propagate(chosen, *(() if upto is None else (upto,)))

    def inline(self) -> None:
        """Share the loops: a block's products and inputs, and no storage for its terms."""
        for tv in reversed(self.blocks.terms):
            self.script.on(tv).inline_at(len(tv.loop))
        for tv, given in self.inputs:
            if given.is_paired:
                self.script.on(tv).bind(-1, P.Vectorize)
            self.script.on(tv).inline_at(self.head + 1)
        self.script.inline_at([*self.staged, self.blocks.product], self.head + 1)

    def members(self, mma: Task, total: TensorView, suffix: str) -> list[Node]:
        """The tasks of each block: loads of the terms' operands, the product, the sum of the terms."""
        script = self.script
        products: Node = mma
        if self.inputs:
            inputs = script.task([tv for tv, _ in self.inputs], f"inputs{suffix}")
            products = script.grouped([inputs, mma], f"products{suffix}")
        return [products, script.task([*self.blocks.terms, total], f"promotion{suffix}")]
