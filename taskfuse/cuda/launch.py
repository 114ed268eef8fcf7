"""Launches: a kernel as a function on arrays of a GPU.

A repeated call probes each array (:mod:`taskfuse.cuda.arrays`), looks up the plan by the results, takes a free frame of the plan, fills in stream and
addresses, and launches. It allocates only the outputs and the workspace, from the framework's own
allocator, waits for nothing, and shares only the list of free frames with calls in other threads.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from taskfuse.cuda.arrays import ArrayView, Framework, Kinds, Unfit, is_on_host, numpy_dtype, stream_handle
from taskfuse.cuda.code import Code, OnCompile
from taskfuse.cuda.debug import REPORT_BYTES, empty_report, read_report
from taskfuse.cuda.device_array import DeviceArray, host_copy
from taskfuse.cuda.frame import STREAM_WORD, Frame, MapSlot
from taskfuse.cuda.kernel_interface import KernelInterface, interface_of
from taskfuse.cuda.launch_plan import LaunchPlan, LaunchPlans, Workspace
from taskfuse.cuda.layout import Layout, row_major
from taskfuse.cuda.outputs import check_host_outputs, check_overlaps, outputs_given, store
from taskfuse.cuda.planner import NEW_ARRAY, Admit, Planner
from taskfuse.cuda.recording import active, note
from taskfuse.dtypes import DType, DTypeKind, float32, float64
from taskfuse.errors import CudaError, HangError, InputError, LaunchError, OutputError
from taskfuse.ir.arguments import integer_argument, scalar_argument
from taskfuse.ir.values import NATIVE
from taskfuse.kir import Kernel
from taskfuse.kir.arguments import check_count, wanted
from taskfuse.kir.declarations import IntegerParam, ScalarParam, TensorParam
from taskfuse.kir.promises import check_promises
from taskfuse.options import read_options

EARLIER_ERRORS = ("it may be the error of an earlier launch, which the driver tells of now; compute-sanitizer finds the place",)

Out = Any
"""An array, or a tuple of them."""

Packer = tuple[type, Callable[..., None]]


class Launcher:
    """A kernel on the GPUs of this process. Safe for calls from several threads, on several streams, at the same time.

    Attributes:
        probes: the probe of each type of array that needs no adoption.
        kinds: the frameworks of this process, and its driver.

    Args:
        kernel: a verified kernel, or the interface of one.
        kinds: the frameworks of this process, and its driver.
        arch: target to compile for; ``None``: that of the GPU.
        fast_math, debug: see :func:`taskfuse.compile`.
        lenient: the compiler's diagnostics about registers are warnings even if the kernel depends on registers (``wgmma``, ``setmaxnreg``).
        on_compile: called with each text that is compiled.
        admit: called with the values of the extents before the first launch on arrays of new shapes; the call raises its exceptions.
    """

    def __init__(
        self,
        kernel: Kernel | KernelInterface,
        kinds: Kinds,
        *,
        arch: str | None = None,
        fast_math: bool = False,
        debug: bool = False,
        lenient: bool = False,
        on_compile: OnCompile = lambda source, binary, arch: None,
        admit: Admit | None = None,
    ) -> None:
        own = kernel if isinstance(kernel, KernelInterface) else interface_of(kernel)
        self.kernel = kernel = own.head
        self._driver = driver = kinds.driver
        self.kinds = kinds
        self.probes = kinds.probes
        self._planner = Planner(own, driver, Code(own, driver, arch, fast_math, debug, lenient, on_compile), admit)
        self._plans = LaunchPlans()
        self._touched = own.touched
        params = wanted(kernel)
        self._count = len(params)
        self._outputs = len(kernel.outputs)
        self._scalars = [(index, p) for index, p in enumerate(params) if isinstance(p, ScalarParam)]
        self._integers = [(index, p.name) for index, p in enumerate(params) if isinstance(p, IntegerParam)]
        self._positions = [index for index, p in enumerate(params) if isinstance(p, TensorParam)]
        self._has_arrays_alone = not self._scalars and not self._integers
        self._packers = [_packer(p.dtype) for _, p in self._scalars]
        self._names = [params[k].name for k in self._positions] + [p.name for p in kernel.outputs]

    def __call__(self, args: Sequence[Any], out: Out = None, stream: Any = None) -> tuple[Any, ...]:
        """Launch on arrays of a GPU; NumPy arrays are copied there and back.

        Args:
            args: the inputs, the run-time scalars and integers, in the order of the kernel's parameters.
            out: arrays for the outputs; ``None``: new ones.
            stream: where to; ``None``: the current stream of the first array's framework.

        Returns:
            The outputs, arrays of the first array's framework, or ``out`` as a tuple. They are ready in the order of the stream.

        Raises:
            InputError, OutputError: arguments that do not fit.
            LaunchError, CudaError: see :meth:`Planner.plan`; the driver refuses the launch.
        """
        if len(args) != self._count:
            check_count(self.kernel, len(args))
        arrays: Sequence[Any] = args if self._has_arrays_alone else [args[k] for k in self._positions]
        given: tuple[Any, ...] | None = None
        if out is not None:
            is_one = self._outputs == 1 and type(out) in self.probes
            given = listed = (out,) if is_one else out if out.__class__ is tuple and len(out) == self._outputs else outputs_given(self.kernel, out)
            arrays = (*arrays, *listed)
        probes = self.probes
        addresses: list[int] = []
        signature: Hashable = given is None
        if self._integers:
            signature = signature, self._values(args)
        try:
            for array in arrays:
                address, key = probes[type(array)](array)
                addresses.append(address)
                signature = signature, key
        except KeyError:
            return self._adopt(args, arrays, given, stream)
        except (RuntimeError, AttributeError, ValueError):  # of the framework: an array that has no address or no strides
            for position, array in enumerate(arrays):
                kind = self.kinds.find(array)
                if kind is not None:
                    self._view(position, array, kind)
            raise
        if not arrays:  # whatever a call before it did
            return self._from_host(args, arrays, given, stream)
        plan = self._plans.young.get(signature)
        if plan is None:
            plan = self._plans.older(signature) or self._new_plan(signature, arrays, given, args)
        if stream is None:
            if plan.current is None:
                return self._adopt(args, arrays, given, stream)
            return self._launch(plan, args, addresses, given, plan.current(plan.ordinal))
        handle = self._handle(stream)
        with plan.kind.using(handle, plan.ordinal):
            return self._launch(plan, args, addresses, given, handle)

    def _launch(self, plan: LaunchPlan, args: Sequence[Any], addresses: list[int], given: tuple[Any, ...] | None, stream: int) -> tuple[Any, ...]:
        """Launch ``plan`` in ``stream``, the current one of the framework that makes arrays. ``addresses`` are those of all arrays given."""
        if given is not None:
            for position, other, least, most in plan.apart:
                if least < addresses[position] - addresses[other] < most:
                    self._refuse_overlap(addresses, plan.ranges)
        try:
            frame = plan.frames.pop()
        except IndexError:
            frame = plan.frame()
        if plan.guarded:
            frame.get_context()
            if frame.context.value != plan.context:
                plan.frames.append(frame)
                with self._driver.current(plan.device):
                    return self._launch(plan, args, addresses, given, stream)
        if plan.scalars:
            self._fill_scalars(plan, frame, args)
        if given is None:
            given = tuple([make(stream) for make in plan.makers])
            for array in given:
                addresses.append(plan.pointer(array))
        self._start(plan, frame, addresses, stream)
        return given

    def plan_of(self, arrays: Sequence[Any], given: tuple[Any, ...]) -> LaunchPlan:
        """The plan for a kernel without integer arguments, arrays and outputs that all have a probe.

        Raises:
            InputError, OutputError, LaunchError, CudaError: see :meth:`__call__`.
        """
        signature: Hashable = False
        for array in (*arrays, *given):
            _, key = self.probes[type(array)](array)
            signature = signature, key
        return self._plans.young.get(signature) or self._plans.older(signature) or self._new_plan(signature, (*arrays, *given), given, ())

    def enqueue(self, plan: LaunchPlan, addresses: Sequence[int], stream: int) -> None:
        """Launch a plan without run-time scalars in the current context.

        Args:
            addresses: of its arrays, inputs then outputs.
        """
        try:
            frame = plan.frames.pop()
        except IndexError:
            frame = plan.frame()
        self._start(plan, frame, addresses, stream)

    def _start(self, plan: LaunchPlan, frame: Frame, addresses: Sequence[int], stream: int) -> None:
        if active:
            note(self, plan, addresses)
        words = frame.words
        words[STREAM_WORD] = stream
        for word, position in plan.pointers:
            words[word] = addresses[position]
        for slot in frame.maps:
            if slot.pointer != addresses[slot.position]:
                self.move(slot, addresses[slot.position])
        memory = self.lend_workspace(plan, plan.workspace, frame, stream) if plan.workspace is not None else None
        if plan.report is not None:
            self._launch_reporting(plan, plan.report, frame, addresses, stream)
        else:
            status = frame.launch()
            if status:
                self.launch_again(plan, frame, status)
        del memory  # later work in the stream may have it
        plan.frames.append(frame)

    # -- the parts of a launch that not every kernel has -------------------------------------------------------------------------------

    def _refuse_overlap(self, addresses: Sequence[int], ranges: Sequence[tuple[int, int]]) -> None:
        inputs = len(addresses) - len(self.kernel.outputs)
        check_overlaps(self.kernel, [(a + low, a + high) for a, (low, high) in zip(addresses, ranges, strict=True)], inputs, self._touched)

    def launch_again(self, plan: LaunchPlan, frame: Frame, status: int) -> None:
        """Repeat a launch that failed, in the context of the plan, if that was not the current one."""
        if not self._driver.is_current(plan.device):
            with self._driver.current(plan.device):
                status = frame.launch()
        self._check(status, "launch")

    def _fill_scalars(self, plan: LaunchPlan, frame: Frame, args: Sequence[Any]) -> None:
        for offset, number in plan.scalars:
            index, param = self._scalars[number]
            value = args[index]
            quick = self._packers[number]
            if quick is not None and type(value) is quick[0] and param.dtype.holds(value):
                try:
                    quick[1](frame.block, offset, value)
                    continue
                except OverflowError:  # a float beyond float32 becomes infinite
                    pass
            content = scalar_argument(self.kernel.name, index, param.name, param.dtype, value, NATIVE).tobytes()
            frame.block[offset : offset + len(content)] = content

    def move(self, slot: MapSlot, address: int) -> None:
        """Set the address of a tensor map's array."""
        self._check(self._driver.replace_address(slot.address, address), "tensor map")
        slot.pointer = address

    def lend_workspace(self, plan: LaunchPlan, space: Workspace, frame: Frame, stream: int) -> object:
        """Memory for the workspace buffers of one launch. It must live until the launch."""
        memory = space.make(stream)
        begin = plan.pointer(memory)
        for word, offset in space.words:
            frame.words[word] = begin + offset
        if space.zeroed:
            self._check(self._driver.fill(begin, 0, space.zeroed, stream), "memory set")
        return memory

    def _launch_reporting(self, plan: LaunchPlan, word: int, frame: Frame, addresses: Sequence[int], stream: int) -> None:
        """Launch a debug build, and wait for it unless the stream records a graph. ``word``: that of the report."""
        limit = read_options().watchdog_ms
        tables = () if self._driver.is_capturing(stream) else plan.tables
        if tables:
            copies = (host_copy(self._driver, addresses[t.position], t.layout, t.param.dtype, stream) for t in tables)
            check_promises(self.kernel, ((t.argument, t.param, elements) for t, elements in zip(tables, copies, strict=True)), tables[0].symbols)
        if frame.report == 0:
            frame.report = self._driver.host_buffer(REPORT_BYTES)
        ctypes.memmove(frame.report, empty_report(limit), REPORT_BYTES)
        frame.words[word] = frame.report
        self._check(frame.launch(), "launch")
        if self._driver.is_capturing(stream):
            return
        try:
            self._driver.synchronize(stream)
        except CudaError as error:
            found = read_report(ctypes.string_at(frame.report, REPORT_BYTES), plan.source.waits)
            if found is None:
                error.notes = (f"in kernel '{self.kernel.name}', or before it",)
                raise
            note = f"no wait may take longer than {limit} ms (TASKFUSE_WATCHDOG_MS); the CUDA context is lost"
            raise HangError(kernel=self.kernel.name, reason=str(found), location=found.point.location, notes=(note,)) from None

    def _check(self, status: int, what: str) -> None:
        if status:
            error = self._driver.error(status, f"{what} of kernel '{self.kernel.name}'")
            error.notes = EARLIER_ERRORS
            raise error

    # -- arguments of every kind --------------------------------------------------------------------------------------------------------

    def _handle(self, stream: Any) -> int:
        try:
            return stream_handle(stream)
        except Unfit as unfit:
            raise LaunchError(kernel=self.kernel.name, reason=unfit.reason, help=unfit.help) from None

    def _unfit(self, position: int, unfit: Unfit) -> InputError | OutputError:
        """The error about the array at a position: inputs, then outputs."""
        inputs = self._positions
        if position < len(inputs):
            reason = f"'{self._names[position]}': {unfit.reason}"
            return InputError(index=inputs[position], fusion=self.kernel.name, reason=reason, help=unfit.help)
        return OutputError(index=position - len(inputs), fusion=self.kernel.name, reason=f"'{self._names[position]}': {unfit.reason}", help=unfit.help)

    def _view(self, position: int, array: Any, kind: Framework) -> ArrayView:
        try:
            return kind.view(array)
        except Unfit as unfit:
            raise self._unfit(position, unfit) from None
        except RuntimeError as error:  # of the framework: an array without memory, such as one that stands for others while a graph is traced
            raise self._unfit(position, Unfit(f"{kind.name} says: {error}")) from error

    def _values(self, args: Sequence[Any]) -> tuple[int, ...]:
        """The integers of a call. Raises :class:`InputError` for a value that is not an integer."""
        return tuple([args[k] if type(args[k]) is int else integer_argument(self.kernel.name, k, name, args[k]) for k, name in self._integers])

    def _new_plan(self, signature: Hashable, arrays: Sequence[Any], given: tuple[Any, ...] | None, args: Sequence[Any]) -> LaunchPlan:
        kinds = [self.kinds.of(a) for a in arrays]
        views = [self._view(position, a, kind) for position, (a, kind) in enumerate(zip(arrays, kinds, strict=True))]
        split = len(self._positions)
        try:
            plan = self._planner.plan(kinds, views[:split], views[split:] if given is not None else None, views[0].device, self._named(args))
        except CudaError as error:
            if "CAPTURE" in str(error.fields["name"]):
                error.help = "call it with such arrays once before the capture: that loads the kernel"
            raise
        self._plans.add(signature, plan)
        return plan

    def _named(self, args: Sequence[Any]) -> dict[str, object]:
        return {name: args[k] for k, name in self._integers}

    def _adopt(self, args: Sequence[Any], arrays: Sequence[Any], given: tuple[Any, ...] | None, stream: Any) -> tuple[Any, ...]:
        """A call with arrays that have no probe, or of several frameworks, or none at all."""
        kinds = [self.kinds.find(a) for a in arrays]
        hosts = [kind is None and is_on_host(a) for kind, a in zip(kinds, arrays, strict=True)]
        if all(hosts):
            return self._from_host(args, arrays, given, stream)
        if any(hosts):
            help = "move it to the GPU, or all others to NumPy"
            raise self._unfit(hosts.index(True), Unfit("it is in host memory, other arrays are on a GPU", help))
        if None not in kinds and (stream is not None or len({k.name for k in kinds if k is not None}) == 1):
            return self(args, given, stream)  # the types have their probes now
        devices = [self._device(position, array, kind) for position, (array, kind) in enumerate(zip(arrays, kinds, strict=True))]
        device = self._driver.device(devices[0])
        handle = self._common_stream(arrays, kinds, devices, given) if stream is None else self._handle(stream)
        with self._driver.current(device):
            # the streams of frameworks that do not give the stream of the call
            others = {kind.stream_of(d) for kind, d in zip(kinds, devices, strict=True) if stream is None and kind is not None and d == device.ordinal} - {
                handle
            }
            for other in others:
                self._driver.order(other, handle)
            taken = [self._take(position, a, kind, handle, d) for position, (a, kind, d) in enumerate(zip(arrays, kinds, devices, strict=True))]
            split = len(self._positions)
            new = list(args)
            for position, array in zip(self._positions, taken, strict=False):
                new[position] = array
            made = self(new, None if given is None else tuple(taken[split:]), handle)
            for other in others:
                self._driver.order(handle, other)
        return made if given is None else given

    def _device(self, position: int, array: Any, kind: Framework | None) -> int:
        if kind is not None:
            return self._view(position, array, kind).device
        try:
            return self.kinds.device_of(array)
        except Unfit as unfit:
            raise self._unfit(position, unfit) from None

    def _common_stream(self, arrays: Sequence[Any], kinds: Sequence[Framework | None], devices: Sequence[int], given: tuple[Any, ...] | None) -> int:
        """The stream of the first array that has one; else one of taskfuse's own."""
        for array, kind, device in zip(arrays, kinds, devices, strict=True):
            found = self.kinds.stream_of(array) if kind is None else kind.stream_of(device)
            if found is not None:
                return found
        if given is not None:
            raise self._unfit(len(self._positions), Unfit("no array says in which stream it is used", "pass stream="))
        return self._driver.own_stream(self._driver.device(devices[0]))

    def _take(self, position: int, array: Any, kind: Framework | None, stream: int, device: int) -> Any:
        if kind is not None:
            return array
        try:
            return self.kinds.adopt(array, stream, device, written=position >= len(self._positions))
        except Unfit as unfit:
            raise self._unfit(position, unfit) from None

    def _from_host(self, args: Sequence[Any], arrays: Sequence[Any], given: tuple[Any, ...] | None, stream: Any) -> tuple[Any, ...]:
        """A call on NumPy arrays: copied to the current GPU, and the outputs back."""
        split = len(self._positions)
        device = self._driver.device(self._driver.current_device())
        handle = self._driver.own_stream(device) if stream is None else self._handle(stream)
        hosts = [np.asarray(a) for a in arrays]
        views: list[ArrayView] = []
        for position, array in enumerate(hosts):
            try:
                dtype = numpy_dtype(array.dtype)
            except Unfit as unfit:
                raise self._unfit(position, unfit) from None
            views.append(ArrayView(NEW_ARRAY, dtype, Layout.of(array.shape, row_major(array.shape), dtype.itemsize), device.ordinal))
        if given is not None:
            check_host_outputs(self.kernel, hosts[:split], given, self._touched)
        loan = self.kinds.loan
        signature: Hashable = given is None
        if self._integers:
            signature = signature, self._values(args)
        for view in views:
            signature = signature, (view.layout, view.dtype, device.ordinal, NEW_ARRAY & 15)
        plan = self._plans.young.get(signature) or self._plans.older(signature)
        with self._driver.current(device):
            if plan is None:
                plan = self._planner.plan([loan], views[:split], views[split:] if given is not None else None, device.ordinal, self._named(args))
                self._plans.add(signature, plan)
            if plan.tables:
                check_promises(self.kernel, ((t.argument, t.param, hosts[t.position]) for t in plan.tables), plan.tables[0].symbols)
            held = [DeviceArray.empty(self._driver, v.layout.shape, v.dtype, device, handle) for v in views]
            for array, copy in zip(hosts[:split], held, strict=False):
                dense = np.ascontiguousarray(array)
                self._driver.copy_to_device(copy.pointer, dense.ctypes.data, dense.nbytes, handle)
            made = self._launch(plan, args, [a.pointer for a in held], None if given is None else tuple(held[split:]), handle)
            results = tuple(a.numpy() for a in made)
        if given is None:
            return results
        store(self.kernel, results, given)
        return given


def _packer(dtype: DType) -> Packer | None:
    """The Python type whose values ``struct`` rounds as NumPy does, and the function that packs one; ``None`` otherwise."""
    if dtype in (float32, float64):
        return float, struct.Struct("f" if dtype is float32 else "d").pack_into
    if dtype.is_integer:
        code = {8: "b", 16: "h", 32: "i", 64: "q"}[dtype.bits]
        return int, struct.Struct("=" + (code.upper() if dtype.kind is DTypeKind.UINT else code)).pack_into
    return None
