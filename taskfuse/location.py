"""Source locations: where in the user's program an object was made."""

from __future__ import annotations

import inspect
import linecache
import os
from dataclasses import dataclass
from itertools import islice
from types import FrameType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a source file. ``line`` counts from 1, ``column`` from 0 (``None`` if unknown)."""

    file: str
    line: int
    column: int | None = None

    def __str__(self) -> str:
        return f"{shown_path(self.file)}:{self.place}"

    @property
    def place(self) -> str:
        """Line and column in the file, both from 1."""
        return str(self.line) if self.column is None else f"{self.line}:{self.column + 1}"

    def snippet(self) -> list[str]:
        """The lines that an error prints below its message: position, source line, caret."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        lines = [f"  --> {os.path.basename(self.file)}:{self.line}"]
        if text.strip():
            indent = len(text) - len(text.lstrip())
            column = indent if self.column is None else self.column
            lines += [f"   | {text}", f"   | {' ' * column}^"]
        return lines


def shown_path(file: str) -> str:
    """A file's path as people read it: relative to the working directory where that is shorter."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # on another drive
        return file
    return relative if os.path.isabs(file) and len(relative) < len(file) else file


def _is_inside(frame: FrameType) -> bool:
    """Whether code is the package's: in a file of it, or what ``dataclass`` has generated for it."""
    module = frame.f_globals.get("__name__", "")
    return (
        frame.f_code.co_filename.startswith(_PACKAGE)
        or module == "dataclasses"
        or (frame.f_code.co_filename == "<string>" and module.startswith(f"{__package__}."))
    )


def caller() -> Location | None:
    """The innermost frame outside the package: the user's line. ``None`` if there is none."""
    frame = inspect.currentframe()
    while frame is not None and _is_inside(frame):
        frame = frame.f_back
    if frame is None:
        return None
    column: int | None = None
    for line, _, col, _ in islice(frame.f_code.co_positions(), frame.f_lasti // 2, None):
        column = col if line == frame.f_lineno else None
        break
    return Location(frame.f_code.co_filename, frame.f_lineno, column)
