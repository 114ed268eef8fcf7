"""Calls whose arguments do not fit: an error of taskfuse that says what the parameters are, and how to say what other libraries take by a keyword."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Final, ParamSpec, TypeVar, cast

from taskfuse.errors import CallError, TaskfuseError
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
            help = next((INSTEAD[k] for k in kwargs if k in INSTEAD and k not in signature(function).parameters), _parameters(function))
            raise CallError(call=name or function.__name__, reason=reason, help=help, location=caller()) from None

    return call


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


def _parameters(function: Callable[..., object]) -> str:
    """The parameters of a function, as help."""
    found = [p.name for p in signature(function).parameters.values() if p.name != "self" and p.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]
    return f"its parameters are {', '.join(found)}" if found else "it takes no arguments"
