"""Kernel -> kernel passes: each a small pure function with a name; ``pipeline.py`` has them as one list."""

from taskfuse.passes.pipeline import PIPELINE, KernelPass

__all__ = ["PIPELINE", "KernelPass"]
