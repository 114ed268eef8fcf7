"""Lowering: fusion -> kernel. ``steps.py`` has the pipeline as one list; the other modules implement the steps."""

from taskfuse.lowering.state import LoweringOptions
from taskfuse.lowering.steps import check_options, lower

__all__ = ["LoweringOptions", "check_options", "lower"]
