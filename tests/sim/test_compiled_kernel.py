"""Compiled kernels: what the machine asks of them."""

from taskfuse.ir.values import NATIVE
from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import For
from taskfuse.sim.agent import Agent
from taskfuse.sim.compiled_kernel import SimulatedKernel
from tests.sim.kernels import load


def test_whole_warps_execute_tensor_cores() -> None:
    ring, gemm = (SimulatedKernel(parse_kernel(load(name)), NATIVE) for name in ("ring", "gemm"))
    assert (ring.unit, gemm.unit) == (1, 32)
    assert (ring.uses_engines, gemm.uses_engines) == (False, True)
    assert not ring.accumulators
    assert len(gemm.accumulators) == 1


def test_instructions_keep_their_statement_and_label() -> None:
    compiled = SimulatedKernel(parse_kernel(load("ring")), NATIVE)
    loop = next(s for s in compiled.kernel.body if not isinstance(s, For))

    def nothing(agent: Agent) -> None:
        del agent

    def never(agent: Agent) -> bool:
        del agent
        return False

    places = [compiled.emit(nothing, loop, "producer", True, never), compiled.emit(nothing, None, None, False, None)]
    assert places == [0, 1]
    assert compiled.code == [nothing, nothing]
    assert compiled.sources == [loop, None]
    assert compiled.labels == ["producer", None]
    assert compiled.points == [True, False]
    assert compiled.guards == {0: never}
