"""Schedulers: calls that schedule a fusion of a kind, and say why so."""

from taskfuse.schedulers.config import MatmulConfig
from taskfuse.schedulers.matmul import MatmulSchedule, matmul

__all__ = ["MatmulConfig", "MatmulSchedule", "matmul"]
