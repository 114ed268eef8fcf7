"""Faults: what is wrong, before it is known which statement was running."""

import pickle

from taskfuse.sim.fault import Fault, TornWarp


def test_a_fault_is_its_reason() -> None:
    found = Fault("a race", thread=3, notes=("one",), help="wait")
    assert str(found) == "a race"
    assert (found.reason, found.thread, found.notes, found.help) == ("a race", 3, ("one",), "wait")


def test_what_is_not_said_is_not_known() -> None:
    found = Fault("a race")
    assert (found.thread, found.notes, found.help) == (None, (), None)
    assert isinstance(TornWarp("part of a warp"), Fault)
    assert pickle.loads(pickle.dumps(found)).reason == "a race"
