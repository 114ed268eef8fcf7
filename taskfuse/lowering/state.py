"""The state of a lowering: the results of its steps so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from taskfuse.errors import UnsupportedError, shown
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.synchronization import CursorInit
from taskfuse.lowering.channels import Channels
from taskfuse.lowering.endpoints import Endpoints
from taskfuse.lowering.index_maps import IndexMaps
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.plan import Needs, PNode
from taskfuse.lowering.rings import RoleRings
from taskfuse.lowering.software_pipeline import Pipelined
from taskfuse.lowering.statements import Statements
from taskfuse.lowering.thread_ranges import ThreadRanges
from taskfuse.lowering.turns import LoopTurns
from taskfuse.schedule.order import Item, Tree
from taskfuse.schedule.shared_loops import SharedLoops
from taskfuse.target import DEFAULT, PLAIN_SHARED, Target


@dataclass(frozen=True, slots=True)
class LoweringOptions:
    """Options of lowering.

    Attributes:
        order_seed: selects one of the valid total orders; ``None``: the creation order of the tensors.
        shared_limit: bytes of Shared memory per block above which buffers with disjoint lifetimes share memory.
        verify: verify the plan and the kernel after each step.
        target: the GPU whose limits the kernel must keep.
    """

    order_seed: int | None = None
    shared_limit: int = PLAIN_SHARED
    verify: bool = True
    target: Target = DEFAULT

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.target), Target):
            raise UnsupportedError(what=f"target {shown(self.target)}", reason="it is not a taskfuse.Target", help='tf.compile(..., target="H100") takes names')


@dataclass(slots=True)
class State:
    """The results of the steps of a lowering (:mod:`taskfuse.lowering.steps`) so far. A step sets the attributes that its docstring ensures.

    An attribute without a default has no value before its step, and reading it raises AttributeError: a step lacks what it requires.

    Attributes:
        fusion: the fusion; from ``prepare`` on, the copy that becomes a kernel.
        written: the original fusion, if scheduling calls replaced definitions.
        tree, shared_loops, order: the completed task tree, the loops that are shared, the nest.
        ranges: the launch shape, and the indices of each node.
        index_maps: the indices around the code of each tensor, memory types and grid-stride loops.
        channels, rings: the rings between roles and inside them.
        indexer, statements: the accesses and the statements of each tensor.
        plan: the nest with its dispatch; empty before ``nest``.
        needs: the tensor maps, alignments and bytes that its statements require.
        endpoints: what the ends of channels have inserted into the plan.
        pipelined: the loops of software pipelines.
        turns: those that instances of roles take.
        buffers: the storage.
        mbarriers: name, slots, arrivals per phase.
        counters: of barriers of the whole grid.
        cursors: those of the whole kernel's code.
        kernel: the result.
    """

    fusion: Fusion
    options: LoweringOptions
    written: Fusion | None = None
    tree: Tree = field(init=False)
    shared_loops: SharedLoops = field(init=False)
    order: tuple[Item, ...] = field(init=False)
    ranges: ThreadRanges = field(init=False)
    index_maps: IndexMaps = field(init=False)
    channels: Channels = field(init=False)
    rings: RoleRings = field(init=False)
    indexer: Indexer = field(init=False)
    statements: Statements = field(init=False)
    endpoints: Endpoints = field(init=False)
    pipelined: list[Pipelined] = field(init=False)
    turns: list[LoopTurns] = field(init=False)
    plan: list[PNode] = field(default_factory=list[PNode])
    needs: Needs = field(default_factory=Needs)
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    mbarriers: list[tuple[str, int, Expr]] = field(default_factory=list[tuple[str, int, Expr]])
    counters: list[str] = field(default_factory=list[str])
    cursors: list[CursorInit] = field(default_factory=list[CursorInit])
    kernel: Kernel = field(init=False)

    def has(self, attribute: str) -> bool:
        """Whether a step has set an attribute without a default. Raises AttributeError for a name that no attribute has."""
        if attribute not in self.__slots__:
            raise AttributeError(f"'{attribute}' is not an attribute of the state")
        return hasattr(self, attribute)
