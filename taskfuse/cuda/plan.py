"""Plans: what one kernel needs for arguments of one signature, worked out once.

A signature is everything about the arguments but their addresses: shapes, strides, dtypes, device, alignment. A plan holds the loaded kernel of
the variant that the signature allows, the launch shape and the parameters that do not change, and how to fill in those that do.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

from taskfuse.cuda.arrays import ArrayView, Kind, Maker, Unfit
from taskfuse.cuda.cache import compiled
from taskfuse.cuda.driver import Device, Driver, Function
from taskfuse.cuda.emitted import emitted
from taskfuse.cuda.frame import EMPTY_FRAME, WORD, Frame, FrameLayout, frame_layout
from taskfuse.cuda.layout import Layout, alignment_of, row_major, vector_bytes_of
from taskfuse.cuda.nvrtc import Binary, CompileOptions
from taskfuse.cuda.shape import LaunchShape
from taskfuse.cuda.signature import (
    DivisorArgument,
    IntegerArgument,
    PointerArgument,
    ReportArgument,
    ScalarArgument,
    Source,
    StrideArgument,
    TensorMapArgument,
    WorkspaceArgument,
)
from taskfuse.cuda.tensormap import MAP_BYTES, encode
from taskfuse.cuda.variant import Form, Variant
from taskfuse.cuda.widths import fits
from taskfuse.dtypes import uint8
from taskfuse.errors import InputError, LaunchError, OutputError
from taskfuse.ir.scalar import Expr
from taskfuse.kir import Kernel, accesses, walk
from taskfuse.kir.arguments import bind_symbols, check_rank, integer, wanted
from taskfuse.kir.nodes import AsyncCopy, Gather, ScalarParam, TensorMapParam, TensorParam, VectorCopy
from taskfuse.options import read_options

PLAIN_SHARED = 48 * 1024  # bytes of Shared memory that need no opting in
PORTABLE_CLUSTER = 8  # blocks of a cluster that need no opting in
WORKSPACE_ALIGNMENT = 256
NEW_ARRAY = 1 << 20  # stands for the address of an array that the call will make: aligned like one

OnCompile = Callable[[Source, Binary, str], None]
"""Called with each text, its machine code and the target."""

Admit = Callable[[Mapping[str, int]], None]
"""Called with the values of the extents; raises if the kernel is not to be launched with them."""


class Workspace(NamedTuple):
    """One allocation for all workspace buffers of a launch.

    Attributes:
        make: makes it.
        zeroed: its first bytes, to be set to zero before the launch.
        words: (word of the frame, byte of the allocation) of each buffer.
    """

    make: Maker
    zeroed: int
    words: tuple[tuple[int, int], ...]


class Plan:
    """Launches of one kernel with arguments of one signature.

    Attributes:
        kind: framework of the first array; outputs are its arrays.
        current: its current stream by device; ``None`` if arrays of several frameworks must be ordered.
        device, ordinal, context: the GPU, its number, its primary context.
        guarded: true if a call must find out whether that context is the current one, before it asks for anything. A launch alone needs not: it
            fails without it.
        pointer: address of an array that a maker made.
        pointers: (word of the frame, position) of each address; positions count the arrays given, inputs then outputs.
        scalars: (byte of the frame, position among the run-time scalars).
        makers: what makes the outputs; none if they are given.
        ranges: of each array given, the bytes from its first to behind its last, relative to its address.
        apart: (position of an output given, position of another array, least, most): they overlap if their distance is between these.
        report: word of the frame for the address of a debug build's report.
        frames: frames not in use.
    """

    __slots__ = (
        *("_driver", "_function", "_layout", "_maps", "apart", "context", "current", "device", "frames", "guarded", "kind", "makers", "ordinal"),
        *("pointer", "pointers", "ranges", "report", "scalars", "source", "workspace"),
    )

    def __init__(
        self,
        driver: Driver,
        kinds: Sequence[Kind],
        device: Device,
        source: Source,
        makers: tuple[Maker, ...],
        ranges: tuple[tuple[int, int], ...],
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
        self.apart = () if makers else _apart(ranges, len(source.kernel.outputs))
        self._function = 0
        self.pointers: tuple[tuple[int, int], ...] = ()
        self.scalars: tuple[tuple[int, int], ...] = ()
        self.workspace: Workspace | None = None
        self.report: int | None = None
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
        """What is launched, what frames hold, and what calls fill in. ``maps``: see :class:`~taskfuse.cuda.frame.Frame`."""
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


class Planner:
    """Makes the plans of one kernel; holds its texts.

    Args:
        kernel: a verified kernel.
        arch: target such as ``sm_90a``; ``None``: that of the GPU.
        lenient: see :class:`~taskfuse.cuda.launch.Launcher`.
        on_compile: told of each text that is compiled.
        admit: asked before a plan is made, with the values of the extents.
    """

    def __init__(
        self,
        kernel: Kernel,
        driver: Driver,
        arch: str | None,
        fast_math: bool,
        debug: bool,
        lenient: bool,
        on_compile: OnCompile,
        admit: Admit | None = None,
    ) -> None:
        self.kernel = kernel
        self._driver = driver
        self._arch = arch
        self._fast_math = fast_math
        self._debug = debug
        self._lenient = lenient
        self._on_compile = on_compile
        self._admit = admit
        self._lock = Lock()
        self._sources: dict[Variant, Source] = {}
        self._functions: dict[tuple[Variant, int], Function] = {}
        self._tensors = [p for p in kernel.params if isinstance(p, TensorParam)]
        self._inputs = [(index, p) for index, p in enumerate(wanted(kernel)) if isinstance(p, TensorParam)]
        self._accessed = {a.buffer for s in walk(kernel) for side in accesses(s) for a in side}
        self._vectors = _vectors(kernel)

    def plan(self, kinds: Sequence[Kind], inputs: Sequence[ArrayView], outputs: Sequence[ArrayView] | None, device: int) -> Plan:
        """The plan for arrays on ``device``.

        Args:
            kinds: the framework of each array; the first one's makes the outputs.
            inputs: the inputs, in the order of the parameters.
            outputs: the outputs; ``None``: the call makes them.

        Raises:
            InputError, OutputError: an array that does not fit its parameter.
            LaunchError: the GPU cannot run the kernel so.
            UnsupportedError, CudaCompileError, CudaError: its text cannot be made, compiled or loaded.
        """
        views = self._check_inputs(inputs, device)
        try:
            symbols = bind_symbols(self.kernel, {name: v.layout.shape for name, v in views.items()}, {})
            shapes = {p.name: tuple(integer(e, symbols) for e in p.shape) for p in self._tensors}
        except (ZeroDivisionError, IndexError) as error:
            raise LaunchError(kernel=self.kernel.name, reason=f"an extent or a host parameter has no value: {error}") from None
        if self._admit is not None:
            self._admit(symbols)
        kind = kinds[0]
        makers: tuple[Maker, ...] = ()
        if outputs is None:
            makers = tuple(self._maker(kind, position, p, shapes[p.name], device) for position, p in enumerate(self.kernel.outputs))
            outputs = [ArrayView(NEW_ARRAY, p.dtype, Layout.of(s := shapes[p.name], row_major(s), p.dtype.itemsize), device) for p in self.kernel.outputs]
        else:
            self._check_outputs(outputs, shapes, device)
        views |= {p.name: v for p, v in zip(self.kernel.outputs, outputs, strict=True)}
        self._check_alignment(views, len(inputs))

        place = self._driver.device(device)
        variant = self._variant(views, symbols)
        source = self._source(variant)
        shape = self._launch_shape(source, symbols)
        order = [p.name for _, p in self._inputs] + [p.name for p in self.kernel.outputs]
        plan = Plan(self._driver, kinds, place, source, makers, tuple(views[name].layout.byte_range for name in order))
        if math.prod(shape.grid) * math.prod(shape.block) == 0:
            self._check_nothing_to_do(shape, views)
            return plan
        self._check_limits(place, shape)
        function = self._function(source, place)
        self._prepare(place, function, source, shape)
        self._fill(plan, function, shape, views, symbols, order)
        return plan

    # -- checks -------------------------------------------------------------------------------------------------------------------------

    def _check_inputs(self, inputs: Sequence[ArrayView], device: int) -> dict[str, ArrayView]:
        views: dict[str, ArrayView] = {}
        for (index, param), view in zip(self._inputs, inputs, strict=True):
            name = self.kernel.name
            if view.device != device:
                reason = f"'{param.name}' is on device {view.device}, other arrays are on device {device}"
                raise InputError(index=index, fusion=name, reason=reason, help="move all arrays of a call to one device")
            if view.dtype is not param.dtype:
                reason = f"'{param.name}' has dtype {view.dtype}, not {param.dtype}"
                raise InputError(index=index, fusion=name, reason=reason, help=f"pass it converted to {param.dtype}")
            check_rank(self.kernel, index, param, len(view.layout.shape))
            views[param.name] = view
        return views

    def _check_outputs(self, outputs: Sequence[ArrayView], shapes: Mapping[str, tuple[int, ...]], device: int) -> None:
        for index, (param, view) in enumerate(zip(self.kernel.outputs, outputs, strict=True)):
            reason, help = "", None
            if view.device != device:
                reason, help = f"it is on device {view.device}, other arrays are on device {device}", "move all arrays of a call to one device"
            elif view.dtype is not param.dtype:
                reason = f"'{param.name}' has dtype {param.dtype}, the array {view.dtype}"
            elif view.layout.shape != shapes[param.name]:
                reason = f"'{param.name}' has shape {list(shapes[param.name])}, the array {list(view.layout.shape)}"
            elif view.layout.overlaps_itself:
                reason = f"two of its elements have one address: shape {list(view.layout.shape)}, strides {list(view.layout.strides)}"
                help = "pass an array that is no broadcast view"
            if reason:
                raise OutputError(index=index, fusion=self.kernel.name, reason=reason, help=help)

    def _check_alignment(self, views: Mapping[str, ArrayView], inputs: int) -> None:
        order = [*(p for _, p in self._inputs), *self.kernel.outputs]
        for position, param in enumerate(order):
            view = views[param.name]
            if view.layout.is_empty or view.pointer % param.dtype.itemsize == 0:
                continue
            reason = f"'{param.name}' starts at an address that is no multiple of the {param.dtype.itemsize} bytes of its elements"
            help = "pass an aligned copy"
            if position < inputs:
                raise InputError(index=self._inputs[position][0], fusion=self.kernel.name, reason=reason, help=help)
            raise OutputError(index=position - inputs, fusion=self.kernel.name, reason=reason, help=help)

    def _check_nothing_to_do(self, shape: LaunchShape, views: Mapping[str, ArrayView]) -> None:
        for param in self.kernel.outputs:
            if not views[param.name].layout.is_empty:
                raise self._refuse(f"it has no thread to write '{param.name}': {shape}")

    def _check_limits(self, device: Device, shape: LaunchShape) -> None:
        if shape.threads > device.max_threads:
            raise self._refuse(f"{shape.threads} threads per block; a block of {device.name} has at most {device.max_threads}")
        for axis, found, most in zip("xyz", shape.block, device.max_block, strict=True):
            if found > most:
                raise self._refuse(f"{found} threads per block in {axis}; {device.name} has at most {most}")
        for axis, found, most in zip("xyz", shape.grid, device.max_grid, strict=True):
            if found > most:
                help = "parallelize the longest axis with BIDx, or split it" if axis != "x" else None
                raise self._refuse(f"{found} blocks in {axis}; {device.name} has at most {most}", help)
        for axis, found, size in zip("xyz", shape.grid, shape.cluster, strict=True):
            if size < 1 or found % size:
                raise self._refuse(f"{found} blocks in {axis} are no whole clusters of {size}")

    def _prepare(self, device: Device, function: Function, source: Source, shape: LaunchShape) -> None:
        """Checks that need the loaded kernel, and its settings for launches of this shape."""
        shared = shape.shared_bytes
        if shape.threads > function.max_threads:
            reason = f"{shape.threads} threads per block; its registers allow {function.max_threads}"
            raise self._refuse(reason, "give it fewer threads, or fewer values in registers")
        if shared + function.static_shared > device.max_shared:
            reason = f"{shared + function.static_shared} bytes of Shared memory per block; {device.name} has {device.max_shared}"
            raise self._refuse(reason, "use smaller tiles or fewer stages")
        with self._driver.current(device):
            if shared + function.static_shared > PLAIN_SHARED:
                self._driver.allow_shared(function, shared)
            blocks = math.prod(shape.cluster)
            if blocks > 1:
                if blocks > PORTABLE_CLUSTER:
                    self._driver.allow_large_clusters(function)
                if not self._driver.resident_clusters(function, shape.grid, shape.block, shape.cluster, shared):
                    raise self._refuse(f"{device.name} holds no cluster of {blocks} such blocks", "use smaller clusters, or blocks with less Shared memory")
            if source.cooperative:
                self._check_resident(device, function, shape)

    def _check_resident(self, device: Device, function: Function, shape: LaunchShape) -> None:
        blocks = math.prod(shape.grid)
        if not device.cooperative:
            raise self._refuse(f"its blocks wait for each other, and {device.name} does not launch cooperatively")
        fitting = device.multiprocessors * self._driver.resident_blocks(function, shape.threads, shape.shared_bytes)
        if blocks > fitting:
            reason = f"its {blocks} blocks wait for each other, and {device.name} holds {fitting} of them at once"
            raise self._refuse(reason, "use fewer blocks, each with more work, or blocks with fewer threads or less Shared memory")

    def _refuse(self, reason: str, help: str | None = None) -> LaunchError:
        return LaunchError(kernel=self.kernel.name, reason=reason, help=help)

    # -- code ---------------------------------------------------------------------------------------------------------------------------

    def _variant(self, views: Mapping[str, ArrayView], symbols: Mapping[str, int]) -> Variant:
        forms: list[Form] = []
        wide = not fits(self.kernel, symbols)
        for param in self._tensors:
            view = views[param.name]
            form = Form.DENSE  # what only TMA touches is described by its tensor map
            if param.name in self._accessed:
                form = view.layout.form(alignment_of(view.pointer), self._vectors.get(param.name, 0))
                wide = wide or (form is not Form.DENSE and not view.layout.fits_int32)
            forms.append(form)
        return Variant(tuple(forms), wide)

    def _source(self, variant: Variant) -> Source:
        with self._lock:
            found = self._sources.get(variant)
            if found is None:
                found = self._sources[variant] = emitted(self.kernel, variant, self._fast_math, self._debug, read_options())
        return found

    def _function(self, source: Source, device: Device) -> Function:
        key = (source.variant, device.ordinal)
        found = self._functions.get(key)
        if found is None:
            arch = self._target(source, device)
            options = CompileOptions(arch=arch, fast_math=self._fast_math)
            binary = compiled(source.text, source.name, options, read_options(), strict=source.feature_arch and not self._lenient)
            self._on_compile(source, binary, arch)
            found = self._functions[key] = self._driver.function(device, binary.code, source.name)
        return found

    def _target(self, source: Source, device: Device) -> str:
        """The architecture to compile for."""
        own = f"sm_{source.arch}a" if source.feature_arch else f"sm_{source.arch}"
        if device.arch < source.arch or (source.feature_arch and device.arch != source.arch):
            raise self._refuse(f"it has instructions of {own}{' alone' if source.feature_arch else ' and newer'}; {device.name} is sm_{device.arch}")
        if self._arch is None:
            return f"sm_{device.arch}a" if source.feature_arch else f"sm_{device.arch}"
        asked = re.fullmatch(r"sm_(\d+)([af]?)", self._arch)
        if asked is not None:
            number = int(asked[1])
            runs = number == device.arch if asked[2] == "a" else number // 10 == device.arch // 10 and number <= device.arch
            if not runs or number < source.arch or (source.feature_arch and self._arch != own):
                reason = f"it was to be compiled for {self._arch}; it needs {own}, and {device.name} is sm_{device.arch}"
                raise self._refuse(reason, f'use arch="{own if source.feature_arch else f"sm_{device.arch}"}", or none')
        return self._arch

    # -- parameters ---------------------------------------------------------------------------------------------------------------------

    def _launch_shape(self, source: Source, symbols: Mapping[str, int]) -> LaunchShape:
        kernel = self.kernel

        def three(exprs: tuple[Expr, Expr, Expr]) -> tuple[int, int, int]:
            x, y, z = (max(integer(e, symbols), 0) for e in exprs)
            return x, y, z

        try:
            return LaunchShape(three(kernel.grid), three(kernel.block), three(kernel.cluster), integer(source.shared_bytes, symbols))
        except (ZeroDivisionError, IndexError) as error:
            raise self._refuse(f"its launch shape has no value: {error}") from None

    def _maker(self, kind: Kind, index: int, param: TensorParam, shape: tuple[int, ...], device: int) -> Maker:
        try:
            return kind.maker(shape, param.dtype, device)
        except Unfit as unfit:
            raise OutputError(index=index, fusion=self.kernel.name, reason=unfit.reason, help=unfit.help) from None

    def _fill(
        self,
        plan: Plan,
        function: Function,
        shape: LaunchShape,
        views: Mapping[str, ArrayView],
        symbols: Mapping[str, int],
        order: Sequence[str],
    ) -> None:
        """The parameters: their bytes where they do not change, their places where they do."""
        source = plan.source
        maps = {p.name: p for p in self.kernel.params if isinstance(p, TensorMapParam)}
        values = [self._bytes(a, views, symbols, maps) for a in source.arguments]
        layout = frame_layout(shape, source.cooperative, values)
        scalars = [p.name for p in wanted(self.kernel) if isinstance(p, ScalarParam)]
        pointers: list[tuple[int, int]] = []
        places: list[tuple[int, int]] = []
        encoded: list[tuple[int, int, int]] = []
        spaces: list[tuple[int, WorkspaceArgument]] = []
        for argument, offset in zip(source.arguments, layout.offsets, strict=True):
            match argument:
                case PointerArgument(tensor=name):
                    pointers.append((offset // WORD, order.index(name)))
                case ScalarArgument(name=name):
                    places.append((offset, scalars.index(name)))
                case TensorMapArgument(name=name):
                    view = views[maps[name].tensor]
                    if not view.layout.is_empty:
                        encoded.append((offset, order.index(maps[name].tensor), view.pointer))
                case WorkspaceArgument():
                    spaces.append((offset // WORD, argument))
                case ReportArgument():
                    plan.report = offset // WORD
                    plan.guarded = True
                case StrideArgument() | IntegerArgument() | DivisorArgument():
                    pass
        workspace = self._workspace(plan.kind, plan.ordinal, spaces, symbols) if spaces else None
        plan.set_launch(function, layout, tuple(pointers), tuple(places), encoded, workspace)

    def _bytes(
        self,
        argument: object,
        views: Mapping[str, ArrayView],
        symbols: Mapping[str, int],
        maps: Mapping[str, TensorMapParam],
    ) -> bytes:
        match argument:
            case StrideArgument(tensor=name, axis=axis, wide=wide):
                return struct.pack("<q" if wide else "<i", views[name].layout.strides[axis])
            case IntegerArgument(value=value, wide=wide):
                return struct.pack("<q" if wide else "<i", integer(value, symbols))
            case DivisorArgument(value=value):
                return divisor_bytes(integer(value, symbols))
            case ScalarArgument(dtype=dtype):
                return bytes(dtype.itemsize)
            case TensorMapArgument(name=name):
                view = views[maps[name].tensor]
                found = encode(self._driver, self.kernel, maps[name], view)
                assert len(found) == MAP_BYTES
                return found
            case _:
                return bytes(WORD)

    def _workspace(self, kind: Kind, device: int, spaces: Sequence[tuple[int, WorkspaceArgument]], symbols: Mapping[str, int]) -> Workspace:
        words: list[tuple[int, int]] = []
        end = zeroed = 0
        for word, argument in sorted(spaces, key=lambda s: not s[1].zero):  # those that start at zero first
            words.append((word, end))
            end += -(-integer(argument.bytes, symbols) // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
            if argument.zero:
                zeroed = end
        return Workspace(kind.maker((end,), uint8, device), zeroed, tuple(words))


def divisor_bytes(value: int) -> bytes:
    """A divisor as :class:`~taskfuse.cuda.signature.DivisorArgument` says. That of an empty extent, by which nothing is divided, counts 1."""
    value = max(value, 1)
    shift = (value - 1).bit_length()
    return struct.pack("<3I", value, ((1 << 32) * ((1 << shift) - value)) // value + 1, shift)


def _apart(ranges: Sequence[tuple[int, int]], outputs: int) -> tuple[tuple[int, int, int, int], ...]:
    """See :attr:`Plan.apart`. The outputs are the last of the arrays; empty ones overlap nothing."""
    found: list[tuple[int, int, int, int]] = []
    for position, (low, high) in list(enumerate(ranges))[len(ranges) - outputs :]:
        for other, (begin, end) in enumerate(ranges[:position]):
            if low < high and begin < end:
                found.append((position, other, begin - high, end - low))
    return tuple(found)


def _vectors(kernel: Kernel) -> dict[str, int]:
    """What the address of each tensor must be a multiple of for its vectors and asynchronous copies."""
    itemsizes = {p.name: p.dtype.itemsize for p in kernel.params if isinstance(p, TensorParam)}
    found: dict[str, list[int]] = {}
    for stmt in walk(kernel):
        if isinstance(stmt, VectorCopy | AsyncCopy) or (isinstance(stmt, Gather) and stmt.width > 1):
            for access in (stmt.out, stmt.source):
                if access.buffer in itemsizes:
                    found.setdefault(access.buffer, []).append(stmt.width * itemsizes[access.buffer])
    return {name: vector_bytes_of(sizes) for name, sizes in found.items()}
