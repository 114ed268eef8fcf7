"""Device functions written as one text of C++, of which an emitted text takes those that it calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from taskfuse.cuda.text import Helper

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
        """The functions that ``text`` calls itself."""
        return frozenset(self.helpers[name] for name in _CALL.findall(text) if name in self.helpers)
