"""The code of one kernel: its texts by variant, compiled and loaded once on each device."""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import Lock

from taskfuse.cuda.cache import compiled
from taskfuse.cuda.carried_code import carried
from taskfuse.cuda.driver import Device, Driver, Function
from taskfuse.cuda.emitted import emitted
from taskfuse.cuda.fit import refused
from taskfuse.cuda.kernel_interface import KernelInterface
from taskfuse.cuda.nvrtc import Binary, CompileOptions
from taskfuse.cuda.signature import Source
from taskfuse.kir.variant import Variant
from taskfuse.options import read_options

OnCompile = Callable[[Source, Binary, str], None]
"""Called with each text, its machine code and the target."""


class Code:
    """The texts of a kernel, compiled and loaded.

    Args:
        interface: that of a verified kernel.
        arch: target such as ``sm_90a``; ``None``: that of the GPU.
        lenient: see :class:`~taskfuse.cuda.launch.Launcher`.
        on_compile: called with each text that is compiled.
    """

    def __init__(
        self, interface: KernelInterface, driver: Driver, arch: str | None, fast_math: bool, debug: bool, lenient: bool, on_compile: OnCompile
    ) -> None:
        self._kernel = interface.head
        self._interface = interface
        self._driver = driver
        self._arch = arch
        self._fast_math = fast_math
        self._debug = debug
        self._lenient = lenient
        self._on_compile = on_compile
        self._lock = Lock()
        self._sources: dict[Variant, Source] = {}
        self._functions: dict[tuple[Variant, int], Function] = {}

    def source(self, variant: Variant) -> Source:
        """The text of a variant."""
        with self._lock:
            found = self._sources.get(variant)
            if found is None:
                found = self._sources[variant] = emitted(self._interface, variant, self._fast_math, self._debug, read_options())
        return found

    def function(self, source: Source, device: Device) -> Function:
        """The kernel of a text, compiled and loaded on a device.

        Raises:
            LaunchError: the device cannot execute its instructions, or not those of the requested target.
            CudaCompileError, CudaError: it cannot be compiled, or loaded.
        """
        key = (source.variant, device.ordinal)
        found = self._functions.get(key)
        if found is None:
            arch = self._target(source, device)
            options = CompileOptions(arch=arch, fast_math=self._fast_math)
            settings = read_options()
            binary = carried(self._interface, source, options, settings)
            if binary is None:
                binary = compiled(source.text, source.name, options, settings, strict=source.feature_arch and not self._lenient)
            self._on_compile(source, binary, arch)
            found = self._functions[key] = self._driver.function(device, binary.code, source.name)
        return found

    def _target(self, source: Source, device: Device) -> str:
        """The architecture to compile for."""
        own = f"sm_{source.arch}a" if source.feature_arch else f"sm_{source.arch}"
        if device.arch < source.arch or (source.feature_arch and device.arch != source.arch):
            raise refused(self._kernel, f"it has instructions of {own}{' only' if source.feature_arch else ' and newer'}; {device.name} is sm_{device.arch}")
        if self._arch is None:
            return f"sm_{device.arch}a" if source.feature_arch else f"sm_{device.arch}"
        asked = re.fullmatch(r"sm_(\d+)([af]?)", self._arch)
        if asked is not None:
            number = int(asked[1])
            runs = number == device.arch if asked[2] == "a" else number // 10 == device.arch // 10 and number <= device.arch
            if not runs or number < source.arch or (source.feature_arch and self._arch != own):
                reason = f"arch is {self._arch}; it needs {own}, and {device.name} is sm_{device.arch}"
                raise refused(self._kernel, reason, f'use arch="{own if source.feature_arch else f"sm_{device.arch}"}", or leave it out')
        return self._arch
