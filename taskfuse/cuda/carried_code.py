"""Machine code in the entry of a decision: a first call then reads one file, not one for each text and each binary of its kernels.

The entries of texts and of binaries (:mod:`taskfuse.cuda.emitted`, :mod:`taskfuse.cuda.cache`) remain: other decisions have kernels in common with this one,
and other arguments ask for other variants of its kernels. Code about which the compiler complains is not carried: a process that finds it warns, too.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from typing import Any

from taskfuse.cuda import cache, emitted
from taskfuse.cuda.kernel_interface import KernelInterface
from taskfuse.cuda.nvrtc import Binary, CompileOptions, installed_version
from taskfuse.cuda.signature import Source
from taskfuse.kir.variant import ArgumentLayout, Variant
from taskfuse.options import Options
from taskfuse.reports.resources import Resources


def packed(source: Source, options: CompileOptions) -> dict[str, Any] | None:
    """A text and its machine code in JSON; ``None`` if this process has not compiled it with the NVRTC that is installed, or the compiler complained."""
    binary = cache.process_cache.recall(cache.cache_key(source.text, source.name, options, None))
    compiler = installed_version()
    if binary is None or binary.diagnostics or binary.resources is None or compiler is None:
        return None
    return {
        "forms": [form.value for form in source.variant.forms],
        "wide": source.variant.wide,
        "source": emitted.packed(source),
        "options": list(options),
        "compiler": list(compiler),
        "code": b2a_base64(binary.code, newline=False).decode(),
        "log": binary.log,
        "resources": list(binary.resources),
    }


def take(form: Mapping[str, Any], interface: KernelInterface) -> None:
    """Give an interface what :func:`packed` gave of its kernel, unless it is the code of another NVRTC.

    Raises:
        KeyError, TypeError, ValueError: it is not in that form.
    """
    if form["compiler"] != list(installed_version() or ()):
        return
    options = CompileOptions(*form["options"])
    variant = Variant(tuple(map(ArgumentLayout, form["forms"])), bool(form["wide"]))
    interface.texts[variant, options.fast_math] = emitted.unpacked(form["source"], interface.head, variant)
    interface.binaries[variant, options] = Binary(a2b_base64(form["code"]), str(form["log"]), Resources(*map(int, form["resources"])), ())


def carried(interface: KernelInterface, source: Source, options: CompileOptions, settings: Options) -> Binary | None:
    """The machine code of a text that came with its kernel; ``None`` if none did, or all code is compiled anew."""
    return None if settings.always_compile or source.debug else interface.binaries.get((source.variant, options))
