"""Outputs are covered: every element is stored at its own index.

Two threads never store one element: that would be a race. A thread may store an element again: each time, the value is right.
"""

from __future__ import annotations

from taskfuse.check.bounds import at_least
from taskfuse.check.row_tiles import belonging
from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.claims import Instructions, Place
from taskfuse.check.values.cover import covered
from taskfuse.check.values.questions import equal, inside, known_at, nonempty
from taskfuse.check.values.runs import stores
from taskfuse.check.values.solve import Open
from taskfuse.check.values.writes import Writes
from taskfuse.ir.scalar import TRUE, Expr, const
from taskfuse.kir.operands import Content, Holds
from taskfuse.kir.witness import Whole


class Outputs:
    """The outputs of a kernel."""

    def __init__(self, tree: StatementTree, writes: Writes, instructions: Instructions) -> None:
        self.tree = tree
        self.writes = writes
        self.instructions = instructions
        self._stores: dict[tuple[str, str], list[Place]] = {}
        self._belonging = belonging(tree.kernel)

    def enter(self, place: Place, holds: Holds) -> None:
        """Add a write to an output, as a write of the tensor that the statement names. Raises :class:`Open`."""
        if holds.content is not Content.VALUE:
            raise Open(f"it stores no element of {holds.tensor}", place.node)
        own = self.instructions.written(place.node, holds)
        self._stores.setdefault((place.buffer, holds.tensor), []).append(own)

    def check(self, name: str) -> None:
        """Every element of an output is stored. Raises :class:`Open`."""
        self._check(name, name)

    def _check(self, output: str, name: str) -> None:
        """Every element of a tensor is stored in the array of an output that it is, or is a part of: elsewhere it may be stored, too."""
        definition = self.writes.definitions.get(name)
        if definition is None:
            raise Open(f"{name} has no definition")
        places = self._stores.get((output, name), [])
        if isinstance(definition.rule, Whole):
            for part in definition.rule.parts:
                self._check(output, part)
            if places:
                raise Open(f"{name} is stored by itself and in parts", places[0].node)
            return
        if any(e is const(0) for e in definition.shape):
            return
        launched(self.tree, name, definition.shape)
        visits = [stores(self.tree, place, definition.shape, self._belonging.get(place.tensor, TRUE)) for place in places]
        if not visits:
            raise Open(f"{name} is never stored")
        known = self.tree.root.context.constraints
        covered(visits, definition.shape, known.given(*nonempty(definition.shape, known.ranges)), again=True)

    def identity(self, place: Place) -> None:
        """An element of an output is stored at its own index, wherever that is inside it (:mod:`taskfuse.check.bounds`). Raises :class:`Open`."""
        if place.tensor in self._belonging:
            raise Open(f"it may store an element of {place.tensor} that does not belong to {place.buffer}", place.node)
        if place.tensor != place.buffer:
            raise Open(f"it stores {place.tensor} in {place.buffer}", place.node)
        constraints = known_at(place).given(*inside(place.index, self.writes.shape(place.tensor)))
        for k, (e, wanted) in enumerate(zip(place.index, place.element, strict=True)):
            if not equal(constraints, e, wanted):
                raise Open(f"it stores element {wanted} of {place.tensor} at index {e} of {place.buffer} on axis {k}", place.node)


def launched(tree: StatementTree, name: str, shape: tuple[Expr, ...]) -> None:
    """There are blocks and threads wherever a tensor has elements. Raises :class:`Open`."""
    kernel, context = tree.kernel, tree.declared
    context = context.under(nonempty(shape, context.ranges))
    for e, what in (*((e, "blocks") for e in kernel.grid), *((e, "threads") for e in kernel.block)):
        if not at_least(e, 1, context):
            raise Open(f"{name} may have elements although there are no {what}: {e} is not known to be at least 1")
