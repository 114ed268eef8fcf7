"""Rows of unsigned integers in order: blocks by counting, then two blocks at a time by merging.

*Counting*: the position of an element is the number of lesser elements in its block; each is added to a zero at its position. For blocks of 128 that is 128
comparisons of an element, and two kernels. Few elements are counted in longer blocks, up to whole rows: comparisons that take less time than the kernel of a
merge. *Merging*: the element at place k of two merged rows has p elements of the first row before it, the greatest p for
which the first row's element p - 1 is less than the second row's element k - p (Odeh, Green, Mwassi, Shmueli, Birk, "Merge Path", 2012). Each place finds its p
by bisection, which reads two rows at computed indices: one kernel per doubling, whose threads work alone. So a row of n elements takes 128 comparisons and
about log2(n)^2 reads per element, where a bitonic network would take log2(n)^2 / 2 kernels. Where only the first few are wanted, merged rows are cut to them,
and each doubling has half the work of the one before.

Elements are complemented on the way: the greatest comes first, and 0, which a read outside a row gives, comes last.
"""

from __future__ import annotations

from math import prod

from taskfuse.dtypes import int32, int64
from taskfuse.ir.axes import iteration_symbol, value_symbol
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue
from taskfuse.ir.scalar import Const, Expr, le, prove, wrap
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import broadcast_read, cast_tensor, define_pointwise, described, elementwise, shape_error
from taskfuse.ops.create import zeros_like
from taskfuse.ops.gather import define_gather
from taskfuse.ops.rearrange import sliced
from taskfuse.ops.reduce import reduce_axes
from taskfuse.ops.scatter import scatter_add
from taskfuse.ops.select import pad
from taskfuse.ops.views import expand_dims, reshape

BLOCK = 128
"""Elements that are ordered by counting, of however many rows."""
COMPARED = 2**24
"""Comparisons, of three to five instructions each, that take about as long as the kernel of a merge; of any machine, since an op is made before one is
known. Blocks have twice as many elements as long as that takes no more of them in addition."""
LONGEST = 2**20
"""Elements of the longest row: its kernels take minutes to compile."""


def ordered(op: str, keys: TensorView, first: int | None = None) -> TensorView:
    """Rows of the last dimension in ascending order, or the ``first`` of each. No two keys of a row are equal, and none has all bits.

    Raises :class:`ShapeError` if the rows are not provably short enough.
    """
    n = keys.shape[-1]
    counted = counted_elements(keys)
    if prove(le(n, counted if first is not None or counted > BLOCK else 2 * BLOCK), keys.fusion.facts()):
        return elementwise("bitwise_not", _counted(elementwise("bitwise_not", keys), first))
    block = counted
    while first is not None and block < first:
        block *= 2
    length = _length(op, keys, n, block)
    whole = pad(keys, [(0, 0)] * (keys.ndim - 1) + [(wrap(0), length - n)], int(keys.dtype.max_value)) if n is not wrap(length) else keys
    rows = _counted(elementwise("bitwise_not", reshape(whole, [*keys.shape[:-1], length // counted, counted])))
    keep = length if first is None else block
    while rows.shape[-2] is not wrap(1):
        rows = merged(rows, keep)
    found = elementwise("bitwise_not", reshape(rows, [*keys.shape[:-1], rows.shape[-1]]))
    return sliced(found, keys.ndim - 1, 0, n if first is None else first)


def counted_elements(keys: TensorView) -> int:
    """How many elements of a row are ordered by counting: a power of two. A tensor without elements counts as one element."""
    found, total = BLOCK, max(1, prod(e.value if isinstance(e, Const) else COMPARED for e in keys.shape))
    while total * found <= COMPARED:
        found *= 2
    return found


def counted_order(rank: TensorView) -> TensorView:
    """The indices (int64) of the elements of each row in ascending order, equal ones in theirs, by comparing every two."""
    last = rank.ndim - 1
    other, own = expand_dims(rank, last + 1), expand_dims(rank, last)
    shape = (*rank.shape, rank.shape[-1])
    away = define_pointwise(rank.fusion, ELEMENTWISE["cast"], shape, (IndexValue(iteration_symbol(last) - iteration_symbol(last + 1)),), int32)
    is_first = elementwise("logical_or", elementwise("lt", other, own), elementwise("logical_and", elementwise("eq", other, own), elementwise("lt", away, 0)))
    index = define_pointwise(rank.fusion, ELEMENTWISE["copy"], rank.shape, (IndexValue(iteration_symbol(last)),), int64)
    return scatter_add(zeros_like(index), last, _number(is_first), index)


def _length(op: str, keys: TensorView, n: Expr, block: int) -> int:
    """The least length of padded rows."""
    length = block
    while not prove(le(n, length), keys.fusion.facts()):
        length *= 2
        if length > LONGEST:
            help = "call the framework before the kernel" if isinstance(n, Const) else "give facts with tf.dim(..., max=)"
            raise shape_error(op, f"rows of {described(keys)} are not provably at most {LONGEST} long", help)
    return length


def _counted(keys: TensorView, first: int | None = None) -> TensorView:
    """Rows in descending order, or the ``first`` of each, by comparing every two elements: others have a place behind the result, where nothing is written."""
    last = keys.ndim - 1
    place = _number(elementwise("gt", expand_dims(keys, last + 1), expand_dims(keys, last)))
    if first is None:
        return scatter_add(zeros_like(keys), last, place, keys)
    wanted = define_pointwise(keys.fusion, ELEMENTWISE["cast"], (*keys.shape, wrap(first)), (IndexValue(iteration_symbol(last + 1)),), int32)
    chosen = elementwise("where", elementwise("eq", expand_dims(place, last + 1), wanted), expand_dims(keys, last + 1), 0)
    return reduce_axes(chosen, (last,), COMBINES["maximum"], keys.dtype, keepdims=False)


def _number(holds: TensorView) -> TensorView:
    """For how many elements of its last dimension but one a condition holds.

    It is not the last one, since then threads would be neighbors along it: each would load what it compares, and all would add up what they count. Threads
    that are neighbors along the elements whose places are counted hold these, and all compare them with the same one.
    """
    return reduce_axes(cast_tensor(holds, int32), (holds.ndim - 2,), COMBINES["add"], int32, keepdims=False)


def merged(rows: TensorView, keep: int) -> TensorView:
    """Every two rows ``[..., 2 m, n]`` in descending order as one: ``[..., m, 2 n]``, but no more than ``keep`` of its elements."""
    fusion, row, place = rows.fusion, rows.ndim - 2, iteration_symbol(rows.ndim - 1)
    length = rows.shape[-1]
    assert isinstance(length, Const)
    n = length.value
    shape = (*rows.shape[:row], rows.shape[row] // 2, wrap(min(2 * n, keep)))
    lead = [iteration_symbol(d) for d in range(row)]

    def at(which: int, where: TensorView) -> TensorView:
        index = [*lead, iteration_symbol(row) * 2 + which, value_symbol(0)]
        return define_gather(rows, shape, index, [(broadcast_read(where, shape), length)])

    def number(value: Expr) -> TensorView:
        return define_pointwise(fusion, ELEMENTWISE["cast"], shape, (IndexValue(value),), int32)

    # p - 1 and k - 1: the place k has p elements of the first row before it
    last, end, step = number(wrap(-1)), number(place - 1), n
    while step:
        tried = elementwise("add", last, step)
        other = elementwise("sub", end, tried)
        is_before = elementwise("logical_and", elementwise("ge", other, 0), elementwise("gt", at(0, tried), at(1, other)))
        last = elementwise("where", is_before, tried, last)
        step //= 2
    return elementwise("maximum", at(0, elementwise("add", last, 1)), at(1, elementwise("sub", end, last)))
