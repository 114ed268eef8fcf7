"""Golden files: text that the compiler prints, kept as files and reviewed like code."""

from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Golden:
    """The golden files in ``folder``; with ``update`` a check rewrites its file and passes."""

    folder: Path
    update: bool

    def check(self, name: str, text: str) -> None:
        """Fails the test unless ``text`` is what the file ``name`` holds (one line end is added to both)."""
        path = self.folder / name
        text = text.rstrip("\n") + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"golden file {name} does not exist\nhelp: `make golden` writes it", pytrace=False)
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            diff = "".join(unified_diff(expected.splitlines(keepends=True), text.splitlines(keepends=True), f"goldens/{name}", "now"))
            pytest.fail(f"golden file {name} differs\n{diff}help: if the change is meant, `make golden` rewrites it", pytrace=False)
