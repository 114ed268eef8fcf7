"""Pages of documentation as programs: their Python blocks, what these print, their links."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from taskfuse.errors import TaskfuseError

FENCE = re.compile(r"^```(\w*)\s*$")
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
ELIDED = "..."
COMMAND = "python -m taskfuse "


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. ``line`` counts from 0 and is that of the first line inside the fence."""

    language: str
    line: int
    lines: tuple[str, ...]

    @property
    def end(self) -> int:
        """The line of the closing fence."""
        return self.line + len(self.lines)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of Markdown."""

    path: Path
    lines: tuple[str, ...]

    @staticmethod
    def read(path: Path) -> Page:
        return Page(path, tuple(path.read_text(encoding="utf-8").split("\n")))

    def blocks(self) -> list[Block]:
        """The fenced blocks, in order."""
        found: list[Block] = []
        start: tuple[str, int] | None = None
        for k, line in enumerate(self.lines):
            fence = FENCE.match(line)
            if fence and start is None:
                start = fence[1], k + 1
            elif fence and start is not None:
                found.append(Block(start[0], start[1], self.lines[start[1] : k]))
                start = None
        assert start is None, f"{self.path.name}: the block at line {start[1] if start else 0} has no end"
        return found

    def prose(self) -> str:
        """The page without its fenced blocks."""
        inside = {k for b in self.blocks() for k in range(b.line - 1, b.end + 1)}
        return "\n".join(line for k, line in enumerate(self.lines) if k not in inside)

    def programs(self) -> list[tuple[Block, Block | None]]:
        """Each Python block, with the block that shows what it prints: a ``text`` block with nothing between."""
        blocks = self.blocks()
        found: list[tuple[Block, Block | None]] = []
        for block, follow in zip(blocks, [*blocks[1:], None], strict=False):
            if block.language == "python":
                between = self.lines[block.end + 1 : follow.line - 1] if follow is not None else ()
                shown = follow if follow is not None and follow.language == "text" and not any(between) else None
                found.append((block, shown))
        return found

    def commands(self) -> list[tuple[Block, list[str], Block]]:
        """Each ``sh`` block that is one ``python -m taskfuse`` command: its arguments, and the ``text`` block right below that shows what it prints."""
        found: list[tuple[Block, list[str], Block]] = []
        blocks = self.blocks()
        for block, follow in pairwise(blocks):
            between = self.lines[block.end + 1 : follow.line - 1]
            if block.language == "sh" and follow.language == "text" and not any(between) and len(block.lines) == 1 and block.lines[0].startswith(COMMAND):
                found.append((block, shlex.split(block.lines[0].removeprefix(COMMAND)), follow))
        return found

    def links(self) -> list[str]:
        """The targets of links, web addresses left out."""
        return [t for t in LINK.findall(self.prose()) if "://" not in t]

    def code(self) -> list[str]:
        """The pieces of inline code."""
        return CODE.findall(self.prose())

    def anchors(self) -> set[str]:
        """The anchors of the headings, as GitHub makes them."""
        headings = (line.lstrip("#").strip() for line in self.prose().split("\n") if line.startswith("#"))
        return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}

    def run(self, setup: str = "") -> list[tuple[Block, Block | None, str]]:
        """Run the Python blocks, one after another in one namespace; what each printed. An error of taskfuse that ends a block counts as printed.

        ``setup`` runs before the first.
        """
        names: dict[str, object] = {"__name__": "__page__"}
        exec(setup, names)
        results: list[tuple[Block, Block | None, str]] = []
        for block, shown in self.programs():
            # the blocks keep the line numbers of the page, so that errors point into it
            code = compile("\n" * block.line + "\n".join(block.lines), str(self.path), "exec")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                try:
                    exec(code, names)
                except TaskfuseError as error:
                    if shown is None:
                        raise
                    print(error)
            results.append((block, shown, printed.getvalue()))
        return results


def matches(expected: str, printed: str) -> bool:
    """True if ``printed`` is ``expected``, where ``...`` stands for anything."""
    return doctest.OutputChecker().check_output(expected.strip("\n") + "\n", printed.strip("\n") + "\n", doctest.ELLIPSIS)


def rewritten(page: Page, results: list[tuple[Block, Block | None, str]]) -> str:
    """The text of the page with the present output in every block that shows one in full."""
    lines = list(page.lines)
    for _, shown, printed in reversed(results):
        if shown is not None and ELIDED not in "\n".join(shown.lines):
            lines[shown.line : shown.end] = printed.strip("\n").split("\n")
    return "\n".join(lines)
