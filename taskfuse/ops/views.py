"""Views: tensors that are maps of other tensors, without storage and without code.

Each is one :class:`~taskfuse.ir.expr.View`, whose index maps its elements to those of the operand.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.axes import axis, iteration_symbol
from taskfuse.ir.expr import Read, View
from taskfuse.ir.scalar import ONE, ZERO, Expr, IntLike, eq, ge, prove, shape_text, simplify, wrap
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import Shape, broadcast_read, check_tensor, described, listed, normalize_axes, normalize_axis, plain, shape_error
from taskfuse.ops.create import extent
from taskfuse.ops.keywords import axial
from taskfuse.ops.registry import OpKind, op, same

__all__ = ["broadcast_to", "expand_dims", "flip", "permute", "reshape", "squeeze", "transpose"]


def view(x: TensorView, label: str, shape: Sequence[Expr], index: Sequence[Expr]) -> TensorView:
    """A view of ``x``: its element at ``index``, one expression over the iteration symbols per dimension of ``x``."""
    location = caller()
    out = x.fusion.new_tensor([axis(e) for e in shape], x.dtype, location=location)
    return x.fusion.define(View(out, label, Read(x, tuple(index)), location))


@op(OpKind.VIEW, same, torch="broadcast_to expand")
def broadcast_to(x: TensorView, shape: Sequence[IntLike | str]) -> TensorView:
    """``x`` repeated along its dimensions of extent 1 and along new leading dimensions: a view.

    Raises :class:`ShapeError` if a dimension is neither 1 nor the wanted extent.
    """
    check_tensor("broadcast_to", x)
    wanted = tuple(extent("broadcast_to", x.fusion, e) for e in listed("broadcast_to", shape, "extents"))
    fits = len(wanted) >= x.ndim and all(e is ONE or e is w for e, w in zip(x.shape, wanted[len(wanted) - x.ndim :], strict=True))
    if not fits:
        raise shape_error("broadcast_to", f"{described(x)} does not broadcast to {shape_text(wanted)}", "each extent must be 1 or the wanted one")
    return view(x, "broadcast_to", wanted, broadcast_read(x, wanted).index)


@op(OpKind.VIEW, same, torch="unsqueeze")
@axial
def expand_dims(x: TensorView, axis: int | Sequence[int]) -> TensorView:
    """``x`` with new dimensions of extent 1 at the positions ``axis`` of the result: a view. Raises :class:`ShapeError`."""
    check_tensor("expand_dims", x)
    given = tuple(listed("expand_dims", axis, "axes"))
    ndim = x.ndim + len(given)
    places = {normalize_axis("expand_dims", a, ndim, f"the {ndim}-d result of {described(x)}") for a in given}
    if len(places) < len(given):
        raise shape_error("expand_dims", f"axes {given} repeat an axis")
    kept = [d for d in range(ndim) if d not in places]
    shape: list[Expr] = [ONE] * ndim
    for d, e in zip(kept, x.shape, strict=True):
        shape[d] = e
    return view(x, "expand_dims", shape, [iteration_symbol(d) for d in kept])


@op(OpKind.VIEW, same)
@axial
def squeeze(x: TensorView, axis: int | Sequence[int] | None = None) -> TensorView:
    """``x`` without the dimensions ``axis``, each of extent 1 (by default all that have the constant extent 1): a view.

    Raises :class:`ShapeError` if one has another extent.
    """
    check_tensor("squeeze", x)
    dropped = [d for d, e in enumerate(x.shape) if e is ONE] if axis is None else normalize_axes("squeeze", axis, x)
    for d in dropped:
        if x.shape[d] is not ONE:
            raise shape_error("squeeze", f"dimension {d} of {described(x)} has extent {x.shape[d]}, not 1")
    kept = [d for d in range(x.ndim) if d not in dropped]
    index: list[Expr] = [ZERO] * x.ndim
    for i, d in enumerate(kept):
        index[d] = iteration_symbol(i)
    return view(x, "squeeze", [x.shape[d] for d in kept], index)


@op(OpKind.VIEW, same, numpy="")
def permute(x: TensorView, dims: Sequence[int]) -> TensorView:
    """``x`` with its dimensions in the order ``dims``: a view. Raises :class:`ShapeError` if ``dims`` is not a permutation."""
    check_tensor("permute", x)
    given = listed("permute", dims, "axes")
    order = [normalize_axis("permute", d, x.ndim, described(x)) for d in given]
    if sorted(order) != list(range(x.ndim)):
        raise shape_error("permute", f"{tuple(given)} is not a permutation of the {x.ndim} dimensions of {described(x)}")
    return view(x, "permute", [x.shape[d] for d in order], [iteration_symbol(order.index(d)) for d in range(x.ndim)])


@op(OpKind.VIEW, same, torch="t")
def transpose(x: TensorView, axes: Sequence[int] | None = None) -> TensorView:
    """:func:`permute`; by default all dimensions reversed."""
    check_tensor("transpose", x)
    return permute(x, tuple(reversed(range(x.ndim))) if axes is None else axes)


@op(OpKind.VIEW, same)
@axial
def flip(x: TensorView, axis: int | Sequence[int] | None = None) -> TensorView:
    """``x`` with the order of its elements reversed along ``axis`` (all dimensions if ``None``): a view."""
    check_tensor("flip", x)
    axes = normalize_axes("flip", axis, x)
    index = [e - 1 - iteration_symbol(d) if d in axes else iteration_symbol(d) for d, e in enumerate(x.shape)]
    return view(x, "flip", x.shape, index)


@op(OpKind.VIEW, same, torch="reshape view _unsafe_view")
def reshape(x: TensorView, shape: Sequence[IntLike | str]) -> TensorView:
    """The elements of ``x`` in row-major order in another shape; one extent may be -1. A view.

    Dimensions are matched in the smallest groups with equal products, so that a split, a merge, or an unchanged dimension has its own
    map, without divisions by the whole size.

    Raises :class:`ShapeError` if the numbers of elements are not provably equal.
    """
    check_tensor("reshape", x)
    given = [wrap(e) if isinstance(e, int) else extent("reshape", x.fusion, e) for e in map(plain, listed("reshape", shape, "extents"))]
    wanted = _infer(x, given)
    if _product(x.shape) is ZERO:  # no element is read: the place of the first one, which has to be one of the tensor in memory
        while isinstance(x.definition, View):
            x = x.definition.operand.tensor
        index: list[Expr] = [ZERO] * x.ndim
    else:
        index = [ZERO] * x.ndim
        for inner, outer in _groups(x.shape, wanted):
            _map_group(x.shape, inner, wanted, outer, index)
    return view(x, "reshape", wanted, index)


def _product(extents: Sequence[Expr]) -> Expr:
    total: Expr = ONE
    for e in extents:
        total = total * e
    return total


def _infer(x: TensorView, given: Sequence[Expr]) -> Shape:
    """``given`` with its -1 replaced, checked against the number of elements of ``x``."""
    unknown = [d for d, e in enumerate(given) if e is wrap(-1)]
    facts = x.fusion.facts()
    total = _product(x.shape)
    target = shape_text(given)
    for e in given:
        if e is not wrap(-1) and prove(ge(-1, e), facts):
            raise shape_error("reshape", f"{target} has a negative extent", "only one extent may be -1")
    if len(unknown) > 1:
        raise shape_error("reshape", f"{target} has more than one -1", "only one extent may be -1")
    if not unknown:
        if not _equal(_product(given), total, x):
            raise shape_error(
                "reshape",
                f"{described(x)} has {total} elements, {target} has {_product(given)}",
                "the numbers of elements must be provably equal: give facts about symbols with tf.dim(..., multiple_of=)",
            )
        return tuple(given)
    known = _product([e for e in given if e is not wrap(-1)])
    inferred = None if known is ZERO else simplify(total // known, facts)
    if inferred is None or not _equal(inferred * known, total, x):
        raise shape_error(
            "reshape",
            f"{described(x)} has {total} elements, which {known} does not provably divide",
            "give facts about symbols with tf.dim(..., multiple_of=)",
        )
    return tuple(inferred if d in unknown else e for d, e in enumerate(given))


def _equal(a: Expr, b: Expr, x: TensorView) -> bool:
    return a is b or prove(eq(a, b), x.fusion.facts())


def _groups(source: Shape, target: Shape) -> list[tuple[list[int], list[int]]]:
    """Smallest groups of consecutive dimensions of both shapes with equal products, dimensions of extent 1 left out."""
    sources = [d for d, e in enumerate(source) if e is not ONE]
    targets = [d for d, e in enumerate(target) if e is not ONE]
    ends: dict[Expr, int] = {}
    product: Expr = ONE
    for count, d in enumerate(targets, start=1):
        product = product * target[d]
        ends[product] = count
    groups: list[tuple[list[int], list[int]]] = []
    product, s, t = ONE, 0, 0
    for count, d in enumerate(sources, start=1):
        product = product * source[d]
        if count == len(sources):
            groups.append((sources[s:], targets[t:]))
        elif product in ends and ends[product] < len(targets):
            groups.append((sources[s:count], targets[t : ends[product]]))
            s, t = count, ends[product]
    return groups


def _map_group(source: Shape, sources: Sequence[int], target: Shape, targets: Sequence[int], index: list[Expr]) -> None:
    """Fill ``index`` for the dimensions ``sources`` from the row-major position in the dimensions ``targets``."""
    position: Expr = ZERO
    for d in targets:
        position = position * target[d] + iteration_symbol(d)
    stride: Expr = ONE
    for d in reversed(sources):
        place = position // stride
        index[d] = place if d == sources[0] else place % source[d]
        stride = stride * source[d]
