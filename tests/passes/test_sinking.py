"""Sinking: functions that one case of a choice alone needs stand under its condition; what others need, or moves no function, stays."""

import numpy as np
import pytest

from taskfuse.kir import parse_kernel, verify_kernel
from taskfuse.passes.sinking import SinkIntoCases

HEAD = """\
KERNEL k(x: float32[M, 64], y: float32[M, 64]) -> (z: float32[M, 64])
  DIM M
  GRID (M, 1, 1)  BLOCK (64, 1, 1)
  LOCAL a: float32[]
  LOCAL b: float32[]
  LOCAL c: float32[]
  LOCAL d: float32[]
  LOCAL e: float32[2]

FOR blockIdx.x in BIDx{M}:
  FOR threadIdx.x in TIDx{64}:
"""
HEADS = "blockIdx.x % 2 < 1"


def sunk(*lines: str) -> str:
    kernel = SinkIntoCases().run(parse_kernel(HEAD + "".join(f"    {line}\n" for line in lines)))
    verify_kernel(kernel)
    return "\n".join(line.removeprefix("    ") for line in str(kernel).split("TIDx{64}:\n", 1)[1].splitlines())


X, Y = ("[blockIdx.x, threadIdx.x]",) * 2
READ = f"a = sin(x{X})"
STORE = f"z{X} = neg(d)"
CHOICE = f"d = cat(a if {HEADS}, b if blockIdx.x % 2 >= 1)"


def test_each_part_stands_under_its_condition() -> None:
    assert sunk(READ, f"b = cos(y{Y})", CHOICE, STORE) == "\n".join((f"IF {HEADS}:", f"  {READ}", "IF blockIdx.x % 2 >= 1:", f"  b = cos(y{Y})", CHOICE, STORE))


def test_what_only_a_sunk_function_reads_goes_with_it() -> None:
    lines = (f"c = add(x{X}, 1.0)", "a = sin(c)", f"d = cat(a if {HEADS}, otherwise 0)", STORE)
    assert sunk(*lines) == "\n".join((f"IF {HEADS}:", f"  {lines[0]}", f"  {lines[1]}", *lines[2:]))


def test_choices_inside_a_case_are_sunk_there() -> None:
    lines = (READ, "b = cat(a if threadIdx.x < 32, otherwise 0)", "c = exp(b)", f"d = cat(c if {HEADS}, otherwise 0)", STORE)
    assert sunk(*lines) == "\n".join((f"IF {HEADS}:", "  IF threadIdx.x < 32:", f"    {READ}", f"  {lines[1]}", f"  {lines[2]}", *lines[3:]))


STAYS: dict[str, tuple[str, ...]] = {
    "no function": (f"a = add(x{X}, 1.0)", f"d = cat(a if {HEADS}, otherwise 0)", STORE),
    "another reader": (READ, f"d = cat(a if {HEADS}, otherwise 0)", f"z{X} = add(d, a)"),
    "another case": (READ, f"d = cat(a if {HEADS}, a if blockIdx.x % 4 < 2, otherwise 0)", STORE),
    "always taken": (READ, f"d = cat(1.0 if {HEADS}, otherwise a)", STORE),
    "a reader before it": (f"a = sin(x{X})", f"z{X} = neg(a)", f"d = cat(a if {HEADS}, otherwise 0)"),
    "an array": (f"e[0] = sin(x{X})", f"d = cat(e[0] if {HEADS}, otherwise 0)", STORE),
    "a value of the trip before": ("FOR i in 0..2:", f"  d = cat(a if {HEADS}, otherwise 0)", f"  a = sin(x{X})", STORE),
    "written twice": ("a = exp(1.0)", READ, f"d = cat(a if {HEADS}, otherwise 0)", STORE),
    "a loop around the choice": (READ, "FOR i in 0..2:", f"  d = cat(a if {HEADS}, otherwise 0)", f"  z{X} = neg(d)"),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    assert sunk(*STAYS[name]) == "\n".join(STAYS[name])


def test_the_results_are_the_same() -> None:
    kernel = parse_kernel(HEAD + "".join(f"    {line}\n" for line in (READ, f"b = cos(y{Y})", CHOICE, STORE)))
    x, y = np.random.default_rng(0).standard_normal((2, 3, 64)).astype(np.float32)
    np.testing.assert_array_equal(SinkIntoCases().run(kernel).simulate(x, y)[0], kernel.simulate(x, y)[0])
