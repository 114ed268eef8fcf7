"""Schedulers: calls that schedule a fusion of a kind, and say why so."""

from taskfuse.schedulers.config import MatmulConfig
from taskfuse.schedulers.matmul import MatmulSchedule, matmul
from taskfuse.schedulers.pointwise import PointwiseConfig, pointwise

__all__ = ["MatmulConfig", "MatmulSchedule", "PointwiseConfig", "matmul", "pointwise"]
