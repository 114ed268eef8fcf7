"""Schedulers: calls that schedule a fusion of a kind, and say why so."""

from taskfuse.ir.fusion import bind_partitioner
from taskfuse.schedulers.config import MatmulConfig
from taskfuse.schedulers.matmul import MatmulSchedule, matmul
from taskfuse.schedulers.propose import partition
from taskfuse.schedulers.tuning import Trial, Tuned, tune

__all__ = ["MatmulConfig", "MatmulSchedule", "Trial", "Tuned", "matmul", "tune"]

bind_partitioner(partition)
