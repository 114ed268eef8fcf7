"""The factor with the rows of a product, computed on its way from Shared memory to the tensor cores.

``ldmatrix`` loads a step of k into registers as a fragment of ``wgmma``; functions of its elements are computed
there. While a warpgroup does that, others that share the tile multiply. The tensor cores read these registers until the products of the step are done, so no
batch is in flight when the next step is loaded.
"""

from __future__ import annotations

from taskfuse.ir import atoms
from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedulers.config import STMATRIX, MatmulConfig
from taskfuse.schedulers.script import Script


class Prologue:
    """The schedule of the tensors in registers.

    Args:
        source: the copy of the factor in Shared memory.
        functions: the tensors computed from it, one after another.
        head: the number of loops over tiles; the loop over steps of k is the next.
        turn: the place of the axis over which warpgroups take turns; ``None``: they share tiles.

    Attributes:
        tensors: the factor in memory, then the tensors computed from it.
    """

    def __init__(self, script: Script, config: MatmulConfig, source: TensorView, functions: tuple[TensorView, ...], head: int, turn: int | None) -> None:
        self.script = script
        self.config = config
        self.head = head
        self.turn = turn
        self.tensors = (script.new(source, "cache_after"), *functions)

    def spread(self, depth: int) -> None:
        """From [head, k step, m, k] to [head, k step, (warpgroup,) (rows of 64,) k16 | m64, k16], the rows in warps of 16.

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
            if self.config.rows > WGMMA_ROWS:
                call.split(place, WGMMA_ROWS)
                call.bind(place, P.Unroll)
                place += 1
            call.split(place + 1, depth).reorder({place + 1: place})
            call.bind(place, P.Unroll)
            if tv is self.tensors[0]:
                call.split(place + 1, STMATRIX)
                call.bind(place + 1, P.TIDx)
                call.set_atom(atoms.LDMATRIX_X4, (place + 2, place + 3))
            else:
                call.fragment((place + 1, place + 2))

    def inline(self) -> None:
        """Share the loop over steps of k; no storage for what is between the first and the last."""
        for tv in reversed(self.tensors):
            is_stored = tv is self.tensors[0] or tv is self.tensors[-1]
            self.script.on(tv).inline_at(self.head + 1 if is_stored else len(tv.loop))
