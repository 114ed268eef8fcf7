"""Lowering: fusion -> kernel. ``lower.py`` has the pipeline as one list; each other module is one step of it."""

from taskfuse.lowering.lower import LoweringOptions, lower

__all__ = ["LoweringOptions", "lower"]
