"""Schedulers: calls that schedule a fusion of one kind, and explain their choice."""

from taskfuse.ir.calls import bind_partitioner
from taskfuse.schedulers.attention import attention
from taskfuse.schedulers.attention_config import AttentionConfig
from taskfuse.schedulers.auto import SCHEDULERS, auto
from taskfuse.schedulers.back_to_back import back_to_back
from taskfuse.schedulers.back_to_back_cost import BackToBackConfig
from taskfuse.schedulers.cat import CatConfig, Form, cat
from taskfuse.schedulers.config import MatmulConfig, MatmulKind
from taskfuse.schedulers.fallback import FallbackConfig, fallback
from taskfuse.schedulers.matmul import matmul
from taskfuse.schedulers.mixed_gemm import mixed_gemm
from taskfuse.schedulers.mixed_gemm_cost import MixedGemmConfig
from taskfuse.schedulers.mma_gemm import MmaGemmConfig, mma_gemm
from taskfuse.schedulers.nested_sums import NestedSumConfig, nested_sums
from taskfuse.schedulers.normalization import normalization
from taskfuse.schedulers.one_walk import OneWalkConfig, one_walk
from taskfuse.schedulers.online import online
from taskfuse.schedulers.online_cost import OnlineConfig
from taskfuse.schedulers.persistent_buffers import Keep
from taskfuse.schedulers.pointwise import PointwiseConfig, pointwise
from taskfuse.schedulers.products import products
from taskfuse.schedulers.products_cost import ProductsConfig
from taskfuse.schedulers.propose import partition
from taskfuse.schedulers.reduction import reduction
from taskfuse.schedulers.rows import RowConfig
from taskfuse.schedulers.scan import scan
from taskfuse.schedulers.scan_cost import ScanConfig
from taskfuse.schedulers.scatter import ScatterConfig, scatter
from taskfuse.schedulers.schedule import Chosen, Option, Schedule
from taskfuse.schedulers.simt_gemm import SimtGemmConfig, simt_gemm
from taskfuse.schedulers.transpose import TransposeConfig, transpose
from taskfuse.schedulers.tuning import Trial, Tuned, tune
from taskfuse.schedulers.windows import WindowsConfig, windows

__all__ = [
    "SCHEDULERS",
    "AttentionConfig",
    "BackToBackConfig",
    "CatConfig",
    "Chosen",
    "FallbackConfig",
    "Form",
    "Keep",
    "MatmulConfig",
    "MatmulKind",
    "MixedGemmConfig",
    "MmaGemmConfig",
    "NestedSumConfig",
    "OneWalkConfig",
    "OnlineConfig",
    "Option",
    "PointwiseConfig",
    "ProductsConfig",
    "RowConfig",
    "ScanConfig",
    "ScatterConfig",
    "Schedule",
    "SimtGemmConfig",
    "TransposeConfig",
    "Trial",
    "Tuned",
    "WindowsConfig",
    "attention",
    "auto",
    "back_to_back",
    "cat",
    "fallback",
    "matmul",
    "mixed_gemm",
    "mma_gemm",
    "nested_sums",
    "normalization",
    "one_walk",
    "online",
    "pointwise",
    "products",
    "reduction",
    "scan",
    "scatter",
    "simt_gemm",
    "transpose",
    "tune",
    "windows",
]

bind_partitioner(partition)
