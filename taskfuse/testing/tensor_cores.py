"""Random schedules of products on tensor cores: ``wgmma`` or ``mma.sync``, tiles and the warps that execute them, the order of tiles, roles.

Axes are split by the instruction's tile and by small multiples of it, so extents always meet its requirements. :mod:`taskfuse.testing.operands`
loads the operands, :mod:`taskfuse.testing.epilogues` schedules the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import taskfuse as tf
from taskfuse.ir.atoms import WGMMA_ROWS, Completion, Instruction, mma, wgmma
from taskfuse.ir.axes import WORK, Axis
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.matrix_instructions import Family, rows
from taskfuse.ir.scalar import Expr, ge, is_multiple, prove, sym
from taskfuse.ir.storage import has_code
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import BLOCK_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.target import WARP
from taskfuse.testing import epilogues, operands
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.contractions import ContractionCase, contractions
from taskfuse.testing.epilogues import EpilogueResult
from taskfuse.testing.loops import Loops
from taskfuse.testing.operands import LDMATRIX_ITEMSIZE, Feed, OperandNeeds
from taskfuse.testing.options import CaseOptions
from taskfuse.testing.partitions import launched
from taskfuse.testing.product_loops import Nest, TileShape
from taskfuse.testing.program import REFUSALS, Recorder, SpelledArgument

WIDTHS = (64, 32, 16, 8, 24, 128, 40, 256)
X, Y, Z = THREAD_TYPES
_P = ParallelType
CLUSTER_X = _P.CIDx


class TensorCores:
    """Schedules the products of a fusion for tensor cores.

    Args:
        size: the value of an extent.
    """

    def __init__(self, chooser: Chooser, options: CaseOptions, recorder: Recorder, size: Callable[[Expr], int]) -> None:
        self.chooser = chooser
        self.options = options
        self.recorder = recorder
        self.fusion: Fusion = recorder.fusion
        self.size = size
        self.done: list[TensorView] = []
        self._is_single = True

    def run(self) -> list[TensorView]:
        """Schedule one product after another. Returns the scheduled tensors; none if no instruction can compute a product."""
        found = [e.output for e in self.fusion.exprs() if contractions(e.output)]
        self._is_single = len(found) == 1
        for tv in found:
            if contractions(tv):
                try:
                    self._product(tv)
                except REFUSALS:
                    continue
        if self.done:
            self._rest()
        return self.done

    def _product(self, tv: TensorView) -> None:
        facts = self.fusion.facts()
        if not all(prove(ge(a.extent, 1), facts) for a in tv.root if not a.is_reduction):
            return  # a loop over an axis that may be empty is never shared with tensors without that axis
        result = epilogues.cut(self.chooser, self.recorder, tv)
        contraction = self.chooser.pick(contractions(result.tv))
        in_roles = self.chooser.chance(self.options.groups)
        shape = self._shape(contraction)
        pingpong = in_roles and self.chooser.chance(self.options.pingpong)
        if pingpong:
            shape = replace(shape, warps=(1, 1), types=(Z, Z))
        ends = not is_multiple(contraction.k.extent, shape.tile[2], self.fusion.facts())
        left, right = (
            operands.feed(self.chooser, self.recorder, f, contraction, OperandNeeds(shape.instruction, which, ends, self._overhangs(axis, shape.tile[which])))
            for which, (f, axis) in enumerate(((contraction.a, contraction.m), (contraction.b, contraction.n)))
        )
        epilogues.stage(self.chooser, self.recorder, result, contraction)
        nest = self._tiles(contraction, shape, result, [left, right], ends, in_roles, pingpong)
        for which, f in enumerate((left, right)):
            operands.schedule(self.chooser, self.recorder, f, nest, which, self.size)
        self._contract(contraction, nest)
        epilogues.schedule(self.chooser, self.recorder, result, contraction, nest)
        self._share(contraction, nest, result, [left, right])
        if nest.in_roles:
            self._roles(contraction.tv, nest, result, [left, right])
        elif self.done:
            self.recorder.attempt(self.fusion, "task", [*left.tensors, *right.tensors, contraction.tv, *result.tensors])
        self.done += [*left.tensors, *right.tensors, contraction.tv, *result.tensors]

    def _overhangs(self, axis: Axis, tile: int) -> bool:
        """True if a tile may have rows past the end of the tensor, which must be written, too."""
        return not is_multiple(axis.extent, tile, self.fusion.facts()) and not self.chooser.chance(self.options.ragged)

    def _rest(self) -> None:
        """Schedule tensors outside the products' loops: one element per thread, in memory that all readers see."""
        blocked = any(p.is_block or p.is_cluster for tv in self.done for p in map(tv.schedule.ptype, tv.loop))
        for tv in [e.output for e in self.fusion.exprs() if has_code(self.fusion, e)]:
            if among(tv, self.done):
                continue
            if any(self.fusion.tasks.home(tv) is self.fusion.tasks.home(x) for x in self.done) and self.fusion.tasks.home(tv) is not None:
                self.recorder.attempt(self.fusion, "task", [tv])
            if tv.uses and not tv.is_output:
                self.recorder.attempt(tv, "set_memory_type", MemoryType.Global if blocked or self.chooser.chance(30) else MemoryType.Shared)
            kept = [k for k, a in enumerate(tv.loop) if not a.is_reduction]
            if kept and self.chooser.chance(80):
                at = self.chooser.pick(kept)
                if self.recorder.attempt(tv, "split", at, 32) is not None:
                    self.recorder.attempt(tv.axis(at + 1), "parallelize", X)

    # -- parameters -----------------------------------------------------------------------------------------------------------------

    def _shape(self, c: ContractionCase) -> TileShape:
        wide = rows(Family.WGMMA, *c.dtypes)
        narrow = [row for row in rows(Family.MMA, *c.dtypes) if row.shape.units == 1]  # ldmatrix loads their fragments, not those of quad pairs
        depth = wide[0].k
        whole = [n for n in (2, 1, 4, 3) if is_multiple(c.k.extent, n * depth, self.fusion.facts())]
        steps = self.chooser.pick(whole if whole and self.chooser.chance(60) else (2, 1, 4, 2, 3))
        height, columns = self.size(c.m.extent), self.size(c.n.extent)
        takes_zeros = steps in whole or c.dtypes[0].itemsize == LDMATRIX_ITEMSIZE
        if self.chooser.chance(60) or not takes_zeros:
            widths = [n for n in WIDTHS if n in wide[0].widths and n <= 2 * max(columns, 8)]
            width = self.chooser.pick(widths)
            warps = self.chooser.pick((1, 1, 2)) if height > WGMMA_ROWS else 1
            each = self.chooser.pick((1, 2)) if height > WGMMA_ROWS * warps else 1
            across = self.chooser.pick((1, 2)) if columns > width and width <= 64 else 1
            return TileShape(Instruction.WGMMA, (WGMMA_ROWS, width, depth), (warps, 1), (self.chooser.pick((Y, Z, Y, _P.Unroll)), Z), (each, across), steps)
        down, along = self.chooser.pick((1, 2, 2, 4)), self.chooser.pick((1, 1, 2))
        each = self.chooser.pick((1, 1, 2)), self.chooser.pick((1, 2, 4) if steps in whole else (2, 4))
        types = self.chooser.pick(((Y, Z), (Z, Y)))
        row = narrow[0] if len(narrow) == 1 else self.chooser.pick(narrow)
        return TileShape(Instruction.MMA, (row.m, row.widths[0], row.k), (down, along), types, each, steps)

    # -- loops ----------------------------------------------------------------------------------------------------------------------

    def _tiles(self, c: ContractionCase, shape: TileShape, result: EpilogueResult, feeds: list[Feed], ends: bool, in_roles: bool, pingpong: bool) -> Nest:
        """[head, steps, m, n, k] of the result, [head, m, n] of what follows, [head, steps, rows, k] of the operands."""
        loops = Loops(self.recorder, c.tv)
        (mo, m), (no, n), (ko, k) = (loops.split(axis, f) for axis, f in zip((c.m, c.n, c.k), shape.tile, strict=True))
        rank: Axis | None = None
        if self.chooser.chance(self.options.clusters):
            outer, rank = loops.split(self.chooser.pick((mo, no)), self.chooser.pick((2, 2, 4)))
            mo, no = (outer, no) if mo not in c.tv.loop else (mo, outer)
        head = self.chooser.order([*c.kept, mo, no]) if self.chooser.chance(30) else [*c.kept, mo, no]
        steps = [*c.summed, ko]
        loops.arrange([*head, *([rank] if rank is not None else []), *steps, m, n, k])
        if self.chooser.chance(self.options.orders):
            head = self._ordered(loops, head)
        if rank is not None:
            head.append(rank)
            loops.bind(rank, CLUSTER_X)
        turn = self._turn(loops, head, rank) if pingpong else None
        self._deal(loops, head, [a for a in (rank, turn) if a is not None])
        after = [tv for tv in result.tensors if tv.loop]
        if after:
            self.recorder.call(c.tv, "propagate", after, len(head))
        before = [tv for f in feeds for tv in f.tensors]
        if turn is None:
            self._bind_steps(loops, steps, shape)
        if before:
            self.recorder.call(c.tv, "propagate", before, len(head) + len(steps))
        if before or after:
            self.recorder.call(tf, "parallelize_like", c.tv, [*before, *after])
        taken = None if turn is None else (head.index(turn), Y)
        for tv in (c.tv, *after, *(s.tv for f in feeds for s in f.registers)):
            if taken is not None:
                self.recorder.attempt(tv.axis(taken[0]), "parallelize", taken[1])
        blocked = any(p.is_block or p.is_cluster for p in map(c.tv.schedule.ptype, c.tv.loop))
        return Nest(shape, head, steps, ends, blocked, in_roles, taken)

    def _turn(self, loops: Loops, head: list[Axis], rank: Axis | None) -> Axis:
        """Split a loop over tiles; one part is bound to threads in the product and Serial in the loads. Changes ``head``."""
        axes = [a for a in head if a is not rank]
        several = [a for a in axes if self.size(a.extent) > 1]
        return self._split_head(loops, head, self.chooser.pick(several or axes), (2, 2, 3))[1]

    def _ordered(self, loops: Loops, head: list[Axis]) -> list[Axis]:
        """The last two loops over tiles as one work axis, in some order."""
        place = len(head) - 2
        first, second = (a.extent for a in head[-2:])
        group = self.chooser.pick((2, 1, 3))
        w = sym(WORK)
        orders = [
            SpelledArgument("tf.tiles.raster()", tf.tiles.raster()),
            SpelledArgument(f"tf.tiles.grouped({group})", tf.tiles.grouped(group)),
            _by_hand([w % first, w // first]),
            _by_hand([w // second, (w // second + w) % second]),
        ]
        for order in self.chooser.order(orders):
            if self.recorder.attempt(loops.tv, "rasterize", [place, place + 1], order) is not None:
                return [*head[:-2], loops.tv.loop[place]]
        return head

    def _deal(self, loops: Loops, head: list[Axis], apart: Sequence[Axis]) -> None:
        """Distribute the loops over tiles, except ``apart``, over blocks. Changes ``head``."""
        free = self.chooser.order(BLOCK_TYPES) if self.chooser.chance(40) else list(BLOCK_TYPES)
        left = self.options.blocks // (2 if apart else 1)
        for axis in reversed([a for a in head if a not in apart]):
            if not free or self.chooser.chance(25):
                continue
            if self.chooser.chance(self.options.persistent or 30):
                axis = self._split_head(loops, head, axis)[1]
            if self.size(axis.extent) <= left:
                loops.bind(axis, free.pop(0))
                left //= max(self.size(axis.extent), 1)
        loops.done()

    def _split_head(self, loops: Loops, head: list[Axis], axis: Axis, sizes: tuple[int, ...] = (2, 1, 3)) -> tuple[Axis, Axis]:
        place = head.index(axis)
        parts = loops.split(axis, self.chooser.pick(sizes))
        head[place : place + 1] = parts
        return parts

    def _bind_steps(self, loops: Loops, steps: list[Axis], shape: TileShape) -> None:
        """Sometimes spread parts of the sum over threads or blocks."""
        if not self.chooser.chance(self.options.split_sums):
            return
        axis = self.chooser.pick(steps)
        taken = {loops.tv.schedule.ptype(a) for a in loops.tv.loop} | set(shape.types)
        free = [p for p in (*THREAD_TYPES[1:], *BLOCK_TYPES) if p not in taken]
        ptype = self.chooser.pick(free) if free else _P.Serial
        most = self.options.threads // shape.threads if ptype.is_thread else 8
        if self.size(axis.extent) <= most:
            self.recorder.attempt(loops.tv.axis(loops.at(axis)), "parallelize", ptype)

    def _contract(self, c: ContractionCase, nest: Nest) -> None:
        """[head, steps, warps, instructions | m, n, k]."""
        loops, shape = Loops(self.recorder, c.tv), nest.shape
        m, n, k = c.tv.loop[-3:]
        outer: list[Axis] = []
        inner: list[Axis] = []
        tile: list[Axis] = []
        for axis, own, unit, warps, ptype in zip((m, n), shape.own, shape.unit, shape.warps, shape.types, strict=False):
            if warps > 1 or self.chooser.chance(20):
                part, axis = loops.split(axis, own)
                outer.append(part)
                loops.bind(part, ptype)
            if own > unit:
                part, axis = loops.split(axis, unit)
                inner.append(part)
            tile.append(axis)
        if shape.steps > 1 or self.chooser.chance(20):
            part, k = loops.split(k, shape.unit[2])
            inner.append(part)
        inner = self.chooser.order(inner)
        loops.last([*outer, *inner, *tile, k])
        make = wgmma if shape.instruction is Instruction.WGMMA else mma
        self.recorder.call(c.tv, "set_atom", make(*shape.unit), [-3, -2, -1])
        for axis in inner:
            if self.chooser.chance(70):
                loops.bind(axis, _P.Unroll)
        loops.done()

    def _share(self, c: ContractionCase, nest: Nest, result: EpilogueResult, feeds: list[Feed]) -> None:
        """Share the loops over tiles and steps, sometimes fewer."""
        for f in feeds:
            for tv in reversed(f.tensors):
                most = len(nest.head) + len(nest.steps)
                free = among(tv, f.loads) and not nest.is_blocked and self.chooser.chance(10)
                depth = self.chooser.integer(0, most) if free else most
                self.recorder.attempt(tv, "inline_at", depth)
        epilogues.share(self.chooser, self.recorder, result, nest)
        self.recorder.attempt(c.tv, "inline_at", len(nest.head))

    def _roles(self, tv: TensorView, nest: Nest, result: EpilogueResult, feeds: list[Feed]) -> None:
        """Mostly a role that loads and one that multiplies; sometimes also one that stores, or one per operand."""
        loads = [[t for t in f.loads if not among(t, self.done)] for f in feeds]
        registers = [t for f in feeds for t in f.tensors if not among(t, f.loads)]
        stores = list(result.stores) if nest.pingpong is None and self.chooser.chance(35) else []
        rest = [t for t in result.tensors if not among(t, stores)]
        parts = loads if self.chooser.chance(20) else [[t for part in loads for t in part]]
        first = [self.recorder.attempt(self.fusion, "task", part) for part in parts if part]
        if rest and len(tv.uses) == 1 and self.chooser.chance(40):
            two = [self.recorder.attempt(self.fusion, "task", [*registers, tv]), self.recorder.attempt(self.fusion, "task", rest)]
            middle = self.recorder.attempt(self.fusion, "group", [t for t in two if t is not None])
        else:
            middle = self.recorder.attempt(self.fusion, "task", [*registers, tv, *rest])
        last = [self.recorder.attempt(self.fusion, "task", stores)] if stores else []
        members = [t for t in (*first, middle, *last) if t is not None]
        if len(members) < 2:
            return
        roles = self.recorder.attempt(self.fusion, "group", members)
        if roles is None:
            return
        along = [X] if self._is_single and nest.shape.lanes == WARP else []
        types = [p for p in (Y, Y, Z, *along) if launched(self.fusion, THREAD_TYPES, self.size, (roles, p)) <= self.options.threads]
        if not types or self.recorder.attempt(roles, "parallelize", self.chooser.pick(types)) is None:
            return
        if nest.pingpong is not None and self.chooser.chance(50):
            self.recorder.attempt(roles, "pingpong", tv.axis(nest.pingpong[0]))
        late = [t.schedule.stages for part in loads for t in part]
        several = self.size(nest.steps[-1].extent) > 1 and min(late, default=1) > 1 and not registers
        if several and tv.schedule.atom is not None and tv.schedule.atom.completion is Completion.FIFO and self.chooser.chance(40):
            self.recorder.attempt(tv, "in_flight", self.chooser.integer(1, min(late) - 1))
        for t in stores:
            if t.schedule.atom is not None and min(x.schedule.stages for x in result.staged) > 1 and self.chooser.chance(40):
                self.recorder.attempt(t, "in_flight", 1)
        if self.chooser.chance(30):
            for node in members:
                self.recorder.attempt(node, "registers", *([] if self.chooser.chance(60) else [self.chooser.pick((40, 24, 96, 128))]))
        if self.chooser.chance(15):
            self.recorder.attempt(self.fusion, "resident_blocks", self.chooser.pick((1, 2)))
        made = [e.output for e in self.fusion.exprs() if not self.fusion.is_view(e.output)]
        if len(made) > 1 and self.chooser.chance(15):
            first = self.chooser.integer(0, len(made) - 2)
            self.recorder.attempt(self.fusion, "order", [made[first + 1], made[first]])


def _by_hand(maps: list[Expr]) -> SpelledArgument:
    """An order of tiles as expressions of the work index."""
    return SpelledArgument("[" + ", ".join(f"tf.scalar.parse({str(e)!r})" for e in maps) + "]", maps)
