"""Einstein summation: products of tensors over named axes, contracted pair by pair.

The subscripts become labels, one per axis. A repeated label within an operand is a view of its diagonal; a label that only one operand
has, and not the result, is summed at once; the rest is contracted from left to right, two operands at a time. Each contraction of two is one
reduction of products, the same expression that :func:`~taskfuse.ops.linalg.matmul` makes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.dtypes import DType, DTypeLike, as_dtype, result_type
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, ZERO, Expr
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, define_pointwise, described, dtype_error, shape_error, typed
from taskfuse.ops.linalg import sum_of_products
from taskfuse.ops.reduce import reduce_axes
from taskfuse.ops.registry import OpKind, op, promoted
from taskfuse.ops.views import permute, view

__all__ = ["einsum"]

_OP = "einsum"
_TERM = re.compile(r"[A-Za-z]*(?:\.\.\.)?[A-Za-z]*")

Labels = tuple[str, ...]
"""One label per axis: a letter, or ``.0``, ``.1``, ... for the axes of an ellipsis, counted from the last."""


@dataclass(frozen=True, slots=True, eq=False)
class _Term:
    """A tensor and the labels of its axes."""

    tensor: TensorView
    labels: Labels


@op(OpKind.PRODUCT, promoted)
def einsum(subscripts: str, *operands: TensorView, dtype: DTypeLike | None = None) -> TensorView:
    """The sum of products that ``subscripts`` names, as in NumPy: ``einsum("bik,bkj->bij", a, b)``.

    A letter names an axis; equal letters are one axis, of one extent (the constant 1 broadcasts). Letters that do not follow ``->`` are
    summed. Without ``->`` the result has the letters that occur once, in alphabetical order. ``...`` stands for all axes that have no letter:
    they broadcast, aligned at the last. More than two operands are contracted from left to right.

    Args:
        subscripts: one list of letters per operand, separated by commas, then optionally ``->`` and those of the result.
        operands: the tensors.
        dtype: dtype of the result, in which the products and sums are computed, too (float32 for floats below 32 bits); by default the promoted
            dtype.

    Raises:
        ShapeError: if the subscripts do not fit the operands or each other, or extents of one letter differ.
        DTypeError: if an operand is not a tensor, or ``dtype`` is not a float although an operand is one.
    """
    for x in operands:
        check_tensor(_OP, x)
    fusion = common_fusion(_OP, operands)
    given, result = _parse(_text(subscripts), operands)
    extents = _extents(given)
    promoted = result_type(*(x.dtype for x in operands))
    wanted = promoted if dtype is None else as_dtype(dtype)
    if promoted.is_float and not wanted.is_float:
        raise dtype_error(_OP, f"{', '.join(map(typed, operands))} cannot be multiplied in {wanted.name}", "ask for a float dtype, then cast")
    with fusion.call():
        terms = [_diagonal(t) for t in given]
        done = terms[0]
        for k, term in enumerate(terms[1:], start=1):
            later = {label for t in terms[k + 1 :] for label in t.labels}
            done = _without(done, {*term.labels, *later, *result}, wanted.compute)
            term = _without(term, {*done.labels, *later, *result}, wanted.compute)
            joined = dict.fromkeys((*done.labels, *term.labels))
            kept = tuple(label for label in joined if label in later or label in result) if k + 1 < len(terms) else result
            done = _contract(fusion, done, term, kept, tuple(label for label in joined if label not in kept), extents, wanted.compute)
        done = _without(done, set(result), wanted.compute)
        order = tuple(done.labels.index(label) for label in result)
        found = done.tensor if order == tuple(range(len(order))) else permute(done.tensor, order)
        return cast_tensor(found, wanted)


# -- subscripts ------------------------------------------------------------------------------------------------------------------------


def _text(subscripts: object) -> str:
    if not isinstance(subscripts, str):
        raise dtype_error(_OP, f"the subscripts are not text, but {type(subscripts).__name__}", 'write einsum("ij,jk->ik", a, b)')
    return subscripts


def _parse(subscripts: str, operands: Sequence[TensorView]) -> tuple[list[_Term], Labels]:
    """The operands with their labels, and the labels of the result."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    for part in (*parts, right):
        if not _TERM.fullmatch(part):
            raise shape_error(_OP, f"'{part}' in '{subscripts}' is not a list of axes", "use letters, and ... for the axes without a letter")
    if len(parts) != len(operands):
        raise shape_error(_OP, f"'{subscripts}' names {len(parts)} operand{'s' if len(parts) != 1 else ''}, and {len(operands)} are given")
    terms = [_Term(x, _labels(part, x)) for part, x in zip(parts, operands, strict=True)]
    rank = max(sum(len(label) > 1 for label in t.labels) for t in terms)
    ellipsis = tuple(f".{k}" for k in reversed(range(rank)))
    if not arrow:
        letters = left.replace(".", "").replace(",", "")
        return terms, (*ellipsis, *sorted(c for c in set(letters) if letters.count(c) == 1))
    if rank and "..." not in right:
        raise shape_error(_OP, f"the result of '{subscripts}' lacks the axes of ...", "write ... after -> as well, or sum them with tf.sum")
    head, dots, tail = right.partition("...")
    letters = head + tail
    for c in letters:
        if letters.count(c) > 1:
            raise shape_error(_OP, f"the result of '{subscripts}' has axis {c} twice")
        if not any(c in t.labels for t in terms):
            raise shape_error(_OP, f"no operand of '{subscripts}' has axis {c} of the result")
    return terms, (*head, *(ellipsis if dots else ()), *tail)


def _labels(part: str, x: TensorView) -> Labels:
    """The labels of one operand."""
    head, dots, tail = part.partition("...")
    rest = x.ndim - len(head) - len(tail)
    if rest < 0 or (rest > 0 and not dots):
        raise shape_error(_OP, f"'{part}' names {len(head) + len(tail)} axes of {described(x)}, which has {x.ndim}")
    return (*head, *(f".{k}" for k in reversed(range(rest))), *tail)


def _extents(terms: Sequence[_Term]) -> dict[str, Expr]:
    """The extent of each label."""
    found: dict[str, Expr] = {}
    source: dict[str, TensorView] = {}
    for t in terms:
        for label, extent in zip(t.labels, t.tensor.shape, strict=True):
            if found.get(label, ONE) is not ONE and extent is not ONE and extent is not found[label]:
                shown = label if len(label) == 1 else "..."
                a, b = described(source[label]), described(t.tensor)
                raise shape_error(_OP, f"axis {shown} is {found[label]} in {a} but {extent} in {b}", "extents must be the same expression, or the constant 1")
            if found.get(label, ONE) is ONE:
                found[label], source[label] = extent, t.tensor
    return found


# -- steps -----------------------------------------------------------------------------------------------------------------------------


def _diagonal(t: _Term) -> _Term:
    """``t`` with each label once: a view that reads a repeated label's axes at one index (those of extent 1 at 0)."""
    labels = tuple(dict.fromkeys(t.labels))
    if len(labels) == len(t.labels):
        return t
    extents = _extents([t])
    shape = [extents[label] for label in labels]
    index = [iteration_symbol(labels.index(label)) if extent is extents[label] else ZERO for label, extent in zip(t.labels, t.tensor.shape, strict=True)]
    return _Term(view(t.tensor, "diagonal", shape, index), labels)


def _without(t: _Term, needed: set[str], dtype: DType) -> _Term:
    """``t`` summed over the labels that nothing else needs."""
    axes = tuple(d for d, label in enumerate(t.labels) if label not in needed)
    if not axes:
        return t
    total = reduce_axes(t.tensor, axes, COMBINES["logical_or" if dtype.is_bool else "add"], dtype, keepdims=False)
    return _Term(total, tuple(label for label in t.labels if label in needed))


def _contract(fusion: Fusion, a: _Term, b: _Term, kept: Labels, summed: Labels, extents: dict[str, Expr], dtype: DType) -> _Term:
    """The product of two operands over the labels ``kept``, summed over the labels ``summed``."""
    space = (*kept, *summed)
    reads = tuple(
        Read(t.tensor, tuple(iteration_symbol(space.index(label)) if e is extents[label] else ZERO for label, e in zip(t.labels, t.tensor.shape, strict=True)))
        for t in (a, b)
    )
    shape = tuple(extents[label] for label in kept)
    if summed:
        return _Term(sum_of_products(fusion, shape, tuple(extents[label] for label in summed), reads, dtype), kept)
    row = ELEMENTWISE["logical_and" if dtype.is_bool else "mul"]
    return _Term(define_pointwise(fusion, row, shape, reads, dtype), kept)
