"""Register budgets of roles (law 10, docs/tasks-and-groups.md).

Over all warpgroups of the block, those without a budget at their launch size, the budgets sum to at most what the launch gives; once per
role, on a dispatch under no loop, whole warpgroups.
"""

from __future__ import annotations

import warnings

from taskfuse.errors import LoweringError, TaskfuseWarning
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const
from taskfuse.ir.tasks import CHOSEN, Group, Node
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.nodes import TmaLoad, TmaStore
from taskfuse.kir.synchronization import SetMaxNReg
from taskfuse.lowering.plan import PDispatch, PLoop, PNode, PScope, PSync, children, statements
from taskfuse.lowering.thread_ranges import ThreadRanges
from taskfuse.target import WARPGROUP, launch_registers

FEW = 32
"""The most registers of a role that only starts bulk copies. It has fewer if others then have more: beside two warpgroups that keep 240 each
it has 24, beside three with 160 it has 32, for a launch with 168 or 128 each (CUTLASS gives its producers 40 and 32). Copies to
other blocks exclude the minimum: with 24 ptxas spills their addresses.
"""
SOME = 72
"""Registers of a role whose threads move elements and keep few: addresses, and loads in flight. Two other warpgroups then keep 216 each, three 144."""
STEP, FEWEST, MOST = 8, 24, 240


def _words(b: Buffer) -> int:
    """32-bit words of a Local buffer."""
    size = 1
    for e in b.shape:
        size *= e.value if isinstance(e, Const) else 0
    return -(-size * b.dtype.bits // 32)


def _used(nodes: list[PNode]) -> set[str]:
    """The buffers that code uses."""
    return {a.buffer for s in statements(nodes) for a in (*s.writes, *s.reads)}


def _leaves_all_to_the_engine(nodes: list[PNode]) -> bool:
    """True if code has threads move no element: it only starts bulk copies."""
    return all(isinstance(s.stmt, TmaLoad | TmaStore) for s in statements(nodes))


def _reaches_other_blocks(nodes: list[PNode]) -> bool:
    """True if loads of code go to several blocks of the cluster."""
    return any(isinstance(s.stmt, TmaLoad) and bool(s.stmt.across) for s in statements(nodes))


class RegisterBudgets:
    """Checks the budgets of one plan, determines the chosen ones, and inserts ``setmaxnreg``.

    Args:
        storage: the buffers of the kernel, which show which roles keep many registers.
    """

    def __init__(self, ranges: ThreadRanges, storage: list[Buffer]) -> None:
        self.ranges = ranges
        self._words = {b.name: _words(b) for b in storage if not MEDIA[b.memory].has_addresses}
        self._roles: list[tuple[PScope, int]] = []
        self._group: Group | None = None
        self._seen: set[Node] = set()

    def insert(self, plan: list[PNode]) -> None:
        """Insert them. Raises :class:`LoweringError` if a budget cannot be kept; warns where one is omitted because whole warpgroups cannot be proved."""
        self._visit(plan, None, False)
        for node in self.ranges.fusion.tasks.nodes:
            if node.budget is not None and node not in self._seen:
                raise LoweringError(
                    what=node.name,
                    reason=f"registers({node.budget}): it is not a member of a parallelized group",
                    help="give the budget to a role: a member of a vertical group",
                    location=node.location,
                )
        threads = self.ranges.threads
        if not isinstance(threads, Const):
            for scope, _ in self._roles:
                if scope.node.budget:
                    warnings.warn(
                        TaskfuseWarning(f"registers({scope.node.budget}) of {scope.node.name} is omitted: the shape of a block is not constant"), stacklevel=3
                    )
            return
        at_launch = launch_registers(threads.value * self.ranges.fusion.residents)
        groups = threads.value // WARPGROUP
        chosen = self._choose(at_launch)
        given = [(scope, count, n) for scope, n in self._roles if (count := scope.node.budget or chosen.get(scope.node)) is not None]
        for scope, count, _ in given:
            scope.body.insert(0, PSync((SetMaxNReg(count),), scope.node))
        total = sum(count * n for _, count, n in given) + at_launch * (groups - sum(n for _, _, n in given))
        if total > at_launch * groups:
            raise LoweringError(
                what=self.ranges.fusion.name,
                reason=f"the roles' registers sum to {total} over {groups} warpgroups; the launch gives {at_launch} to each, {at_launch * groups} in all",
                notes=tuple(f"{scope.node.name}: {count} registers, {n} warpgroups" for scope, count, n in given),
                help="give the roles that move data fewer registers",
            )

    def _choose(self, at_launch: int) -> dict[Node, int]:
        """The budgets to choose: for roles that keep no more than ``FEW`` words, at most so many registers, or ``SOME`` if their threads move elements; the
        rest in equal parts for the others. None where these would not get more than they have at launch.

        Args:
            at_launch: registers per thread that the launch gives.
        """
        open_roles = [(scope, n) for scope, n in self._roles if scope.node.budget == CHOSEN]
        words = {scope.node: sum(self._words.get(name, 0) for name in _used(scope.body)) for scope, _ in open_roles}
        most = max(words.values(), default=0)
        light = {scope.node: _leaves_all_to_the_engine(scope.body) for scope, _ in open_roles if words[scope.node] <= FEW < most}
        left = sum((at_launch - (scope.node.budget or 0)) * n for scope, n in self._roles)
        heavy = sum(n for scope, n in open_roles if scope.node not in light)

        def share_beside(few: int) -> int:
            rest = left - sum((few if light[scope.node] else SOME) * n for scope, n in open_roles if scope.node in light)
            return min(max(rest // max(heavy, 1) // STEP * STEP, FEWEST), MOST)

        least = FEW if any(_reaches_other_blocks(scope.body) for scope, _ in open_roles) else FEWEST
        share, few = max((share_beside(few), few) for few in (least, FEW))
        if share <= at_launch and at_launch * sum(n for _, n in open_roles) <= left:
            return {}
        return {scope.node: share if (bulk := light.get(scope.node)) is None else few if bulk else SOME for scope, _ in open_roles}

    def _visit(self, nodes: list[PNode], holder: Node | None, in_loop: bool) -> None:
        for n in nodes:
            if isinstance(n, PDispatch):
                for m in n.members:
                    self._role(n.group, m, holder, in_loop)
            else:
                for block in children(n):
                    self._visit(block, holder, in_loop or isinstance(n, PLoop))

    def _role(self, group: Group, scope: PScope, holder: Node | None, in_loop: bool) -> None:
        budget = scope.node.budget
        if budget is None:
            self._visit(scope.body, holder, in_loop)
            return
        self._seen.add(scope.node)
        if holder is not None or in_loop:
            why = f"{holder.name} around it has a budget already" if holder is not None else "its dispatch stands under a loop"
            help = "give one budget per role, where the role begins"
            raise LoweringError(what=scope.node.name, reason=f"registers({budget}): {why}", help=help, location=scope.node.location)
        if self._group not in (None, group):
            raise LoweringError(
                what=scope.node.name,
                reason=f"registers({budget}): a warpgroup changes its registers once, and roles of {self._group.name} have budgets already",
                help="give budgets to the roles of one group",
                location=scope.node.location,
            )
        self._group = group
        self._visit(scope.body, scope.node, in_loop)
        frame = self.ranges.frame(group, scope.node)
        threads = self.ranges.threads_of(frame)
        if self.ranges.are_aligned(frame, WARPGROUP) and isinstance(threads, Const):
            self._roles.append((scope, threads.value // WARPGROUP))
        elif budget != CHOSEN:
            warnings.warn(TaskfuseWarning(f"registers({budget}) of {scope.node.name} is omitted: its threads are not provably whole warpgroups"), stacklevel=3)
