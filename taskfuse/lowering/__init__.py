"""Lowering: fusion -> kernel. ``steps.py`` has the pipeline as one list; the other modules are what its steps do."""

from taskfuse.lowering.state import LoweringOptions
from taskfuse.lowering.steps import check_options, lower

__all__ = ["LoweringOptions", "check_options", "lower"]
