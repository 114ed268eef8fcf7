"""What is known everywhere in a kernel: ranges of extents and of hardware indices."""

from __future__ import annotations

from taskfuse.ir.scalar import Facts
from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES, THREAD_TYPES
from taskfuse.kir import Kernel


def kernel_facts(kernel: Kernel) -> Facts:
    """The facts that hold for every statement of a kernel."""
    facts = Facts()
    for e in kernel.extents:
        facts = facts.with_range(e.name, e.min, e.max)
        if e.multiple_of > 1:
            facts = facts.with_multiple(e.name, e.multiple_of)
    for types, shape in ((BLOCK_TYPES, kernel.grid), (CLUSTER_TYPES, kernel.cluster), (THREAD_TYPES, kernel.block)):
        for ptype, extent in zip(types, shape, strict=True):
            facts = facts.with_range(ptype.index_name, 0, extent - 1)
    return facts
