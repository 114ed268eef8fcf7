"""The kill table of values: a sample of mutants, none of which is proved and wrong; what the table says of each kind of mutant."""

import pytest

from taskfuse.check import Certificate, Layer, Obligation, Verdict
from taskfuse.kir import Kernel
from taskfuse.testing import value_faults
from taskfuse.testing.instruction_subjects import INSTRUCTIONS
from taskfuse.testing.mutations import Operator
from taskfuse.testing.value_faults import Ran, Said, ValueFaultTable, ValueMutant, escape, judge, mutants
from taskfuse.testing.value_operators import VALUE_OPERATORS
from taskfuse.testing.value_subjects import ValueSubject, names, subjects

SAMPLE = names(["founding"], 12, 5003)
LONG = ("mixed 5003", "products 5012")
"""Their launches take seconds each: one mutant of each is run."""


@pytest.fixture(scope="module")
def pipeline() -> ValueSubject:
    (subject,) = subjects("pipeline")
    return subject


def first(subject: ValueSubject, name: str, text: str = "") -> ValueMutant:
    op = next(o for o in VALUE_OPERATORS if o.name == name)
    found = (judge(subject, op, mutant) for mutant in op.apply(subject.kernel))
    return next(m for m in found if text in m.edit)


def test_there_are_operators_of_many_kinds() -> None:
    assert len({op.name for op in VALUE_OPERATORS}) == len(VALUE_OPERATORS) >= 80


@pytest.mark.parametrize("name", SAMPLE)
def test_nothing_that_is_wrong_is_proved(name: str) -> None:
    for subject in subjects(name):
        assert [str(m) for op, mutant in mutants(subject, 1 if name in LONG else 2, 1) if (m := escape(subject, op, mutant)) is not None] == []


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instructions(name: str) -> None:
    """A kernel with each of them is proved, and mistakes in it are not."""
    (subject,) = subjects(name)
    subject.kernel.verify().require()
    assert subject.launches
    assert [str(m) for op, mutant in mutants(subject, 2, 1) if (m := escape(subject, op, mutant)) is not None] == []


def test_what_is_said_of_mutants(pipeline: ValueSubject) -> None:
    wrong = first(pipeline, "operands swapped", "sub(")
    assert (wrong.said, wrong.ran, wrong.shown) == (Said.REFUTED, Ran.DIFFERS, True)
    same = first(pipeline, "operands swapped", "mul(")
    assert same.proved
    assert same.ran is Ran.EQUAL


def test_a_hole_in_the_proof_is_told(pipeline: ValueSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    def credulous(kernel: Kernel) -> Certificate:
        return Certificate(kernel.name, (Obligation(Layer.VALUES, "writes", Verdict.PROVED, "it is said so"),))

    monkeypatch.setattr(value_faults, "verify", credulous)
    found = first(pipeline, "operands swapped", "sub(")
    assert found.escaped
    swap = next(o for o in VALUE_OPERATORS if o.name == "operands swapped")
    assert found in (escape(pipeline, swap, mutant) for mutant in swap.apply(pipeline.kernel))
    assert "proved, and wrong (1)\n  operands swapped: pipeline" in ValueFaultTable([found]).lists()


def test_mutants_are_of_many_operators(pipeline: ValueSubject) -> None:
    made: list[tuple[Operator, Kernel]] = [*mutants(pipeline, 30, 0)]
    assert len({op.name for op, _ in made}) == len(made) == 30


def test_the_table_is_by_operator_and_by_subject() -> None:
    table = ValueFaultTable(
        [ValueMutant("one", "guard dropped", "", Said.REFUTED, ran=Ran.DIFFERS), ValueMutant("two", "guard dropped", "", Said.PROVED, ran=Ran.DIFFERS)]
    )
    rows = {line.split("  ")[0]: line.split()[-11:] for line in str(table).split("\n") if line}
    assert rows["guard dropped"] == rows["all"] == ["2", "0", "1", "0", "0", "0", "1", "0", "0", "0", "1"]
    assert (rows["one"][-1], rows["two"][-1]) == ("0", "1")
