"""Calls whose arguments do not fit: an error of taskfuse that says what the parameters are, and how to say what other libraries take by a keyword.

:func:`checked` looks for the reason after a call has failed, and costs nothing before. :func:`checks_types` compares arguments with annotations first, for
calls that would use a wrong one without an error, or fail far from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache, wraps
from inspect import Parameter, isclass, signature
from numbers import Integral, Real
from types import UnionType
from typing import Any, Final, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin

import numpy as np

from taskfuse.errors import CallError, TaskfuseError, shown
from taskfuse.location import caller

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

INSTEAD: Final = {
    "out": "results are new tensors: give out= to the call of what tf.compile returns",
    "where": "choose first: tf.sum(tf.where(condition, x, 0)); of an elementwise function, tf.where(condition, result, otherwise)",
    "initial": "combine it with the result: result + initial, tf.maximum(result, initial)",
    "unbiased": "use correction=1 for the sample's variance, correction=0 for the population's",
    "order": "leave it out: elements are in row-major order",
    "copy": "leave it out: whether anything is copied is for the schedule to say",
    "casting": "convert the operands: x.astype(dtype)",
    "device": "leave it out: arrays are where the arguments of a call are",
    "requires_grad": "leave it out: define gradients as tensors, or compile a function of torch",
    "inplace": "leave it out: results are new tensors",
}
"""What stands for keywords of NumPy and torch."""


def checked(function: Callable[P, R], name: str | None = None) -> Callable[P, R]:
    """``function``, whose calls with other arguments than its parameters raise :class:`CallError`.

    Args:
        name: what errors call it; by default its own.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TaskfuseError:
            raise
        except TypeError:
            reason = _misfit(function, args, kwargs)
            if reason is None:
                raise
            help = next((INSTEAD[k] for k in kwargs if k in INSTEAD and k not in signature(function).parameters), parameters(function))
            raise CallError(call=name or function.__name__, reason=reason, help=help, location=caller()) from None

    return call


def checks_types(function: Callable[P, R], but: Collection[str] = ()) -> Callable[P, R]:
    """``function``, whose calls with other arguments than its annotations say raise :class:`CallError`, before anything runs.

    Compared are numbers, strings, choices (:data:`~typing.Literal`), classes, and mappings, sequences and collections as such; ``None`` and unions of these.
    Other annotations, and those that only type checkers can resolve, fit everything.

    Args:
        but: parameters for which the function has errors of its own.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        reason = _misfit(function, args, kwargs)
        help = parameters(function)
        if reason is None:
            found = _mistaken(function, args, kwargs, but)
            if found is None:
                return function(*args, **kwargs)
            reason, help = found
        raise CallError(call=function.__name__, reason=reason, help=help, location=caller())

    return call


def at_least(call: str, least: int, **given: float) -> None:
    """Check numbers that a call takes. Raises :class:`CallError` if one of them is smaller than ``least``."""
    for name, value in given.items():
        if not value >= least:
            raise CallError(call=call, reason=f"{name} is {shown(value)}", help=f"give at least {least}", location=caller())


def checks_calls(cls: C) -> C:
    """A class whose public methods are :func:`checked`."""
    for name, found in list(vars(cls).items()):
        if callable(found) and not name.startswith("_"):
            setattr(cls, name, checked(cast("Callable[..., Any]", found)))
    return cls


def _misfit(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, Any]) -> str | None:
    """Why arguments do not fit; ``None`` if they do."""
    try:
        signature(function).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return None


def parameters(function: Callable[..., object]) -> str:
    """The parameters of a function, in words."""
    found = [p.name for p in signature(function).parameters.values() if p.name != "self" and p.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]
    return f"its parameters are {', '.join(found)}" if found else "it takes no arguments"


def _mistaken(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, Any], but: Collection[str]) -> tuple[str, str] | None:
    """The first argument of another type than its annotation says, and what to give instead."""
    types = _annotations(function)
    for name, value in signature(function).bind(*args, **kwargs).arguments.items():
        if name in types and name not in but and not _fits(value, types[name]):
            return f"{name} is {shown(value)}", f"give {' or '.join(_words(types[name]))}"
    return None


@cache
def _annotations(function: Callable[..., object]) -> dict[str, object]:
    """Annotations of parameters, but of ``*args`` and ``**kwargs``, that can be resolved when the program runs."""
    found: dict[str, object] = {}
    for name, parameter in signature(function).parameters.items():
        if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) and isinstance(parameter.annotation, str):
            with suppress(NameError):
                found[name] = eval(parameter.annotation, function.__globals__)
    return found


def _fits(value: object, annotation: object) -> bool:
    origin = get_origin(annotation)
    match annotation:
        case _ if origin in (UnionType, Union):
            return any(_fits(value, a) for a in get_args(annotation))
        case _ if origin is Literal:
            return any(value is a or (type(value) is type(a) and value == a) for a in get_args(annotation))
        case None:
            return value is None
        case _ if annotation is bool:
            return isinstance(value, bool | np.bool_)
        case _ if annotation is int:
            return isinstance(value, Integral) and value is not True and value is not False
        case _ if annotation is float:
            return isinstance(value, Real) and value is not True and value is not False
        case _ if origin in (Sequence, Collection):
            return isinstance(value, Sequence | np.ndarray if origin is Sequence else Collection) and not isinstance(value, str | bytes)
        case _ if origin is Mapping:
            return isinstance(value, Mapping)
        case _ if isclass(annotation) and annotation is not Any and getattr(annotation, "_is_runtime_protocol", True):
            return isinstance(value, annotation)
        case _:
            return True


def _words(annotation: object) -> list[str]:
    """What fits an annotation, in words."""
    origin = get_origin(annotation)
    if origin in (UnionType, Union):
        return [word for a in get_args(annotation) for word in _words(a)]
    if origin is Literal:
        return [repr(a) for a in get_args(annotation)]
    if annotation is None or annotation is type(None):
        return ["None"]
    if isclass(annotation) and issubclass(annotation, Enum):
        return [f"{annotation.__name__}.{member.name}" for member in annotation]
    named = {bool: "True or False", int: "an integer", float: "a number", str: "a string", Mapping: "a mapping", Sequence: "a sequence"}
    return [named.get(cast("type", origin or annotation), getattr(annotation, "__name__", str(annotation)))]
