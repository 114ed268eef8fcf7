"""Rings between blocks in the static proof: what holds, and twins that break one condition each."""

from pathlib import Path

import numpy as np
import pytest

from taskfuse.check import Verdict, verify
from taskfuse.kir import parse_kernel
from taskfuse.testing.outcomes import misbehaves

TEXT = (Path(__file__).parents[1] / "kernels" / "blocks.kir").read_text(encoding="utf-8")
X = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)


def changed(*replacements: tuple[str, str]) -> str:
    text = TEXT
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    return text


def reasons(text: str) -> str:
    certificate = verify(parse_kernel(text))
    assert not certificate.is_proved
    return "\n".join(f"{o.subject}: {o.reason}" for o in certificate.failures)


def test_the_kernel_is_proved() -> None:
    certificate = verify(parse_kernel(TEXT))
    certificate.require()
    assert "ring full/empty: 2 slots, 2 consumers: equal trips and counts in all blocks" in str(certificate)
    assert "all blocks of the grid are resident at once" in str(certificate)


SYMBOLIC = (
    ("x: float32[2, N, 4]) -> (y: float32[2, N, 4]", "x: float32[B, N, 4]) -> (y: float32[B, N, 4]"),
    ("DIM N", "DIM B, N"),
    ("GRID (6, 1, 1)", "GRID (3*B, 1, 1)"),
    ("w: float32[2, 2, 4]", "w: float32[B, 2, 4]"),
    ("full[2, 2] count 1, empty[2, 2] count 2", "full[B, 2] count 1, empty[B, 2] count 2"),
    ("IF blockIdx.x < 2:", "IF blockIdx.x < B:"),
    ("ELSE IF blockIdx.x < 4:", "ELSE IF blockIdx.x >= B && blockIdx.x < 2*B:"),
    ("ELSE:  # high", "ELSE IF blockIdx.x >= 2*B:  # high"),
    ("blockIdx.x - 2", "blockIdx.x - B"),
    ("blockIdx.x - 4", "blockIdx.x - 2*B"),
)


def test_any_number_of_blocks() -> None:
    text = changed(*SYMBOLIC)
    verify(parse_kernel(text)).require()
    # an end with a block less
    less = text.replace("blockIdx.x >= 2*B:", "blockIdx.x >= 2*B && blockIdx.x < 3*B - 1:")
    assert "one end has the rings 0 to B - 1, the other 0 to B - 2" in reasons(less)


BROKEN = {
    "a thread that releases without meeting": (
        (
            ("    SYNC block  # what one thread has acquired, all have\n", ""),
            ("    SYNC block  # before one thread releases for the block\n", ""),
            ("    IF threadIdx.x == 0:\n      RELEASE full", "    IF threadIdx.x == 1:\n      RELEASE full"),
        ),
        "it releases without synchronizing with the thread that acquires",
    ),
    "nobody acquires": (
        (("    IF threadIdx.x == 0:\n      ACQUIRE empty", "    IF threadIdx.x == 4:\n      ACQUIRE empty"),),
        "it does not wait for the phases before its own (producer), or for its own too (consumer)",  # what no thread executes is left out
    ),
    "a wait for another phase": ((("phases p.phase", "phases p.phase + 2"),), "it does not wait for the phases before its own (producer)"),
    "another ring": ((("ACQUIRE full[blockIdx.x - 2, a.slot]", "ACQUIRE full[3 - blockIdx.x, a.slot]"),), "it uses several rings"),
    "a ring that is not there": (
        (("full[2, 2] count 1, empty[2, 2] count 2", "full[1, 2] count 1, empty[1, 2] count 2"),),
        "it has no counter [1, 0]",
    ),
    "rings of other blocks": (
        (("[blockIdx.x - 4, b.slot]", "[5 - blockIdx.x, b.slot]"),),
        "its ring 5 - blockIdx.x is not a block index less a constant",
    ),
    "an end with fewer blocks": (
        (("ELSE IF blockIdx.x < 4:", "ELSE IF blockIdx.x == 2:"), ("ELSE:  # high", "ELSE IF blockIdx.x >= 4:  # high")),
        "one end has the rings 0 to 1, the other 0 to 0",
    ),
    "releases of one block too few": ((("empty[2, 2] count 2", "empty[2, 2] count 3"),), "a phase of empty takes 3 releases, but gets 2"),
    "elements of another ring": ((("add(w[blockIdx.x - 2, a.slot, threadIdx.x]", "add(w[3 - blockIdx.x, a.slot, threadIdx.x]"),), "race: nothing orders"),
    "other trips in other blocks": (
        (("  b = CURSOR(slots 2, slot 0, parity 0)\n  FOR i in 0..N:", "  b = CURSOR(slots 2, slot 0, parity 0)\n  FOR i in 0..N + 1:"),),
        "different trips",
    ),
    "a cursor that starts in a loop": (
        (("  p = CURSOR(slots 2, slot 0, parity 1)\n  FOR i in 0..N:\n", "  FOR i in 0..N:\n    p = CURSOR(slots 2, slot 0, parity 1)\n"),),
        "cursor p starts anew in every iteration, but the semaphores' phases continue",
    ),
    "a block that is left out": (
        (("IF blockIdx.x < 2:", "IF blockIdx.x < 2 && blockIdx.x % 2 == 0:"), ("ELSE IF blockIdx.x < 4:", "ELSE IF blockIdx.x >= 2 && blockIdx.x < 4:")),
        "its blocks along blockIdx.x are not a range",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_a_ring(name: str) -> None:
    replacements, reason = BROKEN[name]
    text = changed(*replacements)
    assert reason in reasons(text)
    assert misbehaves(parse_kernel(text), [X]) is not None or verify(parse_kernel(text)).verdict is Verdict.OUTSIDE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    SYNC block  # what one thread has acquired, all have\n", ""),
        ("    SYNC block  # before one thread releases for the block\n", ""),
        ("      ACQUIRE empty[blockIdx.x, p.slot] phases p.phase\n", "      PASS\n"),
        ("phases a.phase + 1", "phases a.phase"),
        ("w[blockIdx.x, p.slot, threadIdx.x]", "w[blockIdx.x, 0, threadIdx.x]"),
    ],
)
def test_races_have_a_counterexample(old: str, new: str) -> None:
    found = verify(parse_kernel(changed((old, new)))).failures[0]
    assert found.verdict is Verdict.REFUTED
    assert found.reason.startswith("race: nothing orders")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("      RELEASE full[blockIdx.x, p.slot]\n", "      PASS\n"),
        ("phases a.phase + 1", "phases a.phase + 2"),
        ("full[2, 2] count 1", "full[2, 2] count 2"),
    ],
)
def test_deadlocks_have_a_counterexample(old: str, new: str) -> None:
    found = verify(parse_kernel(changed((old, new)))).failures[0]
    assert (found.verdict, found.subject) == (Verdict.REFUTED, "deadlock")
    assert any("phases complete" in note for note in found.notes)


def test_roles_that_wait_for_each_other_crosswise() -> None:
    """Two rings, filled X then Y in separate loops and read Y then X."""
    ring = (
        "    IF threadIdx.x == 0:\n      ACQUIRE {name}[{c}.slot] phases {c}.phase{plus}\n    SYNC block\n    {body}\n    SYNC block\n"
        "    IF threadIdx.x == 0:\n      RELEASE {other}[{c}.slot]\n    {c}.advance(1)\n"
    )

    def fill(r: str) -> str:
        body = f"{r}[{r}p.slot, threadIdx.x] = copy(x[k, threadIdx.x])"
        return "  FOR k in 0..N:\n" + ring.format(name=f"{r}empty", c=f"{r}p", plus="", body=body, other=f"{r}full")

    def use(r: str) -> str:
        body = f"y{r}[k, threadIdx.x] = copy({r}[{r}c.slot, threadIdx.x])"
        return "  FOR k in 0..N:\n" + ring.format(name=f"{r}full", c=f"{r}c", plus=" + 1", body=body, other=f"{r}empty")

    def kernel(second: str, third: str) -> str:
        return (
            "KERNEL cross(x: float32[N, 32]) -> (ya: float32[N, 32], yb: float32[N, 32])\n  DIM N\n  GRID (2, 1, 1)  BLOCK (32, 1, 1)\n"
            "  GLOBAL a: float32[2, 32]\n  GLOBAL b: float32[2, 32]\n"
            "  SEMAPHORE afull[2] count 1, aempty[2] count 1, bfull[2] count 1, bempty[2] count 1\n\n"
            "IF blockIdx.x == 0:\n  ap = CURSOR(slots 2, slot 0, parity 1)\n  bp = CURSOR(slots 2, slot 0, parity 1)\n"
            + fill("a") + fill("b")
            + "ELSE IF blockIdx.x == 1:\n  ac = CURSOR(slots 2, slot 0, parity 0)\n  bc = CURSOR(slots 2, slot 0, parity 0)\n"
            + use(second) + use(third)
        )  # fmt: skip

    verify(parse_kernel(kernel("a", "b"))).require()
    found = verify(parse_kernel(kernel("b", "a"))).failures[0]
    assert (found.verdict, found.subject) == (Verdict.REFUTED, "deadlock")
