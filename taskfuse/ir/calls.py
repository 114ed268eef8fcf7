"""Protocols that methods of tensors and fusions call. Upper layers implement them on import: ops, scheduling calls,
texts and pictures, the reference, proposals of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from taskfuse.ir.atoms import Atom
from taskfuse.ir.axes import Axis
from taskfuse.ir.partition import Partition
from taskfuse.ir.scalar import Expr, IntLike
from taskfuse.ir.shares import Shares
from taskfuse.ir.types import MemoryType, ParallelType, PlaceSearch

if TYPE_CHECKING:
    import networkx as nx

    from taskfuse.ir.fusion import Fusion
    from taskfuse.ir.tensor import AxisRef, TensorView


class AllocationLayout(Protocol):
    """Makes an allocation domain for a tensor (``tf.layouts``)."""

    def __call__(self, tensor: TensorView) -> tuple[Axis, ...]: ...


class ProductOrder(Protocol):
    """How blocks share the tiles of a product, for ``chunk_product`` (implemented in ``taskfuse.tiles``)."""

    def shares(self, tiles: int, steps: int) -> Shares: ...


class TileOrder(Protocol):
    """Makes the backward maps of a work axis (``tf.tiles``)."""

    def maps(self, extents: Sequence[Expr]) -> Sequence[Expr]:
        """One expression over the symbol ``w`` per tile axis, from the axes' extents."""
        ...


@runtime_checkable
class PaddedOrder(TileOrder, Protocol):
    """An order with items that have no tile."""

    def items(self, extents: Sequence[Expr]) -> Expr:
        """How many there are, from the axes' extents."""
        ...


class OperatorCalls(Protocol):
    """The ops behind the operators of :class:`~taskfuse.ir.tensor.TensorView` (implemented in ``taskfuse.ops.operators``)."""

    def unary(self, op: str, x: object) -> TensorView: ...
    def binary(self, op: str, a: object, b: object) -> TensorView: ...
    def getitem(self, x: TensorView, key: object) -> TensorView: ...
    def transposed(self, x: object, axes: Sequence[int]) -> TensorView: ...
    def call(self, op: str, *args: Any, **kwargs: Any) -> TensorView: ...
    def instead(self, name: str) -> str: ...


class SchedulingCalls(Protocol):
    """The scheduling calls behind the methods of :class:`~taskfuse.ir.tensor.TensorView` (implemented in ``taskfuse.schedule``)."""

    def split(self, tv: TensorView, axis: int, factor: IntLike, inner: bool) -> None: ...
    def merge(self, tv: TensorView, outer: int, inner: int | None) -> None: ...
    def reorder(self, tv: TensorView, order: dict[int, int] | Sequence[int]) -> None: ...
    def swizzle(self, tv: TensorView, x: int, y: int) -> None: ...
    def rasterize(self, tv: TensorView, axes: Sequence[int], maps: Sequence[Expr] | TileOrder, extent: IntLike | None) -> None: ...
    def parallelize(self, tv: TensorView, axis: Axis, ptype: ParallelType) -> None: ...
    def inline_at(self, tv: TensorView, at: object) -> None: ...
    def inline_together(self, fusion: Fusion, tensors: Sequence[TensorView], at: object) -> None: ...
    def inline_most(self, fusion: Fusion, tensors: Sequence[TensorView] | None) -> None: ...
    def cache_after(self, tv: TensorView, reader: TensorView | None, operand: int | None) -> TensorView: ...
    def cache_before(self, tv: TensorView) -> TensorView: ...
    def cache_fork(self, tv: TensorView) -> TensorView: ...
    def duplicate(self, tv: TensorView, readers: Sequence[TensorView]) -> TensorView: ...
    def rfactor(self, tv: TensorView, axes: Sequence[int]) -> TensorView: ...
    def through_view(self, tv: TensorView, operand: int, also: Sequence[tuple[TensorView, int]]) -> TensorView: ...
    def chunk_reduction(self, tv: TensorView, position: int, extent: int) -> TensorView: ...
    def chunk_product(self, tv: TensorView, order: ProductOrder, tile: tuple[int, int, int]) -> tuple[TensorView, TensorView, TensorView, TensorView]: ...
    def split_reduction(self, tv: TensorView, position: int, inner: int) -> None: ...
    def split_fold(self, tv: TensorView, parts: int) -> tuple[TensorView, ...]: ...
    def chunk_scan(self, tv: TensorView, extent: int) -> tuple[TensorView, TensorView, TensorView, TensorView, TensorView]: ...
    def recompute(self, tv: TensorView, readers: Sequence[TensorView]) -> tuple[TensorView, ...]: ...
    def scatter(self, tv: TensorView) -> tuple[TensorView, ...]: ...
    def unscatter(self, tv: TensorView) -> TensorView: ...
    def search_by(self, tv: TensorView, how: PlaceSearch, divisor: int) -> TensorView: ...
    def set_memory_type(self, tv: TensorView, memory: MemoryType) -> None: ...
    def set_allocation_domain(self, tv: TensorView, axes: Sequence[Axis | AxisRef] | AllocationLayout) -> None: ...
    def set_atom(self, tv: TensorView, atom: Atom, axes: Sequence[int]) -> None: ...
    def circular_buffer(self, tv: TensorView, stages: int, ring: str) -> None: ...
    def in_flight(self, tv: TensorView, batches: int) -> None: ...
    def fragment(self, tv: TensorView, axes: Sequence[int], atom: Atom | None) -> None: ...
    def propagate(self, tv: TensorView, targets: Sequence[TensorView], upto: int | None) -> None: ...


class FusionReaders(Protocol):
    """The readers of a fusion (bound by ``taskfuse.ir.readers``)."""

    def text(self, fusion: Fusion) -> str: ...
    def parse(self, text: str) -> Fusion: ...
    def picture(self, fusion: Fusion) -> str: ...
    def graph(self, fusion: Fusion) -> nx.DiGraph[str]: ...
    def task_graph(self, fusion: Fusion) -> nx.DiGraph[str]: ...
    def base(self, fusion: Fusion, view: TensorView) -> TensorView | None: ...
    def evaluate(
        self, fusion: Fusion, args: tuple[NDArray[Any] | float | int, ...], named: Mapping[str, Any], options: dict[str, Any]
    ) -> tuple[NDArray[Any], ...]: ...


Partitioner = Callable[["Fusion", Mapping[str, int] | None], Partition]
"""Proposes tasks and groups, for given values of dimensions (implemented in ``taskfuse.schedulers``)."""

_bound_operators: list[OperatorCalls] = []
_bound_scheduling: list[SchedulingCalls] = []
_bound_readers: list[FusionReaders] = []
_bound_partitioner: list[Partitioner] = []


def bind_operators(calls: OperatorCalls) -> None:
    """Plug in the ops behind the operators; called once, by ``taskfuse.ops``."""
    _bound_operators[:] = [calls]


def bind_scheduling(calls: SchedulingCalls) -> None:
    """Plug in the scheduling calls; called once, by ``taskfuse.schedule``."""
    _bound_scheduling[:] = [calls]


def bind_fusion_readers(readers: FusionReaders) -> None:
    """Plug in the readers of fusions; called once, by ``taskfuse.ir.readers``."""
    _bound_readers[:] = [readers]


def bind_partitioner(propose: Partitioner) -> None:
    """Plug in the proposer of tasks and groups; called once, by ``taskfuse.schedulers``."""
    _bound_partitioner[:] = [propose]


def operators() -> OperatorCalls:
    """The ops behind the operators."""
    return _bound_operators[0]


def scheduling() -> SchedulingCalls:
    """The scheduling calls."""
    return _bound_scheduling[0]


def readers() -> FusionReaders:
    """The readers of fusions."""
    return _bound_readers[0]


def partitioner() -> Partitioner:
    """The proposer of tasks and groups."""
    return _bound_partitioner[0]
