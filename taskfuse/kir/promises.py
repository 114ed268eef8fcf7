"""Callers' promises about tables, checked where the host can read the elements: calls on host arrays, and debug builds (``docs/fusion.md``).

No proof of bounds, waits or termination depends on a promise, so calls that cannot read the elements do not wait for them; a table that breaks one gives
unspecified results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from taskfuse.errors import InputError
from taskfuse.ir.tables import places
from taskfuse.kir.arguments import integer, wanted
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.kernel import Kernel


def promised(kernel: Kernel) -> tuple[tuple[int, TensorParam], ...]:
    """The tables with promises, and the tables that these mention, with the positions of their arguments in a call."""
    searched = frozenset[str]().union(*(p.holds.free for p in kernel.table_inputs if p.holds is not None))
    given = ((k, p) for k, p in enumerate(wanted(kernel)) if isinstance(p, TensorParam))
    return tuple((k, p) for k, p in given if any(said is not None for said in (p.rises, p.lengths, p.holds)) or p.name in searched)


def check_promises(kernel: Kernel, given: Iterable[tuple[int, TensorParam, NDArray[np.integer]]], symbols: Mapping[str, int]) -> None:
    """Raise :class:`InputError` if a table breaks its promise.

    Args:
        given: for each table of :func:`promised`, the position of its argument, and its elements.
        symbols: the values of the extents.
    """
    tables = tuple(given)
    for index, param, elements in tables:
        if param.rises is not None:
            check_rises(kernel, index, param, elements, symbols)
        if param.lengths is not None:
            _check_lengths(kernel, index, param, elements, symbols)
    known = {**symbols, **{param.name: elements.astype(np.int64) for _, param, elements in tables}}
    for index, param, elements in tables:
        if param.holds is not None:
            _check_places(kernel, index, param, elements, known)


def _check_lengths(kernel: Kernel, index: int, param: TensorParam, elements: NDArray[np.integer], symbols: Mapping[str, int]) -> None:
    assert param.lengths is not None
    total = integer(param.lengths, symbols)
    negative = np.flatnonzero(elements < 0)
    if negative.size:
        found = f"element {negative[0]} is {elements[negative[0]]}"
    elif (sum := int(elements.astype(object).sum())) != total:
        found = f"their sum is {sum}"
    else:
        return
    reason = f"the elements of table '{param.name}' are not lengths of {param.lengths}{f' = {total}' if param.lengths.free else ''} in all: {found}"
    raise InputError(index=index, fusion=kernel.name, reason=reason, help="pass the lengths of all groups, including those without rows")


def _check_places(kernel: Kernel, index: int, param: TensorParam, elements: NDArray[np.integer], known: Mapping[str, object]) -> None:
    assert param.holds is not None
    wanted = places(param.holds, elements.size, known)
    wrong = np.flatnonzero(elements != wanted)
    if wrong.size:
        at = int(wrong[0])
        reason = f"table '{param.name}' does not hold {param.holds}: element {at} is {elements[at]}, not {wanted[at]}"
        raise InputError(index=index, fusion=kernel.name, reason=reason, help="make it of the table that the kernel gets: tf.tiles.places(...)")


def check_rises(kernel: Kernel, index: int, param: TensorParam, elements: NDArray[np.integer], symbols: Mapping[str, int]) -> None:
    """Raise :class:`InputError` if a table does not rise from its declared first element to its last.

    Args:
        index: position of the argument.
        param: a table of :func:`promised`.
        elements: those of the call.
        symbols: the values of the extents.
    """
    assert param.rises is not None
    if not elements.size:
        return
    low, high = (integer(e, symbols) for e in param.rises)
    falls = np.flatnonzero(elements[1:] < elements[:-1])
    if elements[0] != low:
        found = f"element 0 is {elements[0]}"
    elif falls.size:
        at = int(falls[0])
        found = f"element {at} is {elements[at]}, element {at + 1} is {elements[at + 1]}"
    elif elements[-1] != high:
        found = f"element {elements.size - 1}, the last, is {elements[-1]}"
    else:
        return
    last = f"{param.rises[1]}" + (f" = {high}" if param.rises[1].free else "")
    reason = f"table '{param.name}' does not rise from {low} to {last}: {found}"
    help = "pass nondecreasing elements, or declare the table without rising=True"
    raise InputError(index=index, fusion=kernel.name, reason=reason, help=help)
