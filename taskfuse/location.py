"""Source locations: where in the user's program an object was made."""

from __future__ import annotations

import inspect
import linecache
import os
import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType, TracebackType
from typing import Final, Self

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a source file. ``line`` counts from 1, ``column`` from 0 (``None`` if unknown), in bytes of UTF-8, as Python counts columns."""

    file: str
    line: int
    column: int | None = None

    def __str__(self) -> str:
        return f"{shown_path(self.file)}:{self.place}"

    @property
    def place(self) -> str:
        """Line and column in the file, both from 1."""
        return str(self.line) if self.column is None else f"{self.line}:{self.column + 1}"

    @property
    def source(self) -> str:
        """The text of the line; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def snippet(self) -> list[str]:
        """The lines that an error prints below its message: position, source line, caret."""
        text = self.source
        lines = [f"  --> {os.path.basename(self.file)}:{self.line}"]
        if text.strip():
            before = text[: len(text) - len(text.lstrip())] if self.column is None else text.encode()[: self.column].decode(errors="ignore")
            lines += [f"   | {text}", "   | " + re.sub(r"[^\t]", " ", before) + "^"]
        return lines


class Quote(str):
    """Text that quotes a statement, with the line that the statement comes from. Text that ``+`` joins to it keeps the location."""

    __slots__ = ("location",)
    location: Location | None

    def __new__(cls, text: str, location: Location | None) -> Self:
        """``text`` with its ``location``."""
        quote = super().__new__(cls, text)
        quote.location = location
        return quote

    def __reduce__(self) -> tuple[type[Quote], tuple[str, Location | None]]:
        return Quote, (str(self), self.location)

    def __add__(self, behind: str, /) -> Quote:
        return Quote(str(self) + behind, self.location)

    def __radd__(self, before: str, /) -> Quote:
        return Quote(before + str(self), self.location)


def with_snippets(notes: Iterable[str]) -> Iterator[str]:
    """The lines of notes. A quote is followed by its source line, with equal indentation; the text of a source line appears only the first time."""
    seen: set[Location] = set()
    for note in notes:
        yield str(note)
        if isinstance(note, Quote) and note.location is not None:
            indent = note[: len(note) - len(note.lstrip())]
            lines = note.location.snippet()
            yield from (indent + line for line in (lines[:1] if note.location in seen else lines))
            seen.add(note.location)


def shown_path(file: str) -> str:
    """A file's path for messages: relative to the working directory if that is shorter."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # on another drive
        return file
    return relative if os.path.isabs(file) and len(relative) < len(file) else file


def _is_generated(frame: FrameType) -> bool:
    """Whether ``dataclass`` generated code for a class of the package, or is doing so."""
    module = frame.f_globals.get("__name__", "")
    return module == "dataclasses" or (frame.f_code.co_filename == "<string>" and module.startswith(f"{__package__}."))


_one: ContextVar[tuple[Location | None] | None] = ContextVar("location", default=None)


class OneCall:
    """A context for objects made by one call of the user: :func:`caller` walks the stack once instead of once per object."""

    def __enter__(self) -> None:
        self._before = _one.set((caller(),))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _one.reset(self._before)


def caller() -> Location | None:
    """The innermost frame outside the package: the user's line; ``None`` if all frames are inside."""
    known = _one.get()
    if known is not None:
        return known[0]
    frame = inspect.currentframe()
    while frame is not None and (frame.f_code.co_filename.startswith(_PACKAGE) or _is_generated(frame)):
        frame = frame.f_back
    if frame is None:
        return None
    place = id(frame.f_code), frame.f_lasti  # not the code: hashing it reads all of it
    found = _found.get(place)
    if found is None:
        if len(_found) >= MOST:
            _found.clear()
        found = _found[place] = frame.f_code, _location(frame.f_code, frame.f_lasti, frame.f_lineno)
    return found[1]


MOST: Final = 64
_found: dict[tuple[int, int], tuple[CodeType, Location]] = {}
"""The locations of the last instructions, with their code, so that no other has its number: one call of the user's makes many tensors."""


def _location(code: CodeType, instruction: int, line: int) -> Location:
    column: int | None = None
    for found, _, col, _ in islice(code.co_positions(), instruction // 2, None):
        column = col if found == line else None
        break
    return Location(code.co_filename, line, column)
