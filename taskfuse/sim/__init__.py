"""The simulator: kernel IR on NumPy, under any interleaving. docs/simulator.md describes the model."""

from taskfuse.reports.exploration import Exploration, Failure
from taskfuse.reports.timeline import Timeline
from taskfuse.sim.explore import explore
from taskfuse.sim.interleaving import Interleaving
from taskfuse.sim.recording import timeline
from taskfuse.sim.simulate import simulate

__all__ = ["Exploration", "Failure", "Interleaving", "Timeline", "explore", "simulate", "timeline"]
