"""``fusion.partition()``: tasks and groups for a fusion, with the estimate behind each group.

A set of tensors without a path that leaves it and comes back is one task, or is partitioned in one of three ways whose parts are such sets again:

- parts that do not depend on each other, side by side: *horizontal*;
- an expression that reads different tensors at different points, after a group of their producers side by side: *vertical*;
- a reduction that reads its operands many times, after a role that loads them: *vertical*; everything that follows runs in the consuming role.

The laws of tasks and groups hold by construction. Parts without dependencies are always separated; roles, which wait for each other and pass data
through Shared memory, only where they are expected to save time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod

from taskfuse.errors import TaskError
from taskfuse.ir.connectivity import components
from taskfuse.ir.expr import MathExpr, Pointwise, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.partition import Part, Partition, ProposedGroup, ProposedTask, RejectedGroup
from taskfuse.ir.scalar import TRUE
from taskfuse.ir.storage import storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.location import caller
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.partition import Proposal
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import DEFAULT, Target

Tensors = tuple[TensorView, ...]

LEVELS = (ParallelType.TIDy, ParallelType.TIDz)
"""Of groups on threads within each other, from the innermost on; ``TIDx`` is left to the axes of tensors."""
LEAST_REUSE = 16
"""How often each element of an operand is read where a role of its own is to bring it: rows, or columns, of the smallest tile."""
PAYS = 1.05
"""The least expected speedup for which roles are proposed."""
INDEPENDENT = "parts that do not depend on each other"


def partition(fusion: Fusion, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Partition:
    """Propose tasks and groups for a fusion; see :meth:`Fusion.partition`."""
    if fusion.tasks.nodes:
        name = fusion.tasks.nodes[0].name
        raise TaskError(node=name, reason=f"fusion '{fusion.name}' has tasks already", help="partition it before its first task is made", location=caller())
    return _PartitionSearch(fusion, sizes, target).run()


class _PartitionSearch:
    """One proposal in progress."""

    def __init__(self, fusion: Fusion, sizes: Mapping[str, int] | None, target: Target) -> None:
        self.fusion = fusion
        self.number = Sizes(fusion, sizes, target)
        self.target = self.number.target
        self.exprs: dict[TensorView, MathExpr] = {e.output: e for e in fusion.exprs() if not fusion.is_view(e.output)}
        self.reads = {tv: storage_reads(fusion, e) for tv, e in self.exprs.items()}
        self.rejected: list[RejectedGroup] = []
        self._numbers: dict[str, int] = {}

    def run(self) -> Proposal:
        if not self.exprs:
            raise TaskError(node=f"fusion '{self.fusion.name}'", reason="it computes nothing", help="add an output first", location=caller())
        return Proposal(self.fusion, copy_fusion(self.fusion)[0], self._part(tuple(self.exprs), ParallelType.BIDx), tuple(self.rejected))

    def _name(self, prefix: str) -> str:
        """``t1``, ``t2``, ...; a role is numbered from the second of its name on."""
        while True:
            number = self._numbers[prefix] = self._numbers.get(prefix, 0) + 1
            name = f"{prefix}{number}" if prefix in ("t", "group") or number > 1 else prefix
            if not any(tv.name == name for tv in self.fusion.tensors()):
                return name

    # -- parts ------------------------------------------------------------------------------------------------------------------------

    def _part(self, tensors: Tensors, outermost: ParallelType | None = None, role: str = "t") -> Part:
        """``outermost``: what the parts of the whole fusion are side by side on."""
        parts = self._independent(tensors)
        if len(parts) > 1:
            members = tuple(self._part(p) for p in parts)
            whole, apart = sum(self._us(p) for p in parts), self._us(tensors, threads=sum(self._threads(p) for p in parts))
            return self._group(members, f"{len(parts)} {INDEPENDENT}", whole, apart, outermost or _next(members))
        return self._behind_loads(tensors) or self._behind_parts(tensors) or self._body(role, tensors)

    def _body(self, role: str, tensors: Tensors, loads: Tensors = ()) -> ProposedTask:
        return ProposedTask(self._name(role), tuple(tv.name for tv in tensors), tuple(x.name for x in loads))

    def _group(self, members: tuple[Part, ...], why: str, whole: float, parts: float, ptype: ParallelType | None) -> ProposedGroup:
        return ProposedGroup(self._name("group"), members, ptype, why, whole, parts)

    def _independent(self, tensors: Tensors) -> list[Tensors]:
        """Parts without dependencies. Those that read one input over the same points are one part: one loop reads it once for all."""
        inside = set(tensors)
        edges = [(r.tensor, tv) for tv in tensors for r in self.reads[tv] if r.tensor in inside]
        first: dict[tuple[TensorView, tuple[int, ...]], TensorView] = {}
        for tv in tensors:
            for read in self.reads[tv]:
                if read.tensor.is_input:
                    edges.append((first.setdefault((read.tensor, self._extents(tv)), tv), tv))
        return [tuple(part) for part in components(tensors, edges)]

    def _behind_parts(self, tensors: Tensors) -> ProposedGroup | None:
        """An expression that reads parts of what it makes from different tensors, with its dependents, after their producers."""
        for tv in tensors:
            sources = {r.tensor for r in self.reads[tv] if r.valid is not TRUE}
            needs = self._needing(tv, tensors)
            before = tuple(t for t in tensors if t not in needs)
            edges = [(r.tensor, t) for t in before for r in self.reads[t] if among(r.tensor, before)]
            parts = [tuple(p) for p in components(before, edges) if sources & set(p)]
            if len(parts) < 2:
                continue
            before = tuple(t for p in parts for t in p)
            behind = tuple(t for t in tensors if not among(t, before))
            why = f"{tv.name} reads {len(parts)} parts at different points, where one body would compute all of them"
            everywhere = sum(self._points(tv) * self._cost(t) for t in before)
            whole = self._us(tensors, ops=everywhere + self._ops(behind))
            apart = self._us(tensors, shared=2 * sum(map(self._bytes, sources & set(before))))
            if not self._pays(why, whole, apart):
                continue
            members = tuple(self._part(p) for p in parts)
            inner = self._group(members, f"{len(parts)} {INDEPENDENT}", sum(map(self._us, parts)), self._us(before), _next(members))
            outer = (inner, self._part(behind))
            return self._group(outer, why, whole, apart, _next(outer))
        return None

    def _behind_loads(self, tensors: Tensors) -> ProposedGroup | None:
        """A reduction that reads each element of its operands many times: a role brings them, another one computes, and what follows in turn."""
        for tv in tensors:
            operands = tuple(dict.fromkeys(r.tensor for r in self.reads[tv]))
            if not isinstance(self.exprs[tv], Reduction) or len(operands) < 2:
                continue
            reuse = min(self._points(tv) / self._size(t) for t in operands)
            if reuse < LEAST_REUSE:
                continue
            before = tuple(t for t in tensors if t is not tv and tv in self._needing(t, tensors))
            after = tuple(t for t in tensors if t is not tv and not among(t, before))
            product = self.target.tensor_us(self._points(tv), operands[0].dtype.itemsize)
            load, math = self._us(before, inputs=operands), max(product, self._us((), shared=2 * sum(map(self._bytes, operands))))
            why = f"{tv.name} reads each element of its operands {reuse:.0f} times or more: one role loads them while another computes"
            loads = tuple(t for t in operands if t.is_input and all(among(reader, tensors) for reader in self._readers(t)))
            if not before and not loads:
                continue
            if not self._pays(why, load + math, max(load, math)):
                continue
            producer = self._body("load", before, loads)
            consumer: Part = self._body("math", (tv,))
            if after:
                rest = self._us(after)
                both = (consumer, self._part(after, role="epilogue"))
                consumer = self._group(both, f"{tv.name} stays in registers for what reads it", math + rest, math + rest, None)
            return self._group((producer, consumer), why, load + math, max(load, math), _next((producer, consumer)))
        return None

    def _pays(self, why: str, whole: float, parts: float) -> bool:
        """Whether roles are expected to pay; rejected groups are recorded."""
        if whole >= PAYS * parts:
            return True
        self.rejected.append(RejectedGroup(why, whole, parts))
        return False

    def _readers(self, tv: TensorView) -> list[TensorView]:
        """The computed tensors that read ``tv``; they all would read its copy."""
        return [t for t, reads in self.reads.items() if any(r.tensor is tv for r in reads)]

    def _needing(self, tv: TensorView, tensors: Tensors) -> set[TensorView]:
        """``tv`` and those of ``tensors`` that depend on it; they stand in an order with producers first."""
        found = {tv}
        for t in tensors:
            if any(r.tensor in found for r in self.reads[t]):
                found.add(t)
        return found

    # -- the estimate -------------------------------------------------------------------------------------------------------------------

    def _extents(self, tv: TensorView) -> tuple[int, ...]:
        return tuple(self.number(a.extent) for a in tv.root)

    def _points(self, tv: TensorView) -> int:
        """Points of the iteration space of its expression."""
        return prod(self._extents(tv))

    def _size(self, tv: TensorView) -> int:
        return prod(map(self.number, tv.shape))

    def _bytes(self, tv: TensorView) -> int:
        return self._size(tv) * tv.dtype.itemsize

    def _cost(self, tv: TensorView) -> int:
        """Instructions per point of its expression."""
        expr = self.exprs[tv]
        return expr.op.instructions if isinstance(expr, Pointwise) else 1

    def _ops(self, tensors: Iterable[TensorView]) -> int:
        return sum(self._points(tv) * self._cost(tv) for tv in tensors)

    def _threads(self, tensors: Sequence[TensorView]) -> int:
        """Points that can be computed concurrently: those of the largest result."""
        return max(map(self._size, tensors), default=self.target.sms * self.target.busy_threads)

    def _us(
        self, tensors: Tensors, *, ops: int | None = None, shared: int = 0, threads: int | None = None, inputs: Collection[TensorView] | None = None
    ) -> float:
        """Microseconds of one body, or of parts that run at once: the most of what its bytes take in DRAM and in Shared memory, and its operations.

        Args:
            ops: instructions; those of ``tensors`` at their points if ``None``.
            shared: bytes that go through Shared memory.
            threads: that are at work; the points of the largest tensor if ``None``.
            inputs: that are read; those of ``tensors`` if ``None``.
        """
        given = {r.tensor for tv in tensors for r in self.reads[tv] if r.tensor.is_input} if inputs is None else {x for x in inputs if x.is_input}
        moved = sum(map(self._bytes, given)) + sum(self._bytes(tv) for tv in tensors if tv.is_output)
        work = self._ops(tensors) if ops is None else ops
        target = self.target
        busy = target.fill(self._threads(tensors) if threads is None else threads)
        return max(target.dram_us(moved), target.issue_us(work), shared / (target.shared_bytes_per_cycle * target.cycles_per_us)) / busy


def _next(members: Sequence[Part]) -> ParallelType | None:
    """The index type of a group on threads around ``members``: the first that none of them has; ``None`` if all are taken."""
    depth = max(map(_depth, members))
    return LEVELS[depth] if depth < len(LEVELS) else None


def _depth(part: Part) -> int:
    """How many of :data:`LEVELS` a part has within it."""
    if isinstance(part, ProposedTask):
        return 0
    inner = max(map(_depth, part.members))
    return inner if part.ptype is None else inner + 1
