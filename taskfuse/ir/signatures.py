"""Calls whose arguments do not fit: an error of taskfuse that says what the parameters are, and how to say what other libraries take by a keyword.

With :func:`checked`, the types of arguments are looked at only once a call has failed: a call that succeeds costs nothing, and what the code of a call says
better, it says. :func:`checked_first` is for calls that would use a wrong argument without an error, or fail far from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache, wraps
from inspect import Parameter, isclass, signature
from types import NoneType, UnionType
from typing import Any, Final, Literal, ParamSpec, SupportsIndex, TypeVar, Union, cast, get_args, get_origin

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
    """``function``, whose calls with other arguments than its parameters raise :class:`CallError`: too many, too few, unknown ones, and, if the call fails,
    arguments of another type than the parameter's.

    Args:
        name: what errors call it; by default its own.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TaskfuseError:
            raise
        except (TypeError, AttributeError, LookupError, ValueError) as error:
            refusal = _refusal(function, args, kwargs, name or function.__name__)
            if refusal is None:
                raise
            raise refusal from (None if isinstance(error, TypeError) else error)

    return call


def checked_first(function: Callable[P, R], but: Collection[str] = ()) -> Callable[P, R]:
    """``function``, as :func:`checked`, but arguments are looked at before the call.

    Args:
        but: parameters for which the function has errors of its own.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        refusal = _refusal(function, args, kwargs, function.__name__, but)
        if refusal is not None:
            raise refusal
        return function(*args, **kwargs)

    return call


def at_least(call: str, least: int, **given: float) -> None:
    """Check numbers that a call takes. Raises :class:`CallError` if one of them is smaller than ``least``."""
    for name, value in given.items():
        if not value >= least:
            raise CallError(call=call, reason=f"{name} is {shown(value)}", help=f"give at least {least}", location=caller())


def checks_calls(cls: C) -> C:
    """A class whose public methods are :func:`checked`."""
    for name, found in list(vars(cls).items()):
        if callable(found) and not isinstance(found, staticmethod) and not name.startswith("_"):
            setattr(cls, name, checked(cast("Callable[..., Any]", found)))
    return cls


def _refusal(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, Any], name: str, but: Collection[str] = ()) -> CallError | None:
    """What is wrong with the arguments of a call; ``None`` if they fit."""
    try:
        bound = _signature(function).bind(*args, **kwargs)
    except TypeError as error:
        known = _signature(function).parameters
        help = next((INSTEAD[k] for k in kwargs if k in INSTEAD and k not in known), parameters(function))
        return CallError(call=name, reason=str(error), help=help, location=caller())
    wrong = _other_type(function, bound.arguments, but)
    return None if wrong is None else CallError(call=name, reason=wrong[0], help=wrong[1], location=caller())


_signature = cache(signature)


@cache
def _types(function: Callable[..., object]) -> Mapping[str, tuple[str, object]]:
    """The types of parameters, but of ``*args`` and ``**kwargs``, as they are written and as they are, where that is known when the program runs."""
    found: dict[str, tuple[str, object]] = {}
    for name, parameter in _signature(function).parameters.items():
        if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) and isinstance(written := parameter.annotation, str):
            with suppress(NameError, AttributeError):  # a name for type checkers alone
                found[name] = written, eval(written, getattr(function, "__globals__", {}))
    return found


def _other_type(function: Callable[..., object], given: Mapping[str, object], but: Collection[str]) -> tuple[str, str] | None:
    """Which argument is not of its parameter's type, and what is; ``None`` if all are, as far as the types are known."""
    types = _types(function)
    for name, value in given.items():
        if name in types and name not in but and not _fits(value, types[name][1]):
            return f"{name}: {shown(value)} is not of type {types[name][0]}", f"give {' or '.join(_words(types[name][1]))}"
    return None


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of a type, as far as that can be said of the value alone."""
    origin, of = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint is None or hint is NoneType:
        return value is None
    if origin in (Union, UnionType):
        return any(_fits(value, h) for h in of)
    if origin is Literal:
        return value in of
    if hint is int:
        return isinstance(value, int | SupportsIndex)  # the second alone looks at methods by name
    if hint is float:
        return isinstance(value, int | float) or hasattr(value, "__float__")
    if origin is Sequence and isinstance(value, np.ndarray):
        return True
    if isinstance(origin, type) and origin not in (Sequence, Collection, Iterable, Mapping, tuple, list, set, frozenset, dict):
        return isinstance(value, origin)
    if isinstance(origin, type):
        if not isinstance(value, origin) or (isinstance(value, str) and origin is not str):
            return False
        if isinstance(value, Mapping) and len(of) == 2:
            return all(_fits(k, of[0]) and _fits(v, of[1]) for k, v in cast("Mapping[object, object]", value).items())
        if origin is tuple and Ellipsis not in of:
            return len(cast("tuple[object, ...]", value)) == len(of) and all(map(_fits, cast("tuple[object, ...]", value), of))
        return not isinstance(value, Iterable) or not of or all(_fits(v, of[0]) for v in cast("Iterable[object]", value))
    if isinstance(hint, type) and not getattr(hint, "_is_protocol", False):
        return isinstance(value, hint)
    return not getattr(hint, "_is_protocol", False) or _has_methods(value, hint)


def _has_methods(value: object, protocol: Any) -> bool:
    """Whether a value has the public members of a protocol; a function is one if the protocol is called."""
    members = cast("Iterable[str]", getattr(protocol, "__protocol_attrs__", None) or vars(protocol))
    public = [n for n in members if not n.startswith("_") and callable(getattr(protocol, n, None))]
    return all(hasattr(value, n) for n in public) and ("__call__" not in vars(protocol) or callable(value))


def _words(hint: Any) -> list[str]:
    """What fits a type, in words."""
    origin = get_origin(hint)
    if origin in (UnionType, Union):
        return list(dict.fromkeys(word for h in get_args(hint) for word in _words(h)))
    if origin is Literal:
        return [repr(h) for h in get_args(hint)]
    if hint is None or hint is NoneType:
        return ["None"]
    if isclass(hint) and issubclass(hint, Enum):
        return [f"{hint.__name__}.{member.name}" for member in hint]
    named = {bool: "True or False", int: "an integer", float: "a number", str: "a string", Mapping: "a mapping", Sequence: "a sequence"}
    return [named.get(cast("type", origin or hint), getattr(hint, "__name__", str(hint)))]


def parameters(function: Callable[..., object]) -> str:
    """The parameters of a function, in words."""
    found = [p.name for p in _signature(function).parameters.values() if p.name != "self" and p.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]
    return f"its parameters are {', '.join(found)}" if found else "it takes no arguments"
