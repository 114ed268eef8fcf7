"""Sequences: several kernels that run in order, as one call, with the tensors between them in one allocation.

All calls with arguments of one signature do the same: each kernel has one launch plan, and each of its arrays is at the address of an
argument or of a result, or at an offset in the memory of an intermediate result. A route is derived from the arrays of one call that took the general path;
later calls probe their arguments, allocate, fill in the changed addresses, and launch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from taskfuse.cuda.arrays import ArrayView, Framework, Kinds, Maker, Unfit
from taskfuse.cuda.driver import Driver
from taskfuse.cuda.frame import STREAM_WORD, Frame, MapSlot
from taskfuse.cuda.launch import Launcher
from taskfuse.cuda.launch_plan import LaunchPlan, overlapping
from taskfuse.cuda.recording import active
from taskfuse.dtypes import uint8
from taskfuse.errors import TaskfuseError

ALIGNMENT: Final = 256
"""Alignment of intermediate tensors in bytes: that of an allocation, as far as kernels may depend on it."""
MOST: Final = 256
"""The most signatures that are kept."""

Place = tuple[int, int]
"""The place of an array: which address of a call, and an offset in bytes. Addresses: of the arguments, of the results, of the intermediate memory."""


class SequencedKernel(NamedTuple):
    """A kernel of a sequence, by name: its launcher, its arguments and its results."""

    launcher: Launcher
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]


class Launches:
    """The launches of one call, in their own frames, with the addresses of the last call. One call at a time owns it.

    Args:
        kernels: the launcher, the plan and the places of the arrays of each kernel.
        count: number of addresses of a call.

    Attributes:
        calls: one function per kernel, in order: it launches, and returns the driver's result.
    """

    __slots__ = ("_addresses", "_frames", "_maps", "_stream", "_words", "calls")

    def __init__(self, kernels: Sequence[tuple[Launcher, LaunchPlan, tuple[Place, ...]]], count: int) -> None:
        self._addresses: list[int] = [-1] * count
        self._stream = -1
        self._frames: list[tuple[Launcher, LaunchPlan, Frame] | None] = []
        self._words: list[list[tuple[memoryview[int], int, int]]] = [[] for _ in range(count)]
        self._maps: list[list[tuple[Launcher, MapSlot, int]]] = [[] for _ in range(count)]
        self.calls: list[Callable[[], int]] = []
        for launcher, plan, places in kernels:
            if plan.workspace is not None:  # which is memory of one launch
                self._frames.append(None)
                self.calls.append(partial(self._lent, launcher, plan, places))
                continue
            frame = plan.frame()
            for word, position in plan.pointers:
                base, offset = places[position]
                self._words[base].append((frame.words, word, offset))
            for slot in frame.maps:
                base, offset = places[slot.position]
                self._maps[base].append((launcher, slot, offset))
            self._frames.append((launcher, plan, frame))
            self.calls.append(frame.launch)

    def fill(self, addresses: list[int], stream: int) -> None:
        """Set the addresses to those of a call. Raises :class:`CudaError`; the launches are unusable afterwards."""
        if stream != self._stream:
            for found in self._frames:
                if found is not None:
                    found[2].words[STREAM_WORD] = stream
            self._stream = stream
        if addresses != self._addresses:
            for base, address in enumerate(addresses):
                if address != self._addresses[base]:
                    for words, word, offset in self._words[base]:
                        words[word] = address + offset
                    for launcher, slot, offset in self._maps[base]:
                        launcher.move(slot, address + offset)
            self._addresses = addresses

    def again(self, number: int, status: int) -> None:
        """Repeat a launch that failed. Raises :class:`CudaError` if it fails again."""
        found = self._frames[number]
        assert found is not None
        launcher, plan, frame = found
        launcher.launch_again(plan, frame, status)

    def _lent(self, launcher: Launcher, plan: LaunchPlan, places: Sequence[Place]) -> int:
        launcher.enqueue(plan, [self._addresses[base] + offset for base, offset in places], self._stream)
        return 0


class Route(NamedTuple):
    """The launches of calls of one signature.

    Attributes:
        kernels: the launcher, the plan and the places of the arrays of each kernel.
        free: launches that no call owns.
        makers: the makers of the results; empty if they are given.
        memory: makes the intermediate memory; ``None``: there are no intermediate tensors.
        apart: the distances between given results and other arrays at which they overlap (:attr:`taskfuse.cuda.launch_plan.LaunchPlan.apart`).
        guarded: whether a call must check first that the context of its GPU is current.
        driver: the driver.
    """

    kernels: tuple[tuple[Launcher, LaunchPlan, tuple[Place, ...]], ...]
    free: list[Launches]
    makers: tuple[Maker, ...]
    memory: Maker | None
    apart: tuple[tuple[int, int, int, int], ...]
    guarded: bool
    driver: Driver

    def run(self, addresses: list[int], given: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """Launch. Returns ``None`` if a given result overlaps another array, or another GPU is current."""
        for position, other, least, most in self.apart:
            if least < addresses[position] - addresses[other] < most:
                return None
        first = self.kernels[0][1]
        if self.guarded and not self.driver.is_current(first.device):
            return None
        current: Callable[[int], int] | None = first.current
        assert current is not None
        stream = current(first.ordinal)
        if given is None:
            given = tuple([make(stream) for make in self.makers])
            pointer = first.pointer
            addresses += [pointer(array) for array in given]
        memory = None
        if self.memory is not None:
            memory = self.memory(stream)
            addresses.append(first.pointer(memory))
        try:
            launches = self.free.pop()
        except IndexError:
            launches = Launches(self.kernels, len(addresses))
        launches.fill(addresses, stream)
        for number, call in enumerate(launches.calls):
            status = call()
            if status:
                launches.again(number, status)
        self.free.append(launches)
        del memory  # later work in the stream may have it
        return given


class Routes:
    """The routes of one sequence of kernels. Safe for calls from several threads.

    Args:
        kinds: the frameworks of this process.
        stages: the kernels.
        arguments, outputs: names of the arguments and of the results of a call.
        views: the tensor behind each view that a kernel takes.
    """

    __slots__ = ("_arguments", "_kinds", "_known", "_outputs", "_stages", "_views")

    def __init__(self, kinds: Kinds, stages: Sequence[SequencedKernel], arguments: Sequence[str], outputs: Sequence[str], views: Mapping[str, str]) -> None:
        self._kinds = kinds
        self._stages = tuple(stages)
        self._arguments = tuple(arguments)
        self._outputs = tuple(outputs)
        self._views = dict(views)
        self._known: dict[Hashable, Route | None] = {}  # replaced, not emptied: others may read it

    def __call__(self, args: Sequence[Any], given: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """Run them in the current stream. ``None``: no call with such arguments has gone the long way, or it has to, as one that is recorded."""
        if active:
            return None
        probes = self._kinds.probes
        addresses: list[int] = []
        signature: Hashable = given is None
        try:
            for array in args if given is None else (*args, *given):
                address, key = probes[type(array)](array)
                addresses.append(address)
                signature = signature, key
            route = self._known.get(signature)
        except (KeyError, RuntimeError, AttributeError, ValueError, TypeError):  # where the error is made, it is said which array it is about
            return None
        return None if route is None else route.run(addresses, given)

    def learn(self, args: Sequence[Any], given: tuple[Any, ...] | None, values: Mapping[str, Any]) -> None:
        """Derive the route of a call that took the general path.

        Args:
            values: all arrays of the call, by the names of tensors.
        """
        probes = self._kinds.probes
        signature: Hashable = given is None
        for array in args if given is None else (*args, *given):
            if type(array) not in probes:
                return
            _, key = probes[type(array)](array)
            signature = signature, key
        if signature in self._known:
            return
        try:
            route = self._route(args, given, values)
        except (TaskfuseError, Unfit, KeyError):
            route = None  # such calls go the long way
        if len(self._known) >= MOST:
            self._known = {}
        self._known[signature] = route

    def _route(self, args: Sequence[Any], given: tuple[Any, ...] | None, values: Mapping[str, Any]) -> Route | None:
        arrays = {**values, **dict(zip(self._arguments, args, strict=True)), **dict(zip(self._outputs, given or (), strict=False))}
        kinds: dict[str, Framework] = {name: self._kinds.of(array) for name, array in arrays.items()}
        if len({kind.name for kind in kinds.values()}) != 1:
            return None
        found = {name: kinds[name].view(array) for name, array in arrays.items()}
        places: dict[str, Place] = {name: (k, 0) for k, name in enumerate((*self._arguments, *self._outputs))}
        end = 0
        for name in (name for stage in self._stages for name in stage.outputs):
            if name not in places:
                places[name] = len(self._arguments) + len(self._outputs), end
                end += -(-_size(found[name]) // ALIGNMENT) * ALIGNMENT
        for name, base in self._views.items():
            delta = self._kinds.of(values[name]).view(values[name]).pointer - self._kinds.of(values[base]).view(values[base]).pointer
            if not (found[base].layout.is_row_major and 0 <= delta < max(_size(found[base]), 1)):
                return None  # a copy, or of an array whose elements lie elsewhere
            places[name] = places[base][0], places[base][1] + delta
        launches: list[tuple[Launcher, LaunchPlan, tuple[Place, ...]]] = []
        for stage in self._stages:
            plan = stage.launcher.plan_of([arrays[name] for name in stage.arguments], tuple(arrays[name] for name in stage.outputs))
            if plan.scalars or plan.report is not None or plan.current is None:
                return None
            launches.append((stage.launcher, plan, tuple(places[name] for name in (*stage.arguments, *stage.outputs))))
        kind, device = next(iter(kinds.values())), launches[0][1].ordinal
        makers: tuple[Maker, ...] = ()
        if given is None:
            makers = tuple(kind.maker(found[name].layout.shape, found[name].dtype, device) for name in self._outputs)
        ranges = [found[name].layout.byte_range for name in (*self._arguments, *self._outputs)]
        memory = kind.maker((end,), uint8, device) if end else None
        apart = overlapping(ranges, len(self._outputs)) if given else ()
        return Route(tuple(launches), [], makers, memory, apart, any(plan.guarded for _, plan, _ in launches), self._kinds.driver)


def _size(view: ArrayView) -> int:
    low, high = view.layout.byte_range
    return high - low
