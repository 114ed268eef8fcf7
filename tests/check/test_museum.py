"""Bugs of other projects, as kernels: each is refuted, and the same kernel without the bug is proved.

The first line of a file says where the bug was found, the second what it is.
"""

from pathlib import Path

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.kir import parse_kernel

MUSEUM = Path(__file__).parent / "museum"
FOUND = {
    "nvfuser_1552": "empty[0]: nothing orders its initialization and this use",
    "nvfuser_2000": "s: race: nothing orders a write and a write of one element",
    "nvfuser_3561": "a_s: race: nothing orders a read and a write of one element",
    "nvfuser_4187": "deadlock: no thread can go on",
    "tilelang_2566": "deadlock: no thread can go on",
    "tilelang_2613": "s: race: nothing orders a read and a write of one element",
    "tilelang_2674": "s: race: nothing orders a read and a write of one element",
    "tilelang_2927": "s: race: nothing orders a write and a read of one element",
    "tilelang_3087": "deadlock: no thread can go on",
    "tilelang_374": "s: race: nothing orders a write and a read of one element",
    "triton_2868": "deadlock: no thread can go on",
    "triton_9786": "register budgets: they sum to 70656 registers of 65536: a warpgroup waits for ever",
    "fb_triton_1278": "a_s: race: nothing orders a read and a write of one element",
    "fb_triton_1040": "SYNC named 1: nothing orders an arrival after the meeting before it, so that threads of two meetings may mix",
    "two_orders": "deadlock: no thread can go on",
}


def test_the_museum_is_complete() -> None:
    assert {p.name for p in MUSEUM.glob("*.kir")} == {f"{name}{end}" for name in FOUND for end in (".kir", ".fixed.kir")}


@pytest.mark.parametrize("name", FOUND)
def test_bugs_are_refuted(name: str) -> None:
    certificate = verify(parse_kernel((MUSEUM / f"{name}.kir").read_text(encoding="utf-8")))
    first = certificate.failures[0]
    assert first.verdict is Verdict.REFUTED
    assert f"{first.subject}: {first.reason}" == FOUND[name]


@pytest.mark.parametrize("name", FOUND)
def test_their_fixes_are_proved(name: str) -> None:
    verify(parse_kernel((MUSEUM / f"{name}.fixed.kir").read_text(encoding="utf-8"))).require()
