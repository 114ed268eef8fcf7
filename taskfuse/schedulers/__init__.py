"""Schedulers: calls that schedule a fusion of a kind, and say why so."""

from taskfuse.schedulers.config import MatmulConfig, MatmulKind
from taskfuse.schedulers.matmul import MatmulSchedule, matmul
from taskfuse.schedulers.normalization import normalization
from taskfuse.schedulers.phases import Keep
from taskfuse.schedulers.reduction import RowSchedule, reduction
from taskfuse.schedulers.rows import RowConfig
from taskfuse.schedulers.tuning import Trial, Tuned, tune

__all__ = [
    "Keep",
    "MatmulConfig",
    "MatmulKind",
    "MatmulSchedule",
    "RowConfig",
    "RowSchedule",
    "Trial",
    "Tuned",
    "matmul",
    "normalization",
    "reduction",
    "tune",
]
