"""The math that ``tf.schedulers.attention`` takes: two products with a cascade of reductions between them, by the axes of both.

The second product sums over the columns of the first one, the keys. Its other factor has values of the keys, which may be a part of them: a slice of the
tensor that the first product reads, as in latent attention (DeepSeek-V2, arXiv:2405.04434).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd

from taskfuse.ir.axes import iteration_point, iteration_symbol
from taskfuse.ir.contraction import axes_of_index
from taskfuse.ir.expr import Read, Reduction
from taskfuse.ir.fragments import term_of_column
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ZERO, Const, Expr, FloorDiv, Mod, children, integers_of, le, prove, simplify, substitute
from taskfuse.ir.storage import needed, resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.masked_ends import masked_end, masked_start
from taskfuse.schedule.repairs import depends
from taskfuse.schedule.scatter import ragged_rows
from taskfuse.schedulers.attention_config import ITEMSIZE, PIECE
from taskfuse.schedulers.attention_cost import Attention
from taskfuse.schedulers.elementwise import stored
from taskfuse.schedulers.loads import is_bulk
from taskfuse.schedulers.schedule import refuse
from taskfuse.schedulers.walk_tiles import check_product, is_given, matrices
from taskfuse.target import VECTOR_BYTES

SWIZZLED_ROWS = 8
"""The period of a swizzle in Shared memory, in rows."""


def find(fusion: Fusion) -> Attention:
    """The two products and the math between them. Raises :class:`UnsupportedError`."""
    exprs = needed(fusion)
    products = [e for e in exprs if isinstance(e, Reduction) and matrices(fusion, e) is not None]
    if len(products) != 2:
        raise refuse(fusion, "attention", f"the number of matrix products is {len(products)}, not 2", "tf.compile cuts other fusions")
    first, second = products
    assert isinstance(first, Reduction)
    assert isinstance(second, Reduction)
    if not depends(fusion, second.output, (first.output,)):
        raise refuse(fusion, "attention", f"{second.output.name} does not depend on {first.output.name}")
    one, two = matrices(fusion, first), matrices(fusion, second)
    assert one is not None
    assert two is not None
    check_product(fusion, "attention", first, one, (1, ITEMSIZE))
    check_product(fusion, "attention", second, two, (1, ITEMSIZE), two.a if is_given(fusion, two.b) else two.b)
    if not all(is_given(fusion, o) for o in first.operands) or len(one.summed) != 1 or len(two.summed) != 1:
        raise refuse(fusion, "attention", f"the factors of {first.output.name} are not inputs, or it sums over several axes")
    key = second.output.root[two.summed[0]]
    wanted = key.extent
    reductions = tuple(e.output for e in exprs if isinstance(e, Reduction) and e is not first and depends(fusion, e.output, (first.output,)))
    for r in reductions:
        reduced = [a.extent for a in r.root if a.is_reduction]
        if len(reduced) != 1 or reduced[0] is not wanted:
            raise refuse(fusion, "attention", f"{r.name} and {second.output.name} reduce different axes")
    keys = Keys(fusion)
    along = [p for p, a in enumerate(first.output.root) if keys.equal(a, key)]
    sides = one if one.columns.intersection(along) else one.swapped()
    other = two if is_given(fusion, two.b) else two.swapped()
    own = [p for p in sides.columns if p in along]
    if len(sides.rows) != 1 or len(own) != 1 or len(other.columns) != 1 or not is_given(fusion, other.b):
        raise refuse(fusion, "attention", "a product has more than one axis of rows or columns, or the last factor is not an input")
    (m,), (n,), (c,) = sides.rows, own, other.columns
    if sum(f"i{m}" in e.free for e in sides.a.index) > 1:
        raise refuse(
            fusion, "attention", f"rows of {first.output.name} are digits of several axes of {sides.a.tensor.name}", "pass the reshaped tensor as an input"
        )
    batch = tuple(sorted((*one.batch, *(p for p in sides.columns if p != n))))  # chunks of keys are such an axis, which queries lack
    sizes = [first.output.root[one.summed[0]].extent, second.output.root[c].extent]
    itemsizes = sides.a.tensor.dtype.itemsize, other.b.tensor.dtype.itemsize
    for e, itemsize in zip(sizes, itemsizes, strict=True):
        step = VECTOR_BYTES // itemsize
        if not isinstance(e, Const) or e.value % step or not e.value:
            raise refuse(fusion, "attention", f"heads of {e} elements", f"use constant multiples of {step}")
    if len(batch) > 3:
        raise refuse(fusion, "attention", f"it has {len(batch)} batch axes", "merge them, with a reshape")
    assert isinstance(sizes[1], Const)
    top = fusion.definition(reductions[0])
    assert isinstance(top, Reduction)
    along_keys = next(k for k, a in enumerate(top.output.root) if a.is_reduction)

    def used(bound: Expr) -> list[int]:
        return [p for p, s in enumerate(iteration_point(len(top.output.root))) if str(s) in integers_of(bound)]

    def known(bound: Expr | None) -> Expr | None:
        """A bound that depends on rows and batch axes alone."""
        is_known = bound is not None and all(p in (*batch, m) and keys.equal(top.output.root[p], first.output.root[p]) for p in used(bound))
        return bound if is_known else None

    start, end = known(masked_start(fusion, top, along_keys)), known(masked_end(fusion, top, along_keys))
    divisors = [_divisors(e, f"i{n}") for e in sides.b.index]
    divisors += [_divisors(e, f"i{two.summed[0]}") for e in other.b.index if e is not term_of_column(iteration_symbol(two.summed[0]), itemsizes[1])]
    run = gcd(*(size for found in divisors for size in found))
    if run % SWIZZLED_ROWS:
        raise refuse(fusion, "attention", f"runs of {run} keys of {other.b.tensor.name} are contiguous", f"use pages of a multiple of {SWIZZLED_ROWS} keys")
    is_padded = not all(resolve(fusion, o).tensor.is_input for o in (*first.operands, other.b) if isinstance(o, Read))
    row = str(iteration_symbol(m)) if end is not None and m in used(end) else ""
    inside = _start_in_keys(keys, first.output, sides.b, second.output, other.b, {c: one.summed[0]})
    with_columns = [tv for tv in stored(fusion) if len(tv.root) > len(batch) + 1]
    has_bulk = sizes[1].value % PIECE == 0 and not ragged_rows(fusion)
    for tv in with_columns:
        is_row_major = tv.is_output and keys.equal(tv.root[-1], second.output.root[c])
        has_bulk = has_bulk and is_row_major and tv.dtype.itemsize == ITEMSIZE and is_bulk(tv, fusion.facts())
    return Attention(
        first.output, reductions, batch, m, n, one.summed[0], sizes[1].value, *sides.places, is_padded, start, end, row, run, *itemsizes, inside, has_bulk
    )


def _start_in_keys(keys: Keys, scores: TensorView, key: Read, walk: TensorView, value: Read, along: Mapping[int, int]) -> int | None:
    """Where the elements of a value begin among those of its key; ``None`` if it is not a part of it.

    Args:
        keys: of the axes.
        scores, walk: the products, by whose axes a key and a value are read.
        along: from the columns of ``walk`` to the axis that ``scores`` sums.
    """
    at: dict[str, Expr] = {}
    for p, a in enumerate(walk.root):
        place = along.get(p, next((q for q, b in enumerate(scores.root) if keys.equal(a, b)), None))
        if place is not None:
            at[str(iteration_symbol(p))] = iteration_symbol(place)
    facts = keys.fusion.facts()
    if key.tensor is not value.tensor or any(str(iteration_symbol(p)) not in at for p in axes_of_index(value.index)):
        return None
    begins = [simplify(substitute(b, at) - a, facts) for a, b in zip(key.index, value.index, strict=True)]
    ((column, element),) = along.items()
    inner = [begin for a, begin in zip(key.index, begins, strict=True) if a is iteration_symbol(element)]
    others = [begin for a, begin in zip(key.index, begins, strict=True) if a is not iteration_symbol(element)]
    if len(inner) != 1 or not isinstance(inner[0], Const) or any(begin is not ZERO for begin in others):
        return None
    start = inner[0].value
    return start if start >= 0 and prove(le(start + walk.root[column].extent, scores.root[element].extent), facts) else None


def _divisors(e: Expr, name: str) -> Iterator[int]:
    """The constants by which a symbol is divided, or of which the remainder is taken: indices that are a multiple of one apart lie in different places."""
    if isinstance(e, FloorDiv | Mod) and name in e.a.free:
        yield e.b.value if isinstance(e.b, Const) else 1
    for part in children(e):
        if name in part.free:
            yield from _divisors(part, name)
