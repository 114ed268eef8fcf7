"""Tensors (``TensorView``) and run-time scalars of a fusion.

A :class:`TensorView` holds the math (dtype, root and logical axes, definition) and points to its :class:`TensorSchedule`, which holds
everything that scheduling calls decide. Operators and scheduling calls live in the layers above (:mod:`taskfuse.ir.calls`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, SupportsIndex

from taskfuse.dtypes import DType
from taskfuse.errors import FusionError, ScheduleError, shown
from taskfuse.ir.array_methods import Arithmetic, ArrayMethods
from taskfuse.ir.atoms import Atom
from taskfuse.ir.axes import Axis
from taskfuse.ir.calls import AllocationLayout, ProductOrder, TileOrder, operators, scheduling
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Expr, IntLike
from taskfuse.ir.signatures import checks_calls
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.ir.types import MemoryType, ParallelType, PlaceSearch
from taskfuse.location import Location, caller

if TYPE_CHECKING:
    from taskfuse.ir.expr import MathExpr
    from taskfuse.ir.fusion import Fusion
    from taskfuse.ir.tasks import Task


class Scalar(Arithmetic):
    """A run-time scalar: an argument of the kernel, made by ``tf.define_scalar``. Operators on it give 0-d tensors.

    A scalar that does not promote is promoted like a Python number: its kind matters (bool, integer, float), not its dtype.
    Promotion is decided when an op is called, so neither the text nor the kernel contains it.
    """

    __slots__ = ("dtype", "fusion", "id", "location", "name", "promotes")

    def __init__(self, fusion: Fusion, id: int, name: str, dtype: DType, location: Location | None, promotes: bool = True) -> None:
        self.fusion = fusion
        self.id = id
        self.name = name
        self.dtype = dtype
        self.location = location
        self.promotes = promotes

    def label(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype.name}"


@checks_calls
class TensorView(ArrayMethods):
    """A tensor of a fusion. Made by ``tf.define_tensor`` and by ops, never directly.

    Its methods from ``split`` on are scheduling calls: each raises :class:`ScheduleError`, and changes nothing, if the schedule would be invalid.

    Attributes:
        fusion: the fusion that owns it.
        id: its number in the fusion.
        name: its printed name.
        dtype: its element type.
        root: the iteration space of its definition: result and reduction axes.
        logical: the axes that readers see; made from ``root`` by ``schedule.transforms`` (only ``rfactor`` makes them differ by more
            than the reduction axes).
        schedule: what scheduling calls set.
        origin: the tensor that a scheduling call made this one from; ``None`` for a tensor of the math.
        location: where the user made it.
    """

    __slots__ = ("_name", "dtype", "fusion", "id", "location", "logical", "origin", "root", "schedule")

    def __init__(
        self,
        fusion: Fusion,
        id: int,
        name: str,
        dtype: DType,
        root: tuple[Axis, ...],
        logical: tuple[Axis, ...],
        location: Location | None = None,
        origin: TensorView | None = None,
        schedule: TensorSchedule | None = None,
    ) -> None:
        self.fusion = fusion
        self.id = id
        self._name = name
        self.dtype = dtype
        self.root = root
        self.logical = logical
        self.schedule = schedule or TensorSchedule(list(root))
        self.origin = origin
        self.location = location

    @property
    def name(self) -> str:
        """Its printed name, by which ``fusion.tensor`` finds it."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self.fusion.rename(self, name)

    def set_name(self, name: str) -> None:
        """Set the name. For :meth:`Fusion.rename` alone, which keeps the index of names."""
        self._name = name

    def named(self, name: str) -> TensorView:
        """Give the tensor a name. Raises :class:`FusionError` if it is taken. Returns the tensor itself."""
        self.fusion.rename(self, name)
        return self

    # -- the math -------------------------------------------------------------------------------------------------------------------

    @property
    def definition(self) -> MathExpr | None:
        """The expression that makes it; ``None`` for an input."""
        return self.fusion.definition(self)

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Extents of the logical axes."""
        return tuple(a.extent for a in self.logical)

    @property
    def ndim(self) -> int:
        """Number of logical axes."""
        return len(self.logical)

    @property
    def is_input(self) -> bool:
        return self.fusion.definition(self) is None

    @property
    def is_output(self) -> bool:
        return among(self, self.fusion.outputs)

    @property
    def uses(self) -> tuple[MathExpr, ...]:
        """The expressions that read it, in the order they were made."""
        return self.fusion.uses(self)

    def label(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(str(e) for e in self.shape)}]"

    # -- as a sequence --------------------------------------------------------------------------------------------------------------

    def __iter__(self) -> NoReturn:
        raise FusionError(
            fusion=self.fusion.name,
            reason=f"{self.name} is one tensor, not a sequence",
            help=f"write [{self.name}] where several tensors are wanted, {self.name}[k] for a part of it",
            location=caller(),
        )

    def __len__(self) -> int:
        """The extent of the first axis, which must be constant. Raises :class:`SymbolError`, or :class:`FusionError` for a 0-d tensor."""
        if not self.ndim:
            raise FusionError(fusion=self.fusion.name, reason=f"{self.name} is 0-d, which has no length", help="ask x.shape", location=caller())
        return int(self.shape[0])

    def __getitem__(self, key: object) -> TensorView:
        return operators().getitem(self, key)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a tensor has no attribute '{name}'" + operators().instead(name))

    # -- the schedule ---------------------------------------------------------------------------------------------------------------

    @property
    def loop(self) -> tuple[Axis, ...]:
        """The loop domain."""
        return tuple(self.schedule.loop)

    @property
    def task(self) -> Task | None:
        """The task that claims it, or ``None``."""
        return self.fusion.tasks.task_of(self)

    def position(self, axis: object, call: str) -> int:
        """``axis`` as a nonnegative position in the loop domain. Raises :class:`ScheduleError` if none exists."""
        n = len(self.schedule.loop)
        help = f"use an axis in [{-n}, {n - 1}]" if n else None
        if not isinstance(axis, int | SupportsIndex):  # the second alone looks at methods by name
            raise ScheduleError(call=call, tensor=self.name, reason=f"{shown(axis)} is not a position of an axis", help=help, location=caller())
        found = axis.__index__()
        if not -n <= found < n:
            reason = f"axis {found} is out of range: the loop domain has {n} axes"
            raise ScheduleError(call=call, tensor=self.name, reason=reason, help=help, location=caller())
        return found % n

    def axis(self, axis: int) -> AxisRef:
        """The loop axis at a position (negative positions count from the end)."""
        return AxisRef(self, self.schedule.loop[self.position(axis, "axis")])

    def split(self, axis: int, factor: IntLike, inner: bool = True) -> TensorView:
        """Split a loop axis of extent N into [ceildiv(N, factor), factor], or [factor, ceildiv(N, factor)] if not ``inner``.

        A split that does not divide N adds a guard. Raises :class:`ScheduleError` if the axis is bound, left of an inline position,
        or ``factor`` is not positive. Returns the tensor itself.
        """
        scheduling().split(self, axis, factor, inner)
        return self

    def merge(self, outer: int, inner: int | None = None) -> TensorView:
        """Merge two loop axes into one at the lower of their positions; ``inner`` (default: the next axis) varies fastest. Returns the tensor itself."""
        scheduling().merge(self, outer, inner)
        return self

    def reorder(self, order: dict[int, int] | Sequence[int]) -> TensorView:
        """Reorder loop axes: ``{old: new}``, or the full list of old positions in their new order. Returns the tensor itself."""
        scheduling().reorder(self, order)
        return self

    def swizzle(self, x: int, y: int) -> TensorView:
        """XOR-swizzle loop axis ``y`` by loop axis ``x``: y' = y ^ x, equal constant power-of-two extents. Returns the tensor itself."""
        scheduling().swizzle(self, x, y)
        return self

    def rasterize(self, axes: Sequence[int], maps: Sequence[Expr] | TileOrder, extent: IntLike | None = None) -> TensorView:
        """Replace loop axes by one work axis at the lowest of their positions, defined by its backward map. Returns the tensor itself.

        Args:
            axes: positions of the tile axes.
            maps: one expression over the symbol ``i0`` (the work index) for each of ``axes``, together a bijection; or an order of tiles
                (``tf.tiles``).
            extent: number of work items (default: the order's, or the product of the axes' extents).

        Raises:
            ScheduleError: the maps do not visit every tile once, for the axes' constant extents or for sample values of the dimensions.
        """
        scheduling().rasterize(self, axes, maps, extent)
        return self

    def inline_at(self, position: int) -> TensorView:
        """Share the ``position`` outermost loops with every reader. Returns the tensor itself."""
        scheduling().inline_at(self, position)
        return self

    def cache_after(self, reader: TensorView | None = None, operand: int | None = None) -> TensorView:
        """Insert a copy of this tensor that all its readers read instead. Returns the new tensor.

        With ``reader``, only that tensor reads the copy, directly even if it read through views before. With ``operand``, only its operand at that
        position does, so each factor of ``x @ x.T`` can have its own copy.
        """
        return scheduling().cache_after(self, reader, operand)

    def cache_before(self) -> TensorView:
        """A new tensor that takes over this one's definition; this one becomes its copy. Returns the new tensor."""
        return scheduling().cache_before(self)

    def cache_fork(self) -> TensorView:
        """``cache_before`` of an output (or a part of one) that has readers, which then read the new tensor. Returns the new tensor."""
        return scheduling().cache_fork(self)

    def duplicate(self, readers: Sequence[TensorView]) -> TensorView:
        """A new tensor with this one's definition, which ``readers`` (some of its readers) read instead. Returns the new tensor."""
        return scheduling().duplicate(self, readers)

    def rfactor(self, axes: Sequence[int]) -> TensorView:
        """Split a reduction: a new tensor reduces the loop axes ``axes``, this one the other reduction axes. Returns the new tensor."""
        return scheduling().rfactor(self, axes)

    def chunk_reduction(self, axis: int, extent: int) -> TensorView:
        """Split a reduction that has no schedule yet: a new tensor reduces each chunk of ``extent`` elements of a reduced axis, this one the results.

        The first axis of the new tensor counts the chunks. ``extent`` divides the reduced axis. Returns the new tensor. Sums of floats round in another order.
        """
        return scheduling().chunk_reduction(self, axis, extent)

    def cut_reduction(self, axis: int, at: int) -> tuple[TensorView, TensorView]:
        """Cut a reduction that has no schedule yet in two: new tensors reduce the first ``at`` elements of a reduced axis, and the others; this one combines
        their results, element by element.

        ``at`` is less than the axis. Returns the new tensors. Sums of floats round in another order.
        """
        return scheduling().cut_reduction(self, axis, at)

    def chunk_product(self, order: ProductOrder, tile: tuple[int, int, int]) -> tuple[TensorView, TensorView, TensorView, TensorView]:
        """Divide the sums of a matrix product that has no schedule yet among blocks that share tiles, by ``tf.tiles.split_k`` or ``tf.tiles.stream_k``.

        Item e of block b is some steps of k of one tile. Returns the new tensors ``left, right, parts, terms``: the factors of each item and their product,
        with the axes b and e first, and the parts of each element in the order of k, which this tensor adds. Sums of floats round in another order.

        Args:
            tile: rows and columns of a tile, and elements of k of a step.
        """
        return scheduling().chunk_product(self, order, tile)

    def unroll_reduction(self) -> tuple[TensorView, ...]:
        """Turn a reduction of up to 16 terms that has no schedule yet into an elementwise function of them, which its readers can compute in their own loops.

        Its axes have constant extents, and its operands the dtype of the result. Returns the new tensors: terms and partial results. Sums of
        floats round in the order of their terms.
        """
        return scheduling().unroll_reduction(self)

    def gather_as_sum(self) -> TensorView:
        """Turn a gather of numbers along one axis, which has no schedule yet, into a sum over that axis, all of whose terms but one are zero: who reduces all
        elements of the axis picks one on the way.

        Returns the sum, without axes of one element; this tensor is a view of it, or a copy if it is an output. A -0.0 becomes 0.0.
        """
        return scheduling().gather_as_sum(self)

    def drop_axes(self, *axes: int) -> TensorView:
        """Compute a reduction or an elementwise tensor, which has no schedule yet, without the axes that its elements do not depend on. This tensor is then
        a view of the new one, which is returned, or a copy if it is an output or a part of one.

        Args:
            axes: positions of those to drop; none given: all of them.
        """
        return scheduling().drop_axes(self, axes)

    def pack_factors(
        self, axis: int, multiple: int = 1, operands: Sequence[int] | None = None, *, turned: bool = False, as_columns: bool = False
    ) -> tuple[TensorView, ...]:
        """Copy the factors of a sum of products that has no schedule yet: a copy has the axes of this tensor at which the factor is read, ``axis`` last.

        Past the end of ``axis``, which is reduced, copies have zeros up to a multiple of ``multiple`` elements, and the sum includes them. Returns the copies,
        one for factors that are alike; they have no schedule, and another kernel may compute each.

        Args:
            operands: positions of the factors to pack; by default all. All must be packed if ``multiple`` does not divide the axis.
            turned: the reduced axis is the one before the last.
            as_columns: terms are in the order in which registers of accumulators, of which they are columns, become those of the other factor, as in
                attention: of 8 bits column ``16*h + 8*f + 2*t + e`` (h, f < 2, t < 4, e < 2) is at ``16*h + 4*t + 2*f + e``; of others in their own order.
                Then ``multiple`` is a multiple of 16.
        """
        return scheduling().pack_factors(self, axis, multiple, operands, turned, as_columns)

    def split_reduction(self, axis: int, inner: int) -> None:
        """Split a reduced axis of a reduction that has no schedule yet into the two digits of its index; the inner one has ``inner`` values.

        ``inner`` divides the reduced axis. Reads at ``k // inner`` and ``k % inner`` become reads at the axes themselves.
        """
        scheduling().split_reduction(self, axis, inner)

    def tile_windows(self, axis: int, tile: int) -> TensorView:
        """For a tensor that has the elements of windows of another one, as convolutions and pooling read them: a tensor with the elements of each tile of
        ``tile`` windows along ``axis``, of which this one becomes a view.

        Windows overlap; the new tensor has each element once per tile: in place of the windows it has tiles, and in place of their places as many elements as
        the windows of a tile reach over. It has no schedule. Where a reader's axis of windows is split by ``tile``, both share the loop over tiles.

        Returns:
            The new tensor.
        """
        return scheduling().tile_windows(self, axis, tile)

    def tile_shifts(self, others: Sequence[TensorView], axis: int, tile: int) -> TensorView:
        """For tensors that read one other tensor at constant distances along ``axis``, as slices of a padded one do: a tensor with the elements that
        each tile of ``tile`` points along the axis reads, each once, of which they become views.

        In place of the axis the new tensor has tiles, and as many elements as the points of a tile reach over. It has no schedule. Where a reader's axis is
        split by ``tile``, both share the loop over tiles.

        Returns:
            The new tensor.
        """
        return scheduling().tile_shifts(self, others, axis, tile)

    def clamp_read(self, vector: int = 1) -> TensorView:
        """For a tensor that is an element of another one where there is one, and else a constant: a tensor with an element at each point, the nearest one where
        there is none, of which this one chooses. It can be loaded as vectors.

        Args:
            vector: elements along the last axis that all have an element or none: the nearest one is then the nearest vector of them.

        Returns:
            The new tensor.
        """
        return scheduling().clamp_read(self, vector)

    def split_fold(self, parts: int) -> tuple[TensorView, ...]:
        """Split a fold: parts of its axis are folded independently, each with its own state; this tensor joins them. Returns the new tensors.

        Raises:
            ScheduleError: how its steps compose is not known, or it has a schedule.
        """
        return scheduling().split_fold(self, parts)

    def chunk_scan(self, extent: int) -> tuple[TensorView, TensorView, TensorView, TensorView, TensorView]:
        """Split a scan: chunks of ``extent`` elements are scanned in parallel, then their totals; this tensor combines each element with the total of all
        earlier chunks.

        Returns the new tensors ``terms, local, totals, sums, before``: the elements by chunks; the scan of each chunk; its last element; the
        scan of these, which may be split again; the total before each chunk. They have no schedule. Sums of floats round in another order.
        """
        return scheduling().chunk_scan(self, extent)

    def recompute(self, readers: Sequence[TensorView], stored: Sequence[TensorView] = ()) -> tuple[TensorView, ...]:
        """Compute in the loops of ``readers`` the elements of this tensor that they read: a new tensor for each index at which they read.

        A new tensor has the iteration space of the readers, which read it point by point. Elementwise ancestors are recomputed;
        inputs and reductions are not, and for an input the new tensor is a copy. Tensors without
        remaining readers leave the fusion. Returns the new tensors, in the order in which they are read.

        Args:
            stored: ancestors that are read in place, as inputs are.
        """
        return scheduling().recompute(self, readers, stored)

    def through_view(self, operand: int, view: TensorView | None = None, also: Sequence[tuple[TensorView, int]] = (), *, packed: bool = False) -> TensorView:
        """Read an operand at this tensor's own axes, through a view that applies the index at which it was read. Returns the view, which has no code.

        The view has the axes of this tensor's iteration space on which that index depends; the one that is contiguous in memory comes last.

        Args:
            operand: its number.
            view: a view that another reader uses, with its axes in any order; it may have more elements along some. Both readers then share one copy, if the
                view has storage. ``None``: a view is made.
            also: further readers, with the numbers of their operands, that read the same element at the same point and then read the view.
            packed: an axis along which ``n`` neighbors read one element is an axis of these elements in the view, read at ``i // n``.
        """
        return scheduling().through_view(self, operand, view, also, packed=packed)

    def scatter(self) -> tuple[TensorView, ...]:
        """Replace a concatenation by its parts: each passes separately through the elementwise functions of the result, and is stored as a slice.

        Outputs among these tensors are then assembled from their parts (the scatter form of ``tf.cat``), which needs no code; the others leave
        the fusion. Returns the parts, output by output, in order.

        A reduction without a schedule, for instance one that joins the partial results of ``rfactor``, becomes updates of its elements in memory: each term is
        combined with its element by one atomic step, so sums of floats may differ in rounding from run to run. Returns what the elements begin with, and the
        updates.
        """
        return scheduling().scatter(self)

    def unscatter(self) -> TensorView:
        """Turn a tensor that is assembled from parts into a concatenation in gather form, which has code. Returns the tensor itself."""
        return scheduling().unscatter(self)

    def search_by(self, how: PlaceSearch, divisor: int = 1) -> TensorView:
        """Choose how kernels find the position of a key in this table (``upper_bound``); the result is the same.

        With ``PlaceSearch.TABLE`` the fusion takes one more input, appended last: an int32 table with the positions of the keys 0, 1, ... in the
        elements of this one divided by ``divisor``. For ``tf.grouped_matmul`` with tiles of ``divisor`` rows this is the group of each tile
        (``tf.tiles.places`` computes it). Whatever it holds, no access leaves its tensor.

        Args:
            how: ``PlaceSearch.BISECTION`` (the default), ``PlaceSearch.BALLOT``, or ``PlaceSearch.TABLE``.
            divisor: rows of a tile; for a table of places only.

        Returns:
            The table of places, or this table.

        Raises:
            ScheduleError: this is not a table of offsets of at least two groups that begins with 0, or it already has such a table of places.
        """
        return scheduling().search_by(self, how, divisor)

    def set_memory_type(self, memory: MemoryType) -> TensorView:
        """Set the memory in which the tensor lives. Inputs and outputs are Global. Returns the tensor itself."""
        scheduling().set_memory_type(self, memory)
        return self

    def set_allocation_domain(self, axes: Sequence[Axis | AxisRef] | AllocationLayout) -> TensorView:
        """Set the allocation domain: axes derived from the logical domain, outermost first, or a layout (``tf.layouts``). Returns the tensor itself."""
        scheduling().set_allocation_domain(self, axes)
        return self

    def set_atom(self, atom: Atom, axes: Sequence[int]) -> TensorView:
        """Execute the loop axes at positions ``axes`` by one instruction (``tf.atoms``). Returns the tensor itself."""
        scheduling().set_atom(self, atom, axes)
        return self

    def circular_buffer(self, stages: int, ring: str = "") -> TensorView:
        """Give the tensor a ring of ``stages`` slots. Returns the tensor itself.

        Args:
            stages: number of slots.
            ring: a name. Tensors with the same name share one ring: each continues where the previous one in the code stopped.
        """
        scheduling().circular_buffer(self, stages, ring)
        return self

    def in_flight(self, batches: int) -> TensorView:
        """Let ``batches`` batches of the tensor's asynchronous atom be unfinished when the next one is issued: the slots of its operands are released
        ``batches`` iterations late. Returns the tensor itself."""
        scheduling().in_flight(self, batches)
        return self

    def pipeline_stage(self, stage: int) -> TensorView:
        """Run the tensor's code ``stage`` (0 or 1) trips behind the other code of its loop: software pipelining. Returns the tensor itself.

        In a trip, code of stage 1 stands behind the first asynchronous products of stage 0, or first: in trip ``t`` these are products of ``t``, and then code
        of trip ``t - 1`` follows, whose asynchronous products run while the rest of trip ``t`` is computed. The loop has one trip more.
        """
        scheduling().pipeline_stage(self, stage)
        return self

    def take_turns(self, ptype: ParallelType) -> TensorView:
        """Let the instances of the tensor's role on a thread index type, such as warpgroups, issue its products one instance after another. Returns the tensor
        itself.

        Tensors of one loop that take turns share them: in each trip of the loop, an instance waits for its turn before the first of their code, and passes the
        turn on behind the last of it.
        """
        scheduling().take_turns(self, ptype)
        return self

    def fragment(self, axes: Sequence[int], atom: Atom | None = None, operand: str | None = None) -> TensorView:
        """Distribute the adjacent loop axes ``axes`` (m, n) over TIDx in the register layout of tensor cores.

        m (a constant multiple of 16) becomes warp, row of 8 and half, n (a multiple of 8) columns of 8, pair and element. The new axes are
        [m/16: TIDx, m%8: TIDx, n%8/2: TIDx, n/8, m%16/8, n%2] (PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16"). Returns the tensor
        itself.

        Args:
            atom: with an atom of quad pairs, ``axes`` are those that number the quad pairs, 4 values in all, and the 8 rows and 8
                columns of its result. The new axes are [m/4: TIDx, quad pairs: TIDx, n%4/2: TIDx, m%2: TIDx, n/4, m%4/2, n%2].
            operand: "a" or "b": the axes are one tile of that factor of the atom, its rows or columns and then k, in the layout of the operand's fragment. The
                new axes are those of the lanes, on TIDx, then those of a lane's registers.
        """
        scheduling().fragment(self, axes, atom, operand)
        return self

    def propagate(self, targets: Sequence[TensorView], upto: int | None = None) -> TensorView:
        """Replay this tensor's transforms on ``targets`` so that their ``upto`` outer loop axes equal this tensor's.

        An axis that a target lacks is foreign there. Returns the tensor itself.
        """
        scheduling().propagate(self, targets, upto)
        return self


@checks_calls
@dataclass(frozen=True, slots=True, eq=False)
class AxisRef:
    """A loop axis of a tensor, to be scheduled. Two are equal if tensor and axis are the same."""

    tensor: TensorView
    axis: Axis

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AxisRef) and self.tensor is other.tensor and self.axis is other.axis

    def __hash__(self) -> int:
        return hash((self.tensor, self.axis))

    @property
    def extent(self) -> Expr:
        return self.axis.extent

    @property
    def ptype(self) -> ParallelType:
        return self.tensor.schedule.ptype(self.axis)

    def parallelize(self, ptype: ParallelType) -> AxisRef:
        """Bind the axis to a parallel type. Raises :class:`ScheduleError`. Returns the axis itself."""
        scheduling().parallelize(self.tensor, self.axis, ptype)
        return self


Value = TensorView | Scalar | Expr | int | float | bool
"""The operands of elementwise ops; an expression is an integer that is known at a call."""
