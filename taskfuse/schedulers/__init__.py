"""Schedulers: calls that schedule a fusion of a kind, and say why so."""

from taskfuse.schedulers.config import MatmulConfig
from taskfuse.schedulers.matmul import MatmulSchedule, matmul
from taskfuse.schedulers.pointwise import PointwiseConfig, pointwise
from taskfuse.schedulers.tuning import Trial, Tuned, tune

__all__ = ["MatmulConfig", "MatmulSchedule", "PointwiseConfig", "Trial", "Tuned", "matmul", "pointwise", "tune"]
