"""What an exploration says of itself."""

from taskfuse.errors import SimulationError
from taskfuse.reports.exploration import Exploration, Failure


def test_nothing_fails() -> None:
    done, cut = Exploration("k", 5, 1, True, None), Exploration("k", 5, 2, False, None)
    assert (done.holds, done.replay) == (True, "")
    assert str(done) == "k: all interleavings end with the same outputs (5 states, 1 interleaving)"
    assert not cut.holds
    assert str(cut) == "k: no interleaving fails so far: the search stopped at its limit (5 states, 2 interleavings)"


def test_a_failure_can_be_repeated() -> None:
    differs = Exploration("k", 5, 2, True, Failure((0, 1), output="y"))
    assert not differs.holds
    assert str(differs).splitlines()[1:] == ["'y' depends on the interleaving", "replay: kernel.simulate(..., choices=[0, 1])"]
    raised = Exploration("k", 5, 2, True, Failure((1,), SimulationError(kernel="k", reason="race")), in_step=1)
    assert raised.replay == "kernel.simulate(..., choices=[1], in_step=1)"
    assert "race" in str(raised)
