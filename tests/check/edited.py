"""What the argument lacks of an edited kernel of tests/kernels."""

from __future__ import annotations

from pathlib import Path

from taskfuse.check import Verdict, verify
from taskfuse.kir import parse_kernel

KERNELS = Path(__file__).parent.parent / "kernels"


def gaps(name: str, *edits: tuple[str, str]) -> list[str]:
    """The obligations that the edited kernel leaves open; without a search for a counterexample."""
    text = (KERNELS / f"{name}.kir").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return [f"{o.subject}: {o.reason}" for o in verify(parse_kernel(text)).argument if o.verdict is not Verdict.PROVED]
