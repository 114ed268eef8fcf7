"""Names of a kernel: the names of a fusion and its tensors, scalars and dimensions, made valid in a kernel's text.

A valid name consists of letters, digits and ``_``, does not begin with a digit, and has no other meaning in the text. Any other name is spelled in these
letters, with ``_`` appended until it is unique: the kernel of an input ``table`` has a parameter ``table_``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, sym
from taskfuse.kir.forms import RESERVED
from taskfuse.kir.scope import INDEX_SYMBOLS
from taskfuse.schedule.copy import Renaming, embed

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INDEX = re.compile(r"i[0-9]+[nf]?|v[0-9]+")  # loop variables and iteration symbols; values in definitions
_INDICES = frozenset(name.partition(".")[0] for name in INDEX_SYMBOLS)
_STRANGE = re.compile(r"[^A-Za-z0-9_]")


def legible(fusion: Fusion) -> Fusion:
    """``fusion``, if its names are valid in a kernel and distinct; otherwise a copy with valid names."""
    taken = {name for name in (*fusion.dims, *_values(fusion)) if _is_legible(name)}
    symbols = {name: _fresh(name, taken) for name in fusion.dims if not _is_legible(name)}
    dims = {symbols.get(name, name) for name in fusion.dims}
    values: dict[str, str] = {}
    for name in _values(fusion):
        if not _is_legible(name) or name in dims:
            values[name] = _fresh(name, taken)
    if not (symbols or values) and _is_legible(fusion.name):
        return fusion
    new = Fusion(fusion.name if _is_legible(fusion.name) else _fresh(fusion.name, set()))
    new.residents = fusion.residents
    extents: dict[str, Expr] = {name: sym(own) for name, own in symbols.items()}
    for name, d in fusion.dims.items():
        own = symbols.get(name, name)
        new.dims[own] = replace(d.with_symbols(extents), name=own)
    embed(fusion, new, Renaming(values, extents))
    return new


def _values(fusion: Fusion) -> Iterator[str]:
    yield from (tv.name for tv in fusion.tensors())
    yield from (s.name for s in fusion.scalars)


def _is_legible(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in RESERVED | _INDICES and _INDEX.fullmatch(name) is None


def _fresh(name: str, taken: set[str]) -> str:
    """A legible name like ``name`` that is not in ``taken``, to which it is added."""
    found = _STRANGE.sub("_", name)
    if not found or found[0].isdigit():
        found = f"_{found}"
    while not _is_legible(found) or found in taken:
        found += "_"
    taken.add(found)
    return found
