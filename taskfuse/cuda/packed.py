"""Declarations of kernels and arguments of functions in JSON: objects of dataclasses whose values are texts, numbers, expressions, dtypes, members of
:class:`PlaceSearch`, and tuples of these. To read them takes a small part of the time of parsing a kernel's head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from taskfuse.dtypes import DTYPES, DType
from taskfuse.ir.dims import Dim
from taskfuse.ir.scalar import Const, Expr, const, parse_expr
from taskfuse.ir.types import PlaceSearch
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import Param

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_DECLARATIONS: Final[dict[str, type[Any]]] = {kind.__name__: kind for kind in (*get_args(Param), Dim)}


def packed(declared: DataclassInstance) -> list[object]:
    """An object: the name of its class, and its values in order."""
    return [type(declared).__name__, *(_packed(getattr(declared, field.name)) for field in fields(declared))]


def unpacked(kinds: Mapping[str, type[Any]], form: list[Any]) -> Any:
    """The object that :func:`packed` gave, of one of the classes ``kinds``.

    Raises:
        KeyError, TypeError, ValueError: it is not in that form.
        ParseError: an expression is none.
    """
    kind, *values = form
    return kinds[kind](*map(_unpacked, values))


def packed_head(kernel: Kernel) -> dict[str, object]:
    """What :func:`taskfuse.kir.parse_head` finds in the text of a kernel."""
    return {
        "name": kernel.name,
        "extents": [packed(d) for d in kernel.extents],
        "params": [packed(p) for p in kernel.params],
        "launch": [_packed(shape) for shape in (kernel.grid, kernel.block, kernel.cluster)],
        "residents": kernel.residents,
    }


def unpacked_head(form: Mapping[str, Any]) -> Kernel:
    """The head that :func:`packed_head` gave. Raises the errors of :func:`unpacked`."""
    extents, params = (tuple([unpacked(_DECLARATIONS, d) for d in form[what]]) for what in ("extents", "params"))
    grid, block, cluster = map(_unpacked, form["launch"])
    return Kernel(str(form["name"]), extents, params, grid, block, (), (), (), (), cluster, residents=int(form["residents"]))


def _packed(value: object) -> object:
    match value:
        case Const():
            return {"const": value.value}
        case Expr():
            return {"expr": str(value)}
        case DType():
            return {"dtype": value.name}
        case PlaceSearch():
            return {"search": value.value}
        case tuple():
            return list(map(_packed, cast("tuple[object, ...]", value)))
        case _:
            return value


def _unpacked(form: Any) -> Any:
    match form:
        case list():
            return tuple(map(_unpacked, cast("list[Any]", form)))
        case {"const": int(value)}:
            return const(value)
        case {"expr": str(text)}:
            return parse_expr(text)
        case {"dtype": str(name)}:
            return DTYPES[name]
        case {"search": str(word)}:
            return PlaceSearch(word)
        case _:
            return form
