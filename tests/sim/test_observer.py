"""Who watches a run is told all that an observer is told."""

from inspect import isfunction, signature

import pytest

from taskfuse.sim import recording
from taskfuse.sim.happens_before import HappensBefore
from taskfuse.sim.observer import Observer

CALLS = {name: f for name, f in vars(Observer).items() if isfunction(f)}
RECORDING = next(c for c in vars(recording).values() if isinstance(c, type) and issubclass(c, Observer) and c is not Observer)


@pytest.mark.parametrize("watcher", [HappensBefore, RECORDING], ids=lambda c: c.__name__)
def test_overridden_methods_are_called_as_those_that_do_nothing(watcher: type[Observer]) -> None:
    overridden = {name: f for name, f in vars(watcher).items() if name in CALLS}
    assert overridden
    for name, f in overridden.items():
        assert [*signature(f).parameters] == [*signature(CALLS[name]).parameters], name
