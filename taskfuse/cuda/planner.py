"""Planning: checking arrays against a kernel, choosing the variant, and computing the launch plan (:mod:`taskfuse.cuda.launch_plan`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from taskfuse.cuda.arrays import ArrayView, Framework, Maker, Unfit
from taskfuse.cuda.code import Code
from taskfuse.cuda.driver import Driver
from taskfuse.cuda.fit import check_limits, launch_shape, prepare, refused
from taskfuse.cuda.kernel_interface import KernelInterface
from taskfuse.cuda.launch_plan import LaunchPlan, PromisedTable
from taskfuse.cuda.layout import Layout, alignment_of, row_major
from taskfuse.cuda.parameters import fill
from taskfuse.errors import InputError, LaunchError, OutputError
from taskfuse.kir.arguments import bind_symbols, check_rank, integer, wanted
from taskfuse.kir.declarations import IntegerParam, TensorParam
from taskfuse.kir.promises import promised
from taskfuse.kir.variant import ArgumentLayout, Variant
from taskfuse.reports.resources import LaunchShape

NEW_ARRAY = 1 << 20  # stands for the address of an array that the call will make: aligned like one

Admit = Callable[[Mapping[str, int]], None]
"""Called with the values of the extents; raises if the kernel must not be launched with them."""


class Planner:
    """Makes the plans of one kernel.

    Args:
        interface: that of a verified kernel.
        code: its texts, compiled.
        admit: called before a plan is made, with the values of the extents.
    """

    def __init__(self, interface: KernelInterface, driver: Driver, code: Code, admit: Admit | None = None) -> None:
        self.kernel = kernel = interface.head
        self._interface = interface
        self._driver = driver
        self._code = code
        self._admit = admit
        self._tensors = [p for p in kernel.params if isinstance(p, TensorParam)]
        self._integers = frozenset(p.name for p in kernel.params if isinstance(p, IntegerParam))
        self._narrow: tuple[tuple[int, ...], bool] | None = None
        self._inputs = [(index, p) for index, p in enumerate(wanted(kernel)) if isinstance(p, TensorParam)]

    def plan(
        self, kinds: Sequence[Framework], inputs: Sequence[ArrayView], outputs: Sequence[ArrayView] | None, device: int, integers: Mapping[str, object]
    ) -> LaunchPlan:
        """The plan for arrays on ``device``.

        Args:
            kinds: the framework of each array; the first one's makes the outputs.
            inputs: the inputs, in the order of the parameters.
            outputs: the outputs; ``None``: the call makes them.
            integers: the integer arguments, by name.

        Raises:
            InputError, OutputError: an array does not fit its parameter.
            LaunchError: the GPU cannot run the kernel with these arguments.
            UnsupportedError, CudaCompileError, CudaError: its text cannot be emitted, compiled or loaded.
        """
        views = self._check_inputs(inputs, device)
        try:
            symbols = bind_symbols(self.kernel, {name: v.layout.shape for name, v in views.items()}, integers=integers)
            shapes = {p.name: tuple(integer(e, symbols) for e in p.shape) for p in self._tensors}
        except (ZeroDivisionError, IndexError) as error:
            raise LaunchError(kernel=self.kernel.name, reason=f"an extent has no value: {error}") from None
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
        source = self._code.source(variant)
        shape = launch_shape(self.kernel, source, symbols)
        order = [p.name for _, p in self._inputs] + [p.name for p in self.kernel.outputs]
        plan = LaunchPlan(self._driver, kinds, place, source, makers, tuple(views[name].layout.byte_range for name in order), self._interface.touched)
        plan.tables = tuple(PromisedTable(k, order.index(p.name), p, views[p.name].layout, symbols) for k, p in promised(self.kernel))
        if math.prod(shape.grid) * math.prod(shape.block) == 0:
            self._check_nothing_to_do(shape, views)
            return plan
        check_limits(self.kernel, place, shape)
        function = self._code.function(source, place)
        prepare(self._driver, self.kernel, place, function, source, shape)
        fill(self._driver, plan, function, shape, views, symbols, order)
        return plan

    def _maker(self, kind: Framework, index: int, param: TensorParam, shape: tuple[int, ...], device: int) -> Maker:
        try:
            return kind.maker(shape, param.dtype, device)
        except Unfit as unfit:
            raise OutputError(index=index, fusion=self.kernel.name, reason=unfit.reason, help=unfit.help) from None

    def _variant(self, views: Mapping[str, ArrayView], symbols: Mapping[str, int]) -> Variant:
        forms: list[ArgumentLayout] = []
        wide = not self._fits(symbols)
        if wide and not self._interface.fits_long(symbols):
            sizes = ", ".join(f"{name} = {value}" for name, value in sorted(symbols.items()))
            raise LaunchError(kernel=self.kernel.name, reason=f"its integers do not fit 64 bits at {sizes}", help="pass smaller arrays")
        if wide and not self._interface.reaches_boxes(symbols):
            sizes = ", ".join(f"{name} = {value}" for name, value in sorted(symbols.items()))
            reason = f"coordinates of its bulk copies do not fit 32 bits at {sizes}"
            raise LaunchError(kernel=self.kernel.name, reason=reason, help="pass arrays of fewer than 2**31 elements along each axis")
        for param in self._tensors:
            view = views[param.name]
            form = ArgumentLayout.DENSE  # what only TMA touches is described by its tensor map
            if param.name in self._interface.accessed:
                form = view.layout.form(alignment_of(view.pointer), self._interface.vectors.get(param.name, 0))
                wide = wide or (form is not ArgumentLayout.DENSE and not view.layout.fits_int32)
            forms.append(form)
        return Variant(tuple(forms), wide)

    def _fits(self, symbols: Mapping[str, int]) -> bool:
        """Whether 32-bit integers hold all indices: for all values of the integers, as a rule, so that another value asks nothing again."""
        if not self._integers:
            return self._interface.fits(symbols)
        others = {e.name: symbols[e.name] for e in self.kernel.extents if e.name not in self._integers}
        key = tuple(others.values())
        if self._narrow is None or self._narrow[0] != key:
            self._narrow = key, self._interface.fits(others)
        return self._narrow[1] or self._interface.fits(symbols)

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
                help = "pass an array that is not a broadcast view"
            if reason:
                raise OutputError(index=index, fusion=self.kernel.name, reason=reason, help=help)

    def _check_alignment(self, views: Mapping[str, ArrayView], inputs: int) -> None:
        order = [*(p for _, p in self._inputs), *self.kernel.outputs]
        for position, param in enumerate(order):
            view = views[param.name]
            if view.layout.is_empty or view.pointer % param.dtype.itemsize == 0:
                continue
            reason = f"'{param.name}' starts at an address that is not a multiple of the {param.dtype.itemsize} bytes of its elements"
            help = "pass an aligned copy"
            if position < inputs:
                raise InputError(index=self._inputs[position][0], fusion=self.kernel.name, reason=reason, help=help)
            raise OutputError(index=position - inputs, fusion=self.kernel.name, reason=reason, help=help)

    def _check_nothing_to_do(self, shape: LaunchShape, views: Mapping[str, ArrayView]) -> None:
        for param in self.kernel.outputs:
            if not views[param.name].layout.is_empty:
                raise refused(self.kernel, f"it has no thread to write '{param.name}': {shape}")
