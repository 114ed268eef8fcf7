"""The simulator: kernel IR on NumPy, under any interleaving. docs/simulator.md says what it models."""

from taskfuse.sim.explore import Exploration, Failure, explore
from taskfuse.sim.interleaving import Interleaving
from taskfuse.sim.recording import timeline
from taskfuse.sim.simulate import simulate
from taskfuse.sim.timeline import Timeline

__all__ = ["Exploration", "Failure", "Interleaving", "Timeline", "explore", "simulate", "timeline"]
