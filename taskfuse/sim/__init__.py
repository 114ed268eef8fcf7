"""The simulator: kernel IR on NumPy, under any interleaving. docs/simulator.md says what it models."""

from taskfuse.sim.schedule import Scheduler
from taskfuse.sim.simulate import simulate

__all__ = ["Scheduler", "simulate"]
