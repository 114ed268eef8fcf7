"""A proposal of tasks and groups: explained, as code, applied once."""

from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse.errors import TaskError
from tests.schedulers.members import softmax
from tests.schedulers.partitioned import branches, product


def test_explain() -> None:
    text = branches().partition(sizes={"B": 64, "S": 5, "T": 8}).explain()
    lines = text.splitlines()
    assert lines[0] == "fusion cat: 5 tasks, 2 groups"
    assert lines[1].startswith("  group2 on TIDz: tv9 reads 4 parts at different points, where one body would compute all of them; ")
    assert lines[2].startswith("    group1 on TIDy: 4 parts that do not depend on each other; ")
    assert lines[3:] == [f"      t{k}: tv{k}, tv{k + 4}" for k in (1, 2, 3, 4)] + ["    t5: tv9, tv10"]


@pytest.mark.parametrize("build", [branches, product])
def test_the_code_does_what_apply_does(build: Callable[[], tf.Fusion]) -> None:
    applied, scripted = build(), build()
    proposal = applied.partition()
    text = proposal.code
    assert not applied.tasks.nodes
    proposal.apply()
    exec(text, {"fusion": scripted})
    assert str(scripted) == str(applied)


def test_it_is_applied_once() -> None:
    proposal = branches().partition()
    proposal.apply()
    with pytest.raises(TaskError, match="it has got tasks since it was partitioned"):
        proposal.apply()


def test_a_scheduled_fusion_keeps_its_schedule() -> None:
    fusion = softmax()
    before = str(fusion)
    fusion.partition().apply()
    assert [line for line in str(fusion).splitlines() if not line.startswith("TASK")] == before.splitlines()
