"""Plans put together by hand, of a fusion of two roles."""

from __future__ import annotations

from dataclasses import dataclass

import taskfuse as tf
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import ZERO, Expr, Facts, const, eq, sym
from taskfuse.ir.tasks import Group, Task
from taskfuse.ir.types import ParallelType as P
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import Access
from taskfuse.kir.synchronization import Barrier, BarrierScope
from taskfuse.lowering.plan import PNode, PScope, PStmt, PSync
from taskfuse.schedule.shared_loops import Loop


@dataclass(frozen=True)
class Roles:
    """``a = -x`` in task ``load``, ``b = a + 1`` in task ``use``; both in group ``roles``."""

    fusion: tf.Fusion
    a: tf.TensorView
    b: tf.TensorView
    load: Task
    use: Task
    group: Group

    def step(self, tv: tf.TensorView, index: Expr = ZERO, *guards: Expr) -> PStmt:
        """Code of ``a`` or ``b`` at an index."""
        task = self.load if tv is self.a else self.use
        out, source = Access(tv.name, (index,)), Access("x" if tv is self.a else self.a.name, (index,))
        return PStmt(tv, task, Compute(out, ELEMENTWISE["neg"], (source,), tf.float32), guards, Facts(), (out,), (source,))

    def load_scope(self, *body: PNode) -> PScope:
        """The arm of the first role."""
        return PScope(self.load, (eq(sym(P.TIDy.index_name), 0),), list(body))

    def use_scope(self, *body: PNode) -> PScope:
        """The arm of the second role."""
        return PScope(self.use, (eq(sym(P.TIDy.index_name), 1),), list(body))

    def loop(self, number: int = 0) -> Loop:
        """A loop of the nest."""
        return Loop(number, 0, {self.a: self.a.loop[0], self.b: self.b.loop[0]})


def roles() -> Roles:
    """The fusion, on one line of the user's each."""
    with tf.Fusion("roles") as fusion:
        x = tf.define_tensor([8], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    load = fusion.task([a], "load")
    use = fusion.task([b], "use")
    group = fusion.group([load, use], "roles")
    group.parallelize(P.TIDy)
    return Roles(fusion, a, b, load, use, group)


def barrier(of: tf.TensorView) -> PSync:
    """A barrier of the block."""
    return PSync((Barrier(BarrierScope.BLOCK, const(64)),), of, is_barrier=True)
