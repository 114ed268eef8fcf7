"""Building the plan from the total order: stages of reductions and scans, projection on roles, dispatch, guards (docs/projection.md).

The sequential nest is the program. A node's code is the projection of the nest on its tensors: the same loops, in the same order, that
enclose one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from taskfuse.deadline import checkpoint
from taskfuse.errors import LoweringError
from taskfuse.ir.axes import Axis
from taskfuse.ir.scalar import Const, Expr, and_, const, eq, ge, lt, simplify, substitute, sym
from taskfuse.ir.tasks import Group, Node, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, ParallelType
from taskfuse.kir.synchronization import WaitGroup
from taskfuse.lowering.completion import queue_of
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.plan import PBind, PDispatch, PLoop, PNode, PScope, PSync, base_name
from taskfuse.lowering.reductions import finish
from taskfuse.lowering.scans import accumulates, first_accumulated, rescaled_at
from taskfuse.lowering.statements import Stage, Statements
from taskfuse.lowering.thread_ranges import hardware_index
from taskfuse.schedule.order import Item, TensorItem, is_vertical
from taskfuse.schedule.shared_loops import Loop, has_copies

ONE = const(1)


@dataclass(frozen=True, slots=True, eq=False)
class StageCode:
    """A stage of one tensor's code."""

    tv: TensorView
    stage: Stage


@dataclass(frozen=True, slots=True, eq=False)
class CodeLoop:
    """A loop around code."""

    loop: Loop
    body: tuple[Piece, ...]


Piece = StageCode | CodeLoop


def _ends(piece: Piece) -> bool:
    return isinstance(piece, StageCode) and piece.stage is Stage.FINISH


def _tensors(pieces: tuple[Piece, ...]) -> list[TensorView]:
    found: dict[TensorView, None] = {}
    stack = list(reversed(pieces))
    while stack:
        piece = stack.pop()
        if isinstance(piece, StageCode):
            found[piece.tv] = None
        else:
            stack += reversed(piece.body)
    return list(found)


class NestBuilder:
    """Builds the plan of one fusion."""

    def __init__(self, indexer: Indexer, statements: Statements) -> None:
        self.indexer = indexer
        self.statements = statements
        self.tree = indexer.tree
        self.ranges = indexer.ranges
        self._member: dict[tuple[TensorView, Group], Node] = {}
        for tv in self.tree.place:
            path = self.tree.path(tv)
            for group, member in pairwise(path):
                if isinstance(group, Group):
                    self._member[(tv, group)] = member

    def build(self, items: tuple[Item, ...]) -> list[PNode]:
        """The plan of the whole fusion: the root's code."""
        return self._emit(self.tree.root, self._stages(items))

    # -- stages ---------------------------------------------------------------------------------------------------------------------

    def _stages(self, items: tuple[Item, ...]) -> tuple[Piece, ...]:
        """The nest with INIT before and FINISH after the outermost reduction loop of every reduction; INIT before that of a scan along its axis.

        RESCALE stands in the loop along whose axis a sum is rescaled, before what else it has there.
        """
        pieces: list[Piece] = []
        for item in items:
            if isinstance(item, TensorItem):
                pieces.append(StageCode(item.tv, Stage.MAIN))
                continue
            body = self._rescaled(self._stages(item.body), item.loop.depth)
            started = [tv for tv in _tensors(body) if first_accumulated(self.statements.definition(tv)) == item.loop.depth]
            pieces += [StageCode(tv, Stage.INIT) for tv in started]
            pieces.append(CodeLoop(item.loop, body))
            pieces += [StageCode(tv, Stage.FINISH) for tv in started if self.statements.is_reduction(tv)]
        return tuple(pieces)

    def _rescaled(self, body: tuple[Piece, ...], depth: int) -> tuple[Piece, ...]:
        found: list[Piece] = []
        for piece in body:
            found += [StageCode(tv, Stage.RESCALE) for tv in _tensors((piece,)) if rescaled_at(self.statements.definition(tv)) == depth]
            found.append(piece)
        return tuple(found)

    # -- projection -----------------------------------------------------------------------------------------------------------------

    def _project(self, pieces: tuple[Piece, ...], group: Group, member: Node) -> tuple[Piece, ...]:
        found: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, StageCode):
                if self._member[(piece.tv, group)] is member:
                    found.append(piece)
            else:
                body = self._project(piece.body, group, member)
                if body:
                    found.append(CodeLoop(piece.loop, body))
        return tuple(found)

    def _members(self, pieces: tuple[Piece, ...], group: Group) -> list[Node]:
        return list(dict.fromkeys(self._member[(tv, group)] for tv in _tensors(pieces)))

    # -- emission -------------------------------------------------------------------------------------------------------------------

    def _emit(self, node: Node, pieces: tuple[Piece, ...]) -> list[PNode]:
        match node:
            case Task():
                return [n for ended, run in groupby(pieces, _ends) for n in self._emit_run(node, ended, list(run))]
            case Group() if node.ptype is not None:
                return self._emit_parallel(node, pieces)
            case Group():
                return self._emit_sequence(node, pieces)

    def _emit_run(self, node: Node, ended: bool, pieces: Sequence[Piece]) -> list[PNode]:
        if ended:
            return self._finish([piece.tv for piece in pieces if isinstance(piece, StageCode)])
        return [n for piece in pieces for n in self._emit_piece(node, piece)]

    def _emit_piece(self, node: Node, piece: Piece) -> list[PNode]:
        if isinstance(piece, StageCode):
            return self._code(piece)
        return self._loop(piece.loop, _tensors(piece.body), self._emit(node, piece.body), node)

    def _emit_sequence(self, group: Group, pieces: tuple[Piece, ...]) -> list[PNode]:
        """An unparallelized group: its members one after another, inside the loops that they share."""
        nodes: list[PNode] = []
        run: list[Piece] = []
        owner: Node | None = None

        def close() -> None:
            if owner is not None and run:
                nodes.append(self._scope(group, owner, self._emit(owner, tuple(run))))
                run.clear()

        for piece in pieces:
            members = self._members((piece,), group)
            if len(members) > 1:
                close()
                owner = None
                nodes += self._emit_piece(group, piece)
                continue
            if members[0] is not owner:
                close()
                owner = members[0]
            run.append(piece)
        close()
        return nodes

    def _emit_parallel(self, group: Group, pieces: tuple[Piece, ...], inside: tuple[Loop, ...] = ()) -> list[PNode]:
        """A parallelized group: the common loops that may stand outside, then the dispatch, then each member's projection.

        ``inside``: common loops bound to the group's own type, which stand inside the dispatch.
        """
        if len(pieces) > 1 and not is_vertical(group) and any(self._is_common(p, group) for p in pieces):
            return self._emit_runs(group, pieces, inside)
        members = self._members(pieces, group)
        if len(pieces) == 1 and isinstance(pieces[0], CodeLoop) and len(members) > 1:
            loop, body = pieces[0].loop, pieces[0].body
            tensors = _tensors(body)
            types = {tv.schedule.ptype(loop.axes[tv]) for tv in tensors}
            outside = len(types) == 1 and next(iter(types)).is_bound if is_vertical(group) else not has_copies(group, loop, tensors)
            if outside:
                if group.ptype in types:
                    return self._emit_parallel(group, body, (*inside, loop))
                return self._loop(loop, tensors, self._emit_parallel(group, body, inside), group)
        for loop in reversed(inside):
            pieces = (CodeLoop(loop, pieces),)
        arms = [m for m in self.tree.members[group] if m in members]
        return [PDispatch(group, [self._branch(group, m, self._emit(m, self._project(pieces, group, m))) for m in arms])]

    def _is_common(self, piece: Piece, group: Group) -> bool:
        """True for a loop that all members of a group share."""
        everybody = [m for m in self.tree.members[group] if self.ranges.tensors(m)]
        return isinstance(piece, CodeLoop) and len(everybody) > 1 and len(self._members((piece,), group)) == len(everybody)

    def _emit_runs(self, group: Group, pieces: tuple[Piece, ...], inside: tuple[Loop, ...]) -> list[PNode]:
        """Dispatches before, inside and after the loops that all members share."""
        nodes: list[PNode] = []
        run: list[Piece] = []
        for piece in (*pieces, None):
            if piece is not None and not self._is_common(piece, group):
                run.append(piece)
                continue
            if run:
                nodes += self._emit_parallel(group, tuple(run), inside)
                run.clear()
            if piece is not None:
                nodes += self._emit_parallel(group, (piece,), inside)
        return nodes

    def _loop(self, loop: Loop, tensors: list[TensorView], body: list[PNode], node: Node) -> list[PNode]:
        """A loop around ``body``, as what its tensors say executes it."""
        types = {tv.schedule.ptype(loop.axes[tv]): tv for tv in tensors}
        if set(types) == {ParallelType.Serial, ParallelType.Unroll}:
            types = {ParallelType.Unroll: tensors[0]}
        if len(types) > 1:
            (p, a), (q, b) = list(types.items())[:2]
            raise LoweringError(
                what=a.name,
                reason=f"it shares a loop with {b.name} in one role, but its axis {loop.depth} is {p.value} and that of {b.name} is {q.value}",
                help=f"bind both alike, or inline at {loop.depth} or less",
                location=a.location,
            )
        ptype, tv = next(iter(types.items()))
        axis = loop.axes[tv]
        if ptype.is_atom:
            return body
        if ptype.is_bound:
            return [PBind(self._bound_index(tv, axis, ptype), ptype, axis.extent, body)]
        index_maps = self.indexer.index_maps
        trips = index_maps.trips(loop, axis.extent, tv)
        if isinstance(known := simplify(trips, self.ranges.facts), Const):
            trips = known
        return [PLoop(index_maps.variables.name(loop), trips, ptype is ParallelType.Unroll, body, loop, index_maps.grid_stride.walk(loop))]

    def _bound_index(self, tv: TensorView, axis: Axis, ptype: ParallelType) -> Expr:
        task = self.tree.place[tv]
        index = hardware_index(ptype) - self.ranges.range(task, ptype).start
        value = self.indexer.index_maps.of(tv).values[axis]
        return simplify(substitute(value, {base_name(ptype, task): index}), self.ranges.facts)

    # -- scopes ---------------------------------------------------------------------------------------------------------------------

    def _guard(self, parent: Node, node: Node, types: tuple[ParallelType, ...]) -> tuple[Expr, ...]:
        """The condition that selects the thread range of ``node`` within ``parent``'s."""
        conds: list[Expr] = []
        for p in types:
            outer, index_range = self.ranges.range(parent, p), self.ranges.range(node, p)
            if outer.extent is index_range.extent and outer.start is index_range.start:
                continue
            index = hardware_index(p)
            conds.append(eq(index, index_range.start) if index_range.extent is ONE else lt(index - index_range.start, index_range.extent))
        return tuple(conds)

    def _scope(self, parent: Group, node: Node, body: list[PNode]) -> PScope:
        return PScope(node, self._guard(parent, node, INDEX_TYPES), body)

    def _branch(self, group: Group, member: Node, body: list[PNode]) -> PScope:
        """One arm of a dispatch: the box on the group's type, then the guard of the thread range inside it."""
        p = group.ptype
        assert p is not None
        box, index_range = self.ranges.box(member, p), self.ranges.range(member, p)
        index = hardware_index(p) - box.start
        if box.extent is ONE:
            select = eq(hardware_index(p), box.start)
        else:
            select = and_(ge(index, 0), lt(index, box.extent))
        guard = self._guard(group, member, tuple(q for q in INDEX_TYPES if q is not p))
        if index_range.extent is not box.extent:
            guard += (lt(index, index_range.extent),)
        inner: list[PNode] = [PScope(member, guard, body)] if guard else body
        return PScope(member, (select,), inner)

    # -- code -----------------------------------------------------------------------------------------------------------------------

    def _code(self, code: StageCode) -> list[PNode]:
        checkpoint()
        match code.stage:
            case Stage.MAIN:
                return list(self.statements.main(code.tv))
            case Stage.INIT:
                loops, wrap = self._own_loops(code.tv, "n")
                return wrap(list(body)) if (body := self.statements.init(code.tv, loops)) else []
            case Stage.RESCALE:
                loops, wrap = self._own_loops(code.tv, "r")
                return wrap(self.statements.rescale(code.tv, loops))
            case Stage.FINISH:
                return self._finish([code.tv])

    def _finish(self, ended: Sequence[TensorView]) -> list[PNode]:
        """The last stage of reductions that end after one loop."""
        done: list[PNode] = [PSync((WaitGroup(queue, 0),), tv) for tv in ended if (queue := queue_of(tv)) is not None]
        return done + finish(self.statements, [(tv, self._own_loops(tv, "f")[0]) for tv in ended])

    def _own_loops(self, tv: TensorView, mark: str) -> tuple[dict[Axis, Expr], _Wrap]:
        """Loops over the axes of a result that stand inside the outermost loop along which it accumulates, for INIT, RESCALE and FINISH.

        RESCALE stands inside that loop, and knows its variable.
        """
        expr = self.statements.definition(tv)
        first = first_accumulated(expr)
        assert first is not None
        names: dict[Axis, Expr] = {}
        fresh: list[tuple[str, Axis]] = []
        for d, (a, loop) in enumerate(zip(tv.loop, self.indexer.shared_loops.path[tv], strict=True)):
            if d == first and mark == "r":
                names[a] = self.indexer.index_maps.variables.symbol(loop)
            if not tv.schedule.ptype(a).is_loop or accumulates(expr, a):
                continue
            if d < first:
                names[a] = self.indexer.index_maps.variables.symbol(loop)
            else:
                name = f"{self.indexer.index_maps.variables.name(loop)}{mark}"
                names[a] = sym(name)
                fresh.append((name, a))
        return names, _Wrap(tuple(fresh), tv)


@dataclass(frozen=True, slots=True, eq=False)
class _Wrap:
    """Puts loops around nodes."""

    loops: tuple[tuple[str, Axis], ...]
    tv: TensorView

    def __call__(self, nodes: list[PNode]) -> list[PNode]:
        for name, axis in reversed(self.loops):
            nodes = [PLoop(name, axis.extent, self.tv.schedule.ptype(axis) is ParallelType.Unroll, nodes)]
        return nodes
