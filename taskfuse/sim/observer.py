"""The interface of observers of a run: the accesses of every step to memory and barriers.

A machine without an observer pays one test per access. The methods here do nothing; exploration (:mod:`taskfuse.sim.happens_before`) and
timelines (:mod:`taskfuse.sim.recording`) override some.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskfuse.sim.barriers import BarrierCell, MbarrierCell, SemaphoreCell, Waiter
    from taskfuse.sim.block import Block
    from taskfuse.sim.engines import Action, Operation
    from taskfuse.sim.memory import Memory, Updater
    from taskfuse.sim.region import Region


class Observer:
    """An observer that does nothing."""

    def block(self, agent: Waiter, pc: int) -> None:
        """An agent waits at a statement."""

    def wake(self, agents: Iterable[Waiter]) -> None:
        """Agents are woken: they continue, or test again."""

    def access(self, memory: Memory, region: Region, index: Any, write: bool) -> None:
        """Elements of ``region``, at ``index`` of its store, are read or written (or must not be accessed by others from now on)."""

    def update(self, memory: Memory, region: Region, index: Any, updater: Updater) -> None:
        """Elements of ``region``, in Global memory, are updated atomically."""

    def visibility(self, memory: Memory, region: Region, index: Any) -> None:
        """The visibility of elements of a Shared region, or a tensor, to the asynchronous proxy is tested."""

    def proxy_fence(self, block: Block, threads: Any) -> None:
        """``fence.proxy.async`` is about to be executed by threads of a block."""

    def proxy_fence_global(self, block: Block, threads: Any) -> None:
        """``fence.proxy.async.global`` is about to be executed by threads of a block."""

    def initialize(self, barrier: MbarrierCell) -> None:
        """An mbarrier was initialized, or made visible to the asynchronous proxy."""

    def use(self, barrier: MbarrierCell) -> None:
        """An mbarrier was tested for initialization and visibility to the asynchronous proxy."""

    def count(self, barrier: MbarrierCell | SemaphoreCell, arrivals: int) -> None:
        """Arrivals, or releases, of the current phase are about to be counted; none: bytes of a copy."""

    def passed(self, barrier: MbarrierCell) -> None:
        """A wait succeeded."""

    def acquired(self, semaphore: SemaphoreCell, phases: int) -> None:
        """A wait for a number of phases of a semaphore succeeded."""

    def arrive(self, agent: Waiter, barrier: BarrierCell, complete: bool) -> None:
        """An agent reaches a barrier of threads; if that completes it, ``barrier.agents`` are the waiting agents."""

    def issue(self, operation: Action) -> None:
        """An asynchronous operation was issued."""

    def post(self, operation: Action) -> None:
        """The next part of an operation is available to an engine."""

    def begin_part(self, operation: Action) -> None:
        """An engine begins a part of an operation."""

    def end_part(self, operation: Action) -> None:
        """The engine has finished that part."""

    def waited_for(self, operations: Iterable[Operation], owners: Collection[int], read_only: bool) -> None:
        """Operations are done (their sources have been read), and their owners are about to know."""

    def reach(self, block: Block) -> None:
        """An arrival, or a copy, is about to reach a block of the cluster, which must not have exited."""

    def exit(self, block: Block) -> None:
        """Threads of a block have exited."""
