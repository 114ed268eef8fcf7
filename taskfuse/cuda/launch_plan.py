"""Launch plans: the data of launches of one kernel for arguments of one signature, computed once (:mod:`taskfuse.cuda.planner`).

A signature is everything about the arguments except their addresses: shapes, strides, dtypes, device, alignment. A plan holds the loaded kernel of
the variant that the signature allows, the launch shape, the constant parameters, and how to fill in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from taskfuse.cuda.arrays import Framework, Maker
from taskfuse.cuda.driver import Device, Driver, Function
from taskfuse.cuda.frame import EMPTY_FRAME, Frame, FrameLayout
from taskfuse.cuda.layout import Layout
from taskfuse.cuda.outputs import may_overlap
from taskfuse.cuda.signature import Source
from taskfuse.kir.declarations import TensorParam

PLANS = 1024  # of one generation


class Workspace(NamedTuple):
    """One allocation for all workspace buffers of a launch.

    Attributes:
        make: makes it.
        zeroed: the number of its first bytes that are set to zero before the launch.
        words: (word of the frame, byte of the allocation) of each buffer.
    """

    make: Maker
    zeroed: int
    words: tuple[tuple[int, int], ...]


class PromisedTable(NamedTuple):
    """A table that the caller promises to rise.

    Attributes:
        argument: position of the argument.
        position: position among the arrays.
        param: its declaration.
        layout: layout of its elements.
        symbols: the values of the extents.
    """

    argument: int
    position: int
    param: TensorParam
    layout: Layout
    symbols: Mapping[str, int]


class LaunchPlan:
    """Launches of one kernel with arguments of one signature.

    Attributes:
        kind: framework of the first array, which makes the outputs.
        current: its current stream by device; ``None`` if arrays of several frameworks must be ordered.
        device, ordinal, context: the GPU, its number, its primary context.
        guarded: true if a call must check first whether that context is current. A call that only launches need not: the launch fails otherwise.
        pointer: address of an array of a maker.
        pointers: (word of the frame, position) of each address; positions count the given arrays, inputs then outputs.
        scalars: (byte of the frame, position among the run-time scalars).
        makers: the makers of the outputs; empty if they are given.
        ranges: the byte range of each given array, relative to its address.
        apart: (position of a given output, position of another array, least, most): they overlap if their distance is in this range.
        report: word of the frame for the address of a debug build's report.
        tables: tables that debug builds check before a launch.
        frames: free frames.
    """

    __slots__ = (
        *("_driver", "_function", "_layout", "_maps", "apart", "context", "current", "device", "frames", "guarded", "kind", "makers", "ordinal"),
        *("pointer", "pointers", "ranges", "report", "scalars", "source", "tables", "workspace"),
    )

    def __init__(
        self,
        driver: Driver,
        kinds: Sequence[Framework],
        device: Device,
        source: Source,
        makers: tuple[Maker, ...],
        ranges: tuple[tuple[int, int], ...],
        touched: Collection[str],
    ) -> None:
        self._driver = driver
        self.kind = kind = kinds[0]
        self.current: Callable[[int], int] | None = None if len({k.name for k in kinds}) > 1 else kind.stream_of
        self.device = device
        self.ordinal = device.ordinal
        self.context = device.context
        self.guarded = driver.device_count() > 1 or not kind.knows_devices
        self.pointer: Callable[[Any], int] = kind.pointer
        self.source = source
        self.makers = makers
        self.ranges = ranges
        kernel = source.kernel
        inputs = len(ranges) - len(kernel.outputs)
        found = () if makers else overlapping(ranges, len(kernel.outputs))
        self.apart = tuple(pair for pair in found if not may_overlap(kernel, pair[0] - inputs, pair[1], touched))
        self._function = 0
        self.pointers: tuple[tuple[int, int], ...] = ()
        self.scalars: tuple[tuple[int, int], ...] = ()
        self.workspace: Workspace | None = None
        self.report: int | None = None
        self.tables: tuple[PromisedTable, ...] = ()
        self.frames: list[Frame] = []
        self._layout = EMPTY_FRAME
        self._maps: Sequence[tuple[int, int, int]] = ()

    def set_launch(
        self,
        function: Function,
        layout: FrameLayout,
        pointers: tuple[tuple[int, int], ...],
        scalars: tuple[tuple[int, int], ...],
        maps: Sequence[tuple[int, int, int]],
        workspace: Workspace | None,
    ) -> None:
        """Set the launch, the content of frames, and what calls fill in. ``maps``: see :class:`~taskfuse.cuda.frame.Frame`."""
        self._function = function.handle
        self._layout = layout
        self._maps = maps
        self.pointers = pointers
        self.scalars = scalars
        self.workspace = workspace
        if workspace is not None and workspace.zeroed:
            self.guarded = True

    def frame(self) -> Frame:
        """A new frame."""
        return Frame(self._driver, self._function, self._layout, self._maps)


def overlapping(ranges: Sequence[tuple[int, int]], outputs: int) -> tuple[tuple[int, int, int, int], ...]:
    """The value of :attr:`LaunchPlan.apart` for arrays of these ranges. The outputs are the last arrays; empty ones overlap nothing."""
    found: list[tuple[int, int, int, int]] = []
    for position, (low, high) in list(enumerate(ranges))[len(ranges) - outputs :]:
        for other, (begin, end) in enumerate(ranges[:position]):
            if low < high and begin < end:
                found.append((position, other, begin - high, end - low))
    return tuple(found)


class LaunchPlans:
    """Plans by signature; those not used for a while are dropped.

    Two generations: a look-up moves a plan to the young one; when that is full it becomes the old one, and the old one is dropped. A look-up in
    the young one, the usual case, is one look-up in a dictionary.
    """

    __slots__ = ("_limit", "_old", "young")

    def __init__(self, limit: int = PLANS) -> None:
        self.young: dict[Hashable, LaunchPlan] = {}
        self._old: dict[Hashable, LaunchPlan] = {}
        self._limit = limit

    def older(self, key: Hashable) -> LaunchPlan | None:
        """The plan of a signature that is not in the young generation."""
        found = self._old.get(key)
        if found is not None:
            self.add(key, found)
        return found

    def add(self, key: Hashable, plan: LaunchPlan) -> None:
        """Keep a plan."""
        if len(self.young) >= self._limit:
            self._old = self.young
            self.young = {}
        self.young[key] = plan
