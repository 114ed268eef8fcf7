"""Emitted texts, cached in the folder of compiled kernels: a process that finds a kernel's text there need not print it.

The key is the SHA-256 of everything that determines the text: the kernel, the variant, the options, and the modules of taskfuse
(:mod:`taskfuse.cuda.sources`), so that a change of the printer needs no new version number. An entry is JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, get_args

from taskfuse.cuda.cache import folder, keep
from taskfuse.cuda.kernel_interface import KernelInterface
from taskfuse.cuda.packed import packed as packed_object
from taskfuse.cuda.packed import unpacked as unpacked_object
from taskfuse.cuda.signature import Argument, Source
from taskfuse.cuda.sources import sources
from taskfuse.ir.scalar import parse_expr
from taskfuse.kir import Kernel
from taskfuse.kir.variant import Variant
from taskfuse.options import Options
from taskfuse.version import VERSION

_FORM: Final = 2  # of what packed makes
_KINDS: Final[dict[str, type[Argument]]] = {kind.__name__: kind for kind in get_args(Argument)}


def emitted(interface: KernelInterface, variant: Variant, fast_math: bool, debug: bool, settings: Options) -> Source:
    """The result of :func:`taskfuse.cuda.source.emit`, made once for an interface, and from the folder of ``settings`` if it is there. Debug builds are not
    cached.

    Raises:
        UnsupportedError: a construct with no CUDA form.
    """
    if debug or settings.always_compile:
        return _made(interface, variant, fast_math, debug, settings)
    found = interface.texts.get((variant, fast_math))
    if found is None:
        found = interface.texts[variant, fast_math] = _made(interface, variant, fast_math, debug, settings)
    return found


def _made(interface: KernelInterface, variant: Variant, fast_math: bool, debug: bool, settings: Options) -> Source:
    disk = None if debug else folder(settings)
    key = "" if disk is None else _key(interface, variant, fast_math, settings)
    content = None if disk is None or settings.always_compile else disk.get(key)
    if content is not None:
        return unpacked(json.loads(content), interface.head, variant)
    from taskfuse.cuda.source import emit  # only who prints pays for its import

    source = emit(interface.whole(), variant, fast_math, debug, settings.chaos if debug else None)
    if disk is not None:
        keep(disk, key, json.dumps(packed(source)).encode())
    return source


def _key(interface: KernelInterface, variant: Variant, fast_math: bool, settings: Options) -> str:
    parts = [interface.text, *(form.value for form in variant.forms), variant.wide, fast_math, VERSION, _FORM, sources(settings).all]
    return hashlib.sha256(json.dumps(["text", *parts]).encode()).hexdigest()


def packed(source: Source) -> dict[str, Any]:
    """A text in JSON."""
    return {
        "name": source.name,
        "text": source.text,
        "arguments": [packed_object(argument) for argument in source.arguments],
        "shared_bytes": str(source.shared_bytes),
        "cooperative": source.cooperative,
        "arch": source.arch,
        "feature_arch": source.feature_arch,
    }


def unpacked(values: Mapping[str, Any], kernel: Kernel, variant: Variant) -> Source:
    """The text that :func:`packed` gave, of a variant of a kernel."""
    return Source(
        kernel=kernel,
        variant=variant,
        name=values["name"],
        text=values["text"],
        arguments=tuple([unpacked_object(_KINDS, form) for form in values["arguments"]]),
        shared_bytes=parse_expr(values["shared_bytes"]),
        cooperative=values["cooperative"],
        arch=values["arch"],
        feature_arch=values["feature_arch"],
        debug=False,
    )
