"""Register budgets of roles (law 10, docs/tasks-and-groups.md).

Over all warpgroups of the block, those without a budget at their launch size, the budgets sum to at most what the launch gives; once per
role, on a dispatch under no loop, whole warpgroups.
"""

from __future__ import annotations

import warnings

from taskfuse.errors import LoweringError, TaskfuseWarning
from taskfuse.ir.scalar import Const
from taskfuse.ir.tasks import Group, Node
from taskfuse.kir.limits import WARPGROUP, launch_registers
from taskfuse.kir.nodes import SetMaxNReg
from taskfuse.lowering.plan import PDispatch, PLoop, PNode, PScope, PSync, children
from taskfuse.lowering.regions import Regions


class Registers:
    """Checks the budgets of one plan and inserts ``setmaxnreg``."""

    def __init__(self, regions: Regions) -> None:
        self.regions = regions
        self._given: list[tuple[Node, int, int]] = []
        self._seen: set[Node] = set()

    def insert(self, plan: list[PNode]) -> None:
        """Raises :class:`LoweringError` if a budget cannot be kept; warns where it is left out because whole warpgroups can't be proved."""
        self._visit(plan, None, False)
        for node in self.regions.fusion.tasks.nodes:
            if node.budget is not None and node not in self._seen:
                raise LoweringError(
                    what=node.name,
                    reason=f"registers({node.budget}): it is no member of a parallelized group",
                    help="give the budget to a role: a member of a vertical group",
                    location=node.location,
                )
        threads = self.regions.threads
        if not self._given or not isinstance(threads, Const):
            return
        at_launch = launch_registers(threads.value)
        groups = threads.value // WARPGROUP
        total = sum(count * n for _, count, n in self._given) + at_launch * (groups - sum(n for _, _, n in self._given))
        if total > at_launch * groups:
            raise LoweringError(
                what=self.regions.fusion.name,
                reason=f"the roles' registers sum to {total} over {groups} warpgroups; the launch gives {at_launch} to each, {at_launch * groups} in all",
                notes=tuple(f"{node.name}: {count} registers, {n} warpgroups" for node, count, n in self._given),
                help="give the roles that move data fewer registers",
            )

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
        self._visit(scope.body, scope.node, in_loop)
        frame = self.regions.frame(group, scope.node)
        threads = self.regions.threads_of(frame)
        if self.regions.are_aligned(frame, WARPGROUP) and isinstance(threads, Const):
            scope.body.insert(0, PSync((SetMaxNReg(budget),)))
            self._given.append((scope.node, budget, threads.value // WARPGROUP))
        else:
            warnings.warn(TaskfuseWarning(f"registers({budget}) of {scope.node.name} is left out: its threads are not provably whole warpgroups"), stacklevel=3)
