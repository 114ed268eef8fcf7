"""Keywords in two spellings: ``axis=``, ``keepdims=`` and ``ddof=`` of NumPy, ``dim=``, ``keepdim=`` and ``correction=`` of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from taskfuse.ir.signatures import checked
from taskfuse.ops.build import shape_error

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

SPELLINGS = (("axis", "dim"), ("dim", "axis"), ("keepdims", "keepdim"), ("correction", "ddof"))


class Axial(Protocol[P, R_co]):
    """A function that takes its axis by either name."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, x: Any, /, *args: Any, dim: int | Sequence[int] | None, keepdim: bool = False, **kwargs: Any) -> R_co: ...
    @overload
    def __call__(self, x: Any, /, *args: Any, axis: int | Sequence[int] | None, **kwargs: Any) -> R_co: ...


def axial(function: Callable[P, R]) -> Axial[P, R]:
    """``function`` with both spellings of its keywords."""
    own = signature(function).parameters
    names = {other: mine for mine, other in SPELLINGS if mine in own and other not in own}

    function = checked(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for other in names.keys() & kwargs.keys():
            mine = names[other]
            if mine in kwargs:
                raise shape_error(function.__name__, f"{mine}= and {other}= are both given", "they are one parameter: give one of them")
            kwargs[mine] = kwargs.pop(other)
        return function(*args, **kwargs)

    return cast("Axial[P, R]", call)
