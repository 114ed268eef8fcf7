"""Random products on tensor cores whose tiles blocks share (``chunk_product`` by split-K or stream-K): a role loads the factors of a block's items into rings,
one multiplies, and after a barrier of the grid all threads add the parts of each element, with the epilogue of the product.
"""

from __future__ import annotations

import taskfuse as tf
from taskfuse.dtypes import DType, bfloat16, float16, float32
from taskfuse.ir.atoms import SUM_OF_PRODUCTS, TMA_LOAD, WGMMA_ROWS, wgmma
from taskfuse.ir.contraction import computes
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import has_code
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.contractions import epilogue
from taskfuse.testing.forms import order_of_shares
from taskfuse.testing.graphs import UNARY_EXACT, Graph
from taskfuse.testing.inputs import Dimension
from taskfuse.testing.program import Recorder, SpelledArgument

ROWS, COLUMNS, TERMS = (128, 64, 100, 7), (64, 192, 72, 32, 8), (512, 128, 200, 64, 320, 24)
WIDTHS = (64, 32, 16, 128, 8)
STEPS = ((64, 128), (32, 64), (16, 32), (64, 128))
"""Elements of k of a step, and the bytes of a row of them."""
UNIT = 16
PLAIN = 2
"""Expressions of a product without functions of it: a view of a factor, and the product."""


class SharedTileGraph(Graph):
    """Builds the math of a fusion with one product of constant extents and functions of it."""

    def grow(self) -> None:
        """Add factors, the product, functions of it, and outputs."""
        m, n, k = self.chooser.pick(ROWS), self.chooser.pick(COLUMNS), self.chooser.pick(TERMS)
        dtype: DType = self.chooser.pick((bfloat16, float16))
        a, b = self.new_input([m, k], dtype), self.new_input([n, k], dtype)
        y: TensorView = self.recorder.call(tf, "matmul", a, self.recorder.call(tf, "permute", b, [1, 0]), dtype=float32)
        if self.chooser.chance(40):
            y = self.recorder.call(tf, "add", y, self.new_input([self.chooser.pick((1, m)), n], float32))
        if self.chooser.chance(40):
            y = self.recorder.call(tf, self.chooser.pick(UNARY_EXACT[:4]), y)
        if len(self.fusion.exprs()) == PLAIN or self.chooser.chance(60):
            y = self.recorder.call(tf, "cast", y, dtype)
        self.recorder.call(self.fusion, "add_output", y)

    def _dimensions(self) -> list[Dimension]:
        return [1]


def share_tiles(chooser: Chooser, recorder: Recorder) -> bool:
    """Schedule a product and its epilogue so; False, and no call, if the fusion is another one."""
    fusion = recorder.fusion
    code = [e.output for e in fusion.exprs() if has_code(fusion, e)]
    products = [tv for tv in code if computes(fusion.definition(tv), SUM_OF_PRODUCTS) and all(isinstance(a.extent, Const) for a in tv.root)]
    if len(products) != 1 or {products[0], *epilogue(fusion, products[0])} != {*code} or products[0].is_output:
        return False
    _SharedTiles(chooser, recorder, products[0], [tv for tv in code if tv is not products[0]]).run()
    return True


class _SharedTiles:
    def __init__(self, chooser: Chooser, recorder: Recorder, total: TensorView, after: list[TensorView]) -> None:
        self.chooser = chooser
        self.recorder = recorder
        self.total = total
        self.after = after
        self.warpgroups = chooser.pick((1, 2))
        self.columns = chooser.pick(WIDTHS)
        self.step, self.span = chooser.pick(STEPS)
        self.role, self.rows = chooser.pick(((P.TIDy, P.TIDy), (P.TIDz, P.TIDy), (P.TIDy, P.TIDz)))

    def run(self) -> None:
        call, chooser = self.recorder.call, self.chooser
        tile = (WGMMA_ROWS * self.warpgroups, self.columns, self.step)
        a, b, parts, terms = call(self.total, "chunk_product", order_of_shares(chooser), tile)
        acc = call(parts, "cache_before")
        stages = chooser.pick((2, 3, 4))
        self._parts(a, b, parts, acc, stages)
        self._sums(terms, parts, tile[0])
        load, mma = call(self.recorder.fusion, "task", [a, b]), call(self.recorder.fusion, "task", [acc, parts])
        call(self.recorder.fusion, "task", [terms, self.total, *self.after])
        call(call(self.recorder.fusion, "group", [load, mma]), "parallelize", self.role)
        if chooser.chance(50):
            for task in (load, mma):
                call(task, "registers")

    def _parts(self, a: TensorView, b: TensorView, parts: TensorView, acc: TensorView, stages: int) -> None:
        """[block, item, step, ...]: the loop over the steps ends where the item does."""
        call, chooser = self.recorder.call, self.chooser
        call(acc, "split", 4, self.step)
        call(acc, "reorder", [0, 1, 4, 2, 3, 5])
        for tv in (a, b):
            call(tv, "split", 3, self.step)
            call(tv, "reorder", [0, 1, 3, 2, 4])
            call(tv, "set_memory_type", MemoryType.Shared)
            call(tv, "set_allocation_domain", SpelledArgument(f"tf.layouts.swizzled({self.span})", tf.layouts.swizzled(self.span)))
            call(tv, "circular_buffer", stages)
            call(tv, "set_atom", TMA_LOAD, [3, 4])
        for tv in (a, b, acc, parts):
            call(tv.axis(0), "parallelize", P.BIDx)
        call(acc, "split", 3, WGMMA_ROWS)
        call(acc, "split", -1, UNIT)
        call(acc, "reorder", [0, 1, 2, 3, 6, 4, 5, 7])
        call(acc, "set_atom", wgmma(WGMMA_ROWS, self.columns, UNIT), [5, 6, 7])
        call(acc.axis(3), "parallelize", self.rows)
        call(acc.axis(4), "parallelize", P.Unroll)
        steps = acc.loop[2].extent
        assert isinstance(steps, Const)
        if min(stages, steps.value) > 1 and chooser.chance(60):
            call(acc, "in_flight", chooser.integer(1, min(stages, steps.value) - 1))
        call(parts, "split", 2, WGMMA_ROWS)
        call(parts.axis(2), "parallelize", self.rows)
        call(parts, "fragment", [3, 4])
        call(parts, "set_allocation_domain", SpelledArgument("tf.layouts.rowmajor()", tf.layouts.rowmajor()))
        for tv in (a, b):
            call(tv, "inline_at", 3)
        call(acc, "inline_at", 2)

    def _sums(self, terms: TensorView, parts: TensorView, rows: int) -> None:
        """The elements of tiles, in pieces that blocks take in turn."""
        call, chooser = self.recorder.call, self.chooser
        piece, threads = chooser.pick(((256, 128), (128, 128), (64, 32), (256, 64), (512, 128)))  # divisors of the elements of a tile
        (blocks,) = (a.extent for a in parts.loop[:1])
        assert isinstance(blocks, Const)
        for tv in (terms, self.total, *self.after):
            last = list(range(4, len(tv.loop) + 2))
            call(tv, "split", 1, self.columns)
            call(tv, "split", 0, rows)
            call(tv, "reorder", [0, 2, 1, 3, *last])
            call(tv, "merge", 0)
            call(tv, "merge", 1)
            call(tv, "split", 1, piece)
            call(tv, "merge", 0)
            call(tv, "split", 0, blocks.value)
            call(tv, "split", 2, threads)
            for k, p in ((1, P.BIDx), (2, P.TIDy), (3, P.TIDx)):
                call(tv.axis(k), "parallelize", p)
        if chooser.chance(60):
            for tv in (terms, self.total):
                call(tv.axis(4), "parallelize", P.Unroll)
        call(terms, "inline_at", 5)
        for tv in (self.total, *self.after):
            if not tv.is_output:
                call(tv, "inline_at", 4)
