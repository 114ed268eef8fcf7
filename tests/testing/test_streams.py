"""Random streams: copies of inputs and outputs in Shared memory by bulk copies, loops of trips and blocks around the tiles."""

import taskfuse as tf
from taskfuse.ir.scalar import evaluate
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.testing import RandomChooser
from taskfuse.testing.mechanisms import mechanisms
from taskfuse.testing.program import Recorder
from taskfuse.testing.streams import OUTER, stream
from tests.testing.choosers import Highest


def added() -> Recorder:
    recorder = Recorder()
    x, y = (recorder.call(tf, "define_tensor", shape) for shape in ([64, 64], [64]))
    recorder.call(recorder.fusion, "add_output", recorder.call(tf, "add", x, y))
    return recorder


def test_tiles_are_loaded_and_stored() -> None:
    recorder = added()
    stream(Highest(), recorder, lambda e: int(evaluate(e, {})))
    fusion = recorder.fusion
    copies = [tv for tv in fusion.tensors() if tv.schedule.memory is MemoryType.Shared]
    assert len(copies) == 3
    assert "tma_load" in mechanisms(fusion)
    for tv in fusion.tensors():
        if not tv.is_input:
            assert tv.schedule.ptype(tv.loop[1]) is ParallelType.BIDx
            assert len(tv.loop) >= OUTER
    assert len(fusion.tasks.nodes) >= 3
    assert str(recorder.program().run()) == str(fusion)


def test_clusters_load_in_common_what_they_have_in_common() -> None:
    found: set[str] = set()
    for seed in range(12):
        recorder = added()
        stream(RandomChooser(seed), recorder, lambda e: int(evaluate(e, {})), clusters=100)
        found |= mechanisms(recorder.fusion)
    assert {"cluster", "tma_load_multicast", "tma_load", "tma_store"} <= found
