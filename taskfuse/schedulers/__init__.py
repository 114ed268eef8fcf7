"""Schedulers: calls that schedule a fusion of a kind, and say why so."""

from taskfuse.schedulers.config import MatmulConfig, MatmulKind
from taskfuse.schedulers.matmul import MatmulSchedule, matmul
from taskfuse.schedulers.tuning import Trial, Tuned, tune

__all__ = ["MatmulConfig", "MatmulKind", "MatmulSchedule", "Trial", "Tuned", "matmul", "tune"]
