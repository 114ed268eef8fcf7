"""Parameters of schedulers: the checks of the fields of a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from numbers import Integral
from types import NoneType, UnionType
from typing import Any, ClassVar, get_type_hints

from taskfuse.errors import UnsupportedError, shown
from taskfuse.location import caller
from taskfuse.target import MAX_THREADS


class Parameters:
    """Base of the frozen dataclasses that hold parameters: each field has a value of its declared type, an integer one a positive number.

    NumPy integers become Python's, so that the code of a schedule prints them. A subclass with further rules calls ``check_fields`` first.

    Attributes:
        LEAST: smallest values of integers that may be less than 1.
        POWERS: fields that are powers of two.

    Raises:
        UnsupportedError: a field has another type, or is out of range.
    """

    __slots__ = ()
    LEAST: ClassVar[Mapping[str, int]] = {}
    POWERS: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        self.check_fields()

    def check_fields(self) -> None:
        """Check the fields by the rules of this class."""
        for name, wanted in _types(type(self)).items():
            value = getattr(self, name)
            if wanted is not int:
                if not isinstance(value, wanted):
                    raise self.error(f"{name} is {shown(value)}", f"use {_described(wanted)}")
                continue
            if type(value) is not int:
                if isinstance(value, bool) or not isinstance(value, Integral):
                    raise self.error(f"{name} is {shown(value)}", "use an integer")
                value = int(value)
                object.__setattr__(self, name, value)
            least = self.LEAST.get(name, 1)
            if value < least:
                raise self.error(f"{name} is {value}", "use a positive number" if least == 1 else f"use {least} or more")
            if name in self.POWERS and value & (value - 1):
                raise self.error(f"{name} is {value}", "use a power of two")

    def check_threads(self, threads: int, text: str) -> None:
        """Check that a block can have ``threads`` threads; ``text`` describes them."""
        if threads > MAX_THREADS:
            raise self.error(text, f"a block has at most {MAX_THREADS} threads")

    def error(self, reason: str, help: str) -> UnsupportedError:
        """The error for invalid parameters."""
        return UnsupportedError(what=f"this {type(self).__name__}", reason=reason, help=help, location=caller())


@cache
def _types(config: type[Any]) -> dict[str, type | UnionType]:
    hints = get_type_hints(config)
    return {field.name: hints[field.name] for field in fields(config)}


def _described(wanted: type | UnionType) -> str:
    kinds = wanted.__args__ if isinstance(wanted, UnionType) else (wanted,)
    words = {NoneType: "None", bool: "True or False"}
    return " or ".join(words.get(kind) or f"a tf.{kind.__module__.split('.')[1]}.{kind.__name__}" for kind in kinds)
