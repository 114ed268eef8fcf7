"""The loops of a product on tensor cores: its tile, and the loops around it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from taskfuse.ir.atoms import Instruction
from taskfuse.ir.axes import Axis
from taskfuse.ir.types import ParallelType
from taskfuse.target import WARP, WARPGROUP


@dataclass(frozen=True, slots=True)
class TileShape:
    """How warps compute a tile of the result.

    Attributes:
        instruction: WGMMA or MMA.
        unit: rows, columns and depth of the instruction.
        warps: the number of warpgroups (of WGMMA) or warps (of MMA) that share the rows and the columns of a tile.
        types: their parallel types.
        each: instructions of each along rows and columns.
        steps: instructions along the depth of a tile.
    """

    instruction: Instruction
    unit: tuple[int, int, int]
    warps: tuple[int, int]
    types: tuple[ParallelType, ParallelType]
    each: tuple[int, int]
    steps: int

    @property
    def own(self) -> tuple[int, int]:
        """Rows and columns of one warpgroup or warp."""
        return self.unit[0] * self.each[0], self.unit[1] * self.each[1]

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows, columns and depth of a tile."""
        return self.own[0] * self.warps[0], self.own[1] * self.warps[1], self.unit[2] * self.steps

    @property
    def lanes(self) -> int:
        """Threads that execute an instruction together."""
        return WARPGROUP if self.instruction is Instruction.WGMMA else WARP

    @property
    def threads(self) -> int:
        """Threads that share a tile."""
        return self.lanes * math.prod(self.warps)


@dataclass(slots=True)
class Nest:
    """The loops around a tile.

    Attributes:
        head: loops over tiles of the result, which all tensors around the product share.
        steps: loops along the summed axis, which the operands share, too.
        ends_inside: the summed axis may end inside a tile.
        is_blocked: some of the loops are blocks.
        in_roles: a separate role loads the operands.
        pingpong: the position in ``head`` of the loop that is distributed over the instances of the multiplying role, and the parallel type of these.
    """

    shape: TileShape
    head: list[Axis]
    steps: list[Axis]
    ends_inside: bool
    is_blocked: bool
    in_roles: bool
    pingpong: tuple[int, ParallelType] | None

    @property
    def threads(self) -> int:
        """Threads along TIDx of the multiplying role."""
        shape = self.shape
        return shape.lanes * math.prod(n for n, p in zip(shape.warps, shape.types, strict=True) if p is ParallelType.TIDx)
