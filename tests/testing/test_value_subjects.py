"""Subjects of wrong values: a kernel by its name, with launches whose results are known."""

import numpy as np

from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.testing.instruction_subjects import INSTRUCTIONS
from taskfuse.testing.options import Mix
from taskfuse.testing.value_subjects import names, subjects


def test_names() -> None:
    assert names(["gemm"], 3, 5) == ["gemm", *(f"{mix.value} {5 + k}" for k, mix in zip(range(3), Mix, strict=False))]
    assert len(names([], 2 * len(Mix), 0)) == 2 * len(Mix)


def test_a_program_at_several_extents() -> None:
    (subject,) = subjects("transpose")
    assert subject.name == "transpose transpose"
    extents = [tuple(launch.extents.items()) for launch in subject.launches]
    assert len(extents) == 2 * len(set(extents)) > 2  # each extents with two sets of arguments
    first, second = subject.launches[:2]
    assert not all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(first.arguments, second.arguments, strict=True))
    assert first.exact[0].dtype == np.uint64
    assert first.native[0].dtype == np.float32


def test_refused_cases_are_no_subjects() -> None:
    assert list(subjects("usual 5")) == []


def test_instructions_have_names() -> None:
    name = "mma:ldmatrix"
    (subject,) = subjects(name)
    assert subject.name == name
    launch = subject.launches[0]
    assert np.array_equal(evaluate(INSTRUCTIONS[name](), launch.arguments, MODULAR)[0], launch.exact[0])
