"""The witness: its text, what of it is read back, who keeps it, the verifier's rules."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import taskfuse.kir.witness_rules as rules
from taskfuse.cli.load import load
from taskfuse.kir import Kernel, held, parse_kernel, specialized, verify_kernel, walk
from taskfuse.kir.operands import WritingStmt
from taskfuse.kir.scope import Declarations
from taskfuse.kir.witness import operands_of
from taskfuse.lowering.state import State
from taskfuse.lowering.steps import Step
from taskfuse.testing.case import seeded_case
from taskfuse.testing.options import Mix
from tests.kir.witnessed import DEFINITIONS, HEADER, assert_equal, kernel
from tests.random_cases import PAIRS, random_case_of

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[a-z]*.py"))


def test_the_text_is_printed_as_it_was_read() -> None:
    body = "y[blockIdx.x, 0] = copy(r)  ~ value y[blockIdx.x, 0]"
    found = kernel(body)
    assert found.text(witness=True) == f"{HEADER}{body}"
    assert str(found) == (HEADER.replace(DEFINITIONS, "") + body).replace(f"  ~ {body.partition('  ~ ')[2]}", "")
    plain = parse_kernel(str(found))
    assert plain == found
    assert (plain.definitions, [held(s) for s in walk(plain)]) == ((), [None])


def lowered(mix: Mix) -> Iterator[tuple[Kernel, dict[str, int]]]:
    for seed in PAIRS[mix]:
        case = random_case_of(seed, mix)
        if case.kernel is not None:
            yield case.kernel, case.sizes


@pytest.mark.parametrize("mix", Mix, ids=lambda m: m.value)
def test_random_kernels_are_read_back(mix: Mix) -> None:
    kernels = 0
    for found, sizes in lowered(mix):
        fixed = specialized(found, sizes)
        for k in (found, fixed):
            assert k.definitions
            assert_equal(parse_kernel(k.text(witness=True)), k)
            assert rules.definition_problem(Declarations.of(k)) is None
        verify_kernel(found)
        assert not any(e.free & sizes.keys() for d in fixed.definitions for e in (*d.shape, *d.space, *d.place))
        assert_equal(pickle.loads(pickle.dumps(found)), found)
        kernels += 1
    assert kernels


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_read_back(path: Path) -> None:
    for program in load(str(path)):
        found = program.kernel()
        assert found.definitions
        assert_equal(parse_kernel(found.text(witness=True)), found)
        assert_equal(pickle.loads(pickle.dumps(found)), found)


def test_every_pass_keeps_what_every_statement_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def checked(step: Step, state: State) -> None:
        definitions = state.kernel.definitions if hasattr(state, "kernel") else None
        step.change(state)
        if not hasattr(state, "kernel"):
            return
        writers = [s for s in walk(state.kernel) if isinstance(s, WritingStmt)]
        assert all(s.holds is not None for s in writers)
        assert definitions is None or state.kernel.definitions is definitions
        verify_kernel(state.kernel)
        seen.append(len(writers))

    monkeypatch.setattr(Step, "run", checked)
    for path in EXAMPLES[::2]:
        for program in load(str(path)):
            program.kernel()
    for mix in Mix:
        seeded_case(PAIRS[mix][0], mix)
    assert len(seen) > 60


def test_the_operands_of_a_rule() -> None:
    found = {d.tensor: [getattr(o, "buffer", type(o).__name__) for o in operands_of(d.rule)] for d in kernel("").definitions}
    assert found == {
        "whole": ["x"],
        "s": ["x", "ScalarValue"],
        "d": ["x"],
        "t": ["x"],
        "p": ["x", "Immediate"],
        "q": ["x", "Immediate"],
        "f": ["x", "j"],
        "l": ["IndexOf", "Immediate"],
        "one": ["Immediate"],
        "w": [],
        "y": ["s", "one"],
    }
