"""Ops that other libraries have and taskfuse lacks: a call raises an error that names an alternative."""

from __future__ import annotations

from taskfuse.ops.registry import missing

__all__ = ["argsort", "bincount", "dropout", "index_add", "nonzero", "rand", "randn", "scatter", "scatter_add", "searchsorted", "sort", "topk", "unique"]

_WRITES = "which element it writes depends on data, so that threads may write the same one"
_ORDER = "elements would move between all threads in an order that depends on data"
_SHAPE = "the shape of its result depends on data"
_RANDOM = "a kernel is a function of its arguments and has no state of its own"
_ADD = "multiply by tf.one_hot of the indices; or call the framework behind the kernel"
_NUMBERS = "make the numbers with the framework, and pass them as an input"


scatter = missing("scatter", _WRITES, "read with tf.take at the inverse indices; or call the framework behind the kernel")
scatter_add = missing("scatter_add", _WRITES, _ADD)
index_add = missing("index_add", _WRITES, _ADD)
bincount = missing("bincount", _WRITES, "sum tf.one_hot of the values")
sort = missing("sort", _ORDER, "call the framework before the kernel")
argsort = missing("argsort", _ORDER, "call the framework before the kernel")
topk = missing("topk", _ORDER, "tf.max and tf.argmax give the first; call the framework for more")
searchsorted = missing("searchsorted", _ORDER, "count the bounds that are less: tf.sum of tf.lt")
nonzero = missing("nonzero", _SHAPE, "keep the mask, and choose with tf.where")
unique = missing("unique", _SHAPE, "call the framework before the kernel")
rand = missing("rand", _RANDOM, _NUMBERS)
randn = missing("randn", _RANDOM, _NUMBERS)
dropout = missing("dropout", _RANDOM, "pass a mask as an input, and choose with tf.where")
