"""Types of functions that tests list or pass as lambdas: the parameters of a lambda get their types from these."""

from collections.abc import Callable
from typing import TypeVar

from taskfuse.ir.tensor import TensorView

T = TypeVar("T")
R = TypeVar("R")

Of = Callable[[T], R] | Callable[[T, T], R] | Callable[[T, T, T], R] | Callable[[T, T, T, T], R] | Callable[[T, T, T, T, T], R]
"""A function of one to five values of a type; unlike ``Callable[..., R]`` it says what a lambda's parameters are."""

Math = Of[TensorView, TensorView]
"""One tensor made of one to five tensors."""


def always(value: T) -> Callable[..., T]:
    """A function that returns ``value`` whatever it is given."""
    return lambda *_, **__: value
