"""Ops that other libraries have and taskfuse lacks: a call raises an error that names an alternative."""

from __future__ import annotations

from taskfuse.ops.registry import missing

__all__ = ["unique"]

_SHAPE = "the shape of its result depends on data"


unique = missing("unique", _SHAPE, "call the framework before the kernel")
