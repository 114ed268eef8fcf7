"""Lowering: fusion -> kernel. ``steps.py`` has the pipeline as one list; the other modules are what its steps do."""

from taskfuse.lowering.lower import lower
from taskfuse.lowering.state import LoweringOptions

__all__ = ["LoweringOptions", "lower"]
