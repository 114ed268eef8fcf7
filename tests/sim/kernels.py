"""Kernels for the simulator's tests."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from taskfuse.errors import TaskfuseError
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.sim import Interleaving, simulate

FOLDER = Path(__file__).parent.parent / "kernels"
INTERLEAVINGS = tuple(Interleaving)
X = np.arange(32, dtype=np.float32)


def kernel(
    body: str,
    *declarations: str,
    inputs: str = "x: float32[32]",
    outputs: str = "y: float32[32]",
    block: str = "(32, 1, 1)",
    grid: str = "(1, 1, 1)",
) -> Kernel:
    """A kernel called ``k``; declarations come before (DIM, TENSORMAP) or after the launch shape."""
    before = [d for d in declarations if d.split()[0] in ("DIM", "TENSORMAP")]
    after = [d for d in declarations if d not in before]
    head = [f"KERNEL k({inputs}) -> ({outputs})", *before, f"GRID {grid}  BLOCK {block}", *after]
    return parse_kernel("\n  ".join(head) + "\n\n" + dedent(body).strip("\n") + "\n")


def load(name: str) -> str:
    """The text of a kernel file."""
    return (FOLDER / f"{name}.kir").read_text(encoding="utf-8")


def without(text: str, line: str) -> str:
    """``text`` with the first line that contains ``line`` replaced by PASS."""
    lines = text.split("\n")
    at = next(k for k, t in enumerate(lines) if line in t)
    lines[at] = indent("PASS", " " * (len(lines[at]) - len(lines[at].lstrip())))
    return "\n".join(lines)


def replaced(text: str, old: str, new: str) -> str:
    """``text`` with the one place that says ``old`` changed."""
    assert text.count(old) >= 1
    return text.replace(old, new, 1)


def exchanged(text: str, first: str, second: str) -> str:
    """``text`` with the first line that contains ``first`` and the one that contains ``second`` in each other's place."""
    lines = text.split("\n")
    i, j = (next(k for k, line in enumerate(lines) if what in line) for what in (first, second))
    lines[i], lines[j] = lines[j], lines[i]
    return "\n".join(lines)


def run_all(k: Kernel, args: Sequence[Any], expected: npt.NDArray[Any], **options: Any) -> None:
    """Every interleaving gives exactly the expected output."""
    for interleaving in INTERLEAVINGS:
        (found,) = simulate(k, args, seed=3, interleaving=interleaving, **options)
        np.testing.assert_array_equal(found, expected, err_msg=interleaving.name)


def error(k: Kernel, args: Sequence[Any] = (X,), **options: Any) -> str:
    """The text of the error that a simulation raises."""
    with pytest.raises(TaskfuseError) as caught:
        simulate(k, args, **options)
    return str(caught.value)


def errors(k: Kernel, args: Sequence[Any] = (X,)) -> set[str]:
    """The messages of the errors that the interleavings raise; "none" for a run without."""
    found: set[str] = set()
    for interleaving in INTERLEAVINGS:
        try:
            simulate(k, args, seed=3, interleaving=interleaving)
        except TaskfuseError as e:
            found.add(e.message)
        else:
            found.add("none")
    return found
