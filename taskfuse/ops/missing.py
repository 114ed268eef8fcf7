"""Ops that users look for and that are not there: a call says what is missing, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from taskfuse.errors import UnsupportedError
from taskfuse.location import caller

_WRITES = "which element it writes depends on data, so that threads may write the same one"
_ORDER = "elements would move between all threads in an order that depends on data"
_SHAPE = "the shape of its result depends on data"
_RANDOM = "a kernel is a function of its arguments and has no state of its own"
_ADD = "multiply by tf.one_hot of the indices; or call the framework behind the kernel"
_NUMBERS = "make the numbers with the framework, and pass them as an input"


def _missing(name: str, reason: str, help: str) -> Callable[..., NoReturn]:
    def call(*args: object, **kwargs: object) -> NoReturn:
        raise UnsupportedError(what=f"tf.{name}", reason=reason, help=help, location=caller())

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Not there: {reason}."
    return call


scatter = _missing("scatter", _WRITES, "read with tf.take at the inverse indices; or call the framework behind the kernel")
scatter_add = _missing("scatter_add", _WRITES, _ADD)
index_add = _missing("index_add", _WRITES, _ADD)
bincount = _missing("bincount", _WRITES, "sum tf.one_hot of the values")
sort = _missing("sort", _ORDER, "call the framework before the kernel")
argsort = _missing("argsort", _ORDER, "call the framework before the kernel")
topk = _missing("topk", _ORDER, "tf.max and tf.argmax give the first; call the framework for more")
searchsorted = _missing("searchsorted", _ORDER, "count the bounds that are less: tf.sum of tf.lt")
nonzero = _missing("nonzero", _SHAPE, "keep the mask, and choose with tf.where")
unique = _missing("unique", _SHAPE, "call the framework before the kernel")
rand = _missing("rand", _RANDOM, _NUMBERS)
randn = _missing("randn", _RANDOM, _NUMBERS)
dropout = _missing("dropout", _RANDOM, "pass a mask as an input, and choose with tf.where")

MISSING = (scatter, scatter_add, index_add, bincount, sort, argsort, topk, searchsorted, nonzero, unique, rand, randn, dropout)
