"""The factor with the rows of a product, computed on its way from Shared memory to the tensor cores.

``ldmatrix`` loads a part of a step of k into registers as a fragment of ``wgmma``, or threads load elements of other widths in its layout; functions of these
are computed there. Where several neighbors are packed in one element, and of inputs beside the factor, each function loads what it reads into a register. The
tensor cores read these registers until the products of the part are done. With ``in_flight`` batches a step has that many parts and one more, whose registers
are a ring: while tensor cores multiply one part, the warpgroup computes the next, which was loaded before the former was computed. With none, only others that
share the tile multiply meanwhile.
"""

from __future__ import annotations

from taskfuse.ir import atoms
from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.ir.expr import Read
from taskfuse.ir.storage import resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedulers.config import STMATRIX, MatmulConfig
from taskfuse.schedulers.factors import LDMATRIX_BYTES
from taskfuse.schedulers.script import Script

LOADED = 2
"""Parts of a step in registers as they are loaded: the one that is computed and the next, as few as a ring that is filled ahead can have."""


class Prologue:
    """The schedule of the tensors in registers.

    Args:
        source: the copy of the factor in Shared memory.
        packed: how many elements of the factor one of its elements has.
        functions: the tensors computed from it, producers first.
        head: the number of loops over tiles; the loop over steps of k is the next.
        turn: the place of the axis over which warpgroups take turns; ``None``: they share tiles.

    Attributes:
        loaded: the factor in registers as it is in memory; ``None``: each function loads what it reads.
        functions: the tensors computed from it.
        sides: what these read beside it, and elements that others are packed in: single registers.
    """

    def __init__(
        self, script: Script, config: MatmulConfig, source: TensorView, packed: int, functions: tuple[TensorView, ...], head: int, turn: int | None
    ) -> None:
        self.script = script
        self.config = config
        self.head = head
        self.turn = turn
        self.functions = functions
        self.loaded = script.new(source, "cache_after") if packed == 1 else None
        beside = [(tv, k) for tv in functions for k in self._read_elsewhere(tv, source if packed > 1 else None)]
        self.sides = [script.through_view(tv, k) for tv, k in beside]
        for tv in self.sides:
            script.on(tv).set_memory_type(MemoryType.Local)

    def _read_elsewhere(self, tv: TensorView, source: TensorView | None) -> list[int]:
        """The operands that are of other inputs, or of a packed one."""
        expr, fusion = self.script.fusion.definition(tv), self.script.fusion
        assert expr is not None
        read = [(k, resolve(fusion, o).tensor) for k, o in enumerate(expr.operands) if isinstance(o, Read)]
        return [k for k, of in read if of.is_input or of is source]

    @property
    def tensors(self) -> list[TensorView]:
        """The factor in registers as it is in memory, if it is, then the tensors computed from it."""
        return [*([] if self.loaded is None else [self.loaded]), *self.functions]

    @property
    def parts(self) -> int:
        """Parts of a step of k: the batches that read registers, and the one that is computed."""
        return self.config.in_flight + 1

    def spread(self, depth: int) -> None:
        """From [head, k step, m, k] to [head, k step, (warpgroup,) (part,) (rows of 64,) k16 | m64, k16], the rows in warps of 16.

        Args:
            depth: elements of k that an instruction multiplies.
        """
        self.script.comment("the row factor: loaded from Shared memory and computed in registers")
        for tv in self.tensors:
            call, place = self.script.on(tv), self.head + 1
            if self.turn is None:
                call.split(place, self.config.rows)
                call.bind(place, P.TIDy)
                place += 1
            else:
                call.bind(self.turn, P.TIDy)
            call.split(place + 1, depth)
            if self.parts > 1:
                call.split(place + 1, self.config.tile_k // depth // self.parts).reorder({place + 1: place})
                call.bind(place, P.Unroll)
                place += 1
            call.reorder({place + 1: place})
            if self.config.rows > WGMMA_ROWS:
                call.split(place + 1, WGMMA_ROWS).reorder({place + 1: place})
                call.bind(place, P.Unroll)
                place += 1
            call.bind(place, P.Unroll)
            if tv is not self.loaded:
                call.fragment((place + 1, place + 2))
            elif tv.dtype.itemsize == LDMATRIX_BYTES:
                call.split(place + 1, STMATRIX)
                call.bind(place + 1, P.TIDx)
                call.set_atom(atoms.LDMATRIX_X4, (place + 2, place + 3))
            else:
                call.fragment((place + 1, place + 2))
                call.bind(-1, P.Vectorize)
        last = self.functions[-1]
        if self.sides:
            self.script.on(last).propagate(self.sides, len(last.loop))
            self.script.parallelize_like(last, self.sides)
        if self.parts > 1:
            self.script.on(last).circular_buffer(self.parts)
            if self.loaded is not None:
                self.script.on(self.loaded).circular_buffer(LOADED)

    def inline(self) -> None:
        """Share the loop over steps of k, or over their parts; no storage for what is between the first and the last."""
        shared = self.head + 1 if self.parts == 1 else self.head + 2 + (self.turn is None)
        last = self.functions[-1]
        self.script.inline_at([last], shared)
        self.script.inline_at([*reversed(self.functions[:-1]), *self.sides], len(last.loop))
        if self.loaded is not None:
            self.script.inline_at([self.loaded], shared)
