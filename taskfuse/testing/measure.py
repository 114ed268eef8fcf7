"""Coverage of a run of random cases: the distribution shows whether the generators still reach every feature."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from taskfuse.ir.axes import Split, Swizzle
from taskfuse.ir.expr import Scan
from taskfuse.ir.scalar import evaluate
from taskfuse.ir.tasks import Group, Node
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.kir import walk
from taskfuse.kir.nodes import For, GatherCopy, TmaLoad, TmaStore
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import Acquire, Barrier, Wait
from taskfuse.testing.case import Case
from taskfuse.testing.mechanisms import CALLS, mechanisms
from taskfuse.testing.partitions import is_vertical

BUCKETS = (0, 1, 2, 3, 5, 9, 17, 33, 65, 129, 257)


@dataclass(slots=True)
class Distribution:
    """Counts over cases.

    Attributes:
        cases, lowered, crashed: number of cases, of cases with a kernel, and of cases with an error that is not a refusal.
        made, refused: scheduling and op calls by name.
        refusals: why cases did not lower, without numbers.
        features: per feature, the number of lowered cases that have it.
        counts: per quantity, the number of cases for each value.
        drawn, kept: per mechanism, the number of cases that use it, and the number of these that lower with it.
    """

    cases: int = 0
    lowered: int = 0
    crashed: int = 0
    made: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    refusals: Counter[str] = field(default_factory=Counter[str])
    features: Counter[str] = field(default_factory=Counter[str])
    counts: dict[str, Counter[int]] = field(default_factory=dict[str, Counter[int]])
    drawn: Counter[str] = field(default_factory=Counter[str])
    kept: Counter[str] = field(default_factory=Counter[str])

    def add(self, case: Case) -> None:
        """Count a case."""
        self.cases += 1
        self.made += case.made
        self.refused += case.refused
        drawn = {*case.drawn, *(f"{name}()" for name in CALLS if case.made[name])}
        self.drawn.update(drawn)
        if case.kernel is not None:
            self.kept.update(drawn & {*mechanisms(case.fusion), *(f"{name}()" for name in CALLS)})
        if case.outcome.crash is not None:
            self.crashed += 1
        if case.outcome.refusal is not None:
            self.refusals[_shape_of(case.outcome.refusal.message)] += 1
        if case.kernel is not None:
            self.lowered += 1
            self.features.update(name for name, present in _features(case).items() if present)
            for name, value in _quantities(case).items():
                self.counts.setdefault(name, Counter())[value] += 1

    def join(self, other: Distribution) -> None:
        """Add the counts of another run."""
        self.cases += other.cases
        self.lowered += other.lowered
        self.crashed += other.crashed
        for name, counter in other.counts.items():
            self.counts.setdefault(name, Counter()).update(counter)
        for mine, more in (
            (self.made, other.made),
            (self.refused, other.refused),
            (self.refusals, other.refusals),
            (self.features, other.features),
            (self.drawn, other.drawn),
            (self.kept, other.kept),
        ):
            mine.update(more)

    def table(self) -> str:
        """One row per mechanism: cases that use it, cases that lower with it, and their share."""
        lines = [f"{'mechanism':45} {'drawn':>6} {'lower':>6} share"]
        lines += [f"{name:45} {n:6} {self.kept[name]:6} {100 * self.kept[name] / n:4.0f}%" for name, n in sorted(self.drawn.items())]
        return "\n".join(lines)

    def share(self, feature: str) -> float:
        """The fraction of lowered cases that have a feature."""
        return self.features[feature] / max(self.lowered, 1)

    def text(self, refusals: int = 8) -> str:
        """A readable report; it lists the ``refusals`` most common reasons."""
        calls, no = sum(self.made.values()), sum(self.refused.values())
        lines = [
            f"{self.cases} cases, {self.lowered} lower ({100 * self.lowered / max(self.cases, 1):.0f}%), {self.crashed} crash",
            f"{calls} calls, {no} more refused ({100 * no / max(calls + no, 1):.0f}%)",
            "most often refused: " + ", ".join(f"{name} {n}/{n + self.made[name]}" for name, n in self.refused.most_common(6)),
        ]
        lines += [f"  {n:5} {reason}" for reason, n in self.refusals.most_common(refusals)]
        lines.append("share of the cases that lower with:")
        lines += [f"  {100 * n / max(self.lowered, 1):5.1f}% {name}" for name, n in sorted(self.features.items(), key=lambda item: -item[1])]
        lines.append("cases by quantity:")
        for name, counter in self.counts.items():
            buckets = Counter({low: 0 for low in BUCKETS})
            for value, n in counter.items():
                buckets[max(low for low in BUCKETS if low <= value)] += n
            shown = [(low, high, buckets[low]) for low, high in zip(BUCKETS, (*BUCKETS[1:], None), strict=True) if buckets[low]]
            lines.append(f"  {name}: " + ", ".join(f"{_range(low, high)}: {n}" for low, high, n in shown))
        return "\n".join((*lines, self.table()))


def _range(low: int, high: int | None) -> str:
    return f"{low}+" if high is None else str(low) if high == low + 1 else f"{low}-{high - 1}"


def _shape_of(message: str) -> str:
    """A message without names and numbers, so that similar messages count as one."""
    words = ["#" if any(c.isdigit() for c in word) else word for word in message.split()]
    return " ".join(words)[:110]


def _levels(node: Node) -> int:
    """Nested groups of at least two members."""
    return max((_levels(m) for m in node.members), default=0) + (len(node.members) > 1) if isinstance(node, Group) else 0


def _parallel_levels(node: Node) -> int:
    if not isinstance(node, Group):
        return 0
    return max((_parallel_levels(m) for m in node.members), default=0) + (node.ptype is not None and len(node.members) > 1)


def _repeats(node: Node, above: frozenset[ParallelType]) -> bool:
    """One type on several nested groups."""
    if not isinstance(node, Group):
        return False
    if node.ptype is not None and len(node.members) > 1:
        if node.ptype in above:
            return True
        above |= {node.ptype}
    return any(_repeats(m, above) for m in node.members)


def _groups(case: Case) -> list[Group]:
    return [g for g in case.fusion.tasks.groups() if g.ptype is not None and len(g.members) > 1]


def _features(case: Case) -> dict[str, bool]:
    fusion, sizes, kernel = case.fusion, case.sizes, case.kernel
    assert kernel is not None
    tensors = fusion.tensors()
    transforms = [t for tv in tensors for t in tv.schedule.transforms]
    splits = [(int(evaluate(t.source.extent, sizes)), int(evaluate(t.inner.extent, sizes))) for t in transforms if isinstance(t, Split)]
    ptypes = [p for tv in tensors for a in tv.loop for p in (tv.schedule.ptype(a),)]
    groups = _groups(case)
    extents = [int(evaluate(e, sizes)) for tv in fusion.inputs for e in tv.shape]
    vertical = [g for g in groups if is_vertical(g)]
    statements = list(walk(kernel))
    shuffled = {s.out.buffer.removesuffix(".peer") for s in statements if isinstance(s, Shuffle)}
    return {
        "a parallel vertical group": bool(vertical),
        "a parallel horizontal group": len(vertical) < len(groups),
        "a horizontal group on a block type": any(g.ptype is not None and g.ptype.is_block and not is_vertical(g) for g in groups),
        "both kinds, nested": any(is_vertical(g) != is_vertical(h) and _is_inside(h, g) for g in groups for h in groups),
        "one type at several levels": _repeats(fusion.tasks.root, frozenset()),
        "3 levels of groups or more": _levels(fusion.tasks.root) >= 3,
        "a channel": bool(_channels(case)),
        "a channel between blocks": bool(kernel.semaphores),
        "channels between blocks and between threads": bool(kernel.semaphores) and any(m.name.endswith(".full") for m in kernel.mbarriers),
        "blocks with rings of their own": any(len(s.shape) > 1 for s in kernel.semaphores),
        "a distributed channel": any(m.name.endswith(".order") for m in kernel.mbarriers),
        "a ring of 2 slots or more": any(n > 1 for n in _rings(case)),
        "a ring that its role fills ahead": any(isinstance(s, For) and s.var.endswith(".p") for s in statements),
        "a split that does not divide": any(f > 0 and n % f for n, f in splits),
        "a tile larger than its axis": any(n < f for n, f in splits),
        "a swizzle": any(isinstance(t, Swizzle) for t in transforms),
        "axes bound to threads": any(p.is_thread for p in ptypes),
        "axes bound to blocks": any(p.is_block for p in ptypes),
        "axes bound to blocks of a cluster": any(p.is_cluster for p in ptypes),
        "several axes on one type": any(sum(tv.schedule.ptype(a) is p for a in tv.loop) > 1 for tv in tensors for p in set(ptypes) if p.is_bound),
        "Vectorize": ParallelType.Vectorize in ptypes,
        "Unroll": ParallelType.Unroll in ptypes,
        "shared loops": any(tv.schedule.inline for tv in tensors),
        "a symbolic dimension": bool(sizes),
        "an extent of 0": 0 in extents,
        "a gather": any(isinstance(s, GatherCopy) for s in statements),
        "a scan": any(isinstance(e, Scan) for e in fusion.exprs()),
        "a reduction": any(a.is_reduction for tv in tensors for a in tv.root),
        "a thread or block reduction": any(a.is_reduction and tv.schedule.ptype(a).is_bound for tv in tensors for a in tv.loop),
        "several digits reduced across threads": any(sum(a.is_reduction and tv.schedule.ptype(a).is_thread for a in tv.loop) > 1 for tv in tensors),
        "a reduction by shuffles": bool(shuffled),
        "a reduction by shuffles in a horizontal group": any(tv.name in shuffled and _in_horizontal(case, tv) for tv in tensors),
        "partial results of several warps": bool(shuffled) and any(isinstance(s, For) and s.var == "part.k" for s in statements),
        "a grid-stride loop": any(isinstance(s, For) and any(name.startswith("blockIdx") for name in s.stop.free) for s in statements),
        "a bulk load": any(isinstance(s, TmaLoad) for s in statements),
        "a bulk store": any(isinstance(s, TmaStore) for s in statements),
        "Shared memory": any(b.memory is MemoryType.Shared for b in kernel.buffers),
        "Shared memory of a cluster": any(b.memory is MemoryType.Cluster for b in kernel.buffers),
        "a Global workspace": any(b.memory is MemoryType.Global for b in kernel.buffers),
        "an allocation domain": any(tv.schedule.allocation is not None for tv in tensors),
        "a tensor made by a scheduling call": any(tv.origin is not None for tv in tensors),
        "several outputs": len(fusion.outputs) > 1,
    }


def _in_horizontal(case: Case, tv: TensorView) -> bool:
    """A parallel horizontal group on a thread type holds the task of ``tv``."""
    home = case.fusion.tasks.home(tv)
    return home is not None and any(g.ptype is not None and g.ptype.is_thread and not is_vertical(g) and _is_inside(home, g) for g in _groups(case))


def _is_inside(node: Node, group: Group) -> bool:
    parent = node.parent
    while parent is not None and parent is not group:
        parent = parent.parent
    return parent is group


def _channels(case: Case) -> int:
    return len(_rings(case))


def _rings(case: Case) -> list[int]:
    """The slots of every channel."""
    assert case.kernel is not None
    found = [m.slots for m in case.kernel.mbarriers if m.name.endswith(".full")]
    return found + [int(evaluate(s.shape[-1], case.sizes)) for s in case.kernel.semaphores if s.name.endswith(".full")]


def _quantities(case: Case) -> dict[str, int]:
    kernel = case.kernel
    assert kernel is not None
    statements = list(walk(kernel))
    return {
        "expressions": len(case.fusion.exprs()),
        "tasks": sum(1 for n in case.fusion.tasks.nodes if not isinstance(n, Group)),
        "levels of groups": _levels(case.fusion.tasks.root),
        "levels of parallel groups": _parallel_levels(case.fusion.tasks.root),
        "channels": _channels(case),
        "slots of the longest ring": max(_rings(case), default=0),
        "barriers": sum(isinstance(s, Barrier) for s in statements),
        "waits": sum(isinstance(s, (Wait, Acquire)) for s in statements),
        "threads": math.prod(int(evaluate(e, case.sizes)) for e in kernel.block),
        "blocks": math.prod(int(evaluate(e, case.sizes)) for e in kernel.grid),
        "statements": len(statements),
    }
