"""Random dependent reductions: in one walk, over chunks, or as they are."""

from taskfuse.testing import Mix, RandomChooser
from taskfuse.testing.cascades import CascadeGraph
from taskfuse.testing.program import Recorder


def test_walks_are_drawn() -> None:
    made: set[str] = set()
    for seed in range(12):
        recorder = Recorder()
        CascadeGraph(RandomChooser(seed), Mix.CASCADES.options(seed), recorder).grow()
        made |= {*recorder.made}
        assert str(recorder.program().run()) == str(recorder.fusion)
    assert made >= {"cascade", "chunk_cascade", "max", "sum", "matmul", "exp2"}
