"""Ops that other libraries have and taskfuse lacks: a call raises an error that names an alternative."""

from __future__ import annotations

from taskfuse.ops.registry import missing

__all__ = ["nonzero", "searchsorted", "unique"]

_ORDER = "elements would move between all threads in an order that depends on data"
_SHAPE = "the shape of its result depends on data"


searchsorted = missing("searchsorted", _ORDER, "count the bounds that are less: tf.sum of tf.lt")
nonzero = missing("nonzero", _SHAPE, "keep the mask, and choose with tf.where")
unique = missing("unique", _SHAPE, "call the framework before the kernel")
