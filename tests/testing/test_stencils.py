"""Random math of neighbors: it evaluates, and has every kind."""

from taskfuse.testing import Mix, RandomChooser
from taskfuse.testing.program import Recorder
from taskfuse.testing.stencils import StencilGraph


def test_every_kind_is_drawn() -> None:
    made: set[str] = set()
    for seed in range(40):
        recorder = Recorder()
        StencilGraph(RandomChooser(seed), Mix.FORMS.options(seed), recorder).grow()
        made |= {*recorder.made}
        assert recorder.fusion.outputs
        assert all(tv.uses or tv.is_output or tv.is_input for tv in recorder.fusion.tensors())
    assert made >= {"slice", "pad", "max_pool", "avg_pool", "conv1d", "broadcast_to", "matmul", "fold", "decayed_sum", "reshape", "sum"}
