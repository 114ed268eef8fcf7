"""Pieces of CUDA C++ text, the helper functions that they call, and libraries of such functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Helper:
    """A device function of the emitted text. A kernel's text defines exactly those that it calls.

    Attributes:
        name: its name.
        text: its definition.
        requires: helpers that it calls.
        arch: the compute capability that it needs, times ten: 80, 90.
    """

    name: str
    text: str
    requires: tuple[Helper, ...] = ()
    arch: int = 80


@dataclass(frozen=True, slots=True)
class HelperCall:
    """A statement of kernel IR that is one call of a helper.

    Attributes:
        fields: the fields of the statement that are the arguments: expressions and numbers; mbarriers and elements, as addresses.
    """

    helper: Helper
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snippet:
    """An expression of CUDA C++ that is a valid operand (an atom, a call, or in parentheses), and the helpers that it calls."""

    text: str
    helpers: frozenset[Helper] = frozenset()


def closure(helpers: Iterable[Helper]) -> tuple[Helper, ...]:
    """``helpers`` and all that they call, each after those that it calls, in an order that depends only on names."""
    found: dict[Helper, None] = {}

    def visit(helper: Helper) -> None:
        if helper not in found:
            for required in helper.requires:
                visit(required)
            found[helper] = None

    for helper in sorted(helpers, key=lambda h: h.name):
        visit(helper)
    return tuple(found)


def bare(text: str) -> str:
    """``text`` without enclosing parentheses."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text


_NAME = re.compile(r"(\w+)\(")
_CALL = re.compile(r"(\w+)[<(]")


class Library:
    """Device functions by name.

    Args:
        texts: their definitions, with a blank line between two; a function may call those before it.
    """

    def __init__(self, *texts: str) -> None:
        helpers: dict[str, Helper] = {}
        for definition in "\n\n".join(text.strip() for text in texts).split("\n\n"):
            # comments and the template's head take lines of their own
            head, _, body = definition.partition(" {\n")
            (name,) = _NAME.findall(head.splitlines()[-1])
            helpers[name] = Helper(name, definition, tuple(helpers[called] for called in dict.fromkeys(_CALL.findall(body)) if called in helpers))
        self.helpers: Mapping[str, Helper] = MappingProxyType(helpers)

    def called(self, text: str) -> frozenset[Helper]:
        """The functions that ``text`` calls directly."""
        return frozenset(self.helpers[name] for name in _CALL.findall(text) if name in self.helpers)
