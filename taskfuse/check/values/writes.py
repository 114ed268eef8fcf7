"""The writes of a kernel that claim a tensor and an element."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from taskfuse.check.statement_tree import Node, StatementTree
from taskfuse.check.values.claims import Instructions, Place
from taskfuse.check.values.overlaid_storage import OverlaidStorage
from taskfuse.check.values.questions import inside, known_at, proves
from taskfuse.check.values.read_elements import ReadElements
from taskfuse.check.values.solve import Open
from taskfuse.check.values.written import BufferStorage
from taskfuse.dtypes import DType
from taskfuse.ir.scalar import TRUE, Const, Expr, conjuncts, not_, substitute
from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES, MemoryType
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.nodes import TmaLoad
from taskfuse.kir.operands import Content, Holds
from taskfuse.kir.witness import Definition, Send, Whole

VALUE, BODY = Content.VALUE, Content.BODY
CLAIMED = frozenset((VALUE, BODY, Content.ZERO))
"""What is claimed element by element, not as a part of a result."""


class Writes:
    """The writes of a kernel: which elements of which tensors, and where.

    Attributes:
        claims: buffer -> the writes of elements and bodies, in the order of the text.
        storages: layouts of buffers and arguments.
        definitions: definitions of the tensors.
        inputs: the inputs, which no statement writes.
        read_elements: the conditions of elements that are read.
        updated: tensors with parts that are sent to them: none of their elements is one of a part.
    """

    def __init__(self, tree: StatementTree, instructions: Instructions) -> None:
        kernel = tree.kernel
        self.tree = tree
        self.overlaid = OverlaidStorage(tree)
        self._instructions = instructions
        self.claims: dict[str, list[Place]] = {}
        self.definitions: dict[str, Definition] = {d.tensor: d for d in kernel.definitions}
        self.read_elements = ReadElements(self.definitions, (p.name for p in kernel.outputs))
        self.inputs = {p.name: p for p in kernel.params if isinstance(p, TensorParam) and not p.is_output}
        self.storages = {b.name: BufferStorage(b.memory, b.shape, b.dtype.itemsize) for b in kernel.buffers}
        tensors = MemoryType.Global
        self.storages |= {p.name: BufferStorage(tensors, p.shape, p.dtype.itemsize) for p in kernel.params if isinstance(p, TensorParam)}
        wholes = [(d.tensor, d.rule) for d in kernel.definitions if isinstance(d.rule, Whole)]
        sent = {d.tensor for d in kernel.definitions if isinstance(d.rule, Send)}
        self.updated = frozenset(name for name, rule in wholes if not sent.isdisjoint(rule.parts))
        self._wholes = {
            part: (name, place, condition)
            for name, rule in wholes
            if name not in self.updated
            for part, place, condition in zip(rule.parts, rule.places, rule.conditions, strict=True)
        }

    def claim(self, node: Node, holds: Holds) -> Place:
        """Add a write."""
        place = self._instructions.written(node, holds)
        self.check_part(place, ())
        place = self.whole(place)
        stmt = node.stmt
        if isinstance(stmt, TmaLoad) and stmt.across:
            types = zip(BLOCK_TYPES, CLUSTER_TYPES, self.tree.kernel.cluster, strict=True)
            issuers = ((f"{b.index_name}.issuer", c.value) for b, t, c in types if t in stmt.across and isinstance(c, Const))
            place = replace(place, points=(*place.points, *issuers))
        if holds.content in CLAIMED:
            self.claims.setdefault(place.buffer, []).append(place)
        return place

    def whole(self, place: Place, given: Iterable[Expr] = ()) -> Place:
        """The elements as those of the outermost tensor of which theirs is a part."""
        while (outer := self._outer(place, given)) is not None:
            place = outer
        return place

    def _outer(self, place: Place, given: Iterable[Expr]) -> Place | None:
        """The same elements as those of what their tensor is a part of; ``None`` if it is a part of nothing, or some may not belong to it.

        Where not all elements of a part belong to the whole, this is asked in the whole's own array; in others they are the part's.
        """
        if place.content is not VALUE or place.tensor not in self._wholes:
            return None
        tensor, at, condition = self._wholes[place.tensor]
        point = {f"i{k}": e for k, e in enumerate(place.element)}
        if condition is not TRUE:
            if place.buffer != self._outermost(tensor):
                return None
            known = known_at(place).given(*given, *inside(place.element, self.shape(place.tensor)))
            if not all(proves(known, c) for c in conjuncts(substitute(condition, point))):
                return None
        return replace(place, tensor=tensor, element=tuple(substitute(e, point) for e in at))

    def _outermost(self, tensor: str) -> str:
        while tensor in self._wholes:
            tensor = self._wholes[tensor][0]
        return tensor

    def check_part(self, place: Place, given: Iterable[Expr]) -> None:
        """Past the end of a part, its whole has no element, which would be another part's. Raises :class:`Open`."""
        given = tuple(given)
        while (whole := self._outer(place, given)) is not None:
            around = known_at(place).given(*given)
            others = inside(whole.element, self.shape(whole.tensor))
            for c in inside(place.element, self.shape(place.tensor)):
                behind = around.given(not_(c)) if not proves(around, c) else None
                if behind is not None and not behind.empty and not any(proves(behind, not_(o)) for o in others):
                    raise Open(f"it may be past the end of {place.tensor}, where {whole.tensor} has elements of another part", place.node)
            place = whole

    def dtype(self, tensor: str) -> DType:
        """The dtype of a tensor's elements."""
        return self.inputs[tensor].dtype if tensor in self.inputs else self.definitions[tensor].dtype

    def shape(self, tensor: str, content: Content = VALUE) -> tuple[Expr, ...]:
        """The extents of a tensor, or of its iteration space."""
        if tensor in self.inputs:
            return self.inputs[tensor].shape
        d = self.definitions[tensor]
        return d.space if content is BODY else d.shape
